"""The formulas, against worked values and against sacreBLEU; K and M number the lectures' formulas and errata."""

import math
from functools import reduce
from operator import add

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.metrics.ngrams import (
    SMOOTHINGS,
    BleuCounts,
    Overlap,
    align_words,
    bleu,
    bleu_counts,
    brevity_penalty,
    chrf,
    chrf_counts,
    clip_counts,
    closest_length,
    count_ngrams,
    count_overlap,
    f_score,
    longest_common_subsequence,
    matching_chunks,
    meteor,
    rouge,
    smooth_counts,
)
from heedful.metrics.score import MetricOptions, make_tokenizer

CAT = ["рыжий", "кот", "прилег", "на", "лавку"]
LAY, BENCH = ["кот", "лежит", "на", "лавке"], ["на", "лавку", "легла", "кошка"]


# ------------------------------------------------------------------------------------------------ worked values


def test_K1_and_M11_counts_are_clipped():
    hypothesis, reference = ["the"] * 7, ["the", "cat", "is", "on", "the", "mat"]
    counts = bleu_counts(hypothesis, [reference])
    assert (counts.matches[0], counts.totals[0]) == (2, 7)
    slide = sum(word in reference for word in hypothesis)  # the share of n-grams that are present
    assert slide == 7
    theirs = sacrebleu.sentence_bleu(" ".join(hypothesis), [" ".join(reference)], tokenize="none")
    assert theirs.counts[0] == counts.matches[0]
    two = bleu_counts(hypothesis, [["the", "cat"], ["the", "the", "dog", "the"]])
    assert two.matches[0] == 3  # the largest count of one reference, not the sum over them


def test_K2_the_cat_on_the_bench():
    counts = bleu_counts(CAT, [LAY, BENCH])
    assert counts == BleuCounts(matches=(3, 1, 0, 0), totals=(5, 4, 3, 2), length=5, reference_length=4)
    assert smooth_counts(counts, "exp") == [(3, 5), (1, 4), (0.5, 3), (0.25, 2)]
    assert bleu(counts, "none") == 0.0
    worked = {"exp": 23.6435, "floor": 12.5743, "add-k": 37.606}
    assert {name: round(bleu(counts, name), 4) for name in worked} == worked
    assert bleu(bleu_counts(CAT, [LAY, BENCH], 2)) == pytest.approx(38.7298, abs=5e-5)
    assert bleu(bleu_counts(CAT, [LAY], 2)) == pytest.approx(22.3607, abs=5e-5)
    assert bleu(bleu_counts(CAT, [BENCH], 2)) == pytest.approx(31.6228, abs=5e-5)
    assert chrf(chrf_counts(" ".join(CAT), [" ".join(LAY), " ".join(BENCH)])) == pytest.approx(37.23, abs=5e-3)


def test_K3_precisions_are_of_the_corpus_and_no_mean_of_sentences():
    short, long = bleu_counts(["a"], [["a"]], 1), bleu_counts(list("bcdefghij"), [list("xxxxxxxxx")], 1)
    assert bleu(short + long) == pytest.approx(10.0)
    assert (bleu(short) + bleu(long)) / 2 == pytest.approx(50.0)


def test_K4_and_M11_the_brevity_penalty_takes_the_closest_reference():
    assert closest_length(5, [4, 6]) == closest_length(5, [6, 4]) == 4
    assert closest_length(5, [9, 6, 2]) == 6
    assert brevity_penalty(5, 8) == pytest.approx(0.548812, abs=5e-7)
    assert brevity_penalty(8, 5) == brevity_penalty(5, 5) == 1.0
    assert brevity_penalty(0, 3) == 0.0
    hypothesis, references = list("abcde"), [list("abcd"), list("abcdef")]
    ours = bleu(bleu_counts(hypothesis, references))
    theirs = sacrebleu.sentence_bleu(" ".join(hypothesis), [" ".join(one) for one in references], tokenize="none")
    assert ours == pytest.approx(theirs.score, abs=1e-9) == pytest.approx(100.0)
    for slide in (4 + 6, max(4, 6)):  # the sum over y_i, if the references are those, or the longest of them
        assert brevity_penalty(5, slide) < 0.9


def test_K5_is_the_geometric_mean_with_equal_weights():
    counts = BleuCounts((8, 4, 2, 1), (10, 9, 8, 7), 10, 12)
    by_hand = 100 * math.exp(1 - 12 / 10) * math.prod((8 / 10, 4 / 9, 2 / 8, 1 / 7)) ** 0.25
    assert bleu(counts) == pytest.approx(by_hand, abs=1e-12)


def test_K6_the_order_of_words_matters():
    sentence = ["the", "cat", "sat", "on", "the", "mat"]
    assert bleu(bleu_counts(sentence[::-1], [sentence])) < 20.0
    assert bleu(bleu_counts(sentence[::-1], [sentence], 1)) == pytest.approx(100.0)


def test_K7_and_M14_rouge_is_recall_and_its_f_is_another_number():
    worked = {1: 0.4444, 2: 0.2857, "l": 0.4444}
    found = {kind: rouge(CAT, BENCH, kind) for kind in worked}
    assert {kind: round(f_score(one.precision, one.recall), 4) for kind, one in found.items()} == worked
    assert [found[kind].recall for kind in (1, 2, "l")] == [2 / 4, 1 / 3, 2 / 4]
    slide = f_score(found[1].precision, found[1].recall)  # "F1 instead of precision"
    assert found[1].recall != pytest.approx(slide, abs=0.01)
    one = rouge(["a", "b", "c", "d"], ["d", "c", "b", "a"], "l")
    assert one == Overlap(4, 4, 1)


def test_K8_and_M14_meteor_weighs_recall_and_counts_chunks():
    assert meteor(CAT, LAY) == pytest.approx(0.2439, abs=5e-5)
    assert meteor(CAT, BENCH) == pytest.approx(0.4573, abs=5e-5)
    shared = count_overlap(CAT, LAY, 1)
    assert f_score(shared.precision, shared.recall, 3) == pytest.approx(0.4878, abs=5e-5)
    slide = f_score(shared.precision, shared.recall)  # "F1"
    assert slide == pytest.approx(0.4444, abs=5e-5)
    assert matching_chunks(CAT, LAY) == [("кот",), ("на",)]
    assert matching_chunks(CAT, BENCH) == [("на", "лавку")]
    assert meteor(["a"], ["b"]) == meteor([], ["b"]) == 0.0


# ------------------------------------------------------------------------------------------------ laws

WORDS = st.lists(st.sampled_from(["the", "cat", "sat", "the,", "cat.", "кот", "—", "x1"]), max_size=9)
SENTENCE = WORDS.map(" ".join)
TOKENS = st.lists(st.sampled_from("abc"), max_size=8)


def corpora(references: int):
    return st.lists(st.tuples(SENTENCE, *[SENTENCE] * references), min_size=1, max_size=6)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("references", [1, 2, 4])
def test_bleu_and_chrf_are_sacrebleu_s(references, smoothing):
    cut = make_tokenizer(MetricOptions())
    metric = sacrebleu.BLEU(smooth_method=smoothing, force=True)
    sentence_metric = sacrebleu.BLEU(smooth_method=smoothing, force=True, effective_order=True)

    @settings(max_examples=40, deadline=None)  # benchmarks/metrics.py compares 1,000 of each
    @given(corpora(references))
    def law(corpus):
        hypotheses, *others = zip(*corpus, strict=True)
        rows = [(cut(hypothesis), [cut(one) for one in some]) for hypothesis, *some in corpus]
        ours = reduce(add, (bleu_counts(*row) for row in rows))
        theirs = metric.corpus_score(hypotheses, others)
        assert bleu(ours, smoothing) == pytest.approx(theirs.score, abs=1e-9)
        for (words, some), (hypothesis, *texts) in zip(rows, corpus, strict=True):
            theirs = sentence_metric.sentence_score(hypothesis, texts)
            ours = bleu(bleu_counts(words, some), smoothing, effective=True)
            assert ours == pytest.approx(theirs.score, abs=1e-9)
        every = [chrf_counts(hypothesis, some) for hypothesis, *some in corpus]
        total = [reduce(add, some) for some in zip(*every, strict=True)]
        assert chrf(total) == pytest.approx(sacrebleu.CHRF().corpus_score(hypotheses, others).score, abs=1e-9)

    law()


@settings(deadline=None)
@given(TOKENS, TOKENS)
def test_stems_only_add_matches(one, other):
    assert set(align_words(one, other)) <= set(align_words(one, other, stem=lambda word: word.replace("b", "a")))


@settings(deadline=None)
@given(TOKENS, TOKENS)
def test_chunks_hold_every_match_once(one, other):
    runs = matching_chunks(one, other)
    assert sum(map(len, runs)) == count_overlap(one, other, 1).matches
    texts = [" ".join(some) for some in (one, other)]
    assert all(" ".join(run) in text for run in runs for text in texts)


@settings(deadline=None)
@given(TOKENS, TOKENS)
def test_the_longest_common_subsequence_is_common_and_no_shorter_than_the_longest_run(one, other):
    found = longest_common_subsequence(one, other)
    for some in (one, other):
        rest = iter(some)
        assert all(word in rest for word in found)
    assert len(found) == len(longest_common_subsequence(other, one))
    assert len(found) >= max(map(len, matching_chunks(one, other)), default=0)


@settings(deadline=None)
@given(TOKENS, st.integers(1, 4))
def test_ngrams_are_all_there(tokens, n):
    assert count_ngrams(tokens, n).total() == max(0, len(tokens) - n + 1)
    assert clip_counts(count_ngrams(tokens, n), [count_ngrams(tokens, n)]) == count_ngrams(tokens, n)
    assert clip_counts(count_ngrams(tokens, n), []).total() == 0

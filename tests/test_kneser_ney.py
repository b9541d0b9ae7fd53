"""The n-gram baseline of language models: nltk's values, probabilities that sum to one, its discounts."""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.text.tokenizer import BOS, EOS

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import kneser_ney  # noqa: E402  # after its folder is known

sys.path.remove(str(ROOT / "benchmarks"))

VOCAB_SIZE = 12
WORDS = range(4, VOCAB_SIZE)
EQUAL = 0.75  # all discounts; nltk does not discount unigrams
texts = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8), min_size=3, max_size=12)


def as_rows(sentences):
    return [[BOS, *sentence, EOS] for sentence in sentences]


def discounts(order, lowest=0.0):
    return [[lowest] * 3] + [[EQUAL] * 3] * (order - 1)


def probability(model, row):
    """p(last token | the others)"""
    return 2.0 ** float(model.log2_probs([row])[0][-1])


@pytest.mark.parametrize("order", [2, 3, 4])
@given(sentences=texts, context=st.lists(st.sampled_from([*WORDS, EOS]), min_size=3, max_size=3), start=st.booleans())
@settings(max_examples=10, deadline=None)
def test_with_equal_discounts_it_is_nltks(order, sentences, context, start):
    models = pytest.importorskip("nltk.lm", reason="nltk is not installed: pip install 'heedful[dev]'")
    rows = as_rows(sentences)
    theirs = models.KneserNeyInterpolated(order, discount=EQUAL)
    ngrams = [
        [tuple(map(str, row[at : at + n])) for n in range(1, order + 1) for at in range(len(row) - n + 1)]
        for row in rows
    ]
    theirs.fit(ngrams, [str(token) for token in (BOS, EOS, *WORDS)])
    ours = kneser_ney.fit(rows, VOCAB_SIZE, order, discounts=discounts(order))
    prefix = [BOS, *context][: order - 1] if start else context[: order - 1]
    for word in (*WORDS, EOS):
        expected = theirs.unmasked_score(str(word), tuple(map(str, prefix)))
        assert probability(ours, [*prefix, word]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("order", [1, 2, 5])
@given(sentences=texts, lowest=st.sampled_from([0.5, 0.9]), context=st.lists(st.sampled_from(WORDS), max_size=6))
@settings(max_examples=10, deadline=None)
def test_probabilities_sum_to_one(order, sentences, lowest, context):
    model = kneser_ney.fit(as_rows(sentences), VOCAB_SIZE, order, discounts=discounts(order, lowest))
    predicted = [token for token in range(VOCAB_SIZE) if token != BOS]
    for prefix in ([BOS, *context], sentences[0][:2]):  # the second: in the training text, but not at its beginning
        assert sum(probability(model, [*prefix, word]) for word in predicted) == pytest.approx(1.0)


def test_discounts_are_estimated_from_the_counts_of_each_order():
    draw = np.random.default_rng(1)
    rows = as_rows([draw.zipf(1.3, 9).clip(max=60) + 3 for _ in range(4000)])
    model = kneser_ney.fit(rows, 64, 2)
    bigrams = {}
    for row in rows:
        for pair in pairwise(row):
            bigrams[pair] = bigrams.get(pair, 0) + 1
    t = [sum(count == k for count in bigrams.values()) for k in range(5)]
    share = t[1] / (t[1] + 2 * t[2])
    expected = [k - (k + 1) * share * t[k + 1] / t[k] for k in (1, 2, 3)]
    assert model.discounts[1] == pytest.approx(expected)
    assert model.discounts[0] == kneser_ney.FALLBACK_DISCOUNTS  # every unigram is frequent


def test_rows_are_scored_alike_alone_and_together():
    rows = as_rows([[4, 5, 6], [7], [4, 5, 8, 9]])
    model = kneser_ney.fit(rows, VOCAB_SIZE, 3, discounts=discounts(3, 0.5))
    together = model.log2_probs(rows)
    for row, scores in zip(rows, together, strict=True):
        assert len(scores) == len(row) - 1
        assert scores.tolist() == model.log2_probs([row])[0].tolist()

import gzip
import math
import os
from pathlib import Path

import pytest
import sacrebleu

import heedful
from heedful.errors import HeedfulError
from heedful.metrics import METRICS, MetricOptions, interval, score
from heedful.metrics.score import MAX_BOOTSTRAP_BYTES, sentence_scores

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "wmt22-systems"
HYPOTHESES = ["The cat sat on the mat.", "A dog!", ""]
REFERENCES = ["The cat sat on a mat.", "The dog!", "Nothing."]
OTHERS = ["The cat sat on the mat!", "A dog!", "Nothing at all."]


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("bleu", sacrebleu.corpus_bleu),
        ("chrf", sacrebleu.corpus_chrf),
        ("chrf++", lambda *given: sacrebleu.corpus_chrf(*given, word_order=2)),
        ("ter", sacrebleu.corpus_ter),
    ],
)
def test_the_number_is_that_of_sacrebleu(name, theirs):
    for references in ([REFERENCES], [REFERENCES, OTHERS]):
        found = score(name, HYPOTHESES, references)
        assert found.value == theirs(HYPOTHESES, references).score
        assert f"version:{sacrebleu.__version__}" in found.signature
        assert f"nrefs:{len(references)}" in found.signature
    assert score(name, HYPOTHESES, REFERENCES) == score(name, HYPOTHESES, [REFERENCES])


PERFECT = {"ter": 0.0, "meteor": None, "nist": None, "cider": None}  # None: depends on the references


@pytest.mark.parametrize("name", METRICS)
def test_a_copy_is_perfect(name):
    for references in ([REFERENCES], [OTHERS, REFERENCES]):
        copy, perfect = score(name, REFERENCES, references).value, PERFECT.get(name, 100.0)
        if perfect is None:
            assert copy > 2 * score(name, HYPOTHESES[::-1], references).value
        else:
            assert copy == pytest.approx(perfect)


@pytest.mark.parametrize("name", METRICS)
def test_an_interval_is_around_its_score_and_sacrebleu_s(name):
    hypotheses, references = HYPOTHESES * 20, OTHERS * 20
    if name == "f1":  # each of those lines would be a label that is always right or always wrong
        hypotheses, references = list("abba") * 20, list("abaa") * 20
    found = interval(name, hypotheses, references, samples=50)
    assert found.value == score(name, hypotheses, references).value
    assert found.mean - found.margin < found.value < found.mean + found.margin
    assert "bs:50|seed:12345" in found.signature


def test_an_interval_is_that_of_sacrebleu():
    hypotheses, references = HYPOTHESES * 20, REFERENCES * 20
    theirs = sacrebleu.BLEU().corpus_score(hypotheses, [references], n_bootstrap=1000)
    found = interval("bleu", hypotheses, references)
    assert f"{found.mean:.6f} ± {found.margin:.6f}" in theirs.format(width=6)


def test_options_change_the_number_and_its_signature():
    shouted = [one.upper() for one in HYPOTHESES]
    for name in ("bleu", "chrf", "rouge-1", "exact"):
        plain, lower = score(name, shouted, OTHERS), score(name, shouted, OTHERS, options=MetricOptions(lowercase=True))
        assert lower.value > plain.value
        assert ("case:mixed" in plain.signature, "case:lc" in lower.signature) == (True, True)
    for options in (MetricOptions("none"), MetricOptions("char"), MetricOptions(smoothing="add-k")):
        found = score("bleu", HYPOTHESES, REFERENCES, options=options)
        assert found.value != score("bleu", HYPOTHESES, REFERENCES).value
        assert f"tok:{options.tokenization}|smooth:{options.smoothing}" in found.signature


def test_rouge_and_exact_match_by_hand():
    hypotheses, references = ["a b c", "x"], ["a c b d", "y"]
    assert score("rouge-1", hypotheses, references).value == pytest.approx(50 * (2 * 3 / 7))
    assert score("rouge-1-recall", hypotheses, references).value == pytest.approx(50 * 3 / 4)
    assert score("rouge-2", hypotheses, references).value == 0.0
    assert score("rouge-l", hypotheses, references).value == pytest.approx(50 * (2 * 2 / 7))
    assert score("rouge-l-recall", hypotheses, references).value == pytest.approx(50 * 2 / 4)
    best = score("rouge-1", hypotheses, [references, ["q", "x"]])  # of each line the best reference
    assert best.value == pytest.approx(50 * (2 * 3 / 7 + 1))
    assert best.signature == f"nrefs:2|case:mixed|tok:13a|stem:no|of:F1|version:heedful-{heedful.__version__}"
    assert score("exact", ["a ", "b", "c"], ["a", "B", "c"]).value == pytest.approx(200 / 3)


def test_meteor_by_hand_with_and_without_stems():
    assert score("meteor", ["a dog RUNS"], ["A dog running"]).value == pytest.approx(100 * 2 / 3 * (1 - 0.5 / 8))
    stems = MetricOptions(stemmer="english")
    found = score("meteor", ["a dog RUNS"], ["A dog running"], options=stems)
    assert found.value == pytest.approx(100 * (1 - 0.5 / 27))
    assert "case:lc|tok:13a|stem:english|syn:no" in found.signature
    with pytest.raises(HeedfulError, match="unknown stemmer `englsh`; did you mean `english`"):
        score("meteor", HYPOTHESES, REFERENCES, options=MetricOptions(stemmer="englsh"))


def test_nist_by_hand():
    # 4 words, 2 of them twice: info(a) = info(b) = 1 bit, info(a b) = 0 bits as b always follows a
    assert score("nist", ["a b", "a b"], ["a b", "a b"]).value == pytest.approx(1.0)
    penalty = 2 ** -((math.log(2) / math.log(1.5)) ** 2)  # c / r = 1 / 2
    assert score("nist", ["a", "b"], ["a b", "a b"]).value == pytest.approx(penalty)
    assert score("nist", ["", ""], ["a b", "a b"]).value == 0.0


def test_cider_by_hand():
    # "a" occurs in both lines and has no weight; a b, b and c d, ... do. Two of four orders have n-grams.
    references = ["a b", "a c"]
    assert score("cider", references, references).value == pytest.approx(1000 * 2 / 4)
    half = score("cider", references, [references, ["x y", "x z"]])  # the mean over two references
    assert half.value == pytest.approx(1000 * 2 / 4 / 2)
    assert "nrefs:2|case:mixed|tok:13a|stem:no|d:yes" in half.signature
    longer = score("cider", ["a b a", "a c a"], references).value  # one bigram more: a penalty of e^(-1/72)
    assert longer == pytest.approx(1000 / 4 * (1 + math.sqrt(0.5)) * math.exp(-1 / 72))


def test_scores_of_sentences():
    found = sentence_scores("bleu", HYPOTHESES, [REFERENCES, OTHERS])
    assert found == [
        sacrebleu.sentence_bleu(hypothesis, some).score
        for hypothesis, *some in zip(HYPOTHESES, REFERENCES, OTHERS, strict=True)
    ]
    assert sentence_scores("exact", HYPOTHESES, OTHERS) == [0.0, 100.0, 0.0]


def test_misuse():
    with pytest.raises(HeedfulError, match="did you mean `bleu`"):
        score("blue", HYPOTHESES, REFERENCES)
    with pytest.raises(HeedfulError, match="3 translations but 2 references"):
        score("bleu", HYPOTHESES, REFERENCES[:2])
    with pytest.raises(HeedfulError, match="3 translations but 2 references"):
        score("bleu", HYPOTHESES, [REFERENCES, REFERENCES[:2]])
    with pytest.raises(HeedfulError, match="nothing to score"):
        score("bleu", [], [])
    with pytest.raises(HeedfulError, match="unknown tokenization `int`; did you mean `intl`"):
        score("rouge-1", HYPOTHESES, REFERENCES, options=MetricOptions("int"))
    with pytest.raises(HeedfulError, match="unknown smoothing `add`; did you mean `add-k`"):
        score("bleu", HYPOTHESES, REFERENCES, options=MetricOptions(smoothing="add"))
    with pytest.raises(HeedfulError, match="1 samples are too few"):
        interval("bleu", HYPOTHESES, REFERENCES, samples=1)
    with pytest.raises(HeedfulError, match=r"would take 3 GB of memory: use at most 8,333,333 samples"):
        interval("bleu", HYPOTHESES, REFERENCES, samples=MAX_BOOTSTRAP_BYTES // 300 + 10**6)


def test_a_tokenization_that_is_not_installed_says_so(monkeypatch):
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None, raising=False)
    with pytest.raises(
        HeedfulError, match=r"ja-mecab needs packages that are not installed: .* pip install sacrebleu\[ja\]"
    ):
        score("bleu", HYPOTHESES, REFERENCES, options=MetricOptions("ja-mecab"))


# ------------------------------------------------------------------------------------------------ published scores

SETTINGS = {
    "BLEU": ("bleu", MetricOptions()),
    "BLEU-lc": ("bleu", MetricOptions(lowercase=True)),
    "BLEU-intl": ("bleu", MetricOptions("intl")),
    "BLEU-char": ("bleu", MetricOptions("char")),
    "chrF": ("chrf", MetricOptions()),
    "chrF++": ("chrf++", MetricOptions()),
}


@pytest.mark.skipif(not DATA.is_dir(), reason="HEEDFUL_DATA has no wmt22-systems")
@pytest.mark.parametrize("metric", SETTINGS)
def test_published_scores_of_wmt22_to_the_last_digit(metric):
    def lines(name):
        with gzip.open(DATA / f"generaltest2022.de-en.{name}.en.gz", "rt", encoding="utf-8", newline="\n") as stream:
            return stream.read().split("\n")[:-1]

    rows = (line.split("\t") for line in (DATA / "expected-sacrebleu-2.6.0.tsv").read_text().splitlines())
    (expected,) = (float(row[-1]) for row in rows if row[:4] == ["de-en", "LT22", "A", metric])
    name, options = SETTINGS[metric]
    assert score(name, lines("hyp.LT22"), lines("ref.A"), options=options).value == expected

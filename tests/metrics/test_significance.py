import gzip
import os
from pathlib import Path

import pytest
from sacrebleu import BLEU
from sacrebleu.significance import PairedTest

from heedful.errors import HeedfulError
from heedful.metrics.score import METRICS, MetricOptions, interval
from heedful.metrics.significance import PairedScore, run_paired_test

DATA = (
    Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "wmt17-ende-systems"
)
REFERENCES = [f"a line of words and the number {number} in it" for number in range(40)]
GOOD = [one.replace("words", "word") if number % 4 else one for number, one in enumerate(REFERENCES)]
BAD = [one if number % 8 else "something else of it" for number, one in enumerate(GOOD)]


@pytest.mark.parametrize("test", ["bs", "ar"])
def test_numbers_are_those_of_sacrebleu(test):
    signatures, scores = PairedTest(
        [("good", GOOD), ("bad", BAD)], {"BLEU": BLEU()}, [REFERENCES], test, 100, 1000 if test == "ar" else -1
    )()
    first, second = run_paired_test(["bleu"], {"good": GOOD, "bad": BAD}, REFERENCES, test=test, samples=100)
    assert (first.value, first.mean, first.margin) == (
        scores["BLEU"][0].score,
        scores["BLEU"][0].mean,
        scores["BLEU"][0].ci,
    )
    assert (second.value, second.p, second.mean) == tuple(
        getattr(scores["BLEU"][1], name) for name in ("score", "p_value", "mean")
    )
    assert first.signature == str(signatures["BLEU"])
    assert f"{test}:100" in first.signature
    assert second.difference == second.value - first.value
    assert first.p is None


def test_every_metric_can_be_tested():
    found = run_paired_test(list(METRICS), {"good": GOOD, "bad": BAD}, [REFERENCES], samples=50)
    assert [one.name for one in found] == [name for name in METRICS for _ in range(2)]
    for first, second in zip(found[::2], found[1::2], strict=True):
        alone = interval(first.name, GOOD, REFERENCES, samples=50)
        assert (first.value, first.mean, first.margin) == pytest.approx((alone.value, alone.mean, alone.margin))
        assert (second.p < 0.05, second.verdict) == (True, "worse")


def test_a_system_is_no_better_than_itself():
    _, same = run_paired_test(["bleu"], {"good": GOOD, "again": GOOD}, REFERENCES, samples=100)
    assert (same.difference, same.p, same.verdict) == (0.0, 1.0, "no clear difference")


@pytest.mark.parametrize(
    ("name", "difference", "p", "says"),
    [
        ("bleu", 1.0, 0.01, "better"),
        ("bleu", -1.0, 0.01, "worse"),
        ("ter", 1.0, 0.01, "worse"),
        ("ter", -1.0, 0.01, "better"),
        ("bleu", 1.0, 0.2, "no clear difference"),
        ("bleu", 0.0, None, ""),
    ],
)
def test_what_a_difference_says(name, difference, p, says):
    assert PairedScore(name, 30.0, "", 30.0, 1.0, "new", difference, p).verdict == says


def test_misuse():
    with pytest.raises(HeedfulError, match="unknown test `arr`; did you mean `ar`"):
        run_paired_test(["bleu"], {"good": GOOD, "bad": BAD}, REFERENCES, test="arr")
    with pytest.raises(HeedfulError, match="39 translations but 40 references"):
        run_paired_test(["bleu"], {"good": GOOD, "bad": BAD[1:]}, REFERENCES)
    with pytest.raises(HeedfulError, match="0 samples are too few"):
        run_paired_test(["bleu"], {"good": GOOD, "bad": BAD}, REFERENCES, samples=0)


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="HEEDFUL_DATA has no wmt17-ende-systems")
def test_published_p_values():
    def lines(name):
        with gzip.open(DATA / f"{name}.de.gz", "rt", encoding="utf-8", newline="\n") as stream:
            return stream.read().split("\n")[:-1]

    some = ("LMU-nmt-reranked.4934", "xmu.4910")
    rows = (line.split("\t") for line in (DATA / "expected-p-values.tsv").read_text().splitlines())
    expected = {row[0]: float(row[1]) for row in rows if row[0] in some}
    systems = {name: lines(f"hyp.{name}") for name in ("LIUM-NMT.4900", *some)}
    found = run_paired_test(["bleu"], systems, [lines("ref")], samples=2000, options=MetricOptions("none"))
    assert {one.system: one.p for one in found[1:]} == pytest.approx(expected, abs=0.01)

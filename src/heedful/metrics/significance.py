"""Test with sacreBLEU's paired tests whether one system is significantly better than another.

    run_paired_test(["bleu"], {"old": old, "new": new}, references)

Both tests estimate how often a difference this large occurs by chance. The paired bootstrap draws sentences with
replacement and scores both systems on the same draw. Approximate randomization swaps the two outputs of random
sentences. Every system is tested against the first one, without a correction for multiple tests: of twenty equally good
systems, one appears different with p < 0.05.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.errors import HeedfulError, did_you_mean
from heedful.metrics.score import (
    BOOTSTRAP_BYTES_PER_LINE,
    DEFAULT_OPTIONS,
    DEFAULT_SAMPLES,
    METRICS,
    Interval,
    Lines,
    MetricOptions,
    References,
    check_line_counts,
    check_sample_memory,
    make_metric,
)

SIGNIFICANCE_LEVEL = 0.05  # a difference with a smaller p is significant


@dataclass(frozen=True, slots=True)
class ResamplingTest:
    """An entry of TESTS."""

    label: str
    samples: int
    bytes_per_line: int  # of one sample


TESTS = {
    "bs": ResamplingTest("paired bootstrap", DEFAULT_SAMPLES, BOOTSTRAP_BYTES_PER_LINE),
    "ar": ResamplingTest("approximate randomization", 10_000, 10),
}


@dataclass(frozen=True, slots=True)
class PairedScore(Interval):
    """The score of a system, its difference to the first system's, and the p-value of that difference."""

    system: str
    difference: float
    p: float | None  # None for the first system itself

    @property
    def verdict(self) -> str:
        """better, worse or no clear difference; empty for the first system."""
        if self.p is None:
            return ""
        if self.p >= SIGNIFICANCE_LEVEL or not self.difference:
            return "no clear difference"
        return "better" if (self.difference < 0) == METRICS[self.name].lower_is_better else "worse"


def run_paired_test(
    metrics: Sequence[str],
    systems: Mapping[str, Lines],
    references: References,
    *,
    test: str = "bs",
    samples: int | None = None,
    options: MetricOptions = DEFAULT_OPTIONS,
) -> list[PairedScore]:
    """Score every system with every metric and test it against the first; intervals are always bootstrapped."""
    from sacrebleu.significance import PairedTest

    if test not in TESTS:
        raise HeedfulError(f"unknown test `{test}`" + did_you_mean(test, TESTS))
    samples = TESTS[test].samples if samples is None else samples
    for hypotheses in systems.values():
        check_line_counts(hypotheses, references)
        check_sample_memory(len(hypotheses), samples, TESTS[test].bytes_per_line)
    results = []
    for name in metrics:
        run = PairedTest(
            list(systems.items()),
            {name: make_metric(name, references, options)},
            None,  # the metric has the references
            test,
            samples,
            n_ar_confidence=DEFAULT_SAMPLES if test == "ar" else -1,
        )
        signatures, scores_by_metric = run()
        ((label, signature),) = signatures.items()
        scores: list[Any] = scores_by_metric[label]
        results += [
            PairedScore(
                name=name,
                value=float(result.score),
                signature=str(signature),
                mean=float(result.mean),
                margin=float(result.ci),
                system=system,
                difference=float(result.score - scores[0].score),
                p=p_value_of(result, scores[0]),
            )
            for system, result in zip(systems, scores, strict=True)
        ]
    return results


def p_value_of(result: Any, first: Any) -> float | None:
    """sacreBLEU's p-value, but 1 if the scores are equal, for which sacreBLEU returns 1 / (samples + 1)."""
    return 1.0 if result.p_value is not None and result.score == first.score else result.p_value

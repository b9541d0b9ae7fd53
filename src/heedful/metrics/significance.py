"""Is one system really better than another, or was it luck? sacreBLEU's paired tests.

    paired(["bleu"], {"old": old, "new": new}, references)

Both tests ask how often a difference as large would come about by chance. The paired bootstrap draws sentences with
replacement and scores both systems on the same draw; approximate randomization swaps the two outputs of sentences at
random. Every system is tested against the first one, each test by itself: of twenty systems that are all alike, one
will seem to differ with p < 0.05.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.errors import HeedfulError, did_you_mean
from heedful.metrics.score import (
    BOOTSTRAP_BYTES,
    DEFAULT,
    METRICS,
    SAMPLES,
    Interval,
    Lines,
    Options,
    References,
    affordable,
    matched,
    metric_of,
)

SURE = 0.05  # a smaller p is taken for a difference


@dataclass(frozen=True, slots=True)
class Resampling:
    """A line of TESTS."""

    label: str
    samples: int
    each: int  # bytes, of one line in one sample


TESTS = {
    "bs": Resampling("paired bootstrap", SAMPLES, BOOTSTRAP_BYTES),
    "ar": Resampling("approximate randomization", 10_000, 10),
}


@dataclass(frozen=True, slots=True)
class Against(Interval):
    """The score of a system, how far it is from the first system's, and how likely that far by chance."""

    system: str
    difference: float
    p: float | None  # None of the first, against itself

    @property
    def verdict(self) -> str:
        """What it says about the system, in a word."""
        if self.p is None:
            return ""
        if self.p >= SURE or not self.difference:
            return "no clear difference"
        return "better" if (self.difference < 0) == METRICS[self.name].lower_is_better else "worse"


def paired(
    metrics: Sequence[str],
    systems: Mapping[str, Lines],
    references: References,
    *,
    test: str = "bs",
    samples: int | None = None,
    options: Options = DEFAULT,
) -> list[Against]:
    """Every metric of every system, each against the first system; intervals are of the bootstrap with either test."""
    from sacrebleu.significance import PairedTest

    if test not in TESTS:
        raise HeedfulError(f"unknown test `{test}`" + did_you_mean(test, TESTS))
    samples = TESTS[test].samples if samples is None else samples
    for hypotheses in systems.values():
        matched(hypotheses, references)
        affordable(len(hypotheses), samples, TESTS[test].each)
    found = []
    for name in metrics:
        run = PairedTest(
            list(systems.items()),
            {name: metric_of(name, references, options)},
            None,  # the metric has read them
            test,
            samples,
            n_ar_confidence=SAMPLES if test == "ar" else -1,
        )
        signatures, every = run()
        ((label, signature),) = signatures.items()
        scores: list[Any] = every[label]
        found += [
            Against(
                name=name,
                value=float(one.score),
                signature=str(signature),
                mean=float(one.mean),
                margin=float(one.ci),
                system=system,
                difference=float(one.score - scores[0].score),
                p=probability(one, scores[0]),
            )
            for system, one in zip(systems, scores, strict=True)
        ]
    return found


def probability(one: Any, first: Any) -> float | None:
    """sacreBLEU's p-value; but where there is no difference, at which it says 1 / (samples + 1), it is 1."""
    return 1.0 if one.p_value is not None and one.score == first.score else one.p_value

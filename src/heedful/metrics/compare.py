"""Compare systems: scores with p-values, and the differences of each sentence.

    comparison = compare({"old": old, "new": new}, references, metrics=["bleu", "chrf"])
    comparison.compared[0].tally        # Tally(wins=412, losses=371, ties=217, same=203)

The first system is the baseline; every other one is compared with it.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from heedful.errors import HeedfulError
from heedful.metrics.score import DEFAULT_OPTIONS, Lines, MetricOptions, sentence_scores
from heedful.metrics.significance import PairedScore, run_paired_test

NEGLIGIBLE_GAIN = 1e-6  # a rounding error, for scores between 0 and 100
GAIN_EDGES = (-20.0, -10.0, -5.0, -NEGLIGIBLE_GAIN, NEGLIGIBLE_GAIN, 5.0, 10.0, 20.0)
GAIN_BINS = (
    *("-20 and more", "-10 to -20", "-5 to -10", "0 to -5"),
    "equal",
    *("0 to +5", "+5 to +10", "+10 to +20", "+20 and more"),
)


@dataclass(frozen=True, slots=True)
class LineDifference:
    """One line as translated by the baseline and by another system."""

    line: int  # from 1
    first: float  # the chrF of the baseline
    second: float  # the chrF of the other system
    place: int | None  # the first word that differs, counted from 1; None if all are equal

    @property
    def gain(self) -> float:
        return self.second - self.first


@dataclass(frozen=True, slots=True)
class Tally:
    """How many lines the second system translates better, worse or equally well; `same` counts identical texts."""

    wins: int
    losses: int
    ties: int
    same: int


@dataclass(frozen=True, slots=True)
class ComparedSystem:
    """A system and its differences to the baseline, line by line."""

    name: str
    differences: tuple[LineDifference, ...]

    @property
    def tally(self) -> Tally:
        counts, middle = list(self.gain_histogram.values()), GAIN_BINS.index("equal")
        same = sum(difference.place is None for difference in self.differences)
        return Tally(sum(counts[middle + 1 :]), sum(counts[:middle]), counts[middle], same)

    @property
    def gain_histogram(self) -> dict[str, int]:
        """The number of lines in each bin, from large losses to large gains."""
        counts = Counter(bisect(GAIN_EDGES, difference.gain) for difference in self.differences)
        return {name: counts[index] for index, name in enumerate(GAIN_BINS)}

    def largest_gains(self, count: int) -> list[LineDifference]:
        """At most `count` lines that gained, largest gain first."""
        order = sorted(self.differences, key=lambda difference: -difference.gain)
        return [difference for difference in order[:count] if difference.gain > NEGLIGIBLE_GAIN]

    def largest_losses(self, count: int) -> list[LineDifference]:
        """At most `count` lines that lost, largest loss first."""
        order = sorted(self.differences, key=lambda difference: difference.gain)
        return [difference for difference in order[:count] if difference.gain < -NEGLIGIBLE_GAIN]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Scores of all systems, and the differences of each to the baseline."""

    scores: tuple[PairedScore, ...]  # by metric, then by system
    compared: tuple[ComparedSystem, ...]  # all systems but the baseline

    @property
    def baseline(self) -> str:
        return self.scores[0].system


def compare(
    systems: Mapping[str, Lines],
    references: Sequence[Lines],
    *,
    metrics: Sequence[str] = ("bleu", "chrf"),
    test: str = "bs",
    samples: int | None = None,
    options: MetricOptions = DEFAULT_OPTIONS,
) -> Comparison:
    """Compare each system with the first one; sentences are compared by chrF."""
    if len(systems) < 2:
        raise HeedfulError("pass at least two systems to compare")
    scores = run_paired_test(metrics, systems, references, test=test, samples=samples, options=options)
    line_scores = {name: sentence_scores("chrf", lines, references, options=options) for name, lines in systems.items()}
    first, *others = systems
    compared = (
        ComparedSystem(
            name, tuple(line_differences(systems[first], line_scores[first], systems[name], line_scores[name]))
        )
        for name in others
    )
    return Comparison(tuple(scores), tuple(compared))


def line_differences(
    first: Lines, first_scores: Sequence[float], second: Lines, second_scores: Sequence[float]
) -> list[LineDifference]:
    rows = zip(first, second, first_scores, second_scores, strict=True)
    return [
        LineDifference(line, first_score, second_score, first_difference(first_text, second_text))
        for line, (first_text, second_text, first_score, second_score) in enumerate(rows, 1)
    ]


def first_difference(first: str, second: str) -> int | None:
    """The number of the first word (or character, in texts without spaces) that differs, from 1, or None."""
    first_words, second_words = (text.split() if " " in first + second else list(text) for text in (first, second))
    if first_words == second_words:
        return None
    pairs = zip(first_words, second_words, strict=False)
    return 1 + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

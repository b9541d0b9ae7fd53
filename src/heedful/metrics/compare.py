"""Systems side by side: scores with p-values, and where they differ, sentence by sentence.

    found = compare({"old": old, "new": new}, references, metrics=["bleu", "chrf"])
    found.rivals[0].tally        # Tally(wins=412, losses=371, ties=217, same=203)

The first system is what every other one is held to.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from heedful.errors import HeedfulError
from heedful.metrics.score import DEFAULT, Lines, Options, sentence_scores
from heedful.metrics.significance import Against, paired

NEGLIGIBLE = 1e-6  # of a score between 0 and 100: nothing but rounding
EDGES = (-20.0, -10.0, -5.0, -NEGLIGIBLE, NEGLIGIBLE, 5.0, 10.0, 20.0)
BINS = (
    *("-20 and more", "-10 to -20", "-5 to -10", "0 to -5"),
    "equal",
    *("0 to +5", "+5 to +10", "+10 to +20", "+20 and more"),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """What two systems made of one line."""

    line: int  # from 1
    first: float  # the chrF of the first system
    second: float
    place: int | None  # the first word, counted from 1, that is not the same; None where all are

    @property
    def gain(self) -> float:
        """Of the second system over the first."""
        return self.second - self.first


@dataclass(frozen=True, slots=True)
class Tally:
    """How many lines the second system made better, worse and equally good; and how many are the same, word by word."""

    wins: int
    losses: int
    ties: int
    same: int


@dataclass(frozen=True, slots=True)
class Rival:
    """A system beside the first, line by line."""

    name: str
    differences: tuple[Difference, ...]

    @property
    def tally(self) -> Tally:
        """Its wins and losses."""
        counts, middle = list(self.spread.values()), BINS.index("equal")
        same = sum(one.place is None for one in self.differences)
        return Tally(sum(counts[middle + 1 :]), sum(counts[:middle]), counts[middle], same)

    @property
    def spread(self) -> dict[str, int]:
        """How many lines lost or gained how much, from large losses to large gains."""
        counts = Counter(bisect(EDGES, one.gain) for one in self.differences)
        return {name: counts[at] for at, name in enumerate(BINS)}

    def gains(self, number: int) -> list[Difference]:
        """The lines that gained most, the largest gain first."""
        order = sorted(self.differences, key=lambda one: -one.gain)
        return [one for one in order[:number] if one.gain > NEGLIGIBLE]

    def losses(self, number: int) -> list[Difference]:
        """The lines that lost most, the largest loss first."""
        order = sorted(self.differences, key=lambda one: one.gain)
        return [one for one in order[:number] if one.gain < -NEGLIGIBLE]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that can be said of some systems without looking into them; the first is what others are held to."""

    scores: tuple[Against, ...]  # metric by metric, in each the systems in order
    rivals: tuple[Rival, ...]  # all systems but the first

    @property
    def first(self) -> str:
        """The name of the first system."""
        return self.scores[0].system


def compare(
    systems: Mapping[str, Lines],
    references: Sequence[Lines],
    *,
    metrics: Sequence[str] = ("bleu", "chrf"),
    test: str = "bs",
    samples: int | None = None,
    options: Options = DEFAULT,
) -> Comparison:
    """Each system against the first; sentences are judged by their chrF."""
    if len(systems) < 2:
        raise HeedfulError("there is nothing to compare with: give two systems or more")
    scores = paired(metrics, systems, references, test=test, samples=samples, options=options)
    judged = [(some, sentence_scores("chrf", some, references, options=options)) for some in systems.values()]
    rivals = (
        Rival(name, tuple(differences(*judged[0], *other)))
        for name, other in zip(list(systems)[1:], judged[1:], strict=True)
    )
    return Comparison(tuple(scores), tuple(rivals))


def differences(
    first: Lines, first_scores: Sequence[float], second: Lines, second_scores: Sequence[float]
) -> list[Difference]:
    """Line by line, in order."""
    rows = zip(first, second, first_scores, second_scores, strict=True)
    return [
        Difference(line, mine, theirs, parting(one, other)) for line, (one, other, mine, theirs) in enumerate(rows, 1)
    ]


def parting(first: str, second: str) -> int | None:
    """The number, from 1, of the first word that differs (the first character, where there is no space); else None."""
    words, others = (one.split() if " " in first + second else list(one) for one in (first, second))
    if words == others:
        return None
    return 1 + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(words, others, strict=False)))

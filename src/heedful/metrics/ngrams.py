"""The arithmetic of BLEU, chrF, ROUGE and METEOR, small enough to do by hand.

    bleu(bleu_counts("the cat sat".split(), ["a cat sat".split()]))

Counts of sentences add up to those of a corpus, and a score is a function of counts. Whatever heedful reports is
sacreBLEU's own number (ROUGE, which sacreBLEU has not, is ours); these formulas are what `heedful evaluate --explain`
shows, and tests hold them to sacreBLEU's.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import reduce
from operator import add, or_

Grams = Counter[tuple[str, ...]]


def ngrams(pieces: Sequence[str], n: int) -> Grams:
    """How often each run of n pieces occurs; of a string, the pieces are its characters."""
    return Counter(tuple(pieces[at : at + n]) for at in range(len(pieces) - n + 1))


def clipped(hypothesis: Grams, references: Iterable[Grams]) -> Grams:
    """Count_clip(g) = min(count of g in the hypothesis, its largest count in any one reference)

    Without the minimum, "the the the the the the the" would be a perfect unigram match of "the cat is on the mat".
    """
    return hypothesis & reduce(or_, references, Counter())


# ---------------------------------------------------------------------------------------------------------- BLEU


@dataclass(frozen=True, slots=True)
class BleuCounts:
    """All that BLEU knows of a sentence or a corpus."""

    matches: tuple[int, ...]  # clipped, for n = 1, 2, ...
    totals: tuple[int, ...]  # n-grams of the hypothesis
    length: int
    reference_length: int

    def __add__(self, other: "BleuCounts") -> "BleuCounts":
        return BleuCounts(
            tuple(map(add, self.matches, other.matches)),
            tuple(map(add, self.totals, other.totals)),
            self.length + other.length,
            self.reference_length + other.reference_length,
        )


def bleu_counts(hypothesis: Sequence[str], references: Sequence[Sequence[str]], order: int = 4) -> BleuCounts:
    """The counts of one sentence: sum_g Count_clip(g) and sum_g Count(g) for every n, and the two lengths."""
    matches = (
        clipped(ngrams(hypothesis, n), (ngrams(one, n) for one in references)).total() for n in range(1, order + 1)
    )
    totals = (ngrams(hypothesis, n).total() for n in range(1, order + 1))
    length = len(hypothesis)
    return BleuCounts(tuple(matches), tuple(totals), length, closest_length(length, [len(one) for one in references]))


def closest_length(length: int, references: Iterable[int]) -> int:
    """The reference length nearest to that of the hypothesis; of two as near, the shorter."""
    return min(references, key=lambda one: (abs(one - length), one))


def brevity_penalty(length: int, reference_length: int) -> float:
    """BP = 1 if c >= r, exp(1 - r / c) if c < r, 0 if c = 0 < r"""
    if length >= reference_length:
        return 1.0
    return math.exp(1 - reference_length / length) if length else 0.0


# (n, matches, total, orders without a match so far) -> (matches, total)            (Chen and Cherry 2014)
SMOOTHINGS: dict[str, Callable[[int, int, int, int], tuple[float, int]]] = {
    "none": lambda _n, matches, total, _zeros: (matches, total),
    "floor": lambda _n, matches, total, _zeros: (matches or 0.1, total),
    "add-k": lambda n, matches, total, _zeros: (matches + (n > 1), total + (n > 1)),
    "exp": lambda _n, matches, total, zeros: (matches or 0.5**zeros, total),
}


def smoothed(counts: BleuCounts, smoothing: str = "exp") -> list[tuple[float, int]]:
    """(matches, total) for n = 1, 2, ..., after smoothing; their quotient is the precision p_n."""
    found, zeros = [], 0
    for n, (matches, total) in enumerate(zip(counts.matches, counts.totals, strict=True), 1):
        zeros += not matches
        found.append(SMOOTHINGS[smoothing](n, matches, total, zeros))
    return found


def bleu(counts: BleuCounts, smoothing: str = "exp", *, effective: bool = False) -> float:
    """BLEU = 100 BP (p_1 p_2 ... p_N)^(1 / N)

    N is the largest order that was counted; with `effective`, as for single sentences, the largest of which a
    hypothesis so short can have an n-gram at all.
    """
    if not any(counts.matches):
        return 0.0
    shares = [share for share in smoothed(counts, smoothing) if share[1] or not effective]
    if not all(matches and total for matches, total in shares):
        return 0.0
    mean = math.fsum(math.log(matches / total) for matches, total in shares) / len(shares)
    return 100 * brevity_penalty(counts.length, counts.reference_length) * math.exp(mean)


# --------------------------------------------------------------------------------------------- precision and recall


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many n-grams the hypothesis has, how many the reference, and how many they share."""

    hypothesis: int
    reference: int
    matches: int

    @property
    def precision(self) -> float:
        """P = matches / n-grams of the hypothesis"""
        return self.matches / self.hypothesis if self.hypothesis else 0.0

    @property
    def recall(self) -> float:
        """R = matches / n-grams of the reference"""
        return self.matches / self.reference if self.reference else 0.0

    def __add__(self, other: "Overlap") -> "Overlap":
        return Overlap(
            self.hypothesis + other.hypothesis, self.reference + other.reference, self.matches + other.matches
        )


def overlap(hypothesis: Sequence[str], reference: Sequence[str], n: int) -> Overlap:
    """Of n-grams, each counted at most as often as both have it."""
    mine, theirs = ngrams(hypothesis, n), ngrams(reference, n)
    return Overlap(mine.total(), theirs.total(), clipped(mine, [theirs]).total())


def f_score(precision: float, recall: float, beta: float = 1.0) -> float:
    """F_b = (1 + b^2) P R / (b^2 P + R), in which recall weighs b times as much as precision"""
    weight = beta**2
    return (1 + weight) * precision * recall / (weight * precision + recall) if precision + recall else 0.0


# ---------------------------------------------------------------------------------------------------------- chrF


def chrf_counts(hypothesis: str, references: Sequence[str], order: int = 6) -> tuple[Overlap, ...]:
    """Overlaps of character n-grams without spaces, n = 1 to 6, with the reference that gives the highest chrF."""
    mine = "".join(hypothesis.split())
    every = ([overlap(mine, "".join(one.split()), n) for n in range(1, order + 1)] for one in references)
    # Where the reference is too short to have an n-gram, sacreBLEU does not count the hypothesis's either.
    counted = (tuple(one if one.reference else Overlap(0, 0, 0) for one in some) for some in every)
    return max(counted, key=chrf)


def chrf(counts: Sequence[Overlap]) -> float:
    """chrF = 100 F_2(P, R), P and R the means of precision and recall over the n that both sides have"""
    return 100 * f_score(*chrf_means(counts), beta=2)


def chrf_means(counts: Sequence[Overlap]) -> tuple[float, float]:
    """P and R of chrF."""
    both = [one for one in counts if one.hypothesis and one.reference]
    number = max(1, len(both))
    return sum(one.precision for one in both) / number, sum(one.recall for one in both) / number


# ------------------------------------------------------------------------------------------------ ROUGE and METEOR


def longest_common(hypothesis: Sequence[str], reference: Sequence[str]) -> list[str]:
    """The longest subsequence that both have: in the same order, but with anything between."""
    # lengths[i][j] is that of the longest common subsequence of hypothesis[i:] and reference[j:].
    lengths = [[0] * (len(reference) + 1) for _ in range(len(hypothesis) + 1)]
    for i in reversed(range(len(hypothesis))):
        row, below = lengths[i], lengths[i + 1]
        for j in reversed(range(len(reference))):
            row[j] = 1 + below[j + 1] if hypothesis[i] == reference[j] else max(row[j + 1], below[j])
    found, i, j = [], 0, 0
    while i < len(hypothesis) and j < len(reference):
        if hypothesis[i] == reference[j]:
            found.append(hypothesis[i])
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return found


def rouge(hypothesis: Sequence[str], reference: Sequence[str], kind: int | str) -> Overlap:
    """ROUGE-N (kind 1, 2, ...) counts n-grams, ROUGE-L (kind "l") the longest common subsequence.

    Recall is what Lin (2004) defined; F_1 is what most people report.
    """
    if isinstance(kind, int):
        return overlap(hypothesis, reference, kind)
    return Overlap(len(hypothesis), len(reference), len(longest_common(hypothesis, reference)))


def chunks(hypothesis: Sequence[str], reference: Sequence[str]) -> list[tuple[str, ...]]:
    """The words that both have, in few runs: the longest common run is taken again and again until none is left."""
    mine: list[object] = list(hypothesis)
    theirs: list[object] = list(reference)
    found: list[tuple[str, ...]] = []
    while True:
        run = SequenceMatcher(None, mine, theirs, autojunk=False).find_longest_match()
        if not run.size:
            return found
        found.append(tuple(hypothesis[run.a : run.a + run.size]))
        mine[run.a : run.a + run.size] = (object() for _ in range(run.size))  # what is taken is like nothing else
        theirs[run.b : run.b + run.size] = (object() for _ in range(run.size))


def meteor(hypothesis: Sequence[str], reference: Sequence[str]) -> float:
    """METEOR = F_3 (1 - penalty), F_3 = 10 P R / (9 P + R), penalty = 0.5 (chunks / matches)^3

    The form of Banerjee and Lavie (2005) with exact matches only: no stems and no synonyms.
    """
    runs, shared = chunks(hypothesis, reference), overlap(hypothesis, reference, 1)
    if not runs:
        return 0.0
    return f_score(shared.precision, shared.recall, beta=3) * (1 - 0.5 * (len(runs) / shared.matches) ** 3)

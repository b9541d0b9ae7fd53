"""The formulas of BLEU, chrF, ROUGE and METEOR.

    bleu(bleu_counts("the cat sat".split(), ["a cat sat".split()]))

A score is a function of counts, and the counts of a corpus are the sums over its sentences. heedful reports sacreBLEU's
scores (except ROUGE, which sacreBLEU lacks); `heedful evaluate --explain` shows these formulas, and tests compare them
with sacreBLEU.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import reduce
from operator import add, or_

NgramCounts = Counter[tuple[str, ...]]


def count_ngrams(pieces: Sequence[str], n: int) -> NgramCounts:
    """The count of each n-gram of pieces; the pieces of a string are its characters."""
    return Counter(tuple(pieces[start : start + n]) for start in range(len(pieces) - n + 1))


def clip_counts(hypothesis: NgramCounts, references: Iterable[NgramCounts]) -> NgramCounts:
    """Count_clip(g) = min(count of g in the hypothesis, its largest count in any one reference)

    Without the minimum, "the the the the the the the" would be a perfect unigram match of "the cat is on the mat".
    """
    return hypothesis & reduce(or_, references, Counter())


# ---------------------------------------------------------------------------------------------------------- BLEU


@dataclass(frozen=True, slots=True)
class BleuCounts:
    """The counts of a sentence or corpus from which BLEU is computed."""

    matches: tuple[int, ...]  # after clipping, for n = 1, 2, ...
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
        clip_counts(count_ngrams(hypothesis, n), (count_ngrams(reference, n) for reference in references)).total()
        for n in range(1, order + 1)
    )
    totals = (count_ngrams(hypothesis, n).total() for n in range(1, order + 1))
    length = len(hypothesis)
    return BleuCounts(
        tuple(matches), tuple(totals), length, closest_length(length, [len(reference) for reference in references])
    )


def closest_length(length: int, references: Iterable[int]) -> int:
    """The reference length closest to that of the hypothesis; the shorter one in a tie."""
    return min(references, key=lambda reference: (abs(reference - length), reference))


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


def smooth_counts(counts: BleuCounts, smoothing: str = "exp") -> list[tuple[float, int]]:
    """(matches, total) for n = 1, 2, ..., after smoothing; their quotient is the precision p_n."""
    fractions, zeros = [], 0
    for n, (matches, total) in enumerate(zip(counts.matches, counts.totals, strict=True), 1):
        zeros += not matches
        fractions.append(SMOOTHINGS[smoothing](n, matches, total, zeros))
    return fractions


def bleu(counts: BleuCounts, smoothing: str = "exp", *, effective: bool = False) -> float:
    """BLEU = 100 BP (p_1 p_2 ... p_N)^(1 / N)

    N is the largest order that was counted. With `effective`, for single sentences, N is the largest order for which
    the hypothesis has an n-gram.
    """
    if not any(counts.matches):
        return 0.0
    fractions = [(matches, total) for matches, total in smooth_counts(counts, smoothing) if total or not effective]
    if not all(matches and total for matches, total in fractions):
        return 0.0
    mean = math.fsum(math.log(matches / total) for matches, total in fractions) / len(fractions)
    return 100 * brevity_penalty(counts.length, counts.reference_length) * math.exp(mean)


# --------------------------------------------------------------------------------------------- precision and recall


@dataclass(frozen=True, slots=True)
class Overlap:
    """The number of n-grams in the hypothesis, in the reference, and in both."""

    hypothesis: int
    reference: int
    matches: int

    @property
    def precision(self) -> float:
        return self.matches / self.hypothesis if self.hypothesis else 0.0

    @property
    def recall(self) -> float:
        return self.matches / self.reference if self.reference else 0.0

    def __add__(self, other: "Overlap") -> "Overlap":
        return Overlap(
            self.hypothesis + other.hypothesis, self.reference + other.reference, self.matches + other.matches
        )


def count_overlap(hypothesis: Sequence[str], reference: Sequence[str], n: int) -> Overlap:
    """The overlap of n-grams, with clipped counts."""
    hypothesis_counts, reference_counts = count_ngrams(hypothesis, n), count_ngrams(reference, n)
    matches = clip_counts(hypothesis_counts, [reference_counts]).total()
    return Overlap(hypothesis_counts.total(), reference_counts.total(), matches)


def f_score(precision: float, recall: float, beta: float = 1.0) -> float:
    """F_b = (1 + b^2) P R / (b^2 P + R); recall has b times the weight of precision"""
    weight = beta**2
    return (1 + weight) * precision * recall / (weight * precision + recall) if precision + recall else 0.0


# ---------------------------------------------------------------------------------------------------------- chrF


def chrf_counts(hypothesis: str, references: Sequence[str], order: int = 6) -> tuple[Overlap, ...]:
    """Overlaps of character n-grams without spaces, n = 1 to 6, with the reference of the highest chrF."""
    characters = "".join(hypothesis.split())

    def counts(reference: str) -> tuple[Overlap, ...]:
        overlaps = (count_overlap(characters, "".join(reference.split()), n) for n in range(1, order + 1))
        # If the reference has no n-gram of this order, sacreBLEU ignores those of the hypothesis.
        return tuple(each if each.reference else Overlap(0, 0, 0) for each in overlaps)

    return max(map(counts, references), key=chrf)


def chrf(counts: Sequence[Overlap]) -> float:
    """chrF = 100 F_2(P, R); P and R are means over the orders n that both sides have"""
    return 100 * f_score(*chrf_means(counts), beta=2)


def chrf_means(counts: Sequence[Overlap]) -> tuple[float, float]:
    in_both = [each for each in counts if each.hypothesis and each.reference]
    orders = max(1, len(in_both))
    return sum(each.precision for each in in_both) / orders, sum(each.recall for each in in_both) / orders


# ------------------------------------------------------------------------------------------------ ROUGE and METEOR


def longest_common_subsequence(hypothesis: Sequence[str], reference: Sequence[str]) -> list[str]:
    """The longest sequence of words that both have in this order, not necessarily adjacent."""
    # lengths[i][j] is the length for hypothesis[i:] and reference[j:].
    lengths = [[0] * (len(reference) + 1) for _ in range(len(hypothesis) + 1)]
    for i in reversed(range(len(hypothesis))):
        row, below = lengths[i], lengths[i + 1]
        for j in reversed(range(len(reference))):
            row[j] = 1 + below[j + 1] if hypothesis[i] == reference[j] else max(row[j + 1], below[j])
    subsequence, i, j = [], 0, 0
    while i < len(hypothesis) and j < len(reference):
        if hypothesis[i] == reference[j]:
            subsequence.append(hypothesis[i])
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return subsequence


def rouge(hypothesis: Sequence[str], reference: Sequence[str], kind: int | str) -> Overlap:
    """ROUGE-N (kind 1, 2, ...) counts n-grams, ROUGE-L (kind "l") the longest common subsequence.

    Lin (2004) defines ROUGE as recall; most papers report F_1.
    """
    if isinstance(kind, int):
        return count_overlap(hypothesis, reference, kind)
    return Overlap(len(hypothesis), len(reference), len(longest_common_subsequence(hypothesis, reference)))


def matching_chunks(hypothesis: Sequence[str], reference: Sequence[str]) -> list[tuple[str, ...]]:
    """The common words in few runs, found greedily: longest common run first."""
    unused_hypothesis: list[object] = list(hypothesis)
    unused_reference: list[object] = list(reference)
    runs: list[tuple[str, ...]] = []
    while True:
        run = SequenceMatcher(None, unused_hypothesis, unused_reference, autojunk=False).find_longest_match()
        if not run.size:
            return runs
        runs.append(tuple(hypothesis[run.a : run.a + run.size]))
        unused_hypothesis[run.a : run.a + run.size] = (object() for _ in range(run.size))  # matches no word
        unused_reference[run.b : run.b + run.size] = (object() for _ in range(run.size))


def meteor(hypothesis: Sequence[str], reference: Sequence[str]) -> float:
    """METEOR = F_3 (1 - penalty), F_3 = 10 P R / (9 P + R), penalty = 0.5 (chunks / matches)^3

    The formula of Banerjee and Lavie (2005) with exact matches only: no stems and no synonyms.
    """
    runs, unigrams = matching_chunks(hypothesis, reference), count_overlap(hypothesis, reference, 1)
    if not runs:
        return 0.0
    return f_score(unigrams.precision, unigrams.recall, beta=3) * (1 - 0.5 * (len(runs) / unigrams.matches) ** 3)

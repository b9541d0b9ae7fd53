"""The formulas of BLEU, chrF, ROUGE, METEOR, NIST and CIDEr.

    bleu(bleu_counts("the cat sat".split(), ["a cat sat".split()]))

A score is a function of counts, and the counts of a corpus are the sums over its sentences. heedful reports sacreBLEU's
BLEU and chrF; `heedful evaluate --explain` shows these formulas, and tests compare them with sacreBLEU. The others are
reported as computed here; benchmarks compare METEOR and NIST with NLTK, and CIDEr with pycocoevalcap.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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


def align_words(
    hypothesis: Sequence[str], reference: Sequence[str], stem: Callable[[str], str] | None = None
) -> list[tuple[int, int]]:
    """Positions of words that match, each word once: equal words, then words with equal stems.

    Later words are matched first, with the last free word of the reference, as in NLTK.
    """
    links: dict[int, int] = {}
    for form in (str, stem) if stem else (str,):
        free_positions: dict[str, list[int]] = {}
        for position in sorted(set(range(len(reference))) - set(links.values())):
            free_positions.setdefault(form(reference[position]), []).append(position)
        for position in sorted(set(range(len(hypothesis))) - set(links), reverse=True):
            if candidates := free_positions.get(form(hypothesis[position])):
                links[position] = candidates.pop()
    return sorted(links.items())


def matching_chunks(
    hypothesis: Sequence[str], reference: Sequence[str], stem: Callable[[str], str] | None = None
) -> list[tuple[str, ...]]:
    """The runs of the hypothesis whose words match adjacent words of the reference, in the same order."""
    runs: list[list[str]] = []
    previous = None
    for position, partner in align_words(hypothesis, reference, stem):
        if previous != (position - 1, partner - 1):
            runs.append([])
        runs[-1].append(hypothesis[position])
        previous = position, partner
    return [tuple(run) for run in runs]


def meteor(hypothesis: Sequence[str], reference: Sequence[str], stem: Callable[[str], str] | None = None) -> float:
    """METEOR = F_3 (1 - penalty), F_3 = 10 P R / (9 P + R), penalty = 0.5 (chunks / matches)^3

    The formula of Banerjee and Lavie (2005). Words match if they are equal or, with `stem`, if their stems are equal;
    there are no synonyms.
    """
    chunks = matching_chunks(hypothesis, reference, stem)
    if not chunks:
        return 0.0
    matches = sum(map(len, chunks))
    f_3 = f_score(matches / len(hypothesis), matches / len(reference), beta=3)
    return f_3 * (1 - 0.5 * (len(chunks) / matches) ** 3)


# ---------------------------------------------------------------------------------------------------------- NIST


def count_up_to(words: Sequence[str], order: int) -> NgramCounts:
    """The counts of all n-grams, n = 1 to order."""
    return sum((count_ngrams(words, n) for n in range(1, order + 1)), Counter())


def ngram_information(references: Iterable[Sequence[str]], order: int = 5) -> dict[tuple[str, ...], float]:
    """info(w_1 ... w_n) = log_2(count(w_1 ... w_{n-1}) / count(w_1 ... w_n)), over all references

    The count of the empty n-gram is the number of words. Rare words and rare continuations are informative.
    """
    counts: NgramCounts = Counter()
    for reference in references:
        counts.update(count_up_to(reference, order))
        counts[()] += len(reference)
    return {ngram: math.log2(counts[ngram[:-1]] / count) for ngram, count in counts.items() if ngram}


@dataclass(frozen=True, slots=True)
class NistCounts:
    """The counts of a sentence or corpus from which NIST is computed."""

    information: tuple[float, ...]  # of the matching n-grams, for n = 1, 2, ...
    totals: tuple[int, ...]  # n-grams of the hypothesis
    length: int
    reference_length: float  # the mean over the orders, as each may choose another reference


def nist_counts(
    hypothesis: Sequence[str],
    references: Sequence[Sequence[str]],
    information: dict[tuple[str, ...], float],
    order: int = 5,
) -> NistCounts:
    """The counts of one sentence; each n uses the reference with which the hypothesis shares most information."""
    values, totals, lengths = [], [], []
    for n in range(1, order + 1):
        hypothesis_counts = count_ngrams(hypothesis, n)
        matches = (clip_counts(hypothesis_counts, [count_ngrams(reference, n)]) for reference in references)
        shared = (sum(information[ngram] * count for ngram, count in counts.items()) for counts in matches)
        value, length = max(zip(shared, map(len, references), strict=True))
        values.append(value)
        totals.append(hypothesis_counts.total())
        lengths.append(length)
    return NistCounts(tuple(values), tuple(totals), len(hypothesis), sum(lengths) / order)


def nist_penalty(length: float, reference_length: float) -> float:
    """exp(b ln(min(1, c / r))^2); b is chosen so that the penalty is 0.5 for c / r = 2 / 3"""
    if length >= reference_length:
        return 1.0
    beta = math.log(0.5) / math.log(1.5) ** 2
    return math.exp(beta * math.log(length / reference_length) ** 2) if length else 0.0


def nist(counts: NistCounts) -> float:
    """NIST = penalty * sum_n (information of the matching n-grams / number of n-grams), n = 1 to 5 (Doddington 2002)"""
    means = (value / total for value, total in zip(counts.information, counts.totals, strict=True) if total)
    return nist_penalty(counts.length, counts.reference_length) * math.fsum(means)


# --------------------------------------------------------------------------------------------------------- CIDEr


@dataclass(frozen=True, slots=True)
class TfIdfVectors:
    """The n-grams of a sentence with their TF-IDF weights and the norms of the weights, for n = 1, 2, ..."""

    weights: tuple[dict[tuple[str, ...], float], ...]
    norms: tuple[float, ...]
    length: int


def document_frequencies(lines: Iterable[Sequence[Sequence[str]]], order: int = 4) -> NgramCounts:
    """In the references of how many lines an n-gram occurs; a line is a list of references."""
    frequencies: NgramCounts = Counter()
    for references in lines:
        frequencies.update({ngram for reference in references for ngram in count_up_to(reference, order)})
    return frequencies


def tf_idf(words: Sequence[str], frequencies: NgramCounts, num_lines: int, order: int = 4) -> TfIdfVectors:
    """weight(g) = count(g) ln(N / max(1, df(g)))"""
    weights = tuple(
        {
            ngram: count * math.log(num_lines / max(1, frequencies[ngram]))
            for ngram, count in count_ngrams(words, n).items()
        }
        for n in range(1, order + 1)
    )
    return TfIdfVectors(weights, tuple(math.hypot(*each.values()) for each in weights), len(words))


def cider(hypothesis: TfIdfVectors, reference: TfIdfVectors, sigma: float = 6.0) -> float:
    """CIDEr-D = 10 exp(-(c - r)^2 / (2 sigma^2)) mean_n sum_g min(h_g, r_g) r_g / (|h| |r|)

    h and r are the TF-IDF weights of the n-grams, n = 1 to 4; the score of a sentence is the mean over its references
    (Vedantam et al. 2015). Lengths are counted in bigrams, as in pycocoevalcap: a word is as long as no word.
    """
    cosines = []
    for ours, theirs, *norms in zip(
        hypothesis.weights, reference.weights, hypothesis.norms, reference.norms, strict=True
    ):
        product = math.fsum(
            min(weight, theirs.get(ngram, 0.0)) * theirs.get(ngram, 0.0) for ngram, weight in ours.items()
        )
        cosines.append(product / math.prod(norms) if all(norms) else 0.0)
    difference = max(hypothesis.length - 1, 0) - max(reference.length - 1, 0)
    return 10 * math.exp(-(difference**2) / (2 * sigma**2)) * math.fsum(cosines) / len(cosines)

r"""Finds lines that are not translations of each other, and where the two sides are shifted against each other.

No dictionary is needed: word similarities are learned from the corpus. Every pair i gets a random vector r_i, the same
for both sides. The vector of a word is the sum over the pairs that contain it, minus its expectation,

    e(w) = sum_{i: w in i} r_i - count(w) mean(r)       so that cos(e(a), e(b)) grows with how often a and b co-occur

and the vector of a sentence is the sum of its words' directions, weighted by rarity. The similarity and the length
ratio of the two sides are then compared with those of unrelated sides (the same lines, rolled), as a log-likelihood
ratio per line,

    evidence_i = log p(similarity_i | not parallel) / p(similarity_i | parallel) + the same of the length ratio

which is positive where line i is not parallel. (The contribution of a line to its own words is removed first; otherwise
it would be evidence for itself.) Viterbi finds the best path through the lags; a stretch that another lag explains
better than chance allows is a fault. The time is linear in the number of words, with numpy over whole columns.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

VECTOR_SIZE = 96  # of the random vectors: chance similarity is about 1 / sqrt(VECTOR_SIZE)
MIN_WORD_LINES = 2  # that contain a word; one of them is the line being checked
MAX_WORD_LINES = 1024  # used for the vector of a frequent word
MAX_LAG_CHANGE = 12  # lines, from one window to the next
WINDOW_LINES = 64  # over which the lag is estimated from lengths alone
MAX_LAGS = 64  # different lags that are tried
PROBE_LINES = 64  # of a doubtful stretch, compared with other places
MAX_PROBE_DISTANCE = 2000  # lines
MAX_PROBES = 32  # doubtful stretches that are probed, the worst first
MAX_ROUNDS = 8  # of searching for new lags in lines that no lag explains
MAX_LINE_NATS = 4.0  # of evidence per line: good corpora also have free translations
MIN_GAIN_NATS = 12.0  # of evidence beyond log(lines) before a shift is reported
# In scripts without spaces, each character is a word.
WORD_PATTERN = (
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
    r"|[[\p{L}\p{M}\p{N}]--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]+"
)


@dataclass(frozen=True, slots=True)
class WordIndex:
    """The words of one side, numbered by frequency, line by line."""

    ids: Integers  # [N] of every word, line after line
    rows: Integers  # [N] the line of each
    counts: Integers  # [V] how often each word occurs
    vocabulary: polars.Series  # [V]
    num_lines: int


@dataclass(frozen=True, slots=True)
class Shift:
    """Lines [begin, end), counted from 0, that are not parallel, and the lag of the target there."""

    begin: int
    end: int
    lag: int | None  # line i of the source belongs to line i + lag of the target; None: to no line
    evidence: float  # nats


def index_words(texts: polars.Series) -> WordIndex:
    """Index the lower-cased words of every line."""
    table = (
        polars.DataFrame({"row": np.arange(len(texts)), "word": texts.str.to_lowercase().str.extract_all(WORD_PATTERN)})
        .explode("word")
        .drop_nulls()
    )
    counts = table.group_by("word").len().sort(["len", "word"], descending=[True, False])
    numbered = counts.select("word", number=polars.int_range(counts.height, dtype=polars.Int64))
    words = table.join(numbered, on="word", how="left", maintain_order="left")
    return WordIndex(
        words["number"].to_numpy(),
        words["row"].to_numpy(),
        counts["len"].to_numpy().astype(np.int64),
        counts["word"],
        len(texts),
    )


def sum_runs(table: Floats, index: Integers, lengths: Integers, max_terms: int) -> Floats:
    """Row i is the sum of `table[index[..]]` over the i-th run of `index`; longer runs are sampled to `max_terms`.

    It loops over positions within runs and handles all runs together.
    """
    begins = np.cumsum(lengths) - lengths
    order = np.argsort(-lengths, kind="stable")  # long runs first
    begins, used, lengths = begins[order], np.minimum(lengths, max_terms)[order], lengths[order]
    result = np.zeros((len(lengths), table.shape[1]), np.float32)
    for position in range(int(used.max(initial=0))):
        end = int(np.searchsorted(-used, -position))
        result[:end] += table[index[begins[:end] + position * lengths[:end] // used[:end]]]
    in_order = np.empty_like(result)
    in_order[order] = result
    return in_order


def normalize_rows(vectors: Floats) -> Floats:
    """Divide every row by its norm; a row of zeros stays."""
    result: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return result


def sentence_vectors(side: WordIndex, partner: Integers, seed: int = 1) -> Floats:
    """[lines, VECTOR_SIZE] unit vectors; line i of this side belongs to pair partner[i], or to none if negative.

    A line's own r is subtracted from its words' vectors, because a line is no evidence for itself. The similarity of
    unrelated sides is then zero on average, in a corpus of any size.
    """
    pairs = int(partner.max(initial=-1)) + 1
    random = np.random.default_rng(seed).integers(0, 2, (pairs, VECTOR_SIZE), dtype=np.int8).astype(np.float32) * 2 - 1
    random -= random.mean(0) if pairs else 0
    known = side.counts[side.ids] >= MIN_WORD_LINES
    rows, ids = side.rows[known], side.ids[known]
    has_partner = partner[rows] >= 0
    by_word = np.argsort(ids[has_partner], kind="stable")
    size = int(np.count_nonzero(side.counts >= MIN_WORD_LINES))  # the most frequent come first
    occurrences = np.bincount(ids[has_partner], minlength=size)
    sums = sum_runs(random, partner[rows[has_partner]][by_word], occurrences, max_terms=MAX_WORD_LINES)
    weights = np.log(1 + side.num_lines / side.counts[:size]) / np.maximum(np.linalg.norm(sums, axis=1), 1e-9)
    weights = weights.astype(np.float32)
    vectors = sum_runs(sums * weights[:, None], ids, np.bincount(rows, minlength=side.num_lines), max_terms=48)
    own_weight = np.bincount(rows, np.where(occurrences[ids] <= MAX_WORD_LINES, weights[ids], 0), side.num_lines)
    paired = partner >= 0
    vectors[paired] -= own_weight.astype(np.float32)[paired, None] * random[partner[paired]]
    return normalize_rows(vectors)


def relative_lengths(source: Integers, target: Integers) -> tuple[Floats, Floats]:
    """Logarithms of lengths in characters, relative to the median of each side."""
    left, right = (np.log(side + 4.0).astype(np.float32) for side in (source, target))
    return left - np.median(left), right - np.median(right)


def find_global_lags(left: Floats, right: Floats, max_lags: int = 8) -> Integers:
    """The few lags at which the lengths of the whole files agree far better than by chance.

    It uses phase correlation, in which all frequencies have the same weight, because the lines of a sorted or periodic
    file are similar at many lags.
    """
    size = 1 << (len(left) + len(right)).bit_length()
    spectrum = np.fft.rfft(left, size).conj() * np.fft.rfft(right, size)
    agreement = np.fft.irfft(spectrum / (np.abs(spectrum) + 1e-9), size)
    best = np.argsort(-agreement)[:max_lags]
    best = best[agreement[best] > 7 * agreement.std()]
    lags: Integers = np.where(best < size // 2, best, best - size)
    return lags


def estimate_lags_by_length(left: Floats, right: Floats) -> Integers:
    """For every window of lines, the lag at which lengths agree best; 0 unless one lag is clearly better.

    It tries lags near 0, near that of the previous window (lost lines add up), and those of the whole files.
    """
    lines, near = len(left), np.arange(-MAX_LAG_CHANGE, MAX_LAG_CHANGE + 1)
    global_lags = find_global_lags(left, right)
    lags = np.zeros(max(1, lines // WINDOW_LINES), np.int64)
    last = 0
    for number in range(len(lags)):
        tried = np.unique(np.concatenate([near, near + last, global_lags]))
        rows = np.arange(number * WINDOW_LINES, lines if number == len(lags) - 1 else (number + 1) * WINDOW_LINES)
        others = rows[:, None] + tried
        inside = (others >= 0) & (others < len(right))
        distances = np.abs(left[rows, None] - right[np.clip(others, 0, len(right) - 1)])
        tried, distances, inside = (array[..., inside.mean(0) > 0.5] for array in (tried, distances, inside))
        if not len(tried):
            continue
        mean = (distances * inside).sum(0) / inside.sum(0)
        if mean.mean() - mean.min() > 3 * mean.std() + 1e-6:
            lags[number] = last = int(tried[mean.argmin()])
    return lags


def match_lines_by_lag(lags: Integers, source_lines: int, target_lines: int) -> Integers:
    """The target line of each source line, by the lag of its window; -1 for none."""
    window = np.minimum(np.arange(source_lines) // WINDOW_LINES, len(lags) - 1)
    partner = np.arange(source_lines) + lags[window]
    return np.where((partner >= 0) & (partner < target_lines), partner, -1)


def fit_log_likelihood_ratio(matching: Floats, rolled: Floats) -> tuple[Floats, Floats]:
    """(edges, log p(value | not parallel) / p(value | parallel) per bin), from samples of both."""
    edges = np.unique(np.quantile(np.concatenate([matching, rolled]), np.linspace(0, 1, 33)[1:-1]))
    counts = [
        np.bincount(np.searchsorted(edges, values), minlength=len(edges) + 1) + 2.0 for values in (matching, rolled)
    ]
    ratio = np.log(counts[1] / counts[1].sum()) - np.log(counts[0] / counts[0].sum())
    return edges, ratio.astype(np.float32)


class Evidence:
    """Evidence that a source line and a target line are not translations, learned from the lines themselves."""

    def __init__(self, source: polars.Series, target: polars.Series) -> None:
        lengths = [side.str.len_chars().to_numpy().astype(np.int64) for side in (source, target)]
        self.source_lengths, self.target_lengths = relative_lengths(*lengths)
        self.words = index_words(source), index_words(target)
        self.lags = estimate_lags_by_length(self.source_lengths, self.target_lengths)
        partner = match_lines_by_lag(self.lags, len(source), len(target))
        rows = np.flatnonzero(partner >= 0)
        others = partner[rows]
        back = np.full(len(target), -1, np.int64)
        back[others] = rows
        self.source_vectors = sentence_vectors(self.words[0], np.where(partner >= 0, np.arange(len(source)), -1))
        self.target_vectors = sentence_vectors(self.words[1], back)
        rolled = np.roll(others, max(MAX_LAG_CHANGE + 1, len(others) // 3))
        self.likelihood_bins = [
            fit_log_likelihood_ratio(value(rows, others), value(rows, rolled))
            for value in (self.similarity, self.length_difference)
        ]
        self.support_nats = -float(self.evidence_against(rows, others).mean()) if len(rows) else 0.0

    @property
    def known_share(self) -> float:
        """The share of pairs that have a known word on both sides."""
        lines = min(len(self.source_vectors), len(self.target_vectors))
        return float((self.source_vectors[:lines].any(1) & self.target_vectors[:lines].any(1)).mean()) if lines else 0.0

    def similarity(self, source_rows: Integers, target_rows: Integers) -> Floats:
        """Cosine similarity of source lines and target lines."""
        result: Floats = np.einsum("nd,nd->n", self.source_vectors[source_rows], self.target_vectors[target_rows])
        return result

    def length_difference(self, source_rows: Integers, target_rows: Integers) -> Floats:
        """Logarithm of the length ratio, relative to its median."""
        return self.target_lengths[target_rows] - self.source_lengths[source_rows]

    def nats_against(self, similarity: Floats, difference: Floats) -> Floats:
        """Nats of evidence, by these two measures, that lines do not belong together."""
        measures = zip(self.likelihood_bins, (similarity, difference), strict=True)
        total = sum(ratio[np.searchsorted(edges, values)] for (edges, ratio), values in measures)
        result: Floats = np.clip(total, -MAX_LINE_NATS, MAX_LINE_NATS)
        return result

    def evidence_against(self, source_rows: Integers, target_rows: Integers) -> Floats:
        """Nats of evidence, for each source line and target line, that they do not belong together."""
        similarity = self.similarity(source_rows, target_rows)
        return self.nats_against(similarity, self.length_difference(source_rows, target_rows))

    def evidence_against_lag(self, lag: int) -> Floats:
        """Evidence that source line i does not belong to target line i + lag; 0 if there is no such line."""
        rows = np.arange(max(0, -lag), min(len(self.source_vectors), len(self.target_vectors) - lag))
        result = np.zeros(len(self.source_vectors), np.float32)
        result[rows] = self.evidence_against(rows, rows + lag)
        return result

    def best_lag(self, begin: int, end: int) -> int | None:
        """The lag, other than 0, at which lines [begin, end) match best; None if none is better than chance."""
        low, high = max(0, begin - MAX_PROBE_DISTANCE), min(len(self.target_vectors), end + MAX_PROBE_DISTANCE)
        rows = slice(begin, end)
        difference = self.target_lengths[None, low:high] - self.source_lengths[rows, None]
        cost = self.nats_against(
            self.source_vectors[rows] @ self.target_vectors[low:high].T, difference
        )  # [lines, others]
        height, width = cost.shape
        # Shift each row one cell further to the left, so that diagonals become columns.
        skewed = np.zeros(height * (height + width + 1), np.float32)
        skewed[: height * (height + width)].reshape(height, -1)[:, :width] = cost
        total = skewed.reshape(height, -1).sum(0)[:width]
        if low <= begin < high:
            total[begin - low] = np.inf
        best = int(total.argmin())
        return low + best - begin if total[best] < -np.log(2 * MAX_PROBE_DISTANCE) - 2 else None

    def favors_lag_zero(self, region: Sequence[Shift]) -> bool:
        """Whether the lines of adjacent shifts match far better at lag 0 than at other small lags."""
        first, last = (
            max(region[0].begin, MAX_LAG_CHANGE),
            min(region[-1].end, len(self.source_vectors), len(self.target_vectors) - MAX_LAG_CHANGE),
        )
        rows = np.arange(first, max(first, min(last, first + MAX_PROBE_DISTANCE)))
        lags = set(range(-MAX_LAG_CHANGE, MAX_LAG_CHANGE + 1)) - {0, *(shift.lag for shift in region)}
        totals = np.array([self.evidence_against(rows, rows + lag).sum() for lag in lags])
        gain = sum(shift.evidence for shift in region) * len(rows) / (region[-1].end - region[0].begin)
        return bool(totals.mean() - self.evidence_against(rows, rows).sum() > max(4 * totals.std(), gain / 4))


def find_stretches(evidence: Floats, min_nats: float) -> list[tuple[int, int, float]]:
    """(begin, end, sum) of every stretch whose sum exceeds `min_nats`: the peaks of a random walk.

    A stretch begins where the walk is lowest and ends at its highest point before it falls by `min_nats` again.
    """
    stretches = []
    begin = end = 0
    height = peak = 0.0
    for line, nats in enumerate([*evidence.tolist(), -np.inf], 1):
        height += nats
        if height > peak:
            peak, end = height, line
        if height <= 0 or peak - height > min_nats:
            if peak > min_nats:
                stretches.append((begin, end, peak))
            begin, height, peak = line, 0.0, 0.0
    return stretches


def best_path(scores: Floats, switch_cost: float) -> Integers:
    """The sequence of states with the largest total of `scores`, [lines, states], if a change costs `switch_cost`.

    Viterbi's algorithm from state 0; all changes cost the same, so only the best other state matters.
    """
    height = np.full(scores.shape[1], -switch_cost)
    height[0] = 0.0
    before = np.empty(len(scores), np.int64)
    changed = np.empty(scores.shape, bool)
    for line, row in enumerate(scores):
        before[line] = top = height.argmax()
        changed[line] = height < height[top] - switch_cost
        height = np.maximum(height, height[top] - switch_cost) + row
    path = np.empty(len(scores), np.int64)
    state = int(height.argmax())
    for line in range(len(scores) - 1, -1, -1):
        path[line] = state
        if changed[line, state]:
            state = int(before[line])
    return path


def find_shifts(evidence: Evidence) -> list[Shift]:
    """Every stretch of lines that are not parallel, with the lag that would make them so.

    Each line is in one of several states: it belongs to the line at some lag, or to no line (no better than chance). A
    stretch in another state than "lag 0" must gain more than MIN_GAIN_NATS + log(lines) nats, and lag 0 must not be
    better there than neighboring lags: part of a corpus may differ from the rest and still be parallel.
    """
    log_lines = float(np.log(max(len(evidence.source_vectors), 2)))
    scores = {0: -evidence.evidence_against_lag(0)}
    doubtful = find_stretches(-scores[0], log_lines + 2)  # cheap, and enough if there are no faults
    lags = {0, *(lag for lag, _ in Counter(evidence.lags.tolist()).most_common(MAX_LAGS))}
    if not doubtful and lags == {0}:
        return []
    shifts: list[Shift] = []
    for round_number in range(MAX_ROUNDS):
        doubtful.sort(key=lambda stretch: -stretch[2])
        for begin, end, _ in doubtful[:MAX_PROBES]:
            places = {int(place) for place in np.linspace(begin, max(begin, end - PROBE_LINES), 4)}
            probes = (evidence.best_lag(place, min(place + PROBE_LINES, end)) for place in places)
            lags |= {lag for lag in probes if lag is not None}
        if round_number and lags == scores.keys():
            break
        scores |= {lag: -evidence.evidence_against_lag(lag) for lag in lags - scores.keys()}
        regions = group_adjacent(shifts_of_best_path(scores, (MIN_GAIN_NATS + log_lines) / 2))
        shifts = [shift for region in regions if not evidence.favors_lag_zero(region) for shift in region]
        # lines without a lag may have one that was not tried yet
        doubtful = [(shift.begin, shift.end, shift.evidence) for shift in shifts if shift.lag is None]
    return shifts


def shifts_of_best_path(scores: Mapping[int, Floats], switch_cost: float) -> list[Shift]:
    """The stretches in another state than lag 0, from the scores of every lag."""
    lags = [*scores, None]
    states = np.stack([*scores.values(), np.zeros_like(scores[0])], axis=1)
    path = best_path(states, switch_cost)
    edges = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    return [
        Shift(begin, end, lags[path[begin]], float((states[begin:end, path[begin]] - states[begin:end, 0]).sum()))
        for begin, end in pairwise(edges)
        if path[begin]
    ]


def group_adjacent(shifts: Sequence[Shift]) -> list[list[Shift]]:
    """Group shifts that follow each other without a gap."""
    regions: list[list[Shift]] = []
    for shift in shifts:
        if regions and regions[-1][-1].end == shift.begin:
            regions[-1].append(shift)
        else:
            regions.append([shift])
    return regions


def find_split(evidence: Evidence) -> Shift:
    """The most likely place where two files of different lengths diverge.

    Before it, source line i belongs to target line i; after it, to line i + (lines of target - lines of source).
    """
    lag = len(evidence.target_vectors) - len(evidence.source_vectors)
    gain = evidence.evidence_against_lag(0) - evidence.evidence_against_lag(lag)
    after = np.concatenate([np.cumsum(gain[::-1], dtype=np.float64)[::-1], [0.0]])
    begin = int(after.argmax())
    return Shift(begin, len(gain), lag, float(after[begin]))

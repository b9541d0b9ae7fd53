r"""Are line i of one side and line i of the other translations of each other, and if not, where does that begin?

No dictionary is needed: the corpus is its own. Every pair i gets a random vector r_i, the same for both sides; the
vector of a word is the sum of those of the pairs it occurs in, less what its frequency alone would give,

    e(w) = sum_{i: w in i} r_i - count(w) mean(r)       so that cos(e(a), e(b)) grows with how often a and b go together

and a sentence's vector is the sum of its words' directions, rare words counting more. The similarity of the two sides,
and the ratio of their lengths, are then compared with those of sides that certainly do not belong together (the same
lines, rolled): a log-likelihood ratio per line,

    evidence_i = log p(similarity_i | not parallel) / p(similarity_i | parallel) + the same of the length ratio

positive where line i is not parallel. (What a line itself taught its words is taken out first, lest it vouch for
itself.) A stretch that another lag explains better than chance allows is a fault: the best path through the lags, by
Viterbi. All of it is linear in the number of words, with numpy over whole columns.
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

WIDTH = 96  # of the random vectors: chance similarity is about 1 / sqrt(WIDTH)
LEAST = 2  # lines a word must occur in: one is the line that we want to check
MOST = 1024  # lines of a frequent word that we learn from
REACH = 12  # lines by which the lag may change from one window to the next
WINDOW = 64  # lines over which lengths alone tell the lag
LAGS = 64  # different ones that are looked into
PROBE = 64  # lines by which a doubtful stretch is known again elsewhere
FAR = 2000  # lines away that it is looked for
PROBES = 32  # doubtful stretches, the worst first, that are looked for
TURNS = 8  # of looking for lags in what no lag explains
STRONG = 4.0  # nats that one line can say at most: good corpora have free translations too
SURE = 12.0  # nats of evidence beyond log(lines) before we speak
# One character a word where words are not written apart.
WORDS = (
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
    r"|[[\p{L}\p{M}\p{N}]--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]+"
)


@dataclass(frozen=True, slots=True)
class Words:
    """The words of one side: the number of each, line by line."""

    ids: Integers  # [N] of every word, lines one after the other
    rows: Integers  # [N] the line of each
    counts: Integers  # [V] how often each word occurs
    vocabulary: polars.Series  # [V]
    lines: int


@dataclass(frozen=True, slots=True)
class Shift:
    """A stretch of lines that are not parallel: [begin, end), from 0, and by how many lines the target lags there."""

    begin: int
    end: int
    lag: int | None  # line i of the source belongs to line i + lag of the target; None: to none that we found
    evidence: float  # nats


def words(texts: polars.Series) -> Words:
    """Every lower-cased word of every line."""
    table = (
        polars.DataFrame({"row": np.arange(len(texts)), "word": texts.str.to_lowercase().str.extract_all(WORDS)})
        .explode("word")
        .drop_nulls()
    )
    counts = table.group_by("word").len().sort(["len", "word"], descending=[True, False])
    numbered = counts.select("word", number=polars.int_range(counts.height, dtype=polars.Int64))
    joined = table.join(numbered, on="word", how="left", maintain_order="left")
    return Words(
        joined["number"].to_numpy(),
        joined["row"].to_numpy(),
        counts["len"].to_numpy().astype(np.int64),
        counts["word"],
        len(texts),
    )


def summed(table: Floats, index: Integers, lengths: Integers, most: int) -> Floats:
    """Row i of the result is the sum of `table[index[..]]` over the i-th run of `index`; of runs longer than `most`,
    that many at even steps. One pass per place in a run, over all runs long enough: no loop over rows.
    """
    begins = np.cumsum(lengths) - lengths
    order = np.argsort(-lengths, kind="stable")  # then the runs longer than k come first
    begins, used, lengths = begins[order], np.minimum(lengths, most)[order], lengths[order]
    result = np.zeros((len(lengths), table.shape[1]), np.float32)
    for place in range(int(used.max(initial=0))):
        some = int(np.searchsorted(-used, -place))
        result[:some] += table[index[begins[:some] + place * lengths[:some] // used[:some]]]
    back = np.empty_like(result)
    back[order] = result
    return back


def unit(vectors: Floats) -> Floats:
    """Every row divided by its length; a row of zeros stays."""
    result: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return result


def sentence_vectors(side: Words, partner: Integers, seed: int = 1) -> Floats:
    """[lines, WIDTH] directions; line i of this side belongs to pair partner[i], or to none where that is negative.

    A line's own r is taken out of its words' vectors again: what a line says about itself is no evidence for it, and
    without it the similarity of two sides that do not belong together is zero on average, in a corpus of any size.
    """
    pairs = int(partner.max(initial=-1)) + 1
    random = np.random.default_rng(seed).integers(0, 2, (pairs, WIDTH), dtype=np.int8).astype(np.float32) * 2 - 1
    random -= random.mean(0) if pairs else 0
    known = side.counts[side.ids] >= LEAST
    rows, ids = side.rows[known], side.ids[known]
    taught = partner[rows] >= 0
    by_word = np.argsort(ids[taught], kind="stable")
    size = int(np.count_nonzero(side.counts >= LEAST))  # the most frequent come first
    occurrences = np.bincount(ids[taught], minlength=size)
    sums = summed(random, partner[rows[taught]][by_word], occurrences, most=MOST)
    weights = np.log(1 + side.lines / side.counts[:size]) / np.maximum(np.linalg.norm(sums, axis=1), 1e-9)
    weights = weights.astype(np.float32)
    vectors = summed(sums * weights[:, None], ids, np.bincount(rows, minlength=side.lines), most=48)
    own = np.bincount(rows, np.where(occurrences[ids] <= MOST, weights[ids], 0), side.lines).astype(np.float32)
    paired = partner >= 0
    vectors[paired] -= own[paired, None] * random[partner[paired]]
    return unit(vectors)


def relative_lengths(source: Integers, target: Integers) -> tuple[Floats, Floats]:
    """Logarithms of lengths in characters, each side around its own median."""
    left, right = (np.log(side + 4.0).astype(np.float32) for side in (source, target))
    return left - np.median(left), right - np.median(right)


def agreeing(left: Floats, right: Floats, most: int = 8) -> Integers:
    """The few lags at which the lengths of the whole files agree far better than by chance.

    Correlated with all frequencies made equally strong, as in a sorted or periodic file lines are alike at many lags.
    """
    size = 1 << (len(left) + len(right)).bit_length()
    spectrum = np.fft.rfft(left, size).conj() * np.fft.rfft(right, size)
    agreement = np.fft.irfft(spectrum / (np.abs(spectrum) + 1e-9), size)
    best = np.argsort(-agreement)[:most]
    best = best[agreement[best] > 7 * agreement.std()]
    lags: Integers = np.where(best < size // 2, best, best - size)
    return lags


def lags_by_length(left: Floats, right: Floats) -> Integers:
    """For every window of lines the lag at which their lengths agree best; 0 unless one stands out.

    Tried are lags near 0, near that of the window before (lost lines add up), and those of the whole files.
    """
    lines, near = len(left), np.arange(-REACH, REACH + 1)
    usual = agreeing(left, right)
    lags = np.zeros(max(1, lines // WINDOW), np.int64)
    last = 0
    for number in range(len(lags)):
        tried = np.unique(np.concatenate([near, near + last, usual]))
        rows = np.arange(number * WINDOW, lines if number == len(lags) - 1 else (number + 1) * WINDOW)
        others = rows[:, None] + tried
        inside = (others >= 0) & (others < len(right))
        apart = np.abs(left[rows, None] - right[np.clip(others, 0, len(right) - 1)])
        tried, apart, inside = (some[..., inside.mean(0) > 0.5] for some in (tried, apart, inside))
        if not len(tried):
            continue
        mean = (apart * inside).sum(0) / inside.sum(0)
        if mean.mean() - mean.min() > 3 * mean.std() + 1e-6:
            lags[number] = last = int(tried[mean.argmin()])
    return lags


def partners(lags: Integers, lines: int, others: int) -> Integers:
    """Which line of the target each line of the source belongs to, by the lag of its window; -1 for none."""
    window = np.minimum(np.arange(lines) // WINDOW, len(lags) - 1)
    partner = np.arange(lines) + lags[window]
    return np.where((partner >= 0) & (partner < others), partner, -1)


def likelihood(matching: Floats, rolled: Floats) -> tuple[Floats, Floats]:
    """(edges, log p(value | not parallel) / p(value | parallel) per bin), from samples of both."""
    edges = np.unique(np.quantile(np.concatenate([matching, rolled]), np.linspace(0, 1, 33)[1:-1]))
    counts = [np.bincount(np.searchsorted(edges, some), minlength=len(edges) + 1) + 2.0 for some in (matching, rolled)]
    ratio = np.log(counts[1] / counts[1].sum()) - np.log(counts[0] / counts[0].sum())
    return edges, ratio.astype(np.float32)


class Evidence:
    """How much each pairing of lines looks unlike a translation, learned from the lines themselves."""

    def __init__(self, source: polars.Series, target: polars.Series) -> None:
        lengths = [side.str.len_chars().to_numpy().astype(np.int64) for side in (source, target)]
        self.left, self.right = relative_lengths(*lengths)
        self.words = words(source), words(target)
        self.lags = lags_by_length(self.left, self.right)
        partner = partners(self.lags, len(source), len(target))
        rows = np.flatnonzero(partner >= 0)
        others = partner[rows]
        back = np.full(len(target), -1, np.int64)
        back[others] = rows
        self.x = sentence_vectors(self.words[0], np.where(partner >= 0, np.arange(len(source)), -1))
        self.y = sentence_vectors(self.words[1], back)
        rolled = np.roll(others, max(REACH + 1, len(others) // 3))
        self.bins = [
            likelihood(value(rows, others), value(rows, rolled)) for value in (self.similarity, self.difference)
        ]
        self.support = -float(self.at(rows, others).mean()) if len(rows) else 0.0

    @property
    def known(self) -> float:
        """The share of pairs that have a word to go by on both sides."""
        lines = min(len(self.x), len(self.y))
        return float((self.x[:lines].any(1) & self.y[:lines].any(1)).mean()) if lines else 0.0

    def similarity(self, rows: Integers, others: Integers) -> Floats:
        """Cosine of source lines and target lines."""
        result: Floats = np.einsum("nd,nd->n", self.x[rows], self.y[others])
        return result

    def difference(self, rows: Integers, others: Integers) -> Floats:
        """Logarithm of the ratio of lengths, around its median."""
        return self.right[others] - self.left[rows]

    def nats(self, similarity: Floats, difference: Floats) -> Floats:
        """The evidence that these two measures are, against belonging together."""
        measures = zip(self.bins, (similarity, difference), strict=True)
        total = sum(ratio[np.searchsorted(edges, values)] for (edges, ratio), values in measures)
        result: Floats = np.clip(total, -STRONG, STRONG)
        return result

    def at(self, rows: Integers, others: Integers) -> Floats:
        """Nats of evidence, for each pair of a source line and a target line, that they do not belong together."""
        return self.nats(self.similarity(rows, others), self.difference(rows, others))

    def lagging(self, lag: int) -> Floats:
        """Evidence against line i going with line i + lag; 0 where there is no such line."""
        rows = np.arange(max(0, -lag), min(len(self.x), len(self.y) - lag))
        result = np.zeros(len(self.x), np.float32)
        result[rows] = self.at(rows, rows + lag)
        return result

    def best_lag(self, begin: int, end: int) -> int | None:
        """The lag, other than 0, at which lines [begin, end) match best; None where none does better than chance."""
        low, high = max(0, begin - FAR), min(len(self.y), end + FAR)
        rows = slice(begin, end)
        difference = self.right[None, low:high] - self.left[rows, None]
        cost = self.nats(self.x[rows] @ self.y[low:high].T, difference)  # [lines, others]
        height, width = cost.shape
        # Written row by row one cell further to the left, what stood on a diagonal stands in a column.
        skewed = np.zeros(height * (height + width + 1), np.float32)
        skewed[: height * (height + width)].reshape(height, -1)[:, :width] = cost
        total = skewed.reshape(height, -1).sum(0)[:width]
        if low <= begin < high:
            total[begin - low] = np.inf
        best = int(total.argmin())
        return low + best - begin if total[best] < -np.log(2 * FAR) - 2 else None

    def straight(self, region: Sequence[Shift]) -> bool:
        """Whether the lines of some shifts go with those of lag 0 far better than with others near by."""
        first, last = max(region[0].begin, REACH), min(region[-1].end, len(self.x), len(self.y) - REACH)
        rows = np.arange(first, max(first, min(last, first + FAR)))
        lags = set(range(-REACH, REACH + 1)) - {0, *(shift.lag for shift in region)}
        totals = np.array([self.at(rows, rows + lag).sum() for lag in lags])
        gain = sum(shift.evidence for shift in region) * len(rows) / (region[-1].end - region[0].begin)
        return bool(totals.mean() - self.at(rows, rows).sum() > max(4 * totals.std(), gain / 4))


def stretches(evidence: Floats, least: float) -> list[tuple[int, int, float]]:
    """[begin, end) of every stretch whose sum rises by more than `least`, with that sum: the peaks of a random walk.

    A stretch begins where the walk was lowest and ends at its highest point before it has come down again by `least`.
    """
    found = []
    begin = end = 0
    height = peak = 0.0
    for line, nats in enumerate([*evidence.tolist(), -np.inf], 1):
        height += nats
        if height > peak:
            peak, end = height, line
        if height <= 0 or peak - height > least:
            if peak > least:
                found.append((begin, end, peak))
            begin, height, peak = line, 0.0, 0.0
    return found


def best_path(scores: Floats, switch: float) -> Integers:
    """The sequence of states of largest total score [lines, states], where every change of state costs `switch`.

    It sets out from state 0 (Viterbi's algorithm; as all changes cost the same, only the best of the others matters).
    """
    height = np.full(scores.shape[1], -switch)
    height[0] = 0.0
    before = np.empty(len(scores), np.int64)
    changed = np.empty(scores.shape, bool)
    for line, row in enumerate(scores):
        before[line] = top = height.argmax()
        changed[line] = height < height[top] - switch
        height = np.maximum(height, height[top] - switch) + row
    path = np.empty(len(scores), np.int64)
    state = int(height.argmax())
    for line in range(len(scores) - 1, -1, -1):
        path[line] = state
        if changed[line, state]:
            state = int(before[line])
    return path


def shifts(evidence: Evidence) -> list[Shift]:
    """Every stretch of lines that are not parallel, with the lag that would make them so.

    Each line is in one of some states: it goes with the line that lags by so many, or with none, which explains it no
    better than chance. A stretch in another state than "lag 0" must gain more than SURE + log(lines) nats, and lag 0
    must do no better there than its neighbors: a part of a corpus may be unlike the rest and still be parallel.
    """
    doubt = float(np.log(max(len(evidence.x), 2)))
    scores = {0: -evidence.lagging(0)}
    doubtful = stretches(-scores[0], doubt + 2)  # cheap, and enough where nothing is wrong
    lags = {0, *(lag for lag, _ in Counter(evidence.lags.tolist()).most_common(LAGS))}
    if not doubtful and lags == {0}:
        return []
    found: list[Shift] = []
    for turn in range(TURNS):
        doubtful.sort(key=lambda stretch: -stretch[2])
        for begin, end, _ in doubtful[:PROBES]:
            places = {int(place) for place in np.linspace(begin, max(begin, end - PROBE), 4)}
            probes = (evidence.best_lag(place, min(place + PROBE, end)) for place in places)
            lags |= {lag for lag in probes if lag is not None}
        if turn and lags == scores.keys():
            break
        scores |= {lag: -evidence.lagging(lag) for lag in lags - scores.keys()}
        regions = touching(explained(scores, (SURE + doubt) / 2))
        found = [shift for region in regions if not evidence.straight(region) for shift in region]
        # lines that go with none may hide lags that were not tried yet
        doubtful = [(shift.begin, shift.end, shift.evidence) for shift in found if shift.lag is None]
    return found


def explained(scores: Mapping[int, Floats], switch: float) -> list[Shift]:
    """The stretches in another state than lag 0, from the scores of every lag."""
    lags = [*scores, None]
    states = np.stack([*scores.values(), np.zeros_like(scores[0])], axis=1)
    path = best_path(states, switch)
    edges = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    return [
        Shift(begin, end, lags[path[begin]], float((states[begin:end, path[begin]] - states[begin:end, 0]).sum()))
        for begin, end in pairwise(edges)
        if path[begin]
    ]


def touching(found: Sequence[Shift]) -> list[list[Shift]]:
    """Shifts of which one begins where the other ends, together."""
    regions: list[list[Shift]] = []
    for shift in found:
        if regions and regions[-1][-1].end == shift.begin:
            regions[-1].append(shift)
        else:
            regions.append([shift])
    return regions


def parting(evidence: Evidence) -> Shift:
    """Where two files of different lengths most likely part, if they do so once: before that line, i goes with i; from
    it on, with i + (lines of target - lines of source).
    """
    lag = len(evidence.y) - len(evidence.x)
    gain = evidence.lagging(0) - evidence.lagging(lag)
    after = np.concatenate([np.cumsum(gain[::-1], dtype=np.float64)[::-1], [0.0]])
    begin = int(after.argmax())
    return Shift(begin, len(gain), lag, float(after[begin]))

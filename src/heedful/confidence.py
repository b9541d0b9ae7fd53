r"""How sure is it? The probability that a sentence's chrF is above a threshold, and a lower bound of its chrF.

    x = (mean p, min log p, length deviation, attention entropy, n-best agreement)    `Features` of a sentence
    s = b + w . (x - mean(x)) / std(x)         the score: least squares, so s predicts chrF from the features
    P(chrF > c) = f_c(s),  E[chrF] = g(s)      isotonic regressions: the non-decreasing functions closest to the data
    chrF >= the k-th smallest chrF of n similar validation sentences, k = floor((n + 1) / 10), with probability 0.9

The last line is a split-conformal bound. *Similar* means that s is in the same bin. Let a new sentence and the n
validation sentences of its bin be exchangeable, that is, equally likely in any order. Then each rank of the new chrF
among the n + 1 values is equally likely, and the new chrF is below the k-th smallest of the other n values with
probability at most k / (n + 1) <= 0.1. The bins and the weights must not depend on these n sentences. So one part of
the validation set fits the weights and the bins, the other part the isotonic regressions and the bounds.

Text of another domain is not exchangeable with the validation set: neither statement holds there (docs/confidence.md).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from math import exp, floor, log
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from heedful.errors import HeedfulError
from heedful.types import Confidence, Hypothesis

Array = NDArray[Any]
MIN_SENTENCES = 2_000  # of the validation set; with fewer, bounds and probabilities would vary too much
THRESHOLDS = (30, 40, 50, 60, 70, 80)  # of chrF
LEVELS = (0.8, 0.9, 0.95)  # of the lower bounds
GROUPS = 30  # of sentences with similar scores, whose means enter the isotonic regressions
BINS = 5  # of scores, each with its own bounds
WEIGHTS_SHARE = 3  # one in this many sentences fits the weights, which are only six numbers
RIDGE = 1e-3  # keeps features that are constant or copies of each other harmless
SURE, UNSURE = 0.9, 0.5  # P(chrF > LABEL_THRESHOLD) from which a sentence is sure, and below which it is unsure
LABEL_THRESHOLD = 50


# ------------------------------------------------------------------------------------------------------- features


@dataclass(frozen=True, slots=True)
class Features:
    """What the search shows about one translated sentence."""

    mean_probability: float  # exp(mean of log p over the tokens): their geometric mean
    min_log_probability: float  # of the least probable token
    length_deviation: float  # |log(target tokens / expected target tokens)|
    attention_entropy: float  # mean over the target tokens, in nats; 0 for models without attention
    agreement: float  # mean similarity of the n-best translations to the best, weighted by mean_probability


def measure_features(
    hypotheses: Sequence[Hypothesis], texts: Sequence[str], attention: Array | None, source_tokens: int, ratio: float
) -> Features:
    """The features of an n-best list. `attention` [steps, slots] is that of the best hypothesis to the source's pieces.

    `ratio` is the usual number of target tokens per source token.
    """
    best = hypotheses[0]
    mean_probabilities = [exp(each.log_probability / max(1, len(each.log_probabilities))) for each in hypotheses]
    similarities = [trigram_similarity(texts[0], text) for text in texts]
    return Features(
        mean_probabilities[0],
        min(best.log_probabilities, default=0.0),
        abs(log((len(best.tokens) + 1) / (ratio * (source_tokens + 1)))),
        mean_entropy(attention),
        float(np.average(similarities, weights=np.maximum(mean_probabilities, 1e-300))),
    )


def mean_entropy(weights: Array | None) -> float:
    """The mean over rows of H = -sum p log p, where p is the row divided by its sum; 0 without rows."""
    if weights is None or not weights.size:
        return 0.0
    shares = weights / np.maximum(weights.sum(-1, keepdims=True), 1e-9)
    return float(-(shares * np.log(np.maximum(shares, 1e-12))).sum(-1).mean())


def trigram_similarity(first: str, second: str) -> float:
    """2 |A and B| / (|A| + |B|), where A and B are the character trigrams of two texts without spaces."""
    if first == second:
        return 1.0
    grams = [
        Counter(text[start : start + 3] for start in range(max(1, len(text) - 2)))
        for text in ("".join(first.split()), "".join(second.split()))
    ]
    return 2 * (grams[0] & grams[1]).total() / (grams[0].total() + grams[1].total())


# ------------------------------------------------------------------------------------------------------- calibration


@dataclass(frozen=True)
class Calibration:
    """The fitted numbers, stored in training_statistics.json under `calibration`."""

    sentences: int  # of the validation set
    means: Sequence[float]  # of the features
    scales: Sequence[float]
    weights: Sequence[float]
    intercept: float
    knots: Sequence[float]  # scores between which the regressions are interpolated
    expected: Sequence[float]  # chrF at the knots
    probabilities: Sequence[Sequence[float]]  # by threshold, at the knots
    edges: Sequence[float]  # scores between the bins
    bounds: Sequence[Sequence[float]]  # by level, of the bins

    def score(self, features: Features) -> float:
        """s = b + w . (x - means) / scales"""
        standardized = (np.array(astuple(features)) - self.means) / self.scales
        return float(self.intercept + standardized @ np.array(self.weights))

    def probability(self, features: Features, threshold: int = LABEL_THRESHOLD) -> float:
        """P(chrF > threshold)."""
        curve = self.probabilities[_index(THRESHOLDS, threshold, "threshold")]
        return float(np.interp(self.score(features), self.knots, curve))

    def lower_bound(self, features: Features, level: float = 0.9) -> float:
        """A value that chrF reaches with probability `level`."""
        bin_bounds = self.bounds[_index(LEVELS, level, "level")]
        return bin_bounds[int(np.searchsorted(self.edges, self.score(features)))]

    def confidence(self, features: Features) -> Confidence:
        """Label, probability, expected chrF and lower bound of a translated sentence."""
        probability = round(self.probability(features), 4)
        expected = float(np.interp(self.score(features), self.knots, self.expected))
        return Confidence(choose_label(probability), probability, round(expected, 2), self.lower_bound(features))


def choose_label(probability: float) -> str:
    """The label of a sentence with this P(chrF > LABEL_THRESHOLD)."""
    return "sure" if probability >= SURE else "unsure" if probability < UNSURE else "check"


def _index(values: Sequence[float], value: float, name: str) -> int:
    if value not in values:
        raise HeedfulError(f"the {name} must be one of {', '.join(map(str, values))}, not {value}")
    return values.index(value)


def fit_calibration(features: Sequence[Features], chrf: Sequence[float], sources: Sequence[str]) -> Calibration:
    """Fit the numbers on translated sentences; HeedfulError if there are too few.

    A hash of the source decides which part of the fit a sentence belongs to. So the result does not depend on the order
    of the sentences, and all translations of a repeated source belong to the same part.
    """
    check_sentences(len(features))
    rows, values = np.array([astuple(each) for each in features]), np.array(chrf, float)
    in_first_part = np.array([crc32(source.encode()) % WEIGHTS_SHARE == 0 for source in sources])
    means, scales, weights, intercept = fit_linear(rows[in_first_part], values[in_first_part])
    scores = intercept + (rows - means) / scales @ weights
    edges = np.quantile(scores[in_first_part], np.arange(1, BINS) / BINS)
    scores, values = scores[~in_first_part], values[~in_first_part]
    order = np.lexsort((values, scores))
    groups = np.array_split(order, GROUPS)
    curves = [values, *(values > threshold for threshold in THRESHOLDS)]
    expected, *probabilities = (
        isotonic_regression([curve[group].mean() for group in groups], [len(group) for group in groups])
        for curve in curves
    )
    bins = np.searchsorted(edges, scores)
    bounds = [[conformal_bound(values[bins == number], level) for number in range(BINS)] for level in LEVELS]
    return Calibration(
        len(features),
        means.tolist(),
        scales.tolist(),
        weights.tolist(),
        float(intercept),
        [round(float(scores[group].mean()), 4) for group in groups],
        expected.round(2).tolist(),
        [curve.round(4).tolist() for curve in probabilities],
        edges.tolist(),
        bounds,
    )


def check_sentences(count: int) -> None:
    """Raise HeedfulError if a validation set has too few sentences to calibrate on."""
    if count < MIN_SENTENCES:
        raise HeedfulError(
            f"a calibrated confidence needs at least {MIN_SENTENCES:,} validation sentences, but there are {count:,}: "
            "add sentence pairs that are not in the training text"
        )


def fit_linear(rows: Array, values: Array) -> tuple[Array, Array, Array, float]:
    """means, scales, w, b: with z = (x - means) / scales, minimize mean((b + w . z - value)^2) + RIDGE |w|^2"""
    means, scales = rows.mean(0), rows.std(0)
    scales[scales == 0] = 1.0  # a constant feature
    standardized = (rows - means) / scales
    normal_matrix = standardized.T @ standardized / len(rows) + RIDGE * np.eye(rows.shape[1])
    intercept = values.mean()
    return means, scales, np.linalg.solve(normal_matrix, standardized.T @ (values - intercept) / len(rows)), intercept


def isotonic_regression(values: Sequence[float], weights: Sequence[float]) -> Array:
    """The non-decreasing y that minimize sum w (y - value)^2: while neighbors decrease, replace both by their mean.

    If no value is below that of another sequence, no y is below the y of the other sequence. So the probabilities of
    chrF > 50 are never below those of chrF > 60.
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values, weights, strict=True):
        block = (value, weight, 1)
        while blocks and blocks[-1][0] >= block[0]:
            mean, total, length = blocks.pop()
            joined = total + block[1]
            block = ((mean * total + block[0] * block[1]) / joined, joined, length + block[2])
        blocks.append(block)
    return np.repeat([mean for mean, _, _ in blocks], [length for _, _, length in blocks])


def conformal_bound(values: Array, level: float) -> float:
    """The k-th smallest value, k = floor((1 - level) (n + 1)), rounded down; 0 if k = 0."""
    rank = floor(round((1 - level) * (len(values) + 1), 9))
    return floor(100 * np.sort(values)[rank - 1]) / 100 if rank else 0.0

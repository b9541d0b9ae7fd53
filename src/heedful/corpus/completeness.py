r"""Finds pairs of which one side lacks something: numbers that differ, and targets that end too early.

Numbers are compared in Polars; only pairs whose runs of digits differ are read by `find_lost_numbers`, which knows the
other ways to write a number. A truncated target is found by three observations, each as evidence in nats,

    log p(observation | truncated at a random place) / p(observation | complete)

summed: the final punctuation that the source has and the target lacks, a last word that rarely ends a line, and a
length below that of other targets of such sources. All probabilities are learned from the corpus. The time is linear
in the number of words.
"""

import numpy as np
import polars
from numpy.typing import NDArray
from polars import col

from heedful.corpus.parallel import Integers, WordIndex
from heedful.sentinel.numbers import DIGITS, find_lost_numbers, to_ascii_digits

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

MAX_COMPARED_PAIRS = 50_000  # of a piece of the corpus, evenly spaced: the others are not searched for other forms
SENTENCE_END = r"[.!?…。！？؟।:;][\"'’”»)\]\s]*$"
MAX_WORD_NATS = 3.0
MIN_END_SHARE = 0.5  # of the sources must end in punctuation for it to be evidence
CUT_END_SHARE = 0.2  # of truncated targets that end in punctuation nevertheless
MIN_THRESHOLD_NATS, MAX_THRESHOLD_NATS = 2.0, 4.0  # of evidence that a line is truncated
CUT_SHARES = np.linspace(0.1, 0.9, 17)  # how much of a truncated target is left
NUM_LENGTH_GROUPS = 8  # of sources of similar lengths
ROUNDS = 6
BIN_NATS = 0.05  # of the log of the length ratio


def differing_numbers(table: polars.DataFrame) -> Bools:
    """Which pairs have a number on one side that the other side has in no form."""
    digits = [col(side).str.extract_all(r"\d+").list.eval(polars.element().str.strip_chars_start("0")).list.sort()
              for side in ("source", "target")]  # fmt: skip
    has_digit = col("source").str.contains(r"\d") | col("target").str.contains(r"\d")
    rows = (
        table.select("source", "target", row=polars.int_range(table.height))
        .filter(has_digit)
        .filter(digits[0] != digits[1])
    )
    rows = rows.gather_every(max(1, -(-rows.height // MAX_COMPARED_PAIRS)))
    flags = np.zeros(table.height, bool)
    for source, target, row in rows.iter_rows():
        flags[row] = lacks_number(source, target) or lacks_number(target, source)
    return flags


def lacks_number(text: str, other: str) -> bool:
    """Whether a text has a number that the other lacks, except a 1 if the other has none: an hour = 1 hour."""
    lost = find_lost_numbers(text, other)
    return any(to_ascii_digits(number) != "1" for number in lost) or (bool(lost) and bool(DIGITS.search(other)))


def find_truncated(table: polars.DataFrame, words: WordIndex, long: str = "source", short: str = "target") -> Bools:
    """Which pairs have a truncated side `short`, which has these words.

    Truncated lines must not count as examples of complete ones. So every line is weighted by the probability that it is
    complete, which is computed again from the evidence, up to ROUNDS times (expectation maximization). If many lines
    are truncated, less evidence is needed for each.
    """
    ends = table.select(*(col(side).str.contains(SENTENCE_END) for side in (long, short)))
    long_ends, short_ends = ends[long].to_numpy(), ends[short].to_numpy()
    lengths = table.select(*(col(side).str.len_chars() + 4 for side in (long, short))).to_numpy().T
    ratio = np.log(lengths[1] / lengths[0])
    groups = np.searchsorted(np.quantile(lengths[0], np.linspace(0, 1, NUM_LENGTH_GROUPS + 1)[1:-1]), lengths[0])
    is_suspect = long_ends & ~short_ends & (ratio < np.quantile(ratio, 0.25))
    last_words = find_last_words(words)
    is_complete, threshold = np.where(is_suspect, 0.1, 1.0), MAX_THRESHOLD_NATS
    for _ in range(ROUNDS):
        nats = (
            punctuation_nats(long_ends, short_ends, is_complete)
            + last_word_nats(last_words, is_complete)
            + length_nats(ratio, groups, is_complete)
        )
        before, is_complete = is_complete, 1 / (1 + np.exp((nats - threshold).clip(-30, 30)))
        share = 1 - is_complete.mean()
        threshold = min(max(MIN_THRESHOLD_NATS, float(np.log((1 - share) / max(share, 1e-9)))), MAX_THRESHOLD_NATS)
        if abs(before.mean() - is_complete.mean()) < 0.01 * share:
            break
    return nats > threshold


def punctuation_nats(source_ends: Bools, target_ends: Bools, is_complete: Floats) -> Floats:
    """Evidence from lines whose source ends in punctuation: the target of a truncated one rarely does."""
    if source_ends.mean() < MIN_END_SHARE:
        return np.zeros(len(source_ends))
    rate = (is_complete[source_ends & ~target_ends].sum() + 1) / (is_complete[source_ends].sum() + 2)
    nats = np.where(target_ends, np.log(CUT_END_SHARE / (1 - rate)), np.log((1 - CUT_END_SHARE) / rate))
    return np.where(source_ends, nats, 0.0)


def find_last_words(words: WordIndex) -> tuple[Integers, Integers, Integers]:
    """The lines that have words; the last word of each; and how often each word occurs before the end of a line."""
    is_last = np.append(words.rows[1:] != words.rows[:-1], True)[: len(words.rows)]
    last = words.ids[is_last]
    return words.rows[is_last], last, words.counts - np.bincount(last, minlength=len(words.counts))


def last_word_nats(last_words: tuple[Integers, Integers, Integers], is_complete: Floats) -> Floats:
    """Evidence from the last word: log of its share among other words over its share among last words."""
    rows, last, inside = last_words
    last_counts = np.bincount(last, is_complete[rows], len(inside))
    ratio = np.log((inside + 0.5) / max(inside.sum(), 1)) - np.log((last_counts + 0.5) / max(last_counts.sum(), 1))
    nats = np.zeros(len(is_complete))
    nats[rows] = ratio[last].clip(-MAX_WORD_NATS, MAX_WORD_NATS)
    return nats


def length_nats(ratio: Floats, groups: NDArray[np.int64], is_complete: Floats) -> Floats:
    """log p(ratio | cut) / p(ratio | complete), within each group of lines, of ratio = log(target / source length).

    The ratio of a cut target is that of a complete one plus the log of the share that is left.
    """
    bins = ((ratio - ratio.min()) / BIN_NATS).astype(np.int64)
    size, num_groups = int(bins.max()) + 1, int(groups.max()) + 1
    counts = np.bincount(groups * size + bins, is_complete, num_groups * size).reshape(num_groups, size)
    complete = counts + 0.1  # smoothed: neighboring lengths are almost as likely
    for _ in range(2):
        complete = (np.roll(complete, 1, 1) + 2 * complete + np.roll(complete, -1, 1)) / 4
    complete /= complete.sum(1, keepdims=True)
    offset = int(-np.log(CUT_SHARES[0]) / BIN_NATS) + 1
    cut = np.zeros((num_groups, size + offset))
    for share in CUT_SHARES:
        begin = offset + round(float(np.log(share)) / BIN_NATS)
        cut[:, begin : begin + size] += complete / len(CUT_SHARES)
    result: Floats = np.log(cut[groups, offset + bins] + 1e-9) - np.log(complete[groups, bins])
    return result

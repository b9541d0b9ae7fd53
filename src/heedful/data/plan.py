"""The batch plan: batch k is a pure function of (seed, corpora, k).

There is no iterator and no state: a resumed run continues exactly, and any rank can compute any batch.

    corpus -> blocks                BLOCK_ROWS consecutive rows, read together; reordered in every epoch
    block  -> micro-batches         rows sorted by length, split to fit the token budget, then shuffled
    micro-batches -> CorpusStream   those of epoch 0, then of epoch 1, and so on without end
    streams -> CorpusMix            corpora interleaved by weight; step k is micro-batches k * m to k * m + m - 1

A stored corpus is already shuffled as a whole, so its blocks are alike, and sorting within a block is enough.

The order is the same on every machine and with every version of numpy. It uses stable sorts of integers and raw words
of Philox, keyed by a BLAKE2 hash: numpy guarantees that stream, but not the results of `shuffle` and `permutation`.
Floating point is used only for the weights of corpora, which are rounded to 40 bits.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from heedful.errors import HeedfulError

BLOCK_ROWS = 65_536
MIX_PERIOD = 1_000  # micro-batches after which every corpus has had its exact share
CACHED_BLOCKS = 16  # per stream, which reads one block after another
CACHED_EPOCHS = 16
CACHED_PERIODS = 16

IntArray = NDArray[np.integer[Any]]


class TokenizedCorpus(Protocol):
    """The properties of a corpus that the plan needs; rows are numbered from 0."""

    @property
    def fingerprint(self) -> str:
        """A hash of the content, which determines the order."""
        ...

    @property
    def num_rows(self) -> int: ...

    @property
    def has_fixed_lengths(self) -> bool:
        """Whether lengths are the same in every epoch; with subword regularization they are not."""
        ...

    def block_lengths(self, epoch: int, block: int) -> tuple[IntArray, IntArray]:
        """Source and target lengths of a block's rows in tokens, including those that the model adds."""
        ...

    def micro_batches_per_block(self, epoch: int, max_tokens: int) -> IntArray:
        """`count_micro_batches` of every block. Without fixed lengths, epoch e needs those of epochs 0 .. e."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """One micro-batch: rows of one corpus, in one epoch."""

    corpus: int
    rows: IntArray
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class EpochPosition:
    """How far a corpus has been read: whole epochs, and the share of the current one."""

    epoch: int
    fraction: float


def split_block(
    source: IntArray,
    target: IntArray,
    max_tokens: int,
    *,
    words: NDArray[np.uint64],
    turn: int = 0,
    first_row: int = 0,
) -> list[IntArray]:
    """Split a block's rows into micro-batches: n * max(S, T) <= max_tokens, S and T the longest lengths of the n rows.

    Rows are sorted by L = max(source, target), then by source - target, ascending for even L and descending for odd L
    (or the reverse, by `turn`), so that the shorter side does not jump where L changes. Random `words` break ties.
    """
    source, target = source.astype(np.int64), target.astype(np.int64)
    longer = np.maximum(source, target)
    ends = _find_ends(longer, max_tokens, first_row)
    sign = 1 - 2 * ((longer + turn) % 2)
    # |source - target| <= L, so keys around L (L + 1) of different L do not overlap: one key sorts by both.
    key = longer * (longer + 1) + sign * (source - target)
    order = np.argsort((key << 20) + (words >> np.uint64(44)).astype(np.int64), kind="stable") + first_row
    order.flags.writeable = False  # micro-batches are views of one cached array
    return np.split(order, ends[:-1])


def count_micro_batches(source: IntArray, target: IntArray, max_tokens: int, *, first_row: int = 0) -> int:
    """len(split_block(..)), which depends only on how often each max(source, target) occurs."""
    return len(_find_ends(np.maximum(source, target), max_tokens, first_row))


def _find_ends(longer: IntArray, max_tokens: int, first_row: int) -> list[int]:
    """Where greedy micro-batches end in the sorted rows: max over L of min(rows up to L, start + max_tokens // L)."""
    row = int(np.argmax(longer))
    if longer[row] > max_tokens:
        raise HeedfulError(
            f"row {first_row + row} has {longer[row]} tokens on its longer side, but a micro-batch is limited to "
            f"{max_tokens}. Raise batch_tokens, lower micro_batches, or prepare the corpus again with a lower "
            "clean.max_tokens."
        )
    rows_up_to = np.cumsum(np.bincount(longer))
    capacity = max_tokens // np.maximum(np.arange(len(rows_up_to)), 1)
    ends, end = [], 0
    while end < len(longer):
        end = int(np.minimum(rows_up_to, end + capacity).max())
        ends.append(end)
    return ends


class CorpusStream:
    """The endless micro-batches of one corpus, epoch after epoch, with caches."""

    def __init__(self, corpus: TokenizedCorpus, seed: int, max_tokens: int) -> None:
        self.corpus, self.seed, self.max_tokens = corpus, seed, max_tokens
        self._block_order = lru_cache(CACHED_EPOCHS)(partial(_order_blocks, corpus, seed, max_tokens))
        self._block_micro_batches = lru_cache(CACHED_BLOCKS)(partial(_shuffle_block, corpus, seed, max_tokens))
        self._epoch_sizes: dict[int, int] = {}

    def __reduce__(self) -> tuple[type, tuple[TokenizedCorpus, int, int]]:
        """Pickle without the caches."""
        return CorpusStream, (self.corpus, self.seed, self.max_tokens)

    def rows(self, index: int) -> IntArray:
        epoch, position = self.locate(index)
        blocks, starts = self.block_order(epoch)
        visit = int(np.searchsorted(starts, position, side="right")) - 1
        start, end = map(int, starts[visit : visit + 2])
        micro_batches = self.block_micro_batches(epoch, int(blocks[visit]))
        if len(micro_batches) != end - start:
            raise ValueError(
                f"block {blocks[visit]} has {len(micro_batches)} micro-batches, but its corpus counts {end - start}"
            )
        return micro_batches[position - start]

    def locate(self, index: int) -> tuple[int, int]:
        """The epoch of a micro-batch, and its index in that epoch."""
        if self.corpus.has_fixed_lengths:
            return divmod(index, self.epoch_size(0))
        epoch = 0
        while index >= (size := self.epoch_size(epoch)):
            epoch, index = epoch + 1, index - size
        return epoch, index

    def epoch_position(self, index: int) -> EpochPosition:
        """How far the corpus has been read before a micro-batch."""
        epoch, position = self.locate(index)
        return EpochPosition(epoch, position / self.epoch_size(epoch))

    def epoch_size(self, epoch: int) -> int:
        """The number of micro-batches in an epoch."""
        if epoch not in self._epoch_sizes:
            self._epoch_sizes[epoch] = int(self.block_order(epoch)[1][-1])
        return self._epoch_sizes[epoch]

    def block_order(self, epoch: int) -> tuple[IntArray, IntArray]:
        """The blocks in the order of an epoch; the number of micro-batches before each, and in total."""
        return self._block_order(epoch)

    def block_micro_batches(self, epoch: int, block: int) -> list[IntArray]:
        """A block's micro-batches in the order of an epoch."""
        return self._block_micro_batches(epoch, block)


def _order_blocks(corpus: TokenizedCorpus, seed: int, max_tokens: int, epoch: int) -> tuple[IntArray, IntArray]:
    blocks = shuffle_range(-(-corpus.num_rows // BLOCK_ROWS), seed, corpus.fingerprint, "blocks", epoch)
    counts = corpus.micro_batches_per_block(epoch, max_tokens)[blocks]
    return blocks, np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


def _shuffle_block(corpus: TokenizedCorpus, seed: int, max_tokens: int, epoch: int, block: int) -> list[IntArray]:
    key = (seed, corpus.fingerprint, "block", epoch, block)
    source, target = corpus.block_lengths(epoch, block)
    words = random_words(len(source), *key, "rows")
    micro_batches = split_block(source, target, max_tokens, words=words, turn=epoch, first_row=block * BLOCK_ROWS)
    return [micro_batches[index] for index in shuffle_range(len(micro_batches), *key, "units")]


class CorpusMix:
    """The order in which corpora are interleaved.

    Before period p, a corpus has contributed exactly floor(p * MIX_PERIOD * share) micro-batches, so even the smallest
    is never a whole micro-batch behind; within a period the order is random.
    """

    def __init__(self, weights: tuple[int, ...], fingerprints: tuple[str, ...], seed: int) -> None:
        self.weights, self.fingerprints, self.seed = weights, fingerprints, seed
        self._turns = lru_cache(CACHED_PERIODS)(partial(_shuffle_turns, weights, fingerprints, seed))

    def __reduce__(self) -> tuple[type, tuple[tuple[int, ...], tuple[str, ...], int]]:
        """Pickle without the cache."""
        return CorpusMix, (self.weights, self.fingerprints, self.seed)

    def locate(self, index: int) -> tuple[int, IntArray]:
        """The corpus of a micro-batch of the mix, and how many micro-batches of each corpus precede it."""
        if index < 0:
            raise ValueError("steps count from 0")
        period = index // MIX_PERIOD
        while sum(self.counts_before(period + 1)) <= index:  # rounding down: a period may end late
            period += 1
        before, turns = self.counts_before(period), self._turns(period)
        offset = index - sum(before)
        return int(turns[offset]), np.add(before, np.bincount(turns[:offset], minlength=len(before)))

    def counts_before(self, period: int) -> list[int]:
        """The number of micro-batches of each corpus before a period."""
        return _counts_before(self.weights, period)


def _counts_before(weights: Sequence[int], period: int) -> list[int]:
    total = sum(weights)
    return [period * MIX_PERIOD * weight // total for weight in weights]


def _shuffle_turns(weights: Sequence[int], fingerprints: Sequence[str], seed: int, period: int) -> IntArray:
    """The corpus of each micro-batch of a period."""
    counts = np.subtract(_counts_before(weights, period + 1), _counts_before(weights, period))
    turns = np.repeat(np.arange(len(counts)), counts)
    return turns[shuffle_range(len(turns), seed, list(fingerprints), "mix", period)]


@dataclass(frozen=True, eq=False)
class Plan:
    """The rows of batch k: `micro_batches` times at most batch_tokens // micro_batches tokens on the longer side.

    A corpus gets micro-batches in proportion to its weight, or to rows^(1 / temperature): 1 (the default) follows the
    sizes, infinity gives all corpora the same share.
    """

    corpora: Sequence[TokenizedCorpus]
    _: KW_ONLY
    seed: int
    batch_tokens: int
    micro_batches: int = 1
    weights: Sequence[float] | None = None
    temperature: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.micro_batches <= self.batch_tokens:
            raise ValueError(
                f"micro_batches must be between 1 and batch_tokens ({self.batch_tokens}), but is {self.micro_batches}"
            )
        if not self.corpora or not all(corpus.num_rows for corpus in self.corpora):
            raise HeedfulError(
                "there is nothing to train on: a training corpus has no pairs. rejects.jsonl in the prepared "
                "corpus lists why pairs were dropped."
            )
        if self.weights is not None and self.temperature is not None:
            raise ValueError("weights and temperature both set how corpora are mixed: set only one of them")
        if self.weights is not None and len(self.weights) != len(self.corpora):
            raise ValueError(f"{len(self.weights)} weights for {len(self.corpora)} corpora: set one weight per corpus")
        if not all(0 < weight < math.inf for weight in self.weights or ()):
            raise ValueError(f"weights must be positive and finite, got {self.weights}")
        if self.temperature is not None and not self.temperature > 0:
            raise ValueError(f"temperature must be positive, got {self.temperature}")
        for stream in self.streams:
            stream.epoch_position(0)  # a pair over the budget should fail here, not in the middle of an epoch

    @cached_property
    def streams(self) -> tuple[CorpusStream, ...]:
        max_tokens = self.batch_tokens // self.micro_batches
        return tuple(CorpusStream(corpus, self.seed, max_tokens) for corpus in self.corpora)

    @cached_property
    def mix(self) -> CorpusMix:
        weights = self.weights or [corpus.num_rows ** (1 / (self.temperature or 1)) for corpus in self.corpora]
        total = math.fsum(weights)
        integers = tuple(max(1, round(weight / total * 2**40)) for weight in weights)
        return CorpusMix(integers, tuple(corpus.fingerprint for corpus in self.corpora), self.seed)

    def batch(self, step: int) -> tuple[MicroBatch, ...]:
        """The micro-batches of a step; steps count from 0."""
        return self.batch_of_rank(step, 0, 1)

    def batch_of_rank(self, step: int, rank: int, num_ranks: int) -> tuple[MicroBatch, ...]:
        """The micro-batches of a step for one rank: every `num_ranks`-th, starting at number `rank`."""
        if not 0 <= rank < num_ranks:
            raise ValueError(f"there is no rank {rank} among {num_ranks}")
        if self.micro_batches % num_ranks:
            raise HeedfulError(
                f"{self.micro_batches} micro-batches cannot be shared equally by {num_ranks} ranks. "
                f"Set micro_batches to a multiple of {num_ranks}, or start a number of ranks that divides it."
            )
        first = step * self.micro_batches
        return tuple(self._micro_batch(index) for index in range(first + rank, first + self.micro_batches, num_ranks))

    def epoch_positions(self, step: int) -> tuple[EpochPosition, ...]:
        """How far each corpus has been read before a step."""
        _, before = self.mix.locate(step * self.micro_batches)
        return tuple(stream.epoch_position(int(index)) for stream, index in zip(self.streams, before, strict=True))

    def _micro_batch(self, index: int) -> MicroBatch:
        corpus, before = self.mix.locate(index)
        stream, stream_index = self.streams[corpus], int(before[corpus])
        return MicroBatch(corpus, stream.rows(stream_index), stream.locate(stream_index)[0])


def shuffle_range(count: int, *key: object) -> IntArray:
    """0 .. count - 1 in a random order determined by the key."""
    return np.argsort(random_words(count, *key), kind="stable")


def random_words(count: int, *key: object) -> NDArray[np.uint64]:
    """Random 64-bit words determined by the key, which may be any JSON values."""
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=16).digest()
    return np.random.Philox(key=int.from_bytes(digest, "little")).random_raw(count)

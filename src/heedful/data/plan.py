"""The batch plan: batch k is a pure function of (seed, corpora, k).

There is no iterator and no state: a resumed run goes on exactly, and any rank can compute any batch.

    corpus -> blocks   BLOCK neighboring rows, read together; every epoch visits them in a new order
    block  -> units    rows sorted by length, cut into micro-batches under the token budget, then shuffled
    units  -> stream   epoch 0's units, epoch 1's, ... without end
    streams -> mix     corpora take turns by weight; step k is micro-batches k * m to k * m + m - 1 of the mix

A stored corpus is already shuffled as a whole, so its blocks are alike and sorting inside a block is enough.

The order is the same on every machine and with every version of numpy. It comes from stable sorts of integers and from
raw words of Philox, keyed by a BLAKE2 hash: numpy guarantees that stream, but not what `shuffle` and `permutation` make
of it. Floating point decides one thing only, the weights of corpora, and they are rounded to 40 bits.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from heedful.errors import HeedfulError

BLOCK = 65_536  # rows of a block
PERIOD = 1_000  # units after which every corpus has had its due

IntArray = NDArray[np.integer[Any]]


class Corpus(Protocol):
    """What the plan needs to know of a stored corpus; its rows are numbered from 0."""

    @property
    def fingerprint(self) -> str:
        """A hash of the content: other content, other order."""
        ...

    @property
    def rows(self) -> int:
        """How many pairs there are."""
        ...

    @property
    def fixed(self) -> bool:
        """Whether lengths are the same in every epoch; with subword regularization they are not."""
        ...

    def lengths(self, epoch: int, block: int) -> tuple[IntArray, IntArray]:
        """Source and target lengths of a block's rows, in tokens, with those that the model adds."""
        ...

    def units(self, epoch: int, micro_tokens: int) -> IntArray:
        """`count_units` of every block. Where lengths are not fixed, a step of epoch e asks for those of 0 .. e."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Micro:
    """One micro-batch: which rows of which corpus, and in which pass over it."""

    corpus: int
    rows: IntArray
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a corpus has been read: whole passes, and the share of the current one."""

    epoch: int
    fraction: float


def cut(
    source: IntArray,
    target: IntArray,
    micro_tokens: int,
    *,
    words: NDArray[np.uint64],
    turn: int = 0,
    first_row: int = 0,
) -> list[IntArray]:
    """A block's rows as units: n * max(S, T) <= micro_tokens, S and T the longest source and target of the n rows.

    Rows are sorted by L = max(source, target), then by source - target, upwards for even L and downwards for odd L
    (or the other way round, by `turn`): where L steps, the other side does not jump. Random `words` break ties.
    """
    source, target = source.astype(np.int64), target.astype(np.int64)
    longer = np.maximum(source, target)
    ends = _ends(longer, micro_tokens, first_row)
    upwards = 1 - 2 * ((longer + turn) % 2)
    # |source - target| <= L, so the numbers around L (L + 1) belong to L alone: one key sorts by both.
    key = longer * (longer + 1) + upwards * (source - target)
    order = np.argsort((key << 20) + (words >> np.uint64(44)).astype(np.int64), kind="stable") + first_row
    order.flags.writeable = False  # units are views of one cached array
    return np.split(order, ends[:-1])


def count_units(source: IntArray, target: IntArray, micro_tokens: int, *, first_row: int = 0) -> int:
    """len(cut(..)), which depends on how often each max(source, target) occurs and on nothing else."""
    return len(_ends(np.maximum(source, target), micro_tokens, first_row))


def _ends(longer: IntArray, micro_tokens: int, first_row: int) -> list[int]:
    """Where greedy units end among the sorted rows: max over L of min(rows up to L, start + micro_tokens // L)."""
    row = int(np.argmax(longer))
    if longer[row] > micro_tokens:
        raise HeedfulError(
            f"row {first_row + row} has {longer[row]} tokens on its longer side, a micro-batch holds {micro_tokens}. "
            f"Raise batch_tokens, lower micro_batches, or prepare the corpus again and drop pairs over {micro_tokens}."
        )
    below = np.cumsum(np.bincount(longer))
    room = micro_tokens // np.maximum(np.arange(len(below)), 1)
    ends, end = [], 0
    while end < len(longer):
        end = int(np.minimum(below, end + room).max())
        ends.append(end)
    return ends


@dataclass(frozen=True, eq=False)
class Stream:
    """The endless units of one corpus, epoch after epoch."""

    corpus: Corpus
    seed: int
    micro_tokens: int

    def rows(self, unit: int) -> IntArray:
        """The rows of a unit."""
        epoch, position = self.place(unit)
        blocks, starts = visits(self, epoch)
        visit = int(np.searchsorted(starts, position, side="right")) - 1
        start, end = map(int, starts[visit : visit + 2])
        units = _units(self, epoch, int(blocks[visit]))
        if len(units) != end - start:
            raise ValueError(f"block {blocks[visit]} has {len(units)} units, but its corpus counts {end - start}")
        return units[position - start]

    def place(self, unit: int) -> tuple[int, int]:
        """The epoch of a unit, and which of the epoch's units it is."""
        if self.corpus.fixed:
            return divmod(unit, _total(self, 0))
        epoch = 0
        while unit >= (total := _total(self, epoch)):
            epoch, unit = epoch + 1, unit - total
        return epoch, unit

    def progress(self, unit: int) -> Progress:
        """How far the corpus has been read when a unit comes next."""
        epoch, position = self.place(unit)
        return Progress(epoch, position / _total(self, epoch))


# What is costly is remembered. A stream is compared by identity, and what it gives never changes.


@lru_cache(maxsize=4096)
def _total(stream: Stream, epoch: int) -> int:
    return int(visits(stream, epoch)[1][-1])


@lru_cache(maxsize=256)
def visits(stream: Stream, epoch: int) -> tuple[IntArray, IntArray]:
    """An epoch's blocks in the order of their visits; how many units came before each, and how many there are."""
    blocks = shuffled(-(-stream.corpus.rows // BLOCK), stream.seed, stream.corpus.fingerprint, "blocks", epoch)
    units = stream.corpus.units(epoch, stream.micro_tokens)[blocks]
    return blocks, np.concatenate(([0], np.cumsum(units, dtype=np.int64)))


@lru_cache(maxsize=128)
def _units(stream: Stream, epoch: int, block: int) -> list[IntArray]:
    """A block's units in the order in which an epoch takes them."""
    name = (stream.seed, stream.corpus.fingerprint, "block", epoch, block)
    source, target = stream.corpus.lengths(epoch, block)
    words = random_words(len(source), *name, "rows")
    units = cut(source, target, stream.micro_tokens, words=words, turn=epoch, first_row=block * BLOCK)
    return [units[unit] for unit in shuffled(len(units), *name, "units")]


@dataclass(frozen=True, eq=False)
class Plan:
    """Which rows make batch k: `micro_batches` times at most batch_tokens // micro_batches tokens on the longer side.

    A corpus gets micro-batches in proportion to its weight, or to rows^(1 / temperature): 1 (the default) follows the
    sizes, infinity treats all alike. Before period p it has given exactly floor(p * PERIOD * share) units, so that even
    the smallest is never a whole unit short; inside a period the order is random.
    """

    corpora: Sequence[Corpus]
    _: KW_ONLY
    seed: int
    batch_tokens: int
    micro_batches: int = 1
    weights: Sequence[float] | None = None
    temperature: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.micro_batches <= self.batch_tokens:
            raise ValueError(f"{self.batch_tokens} batch_tokens cannot make {self.micro_batches} micro-batches")
        if not self.corpora or not all(corpus.rows for corpus in self.corpora):
            raise HeedfulError(
                "there is nothing to train on: a corpus has no rows. Look at what its preparation dropped."
            )
        if self.weights is not None and self.temperature is not None:
            raise ValueError("weights and temperature both say how corpora are mixed: give one of them")
        if self.weights is not None and len(self.weights) != len(self.corpora):
            raise ValueError(f"{len(self.weights)} weights for {len(self.corpora)} corpora")
        if not all(0 < weight < math.inf for weight in self.weights or ()):
            raise ValueError(f"weights must be positive and finite, got {self.weights}")
        if self.temperature is not None and not self.temperature > 0:
            raise ValueError(f"temperature must be positive, got {self.temperature}")
        for stream in self.streams:
            stream.progress(0)  # a pair over the budget should fail here, not in the middle of an epoch

    @cached_property
    def streams(self) -> tuple[Stream, ...]:
        """The units of each corpus."""
        micro_tokens = self.batch_tokens // self.micro_batches
        return tuple(Stream(corpus, self.seed, micro_tokens) for corpus in self.corpora)

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """The weights as integers: corpus i gets parts[i] of sum(parts)."""
        weights = self.weights or [corpus.rows ** (1 / (self.temperature or 1)) for corpus in self.corpora]
        total = math.fsum(weights)
        return tuple(max(1, round(weight / total * 2**40)) for weight in weights)

    def batch(self, step: int) -> tuple[Micro, ...]:
        """The micro-batches of a step, which counts from 0."""
        return self.share(step, 0, 1)

    def share(self, step: int, rank: int, ranks: int) -> tuple[Micro, ...]:
        """A rank's part of a step: every `ranks`-th micro-batch, from number `rank` on."""
        if not 0 <= rank < ranks:
            raise ValueError(f"there is no rank {rank} among {ranks}")
        if self.micro_batches % ranks:
            raise HeedfulError(
                f"{self.micro_batches} micro-batches cannot be shared equally by {ranks} ranks. "
                f"Set micro_batches to a multiple of {ranks}, or start as many ranks as divide it."
            )
        first = step * self.micro_batches
        return tuple(self._micro(unit) for unit in range(first + rank, first + self.micro_batches, ranks))

    def epoch(self, step: int) -> tuple[Progress, ...]:
        """How far each corpus has been read when a step begins."""
        _, before = self._mixed(step * self.micro_batches)
        return tuple(stream.progress(int(unit)) for stream, unit in zip(self.streams, before, strict=True))

    def _micro(self, unit: int) -> Micro:
        corpus, before = self._mixed(unit)
        stream, own = self.streams[corpus], int(before[corpus])
        return Micro(corpus, stream.rows(own), stream.place(own)[0])

    def _mixed(self, unit: int) -> tuple[int, IntArray]:
        """Whose turn a unit of the mix is, and how many units each corpus has given before it."""
        if unit < 0:
            raise ValueError("steps count from 0")
        period = unit // PERIOD
        while sum(self.due(period + 1)) <= unit:  # floors: a period may end a little late
            period += 1
        due, turns = self.due(period), _turns(self, period)
        slot = unit - sum(due)
        return int(turns[slot]), np.add(due, np.bincount(turns[:slot], minlength=len(due)))

    def due(self, period: int) -> list[int]:
        """How many units each corpus has given before a period."""
        whole = sum(self.parts)
        return [period * PERIOD * part // whole for part in self.parts]


@lru_cache(maxsize=16)
def _turns(plan: Plan, period: int) -> IntArray:
    """Whose turn it is, unit by unit of a period."""
    given = np.subtract(plan.due(period + 1), plan.due(period))
    turns = np.repeat(np.arange(len(given)), given)
    return turns[shuffled(len(turns), plan.seed, [corpus.fingerprint for corpus in plan.corpora], "mix", period)]


def shuffled(count: int, *name: object) -> IntArray:
    """0 .. count - 1 in an order that belongs to the name."""
    return np.argsort(random_words(count, *name), kind="stable")


def random_words(count: int, *name: object) -> NDArray[np.uint64]:
    """Random 64-bit words that belong to the name, which is anything that JSON can write."""
    key = hashlib.blake2b(json.dumps(name).encode(), digest_size=16).digest()
    return np.random.Philox(key=int.from_bytes(key, "little")).random_raw(count)

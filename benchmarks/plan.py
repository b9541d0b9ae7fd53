"""Is the batch plan exact, tight, fair and fast?

Multi30k en-de (shared BPE 8k, 4096 tokens on the longer side): every pair once per epoch, at least 95 % of the area is
real tokens, the same batches for 1, 2, 4 and 8 ranks. A simulated corpus of 1 billion pairs, whose lengths are computed
on demand: a batch at a random step within 50 ms and 1 GB, and no correlation of the order with length or place.

    python benchmarks/plan.py [--quick] [--workers 2]

HEEDFUL_DATA is the directory with multi30k/train.{en,de}.gz (default: ../shared/data next to the repository).
"""

import argparse
import gzip
import io
import itertools
import math
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from heedful.data.plan import BLOCK_ROWS, CorpusStream, IntArray, Plan, count_micro_batches, random_words, split_block
from heedful.data.store import count_micro_batches_per_block
from report import header, verdict

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
MICRO_TOKENS = 4096


@dataclass(frozen=True)
class InMemory:
    """A corpus of given lengths."""

    source: IntArray
    target: IntArray
    fingerprint: str = "multi30k"
    has_fixed_lengths: bool = True

    @property
    def num_rows(self) -> int:
        return len(self.source)

    def block_lengths(self, epoch: int, block: int) -> tuple[IntArray, IntArray]:  # noqa: ARG002  # fixed
        rows = slice(block * BLOCK_ROWS, (block + 1) * BLOCK_ROWS)
        return self.source[rows], self.target[rows]

    def micro_batches_per_block(self, epoch: int, max_tokens: int) -> IntArray:
        return count_micro_batches_per_block(self, epoch, max_tokens)


@dataclass(frozen=True)
class Simulated:
    """A corpus of any size: log-normal target lengths around 20 tokens, similar sources; only counts are stored."""

    num_rows: int
    counts: IntArray
    fingerprint: str = "simulated"
    has_fixed_lengths: bool = True

    def block_lengths(self, epoch: int, block: int) -> tuple[IntArray, IntArray]:  # noqa: ARG002  # fixed
        return simulated_lengths(min(BLOCK_ROWS, self.num_rows - block * BLOCK_ROWS), block)

    def micro_batches_per_block(self, epoch: int, max_tokens: int) -> IntArray:  # noqa: ARG002  # counted for one budget
        return self.counts


def simulated_lengths(rows: int, block: int) -> tuple[IntArray, IntArray]:
    """Sums of bytes are nearly normal; their exponential is the length."""
    sums = random_words(rows, "lengths", block).view(np.uint8).reshape(rows, 2, 4).sum(2, dtype=np.uint16)  # 510 ± 148
    scores = (np.arange(1021) - 510) / 148
    target = np.clip(np.exp(3.0 + 0.55 * scores), 2, 256).astype(np.uint16)[sums[:, 0]]
    source = np.clip(target * np.exp(0.25 * scores).astype(np.float32)[sums[:, 1]], 2, 256).astype(np.uint16)
    return source, target


def simulated_count(rows_and_block: tuple[int, int]) -> int:
    """The stored counts of a block."""
    return count_micro_batches(*simulated_lengths(*rows_and_block), MICRO_TOKENS)


def simulate(rows: int, workers: int) -> Simulated:
    blocks = [(min(BLOCK_ROWS, rows - first), first // BLOCK_ROWS) for first in range(0, rows, BLOCK_ROWS)]
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        return Simulated(rows, np.array(pool.map(simulated_count, blocks, chunksize=16)))


def multi30k() -> InMemory:
    """Lengths in pieces of a shared BPE of 8,000, with the end token."""
    import sentencepiece

    sides = [gzip.decompress((DATA / "multi30k" / f"train.{side}.gz").read_bytes()).decode() for side in ("en", "de")]
    lines = [side.removesuffix("\n").split("\n") for side in sides]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=itertools.chain(*lines), model_writer=model, model_type="bpe", vocab_size=8000, minloglevel=2
    )
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    source, target = (np.array([len(tokens) + 1 for tokens in pieces.encode(side)]) for side in lines)
    return InMemory(source, target)


def epoch_of(stream: CorpusStream, epoch: int) -> list[IntArray]:
    units = int(stream.corpus.micro_batches_per_block(epoch, stream.max_tokens).sum())
    return [stream.rows(epoch * units + unit) for unit in range(units)]


def real_share(corpus: InMemory, units: list[IntArray]) -> float:
    """sum of lengths / sum of n (S + T)"""
    area = sum(len(unit) * (corpus.source[unit].max() + corpus.target[unit].max()) for unit in units)
    return float((corpus.source.sum() + corpus.target.sum()) / area)


def kept(one: list[IntArray], other: list[IntArray]) -> float:
    """The share of row pairs in the same unit that share a unit again."""
    homes = np.empty(sum(map(len, other)), dtype=np.int64)
    for number, unit in enumerate(other):
        homes[unit] = number
    again = sum(int((met * (met - 1)).sum()) for met in (np.bincount(homes[unit]) for unit in one))
    return again / sum(len(unit) * (len(unit) - 1) for unit in one)


def misread(rows: int, units: list[IntArray]) -> int:
    """The number of rows that an epoch omits or repeats."""
    return int((np.bincount(np.concatenate(units), minlength=rows) != 1).sum())


def differing(corpus: InMemory, ranks: int) -> int:
    """The number of the first 60 steps in which all ranks together read different rows than one rank."""
    alone, shared = (Plan([corpus], seed=1, batch_tokens=8 * MICRO_TOKENS, micro_batches=8) for _ in range(2))
    wrong = 0
    for step in range(60):
        shares = [shared.batch_of_rank(step, rank, ranks) for rank in range(ranks)]
        together = [micro.rows for turn in zip(*shares, strict=True) for micro in turn]
        batch = [micro.rows for micro in alone.batch(step)]
        wrong += len(batch) != len(together) or not all(map(np.array_equal, batch, together))
    return wrong


def correlation(one: ArrayLike, other: ArrayLike) -> float:
    """Spearman's correlation times sqrt(n - 1): about standard normal for a random order."""
    first, second = (np.argsort(np.argsort(values, kind="stable")) for values in (one, other))
    return float(np.corrcoef(first, second)[0, 1] * math.sqrt(len(first) - 1))


def correlations(corpus: Simulated) -> dict[str, float]:
    """Correlations visible to a sequential reader: lengths of successive units, and the order of blocks."""
    stream = CorpusStream(corpus, 7, MICRO_TOKENS)
    rows = [stream.rows(unit) for unit in range(4000)]  # some 15 blocks
    lengths = {int(unit[0]) // BLOCK_ROWS: corpus.block_lengths(0, int(unit[0]) // BLOCK_ROWS)[1] for unit in rows}
    means = [lengths[int(unit[0]) // BLOCK_ROWS][unit % BLOCK_ROWS].mean() for unit in rows]
    (blocks, _), (following, _) = stream.block_order(0), stream.block_order(1)
    return {
        "place in the epoch and mean length": correlation(range(len(means)), means),
        "mean length and that of the unit before": correlation(means[1:], means[:-1]),
        "visit and block": correlation(range(len(blocks)), blocks),
        "block and the block before": correlation(blocks[1:], blocks[:-1]),
        "block and that of the next epoch": correlation(blocks, following),
    }


def peak_gigabytes() -> float:
    """Peak memory of this process with all libraries; 0 if it cannot be measured."""
    if sys.platform == "win32":
        return 0.0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9


def plan_milliseconds(corpus: Simulated, step: int) -> float:
    """The time to find the batch of a step with a new plan, which has nothing cached."""
    begin = time.perf_counter()
    Plan([corpus], seed=1, batch_tokens=8 * MICRO_TOKENS, micro_batches=8).batch(step)
    return (time.perf_counter() - begin) * 1e3


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="50 million pairs instead of a billion")
    options.add_argument("--workers", type=int, default=2)
    given = options.parse_args()
    header(__file__)

    real = multi30k()
    print(f"Multi30k en-de, {real.num_rows} pairs, 3 epochs:")
    for micro_tokens in (1024, 2048, 4096, 8192, 16384):
        epochs = [epoch_of(CorpusStream(real, 1, micro_tokens), epoch) for epoch in range(3)]
        shares = [real_share(real, units) for units in epochs]
        print(
            f"  {micro_tokens:6} tokens: {len(epochs[0]):4} units, real tokens {min(shares):.4f} to {max(shares):.4f}, "
            f"row pairs that meet again after 1, 2 epochs: {kept(*epochs[:2]):.2f}, {kept(*epochs[::2]):.2f}"
        )
        if micro_tokens == MICRO_TOKENS:
            share, wrong = min(shares), sum(misread(real.num_rows, units) for units in epochs)
    strays = sum(differing(real, ranks) for ranks in (1, 2, 4, 8))
    print(f"{strays} of 4 x 60 steps differ with 1, 2, 4, 8 ranks")

    rows = 50_000_000 if given.quick else 1_000_000_000
    begin = time.perf_counter()
    corpus = simulate(rows, given.workers)
    print(
        f"simulated: {rows:,} pairs in {len(corpus.counts)} blocks, {corpus.counts.sum():,} units counted "
        f"in {time.perf_counter() - begin:.1f} s by {given.workers} processes, as preparation would"
    )
    part = Simulated(64 * BLOCK_ROWS, corpus.counts[:64])
    wrong += misread(part.num_rows, epoch_of(CorpusStream(part, 1, MICRO_TOKENS), 0))
    print(f"{wrong} pairs left out or repeated in 3 epochs of Multi30k and one of {part.num_rows:,} simulated pairs")
    begin = time.perf_counter()
    source, target = simulated_lengths(BLOCK_ROWS, 0)
    drawn = time.perf_counter()
    split_block(source, target, MICRO_TOKENS, words=random_words(BLOCK_ROWS, "words"))
    print(f"one block: lengths {(drawn - begin) * 1e3:.1f} ms, cut {(time.perf_counter() - drawn) * 1e3:.1f} ms")

    steps = 3 * int(corpus.counts.sum()) // 8
    steps_drawn = [int(word) % steps for word in random_words(200, "steps")]
    times = [min(plan_milliseconds(corpus, step) for _ in range(2)) for step in steps_drawn]  # of two: without pauses
    memory = peak_gigabytes()
    print(
        f"batch(k) of a new plan, 200 random k of 3 epochs: median {np.median(times):.1f} ms, max {max(times):.1f} ms; "
        f"peak of memory {memory:.2f} GB"
    )

    seen = correlations(corpus)
    for what, value in seen.items():
        print(f"  {what}: z = {value:+.2f}")
    return verdict(
        [
            ("real tokens' share of the area, Multi30k at 4096 tokens", share, 0.95),
            ("minus pairs left out or repeated", -wrong, 0),
            ("minus steps that differ with the number of ranks", -strays, 0),
            ("50 ms minus the median of batch(k)", 50 - float(np.median(times)), 0),
            ("50 ms minus the longest batch(k)", 50 - max(times), 0),
            ("1 GB minus the peak of memory", 1 - memory, 0),
            ("4 minus the largest |z|", 4 - max(map(abs, seen.values())), 0),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())

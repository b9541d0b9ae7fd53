r"""The way of a corpus from raw files to clean, shuffled text, as functions that the shard runner calls.

    cut     one corpus, read line by line         -> pieces of equal size, and rejects.jsonl
    hold    validation and test                   -> what training must not contain
    clean   a piece                               -> its good pairs, grouped by the first bits of their hash
    gather  one hash bucket of every clean piece  -> its pairs without duplicates, in the order of their hash

A pair's hash is 128 bits of BLAKE2 over its two lines. As equal pairs have equal hashes, a bucket holds all copies of
whatever it holds, so each bucket can be deduplicated alone; as hashes are random, the order of the hash is a shuffle of
the whole corpus. No stage holds more than one piece or bucket, and the result depends on nothing but the text.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby, islice
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.corpus.readers import ROWS, read, write_rejects
from heedful.corpus.shards import Shard
from heedful.text.normalize import normalize_all

Integers = NDArray[np.int64]
KEY = np.dtype([("high", "<u8"), ("low", "<u8"), ("line", "<i8")])  # of one row: its hash and where it came from
BEGIN = np.dtype([("row", "<i8"), ("byte", "<i8")])  # where a bucket begins
SMALLEST, SLICE = 1 << 22, 1 << 14  # bytes: of a piece or bucket, and of what the two have in common


def piece_bytes(total: int) -> int:
    """How large pieces and buckets of so many bytes of text are: sqrt(total x SLICE), and at least SMALLEST.

    `gather` reads pieces x buckets slices, of SLICE bytes each by this rule. Were pieces of one size, there would be as
    many slices as the square of the text; so time grows with the text, and memory with its root.
    """
    return max(SMALLEST, isqrt(total * SLICE))


def joined(texts: Sequence[str]) -> bytes:
    """One text a line."""
    return "\n".join([*texts, ""]).encode()


def write_lines(path: Path, texts: Sequence[str]) -> int:
    """One text a line; gives the number of bytes."""
    return path.write_bytes(joined(texts))


def read_lines(path: Path) -> list[str]:
    """What `write_lines` wrote."""
    return path.read_bytes().decode().split("\n")[:-1]


# ------------------------------------------------------------------------------------------------------------- cut


def cut(
    shard: Shard, folder: Path, *, source: str, target: str, longest: int, reject_limit: float, bytes_each: int
) -> Mapping[str, int]:
    """Read a corpus and write it in pieces: 00000.source, 00000.target, 00000.line.npy, ..."""
    counts = Counter({"rejected": 0})
    blocks = read(shard.inputs, source, target, longest=longest, reject_limit=reject_limit)
    with (folder / "rejects.jsonl").open("w", encoding="utf-8", newline="\n") as rejects:
        # The key is asked for block by block, as they are written: a piece ends with the block that fills it.
        for number, (_, piece) in enumerate(groupby(blocks, lambda _: counts["bytes"] // bytes_each)):
            stem, lines = folder / f"{number:05}", []
            with stem.with_suffix(".source").open("wb") as left, stem.with_suffix(".target").open("wb") as right:
                for block in piece:
                    counts["bytes"] += left.write(joined(block.source)) + right.write(joined(block.target))
                    lines += block.lines
                    write_rejects(rejects, block.rejects)
                    counts["rejected"] += len(block.rejects)
            np.save(stem.with_suffix(".line.npy"), np.array(lines, np.int64))
            counts["pairs"] += len(lines)
            counts["pieces"] += 1
    return counts


def load_piece(folder: Path, number: int) -> tuple[list[str], list[str], Integers]:
    """Source, target and line numbers of a piece."""
    lines: Integers = np.load(folder / f"{number:05}.line.npy")
    return read_lines(folder / f"{number:05}.source"), read_lines(folder / f"{number:05}.target"), lines


def load_blocks(folder: Path, number: int) -> Iterator[tuple[list[str], list[str], Integers]]:
    """The same, some rows at a time: what Python and Polars make of a piece is several times its size."""
    lines: Integers = np.load(folder / f"{number:05}.line.npy")
    with (folder / f"{number:05}.source").open("rb") as source, (folder / f"{number:05}.target").open("rb") as target:
        for begin in range(0, len(lines), ROWS):
            left, right = ([line[:-1].decode() for line in islice(side, ROWS)] for side in (source, target))
            yield left, right, lines[begin : begin + ROWS]


# ------------------------------------------------------------------------------------------------------------ hold


def hold(shard: Shard, folder: Path) -> Mapping[str, int]:
    """What validation and test say, by letters only."""
    from heedful.corpus.filters import letters  # needs Polars

    held: dict[str, set[str]] = {"source": set(), "target": set(), "pair": set()}
    for path in shard.inputs:
        for number in range(len(list(path.glob("*.line.npy")))):
            source, target, _ = load_piece(path, number)
            left, right = letters(normalize_all(source)[0]), letters(normalize_all(target)[0])
            held["source"].update(left)
            held["target"].update(right)
            held["pair"].update(f"{one}\t{two}" for one, two in zip(left, right, strict=True))
    for name, texts in held.items():
        write_lines(folder / name, sorted(texts - {"", "\t"}))
    return {name: len(texts) for name, texts in held.items()}


# ----------------------------------------------------------------------------------------------------------- clean


def clean(
    shard: Shard, folder: Path, *, buckets: int, drop: Sequence[str], overlap: str, profiles: Mapping[str, Any]
) -> Mapping[str, int]:
    """Normalize a piece, leave out what the rules name and what is held out, and group the rest by hash bucket."""
    from heedful.corpus.filters import faults  # needs Polars

    corpus, number = shard.name.rsplit("-", 1)
    held = {name: set(read_lines(shard.inputs[1] / name)) for name in HELD[overlap]} if len(shard.inputs) > 1 else {}
    counts: Counter[str] = Counter()
    pairs: list[bytes] = []
    kept = [np.empty(0, np.int64)]
    with (folder / "dropped.jsonl").open("w", encoding="utf-8", newline="\n") as stream:
        for source, target, lines in load_blocks(shard.inputs[0], int(number)):
            (source, left), (target, right) = normalize_all(source), normalize_all(target)
            reasons = faults(source, target, drop, profiles[corpus]) | overlapping(source, target, held)
            for row, reason in sorted(reasons.items()):
                stream.write(json.dumps({"corpus": corpus, "line": int(lines[row]), "reason": reason}) + "\n")
                counts[f"dropped.{reason}"] += 1
            for changes in (left, right):
                counts.update({f"normalized.{name}": times for name, times in changes.items()})
            rows = [row for row in range(len(lines)) if row not in reasons]
            pairs += [f"{source[row]}\n{target[row]}\n".encode() for row in rows]
            kept.append(lines[rows])
            counts["read"] += len(lines)
    keys = np.empty(len(pairs), KEY)
    keys["high"], keys["low"] = hashes(pairs)
    keys["line"] = np.concatenate(kept)
    order = np.lexsort((keys["line"], keys["low"], keys["high"]))
    scatter(folder, keys[order], [pairs[at] for at in order], buckets)
    return counts | {"kept": len(pairs)}


HELD = {"pair": ("pair",), "either": ("source", "target"), "keep": ()}


def overlapping(source: Sequence[str], target: Sequence[str], held: Mapping[str, set[str]]) -> dict[int, str]:
    """Rows that validation or test have too."""
    from heedful.corpus.filters import letters

    if not held:
        return {}
    left, right = letters(source), letters(target)
    sides = {"source": left, "target": right, "pair": [f"{one}\t{two}" for one, two in zip(left, right, strict=True)]}
    return {row: "overlap" for name, texts in held.items() for row, text in enumerate(sides[name]) if text in texts}


def hashes(pairs: Iterable[bytes]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The upper and the lower 64 of the 128 bits of every pair."""
    data = b"".join([blake2b(pair, digest_size=16).digest() for pair in pairs])
    both = np.frombuffer(data, ">u8").reshape(-1, 2)
    return both[:, 0], both[:, 1]


def bucket_of(high: NDArray[np.uint64], buckets: int) -> Integers:
    """The bucket of each hash: equal ranges, so that bucket after bucket is in the order of the hash."""
    return ((high >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype(np.int64)


def scatter(folder: Path, keys: NDArray[Any], pairs: Sequence[bytes], buckets: int) -> None:
    """Write rows, which are in the order of their hash, and where each bucket begins among them."""
    begins = np.zeros(buckets + 1, BEGIN)
    begins["row"] = np.searchsorted(bucket_of(keys["high"], buckets), np.arange(buckets + 1))
    begins["byte"] = np.cumsum([0, *map(len, pairs)], dtype=np.int64)[begins["row"]]
    begins.tofile(folder / "begins")
    keys.tofile(folder / "keys")
    with (folder / "pairs").open("wb") as stream:
        stream.writelines(pairs)


# ---------------------------------------------------------------------------------------------------------- gather


def gather(shard: Shard, folder: Path, *, corpora: Sequence[str], duplicates: str) -> Mapping[str, int]:
    """The rows of one bucket: per corpus NAME.source, NAME.target, NAME.line.npy; of equal pairs the first stays."""
    keys, texts, owners, counts = [], [], [], Counter({"duplicates": 0})
    for path in shard.inputs:
        some, both = slice_of(path, int(shard.name))
        if duplicates == "drop" and (again := repeats(some)).any():  # now, as a pair may be everywhere
            some, both = some[~again], [text for text, gone in zip(both, again.repeat(2), strict=True) if not gone]
            counts["duplicates"] += int(again.sum())
        keys.append(some)
        texts += both
        owners.append(np.full(len(some), corpora.index(path.name.rsplit("-", 1)[0])))
    key, owner = np.concatenate(keys), np.concatenate(owners)
    order = np.lexsort((key["line"], owner, key["low"], key["high"]))
    again = repeats(key[order])
    counts["duplicates"] += int(again.sum())
    if duplicates == "drop":
        order = order[~again]
    for number, name in enumerate(corpora):
        rows = order[owner[order] == number]
        for side, first in (("source", 0), ("target", 1)):
            with (folder / f"{name}.{side}").open("wb") as stream:
                stream.writelines(texts[2 * row + first] + b"\n" for row in rows)
        np.save(folder / f"{name}.line.npy", key["line"][rows].astype(np.int64))
        counts[f"pairs.{name}"] = len(rows)
    return counts


def repeats(keys: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows, in the order of their hash, have the hash of the row before."""
    again = np.zeros(len(keys), np.bool_)
    again[1:] = (keys["high"][1:] == keys["high"][:-1]) & (keys["low"][1:] == keys["low"][:-1])
    return again


def slice_of(path: Path, bucket: int) -> tuple[NDArray[Any], list[bytes]]:
    """One bucket's rows of a clean piece: their keys; their sources and targets, in turn."""
    begin, end = np.fromfile(path / "begins", BEGIN, count=2, offset=bucket * BEGIN.itemsize).tolist()
    keys = np.fromfile(path / "keys", KEY, count=end[0] - begin[0], offset=begin[0] * KEY.itemsize)
    with (path / "pairs").open("rb") as stream:
        stream.seek(begin[1])
        return keys, stream.read(end[1] - begin[1]).split(b"\n")[:-1]

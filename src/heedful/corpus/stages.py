r"""The stages that turn raw files into clean, shuffled text.

    read_into_pieces          one corpus                            -> pieces of equal size, and rejects.jsonl
    collect_held_out          validation and test                   -> texts that training must not contain
    clean_piece               a piece                               -> its good pairs, grouped by hash bucket
    gather_bucket             one hash bucket of every clean piece  -> its pairs without duplicates, ordered by hash
    normalize_held_out_text   validation or test                    -> every line, in order

A pair's hash is 128 bits of BLAKE2 over its two lines; the first bits select the bucket. Equal pairs have equal hashes,
so a bucket contains all copies of a pair and is deduplicated separately. Hashes are random, so ordering by hash
shuffles the whole corpus. If the sources are files, the first 64 bits are a hash of the file, so all targets of a file
stay together. No stage keeps more than one piece or bucket in memory. The result depends only on the text.
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

from heedful.corpus.readers import MAX_BLOCK_ROWS, read_pairs, write_rejects
from heedful.corpus.shards import CodeVersions, Shard
from heedful.text.normalize import normalize_all

# Increase it whenever a stage (here, in data/vocabulary.py or data/tokenization.py) writes different output for the
# same inputs and settings. All corpora are then prepared again, and no corpus mixes shards of two versions.
# tests/data/test_stage_version.py fails if the output changes but the version does not.
STAGE_VERSION = 3
STAGE_VERSIONS = CodeVersions(STAGE_VERSION, ("numpy", "sentencepiece"))  # Polars only evaluates tested rules

Integers = NDArray[np.int64]
KEY = np.dtype([("high", "<u8"), ("low", "<u8"), ("line", "<i8")])  # of one row: its hash and its line number
BUCKET_START = np.dtype([("row", "<i8"), ("byte", "<i8")])
MIN_PIECE_BYTES = 1 << 22  # of a piece or bucket
SLICE_BYTES = 1 << 14  # of the intersection of a piece and a bucket
HELD_OUT_SETS = {"pair": ("pair",), "either": ("source", "target"), "keep": ()}  # clean.overlap -> what is compared


def choose_piece_bytes(total_bytes: int) -> int:
    """The size of pieces and buckets for a text: sqrt(total_bytes x SLICE_BYTES), at least MIN_PIECE_BYTES.

    `gather_bucket` reads pieces x buckets slices. With this rule a slice has SLICE_BYTES, so time grows linearly with
    the text and memory with its square root. With a fixed piece size, the number of slices would grow quadratically.
    """
    return max(MIN_PIECE_BYTES, isqrt(total_bytes * SLICE_BYTES))


def encode_lines(texts: Sequence[str]) -> bytes:
    """One text per line, in UTF-8."""
    return "\n".join([*texts, ""]).encode()


def write_lines(path: Path, texts: Sequence[str]) -> int:
    """Write one text per line; return the number of bytes."""
    return path.write_bytes(encode_lines(texts))


def read_lines(path: Path) -> list[str]:
    """Read what `write_lines` wrote."""
    return path.read_bytes().decode().split("\n")[:-1]


# ------------------------------------------------------------------------------------------------------------ read


def read_into_pieces(
    shard: Shard,
    folder: Path,
    *,
    source: str,
    target: str,
    max_line_bytes: int,
    max_reject_share: float,
    piece_bytes: int,
    selections: Mapping[str, Mapping[str, Any]] | None = None,
) -> Mapping[str, int]:
    """Read a corpus and write it in pieces: 00000.source, 00000.target, 00000.line.npy, ...

    `selections` has the columns and the sheet of each corpus that is a table, if they are set.
    """
    counts = Counter({"rejected": 0})
    blocks = read_pairs(
        shard.inputs,
        source,
        target,
        max_line_bytes=max_line_bytes,
        max_reject_share=max_reject_share,
        **(selections or {}).get(shard.name, {}),
    )
    with (folder / "rejects.jsonl").open("w", encoding="utf-8", newline="\n") as rejects:
        # groupby evaluates the key for each block after the previous one is written: a piece ends when it is full.
        for number, (_, piece) in enumerate(groupby(blocks, lambda _: counts["bytes"] // piece_bytes)):
            stem, lines = folder / f"{number:05}", []
            with stem.with_suffix(".source").open("wb") as left, stem.with_suffix(".target").open("wb") as right:
                for block in piece:
                    counts["bytes"] += left.write(encode_lines(block.source)) + right.write(encode_lines(block.target))
                    lines += block.lines
                    write_rejects(rejects, block.rejects)
                    counts["rejected"] += len(block.rejects)
            np.save(stem.with_suffix(".line.npy"), np.array(lines, np.int64))
            counts["pairs"] += len(lines)
            counts["pieces"] += 1
    return counts


def count_pieces(folder: Path) -> int:
    """The number of pieces that `read_into_pieces` wrote."""
    return len(list(folder.glob("*.line.npy")))


def load_piece(folder: Path, number: int) -> tuple[list[str], list[str], Integers]:
    """Source, target and line numbers of a piece."""
    lines: Integers = np.load(folder / f"{number:05}.line.npy")
    return read_lines(folder / f"{number:05}.source"), read_lines(folder / f"{number:05}.target"), lines


def load_piece_blocks(folder: Path, number: int) -> Iterator[tuple[list[str], list[str], Integers]]:
    """The same in blocks of rows, because Python and Polars need several times the size of a text."""
    lines: Integers = np.load(folder / f"{number:05}.line.npy")
    with (folder / f"{number:05}.source").open("rb") as source, (folder / f"{number:05}.target").open("rb") as target:
        for begin in range(0, len(lines), MAX_BLOCK_ROWS):
            left, right = ([line[:-1].decode() for line in islice(side, MAX_BLOCK_ROWS)] for side in (source, target))
            yield left, right, lines[begin : begin + MAX_BLOCK_ROWS]


# -------------------------------------------------------------------------------------------------------- held out


def collect_held_out(shard: Shard, folder: Path, *, has_text_source: bool = True) -> Mapping[str, int]:
    """Write the sources, targets and pairs of validation and test, as `comparable_pairs` makes them."""
    held_out: dict[str, set[str]] = {"source": set(), "target": set(), "pair": set()}
    for path in shard.inputs:
        for number in range(count_pieces(path)):
            source, target, _ = load_piece(path, number)
            left, right = comparable_pairs(
                normalize_all(source)[0] if has_text_source else source, normalize_all(target)[0], has_text_source
            )
            held_out["source"].update(left)
            held_out["target"].update(right)
            held_out["pair"].update(join_pairs(left, right))
    for name, texts in held_out.items():
        write_lines(folder / name, sorted(texts - {"", "\t"}))
    return {name: len(texts) for name, texts in held_out.items()}


def comparable_pairs(
    source: Sequence[str], target: Sequence[str], has_text_source: bool
) -> tuple[Sequence[str], list[str]]:
    """Texts reduced to their letters; the names of files stay as they are."""
    from heedful.corpus.filters import keep_letters  # needs Polars

    return keep_letters(source) if has_text_source else source, keep_letters(target)


def join_pairs(source: Sequence[str], target: Sequence[str]) -> list[str]:
    """Each pair as one string."""
    return [f"{left}\t{right}" for left, right in zip(source, target, strict=True)]


def normalize_held_out_text(shard: Shard, folder: Path, *, has_text_source: bool = True) -> Mapping[str, int]:
    """Write every line of validation or test, in order and normalized."""
    source: list[str] = []
    target: list[str] = []
    lines = []
    for number in range(count_pieces(shard.inputs[0])):
        left, right, piece_lines = load_piece(shard.inputs[0], number)
        source += normalize_all(left)[0] if has_text_source else left
        target += normalize_all(right)[0]
        lines.append(piece_lines)
    write_lines(folder / f"{shard.name}.source", source)
    write_lines(folder / f"{shard.name}.target", target)
    np.save(folder / f"{shard.name}.line.npy", np.concatenate(lines))
    return {"pairs": len(source)}


# ----------------------------------------------------------------------------------------------------------- clean


def clean_piece(
    shard: Shard,
    folder: Path,
    *,
    num_buckets: int,
    drop: Sequence[str],
    overlap: str,
    profiles: Mapping[str, Any],
    has_text_source: bool = True,
    has_labels: bool = False,
    roots: Mapping[str, int] | None = None,
) -> Mapping[str, int]:
    """Normalize a piece, drop pairs that break a rule or are held out, and group the rest by hash bucket.

    If the sources are not text, they are not normalized, and the rules apply to the targets only; if the targets are
    labels, the rules apply to the sources only. If the sources are files, `roots` has the number of the directory that
    the names in each corpus are relative to: equal names in two directories are two files.
    """
    from heedful.corpus.filters import broken_rules  # needs Polars

    corpus, number = shard.name.rsplit("-", 1)
    held_out: dict[str, set[str]] = {}
    if len(shard.inputs) > 1:
        held_out = {name: set(read_lines(shard.inputs[1] / name)) for name in HELD_OUT_SETS[overlap]}
    counts: Counter[str] = Counter()
    pairs: list[bytes] = []
    files: list[bytes] = []
    kept_lines = [np.empty(0, np.int64)]
    with (folder / "dropped.jsonl").open("w", encoding="utf-8", newline="\n") as stream:
        for source, target, lines in load_piece_blocks(shard.inputs[0], int(number)):
            target, right = normalize_all(target)
            source, left = normalize_all(source) if has_text_source else (source, {})
            left_text = source if has_text_source else target
            reasons = broken_rules(left_text, left_text if has_labels else target, drop, profiles[corpus])
            reasons |= find_overlap(source, target, held_out, has_text_source)
            for row, reason in sorted(reasons.items()):
                stream.write(json.dumps({"corpus": corpus, "line": int(lines[row]), "reason": reason}) + "\n")
                counts[f"dropped.{reason}"] += 1
            for changes in (left, right):
                counts.update({f"normalized.{name}": times for name, times in changes.items()})
            rows = [row for row in range(len(lines)) if row not in reasons]
            pairs += [f"{source[row]}\n{target[row]}\n".encode() for row in rows]
            if roots is not None:
                files += [f"{roots[corpus]}\n{source[row]}".encode() for row in rows]
            kept_lines.append(lines[rows])
            counts["read"] += len(lines)
    keys = np.empty(len(pairs), KEY)
    keys["high"], keys["low"] = hash_pairs(pairs)
    if roots is not None:
        keys["high"], _ = hash_pairs(files)
    keys["line"] = np.concatenate(kept_lines)
    order = np.lexsort((keys["line"], keys["low"], keys["high"]))
    write_buckets(folder, keys[order], [pairs[row] for row in order], num_buckets)
    return counts | {"kept": len(pairs)}


def find_overlap(
    source: Sequence[str], target: Sequence[str], held_out: Mapping[str, set[str]], has_text_source: bool = True
) -> dict[int, str]:
    """Row -> "overlap", for rows that are also in validation or test."""
    if not held_out:
        return {}
    left, right = comparable_pairs(source, target, has_text_source)
    sides = {"source": left, "target": right, "pair": join_pairs(left, right)}
    return {row: "overlap" for name, texts in held_out.items() for row, text in enumerate(sides[name]) if text in texts}


def hash_pairs(pairs: Iterable[bytes]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """The upper and the lower 64 of the 128 bits of every pair's hash."""
    data = b"".join([blake2b(pair, digest_size=16).digest() for pair in pairs])
    halves = np.frombuffer(data, ">u8").reshape(-1, 2)
    return halves[:, 0], halves[:, 1]


def bucket_of(high: NDArray[np.uint64], num_buckets: int) -> Integers:
    """The bucket of each hash. Buckets are equal ranges, so their concatenation is in hash order."""
    return ((high >> np.uint64(32)) * np.uint64(num_buckets) >> np.uint64(32)).astype(np.int64)


def write_buckets(folder: Path, keys: NDArray[Any], pairs: Sequence[bytes], num_buckets: int) -> None:
    """Write rows, already sorted by hash, and the start of each bucket."""
    begins = np.zeros(num_buckets + 1, BUCKET_START)
    begins["row"] = np.searchsorted(bucket_of(keys["high"], num_buckets), np.arange(num_buckets + 1))
    begins["byte"] = np.cumsum([0, *map(len, pairs)], dtype=np.int64)[begins["row"]]
    begins.tofile(folder / "begins")
    keys.tofile(folder / "keys")
    with (folder / "pairs").open("wb") as stream:
        stream.writelines(pairs)


# ---------------------------------------------------------------------------------------------------------- gather


def gather_bucket(shard: Shard, folder: Path, *, corpora: Sequence[str], duplicates: str) -> Mapping[str, int]:
    """Write one bucket: per corpus NAME.source, NAME.target, NAME.line.npy; of equal pairs keep the first."""
    keys, texts, owners, counts = [], [], [], Counter({"duplicates": 0})
    for path in shard.inputs:
        piece_keys, piece_texts = read_bucket(path, int(shard.name))
        if duplicates == "drop" and (repeated := is_repeated(piece_keys)).any():  # early, to save memory
            piece_texts = [text for text, drop in zip(piece_texts, repeated.repeat(2), strict=True) if not drop]
            piece_keys = piece_keys[~repeated]
            counts["duplicates"] += int(repeated.sum())
        keys.append(piece_keys)
        texts += piece_texts
        owners.append(np.full(len(piece_keys), corpora.index(path.name.rsplit("-", 1)[0])))
    key, owner = np.concatenate(keys), np.concatenate(owners)
    order = np.lexsort((key["line"], owner, key["low"], key["high"]))
    repeated = is_repeated(key[order])
    counts["duplicates"] += int(repeated.sum())
    if duplicates == "drop":
        order = order[~repeated]
    for number, name in enumerate(corpora):
        rows = order[owner[order] == number]
        for side, offset in (("source", 0), ("target", 1)):
            with (folder / f"{name}.{side}").open("wb") as stream:
                stream.writelines(texts[2 * row + offset] + b"\n" for row in rows)
        np.save(folder / f"{name}.line.npy", key["line"][rows].astype(np.int64))
        counts[f"pairs.{name}"] = len(rows)
    return counts


def is_repeated(keys: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows, sorted by hash, have the same hash as the row before."""
    repeated = np.zeros(len(keys), np.bool_)
    repeated[1:] = (keys["high"][1:] == keys["high"][:-1]) & (keys["low"][1:] == keys["low"][:-1])
    return repeated


def read_bucket(piece: Path, bucket: int) -> tuple[NDArray[Any], list[bytes]]:
    """One bucket of a clean piece: keys of its rows; their sources and targets, alternating."""
    begin, end = np.fromfile(piece / "begins", BUCKET_START, count=2, offset=bucket * BUCKET_START.itemsize).tolist()
    keys = np.fromfile(piece / "keys", KEY, count=end[0] - begin[0], offset=begin[0] * KEY.itemsize)
    with (piece / "pairs").open("rb") as stream:
        stream.seek(begin[1])
        return keys, stream.read(end[1] - begin[1]).split(b"\n")[:-1]

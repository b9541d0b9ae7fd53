"""The stage that turns text into token ids."""

import json
import os
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from heedful.config import InputSettings
from heedful.corpus.shards import Shard, hash_values
from heedful.corpus.stages import read_lines
from heedful.data.store import row_lengths, write_rows, write_tokens
from heedful.errors import DataError
from heedful.inputs.kinds import GraphInput, Input, Row, make_input
from heedful.text.tokenizer import Tokenizer, load

InputSection: TypeAdapter[Any] = TypeAdapter(InputSettings)


def make_token_shard(folder: Path, name: str, into: str = "tokens") -> Shard:
    """The shard that tokenizes one directory of text; it also depends on the vocabularies."""
    return Shard(name, (folder / "text" / name, folder / "vocabulary"), folder / into / name)


def tokenize_shard(
    shard: Shard,
    folder: Path,
    *,
    tags: Mapping[str, str | None],
    max_tokens: int | None,
    subword_regularization: float,
    seed: int,
    epoch: int,
    input: Mapping[str, Any] | None = None,
    roots: Mapping[str, str] | None = None,
    per_slot: bool = False,
    files: Sequence[str] = (),  # noqa: ARG001  # part of the shard's hash: it changes if a picture changes
) -> Mapping[str, int]:
    """Write the ids of the corpora in `tags`, with the tag in front of the source.

    If the sources are not text, `input` is the section of the settings and `roots` has the directory that the paths of
    each corpus are relative to. Pairs whose source cannot be read are dropped, but are an error in validation and test.

    With `per_slot`, pairs without a label for each token of the source, or each node of a graph, are dropped; in
    validation and test, they are an error. There can be as many labels as nodes, whatever `max_tokens` is.

    With subword regularization, the ids are a pure function of seed, epoch and shard. Pairs longer than `max_tokens`
    are dropped. A sampled segmentation that is too long is replaced by the best one: all epochs have the same pairs.
    """
    counts: Counter[str] = Counter()
    inputs = make_input(InputSection.validate_python(input or {"kind": "text"}))
    tokenizers = {side: load(shard.inputs[1] / f"{side}.model") for side in inputs.text_sides}
    threads = 1 if os.environ.get("OMP_NUM_THREADS") == "1" else os.cpu_count() or 1  # set for parallel workers
    with (folder / "dropped.jsonl").open("w", encoding="utf-8", newline="\n") as stream:
        for name, tag in tags.items():
            lines = np.load(shard.inputs[0] / f"{name}.line.npy")
            ids: dict[str, list[list[int]]] = {}
            for side, tokenizer in tokenizers.items():
                data = (shard.inputs[0] / f"{name}.{side}").read_bytes()
                texts = data.decode().split("\n")[:-1]
                counts[f"words.{side}"] += int((np.frombuffer(data, np.uint8) == ord(" ")).sum()) + len(texts)
                if subword_regularization:
                    side_seed = make_seed(seed, epoch, shard.name, name, side)
                    ids[side] = sample_ids(tokenizer, texts, subword_regularization, side_seed, max_tokens)
                else:
                    ids[side] = tokenizer.encode(texts, threads)
            labels_nodes = per_slot and isinstance(inputs, GraphInput)
            reasons = {} if labels_nodes else find_long_rows(ids.values(), max_tokens)
            if "source" not in ids:
                root = Path((roots or {})[name])
                sources = read_lines(shard.inputs[0] / f"{name}.source")
                lengths = row_lengths(ids["target"]).tolist() if labels_nodes else None
                reasons |= write_sources(
                    folder, name, inputs, sources, root, lengths=lengths, skip=reasons, is_held_out=not max_tokens
                )
            elif per_slot:
                reasons |= find_unequal_rows(ids["source"], ids["target"], lines, is_held_out=not max_tokens)
            for row, reason in sorted(reasons.items()):
                stream.write(json.dumps({"corpus": name, "line": int(lines[row]), "reason": reason}) + "\n")
                counts[f"dropped.{reason.partition(':')[0]}"] += 1
            if reasons:
                ids = {
                    side: [row for number, row in enumerate(rows) if number not in reasons]
                    for side, rows in ids.items()
                }
            if tag:
                tag_id = tokenizers["source"].tag_id(tag)
                ids["source"] = [[tag_id, *row] for row in ids["source"]]
            for side, rows in ids.items():
                counts[f"tokens.{side}"] += write_tokens(folder, f"{name}.{side}", rows, tokenizers[side].size)
            np.save(folder / f"{name}.line.npy", np.delete(lines, list(reasons)))
            counts[f"rows.{name}"] += len(lines) - len(reasons)
    return counts


def find_long_rows(sides: Iterable[Sequence[Sequence[int]]], max_tokens: int | None) -> dict[int, str]:
    """Row -> "long_tokens", for rows of which one side is too long."""
    if not max_tokens:
        return {}
    longest = np.max([row_lengths(rows) for rows in sides], axis=0)
    return dict.fromkeys(np.flatnonzero(longest > max_tokens).tolist(), "long_tokens")


def find_unequal_rows(
    source: Sequence[Sequence[int]], target: Sequence[Sequence[int]], lines: Any, *, is_held_out: bool
) -> dict[int, str]:
    """Row -> reason, for rows with more or fewer labels than tokens of the source."""
    unequal = np.flatnonzero(row_lengths(source) != row_lengths(target)).tolist()
    if unequal and (is_held_out or len(unequal) == len(source)):
        row = unequal[0]
        raise DataError(
            f"line {lines[row]:,} has {len(source[row]):,} tokens but {len(target[row]):,} labels: output.per_slot "
            'needs a label for each token, separated by spaces. With tokenizer.kind = "fields", spaces separate the '
            "tokens, too"
        )
    return dict.fromkeys(unequal, "unequal_labels")


def write_sources(
    folder: Path,
    name: str,
    inputs: Input,
    sources: Sequence[str],
    root: Path,
    *,
    lengths: Sequence[int] | None = None,
    skip: Container[int],
    is_held_out: bool,
) -> dict[int, str]:
    """Write the rows of sources that are not text, one at a time; return why rows could not be read.

    If `lengths` has the number of labels of each source, a row with another number of slots counts as unreadable.
    """
    reasons: dict[int, str] = {}

    def rows() -> Iterator[Row]:
        for number, source in enumerate(sources):
            if number in skip:
                continue
            try:
                row = inputs.read_row(source, root)
                if lengths is not None and len(row) != lengths[number]:
                    raise DataError(
                        f"{source}: {len(row):,} nodes, but {lengths[number]:,} labels: output.per_slot needs a label "
                        "for each node, separated by spaces, or ? where it is not known"
                    )
                yield row
            except DataError as error:
                if is_held_out:
                    raise DataError(
                        f"{error}. Validation and test keep every line: repair or remove this one"
                    ) from None
                reasons[number] = f"unreadable: {error}"

    write_rows(folder, f"{name}.source", rows(), inputs.num_features, inputs.dtype)
    return reasons


def sample_ids(
    tokenizer: Tokenizer, texts: list[str], amount: float, seed: int, max_tokens: int | None
) -> list[list[int]]:
    """A sampled segmentation of every text, or the best one if either has more than `max_tokens`."""
    rows = tokenizer.sample(texts, amount, seed)
    # A text has at most as many tokens as bytes plus spaces.
    long_texts = [
        number for number, text in enumerate(texts) if max_tokens and len(text.encode()) + text.count(" ") >= max_tokens
    ]
    for number in long_texts:
        (best,) = tokenizer.encode([texts[number]])
        if max_tokens and max(len(best), len(rows[number])) > max_tokens:
            rows[number] = best
    return rows


def make_seed(*key: object) -> int:
    """A seed derived from names and numbers."""
    return int(hash_values(key)[:15], 16)

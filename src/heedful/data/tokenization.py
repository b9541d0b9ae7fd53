"""The stage that turns text into token ids."""

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from heedful.corpus.shards import Shard, hash_values
from heedful.data.store import SIDES, row_lengths, write_tokens
from heedful.text.tokenizer import Tokenizer, load


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
) -> Mapping[str, int]:
    """Write the ids of the corpora in `tags`, with the tag in front of the source.

    With subword regularization, the ids are a pure function of seed, epoch and shard. Pairs longer than `max_tokens`
    are dropped. A sampled segmentation that is too long is replaced by the best one: all epochs have the same pairs.
    """
    counts: Counter[str] = Counter()
    tokenizers = {side: load(shard.inputs[1] / f"{side}.model") for side in SIDES}
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
            longer = np.maximum(*map(row_lengths, ids.values()))
            too_long = np.flatnonzero(longer > max_tokens) if max_tokens else np.empty(0, np.int64)
            if len(too_long):
                for row in too_long.tolist():
                    stream.write(json.dumps({"corpus": name, "line": int(lines[row]), "reason": "long_tokens"}) + "\n")
                dropped = set(too_long.tolist())
                ids = {
                    side: [row for number, row in enumerate(rows) if number not in dropped]
                    for side, rows in ids.items()
                }
                counts["dropped.long_tokens"] += len(too_long)
            if tag:
                tag_id = tokenizers["source"].tag_id(tag)
                ids["source"] = [[tag_id, *row] for row in ids["source"]]
            for side in SIDES:
                counts[f"tokens.{side}"] += write_tokens(folder, f"{name}.{side}", ids[side], tokenizers[side].size)
            np.save(folder / f"{name}.line.npy", np.delete(lines, too_long))
            counts[f"rows.{name}"] += len(lines) - len(too_long)
    return counts


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

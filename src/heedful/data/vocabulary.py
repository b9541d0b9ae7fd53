"""The stages that create the vocabulary: trained on the shuffled text, or copied from existing tokenizer files."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from math import ceil
from pathlib import Path

import numpy as np

from heedful.corpus.shards import Shard
from heedful.corpus.stages import read_lines
from heedful.data.store import SIDES
from heedful.errors import ConfigError, DataError
from heedful.files import file_sha256
from heedful.text.tokenizer import Tokenizer, load, train, train_labels

MAX_LABELS = 10_000
MAX_LABEL_LINES = 1 << 62  # all of them


def train_vocabulary(
    shard: Shard,
    folder: Path,
    *,
    corpora: Sequence[str],
    tags: Sequence[str],
    kind: str,
    vocab_size: int,
    shared: bool,
    byte_fallback: bool,
    character_coverage: float,
    training_pairs: int,
    sides: Sequence[str] = SIDES,
    labels: str | None = None,
) -> Mapping[str, int]:
    """Train one shared tokenizer or one per side that is text, on the first pairs in hash order.

    With `labels`, "label" or "fields", the targets are labels: their vocabulary is separate and has all of them.
    """
    sizes = {}
    if labels:
        sides = [side for side in sides if side != "target"]
        tokenizer: Tokenizer = train_labels(labels, read_first_lines(shard.inputs, corpora, "target", MAX_LABEL_LINES))
        if tokenizer.size > MAX_LABELS:
            raise DataError(
                f"the targets have {tokenizer.size:,} different labels; at most {MAX_LABELS:,} are supported. If they "
                'are text, set output.kind = "text"'
            )
        tokenizer.save(folder / "target.model")
        sizes["target"] = tokenizer.size
    for group in (sides,) if shared and sides else tuple((side,) for side in sides):
        texts = chain.from_iterable(read_first_lines(shard.inputs, corpora, side, training_pairs) for side in group)
        tokenizer = train(
            kind, texts, vocab_size, tags=tags, byte_fallback=byte_fallback, character_coverage=character_coverage
        )
        for side in group:
            tokenizer.save(folder / f"{side}.model")
            sizes[side] = tokenizer.size
    return sizes


def copy_vocabulary(
    shard: Shard,  # noqa: ARG001  # the signature of a stage
    folder: Path,
    *,
    files: Sequence[str],
    hashes: Sequence[str],  # noqa: ARG001  # part of the shard's hash
    sides: Sequence[str] = SIDES,
) -> Mapping[str, int]:
    """Copy existing tokenizers, one per side that is text."""
    tokenizers = {side: load(Path(file)) for side, file in zip(sides, files, strict=True)}
    for side, tokenizer in tokenizers.items():
        tokenizer.save(folder / f"{side}.model")
    return {side: tokenizer.size for side, tokenizer in tokenizers.items()}


def hash_tokenizer_file(file: str) -> str:
    try:
        return file_sha256(Path(file))
    except OSError as error:
        raise ConfigError(f"tokenizer.files: {file} cannot be read: {error.strerror}") from None


def read_first_lines(folders: Sequence[Path], corpora: Sequence[str], side: str, max_lines: int) -> Iterator[str]:
    """About `max_lines` lines of one side; the text is shuffled, so its beginning is a random sample.

    Reads the same share of every corpus in the first directories with enough lines: each corpus is ordered separately.
    """
    counts = [[len(np.load(folder / f"{name}.line.npy", mmap_mode="r")) for name in corpora] for folder in folders]
    num_folders = int(np.searchsorted(np.cumsum([sum(row) for row in counts]), max_lines)) + 1
    share = min(1.0, max_lines / max(1, sum(sum(row) for row in counts[:num_folders])))
    for folder, folder_counts in zip(folders[:num_folders], counts, strict=False):
        for name, count in zip(corpora, folder_counts, strict=True):
            yield from islice(read_lines(folder / f"{name}.{side}"), ceil(share * count))

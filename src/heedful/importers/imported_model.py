"""The result of every import, and helpers to read files and renumber vocabularies."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful import config
from heedful.bundle import GenerationSettings
from heedful.errors import HeedfulError
from heedful.text.tokenizer import BOS, EOS, SPECIAL, UNK, Tokenizer

Array = NDArray[Any]
MAX_FILE_BYTES = 1 << 26  # of a parsed file
PAD_LOGIT = -100.0  # of an added <pad>: probability 0 in float32, but a finite loss


@dataclass(frozen=True)
class ImportedModel:
    """Another toolkit's model: settings, weights and tokenizers as a model directory stores them."""

    kind: str  # such as "Marian, by Hugging Face"
    model: config.ModelSettings
    weights: Mapping[str, Array]
    tokenizers: Mapping[str, Tokenizer]  # of source and target
    languages: tuple[str, str] | None = None
    source_ends: bool = True
    generation: GenerationSettings = field(default_factory=GenerationSettings)


def read_file(path: Path) -> bytes:
    """The bytes of a regular file of at most MAX_FILE_BYTES."""
    if not path.is_file():
        raise HeedfulError(f"{path} is missing or not a file")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise HeedfulError(f"{path} is larger than {MAX_FILE_BYTES:,} bytes")
    return path.read_bytes()


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_file(path).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise HeedfulError(f"{path} is not JSON ({str(error)[:200]!a})") from None


def read_json_object(path: Path) -> dict[str, Any]:
    tree = read_json(path)
    if not isinstance(tree, dict):
        raise HeedfulError(f"{path} is not a JSON object")
    return tree


def read_lines(path: Path) -> list[str]:
    """The lines of a file that ends with a newline."""
    return read_file(path).decode("utf-8-sig").split("\n")[:-1]


def renumber_pieces(pieces: Sequence[str], special: Sequence[str | None], where: Path) -> tuple[list[int], list[str]]:
    """(our id of each of their ids, our list of pieces): special tokens first, the rest in their order.

    `special` are their names of <pad> <unk> <s> </s>; a <pad> or <s> that is None is added.
    """
    ids = {pieces.index(name): token for token, name in enumerate(special) if name in pieces}
    for token in (UNK, EOS):
        if token not in ids.values():
            raise HeedfulError(f"{where}: the vocabulary has no {special[token]}")
    rest = [index for index in range(len(pieces)) if index not in ids]
    ids |= {index: len(SPECIAL) + row for row, index in enumerate(rest)}
    # Pieces with the name of one of our special tokens are renamed.
    names = [f"\u2581{pieces[index]}" if pieces[index] in SPECIAL else pieces[index] for index in rest]
    return [ids[index] for index in range(len(pieces))], [*SPECIAL, *names]


def reorder_rows(table: Array, order: Sequence[int], size: int, fill: float = 0.0) -> Array:
    """A table [size, ...] in which row n of `table` is row order[n]; the other rows contain `fill`."""
    if len(table) != len(order):
        raise HeedfulError(f"the vocabulary has {len(order):,} pieces, but an embedding table has {len(table):,} rows")
    reordered = np.full((size, *table.shape[1:]), fill, np.float32)
    reordered[list(order)] = table
    return reordered


def set_start_row_(table: Array, order: Sequence[int], start: int | None) -> Array:
    """Set the embedding of an added <s>, in place, to that of their token `start`, or to zeros for None."""
    if BOS not in order:
        table[BOS] = 0.0 if start is None else table[order[start]]
    return table


def as_float32(array: Array) -> Array:
    return np.ascontiguousarray(array, dtype=np.float32)

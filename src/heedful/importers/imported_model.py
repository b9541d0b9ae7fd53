"""What every import gives: somebody else's model in our words."""

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
LARGEST = 1 << 26  # bytes of a file that is parsed
NEVER = -100.0  # logit of a <pad> that is added: probability 0 in float32, and no infinity for the loss to meet


@dataclass(frozen=True)
class Foreign:
    """A model with its weights by our names, and all that a model directory says about it."""

    kind: str  # such as "Marian, by Hugging Face"
    model: config.ModelSettings
    weights: Mapping[str, Array]
    tokenizers: Mapping[str, Tokenizer]  # of source and target
    languages: tuple[str, str] | None = None
    source_ends: bool = True
    generation: GenerationSettings = field(default_factory=GenerationSettings)


def data_of(path: Path) -> bytes:
    """All of a file, if it is one, and no larger than an honest one."""
    if not path.is_file():
        raise HeedfulError(f"{path} is missing, or not a file")
    if path.stat().st_size > LARGEST:
        raise HeedfulError(f"{path} is larger than {LARGEST:,} bytes")
    return path.read_bytes()


def json_of(path: Path) -> Any:
    """What a file of JSON says."""
    try:
        return json.loads(data_of(path).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise HeedfulError(f"{path} is not JSON ({str(error)[:200]!a})") from None


def tree_of(path: Path) -> dict[str, Any]:
    """A JSON object."""
    tree = json_of(path)
    if not isinstance(tree, dict):
        raise HeedfulError(f"{path} is not a JSON object")
    return tree


def lines_of(path: Path) -> list[str]:
    """One symbol a line."""
    return data_of(path).decode("utf-8-sig").split("\n")[:-1]


def ordered(pieces: Sequence[str], special: Sequence[str | None], where: Path) -> tuple[list[int], list[str]]:
    """Their number -> our id, and our list: the special tokens, which they call `special`, and the rest as it was.

    A <pad> or an <s> that they call None is new.
    """
    ours = {pieces.index(name): token for token, name in enumerate(special) if name in pieces}
    for token in (UNK, EOS):
        if token not in ours.values():
            raise HeedfulError(f"{where}: among the pieces there is no {special[token]}")
    rest = [at for at in range(len(pieces)) if at not in ours]
    numbers = ours | {at: len(SPECIAL) + place for place, at in enumerate(rest)}
    # One of the rest may be called like a special token of ours.
    called = [f"\u2581{pieces[at]}" if pieces[at] in SPECIAL else pieces[at] for at in rest]
    return [numbers[at] for at in range(len(pieces))], [*SPECIAL, *called]


def rows(array: Array, order: Sequence[int], size: int, new: float = 0.0) -> Array:
    """The rows of a table in our order; those that are new are the same everywhere."""
    if len(array) != len(order):
        raise HeedfulError(f"there are {len(order):,} pieces, but a table of the model has {len(array):,} rows")
    found = np.full((size, *array.shape[1:]), new, np.float32)
    found[list(order)] = array
    return found


def started(table: Array, order: Sequence[int], start: int | None) -> Array:
    """A table of the decoder in which <s> is what their decoder starts from: one of their tokens, or None for zeros."""
    if BOS not in order:
        table[BOS] = 0.0 if start is None else table[order[start]]
    return table


def floats(array: Array) -> Array:
    """The same numbers as float32, in one piece."""
    return np.ascontiguousarray(array, dtype=np.float32)

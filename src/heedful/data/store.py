"""Tokens on disk: flat ids and where each row begins, memory-mapped, so that a corpus of any size opens at once.

    prepared = open_prepared("prepared")
    prepared.train[0].pairs([0, 1, 2])        # [(source ids, target ids), ...]

A corpus is a row of shards, each a folder with NAME.source.npy (ids, 16 bits where the vocabulary allows),
NAME.source.begin.npy, the same for the target, and NAME.line.npy (where each pair stood in its file). manifest.json
lists them with their hashes, and the fingerprint of a corpus is a hash of those.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.data.plan import BLOCK, count_units
from heedful.errors import DataError
from heedful.text.tokenizer import Tokenizer, load

FORMAT = 1
MANIFEST = "manifest.json"
SIDES = ("source", "target")

Array = NDArray[Any]


def write_tokens(folder: Path, name: str, rows: Sequence[Sequence[int]], vocabulary: int) -> int:
    """Write rows of ids as `name`.npy and `name`.begin.npy; gives the number of ids."""
    begins = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=begins[1:])
    ids = np.fromiter(chain.from_iterable(rows), np.uint16 if vocabulary <= 1 << 16 else np.uint32, int(begins[-1]))
    np.save(folder / f"{name}.npy", ids)
    np.save(folder / f"{name}.begin.npy", begins)
    return int(begins[-1])


@lru_cache(maxsize=1 << 15)
def mapped(path: Path) -> Array:
    """An array on disk, read as it is needed."""
    array: Array = np.load(path, mmap_mode="r")
    return array


@dataclass(frozen=True)
class Stored:
    """The tokens of one corpus. `plan.Plan` makes batches of it."""

    name: str
    folders: tuple[Path, ...]
    sizes: tuple[int, ...]  # rows of each folder
    fingerprint: str
    cache: Path | None = None  # where counts of batches are kept
    fixed: bool = field(default=True, init=False)

    @cached_property
    def begins(self) -> NDArray[np.int64]:
        """The first row of each folder, and one past the last."""
        return np.concatenate([[0], np.cumsum(self.sizes, dtype=np.int64)])

    @property
    def rows(self) -> int:
        """How many pairs."""
        return int(self.begins[-1])

    def part(self, folder: int, what: str) -> Array:
        """One array of one folder: "source", "source.begin", ..., "line"."""
        return mapped(self.folders[folder] / f"{self.name}.{what}.npy")

    def spans(self, begin: int, end: int) -> Iterable[tuple[int, int, int]]:
        """(folder, first, last + 1) of the rows [begin, end)."""
        first = int(np.searchsorted(self.begins, begin, side="right")) - 1
        while begin < end:
            until = min(end, int(self.begins[first + 1]))
            if until > begin:
                yield first, begin - int(self.begins[first]), until - int(self.begins[first])
            begin, first = until, first + 1

    def lengths(self, epoch: int, block: int) -> tuple[Array, Array]:  # noqa: ARG002  # the same in every epoch
        """Source and target lengths of a block, with the end token that each side gets."""
        spans = list(self.spans(block * BLOCK, min((block + 1) * BLOCK, self.rows)))
        sides = [
            np.concatenate([np.diff(self.part(folder, f"{side}.begin")[a : b + 1]) for folder, a, b in spans]) + 1
            for side in SIDES
        ]
        return sides[0], sides[1]

    def units(self, epoch: int, micro_tokens: int) -> Array:
        """How many micro-batches each block makes; counted once and kept."""
        kept = self.cache and self.cache / f"{self.fingerprint[:16]}-{micro_tokens}.npy"
        if kept and kept.is_file():
            return mapped(kept)
        blocks = -(-self.rows // BLOCK)
        counts = np.array(
            [
                count_units(*self.lengths(epoch, block), micro_tokens, first_row=block * BLOCK)
                for block in range(blocks)
            ],
            np.int64,
        )
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            part = kept.with_suffix(".part")
            with part.open("wb") as stream:
                np.save(stream, counts)
            part.replace(kept)
        return counts

    def pairs(self, rows: Iterable[int]) -> list[tuple[Array, Array]]:
        """The ids of some rows."""
        result = []
        for row in rows:
            folder = int(np.searchsorted(self.begins, row, side="right")) - 1
            at = int(row - self.begins[folder])
            ids = []
            for side in SIDES:
                begin, end = self.part(folder, f"{side}.begin")[at : at + 2]
                ids.append(self.part(folder, side)[begin:end])
            result.append((ids[0], ids[1]))
        return result

    def lines(self, rows: Iterable[int]) -> list[int]:
        """Where some rows stood in their file, from 1."""
        places = [(int(np.searchsorted(self.begins, row, side="right")) - 1, row) for row in rows]
        return [int(self.part(folder, "line")[row - self.begins[folder]]) for folder, row in places]

    def texts(self, side: str, folder: int) -> list[str]:
        """The text of one folder's rows, which stands beside its tokens in text/."""
        path = self.folders[folder]
        return (path.parents[1] / "text" / path.name / f"{self.name}.{side}").read_text("utf-8").split("\n")[:-1]


@dataclass(frozen=True)
class Prepared:
    """A prepared folder: corpora, tokenizers and the manifest that describes them."""

    folder: Path
    manifest: dict[str, Any]

    def split(self, name: str) -> tuple[Stored, ...]:
        """The corpora of "train", "validation" or "test"."""
        return tuple(
            Stored(
                corpus["name"],
                tuple(self.folder / part["folder"] for part in corpus["parts"]),
                tuple(part["rows"] for part in corpus["parts"]),
                corpus["fingerprint"],
                self.folder / "plan",
            )
            for corpus in self.manifest["corpora"]
            if corpus["split"] == name
        )

    @property
    def train(self) -> tuple[Stored, ...]:
        """What to learn from."""
        return self.split("train")

    @property
    def fingerprint(self) -> str:
        """A hash of every token and of both vocabularies."""
        return str(self.manifest["fingerprint"])

    @property
    def weights(self) -> list[float] | None:
        """How often each corpus of `train` is read, where the configuration says so."""
        weights = [corpus["weight"] for corpus in self.manifest["corpora"] if corpus["split"] == "train"]
        return None if any(weight is None for weight in weights) else weights

    def tokenizer(self, side: str) -> Tokenizer:
        """The tokenizer of "source" or "target"."""
        return load(self.folder / self.manifest["tokenizers"][side]["file"])


def open_prepared(folder: str | Path) -> Prepared:
    """Open what `heedful prepare` made; refuses what is unfinished, of another format, or has lost a file."""
    folder = Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"{folder} has no {MANIFEST}: it is not prepared, or not to its end. Type: heedful prepare"
        ) from None
    except ValueError as error:
        raise DataError(f"{folder / MANIFEST} is damaged ({error}). Type: heedful prepare   to make it anew") from None
    if manifest.get("format") != FORMAT:
        raise DataError(f"{folder} has format {manifest.get('format')}, this heedful reads {FORMAT}: prepare it again")
    for corpus in manifest["corpora"]:
        for part in corpus["parts"]:
            for name, size in part["files"].items():
                path = folder / part["folder"] / name
                if not path.is_file() or path.stat().st_size != size:
                    raise DataError(f"{path} is missing or cut short. Type: heedful prepare   to mend it")
    return Prepared(folder, manifest)

"""Tokens on disk: flat ids and where each row begins, memory-mapped, so that a corpus of any size opens at once.

    prepared = open_prepared("prepared")
    prepared.train[0].pairs([0, 1, 2])        # [(source ids, target ids), ...]

A corpus is a row of shards, each a folder with NAME.source.npy (ids, 16 bits where the vocabulary allows),
NAME.source.begin.npy, the same for the target, and NAME.line.npy (where each pair stood in its file). manifest.json
lists them with their hashes, and the fingerprint of a corpus is a hash of those.
"""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.data.plan import BLOCK, Corpus, count_units
from heedful.errors import DataError
from heedful.files import file_sha256
from heedful.text.tokenizer import Tokenizer, load

FORMAT = 1
MANIFEST = "manifest.json"
SIDES = ("source", "target")
ARRAYS = ("source", "source.begin", "target", "target.begin", "line")  # of every corpus in every folder

Array = NDArray[Any]


def lengths_of(rows: Sequence[Sequence[int]]) -> Array:
    """How many ids each row has."""
    return np.fromiter(map(len, rows), np.int64, len(rows))


def write_tokens(folder: Path, name: str, rows: Sequence[Sequence[int]], vocabulary: int) -> int:
    """Write rows of ids as `name`.npy and `name`.begin.npy; gives the number of ids."""
    begins = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths_of(rows), out=begins[1:])
    ids = np.fromiter(chain.from_iterable(rows), np.uint16 if vocabulary <= 1 << 16 else np.uint32, int(begins[-1]))
    np.save(folder / f"{name}.npy", ids)
    np.save(folder / f"{name}.begin.npy", begins)
    return int(begins[-1])


def mapped(path: Path) -> Array:
    """An array on disk, read as it is needed; known by its time too, as a file may be made anew."""
    return _mapped(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=64)  # a map holds a file open, of which a process may have a few hundred
def _mapped(path: Path, time: int) -> Array:  # noqa: ARG001  # part of the key
    array: Array = np.load(path, mmap_mode="r")
    return array


def counted(corpus: Corpus, epoch: int, micro_tokens: int) -> Array:
    """How many micro-batches each block of a corpus makes."""
    blocks = range(-(-corpus.rows // BLOCK))
    counts = [count_units(*corpus.lengths(epoch, at), micro_tokens, first_row=at * BLOCK) for at in blocks]
    return np.array(counts, np.int64)


def kept(path: Path | None, make: Callable[[], Array]) -> Array:
    """What is in the file, or what `make` gives, which then is."""
    if path is not None and path.is_file():
        return mapped(path)
    result = make()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".tmp-{path.name}-{os.getpid()}")  # another rank may be at it too
        with part.open("wb") as stream:
            np.save(stream, result)
        part.replace(path)
    return result


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
        path = self.cache and self.cache / f"{self.fingerprint[:16]}-{micro_tokens}.npy"
        return kept(path, lambda: counted(self, epoch, micro_tokens))

    def places(self, rows: Sequence[int]) -> list[tuple[int, list[tuple[int, int]]]]:
        """Folder, (position in `rows`, row inside the folder): so that a folder is opened once."""
        wanted = np.asarray(rows, np.int64)
        folders = np.searchsorted(self.begins, wanted, side="right") - 1
        inside = (wanted - self.begins[folders]).tolist()
        found: dict[int, list[tuple[int, int]]] = {}
        for position, folder in enumerate(folders.tolist()):
            found.setdefault(folder, []).append((position, inside[position]))
        return sorted(found.items())

    def pairs(self, rows: Sequence[int]) -> list[tuple[Array, Array]]:
        """The ids of some rows."""
        sides: dict[str, list[Array]] = {side: [np.empty(0)] * len(rows) for side in SIDES}
        for folder, some in self.places(rows):
            for side, found in sides.items():
                ids, begins = self.part(folder, side), self.part(folder, f"{side}.begin")
                for position, at in some:
                    found[position] = np.array(ids[begins[at] : begins[at + 1]])
        return list(zip(*sides.values(), strict=True))

    def lines(self, rows: Sequence[int]) -> list[int]:
        """Where some rows stood in their file, from 1."""
        result = [0] * len(rows)
        for folder, some in self.places(rows):
            lines = self.part(folder, "line")
            for position, at in some:
                result[position] = int(lines[at])
        return result

    def without_last(self, count: int) -> "Stored":
        """The same corpus, but for its last rows."""
        sizes, left = [], self.rows - count
        for size in self.sizes:
            sizes.append(min(size, left))
            left -= sizes[-1]
        return replace(self, sizes=tuple(sizes), fingerprint=f"{count:x}-{self.fingerprint}")

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
    for one in manifest["tokenizers"].values():
        path = folder / one["file"]
        if not path.is_file() or file_sha256(path) != one["sha256"]:
            raise DataError(f"{path} is missing or not the one this was prepared with. Type: heedful prepare")
    for corpus in manifest["corpora"]:
        for part in corpus["parts"]:
            for name, size in part["files"].items():
                path = folder / part["folder"] / name
                if not path.is_file() or path.stat().st_size != size:
                    raise DataError(f"{path} is missing or cut short. Type: heedful prepare   to mend it")
    return Prepared(folder, manifest)

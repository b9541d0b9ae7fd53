"""Tokens on disk: flat arrays of ids and row starts, memory-mapped, so that a corpus of any size opens quickly.

    prepared = open_prepared("prepared")
    prepared.train[0].pairs([0, 1, 2])        # [(source ids, target ids), ...]

A corpus is a sequence of shards, each a directory with NAME.source.npy (ids, 16 bits where the vocabulary allows),
NAME.source.begin.npy, the same for the target, and NAME.line.npy (the line number of each pair in its file).
manifest.json lists them with their hashes, and the fingerprint of a corpus is a hash of those.
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

from heedful.data.plan import BLOCK_ROWS, TokenizedCorpus, count_micro_batches
from heedful.errors import DataError
from heedful.files import file_sha256
from heedful.text.tokenizer import Tokenizer, load

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
SIDES = ("source", "target")
ARRAYS = ("source", "source.begin", "target", "target.begin", "line")  # of every corpus in every directory
MAX_MAPPED_ARRAYS = 64  # each keeps a file open, and a process may open a few hundred

Array = NDArray[Any]


def row_lengths(rows: Sequence[Sequence[int]]) -> Array:
    return np.fromiter(map(len, rows), np.int64, len(rows))


def write_tokens(folder: Path, name: str, rows: Sequence[Sequence[int]], vocab_size: int) -> int:
    """Write rows of ids as `name`.npy and `name`.begin.npy; return the number of ids."""
    begins = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(row_lengths(rows), out=begins[1:])
    ids = np.fromiter(chain.from_iterable(rows), np.uint16 if vocab_size <= 1 << 16 else np.uint32, int(begins[-1]))
    np.save(folder / f"{name}.npy", ids)
    np.save(folder / f"{name}.begin.npy", begins)
    return int(begins[-1])


def write_rows(
    folder: Path, name: str, rows: Iterable[Array], num_features: int | None, number_type: type[np.generic]
) -> int:
    """Write rows [S, F] (or [S]) as `name`.npy, one at a time, and `name`.begin.npy; return the number of slots."""
    shape = () if num_features is None else (num_features,)
    lengths, dtype = [0], np.dtype(number_type).newbyteorder("<")
    with (folder / f"{name}.npy").open("wb") as stream:

        def write_header() -> None:  # NumPy leaves room for a longer first axis
            header = {
                "descr": np.lib.format.dtype_to_descr(dtype),
                "fortran_order": False,
                "shape": (sum(lengths), *shape),
            }
            np.lib.format.write_array_header_1_0(stream, header)

        write_header()
        for row in rows:
            stream.write(np.ascontiguousarray(row, dtype).tobytes())
            lengths.append(len(row))
        stream.seek(0)
        write_header()
    np.save(folder / f"{name}.begin.npy", np.cumsum(lengths, dtype=np.int64))
    return sum(lengths)


class MappedArrays:
    """Memory-mapped .npy files; the most recently used stay open."""

    def __init__(self) -> None:
        self._open = lru_cache(MAX_MAPPED_ARRAYS)(_map_array)

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Pickle without the open files."""
        return MappedArrays, ()

    def open(self, path: Path) -> Array:
        """Map a file; map it again if its mtime changed."""
        return self._open(path, path.stat().st_mtime_ns)


def _map_array(path: Path, mtime_ns: int) -> Array:  # noqa: ARG001  # part of the cache's key
    array: Array = np.load(path, mmap_mode="r")
    return array


def count_micro_batches_per_block(corpus: TokenizedCorpus, epoch: int, max_tokens: int) -> Array:
    blocks = range(-(-corpus.num_rows // BLOCK_ROWS))
    counts = [
        count_micro_batches(*corpus.block_lengths(epoch, block), max_tokens, first_row=block * BLOCK_ROWS)
        for block in blocks
    ]
    return np.array(counts, np.int64)


def load_or_compute(path: Path | None, compute: Callable[[], Array]) -> Array:
    """Load an array from a file; if it does not exist, compute the array and write it."""
    if path is not None and path.is_file():
        array: Array = np.load(path)
        return array
    result = compute()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".tmp-{path.name}-{os.getpid()}")  # another rank may write it too
        with part.open("wb") as stream:
            np.save(stream, result)
        part.replace(path)
    return result


@dataclass(frozen=True)
class StoredCorpus:
    """The tokens of one corpus; `plan.Plan` makes batches from it."""

    name: str
    folders: tuple[Path, ...]
    folder_rows: tuple[int, ...]  # rows in each directory
    fingerprint: str
    plan_dir: Path | None = None  # cache of micro-batch counts
    arrays: MappedArrays = field(default_factory=MappedArrays, repr=False, compare=False)
    has_fixed_lengths: bool = field(default=True, init=False)

    @cached_property
    def folder_starts(self) -> NDArray[np.int64]:
        """The first row of each directory, and one past the last."""
        return np.concatenate([[0], np.cumsum(self.folder_rows, dtype=np.int64)])

    @property
    def num_rows(self) -> int:
        return int(self.folder_starts[-1])

    def array(self, folder: int, name: str) -> Array:
        """One array of one directory: "source", "source.begin", ..., "line"."""
        return self.arrays.open(self.folders[folder] / f"{self.name}.{name}.npy")

    def folder_spans(self, begin: int, end: int) -> Iterable[tuple[int, int, int]]:
        """(directory, begin and end within it) of the rows [begin, end)."""
        folder = int(np.searchsorted(self.folder_starts, begin, side="right")) - 1
        while begin < end:
            until = min(end, int(self.folder_starts[folder + 1]))
            if until > begin:
                yield folder, begin - int(self.folder_starts[folder]), until - int(self.folder_starts[folder])
            begin, folder = until, folder + 1

    def block_lengths(self, epoch: int, block: int) -> tuple[Array, Array]:  # noqa: ARG002  # the same in every epoch
        """Source and target lengths of a block, including end tokens."""
        spans = list(self.folder_spans(block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, self.num_rows)))
        sides = [
            np.concatenate([np.diff(self.array(folder, f"{side}.begin")[a : b + 1]) for folder, a, b in spans]) + 1
            for side in SIDES
        ]
        return sides[0], sides[1]

    def micro_batches_per_block(self, epoch: int, max_tokens: int) -> Array:
        """The number of micro-batches in each block, cached in a file."""
        path = self.plan_dir and self.plan_dir / f"{self.fingerprint[:16]}-{max_tokens}.npy"
        return load_or_compute(path, lambda: count_micro_batches_per_block(self, epoch, max_tokens))

    def group_by_folder(self, rows: Sequence[int]) -> list[tuple[int, list[tuple[int, int]]]]:
        """Directory, (position in `rows`, row within the directory), so that each directory is opened once."""
        numbers = np.asarray(rows, np.int64)
        folders = np.searchsorted(self.folder_starts, numbers, side="right") - 1
        inside = (numbers - self.folder_starts[folders]).tolist()
        groups: dict[int, list[tuple[int, int]]] = {}
        for position, folder in enumerate(folders.tolist()):
            groups.setdefault(folder, []).append((position, inside[position]))
        return sorted(groups.items())

    def pairs(self, rows: Sequence[int]) -> list[tuple[Array, Array]]:
        """Source and target ids of rows."""
        sides: dict[str, list[Array]] = {side: [np.empty(0)] * len(rows) for side in SIDES}
        for folder, group in self.group_by_folder(rows):
            for side, ids_of_rows in sides.items():
                ids, begins = self.array(folder, side), self.array(folder, f"{side}.begin")
                for position, row in group:
                    ids_of_rows[position] = np.array(ids[begins[row] : begins[row + 1]])
        return list(zip(*sides.values(), strict=True))

    def line_numbers(self, rows: Sequence[int]) -> list[int]:
        """The line numbers of rows in their file, from 1."""
        result = [0] * len(rows)
        for folder, group in self.group_by_folder(rows):
            lines = self.array(folder, "line")
            for position, row in group:
                result[position] = int(lines[row])
        return result

    def without_last(self, count: int) -> "StoredCorpus":
        """The same corpus without its last rows."""
        folder_rows, left = [], self.num_rows - count
        for size in self.folder_rows:
            folder_rows.append(min(size, left))
            left -= folder_rows[-1]
        return replace(self, folder_rows=tuple(folder_rows), fingerprint=f"{count:x}-{self.fingerprint}")

    def texts(self, side: str, folder: int) -> list[str]:
        """The text of one directory's rows, from text/ next to tokens/."""
        path = self.text_folder(folder) / f"{self.name}.{side}"
        return path.read_text("utf-8").split("\n")[:-1]

    def text_folder(self, folder: int) -> Path:
        path = self.folders[folder]
        return path.parents[1] / "text" / path.name

    def texts_of_rows(self, side: str, rows: Sequence[int]) -> list[str]:
        """The text of rows; pairs that were dropped after the text was written are skipped."""
        texts = [""] * len(rows)
        for folder, group in self.group_by_folder(rows):
            all_lines = np.load(self.text_folder(folder) / f"{self.name}.line.npy").tolist()
            text_of_line = dict(zip(all_lines, self.texts(side, folder), strict=True))
            lines = self.array(folder, "line")
            for position, row in group:
                texts[position] = text_of_line[int(lines[row])]
        return texts


@dataclass(frozen=True)
class PreparedData:
    """A prepared directory: corpora, tokenizers and the manifest."""

    folder: Path
    manifest: dict[str, Any]
    arrays: MappedArrays = field(default_factory=MappedArrays, repr=False, compare=False)  # shared by its corpora

    def split(self, name: str) -> tuple[StoredCorpus, ...]:
        """The corpora of "train", "validation" or "test"."""
        return tuple(
            StoredCorpus(
                corpus["name"],
                tuple(self.folder / part["folder"] for part in corpus["parts"]),
                tuple(part["rows"] for part in corpus["parts"]),
                corpus["fingerprint"],
                self.folder / "plan",
                self.arrays,
            )
            for corpus in self.manifest["corpora"]
            if corpus["split"] == name
        )

    @property
    def train(self) -> tuple[StoredCorpus, ...]:
        return self.split("train")

    @property
    def fingerprint(self) -> str:
        """A hash of every token and of both vocabularies."""
        return str(self.manifest["fingerprint"])

    @property
    def corpus_weights(self) -> list[float] | None:
        """The sampling weight of each training corpus; None if the settings do not set it."""
        weights = [corpus["weight"] for corpus in self.manifest["corpora"] if corpus["split"] == "train"]
        return None if any(weight is None for weight in weights) else weights

    @property
    def vocab_sizes(self) -> dict[str, int]:
        """The size of the vocabulary of each side that is text."""
        return {side: entry["size"] for side, entry in self.manifest["tokenizers"].items()}

    def tokenizer(self, side: str) -> Tokenizer:
        """The tokenizer of "source" or "target"."""
        return load(self.folder / self.manifest["tokenizers"][side]["file"])

    @property
    def has_text_source(self) -> bool:
        return "source" in self.manifest["tokenizers"]


def open_prepared(folder: str | Path) -> PreparedData:
    """Open prepared data; raise a DataError if it is incomplete, has another format, or a file is missing."""
    folder = Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"{folder} has no {MANIFEST}: it is not completely prepared. To prepare it, rerun heedful prepare"
        ) from None
    except ValueError as error:
        raise DataError(f"{folder / MANIFEST} is damaged ({error}). To repair it, rerun heedful prepare") from None
    if manifest.get("format") != FORMAT_VERSION:
        raise DataError(
            f"{folder} has format {manifest.get('format')}, but this version of heedful reads format "
            f"{FORMAT_VERSION}: rerun heedful prepare"
        )
    for tokenizer in manifest["tokenizers"].values():
        path = folder / tokenizer["file"]
        if not path.is_file() or file_sha256(path) != tokenizer["sha256"]:
            raise DataError(f"{path} is missing or has changed. To repair it, rerun heedful prepare")
    for corpus in manifest["corpora"]:
        for part in corpus["parts"]:
            for name, size in part["files"].items():
                path = folder / part["folder"] / name
                if not path.is_file() or path.stat().st_size != size:
                    raise DataError(f"{path} is missing or truncated. To repair it, rerun heedful prepare")
    return PreparedData(folder, manifest)

"""Shards: the units of work of corpus preparation. Each is made once, by any process, and appears atomically.

A stage is a deterministic top-level function `work(shard, folder, **settings) -> counts`. It writes files into
`folder`, which becomes the shard with a single rename:

    .tmp-00017-<random>/   written by work, synced      --- one rename --->      00017/
                           + shard.json, the record                              00017/shard.json

A record contains hashes of the inputs (`inputs`), of the code and its settings (`code`) and of the written files
(`output`). A shard whose record still matches is not made again. A shard does not depend on the launcher, the number of
workers or the time: the same corpus gives the same bytes on every machine.
"""

import errno
import json
import os
import pickle
import platform
import secrets
import shutil
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PurePath
from typing import Any

from heedful.errors import HeedfulError
from heedful.files import file_sha256, sync_path

RECORD_FILE = "shard.json"
TEMPORARY_PREFIX = ".tmp-"
SAMPLED_BYTES = 1 << 16  # at each end of a plain file, hashed to identify it

StageFunction = Callable[..., Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Shard:
    """One unit of work: a name unique in its stage, its inputs (shards or plain files) and its directory."""

    name: str
    inputs: tuple[Path, ...]
    output: Path


@dataclass(frozen=True, slots=True)
class CodeVersions:
    """What a shard depends on besides inputs and settings: the versions of the stage and of packages."""

    stage: int
    packages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """The record of a finished shard: three hashes, the size of each file, and the counts that the stage returned."""

    name: str
    inputs: str
    code: str
    output: str
    files: Mapping[str, int]
    counts: Mapping[str, int]


def read_record(folder: Path) -> ShardRecord | None:
    """The record of a finished shard; None if it is missing or unreadable."""
    try:
        return ShardRecord(**json.loads((folder / RECORD_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def hash_values(values: Iterable[object]) -> str:
    """sha256 of the values as JSON, which distinguishes ("ab", "c") from ("a", "bc")."""

    def to_json(value: object) -> str:
        if isinstance(value, PurePath):
            return str(value)
        raise TypeError(f"{value!r} is a {type(value).__name__}; settings may hold JSON values and paths only")

    text = json.dumps(list(values), sort_keys=True, allow_nan=False, default=to_json)
    return sha256(text.encode()).hexdigest()


def hash_inputs(shard: Shard) -> str:
    """Hash of a shard's inputs: `output` of finished shards; name, size, mtime, head and tail of plain files."""
    return hash_values(_input_identity(shard, path) for path in shard.inputs)


def _input_identity(shard: Shard, path: Path) -> list[object]:
    if path.is_dir():
        if record := read_record(path):
            return [record.output]
        raise HeedfulError(
            f"shard {shard.name}: its input {path} is not a finished shard (no {RECORD_FILE}). Prepare it first."
        )
    try:
        status = path.stat()
    except FileNotFoundError:
        raise HeedfulError(
            f"shard {shard.name}: there is no {path} on {platform.node()}. Was it moved? In a cluster, all nodes need "
            "the same files under the same paths, on a shared disk."
        ) from None
    with path.open("rb") as file:
        head = file.read(SAMPLED_BYTES)
        file.seek(-min(SAMPLED_BYTES, status.st_size), os.SEEK_END)
        return [path.name, status.st_size, status.st_mtime_ns, sha256(head + file.read()).hexdigest()]


def hash_code(work: StageFunction, settings: Mapping[str, Any], versions: CodeVersions) -> str:
    """Hash of a stage's name, settings and versions; if it changes, shards are made again."""
    packages = [_package_version(name) for name in versions.packages]
    return hash_values([settings, work.__qualname__, versions.stage, packages])


def _package_version(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def up_to_date(shard: Shard, code: str, inputs: Callable[[Shard], str] = hash_inputs) -> ShardRecord | None:
    """The record of a shard with these inputs and this code whose files all have their full size; None otherwise.

    Contents are not read again: changed bytes in a file of the same size are not detected.
    """
    record = read_record(shard.output)
    if record is None or (record.name, record.inputs, record.code) != (shard.name, inputs(shard), code):
        return None
    try:
        is_complete = all((shard.output / name).stat().st_size == size for name, size in record.files.items())
    except (OSError, AttributeError):
        return None
    return record if is_complete else None


@dataclass(frozen=True, slots=True)
class ShardTask:
    """Makes one shard. It only adds a directory, so two processes may safely make the same shard."""

    work: StageFunction
    settings: Mapping[str, Any]
    code: str
    versions: CodeVersions

    def __call__(self, shard: Shard) -> ShardRecord:
        """Make the shard unless it is up to date; return its record. Errors name the shard and can be pickled."""
        try:
            return up_to_date(shard, self.code) or self._make(shard)
        except HeedfulError:
            raise
        except OSError as error:
            cure = "Free some space" if error.errno == errno.ENOSPC else "Fix the cause"
            raise HeedfulError(
                f"shard {shard.name}: {error.strerror or error} ({error.filename or shard.output}). "
                f"{cure} and run the command again; finished shards are kept."
            ) from error
        except Exception as error:
            error.add_note(f"in shard {shard.name}, made by {self.work.__module__}.{self.work.__qualname__}")
            if not _can_be_pickled(error):
                raise HeedfulError("".join(traceback.format_exception(error))) from error
            raise

    def _make(self, shard: Shard) -> ShardRecord:
        inputs = hash_inputs(shard)
        folder = shard.output.with_name(f"{TEMPORARY_PREFIX}{shard.name}-{secrets.token_hex(8)}")
        folder.mkdir(parents=True)
        try:
            counts = dict(self.work(shard, folder, **self.settings))
            digests, files = _sync_files(folder)
            record = ShardRecord(shard.name, inputs, self.code, hash_values(digests), files, counts)
            with (folder / RECORD_FILE).open("x", encoding="utf-8", newline="\n") as file:
                json.dump(asdict(record), file, sort_keys=True, indent=1)
                file.flush()
                os.fsync(file.fileno())
            sync_path(folder)
            try:
                folder.rename(shard.output)
            except OSError:
                # Another process was first (for example, on a node believed dead): use its shard if it is the same.
                if record_of_other := up_to_date(shard, self.code):
                    return record_of_other
                raise
            sync_path(shard.output.parent)
            return record
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _can_be_pickled(error: Exception) -> bool:
    """Whether an error survives pickling; otherwise it would look like a killed worker."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        return False


def _sync_files(folder: Path) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """fsync every file; return (name, sha256) and name -> size of each, sorted by name."""
    digests, files = [], {}
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        if path.is_dir():
            sync_path(path)
            continue
        name = path.relative_to(folder).as_posix()
        digests.append((name, file_sha256(path)))
        files[name] = path.stat().st_size
        sync_path(path)
    return digests, files

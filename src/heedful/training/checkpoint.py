"""Checkpoints that survive anything: immutable folders, hashed, appearing whole or not at all.

    run/step-00001000/   model.safetensors  optimizer.safetensors  [ema.safetensors]  state.json  MANIFEST.json
    run/LATEST           the name of the newest, replaced atomically

Everything is written beside, synced to the disk, and the manifest with every file's size and SHA-256 last; then the
folder is renamed. Whoever loads verifies every hash, and falls back to the one before where something is wrong. Nothing
is ever unpickled.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from heedful.errors import HeedfulError
from heedful.files import file_sha256, replace_text, sync_path, write_synced

FORMAT = 1
MANIFEST, STATE, LATEST = "MANIFEST.json", "state.json", "LATEST"
Tensors = Mapping[str, Mapping[str, Tensor]]  # file name without suffix -> name -> tensor


class Damaged(HeedfulError):
    """A checkpoint that is not what was written."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified checkpoint."""

    folder: Path
    state: dict[str, Any]

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of one file."""
        path = self.folder / f"{name}.safetensors"
        try:
            return load_file(path)
        except (OSError, RuntimeError, SafetensorError) as error:
            raise Damaged(f"{path} cannot be read: {error}") from None


def name_of(step: int, prefix: str = "step") -> str:
    """step-00001000"""
    return f"{prefix}-{step:08}"


def save(run: Path, step: int, tensors: Tensors, state: Mapping[str, Any], *, prefix: str = "step") -> Path:
    """Write one checkpoint, or nothing. An OSError (a full disk) leaves everything as it was."""
    part = begin(run, step, prefix)
    try:
        write_tensors(part, tensors)
        return finish(run, step, state, prefix=prefix)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def begin(run: Path, step: int, prefix: str = "step") -> Path:
    """An empty folder to write into, which nobody takes for a checkpoint."""
    part = run / f".tmp-{name_of(step, prefix)}"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True, exist_ok=True)
    return part


def write_tensors(part: Path, tensors: Tensors) -> None:
    """One safetensors file per entry."""
    for name, some in tensors.items():
        try:
            save_file({key: value.detach().contiguous() for key, value in some.items()}, part / f"{name}.safetensors")
        except SafetensorError as error:  # its own wrapping of what the system said
            raise OSError(str(error)) from None


def finish(run: Path, step: int, state: Mapping[str, Any], *, prefix: str = "step") -> Path:
    """State and manifest, everything to the disk, then the rename that makes it a checkpoint."""
    part, whole = run / f".tmp-{name_of(step, prefix)}", run / name_of(step, prefix)
    write_synced(part / STATE, json.dumps(state, indent=1))
    files = {}
    for path in files_in(part):
        sync_path(path)
        files[path.name] = {"size": path.stat().st_size, "sha256": file_sha256(path)}
    manifest = as_text({"format": FORMAT, "step": step, "files": files})
    if whole.exists():  # a resumed run comes by again
        if intact(whole, manifest):
            shutil.rmtree(part)
            return whole
        retire(whole)
    write_synced(part / MANIFEST, manifest)
    sync_path(part)
    part.rename(whole)
    sync_path(run)
    if prefix == "step":
        replace_text(run / LATEST, whole.name + "\n")
    return whole


def as_text(manifest: Mapping[str, Any]) -> str:
    """The one way a manifest is written: any other byte in it is damage."""
    return json.dumps(manifest, indent=1)


def intact(folder: Path, manifest: str) -> bool:
    """Whether a folder holds exactly this."""
    try:
        verify(folder)
    except Damaged:
        return False
    return (folder / MANIFEST).read_bytes() == manifest.encode()


def verify(folder: Path) -> Checkpoint:
    """Every file is there, as long as it was and with the hash it had; says what is not."""
    try:
        written = (folder / MANIFEST).read_bytes()
        manifest = json.loads(written)
        if as_text(manifest).encode() != written:
            raise Damaged(f"{folder / MANIFEST} has changed since it was written")
        if manifest["format"] != FORMAT:
            raise Damaged(f"{folder} has format {manifest['format']}, this heedful reads {FORMAT}")
        listed = manifest["files"]
        if STATE not in listed or {path.name for path in files_in(folder)} != {*listed, MANIFEST}:
            raise Damaged(f"{folder} does not hold the files that its manifest lists")
        for name, facts in listed.items():
            with (folder / name).open("rb") as stream:
                if os.fstat(stream.fileno()).st_size != facts["size"]:
                    raise Damaged(f"{folder / name} is not as long as it was")
                if file_digest(stream, "sha256").hexdigest() != facts["sha256"]:
                    raise Damaged(f"{folder / name} has changed since it was written")
        state = json.loads((folder / STATE).read_bytes())
        if manifest["step"] != state["step"] or not folder.name.endswith(f"-{manifest['step']:08}"):
            raise Damaged(f"{folder} is not the step that its name says")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{folder} cannot be read: {error}") from None
    return Checkpoint(folder, state)


def state_of(folder: Path) -> dict[str, Any]:
    """The state of a checkpoint, unverified; nothing, where it cannot be read."""
    try:
        state: dict[str, Any] = json.loads((folder / STATE).read_bytes())
    except (OSError, ValueError):
        return {}
    return state


def newest(run: Path, say: Callable[[str], None] = lambda _text: None, *, regular: bool = False) -> Checkpoint | None:
    """The newest checkpoint that verifies, or the newest regular one; says aloud which ones it had to pass over."""
    for folder in steps_in(run):
        try:
            found = verify(folder)
        except Damaged as error:
            say(f"{error}; taking the checkpoint before it")
            continue
        if not regular or found.state["regular"]:
            return found
    return None


def set_aside(folder: Path) -> None:
    """Keep a damaged checkpoint for whoever wants to look at it, under a name that nobody takes for a checkpoint's."""
    aside = folder.with_name(f"damaged-{folder.name}")
    if aside.exists():
        retire(aside)
    folder.rename(aside)


def steps_in(run: Path, prefix: str = "step") -> list[Path]:
    """The folders of checkpoints, newest first, verified or not; a folder that cannot be read is not an empty one."""
    try:
        return sorted((path for path in run.iterdir() if re.fullmatch(rf"{prefix}-\d+", path.name)), reverse=True)
    except FileNotFoundError:
        return []


def files_in(folder: Path) -> list[Path]:
    """What is in a checkpoint, but for what file browsers leave behind."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def prune(run: Path, keep: int, prefix: str = "step", also: frozenset[str] = frozenset()) -> None:
    """Remove all but the newest `keep` and those named; right after a save, when the newest is known to be whole."""
    for old in steps_in(run, prefix)[keep:]:
        if old.name not in also:
            retire(old)


def retire(folder: Path) -> None:
    """Remove a folder so that half of it is never taken for the whole."""
    gone = folder.with_name(f".tmp-gone-{folder.name}")
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def sweep(run: Path) -> None:
    """Remove what an interrupted save left behind."""
    for left in run.glob(".tmp-*"):
        shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)


def records(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a JSON Lines file; the last may be half written."""
    if path.is_file():
        for line in path.read_bytes().split(b"\n")[:-1]:
            try:
                yield json.loads(line)
            except ValueError:
                continue

"""Checkpoints: immutable directories with hashes, written atomically.

    run/step-00001000/   model.safetensors  optimizer.safetensors  [ema.safetensors]  state.json  MANIFEST.json
    run/LATEST           the name of the newest, replaced atomically

All files are written to a temporary directory and synced to disk; the manifest, with the size and SHA-256 of every
file, is written last. Then the directory is renamed. Loading verifies every hash and falls back to the previous
checkpoint if one does not match. Nothing is unpickled.
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

from heedful.errors import ConfigError, HeedfulError
from heedful.files import file_sha256, replace_text, sync_path, write_synced

FORMAT = 2
MANIFEST, STATE, LATEST = "MANIFEST.json", "state.json", "LATEST"
Tensors = Mapping[str, Mapping[str, Tensor]]  # file name without suffix -> name -> tensor


class DamagedCheckpoint(HeedfulError):
    """A file of a checkpoint is missing or has changed."""


class OldCheckpoint(HeedfulError):
    """A checkpoint in an older format."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder} was written by an older heedful; finish the run with that version, or start a new "
            "run in another directory (--out)"
        )


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose files were verified."""

    folder: Path
    state: dict[str, Any]

    def tensors(self, name: str) -> dict[str, Tensor]:
        path = self.folder / f"{name}.safetensors"
        try:
            return load_file(path)
        except (OSError, RuntimeError, SafetensorError) as error:
            raise DamagedCheckpoint(f"{path} cannot be read: {error}") from None


def checkpoint_name(step: int, prefix: str = "step") -> str:
    """step-00001000"""
    return f"{prefix}-{step:08}"


def save(run: Path, step: int, tensors: Tensors, state: Mapping[str, Any], *, prefix: str = "step") -> Path:
    """Write one checkpoint atomically. After an OSError (such as a full disk) nothing has changed."""
    unfinished = start_writing(run, step, prefix)
    try:
        write_tensors(unfinished, tensors)
        return finish_writing(run, step, state, prefix=prefix)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def unfinished_folder(run: Path, step: int, prefix: str = "step") -> Path:
    """The directory of an incomplete checkpoint; its name never matches that of a complete one."""
    return run / f".tmp-{checkpoint_name(step, prefix)}"


def start_writing(run: Path, step: int, prefix: str = "step") -> Path:
    """Create an empty directory for the files of a checkpoint."""
    unfinished = unfinished_folder(run, step, prefix)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True, exist_ok=True)
    return unfinished


def write_tensors(folder: Path, tensors: Tensors) -> None:
    for name, by_key in tensors.items():
        contiguous = {key: tensor.detach().contiguous() for key, tensor in by_key.items()}
        try:
            save_file(contiguous, folder / f"{name}.safetensors")
        except SafetensorError as error:  # wraps the OSError
            raise OSError(str(error)) from None


def finish_writing(run: Path, step: int, state: Mapping[str, Any], *, prefix: str = "step") -> Path:
    """Write state and manifest, sync everything to disk, then rename the directory to its final name."""
    unfinished, folder = unfinished_folder(run, step, prefix), run / checkpoint_name(step, prefix)
    write_synced(unfinished / STATE, json.dumps(state, indent=1))
    files = {}
    for path in list_files(unfinished):
        sync_path(path)
        files[path.name] = {"size": path.stat().st_size, "sha256": file_sha256(path)}
    manifest = manifest_text({"format": FORMAT, "step": step, "files": files})
    if folder.exists():  # a resumed run repeats this step
        if holds_exactly(folder, manifest):
            shutil.rmtree(unfinished)
            return folder
        delete_folder(folder)
    write_synced(unfinished / MANIFEST, manifest)
    sync_path(unfinished)
    unfinished.rename(folder)
    sync_path(run)
    if prefix == "step":
        replace_text(run / LATEST, folder.name + "\n")
    return folder


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """The only valid form of a manifest; any other byte counts as damage."""
    return json.dumps(manifest, indent=1)


def holds_exactly(folder: Path, manifest: str) -> bool:
    """Whether a directory is a valid checkpoint with this manifest."""
    try:
        verify(folder)
    except DamagedCheckpoint:
        return False
    return (folder / MANIFEST).read_bytes() == manifest.encode()


def verify(folder: Path) -> Checkpoint:
    """Check name, size and hash of every file; raise a DamagedCheckpoint with the reason."""
    try:
        written = (folder / MANIFEST).read_bytes()
        manifest = json.loads(written)
        if manifest_text(manifest).encode() != written:
            raise DamagedCheckpoint(f"{folder / MANIFEST} has changed since it was written")
        if manifest["format"] == 1:
            raise OldCheckpoint(folder)
        if manifest["format"] != FORMAT:
            raise DamagedCheckpoint(
                f"{folder} has format {manifest['format']}, but this version of heedful reads format {FORMAT} "
                "(to use this checkpoint, install the version that wrote it)"
            )
        listed = manifest["files"]
        if STATE not in listed or {path.name for path in list_files(folder)} != {*listed, MANIFEST}:
            raise DamagedCheckpoint(f"{folder} does not contain the files listed in its manifest")
        for name, expected in listed.items():
            with (folder / name).open("rb") as stream:
                if os.fstat(stream.fileno()).st_size != expected["size"]:
                    raise DamagedCheckpoint(f"{folder / name} has a different size than when it was written")
                if file_digest(stream, "sha256").hexdigest() != expected["sha256"]:
                    raise DamagedCheckpoint(f"{folder / name} has changed since it was written")
        state = json.loads((folder / STATE).read_bytes())
        if manifest["step"] != state["step"] or not folder.name.endswith(f"-{manifest['step']:08}"):
            raise DamagedCheckpoint(f"{folder} contains a different step than its name states")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedCheckpoint(f"{folder} cannot be read: {error}") from None
    return Checkpoint(folder, state)


def read_state(folder: Path) -> dict[str, Any]:
    """The state of a checkpoint, not verified; empty if unreadable."""
    try:
        state: dict[str, Any] = json.loads((folder / STATE).read_bytes())
    except (OSError, ValueError):
        return {}
    return state


def refuse_old_format(run: Path) -> None:
    """Raise an OldCheckpoint if this run has a checkpoint in an older format."""
    for folder in checkpoint_folders(run):
        try:
            manifest = json.loads((folder / MANIFEST).read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(manifest, dict) and manifest.get("format") == 1:
            raise OldCheckpoint(folder)


def find_newest(
    run: Path, warn: Callable[[str], None] = lambda _text: None, *, regular: bool = False
) -> Checkpoint | None:
    """The newest valid checkpoint (or the newest regular one); warns about damaged ones."""
    for folder in checkpoint_folders(run):
        try:
            checkpoint = verify(folder)
        except DamagedCheckpoint as error:
            warn(f"{error}; falling back to the previous checkpoint")
            continue
        if not regular or checkpoint.state["regular"]:
            return checkpoint
    return None


def set_aside(folder: Path) -> None:
    """Rename a damaged checkpoint: it is no longer used, but can be examined."""
    aside = folder.with_name(f"damaged-{folder.name}")
    if aside.exists():
        delete_folder(aside)
    folder.rename(aside)


def checkpoint_folders(run: Path, prefix: str = "step") -> list[Path]:
    """Checkpoint directories, newest first, valid or not; raises an error if `run` cannot be read."""
    try:
        return sorted((path for path in run.iterdir() if re.fullmatch(rf"{prefix}-\d+", path.name)), reverse=True)
    except FileNotFoundError:
        return []


def check_has_steps(run: Path) -> None:
    """Raise a ConfigError unless a run has a checkpoint after its first step."""
    if not any(read_state(folder).get("step") for folder in checkpoint_folders(run)):
        raise ConfigError(f"{run} has no checkpoint to make a model from: train first, without --finish")


def list_files(folder: Path) -> list[Path]:
    """The files of a checkpoint, without hidden files that file browsers create."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def prune(run: Path, num_keep: int, prefix: str = "step", also_keep: frozenset[str] = frozenset()) -> None:
    """Delete all checkpoints except the newest `num_keep` and `also_keep`; call it after a successful save."""
    for old in checkpoint_folders(run, prefix)[num_keep:]:
        if old.name not in also_keep:
            delete_folder(old)


def delete_folder(folder: Path) -> None:
    """Rename, then delete a directory: a partly deleted one never looks like a checkpoint."""
    renamed = folder.with_name(f".tmp-gone-{folder.name}")
    shutil.rmtree(renamed, ignore_errors=True)
    folder.rename(renamed)
    shutil.rmtree(renamed, ignore_errors=True)


def remove_unfinished(run: Path) -> None:
    """Remove the leftovers of an interrupted save."""
    for path in run.glob(".tmp-*"):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The complete lines of a JSON Lines file; the last line may be partly written."""
    if path.is_file():
        for line in path.read_bytes().split(b"\n")[:-1]:
            try:
                yield json.loads(line)
            except ValueError:
                continue

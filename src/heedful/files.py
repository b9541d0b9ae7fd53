"""Durable files: atomic replacement, fsync, digests and locks, on Linux, macOS and Windows."""

import os
import sys
import time
from collections.abc import Callable
from hashlib import file_digest
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from heedful.errors import HeedfulError


def sync_path(path: Path) -> None:
    """Flush a file, or the entries of a directory, to the disk."""
    if (
        os.name == "nt" and path.is_dir()
    ):  # pragma: no cover  # Windows cannot open directories; it journals their entries
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)  # Windows syncs only writable files
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def user_cache_dir() -> Path:
    """The directory for files of this user that heedful can create again; it may not exist yet."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "heedful"


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def write_synced(path: Path, text: str) -> None:
    """Write a text file and flush it to the disk."""
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def replace_file(path: Path, write: Callable[[Path], Any], *, durable: bool = True) -> None:
    """Replace a file atomically: `write` writes a temporary file, which is renamed.

    If `durable`, the file and its directory entry are flushed to the disk: a power cut leaves the old or the new file.
    """
    part = path.with_name(f".tmp-{path.name}")
    write(part)
    if durable:
        sync_path(part)
    part.replace(path)
    if durable:
        sync_path(path.parent)


def replace_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a text file atomically."""
    replace_file(path, lambda part: part.write_text(text, encoding="utf-8", newline="\n"), durable=durable)


def update_text(path: Path, text: str) -> None:
    """Replace a text file atomically unless it already has this text."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        replace_text(path, text)


def lock_file(stream: TextIO, folder: Path, command: str, wait_seconds: float = 0.0) -> None:
    """Lock an open file until it is closed; raise HeedfulError if another `command` keeps running in `folder`.

    Other machines see the lock only if the file system shares it.
    """
    deadline = time.monotonic() + wait_seconds
    while not try_lock(stream):
        if time.monotonic() >= deadline:
            raise HeedfulError(f"another {command} is running in {folder}; wait for it, or stop it")
        time.sleep(0.1)


def try_lock(stream: TextIO) -> bool:
    """Whether the file could be locked; True if the file system has no locks."""
    try:
        if os.name == "nt":  # pragma: no cover  # Windows
            msvcrt = import_module("msvcrt")
            stream.seek(0)
            msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl = import_module("fcntl")
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # pragma: no cover  # a file system without locks
        pass
    return True

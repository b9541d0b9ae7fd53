"""Files with pictures, recordings and graphs: they are untrusted, and read with limits."""

from pathlib import Path
from stat import S_ISDIR, S_ISREG

from heedful.errors import DataError

MAX_FILE_BYTES = 1 << 25
MISSING = "there is no such file"  # the reason of a MediaError begins with it


class MediaError(DataError):
    """A picture, recording or graph that cannot be used; `reason` says why, without the name of the file."""

    def __init__(self, reason: str, name: str = "the file") -> None:
        super().__init__(reason, name)
        self.reason, self.name = reason, name

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def read_content(path: str | Path) -> bytes:
    """The content of a file; a pipe, a device or a file that is too large raises MediaError."""
    path = Path(path)
    try:
        mode = path.stat().st_mode
        if not S_ISREG(mode):  # reading a pipe or device might never end
            raise MediaError("a directory, not a file" if S_ISDIR(mode) else "not a regular file", str(path))
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        hint = "; separate directories by / instead of \\" if "\\" in str(path) else ""
        raise MediaError(MISSING + hint, str(path)) from None
    except (OSError, ValueError) as error:  # a ValueError: the path contains a NUL character
        reason = getattr(error, "strerror", None) or str(error)
        raise MediaError(f"cannot be read ({reason})", str(path)) from None
    check_size(content, str(path))
    return content


def check_size(content: bytes, name: str) -> None:
    """Raise MediaError if the content of a file is empty or too large."""
    if not content:
        raise MediaError("empty, 0 bytes", name)
    if len(content) > MAX_FILE_BYTES:
        raise MediaError(f"more than {MAX_FILE_BYTES:,} bytes", name)

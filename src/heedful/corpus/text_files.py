r"""Reads lines of text files: plain, .gz or .zst.

A line ends only at the byte \n. Python's text mode also splits at \r, and `splitlines` at ten more characters, which
would silently shift one side of a corpus against the other.
"""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any

from heedful.errors import ConfigError, DataError, did_you_mean, require

CHUNK_BYTES = 1 << 18  # read at a time
MAX_LINE_BYTES = 1 << 16  # longer lines are rejected
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SAVE_AS_TEXT = "save its text as plain UTF-8, one sentence per line"
BINARY_SIGNATURES = {  # first bytes of files that are not text, and what to do
    b"\x1f\x8b\x08": "compressed with gzip; rename it to end in .gz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; rename it to end in .zst",
    b"PK\x03\x04": f"a ZIP archive, like .docx and .xlsx files; unpack it, or {SAVE_AS_TEXT}",
    b"\xd0\xcf\x11\xe0": f"an office document; {SAVE_AS_TEXT}",
    b"%PDF-": f"a PDF; {SAVE_AS_TEXT}",
}

STRUCTURED_FORMATS = {  # suffix -> what it has besides text, and what to do with it
    **dict.fromkeys((".srt", ".vtt", ".sub", ".ass", ".ssa"), "times"),
    **dict.fromkeys((".po", ".pot", ".xliff", ".xlf", ".resx", ".strings", ".properties"), "keys and markup"),
    **dict.fromkeys((".html", ".htm", ".xhtml", ".xml", ".sgm", ".sgml", ".svg", ".tei"), "tags"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".toml", ".ini", ".ipynb"), "keys"),
    **dict.fromkeys((".md", ".rst", ".adoc", ".tex", ".rtf"), "markup"),
    **dict.fromkeys((".csv", ".tsv"), "columns"),
    **dict.fromkeys((".docx", ".odt", ".pptx", ".xlsx", ".doc", ".ppt", ".xls", ".epub", ".pdf"), "formatting"),
}


def suggest_path(path: Path) -> str:
    """What to append to "there is no file": a similar name in its directory, or that this does not exist."""
    if path.is_dir():
        return ", but a directory with that name: choose a file in it"
    if not path.parent.is_dir():
        return f", because there is no directory {path.parent}"
    suggestion = did_you_mean(path.name, [other.name for other in path.parent.glob("*")][:1000])
    return suggestion if "did you mean" in suggestion else ""


def strip_compression_suffix(path: Path) -> Path:
    """The path without .gz or .zst."""
    return path.with_suffix("") if path.suffix and path.suffix in COMPRESSIONS else path


def open_decompressed(path: Path) -> IO[bytes]:
    """Open a file for reading bytes, decompressed by its suffix."""
    stream: IO[bytes] = COMPRESSIONS[path.suffix if path.suffix in COMPRESSIONS else ""](path)
    return stream


def _open_zstandard(path: Path) -> Any:
    require("zstandard", extra="corpus", whose=f"reading {path.name}")
    return io.BufferedReader(ZstandardFile(path), CHUNK_BYTES)


class ZstandardFile(io.RawIOBase):
    """The bytes of a .zst, frame after frame; unlike zstandard's own reader, it detects a truncated file."""

    def __init__(self, path: Path) -> None:
        import zstandard

        self._decompressor = zstandard.ZstdDecompressor
        self._file, self._ready = path.open("rb"), b""
        self._frame: Any = None

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        """Decompress one kilobyte of input at a time, which may expand to megabytes."""
        packed = b""
        while not self._ready:
            packed = packed or self._file.read(1024)
            if not packed and self._frame is None:
                return 0
            if not packed:
                raise EOFError("a compressed frame has no end")
            self._frame = self._frame or self._decompressor().decompressobj()
            self._ready, packed = self._frame.decompress(packed), b""
            if self._frame.eof:
                packed, self._frame = self._frame.unused_data, None
        if packed:
            self._file.seek(-len(packed), io.SEEK_CUR)
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


COMPRESSIONS: dict[str, Callable[[Path], Any]] = {
    "": lambda path: path.open("rb"),
    ".gz": gzip.open,
    ".zst": _open_zstandard,
}


@contextmanager
def explain_read_errors(path: Path) -> Iterator[None]:
    """Turn errors of reading or decompressing a file into a DataError that names it."""
    try:
        yield
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path} cannot be read to its end ({error}); the file may be truncated, or its name may have "
            "the wrong ending"
        ) from None
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise DataError(f"{path} cannot be decompressed: {error}") from None


def iterate_lines(path: Path, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    r"""Every line of a file without its end (\n or \r\n), truncated to `max_line_bytes` + 1 bytes."""
    return chain.from_iterable(_lines_of_chunks(path, max_line_bytes))


def _lines_of_chunks(path: Path, max_line_bytes: int) -> Iterator[list[bytes]]:
    is_first, rest = True, b""
    with explain_read_errors(path), open_decompressed(path) as stream:
        while chunk := stream.read(CHUNK_BYTES):
            if is_first:
                chunk, is_first = _check_first_chunk(chunk, path), False
            chunk = rest + chunk
            lines = chunk.split(b"\n")
            rest = lines.pop()[: max_line_bytes + 2]  # enough of an incomplete line to detect that it is too long
            if b"\r" in chunk:
                lines = [line.removesuffix(b"\r") for line in lines]
            if max(map(len, lines), default=0) > max_line_bytes:
                lines = [line[: max_line_bytes + 1] for line in lines]
            yield lines
    if rest:
        yield [rest.removesuffix(b"\r")[: max_line_bytes + 1]]


def reject_binary(head: bytes, path: Path) -> None:
    """Raise a DataError if a file begins with the signature of a format that is not text."""
    for signature, description in BINARY_SIGNATURES.items():
        if head.startswith(signature):
            raise DataError(f"{path} is not text but {description}")


def reject_structured(path: Path) -> None:
    """Raise a ConfigError if the name of a file says that its lines are not plain text."""
    suffix = strip_compression_suffix(path).suffix.lower()
    if suffix == ".tmx":
        raise ConfigError(f"{path.name} is a translation memory; translate it with: --tmx {path} OUT")
    if suffix in STRUCTURED_FORMATS:
        raise ConfigError(
            f"{path.name} is not plain text: its {STRUCTURED_FORMATS[suffix]} would be translated as words. "
            "Extract the text to a file with one sentence per line; to translate every line as it is, add --as-text"
        )


def reject_zero_bytes(head: bytes, path: Path) -> None:
    """Raise a DataError if the first bytes of a file contain a zero, which no text in UTF-8 has."""
    if b"\0" in head:
        raise DataError(f"{path} is not text: it has zero bytes. If it is UTF-16 text, convert it to UTF-8")


def _check_first_chunk(chunk: bytes, path: Path) -> bytes:
    reject_binary(chunk, path)
    if chunk.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path} is UTF-16; convert it with: iconv -f UTF-16 -t UTF-8 {path} > {path}.utf8")
    if b"\n" not in chunk and chunk.count(b"\r") > 2:
        raise DataError(
            f"the lines of {path} end in \\r without \\n; convert it with: tr '\\r' '\\n' < {path} > {path}.lines"
        )
    return chunk.removeprefix(BYTE_ORDER_MARK)

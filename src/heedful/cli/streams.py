"""Lines in and out of the commands: text streams, formats of results, warnings and progress."""

import json
import os
import shlex
import sys
import time
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import typer

from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.text.normalize import decode_line, escape_invisible
from heedful.types import translation_to_dict

if TYPE_CHECKING:
    from heedful.types import Confidence, Translation

MAX_WINDOW_LINES = 2000  # sorted by length and translated together
FIRST_WINDOW_LINES = 32  # small, so that output starts soon; the next ones double
READ_BYTES = 1 << 18  # at most; a pipe returns what it has
CHECKED_BYTES = 4096  # at the beginning of a file, to recognize what is not text
PROGRESS_SECONDS = 10.0  # between two progress lines
MAX_SHOWN_WARNINGS = 20  # the rest is counted


def open_input(file: str, as_text: bool) -> BinaryIO:
    if file == "-":
        return sys.stdin.buffer
    path = Path(file)
    from heedful.corpus.text_files import reject_binary, reject_structured, reject_zero_bytes, suggest_path
    from heedful.corpus.tmx import ARCHIVE_SUFFIXES

    if path.is_dir():
        raise ConfigError(f"{file} is a directory: pass a file in it")
    if not path.is_file():
        pipe = f"; to translate a text, pipe it in: echo {shlex.quote(file)} | heedful translate MODEL"
        raise ConfigError(f"there is no file {file}{suggest_path(path) or pipe}")
    if path.suffix in ARCHIVE_SUFFIXES:
        raise ConfigError(f"{file} is compressed; decompress it with: zcat {file} | heedful translate MODEL")
    stream = path.open("rb")
    try:
        first_bytes = stream.peek(CHECKED_BYTES)
        if first_bytes[:2] in (BOM_UTF16_LE, BOM_UTF16_BE):
            raise DataError(
                f"{file} is UTF-16; convert it with: iconv -f UTF-16 -t UTF-8 {file} | heedful translate MODEL"
            )
        reject_binary(first_bytes, path)
        reject_zero_bytes(first_bytes, path)
        if not as_text:
            reject_structured(path)
    except HeedfulError:
        stream.close()
        raise
    return stream


def read_windows(stream: BinaryIO, reporter: "ProgressReporter") -> Iterator[list[str]]:
    """Windows of the lines available so far: single lines from a keyboard, many from a file."""
    partial_line: list[bytes] = []  # parts of a line whose end has not arrived
    number, max_lines = 0, FIRST_WINDOW_LINES
    while data := stream.read1(READ_BYTES):  # type: ignore[attr-defined]
        first, *others = data.split(b"\n")
        partial_line.append(first)
        if not others:
            continue
        lines = [b"".join(partial_line), *others[:-1]]
        partial_line = others[-1:]
        while lines:
            window, lines = lines[:max_lines], lines[max_lines:]
            yield [decode_input_line(line, number + offset, reporter) for offset, line in enumerate(window, 1)]
            number += len(window)
            max_lines = min(2 * max_lines, MAX_WINDOW_LINES)
    if last_line := b"".join(partial_line):
        yield [decode_input_line(last_line, number + 1, reporter)]


def decode_input_line(line: bytes, number: int, reporter: "ProgressReporter") -> str:
    """The text without the line end; warn if invalid UTF-8 is replaced."""
    text, is_valid = decode_line(line)
    if not is_valid:
        reporter.warn(f"line {number:,} is not UTF-8; invalid bytes are replaced")
    return text


def format_translation(
    number: int,
    translation: "Translation",
    nbest: int | None,
    as_json: bool,
    *,
    show_confidence: bool = False,
    show_probability: bool = False,
) -> str:
    """One line of output, or one per n-best translation; with confidence, a blank line stays blank.

    With `show_probability`, as for labels, the line ends with a tab and the probability of the output.
    """
    if as_json:
        return json.dumps(translation_to_dict(translation), ensure_ascii=False)
    if show_probability and nbest is None and translation.text:
        return f"{translation.text}\t{exp(translation.log_probability):.4f}"
    if nbest is None:
        shown = translation.confidence if show_confidence else None
        return text_with_links(translation) + (f" ||| {shown.label} {shown.probability:.2f}" if shown else "")
    return "\n".join(
        f"{number} ||| {text_with_links(candidate)} ||| F0= {candidate.log_probability:.6g} ||| {candidate.score:.6g}"
        for candidate in (translation, *translation.alternatives)
    )


def describe_confidence(confidence: "Confidence") -> str:
    """Such as: sure: chrF is above 50 with probability 0.97, and at least 56.6 in 9 of 10 such sentences."""
    return (
        f"{confidence.label}: chrF is above 50 with probability {confidence.probability:.2f}, and at least "
        f"{confidence.lower_bound:.0f} in 9 of 10 such sentences"
    )


def text_with_links(translation: "Translation") -> str:
    """The text, followed by its word links or attention weights, if any."""
    from heedful.alignment import format_pharaoh

    if translation.alignment is None:
        return translation.text
    if translation.weights is None:
        return f"{translation.text} ||| {format_pharaoh(translation.alignment)}"
    rows = " ".join(",".join(f"{weight:.4g}" for weight in row) for row in translation.weights)
    return f"{translation.text} ||| {rows}"


@contextmanager
def stop_at_closed_pipe() -> Iterator[None]:
    """End quietly if the reader of the output, such as `head`, closes the pipe."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_utf8() -> None:
    r"""Print UTF-8 and \n, independent of the locale."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")


def write_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class ProgressReporter:
    """Prints warnings and progress on standard error."""

    def __init__(self) -> None:
        self.warnings, self.lines = 0, 0
        self.start = self.last_report = time.monotonic()

    def warn(self, text: str) -> None:
        """Print the first MAX_SHOWN_WARNINGS warnings, and count the others."""
        self.warnings += 1
        if self.warnings <= MAX_SHOWN_WARNINGS:
            typer.echo(f"heedful: warning: {escape_invisible(text)}", err=True)

    def count_line(self, number: int, translation: "Translation") -> None:
        self.lines += 1
        for flag in translation.flags:
            self.warn(f"line {number + 1:,}: {flag.side} {flag.name}: {flag.detail}")

    def report_between(self, windows: Iterable[list[str]]) -> Iterator[list[str]]:
        """Yield the windows, and print progress between them every PROGRESS_SECONDS."""
        for window in windows:
            yield window
            if self.is_report_due():
                speed = self.lines / (self.last_report - self.start)
                typer.echo(f"heedful: {self.lines:,} lines, {speed:,.0f} per second", err=True)

    def report_segments(self, done: int, total: int) -> None:
        """Print how many segments of the next lines are translated: a line of a megabyte has thousands."""
        if done < total and self.is_report_due():
            typer.echo(f"heedful: {self.lines:,} lines; of the next lines, {done:,} of {total:,} segments", err=True)

    def is_report_due(self) -> bool:
        """Whether PROGRESS_SECONDS have passed since the last report; if so, the caller prints the next."""
        now = time.monotonic()
        is_due = now - self.last_report >= PROGRESS_SECONDS
        self.last_report = now if is_due else self.last_report
        return is_due

    def finish(self) -> None:
        if (more := self.warnings - MAX_SHOWN_WARNINGS) > 0:
            typer.echo(f"heedful: {more:,} more warnings; --json shows the flags of each line", err=True)

"""`heedful translate` for models of pictures: a line per picture."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli.streams import FIRST_WINDOW_LINES, ProgressReporter, open_input, write_line
from heedful.errors import DataError
from heedful.inputs.pictures import PictureError, read_picture

if TYPE_CHECKING:
    from heedful.translation.translator import TranslationOptions, Translator
    from heedful.types import Translation

LIST_SUFFIXES = (".txt", ".jsonl")  # of files that list pictures
PICTURE_KEYS = ("image", "source", "file_name")
FormatLine = Callable[[int, "Translation"], str]


def describe_pictures(
    translator: "Translator",
    files: list[str],
    options: "TranslationOptions",
    reporter: ProgressReporter,
    format_line: FormatLine,
) -> None:
    """Print a line per picture; one that cannot be read is reported on standard error, and its line is empty."""
    size, num_failed, number = translator.bundle.description.input, 0, 0
    for window in list_pictures(files):
        pictures = []
        for path in window:
            try:
                pictures.append(read_picture(path, size.height, size.width))  # type: ignore[union-attr]
            except PictureError as error:
                pictures.append(None)
                reporter.warn(str(error))
                num_failed += 1
        readable = [picture for picture in pictures if picture is not None]
        translations = translator.stream([readable], options, reporter.report_segments)  # type: ignore[list-item]
        for path, picture in zip(window, pictures, strict=True):
            if picture is None:
                write_line("")
            else:
                translation = replace(next(translations), source=path)
                reporter.count_line(number, translation)
                write_line(format_line(number, translation))
            number += 1
    reporter.finish()
    if num_failed:
        raise DataError(f"{num_failed:,} of {number:,} pictures could not be read")


def list_pictures(files: list[str]) -> Iterator[list[str]]:
    """Windows of paths: from the command line, or from a file with one path or JSON object per line."""
    if len(files) > 1 or (files[0] != "-" and Path(files[0]).suffix.lower() not in LIST_SUFFIXES):
        yield from windows_of(iter(files))
        return
    folder = Path() if files[0] == "-" else Path(files[0]).parent
    with open_input(files[0], as_text=True) as stream:
        lines = (line.decode("utf-8", "replace").strip() for line in stream)
        yield from windows_of(str(folder / parse_picture_line(line)) for line in lines if line)


def windows_of(paths: Iterator[str]) -> Iterator[list[str]]:
    while window := list(islice(paths, FIRST_WINDOW_LINES)):
        yield window


def parse_picture_line(line: str) -> str:
    """A path, or the path in a JSON object with one of the keys `image`, `source` and `file_name`."""
    if not line.startswith("{"):
        return line
    try:
        record = json.loads(line)
        return str(next(record[key] for key in PICTURE_KEYS if key in record))
    except (ValueError, StopIteration):
        raise DataError(f"{line[:80]}: expected a path, or a JSON object with the key `image`") from None

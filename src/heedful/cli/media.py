"""`heedful translate` for models of pictures, recordings and graphs: a line per file."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.cli.streams import FIRST_WINDOW_LINES, ProgressReporter, format_translation, open_input, write_line
from heedful.errors import DataError
from heedful.inputs.kinds import Nouns, make_input
from heedful.inputs.media import MediaError
from heedful.translation.sources import is_labeler

if TYPE_CHECKING:
    from heedful.translation.translator import TranslationOptions, Translator

LIST_SUFFIXES = (".txt", ".jsonl")  # of files that list others
PATH_KEYS = ("image", "audio", "graph", "source", "file_name")


def describe_media(
    translator: "Translator",
    files: list[str],
    options: "TranslationOptions",
    reporter: ProgressReporter,
    nbest: int | None,
    as_json: bool,
) -> None:
    """Print a line per file; one that cannot be read is reported, and its line is empty, or has an `error`."""
    inputs = make_input(translator.bundle.description.input)
    assert inputs.nouns is not None
    num_failed, number = 0, 0
    for window in list_files(files, inputs.nouns):
        decoded: list[Any] = []  # or why they cannot be
        for path in window:
            try:
                decoded.append(inputs.decode(path))
            except MediaError as error:
                decoded.append(error)
                reporter.warn(str(error))
                num_failed += 1
        readable = [source for source in decoded if not isinstance(source, MediaError)]
        translations = translator.stream([readable], options, reporter.report_segments)
        for path, source in zip(window, decoded, strict=True):
            if isinstance(source, MediaError):
                write_line(json.dumps({"source": path, "error": source.reason}, ensure_ascii=False) if as_json else "")
            else:
                translation = replace(next(translations), source=path)
                reporter.count_line(number, translation)
                write_line(
                    format_translation(
                        number, translation, nbest, as_json, show_probability=is_labeler(translator.bundle)
                    )
                )
            number += 1
    reporter.finish()
    if num_failed:
        raise DataError(f"{num_failed:,} of {number:,} {inputs.nouns.sources} could not be read")


def list_files(files: list[str], nouns: Nouns) -> Iterator[list[str]]:
    """Windows of paths: from the command line, or from a file with one path or JSON object per line."""
    if len(files) > 1 or (files[0] != "-" and Path(files[0]).suffix.lower() not in LIST_SUFFIXES):
        yield from windows_of(iter(files))
        return
    folder = Path() if files[0] == "-" else Path(files[0]).parent
    with open_input(files[0], as_text=True) as stream:
        lines = (line.decode("utf-8", "replace").removeprefix("\ufeff").strip() for line in stream)
        yield from windows_of(str(folder / parse_path_line(line, nouns)) for line in lines if line)


def windows_of(paths: Iterator[str]) -> Iterator[list[str]]:
    while window := list(islice(paths, FIRST_WINDOW_LINES)):
        yield window


def parse_path_line(line: str, nouns: Nouns) -> str:
    """A path, or the path in a JSON object with one of PATH_KEYS."""
    if not line.startswith("{"):
        return line
    try:
        record = json.loads(line)
        return str(next(record[key] for key in PATH_KEYS if key in record))
    except (ValueError, StopIteration):
        raise DataError(f"{line[:80]}: expected a path, or a JSON object with the key `{nouns.key}`") from None

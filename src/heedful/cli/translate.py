"""`heedful translate`: translate text line by line."""

import json
import os
import shlex
import sys
import time
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import typer

from heedful import __version__
from heedful.errors import ConfigError, DataError
from heedful.text.normalize import decode_line, escape_invisible
from heedful.types import translation_to_dict

if TYPE_CHECKING:
    from heedful.translation.translator import TranslationOptions, Translator
    from heedful.types import Translation

MAX_WINDOW_LINES = 2000  # sorted by length and translated together, if that many are waiting
FIRST_WINDOW_LINES = 32  # a small first window, so that output starts soon; each next one is twice as large
READ_BYTES = 1 << 18  # requested at once; a pipe returns what it has
PROGRESS_SECONDS = 10.0  # between two lines about the progress
MAX_SHOWN_WARNINGS = 20  # about single lines; the rest is counted
NOT_IN_BULK = {  # what cannot be combined with --bulk -> advice
    "FILE": "it reads IN and writes OUT, leave FILE out",
    "--ensemble": "each worker has one model, leave it out",
    "--tmx": "one process fills a translation memory, leave one of them out",
    "--nbest": "each line gives one line, leave it out (--json has scores)",
    "--alignment": "only a single process writes links, leave it out",
    "--sample": "repeating a piece must give the same result, leave it out",
    "--device": "workers run on CPU cores, leave it out",
    "--threads": "each worker has one thread, use --workers N instead",
}


def translate(
    model: str = typer.Argument(..., help="A model directory, the run that wrote it, or an export."),
    file: str = typer.Argument("-", help="The text, one sentence or paragraph per line; - is standard input."),
    others: list[str] = typer.Option(
        [], "--ensemble", metavar="MODEL", help="Add a model with the same vocabulary to an ensemble. Repeatable."
    ),
    beam: int | None = typer.Option(None, "--beam", help="Beam size (default: from the model)."),
    nbest: int | None = typer.Option(None, "--nbest", help="Print the N best translations in Marian's format."),
    alignment: str | None = typer.Option(
        None, "--alignment", help="Add word links such as 0-0 1-2, by the method naive, shifted or best."
    ),
    alignment_threshold: float | None = typer.Option(
        None,
        "--alignment-threshold",
        help="With --alignment: all links with at least this share of a word's attention, not only the strongest.",
    ),
    soft: bool = typer.Option(
        False, "--soft", help="With --alignment: attention weights of words instead of links, in Marian's format."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per line, with scores, tokens and flags."),
    sample: bool = typer.Option(False, "--sample", help="Sample instead of beam search."),
    temperature: float = typer.Option(1.0, "--temperature", help="With --sample: below 1 sharper, above 1 flatter."),
    top_k: int | None = typer.Option(None, "--top-k", help="With --sample: only the k most probable tokens."),
    top_p: float | None = typer.Option(
        None, "--top-p", help="With --sample: only the most probable tokens with total probability p."
    ),
    seed: int = typer.Option(0, "--seed", help="With --sample: the random seed."),
    length_penalty: float | None = typer.Option(None, "--length-penalty", help="Above 1 longer, below 1 shorter."),
    prefix: str = typer.Option("", "--prefix", help="How every translation must begin."),
    tag: str | None = typer.Option(None, "--tag", help="A tag of the model to put before every source."),
    tmx: tuple[str, str] | None = typer.Option(
        None, "--tmx", metavar="IN OUT", help="Fill a translation memory: translate the units without a target."
    ),
    bulk: tuple[str, str] | None = typer.Option(
        None, "--bulk", metavar="IN OUT", help="A file of any size, by several workers; repeat the command to resume."
    ),
    workers: int | None = typer.Option(None, "--workers", help="With --bulk: local processes (default: one per core)."),
    cluster: str | None = typer.Option(
        None, "--cluster", help="With --bulk: a Ray cluster: ray://host:10001, host:6379, or ray."
    ),
    device: str | None = typer.Option(None, "--device", help="cpu, cuda or mps (default: cpu)."),
    threads: int | None = typer.Option(None, "--threads", help="CPU threads (default: PyTorch's choice)."),
) -> None:
    """Translate text, line by line. Blank lines stay blank; warnings go to standard error.

    \b
      heedful translate my-model < news.en > news.de
      echo "Good morning" | heedful translate my-model --alignment shifted
      heedful translate my-model --bulk crawl.en crawl.de --workers 16
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    if not sample and (temperature, top_k, top_p, seed) != (1.0, None, None, 0):
        raise ConfigError("--temperature, --top-k, --top-p and --seed belong to --sample: add it, or leave them out")
    if (soft or alignment_threshold is not None) and not alignment:
        raise ConfigError(
            "--alignment-threshold and --soft belong to --alignment: add --alignment shifted, or leave them out"
        )
    if soft and alignment_threshold is not None:
        raise ConfigError("--alignment-threshold selects links, but --soft prints weights instead: use one of them")
    if tmx and (file != "-" or as_json or nbest is not None or alignment):
        raise ConfigError(
            "--tmx reads and writes translation memories: leave out FILE, --json, --nbest and --alignment"
        )
    if sample and (beam is not None or length_penalty is not None):
        raise ConfigError("--beam and --length-penalty belong to beam search: leave them out, or leave out --sample")
    if bulk:
        conflicts = {
            "FILE": file != "-", "--ensemble": others, "--tmx": tmx, "--nbest": nbest is not None,
            "--alignment": alignment, "--sample": sample, "--device": device, "--threads": threads is not None,
        }  # fmt: skip
        for name in (name for name, is_present in conflicts.items() if is_present):
            raise ConfigError(f"{name} does not go with --bulk: {NOT_IN_BULK[name]}")
        search = {"beam": beam, "length_penalty": length_penalty, "prefix": prefix, "tag": tag}
        translate_in_bulk(model, *bulk, search, as_json, cluster, workers)
        return
    if workers is not None or cluster is not None:
        raise ConfigError("--workers and --cluster belong to --bulk IN OUT: add it, or leave them out")
    if file == "-" and not tmx and sys.stdin.isatty():
        typer.echo(
            "heedful: type a line, or end with Ctrl-D; to translate a file: heedful translate MODEL FILE", err=True
        )
    from heedful.engines.base import SamplingOptions
    from heedful.translation.translator import TranslationOptions, load

    machine: dict[str, Any] = {"device": device or "cpu", "threads": threads}
    translator = load(model, others=others, **machine)
    options = TranslationOptions(
        beam=beam,
        num_best=1 if nbest is None else nbest,
        length_penalty=length_penalty,
        sampling=SamplingOptions(temperature, top_k, top_p, seed) if sample else None,
        prefix=prefix,
        tag=tag,
        alignment=alignment,
        alignment_threshold=alignment_threshold,
        soft_alignment=soft,
    )
    reporter = ProgressReporter()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # independent of the locale
    if tmx:
        fill_translation_memory(translator, *tmx, options, reporter)
        return
    try:
        with open_input(file) as stream:
            windows = reporter.report_between(read_windows(stream, reporter))
            for number, translation in enumerate(translator.stream(windows, options)):
                reporter.count_line(number, translation)
                write_line(format_translation(number, translation, nbest, as_json))
    except BrokenPipeError:  # the reader has closed the pipe, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    reporter.finish()


def fill_translation_memory(
    translator: "Translator", tmx_in: str, tmx_out: str, options: "TranslationOptions", reporter: "ProgressReporter"
) -> None:
    """Translate the units of a .tmx that have no target, and print how many there were."""
    from heedful.corpus.tmx import fill_memory

    languages = translator.bundle.description
    num_translated = 0

    def translate(texts: list[str]) -> list[str]:
        nonlocal num_translated
        translations = []
        for translation in translator.stream(reporter.report_between([texts]), options):
            reporter.count_line(num_translated, translation)
            num_translated += 1
            translations.append(translation.text)
        return translations

    counts = fill_memory(tmx_in, tmx_out, languages.source, languages.target, translate, __version__)
    reporter.finish()
    typer.echo(
        f"{tmx_out}: {counts.new:,} units translated, {counts.kept:,} already had a translation, "
        f"{counts.without_source:,} have no text in {languages.source}",
        err=True,
    )


def translate_in_bulk(
    model: str,
    file_in: str,
    file_out: str,
    search: dict[str, Any],
    as_json: bool,
    cluster: str | None,
    workers: int | None,
) -> None:
    """Translate a whole file in pieces by several workers, and print a summary."""
    from rich.console import Console

    from heedful.cli.prepare import show_stages
    from heedful.corpus.launchers import make_launcher
    from heedful.translation.bulk import count_cores, translate_file

    start = time.monotonic()
    worker_launcher = make_launcher(cluster, count_cores() if cluster is None and workers is None else workers)
    with show_stages(Console(stderr=True)) as handle_progress:
        done = translate_file(
            model, file_in, file_out, **search, as_json=as_json, launcher=worker_launcher, progress=handle_progress
        )
    seconds = time.monotonic() - start
    counts = {"blank": done.blank, "not UTF-8, and replaced": done.replaced, "from before": done.lines - done.new_lines}
    details = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number)
    flags = ", ".join(f"{number:,} {name}" for name, number in done.flags.items())
    following = (
        "see docs/flags.md for their meaning, and use --json to see which lines have them"
        if flags and not as_json
        else shlex.join(["head", "-n", "3", file_out])
    )
    typer.echo(
        f"{file_out}: {done.lines:,} lines{f' ({details})' if details else ''}; flags: {flags or 'none'}; "
        f"{done.new_lines / max(seconds, 1e-9):,.0f} sentences per second in {seconds:,.1f} s. Next: {following}",
        err=True,
    )


def open_input(file: str) -> BinaryIO:
    """Open a text file or standard input for reading bytes."""
    if file == "-":
        return sys.stdin.buffer
    path = Path(file)
    from heedful.corpus.text_files import reject_binary, suggest_path
    from heedful.corpus.tmx import ARCHIVE_SUFFIXES

    if path.is_dir():
        raise ConfigError(f"{file} is a folder; give a file in it")
    if not path.is_file():
        pipe = f"; to translate a text, pipe it in: echo {shlex.quote(file)} | heedful translate MODEL"
        raise ConfigError(f"there is no file {file}{suggest_path(path) or pipe}")
    if path.suffix in ARCHIVE_SUFFIXES:
        raise ConfigError(f"{file} is compressed; decompress it first: zcat {file} | heedful translate MODEL")
    stream = path.open("rb")
    try:
        first_bytes = stream.peek(8)
        if first_bytes[:2] in (BOM_UTF16_LE, BOM_UTF16_BE):
            raise DataError(
                f"{file} is UTF-16; convert it to UTF-8: iconv -f UTF-16 -t UTF-8 {file} | heedful translate MODEL"
            )
        reject_binary(first_bytes, path)
    except DataError:
        stream.close()
        raise
    return stream


def read_windows(stream: BinaryIO, reporter: "ProgressReporter") -> Iterator[list[str]]:
    """The lines that are available so far: one by one from a keyboard, many at once from a file."""
    partial_line: list[bytes] = []  # the parts of a line whose end has not arrived
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
    """The text without the line end; replaces bytes that are not UTF-8, with a warning."""
    text, is_valid = decode_line(line)
    if not is_valid:
        reporter.warn(f"line {number:,} is not UTF-8; invalid bytes are replaced")
    return text


def format_translation(number: int, translation: "Translation", nbest: int | None, as_json: bool) -> str:
    """One line of output, or one line for each of the n best."""
    if as_json:
        return json.dumps(translation_to_dict(translation), ensure_ascii=False)
    if nbest is None:
        return text_with_links(translation)
    return "\n".join(
        f"{number} ||| {text_with_links(candidate)} ||| F0= {candidate.log_probability:.6g} ||| {candidate.score:.6g}"
        for candidate in (translation, *translation.alternatives)
    )


def text_with_links(translation: "Translation") -> str:
    """The text, followed by its word links or attention weights if the translation has them."""
    from heedful.alignment import format_pharaoh

    if translation.alignment is None:
        return translation.text
    if translation.weights is None:
        return f"{translation.text} ||| {format_pharaoh(translation.alignment)}"
    rows = " ".join(",".join(f"{weight:.4g}" for weight in row) for row in translation.weights)
    return f"{translation.text} ||| {rows}"


def write_line(text: str) -> None:
    """Write a line to standard output and flush it."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class ProgressReporter:
    """Prints warnings and the progress of a translation on standard error."""

    def __init__(self) -> None:
        self.warnings, self.lines = 0, 0
        self.start = self.last_report = time.monotonic()

    def warn(self, text: str) -> None:
        """Print the first warnings, and count the others."""
        self.warnings += 1
        if self.warnings <= MAX_SHOWN_WARNINGS:
            typer.echo(f"heedful: warning: {escape_invisible(text)}", err=True)

    def count_line(self, number: int, translation: "Translation") -> None:
        """Count a translated line, and warn about its flags."""
        self.lines += 1
        for flag in translation.flags:
            self.warn(f"line {number + 1:,}: {flag.side} {flag.name}: {flag.detail}")

    def report_between(self, windows: Iterable[list[str]]) -> Iterator[list[str]]:
        """The same windows; prints the progress between them every PROGRESS_SECONDS."""
        for window in windows:
            yield window
            now = time.monotonic()
            if now - self.last_report >= PROGRESS_SECONDS:
                self.last_report = now
                speed = self.lines / (now - self.start)
                typer.echo(f"heedful: {self.lines:,} lines, {speed:,.0f} per second", err=True)

    def finish(self) -> None:
        """Print the number of warnings that were not shown."""
        if (more := self.warnings - MAX_SHOWN_WARNINGS) > 0:
            typer.echo(f"heedful: {more:,} more warnings; --json has the flags of each line", err=True)

"""`heedful translate`: one line in, one line out."""

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

WINDOW = 2000  # lines that are sorted by length and translated together, where so many are waiting
FIRST = 32  # lines of the first window, so that the first answers come soon; each next one has twice as many
READ = 1 << 18  # bytes asked for at once; a pipe gives what it has
TOLD = 10.0  # seconds between two lines about the progress
SHOWN = 20  # warnings about single lines; the rest is counted
NOT_IN_BULK = {
    "FILE": "it reads IN and writes OUT, leave FILE out",
    "--with": "workers have one model each, leave it out",
    "--tmx": "memories are filled by one process, leave one of them out",
    "--nbest": "a line becomes one line, leave it out (--json tells scores)",
    "--alignment": "links are for files that one process translates, leave it out",
    "--sample": "a piece that is made again must come out the same, leave it out",
    "--device": "workers share the processors, leave it out",
    "--threads": "every worker has one thread, say --workers N instead",
}


def translate(
    model: str = typer.Argument(..., help="A model directory, the run that made it, or an export."),
    file: str = typer.Argument("-", help="The text, one sentence or paragraph a line; - is standard input."),
    others: list[str] = typer.Option(
        [], "--with", metavar="MODEL", help="Another run of the same vocabulary: they answer together. Repeatable."
    ),
    beam: int | None = typer.Option(None, "--beam", help="Prefixes kept at each step (default: what the model says)."),
    nbest: int | None = typer.Option(None, "--nbest", help="The N best of each, in Marian's format."),
    alignment: str | None = typer.Option(None, "--alignment", help="Links of words, 0-0 1-2: naive, shifted or best."),
    least: float | None = typer.Option(
        None,
        "--least",
        help="Of --alignment: every link with this share of a word's attention, not only the strongest.",
    ),
    soft: bool = typer.Option(
        False, "--soft", help="Of --alignment: not links but how much each word looked at each, as Marian writes it."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object a line, with scores, tokens and flags."),
    sample: bool = typer.Option(False, "--sample", help="Draw instead of searching."),
    temperature: float = typer.Option(1.0, "--temperature", help="Of --sample: below 1 sharper, above 1 flatter."),
    top_k: int | None = typer.Option(None, "--top-k", help="Of --sample: only the k most probable tokens."),
    top_p: float | None = typer.Option(None, "--top-p", help="Of --sample: only the most probable, up to p together."),
    seed: int = typer.Option(0, "--seed", help="Of --sample: the same seed draws the same."),
    length_penalty: float | None = typer.Option(None, "--length-penalty", help="Above 1 longer, below 1 shorter."),
    prefix: str = typer.Option("", "--prefix", help="How every translation must begin."),
    tag: str | None = typer.Option(None, "--tag", help="A tag of the model, put before every source."),
    tmx: tuple[str, str] | None = typer.Option(
        None, "--tmx", metavar="IN OUT", help="Fill a translation memory instead: units without a target get one."
    ),
    bulk: tuple[str, str] | None = typer.Option(
        None, "--bulk", metavar="IN OUT", help="A file of any size, by many workers; repeating the command goes on."
    ),
    workers: int | None = typer.Option(None, "--workers", help="Of --bulk: processes here (default: one per core)."),
    on: str | None = typer.Option(None, "--on", help="Of --bulk: a Ray cluster: ray://host:10001, host:6379, or ray."),
    device: str | None = typer.Option(None, "--device", help="cpu, cuda or mps (default: cpu)."),
    threads: int | None = typer.Option(None, "--threads", help="Threads of a CPU (default: as PyTorch decides)."),
) -> None:
    """Translate text, line by line. Blank lines stay blank; warnings go to standard error.

    \b
      heedful translate my-model < news.en > news.de
      echo "Good morning" | heedful translate my-model --alignment shifted
      heedful translate my-model --bulk crawl.en crawl.de --workers 16
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    if not sample and (temperature, top_k, top_p, seed) != (1.0, None, None, 0):
        raise ConfigError("--temperature, --top-k, --top-p and --seed belong to --sample: add it, or leave them out")
    if (soft or least is not None) and not alignment:
        raise ConfigError("--least and --soft belong to --alignment: add --alignment shifted, or leave them out")
    if soft and least is not None:
        raise ConfigError("--least decides which links are shown, and --soft shows weights instead: take one of them")
    if tmx and (file != "-" or as_json or nbest is not None or alignment):
        raise ConfigError("--tmx reads and writes memories: leave out FILE, --json, --nbest and --alignment")
    if sample and (beam is not None or length_penalty is not None):
        raise ConfigError("--sample draws: --beam and --length-penalty belong to a search, leave them out")
    if bulk:
        beside = {
            "FILE": file != "-", "--with": others, "--tmx": tmx, "--nbest": nbest is not None, "--alignment": alignment,
            "--sample": sample, "--device": device, "--threads": threads is not None,
        }  # fmt: skip
        for name in (name for name, is_there in beside.items() if is_there):
            raise ConfigError(f"{name} does not go with --bulk: {NOT_IN_BULK[name]}")
        search = {"beam": beam, "length_penalty": length_penalty, "prefix": prefix, "tag": tag}
        in_bulk(model, *bulk, search, as_json, on, workers)
        return
    if workers is not None or on is not None:
        raise ConfigError("--workers and --on belong to --bulk IN OUT: add it, or leave them out")
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
        alignment_threshold=least,
        soft_alignment=soft,
    )
    told = Told()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # whatever the terminal's habit
    if tmx:
        fill_memory(translator, *tmx, options, told)
        return
    try:
        with opened(file) as stream:
            for number, found in enumerate(translator.stream(told.between(windows(stream, told)), options)):
                told.translated(number, found)
                write(rendered(number, found, nbest, as_json))
    except BrokenPipeError:  # nobody reads on, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    told.end()


def fill_memory(translator: "Translator", given: str, out: str, options: "TranslationOptions", told: "Told") -> None:
    """A translation memory, filled."""
    from heedful.corpus.tmx import fill_memory

    languages = translator.bundle.description
    seen = 0

    def translate(texts: list[str]) -> list[str]:
        nonlocal seen
        found = []
        for one in translator.stream(told.between([texts]), options):
            told.translated(seen, one)
            seen += 1
            found.append(one.text)
        return found

    counts = fill_memory(given, out, languages.source, languages.target, translate, __version__)
    told.end()
    typer.echo(
        f"{out}: {counts.new:,} units translated, {counts.kept:,} had a translation and keep it, "
        f"{counts.without_source:,} have no text in {languages.source}",
        err=True,
    )


def in_bulk(
    model: str, given: str, out: str, search: dict[str, Any], as_json: bool, on: str | None, workers: int | None
) -> None:
    """A whole file, piece by piece."""
    from rich.console import Console

    from heedful.cli.prepare import stages_shown
    from heedful.corpus.launchers import make_launcher
    from heedful.translation.bulk import count_cores, translate_file

    begin = time.monotonic()
    place = make_launcher(on, count_cores() if on is None and workers is None else workers)
    with stages_shown(Console(stderr=True)) as tell:
        done = translate_file(model, given, out, **search, as_json=as_json, launcher=place, progress=tell)
    seconds = time.monotonic() - begin
    counted = {
        "blank": done.blank,
        "not UTF-8, and replaced": done.replaced,
        "from before": done.lines - done.new_lines,
    }
    apart = ", ".join(f"{number:,} {name}" for name, number in counted.items() if number)
    flags = ", ".join(f"{number:,} {name}" for name, number in done.flags.items())
    then = (
        "docs/flags.md tells what they mean, --json which lines have them"
        if flags and not as_json
        else shlex.join(["head", "-n", "3", out])
    )
    typer.echo(
        f"{out}: {done.lines:,} lines{f' ({apart})' if apart else ''}; flags: {flags or 'none'}; "
        f"{done.new_lines / max(seconds, 1e-9):,.0f} sentences a second in {seconds:,.1f} s. Next: {then}",
        err=True,
    )


def opened(file: str) -> BinaryIO:
    """A file, or standard input."""
    if file == "-":
        return sys.stdin.buffer
    path = Path(file)
    from heedful.corpus.text_files import reject_binary, suggest_path
    from heedful.corpus.tmx import ARCHIVE_SUFFIXES

    if path.is_dir():
        raise ConfigError(f"{file} is a folder; name a file in it")
    if not path.is_file():
        pipe = f"; the text itself comes through a pipe: echo {shlex.quote(file)} | heedful translate MODEL"
        raise ConfigError(f"there is no file {file}{suggest_path(path) or pipe}")
    if path.suffix in ARCHIVE_SUFFIXES:
        raise ConfigError(f"{file} is packed; unpack it on the way: zcat {file} | heedful translate MODEL")
    stream = path.open("rb")
    try:
        begin = stream.peek(8)
        if begin[:2] in (BOM_UTF16_LE, BOM_UTF16_BE):
            raise DataError(
                f"{file} is UTF-16; make it UTF-8: iconv -f UTF-16 -t UTF-8 {file} | heedful translate MODEL"
            )
        reject_binary(begin, path)
    except DataError:
        stream.close()
        raise
    return stream


def windows(stream: BinaryIO, told: "Told") -> Iterator[list[str]]:
    """The lines that are there, as they come: one by one from a keyboard, many at once from a file."""
    rest: list[bytes] = []  # of a line whose end has not come
    number, most = 0, FIRST
    while data := stream.read1(READ):  # type: ignore[attr-defined]
        first, *others = data.split(b"\n")
        rest.append(first)
        if not others:
            continue
        whole = [b"".join(rest), *others[:-1]]
        rest = others[-1:]
        while whole:
            some, whole = whole[:most], whole[most:]
            yield [line_of(line, number + at, told) for at, line in enumerate(some, 1)]
            number += len(some)
            most = min(2 * most, WINDOW)
    if last := b"".join(rest):
        yield [line_of(last, number + 1, told)]


def line_of(line: bytes, number: int, told: "Told") -> str:
    """Text without the line's end; what is not UTF-8 is replaced, and said."""
    text, whole = decode_line(line)
    if not whole:
        told.warn(f"line {number:,} is not UTF-8; what cannot be read is replaced")
    return text


def rendered(number: int, found: "Translation", nbest: int | None, as_json: bool) -> str:
    """One line of output; of the n best, one line each."""
    if as_json:
        return json.dumps(translation_to_dict(found), ensure_ascii=False)
    if nbest is None:
        return with_links(found)
    return "\n".join(
        f"{number} ||| {with_links(one)} ||| F0= {one.log_probability:.6g} ||| {one.score:.6g}"
        for one in (found, *found.alternatives)
    )


def with_links(found: "Translation") -> str:
    """The text, and after it its links, where they were asked for."""
    from heedful.alignment import format_pharaoh

    if found.alignment is None:
        return found.text
    rows = None if found.weights is None else " ".join(",".join(f"{one:.4g}" for one in row) for row in found.weights)
    return f"{found.text} ||| {format_pharaoh(found.alignment) if rows is None else rows}"


def write(text: str) -> None:
    """A line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Told:
    """What is said beside the translations, on standard error: warnings, and now and then how far it is."""

    def __init__(self) -> None:
        self.warnings, self.lines = 0, 0
        self.begin = self.last = time.monotonic()

    def warn(self, text: str) -> None:
        """The first ones are said, the others counted."""
        self.warnings += 1
        if self.warnings <= SHOWN:
            typer.echo(f"heedful: warning: {escape_invisible(text)}", err=True)

    def translated(self, number: int, found: "Translation") -> None:
        """One more line."""
        self.lines += 1
        for flag in found.flags:
            self.warn(f"line {number + 1:,}: {flag.side} {flag.name}: {flag.detail}")

    def between(self, windows: Iterable[list[str]]) -> Iterator[list[str]]:
        """The same windows; after each of them, now and then, how far it is."""
        for some in windows:
            yield some
            now = time.monotonic()
            if now - self.last >= TOLD:
                self.last = now
                typer.echo(f"heedful: {self.lines:,} lines, {self.lines / (now - self.begin):,.0f} a second", err=True)

    def end(self) -> None:
        """What was not said."""
        if self.warnings > SHOWN:
            typer.echo(f"heedful: {self.warnings - SHOWN:,} more warnings; --json has the flags of each line", err=True)

"""`heedful inspect`: one page that shows what a model does with a sentence."""

import os
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.inspection.api import Page


def inspect(
    model: str = typer.Argument(..., help="A model directory, a run, or a trace (.json)."),
    sentence: str | None = typer.Argument(None, help="The sentence; more with --file."),
    file: str | None = typer.Option(None, "--file", help="A file of sentences, one a line."),
    reference: str | None = typer.Option(None, "--reference", help="What it should say: whose error is it?"),
    beam: int | None = typer.Option(None, "--beam", help="Prefixes kept at each step (default: what the model says)."),
    against: str | None = typer.Option(None, "--against", help="Another model, side by side."),
    against_beam: int | None = typer.Option(None, "--against-beam", help="The same with another beam, side by side."),
    arithmetic: str | None = typer.Option(
        None, "--arithmetic", help="Vectors of every score, for: cross, encoder, decoder or all."
    ),
    importance: bool = typer.Option(True, help="Silence every head once, to see what it is worth."),
    out: str | None = typer.Option(None, "--out", help="Where the page goes (default: inspect.html)."),
    as_json: str | None = typer.Option(None, "--json", help="Write the trace itself (docs/trace-format.md)."),
    svg: str | None = typer.Option(None, "--svg", help="Write one map, for a paper."),
    png: str | None = typer.Option(None, "--png", help="Write one map in dots, for a slide."),
    terminal: bool = typer.Option(False, "--terminal", help="Draw the map here."),
    pieces: bool = typer.Option(False, "--pieces", help="Of maps: pieces, not words."),
    validate: bool = typer.Option(False, "--validate", help="Only say whether the trace is one."),
    show: bool = typer.Option(False, "--open", help="Open the page in the browser."),
) -> None:
    """Look inside: attention, search and probabilities of a model, in one file that needs nothing else.

    \b
      heedful inspect my-model "Two dogs run through the snow." --open
      heedful inspect my-model --file probes.en --against other-model --out both.html
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    if model.endswith(".json"):
        found = read(model)
        if validate:
            count = len(found.trace.sentences)
            typer.echo(f"{model} is a trace: {count} {'sentence' if count == 1 else 'sentences'}")
            return
    else:
        if validate:
            raise ConfigError("--validate belongs to a trace: heedful inspect trace.json --validate")
        found = looked(model, sentences(sentence, file), reference, beam, against, against_beam, arithmetic, importance)
    drawn = [svg and written(svg, found.svg(pieces=pieces).encode())]
    if png:
        from heedful.inspection.figure import render_png as dots

        drawn.append(written(png, dots(found.svg(pieces=pieces))))
    if terminal:
        from rich.console import Console

        from heedful.inspection.figure import render_terminal as chart

        if not found.trace.sentences:
            raise ConfigError("there is no sentence to draw: give one")
        for one in found.trace.sentences:
            Console(highlight=False).print(chart(one, pieces=pieces))
    if as_json:
        from heedful.trace import dump_trace

        drawn.append(written(as_json, dump_trace(found.trace).encode()))
    if out or show or not (terminal or any(drawn)):
        path = found.save(out or "inspect.html")
        drawn.append(f"{path} ({path.stat().st_size / 1000:,.0f} kB)")
        drawn.append(shown(path) if show else f"Next: open {path} in a browser")
    for line in filter(None, drawn):
        typer.echo(line, err=True)


def shown(path: Path) -> str:
    """Open a page where there is a screen, and say whether."""
    screen = sys.platform in {"win32", "darwin"} or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    if screen and webbrowser.open(path.resolve().as_uri()):  # without one, some browsers take over the terminal
        return "opened in the browser"
    return "there is no screen here: open it in a browser"


def sentences(sentence: str | None, file: str | None) -> list[str]:
    """What is looked at."""
    if sentence is not None and file is not None:
        raise ConfigError("give a sentence or a --file of them, not both")
    if file is None:
        return [] if sentence is None else [sentence]
    from heedful.corpus.text_files import suggest_path

    path = Path(file)
    if not path.is_file():
        raise DataError(f"there is no file {file}{suggest_path(path)}")
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 at byte {error.start + 1}") from None


def read(file: str) -> "Page":
    """A trace that somebody wrote."""
    from heedful.corpus.text_files import suggest_path
    from heedful.inspection.api import Page
    from heedful.trace import parse_trace

    path = Path(file)
    if not path.is_file():
        raise DataError(f"there is no file {file}{suggest_path(path)}")
    return Page(parse_trace(path.read_bytes()))


def looked(
    model: str,
    texts: list[str],
    reference: str | None,
    beam: int | None,
    against: str | None,
    against_beam: int | None,
    arithmetic: str | None,
    importance: bool,
) -> "Page":
    """The page about some sentences; on a terminal it says how far it is."""
    from rich.console import Console

    from heedful.inspection.api import Page, inspect, open_model
    from heedful.trace import PLACES

    if reference is not None and len(texts) != 1:
        raise ConfigError("--reference belongs to one sentence: give one")
    places = PLACES if arithmetic == "all" else (arithmetic,) if arithmetic else ()
    if not set(places) <= set(PLACES):
        raise ConfigError(f"--arithmetic {arithmetic} is unknown: take {', '.join(PLACES)} or all")
    found = []
    with Console(stderr=True).status("opening the model") as told:
        first = open_model(model)
        other = open_model(against) if against else None
        for number, some in enumerate([[text] for text in texts] or [[]], 1):
            told.update(f"sentence {number} of {len(texts)}: searching, and silencing every head once")
            found.append(
                inspect(
                    first,
                    some,
                    reference=reference,
                    beam=beam,
                    against=other,
                    against_beam=against_beam,
                    importance=importance,
                    arithmetic=places,
                )
            )
    whole = found[0].trace
    every = tuple(one for page in found for one in page.trace.sentences)
    return Page(whole.model_copy(update={"sentences": every}))


def written(path: str, data: bytes) -> str:
    """Write a file, and say so."""
    Path(path).write_bytes(data)
    return f"{path} ({len(data) / 1000:,.0f} kB)"

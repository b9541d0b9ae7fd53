"""`heedful inspect`: show how a model translates a sentence."""

import os
import shlex
import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.inspection.api import Page
    from heedful.trace import TraceDocument

LABEL_CAVEAT = (
    "the weights show how much of each slot goes into the label, not which word is the reason: the encoder has already "
    "mixed each slot with its neighbors"
)


class InspectCommand(TyperCommand):
    """`--live` alone means `--live int8`; Typer has no options whose value may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        complete = []
        for argument, following in zip(args, [*args[1:], "-"], strict=True):
            complete += [argument, "int8"] if argument == "--live" and following.startswith("-") else [argument]
        return super().parse_args(ctx, complete)


def inspect(
    model: str = typer.Argument(
        ..., help="A model directory, a run directory, a sample such as pt-en, or a trace (.json)."
    ),
    sentence: str | None = typer.Argument(
        None, help="Sentence to translate or continue, or the path of a picture; for several, use --file."
    ),
    file: str | None = typer.Option(None, "--file", help="File with one sentence per line."),
    reference: str | None = typer.Option(None, "--reference", help="Correct translation, to detect search errors."),
    beam: int | None = typer.Option(None, "--beam", help="Beam size (default: the model's)."),
    against: str | None = typer.Option(None, "--against", help="Another model to compare with."),
    against_beam: int | None = typer.Option(
        None, "--against-beam", help="Compare with the same model at this beam size."
    ),
    arithmetic: str | None = typer.Option(
        None,
        "--arithmetic",
        help="Include the vectors of each attention score: cross, encoder, decoder, all or none "
        "(default: cross, if they are small).",
    ),
    importance: bool = typer.Option(True, help="Measure the importance of each head by masking it."),
    evidence: bool = typer.Option(
        True, help="Measure what each source piece contributes, what each layer predicts, and similar pieces."
    ),
    out: str | None = typer.Option(None, "--out", help="HTML file to write (default: inspect.html)."),
    as_json: str | None = typer.Option(None, "--json", help="Write the trace as JSON (see docs/trace-format.md)."),
    svg: str | None = typer.Option(None, "--svg", help="Write the first attention map as SVG."),
    png: str | None = typer.Option(None, "--png", help="Write the first attention map as PNG."),
    terminal: bool = typer.Option(False, "--terminal", help="Draw attention maps in the terminal."),
    pieces: bool = typer.Option(False, "--pieces", help="Show subword pieces instead of words in maps."),
    lecture: str | None = typer.Option(None, "--lecture", help="Lecture file: the slides that the page shows."),
    write_lecture: str | None = typer.Option(
        None, "--write-lecture", help="Write a lecture file with slides for this sentence, to edit."
    ),
    live: str | None = typer.Option(
        None,
        "--live",
        help="Include the model (int8, or float16 or float32), so that the page translates what you type.",
    ),
    validate: bool = typer.Option(False, "--validate", help="Only check that the trace is valid."),
    show: bool = typer.Option(False, "--open", help="Open the page in the browser."),
) -> None:
    """Show a model's attention, search and probabilities.

    Writes one self-contained HTML file.

    \b
      heedful inspect my-model "Two dogs run through the snow." --open
      heedful inspect my-model --file probes.en --against other-model --out both.html
      heedful inspect my-model "Two dogs run." --write-lecture lecture.toml
      heedful inspect my-model --live --open
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    if lecture and write_lecture:
        raise ConfigError("use --lecture or --write-lecture, not both: one opens a lecture file, the other writes one")
    if write_lecture and Path(write_lecture).exists():
        raise ConfigError(f"{write_lecture} already exists: choose another name, or delete it first")
    if live and model.endswith(".json"):
        raise ConfigError("--live needs a model: a trace only has recordings")
    if model.endswith(".json"):
        page = read_trace(model, lecture)
        if validate:
            count = len(page.trace.sentences)
            typer.echo(f"{model} is a valid trace: {count} {'sentence' if count == 1 else 'sentences'}")
            return
    else:
        if validate:
            raise ConfigError("--validate needs a trace file, for example: heedful inspect trace.json --validate")
        texts = read_sentences(sentence, file)
        page = inspect_sentences(
            model, texts, reference, beam, against, against_beam, arithmetic, importance, evidence, lecture, live
        )
    messages = [write_lecture and write_draft(page.trace, write_lecture)]
    messages.append(svg and write_file(svg, page.svg(pieces=pieces).encode()))
    if png:
        from heedful.inspection.figure import render_png as render_png

        messages.append(write_file(png, render_png(page.svg(pieces=pieces))))
    if terminal:
        from rich.console import Console

        from heedful.inspection.figure import render_terminal as render_chart

        if not page.trace.sentences:
            raise ConfigError("there is no sentence to draw: pass a sentence")
        for traced in page.trace.sentences:
            Console(highlight=False).print(render_chart(traced, pieces=pieces))
    if as_json:
        from heedful.trace import dump_trace

        messages.append(write_file(as_json, dump_trace(page.trace).encode()))
    if out or show or not (terminal or any(messages)):
        path = page.save(out or "inspect.html")
        messages.append(f"{path} ({path.stat().st_size / 1000:,.0f} kB)")
        messages.append(open_page(path) if show else f"Next: open {path} in a browser")
    for message in filter(None, messages):
        typer.echo(message, err=True)


def open_page(path: Path) -> str:
    """Open a page in the browser if there is a screen; return a status message."""
    has_screen = sys.platform in {"win32", "darwin"} or "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    if has_screen and webbrowser.open(path.resolve().as_uri()):  # without a screen, a text browser would start
        return "opened in the browser"
    return "no display found: open the file in a browser"


def read_sentences(sentence: str | None, file: str | None) -> list[str]:
    """The sentence, or the nonblank lines of --file."""
    if sentence is not None and file is not None:
        raise ConfigError("pass a sentence or --file, not both")
    if file is None:
        return [] if sentence is None else [sentence]
    from heedful.corpus.text_files import suggest_path

    path = Path(file)
    if not path.is_file():
        raise DataError(f"there is no file {file}{suggest_path(path)}")
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 at byte {error.start + 1}: save it as UTF-8") from None


def read_trace(file: str, lecture: str | None) -> "Page":
    from heedful.corpus.text_files import suggest_path
    from heedful.inspection.api import inspect
    from heedful.trace import parse_trace

    path = Path(file)
    if not path.is_file():
        raise DataError(f"there is no file {file}{suggest_path(path)}")
    return inspect(parse_trace(path.read_bytes()), lecture=lecture and Path(lecture))


def write_draft(trace: "TraceDocument", file: str) -> str:
    """Write a lecture file for the first sentence; return a message with the command that opens it."""
    from heedful.inspection.lecture import draft_lecture, format_lecture

    lecture = draft_lecture(trace)
    with Path(file).open("x", encoding="utf-8", newline="\n") as stream:
        stream.write(format_lecture(lecture))
    words = [word.replace("--write-lecture", "--lecture") for word in sys.argv[1:] if word != "--open"]
    return f"{file}: {len(lecture.slides)} slides. Edit them, then run: {shlex.join(['heedful', *words, '--open'])}"


def inspect_sentences(
    model: str,
    texts: list[str],
    reference: str | None,
    beam: int | None,
    against: str | None,
    against_beam: int | None,
    arithmetic: str | None,
    importance: bool,
    evidence: bool,
    lecture: str | None,
    live: str | None,
) -> "Page":
    """One page for all sentences, with progress on a terminal."""
    from rich.console import Console

    from heedful.inspection.api import Page, inspect, load_lecture, open_model
    from heedful.inspection.lecture import arithmetic_places, attach_lecture
    from heedful.trace import PLACES
    from heedful.translation.sources import is_labeler
    from heedful.translation.translator import Translator

    if reference is not None and len(texts) != 1:
        raise ConfigError(f"--reference works with one sentence only, but there are {len(texts)}: pass one sentence")
    choices = {place: (place,) for place in PLACES} | {"all": PLACES, "none": ()}
    if arithmetic is not None and arithmetic not in choices:
        raise ConfigError(f"--arithmetic {arithmetic}: use {', '.join(PLACES)}, all or none")
    slides, lecture_name = load_lecture(lecture and Path(lecture))
    places = (*choices.get(arithmetic or "none", ()), *arithmetic_places(slides))
    pages = []
    with Console(stderr=True).status("opening the model") as status:
        first_model = open_model(model)
        other_model = open_model(against) if against else None
        if isinstance(first_model, Translator) and is_labeler(first_model.bundle):
            typer.echo(f"heedful: {LABEL_CAVEAT}", err=True)
        for number, sources in enumerate([[text] for text in texts] or [[]], 1):

            def show_stage(stage: str, number: int = number) -> None:
                status.update(f"sentence {number} of {len(texts)}: {stage}")

            pages.append(
                inspect(
                    first_model,
                    sources,
                    reference=reference,
                    beam=beam,
                    against=other_model,
                    against_beam=against_beam,
                    importance=importance,
                    evidence=evidence,
                    arithmetic=None if arithmetic is None and not places else places,
                    live=live if number == 1 else None,
                    on_progress=show_stage,
                )
            )
    sentences = tuple(sentence for page in pages for sentence in page.trace.sentences)
    trace = pages[0].trace.model_copy(update={"sentences": sentences})
    live_model = pages[0].live
    return Page(attach_lecture(trace, slides, lecture_name, is_live=live_model is not None), live_model)


def write_file(path: str, data: bytes) -> str:
    """Write a file; return a message with its name and size."""
    Path(path).write_bytes(data)
    return f"{path} ({len(data) / 1000:,.0f} kB)"

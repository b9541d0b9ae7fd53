"""`heedful demo`: translate with a built-in model and show its attention."""

import re
import shlex
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.cli.inspect import open_page
from heedful.errors import ConfigError, require
from heedful.samples import PAIRS, model
from heedful.text.normalize import escape_invisible

if TYPE_CHECKING:
    from rich.console import Console

    from heedful.trace import Sentence

SENTENCES = {"pt-en": "Eu gosto muito de café.", "ru-en": "Я хочу выпить стакан воды."}
PROBABILITY_COLORS = ((0.7, "green"), (0.4, "yellow"), (0.0, "red"))  # from this probability on
DEFAULT_PAGE = "demo.html"


def demo(
    sentence: str | None = typer.Argument(None, help="Sentence in Portuguese or Russian (default: a sample of each)."),
    pair: str | None = typer.Option(None, "--pair", help=f"{' or '.join(PAIRS)} (default: guessed from the alphabet)."),
    out: str = typer.Option(DEFAULT_PAGE, "--out", help="HTML file to write; that of a second model has its name."),
    show: bool = typer.Option(True, "--open/--no-open", help="Open the page in the browser."),
) -> None:
    """Translate with a small built-in model and show its attention.

    The page contains the model, so that it translates what you type. Works offline, without training or downloads.

    \b
      heedful demo
      heedful demo "Onde está o meu carro?"
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    require("torch", extra="train", whose="heedful demo")
    if sentence is not None and not sentence.strip():
        raise ConfigError('the sentence is empty: pass one, for example: heedful demo "Onde está o meu carro?"')
    pairs = [pair] if pair else [guess_pair(sentence)] if sentence else list(PAIRS)
    models = [model(name) for name in pairs]
    from rich.console import Console

    from heedful.inspection.api import inspect
    from heedful.inspection.figure import render_terminal

    console = Console(highlight=False)
    paths = []
    for name, folder in zip(pairs, models, strict=True):
        with Console(stderr=True).status("translating and measuring the importance of each head"):
            page = inspect(folder, [sentence or SENTENCES[name]], title="heedful demo", live="int8")
        for traced in page.trace.sentences:
            print_translation(console, name, traced)
            console.print(render_terminal(traced))
        paths.append(page.save(page_path(out, name, is_first=name == pairs[0])))
    for path in paths:
        status = open_page(path) if show and path == paths[0] else "open the file in a browser"
        typer.echo(f"{path} ({path.stat().st_size / 1000:,.0f} kB): {status}")
    typer.echo(f"Next: {shlex.join(['heedful', 'init', 'first', '--sample', pairs[0]])}")


def page_path(out: str, pair: str, *, is_first: bool) -> Path:
    """The page of a model: `out` for the first, else with the pair in its name. A page contains one model."""
    path = Path(out)
    return path if is_first else path.with_name(f"{path.stem}-{pair}{path.suffix}")


def guess_pair(sentence: str) -> str:
    """ru-en for a sentence with Cyrillic letters, else pt-en."""
    return "ru-en" if re.search("[а-яё]", sentence, re.IGNORECASE) else "pt-en"


def print_translation(console: "Console", pair: str, sentence: "Sentence") -> None:
    """Print source and translation; the color of a word shows its probability."""
    from rich.text import Text

    source, target = pair.split("-")
    console.print(Text(f"{source}  {escape_invisible(sentence.source.text)}"), soft_wrap=True)
    line = Text(f"{target}  ")
    for piece, step in zip(sentence.target.pieces, sentence.steps, strict=True):
        if piece.word is not None:
            probability = exp(step.logp)
            style = next(color for minimum, color in PROBABILITY_COLORS if probability >= minimum)
            line.append(
                escape_invisible(piece.text) if len(line) > len(target) + 2 else escape_invisible(piece.text).lstrip(),
                style,
            )
    line.append(f"   (p = {exp(sentence.logp):.2f}; green: sure, red: unsure)", "dim")
    console.print(line, soft_wrap=True)
    console.print()

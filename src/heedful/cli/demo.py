"""`heedful demo`: a translator that comes along, what it says and what it looked at."""

import re
import shlex
from math import exp
from typing import TYPE_CHECKING

import typer

from heedful.cli.inspect import shown
from heedful.errors import ConfigError, require
from heedful.samples import PAIRS, model
from heedful.text.normalize import escape_invisible

if TYPE_CHECKING:
    from rich.console import Console

    from heedful.trace import Sentence

SENTENCES = {"pt-en": "Eu gosto muito de café.", "ru-en": "Я хочу выпить стакан воды."}
SURE, UNSURE = 0.7, 0.4  # probabilities above and below which a word is tinted
OUT = "demo.html"


def demo(
    sentence: str | None = typer.Argument(None, help="Your own, in Portuguese or Russian."),
    pair: str | None = typer.Option(None, "--pair", help=f"{' or '.join(PAIRS)} (default: by the letters)."),
    out: str = typer.Option(OUT, "--out", help="Where the page goes."),
    show: bool = typer.Option(True, "--open/--no-open", help="Open the page in the browser."),
) -> None:
    """Translate with a small model that comes along, and look inside it. No network, nothing to prepare.

    \b
      heedful demo
      heedful demo "Onde está o meu carro?"
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    require("torch", extra="train", whose="heedful demo")
    if sentence is not None and not sentence.strip():
        raise ConfigError('give a sentence to translate, such as: heedful demo "Onde está o meu carro?"')
    pairs = [pair] if pair else [pair_of(sentence)] if sentence else list(PAIRS)
    models = [model(one) for one in pairs]
    from rich.console import Console

    from heedful.inspection.api import Page, inspect
    from heedful.inspection.figure import render_terminal

    console = Console(highlight=False)
    found = []
    for name, place in zip(pairs, models, strict=True):
        with Console(stderr=True).status("translating, and silencing every head once"):
            whole = inspect(place, [sentence or SENTENCES[name]], title="heedful demo")
        for one in whole.trace.sentences:
            told(console, name, one)
            console.print(render_terminal(one))
            found.append(one.model_copy(update={"name": name}))
    path = Page(whole.trace.model_copy(update={"sentences": tuple(found)})).save(out)
    typer.echo(f"{path} ({path.stat().st_size / 1000:,.0f} kB): {shown(path) if show else 'open it in a browser'}")
    typer.echo(f"Next: {shlex.join(['heedful', 'init', 'first', '--sample', pairs[0]])}")


def pair_of(sentence: str) -> str:
    """By the letters: Russian's, or else Portuguese."""
    return "ru-en" if re.search("[а-яё]", sentence, re.IGNORECASE) else "pt-en"


def told(console: "Console", pair: str, sentence: "Sentence") -> None:
    """Source and translation; words the model is not sure of are tinted."""
    from rich.text import Text

    source, target = pair.split("-")
    console.print(Text(f"{source}  {escape_invisible(sentence.source.text)}"), soft_wrap=True)
    line = Text(f"{target}  ")
    for piece, step in zip(sentence.target.pieces, sentence.steps, strict=True):
        if piece.word is not None:
            probability = exp(step.logp)
            style = "green" if probability >= SURE else "red" if probability < UNSURE else "yellow"
            line.append(
                escape_invisible(piece.text) if len(line) > len(target) + 2 else escape_invisible(piece.text).lstrip(),
                style,
            )
    line.append(f"   (p = {exp(sentence.logp):.2f}; green sure, red unsure)", "dim")
    console.print(line, soft_wrap=True)
    console.print()

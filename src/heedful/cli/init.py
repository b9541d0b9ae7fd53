"""`heedful init`: from the files one has to a folder that can be trained."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.errors import ConfigError, require
from heedful.samples import PAIRS
from heedful.text.normalize import escape_invisible

if TYPE_CHECKING:
    from heedful.config import Settings

TIME, SAMPLE_TIME = "40m", "4m"
LARGE = 100_000_000  # bytes; larger corpora are only counted by `heedful check`


def init(
    folder: str = typer.Argument(..., help="The folder to make, such as my-translator."),
    files: list[str] = typer.Argument(None, help="Two files, or one .tsv, .jsonl, .tmx or .parquet."),
    sample: str | None = typer.Option(
        None, "--sample", help=f"Instead of files, a corpus of ours: {', '.join(PAIRS)}."
    ),
    pair: str | None = typer.Option(None, "--pair", help="The languages, such as en-de, where no suffix says them."),
    validation: list[str] = typer.Option([], "--validation", help="Files to validate on (default: some are held out)."),
    test: list[str] = typer.Option([], "--test", help="Files to score at the end."),
    time: str | None = typer.Option(None, "--time", help=f"How long training may take (default: {TIME})."),
    recipe: str | None = typer.Option(None, "--recipe", help="A recipe, instead of what the autopilot chooses."),
) -> None:
    """Look at your files and write a heedful.toml for them; asks what you do not say.

    \b
      heedful init captions train.en train.de --time 40m
      heedful init first --sample pt-en
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    from heedful import scaffold as begin
    from heedful.cli.arguments import languages

    if (Path(folder) / begin.SETTINGS_FILE).exists():
        raise ConfigError(f"{Path(folder) / begin.SETTINGS_FILE} exists already: train with it, or name another folder")
    person = asks()
    files = list(files or ())
    if not files and not sample:
        if not person:
            raise ConfigError(
                f"say which files hold your pairs: heedful init {folder} train.en train.de; "
                f"or try a corpus of ours: heedful init {folder} --sample {PAIRS[0]}"
            )
        files = shlex.split(
            ask("Which files hold your pairs? Two files, or one .tsv, .jsonl, .tmx (empty: a sample)", "")
        )
        sample = None if files else ask(f"Which sample? {' or '.join(PAIRS)}", PAIRS[0])
    found = None
    if not sample:
        try:
            found = languages(files, pair)
        except ConfigError:
            if not person:
                raise
            found = languages(files, ask("Which languages are they? First the one that is read, such as en-de"))
    if person and time is None:
        time = ask("How long may training take?", SAMPLE_TIME if sample else TIME)
    path = begin.init(
        folder,
        files,
        languages=found,
        sample=sample,
        validation=validation,
        test=test,
        time=time or (SAMPLE_TIME if sample else TIME),
        recipe=recipe,
    )
    show(path)


def asks() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask(question: str, otherwise: str | None = None) -> str:
    """One answer; an empty one takes what is in brackets."""
    return str(typer.prompt(question, default=otherwise, show_default=bool(otherwise), err=True)).strip()


def show(path: Path) -> None:
    """What was found in the files, and what to type next."""
    from rich.console import Console
    from rich.markup import escape

    from heedful.config import load

    console = Console(highlight=False)
    settings = load(path)
    console.print(f"[bold]{escape(str(path))}[/]  {settings.source} -> {settings.target}", soft_wrap=True)
    for line in looked_at(settings):
        console.print("  " + escape(escape_invisible(line)), soft_wrap=True)
    typer.echo(f"Next: {shlex.join(['heedful', 'train', str(path)])}")


def looked_at(settings: "Settings") -> list[str]:
    """How many pairs there are, how one looks, and what `heedful check` says of them."""
    require("polars", extra="corpus", whose="heedful init, to look at the files,")
    from heedful.config import name_corpora
    from heedful.corpus.check import examine_corpora, make_report
    from heedful.corpus.readers import read_pairs, resolve_files

    where = (settings.source, settings.target)
    paths = [path for _, _, corpus in name_corpora(settings) for path in resolve_files(corpus.files, *where)]
    size = sum(path.stat().st_size for path in paths)
    first = next(read_pairs(settings.data.train[0].files, *where))
    sample = [f"{first.source[0]}  |  {first.target[0]}"] if first.source else []
    if size > LARGE:
        return [*sample, f"{size / 1e9:,.1f} GB: not looked at any further; heedful check does"]
    found = make_report(settings, examine_corpora(settings))
    counts = ", ".join(f"{pairs:,} {name}" for name, pairs in found.pairs.items())
    told = [
        f"{one.level}: {one.rule.what}: {one.count:,} in {one.corpus}" for one in found.findings if one.level != "note"
    ]
    return [
        f"{counts} pairs",
        *sample,
        *(told or ["nothing wrong with them: heedful check has no error and no warning"]),
    ]

"""`heedful init`: write a heedful.toml for a corpus."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.corpus.arguments import COLUMNS_HELP, FILES_HELP, find_languages, split_columns
from heedful.errors import ConfigError, require
from heedful.samples import CORPORA, PAIRS
from heedful.text.normalize import escape_invisible

if TYPE_CHECKING:
    from heedful.config import Settings

DEFAULT_TIME, DEFAULT_SAMPLE_TIME = "40m", "4m"


def init(
    folder: str = typer.Argument(..., help="Directory to create, such as my-translator."),
    files: list[str] = typer.Argument(None, help=f"Your corpus: {FILES_HELP}."),
    sample: str | None = typer.Option(
        None, "--sample", help=f"Use a built-in corpus instead of files: {', '.join(CORPORA)}."
    ),
    pair: str | None = typer.Option(None, "--pair", help="Language pair, such as en-de (default: from the files)."),
    columns: str | None = typer.Option(None, "--columns", help=COLUMNS_HELP),
    sheet: str | None = typer.Option(None, "--sheet", help="Sheet of an .xlsx (default: the first)."),
    validation: list[str] = typer.Option(
        [], "--validation", help="Validation file; repeat for a second file (default: hold out pairs)."
    ),
    test: list[str] = typer.Option([], "--test", help="Test file, scored after training; repeat for a second file."),
    time: str | None = typer.Option(
        None,
        "--time",
        help=f"Training time, such as 1h30m (default: {DEFAULT_TIME}; {DEFAULT_SAMPLE_TIME} for a sample).",
    ),
    recipe: str | None = typer.Option(
        None, "--recipe", help="Recipe, such as transformer-tiny (default: chosen by the autopilot)."
    ),
) -> None:
    """Create a directory with a heedful.toml for your files.

    Examines the files and reports problems. On a terminal, prompts for missing values.

    \b
      heedful init captions train.en train.de --time 40m
      heedful init first --sample pt-en
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    from heedful import scaffold

    if (file := Path(folder) / scaffold.SETTINGS_FILE).exists():
        raise ConfigError(f"{file} already exists: train with it, or choose another directory")
    is_interactive = can_prompt()
    files = list(files or ())
    if not files and not sample:
        if not is_interactive:
            raise ConfigError(
                f"no files with sentence pairs: pass the files, for example: heedful init {folder} train.en "
                f"train.de. Or use a built-in corpus: heedful init {folder} --sample {PAIRS[0]}"
            )
        files = shlex.split(
            prompt("Files with sentence pairs: two, or one .tsv, .csv, .xlsx or .tmx (press Enter for a sample)", "")
        )
        sample = None if files else prompt(f"Sample: {', '.join(CORPORA)}", PAIRS[0])
    languages = None
    if not sample:
        try:
            languages = find_languages(files, pair, split_columns(columns), sheet)
        except ConfigError:
            if not is_interactive:
                raise
            languages = find_languages(files, prompt("Languages, source first, such as en-de"))
    default_time = DEFAULT_SAMPLE_TIME if sample else DEFAULT_TIME
    if is_interactive and time is None:
        time = prompt("Training time", default_time)
    path = scaffold.init(
        folder,
        files,
        languages=languages,
        sample=sample,
        validation=validation,
        test=test,
        time=time or default_time,
        recipe=recipe,
        columns=split_columns(columns),
        sheet=sheet,
    )
    print_summary(path)


def can_prompt() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def prompt(question: str, default: str | None = None) -> str:
    """The user's answer, or the default if it is empty."""
    return str(typer.prompt(question, default=default, show_default=bool(default), err=True)).strip()


def print_summary(path: Path) -> None:
    """Print what the files contain and the command to run next."""
    from rich.console import Console
    from rich.markup import escape

    from heedful.config import load

    console = Console(highlight=False)
    settings = load(path)
    console.print(f"[bold]{escape(str(path))}[/]  {settings.source} -> {settings.target}", soft_wrap=True)
    for line in describe_corpora(settings):
        console.print("  " + escape(escape_invisible(line)), soft_wrap=True)
    typer.echo(f"Next: {shlex.join(['heedful', 'train', str(path)])}")


def describe_corpora(settings: "Settings") -> list[str]:
    """The number of pairs, a sample pair, and the findings of `heedful check`."""
    require("polars", extra="corpus", whose="heedful init, to examine the files,")
    from heedful.config import name_corpora
    from heedful.corpus.check import MAX_EXAMINED_BYTES, examine_corpora, make_report
    from heedful.corpus.readers import read_corpus, resolve_files

    languages = (settings.source, settings.target)
    paths = [path for _, _, corpus in name_corpora(settings) for path in resolve_files(corpus.files, *languages)]
    num_bytes = sum(path.stat().st_size for path in paths)
    first_block = next(read_corpus(settings.data.train[0], settings))
    sample = [f"{first_block.source[0]}  |  {first_block.target[0]}"] if first_block.source else []
    if num_bytes > MAX_EXAMINED_BYTES:
        return [*sample, f"{num_bytes / 1e9:,.1f} GB: too large to examine now; run heedful check"]
    corpus_report = make_report(settings, examine_corpora(settings))
    counts = ", ".join(f"{pairs:,} {name}" for name, pairs in corpus_report.pairs.items())
    problems = [
        f"{finding.level}: {finding.rule.what}: {finding.count:,} in {finding.corpus}"
        for finding in corpus_report.findings
        if finding.level != "note"
    ]
    layouts = [f"{name}: {layout}" for name, layout in corpus_report.layouts.items()]
    return [f"{counts} pairs", *layouts, *sample, *(problems or ["heedful check finds no errors and no warnings"])]

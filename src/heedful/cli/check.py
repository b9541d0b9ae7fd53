"""`heedful check`: what is wrong with a corpus, where, why, and what mends it."""

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.cli.arguments import settings_of
from heedful.errors import require
from heedful.text.normalize import escape_invisible

if TYPE_CHECKING:
    from rich.console import Console

    from heedful.config import Settings
    from heedful.corpus.findings import Finding, Report

SHOWN = 4  # lines named of a finding
FINE = {  # what to say when there is no such finding
    "unequal": "line-aligned",
    "shift": "parallel throughout",
    "rejected": "all of it readable",
    "language": "the right languages",
    "overlap": "no test pairs in training",
    "duplicate": "no duplicates",
    "mojibake": "no garbled characters",
    "empty": "no empty sides",
    "tokenized": "not tokenized",
    "lower_cased": "case alike",
}
MARKS = {"error": ("✖", "x", "bold red"), "warning": ("!", "!", "yellow"), "note": ("·", "-", "dim")}


def check(
    files: list[str] = typer.Argument(
        ["heedful.toml"], help="heedful.toml, or two files, or one .tsv, .jsonl, .tmx or .parquet."
    ),
    pair: str | None = typer.Option(None, "--pair", help="The languages, such as en-de, where the files do not say."),
    validation: list[str] = typer.Option([], "--validation", help="Files to look for in training (repeat for two)."),
    test: list[str] = typer.Option([], "--test", help="Files to look for in training (repeat for two)."),
    sets: list[str] = typer.Option([], "--set", help="A setting, such as clean.max_words=100."),
    fix: bool = typer.Option(False, "--fix", help="Write a cleaned copy beside the old files."),
    as_json: bool = typer.Option(False, "--json", help="For machines."),
) -> None:
    """Diagnose a corpus before a model is trained on it. Exit code 3 where something is badly wrong.

    \b
      heedful check train.en train.de --validation valid.en --validation valid.de
      heedful check heedful.toml --fix
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    require("polars", extra="corpus", whose="heedful check")
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from heedful.corpus.check import examine_corpora, make_report
    from heedful.corpus.repair import repair

    settings = settings_of(files, pair, sets, validation=validation, test=test)
    console, aside = Console(highlight=False), Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.fields[pairs]:,} pairs read"), TimeElapsedColumn())
    with Progress(*columns, console=aside, transient=True, disable=not aside.is_terminal) as progress:
        task, seen = progress.add_task("", pairs=0), 0

        def tell(pairs: int) -> None:
            nonlocal seen
            seen += pairs
            progress.update(task, pairs=seen)

        exams = examine_corpora(settings, tell)
        found = make_report(settings, exams)
        mended = repair(settings, exams) if fix else {}
    if as_json:
        written = {name: [str(path) for path in paths] for name, (_, _, paths) in mended.items()}
        typer.echo(json.dumps(found.to_dict() | {"fixed": written}))
    else:
        show(console, settings, found)
        for name, (before, after, paths) in mended.items():
            where = escape(" and ".join(map(str, paths)))
            console.print(f"  {name}: {after:,} of {before:,} pairs written to {where}", soft_wrap=True)
        levels = [finding.level for finding in found.findings]
        counts = ", ".join(f"{levels.count(level)} {level}{'s' * (levels.count(level) != 1)}" for level in MARKS)
        console.print(
            f"[bold]{counts}.[/] Next: {escape(advice(files, found.has_errors, bool(mended)))}", soft_wrap=True
        )
    if found.has_errors:
        raise typer.Exit(3)


def advice(files: list[str], errors: bool, fixed: bool) -> str:
    """The next command."""
    if fixed:
        return "check the cleaned files, and name them in your heedful.toml"
    if errors:
        return f"mend the errors, or: {shlex.join(['heedful', *sys.argv[1:], '--fix'])}"
    if files[0].endswith(".toml"):
        return shlex.join(["heedful", "prepare", files[0]])
    return "name the files in a heedful.toml, then: heedful prepare heedful.toml"


def show(console: "Console", settings: "Settings", found: "Report") -> None:
    """The report: how many pairs, the findings, what is fine."""
    fancy = (console.encoding or "").lower().startswith("utf")
    console.print(f"[bold]heedful check[/]  {settings.source} {'→' if fancy else '->'} {settings.target}")
    width = max(map(len, found.pairs))
    for name, pairs in found.pairs.items():
        console.print(f"  {name:{width}}  {pairs:>12,} pairs")
    console.print()
    for finding in found.findings:
        show_finding(console, finding, fancy)
    kinds = {finding.kind for finding in found.findings}
    alone = {"overlap", "lower_cased"} if len(found.pairs) == 1 else set()  # nothing to compare with
    fine = " · ".join(good for kind, good in FINE.items() if kind not in kinds | alone)
    console.print(f"  [green]{'✔' if fancy else 'ok'}[/] {fine}", soft_wrap=True)
    if found.tokens:
        source, target, unknown = (found.tokens[name] for name in ("source", "target", "unknown"))
        console.print(
            f"  [dim]a vocabulary like yours: {source:.2f} tokens per word of {settings.source}, {target:.2f} of "
            f"{settings.target}; {unknown:.2%} of them unknown or spelled in bytes[/]",
            soft_wrap=True,
        )


def show_finding(console: "Console", finding: "Finding", fancy: bool) -> None:
    """What, where, a sample, why, and what to do; of a note, one line."""
    from rich.markup import escape
    from rich.padding import Padding

    rule = finding.rule
    good, plain, style = MARKS[finding.level]
    mark = f"[{style}]{good if fancy else plain} {finding.level}[/]"
    count = f"{finding.count:,} ({finding.share:.2%}) in {finding.corpus}" if finding.count else ""
    dots = ", …" if finding.count > SHOWN else ""
    where = f"{Path(finding.file).name}:{', '.join(map(str, finding.lines[:SHOWN]))}{dots}" if finding.file else ""
    if finding.level == "note":
        console.print(
            f"  {mark}  {escape(rule.what)}  {count}  [dim]{finding.kind}  {escape(where)}[/]", soft_wrap=True
        )
        return
    console.print(f"  {mark}  [bold]{escape(rule.what)}[/]  {count}  [dim]{finding.kind}[/]", soft_wrap=True)
    for line in (where, finding.detail, f"“{finding.sample}”" if finding.sample else ""):
        if line:
            console.print(
                Padding(escape(escape_invisible(line)), (0, 0, 0, 6), expand=False), overflow="ellipsis", no_wrap=True
            )
    for word, text in (("likely", rule.cause), ("fix", rule.fix)):
        console.print(Padding(f"[dim]{word}:[/] {escape(text)}", (0, 0, 0, 6), expand=False))
    console.print()

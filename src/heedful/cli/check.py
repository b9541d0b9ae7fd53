"""`heedful check`: report the problems of a corpus, with place, likely cause and fix."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.corpus.arguments import COLUMNS_HELP, FILES_HELP, INPUT_HELP, settings_from_arguments
from heedful.errors import require
from heedful.text.normalize import escape_invisible

if TYPE_CHECKING:
    from rich.console import Console

    from heedful.config import Settings
    from heedful.corpus.findings import Finding, Report

MAX_SHOWN_LINES = 4  # of a finding
PASSED_CHECKS = {  # what is printed if there is no finding of these kinds, and the first of them was checked
    "line-aligned": ("unequal", "shift", "not_parallel"),
    "parallel throughout": ("not_parallel", "shift", "unequal"),
    "all lines readable": ("rejected",),
    "expected languages": ("language", "swapped", "untranslated"),
    "no test pairs in training": ("overlap",),
    "all pictures readable": ("unreadable_picture", "missing_picture"),
    "no test pictures in training": ("picture_overlap",),
    "all recordings readable": ("unreadable_recording", "missing_recording"),
    "no silence": ("silent",),
    "no test recordings in training": ("recording_overlap",),
    "all graphs readable": ("unreadable_graph", "missing_graph"),
    "no test graphs in training": ("graph_overlap",),
    "no duplicates": ("duplicate", "duplicate_picture", "duplicate_recording", "duplicate_graph"),
    "no garbled characters": ("mojibake",),
    "no empty sides": ("empty",),
    "same numbers": ("numbers",),
    "not truncated": ("truncated",),
    "not tokenized": ("tokenized",),
    "same case": ("lower_cased",),
}
LEVEL_MARKS = {"error": ("✖", "x", "bold red"), "warning": ("!", "!", "yellow"), "note": ("·", "-", "dim")}


def check(
    files: list[str] = typer.Argument(["heedful.toml"], help=f"A heedful.toml; or {FILES_HELP}."),
    pair: str | None = typer.Option(None, "--pair", help="Language pair, such as en-de (default: from the files)."),
    columns: str | None = typer.Option(None, "--columns", help=COLUMNS_HELP),
    input: str | None = typer.Option(None, "--input", help=INPUT_HELP),
    sheet: str | None = typer.Option(None, "--sheet", help="Sheet of an .xlsx (default: the first)."),
    validation: list[str] = typer.Option(
        [], "--validation", help="Validation file, to find overlap with training pairs; repeat for a second file."
    ),
    test: list[str] = typer.Option(
        [], "--test", help="Test file, to find overlap with training pairs; repeat for a second file."
    ),
    sets: list[str] = typer.Option([], "--set", help="Override a setting, such as clean.max_words=100; repeatable."),
    fix: bool = typer.Option(False, "--fix", help="Write a cleaned copy next to each original file."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Find problems in a corpus before training on it.

    Exits with code 3 if there are errors.

    \b
      heedful check train.en train.de --validation valid.en --validation valid.de
      heedful check heedful.toml --fix
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    require("polars", extra="corpus", whose="heedful check")
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from heedful.corpus.check import examine_corpora, make_report
    from heedful.corpus.repair import can_repair
    from heedful.corpus.repair import repair as write_repaired

    settings = settings_from_arguments(
        files, pair, sets, validation=validation, test=test, columns=columns, sheet=sheet, input=input
    )
    console, stderr = Console(highlight=False), Console(stderr=True)
    progress_columns = (SpinnerColumn(), TextColumn("{task.fields[pairs]:,} pairs read"), TimeElapsedColumn())
    with Progress(*progress_columns, console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task, pairs_read = progress.add_task("", pairs=0), 0

        def count_pairs(pairs: int) -> None:
            nonlocal pairs_read
            pairs_read += pairs
            progress.update(task, pairs=pairs_read)

        examinations = examine_corpora(settings, count_pairs)
        corpus_report = make_report(settings, examinations)
        repaired = write_repaired(settings, examinations) if fix else {}
    if as_json:
        fixed = {name: [str(path) for path in paths] for name, (_, _, paths) in repaired.items()}
        typer.echo(json.dumps(corpus_report.to_dict() | {"fixed": fixed}))
    else:
        print_report(console, settings, corpus_report)
        for name, (before, after, paths) in repaired.items():
            where = escape(" and ".join(map(str, paths)))
            rejected = sum(
                finding.count
                for finding in corpus_report.findings
                if finding.kind == "rejected" and finding.corpus == name
            )
            missing = f"; {rejected:,} unreadable lines are not in it" if rejected else ""
            console.print(f"  {name}: {after:,} of {before:,} pairs written to {where}{missing}", soft_wrap=True)
        levels = [finding.level for finding in corpus_report.findings]
        counts = ", ".join(f"{levels.count(level)} {level}{'s' * (levels.count(level) != 1)}" for level in LEVEL_MARKS)
        chosen = {"--pair": [pair], "--columns": [columns], "--sheet": [sheet], "--input": [input]}
        options = list_options(chosen) + list_options({"--validation": validation, "--test": test, "--set": sets})
        following = escape(next_step(files, options, corpus_report.has_errors, bool(repaired), can_repair(settings)))
        console.print(f"[bold]{counts}.[/] Next: {following}", soft_wrap=True)
    if corpus_report.has_errors:
        raise typer.Exit(3)


def list_options(values: Mapping[str, Sequence[str | None]]) -> list[str]:
    """{"--pair": ["en-de"], "--sheet": [None]} -> ["--pair", "en-de"]"""
    return [word for option, chosen in values.items() for value in chosen if value for word in (option, value)]


def next_step(files: list[str], options: list[str], has_errors: bool, is_fixed: bool, can_fix: bool) -> str:
    is_toml = files[0].endswith(".toml")
    if is_fixed:
        return "check the cleaned files and " + ("list them in your heedful.toml" if is_toml else "train on them")
    if has_errors and not can_fix:
        return "fix the errors, and check again"
    if has_errors:
        return f"fix the errors, or run: {shlex.join(['heedful', *sys.argv[1:], '--fix'])}"
    if is_toml:
        return shlex.join(["heedful", "prepare", files[0]])
    return shlex.join(["heedful", "train", *files, *options, "--out", "my-model", "--time", "40m"])


def print_report(console: "Console", settings: "Settings", report: "Report") -> None:
    """Print the number of pairs, the findings and the checks that passed."""
    from rich.markup import escape

    has_unicode = (console.encoding or "").lower().startswith("utf")
    console.print(f"[bold]heedful check[/]  {settings.source} {'→' if has_unicode else '->'} {settings.target}")
    width = max(map(len, report.pairs))
    for name, pairs in report.pairs.items():
        layout = f"  [dim]{escape(escape_invisible(report.layouts[name]))}[/]" if name in report.layouts else ""
        console.print(f"  {name:{width}}  {pairs:>12,} pairs{layout}", soft_wrap=True)
    console.print()
    for finding in report.findings:
        print_finding(console, finding, has_unicode)
    kinds = {finding.kind for finding in report.findings}
    passed = " · ".join(
        text for text, faults in PASSED_CHECKS.items() if kinds.isdisjoint(faults) and faults[0] not in report.unchecked
    )
    console.print(f"  [green]{'✔' if has_unicode else 'ok'}[/] {passed}", soft_wrap=True)
    if report.tokens:
        languages = {"source": settings.source, "target": settings.target}
        per_word = [
            f"{report.tokens[side]:.2f} {{}}of {languages[side]}" for side in languages if side in report.tokens
        ]
        console.print(
            "  [dim]with a vocabulary trained with these settings: "
            f"{', '.join(per_word).format('tokens per word ', *[''] * len(per_word))}; "
            f"{report.tokens['unknown']:.2%} of the tokens are unknown or spelled in bytes[/]",
            soft_wrap=True,
        )


def print_finding(console: "Console", finding: "Finding", has_unicode: bool) -> None:
    """Print place, sample, cause and fix of a finding; a note is one line."""
    from rich.markup import escape
    from rich.padding import Padding

    rule = finding.rule
    unicode_mark, ascii_mark, style = LEVEL_MARKS[finding.level]
    mark = f"[{style}]{unicode_mark if has_unicode else ascii_mark} {finding.level}[/]"
    count = f"{finding.count:,} ({finding.share:.2%}) in {finding.corpus}" if finding.count else ""
    numbers = ", ".join(map(str, finding.lines[:MAX_SHOWN_LINES])) + (", …" if finding.count > MAX_SHOWN_LINES else "")
    where = f"{Path(finding.file).name}:{numbers}" if finding.file else ""
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
    for label, text in (("likely", rule.cause), ("fix", rule.fix)):
        console.print(Padding(f"[dim]{label}:[/] {escape(text)}", (0, 0, 0, 6), expand=False))
    console.print()

"""`heedful lab`: run experiments that test the claims of the lectures, and compare their results."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.errors import ConfigError
from heedful.text.normalize import escape_invisible

if TYPE_CHECKING:
    from rich.console import Console

    from heedful.lab.experiment import Report
    from heedful.lab.outcome import Outcome, ResultTable

COMPARE = "compare"


def lab(
    experiment: str | None = typer.Argument(
        None, help="Name, such as X1; the path of your own experiment, a .py file; or compare."
    ),
    files: list[str] = typer.Argument(None, help="For compare: the .json files of several runs of one experiment."),
    quick: bool = typer.Option(False, "--quick", help="A small version, which takes seconds."),
    long: bool = typer.Option(False, "--long", help="A large version, if the experiment has one."),
    seed: int = typer.Option(1, "--seed", min=0, help="Seed of all random numbers."),
    out: str = typer.Option("lab", "--out", help="Directory for results, figure and page."),
) -> None:
    """Test a claim of the lectures with an experiment; without arguments, list all experiments.

    \b
      heedful lab                           list the experiments
      heedful lab X1 --quick                run one: table, figure, page and verdict
      heedful lab X1 --seed 2 --out results
      heedful lab compare lab/X1-quick-seed1.json lab/X1-quick-seed2.json
      heedful lab my_experiment.py          run your own
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    if experiment is None:
        print_list()
    elif experiment == COMPARE:
        print_comparison(files or [])
    elif files:
        raise ConfigError(
            f"unexpected argument `{files[0]}`: run one experiment at a time; for results, use heedful lab compare"
        )
    elif quick and long:
        raise ConfigError("--quick and --long exclude each other: pass one of them")
    else:
        run_experiment(experiment, "quick" if quick else "long" if long else "default", seed, Path(out))


def print_list() -> None:
    from heedful.lab.api import list_experiments

    for name, experiment in list_experiments().items():
        sizes = f" [{', '.join(experiment.sizes)}]" if "long" in experiment.sizes else ""
        typer.echo(f"{name:4} {experiment.claim}{sizes}")
    typer.echo("Next: heedful lab X1 --quick")


def run_experiment(experiment: str, size: str, seed: int, out: Path) -> None:
    """Print claim, table, checks and verdict, and write the files."""
    from rich.console import Console

    from heedful.lab.api import SIZES, find_name, find_settings, load_experiment, run, write_outcome

    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file: pass a directory")
    name = find_name(experiment)
    loaded = load_experiment(name)
    (chosen,) = (each for each in SIZES if each == size)
    find_settings(name, loaded, chosen)  # before the claim is printed
    typer.echo(f"Claim: {loaded.claim}")
    console = Console(highlight=False)
    outcome = run(name, size=chosen, seed=seed, report=make_reporter())
    print_table(console, outcome.findings.table)
    print_checks(outcome)
    paths = write_outcome(outcome, out)
    typer.echo(f"{outcome.seconds:.0f} s; {', '.join(map(str, paths))}")
    again = shlex.join(["heedful", "lab", experiment, *([f"--{size}"] if size != "default" else [])])
    typer.echo(f"Next: {again} --seed {seed + 1}, then compare both with heedful lab compare")


def make_reporter() -> "Report":
    """A function that prints the progress every few seconds."""
    from heedful.cli.streams import ProgressReporter

    reporter = ProgressReporter()

    def report(what: str, done: int, total: int) -> None:
        if reporter.is_report_due():
            typer.echo(f"heedful: {what}: {done:,} of {total:,}", err=True)

    return report


def print_checks(outcome: "Outcome") -> None:
    for check in outcome.findings.checks:
        typer.echo(f"{'yes' if check.holds else 'no '}  {escape_invisible(check.statement)}")
    for note in outcome.findings.notes:
        typer.echo(f"     {escape_invisible(note)}")
    typer.echo(f"Verdict: {outcome.findings.verdict}")


def print_comparison(files: list[str]) -> None:
    """Print the results of several runs side by side."""
    from rich.console import Console

    from heedful.lab.api import compare

    comparison = compare([Path(file) for file in files])
    console = Console(highlight=False)
    typer.echo(f"Experiment {comparison.experiment}")
    print_table(console, comparison.verdicts)
    if comparison.settings.rows:
        print_table(console, comparison.settings)
    print_table(console, comparison.table)


def print_table(console: "Console", table: "ResultTable") -> None:
    from rich.table import Table
    from rich.text import Text

    from heedful.lab.outcome import format_cell

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in table.columns:
        drawn.add_column(Text(escape_invisible(column)))
    for row in table.rows:
        drawn.add_row(*(Text(escape_invisible(format_cell(cell))) for cell in row))
    console.print(drawn)

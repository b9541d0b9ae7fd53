"""Run experiments by name, by path or as objects; store and compare their outcomes.

outcome = run("X1", size="quick", seed=2)
outcome.findings.verdict                             # confirmed, not confirmed or depends
paths = write_outcome(outcome, Path("lab"))          # the JSON file, the figure and the page
"""

import importlib.util
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

from heedful import __version__
from heedful.corpus.text_files import suggest_path
from heedful.errors import ConfigError, HeedfulError, did_you_mean, require
from heedful.files import replace_text
from heedful.html import write_html
from heedful.lab.experiment import Experiment, Lab, Report, ignore_progress
from heedful.lab.experiments import EXPERIMENTS
from heedful.lab.figure import draw_svg
from heedful.lab.outcome import Estimate, Findings, Outcome, ResultTable, Size
from heedful.lab.page import render_page

SIZES: tuple[Size, ...] = ("quick", "default", "long")


def list_experiments() -> dict[str, Experiment]:
    """All experiments that come with heedful, by name."""
    return {name: load_experiment(name) for name in EXPERIMENTS}


def find_name(experiment: str) -> str:
    """The name of an experiment in any case, or the path of a Python file."""
    if experiment.upper() in EXPERIMENTS:
        return experiment.upper()
    if experiment.endswith(".py") or Path(experiment).is_file():
        return experiment
    raise ConfigError(f"there is no experiment `{experiment}`{did_you_mean(experiment.upper(), EXPERIMENTS)}")


def load_experiment(name: str) -> Experiment:
    """The experiment of this name, or that of a Python file."""
    require("torch", extra="train", whose="heedful lab")
    if name in EXPERIMENTS:
        module = import_module(f"heedful.lab.experiments.{EXPERIMENTS[name]}")
        experiment: Experiment = module.EXPERIMENT
        return experiment
    return load_file(Path(name))


def load_file(path: Path) -> Experiment:
    """Import a Python file and return its EXPERIMENT."""
    if not path.is_file():
        raise ConfigError(f"there is no file {path}{suggest_path(path)}")
    spec = importlib.util.spec_from_file_location("heedful_lab_experiment", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file: an experiment is a file that ends with .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except HeedfulError:
        raise
    except Exception as error:
        raise HeedfulError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    experiment = getattr(module, "EXPERIMENT", None)
    if not isinstance(experiment, Experiment):
        raise ConfigError(
            f"{path} defines no experiment: set EXPERIMENT = Experiment(title=.., claim=.., sizes=.., function=..)"
        )
    if missing := [size for size in ("quick", "default") if size not in experiment.sizes]:
        raise ConfigError(f"the experiment of {path} has no size `{missing[0]}`: add its settings to `sizes`")
    return experiment


def find_settings(name: str, experiment: Experiment, size: Size) -> Mapping[str, Any]:
    """The settings of a size; ConfigError if the experiment does not have it."""
    if size not in experiment.sizes:
        raise ConfigError(f"{name} has no {size} version; sizes of {name}: {', '.join(experiment.sizes)}")
    return experiment.sizes[size]


def run(
    experiment: str, *, size: Size = "default", seed: int = 1, report: Report = ignore_progress, **settings: Any
) -> Outcome:
    """Run an experiment by name or by path; `settings` override those of its size."""
    name = find_name(experiment)
    loaded = load_experiment(name)
    chosen = {**find_settings(name, loaded, size), **settings}
    start = time.perf_counter()
    findings = loaded.function(Lab(seed, report), **chosen)
    if not isinstance(findings, Findings):
        raise HeedfulError(f"the function of {name} must return Findings, but returned {type(findings).__name__}")
    if not findings.checks:
        raise HeedfulError(f"the findings of {name} have no checks: without checks there is no verdict")
    return Outcome(
        experiment=name if name in EXPERIMENTS else Path(name).stem,
        claim=loaded.claim,
        size=size,
        seed=seed,
        settings=chosen,
        findings=findings,
        seconds=round(time.perf_counter() - start, 1),
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        machine=f"{platform.machine()}, {os.cpu_count()} cores, {num_threads()}, {platform.system()}",
        versions={"heedful": __version__, "torch": torch_version(), "python": platform.python_version()},
    )


def num_threads() -> str:
    """Of PyTorch, if an experiment used it."""
    count = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else 1
    return f"{count} thread{'s' if count != 1 else ''}"


def torch_version() -> str:
    return str(getattr(sys.modules.get("torch"), "__version__", "none"))


def write_outcome(outcome: Outcome, folder: Path) -> tuple[Path, Path, Path]:
    """Write the results as JSON, the figure as SVG and the page as HTML; return the three paths."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{outcome.experiment}-{outcome.size}-seed{outcome.seed}"
    data, figure, page = (folder / f"{stem}.{suffix}" for suffix in ("json", "svg", "html"))
    replace_text(data, outcome.to_json(), durable=False)
    replace_text(figure, draw_svg(outcome.findings.chart), durable=False)
    write_html(page, render_page(outcome))
    return data, figure, page


# ---------------------------------------------------------------------------------------------------------- comparison


@dataclass(frozen=True, slots=True)
class LabComparison:
    """Outcomes of one experiment side by side."""

    experiment: str
    verdicts: ResultTable  # of each run
    settings: ResultTable  # those that differ
    table: ResultTable  # every estimate in each run, and whether the intervals of all runs overlap


def compare(paths: Sequence[Path]) -> LabComparison:
    """Compare the outcomes that several people or seeds had."""
    if len(paths) < 2:
        raise ConfigError("nothing to compare: pass two or more .json files, as in heedful lab compare a.json b.json")
    for path in paths:
        if not path.is_file():
            raise ConfigError(f"there is no file {path}{suggest_path(path)}")
    outcomes = [Outcome.load(path) for path in paths]
    first = outcomes[0]
    for path, outcome in zip(paths, outcomes, strict=True):
        if outcome.experiment != first.experiment:
            raise ConfigError(
                f"{paths[0]} is of experiment {first.experiment}, but {path} of {outcome.experiment}: "
                "compare results of one experiment"
            )
    numbers = tuple(f"run {number}" for number in range(1, len(paths) + 1))
    facts = [{"size": each.size, "seed": each.seed, **each.settings, **each.versions} for each in outcomes]
    keys = list(dict.fromkeys(key for each in facts for key in each))
    differing = [
        (key, *(str(each.get(key, "")) for each in facts))
        for key in keys
        if len({str(each.get(key, "")) for each in facts}) > 1
    ]
    return LabComparison(
        first.experiment,
        ResultTable(
            ("", "file", "verdict"),
            tuple(
                (number, str(path), outcome.findings.verdict)
                for number, path, outcome in zip(numbers, paths, outcomes, strict=True)
            ),
        ),
        ResultTable(("setting", *numbers), tuple(differing)),
        ResultTable(("", *numbers, "intervals"), tuple(compare_rows([each.findings.table for each in outcomes]))),
    )


def compare_rows(tables: Sequence[ResultTable]) -> list[tuple[str | Estimate, ...]]:
    """One row for every estimate that all tables have."""
    labeled = [label_estimates(table) for table in tables]
    rows: list[tuple[str | Estimate, ...]] = []
    for label in labeled[0]:
        if all(label in each for each in labeled):
            estimates = [each[label] for each in labeled]
            agree = all(first.overlaps(second) for first, second in combinations(estimates, 2))
            rows.append((label, *estimates, "overlap" if agree else "apart"))
    return rows


def label_estimates(table: ResultTable) -> dict[str, Estimate]:
    """The estimates of a table, named by the other cells of their row and by their column."""
    labeled = {}
    for row in table.rows:
        name = ", ".join(str(cell) for cell in row if isinstance(cell, str | int))
        for column, cell in zip(table.columns, row, strict=True):
            if isinstance(cell, Estimate):
                labeled[f"{name}: {column}" if name else column] = cell
    return labeled

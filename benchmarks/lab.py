"""Run the experiments of heedful lab, one after another.

Claims: the first check of each experiment, the effect that its claim is about, holds. Other checks may fail: the
verdict is then "depends".

    python benchmarks/lab.py [--quick] [--long] [--sabotage] [--only X1 ...] [--seed 1] [--out DIR]

--quick: the quick version of all; --long: the long version of those that have one; --sabotage: with settings that
switch the effects off, which must then not be found. With --out, the results are stored there; those of --quick
--seed 1 also update the table and the figures of docs/lab.md.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from heedful.lab.api import list_experiments, run, write_outcome
from heedful.lab.figure import draw_svg
from heedful.lab.outcome import Outcome, Size
from report import header, processor, verdict

ROOT = Path(__file__).resolve().parents[1]
PAGE, FIGURES = ROOT / "docs" / "lab.md", ROOT / "docs" / "images" / "lab"
RESULTS = ROOT / "benchmarks" / "results" / "lab"
BEGIN, END = "<!-- verdicts -->\n", "<!-- the end of the verdicts -->\n"
SHOWN = "*-quick-seed1.json"  # on the page
NOT_CLAIMED: Mapping[str, str] = {}  # experiments whose effect is not confirmed -> why


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="the quick version of every experiment")
    options.add_argument("--long", action="store_true", help="the long version of those that have one")
    options.add_argument("--sabotage", action="store_true", help="switch the effects off")
    options.add_argument("--only", nargs="+", metavar="NAME", help="only these experiments")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--out", type=Path, metavar="DIR", help="store the results there")
    given = options.parse_args()
    header(__file__)
    size: Size = "quick" if given.quick else "long" if given.long else "default"
    claims = []
    for name, experiment in list_experiments().items():
        if (given.only and name not in given.only) or size not in experiment.sizes:
            continue
        outcome = run(name, size=size, seed=given.seed, **(experiment.sabotage if given.sabotage else {}))
        print(f"{name:4} {outcome.findings.verdict:13} {outcome.seconds:6.1f} s  {outcome.claim}", flush=True)
        for check in outcome.findings.checks:
            print(f"     {'yes' if check.holds else 'no '}  {check.statement}", flush=True)
        if given.sabotage:
            is_unconfirmed = outcome.findings.verdict == "not confirmed"
            claims.append((f"{name}: no effect is found when it is switched off", float(is_unconfirmed), 1.0))
            continue
        if given.out:
            store(outcome, given.out)
        if name not in NOT_CLAIMED:
            claims.append((f"{name}: the effect is found", float(outcome.findings.checks[0].holds), 1.0))
    if given.out and not given.sabotage and given.out.resolve() == RESULTS:
        update_page()
    return verdict(claims)


def store(outcome: Outcome, folder: Path) -> None:
    """Store the results of an experiment, with the name of the processor; figure and page can be made from them."""
    data, *others = write_outcome(replace(outcome, machine=f"{processor()}, {outcome.machine}"), folder)
    for path in others:
        path.unlink()
    print(f"     {data}", flush=True)


def load_shown() -> dict[str, Outcome]:
    """The outcomes that docs/lab.md shows, in the order of the experiments."""
    outcomes = [Outcome.load(path) for path in RESULTS.glob(SHOWN)]
    order = list(list_experiments())
    return {each.experiment: each for each in sorted(outcomes, key=lambda each: order.index(each.experiment))}


def render_table(outcomes: Mapping[str, Outcome]) -> str:
    """The table of docs/lab.md, and the figures below it."""
    lines = ["| | claim | verdict | the effect |", "|---|---|---|---|"]
    for name, outcome in outcomes.items():
        findings = outcome.findings
        lines.append(f"| {name} | {outcome.claim} | {findings.verdict} | {findings.checks[0].statement} |")
    for name, outcome in outcomes.items():
        lines += ["", f"![{name}: {outcome.findings.chart.title}](images/lab/{name}.svg)"]
    return "\n".join(lines) + "\n"


def update_page() -> None:
    """Write the table and the figures of docs/lab.md again."""
    outcomes = load_shown()
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}{render_table(outcomes)}{END}{after}", encoding="utf-8")
    FIGURES.mkdir(parents=True, exist_ok=True)
    for name, outcome in outcomes.items():
        (FIGURES / f"{name}.svg").write_text(draw_svg(outcome.findings.chart), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

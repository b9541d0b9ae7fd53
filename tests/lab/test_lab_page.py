"""docs/lab.md shows the verdicts and the figures of the stored results, and every experiment is on it."""

import importlib.util
import sys
from pathlib import Path

import pytest

from heedful.lab.experiments import EXPERIMENTS
from heedful.lab.figure import draw_svg

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("benchmark_lab", ROOT / "benchmarks" / "lab.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("report", None)  # it would hide other modules of that name


def test_the_page_shows_the_stored_results(benchmark):
    outcomes = benchmark.load_shown()
    assert list(outcomes) == list(EXPERIMENTS), "run python benchmarks/lab.py --quick --out benchmarks/results/lab"
    text = benchmark.PAGE.read_text(encoding="utf-8")
    assert text.partition(benchmark.BEGIN)[2].partition(benchmark.END)[0] == benchmark.render_table(outcomes)
    for name, outcome in outcomes.items():
        assert (outcome.size, outcome.seed) == ("quick", 1)
        assert outcome.date
        assert outcome.machine
        svg = (benchmark.FIGURES / f"{name}.svg").read_text(encoding="utf-8")
        assert svg == draw_svg(outcome.findings.chart)


def test_what_is_not_confirmed_is_listed_with_its_reason(benchmark):
    verdicts = {name: outcome.findings.verdict for name, outcome in benchmark.load_shown().items()}
    assert set(benchmark.NOT_CLAIMED) == {name for name, found in verdicts.items() if found == "not confirmed"}
    text = benchmark.PAGE.read_text(encoding="utf-8")
    for name, verdict in verdicts.items():
        if verdict != "confirmed":
            assert f"**{name}" in text, f"docs/lab.md does not say what was tried for {name}"

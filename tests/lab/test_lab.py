"""The lab without training: estimates, verdicts, stored outcomes, figures, comparisons, and the command line."""

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from heedful.cli.app import app
from heedful.errors import HeedfulError
from heedful.lab import Chart, Check, Estimate, Findings, Lab, ResultTable, Series, estimate_mean, estimate_share
from heedful.lab.api import compare, list_experiments, load_experiment, run, write_outcome
from heedful.lab.experiments import EXPERIMENTS
from heedful.lab.figure import draw_svg
from heedful.lab.outcome import Outcome, estimate_difference, estimate_slope
from heedful.lab.page import render_page

command = CliRunner().invoke
COIN = """
import random
from heedful.lab import Chart, Check, Experiment, Findings, ResultTable, Series, estimate_share


def toss(lab, *, tosses, bias=0.7):
    draw = random.Random(lab.seed)
    report = lab.progress("tosses")
    heads = 0
    for toss in range(tosses):
        heads += draw.random() < bias
        report(toss + 1, tosses)
    share = estimate_share(heads, tosses)
    return Findings(
        ResultTable(("coin", "heads"), (("mine", share), ("count", heads))),
        Chart("Heads", "coin", "share", (Series("mine", (("mine", share),)),)),
        (Check(f"heads are more frequent: {share}", share.low > 0.5),),
        ("One coin.",),
    )


EXPERIMENT = Experiment(
    title="a coin",
    claim="My coin is <biased>.",
    sizes={"quick": {"tosses": 200}, "default": {"tosses": 2000}},
    function=toss,
)
"""


@pytest.fixture
def coin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("coin.py").write_text(COIN, encoding="utf-8")
    return tmp_path


# ----------------------------------------------------------------------------------------------------------- estimates


def test_a_mean_has_student_s_interval():
    found = estimate_mean([1.0, 2.0, 3.0, 4.0])  # s = 1.29099, t_3 = 3.182
    assert found.value == 2.5
    assert found.high - found.value == pytest.approx(3.182 * 1.29099 / 2, abs=1e-3)
    many = estimate_mean([0.0, 1.0] * 500)
    assert many.high - many.value == pytest.approx(1.9623 * 0.5 / math.sqrt(999), abs=1e-4)
    assert str(Estimate(0.5, 0.4, 0.6)) == "0.500 ±0.100"
    assert str(Estimate(0.5, 0.2, 0.6)) == "0.500 (0.200 to 0.600)"


def test_a_share_has_wilson_s_interval():
    found = estimate_share(5, 10)  # as in textbooks: 0.237 to 0.763
    assert (found.low, found.high) == pytest.approx((0.2366, 0.7634), abs=1e-3)
    for successes, share in ((0, 0.0), (4, 1.0)):
        edge = estimate_share(successes, 4)
        assert edge.value == share
        assert 0 <= edge.low <= share <= edge.high <= 1
        assert edge.high - edge.low == pytest.approx(0.49, abs=0.01)


def test_differences_and_slopes():
    found = estimate_difference(Estimate(5, 2, 8), Estimate(1, -3, 5))
    assert (found.value, found.low, found.high) == (4, -1, 9)  # margins 3 and 4 make 5
    line = estimate_slope([0, 1, 2, 3], [1, 3, 5, 7])
    assert (line.value, line.low, line.high) == pytest.approx((2, 2, 2))
    bent = estimate_slope([0, 1, 2], [0, 1, 5])
    assert bent.value == pytest.approx(2.5)
    assert bent.low < 0 < bent.high  # one degree of freedom


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [
        ((True, True), "confirmed"),
        ((True, False), "depends"),
        ((False, True), "not confirmed"),
        ((False,), "not confirmed"),
    ],
)
def test_the_verdict_follows_from_the_checks(holds, verdict):
    chart = Chart("", "", "", ())
    findings = Findings(ResultTable((), ()), chart, tuple(Check(str(index), held) for index, held in enumerate(holds)))
    assert findings.verdict == verdict


# ------------------------------------------------------------------------------------------------------------- figures


def make_chart(**options):
    points = ((1, Estimate(0.5, 0.4, 0.6)), (10, Estimate(2, 1, 4)), (100, Estimate(math.nan, 0, 0)))
    return Chart("A <b> & c", "x", "y", (Series("one", points), Series("two", points[:2])), **options)


@pytest.mark.parametrize("options", [{}, {"log_x": True}, {"log_x": True, "log_y": True}])
def test_a_figure_is_a_file_of_its_own(options):
    svg = draw_svg(make_chart(**options))
    tree = ElementTree.fromstring(svg)
    circles = [node for node in tree.iter() if node.tag.endswith("circle")]
    assert len(circles) == 4  # a value that is not finite is left out
    assert svg.count("<polyline") == 2
    places = [(float(node.get("cx")), float(node.get("cy"))) for node in circles]
    assert all(0 <= x <= 640 and 0 <= y <= 420 for x, y in places)
    assert places[0][1] > places[1][1]  # larger is higher
    assert "A &lt;b&gt; &amp; c" in svg


def test_categories_are_points_without_lines():
    points = (("left", Estimate(1, 0, 2)), ("right", Estimate(-1, -2, 0)))
    svg = draw_svg(Chart("t", "x", "y", (Series("one", points), Series("two", points[:1]))))
    assert "<polyline" not in svg
    assert svg.count("<circle") == 3
    assert ">left</text>" in svg


def test_long_categories_have_two_lines():
    names = ("sinusoidal positions", "no positions", *"abcdef")
    points = tuple((name, Estimate(1, 0, 2)) for name in names)
    svg = draw_svg(Chart("t", "x", "y", (Series("one", points),)))
    assert ">sinusoidal</text>" in svg
    assert ">a</text>" in svg
    wide = draw_svg(Chart("t", "x", "y", (Series("one", points[:2]),)))
    assert ">sinusoidal positions</text>" in wide


# ----------------------------------------------------------------------------------------------------------- own files


def test_an_experiment_of_one_s_own(coin):
    shown = command(app, ["lab", "coin.py", "--quick", "--seed", "3", "--out", "results"])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("Claim: My coin is <biased>.\n")
    assert "yes  heads are more frequent: 0." in shown.stdout
    assert "Verdict: confirmed\n" in shown.stdout
    assert "Next: heedful lab coin.py --quick --seed 4" in shown.stdout
    data, page, figure = (coin / "results" / f"coin-quick-seed3.{suffix}" for suffix in ("json", "html", "svg"))
    outcome = Outcome.load(data)
    assert (outcome.experiment, outcome.size, outcome.seed, outcome.settings) == ("coin", "quick", 3, {"tosses": 200})
    assert outcome.findings.verdict == "confirmed"
    assert json.loads(data.read_text())["findings"]["table"]["columns"] == ["coin", "heads"]
    text = page.read_text(encoding="utf-8")
    assert "My coin is &lt;biased&gt;." in text
    assert "Verdict: confirmed" in text
    assert "One coin." in text
    assert figure.read_text(encoding="utf-8").strip() in text
    assert render_page(outcome) == text
    fair = command(app, ["lab", "coin.py", "--quick"])
    assert fair.exit_code == 0
    assert (coin / "lab" / "coin-quick-seed1.json").is_file()


def test_settings_can_be_overridden_and_progress_is_reported(coin):
    steps = []
    outcome = run("coin.py", size="quick", seed=2, report=lambda *step: steps.append(step), bias=0.3)
    assert outcome.findings.verdict == "not confirmed"
    assert outcome.settings == {"tosses": 200, "bias": 0.3}
    assert steps[0] == ("tosses", 1, 200)
    assert len(steps) == 200
    Lab().progress("nothing")(1, 2)


def test_outcomes_of_several_runs_are_compared(coin):
    paths = []
    for number, (seed, bias) in enumerate(((1, 0.7), (2, 0.7), (3, 0.1))):
        data, _, _ = write_outcome(run("coin.py", size="quick", seed=seed, bias=bias), Path(f"run{number}"))
        paths.append(data)
    both = compare(paths[:2])
    assert both.experiment == "coin"
    assert [row[-1] for row in both.verdicts.rows] == ["confirmed", "confirmed"]
    assert both.settings.rows == (("seed", "1", "2"),)
    assert [row[0] for row in both.table.rows] == ["mine: heads"]
    assert both.table.rows[0][-1] == "overlap"
    assert compare(paths).table.rows[0][-1] == "apart"
    shown = command(app, ["lab", "compare", *map(str, paths)])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("Experiment coin\n")
    assert "not confirmed" in shown.stdout
    assert "apart" in shown.stdout
    assert "bias" in shown.stdout


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["X66"], "there is no experiment `X66`; did you mean `X6`?"),
        (["beam"], "there is no experiment `beam`; known: X"),
        (["con.py"], "there is no file con.py; did you mean `coin.py`?"),
        (["X1", "X6"], "unexpected argument `X6`: run one experiment at a time; for results, use heedful lab compare"),
        (["X1", "--quick", "--long"], "--quick and --long exclude each other: pass one of them"),
        (["X10", "--long"], "X10 has no long version; sizes of X10: quick, default"),
        (["coin.py", "--out", "coin.py"], "--out coin.py is a file: pass a directory"),
        (["text.txt"], "text.txt is not a Python file: an experiment is a file that ends with .py"),
        (["broken.py"], "broken.py cannot be imported: ZeroDivisionError: division by zero"),
        (["empty.py"], "empty.py defines no experiment: set EXPERIMENT = Experiment(title=.., claim=.."),
        (["one_size.py"], "the experiment of one_size.py has no size `default`: add its settings to `sizes`"),
        (["number.py"], "the function of number.py must return Findings, but returned int"),
        (["unchecked.py"], "the findings of unchecked.py have no checks: without checks there is no verdict"),
        (["compare", "coin.py"], "nothing to compare: pass two or more .json files"),
        (["compare", "a.json", "b.json"], "there is no file a.json"),
        (["compare", "other.json", "other.json"], "other.json is not a result of heedful lab"),
        (["compare", "1.json", "2.json"], "1.json is of experiment coin, but 2.json of dice: compare results of one"),
    ],
)  # fmt: skip
def test_misuse_says_what_to_do(coin, arguments, says):
    Path("text.txt").write_text("text")
    Path("broken.py").write_text("1 / 0")
    Path("empty.py").write_text("EXPERIMENT = 3")
    Path("one_size.py").write_text(COIN.replace('"default": {"tosses": 2000}', ""))
    Path("number.py").write_text(COIN.replace("return Findings(", "return 3\n    Findings("))
    Path("unchecked.py").write_text(COIN.replace("(Check(f", "() and (Check(f"))
    Path("other.json").write_text('{"experiment": "X1"}')
    stored = run("coin.py", size="quick").to_json()
    Path("1.json").write_text(stored, encoding="utf-8")
    Path("2.json").write_text(stored.replace('"experiment": "coin"', '"experiment": "dice"'), encoding="utf-8")
    shown = command(app, ["lab", *arguments])
    assert shown.exit_code != 0
    assert isinstance(shown.exception, HeedfulError)
    assert str(shown.exception).startswith(says)
    assert "--long" not in arguments or "Claim" not in shown.output


def test_a_file_that_raises_our_errors_keeps_their_message(coin):
    Path("needy.py").write_text("from heedful.errors import HeedfulError\nraise HeedfulError('mine')")
    with pytest.raises(HeedfulError, match=r"^mine$"):
        load_experiment("needy.py")


# ------------------------------------------------------------------------------------------------------------ the list


def test_the_list_has_every_experiment_with_its_claim():
    shown = command(app, ["lab"])
    assert shown.exit_code == 0, shown.output
    for name, experiment in list_experiments().items():
        assert f"{name:4} {experiment.claim}" in shown.stdout
        assert experiment.claim.endswith(".")
        assert experiment.claim.count(".") == 1, "one sentence"
        assert {"quick", "default"} <= experiment.sizes.keys()
    assert {name for name, experiment in list_experiments().items() if "long" in experiment.sizes} >= {"X1", "X6"}
    assert load_experiment("X1") is list_experiments()["X1"]


def test_every_experiment_is_in_the_table():
    folder = Path(__file__).parents[2] / "src" / "heedful" / "lab" / "experiments"
    assert sorted(EXPERIMENTS.values()) == sorted(path.stem for path in folder.glob("x*.py"))

"""docs/benchmarks.md says what was measured: the numbers of its tables stand in the results that they cite.

A table cites what its row names (`benchmarks/x.py`), or else what the text since the last heading or bold beginning
names; a script stands for the results it wrote. A number of a cell is there if a number of these files rounds to it
(per cent of a share, GB of MB, millions of ones); what was hoped for is not looked up. What is not there is worked out
from them, or is no figure: it is in APART with the reason, and has to leave APART when it is there, or gone.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGE, BENCHMARKS = ROOT / "docs" / "benchmarks.md", ROOT / "benchmarks"
RESULTS = sorted((BENCHMARKS / "results").glob("*.txt"))
SCRIPTS = {path.stem for path in BENCHMARKS.glob("*.py")}
NUMBER = re.compile(r"(?<![\w.,])(?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?(?:e-?\d+)?(?!\w|[.,]\d)")
CITED = re.compile(r"`(?:benchmarks/)?(?:results/)?([\w*]+)\.(py|txt)`")
UNITS = {" %": 2, " GB": -3, " M": -6}  # what follows a number -> the power of ten between it and the file's
HEADER = re.compile(r"^# (?:date|command|commit|machine|torch) .*$", re.MULTILINE)
AIMS = "target"

APART = {
    ("faults planted", "20"): "how many lines a planted shift has at least",
    ("faults planted", "297,050"): "31,014 + 218,556 + 47,480 pairs",
    ("1 M pairs", "24"): "the kinds of hostile lines that the file lists",
    ("Hugging Face `generate`", "64"): "what was asked of generate",
    ("throughput over HTTP", "0.88"): "the least of seven ratios, 191 / 218",
    ("throughput over HTTP", "1.06"): "the largest of seven ratios, 247 / 232",
    ("the same with one sentence per request", "256"): "how many clients there were",
    ("the same: 830 requests meanwhile", "830"): "815 + 15",
    ("maps of encoder", "144"): "3 x 6 x 8 heads",
    ("scrubbing a sentence", "11"): "how many rounds there were",
    **dict.fromkeys(
        (
            *(("joined lines that lost a sentence, of 50", number) for number in ("19", "15")),
            ("altered placeholders and tags, of 40", "36"),
        ),
        "measured with an earlier commit; its output is not in results",
    ),
    **dict.fromkeys(
        (
            *(("`heedful[serve]`", number) for number in ("34", "315")),
            *(("LibreTranslate 1.9.6", number) for number in ("66", "575")),
            *(("eole 0.6.4", number) for number in ("100", "119", "1,865", "6,429")),
        ),
        "sizes of installs, counted by hand: no script printed them",
    ),
}


class Figure(NamedTuple):
    """A number of a table: its line in the page, what its row begins with, and the files it should be in."""

    line: int
    row: str
    text: str
    power: int
    files: tuple[Path, ...]


def results_of(name: str, kind: str) -> list[Path]:
    """results/x.txt; of x.py all that it wrote: x.txt, x_tiny.txt, but not what a script x_tiny.py wrote."""
    if kind == "txt":
        return [path for path in RESULTS if path.stem == name]
    wanted = {script for script in SCRIPTS if re.fullmatch(name.replace("*", r"\w+"), script)}
    return [path for path in RESULTS if writer(path.stem) in wanted]


def writer(stem: str) -> str:
    """The script with the longest name that a file of results begins with."""
    return max((one for one in SCRIPTS if stem == one or stem.startswith(f"{one}_")), key=len, default="")


def figures() -> Iterator[Figure]:
    """Every number in every cell of the page."""
    cited, head = list[Path](), list[str]()
    for at, line in enumerate(PAGE.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith(("#", "**")):
            cited = []
        named = [path for match in CITED.findall(line) for path in results_of(*match)]
        if not line.startswith("|"):
            cited, head = [*cited, *named], []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not head:
            head = cells
        elif set(line) - set("|-: "):
            for title, cell in zip(head, cells, strict=True):
                plain = re.sub(r"`[^`]*`", "", cell) if title != AIMS else ""
                for match in NUMBER.finditer(plain):
                    after = plain[match.end() :]
                    power = next((power for unit, power in UNITS.items() if after.startswith(unit)), 0)
                    yield Figure(at, cells[0], match[0], power, tuple(named or cited))


def value(text: str) -> tuple[float, int]:
    """A number, and how many digits it has behind the point."""
    mantissa, _, exponent = text.partition("e")
    return float(text.replace(",", "")), len(mantissa.partition(".")[2]) - int(exponent or 0)


def rounds_to(given: str, wanted: str, power: int) -> bool:
    """Whether a number of a file, itself rounded, is that of the page."""
    (have, finer), (want, digits) = value(given), value(wanted)
    have, finer = have * 10.0**power, finer - power
    room = (10.0**-digits + 10.0**-finer) / 2 if finer > digits else 0.0
    return abs(have - want) <= room + 1e-9 * want


def stands(figure: Figure) -> bool:
    """Whether it is in one of its files."""
    texts = (HEADER.sub("", path.read_text(encoding="utf-8")) for path in figure.files)
    numbers = {number for text in texts for number in NUMBER.findall(text)}
    powers = {0, figure.power}
    return any(rounds_to(number, figure.text, power) for number in numbers for power in powers)


FIGURES = list(figures())


def apart(figure: Figure) -> tuple[str, str] | None:
    return next((key for key in APART if figure.row.startswith(key[0]) and figure.text == key[1]), None)


def test_there_is_much_to_look_up():
    assert len(FIGURES) > 350


def test_every_number_of_a_table_stands_in_the_results_it_cites():
    wrong = [
        f"line {figure.line}: {figure.text} ({figure.row[:40]}) is not in "
        f"{', '.join(path.name for path in figure.files) or 'any file that is named'}"
        for figure in FIGURES
        if apart(figure) is None and not stands(figure)
    ]
    assert not wrong, "\n".join(wrong)


def test_what_is_apart_has_to_be():
    needed = {key for figure in FIGURES if (key := apart(figure)) and not stands(figure)}
    assert APART.keys() == needed, f"in no table, or in the results by now: {APART.keys() - needed}"


def test_a_wrong_number_would_mostly_be_found():
    """Change the last digit of a figure: at least three of four are then in none of their files."""
    good = [figure for figure in FIGURES if re.search(r"\.\d+$", figure.text) and apart(figure) is None]
    moved = [figure._replace(text=figure.text[:-1] + str((int(figure.text[-1]) + 5) % 10)) for figure in good]
    assert len(moved) > 150
    assert sum(map(stands, moved)) < len(moved) / 4


@pytest.mark.parametrize(
    ("given", "wanted", "power", "so"),
    [
        ("0.9690", "96.9", 2, True),
        ("5,236", "5.2", -3, True),
        ("20,000,000", "20", -6, True),
        ("1.005", "1.01", 0, True),  # it may have been 1.0054
        ("1.05", "1.06", 0, False),
        ("7", "7.2", 0, False),
        ("6.9e-05", "6.9e-05", 0, True),
        ("6.8e-05", "6.9e-05", 0, False),
    ],
)
def test_rounding(given, wanted, power, so):
    assert rounds_to(given, wanted, power) == so


def test_every_plot_finds_its_figures(monkeypatch):
    pytest.importorskip("sphinx", reason="sphinx is not installed: pip install 'heedful[docs]'")
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    import plots

    text = PAGE.read_text(encoding="utf-8")
    for name, plot in plots.PLOTS.items():
        assert f"```{{bars}} {name}\n" in text, f"{name} is in no page"
        bars = plots.bars_of(name)
        drawn = plots.svg(bars, "a < b", plot.unit)
        assert len(bars) == len(plot.rows) == drawn.count("<rect")
        assert "<title>a &lt; b: " in drawn
        assert 'role="img"' in drawn
    monkeypatch.setitem(plots.PLOTS, "lost", plots.PLOTS["beam-tiny"]._replace(rows={"heedful": "", "nobody": ""}))
    for name, says in (("lost", "no figure for nobody"), ("unheard", "no such plot")):
        with pytest.raises(plots.ExtensionError, match=says):
            plots.bars_of(name)
    sys.modules.pop("plots")

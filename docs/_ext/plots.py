"""Draw bar plots at build time from the files in benchmarks/results, so that plots always show measured values.

    ```{bars} training-tiny
    The caption: what the bars are.
    ```

The pattern of a plot has the groups `name` and `value`, and optionally `low` and `high`. Every name in `rows` must
occur exactly once, or the build fails. Widths are percentages of the page, so text keeps its size on a phone.
"""

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
ROW, BAR = 40, 12  # pixels: row with its label, bar below the label
OURS = "var(--color-brand-primary, currentColor)"

SPREAD = r"(?P<value>[\d,.]+)(?: sentences/s)? +(?P<low>[\d,.]+) to (?P<high>[\d,.]+)$"
PEERS = {
    "heedful": "heedful",
    "eole": "eole",
    "huggingface": "Hugging Face",
    "joeynmt": "JoeyNMT",
    "marian": "Marian",
}
MALLOC = {f"{name} +malloc": f"{label}, + malloc" for name, label in PEERS.items() if name != "heedful"}
ENGINES = {"heedful": "heedful", "hf": "Hugging Face generate", "ctranslate2": "CTranslate2 float32"}
SERVERS = {"heedful": "heedful serve", "LibreTranslate": "LibreTranslate 1.9.6"}


class Plot(NamedTuple):
    """Which files, which of their lines, and the labels."""

    files: tuple[str, ...]
    pattern: str
    rows: Mapping[str, str]  # name in the file -> label
    unit: str = ""
    whole: float = 0.0  # minimum value of a bar as wide as the page


PLOTS = {
    "training-tiny": Plot(
        ("train_speed_peers_tiny.txt",), rf"^peers +tiny +(?P<name>\S+(?: \+malloc)?) +{SPREAD}", PEERS | MALLOC
    ),
    "training-base": Plot(("train_speed_peers_base.txt",), rf"^peers +base +(?P<name>\S+) +{SPREAD}", PEERS),
    "beam-tiny": Plot(("decode_tiny.txt",), rf"^tiny +64 +5 +(?P<name>\S+) +{SPREAD}", ENGINES),
    "beam-base": Plot(("decode_base.txt",), rf"^base +64 +5 +(?P<name>\S+) +{SPREAD}", ENGINES),
    "text-to-text": Plot(("translate_speed.txt",), rf"^(?P<name>\S+) +{SPREAD}", ENGINES),
    "overload-answered": Plot(
        ("serve_overload.txt",), r"^(?P<name>\w+): answered (?P<value>\d+) % of the capacity", SERVERS, " %", 100.0
    ),
    "overload-waits": Plot(
        ("serve_overload.txt",), r"^(?P<name>\w+): answered .* 99 % in (?P<value>[\d.]+)$", SERVERS, " s"
    ),
    "faults": Plot(
        ("kill9.txt", "faults.txt"),
        r"^ok +(?P<name>.+): (?P<value>[\d.]+) \(claimed",
        {
            "one process: kills": "kill -9 of a run of one process",
            "two processes: kills": "kill -9 of one of two processes, exact mode",
            "two, sharded: kills": "kill -9 of one of two processes, FSDP2",
            "saves broken by a failing system call": "saves broken by a failing system call",
            "checkpoints that a full disk prevented, with a warning": "saves that a full disk prevented",
            "damages detected, the one before taken": "checkpoints damaged on the disk",
        },
    ),
}


class Bar(NamedTuple):
    """One row of a picture."""

    label: str
    value: float
    spread: tuple[float, float] | None
    ours: bool  # heedful, not a peer

    def words(self, unit: str) -> str:
        """11,007 (9,689 to 14,276)"""
        return (
            short(self.value) + unit + (f" ({short(self.spread[0])} to {short(self.spread[1])})" if self.spread else "")
        )


def short(value: float) -> str:
    """11,007, 25.8, 91"""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def bars_of(name: str) -> list[Bar]:
    """Return the bars of a plot; raise if a value is missing or occurs twice in the files."""
    if name not in PLOTS:
        raise ExtensionError(f"{{bars}} {name}: no such plot; known: {', '.join(PLOTS)}")
    plot, found = PLOTS[name], dict[str, Bar]()
    text = "\n".join((RESULTS / file).read_text(encoding="utf-8") for file in plot.files)
    for match in re.finditer(plot.pattern, text, re.MULTILINE):
        groups = match.groupdict()
        row = groups["name"]
        if row in found:
            raise ExtensionError(f"{{bars}} {name}: {' and '.join(plot.files)} have `{row}` twice")
        if row in plot.rows:
            ends = tuple(number(groups[end]) for end in ("low", "high") if groups.get(end))
            spread = (ends[0], ends[1]) if len(set(ends)) == 2 else None  # a single round has no spread
            ours = row == "heedful" or "heedful" not in plot.rows
            found[row] = Bar(plot.rows[row], number(groups["value"]), spread, ours)
    if lost := plot.rows.keys() - found.keys():
        raise ExtensionError(
            f"{{bars}} {name}: {' and '.join(plot.files)} have no figure for {', '.join(sorted(lost))}"
        )
    return [found[row] for row in plot.rows]


def number(text: str) -> float:
    """1,467 -> 1467.0"""
    return float(text.replace(",", ""))


def svg(bars: list[Bar], title: str, unit: str = "", whole: float = 0.0) -> str:
    """Return the plot as SVG: a label above each bar, and a thin line for the spread over the rounds."""
    most = max(whole, *(max(bar.value, *(bar.spread or (0.0,))) for bar in bars))
    said = "; ".join(f"{bar.label} {bar.words(unit)}" for bar in bars)
    parts = [
        f'<svg class="bars" role="img" width="100%" height="{ROW * len(bars)}" xmlns="http://www.w3.org/2000/svg">',
        f"<title>{escape(title)}: {escape(said)}</title>",
    ]
    for at, bar in enumerate(bars):
        top = ROW * at
        bold, color = (' font-weight="600"', f"fill:{OURS}") if bar.ours else ("", "fill:currentColor;opacity:.45")
        middle, line = top + 22 + BAR / 2, 'stroke="currentColor" stroke-width="1.5"'
        text = f'<text y="{top + 15}" fill="currentColor"{bold}'
        parts += [
            f"{text}>{escape(bar.label)}</text>",
            f'{text} x="100%" text-anchor="end">{escape(bar.words(unit))}</text>',
            f'<rect y="{top + 22}" width="{100 * bar.value / most:.2f}%" height="{BAR}" rx="2" style="{color}"/>',
        ]
        if bar.spread:
            low, high = (f"{100 * end / most:.2f}%" for end in bar.spread)
            parts.append(f'<line x1="{low}" x2="{high}" y1="{middle}" y2="{middle}" {line}/>')
            parts += [f'<line x1="{x}" x2="{x}" y1="{middle - 4}" y2="{middle + 4}" {line}/>' for x in (low, high)]
    return "\n".join([*parts, "</svg>"])


class Bars(SphinxDirective):
    """```{bars} NAME```, with a caption inside."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        bars = bars_of(name)
        caption = nodes.paragraph(classes=["bars-caption"])
        inside, messages = self.parse_inline(" ".join(self.content), lineno=self.lineno)
        caption += inside
        for file in PLOTS[name].files:
            self.env.note_dependency(str(RESULTS / file))
        drawn = svg(bars, caption.astext(), PLOTS[name].unit, PLOTS[name].whole)
        return [nodes.raw("", drawn, format="html"), caption, *messages]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("bars", Bars)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

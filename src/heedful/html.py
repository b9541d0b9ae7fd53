"""Single-file HTML pages with escaped text and SVG charts.

    tag("p", "1 < 2", class_="quiet")        # <p class="quiet">1 &lt; 2</p>
    fill_template(template, title="A", body=tag("p", text), data=None)

Everything that `tag` did not build is escaped. The page's Content-Security-Policy allows only its own style and script,
by their hashes, and no requests.
"""

import json
import math
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from heedful.files import replace_text
from heedful.text.normalize import escape_invisible

VIEWER = Path(__file__).parent / "inspection" / "viewer"  # scripts and styles that several pages share
WIDTH, HEIGHT = 440, 210  # of a chart
LEFT, RIGHT, TOP, BOTTOM = 56, 10, 10, 24  # margins, for the axes
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
STRING = re.compile(r'("(?:[^"\\]|\\.)*")')  # of a script
MAX_DOTS = 80  # curves with more points have no dots
CURVE_CLASSES = ("first", "second")  # of the curves of one chart


class Html(str):
    """Text that is already HTML and is not escaped again."""

    __slots__ = ()


def tag(name: str, *children: object, **attributes: object) -> Html:
    """<name attributes>children</name>"""
    pairs = (f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
    return Html(f"<{name}{''.join(pairs)}>{''.join(map(escape_text, children))}</{name}>")


def escape_text(text: object) -> str:
    """`Html` unchanged; anything else escaped, with invisible characters as escape sequences."""
    return text if isinstance(text, Html) else escape("\n".join(map(escape_invisible, str(text).split("\n"))))


def fill_template(template: str, *, title: str, body: Html, data: object, code: str = "") -> str:
    """Fill in a page template; `code` is the page's script, and `data` becomes JSON for it."""
    hashes = {}
    for name in ("style", "script"):
        content = template.split(f"<{name}>")[1].split(f"</{name}>")[0]
        hashes[name] = csp_hash(Template(content).substitute(code=code))
    escaped = escape_json(json.dumps(data))
    return Template(template).substitute(title=escape_text(title), body=body, data=escaped, code=code, **hashes)


def join_scripts(paths: Iterable[Path]) -> str:
    """Scripts as one, with a scope of its own, without indentation, optional spaces and comments (after two spaces).

    Modules lose their imports and exports: they come in an order in which each finds what it uses.
    """
    lines = (line for path in paths for line in path.read_text(encoding="utf-8").splitlines())
    code = (line.partition("  // ")[0].strip().removeprefix("export ") for line in lines)
    parts = "\n".join(compact_line(line) for line in code if line and not line.startswith(("//", "import ")))
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


def compact_line(line: str) -> str:
    """A line of a script without spaces around operators outside of "strings"; templates and divisions stay as is.

    A template has no line ends, so that every line is whole.
    """
    if any(mark in line for mark in "`'/"):
        return line
    parts = STRING.split(line)
    parts[::2] = [re.sub(r" ?(=>|[!=]==|&&|\|\||[,={}?:]) ?", r"\1", code) for code in parts[::2]]
    return "".join(parts)


def compact_style(text: str) -> str:
    """A style sheet without comments, line ends and optional spaces."""
    return re.sub(r"\s*([{};>])\s*|([:,])\s+", r"\1\2", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)).replace(
        ";}", "}"
    )


def csp_hash(text: str) -> str:
    """The hash that allows a script or a style in a Content-Security-Policy."""
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def escape_json(text: str) -> str:
    """Escape the characters of JSON that are special in HTML or JavaScript."""
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def write_html(path: Path, text: str) -> None:
    """Write a page atomically."""
    replace_text(path, text, durable=False)


def section(title: str, parts: Iterable[Html]) -> Html:
    """A section of the page; empty if it has no parts."""
    children = list(parts)
    return tag("section", tag("h2", title), *children) if children else Html()


def remark(*parts: object) -> Html:
    return tag("p", *parts, class_="quiet")


def table(names: Sequence[str], rows: Sequence[Sequence[object]], *, code: Sequence[int] = ()) -> Html:
    """A table with column names; numbers are right-aligned, the columns `code` are monospaced."""
    numeric = [all(isinstance(row[column], int | float) for row in rows) for column in range(len(names))]
    kinds = ["number" if numeric[column] else "code" if column in code else "text" for column in range(len(names))]

    def make_row(cells: Sequence[object], name: str) -> Html:
        formatted = ((format_number(cell), kind) for cell, kind in zip(cells, kinds, strict=True))
        return tag("tr", *(tag(name, text, class_=kind) for text, kind in formatted))

    head = tag("thead", make_row(names, "th")) if any(names) else Html()
    return tag("div", tag("table", head, tag("tbody", *(make_row(cells, "td") for cells in rows))), class_="scroll")


def format_number(value: object) -> object:
    """A number as text with a suitable number of digits; anything else unchanged."""
    if isinstance(value, float):
        digits = 3 if abs(value) < 10 else 2 if abs(value) < 1000 else 0
        return f"{value:,.{digits}f}" if 1 <= abs(value) < 1e7 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value


# ---------------------------------------------------------------------------------------------------- curves


@dataclass(frozen=True)
class Curve:
    """The values of one quantity over training steps."""

    name: str
    points: Sequence[tuple[int, float]]

    @classmethod
    def from_records(cls, name: str, records: Iterable[Mapping[str, Any]], key: str) -> "Curve":
        """The finite values of one field of the records."""
        return cls(name, [(record["step"], record[key]) for record in records if math.isfinite(record[key])])


@dataclass(frozen=True)
class Plot:
    """One or two curves over the same steps, and crossed-out steps with the reason."""

    title: str
    curves: Sequence[Curve]
    steps: int
    crossed: Sequence[tuple[int, str]] = ()
    from_zero: bool = False

    def to_json(self) -> dict[str, Any]:
        """The data with which the page's script shows the values at the pointer."""
        curves = [
            {
                "name": curve.name,
                "steps": [step for step, _ in curve.points],
                "labels": [format_number(value) for _, value in curve.points],
            }
            for curve in self.curves
        ]
        sizes = {"width": WIDTH, "left": LEFT, "across": PLOT_WIDTH, "steps": self.steps}
        return {"title": self.title, **sizes, "curves": curves}


def make_ticks(low: float, high: float, max_intervals: int) -> list[float]:
    """At most `max_intervals` + 1 round numbers between `low` and `high`."""
    interval = 10.0 ** math.floor(math.log10((high - low) / max_intervals))
    interval *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (interval * factor) <= max_intervals)
    first, last = math.ceil(low / interval - 1e-9), math.floor(high / interval + 1e-9)
    return [index * interval for index in range(first, last + 1)]


def draw_chart(plot: Plot) -> Html:
    """A plot as SVG, with its last values as text."""
    values = [value for curve in plot.curves for _, value in curve.points]
    low, high = min(0.0, *values) if plot.from_zero else min(values), max(values)
    size = max(abs(low), abs(high))
    if high - low <= max(1e-6 * size, 1e-12):  # constant: do not draw rounding errors as a curve
        high = low + (size if size > 1e-12 else 1.0)

    def x(step: float) -> float:
        return round(LEFT + PLOT_WIDTH * step / plot.steps, 1)

    def y(value: float) -> float:
        return round(TOP + PLOT_HEIGHT * (high - value) / (high - low), 1)

    shapes: list[Html] = []
    for tick in make_ticks(low, high, 5):
        shapes += [
            tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(tick), y2=y(tick), class_="grid"),
            tag("text", f"{tick:,.6g}", x=LEFT - 6, y=y(tick) + 4, text_anchor="end"),
        ]
    for tick in make_ticks(0, plot.steps, 4):
        anchor = "middle" if x(tick) < WIDTH - 30 else "end"
        shapes.append(tag("text", f"{tick:,.6g}", x=x(tick), y=HEIGHT - 6, text_anchor=anchor))
    for curve, css_class in zip(plot.curves, CURVE_CLASSES, strict=False):
        points = [(x(step), y(value)) for step, value in curve.points]
        shapes.append(tag("polyline", points=" ".join(f"{a},{b}" for a, b in points), class_=f"curve {css_class}"))
        for (a, b), (step, value) in zip(points, curve.points, strict=True) if len(points) <= MAX_DOTS else ():
            title = tag("title", f"step {step:,}: {format_number(value)}")
            shapes.append(tag("circle", title, cx=a, cy=b, r=2.2, class_=f"point {css_class}"))
    for step, reason in plot.crossed:
        shapes.append(tag("path", tag("title", reason), d=f"M{x(step) - 4},{TOP}l8,8m0,-8l-8,8", class_="crossed"))
    shapes.append(tag("line", x1=0, x2=0, y1=TOP, y2=TOP + PLOT_HEIGHT, class_="here", visibility="hidden"))
    last_points = ((curve.name, *curve.points[-1]) for curve in plot.curves)
    values_text = " · ".join(f"{name} {format_number(value)} at step {step:,}" for name, step, value in last_points)
    label = f"{plot.title} over steps: {values_text}"
    classes = zip(plot.curves, CURVE_CLASSES, strict=False)
    keys = [tag("span", curve.name, class_=f"key {css_class}") for curve, css_class in classes]
    return tag(
        "figure",
        tag("figcaption", plot.title, *(keys if len(keys) > 1 else ())),
        tag("svg", *shapes, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label),
        tag("output", values_text),
    )

"""A page that is one file: HTML that cannot be broken out of, and curves as SVG.

    tag("p", "1 < 2", class_="quiet")        # <p class="quiet">1 &lt; 2</p>
    fill(template, body=tag("p", anything))

Whatever is not `tag`'s own work is escaped, and the page's security policy knows the hashes of its one style and one
script: nothing else can run, and nothing is fetched.
"""

import json
import math
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

WIDTH, HEIGHT = 440, 210  # of a chart
LEFT, RIGHT, TOP, BOTTOM = 56, 10, 10, 24  # what its axes take of that
ACROSS, UP = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
DOTS = 80  # points of a curve that are drawn one by one
KINDS = ("first", "second")  # curves of one chart


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *inside: object, **attributes: object) -> Html:
    """<name attributes>inside</name>"""
    written = (f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
    return Html(f"<{name}{''.join(written)}>{''.join(map(safe, inside))}</{name}>")


def safe(text: object) -> str:
    """HTML as it is, and of anything else the visible letters."""
    return text if isinstance(text, Html) else escape("\n".join(map(escape_invisible, str(text).split("\n"))))


def fill(template: str, *, title: str, body: Html, data: object) -> str:
    """The page: `data` is for its script, as JSON that cannot end the element it stands in."""
    seals = {}
    for name in ("style", "script"):
        inside = template.split(f"<{name}>")[1].split(f"</{name}>")[0]
        seals[name] = seal(inside)
    return Template(template).substitute(title=safe(title), body=body, data=inert(json.dumps(data)), **seals)


def seal(text: str) -> str:
    """As a Content-Security-Policy names the one script, or the one style, that may be obeyed."""
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def inert(text: str) -> str:
    """JSON that no parser of HTML can mistake for its own."""
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def put(path: Path, text: str) -> None:
    """Write a page, whole or not at all."""
    replace_text(path, text, durable=False)


def section(title: str, parts: Iterable[Html]) -> Html:
    """A part of the page, unless there is nothing in it."""
    inside = list(parts)
    return tag("section", tag("h2", title), *inside) if inside else Html()


def quiet(text: str) -> Html:
    """A remark."""
    return tag("p", text, class_="quiet")


def table(names: Sequence[str], rows: Sequence[Sequence[object]], *, code: Sequence[int] = ()) -> Html:
    """Rows under names; numbers stand to the right, and the columns of `code` in type of one width."""
    numeric = [all(isinstance(row[at], int | float) for row in rows) for at in range(len(names))]
    kinds = ["number" if numeric[at] else "code" if at in code else "text" for at in range(len(names))]

    def row(cells: Sequence[object], name: str) -> Html:
        return tag("tr", *(tag(name, number(cell), class_=kind) for cell, kind in zip(cells, kinds, strict=True)))

    head = tag("thead", row(names, "th")) if any(names) else Html()
    return tag("div", tag("table", head, tag("tbody", *(row(cells, "td") for cells in rows))), class_="scroll")


def number(value: object) -> object:
    """Numbers with as many digits as say something; anything else as it is."""
    if isinstance(value, float):
        digits = 3 if abs(value) < 10 else 2 if abs(value) < 1000 else 0
        return f"{value:,.{digits}f}" if 1 <= abs(value) < 1e7 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else value


# ---------------------------------------------------------------------------------------------------- curves


@dataclass(frozen=True)
class Curve:
    """Values at steps."""

    name: str
    points: Sequence[tuple[int, float]]

    @classmethod
    def of(cls, name: str, records: Iterable[Mapping[str, Any]], key: str) -> "Curve":
        """One field of many records, where it is finite."""
        return cls(name, [(one["step"], one[key]) for one in records if math.isfinite(one[key])])


@dataclass(frozen=True)
class Plot:
    """One or two curves over the same steps, and the steps that are crossed out with why."""

    title: str
    curves: Sequence[Curve]
    steps: int
    crossed: Sequence[tuple[int, str]] = ()
    from_zero: bool = False

    def plain(self) -> dict[str, Any]:
        """What the page's script needs to say the values under a pointer."""
        curves = [
            {"name": one.name, "steps": [step for step, _ in one.points], "said": [number(v) for _, v in one.points]}
            for one in self.curves
        ]
        return {"width": WIDTH, "left": LEFT, "across": ACROSS, "steps": self.steps, "curves": curves}


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers between two, at most `most` + 1."""
    each = 10.0 ** math.floor(math.log10((high - low) / most))
    each *= next(times for times in (1, 2, 5, 10) if (high - low) / (each * times) <= most)
    return [at * each for at in range(math.ceil(low / each - 1e-9), math.floor(high / each + 1e-9) + 1)]


def chart(plot: Plot) -> Html:
    """A plot as SVG, with its last values in words."""
    values = [value for curve in plot.curves for _, value in curve.points]
    low, high = min(0.0, *values) if plot.from_zero else min(values), max(values)
    size = max(abs(low), abs(high))
    if high - low <= max(1e-6 * size, 1e-12):  # a level line, not a mountain of rounding errors
        high = low + (size if size > 1e-12 else 1.0)

    def x(step: float) -> float:
        return round(LEFT + ACROSS * step / plot.steps, 1)

    def y(value: float) -> float:
        return round(TOP + UP * (high - value) / (high - low), 1)

    drawn: list[Html] = []
    for at in ticks(low, high, 5):
        drawn += [
            tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(at), y2=y(at), class_="grid"),
            tag("text", f"{at:,.6g}", x=LEFT - 6, y=y(at) + 4, text_anchor="end"),
        ]
    for at in ticks(0, plot.steps, 4):
        anchor = "middle" if x(at) < WIDTH - 30 else "end"
        drawn.append(tag("text", f"{at:,.6g}", x=x(at), y=HEIGHT - 6, text_anchor=anchor))
    for curve, kind in zip(plot.curves, KINDS, strict=False):
        places = [(x(step), y(value)) for step, value in curve.points]
        drawn.append(tag("polyline", points=" ".join(f"{a},{b}" for a, b in places), class_=f"curve {kind}"))
        for (a, b), (step, value) in zip(places, curve.points, strict=True) if len(places) <= DOTS else ():
            title = tag("title", f"step {step:,}: {number(value)}")
            drawn.append(tag("circle", title, cx=a, cy=b, r=2.2, class_=f"point {kind}"))
    for step, why in plot.crossed:
        drawn.append(tag("path", tag("title", why), d=f"M{x(step) - 4},{TOP}l8,8m0,-8l-8,8", class_="crossed"))
    drawn.append(tag("line", x1=0, x2=0, y1=TOP, y2=TOP + UP, class_="here", visibility="hidden"))
    said = " · ".join(f"{one.name} {number(one.points[-1][1])} at step {one.points[-1][0]:,}" for one in plot.curves)
    keys = [tag("span", one.name, class_=f"key {kind}") for one, kind in zip(plot.curves, KINDS, strict=False)]
    return tag(
        "figure",
        tag("figcaption", plot.title, *(keys if len(keys) > 1 else ())),
        tag("svg", *drawn, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=f"{plot.title} over steps: {said}"),
        tag("output", said),
    )

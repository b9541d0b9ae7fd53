"""What every figure is drawn with: colors that have a meaning, type, shapes, charts."""

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from figures.words import LANGUAGES, TABLE

DATA = Path(__file__).parent / "data"
WIDTH = 720
SANS = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue','Noto Sans',Arial,sans-serif"
SERIF = "'STIX Two Math','STIX Two Text','Cambria Math','Latin Modern Math',Cambria,Georgia,'Times New Roman',serif"
SMALL, NORMAL, LARGE = 11.5, 13.5, 15.5  # the three sizes of type
THIN, LINE, BOLD = 1.0, 1.6, 2.6  # the three widths of lines
COLORS = {  # name: (on a light page, on a dark one)
    "ink": ("#1b2330", "#e8ebf0"),  # words
    "muted": ("#566173", "#a4aebb"),  # remarks, axes, what has less weight
    "line": ("#7c8797", "#818c9b"),  # arrows and frames
    "faint": ("#d5dbe3", "#3a434f"),  # grids, what was dropped
    "panel": ("#f5f7fa", "#1d232b"),  # a field behind a group
    "paper": ("#ffffff", "#14171b"),  # what covers a line
    "source": ("#2767ad", "#7bb5f2"),  # source words, encoder states
    "source-soft": ("#e4effb", "#1c3147"),
    "target": ("#b5530b", "#f5a964"),  # target words, decoder states
    "target-soft": ("#fdebdb", "#432d19"),
    "query": ("#7b3fae", "#cba2f5"),
    "query-soft": ("#f1e7fa", "#352347"),
    "key": ("#0b7d74", "#5accc1"),
    "key-soft": ("#dcf3f0", "#123832"),
    "value": ("#846800", "#e2c34f"),
    "value-soft": ("#f8f0cd", "#3a3212"),
    "weight": ("#be2a5c", "#ff86a8"),  # weights, contexts, layers of attention
    "weight-soft": ("#fbe3eb", "#47212f"),
    "plain": ("#4d5b70", "#a3b3c9"),  # a part that is none of these
    "plain-soft": ("#e4e9f0", "#2b343f"),
    "on-weight": ("#ffffff", "#2a0d17"),  # words on a full cell of a map
    # Series without a role: heads, curves, runs. None is the color of a query, key or value.
    "one": ("#1f7d3a", "#6fd08c"),
    "one-soft": ("#e0f3e5", "#16351f"),
    "two": ("#4a4fc4", "#a9adff"),
    "two-soft": ("#e8e8fb", "#26284d"),
    "three": ("#a3402b", "#f0988a"),
    "three-soft": ("#fae6e1", "#43231c"),
    "four": ("#66700b", "#c3cf55"),
    "four-soft": ("#f1f3d3", "#31350f"),
}
SERIES = ("one", "two", "three", "four")


def style(body: str) -> str:
    """Return the rules for the colors that occur in `body`; the page or the reader's system decides about the theme."""
    used = [name for name in COLORS if re.search(rf'[" ][fs]-{name}[" ]', body)]

    def values(theme: int) -> str:
        return "".join(f"--{name}:{COLORS[name][theme]};" for name in used)

    rules = "".join(
        f".hf .{kind}-{name}{{{rule}:var(--{name})}}"
        for name in used
        for kind, rule in (("f", "fill"), ("s", "stroke"))
        if re.search(rf'[" ]{kind}-{name}[" ]', body)
    )
    return (
        f".hf{{font-family:{SANS};{values(0)}}}"
        f".hf .m{{font-family:{SERIF};font-style:italic}}.hf .u{{font-style:normal}}"
        f"@media(prefers-color-scheme:dark){{.hf{{{values(1)}}}}}@media print{{.hf.hf{{{values(0)}}}}}{rules}"
    )


def short(value: float) -> str:
    """1.50 -> 1.5: coordinates need no more than two digits."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def wide(words: str, size: float) -> float:
    """About how wide some words are; system fonts differ, so leave a little room."""
    plain = re.sub(r"[$_{}^]", "", words)
    return size * sum(
        0.34 if one in "iljtfrI.,:;'|!()[] " else 0.9 if one in "mwMWшщжюмЖШЩЮ@—" else 0.7 if one.isupper() else 0.61
        for one in plain
    )


def rich(words: str) -> str:
    """Words with formulas in dollars: letters in italics, `_i` or `_{ij}` lowered, `^` raised."""
    out = []
    for at, part in enumerate(words.split("$")):
        if at % 2 == 0:
            out.append(escape(part))
            continue
        level = 0.0  # how far below the line we are, in heights of the type
        for mark, group, one, plain in re.findall(r"([_^])(?:\{([^}]*)\}|(.))|([^_^]+)", part):
            wanted, size = {"_": (0.2, 0.72), "^": (-0.32, 0.72)}.get(mark, (0.0, 1.0))
            shift = f' dy="{(wanted - level) / size:.3f}em"' if wanted != level else ""
            spans = "".join(  # letters lean, digits and signs do not
                f'<tspan class="{"m" if bit[0].isalpha() else "m u"}">{escape(bit)}</tspan>'
                for bit in re.findall(r"(?:[^\W\d_][\u0300-\u036f]?)+|[\W\d_]+", group or one or plain)
            )
            scale = f' font-size="{size:.0%}"' if size < 1 else ""
            out.append(f"<tspan{shift}{scale}>{spans}</tspan>")
            level = wanted
        if level:
            out.append(f'<tspan dy="{-level:.3f}em">\u200b</tspan>')
    return "".join(out)


Point = tuple[float, float]


def toward(at: Point, other: Point, far: float) -> Point:
    """A point on the way from one to another, `far` away or half of the way."""
    share = min(far / math.dist(at, other), 0.5)
    return at[0] + (other[0] - at[0]) * share, at[1] + (other[1] - at[1]) * share


class Figure:
    """A drawing under way; x goes right, y goes down, one unit is one pixel of a page that is wide enough."""

    def __init__(self, language: str, height: int) -> None:
        self.language, self.height = language, height
        self.parts: list[str] = []

    # words and numbers

    def t(self, words: str, **values: object) -> str:
        """In the figure's language."""
        if self.language != "en":
            words = TABLE[words][LANGUAGES.index(self.language) - 1]
        return words.format(**values) if values else words

    def n(self, value: float, digits: int = 2) -> str:
        """0.67, or 0,67."""
        text = f"{value:.{digits}f}".replace("-", "\u2212")
        return text if self.language == "en" else text.replace(".", ",")

    def pair(self, first: float, second: float, digits: int = 2) -> str:
        """(1.42, 1.58), or (1,42; 1,58)."""
        return f"({self.n(first, digits)}{',' if self.language == 'en' else ';'} {self.n(second, digits)})"

    # shapes

    def add(self, *parts: str) -> None:
        self.parts += parts

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float = NORMAL,
        color: str = "ink",
        anchor: str = "middle",
        bold: bool = False,
        turn: float = 0,
        opacity: float = 1.0,
    ) -> None:
        """`y` is the middle of the first line."""
        weight = ' font-weight="600"' if bold else ""
        faint = f' opacity="{short(opacity)}"' if opacity < 1 else ""
        for row, line in enumerate(words.split("\n")):
            at = y + row * size * 1.28 + size * 0.35
            turned = f' transform="rotate({short(turn)} {short(x)} {short(at)})"' if turn else ""
            self.add(
                f'<text x="{short(x)}" y="{short(at)}" font-size="{size}" text-anchor="{anchor}" '
                f'class="f-{color}"{weight}{faint}{turned}>{rich(line)}</text>'
            )

    def rect(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        fill: str | None = "panel",
        stroke: str | None = None,
        width: float = LINE,
        radius: float = 0.0,
        opacity: float = 1.0,
        dashed: bool = False,
    ) -> None:
        inside, none = (f"f-{fill}", "") if fill else ("", ' fill="none"')
        edge, thick = (f" s-{stroke}", f' stroke-width="{width}"') if stroke else ("", "")
        more = (f' fill-opacity="{opacity:.3g}"' if opacity < 1 else "") + (' stroke-dasharray="4 4"' if dashed else "")
        rounded = f' rx="{short(radius)}"' if radius else ""
        self.add(
            f'<rect x="{short(x)}" y="{short(y)}" width="{short(w)}" height="{short(h)}"{rounded} '
            f'class="{inside}{edge}"{thick}{none}{more}/>'
        )

    def path(
        self,
        d: str,
        color: str = "line",
        width: float = LINE,
        dashed: bool = False,
        opacity: float = 1.0,
        fill: str | None = None,
    ) -> None:
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        faint = f' opacity="{opacity:.3g}"' if opacity < 1 else ""
        inside, none = (f"f-{fill} ", "") if fill else ("", ' fill="none"')
        self.add(
            f'<path d="{d}" class="{inside}s-{color}" stroke-width="{short(width)}" stroke-linecap="round" '
            f'stroke-linejoin="round"{none}{dash}{faint}/>'
        )

    def panel(self, x: float, y: float, w: float, h: float, radius: float = 10) -> None:
        """A field behind a group."""
        self.rect(x, y, w, h, "panel", radius=radius)

    def box(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        label: str = "",
        color: str = "line",
        size: float = NORMAL,
        dashed: bool = False,
        bold: bool = False,
    ) -> None:
        """Something that computes: a frame in its color, filled with the soft one."""
        soft = f"{color}-soft" if f"{color}-soft" in COLORS else "paper"
        self.rect(x, y, w, h, soft, color, radius=7, dashed=dashed)
        if label:
            self.text(x + w / 2, y + h / 2 - label.count("\n") * size * 0.64, label, size, "ink", bold=bold)

    def chip(
        self,
        x: float,
        y: float,
        word: str,
        color: str = "source",
        w: float | None = None,
        h: float = 26,
        size: float = NORMAL,
        faint: bool = False,
        strong: bool = False,
    ) -> float:
        """A token, its middle at (x, y); returns its width."""
        w = w or max(24.0, wide(word, size) + 14)
        fill, edge = ("panel", "faint") if faint else (f"{color}-soft", color)
        self.rect(x - w / 2, y - h / 2, w, h, fill, edge, BOLD if strong else THIN, radius=h / 2)
        self.text(x, y, word, size, "muted" if faint else "ink", bold=strong)
        return w

    def arrow(
        self,
        *points: Point,
        color: str = "line",
        width: float = LINE,
        head: bool = True,
        dashed: bool = False,
        corner: float = 8.0,
        opacity: float = 1.0,
    ) -> None:
        """A line through points, its corners rounded, with a head that is drawn (markers would need ids)."""
        places = list(points)
        if head:
            (x0, y0), (x1, y1) = places[-2:]
            long = math.hypot(x1 - x0, y1 - y0)
            ux, uy, size = (x1 - x0) / long, (y1 - y0) / long, 4.5 + 1.6 * width
            base = (x1 - ux * size, y1 - uy * size)
            left, right = ((base[0] - s * uy * size * 0.48, base[1] + s * ux * size * 0.48) for s in (1, -1))
            places[-1] = (x1 - ux * size * 0.8, y1 - uy * size * 0.8)
            faint = f' opacity="{opacity:.3g}"' if opacity < 1 else ""
            corners = " ".join(f"{short(x)},{short(y)}" for x, y in ((x1, y1), left, right))
            self.add(f'<polygon points="{corners}" class="f-{color}"{faint}/>')
        d = f"M{short(places[0][0])} {short(places[0][1])}"
        for before, at, after in zip(places, places[1:-1], places[2:], strict=False):
            (ax, ay), (bx, by) = (toward(at, other, corner) for other in (before, after))
            d += f"L{short(ax)} {short(ay)}Q{short(at[0])} {short(at[1])} {short(bx)} {short(by)}"
        d += f"L{short(places[-1][0])} {short(places[-1][1])}"
        self.path(d, color, width, dashed, opacity)

    def link(
        self,
        x0: float,
        y0: float,
        x1: float,
        y1: float,
        color: str = "weight",
        width: float = LINE,
        opacity: float = 1.0,
        upright: bool = True,
    ) -> None:
        """A soft line from one thing to another; attention draws it as thick as the weight."""
        if upright:
            y = (y0 + y1) / 2
            bend = f"{short(x0)} {short(y)} {short(x1)} {short(y)}"
        else:
            x = (x0 + x1) / 2
            bend = f"{short(x)} {short(y0)} {short(x)} {short(y1)}"
        self.path(f"M{short(x0)} {short(y0)}C{bend} {short(x1)} {short(y1)}", color, width, opacity=opacity)

    def vector(
        self,
        x: float,
        y: float,
        values: Iterable[float],
        color: str = "source",
        cell: float = 14.0,
        upright: bool = True,
        numbers: int | None = None,
        high: float | None = None,
        tall: float | None = None,
    ) -> None:
        """A row (or column) of cells, the fuller the larger the number; with `numbers` (digits) they are written."""
        cells = [float(value) for value in values]
        high = high or max(1e-9, *(abs(value) for value in cells))
        w, h = cell, tall or cell
        for at, value in enumerate(cells):
            cx, cy = (x, y + at * h) if upright else (x + at * w, y)
            self.rect(cx, cy, w, h, "paper")
            self.rect(cx, cy, w, h, color, opacity=0.12 + 0.6 * abs(value) / high)
            if numbers is not None:
                self.text(cx + w / 2, cy + h / 2, self.n(value, numbers), SMALL + 1)
        whole = (w, h * len(cells)) if upright else (w * len(cells), h)
        self.rect(x, y, *whole, None, color, THIN + 0.2, radius=2.5)

    def heat(
        self,
        x: float,
        y: float,
        weights: ArrayLike,
        cell: tuple[float, float] = (36.0, 30.0),
        digits: int | None = 2,
        least: float = 0.05,
        hidden: NDArray[np.bool_] | None = None,
    ) -> None:
        """A map of weights: rows are queries, columns keys; a row adds up to 1. `hidden` cells get a stroke."""
        w, h = cell
        gap = 1 if w > 20 else 0.5
        for (row, column), value in np.ndenumerate(np.asarray(weights, float)):
            cx, cy = x + column * w, y + row * h
            self.rect(cx + gap, cy + gap, w - 2 * gap, h - 2 * gap, "panel", radius=3 * gap)
            if hidden is not None and hidden[row, column]:
                d = f"M{short(cx + 7)} {short(cy + h - 7)}L{short(cx + w - 7)} {short(cy + 7)}"
                self.path(d, "faint", LINE)
                continue
            if value >= 0.02:
                full = min(1.0, 0.06 + 0.94 * value)
                self.rect(cx + gap, cy + gap, w - 2 * gap, h - 2 * gap, "weight", radius=3 * gap, opacity=full)
            if digits is not None and value >= least:
                ink = "on-weight" if value > 0.55 else "ink"
                self.text(cx + w / 2, cy + h / 2, self.n(value, digits), SMALL, ink)

    def curve(self, points: Iterable[Point], color: str = "source", width: float = 2.0, dashed: bool = False) -> None:
        """A line through many points."""
        self.path("M" + "L".join(f"{short(x)} {short(y)}" for x, y in points), color, width, dashed)

    def bracket(
        self,
        x: float,
        y0: float,
        y1: float,
        words: str = "",
        color: str = "muted",
        side: int = 1,
        size: float = SMALL,
    ) -> None:
        """Around a span, straight down; `side` is where its words are: 1 right, -1 left."""
        b = 6 * side
        self.path(f"M{short(x)} {short(y0)}h{b}V{short(y1)}h{-b}", color, THIN + 0.3)
        middle = (y0 + y1) / 2 - words.count("\n") * size * 0.64
        self.text(x + 2.2 * b, middle, words, size, color, "start" if side > 0 else "end")

    def remark(self, x: float, y: float, words: str, anchor: str = "start", size: float = SMALL) -> None:
        """Small words inside a figure; what the figure shows is said by the page's caption, not here."""
        self.text(x, y, words, size, "muted", anchor)

    def dot(self, x: float, y: float, sign: str = "", color: str = "line", radius: float = 9.0) -> None:
        """A circle with an operation in it."""
        self.circle(x, y, radius, "paper", color)
        if sign:
            self.text(x, y, sign, NORMAL + 1, color, bold=True)

    def circle(self, x: float, y: float, radius: float, fill: str, stroke: str | None = None) -> None:
        edge, thick = (f" s-{stroke}", f' stroke-width="{LINE}"') if stroke else ("", "")
        self.add(f'<circle cx="{short(x)}" cy="{short(y)}" r="{short(radius)}" class="f-{fill}{edge}"{thick}/>')

    def bar(self, x: float, y: float, w: float, h: float, color: str, faint: bool = False) -> None:
        self.rect(x, y, max(1.2, w), max(1.2, h), color, radius=2, opacity=0.5 if faint else 0.85)

    def svg(self) -> str:
        body = "\n".join(self.parts)
        size = f'viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" height="{self.height}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="hf" lang="{self.language}" {size}>\n'
            f"<style>{style(body)}</style>\n{body}\n</svg>\n"
        )


class Axes(NamedTuple):
    """A chart's frame: `x` and `y` give the place of a value; make one with `axes`."""

    left: float
    right: float
    top: float
    floor: float
    low: Point  # the smallest values of x and y
    high: Point

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * (value - self.low[0]) / (self.high[0] - self.low[0])

    def y(self, value: float) -> float:
        return self.floor - (self.floor - self.top) * (value - self.low[1]) / (self.high[1] - self.low[1])

    def points(self, xs: Iterable[float], ys: Iterable[float]) -> list[Point]:
        return [(self.x(x), self.y(y)) for x, y in zip(xs, ys, strict=True)]


def axes(
    f: Figure,
    frame: tuple[float, float, float, float],
    low: Point,
    high: Point,
    x_marks: Sequence[tuple[float, str]] = (),
    y_marks: Sequence[tuple[float, str]] = (),
    x_name: str = "",
    y_name: str = "",
) -> Axes:
    """Draw the grid and the marks of a chart whose frame is (left, right, top, floor)."""
    chart = Axes(*frame, low, high)
    for value, mark in y_marks:
        f.path(f"M{short(chart.left)} {short(chart.y(value))}H{short(chart.right)}", "faint", THIN)
        f.remark(chart.left - 8, chart.y(value), mark, "end")
    f.path(f"M{short(chart.left)} {short(chart.floor)}H{short(chart.right)}", "line", THIN)
    for value, mark in x_marks:
        f.path(f"M{short(chart.x(value))} {short(chart.floor)}v4", "line", THIN)
        f.remark(chart.x(value), chart.floor + 15, mark, "middle")
    if x_name:
        f.remark((chart.left + chart.right) / 2, chart.floor + 35, x_name, "middle")
    if y_name:
        f.remark(chart.left - 8, chart.top - 16, y_name, "start")
    return chart


class Drawing(NamedTuple):
    """A figure before it is drawn in a language."""

    height: int
    draw: Callable[[Figure], None]


DRAWINGS: dict[str, Drawing] = {}


def drawing(name: str, height: int) -> Callable[[Callable[[Figure], None]], Callable[[Figure], None]]:
    """Put a function into DRAWINGS, under the name of its file."""

    def entered(draw: Callable[[Figure], None]) -> Callable[[Figure], None]:
        DRAWINGS[name] = Drawing(height, draw)
        return draw

    return entered


def data(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def softmax(scores: ArrayLike) -> NDArray[np.float64]:
    raised = np.exp(np.asarray(scores, float) - np.max(scores))
    weights: NDArray[np.float64] = raised / raised.sum()
    return weights


def thousands(f: Figure, count: int) -> str:
    """3,991, or 3 991 with a space that does not break."""
    return f"{count:,}".replace(",", "," if f.language == "en" else "\u00a0")

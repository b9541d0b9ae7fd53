"""Draw learning curves at build time, from the metrics.jsonl of the runs in benchmarks/results.

    ```{curves} multi30k
    The caption: what the lines are.
    ```

Each entry of PICTURES names a directory of benchmarks/results, the runs in it, and their labels. Runs without a file
are left out; a picture without any run is an error. The lines scale with the width of the page, the text does not.
"""

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
HEIGHT, FOOT, SIDE = 320, 26, 34  # pixels: plot, minutes below it, scores beside it
GRID = 'stroke="currentColor" stroke-width="1" opacity=".15"'
LINE = 'stroke-width="2" vector-effect="non-scaling-stroke" stroke-linejoin="round"'
COLORS = ("#1f77d0", "#d1495b", "#2a9d5c", "#b07d12", "#8a5cc2", "#12939a", "#c2571a", "#6b7785", "#c44f9e")


class Picture(NamedTuple):
    """What a picture shows."""

    folder: str
    runs: Mapping[str, str]  # path before metrics.jsonl -> label
    least: float  # BLEU values below are not drawn
    every: tuple[int, int]  # minutes and BLEU points between two marks
    after: Mapping[str, tuple[str, ...]] = {}  # run -> earlier runs that it continues; their minutes are added


PICTURES = {
    "multi30k": Picture(
        "multi30k",
        {
            "tiny-1/": "transformer-tiny, seed 1",
            "tiny-2/": "seed 2",
            "tiny-3/": "seed 3",
            "lstm/": "lstm-bahdanau",
            "bottleneck/": "rnn-bottleneck",
            "tiny-fr/": "transformer-tiny to French",
            "best/": "seed 1 with agreement",
            "mixed/": "with captions translated back",
            "captions/": "then the pairs with agreement",
        },
        10.0,
        (15, 5),
        {
            "best/": ("tiny-1/",),
            "mixed/": ("captions/reverse.",),
            "captions/": ("captions/reverse.", "mixed/"),
        },
    )
}


def curve(path: Path, since: float = 0.0) -> list[tuple[float, float]]:
    """Return (minutes + `since`, BLEU) of every validation, without the last ones, which use other weights."""
    found, minutes = dict[float, float](), 0.0
    for line in path.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        if one["event"] == "stepped":
            minutes = one["elapsed"] / 60
        elif one["event"] == "validated" and minutes:
            found.setdefault(since + minutes, one["bleu"])
    return list(found.items())


def lasted(path: Path) -> float:
    return curve(path)[-1][0]


def svg(curves: Mapping[str, list[tuple[float, float]]], picture: Picture, title: str) -> str:
    """Return the plot as SVG, with the legend above it."""
    minutes = max(at for points in curves.values() for at, _ in points)
    high = max(bleu for points in curves.values() for _, bleu in points)
    width, low = minutes * 1.02, picture.least
    top = high + 0.06 * (high - low)

    def height(bleu: float) -> float:
        return HEIGHT * (top - bleu) / (top - low)

    colors = COLORS[: len(curves)]  # zip raises if there are too few
    names = "".join(
        f'<span style="white-space:nowrap"><span style="color:{color}">&#9632;</span> {escape(name)}</span>&ensp; '
        for name, color in zip(curves, colors, strict=True)
    )
    parts = [
        f'<div class="bars">{names}</div>',
        f'<svg class="bars" role="img" width="100%" height="{HEIGHT + FOOT}" xmlns="http://www.w3.org/2000/svg">',
        f"<title>{escape(title)}</title>",
    ]
    step = picture.every[1]
    for mark in range(-(-int(low) // step) * step, int(top) + 1, step):
        parts.append(f'<line x1="{SIDE}" x2="100%" y1="{height(mark):.1f}" y2="{height(mark):.1f}" {GRID}/>')
        parts.append(f'<text y="{height(mark) + 4:.1f}" fill="currentColor">{mark}</text>')
    parts.append(f'<svg x="{SIDE}" width="100%" height="{HEIGHT + FOOT}" style="overflow:visible">')
    parts += [
        f'<text x="{92 * mark / width:.2f}%" y="{HEIGHT + 20}" fill="currentColor">{mark} min</text>'
        for mark in range(0, int(width) + 1, picture.every[0])
    ]
    parts.append(f'<svg width="92%" height="{HEIGHT}" viewBox="0 0 {width:.2f} {HEIGHT}" preserveAspectRatio="none">')
    for points, color in zip(curves.values(), colors, strict=True):
        drawn = " ".join(f"{at:.2f},{height(bleu):.1f}" for at, bleu in points if bleu >= low)
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{color}" {LINE}/>')
    return "\n".join([*parts, "</svg>", "</svg>", "</svg>"])


class Curves(SphinxDirective):
    """```{curves} NAME```, with a caption inside."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        if name not in PICTURES:
            raise ExtensionError(f"{{curves}} {name}: no such picture; known: {', '.join(PICTURES)}")
        picture = PICTURES[name]
        kept = RESULTS / picture.folder
        files = {run: path for run in picture.runs if (path := kept / f"{run}metrics.jsonl").is_file()}
        since = {run: sum(lasted(kept / f"{one}metrics.jsonl") for one in picture.after.get(run, ())) for run in files}
        curves = {picture.runs[run]: curve(path, since[run]) for run, path in files.items()}
        if not curves:
            raise ExtensionError(f"{{curves}} {name}: no run in {picture.folder}")
        caption = nodes.paragraph(classes=["bars-caption"])
        inside, messages = self.parse_inline(" ".join(self.content), lineno=self.lineno)
        caption += inside
        for path in files.values():
            self.env.note_dependency(str(path))
        return [nodes.raw("", svg(curves, picture, caption.astext()), format="html"), caption, *messages]


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("curves", Curves)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

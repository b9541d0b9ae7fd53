"""Figures of the lecture on looking inside."""

import re
from pathlib import Path

from figures.canvas import BOLD, LARGE, NORMAL, SMALL, THIN, Figure, data, drawing

LAYER, HEAD = 1, 1  # of 3 and 4: in the sentence of map.json its largest weights are the links of a person


@drawing("looking-inside-map", 524)
def real_map(f: Figure) -> None:
    shown = data("map")
    source, target, weights = shown["source"], shown["target"], shown["all"][LAYER][HEAD]
    x, y, w, h = 104, 104, 43, 34
    f.heat(x, y, weights, (w, h), least=0.06)
    for i, word in enumerate(source):
        f.text(x + i * w + w / 2 - 2, y - 14, word, NORMAL, "source", "start", turn=-38)
    for i, word in enumerate(target):
        f.text(x - 12, y + i * h + h / 2, word, NORMAL, "target", "end")
    f.text(x - 12, y - 44, f.t("looks at") + " →", SMALL, "source", "end")
    f.text(x - 12, y - 20, f.t("says") + " ↓", SMALL, "target", "end")
    for row, words in ((3, "gato preto\n→ black cat"), (7, "cachorro branco\n→ white dog")):
        top = y + row * h
        f.rect(x + row * w - 1.5, top - 1.5, 2 * w + 3, 2 * h + 3, None, "weight", BOLD - 0.6, radius=6)
        f.path(f"M{x + (row + 2) * w + 4} {top + h}H{x + 11 * w + 8}", "weight", THIN, dashed=True, opacity=0.7)
        f.bracket(x + 11 * w + 8, top + 3, top + 2 * h - 3, words, "weight", size=SMALL)
    bottom = y + len(target) * h + 22
    for k in range(40):
        f.rect(x + k * 3, bottom, 3.2, 10, "weight", opacity=0.06 + 0.94 * k / 39)
    f.remark(x - 8, bottom + 5, "0", "end")
    f.remark(x + 128, bottom + 5, "1")
    f.remark(
        x + 11 * w,
        bottom + 5,
        f.t("each row adds up to 1;  layer {layer}, head {head}", layer=LAYER + 1, head=HEAD + 1),
        "end",
    )


@drawing("looking-inside-heads", 600)
def all_heads(f: Figure) -> None:
    shown = data("map")
    f.text(12, 22, f.t("all cross-attention heads of one translation"), LARGE, anchor="start", bold=True)
    for layer, heads in enumerate(shown["all"]):
        for head, weights in enumerate(heads):
            x, y, cell = 32 + head * 176, 74 + layer * 178, 13
            best = (layer, head) == (LAYER, HEAD)
            f.heat(x, y, weights, (cell, cell), digits=None)
            side = cell * len(weights)
            if best:
                f.rect(x - 4, y - 4, cell * len(weights[0]) + 8, side + 8, None, "weight", BOLD, radius=6)
            f.text(x, y - 16, f.t("layer {layer}, head {head}", layer=layer + 1, head=head + 1), SMALL + 0.5,
                   "weight" if best else "muted", "start", bold=best)  # fmt: skip
    f.remark(708, 22, f.t("framed: the one that aligns"), "end")


@drawing("looking-inside-error", 310)
def error_rates(f: Figure) -> None:
    text = (Path(__file__).parents[3] / "benchmarks" / "results" / "alignment.txt").read_text(encoding="utf-8")
    first = text.split("deen-bicici")[1].split("recurrent")[0]
    rows = {
        "diagonal": ("the plain diagonal", "line"),
        "random": ("random links", "line"),
        "transformer en-de: mean, naive": ("mean of all heads, naive", "one"),
        "transformer en-de: mean, shifted": ("mean of all heads, shifted", "one"),
        "transformer en-de: best": ("the best head, shifted", "weight"),
    }
    f.text(12, 22, f.t("alignment error rate: less is better"), LARGE, anchor="start", bold=True)
    left, scale = 270, 360
    f.path(f"M{left} 48V284", "line", THIN)
    for at, (name, (label, color)) in enumerate(rows.items()):
        found = re.search(rf"^  {re.escape(name)} +precision.* AER ([\d.]+)$", first, re.M)
        assert found, f"alignment.txt has no line for {name}"
        rate, y = float(found[1]), 72 + at * 46
        f.text(left - 12, y, f.t(label), NORMAL, "ink", "end", bold=color == "weight")
        f.bar(left, y - 12, scale * rate, 24, color)
        f.text(
            left + scale * rate + 8, y, f.n(rate, 3), NORMAL, "muted" if color == "line" else color, "start", bold=True
        )

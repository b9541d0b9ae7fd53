"""Figures of the lecture on captions."""

import numpy as np
from numpy.typing import ArrayLike

from figures.canvas import BOLD, LARGE, NORMAL, SMALL, THIN, Figure, data, drawing

BLEU = (  # the table of Show, Attend and Tell
    ("COCO, BLEU-4", ((None, 24.6), ("soft", 24.3), ("hard", 25.0))),
    ("Flickr8k, BLEU-3", ((None, 27.0), ("soft", 29.9), ("hard", 31.4))),
)


def grid(
    f: Figure, x: float, y: float, cell: float, values: ArrayLike | None = None, digits: int | None = None
) -> None:
    """4 × 4 regions; with `values`, the fuller the larger, and numbers if there are digits."""
    shown = np.zeros(16) if values is None else np.asarray(values, float)
    for at, value in enumerate(shown):
        row, column = divmod(at, 4)
        cx, cy = x + column * cell, y + row * cell
        f.rect(cx + 1, cy + 1, cell - 2, cell - 2, "panel", "faint", THIN, radius=2)
        if value > 0.005:
            full = min(1.0, 0.06 + 0.94 * value)
            f.rect(cx + 1, cy + 1, cell - 2, cell - 2, "weight", radius=2, opacity=full)
        if digits is not None:
            f.text(cx + cell / 2, cy + cell / 2, f.n(value, digits), SMALL, "on-weight" if value > 0.55 else "ink")


def shapes(f: Figure, x: float, y: float, cell: float) -> None:
    """The blue disk in region 6, the red square in region 9."""
    f.circle(x + 2.5 * cell, y + 1.5 * cell, 0.3 * cell, "two")
    f.rect(x + 1.22 * cell, y + 2.22 * cell, 0.56 * cell, 0.56 * cell, "three", radius=1)


@drawing("captions-regions", 372)
def regions(f: Figure) -> None:
    shown = data("captions")
    f.text(12, 22, f.t("the picture: 16 regions"), LARGE, "source", "start", bold=True)
    f.text(270, 22, f.t("the weights before each word"), LARGE, "weight", "start", bold=True)
    grid(f, 12, 56, 50)
    shapes(f, 12, 56, 50)
    f.remark(112, 284, f.t("a region says: disk or square,\nand which color"), "middle")
    for at, (word, weights, gate) in enumerate(zip(shown["words"], shown["weights"], shown["gates"], strict=True)):
        x, y = 270 + (at % 4) * 112, 56 + (at // 4) * 160
        f.chip(x + 44, y, word, "target", 78)
        grid(f, x, y + 20, 22, weights)
        f.remark(x + 44, y + 120, f.t("gate {n}", n=f.n(gate)), "middle")


@drawing("captions-step", 330)
def step(f: Figure) -> None:
    f.text(12, 22, f.t("regions"), NORMAL, "source", "start", bold=True)
    for at in range(4):
        f.vector(16 + at * 24, 40, (0.3, 0.9, 0.5, 0.7), "source", 14)
    f.text(112, 68, "$a_1 … a_L$", NORMAL, "source", "start")
    f.box(24, 150, 126, 44, f.t("attention"), "weight", bold=True)
    f.arrow((60, 100), (60, 149), color="source")
    f.box(24, 256, 126, 40, "$h_{t−1}$", "target")
    f.arrow((87, 255), (87, 195), color="query")
    f.remark(96, 226, f.t("query"))
    f.dot(236, 172, "×", "weight", 12)
    f.arrow((151, 172), (223, 172), color="weight", width=BOLD)
    f.text(200, 198, "$Σ_i α_{ti} a_i$", NORMAL, "weight")
    f.box(196, 64, 80, 40, "σ", "weight")
    f.arrow((236, 105), (236, 159), color="weight")
    f.text(246, 132, "$β_t$", NORMAL, "weight", "start")
    f.arrow((151, 276), (172, 276), (172, 84), (195, 84), color="line", dashed=True)
    f.remark(236, 50, f.t("gate"), "middle")
    f.box(340, 146, 120, 52, "LSTM", "target", LARGE, bold=True)
    f.arrow((249, 172), (339, 172), color="weight", width=BOLD)
    f.text(296, 156, "$z_t$", LARGE, "weight")
    f.arrow((151, 288), (376, 288), (376, 199), color="target")
    f.chip(430, 288, "$y_{t−1}$", "target", 60)
    f.arrow((430, 274), (430, 199), color="target")
    f.remark(466, 288, f.t("the last word"))
    f.box(540, 146, 150, 52, f.t("next word"), "plain", bold=True)
    f.arrow((461, 172), (539, 172), color="target", width=BOLD)
    f.text(500, 156, "$h_t$", LARGE, "target")
    f.arrow((310, 171), (310, 62), (590, 62), (590, 145), color="weight")
    f.arrow((430, 240), (640, 240), (640, 199), color="target")
    f.remark(12, 318, f.t("Dashed: the gate is computed from the last state. The vectors are a sketch."))


@drawing("captions-coverage", 330)
def coverage(f: Figure) -> None:
    shown = data("captions")
    f.text(12, 22, f.t("attention of each region over the whole caption"), LARGE, anchor="start", bold=True)
    for x, name, title in ((60, "without", "without the penalty"), (420, "with", "with the penalty")):
        f.text(x + 104, 58, f.t(title), NORMAL, "weight", bold=True)
        values = np.array(shown[name])
        for at, value in enumerate(values):
            row, column = divmod(at, 4)
            cx, cy = x + column * 52, 78 + row * 52
            f.rect(cx + 1, cy + 1, 50, 50, "panel", "faint", THIN, radius=3)
            f.rect(cx + 1, cy + 1, 50, 50, "weight", radius=3, opacity=min(1.0, 0.05 + value / 3.8))
            f.text(cx + 26, cy + 26, f.n(value), NORMAL, "on-weight" if value > 2 else "ink")
    f.remark(164, 306, f.t("disk and square have most of it"), "middle")
    f.remark(524, 306, f.t("8 words / 16 regions = {n}", n=f.n(0.5, 1)), "middle")


@drawing("captions-bleu", 300)
def bleu(f: Figure) -> None:
    for block, (title, rows) in enumerate(BLEU):
        y = 26 + block * 140
        f.text(12, y, title, LARGE, anchor="start", bold=True)
        for at, (name, value) in enumerate(rows):
            middle, color = y + 34 + at * 30, ("plain", "weight", "target")[at]
            label = f.t("NIC: one vector") if name is None else f.t(f"{name} attention")
            f.text(190, middle, label, NORMAL, color, "end")
            f.bar(202, middle - 10, 13 * value, 20, color)
            f.text(210 + 13 * value, middle, f.n(value, 1), NORMAL, color, "start", bold=True)

"""Figures of the lecture on recurrent networks."""

import math

import numpy as np

from figures.canvas import BOLD, LARGE, LINE, NORMAL, SERIES, SMALL, THIN, Figure, axes, data, drawing


@drawing("recurrent-lstm", 372)
def lstm(f: Figure) -> None:
    f.panel(104, 34, 512, 272, radius=16)
    rail, floor = 84, 268
    f.arrow((26, rail), (694, rail), color="value", width=4)
    f.text(40, rail - 20, "$c_{t−1}$", LARGE, "value")
    f.text(676, rail - 20, "$c_t$", LARGE, "value")
    f.remark(360, 50, f.t("the cell: carried over almost unchanged"), "middle")
    xs = {"f": 186, "i": 290, "g": 366, "o": 476}
    f.path(f"M26 {floor}H{xs['o'] - 8}Q{xs['o']} {floor} {xs['o']} {floor - 8}", "target", BOLD)
    f.text(40, floor - 18, "$h_{t−1}$", LARGE, "target")
    f.arrow((146, 352), (146, floor + 2), color="source", width=BOLD, head=False)
    f.circle(146, floor, 4.5, "source")
    f.text(166, 346, "$x_t$", LARGE, "source", "start")
    f.text(196, 346, f.t("the token read now"), SMALL, "muted", "start")
    for name, label, color in (
        ("f", "$f$  σ", "weight"),
        ("i", "$i$  σ", "weight"),
        ("g", "$g$  tanh", "key"),
        ("o", "$o$  σ", "weight"),
    ):
        x = xs[name]
        f.arrow((x, floor - 4), (x, 232), width=THIN + 0.4)
        f.box(x - 33, 194, 66, 36, label, color, LARGE - 0.5)
    f.text(xs["f"] - 8, 166, f.t("forget"), SMALL, "muted", "end")
    f.arrow((xs["f"], 194), (xs["f"], rail + 11), color="weight")
    f.dot(xs["f"], rail, "×", "weight", 11)
    f.arrow((xs["i"], 194), (xs["i"], 152), (xs["i"] + 26, 152), color="weight", width=LINE)
    f.arrow((xs["g"], 194), (xs["g"], 152), (xs["g"] - 26, 152), color="key", width=LINE)
    mid = (xs["i"] + xs["g"]) / 2
    f.dot(mid, 152, "×", "weight", 11)
    f.arrow((mid, 141), (mid, rail + 11), color="key")
    f.dot(mid, rail, "+", "key", 11)
    f.text(xs["i"] - 8, 166, f.t("input"), SMALL, "muted", "end")
    f.text(xs["g"] + 8, 166, f.t("candidate"), SMALL, "muted", "start")
    hx = 556
    f.arrow((hx, rail), (hx, 122), color="value", width=LINE)
    f.box(hx - 28, 122, 56, 28, "tanh", "plain", NORMAL)
    f.arrow((hx, 150), (hx, 201), color="value")
    f.arrow((xs["o"] + 34, 212), (hx - 11, 212), color="weight")
    f.dot(hx, 212, "×", "weight", 11)
    f.text(xs["o"], 182, f.t("output"), SMALL, "muted")
    f.arrow((hx, 223), (hx, floor), (694, floor), color="target", width=BOLD, corner=10)
    f.text(676, floor - 18, "$h_t$", LARGE, "target")
    f.text(468, 338, "$c_t = f ⊙ c_{t−1} + i ⊙ g$", LARGE, "ink")
    f.text(468, 360, "$h_t = o ⊙$ tanh $(c_t)$", LARGE, "ink")


@drawing("recurrent-unrolled", 320)
def unrolled(f: Figure) -> None:
    words = ("Ela", "tem", "um", "gato", "preto")
    states = np.random.default_rng(5).uniform(0.1, 1, (6, 4))
    left, gap, y = 70, 122, 132
    f.text(12, 22, f.t("one cell, used at every step"), LARGE, anchor="start", bold=True)
    f.vector(left - 8, y - 28, states[0] * 0, "target", 16, high=1)
    f.text(left, y + 54, "$h_0$ = 0", NORMAL, "target")
    for i, word in enumerate(words):
        x = left + 62 + i * gap
        f.arrow((x - 52 if i == 0 else x - 30, y), (x - 21, y), color="target", width=BOLD)
        f.box(x - 20, y - 24, 44, 48, "RNN", "plain", SMALL + 1)
        f.arrow((x + 24, y), (x + 48, y), color="target", width=BOLD)
        f.vector(x + 50, y - 28, states[i + 1], "target", 16, high=1, tall=14)
        f.text(x + 58, y - 44, f"$h_{i + 1}$", NORMAL, "target")
        f.arrow((x + 2, y + 78), (x + 2, y + 26), color="source")
        f.chip(x + 2, y + 94, word, "source")
        f.remark(x + 2, y + 122, f"$x_{i + 1}$", "middle")
        f.text(x + 2, y - 40, "$W, U, b$", SMALL, "muted")
    f.text(360, y + 166, "$h_t$ = tanh$(W x_t + U h_{t−1} + b)$", LARGE)


@drawing("recurrent-reach", 390)
def reach(f: Figure) -> None:
    shown = data("reach")
    chart = axes(
        f,
        (76, 590, 66, 320),
        (0, -14),
        (49, 1),
        [(k, str(k)) for k in (0, 10, 20, 30, 40, 49)],
        [(-power, f"$10^{{−{power}}}$" if power else "1") for power in (0, 3, 6, 9, 12)],
        f.t("steps back"),
    )
    f.text(12, 22, f.t("gradient that arrives, as a share of that of the last step"), LARGE, anchor="start", bold=True)
    for (kind, values), color in zip(shown.items(), SERIES, strict=False):
        heights = [max(-14.0, math.log10(value)) for value in values]
        f.curve(chart.points(range(len(heights)), heights), color, BOLD)
        name = {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}[kind]
        f.text(600, chart.y(heights[-1]), name, NORMAL, color, "start", bold=True)

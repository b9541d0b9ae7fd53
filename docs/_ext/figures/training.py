"""Figures of the lecture on training."""

import math

import numpy as np

from figures.canvas import BOLD, LARGE, NORMAL, SMALL, THIN, Figure, axes, drawing, softmax


@drawing("training-shift", 320)
def shift(f: Figure) -> None:
    reads, asked = ("<s>", "Eu", "amo", "livros"), ("Eu", "amo", "livros", "</s>")
    left, gap = 250, 120
    f.text(12, 22, f.t("what each step reads, and what it is asked for"), LARGE, anchor="start", bold=True)
    for i, word in enumerate(("I", "love", "books")):
        f.chip(64, 118 + i * 40, word, "source", 64)
    f.remark(12, 92, f.t("source"))
    f.arrow((100, 158), (left - 46, 158), color="weight", width=BOLD)
    f.panel(left - 44, 124, 3 * gap + 88, 70)
    f.text(left + 1.5 * gap, 159, f.t("decoder, all steps at once"), NORMAL, "target", bold=True)
    f.remark(left - 52, 252, f.t("reads"), "end")
    f.remark(left - 52, 72, f.t("is asked for"), "end")
    for i, (read, ask) in enumerate(zip(reads, asked, strict=True)):
        x = left + i * gap
        f.arrow((x, 238), (x, 196), color="target")
        f.arrow((x, 123), (x, 88), color="target")
        f.chip(x, 252, read, "target", 72)
        f.chip(x, 72, ask, "target", 72, strong=True)
        if i < 3:
            f.path(f"M{x + 20} 86C{x + 50} 150 {x + gap - 50} 170 {x + gap - 20} 238", "line", THIN, dashed=True)
    f.remark(left, 292, f.t("the same word: once the answer, one step later the input"))


@drawing("training-loss", 370)
def loss(f: Figure) -> None:
    chart = axes(
        f,
        (60, 520, 60, 300),
        (0, 0),
        (1, 5),
        [(p, f.n(p, 1)) for p in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)],
        [(mark, str(mark)) for mark in range(6)],
        f.t("probability of the right word, $p$"),
    )
    f.text(12, 22, f.t("two ways to measure how wrong a step was"), LARGE, anchor="start", bold=True)
    p = np.linspace(math.exp(-5), 1, 200)
    f.curve(chart.points(p, -np.log(p)), "target", BOLD)
    f.curve(chart.points([0, 1], [1, 0]), "one", BOLD, dashed=True)
    f.text(536, 120, "−log $p$", LARGE, "target", "start", bold=True)
    f.text(536, 146, f.t("cross-entropy"), NORMAL, "target", "start")
    f.text(536, 250, "1 − $p$", LARGE, "one", "start", bold=True)
    f.text(536, 276, f.t("the slide"), NORMAL, "one", "start")
    for value in (0.1, 0.2):
        x = chart.x(value)
        f.circle(x, chart.y(-math.log(value)), 5, "target")
        f.text(x + 12, chart.y(-math.log(value)) - 6, f.n(-math.log(value), 3), NORMAL, "target", "start", bold=True)
        f.circle(x, chart.y(1 - value), 5, "one")
        f.text(x + 8, chart.y(1 - value) - 12, f.n(1 - value, 1), SMALL + 0.5, "one", "start")


@drawing("training-smoothing", 310)
def smoothing(f: Figure) -> None:
    p = softmax([2.0, 1.0, 0.0, -1.0])
    right = np.array([1.0, 0, 0, 0])
    panels = (
        (f.t("the answer"), right, "target"),
        (f.t("smoothed, $ε$ = {n}", n=f.n(0.1, 1)), 0.9 * right + 0.1 / 4, "target"),
        (f.t("the model says"), p, "weight"),
    )
    for at, (title, values, color) in enumerate(panels):
        left = 24 + at * 238
        f.text(left + 96, 24, title, LARGE, color, bold=True)
        f.path(f"M{left} 236H{left + 196}", "line", THIN)
        for i, value in enumerate(values):
            x = left + 8 + i * 48
            f.bar(x, 236 - 160 * value, 34, 160 * value, color)
            digits = 3 if at == 1 else 2 if at == 2 else 0
            f.text(x + 17, 236 - 160 * value - 12, f.n(value, digits), SMALL + 0.5, color)
            f.remark(x + 17, 252, f"$w_{i + 1}$", "middle")
    plain, spread = -math.log(p[0]), float(-((0.9 * right + 0.025) * np.log(p)).sum())
    words = f"{f.t('cross-entropy')}:  {f.n(plain, 3)}  →  {f.n(spread, 3)}"
    f.text(360, 286, words, NORMAL, "ink", bold=True)

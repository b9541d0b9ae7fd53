"""Figures of the lecture on metrics."""

import math

import numpy as np

from figures.canvas import BOLD, LARGE, NORMAL, SMALL, Figure, axes, drawing


@drawing("metrics-clipped", 290)
def clipped(f: Figure) -> None:
    said, wanted = ["the"] * 7, ["the", "cat", "is", "on", "the", "mat"]
    f.text(12, 22, f.t("a word counts only as often as the reference has it"), LARGE, anchor="start", bold=True)
    f.remark(12, 74, f.t("the system says"))
    f.remark(12, 186, f.t("reference"))
    xs = [190 + 70 * i for i in range(7)]
    links = list(zip(range(2), [at for at, word in enumerate(wanted) if word == "the"], strict=True))
    for i, j in links:
        f.link(xs[i], 88, xs[j] + 20, 172, "weight", BOLD)
    for i, word in enumerate(said):
        f.chip(xs[i], 74, word, "target", 54, faint=i > 1, strong=i < 2)
    for j, word in enumerate(wanted):
        f.chip(xs[j] + 20, 186, word, "source", 54, strong=word == "the")
    f.text(300, 246, f"$p_1$ = 2/7 = {f.n(2 / 7)}", LARGE, "weight", "start", bold=True)
    f.text(490, 246, f.t("not {n} of {n}", n=7), NORMAL, "muted", "start")


@drawing("metrics-brevity", 360)
def brevity(f: Figure) -> None:
    chart = axes(
        f,
        (60, 640, 60, 290),
        (0, 0),
        (1.5, 1.08),
        [(mark, f.n(mark, 2)) for mark in (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)],
        [(mark, f.n(mark, 1)) for mark in (0.0, 0.5, 1.0)],
        f.t("length of the translation / length of the reference, $c / r$"),
    )
    f.text(12, 22, f.t("brevity penalty"), LARGE, anchor="start", bold=True)
    ratio = np.linspace(0.12, 1.5, 200)
    f.curve(chart.points(ratio, np.minimum(1, np.exp(1 - 1 / ratio))), "target", BOLD)
    x, y = chart.x(5 / 8), chart.y(math.exp(1 - 8 / 5))
    f.path(f"M{x:.1f} {chart.floor}V{y:.1f}H{chart.left}", "target", dashed=True)
    f.circle(x, y, 6, "target")
    words = f.t("5 words for 8: BLEU is multiplied by {n}", n=f.n(math.exp(-0.6), 3))
    f.text(x + 16, y + 14, words, NORMAL, "target", "start", bold=True)


@drawing("metrics-f", 370)
def f_scores(f: Figure) -> None:
    chart = axes(
        f,
        (60, 540, 60, 300),
        (0, 0),
        (1, 1),
        [(mark, f.n(mark, 1)) for mark in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)],
        [(mark, f.n(mark, 1)) for mark in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)],
        f.t("recall"),
    )
    precision = 0.5
    f.text(12, 22, f.t("one precision, {n}, and every recall", n=f.n(precision, 1)), LARGE, anchor="start", bold=True)
    recall = np.linspace(0.001, 1, 200)
    f.curve(chart.points([0, 1], [precision, precision]), "line", dashed=True)
    f.remark(552, chart.y(precision) + 14, f.t("precision"))
    for (beta, use), color in zip(((1, "ROUGE"), (2, "chrF"), (3, "METEOR")), ("one", "two", "three"), strict=True):
        values = (1 + beta**2) * precision * recall / (beta**2 * precision + recall)
        f.curve(chart.points(recall, values), color, BOLD)
        label = f"$F_{beta}$,  {use}"
        f.text(
            552,
            chart.y(values[-1]) + (0 if beta < 3 else -8) + (4 if beta == 2 else 0),
            label,
            NORMAL,
            color,
            "start",
            bold=True,
        )
    f.text(chart.x(0.3), chart.y(0.72), f.t("larger $β$: nearer to recall"), SMALL + 1, "muted")

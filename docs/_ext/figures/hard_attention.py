"""Figures of the lecture on hard attention."""

import numpy as np

from figures.canvas import LARGE, NORMAL, SERIES, THIN, Figure, axes, data, drawing, softmax


@drawing("hard-gradient", 330)
def hard_choice(f: Figure) -> None:
    scores, values = np.array([1.0, 2.0, 0.5]), np.array([1.0, 5.0, 3.0])
    soft = softmax(scores)
    hard = (scores == scores.max()).astype(float)
    gradient = soft * (values - soft @ values)
    panels = (
        (f.t("soft"), soft, "weight"),
        (f.t("hard"), hard, "target"),
        (f.t("gradient, the same for both"), gradient, "one"),
    )
    for at, (title, shown, color) in enumerate(panels):
        left, floor, high = 24 + at * 232, 222 if at < 2 else 156, 130 if at < 2 else 80
        f.text(left + (90 if at < 2 else 100), 24, title, LARGE, color, bold=True)
        f.path(f"M{left} {floor}H{left + 190}", "line", THIN)
        for i, value in enumerate(shown):
            x = left + 14 + i * 60
            f.bar(x, floor - high * max(0, value), 42, high * abs(value), color)
            over = floor - high * value - 12 if value >= 0 else floor - high * value + 13
            f.text(x + 21, over, f.n(value), NORMAL, color, bold=True)
            f.text(x + 21, 246, f"$v_{i + 1}$ = {f.n(values[i], 0)}", NORMAL, "value")
        if at < 2:
            f.text(left + 95, 284, f"$c$ = {f.n(float(shown @ values))}", LARGE, color, bold=True)


@drawing("hard-bound", 340)
def bound(f: Figure) -> None:
    one, other = 0.9, 0.05
    share = np.linspace(0, 1, 101)
    exact = np.log(share * one + (1 - share) * other)
    lower = share * np.log(one) + (1 - share) * np.log(other)
    f.text(12, 22, f.t("log-likelihood of the right word, and the bound"), LARGE, anchor="start", bold=True)
    marks = [(mark, f.n(mark)) for mark in (0, 0.25, 0.5, 0.75, 1)]
    chart = axes(
        f, (70, 560, 60, 280), (0, -3.2), (1, 0), marks, [(mark, f.n(mark, 0)) for mark in (-3, -2, -1, 0)],
        f.t("probability of slot 1"),
    )  # fmt: skip
    f.curve(chart.points(share, exact), "one", 2.6)
    f.curve(chart.points(share, lower), "two", 2.6, dashed=True)
    f.text(chart.x(0.36), chart.y(-0.72), "$log p$", LARGE, "one", "end", bold=True)
    f.text(chart.x(0.62), chart.y(-1.75), "$L_s$", LARGE, "two", "start", bold=True)
    x, gap = chart.x(0.5), (exact[50], lower[50])
    f.path(f"M{x} {chart.y(gap[0]) + 4}V{chart.y(gap[1]) - 4}", "muted", THIN, dashed=True)
    f.text(574, 110, f.t("gap {n}", n=f.n(float(gap[0] - gap[1]))), NORMAL, "muted", "start", bold=True)
    f.remark(574, 130, f.t("in the middle"))


@drawing("hard-variance", 330)
def variance(f: Figure) -> None:
    weights, reward = softmax([1.0, 2.0, 0.5]), np.log([0.1, 0.8, 0.3])
    mean = weights @ reward
    exact = weights * (reward - mean)
    f.text(12, 22, f.t("one draw of the gradient: mean and standard deviation"), LARGE, anchor="start", bold=True)
    chart = axes(
        f, (70, 560, 56, 280), (0, -1.3), (3, 1.3), (), [(mark, f.n(mark, 0)) for mark in (-1, 0, 1)]
    )  # fmt: skip
    for i in range(3):
        f.text(chart.x(i + 0.5), 298, f.t("score {i}", i=i + 1), NORMAL, "ink")
        for at, (baseline, color) in enumerate(((0.0, "three"), (mean, "one"))):
            draws = (reward - baseline)[:, None] * (np.eye(3) - weights)
            spread = float(np.sqrt(weights @ (draws[:, i] - exact[i]) ** 2))
            x = chart.x(i + 0.38 + 0.24 * at)
            low, high = chart.y(exact[i] - spread), chart.y(exact[i] + spread)
            f.path(f"M{x:.1f} {low:.1f}V{high:.1f}M{x - 7:.1f} {low:.1f}h14M{x - 7:.1f} {high:.1f}h14", color, 2.2)
            f.circle(x, chart.y(exact[i]), 5, color)
    f.text(574, 110, f.t("no baseline"), NORMAL, "three", "start", bold=True)
    f.text(574, 154, f.t("with a baseline"), NORMAL, "one", "start", bold=True)


@drawing("hard-curves", 360)
def curves(f: Figure) -> None:
    shown = data("choices")
    f.text(12, 22, f.t("loss per token"), LARGE, anchor="start", bold=True)
    chart = axes(
        f, (60, 540, 56, 300), (0, 0), (120, 2.2), [(mark, str(mark)) for mark in (0, 40, 80, 120)],
        [(mark, f.n(mark, 0)) for mark in (0, 1, 2)], f.t("step"),
    )  # fmt: skip
    names = {"soft": "soft", "straight-through": "best slot", "REINFORCE": "REINFORCE", "sum": "exact sum"}
    for at, (key, words) in enumerate(names.items()):
        steps = range(len(shown[key]))
        f.curve(chart.points(steps, np.minimum(shown[key], 2.2)), SERIES[at], 2.4 if key == "REINFORCE" else 1.8)
        y = 84 + at * 40
        f.path(f"M560 {y}h22", SERIES[at], 2.6)
        f.text(590, y, words if key == "REINFORCE" else f.t(words), NORMAL, SERIES[at], "start", bold=True)

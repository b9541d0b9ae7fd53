"""Figures of the lecture on scores."""

import numpy as np

from figures.canvas import BOLD, LARGE, LINE, NORMAL, SMALL, THIN, Figure, axes, drawing, softmax


@drawing("scores-six", 470)
def six(f: Figure) -> None:
    f.text(12, 22, f.t("from a query and a key to a number; framed in red: learned"), LARGE, anchor="start", bold=True)
    cards = {
        "dot": ("", "", "·"),
        "scaled_dot": ("", "", "·"),
        "bilinear": ("W", "", "·"),
        "additive": ("W", "U", "+"),
        "location": ("W", None, ""),
        "content_location": ("W", "U", "+"),
    }
    for at, (name, (of_query, of_key, sign)) in enumerate(cards.items()):
        x, y = 12 + (at % 2) * 356, 46 + (at // 2) * 140
        f.panel(x, y, 340, 128)
        f.text(x + 14, y + 18, name, NORMAL, "ink", "start", bold=True)
        three = name == "content_location"
        middle = y + (78 if three else 72)
        rows = [("$q$", "query", of_query, middle - (30 if three else 22 if of_key is not None else 0))]
        if of_key is not None:
            rows.append(("$k_i$", "key", of_key, middle + (0 if three else 22)))
        if three:
            rows.append(("$f_i$", "weight", "F", middle + 30))
        joint = x + 168
        for label, color, matrix, row in rows:
            f.text(x + 20, row, label, NORMAL, color)
            f.vector(x + 36, row - 8, [0.4, 0.9, 0.2], color, 16, False, high=1)
            start = x + 86
            if matrix:
                f.arrow((start, row), (x + 102, row), width=THIN)
                f.box(x + 103, row - 12, 28, 24, f"${matrix}$", "weight", NORMAL)
                start = x + 132
            if sign:
                f.arrow(
                    (start, row),
                    (joint - (10 if row == middle else 6), middle + (row - middle) * (0.0 if row == middle else 0.26)),
                    width=THIN + 0.2,
                )
        if name == "location":
            f.arrow((x + 132, middle), (x + 168, middle), width=THIN + 0.2)
            f.vector(x + 170, middle - 10, [0.2, 0.3, 1.0, 0.3, 0.1], "plain", 20, False, high=1.4)
            f.text(x + 220, middle - 24, "$i$", NORMAL, "muted")
            f.arrow((x + 220, middle + 11), (x + 220, middle + 34), (x + 300, middle + 34), width=THIN + 0.2)
            f.text(x + 314, middle + 34, "$e_i$", LARGE, "ink", bold=True)
            continue
        f.dot(joint, middle, sign, "plain", 10)
        end = joint + 11
        if sign == "+":
            f.arrow((end, middle), (end + 16, middle), width=THIN + 0.2)
            f.box(end + 17, middle - 13, 46, 26, "tanh", "plain", SMALL + 1)
            f.arrow((end + 63, middle), (end + 77, middle), width=THIN + 0.2)
            f.box(end + 78, middle - 13, 26, 26, "$v$", "weight", NORMAL)
            end += 104
        if name == "scaled_dot":
            f.arrow((end, middle), (end + 24, middle), width=THIN + 0.2)
            f.box(end + 25, middle - 13, 54, 26, "$÷ √d$", "plain", NORMAL)
            end += 79
        f.arrow((end, middle), (x + 302, middle), width=THIN + 0.2)
        f.text(x + 318, middle, "$e_i$", LARGE, "ink", bold=True)


@drawing("scores-spread", 370)
def spread(f: Figure) -> None:
    widths, rng = (4, 16, 64, 256, 1024), np.random.default_rng(0)
    pairs = [rng.standard_normal((2, 2000, d)) for d in widths]
    plain = [float((q * k).sum(1).std()) for q, k in pairs]
    chart = axes(
        f,
        (60, 560, 60, 300),
        (2, 0),
        (10, 34),
        [(np.log2(d), str(d)) for d in widths],
        [(mark, str(mark)) for mark in (0, 8, 16, 24, 32)],
        f.t("width $d$"),
    )
    f.text(12, 22, f.t("standard deviation of the scores of random vectors"), LARGE, anchor="start", bold=True)
    smooth = np.linspace(2, 10, 80)
    f.curve(chart.points(smooth, 2 ** (smooth / 2)), "faint", LINE, dashed=True)
    for color, values, label in (
        ("one", plain, f.t("plain") + "  $q · k$"),
        ("two", [value / d**0.5 for value, d in zip(plain, widths, strict=True)], f.t("scaled") + "  $q · k / √d$"),
    ):
        points = chart.points([float(np.log2(d)) for d in widths], values)
        f.curve(points, color, BOLD)
        for (x, y), value in zip(points, values, strict=True):
            f.circle(x, y, 4, color)
            if color == "one" or x == points[-1][0]:
                f.text(x, y - 14, f.n(value, 1), SMALL, color)
        f.text(572, points[-1][1], label, NORMAL, color, "start", bold=True)


@drawing("scores-sharp", 330)
def sharp(f: Figure) -> None:
    rng = np.random.default_rng(2)
    query, keys = rng.standard_normal(256), rng.standard_normal((8, 256))
    scores = keys @ query
    f.text(12, 22, f.t("weights of eight random keys, width 256"), LARGE, anchor="start", bold=True)
    for left, title, color, weights in (
        (30, f.t("plain"), "one", softmax(scores)),
        (390, f.t("scaled"), "two", softmax(scores / 16)),
    ):
        f.text(left + 150, 58, title, LARGE, color, bold=True)
        f.path(f"M{left} 270H{left + 304}", "line", THIN)
        for i, weight in enumerate(weights):
            x = left + 4 + i * 38
            f.bar(x, 270 - 170 * weight, 28, 170 * weight, color)
            f.text(x + 14, 270 - 170 * weight - 12, f.n(weight), SMALL, color, bold=weight > 0.5)
            f.text(x + 14, 286, f"$k_{i + 1}$", NORMAL, "key")
    f.remark(12, 314, f.t("One spike has hardly a gradient; a spread can still be changed."))

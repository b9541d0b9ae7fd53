"""Figures of the lecture on attention."""

import numpy as np

from figures.canvas import LARGE, LINE, NORMAL, SMALL, THIN, Figure, axes, data, drawing, short, softmax


@drawing("attention-weights", 372)
def weights_by_hand(f: Figure) -> None:
    query, keys = np.array([1.0, 2.0]), np.array([[1.0, 0], [0, 1], [1, 1], [9, 9]])
    values, real = np.array([[1.0, 0], [0, 1], [2, 2], [5, 5]]), 3
    scores = keys @ query
    weights = np.append(softmax(scores[:real]), 0.0)
    context = weights @ values
    columns = {"slot": 44, "key": 144, "score": 274, "weight": 412, "value": 544, "share": 658}
    top, row = 116, 46
    f.text(columns["key"], 22, f.t("query"), NORMAL, "query", bold=True)
    f.vector(columns["key"] - 34, 36, query, "query", 34, upright=False, numbers=0, high=4, tall=28)
    f.text(columns["key"] + 52, 50, "$q$", LARGE, "query")
    f.arrow((columns["key"] + 66, 50), (columns["score"], 50), (columns["score"], 62), color="query")
    heads = (
        ("key", "keys", "$k_i$", "key"),
        ("score", "scores", "$e_i = q · k_i$", "ink"),
        ("weight", "weights", "$a_i$ = softmax", "weight"),
        ("value", "values", "$v_i$", "value"),
        ("share", "shares", "$a_i v_i$", "ink"),
    )
    for at, name, formula, color in heads:
        if at == "key":
            f.text(columns[at], 91, f.t(name) + "  " + formula, NORMAL, color, bold=True)
        else:
            f.text(columns[at], 72, f.t(name), NORMAL, color, bold=True)
            f.text(columns[at], 93, formula, NORMAL, color)
    for i in range(4):
        y, pad = top + i * row, i >= real
        middle = y + 16
        if pad:
            f.rect(12, y - 7, 696, row, "panel", radius=8)
        f.text(
            columns["slot"] - 24, middle, f.t("padding") if pad else f.t("slot {i}", i=i + 1), SMALL, "muted", "start"
        )
        if pad:
            f.vector(columns["key"] - 34, y + 2, keys[i] * 0, "faint", 34, upright=False, high=1, tall=28)
            f.vector(columns["value"] - 34, y + 2, keys[i] * 0, "faint", 34, upright=False, high=1, tall=28)
            for at in ("key", "value"):
                for k in (0, 1):
                    f.text(
                        columns[at] - 17 + 34 * k,
                        middle,
                        f.n((keys if at == "key" else values)[i][k], 0),
                        SMALL + 1,
                        "muted",
                    )
        else:
            f.vector(columns["key"] - 34, y + 2, keys[i], "key", 34, upright=False, numbers=0, high=2.4, tall=28)
            f.vector(columns["value"] - 34, y + 2, values[i], "value", 34, upright=False, numbers=0, high=3.2, tall=28)
        f.arrow((columns["key"] + 40, middle), (columns["score"] - 50, middle), color="faint" if pad else "line")
        terms = " + ".join(f"{int(a)}·{int(b)}" for a, b in zip(query, keys[i], strict=True))
        f.text(
            columns["score"] + 2,
            middle,
            "−∞" if pad else f"{terms} = {f.n(scores[i], 0)}",
            NORMAL,
            "muted" if pad else "ink",
        )
        f.arrow((columns["score"] + 52, middle), (columns["weight"] - 58, middle), color="faint" if pad else "line")
        f.rect(columns["weight"] - 54, middle - 9, 108, 18, "panel", radius=3)
        if weights[i]:
            f.rect(columns["weight"] - 54, middle - 9, 108 * weights[i], 18, "weight", radius=3)
        inside = weights[i] > 0.5
        f.text(
            columns["weight"] - 54 + 108 * weights[i] + (-8 if inside else 8),
            middle,
            f.n(weights[i], 2 if not pad else 0),
            NORMAL,
            "on-weight" if inside else "muted" if pad else "weight",
            "end" if inside else "start",
            bold=True,
        )
        f.text((columns["weight"] + columns["value"]) / 2 + 10, middle, "×", LARGE, "muted")
        f.text(columns["value"] + 50, middle, "=", LARGE, "muted")
        share = weights[i] * values[i]
        f.vector(
            columns["share"] - 42,
            y + 2,
            share,
            "faint" if pad else "weight",
            42,
            upright=False,
            numbers=0 if pad else 2,
            high=3,
            tall=28,
        )
    y = top + 4 * row + 2
    f.path(f"M{columns['share'] - 52} {y}H{columns['share'] + 52}", "line", LINE)
    f.text(columns["share"] - 68, y + 26, "Σ", LARGE + 2, "weight")
    f.vector(columns["share"] - 42, y + 12, context, "weight", 42, upright=False, numbers=2, high=3, tall=28)
    f.text(columns["share"] - 20, y + 60, f.t("context") + "  $c = Σ_i a_i v_i$", NORMAL, "weight", bold=True)
    f.text(columns["weight"], y + 16, "Σ = 1", NORMAL, "weight")
    f.remark(
        columns["slot"] - 24,
        y + 22,
        f.t("Padding is hidden before the softmax:\nits score is −∞, its weight 0."),
        size=SMALL + 0.5,
    )


@drawing("attention-gru", 300)
def gru(f: Figure) -> None:
    shown = data("gru")
    bars = [shown["first"], *shown["weights"]]
    left, gap, floor, high = 74, 68, 214, 360
    f.text(
        left - 30, 22, f.t("how much of each step is left in the last state $h_8$"), LARGE, anchor="start", bold=True
    )
    for mark in (0.1, 0.2, 0.3):
        f.path(f"M{left - 30} {short(floor - high * mark)}H{left + 8 * gap + 40}", "faint", THIN)
        f.remark(left - 36, floor - high * mark, f.n(mark, 1), "end")
    f.path(f"M{left - 30} {floor}H{left + 8 * gap + 40}", "line", THIN)
    for i, weight in enumerate(bars):
        x = left + i * gap
        color = "weight" if i else "line"
        f.rect(x - 19, floor - high * weight, 38, high * weight, color, radius=2, opacity=0.85)
        f.text(x, floor - high * weight - 11, f.n(weight), SMALL + 0.5, color, bold=i > 0)
        f.text(x, floor + 23, f"$h_{i}$", LARGE, "source")
        if i:
            f.text(x - 3.5, floor + 12.5, "~", NORMAL, "source")
            f.text(x, floor + 44, f"$u_{i}$ = {f.n(shown['u'][i - 1])}", SMALL, "muted")
    f.remark(
        left - 30,
        floor + 72,
        f.t("Gate $u$ keeps the old state: what step $i$ wrote is multiplied by every later $u$."),
    )


@drawing("attention-factor", 310)
def factor(f: Figure) -> None:
    scores = np.array([1.0, 2.0, 3.0])
    f.text(12, 22, f.t("the same keys, a longer or a shorter query"), LARGE, anchor="start", bold=True)
    for at, times in enumerate((0.1, 1.0, 10.0)):
        left = 40 + at * 230
        weights = softmax(times * scores)
        name = f.n(times, 1) if times < 1 else f.n(times, 0)
        f.text(left + 90, 62, f"{name} $q$", LARGE, "query", bold=True)
        f.path(f"M{left} 244H{left + 180}", "line", THIN)
        for i, weight in enumerate(weights):
            x = left + 10 + i * 60
            f.bar(x, 244 - 140 * weight, 40, 140 * weight, "weight")
            f.text(x + 20, 244 - 140 * weight - 12, f.n(weight), NORMAL, "weight", bold=weight > 0.5)
            f.text(x + 20, 260, f"$k_{i + 1}$", NORMAL, "key")
    f.remark(130, 288, f.t("almost a mean"), "middle")
    f.remark(590, 288, f.t("almost a choice"), "middle")


@drawing("attention-plane", 380)
def plane(f: Figure) -> None:
    values = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    weights = softmax([1.0, 2.0, 3.0])
    context = weights @ values
    marks = [(n, str(n)) for n in (0, 1, 2)]
    chart = axes(f, (160, 560, 60, 330), (-0.4, -0.25), (2.5, 2.25), marks, marks)
    f.text(12, 22, f.t("the context is between the values"), LARGE, anchor="start", bold=True)
    corners = [(chart.x(a), chart.y(b)) for a, b in values]
    outline = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners) + "Z"
    f.path(outline, "faint", LINE, dashed=True, fill="panel")
    here = chart.x(context[0]), chart.y(context[1])
    for i, ((x, y), weight) in enumerate(zip(corners, weights, strict=True)):
        f.path(f"M{x:.1f} {y:.1f}L{here[0]:.1f} {here[1]:.1f}", "weight", 1 + 9 * weight, opacity=0.35 + 0.5 * weight)
        f.circle(x, y, 8, "value")
        dx, dy, anchor = ((14, 16, "start"), (-10, -22, "middle"), (16, -6, "start"))[i]
        f.text(x + dx, y + dy, f"$v_{i + 1}$,  $a_{i + 1}$ = {f.n(weight)}", NORMAL, "value", anchor, bold=True)
    f.circle(*here, 9, "weight", "paper")
    words = f"$c$ = {f.pair(*context)}"
    f.text(here[0] + 18, here[1] + 24, words, LARGE, "weight", "start", bold=True)

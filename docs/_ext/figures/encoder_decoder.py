"""Figures of the lecture on an encoder and a decoder."""

import numpy as np

from figures.canvas import BOLD, LARGE, NORMAL, SMALL, THIN, Figure, axes, data, drawing, wide


@drawing("encoder-decoder-bottleneck", 520)
def bottleneck(f: Figure) -> None:
    shown = data("map-short")
    source, target, weights = shown["source"][:6], shown["target"][:6], shown["mean"]
    states = np.random.default_rng(3).uniform(-1, 1, (12, 4))
    xs, zs = [46 + 51 * i for i in range(6)], [419 + 51 * i for i in range(6)]
    reads = ["<s>", *target[:5]]

    def chip(x: float, y: float, word: str, color: str, strong: bool = False) -> None:
        f.chip(x, y, word, color, w=max(26, min(49, wide(word, NORMAL) + 14)), h=24, strong=strong)

    for with_attention in (False, True):
        top = 260 if with_attention else 8
        y = top + (130 if with_attention else 118)  # the top of the states
        title = (
            "With attention: all states, re-weighted at each step"
            if with_attention
            else "Without attention: one vector for the whole sentence"
        )
        f.text(12, top + 12, f.t(title), LARGE, bold=True, anchor="start")
        f.panel(12, y - 22, 323, 132)
        f.panel(385, y - 22, 323, 132)
        f.remark(22, y + 99, f.t("encoder"))
        f.remark(698, y + 99, f.t("decoder"), "end")
        for i in range(6):
            f.vector(xs[i] - 8, y, states[i], "source", 16, high=1, tall=12)
            chip(xs[i], y + 76, source[i], "source")
            f.vector(zs[i] - 8, y, states[6 + i], "target", 16, high=1, tall=12)
            f.text(zs[i], y + 76, reads[i], SMALL, "muted")
            chip(zs[i], y - 44, target[i], "target", strong=with_attention and i == 3)
            f.arrow((zs[i], y - 3), (zs[i], y - 30), color="target")
            f.arrow((zs[i], y + 68), (zs[i], y + 52), width=THIN)
            if i < 5:
                f.arrow((xs[i] + 11, y + 24), (xs[i + 1] - 10, y + 24))
                f.arrow((zs[i] + 11, y + 24), (zs[i + 1] - 10, y + 24))
        if with_attention:
            cx, cy = 360, y - 78
            for i, weight in enumerate(weights[3][:6]):
                f.path(
                    f"M{xs[i]} {y - 2}C{xs[i]} {cy + 4} {xs[i] + 60} {cy} {cx - 10} {cy}",
                    "weight",
                    max(0.8, 9 * weight),
                    opacity=0.3 + 0.7 * weight,
                )
                shift, anchor = {4: (7, "start"), 5: (14, "start")}.get(i, (0, "middle"))
                f.text(xs[i] + shift, y - 12, f.n(weight), SMALL, "weight", bold=weight > 0.5, anchor=anchor)
            f.arrow((zs[3] - 5, y - 2), (zs[3] - 5, y - 15), (cx, y - 15), (cx, cy + 12), color="query", width=2.1)
            f.text(cx - 6, y - 36, "$q = z_4$", NORMAL, "query", "end")
            f.arrow((cx + 10, cy), (zs[3], cy), (zs[3], y - 58), color="weight", width=BOLD, corner=14)
            f.dot(cx, cy, "+", "weight", 10)
            f.text(cx + 30, cy - 13, "$c_4$", LARGE, "weight")
        else:
            f.path(
                f"M335 {y - 2}C348 {y - 2} 346 {y + 10} 352 {y + 10}H368C374 {y + 10} 372 {y - 2} 385 {y - 2}V{y + 50}"
                f"C372 {y + 50} 374 {y + 38} 368 {y + 38}H352C346 {y + 38} 348 {y + 50} 335 {y + 50}Z",
                "panel",
                1,
                fill="panel",
            )
            f.arrow((xs[5] + 11, y + 24), (zs[0] - 10, y + 24), color="source", width=BOLD)
            f.vector(352, y, states[5], "source", 16, high=1, tall=12)
            f.text(360, y - 14, "$c = h_6$", NORMAL, "source")
            f.remark(384, y - 54, f.t("the bottleneck"), "end", NORMAL)
            f.arrow((360, y - 43), (360, y - 25), color="muted", width=THIN)


@drawing("encoder-decoder-product", 330)
def product(f: Figure) -> None:
    steps = data("product")
    left, gap, y = 98, 110, 128
    f.text(
        12,
        22,
        f.t("one probability per step; their product is that of the translation"),
        LARGE,
        anchor="start",
        bold=True,
    )
    f.remark(12, y + 64, f.t("reads"))
    f.remark(12, y - 62, f.t("says"))
    total = 1.0
    for t, (read, say, p) in enumerate(steps):
        x = left + t * gap
        read_word, say_word = (({1: "<s>", 2: "</s>"}).get(token, str(token)) for token in (read, say))
        total *= p
        f.arrow((x, y + 50), (x, y + 26), color="target")
        f.box(x - 34, y - 24, 68, 48, f"$z_{t + 1}$", "target", LARGE)
        f.arrow((x, y - 25), (x, y - 47), color="target")
        f.chip(x, y + 64, read_word, "target", 44)
        f.chip(x, y - 62, say_word, "target", 44, strong=True)
        if t < len(steps) - 1:
            f.arrow((x + 35, y), (x + gap - 35, y))
            f.text(x + gap / 2, y + 112, "·", LARGE + 4, "muted")
        f.text(x, y + 112, f.n(p, 3), LARGE, "ink", bold=True)
        f.remark(x, y + 140, f"log $p$ = {f.n(float(np.log(p)))}", "middle")
    x = left + len(steps) * gap
    f.text(x - 62, y + 112, "=", LARGE, "muted")
    f.text(x, y + 112, f"{f.n(total * 1e6, 1)} · $10^{{−6}}$", LARGE, "weight", bold=True)
    f.remark(x, y + 140, f"log $p$ = {f.n(float(np.log(total)))}", "middle")
    f.remark(12, 310, f.t("Fresh weights and 12 tokens: every p is near 1/12."))


@drawing("encoder-decoder-influence", 350)
def influence(f: Figure) -> None:
    values = np.array(data("influence"))
    values = values / values.max()
    chart = axes(
        f,
        (56, 700, 66, 268),
        (0.5, 0),
        (24.5, 1.05),
        [(i, str(i)) for i in (1, 4, 8, 12, 16, 20, 24)],
        [(mark, f.n(mark, 1)) for mark in (0.0, 0.5, 1.0)],
        f.t("word of the source"),
    )
    f.text(12, 22, f.t("influence of each word of the source on the one vector $c$"), LARGE, anchor="start", bold=True)
    for i, value in enumerate(values, 1):
        f.bar(chart.x(i) - 10, chart.y(value), 20, chart.floor - chart.y(value), "source")
    for third in range(3):
        x0, x1 = chart.x(8 * third + 0.6), chart.x(8 * third + 8.4)
        mean = float(values[8 * third : 8 * third + 8].mean())
        f.path(f"M{x0:.1f} {chart.y(mean):.1f}H{x1:.1f}", "weight", BOLD, dashed=True)
        f.text((x0 + x1) / 2, 52, f.t("mean {n}", n=f.n(mean)), NORMAL, "weight", bold=True)

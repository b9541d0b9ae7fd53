"""Figures of the lecture on attention today."""

import math

import numpy as np

from figures.canvas import BOLD, LARGE, NORMAL, SMALL, THIN, Figure, axes, data, drawing


@drawing("today-heads", 330)
def heads(f: Figure) -> None:
    query, key = 8, (8, 2, 1)
    f.text(12, 22, f.t("heads of queries"), NORMAL, "query", "start", bold=True)
    f.text(12, 202, f.t("heads of keys and values"), NORMAL, "key", "start", bold=True)
    for panel, groups in enumerate(key):
        left, gap = 24 + panel * 236, 25
        for head in range(query):
            x: float = left + head * gap
            f.rect(x, 46, 18, 34, "query-soft", "query", THIN, radius=4)
            group = head * groups // query
            to = left + gap * (group * query // groups + (query // groups - 1) / 2)
            f.arrow((x + 9, 82), (to + 9, 138), color="line", width=THIN, head=False)
        for group in range(groups):
            x = left + gap * (group * query // groups + (query // groups - 1) / 2)
            f.rect(x - 1, 140, 9, 40, "key-soft", "key", THIN, radius=3)
            f.rect(x + 9, 140, 9, 40, "value-soft", "value", THIN, radius=3)
        title = ("one for each", "one for a group", "one for all")[panel]
        f.text(left + 96, 232, f.t(title), NORMAL, "ink", bold=True)
        gigabytes = 2 * 32 * groups * 128 * 2 * 8192 / 1e9
        f.bar(left, 256, 140 * gigabytes / 1.1, 22, "key")
        f.text(
            left + 140 * gigabytes / 1.1 + 8, 267, f.t("{n} GB", n=f.n(gigabytes)), NORMAL, "key", "start", bold=True
        )
    f.remark(12, 310, f.t("The cache of 32 layers for 8,192 tokens, heads of width 128, 2 bytes per number."))


@drawing("today-rotary", 370)
def rotary(f: Figure) -> None:
    f.text(12, 22, f.t("one pair of numbers, turned"), LARGE, anchor="start", bold=True)
    f.text(390, 22, f.t("score by distance"), LARGE, anchor="start", bold=True)
    turn, radius = 0.28, 70.0
    for at, (m, n) in enumerate(((5, 2), (12, 9))):
        x, y = 92 + at * 196, 170
        f.circle(x, y, radius, "panel", "faint")
        for position, color, name, start in ((m, "query", "q", 0.25), (n, "key", "k", 0.0)):
            angle = start + turn * position
            dx, dy = radius * math.cos(angle), -radius * math.sin(angle)
            f.arrow((x, y), (x + dx, y + dy), color=color, width=BOLD)
            f.text(x + 1.22 * dx, y + 1.22 * dy, f"${name}$", LARGE, color, bold=True)
        f.text(x, y + 118, f.t("query {m}, key {n}", m=m, n=n), NORMAL, "ink")
    f.remark(190, 328, f.t("the same distance, the same angle"), "middle")
    distance = np.arange(65)
    theta = 10_000.0 ** (-np.arange(32) / 32)
    falls = np.cos(distance[:, None] * theta).mean(1)
    marks = [(mark, f.n(mark, 1)) for mark in (0, 0.5, 1)]
    chart = axes(
        f, (430, 706, 60, 290), (0, 0), (64, 1), [(mark, str(mark)) for mark in (0, 16, 32, 48, 64)], marks,
        f.t("distance of query and key"),
    )  # fmt: skip
    f.curve(chart.points(distance, falls), "weight", 2.4)


@drawing("today-tiles", 330)
def tiles(f: Figure) -> None:
    scores = np.array([1.0, 2.0, 3.0, 1.5, 0.0, 1.0])
    values = np.array([0.0, 1.0, 2.0, 1.0, 4.0, 5.0])
    for y, name, color in ((54, "scores", "query"), (102, "values", "value")):
        f.text(112, y, f.t(name), NORMAL, color, "end", bold=True)
    for y, name, color in (
        (196, "largest score", "ink"), (236, "sum so far", "ink"), (276, "context so far", "weight"),
    ):  # fmt: skip
        f.text(180, y, f.t(name), NORMAL, color, "end", bold=True)
    largest, total, context = -math.inf, 0.0, 0.0
    for tile in range(3):
        x = 200 + tile * 176
        f.panel(x - 10, 24, 156, 108)
        f.text(x + 68, 12, f.t("tile {i}", i=tile + 1), SMALL, "muted")
        s, v = scores[2 * tile : 2 * tile + 2], values[2 * tile : 2 * tile + 2]
        for at in range(2):
            cx = x + at * 68
            f.rect(cx, 38, 60, 32, "query-soft", "query", THIN, radius=4)
            f.text(cx + 30, 54, f.n(s[at], 1), NORMAL, "ink")
            f.rect(cx, 86, 60, 32, "value-soft", "value", THIN, radius=4)
            f.text(cx + 30, 102, f.n(v[at], 0), NORMAL, "ink")
        f.arrow((x + 68, 134), (x + 68, 172))
        new = max(largest, s.max())
        shrink = math.exp(largest - new)
        raised = np.exp(s - new)
        old, total = total, shrink * total + raised.sum()
        context = (shrink * old * context + raised @ v) / total
        if tile and new > largest:
            f.text(x - 26, 160, f"× {f.n(shrink)}", NORMAL, "target", bold=True)
        largest = new
        for y, number, digits, color in (
            (196, largest, 0, "ink"), (236, total, 2, "ink"), (276, context, 2, "weight"),
        ):  # fmt: skip
            f.text(x + 68, y, f.n(number, digits), LARGE, color, bold=color == "weight")
            if tile < 2:
                f.arrow((x + 102, y), (x + 206, y), width=THIN)
    f.remark(12, 314, f.t("Orange: a larger score has appeared, so the old sum and context are scaled down."))


@drawing("today-read", 270)
def read(f: Figure) -> None:
    shown = data("reads")
    f.text(12, 22, f.t("million weights read for one sentence"), LARGE, anchor="start", bold=True)
    names = {"no encoder": "13 layers, no encoder", "6 + 6": "6 + 6 layers", "12 + 1": "12 + 1 layers"}
    for at, (key, words) in enumerate(names.items()):
        y = 70 + at * 56
        weights, reads = (number / 1e6 for number in shown[key])
        color = ("plain", "source", "target")[at]
        f.text(226, y - 8, f.t(words), NORMAL, color, "end", bold=True)
        f.remark(226, y + 10, f.t("{n} million weights", n=f.n(weights, 1)), "end")
        f.bar(238, y - 13, 1.85 * reads, 26, color)
        f.text(246 + 1.85 * reads, y, f.n(reads, 0), NORMAL, color, "start", bold=True)
    f.remark(12, 250, f.t("20 tokens are read, 20 are written."))

"""Figures of the lecture on the Transformer."""

import math

import numpy as np

from figures.canvas import BOLD, LARGE, LINE, NORMAL, SERIES, SMALL, THIN, Figure, data, drawing, short, wide


@drawing("transformer-blocks", 628)
def blocks(f: Figure) -> None:
    left, right, w, bottom = 118, 418, 190, 562  # the two columns, and where their embeddings end

    def layer(x: float, y: float, label: str, color: str) -> None:
        """A sub-layer whose lower edge is at y, and Add & Norm above it."""
        f.box(x, y - 44, w, 44, label, color)
        f.arrow((x + w / 2, y - 44), (x + w / 2, y - 56), width=THIN + 0.4)
        f.rect(x, y - 80, w, 22, "paper", "line", THIN, radius=6)
        f.text(x + w / 2, y - 69, "Add & Norm", SMALL + 0.5, "muted")

    def bypass(x: float, start: float, norm: float, side: int) -> None:
        edge = x + w if side > 0 else x
        f.arrow(
            (x + w / 2, start),
            (edge + 20 * side, start),
            (edge + 20 * side, norm + 11),
            (edge + side, norm + 11),
            width=THIN + 0.2,
        )

    first = bottom - 76  # the lower edge of the first sub-layer
    e1 = first - 80
    e2 = e1 - 26 - 80
    d1 = first - 80
    d2 = d1 - 40 - 80
    d3 = d2 - 26 - 80
    f.panel(left - 34, e2 - 20, w + 68, first + 16 - e2 + 20, radius=14)
    f.panel(right - 34, d3 - 20, w + 68, first + 16 - d3 + 20, radius=14)
    middle = left + w / 2
    layer(left, first, f.t("self-attention"), "weight")
    layer(left, e1 - 26, f.t("feed-forward"), "plain")
    f.arrow((middle, e1), (middle, e1 - 25))
    bypass(left, first + 8, e1, -1)
    bypass(left, e1 - 9, e2, -1)
    center = right + w / 2
    layer(right, first, f.t("masked self-attention"), "weight")
    layer(right, d1 - 40, f.t("cross-attention"), "weight")
    layer(right, d2 - 26, f.t("feed-forward"), "plain")
    f.arrow((center, d1), (center, d1 - 39), color="query", width=2.1)
    f.arrow((center, d2), (center, d2 - 25))
    bypass(right, first + 8, d1, 1)
    bypass(right, d1 - 10, d2, 1)
    bypass(right, d2 - 9, d3, 1)
    f.text(center + 10, d1 - 26, "$Q$", NORMAL, "query", "start")
    # what the encoder hands over: keys and values of the cross-attention
    cross, top = d1 - 40 - 22, e2 - 38
    f.arrow((336, top), (350, top), (350, cross + 9), (right - 1, cross + 9), color="value", width=2.1)
    f.arrow((336, top), (366, top), (366, cross - 9), (right - 1, cross - 9), color="key", width=2.1)
    f.path(f"M{middle} {e2}V{top + 10}Q{middle} {top} {middle + 10} {top}H336", "source", BOLD)
    f.text(right - 24, cross - 21, "$K$", NORMAL, "key")
    f.text(right - 24, cross + 22, "$V$", NORMAL, "value")
    f.text(middle - 12, top - 1, f.t("memory: one state per word"), SMALL + 0.5, "source", "end")
    f.bracket(left - 42, e2 - 14, first + 10, "N ×", side=-1, size=NORMAL)
    f.bracket(right + w + 42, d3 - 14, first + 10, "N ×", size=NORMAL)
    sides = (
        (left, "source", ("Ela", "tem", "um", "gato", "preto"), f.t("source")),
        (right, "target", ("<s>", "She", "has", "a", "black"), f.t("target so far")),
    )
    for x, color, words, label in sides:
        f.arrow((x + w / 2, bottom - 30), (x + w / 2, first + 1))
        f.box(x, bottom - 30, w, 30, f.t("embedding + position"), color, SMALL + 1)
        widths = [max(28, wide(word, SMALL + 1) + 12) for word in words]
        at, space = x - 25.0, (w + 50 - sum(widths)) / 4
        for word, width in zip(words, widths, strict=True):
            f.chip(at + width / 2, bottom + 26, word, color, width, 23, SMALL + 1)
            at += width + space
        f.arrow((x + w / 2, bottom + 13), (x + w / 2, bottom + 1), width=THIN + 0.4)
        f.remark(x + w / 2, bottom + 52, label, "middle")
    out = d3 - 20 - 14
    f.arrow((center, d3), (center, out + 1))
    f.box(right, out - 34, w, 34, f.t("linear + softmax"), "target", SMALL + 1.5)
    f.arrow((center, out - 34), (center, out - 52), width=THIN + 0.4)
    f.chip(center, out - 68, "cat", "target", strong=True)
    f.remark(center + 34, out - 68, f.t("the next word"))
    f.text(center, 20, f.t("decoder"), LARGE + 3, "target", bold=True)
    f.text(middle, 20, f.t("encoder"), LARGE + 3, "source", bold=True)
    f.text(middle, 44, f.t("reads the whole source at once"), SMALL + 0.5, "muted")
    y = out - 34
    for color, kind in (("weight", "mixes words with each other"), ("plain", "works on each word separately")):
        f.rect(left - 34, y - 7, 14, 14, f"{color}-soft", color, THIN, 3)
        f.remark(left - 12, y, f.t(kind))
        y += 24
    f.arrow((left - 38, y), (left - 18, y), width=THIN + 0.2)
    f.remark(left - 12, y, f.t("around a box: the bypass, added"))


@drawing("transformer-masks", 372)
def masks(f: Figure) -> None:
    words = ["<s>", "She", "has", "a", "cat", "."]
    padded = ["<s>", "She", "runs", ".", "pad", "pad"]
    cell, top = 31, 122
    causal = np.triu(np.ones((6, 6), bool), 1)
    padding = np.tile(np.array([False] * 4 + [True] * 2), (6, 1))
    panels = (
        (56, f.t("causal"), words, causal, f.t("A word sees itself\nand what came before.")),
        (300, f.t("padding"), padded, padding, f.t("Nobody sees the filling.")),
        (528, f.t("both"), padded, causal | padding, f.t("What a decoder uses\nin training.")),
    )
    for x, title, names, hidden, note in panels:
        f.text(x + 3 * cell, 20, title, LARGE, bold=True)
        f.text(x + 3 * cell, 46, note, SMALL, "muted")
        weights = np.where(hidden, 0.0, 1.0)
        weights = weights / weights.sum(1, keepdims=True)
        f.heat(x, top, weights, (cell, cell), digits=None, hidden=hidden)
        for i, name in enumerate(names):
            faint = name == "pad"
            f.text(x + i * cell + cell / 2 + 1, top - 10, name, SMALL, "muted" if faint else "key", "start", turn=-40)
            if x != 528:
                f.text(x - 8, top + i * cell + cell / 2, name, SMALL, "muted" if faint else "query", "end")
        for i in range(6):
            for j in range(6):
                if not hidden[i][j]:
                    f.text(
                        x + j * cell + cell / 2,
                        top + i * cell + cell / 2,
                        f"1/{round(1 / weights[i][j])}" if weights[i][j] < 1 else "1",
                        SMALL - 1,
                        "on-weight" if weights[i][j] > 0.55 else "ink",
                    )
    y = top + 6 * cell + 30
    f.rect(56, y - 8, 16, 16, "weight", radius=3, opacity=0.5)
    f.remark(78, y, f.t("visible: $M_{ij} = 0$; here all scores are equal"))
    f.rect(392, y - 8, 16, 16, "panel", radius=3)
    f.path(f"M396 {y + 4}L404 {y - 4}", "faint", LINE)
    f.remark(414, y, f.t("hidden: $M_{ij} = −∞$, so the weight is 0"))
    f.text(56, y + 26, f.t("rows: queries"), SMALL, "query", "start")
    f.text(176, y + 26, f.t("columns: keys"), SMALL, "key", "start")


@drawing("transformer-positions", 400)
def positions(f: Figure) -> None:
    width, count = 32, 40
    place = np.arange(count)[:, None]
    speed = 10000.0 ** (-2 * (np.arange(width) // 2) / width)
    table = np.where(np.arange(width) % 2 == 0, np.sin(place * speed), np.cos(place * speed))
    x, y, cw, ch = 52, 58, 10.4, 7.6
    f.rect(x, y, cw * width, ch * count, "paper")
    for color, sign in (("target", 1), ("source", -1)):  # one path per shade keeps the file small
        for level in range(1, 11):
            cells = [(r, c) for r in range(count) for c in range(width) if round(sign * table[r, c] * 10) == level]
            d = "".join(
                f"M{short(x + c * cw)} {short(y + r * ch)}h{short(cw)}v{short(ch)}h{short(-cw)}z" for r, c in cells
            )
            if d:
                f.add(f'<path d="{d}" class="f-{color}" fill-opacity="{level / 10:.2g}"/>')
    f.rect(x, y, cw * width, ch * count, None, "faint", THIN)
    f.text(x + cw * width / 2, 20, f.t("one row per position"), LARGE, bold=True)
    for c in (0, 8, 16, 24, 31):
        f.remark(x + (c + 0.5) * cw, y - 10, str(c), "middle")
    for r in (0, 10, 20, 30):
        f.remark(x - 8, y + (r + 0.5) * ch, str(r), "end")
    f.text(18, y + ch * count / 2, f.t("position $p$"), SMALL, "muted", turn=-90)
    f.remark(x + cw * width / 2, y + ch * count + 18, f.t("dimension"), "middle")
    right, wide_ = 452, 238
    f.text(right + wide_ / 2, 20, f.t("three of its columns"), LARGE, bold=True)
    picks = ((0, "one"), (4, "two"), (10, "three"))
    for k, (column, color) in enumerate(picks):
        middle = y + 44 + k * 104
        f.path(f"M{right} {middle}H{right + wide_}", "faint", THIN)
        f.curve(
            [
                (right + wide_ * p / (count - 1), middle - 34 * math.sin(p * speed[column]))
                for p in np.linspace(0, count - 1, 160)
            ],
            color,
        )
        for p in range(0, count, 3):
            f.circle(right + wide_ * p / (count - 1), middle - 34 * table[p, column], 2, color)
        f.text(right, middle - 46, f.t("column {c}", c=column), SMALL, color, "start", bold=True)
        f.text(
            right + wide_,
            middle - 46,
            f.t("wavelength {n}", n=f.n(2 * math.pi / speed[column], 0)),
            SMALL,
            "muted",
            "end",
        )
        f.path(f"M{x + (column + 0.5) * cw} {y + ch * count + 1}v4", color, BOLD)
    f.remark(right, y + ch * count + 18, f.t("position") + " 0")
    f.remark(right + wide_, y + ch * count + 18, "39", "end")
    lx, ly = x, y + ch * count + 30
    for k in range(41):
        v = (k - 20) / 20
        f.rect(lx + cw * 8 + k * 4, ly - 3, 4.2, 7, "target" if v > 0 else "source", opacity=abs(v) or 0.01)
    f.remark(lx + cw * 8 - 6, ly, "−1", "end")
    f.remark(lx + cw * 8 + 170, ly, "+1")


@drawing("transformer-heads", 390)
def heads(f: Figure) -> None:
    shown = data("map-short")
    layer = 1
    rng = np.random.default_rng(0)
    top = 66
    # input: 7 steps x 8 numbers
    f.text(54, 24, f.t("states"), NORMAL, bold=True)
    f.text(54, 44, "$X$:  $n × D$", SMALL, "muted")
    for r in range(5):
        f.vector(18, top + 86 + r * 20, rng.uniform(0, 1, 8), "target", 9, upright=False, tall=14)
    for h, color in enumerate(SERIES):
        y = top + h * 80
        f.arrow((94, top + 86 + 48), (112, top + 86 + 48), (112, y + 30), (138, y + 30), color="line", width=THIN + 0.2)
        f.box(140, y + 12, 88, 36, f"$Q_{h + 1} K_{h + 1} V_{h + 1}$", color, NORMAL)
        f.arrow((230, y + 30), (256, y + 30), width=THIN + 0.2)
        cell = 11.5
        f.heat(262, y - 2, np.array(shown["all"][layer][h])[:6, :7], (cell, cell), digits=None)
        f.text(262 + 7 * cell + 10, y + 14, f.t("head {i}", i=h + 1), NORMAL, color, "start", bold=True)
        f.remark(262 + 7 * cell + 10, y + 48, f.t("width $D / H$"))
        f.arrow((422, y + 30), (446, y + 30), width=THIN + 0.2)
        for r in range(5):
            f.vector(450, y + 30 - 30 + r * 12, rng.uniform(0.1, 1, 2), color, 9, upright=False, tall=9)
        f.arrow((474, y + 30), (494, y + 30), (494, top + 134), (514, top + 134), width=THIN + 0.2)
    f.text(552, 24, f.t("side by side"), NORMAL, bold=True)
    f.text(552, 44, "$n × D$", SMALL, "muted")
    for r in range(5):
        for h, color in enumerate(SERIES):
            f.vector(516 + h * 18, top + 86 + r * 20, rng.uniform(0.1, 1, 2), color, 9, upright=False, tall=14)
    f.arrow((591, top + 134), (606, top + 134), width=THIN + 0.2)
    f.box(608, top + 112, 36, 44, "$W_O$", "weight", NORMAL)
    f.arrow((644, top + 134), (660, top + 134), width=THIN + 0.2)
    for r in range(5):
        f.vector(664, top + 86 + r * 20, rng.uniform(0, 1, 5), "target", 9, upright=False, tall=14)
    f.text(684, 24, f.t("answer"), NORMAL, bold=True)
    f.text(184, 24, f.t("project"), NORMAL, bold=True)
    f.text(184, 44, "$X W_Q^h$, …", SMALL, "muted")
    f.text(302, 24, f.t("attend"), NORMAL, bold=True)
    f.text(302, 44, f.t("one map per head"), SMALL, "muted")

"""Figures of the lecture on speech and CTC."""

import itertools
import math

import numpy as np

from figures.canvas import LARGE, NORMAL, SERIES, SMALL, THIN, Figure, axes, data, drawing


@drawing("speech-merge", 300)
def merge(f: Figure) -> None:
    f.text(12, 22, f.t("paths of eight frames"), LARGE, anchor="start", bold=True)
    f.text(420, 22, f.t("merged"), LARGE, anchor="middle", bold=True)
    f.text(610, 22, f.t("without blanks"), LARGE, anchor="middle", bold=True)
    for row, path in enumerate(("sεeeεεee", "ssεeεeεε", "εseεeeee", "ssseeeεε")):
        y = 70 + row * 58
        groups = [(label, len(list(group))) for label, group in itertools.groupby(path)]
        at, merged = 0, 362
        for label, count in groups:
            for _ in range(count):
                f.chip(30 + at * 36, y, label, "target", 30, 26, faint=label == "ε")
                at += 1
            if count > 1:
                left = 30 + (at - count) * 36
                f.path(f"M{left - 12} {y + 18}v5H{left + 36 * (count - 1) + 12}v-5", "line", THIN)
        f.arrow((318, y), (342, y))
        for label, _ in groups:
            f.chip(merged, y, label, "target", 24, 24, faint=label == "ε")
            merged += 27
        word = "".join(label for label, _ in groups).replace("ε", "")
        f.arrow((540, y), (564, y))
        f.text(610, y, word, LARGE + 2, "target" if word == "see" else "muted", bold=True)
    f.remark(12, 288, f.t("ε is the blank. The last path has no blank between its two e: they become one."))


@drawing("speech-ctc", 384)
def ctc(f: Figure) -> None:
    blank = np.array([0.6, 0.5, 0.7])
    letter = 1 - blank
    rows = ("ε", "a", "ε")
    emit = np.stack([blank, letter, blank])
    alpha = np.zeros((3, 3))
    alpha[0, 0], alpha[1, 0] = blank[0], letter[0]
    for t in (1, 2):
        for s in range(3):
            alpha[s, t] = (alpha[s, t - 1] + (alpha[s - 1, t - 1] if s else 0)) * emit[s, t]
    total = alpha[1, 2] + alpha[2, 2]
    x, y, gx, gy = 120, 110, 128, 84
    f.text(x + gx, 24, f.t("the trellis"), LARGE, bold=True)
    for t in range(3):
        f.text(x + t * gx, 52, f.t("frame {t}", t=t + 1), NORMAL, "muted")
        f.text(x + t * gx, 71, f"$p$(a) = {f.n(letter[t], 1)},  $p$(ε) = {f.n(blank[t], 1)}", SMALL - 0.5, "muted")
    for s in range(3):
        color = "target" if rows[s] == "a" else "muted"
        f.text(x - 62, y + s * gy, rows[s], LARGE + 3, color, bold=True)
    f.remark(x - 62, y + 24, f.t("blank"), "middle")
    r = 21
    for t in (1, 2):
        for s in range(3):
            for before in (s, s - 1):
                if before >= 0 and alpha[before, t - 1] > 0 and not (s == 0 and t == 2):
                    x0, y0, x1, y1 = x + (t - 1) * gx, y + before * gy, x + t * gx, y + s * gy
                    long = math.hypot(x1 - x0, y1 - y0)
                    ux, uy = (x1 - x0) / long, (y1 - y0) / long
                    share = alpha[before, t - 1] * emit[s, t]
                    f.arrow(
                        (x0 + ux * (r + 3), y0 + uy * (r + 3)),
                        (x1 - ux * (r + 3), y1 - uy * (r + 3)),
                        color="weight",
                        width=0.8 + 7 * share,
                        opacity=0.5 + 0.5 * min(1, share / 0.2),
                    )
    for t in range(3):
        for s in range(3):
            dead = alpha[s, t] == 0 or (s == 0 and t == 2)
            cx, cy = x + t * gx, y + s * gy
            stroke = "faint" if dead else "target" if s == 1 else "line"
            f.circle(cx, cy, r, "paper" if dead else "target-soft" if s == 1 else "panel", stroke)
            f.text(
                cx,
                cy,
                "" if alpha[s, t] == 0 else f.n(alpha[s, t], 3 if t else 1).rstrip("0").rstrip(",."),
                SMALL + 0.5,
                "muted" if dead else "ink",
                bold=t == 2 and s > 0,
            )
    f.remark(x - 36, y + 3 * gy - 28, f.t("In a node: the probability of all beginnings that lead to it."))
    f.text(
        x + gx,
        y + 3 * gy + 6,
        f"$p$(«a») = {f.n(alpha[1, 2], 3)} + {f.n(alpha[2, 2], 3)} = {f.n(total, 2)}",
        LARGE,
        "weight",
        bold=True,
    )
    # the paths one by one
    px = 500
    f.text(px + 92, 24, f.t("the six paths"), LARGE, bold=True)
    k = 0
    for path in range(8):
        labels = ["a" if path >> (2 - t) & 1 else "ε" for t in range(3)]
        merged = "".join(one for one, before in zip(labels, ["", *labels], strict=False) if one != before).replace(
            "ε", ""
        )
        if merged != "a":
            continue
        p = np.prod([letter[t] if labels[t] == "a" else blank[t] for t in range(3)])
        cy = 70 + k * 36
        for t, one in enumerate(labels):
            f.chip(px + t * 32, cy, one, "target", 26, 24, faint=one == "ε")
        f.text(px + 84, cy, f.n(p, 2), NORMAL, "ink", "start")
        f.rect(px + 122, cy - 7, 260 * p, 14, "weight", radius=2, opacity=0.8)
        k += 1
    f.path(f"M{px + 80} {70 + 6 * 36 - 14}H{px + 122}", "line", THIN)
    f.text(px + 84, 70 + 6 * 36, f.n(total, 2), NORMAL, "weight", "start", bold=True)
    f.remark(px - 12, 70 + 6 * 36 + 34, f.t("a ε a spells aa; ε ε ε spells nothing."))


@drawing("speech-peaks", 420)
def peaks(f: Figure) -> None:
    shown = data("listener")
    sound, heard = np.array(shown["sound"]), np.array(shown["heard"])
    left, cell = 96, 25.5
    f.text(12, 22, f.t("the recording: 24 frames"), LARGE, "source", "start", bold=True)
    for band in range(1, 4):
        y = 40 + (3 - band) * 30
        f.text(left - 14, y + 14, f.t("tone {name}", name="abc"[band - 1]), NORMAL, SERIES[band - 1], "end", bold=True)
        for at, value in enumerate(sound[:, band]):
            f.rect(left + at * cell + 0.5, y + 0.5, cell - 1, 28, "panel", radius=2)
            if value > 0.02:
                f.rect(left + at * cell + 0.5, y + 0.5, cell - 1, 28, "source", radius=2, opacity=min(1, 0.8 * value))
    f.text(12, 158, f.t("what the network says in each frame"), LARGE, "target", "start", bold=True)
    marks = [(at, str(at + 1)) for at in range(0, 24, 4)]
    chart = axes(
        f, (left + cell / 2, left + 23.5 * cell, 186, 340), (0, 0), (23, 1), marks,
        [(share, f.n(share, 1)) for share in (0, 0.5, 1)],
    )  # fmt: skip
    frames = range(24)
    f.curve(chart.points(frames, heard[:, 0]), "muted", 1.6, dashed=True)
    for label in range(1, 4):
        f.curve(chart.points(frames, heard[:, label]), SERIES[label - 1], 2.4)
    for at, (words, color) in enumerate(
        ((f.t("blank"), "muted"), *((f.t("tone {name}", name="abc"[i]), SERIES[i]) for i in range(3)))
    ):
        x = left + 20 + at * 150
        f.path(f"M{x} 392h26", color, 2.4, dashed=at == 0)
        f.text(x + 34, 392, words, NORMAL, color, "start")


@drawing("speech-path", 300)
def best_path(f: Figure) -> None:
    p = {"ε": 0.6, "a": 0.4}
    f.text(12, 22, f.t("the four paths of two frames"), LARGE, anchor="start", bold=True)
    f.text(420, 22, f.t("the two texts"), LARGE, anchor="start", bold=True)
    totals = {"": 0.0, "a": 0.0}
    for at, (one, other) in enumerate(itertools.product(p, repeat=2)):
        y, chance = 70 + at * 48, p[one] * p[other]
        text = "" if one == other == "ε" else "a"
        totals[text] += chance
        for place, label in enumerate((one, other)):
            f.chip(40 + place * 34, y, label, "target", 28, 26, faint=label == "ε")
        f.bar(108, y - 11, 480 * chance, 22, "target" if text else "plain")
        f.text(116 + 480 * chance, y, f.n(chance), NORMAL, "target" if text else "plain", "start", bold=True)
    for at, (text, total) in enumerate(totals.items()):
        y, color = 94 + at * 96, "target" if text else "plain"
        f.text(490, y, text or f.t("nothing"), NORMAL, color, "end", bold=True)
        f.bar(500, y - 13, 250 * total, 26, color)
        f.text(508 + 250 * total, y, f.n(total), NORMAL, color, "start", bold=True)
    f.remark(12, 280, f.t("The best path, ε ε, is not a path of the best text."))

"""Figures of the first page of the lectures."""

import itertools

import numpy as np

from figures.canvas import BOLD, LARGE, NORMAL, SMALL, THIN, Figure, data, drawing, softmax

STATIONS = (
    ("Words as vectors", "source"),
    ("Recurrent networks", "source"),
    ("Encoder and decoder", "source"),
    ("Attention", "weight"),
    ("Scores", "weight"),
    ("Transformer", "weight"),
    ("Training", "target"),
    ("Decoding", "target"),
    ("Metrics", "target"),
    ("Looking inside", "plain"),
    ("Captions", "value"),
    ("Speech and CTC", "value"),
    ("Hard attention", "value"),
    ("Graphs", "value"),
    ("Attention today", "weight"),
)


@drawing("index-course", 430)
def course(f: Figure) -> None:
    f.text(12, 22, f.t("the road of the lectures"), LARGE, anchor="start", bold=True)
    places = []
    for at in range(len(STATIONS)):
        row, column = divmod(at, 4)
        places.append((104 + 170 * (column if row % 2 == 0 else 3 - column), 84 + 100 * row))
    for (x0, y0), (x1, y1) in itertools.pairwise(places):
        if y0 == y1:
            side = 1 if x1 > x0 else -1
            f.arrow((x0 + side * 76, y0), (x1 - side * 77, y1), width=BOLD)
        else:
            f.arrow((x0, y0 + 30), (x1, y1 - 31), width=BOLD)
    for at, ((x, y), (title, color)) in enumerate(zip(places, STATIONS, strict=True)):
        f.box(x - 76, y - 30, 152, 60, "", color)
        f.text(x, y - 13, str(at + 1), NORMAL, color, bold=True)
        f.text(x, y + 6, f.t(title), SMALL + 0.5, "ink")


@drawing("index-way", 430)
def way(f: Figure) -> None:
    shown = data("map-short")
    source, target, weights = shown["source"][:6], shown["target"][:6], np.array(shown["all"][1][1])[:6, :6]
    f.text(12, 22, f.t("the way of one sentence"), LARGE, anchor="start", bold=True)
    xs = [250 + 72 * i for i in range(6)]
    vectors = np.random.default_rng(7).uniform(0.1, 1, (12, 5))
    rows = (("tokens", 64), ("vectors", 116), ("encoder", 170), ("weights", 252), ("decoder", 330), ("tokens", 388))
    for label, y in rows:
        f.text(200, y, f.t(label), NORMAL, "muted", "end", bold=True)
    f.box(xs[0] - 34, 152, 428, 36, f.t("mixes words with each other"), "source", SMALL + 1)
    f.box(xs[0] - 34, 312, 428, 36, f.t("one step after another"), "target", SMALL + 1)
    for i in range(6):
        f.chip(xs[i], 64, source[i], "source", 58)
        f.arrow((xs[i], 78), (xs[i], 103), color="source")
        f.vector(xs[i] - 25, 109, vectors[i], "source", 10, False, high=1.4, tall=14)
        f.arrow((xs[i], 124), (xs[i], 151), color="source")
        f.arrow((xs[i], 349), (xs[i], 374), color="target")
        f.chip(xs[i], 388, target[i], "target", 58)
        for j in range(6):
            if weights[i, j] > 0.03:
                f.link(xs[j], 190, xs[i], 310, "weight", 0.6 + 6 * weights[i, j], 0.25 + 0.6 * weights[i, j])


@drawing("index-errors", 330)
def errors(f: Figure) -> None:
    f.text(12, 60, f.t("the slide says"), NORMAL, "three", "start", bold=True)
    f.text(12, 210, f.t("right is"), NORMAL, "one", "start", bold=True)
    f.path("M12 146H708", "faint", THIN)
    xs = (150, 350, 560)
    for x, title in zip(xs, ("causal mask", "temperature 1", "loss of $p$ = 0.1"), strict=True):
        f.text(x + 40, 22, f.t(title), LARGE, "ink", bold=True)
    lower = np.tril(np.ones((4, 4)))
    for y, visible in ((46, lower.T), (178, lower)):
        f.heat(xs[0], y, visible / 1.6, (22, 22), digits=None, hidden=visible == 0)
    p = np.array([0.7, 0.2, 0.1])
    for y, values, color in ((46, softmax(p), "three"), (178, p, "one")):
        for i, value in enumerate(values):
            f.bar(xs[1], y + 4 + i * 28, 110 * value, 20, color)
            f.text(xs[1] + 110 * value + 8, y + 14 + i * 28, f.n(value, 2), NORMAL, color, "start", bold=True)
    f.text(xs[2] + 40, 74, "1 − $p$", LARGE, "three")
    f.text(xs[2] + 40, 102, f"= {f.n(0.9, 1)}", LARGE, "three", bold=True)
    f.text(xs[2] + 40, 206, "−log $p$", LARGE, "one")
    f.text(xs[2] + 40, 234, f"= {f.n(2.303, 3)}", LARGE, "one", bold=True)
    f.remark(
        12, 306, f.t("Three of the fifteen. The first model reads its own answer; the second forgets what it knew.")
    )

"""Figures of the lecture on graphs."""

import numpy as np

from figures.canvas import LARGE, NORMAL, SERIES, SMALL, Figure, data, drawing, softmax


@drawing("graphs-mask", 360)
def graph(f: Figure) -> None:
    nodes = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    neighbors = np.array([[True, True, True], [True, True, False], [True, False, True]])
    raw = (nodes @ np.array([0.5, 0.5]))[:, None] + (nodes @ np.array([1.0, -1.0]))[None]
    scores = np.where(raw > 0, raw, 0.2 * raw)
    weights = np.array([softmax(np.where(row, line, -1e9)) for row, line in zip(neighbors, scores, strict=True)])
    places = ((190, 120), (90, 270), (310, 270))
    f.text(12, 22, f.t("who sees whom"), LARGE, anchor="start", bold=True)
    f.text(440, 22, f.t("weights"), LARGE, "weight", "start", bold=True)
    for one, other in ((0, 1), (0, 2)):
        f.path("M{} {}L{} {}".format(*places[one], *places[other]), "line", 2)
    f.path("M206 92C240 40 290 112 222 128", "line", 2)
    for i, (x, y) in enumerate(places):
        f.circle(x, y, 34, "source-soft", "source")
        f.text(x, y - 8, str(i + 1), LARGE, "source", bold=True)
        f.text(x, y + 12, f.pair(float(nodes[i][0]), float(nodes[i][1]), 0), SMALL, "ink")
    for other, (x, y) in ((1, (112, 186)), (2, (270, 186)), (0, (284, 84))):
        f.text(x, y, f.n(weights[0, other]), NORMAL, "weight", bold=True)
    f.remark(200, 330, f.t("Node 1 sees all three; 2 and 3 do not see each other."), "middle")
    f.heat(470, 86, weights, (66, 56), hidden=~neighbors)
    for i in range(3):
        f.text(470 + 66 * i + 33, 66, str(i + 1), NORMAL, "key", bold=True)
        f.text(452, 86 + 56 * i + 28, str(i + 1), NORMAL, "query", bold=True)
    f.text(470, 276, f.t("rows: queries"), SMALL, "query", "start")
    f.text(580, 276, f.t("columns: keys"), SMALL, "key", "start")


@drawing("graphs-hops", 330)
def hops(f: Figure) -> None:
    reach = np.array(data("hops"))
    f.text(12, 22, f.t("what the first node depends on"), LARGE, anchor="start", bold=True)
    for row, influence in enumerate(reach):
        y = 80 + row * 84
        f.text(12, y, f.t("{n} layers" if row else "1 layer", n=row + 1), NORMAL, "weight", "start", bold=True)
        for node in range(6):
            x = 180 + node * 92
            if node < 5:
                f.path(f"M{x + 26} {y}h40", "line", 2)
            seen = influence[node] > 0
            f.circle(x, y, 26, "source-soft" if seen else "paper", "source" if seen else "faint")
            if seen:
                f.text(x, y, f.n(influence[node]), NORMAL, "source", bold=True)
            else:
                f.text(x, y, str(node + 1), NORMAL, "muted")
    f.remark(180, 306, f.t("In a circle: the gradient of state 1 with respect to this node."))


@drawing("graphs-heads", 330)
def heads(f: Figure) -> None:
    draw = np.random.default_rng(5)
    for left, title, width, rows in ((12, "joined", 2, 3), (376, "averaged", 6, 3)):
        f.text(left, 22, f.t(title), LARGE, "weight", "start", bold=True)
        parts = draw.uniform(0.1, 1, (rows, width))
        for head in range(rows):
            y = 62 + head * 54
            f.text(left, y + 12, f.t("head {i}", i=head + 1), NORMAL, SERIES[head], "start", bold=True)
            f.vector(left + 90, y, parts[head], SERIES[head], 26, upright=False, high=1.2, tall=24)
        f.arrow((left + 170, 222), (left + 170, 248))
        if width == 2:
            for head in range(rows):
                f.vector(left + 90 + head * 52, 254, parts[head], SERIES[head], 26, upright=False, high=1.2, tall=24)
        else:
            f.vector(left + 90, 254, parts.mean(0), "weight", 26, upright=False, high=1.2, tall=24)
        f.text(left, 266, "$h′_t$", LARGE, "ink", "start")
    f.remark(102, 304, f.t("inner layers: 3 heads of width 2"))
    f.remark(466, 304, f.t("last layer: 3 heads of width 6"))

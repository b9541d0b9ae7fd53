"""Figures of the lecture on words as vectors."""

import numpy as np

from figures.canvas import BOLD, LARGE, LINE, NORMAL, SMALL, THIN, Figure, drawing, softmax, wide

SENTENCE = ("deixa", "o", "menino", "jogar")


@drawing("words-one-hot", 300)
def one_hot(f: Figure) -> None:
    words = ("deixa", "o", "menino", "moleque", "jogar", "filho")
    at = words.index("menino")
    table = np.random.default_rng(1).uniform(0.1, 1, (len(words), 5))
    cell, top, left = 26, 76, 330
    middle = top + at * cell + cell / 2
    f.text(104, 24, f.t("one-hot vector"), LARGE, bold=True)
    f.remark(104, 48, "$1 × V$", "middle")
    f.vector(26, middle - cell / 2, [float(word == "menino") for word in words], "source", cell, False, 0, 1.6)
    f.text(222, middle, "×", LARGE + 3, "muted")
    f.text(left + 65, 24, f.t("table $E$"), LARGE, bold=True)
    f.remark(left + 65, 48, "$V × D$", "middle")
    for row, word in enumerate(words):
        f.vector(
            left, top + row * cell, table[row], "source" if row == at else "plain", cell, False, high=1.6, tall=cell
        )
        f.text(
            left - 12, top + (row + 0.5) * cell, word, NORMAL, "source" if row == at else "muted", "end", bold=row == at
        )
    f.rect(left - 3, top + at * cell - 3, 5 * cell + 6, cell + 6, None, "source", BOLD, radius=5)
    f.text(left + 5 * cell + 46, middle, "=", LARGE + 3, "muted")
    f.text(608, 24, f.t("vector of menino"), LARGE, bold=True)
    f.remark(608, 48, "$1 × D$", "middle")
    f.vector(608 - 65, middle - cell / 2, table[at], "source", cell, False, high=1.6, tall=cell)
    f.remark(
        26, 262, f.t("The product is the row of that number: nobody builds the long vector, the number is enough.")
    )


@drawing("words-window", 300)
def window(f: Figure) -> None:
    f.text(12, 22, f.t("the word in the middle predicts its window, $m$ = 1"), LARGE, anchor="start", bold=True)
    widths = [wide(word, NORMAL) + 26 for word in SENTENCE]
    for row, center in enumerate((1, 2, 3)):
        y, x = 88 + row * 76, 24.0
        around = [at for at in (center - 1, center + 1) if 0 <= at < len(SENTENCE)]
        places = []
        for width in widths:
            places.append(x + width / 2)
            x += width + 18
        low, high = max(0, center - 1), min(len(SENTENCE) - 1, center + 1)
        start = places[low] - widths[low] / 2 - 8
        f.rect(start, y - 24, places[high] + widths[high] / 2 + 8 - start, 48, "panel", "line", THIN, 12, dashed=True)
        for at in around:
            side = 1 if at > center else -1
            f.arrow(
                (places[center] + side * 8, y - 15),
                (places[center] + side * 14, y - 37),
                (places[at], y - 37),
                (places[at], y - 15),
                color="target",
            )
        for at, word in enumerate(SENTENCE):
            f.chip(places[at], y, word, "source" if at == center else "target", widths[at], 28,
                   faint=at != center and at not in around, strong=at == center)  # fmt: skip
        for line, at in enumerate(around):
            words = f"$p$({SENTENCE[at]} | {SENTENCE[center]})"
            f.text(430, y - 11 * (len(around) - 1) + 22 * line, words, NORMAL, "ink", "start")
    f.remark(430, 46, f.t("what it is trained to make large"))


@drawing("words-softmax", 330)
def scores_to_probabilities(f: Figure) -> None:
    scores = np.array([0.0, 2.9, 0.1, 1.4, -0.5, 0.0, 0.0])
    p = softmax(scores)
    top, row = 78, 32
    f.text(210, 24, f.t("scores") + "  $u_w · v_c$", LARGE, bold=True)
    f.text(540, 24, f.t("probabilities") + "  $p(w | c)$", LARGE, "weight", bold=True)
    f.remark(376, 24, "softmax →", "middle")
    zero = 150
    f.path(f"M{zero} {top - 18}V{top + 7 * row - 14}", "line", THIN)
    f.path(f"M450 {top - 18}V{top + 7 * row - 14}", "line", THIN)
    for i, (score, share) in enumerate(zip(scores, p, strict=True)):
        y = top + i * row
        f.text(60, y, f"$w_{i + 1}$", NORMAL, "target")
        if score:
            f.bar(zero + min(0, score) * 50, y - 9, abs(score) * 50, 18, "target")
        f.text(zero + max(0, score) * 50 + 8, y, f.n(score, 1), NORMAL, "ink", "start")
        f.arrow((340, y), (400, y), color="faint", width=LINE)
        f.bar(450, y - 9, share * 220, 18, "weight")
        f.text(450 + share * 220 + 8, y, f.n(share), NORMAL, "weight", "start", bold=share > 0.5)
    f.remark(450, top + 7 * row + 4, "Σ = 1", size=SMALL + 1)

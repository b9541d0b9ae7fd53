"""Figures of the lecture on decoding."""

import math
from typing import Any

import numpy as np

from figures.canvas import BOLD, LARGE, LINE, NORMAL, SMALL, THIN, Figure, data, drawing, short, thousands, wide

Node = dict[str, Any]  # of a search tree


@drawing("decoding-beam", 408)
def beam(f: Figure) -> None:
    shown = data("beam")
    nodes, best = shown["nodes"], shown["best"]

    def line(end: int) -> set[int]:
        """The nodes of a sequence, from its end back to the first step."""
        path, at = set(), end
        while at is not None:
            path.add(at)
            at = nodes[at]["parent"]
        return path

    others = [i for i, n in enumerate(nodes) if n["fate"] == "finished" and i != best]
    second = max(others, key=lambda i: float(nodes[i]["total"]))
    winner, runner_up = line(best), line(second)
    kept = {
        i: n
        for i, n in enumerate(nodes)
        if n["fate"] in ("kept", "finished") and n["rank"] < 3 and math.exp(n["total"]) > 0.002
    }
    dropped = {
        i: n
        for i, n in enumerate(nodes)
        if i not in kept and n["fate"] == "pruned" and n["rank"] <= 4 and n["step"] < 6
    }
    steps = max(n["step"] for n in nodes)
    left, gap, top = 46, 93, 124
    lane: dict[int, int] = {}  # the winner runs straight, along the top
    for i in sorted(kept, key=lambda i: (kept[i]["step"], kept[i]["rank"])):
        if i in winner or i in runner_up:
            lane[i] = 0 if i in winner else 1
            continue
        taken = {lane[j] for j in lane if kept[j]["step"] == kept[i]["step"]}
        wanted = (1, 2, 3) if kept[i]["step"] == 1 else (2, lane.get(kept[i]["parent"], 2))
        lane[i] = next((free for free in wanted if free not in taken), 3)
    place = {i: (left + gap * (kept[i]["step"] - 1), top + 62 * lane[i]) for i in kept}
    below: dict[int, int] = {}
    for i, n in dropped.items():
        k = below.get(n["step"], 0)
        below[n["step"]] = k + 1
        place[i] = (left + gap * (n["step"] - 1), top + 62 * 3 + 6 + 30 * k)

    def spelled(n: Node) -> str:
        text = str(n["text"])
        return text.strip() if text.startswith(" ") or text in (".", "</s>") else "-" + text

    def half(n: Node) -> float:
        kept_ = n["fate"] in ("kept", "finished")
        return max(30, min(72, wide(spelled(n), NORMAL) + 16)) / 2 if kept_ else wide(spelled(n), SMALL) / 2 + 5

    for step in range(1, steps + 1):
        f.remark(left + gap * (step - 1), 88, str(step), "middle")
    f.remark(left - 36, 70, f.t("step"), "start")
    for i, n in sorted({**dropped, **kept}.items(), key=lambda item: (item[0] in winner, item[0] in runner_up)):
        if n["parent"] is None:
            continue
        (x0, y0), (x1, y1) = place[n["parent"]], place[i]
        color, width = (
            ("target", BOLD + 0.6)
            if i in winner
            else ("one", BOLD - 0.6)
            if i in runner_up
            else ("line", THIN)
            if i in kept
            else ("faint", THIN)
        )
        f.link(x0 + half(nodes[n["parent"]]), y0, x1 - half(n), y1, color, width, upright=False)
    for i, n in {**dropped, **kept}.items():
        x, y = place[i]
        word = spelled(n)
        if i in kept:
            color = "target" if i in winner else "one" if i in runner_up else "source"
            w = 2 * half(n)
            f.rect(x - w / 2, y - 13, w, 26, "paper", radius=13)
            plain = not (i in winner or i in runner_up)
            f.rect(
                x - w / 2,
                y - 13,
                w,
                26,
                "panel" if plain else f"{color}-soft",
                "line" if plain else color,
                LINE if not plain else THIN,
                radius=13,
            )
            f.text(x, y, word, NORMAL - 0.5, "ink", bold=i in winner)
            f.text(
                x,
                y + 22,
                f.n(math.exp(n["total"])) if math.exp(n["total"]) >= 0.005 else f.n(math.exp(n["total"]), 3),
                SMALL - 0.5,
                "muted",
            )
        else:
            f.text(x, y, word, SMALL, "muted", opacity=0.75)
            wide_ = wide(word, SMALL)
            f.path(f"M{short(x - wide_ / 2 - 2)} {y + 0.5}h{short(wide_ + 4)}", "line", THIN, opacity=0.75)
    f.text(12, 22, shown["source"], LARGE, "source", "start", bold=True)
    for x, name, path, end, color in ((12, "first", winner, best, "target"), (372, "second", runner_up, second, "one")):
        words = "".join(nodes[i]["text"] for i in sorted(path) if i != end).strip()
        p = f.n(math.exp(nodes[end]["total"]), 3)
        f.text(x, 46, f"{f.t(name)}:  {words}   $p$ = {p}", NORMAL, color, "start", bold=True)
    legend = "Below each word: the probability of the sentence so far. Crossed out: considered, and dropped."
    f.remark(12, 390, f.t(legend))


@drawing("decoding-sampling", 376)
def sampling(f: Figure) -> None:
    shown = data("next")
    count = 9
    words = [word.strip() for word in shown["words"][:count]]
    p, half, two = (np.array(shown["p"][t]) for t in ("1.0", "0.5", "2.0"))
    k = 2
    top_k = np.where(np.arange(len(p)) < k, p, 0)
    reach = int(np.searchsorted(np.cumsum(p), 0.8) + 1)
    top_p = np.where(np.arange(len(p)) < reach, p, 0)
    columns = (
        (f.t("the model"), "$τ$ = 1", p, "target", 0),
        (f.t("temperature"), f"$τ$ = {f.n(0.5, 1)}", half, "target", 0),
        (f.t("temperature"), "$τ$ = 2", two, "target", 0),
        ("top-k", f"$k$ = {k}", top_k / top_k.sum(), "one", k),
        ("top-p", f"$p$ = {f.n(0.8, 1)}", top_p / top_p.sum(), "two", reach),
    )
    f.text(12, 22, f"{shown['source']}  →  {shown['prefix']} …", LARGE, anchor="start", bold=True)
    left, gap, bar, top, row = 96, 126, 78, 104, 25
    for at, (name, setting, values, color, cut) in enumerate(columns):
        x = left + at * gap
        f.text(x, 56, name, NORMAL, color, "start", bold=True)
        f.text(x, 77, setting, NORMAL, "muted", "start")
        f.path(f"M{x} {top - 12}V{top + row * (count + 1) - 6}", "faint", THIN)
        for i in range(count + 1):
            y = top + i * row
            value = values[i] if i < count else 1 - values[:count].sum()
            value = max(0.0, value)
            if i == count:
                y += 8
            if value >= 0.0005:
                f.rect(
                    x + 1,
                    y - 8,
                    max(1.2, bar * value),
                    16,
                    color if i < count else "line",
                    radius=2,
                    opacity=0.85 if i < count else 0.55,
                )
            text = "0" if value < 0.0005 else f.n(value, 2) if value >= 0.0095 else f.n(value, 3)
            f.text(
                x + bar * value + 6,
                y,
                text,
                SMALL,
                "ink" if value >= 0.0005 else "muted",
                "start",
                opacity=1 if value >= 0.0005 else 0.6,
            )
        if cut:
            f.path(f"M{x - 4} {short(top + cut * row - row / 2)}H{x + gap - 20}", color, LINE, dashed=True)
    for i, word in enumerate(words):
        f.text(left - 12, top + i * row, word, NORMAL, "target", "end", bold=word == "return")
    f.text(
        left - 12,
        top + count * row + 8,
        f.t("{n} others", n=thousands(f, shown["vocabulary"] - count)),
        SMALL,
        "muted",
        "end",
    )


@drawing("decoding-tree", 350)
def tree(f: Figure) -> None:
    f.text(
        12,
        22,
        f.t("greedy search takes the better first step and misses the better whole"),
        LARGE,
        anchor="start",
        bold=True,
    )
    nodes = {  # token, its probability, place, parent; as in the cell of the page
        "start": ("<s>", 1.0, (60, 180), None),
        "3": ("3", 0.55, (200, 110), "start"),
        "4": ("4", 0.45, (200, 260), "start"),
        "3 5": ("5", 0.5, (350, 80), "3"),
        "3 end": ("</s>", 0.3, (350, 150), "3"),
        "4 end": ("</s>", 0.9, (350, 260), "4"),
        "3 5 end": ("</s>", 0.6, (500, 80), "3 5"),
    }
    total = {"start": 1.0}
    for name, (_, p, (x, y), parent) in nodes.items():
        if parent is None:
            continue
        total[name] = total[parent] * p
        color = "target" if name.startswith("4") else "one" if name != "3 end" else "line"
        x0, y0 = nodes[parent][2]
        f.link(x0 + 24, y0, x - 24, y, color, 0.8 + 4 * p, upright=False)
        f.text((x0 + x) / 2, y + (16 if y > y0 else -14), f.n(p), NORMAL, "muted" if color == "line" else color)
    for name, (token, _, (x, y), _) in nodes.items():
        color = "target" if name.startswith("4") else "one" if name.startswith("3") else "plain"
        f.chip(x, y, token, color, 48, strong=name in ("3 5 end", "4 end"))
    for name, color, label in (
        ("3 5 end", "one", f.t("greedy")),
        ("3 end", "muted", ""),
        ("4 end", "target", f.t("beam of 2")),
    ):
        x, y = nodes[name][2]
        f.text(x + 36, y, f"$p$ = {f.n(total[name], 3)}", LARGE, color, "start", bold=color != "muted")
        f.text(x + 36, y + 24, label, NORMAL, color, "start")
    f.remark(12, 330, f.t("Continuations that neither search reaches are left out."))

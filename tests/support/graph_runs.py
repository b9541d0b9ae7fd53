"""Small trainings whose sources are graphs: trees of colored nodes, labeled by whether a red one touches a blue one."""

import random
from pathlib import Path

import numpy as np

from heedful.config import Settings, parse_settings
from heedful.inputs.graphs import Graph
from support.training_runs import TRAIN

RED, GREEN, BLUE = range(3)
LABELS = ("apart", "touching")


def colored_tree(draw: random.Random, label: str) -> Graph:
    """A random tree whose colors have this label."""
    while True:
        count = draw.randint(4, 9)
        colors = [draw.choice((RED, GREEN, BLUE)) for _ in range(count)]
        edges = [(draw.randrange(node), node) for node in range(1, count)]
        touches = any({colors[one], colors[other]} == {RED, BLUE} for one, other in edges)
        if {RED, BLUE} <= set(colors) and touches == (label == "touching"):
            return Graph(np.eye(3, dtype=np.float32)[colors], np.array(edges).T)


def write_graph(path: Path, graph: Graph) -> None:
    np.savez(path, features=graph.features, edges=graph.edges)


def write_folder(folder: Path, graph: Graph) -> None:
    """A graph as nodes.tsv and edges.tsv."""
    folder.mkdir(parents=True)
    nodes = [["n" + str(number), *map(str, row)] for number, row in enumerate(graph.features.tolist())]
    edges = [[f"n{source}", f"n{target}"] for source, target in graph.edges.T.tolist()]
    for name, lines in (("nodes", nodes), ("edges", edges)):
        text = "".join("\t".join(line) + "\n" for line in lines)
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")


def write_trees(folder: Path, *, count: int = 120, name: str = "train", seed: int = 1) -> Path:
    """Trees, and a table of their paths and labels; one is a directory."""
    draw = random.Random(seed)
    (folder / "graphs").mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(count):
        label = LABELS[number % 2]
        path = f"graphs/{name}{number}" + (".npz" if number else "")
        (write_graph if number else write_folder)(folder / path, colored_tree(draw, label))
        lines.append(f"{path}\t{label}")
    (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


ENCODER = {"kind": "graph", "layers": 2, "heads": 4}
LABEL_DECODER = {"kind": "labels", "pooling": "attention"}


def graph_settings(folder: Path, run: Path, **train: object) -> Settings:
    """Settings of a small run with one label per graph."""
    return parse_settings(
        {
            "target": "labels",
            "input": {"kind": "graph", "features": 3, "max_nodes": 300, "max_neighbors": 9},
            "output": {"kind": "labels"},
            "data": {"train": [{"files": [f"{folder}/train.tsv"]}], "prepared_dir": f"{folder}/prepared"},
            "model": {"width": 16, "tie_embeddings": "none", "encoder": ENCODER, "decoder": LABEL_DECODER},
            "train": {**TRAIN, "batch_tokens": 300, "label_smoothing": 0.0, "output_dir": str(run), **train},
        }
    )

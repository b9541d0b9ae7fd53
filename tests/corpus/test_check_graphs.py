"""`heedful check` of graphs with labels: planted faults are found, and good corpora have none."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from heedful.cli.app import app
from heedful.config import Settings, parse_settings
from heedful.corpus.check import check
from heedful.corpus.findings import GRAPH_RULES
from heedful.inputs.graphs import Graph
from support.graph_runs import LABELS, colored_tree, write_folder, write_graph

NUM_TRAIN, NUM_TEST = 40, 8


def read_rows(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


def write_rows(path: Path, rows: list[list[str]]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def tree(number: int) -> Graph:
    return colored_tree(random.Random(number), LABELS[number % 2])


@pytest.fixture
def folder(tmp_path) -> Path:
    """train/labels.tsv and test/labels.tsv, with a graph per line."""
    for split, numbers in (("train", range(NUM_TRAIN)), ("test", range(NUM_TRAIN, NUM_TRAIN + NUM_TEST))):
        (tmp_path / split).mkdir()
        for row, number in enumerate(numbers, 1):
            write_graph(tmp_path / split / f"{row}.npz", tree(number))
        rows = [[f"{row}.npz", LABELS[number % 2]] for row, number in enumerate(numbers, 1)]
        write_rows(tmp_path / split / "labels.tsv", rows)
    return tmp_path


def graph_settings(folder: Path, *, per_slot: bool = False) -> Settings:
    data = {split: [{"files": [str(folder / split)]}] for split in ("train", "test")}
    chosen = {"kind": "graph", "features": 3, "max_nodes": 20, "max_neighbors": 9}
    output = {"kind": "labels", "per_slot": per_slot}
    return parse_settings({"target": "labels", "data": data, "input": chosen, "output": output})


def replace_line_7(folder: Path, graph: Graph, name: str = "7.npz") -> None:
    write_graph(folder / "train" / name, graph)
    rows = read_rows(folder / "train" / "labels.tsv")
    rows[6][0] = name
    write_rows(folder / "train" / "labels.tsv", rows)


def plant(change: Callable[[Graph], Graph]) -> Callable[[Path], None]:
    return lambda folder: replace_line_7(folder, change(tree(6)))


def copy_as_directory(folder: Path) -> None:
    write_folder(folder / "train" / "copy", tree(1))
    rows = read_rows(folder / "train" / "labels.tsv")
    rows[6] = ["copy", rows[1][1]]
    write_rows(folder / "train" / "labels.tsv", rows)


# kind -> how it is planted into line 7 of the training part; what the finding says
FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing_graph": (lambda folder: (folder / "train" / "7.npz").unlink(), "there is no such file"),
    "unreadable_graph": (plant(lambda graph: Graph(graph.features, graph.edges + 9)), "but the nodes are 0 to"),
    "no_edges": (plant(lambda graph: Graph(graph.features, graph.edges[:, :0])), " nodes"),
    "repeated_edges": (
        plant(lambda graph: Graph(graph.features, np.concatenate([graph.edges, graph.edges[:, :2]], 1))),
        "2 of ",
    ),
    "duplicate_graph": (copy_as_directory, "line 7 has the graph of line 2 of labels.tsv"),
    "graph_overlap": (
        lambda folder: write_graph(folder / "train" / "7.npz", tree(NUM_TRAIN + 2)),
        "line 7 has the graph of line 3 of labels.tsv",
    ),
}


def test_every_rule_has_a_fault():
    assert FAULTS.keys() == GRAPH_RULES.keys()


@pytest.mark.parametrize("kind", FAULTS)
def test_a_planted_fault_is_found(kind, folder):
    plant_fault, detail = FAULTS[kind]
    plant_fault(folder)
    report = check(graph_settings(folder))
    (finding,) = [finding for finding in report.findings if finding.kind != "duplicate"]
    assert (finding.kind, finding.corpus, finding.lines.tolist()) == (kind, "train", [7])
    assert detail in finding.detail
    assert finding.level == ("error" if kind == "graph_overlap" else GRAPH_RULES[kind].level)


@pytest.mark.parametrize("change", [lambda graph: Graph(np.ones((4, 2)), graph.edges[:, :0]), lambda graph: Graph(
    np.eye(3)[[0] * 12], np.array([[0] * 11, range(1, 12)]))])  # fmt: skip
def test_other_features_and_too_many_neighbors_cannot_be_read(change, folder):
    plant(change)(folder)
    (finding,) = check(graph_settings(folder)).findings
    assert (finding.kind, finding.lines.tolist()) == ("unreadable_graph", [7])


def test_good_graphs_have_no_findings(folder):
    assert check(graph_settings(folder)).findings == ()
    ways = {"one way": tree(6).edges, "both ways": np.concatenate([tree(6).edges, tree(6).edges[::-1]], 1)}
    for edges in ways.values():
        replace_line_7(folder, Graph(tree(6).features, edges))
        assert check(graph_settings(folder)).findings == ()


def test_the_same_graph_with_its_edges_in_another_order_is_a_duplicate(folder):
    graph = tree(1)
    replace_line_7(folder, Graph(graph.features, graph.edges[::-1, ::-1]), "copy.npz")
    assert "duplicate_graph" in {finding.kind for finding in check(graph_settings(folder)).findings}


def test_splits_of_one_graph_may_label_different_nodes(tmp_path):
    graph = tree(1)
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        write_graph(tmp_path / split / "a.npz", graph)
        known = ["x" if (node % 2 == 0) == (split == "train") else "?" for node in range(graph.num_nodes)]
        write_rows(tmp_path / split / "labels.tsv", [["a.npz", " ".join(known)]])
    assert check(graph_settings(tmp_path, per_slot=True)).findings == ()
    write_rows(tmp_path / "test" / "labels.tsv", [["a.npz", " ".join(["x"] * graph.num_nodes)]])
    (finding,) = check(graph_settings(tmp_path, per_slot=True)).findings
    assert (finding.kind, finding.level) == ("graph_overlap", "error")


def test_the_command_line_checks_graphs(folder):
    arguments = ["check", str(folder / "train"), "--input", "graph", "--test", str(folder / "test")]
    good = CliRunner().invoke(app, arguments)
    assert good.exit_code == 0, good.output
    for passed in ("all graphs readable", "no test graphs in training", "no duplicates"):
        assert passed in good.output
    FAULTS["graph_overlap"][0](folder)
    bad = CliRunner().invoke(app, [*arguments, "--json"])
    assert bad.exit_code == 3
    assert json.loads(bad.stdout)["findings"][0]["kind"] == "graph_overlap"

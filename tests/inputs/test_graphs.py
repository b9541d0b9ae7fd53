"""Graphs from files to labels: read safely, prepare, train, translate, evaluate; labels of nodes; misuse."""

import io
import json
import pickle
import random
import re
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import heedful
from heedful.build import build
from heedful.cli.app import app
from heedful.config import GraphInputSettings, parse_settings
from heedful.data.batch import pad_sources
from heedful.data.prepare import prepare
from heedful.data.store import open_prepared
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.exporters.api import export
from heedful.inputs.graphs import Graph, from_row, load_graph, read_graph, to_row
from heedful.inputs.kinds import make_input
from heedful.inputs.media import MediaError
from heedful.nn.encoders.graph import list_edges
from heedful.training.api import train
from support.graph_runs import colored_tree, graph_settings, write_folder, write_graph, write_trees
from support.training_runs import outcome

SETTINGS = GraphInputSettings(kind="graph", features=2, max_nodes=50, max_neighbors=4)
FEATURES = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
EDGES = np.array([[0, 1, 1], [1, 2, 2]])  # the last edge occurs twice


def pairs_of(graph: Graph) -> set[tuple[int, int]]:
    return set(zip(*graph.edges.tolist(), strict=True))


def npz(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


# --------------------------------------------------------------------------------------------------------------- files


def test_an_npz_file_a_directory_and_a_graph_are_the_same(tmp_path):
    np.savez(tmp_path / "a.npz", features=FEATURES, edges=EDGES, names=["n0", "n1", "n2"])
    write_folder(tmp_path / "folder", Graph(FEATURES, EDGES))
    columns = npz(features=np.asfortranarray(FEATURES), edges=np.asfortranarray(EDGES.astype(np.uint8)))
    sources = [tmp_path / "a.npz", str(tmp_path / "folder"), columns, Graph(FEATURES, EDGES)]
    for source in sources:
        graph = read_graph(source, SETTINGS)
        assert np.array_equal(graph.features, FEATURES)
        assert pairs_of(graph) == {(0, 1), (1, 0), (1, 2), (2, 1)}
        assert graph.edges.shape == (2, 4)
    for source in sources[:2]:
        assert read_graph(source, SETTINGS).names == ("n0", "n1", "n2")


def test_a_directed_graph_keeps_its_directions_and_loops_are_left_to_the_layer():
    directed = SETTINGS.model_copy(update={"directed": True})
    graph = read_graph(Graph(FEATURES, np.array([[0, 2, 2], [1, 1, 2]])), directed)
    assert pairs_of(graph) == {(0, 1), (2, 1)}


def test_a_graph_may_have_no_edges():
    for edges in (np.empty((2, 0), int), np.array([])):
        assert read_graph(Graph(FEATURES, edges), SETTINGS).edges.shape == (2, 0)


def test_rows_and_graphs_are_the_same():
    inputs, generator = make_input(SETTINGS), np.random.default_rng(1)
    rows = inputs.random_rows(20, generator)
    assert len({len(row) for row in rows}) > 5
    for row in rows:
        graph = from_row(row, 2)
        assert row.shape == (graph.num_nodes, 2 + 4)
        assert row.dtype == inputs.dtype
        assert np.array_equal(to_row(read_graph(graph, SETTINGS.model_copy(update={"directed": True})), 4), row)


def test_a_batch_has_the_edges_of_its_graphs():
    graphs = [Graph(FEATURES, EDGES), Graph(FEATURES[:1], np.empty((2, 0), int)), Graph(FEATURES[:2], EDGES[:, :1])]
    nodes, mask = pad_sources([to_row(read_graph(graph, SETTINGS), 4) for graph in graphs], 0)
    assert mask.sum(1).tolist() == [3, 1, 2]
    edges = list_edges(nodes[..., 2:], mask)
    assert set(zip(*edges.tolist(), strict=True)) == {(0, 1), (1, 0), (1, 2), (2, 1), (6, 7), (7, 6)}
    noise = nodes.masked_fill(~mask.unsqueeze(-1), 2.0)  # of padding
    assert torch.equal(list_edges(noise[..., 2:], mask), edges)


# ------------------------------------------------------------------------------------------------------- hostile files


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


def member(name: str, content: bytes, *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(name, content)
        array = io.BytesIO()
        np.save(array, EDGES)
        archive.writestr("edges.npy", array.getvalue())
    return file.getvalue()


def header(text: str, version: int = 1) -> bytes:
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text.encode()


def described(shape: str, dtype: str = "<f8") -> bytes:
    return header(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}\n")


GOOD = npz(features=FEATURES, edges=EDGES)
PICKLE = np.array([Bomb()], dtype=object)
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty, 0 bytes"),
    "text": (b"a,b,c\n", "not an .npz file, or damaged: write it with numpy.savez"),
    "cut": (GOOD[: len(GOOD) // 2], "not an .npz file, or damaged"),
    "bytes changed": (GOOD[:60] + bytes(20) + GOOD[80:], "not an .npz file, or damaged|cannot be read|incomplete"),
    "no features": (npz(edges=EDGES), "there is no array `features`"),
    "no edges": (npz(features=FEATURES), "there is no array `edges`"),
    "pickle": (npz(features=PICKLE, edges=EDGES), r"`features` has the type \|O|object; use numbers"),
    "pickled names": (npz(features=FEATURES, edges=EDGES, names=PICKLE), "`names` has the type .*; use texts of up to"),
    "a pickle instead of an array": (member("features.npy", pickle.dumps(Bomb())), "the header of `features` cannot"),
    "a huge shape": (member("features.npy", described("(10**6, 2)".replace("10**6", "1000000"))), "1,000,000 nodes"),
    "an endless shape": (member("features.npy", described(f"({2**70}, 2)")), "nodes; the limit is 50"),
    "a negative shape": (
        member("features.npy", described("(-3, 2)") + bytes(40_000_000)), r"`features` has the shape \[-3, 2\]"
    ),
    "a header of another version": (member("features.npy", header("x", 2)), "the header of `features` cannot be read"),
    "code as a header": (member("features.npy", header("__import__('os')\n")), "the header of `features` cannot"),
    "structured numbers": (member("features.npy", described("(3, 2)", "V8")), "has the type"),
    "too few numbers": (member("features.npy", described("(3, 2)") + bytes(40)), "`features` is incomplete"),
    "another compression": (
        member("features.npy", described("(3, 2)") + bytes(48), method=zipfile.ZIP_BZIP2), "is compressed in a way"
    ),
    "a zip bomb": (member("features.npy", described("(50, 100000)") + bytes(40_000_000)), "100,000 numbers per node"),
    "texts as features": (npz(features=np.array([["a", "b"]]), edges=EDGES), "use numbers"),
    "numbers that are not finite": (npz(features=FEATURES * np.inf, edges=EDGES), "infinite, too large or not numbers"),
    "numbers too large": (npz(features=FEATURES * 1e300, edges=EDGES), "infinite, too large or not numbers"),
    "no nodes": (npz(features=np.empty((0, 2)), edges=EDGES), "0 nodes"),
    "one dimension": (npz(features=FEATURES[0], edges=EDGES), r"`features` has the shape \[2\]; use \[N, F\]"),
    "other features": (npz(features=np.ones((3, 5)), edges=EDGES), "5 numbers per node, but input.features is 2"),
    "too many nodes": (npz(features=np.ones((51, 2)), edges=EDGES), r"51 nodes; the limit is 50 \(input.max_nodes\)"),
    "edges as rows": (npz(features=FEATURES, edges=np.ones((5, 2), int)), r"`edges` has the shape \[5, 2\]; use"),
    "edges as fractions": (npz(features=FEATURES, edges=EDGES * 0.5), "`edges` has the type .*; use integers"),
    "edges outside": (npz(features=FEATURES, edges=EDGES + 1), "edge 1 joins the nodes 2 and 3, but the nodes are"),
    "negative edges": (npz(features=FEATURES, edges=EDGES - 1), "edge 0 joins the nodes -1 and 0"),
    "huge edges": (npz(features=FEATURES, edges=np.full((2, 1), 2**64 - 1, np.uint64)), "edge 0 joins the nodes 1844"),
    "too many edges": (npz(features=FEATURES, edges=np.zeros((2, 2_000), int)), "2,000 edges; input.max_nodes and"),
    "a hub": (
        npz(features=np.ones((6, 2)), edges=np.array([[0] * 5, range(1, 6)])),
        r"node 0 has 5 neighbors; the limit is 4 \(input.max_neighbors\)",
    ),
    "too few names": (npz(features=FEATURES, edges=EDGES, names=np.array(["a"])), "1 names for 3 nodes"),
    "names that are not Unicode": (
        npz(features=FEATURES, edges=EDGES, names=np.array([0x110000] * 3, np.uint32).view("<U1")), "not Unicode"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_rejected_with_its_reason(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content, reason = HOSTILE[kind]
    tracemalloc.start()
    with pytest.raises(MediaError, match=reason):
        read_graph(content, SETTINGS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(content) + 2_000_000
    assert not Path("exploded").exists()


@pytest.mark.parametrize("name", ["a" * 300, f"{'a' * 300}.npz", "a\0b.npz"])
def test_a_path_that_cannot_exist_is_rejected(name, tmp_path):
    with pytest.raises(MediaError, match="cannot be read"):
        read_graph(tmp_path / name, SETTINGS)


def test_an_encrypted_file_is_rejected():
    content = bytearray(GOOD)
    for start in [place.start() for place in re.finditer(rb"PK\x01\x02", GOOD)]:
        content[start + 8] |= 1
    with pytest.raises(MediaError, match=r"not an \.npz file, or damaged"):
        read_graph(bytes(content), SETTINGS)


def test_changed_bytes_never_raise_anything_else():
    draw = random.Random(3)
    stored = io.BytesIO()
    np.savez(stored, features=FEATURES, edges=EDGES, names=["a", "b", "c"])
    outcomes = set()
    for content in [GOOD, stored.getvalue()] * 200:
        changed = bytearray(content)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        try:
            outcomes.add(type(read_graph(bytes(changed), SETTINGS)).__name__)
        except MediaError as error:
            outcomes.add(error.reason[:12])
    assert "Graph" in outcomes
    assert len(outcomes) > 2
    assert zlib.crc32(stored.getvalue())


FOLDER_FAULTS = {
    "no nodes": ({"edges": "a\tb\n"}, "a directory without nodes.tsv and edges.tsv"),
    "no edges file": ({"nodes": "a\t1\t2\n"}, "there is no edges.tsv beside nodes.tsv"),
    "empty": ({"nodes": "", "edges": ""}, "0 nodes"),
    "headings": ({"nodes": "name\tx\ty\na\t1\t2\n", "edges": ""}, "line 1: expected numbers after the name"),
    "a missing number": ({"nodes": "a\t1\t2\nb\t1\n", "edges": ""}, "line 2: expected a name and 2 numbers"),
    "a name twice": ({"nodes": "a\t1\t2\na\t1\t2\n", "edges": ""}, "line 2: the name `a` occurs twice"),
    "an unknown node": ({"nodes": "a\t1\t2\n", "edges": "a\tx\n"}, "line 1: there is no node `x` in nodes.tsv"),
    "three names": ({"nodes": "a\t1\t2\n", "edges": "a\ta\ta\n"}, "line 1: expected two names"),
    "infinite": ({"nodes": "a\t1\tinf\n", "edges": ""}, "infinite, too large or not numbers"),
    "too many": ({"nodes": "".join(f"{n}\t1\t2\n" for n in range(51)), "edges": ""}, "51 nodes; the limit is 50"),
}


@pytest.mark.parametrize("kind", FOLDER_FAULTS)
def test_a_directory_is_rejected_with_its_reason(kind, tmp_path):
    files, reason = FOLDER_FAULTS[kind]
    for name, text in files.items():
        (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(MediaError, match=reason):
        load_graph(tmp_path, SETTINGS)


def test_bytes_that_are_not_unicode_and_other_types(tmp_path):
    (tmp_path / "nodes.tsv").write_bytes(b"a\t1\t2\n\xff\t1\t2\n")
    with pytest.raises(MediaError, match=r"nodes\.tsv is not UTF-8 at byte 7"):
        load_graph(tmp_path, SETTINGS)
    with pytest.raises(MediaError, match=r"the graph: a list; use a path, the bytes of an \.npz file, or a Graph"):
        load_graph([1, 2], SETTINGS)


# ------------------------------------------------------------------------------------------------- a label for a graph


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    folder = write_trees(tmp_path_factory.mktemp("trees"), count=200)
    write_trees(folder, count=40, name="test", seed=5)
    model = train(graph_settings(folder, folder / "run", steps=150, validate_every=75, save_every=75, micro_batches=1,
                                 learning_rate=1e-2))  # fmt: skip
    return folder, model


def run(*arguments, text=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=text)


def rows_of(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text("utf-8").splitlines()]


def test_stored_rows_are_the_graphs(trees):
    folder, _ = trees
    prepared, inputs = open_prepared(folder / "prepared"), make_input(graph_settings(folder, folder).input)
    corpus = prepared.train[0]
    sources = corpus.texts_of_rows("source", range(corpus.num_rows))
    assert "graphs/train0" in sources  # a directory
    for (row, _), source in zip(corpus.pairs(range(corpus.num_rows)), sources, strict=True):
        assert np.array_equal(row, inputs.read_row(source, folder))


def test_the_labels_of_new_graphs_are_learned(trees):
    folder, model = trees
    labeler = heedful.load(model)
    rows = rows_of(folder / "test.tsv")
    answers = labeler([folder / path for path, _ in rows])
    assert sum(answer.text == label for answer, (_, label) in zip(answers, rows, strict=True)) >= 38
    graph = colored_tree(random.Random(3), "touching")
    write_graph(folder / "a.npz", graph)
    same = labeler([graph, folder / "a.npz", (folder / "a.npz").read_bytes()])
    assert [answer.text for answer in same] == ["touching"] * 3
    assert same[0].source == "(a graph)"
    order = np.array(random.Random(4).sample(range(graph.num_nodes), graph.num_nodes))
    renumbered = Graph(graph.features[order], order.argsort()[graph.edges])
    assert labeler(renumbered).log_probability == pytest.approx(same[0].log_probability, abs=1e-5)


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, trees):
    folder, _ = trees
    train(graph_settings(folder, tmp_path / "parts", steps=5))
    train(graph_settings(folder, tmp_path / "parts", steps=9))
    train(graph_settings(folder, tmp_path / "again", steps=5, refits=[(5, 9)]))
    assert outcome(tmp_path / "parts")["model"] == outcome(tmp_path / "again")["model"]


def test_the_command_line_labels_graphs_and_scores_them(trees, tmp_path):
    folder, model = trees
    path = folder / "graphs" / "test1.npz"
    done = run("translate", model, path, folder / "nothing.npz", "--json")
    assert done.exit_code == 1
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["source"].endswith("test1.npz")
    assert second == {"source": str(folder / "nothing.npz"), "error": "there is no such file"}
    label, probability = run("translate", model, text=json.dumps({"graph": str(path)}) + "\n").stdout.split("\t")
    assert label in ("apart", "touching")
    assert 0.5 <= float(probability) <= 1
    rows = rows_of(folder / "test.tsv")
    (tmp_path / "graphs").write_text("".join(f"{folder / path}\n" for path, _ in rows), encoding="utf-8")
    (tmp_path / "labels").write_text("".join(f"{label}\n" for _, label in rows), encoding="utf-8")
    done = run("evaluate", model, tmp_path / "labels", "--source", tmp_path / "graphs", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["scores"][0]["value"] >= 95


def test_graphs_are_measured_and_their_labels_detected(trees, monkeypatch):
    from heedful.corpus.arguments import settings_from_arguments

    folder, _ = trees
    settings = settings_from_arguments([str(folder / "train.tsv")], None, input="graph")
    assert (settings.input.features, settings.input.max_neighbors) == (3, 16)
    assert (settings.source, settings.target, settings.output.kind) == ("graph", "labels", "labels")
    settings = settings_from_arguments([str(folder / "train.tsv")], None, recipe="graph")
    assert settings.input.features == 3
    (folder / "bad.tsv").write_text("nothing.npz\tapart\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"bad\.tsv: no graph can be read \(.*nothing\.npz: there is no such file\)"):
        settings_from_arguments([str(folder / "bad.tsv")], None, input="graph")


def test_unreadable_graphs_are_dropped_with_their_reason(tmp_path):
    folder = write_trees(tmp_path, count=40)
    (folder / "graphs" / "train3.npz").write_bytes(b"PK")
    (folder / "graphs" / "train4.npz").unlink()
    write_graph(folder / "graphs" / "train5.npz", Graph(np.ones((4, 7)), EDGES))
    table = folder / "train.tsv"
    lines = table.read_text("utf-8").splitlines()
    lines[6] = f"{'a' * 300}.npz\t{lines[6].split()[1]}"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    prepared = prepare(graph_settings(folder, folder / "run"))
    assert prepared.train[0].num_rows == 36
    rejects = [json.loads(line) for line in (folder / "prepared" / "rejects.jsonl").read_text("utf-8").splitlines()]
    reasons = {reject["line"]: reject["reason"] for reject in rejects}
    assert reasons.keys() == {4, 5, 6, 7}
    assert "there is no such file" in reasons[5]
    assert "cannot be read" in reasons[7]
    assert "7 numbers per node, but input.features is 3" in reasons[6]


def test_a_changed_file_of_a_directory_is_prepared_again(tmp_path):
    folder = write_trees(tmp_path, count=20)
    settings = graph_settings(folder, folder / "run")
    before = prepare(settings).fingerprint
    nodes = folder / "graphs" / "train0" / "nodes.tsv"
    nodes.write_text(nodes.read_text("utf-8").replace("1.0", "0.5"), encoding="utf-8")
    assert prepare(settings).fingerprint != before


# ------------------------------------------------------------------------------------------------- a label for a node

RING = 24  # nodes, alternately of two colors; the label of a node is the color of the node before it


def node_settings(folder: Path, run: Path, **train: object) -> object:
    return parse_settings(
        {
            "target": "labels",
            "input": {"kind": "graph", "features": 2, "max_neighbors": 1, "directed": True},
            "output": {"kind": "labels", "per_slot": True},
            "data": {
                "train": [{"files": [f"{folder}/train.tsv"]}],
                "validation": [{"files": [f"{folder}/validation.tsv"]}],
                "prepared_dir": f"{folder}/prepared",
            },
            "clean": {"max_tokens": 5},  # not a limit of nodes
            "model": {
                "width": 16, "tie_embeddings": "none", "encoder": {"kind": "graph", "layers": 1, "heads": 4},
                "decoder": {"kind": "labels", "pooling": "none"},
            },
            "train": {
                "steps": 200, "batch_tokens": 100, "micro_batches": 1, "threads": 1, "precision": "fp32",
                "learning_rate": 2e-2, "label_smoothing": 0.0, "validate_every": 100, "output_dir": str(run), **train,
            },
        }
    )  # fmt: skip


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    """One graph; a third of its nodes is labeled in each of training, validation and test."""
    folder = tmp_path_factory.mktemp("ring")
    colors = np.random.default_rng(2).integers(0, 2, RING)
    features = np.eye(2)[colors]
    np.savez(folder / "ring.npz", features=features, edges=np.array([np.arange(RING), (np.arange(RING) + 1) % RING]))
    labels = [("red", "blue")[color] for color in np.roll(colors, 1)]
    for number, split in enumerate(("train", "validation", "test")):
        known = [label if slot % 3 == number else "?" for slot, label in enumerate(labels)]
        (folder / f"{split}.tsv").write_text(f"ring.npz\t{' '.join(known)}\n", encoding="utf-8")
    return folder, labels, train(node_settings(folder, folder / "run"))


def test_the_labels_of_other_nodes_are_learned_from_one_graph(ring):
    folder, labels, model = ring
    assert heedful.load(model)(folder / "ring.npz").text.split(" ") == labels
    metrics = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert max(one["accuracy"] for one in metrics if one["event"] == "validated") == 100
    prepared = open_prepared(folder / "prepared")
    assert prepared.tokenizer("target").pieces(range(4, 6)) == ["▁blue", "▁red"]  # ? is not a label
    (folder / "test.labels").write_text(rows_of(folder / "test.tsv")[0][1] + "\n", encoding="utf-8")
    (folder / "test.graphs").write_text(f"{folder / 'ring.npz'}\n", encoding="utf-8")
    done = run("evaluate", model, folder / "test.labels", "--source", folder / "test.graphs", "--json")
    scores = json.loads(done.stdout)
    assert (scores["labels"], scores["scores"][0]["value"]) == (RING / 3, 100)


def test_only_other_numbers_of_labels_than_nodes_are_an_error(ring, tmp_path):
    folder, labels, _ = ring
    (tmp_path / "ring.npz").write_bytes((folder / "ring.npz").read_bytes())
    (tmp_path / "train.tsv").write_text(f"ring.npz\t{' '.join(labels)}\nring.npz\tred blue\n", encoding="utf-8")
    (tmp_path / "validation.tsv").write_text(f"ring.npz\t{' '.join(labels)}\n", encoding="utf-8")
    prepared = prepare(node_settings(tmp_path, tmp_path / "run"))
    assert prepared.train[0].num_rows == 1
    (tmp_path / "validation.tsv").write_text("ring.npz\tred blue\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"24 nodes, but 2 labels: output\.per_slot needs a label for each node"):
        prepare(node_settings(tmp_path, tmp_path / "run"))


# -------------------------------------------------------------------------------------------------------------- misuse


def test_what_a_model_of_graphs_cannot_do(trees, tmp_path):
    _, model = trees
    labeler = heedful.load(model)
    with pytest.raises(HeedfulError, match=r"the graph: 5 numbers per node, but input\.features is 3"):
        labeler(Graph(np.ones((2, 5)), EDGES[:, :1]))
    with pytest.raises(HeedfulError, match=r"nothing\.npz: there is no such file"):
        labeler("nothing.npz")
    for target, message in (
        ("onnx", "models of graphs cannot be exported to ONNX: use the model directory itself, with PyTorch"),
        ("ctranslate2", "not models of graphs: use the model directory itself, with PyTorch"),
        ("hugging_face", "not models of graphs: use the model directory itself, with PyTorch"),
    ):
        with pytest.raises(HeedfulError, match=message):
            export(model, tmp_path / target, to=target)
    result = run("serve", model)
    assert isinstance(result.exception, ConfigError)
    assert "is a model of graphs: heedful serve is for models that translate texts" in str(result.exception)
    tree = {"target": "en", "input": {"kind": "graph", "features": 3}, "data": {"train": [{"files": ["a.tsv"]}]}}
    model = {"width": 8, "encoder": {"kind": "patches"}, "decoder": {"kind": "recurrent", "width": 8}}
    settings = parse_settings({**tree, "model": model})
    with pytest.raises(ConfigError, match=re.escape('set model.encoder.kind to "graph", or input.kind to "image"')):
        build(settings.model, None, 9, input=SETTINGS)
    with pytest.raises(ConfigError, match="features"):
        parse_settings({**tree, "input": {"kind": "graph"}})

"""Traces and pages of models of graphs: the drawing, the neighborhood of a node, and the weights on its edges."""

import random
from base64 import b64decode
from io import BytesIO
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import heedful
from heedful.cli.app import app
from heedful.data.batch import pad_sources
from heedful.errors import ConfigError, HeedfulError
from heedful.inputs.graphs import Graph, draw_graph, node_boxes, read_graph
from heedful.inputs.kinds import make_input
from heedful.inputs.media import MediaError
from heedful.inspection.api import inspect
from heedful.inspection.figure import render_svg
from heedful.nn.contract import Look
from heedful.trace import Piece, Text, dump_trace, parse_trace
from heedful.training.api import train
from support.browser_pages import opened, settled
from support.graph_runs import colored_tree, graph_settings, write_folder, write_trees

TREE = colored_tree(random.Random(8), "touching")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = write_trees(tmp_path_factory.mktemp("trees"), count=40)
    return train(graph_settings(folder, folder / "run", steps=2, learning_rate=1e-9))


@pytest.fixture(scope="module")
def page(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tree") / "tree"
    write_folder(folder, TREE)
    return inspect(model, folder)


def test_pieces_are_the_nodes_and_the_maps_are_weights_on_edges(model, page):
    (sentence,) = page.trace.sentences
    labeler = heedful.load(model)
    inputs = make_input(labeler.bundle.description.input)
    graph = read_graph(TREE, labeler.bundle.description.input)
    source = sentence.source
    assert (source.text, [piece.text for piece in source.pieces]) == (
        "tree",
        [f" n{node}" for node in range(TREE.num_nodes)],
    )
    assert set(source.edges) == set(zip(*graph.edges.tolist(), strict=True))
    shown = np.array(Image.open(BytesIO(b64decode(source.picture))))
    assert np.array_equal(shown, draw_graph(graph))
    assert [piece.box for piece in source.pieces] == node_boxes(graph)
    with torch.inference_mode():
        maps = labeler.engine.model.encoder(*pad_sources([inputs.read_row(TREE)], 0), look=Look()).maps.encoder
    weights = sentence.attention["encoder"].array()  # [layers, heads, N, N]
    assert np.abs(weights - torch.stack([layer.weights[0] for layer in maps]).numpy()).max() <= 1 / 255
    is_edge = np.eye(TREE.num_nodes, dtype=bool)
    is_edge[graph.edges[1], graph.edges[0]] = True
    assert (weights[..., ~is_edge] == 0).all()
    assert (weights[..., is_edge] > 0).all()
    assert sentence.attention["cross"].shape[-1] == TREE.num_nodes
    assert (sentence.contributions["erasure"].shape[-1]) == TREE.num_nodes
    text = dump_trace(page.trace)
    assert dump_trace(parse_trace(text)) == text


def test_a_dot_is_in_the_box_of_its_node_and_lines_are_between_them():
    graph = Graph(np.ones((3, 1)), np.array([[0], [1]]))
    gray = draw_graph(graph)[..., 0]
    boxes = np.array(node_boxes(graph))
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    assert ((boxes >= 0) & (boxes <= 1)).all()

    def darkness(place):
        column, row = (place * len(gray)).astype(int)
        return 255 - gray[row, column]

    assert all(darkness(place) > 150 for place in middles)
    assert darkness(middles[:2].mean(0)) > 60
    assert darkness(middles[1:].mean(0)) == 0
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert np.abs(middles[one] - middles[other]).max() > 0.1


def test_one_node_and_graphs_that_are_too_large_for_a_page(model):
    alone = inspect(model, Graph(np.eye(3)[:1], np.empty((2, 0), int)), importance=False, evidence=False)
    assert alone.trace.sentences[0].source.edges == ()
    assert alone.trace.sentences[0].attention["encoder"].array().min() == 1
    with pytest.raises(MediaError, match="the graph: 201 nodes, but a page shows up to 200: pass a part of the graph"):
        inspect(model, Graph(np.eye(3)[[0] * 201], np.empty((2, 0), int)))


def test_the_texts_of_the_page_are_about_nodes(page):
    html = page.html()
    assert "Which nodes did it look at?" in html
    assert "sound: " not in html.partition('id="trace"')[0].partition('id="glossary"')[2]
    other = inspect("pt-en", "o gato", importance=False, evidence=False).html()
    assert "graph: " not in other.partition('id="trace"')[0].partition('id="glossary"')[2]


def test_the_page_shows_the_neighbors_of_the_node_that_is_chosen(page, chromium, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(page.html(), encoding="utf-8")
    (sentence,) = page.trace.sentences
    node = 1
    neighbors = {start for start, end in sentence.source.edges if end == node} | {node}
    with opened(chromium, path, "#lang=en&place=encoder&head=1.1") as tab:
        tab.locator(f".picture [data-at='{node}']").click()
        settled(tab)
        assert tab.locator(".target [aria-current='step']").inner_text() == f"n{node}"
        labeled = tab.evaluate("""() => [...document.querySelectorAll(".graph .piece")].filter(
            (piece) => piece.querySelector(".share").textContent).map((piece) => Number(piece.dataset.at))""")
        assert set(labeled) <= neighbors
        assert len(labeled) >= 2


def test_the_figure_and_the_command_line_show_the_graph(model, page, tmp_path):
    root = ElementTree.fromstring(render_svg(page.trace.sentences[0]))
    assert [node for node in root.iter() if node.tag.endswith("use")]
    write_folder(tmp_path / "tree", TREE)
    done = CliRunner().invoke(
        app, ["inspect", str(model), str(tmp_path / "tree"), "--out", str(tmp_path / "page.html")]
    )
    assert done.exit_code == 0, done.output
    assert "Which nodes did it look at?" in (tmp_path / "page.html").read_text(encoding="utf-8")
    with pytest.raises(HeedfulError, match="the page cannot run this model: its sources are graphs"):
        inspect(model, TREE, live="int8")


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
BOX = (0.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("piece", "options", "message"),
    [
        ({}, {"edges": ((0, 0),)}, "a graph has the `picture` of its drawing"),
        ({"box": BOX}, {"picture": PNG, "edges": ((0, 1),)}, "a piece that does not exist; the pieces are 0 to 0"),
    ],
)
def test_traces_that_cannot_be(piece, options, message):
    with pytest.raises((ValueError, ConfigError), match=message):
        Text(text="a", pieces=(Piece(text="a", **piece),), **options)

"""Graphs: read them safely, and turn them into rows with a slot per node.

    graph = read_graph("molecule.npz", settings)      # its edges once each, without self-loops
    row = to_row(graph, settings.max_neighbors)       # [N, F + K]: the features of each node, then its neighbors

An .npz file has the arrays `features` [N, F], `edges` [2, E] with an edge from the node edges[0, e] to edges[1, e], and
optionally `names` [N]. A directory has nodes.tsv with a name and F numbers per line, and edges.tsv with two names per
line. A file is untrusted: sizes and types are checked before anything is decoded, and pickled objects are never loaded.
"""

import os
import struct
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

from heedful.config.settings import GraphInputSettings
from heedful.inputs.media import MediaError, check_size, read_content

NODES_FILE, EDGES_FILE = "nodes.tsv", "edges.tsv"
MAX_NAME_CHARACTERS = 200
MAX_ARRAY_BYTES = 1 << 30
MAX_LISTED_EDGES = 8  # copies of an edge that a file may list, before they are removed
NUMBERS, INTEGERS, TEXTS = "fiub", "iu", "U"  # kinds of NumPy's types
MAX_DRAWN_NODES = 200
LAYOUT_STEPS, GRAVITY = 300, 2.0
DRAWING_PIXELS, MARGIN = 360, 0.06
ZIP_ERRORS = (BadZipFile, zlib.error, struct.error, OSError, EOFError, RuntimeError, ValueError, LookupError)
ADVICE = "write it with numpy.savez(path, features=features, edges=edges), with shapes [N, F] and [2, E]"


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Nodes with numbers, and directed edges between them; an undirected graph may have each edge once or twice."""

    features: NDArray[Any]  # [N, F]
    edges: NDArray[Any]  # [2, E]: from node edges[0, e] to node edges[1, e], counted from 0
    names: tuple[str, ...] = ()  # of the nodes; empty if they have none

    @property
    def num_nodes(self) -> int:
        return len(self.features)


class GraphLimits(NamedTuple):
    """The limits of graphs whose settings are not known yet."""

    features: int | None = None  # any number
    max_nodes: int = 1_000_000
    max_neighbors: int = 1_000


Limits: TypeAlias = GraphInputSettings | GraphLimits
GraphSource: TypeAlias = "str | Path | bytes | Graph"  # a path, the content of an .npz file, or a graph


def read_graph(source: GraphSource, settings: GraphInputSettings) -> Graph:
    """A graph with each edge once, in both directions unless `directed`; MediaError if it cannot be used."""
    graph = load_graph(source, settings)
    name = str(source) if isinstance(source, str | Path) else "the graph"
    return check_neighbors(unique_edges(graph, directed=settings.directed), settings.max_neighbors, name)


def load_graph(source: GraphSource, limits: Limits) -> Graph:
    """A graph as it is stored, after all checks but that of its neighbors."""
    name = str(source) if isinstance(source, str | Path) else "the graph"
    try:
        return _load(source, limits)
    except MediaError as error:
        raise MediaError(error.reason, name) from None
    except MemoryError:
        raise MediaError("there is not enough memory to decode it", name) from None


def _load(source: GraphSource, limits: Limits) -> Graph:
    match source:
        case Graph():
            return _check(source, limits)
        case bytes():
            check_size(source, "the graph")
            return _check(_read_npz(source, limits), limits)
        case str() | Path() if os.path.isdir(source):  # noqa: PTH112  # False if a name is too long
            return _check(_read_folder(Path(source), limits), limits)
        case str() | Path():
            return _check(_read_npz(read_content(source), limits), limits)
    raise MediaError(f"a {type(source).__name__}; use a path, the bytes of an .npz file, or a Graph")


# ------------------------------------------------------------------------------------------------------------- checks


def _check(graph: Graph, limits: Limits) -> Graph:
    """The graph, as float32 and int64, if its arrays fit together and the limits."""
    features, edges = np.asarray(graph.features), np.asarray(graph.edges)
    for name, array, kinds in (("features", features, NUMBERS), ("edges", edges, INTEGERS)):
        if array.dtype.kind not in kinds and array.size:
            raise MediaError(
                f"`{name}` has the type {array.dtype}; use {'numbers' if kinds == NUMBERS else 'integers'}"
            )
    check_features(features.shape, limits)
    check_edges(edges.shape, limits)
    num_nodes = len(features)
    if edges.size and (edges.min() < 0 or edges.max() >= num_nodes):
        edge = int(((edges < 0) | (edges >= num_nodes)).any(0).argmax())
        raise MediaError(
            f"edge {edge} joins the nodes {edges[0, edge]} and {edges[1, edge]}, but the nodes are 0 to {num_nodes - 1}"
        )
    with np.errstate(over="ignore"):
        features = features.astype(np.float32)
    if not np.isfinite(features).all():
        raise MediaError("`features` has numbers that are infinite, too large or not numbers")
    names = tuple(graph.names)
    if names and len(names) != num_nodes:
        raise MediaError(f"{len(names):,} names for {num_nodes:,} nodes")
    return Graph(features, edges.astype(np.int64).reshape(2, -1), names)


def check_features(shape: tuple[int, ...], limits: Limits) -> None:
    if len(shape) != 2:
        raise MediaError(f"`features` has the shape {list(shape)}; use [N, F], a row for each node")
    if not shape[0]:
        raise MediaError("0 nodes")
    if shape[0] > limits.max_nodes:
        raise MediaError(f"{shape[0]:,} nodes; the limit is {limits.max_nodes:,} (input.max_nodes)")
    if shape[1] != (limits.features or shape[1]) or not shape[1]:
        raise MediaError(
            f"{shape[1]:,} numbers per node, but input.features is {limits.features or 1:,}: all graphs need the same"
        )


def check_edges(shape: tuple[int, ...], limits: Limits) -> None:
    if shape == (0,):  # an empty list
        return
    if len(shape) != 2 or shape[0] != 2:
        raise MediaError(
            f"`edges` has the shape {list(shape)}; use [2, E], with the start of each edge in the first row"
        )
    if shape[1] > (limit := max_listed_edges(limits)):
        raise MediaError(f"{shape[1]:,} edges; input.max_nodes and input.max_neighbors limit them to {limit:,}")


def max_listed_edges(limits: Limits) -> int:
    return MAX_LISTED_EDGES * limits.max_nodes * limits.max_neighbors


def unique_edges(graph: Graph, *, directed: bool) -> Graph:
    """Each edge once, sorted by target, without self-loops; in both directions unless `directed`."""
    edges = graph.edges[:, graph.edges[0] != graph.edges[1]]
    if not directed:
        edges = np.concatenate([edges, edges[::-1]], 1)
    keys = np.unique(edges[1] * graph.num_nodes + edges[0])
    return Graph(graph.features, np.stack([keys % graph.num_nodes, keys // graph.num_nodes]), graph.names)


def check_neighbors(graph: Graph, max_neighbors: int, name: str) -> Graph:
    """The graph, if no node has more neighbors."""
    node, count = most_neighbors(graph)
    if count > max_neighbors:
        raise MediaError(
            f"node {graph.names[node] if graph.names else node} has {count:,} neighbors; the limit is "
            f"{max_neighbors:,} (input.max_neighbors)",
            name,
        )
    return graph


def most_neighbors(graph: Graph) -> tuple[int, int]:
    """The node with the most neighbors, and their number, of a graph with unique edges."""
    counts = np.bincount(graph.edges[1], minlength=graph.num_nodes)
    return int(counts.argmax()), int(counts.max())


# ---------------------------------------------------------------------------------------------------------------- npz


def _read_npz(content: bytes, limits: Limits) -> Graph:
    try:
        with ZipFile(BytesIO(content)) as archive:
            files = archive.namelist()
            for name in ("features", "edges"):
                if f"{name}.npy" not in files:
                    raise MediaError(f"there is no array `{name}`: {ADVICE}")

            def check_names(shape: tuple[int, ...]) -> None:
                if len(shape) != 1 or shape[0] > limits.max_nodes:
                    raise MediaError(f"`names` has the shape {list(shape)}; use [N], a name for each node")

            features = _read_array(archive, "features", NUMBERS, lambda shape: check_features(shape, limits))
            edges = _read_array(archive, "edges", INTEGERS, lambda shape: check_edges(shape, limits))
            has_names = "names.npy" in files
            names = unpack_names(_read_array(archive, "names", TEXTS, check_names)) if has_names else ()
            return Graph(features, edges, names)
    except ZIP_ERRORS as error:
        raise MediaError(f"not an .npz file, or damaged: {ADVICE}") from error


def _read_array(
    archive: ZipFile, name: str, kinds: str, check_shape: Callable[[tuple[int, ...]], None]
) -> NDArray[Any]:
    """An array whose type and shape are checked before its numbers are decompressed."""
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise MediaError(f"`{name}` is compressed in a way that numpy.savez does not use")
    with archive.open(info) as stream:
        try:
            if np.lib.format.read_magic(stream) != (1, 0):  # others allow headers of any size
                raise ValueError("another version")
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError, OverflowError) as error:
            raise MediaError(f"the header of `{name}` cannot be read: {ADVICE}") from error
        if dtype.kind not in kinds or not 0 < dtype.itemsize <= (4 * MAX_NAME_CHARACTERS if kinds == TEXTS else 8):
            expected = {NUMBERS: "numbers", INTEGERS: "integers"}.get(kinds, f"texts of up to {MAX_NAME_CHARACTERS}")
            raise MediaError(f"`{name}` has the type {str(dtype)[:40]}; use {expected}")
        if min(shape, default=0) < 0:  # `read` would decompress everything
            raise MediaError(f"`{name}` has the shape {list(shape)}")
        check_shape(shape)
        if (size := prod(shape) * dtype.itemsize) > MAX_ARRAY_BYTES:
            raise MediaError(f"`{name}` has {size:,} bytes; the limit is {MAX_ARRAY_BYTES:,}")
        data = stream.read(size)
    if len(data) != size:
        raise MediaError(f"`{name}` is incomplete")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")


def unpack_names(array: NDArray[Any]) -> tuple[str, ...]:
    """The texts of an array; MediaError if one is not Unicode, which NumPy does not check."""
    codes = np.ascontiguousarray(array).view(f"{array.dtype.byteorder}u4")
    if ((codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))).any():
        raise MediaError("`names` has a text that is not Unicode")
    return tuple(array.tolist())


# --------------------------------------------------------------------------------------------------------- directory


def _read_folder(folder: Path, limits: Limits) -> Graph:
    """The graph of nodes.tsv and edges.tsv."""
    if not (folder / NODES_FILE).is_file():
        raise MediaError(f"a directory without {NODES_FILE} and {EDGES_FILE}")
    lines = _read_fields(folder / NODES_FILE)
    check_features((len(lines), len(lines[0]) - 1 if lines else 0), limits)
    num_features = len(lines[0]) - 1
    features = np.empty((len(lines), num_features), np.float64)
    nodes: dict[str, int] = {}
    for number, (name, *numbers) in enumerate(lines):
        if len(numbers) != num_features:
            raise MediaError(
                f"{NODES_FILE}, line {number + 1:,}: expected a name and {num_features:,} numbers, separated by "
                f"tabs, but there are {len(numbers):,}"
            )
        if len(name) > MAX_NAME_CHARACTERS or name in nodes:
            reason = "occurs twice" if name in nodes else f"has more than {MAX_NAME_CHARACTERS} characters"
            raise MediaError(f"{NODES_FILE}, line {number + 1:,}: the name `{name[:40]}` {reason}")
        nodes[name] = number
        try:
            features[number] = [float(text) for text in numbers]
        except ValueError:
            raise MediaError(
                f"{NODES_FILE}, line {number + 1:,}: expected numbers after the name; there is no line with headings"
            ) from None
    lines = _read_fields(folder / EDGES_FILE)
    check_edges((2, len(lines)), limits)
    edges = np.empty((2, len(lines)), np.int64)
    for number, line in enumerate(lines):
        if len(line) != 2:
            raise MediaError(f"{EDGES_FILE}, line {number + 1:,}: expected two names, separated by a tab")
        if unknown := [name for name in line if name not in nodes]:
            raise MediaError(f"{EDGES_FILE}, line {number + 1:,}: there is no node `{unknown[0][:40]}` in {NODES_FILE}")
        edges[:, number] = [nodes[name] for name in line]
    return Graph(features, edges, tuple(nodes))


def _read_fields(path: Path) -> list[list[str]]:
    """The fields of each line; an empty file has none."""
    try:
        text = (read_content(path) if path.stat().st_size else b"").decode()
    except UnicodeDecodeError as error:
        raise MediaError(f"{path.name} is not UTF-8 at byte {error.start + 1:,}") from None
    except FileNotFoundError:
        raise MediaError(f"there is no {path.name} beside {NODES_FILE}") from None
    except MediaError as error:
        raise MediaError(f"{path.name}: {error.reason}") from None
    return [line.removesuffix("\r").split("\t") for line in text.split("\n") if line.strip()]


# ---------------------------------------------------------------------------------------------------------------- rows


def to_row(graph: Graph, max_neighbors: int) -> NDArray[np.float32]:
    """[N, F + K]: the features of each node, then its neighbors, counted from 1; 0 where there is none.

    A row of zeros is a node without neighbors, so the zeros of padding mean nothing else.
    """
    sources, targets = graph.edges  # sorted by target
    counts = np.bincount(targets, minlength=graph.num_nodes)
    places = np.arange(len(targets)) - (np.cumsum(counts) - counts)[targets]
    num_features = graph.features.shape[1]
    row = np.zeros((graph.num_nodes, num_features + max_neighbors), np.float32)
    row[:, :num_features] = graph.features
    row[targets, num_features + places] = sources + 1
    return row


def from_row(row: NDArray[Any], num_features: int) -> Graph:
    """The graph of a row, without the names of its nodes."""
    neighbors = np.asarray(row[:, num_features:]).astype(np.int64)
    targets, places = neighbors.nonzero()
    return Graph(np.asarray(row[:, :num_features]), np.stack([neighbors[targets, places] - 1, targets]))


def random_graph(settings: GraphInputSettings, num_nodes: int, generator: np.random.Generator) -> Graph:
    """A graph with at most `max_neighbors` neighbors of each node."""
    features = generator.standard_normal((num_nodes, settings.features)).astype(np.float32)
    orders = [generator.permutation(num_nodes) for _ in range(1 + min(settings.max_neighbors, 2))]
    pairs = np.stack([np.concatenate(orders[:-1]), np.concatenate(orders[1:])])
    return unique_edges(Graph(features, pairs), directed=True)


# ---------------------------------------------------------------------------------------------------------- a drawing


def place_nodes(graph: Graph) -> NDArray[np.float64]:
    """Places [N, 2] in the unit square: edges pull nodes together, and all nodes push each other away.

    As Fruchterman and Reingold (1991), from a circle: the same graph always looks the same. MediaError for a large
    graph, because every step compares all pairs of nodes.
    """
    if graph.num_nodes > MAX_DRAWN_NODES:
        raise MediaError(
            f"{graph.num_nodes:,} nodes, but a page shows up to {MAX_DRAWN_NODES}: pass a part of the graph, such as "
            "a node with the nodes around it",
            "the graph",
        )
    angles = 2 * np.pi * np.arange(graph.num_nodes) / graph.num_nodes
    places = np.stack([np.cos(angles), np.sin(angles)], 1)
    pulls = np.zeros((graph.num_nodes, graph.num_nodes))
    pulls[graph.edges[0], graph.edges[1]] = pulls[graph.edges[1], graph.edges[0]] = 1
    distance = 2 / np.sqrt(graph.num_nodes)  # of neighbors, if nothing else pulls
    for heat in np.linspace(0.2, 0.002, LAYOUT_STEPS):
        differences = places[:, None] - places
        lengths = np.maximum(np.linalg.norm(differences, axis=-1), 1e-3)
        forces = (distance / lengths) ** 2 - pulls * lengths / distance
        moves = (differences * forces[..., None]).sum(1) - GRAVITY * places
        places = places + moves * np.minimum(1, heat / np.maximum(np.linalg.norm(moves, axis=-1), 1e-9))[:, None]
    low, high = places.min(0), places.max(0)
    shares: NDArray[np.float64] = 0.5 + (places - (low + high) / 2) / max(float((high - low).max()), 1e-9)
    return MARGIN + (1 - 2 * MARGIN) * shares


def node_boxes(graph: Graph) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of each node in its drawing, in shares of the sides."""
    half = min(MARGIN, 0.25 / np.sqrt(graph.num_nodes))
    return [(x - half, y - half, x + half, y + half) for x, y in place_nodes(graph).tolist()]


def draw_graph(graph: Graph) -> NDArray[np.uint8]:
    """A picture [H, W, 3]: gray lines between the places of the nodes, and a dot for each node."""
    places = place_nodes(graph) * DRAWING_PIXELS
    gray = np.full((DRAWING_PIXELS, DRAWING_PIXELS), 255.0)
    for source, target in sorted({(min(edge), max(edge)) for edge in graph.edges.T.tolist()}):
        draw_line_(gray, places[source], places[target], 1.0, 170)
    for place in places:
        draw_line_(gray, place, place, min(5.0, 30 / np.sqrt(graph.num_nodes)), 90)
    return np.repeat(gray.astype(np.uint8)[..., None], 3, -1)


def draw_line_(gray: NDArray[np.float64], start: Any, end: Any, radius: float, ink: int) -> None:
    """Draw a line with a soft edge, or a dot if it has no length."""
    low, high = (np.minimum(start, end) - radius - 1).astype(int), (np.maximum(start, end) + radius + 2).astype(int)
    part = gray[low[1] : high[1], low[0] : high[0]]
    columns, rows = (np.arange(low[axis], high[axis]) + 0.5 for axis in (0, 1))
    points = np.stack(np.meshgrid(columns, rows), -1) - start  # [h, w, 2]
    along = end - start
    shares = (points @ along / max(float(along @ along), 1e-9)).clip(0, 1)
    distances = np.linalg.norm(points - shares[..., None] * along, axis=-1)
    np.minimum(part, 255 - (255 - ink) * (radius + 0.5 - distances).clip(0, 1), out=part)

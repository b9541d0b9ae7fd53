"""Graph attention: each node attends to its neighbors. Time and memory are linear in the number of edges.

    layer = GraphAttention(1433, 64, heads=8)
    states = layer(features, add_self_loops(edges, num_nodes))    # [N, 1433], [2, E] -> [N, 64]

An edge (i, t) lets node t attend to node i. Several graphs are one graph without edges between its parts.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.nn.attention import COMBINE_MODES, check_heads
from heedful.nn.contract import Look, Map, Maps, Memory, Record, glance_if_any
from heedful.nn.dropout import Dropout

NEGATIVE_SLOPE = 0.2  # of the LeakyReLU


def add_self_loops(edges: Tensor, num_nodes: int) -> Tensor:
    """[2, E] -> [2, E + N]: each node is a neighbor of itself, once."""
    nodes = torch.arange(num_nodes, device=edges.device)
    return torch.cat([edges[:, edges[0] != edges[1]], nodes.expand(2, -1)], 1)


def sum_by_target(values: Tensor, targets: Tensor, num_nodes: int) -> Tensor:
    """[E, ..], [E] -> [N, ..]: the sum over the edges of each target."""
    index = targets.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    return values.new_zeros(num_nodes, *values.shape[1:]).scatter_add(0, index, values)


def softmax_by_target(scores: Tensor, targets: Tensor, num_nodes: int) -> Tensor:
    """a_ti = exp(e_ti) / sum_{k in N(t)} exp(e_tk): [E, H], [E] -> [E, H]"""
    index = targets[:, None].expand_as(scores)
    largest = scores.new_full((num_nodes, scores.shape[1]), -torch.inf).scatter_reduce(
        0, index, scores.detach(), "amax"
    )
    exponentials = (scores - largest[targets]).exp()
    return exponentials / sum_by_target(exponentials, targets, num_nodes)[targets]


class AttendedGraph(NamedTuple):
    """The result of a layer: context [N, width], weights and scores [E, H], values [N, H, d]."""

    context: Tensor
    weights: Tensor
    scores: Tensor
    values: Tensor


class GraphAttention(nn.Module):
    """A graph attention layer (Velickovic et al. 2018); the K heads are concatenated or averaged.

    e_ti = LeakyReLU(u . W h_i + v . W h_t)      a_t = softmax of e_t over N(t)      c_t = sum_{i in N(t)} a_ti W h_i
    """

    def __init__(
        self,
        input_width: int,
        width: int,
        heads: int,
        *,
        combine: str = "concat",
        dropout: float = 0.0,
        weight_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if combine not in COMBINE_MODES:
            raise ValueError(f"combine {combine!r} is unknown; choose from {', '.join(COMBINE_MODES)}")
        if combine == "concat" and width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads")
        self.width, self.heads, self.average = width, heads, combine == "average"
        head_width = width if self.average else width // heads
        self.project = nn.Linear(input_width, heads * head_width, bias=False)  # W of all heads
        self.source_score = nn.Parameter(torch.empty(heads, head_width))  # u
        self.target_score = nn.Parameter(torch.empty(heads, head_width))  # v
        self.dropout, self.weight_dropout = Dropout(dropout), Dropout(weight_dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            nn.init.xavier_uniform_(parameter)

    def project_features(self, features: Tensor) -> Tensor:
        """W h of all heads, [N, input width] -> [N, H d]; the cost of sparse features is that of their non-zeros."""
        if not features.is_sparse:
            dense: Tensor = self.project(self.dropout(features))
            return dense
        values, shape = self.dropout(features.values()), features.shape
        dropped = torch.sparse_coo_tensor(features.indices(), values, shape, check_invariants=False, is_coalesced=True)
        projected: Tensor = torch.sparse.mm(dropped, self.project.weight.T.contiguous())
        return projected

    def score_edges(self, nodes: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        """[N, H, d], [E], [E] -> e [E, H]"""
        source_part = (nodes * self.source_score).sum(-1)  # [N, H]
        target_part = (nodes * self.target_score).sum(-1)
        return F.leaky_relu(source_part[sources] + target_part[targets], NEGATIVE_SLOPE)

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        """[N, input width] (dense, or sparse and coalesced), [2, E] -> [N, width]"""
        return self.attend(features, edges).context

    def attend(self, features: Tensor, edges: Tensor, silent: tuple[int, ...] = ()) -> AttendedGraph:
        """[N, input width], [2, E] -> the context of each node, and how it was computed; silent heads add zeros."""
        check_heads(silent, self.heads)
        sources, targets = edges
        values = self.project_features(features).unflatten(-1, (self.heads, -1))  # [N, H, d]
        scores = self.score_edges(values, sources, targets)
        weights = softmax_by_target(scores, targets, len(features))
        messages = self.weight_dropout(weights).unsqueeze(-1) * values[sources]  # [E, H, d]
        context = sum_by_target(messages, targets, len(features))
        if silent:
            context = context.index_fill(1, torch.tensor(silent, device=context.device), 0.0)
        return AttendedGraph(context.mean(1) if self.average else context.flatten(1), weights, scores, values)

    if TYPE_CHECKING:
        __call__ = forward


class GraphEncoder(nn.Module):
    """Layers of graph attention with an activation in between: h' = sigma(c). Each node is a slot of the memory.

    The last layer has no activation. Padded nodes have no edges.
    """

    def __init__(self, layers: Sequence[GraphAttention], activation: Callable[[Tensor], Tensor] = F.elu) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.activation = activation
        self.width = layers[-1].width

    def forward(self, features: Tensor, mask: Tensor, edges: Tensor, *, look: Look | None = None) -> Memory:
        """Features [B, S, F], mask [B, S], edges [2, E] (node s of row b has the number b S + s) -> Memory

        The neighbors of a node include itself. With a `look`, the maps are dense: B H S S numbers per layer.
        """
        if look is not None:
            look.check_layers("encoder", len(self.layers))
        rows, slots, _ = features.shape
        x, edges, maps = features.flatten(0, 1), add_self_loops(edges, rows * slots), []
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, GraphAttention)
            glance = glance_if_any(look, "encoder", index)
            attended = layer.attend(x, edges, glance.silent if glance else ())
            if glance and glance.record:
                maps.append(make_map(attended, edges, rows, glance.record))
            x = attended.context
            if index < len(self.layers) - 1:
                x = self.activation(x)
        return Memory(x.unflatten(0, (rows, slots)), mask, Maps(encoder=tuple(maps)) if maps else None)

    if TYPE_CHECKING:
        __call__ = forward


class GraphShape(NamedTuple):
    """The numbers per node: its features, its neighbors, and the vector that becomes of them."""

    features: int
    neighbors: int
    width: int


class Graphs(nn.Module):
    """A batch of graphs, as rows of features and neighbors -> `layers` layers of graph attention."""

    def __init__(
        self,
        shape: GraphShape,
        *,
        layers: int,
        heads: int,
        combine: str = "concat",
        dropout: float = 0.0,
        weight_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.width = shape.width
        self.encoder = GraphEncoder(
            [
                GraphAttention(
                    shape.width if layer else shape.features,
                    shape.width,
                    heads,
                    combine=combine,
                    dropout=dropout,
                    weight_dropout=weight_dropout,
                )
                for layer in range(layers)
            ]
        )

    def forward(self, nodes: Tensor, mask: Tensor, *, look: Look | None = None) -> Memory:
        """[B, S, F + K] with the neighbors of each node, counted from 1 (0: none), and [B, S] -> Memory"""
        if nodes.size(2) != self.shape.features + self.shape.neighbors:
            raise ValueError(
                f"this model reads graphs with {self.shape.features} features and up to {self.shape.neighbors} "
                f"neighbors per node, but the rows have {nodes.size(2)} numbers"
            )
        features, neighbors = nodes.split((self.shape.features, self.shape.neighbors), 2)
        return self.encoder(features, mask, list_edges(neighbors, mask), look=look)

    if TYPE_CHECKING:
        __call__ = forward


def list_edges(neighbors: Tensor, mask: Tensor) -> Tensor:
    """[B, S, K] neighbors of real nodes, counted from 1, and [B, S] -> edges [2, E] between the nodes of the batch."""
    slots = mask.size(1)
    numbers = neighbors.long()
    is_edge = (numbers > 0) & (numbers <= slots) & mask.unsqueeze(-1)
    row, target, place = is_edge.nonzero(as_tuple=True)
    source = numbers[row, target, place] - 1
    return torch.stack([row * slots + source, row * slots + target])[:, mask[row, source]]


def make_map(attended: AttendedGraph, edges: Tensor, rows: int, record: frozenset[Record]) -> Map:
    """The weights, scores and values of a layer as dense tensors: [E, H] -> [B, H, S, S]"""
    sources, targets = edges
    slots = len(attended.values) // rows

    def dense(values: Tensor, fill: float) -> Tensor:
        table = values.new_full((rows, slots, slots, values.shape[1]), fill)
        table[targets // slots, targets % slots, sources % slots] = values
        return table.permute(0, 3, 1, 2)

    return Map(
        weights=dense(attended.weights, 0.0) if "weights" in record else None,
        scores=dense(attended.scores, -torch.inf) if "scores" in record else None,
        values=attended.values.unflatten(0, (rows, slots)).transpose(1, 2) if "values" in record else None,
    )

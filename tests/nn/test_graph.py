"""Graph attention: the worked value of the lecture, a dense reference, laws of graphs, and its cost."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.nn.attention import attend, soft
from heedful.nn.contract import Look
from heedful.nn.encoders import GraphAttention, GraphEncoder
from heedful.nn.encoders.graph import NEGATIVE_SLOPE, add_self_loops, softmax_by_target


class DenseScore:
    """The score of graph attention for a dense `attend`, one head."""

    has_state = False

    def __init__(self, u, v):
        self.u, self.v = u, v

    def __call__(self, query, keys, past_weights=None):
        return F.leaky_relu((query @ self.v)[:, None] + (keys @ self.u)[None, :], NEGATIVE_SLOPE)


def dense(layer, features, neighbors):
    """The same layer on a matrix of all pairs of nodes."""
    heads = []
    for projection, u, v in zip(
        layer.project.weight.chunk(layer.heads), layer.source_score, layer.target_score, strict=True
    ):
        nodes = features @ projection.T
        heads.append(attend(DenseScore(u, v), soft, nodes, nodes, nodes, mask=neighbors).context)
    return torch.stack(heads).mean(0) if layer.average else torch.cat(heads, 1)


def random_graph(seed, nodes, edges):
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(nodes, (2, edges), generator=generator).unique(dim=1)
    return torch.randn(nodes, 5, generator=generator, dtype=torch.double), add_self_loops(pairs, nodes)


def adjacency(edges, nodes):
    neighbors = torch.zeros(nodes, nodes, dtype=torch.bool)
    neighbors[edges[1], edges[0]] = True
    return neighbors


def test_L10_graph_attention_by_hand():
    layer = GraphAttention(2, 2, 1)
    with torch.no_grad():
        layer.project.weight.copy_(torch.eye(2))
        layer.source_score.copy_(torch.tensor([[1.0, -1.0]]))
        layer.target_score.copy_(torch.tensor([[0.5, 0.5]]))
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    context, weights, scores, _ = layer.attend(features, torch.tensor([[0, 1, 2, 1, 2], [0, 0, 0, 1, 2]]))
    for values, expected in (
        (scores[:3, 0], [1.5, -0.1, 0.5]),
        (weights[:3, 0], [0.6370, 0.1286, 0.2344]),
        (context[0], [0.8714, 0.3630]),
        (context[1:], features[1:].tolist()),  # nodes that have only themselves
    ):
        torch.testing.assert_close(values.detach(), torch.tensor(expected), rtol=0, atol=5e-5)


@pytest.mark.parametrize("combine", ["concat", "average"])
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(0, 60))
def test_L11_sparse_heads_equal_dense_ones_with_their_gradients(combine, seed, nodes, edges):
    features, edges = random_graph(seed, nodes, edges)
    torch.manual_seed(seed)
    layer = GraphAttention(5, 6, 3, combine=combine).double()
    features.requires_grad_()
    sparse, reference = layer(features, edges), dense(layer, features, adjacency(edges, nodes))
    torch.testing.assert_close(sparse, reference, rtol=0, atol=1e-6)
    wanted = [features, *layer.parameters()]
    loss_weights = torch.randn_like(sparse)
    for ours, theirs in zip(
        torch.autograd.grad((sparse * loss_weights).sum(), wanted),
        torch.autograd.grad((reference * loss_weights).sum(), wanted),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_sparse_features_equal_dense_ones_with_their_gradients():
    features, edges = random_graph(7, 9, 20)
    features = features * (features > 0)
    layer = GraphAttention(5, 6, 3).double()
    for dropout in (0.0, 0.5):
        layer.dropout.p = dropout
        torch.manual_seed(0)
        (sparse_gradient,) = torch.autograd.grad(
            layer(features.to_sparse().coalesce(), edges).square().sum(), layer.project.weight
        )
        if not dropout:
            (gradient,) = torch.autograd.grad(layer(features, edges).square().sum(), layer.project.weight)
            torch.testing.assert_close(sparse_gradient, gradient)
        else:
            assert not torch.allclose(sparse_gradient, gradient)


def test_large_scores_do_not_overflow():
    scores = torch.tensor([[1000.0], [1001.0], [-5000.0]])
    weights = softmax_by_target(scores, torch.tensor([0, 0, 1]), 2)
    torch.testing.assert_close(weights[:, 0], torch.tensor([0.2689, 0.7311, 1.0]), rtol=0, atol=5e-5)


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return GraphEncoder([GraphAttention(5, 8, 4), GraphAttention(8, 3, 2, combine="average")]).double()


def test_a_batch_of_graphs_equals_its_graphs_one_by_one(encoder):
    graphs = [random_graph(seed, nodes, 9) for seed, nodes in ((1, 4), (2, 6), (3, 1))]
    slots = max(len(features) for features, _ in graphs)
    mask = torch.tensor([[slot < len(features) for slot in range(slots)] for features, _ in graphs])
    batch = torch.full((3, slots, 5), 7.0, dtype=torch.double)  # padding that would show
    for row, (features, _) in enumerate(graphs):
        batch[row, : len(features)] = features
    edges = torch.cat([edges + row * slots for row, (_, edges) in enumerate(graphs)], 1)
    memory = encoder(batch, mask, edges, look=Look())
    for row, (features, own_edges) in enumerate(graphs):
        alone = encoder(features[None], torch.ones(1, len(features), dtype=torch.bool), own_edges, look=Look())
        torch.testing.assert_close(memory.states[row, : len(features)], alone.states[0])
        for both, one in zip(memory.maps.encoder, alone.maps.encoder, strict=True):
            torch.testing.assert_close(both.weights[row, :, : len(features), : len(features)], one.weights[0])


def test_a_node_reads_only_what_its_layers_reach(encoder):
    features = torch.randn(1, 6, 5, dtype=torch.double)
    path = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])  # node t attends to t - 1
    mask = torch.ones(1, 6, dtype=torch.bool)
    before = encoder(features, mask, path).states[0]
    features[0, 0] += 1
    changed = (encoder(features, mask, path).states[0] != before).any(-1)
    assert changed.tolist() == [True, True, True, False, False, False]  # two layers, two steps


def test_renumbered_nodes_have_renumbered_states(encoder):
    features, edges = random_graph(4, 7, 20)
    order = torch.randperm(7)
    mask = torch.ones(1, 7, dtype=torch.bool)
    renumbered = encoder(features[order][None], mask, order.argsort()[edges]).states[0]
    torch.testing.assert_close(renumbered, encoder(features[None], mask, edges).states[0][order])


def test_maps_and_silenced_heads(encoder):
    features, edges = random_graph(5, 6, 12)
    mask = torch.ones(1, 6, dtype=torch.bool)
    look = Look(frozenset({"weights", "scores", "values"}))
    for layer_map in encoder(features[None], mask, edges, look=look).maps.encoder:
        normalized = layer_map.scores.softmax(-1)
        torch.testing.assert_close(layer_map.weights, normalized)
        assert (layer_map.weights[:, :, ~adjacency(edges, 6)] == 0).all()
    layer = encoder.layers[0]
    context = layer.attend(features, edges, silent=(1,)).context
    whole = layer(features, edges)
    assert (context[:, 2:4] == 0).all()
    torch.testing.assert_close(context[:, 4:], whole[:, 4:])
    with pytest.raises(ValueError, match="cannot silence head 4 of an attention with 4 heads"):
        encoder(features[None], mask, edges, look=Look(silence=frozenset({("encoder", 0, 4)})))


def test_misuse():
    with pytest.raises(ValueError, match="combine 'sum' is unknown; choose from concat, average"):
        GraphAttention(4, 8, 2, combine="sum")
    with pytest.raises(ValueError, match="width 8 is not a multiple of 3 heads"):
        GraphAttention(4, 8, 3)


def test_the_cost_grows_with_the_edges_and_not_with_the_pairs_of_nodes():
    layer = GraphAttention(4, 8, 2)
    nodes, edges = 50_000, 100_000  # all pairs would need 10 GB for the scores of one head
    pairs = torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(0))
    features = torch.randn(nodes, 4)
    with torch.profiler.profile(profile_memory=True) as profile:
        layer(features, pairs).sum().backward()
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert 0 < largest < 1000 * (edges + nodes)

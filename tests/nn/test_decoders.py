"""The recurrent decoders against their formulas, worked out step by step with the engine's own cells."""

import itertools

import pytest
import torch
from torch import nn

from heedful.nn.attention import Additive, Attention
from heedful.nn.cells import CELLS
from heedful.nn.contract import Memory
from heedful.nn.decoders import RecurrentDecoder
from heedful.nn.decoders.rnn import INITIAL_STATES, QUERY_FROM
from heedful.nn.layers import Embed, initialize, output_layer
from heedful.nn.positions import POSITIONS

B, S, T, E, D, M, V = 3, 5, 4, 6, 8, 10, 9


def by_hand(decoder, tokens, memory, *, query_from, input_feeding, layers, cell, initial_state, bridge):
    start = {
        "mean": lambda: torch.stack([row[real].mean(0) for row, real in zip(memory.states, memory.mask, strict=True)]),
        "last": lambda: torch.stack([row[real][-1] for row, real in zip(memory.states, memory.mask, strict=True)]),
        "zero": lambda: torch.zeros(B, M),
    }[initial_state]()
    parts = 2 if cell == "lstm" else 1
    if bridge:
        made = torch.tanh(start @ decoder.bridge.weight.T + decoder.bridge.bias)
        blocks = made.split(D, -1)  # for an LSTM: every layer's hidden state, then every layer's cell
        states = [torch.stack(blocks[part * layers : (part + 1) * layers]) for part in range(parts)]
    else:
        states = [start[:, :D].expand(layers, B, D).contiguous()] + [torch.zeros(layers, B, D)] * (parts - 1)
    score, fed, outputs = decoder.attention.score, torch.zeros(B, E), []

    def context(query):
        energy = score(query.unsqueeze(1), score.prepare(memory.states)).squeeze(1)
        weights = energy.masked_fill(~memory.mask, -torch.inf).softmax(-1)
        return (weights.unsqueeze(1) @ memory.states).squeeze(1)

    for step in range(T):
        word = decoder.embed(tokens[:, step : step + 1]).squeeze(1)
        pieces = [word]
        if query_from == "previous":
            c = context(states[0][-1])  # the top layer's state, before this step
            pieces.append(c)
        if input_feeding:
            pieces.append(fed)
        given = tuple(states) if cell == "lstm" else states[0]
        z, after = decoder.rnn(torch.cat(pieces, -1).unsqueeze(1), given)
        states = list(after) if cell == "lstm" else [after]
        z = z.squeeze(1)
        read = [z, c, word] if query_from == "previous" else [z, context(z)]
        fed = torch.tanh(torch.cat(read, -1) @ decoder.readout.weight.T + decoder.readout.bias)
        outputs.append(fed)
    return torch.stack(outputs, 1)


@pytest.mark.parametrize("query_from", QUERY_FROM)
def test_a_gated_context_is_multiplied_by_a_number_per_step(query_from):
    """The decoder of Xu et al. 2015: i, f, o, g of [E y; h; z^] with z^ = sigmoid(w h + b) sum_i a_i v_i."""
    torch.manual_seed(0)
    words, output = Embed(nn.Embedding(V, E)), output_layer(E, V)
    attention = Attention(Additive(D, M), M)
    decoder = RecurrentDecoder(words, output, D, M, attention, query_from=query_from, gated_context=True)
    decoder.eval()
    memory = Memory(torch.randn(B, S, M), torch.arange(S) < torch.tensor([[5], [2], [3]]))
    tokens = torch.randint(V, (B, T))
    start = decoder.start(memory)
    (h, c), rnn, outputs = (start.past.hidden[:, 0], start.past.cell[:, 0]), decoder.rnn, []
    for step in range(T):
        word = words.table.weight[tokens[:, step]]

        def gated(h):
            scores = torch.tanh(h.unsqueeze(1) @ attention.score.query.weight.T + attention.score.key(memory.states))
            scores = (scores @ attention.score.energy.weight.T).squeeze(-1).masked_fill(~memory.mask, -torch.inf)
            beta = torch.sigmoid(h @ decoder.gate.weight.T + decoder.gate.bias)
            return beta * (scores.softmax(-1).unsqueeze(-1) * memory.states).sum(1)

        inputs = [word, gated(h)] if query_from == "previous" else [word]
        gates = torch.cat(inputs, -1) @ rnn.weight_ih_l0.T + h @ rnn.weight_hh_l0.T + rnn.bias_ih_l0 + rnn.bias_hh_l0
        i, f, g, o = gates.chunk(4, -1)
        context = inputs[-1]
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        read = [h, context, word] if query_from == "previous" else [h, gated(h)]
        outputs.append(torch.tanh(decoder.readout(torch.cat(read, -1))))
    decoded, _ = decoder(tokens, start)
    torch.testing.assert_close(decoded.states, torch.stack(outputs, 1))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(("query_from", "input_feeding"), list(itertools.product(QUERY_FROM, (False, True))))
@pytest.mark.parametrize(
    ("layers", "initial_state", "bridge"), [(2, "mean", True), (1, "last", True), (2, "zero", True), (2, "zero", False)]
)
def test_a_recurrent_decoder_is_its_formula(cell, query_from, input_feeding, layers, initial_state, bridge):
    assert initial_state in INITIAL_STATES
    torch.manual_seed(0)
    attention = Attention(Additive(D, M, 7), M)
    options = {
        "cell": cell,
        "query_from": query_from,
        "input_feeding": input_feeding,
        "layers": layers,
        "initial_state": initial_state,
        "bridge": bridge,
    }
    decoder = RecurrentDecoder(Embed(nn.Embedding(V, E)), output_layer(E, V), D, M, attention, **options)
    for parameter in decoder.parameters():
        nn.init.normal_(parameter, std=0.5)
    memory = Memory(torch.randn(B, S, M), torch.arange(S) < torch.tensor([[5], [2], [4]]))
    tokens = torch.randint(V, (B, T))
    with torch.no_grad():
        found, _ = decoder(tokens, decoder.start(memory))
        torch.testing.assert_close(found.states, by_hand(decoder, tokens, memory, **options), rtol=0, atol=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_without_a_bridge_the_memory_itself_is_the_first_state(cell):
    decoder = RecurrentDecoder(
        Embed(nn.Embedding(V, E)),
        output_layer(E, V),
        D,
        D,
        None,
        cell=cell,
        layers=2,
        initial_state="last",
        bridge=False,
    )
    memory = Memory(torch.randn(B, S, D), torch.ones(B, S, dtype=torch.bool))
    past = decoder.start(memory).past
    for layer in range(2):
        assert torch.equal(past.hidden[:, layer], memory.states[:, -1])
    assert past.cell is None if cell != "lstm" else not past.cell.any()


def test_initial_weights():
    torch.manual_seed(0)
    table = nn.Embedding(500, 64)
    decoder = RecurrentDecoder(Embed(table), output_layer(64, 500, tied_to=table, bias=True), 32, 32, None, layers=2)
    initialize(decoder)
    assert abs(float(table.weight.detach().std()) - 64**-0.5) < 0.005
    assert decoder.plain_projection.weight is table.weight
    assert not decoder.plain_projection.bias.any()
    for layer in range(2):
        recurrent = getattr(decoder.rnn, f"weight_hh_l{layer}").detach()
        for gate in recurrent.chunk(4):
            torch.testing.assert_close(gate @ gate.T, torch.eye(32), rtol=0, atol=1e-5)
        bias = getattr(decoder.rnn, f"bias_ih_l{layer}").detach()
        assert bias.tolist() == [0.0] * 32 + [1.0] * 32 + [0.0] * 64  # the forget gate remembers from the start


def test_the_embeddings_of_a_recurrent_decoder_have_no_positions():
    words = Embed(nn.Embedding(V, E), positions=POSITIONS["sinusoidal"](10, E))
    with pytest.raises(ValueError, match="reads tokens in order"):
        RecurrentDecoder(words, output_layer(E, V), D, M, None)

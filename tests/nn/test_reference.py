"""Equality with PyTorch's own modules, weights copied, masks included."""

import itertools

import pytest
import torch
from torch import nn

from heedful.nn.attention import MultiHead, SelfAttention
from heedful.nn.cells import CELLS, make_rnn
from heedful.nn.contract import Look, Memory
from heedful.nn.decoders.transformer import DecoderLayer
from heedful.nn.encoders import RecurrentEncoder
from heedful.nn.encoders.transformer import EncoderLayer
from heedful.nn.layers import Embed, TransformerLayerOptions
from heedful.performance.recurrent_step import run_single_step

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
DTYPES = list(TOLERANCE)
B, S, T, D, H, INNER = 4, 6, 5, 16, 4, 24


def close(one, other):
    torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE[one.dtype])


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


@pytest.fixture
def mask():
    return torch.arange(S) < torch.tensor([[6], [3], [1], [5]])


def copy_self(mine, theirs):
    mine.project.load_state_dict({"weight": theirs.in_proj_weight, "bias": theirs.in_proj_bias})
    mine.out.load_state_dict(theirs.out_proj.state_dict())


def copy_cross(mine, theirs):
    width = mine.width
    mine.query.load_state_dict({"weight": theirs.in_proj_weight[:width], "bias": theirs.in_proj_bias[:width]})
    mine.memory.load_state_dict({"weight": theirs.in_proj_weight[width:], "bias": theirs.in_proj_bias[width:]})
    mine.out.load_state_dict(theirs.out_proj.state_dict())


def shake(module):
    """PyTorch starts biases at zero and norms at one, which would hide a missing one."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module


@pytest.mark.parametrize("look", [None, Look()], ids=["fused", "explicit"])
def test_multi_head_is_nn_multihead_attention(dtype, mask, look):
    theirs, mine = shake(nn.MultiheadAttention(D, H, batch_first=True)), MultiHead(D, H, D)
    copy_cross(mine, theirs)
    query, states = torch.randn(B, T, D), torch.randn(B, S, D)
    glance = None if look is None else look.glance_at("cross", 0)
    context, _, found = mine(query, mine.prepare(Memory(states, mask)), None, glance)
    expected, weights = theirs(query, states, states, key_padding_mask=~mask, average_attn_weights=False)
    close(context, expected)
    if look is not None:
        close(found.weights, weights)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("look", [None, Look()], ids=["fused", "explicit"])
def test_self_attention_is_nn_multihead_attention(dtype, mask, causal, look):
    theirs, mine = shake(nn.MultiheadAttention(D, H, batch_first=True)), SelfAttention(D, H)
    copy_self(mine, theirs)
    x = torch.randn(B, S, D)
    # PyTorch's boolean attn_mask says True = blocked; ours says True = real.
    blocked = torch.ones(S, S, dtype=torch.bool).triu(1) if causal else None
    expected, _ = theirs(x, x, x, key_padding_mask=~mask, attn_mask=blocked)
    glance = None if look is None else look.glance_at("encoder", 0)
    close(mine(x, mask=mask[:, None, None, :], causal=causal, glance=glance)[0], expected)


def options(**others):
    return TransformerLayerOptions(heads=H, feedforward_size=INNER, **others)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu"])
def test_encoder_layer_is_nn_transformer_encoder_layer(dtype, mask, norm, activation):
    act = {"relu": "relu", "gelu": "gelu", "silu": nn.functional.silu}[activation]
    theirs = shake(nn.TransformerEncoderLayer(D, H, INNER, 0.0, act, batch_first=True, norm_first=norm == "pre"))
    mine = EncoderLayer(D, options(norm=norm, activation=activation))
    copy_self(mine.attention, theirs.self_attn)
    mine.feed_forward.up.load_state_dict(theirs.linear1.state_dict())
    mine.feed_forward.down.load_state_dict(theirs.linear2.state_dict())
    mine.around_attention.norm.load_state_dict(theirs.norm1.state_dict())
    mine.around_feed_forward.norm.load_state_dict(theirs.norm2.state_dict())
    x = torch.randn(B, S, D)
    expected = theirs(x, src_key_padding_mask=~mask)
    found, _ = mine(x, mask[:, None, None, :])
    close(found[mask], expected[mask])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_decoder_layer_is_nn_transformer_decoder_layer(dtype, mask, norm):
    theirs = shake(nn.TransformerDecoderLayer(D, H, INNER, 0.0, batch_first=True, norm_first=norm == "pre"))
    mine = DecoderLayer(D, D, options(norm=norm))
    copy_self(mine.attention, theirs.self_attn)
    copy_cross(mine.cross, theirs.multihead_attn)
    mine.feed_forward.up.load_state_dict(theirs.linear1.state_dict())
    mine.feed_forward.down.load_state_dict(theirs.linear2.state_dict())
    mine.around_attention.norm.load_state_dict(theirs.norm1.state_dict())
    mine.around_cross.norm.load_state_dict(theirs.norm2.state_dict())
    mine.around_feed_forward.norm.load_state_dict(theirs.norm3.state_dict())
    x, states = torch.randn(B, T, D), torch.randn(B, S, D)
    blocked = torch.ones(T, T, dtype=torch.bool).triu(1)
    expected = theirs(x, states, tgt_mask=blocked, memory_key_padding_mask=~mask)
    found, _, _ = mine(x, None, mine.prepare(Memory(states, mask)))
    close(found, expected)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_decoder_layer_without_memory_is_a_masked_nn_transformer_encoder_layer(dtype, norm):
    theirs = shake(nn.TransformerEncoderLayer(D, H, INNER, 0.0, batch_first=True, norm_first=norm == "pre")).eval()
    mine = DecoderLayer(D, 0, options(norm=norm)).eval()
    copy_self(mine.attention, theirs.self_attn)
    mine.feed_forward.up.load_state_dict(theirs.linear1.state_dict())
    mine.feed_forward.down.load_state_dict(theirs.linear2.state_dict())
    mine.around_attention.norm.load_state_dict(theirs.norm1.state_dict())
    mine.around_feed_forward.norm.load_state_dict(theirs.norm2.state_dict())
    x = torch.randn(B, T, D)
    assert mine.prepare(Memory(torch.zeros(B, 0, 0), torch.zeros(B, 0, dtype=torch.bool))) is None
    plain, _, (self_map, cross_map) = mine(x, None, None)
    close(plain, theirs(x, src_mask=nn.Transformer.generate_square_subsequent_mask(T, dtype=dtype), is_causal=True))
    assert self_map is None
    assert cross_map is None


@pytest.mark.parametrize(("cell", "two", "layers"), list(itertools.product(CELLS, (False, True), (1, 2, 3))), ids=str)
def test_recurrent_encoder_is_a_plain_rnn_on_each_sentence(dtype, mask, cell, two, layers):
    mine = RecurrentEncoder(Embed(nn.Embedding(9, 5)), 8, cell=cell, bidirectional=two, layers=layers)
    theirs = CELLS[cell](5, 8 // (1 + two), layers, batch_first=True, bidirectional=two)
    shake(theirs)
    for layer in range(layers):
        for part, suffix in ((mine.ahead[layer], ""), *([(mine.back[layer], "_reverse")] if two else [])):
            own = theirs.state_dict()
            part.load_state_dict({name: own[name.replace("_l0", f"_l{layer}{suffix}")] for name in part.state_dict()})
    tokens = torch.randint(9, (B, S))
    memory = mine(tokens, mask)
    for row in range(B):
        length = int(mask[row].sum())
        expected, _ = theirs(mine.embed(tokens[row : row + 1, :length]))
        close(memory.states[row : row + 1, :length], expected)
        assert (memory.states[row, length:] == 0).all()


@pytest.mark.parametrize("layers", [1, 2])
def test_a_recurrent_encoder_drops_of_what_it_hands_over_and_in_training_only(mask, layers):
    encoder = RecurrentEncoder(Embed(nn.Embedding(9, 5)), 8, layers=layers, dropout=0.5)
    torch.manual_seed(0)
    tokens = torch.randint(9, (B, S))
    dropped = encoder(tokens, mask).states[mask] == 0
    assert 0.2 < dropped.double().mean() < 0.8
    assert (encoder.eval()(tokens, mask).states[mask] != 0).all()


@pytest.mark.parametrize("layers", [1, 2])
def test_a_gru_that_resets_before_the_product_is_the_formula(dtype, layers):
    """Equal to nn.GRU where U of the candidate is diagonal: then r * (U h) = U (r * h)."""
    theirs = shake(nn.GRU(5, 8, layers, batch_first=True))
    with torch.no_grad():
        for layer in range(layers):
            candidate = getattr(theirs, f"weight_hh_l{layer}")[16:]
            candidate.copy_(torch.diag(torch.diagonal(candidate)))
            getattr(theirs, f"bias_hh_l{layer}")[16:] = 0.0  # nn.GRU also resets this bias
    mine = make_rnn("gru", "before", 5, 8, layers)
    mine.load_state_dict(theirs.state_dict())
    x, start = torch.randn(3, 7, 5), torch.randn(layers, 3, 8)
    for ours, expected in zip(mine(x, start), theirs(x, start), strict=True):
        close(ours, expected)
    step = run_single_step(mine, x[:, 0], start.transpose(0, 1), None)
    close(step[0], mine(x[:, :1], start)[0][:, 0])
    with torch.no_grad():
        mine.weight_hh_l0[16:] += 0.5
        theirs.weight_hh_l0[16:] += 0.5
    assert not torch.allclose(mine(x, start)[0], theirs(x, start)[0], atol=1e-3)


@pytest.mark.parametrize(("cell", "layers"), list(itertools.product(CELLS, (1, 2, 3))), ids=str)
def test_one_step_is_the_engine_on_a_sequence_of_one(dtype, cell, layers):
    rnn = shake(CELLS[cell](5, 8, layers, batch_first=True, dropout=0.5 if layers > 1 else 0.0))
    inputs, hidden = torch.randn(B, 5, requires_grad=True), torch.randn(B, layers, 8, requires_grad=True)
    memory = torch.randn(B, layers, 8, requires_grad=True) if cell == "lstm" else None
    torch.manual_seed(1)
    found = run_single_step(rnn, inputs, hidden, memory)
    torch.manual_seed(1)
    states = tuple(state.transpose(0, 1).contiguous() for state in (hidden, memory) if state is not None)
    answers, after = rnn(inputs.unsqueeze(1), states if cell == "lstm" else states[0])
    after = [state.transpose(0, 1) for state in (after if cell == "lstm" else (after,))]
    expected = [answers.squeeze(1), *after]
    found = [part for part in found if part is not None]
    leaves = [leaf for leaf in (inputs, hidden, memory, *rnn.parameters()) if leaf is not None]
    gradients = [torch.autograd.grad(sum(part.square().sum() for part in some), leaves) for some in (found, expected)]
    for mine, theirs in zip([*found, *gradients[0]], [*expected, *gradients[1]], strict=True):
        close(mine, theirs)


def test_average_of_heads_is_concat_with_a_block_matrix(dtype):
    """(1/H) sum_h head_h is concat @ W_O with W_O = [I .. I] / H, when every head is as wide as the output (G11)."""
    average = MultiHead(D, H, D, combine="average")
    shake(average)
    query, memory = torch.randn(B, T, D), Memory(torch.randn(B, S, D), torch.ones(B, S, dtype=torch.bool))
    source = average.prepare(memory)
    glance = Look().glance_at("cross", 0)
    context, _, found = average(query, source, None, glance)
    heads = found.weights @ source.values  # [B, H, T, D]
    eye = torch.cat([torch.eye(D)] * H, 0) / H
    close(context, heads.transpose(1, 2).flatten(-2) @ eye)

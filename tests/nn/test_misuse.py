"""Every message that a builder of models may meet."""

import pytest
import torch
from torch import nn

from heedful.nn.attention import (
    Additive,
    Attention,
    ContentLocation,
    Dot,
    Location,
    MultiHead,
    SelfAttention,
    attend,
    hard,
    soft,
)
from heedful.nn.contract import Look, Memory, select
from heedful.nn.decoders import RecurrentDecoder
from heedful.nn.encoders import RecurrentEncoder
from heedful.nn.layers import Embed, Residual, output_layer
from heedful.nn.positions import Given, Learned, Sinusoidal


def recurrent(**options):
    words = Embed(nn.Embedding(9, 4))
    width = options.pop("memory_width", 8)
    return RecurrentDecoder(words, output_layer(4, 9), 8, width, None, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dot(4, 6), "equal widths, not 4 .query. and 6 .key.: choose 'bilinear'"),
        (lambda: ContentLocation(4, 4, span=4), "span must be odd.*got 4"),
        (lambda: MultiHead(10, 3, 10), "width 10 is not a multiple of heads 3"),
        (lambda: MultiHead(8, 2, 8, combine="sum"), "combine 'sum' is unknown; choose from concat, average"),
        (lambda: SelfAttention(8, 2, score=ContentLocation(4, 4)), "content_location is for recurrent decoders"),
        (lambda: ContentLocation(4, 4)(torch.zeros(1, 4), torch.zeros(3, 4)), "weights of the previous step"),
        (lambda: Location(4, 4, slots=5)(torch.zeros(1, 4), torch.zeros(6, 4)), "built for 5 slots.*slots >= 6"),
        (lambda: Residual(8, norm="mid"), "norm 'mid' is unknown; choose from pre, post"),
        (lambda: RecurrentEncoder(Embed(nn.Embedding(9, 4)), 7), "width 7 must be even"),
        (lambda: recurrent(asks="next"), "asks 'next' is unknown; choose from previous, current"),
        (lambda: recurrent(first="best"), "first 'best' is unknown; choose from mean, last, zero"),
        (lambda: recurrent(bridge=False, memory_width=6), "width 6 cannot start a state of width 8 without a bridge"),
        (lambda: Sinusoidal(5, 7), "even width, got 7"),
        (lambda: Learned(5, 8)(3, offset=4), "position 7 is past the table of 5 positions.*slots >= 7"),
        (lambda: Given(5, 8, torch.zeros(4, 8)), r"shape \(4, 8\), expected \(5, 8\)"),
        (lambda: Look(frozenset({"wheights"})), "record 'wheights' is unknown; choose from weights, scores"),
        (lambda: Look(silence=frozenset({("croos", 0, 0)})), "place to silence 'croos' is unknown"),
    ],
)
def test_misuse_is_explained(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_only_trees_of_tensors_have_rows():
    with pytest.raises(TypeError, match="cannot select rows from dict"):
        select({"a": torch.zeros(2)}, torch.tensor([0]))


@pytest.mark.parametrize("heads", [1, 2])
def test_a_head_that_is_not_there_cannot_be_silenced(heads):
    attention = Attention(Additive(4, 4), 4) if heads == 1 else MultiHead(4, 2, 4)
    source = attention.prepare(Memory(torch.zeros(1, 3, 4), torch.ones(1, 3, dtype=torch.bool)))
    glance = Look(frozenset(), frozenset({("cross", 0, 5)})).at("cross", 0)
    with pytest.raises(ValueError, match=f"cannot silence head 5 of an attention with {heads}"):
        attention(torch.zeros(1, 1, 4), source, None, glance)


@pytest.mark.parametrize("look", [None, Look()], ids=["fused", "explicit"])
@pytest.mark.parametrize("normalise", [soft, hard])
def test_a_query_with_no_real_slot_gets_a_zero_context(look, normalise):
    attention = MultiHead(4, 2, 4)
    attention.normalise = normalise
    source = attention.prepare(Memory(torch.randn(2, 3, 4), torch.tensor([[True, True, False], [False] * 3])))
    glance = None if look is None else look.at("cross", 0)
    context, _, found = attention(torch.randn(2, 1, 4), source, None, glance)
    assert torch.equal(context[1, 0], attention.out.bias)
    assert not context.isnan().any()
    if found is not None:
        assert (found.weights[1] == 0).all()


def test_hard_attention_has_the_gradient_of_the_soft_choice():
    scores = torch.randn(2, 5, requires_grad=True)
    values = torch.arange(5.0)
    (one,) = torch.autograd.grad((hard(scores) * values).sum(), scores)
    (other,) = torch.autograd.grad((soft(scores) * values).sum(), scores)
    torch.testing.assert_close(one, other)
    assert torch.equal(hard(scores).detach().sort()[0][:, -1], torch.ones(2))


def test_bf16_attention_is_computed_in_fp32_while_training_on_a_cpu():
    q = torch.randn(2, 2, 3, 4).bfloat16().requires_grad_()
    context, _, _ = attend(MultiHead(8, 2, 8).score, soft, q, q, q, causal=True)
    assert context.dtype == torch.float32
    with torch.no_grad():
        assert attend(MultiHead(8, 2, 8).score, soft, q, q, q)[0].dtype == torch.bfloat16


def test_a_memory_s_mean_and_last_are_of_real_slots():
    states = torch.arange(12.0).view(2, 3, 2)
    memory = Memory(states, torch.tensor([[True, True, False], [True, True, True]]))
    assert memory.mean().tolist() == [[1.0, 2.0], [8.0, 9.0]]
    assert memory.last().tolist() == [[2.0, 3.0], [10.0, 11.0]]

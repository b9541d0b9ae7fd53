"""Every message that a builder of models may meet."""

import pytest
import torch
from torch import nn

from heedful.data.batch import collate
from heedful.nn.attention import (
    Additive,
    Attention,
    ContentLocation,
    Dot,
    GaussianWindow,
    Location,
    MultiHead,
    SelfAttention,
    attend,
    hard,
    soft,
)
from heedful.nn.contract import Look, Memory, last_slot, select
from heedful.nn.decoders import RecurrentDecoder, TransformerDecoder
from heedful.nn.encoders import Nothing, RecurrentEncoder
from heedful.nn.encoders.patches import PatchEmbed
from heedful.nn.layers import Embed, Residual, TransformerLayerOptions, output_layer
from heedful.nn.positions import Fixed, Learned, Sinusoidal
from heedful.search import Beam, DecodingLimits, Greedy
from support.zoo import GRID, Case


def recurrent(**options):
    words = Embed(nn.Embedding(9, 4))
    width = options.pop("memory_width", 8)
    return RecurrentDecoder(words, output_layer(4, 9), 8, width, None, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dot(4, 6), "dot products need equal widths, not 4 .query. and 6 .key.: use score 'bilinear'"),
        (lambda: ContentLocation(4, 4, kernel_size=4), "kernel_size must be odd.*got 4"),
        (lambda: MultiHead(10, 3, 10), "width 10 is not a multiple of heads 3"),
        (lambda: MultiHead(8, 2, 8, combine="sum"), "combine 'sum' is unknown; choose from concat, average"),
        (
            lambda: SelfAttention(8, 2, score=ContentLocation(4, 4)),
            "content_location and gaussian are for recurrent",
        ),
        (lambda: SelfAttention(8, 2, normalizer="sampled"), "sampled attention is for recurrent decoders"),
        (lambda: GaussianWindow(4, 4)(torch.zeros(1, 4), torch.zeros(3, 4)), "centers of the previous step"),
        (lambda: MultiHead(8, 2, 8, combine="average", tie_keys_values=True), "use combine 'concat'"),
        (
            lambda: RecurrentEncoder(Embed(nn.Embedding(9, 4)), 8, reset="before"),
            "is for a GRU, but the cell is 'lstm'",
        ),
        (lambda: recurrent(cell="gru", reset="never"), "reset 'never' is unknown; choose from after, before"),
        (lambda: ContentLocation(4, 4)(torch.zeros(1, 4), torch.zeros(3, 4)), "weights of the previous step"),
        (lambda: Location(4, 4, location_slots=5)(torch.zeros(1, 4), torch.zeros(6, 4)), "location_slots >= 6"),
        (lambda: Residual(8, norm="mid"), "norm 'mid' is unknown; choose from pre, post"),
        (lambda: RecurrentEncoder(Embed(nn.Embedding(9, 4)), 7), "width 7 must be even"),
        (lambda: recurrent(query_from="next"), "query_from 'next' is unknown; choose from previous, current"),
        (lambda: recurrent(initial_state="best"), "initial_state 'best' is unknown; choose from mean, last, zero"),
        (
            lambda: recurrent(bridge=False, memory_width=6),
            "the memory .width 6. and the state .width 8. must have the same width",
        ),
        (lambda: recurrent(gated_context=True), "gated_context needs attention, because it scales the context"),
        (lambda: PatchEmbed(GRID, 8, stem="square"), "stem 'square' is unknown; choose from convolution, linear"),
        (
            lambda: PatchEmbed(GRID, 8)(torch.zeros(1, 5, 12)),
            "6 patches with 12 numbers each, but the picture has 5 with 12: scale it to 4 x 6 pixels",
        ),
        (lambda: Nothing()(torch.ones(1, 2).long(), torch.ones(1, 2).bool()), "no source, but this one has 2 tokens"),
        (lambda: Sinusoidal(5, 7), "even width, got 7"),
        (lambda: Learned(5, 8)(3, offset=4), "position 7 is past the table of 5 positions.*max_positions >= 7"),
        (lambda: Fixed(5, 8, torch.zeros(4, 8)), r"shape \(4, 8\), expected \(5, 8\)"),
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
    glance = Look(frozenset(), frozenset({("cross", 0, 5)})).glance_at("cross", 0)
    with pytest.raises(ValueError, match=f"cannot silence head 5 of an attention with {heads}"):
        attention(torch.zeros(1, 1, 4), source, None, glance)


@pytest.mark.parametrize("look", [None, Look()], ids=["fused", "explicit"])
@pytest.mark.parametrize("normalizer", [soft, hard])
def test_a_query_with_no_real_slot_gets_a_zero_context(look, normalizer):
    attention = MultiHead(4, 2, 4)
    attention.normalizer = normalizer
    source = attention.prepare(Memory(torch.randn(2, 3, 4), torch.tensor([[True, True, False], [False] * 3])))
    glance = None if look is None else look.glance_at("cross", 0)
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
    assert context.dtype == torch.bfloat16
    exact = torch.nn.functional.scaled_dot_product_attention(q.double(), q.double(), q.double(), is_causal=True)
    torch.testing.assert_close(context, exact.bfloat16())


@pytest.mark.parametrize("decoder", ["transformer-pre-sinusoidal", "gru-current-1"])
def test_a_whole_model_in_bf16_trains_and_decodes(decoder):
    model = Case(
        "transformer-pre-sinusoidal-relu-scaled_dot-soft-concat", decoder, "concat", "scaled_dot", "soft", "greedy"
    ).model()
    model = model.bfloat16().train()
    batch = collate([([5, 6, 7], [3, 4]), ([5], [6, 6, 6])], bos=1, eos=2, pad=0)
    model(batch).smoothed.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
    model.eval()
    with torch.no_grad():
        memory = model.encoder(*batch.source)
    for search in (Greedy(), Beam(size=2)):
        assert len(search(model.decoder, memory, DecodingLimits(1, 2, 5))) == 2


def test_silencing_a_head_is_zeroing_its_part_of_the_output_matrix():
    torch.manual_seed(0)
    for make in (lambda: MultiHead(8, 4, 8), lambda: SelfAttention(8, 4)):
        attention = make()
        x = torch.randn(2, 3, 8)
        for head in range(4):
            place = "cross" if isinstance(attention, MultiHead) else "encoder"
            glance = Look(frozenset(), frozenset({(place, 0, head)})).glance_at(place, 0)

            def ask(glance, attention=attention, x=x):
                if isinstance(attention, MultiHead):
                    source = attention.prepare(Memory(x, torch.ones(2, 3, dtype=torch.bool)))
                    return attention(x, source, None, glance).context
                return attention(x, glance=glance)[0]

            with torch.no_grad():
                silenced = ask(glance)
                kept = attention.out.weight.clone()
                attention.out.weight[:, 2 * head : 2 * head + 2] = 0
                torch.testing.assert_close(silenced, ask(None))
                attention.out.weight.copy_(kept)


@pytest.mark.parametrize(
    ("decoder", "place", "layer"), [("transformer-pre-sinusoidal", "cross", 2), ("gru-current-1", "decoder", 0)]
)
def test_a_layer_that_is_not_there_cannot_be_silenced(decoder, place, layer):
    model = Case("gru-uni-1", decoder, "single", "additive", "soft", "greedy").model()
    look = Look(silence=frozenset({(place, layer, 0)}))
    memory = model.encoder(torch.tensor([[3, 4]]), torch.ones(1, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match=f"cannot silence head 0 of {place} layer {layer}"):
        model.decoder(torch.tensor([[1]]), model.decoder.start(memory), look)
    with pytest.raises(ValueError, match="cannot silence head 1 of encoder layer 0: there are 0 such layers"):
        model.encoder(
            torch.tensor([[3]]), torch.ones(1, 1, dtype=torch.bool), look=Look(silence=frozenset({("encoder", 0, 1)}))
        )


def test_a_mask_with_holes_has_a_last_slot_too():
    assert last_slot(torch.tensor([[True, False, True, False], [False, False, False, False]])).tolist() == [2, 0]


@pytest.mark.parametrize("score", ["bilinear", "additive"])
def test_a_memory_may_be_of_another_width(score):
    torch.manual_seed(0)
    words = Embed(nn.Embedding(9, 8), positions=Sinusoidal(20, 8))
    for memory_width in (6, 10):
        memory = Memory(torch.randn(2, 3, memory_width), torch.ones(2, 3, dtype=torch.bool))
        options = TransformerLayerOptions(heads=2, feedforward_size=8, score=score)
        transformer = TransformerDecoder(words, output_layer(8, 9), memory_width, layers=1, options=options)
        plain = RecurrentDecoder(
            Embed(nn.Embedding(9, 8)), output_layer(8, 9), 8, memory_width, None, initial_state="zero", bridge=False
        )
        for decoder in (transformer, plain):
            decoded, _ = decoder(torch.tensor([[1, 2], [3, 4]]), decoder.start(memory))
            assert decoded.states.shape == (2, 2, 8)


def test_a_memory_s_mean_and_last_are_of_real_slots():
    states = torch.arange(12.0).view(2, 3, 2)
    memory = Memory(states, torch.tensor([[True, True, False], [True, True, True]]))
    assert memory.mean().tolist() == [[1.0, 2.0], [8.0, 9.0]]
    assert memory.last().tolist() == [[2.0, 3.0], [10.0, 11.0]]

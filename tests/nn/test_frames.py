"""The encoders of recordings: the number of slots, padding, the receptive field and gradients."""

import pytest
import torch
from torch import nn

from heedful.config import FramesSettings, RecurrentFramesSettings
from heedful.nn.encoders import Frames, Pyramid, RecurrentEncoder, TransformerEncoder
from heedful.nn.encoders.frames import FrameEmbed, FrameStem, join_pairs
from heedful.nn.layers import TransformerLayerOptions, initialize

D, BANDS = 6, 5
STRIDES = (1, 2, 3, 4, 6, 8)


def make(kind="recurrent", stride=2, layers=2):
    torch.manual_seed(1)
    stem, embed = FrameStem(BANDS, D, stride), FrameEmbed(D)
    if kind == "transformer":
        encoder = TransformerEncoder(embed, layers=layers, options=TransformerLayerOptions(heads=2, feedforward_size=8))
    else:
        encoder = (Pyramid if kind == "pyramid" else RecurrentEncoder)(embed, D, layers=layers, cell="gru")
    frames = Frames(stem, encoder)
    initialize(frames)
    return frames.double().eval()


def read(encoder, lengths, *, padding=0, content=7.0):
    """The memory of rows with these lengths, whose padding has some content."""
    size = max(lengths) + padding
    mask = torch.arange(size) < torch.tensor(lengths).unsqueeze(1)
    rows = torch.rand(len(lengths), 100, BANDS, dtype=torch.double, generator=torch.Generator().manual_seed(2))
    return encoder(rows[:, :size].masked_fill(~mask.unsqueeze(-1), content), mask)


@pytest.mark.parametrize("kind", ["transformer", "recurrent", "pyramid"])
@pytest.mark.parametrize("stride", STRIDES)
def test_a_row_has_the_same_vectors_with_any_padding(kind, stride):
    encoder, lengths = make(kind, stride), [1, 2, 7, 13, 24, 40]
    slots = [-(-length // encoder.reduction) for length in lengths]
    batch = read(encoder, lengths)
    assert batch.mask.sum(1).tolist() == slots
    for padding in (0, 1, 2, 5, 11):
        padded = read(encoder, lengths, padding=padding, content=-3.0)
        for row, size in enumerate(slots):
            assert padded.mask[row].nonzero().squeeze(1).tolist() == list(range(size))
            torch.testing.assert_close(padded.states[row, :size], batch.states[row, :size], rtol=0, atol=1e-12)
    alone = read(encoder, lengths[:1])
    torch.testing.assert_close(alone.states[0], batch.states[0, : slots[0]], rtol=0, atol=1e-12)


def test_the_reduction_is_that_of_the_settings():
    for stride in STRIDES:
        transformer = FramesSettings(kind="frames", stride=stride, layers=2, heads=2, feedforward_size=8)
        assert make("transformer", stride).reduction == transformer.reduction == stride
        for pyramid in (False, True):
            recurrent = RecurrentFramesSettings(
                kind="recurrent_frames", stride=stride, layers=3, width=D, pyramid=pyramid
            )
            kind = "pyramid" if pyramid else "recurrent"
            assert make(kind, stride, layers=3).reduction == recurrent.reduction == stride * (4 if pyramid else 1)


# Frames that a vector sees beyond its own, on each side: a layer that shrinks adds the width of one of its inputs.
@pytest.mark.parametrize(("stride", "reach"), [(1, 1), (2, 1), (3, 1), (4, 1 + 2), (8, 1 + 2 + 4), (6, 1 + 2)])
def test_a_vector_sees_its_frames_and_some_on_each_side(stride, reach):
    torch.manual_seed(0)
    stem = FrameStem(BANDS, D, stride).double()
    stem.norms = nn.ModuleList(nn.Identity() for _ in stem.norms)
    for weight in stem.parameters():  # positive, so that the activation function cuts nothing off
        weight.data.abs_()
    frames = torch.rand(1, 10 * stride, BANDS, dtype=torch.double, requires_grad=True)
    x, _ = stem(frames, torch.ones(1, 10 * stride, dtype=torch.bool))
    for slot in (0, 4, 9):
        (gradient,) = torch.autograd.grad(x[0, slot].sum(), frames, retain_graph=True)
        seen = gradient[0].abs().sum(1).nonzero().squeeze(1).tolist()
        assert seen[0] == max(0, slot * stride - reach)
        assert seen[-1] == min(10 * stride - 1, (slot + 1) * stride - 1 + reach)


def test_pairs_are_joined_in_order():
    states = torch.arange(10.0).view(1, 5, 2)
    assert join_pairs(states).tolist() == [[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 0]]]


def test_a_pyramid_is_its_layers_over_pairs():
    """h^l reads [h_{2s}; h_{2s+1}] of the layer below, as in Listen, Attend and Spell."""
    encoder = make("pyramid", stride=1, layers=2)
    memory = read(encoder, [8])
    x = torch.rand(1, 100, BANDS, dtype=torch.double, generator=torch.Generator().manual_seed(2))[:, :8]
    below, above = encoder.encoder.layers
    ones = torch.ones(1, 8, dtype=torch.bool)
    states = below(encoder.stem(x, ones)[0], ones).states
    expected = above(states.reshape(1, 4, 2 * D), ones[:, :4]).states
    assert torch.equal(memory.states, expected)


@pytest.mark.parametrize("kind", ["transformer", "pyramid"])
def test_gradients_are_those_of_finite_differences(kind):
    encoder = make(kind, layers=2).train()
    frames = torch.rand(2, 5, BANDS, dtype=torch.double, requires_grad=True)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    parameters = tuple(encoder.parameters())
    assert torch.autograd.gradcheck(
        lambda frames, *_: encoder(frames, mask).states, (frames, *parameters), fast_mode=True
    )

"""The encoder of pictures: its layout, its receptive field and its gradients."""

import pytest
import torch
from torch import nn

from heedful.inputs.pictures import from_patches, to_patches
from heedful.nn.contract import Look
from heedful.nn.encoders import Patches
from heedful.nn.encoders.patches import STEMS, ConvolutionStem, LinearStem, PatchEmbed, PatchGrid
from heedful.nn.layers import TransformerLayerOptions, initialize

D = 6


def make(grid, *, stem="convolution", layers=0, pool=False):
    torch.manual_seed(1)
    options = TransformerLayerOptions(heads=2, feedforward_size=8)
    encoder = Patches(PatchEmbed(grid, D, stem=stem), layers=layers, pool=pool, options=options)
    initialize(encoder)
    return encoder.double().eval()


def read(encoder, pixels, look=None):
    return encoder(pixels, torch.ones(pixels.shape[:2], dtype=torch.bool), look=look)


@pytest.mark.parametrize("grid", [PatchGrid(2, 3, 4), PatchGrid(3, 1, 5), PatchGrid(1, 1, 1)])
def test_patches_are_those_that_are_stored(grid):
    picture = torch.randint(256, (grid.rows * grid.patch, grid.columns * grid.patch, 3), dtype=torch.uint8).numpy()
    row = to_patches(picture, grid.patch)
    assert row.shape == (grid.slots, grid.features)
    assert (from_patches(row, *picture.shape[:2], grid.patch) == picture).all()
    assembled = grid.assemble(torch.from_numpy(row).unsqueeze(0))[0]
    assert (assembled.numpy() == picture.transpose(2, 0, 1)).all()


# Pixels that a vector sees beyond its patch, on each side. A layer that shrinks by f adds the width of one of its input
# pixels, and the last layer, with a kernel of 3, adds the width of a patch: for 12 = 2 x 2 x 3, 1 + 2 + 4 + 12.
REACH = {1: 1, 2: 1 + 2, 3: 1 + 3, 4: 1 + 2 + 4, 8: 1 + 2 + 4 + 8, 12: 1 + 2 + 4 + 12}


@pytest.mark.parametrize(("patch", "reach"), REACH.items())
def test_a_vector_sees_its_patch_and_the_same_number_of_pixels_on_each_side(patch, reach):
    grid = PatchGrid(5, 7, patch)
    torch.manual_seed(0)
    stem = ConvolutionStem(grid, 5).double()
    stem.norms = nn.ModuleList(nn.Identity() for _ in stem.norms)
    for weight in stem.parameters():  # positive, so that the activation function cuts nothing off
        weight.data.abs_()
    pixels = torch.rand(1, grid.slots, grid.features, dtype=torch.double, requires_grad=True)
    for row, column in ((2, 3), (0, 0), (4, 6)):
        vectors = stem(pixels)[0, row * grid.columns + column]
        (gradient,) = torch.autograd.grad(vectors.sum(), pixels)
        seen = grid.assemble(gradient)[0].abs().sum(0).nonzero()
        (top, left), (bottom, right) = seen.amin(0).tolist(), seen.amax(0).tolist()
        assert (top, left) == (max(0, row * patch - reach), max(0, column * patch - reach))
        assert bottom == min(grid.rows * patch - 1, (row + 1) * patch - 1 + reach)
        assert right == min(grid.columns * patch - 1, (column + 1) * patch - 1 + reach)


def test_a_linear_stem_sees_one_patch_and_is_a_product():
    grid = PatchGrid(2, 2, 3)
    stem = LinearStem(grid, 5).double()
    patches = torch.rand(2, 4, 27, dtype=torch.double)
    assert torch.equal(stem(patches), patches @ stem.project.weight.T + stem.project.bias)


@pytest.mark.parametrize("stem", STEMS)
def test_a_white_picture_is_its_positions(stem):
    grid = PatchGrid(2, 3, 4)
    encoder = make(grid, stem=stem)
    embed = encoder.encoder.embed
    for bias in (parameter for name, parameter in embed.stem.named_parameters() if name.endswith("bias")):
        nn.init.zeros_(bias)
    white = torch.ones(1, grid.slots, grid.features, dtype=torch.double)
    assert torch.equal(embed(white)[0], embed.positions.table)
    assert torch.allclose(read(encoder, white).states[0], nn.LayerNorm(D).double()(embed.positions.table))


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("layers", [0, 2])
def test_pooling_is_the_mean(stem, layers):
    grid = PatchGrid(2, 3, 2)
    whole, pooled = (make(grid, stem=stem, layers=layers, pool=pool) for pool in (False, True))
    pixels = torch.rand(3, 6, 12, dtype=torch.double)
    summary = read(pooled, pixels)
    assert summary.mask.tolist() == [[True]] * 3
    torch.testing.assert_close(summary.states[:, 0], read(whole, pixels).states.mean(1))


def test_without_layers_there_are_no_maps_and_with_layers_one_for_each():
    pixels = torch.rand(1, 6, 12, dtype=torch.double)
    for layers in (0, 2):
        memory = read(make(PatchGrid(2, 3, 2), layers=layers), pixels, Look())
        assert memory.maps is not None
        assert [layer.weights.shape for layer in memory.maps.encoder] == [(1, 2, 6, 6)] * layers
    with pytest.raises(ValueError, match="cannot silence head 0 of encoder layer 0"):
        read(make(PatchGrid(2, 3, 2)), pixels, Look(silence=frozenset({("encoder", 0, 0)})))


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("pool", [False, True])
def test_gradients_are_those_of_finite_differences(stem, pool):
    grid = PatchGrid(2, 2, 2)
    encoder = make(grid, stem=stem, layers=1, pool=pool).train()
    pixels = torch.rand(1, 4, 12, dtype=torch.double, requires_grad=True)
    parameters = tuple(encoder.parameters())
    assert torch.autograd.gradcheck(lambda pixels, *_: read(encoder, pixels).states, (pixels, *parameters))

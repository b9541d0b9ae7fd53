import pytest
import torch
from torch import nn

from heedful import config
from heedful.build import build_decoder, build_encoder
from heedful.nn.dropout import Dropout
from heedful.nn.layers import Embed, FeedForward, Residual, output_layer
from heedful.performance.dropout_masks import draw_mask


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_it_drops_a_share_p_and_keeps_the_expectation(p, dtype):
    torch.manual_seed(0)
    x = torch.ones(1000, 333, dtype=dtype)
    y = Dropout(p)(x)
    share = float((y == 0).double().mean())
    assert abs(share - p) < 1 / 256 + 0.003
    assert abs(float(y.double().mean()) - 1) < 0.01
    assert y.dtype == dtype


def test_the_gradient_passes_where_the_value_passed():
    torch.manual_seed(0)
    x = torch.randn(50, 7, requires_grad=True)
    y = Dropout(0.4)(x)
    y.sum().backward()
    assert torch.equal(y == 0, x.grad == 0)
    torch.testing.assert_close(x.grad * x, y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_added_in_one_pass_it_is_the_same(dtype):
    residual = torch.randn(9, 5, requires_grad=True)
    x = torch.randn(9, 5).to(dtype).requires_grad_()
    drop = Dropout(0.3)
    torch.manual_seed(4)
    one = residual + drop(x)
    torch.manual_seed(4)
    other = drop.add(residual, x)
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6 if dtype is torch.float32 else 0.03)
    weights = torch.randn(9, 5)
    for a, b in zip(
        torch.autograd.grad((one * weights).sum(), (residual, x)),
        torch.autograd.grad((other * weights).sum(), (residual, x)),
        strict=True,
    ):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=0.01, atol=1e-6)


def test_torch_s_seed_governs_it():
    x = torch.ones(100)
    torch.manual_seed(1)
    one, two = Dropout(0.5)(x), Dropout(0.5)(x)
    torch.manual_seed(1)
    assert torch.equal(Dropout(0.5)(x), one)
    assert not torch.equal(one, two)


def test_it_does_nothing_in_evaluation_or_at_zero():
    x = torch.randn(5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
    assert torch.equal(Dropout(0.0).add(x, x), 2 * x)


def test_on_another_device_torch_s_own_kernel_does_it():
    x = torch.ones(4, device="meta")
    assert Dropout(0.5)(x).device.type == "meta"
    assert Dropout(0.5).add(x, x).device.type == "meta"


@pytest.mark.parametrize("p", [0.0001, 0.9999])
def test_an_extreme_share_is_never_rounded_to_all_or_nothing(p):
    mask, scale = draw_mask(torch.Size((100_000,)), p)
    assert 0 < int(mask.sum()) < 100_000
    assert 1 < scale <= 256


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_misuse_is_explained(p):
    with pytest.raises(ValueError, match=rf"in \[0, 1\), got {p}"):
        Dropout(p)


def test_every_brick_drops_in_training_only():
    torch.manual_seed(0)
    tokens, x = torch.arange(6).view(2, 3), torch.randn(2, 3, 8)
    embed = Embed(nn.Embedding(6, 8), dropout=0.5)
    inner = FeedForward(8, 16, dropout=0.5)
    around = Residual(8, dropout=0.5)
    for call in (lambda: embed(tokens), lambda: inner(x), lambda: around.add_and_norm(x, x)):
        assert not torch.equal(call(), call())
    embed.eval(), inner.eval(), around.eval()
    for call in (lambda: embed(tokens), lambda: inner(x), lambda: around.add_and_norm(x, x)):
        assert torch.equal(call(), call())
    assert repr(Dropout(0.25)) == "Dropout(p=0.25)"


@pytest.mark.parametrize("inner", [None, 0.0, 0.5])
def test_the_feed_forward_part_has_its_own_dropout_or_that_of_its_layer(inner):
    chosen = config.TransformerSettings(
        kind="transformer", layers=1, heads=2, feedforward_size=16, dropout=0.3, feedforward_dropout=inner
    )
    embed = Embed(nn.Embedding(6, 8))
    encoder = build_encoder(chosen, embed)
    decoder = build_decoder(chosen, embed, output_layer(8, 6), 8)
    for layer in (encoder.layers[0], decoder.layers[0]):
        assert layer.feed_forward.dropout.p == (0.3 if inner is None else inner)
        assert layer.around_feed_forward.dropout.p == layer.around_attention.dropout.p == 0.3

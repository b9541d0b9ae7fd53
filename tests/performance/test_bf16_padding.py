"""Products of few sizes say what products of all sizes say."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heedful.performance.bf16_padding import MIN_ROWS, MIN_UNSTACKED, NUM_STACKS, SIZES_PER_OCTAVE, padded_rows
from heedful.training.machine import autocast

CPU = torch.device("cpu")


@given(st.integers(SIZES_PER_OCTAVE, 10**7))
def test_there_is_room_and_little_is_wasted(rows: int) -> None:
    size = padded_rows(rows)
    assert rows <= size <= rows * (1 + 1 / SIZES_PER_OCTAVE)
    assert padded_rows(size) == size


def test_there_are_few_sizes() -> None:
    assert len({padded_rows(rows) for rows in range(2**12, 2**13)}) <= SIZES_PER_OCTAVE + 1


@pytest.mark.parametrize("width", [40, MIN_UNSTACKED // 24 + 1])  # the second is not summed in stacks
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(MIN_ROWS + 7, 24), (31, 67, 24), (3, 5, 24)])  # the last is too small to be filled
def test_it_is_the_product_of_autocast(shape: tuple[int, ...], dtype: torch.dtype, bias: bool, width: int) -> None:
    torch.manual_seed(1)
    layer = nn.Linear(24, width, bias=bias)
    x = torch.randn(shape).to(dtype)
    weights = torch.randn(*shape[:-1], width)

    def told(context: object) -> list[torch.Tensor]:
        layer.zero_grad()
        mine = x.clone().requires_grad_()
        with context:  # type: ignore[attr-defined]
            y = layer(mine)
        (y.float() * weights).sum().backward()
        assert mine.grad is not None
        return [y.detach(), mine.grad, *(part.grad for part in layer.parameters() if part.grad is not None)]

    ours, theirs = told(autocast(CPU, "bf16")), told(torch.autocast("cpu", torch.bfloat16))
    assert len(ours) == len(theirs) == 3 + bias
    for mine, its in zip(ours, theirs, strict=True):
        assert mine.dtype == its.dtype
        assert mine.shape == its.shape
        torch.testing.assert_close(mine, its, rtol=2e-2, atol=2e-2 * float(its.abs().max()))


def test_only_large_products_are_filled() -> None:
    layer = nn.Linear(24, 8)
    with autocast(CPU, "bf16"):
        names = [layer(torch.randn(rows, 24)).grad_fn.name() for rows in (MIN_ROWS, MIN_ROWS - 1)]
    assert [name == "_PaddedProductBackward" for name in names] == [True, False]


def test_rows_can_be_stacked() -> None:
    assert padded_rows(MIN_ROWS) % NUM_STACKS == 0
    assert MIN_ROWS // SIZES_PER_OCTAVE % NUM_STACKS == 0  # and so every larger size can


def test_a_slice_of_a_larger_tensor_is_read_as_it_lies() -> None:
    layer, x = nn.Linear(16, 8), torch.randn(64, 2, 32, 16).transpose(1, 2)
    with autocast(CPU, "bf16"):
        y = layer(x)
    torch.testing.assert_close(y.float(), layer(x), rtol=3e-2, atol=3e-2)


def test_a_frozen_weight_gets_no_gradient() -> None:
    layer, x = nn.Linear(16, 8), torch.randn(MIN_ROWS, 16)
    layer.weight.requires_grad_(False)
    with autocast(CPU, "bf16"):
        layer(x).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is not None

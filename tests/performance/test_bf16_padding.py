"""Products of few sizes say what products of all sizes say."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heedful.performance.bf16_padding import LEAST, PARTS, SMALL, STACKS, even
from heedful.training.machine import casting

CPU = torch.device("cpu")


@given(st.integers(PARTS, 10**7))
def test_there_is_room_and_little_is_wasted(rows: int) -> None:
    size = even(rows)
    assert rows <= size <= rows * (1 + 1 / PARTS)
    assert even(size) == size


def test_there_are_few_sizes() -> None:
    assert len({even(rows) for rows in range(2**12, 2**13)}) <= PARTS + 1


@pytest.mark.parametrize("width", [40, SMALL // 24 + 1])  # the second is not summed in stacks
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(LEAST + 7, 24), (31, 67, 24), (3, 5, 24)])  # the last is too small to be filled
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

    ours, theirs = told(casting(CPU, "bf16")), told(torch.autocast("cpu", torch.bfloat16))
    assert len(ours) == len(theirs) == 3 + bias
    for mine, its in zip(ours, theirs, strict=True):
        assert mine.dtype == its.dtype
        assert mine.shape == its.shape
        torch.testing.assert_close(mine, its, rtol=2e-2, atol=2e-2 * float(its.abs().max()))


def test_only_large_products_are_filled() -> None:
    layer = nn.Linear(24, 8)
    with casting(CPU, "bf16"):
        names = [layer(torch.randn(rows, 24)).grad_fn.name() for rows in (LEAST, LEAST - 1)]
    assert [name == "_LinearBackward" for name in names] == [True, False]


def test_rows_can_be_stacked() -> None:
    assert even(LEAST) % STACKS == 0
    assert LEAST // PARTS % STACKS == 0  # and so every larger size can


def test_a_slice_of_a_larger_tensor_is_read_as_it_lies() -> None:
    layer, x = nn.Linear(16, 8), torch.randn(64, 2, 32, 16).transpose(1, 2)
    with casting(CPU, "bf16"):
        y = layer(x)
    torch.testing.assert_close(y.float(), layer(x), rtol=3e-2, atol=3e-2)


def test_a_frozen_weight_gets_no_gradient() -> None:
    layer, x = nn.Linear(16, 8), torch.randn(LEAST, 16)
    layer.weight.requires_grad_(False)
    with casting(CPU, "bf16"):
        layer(x).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is not None

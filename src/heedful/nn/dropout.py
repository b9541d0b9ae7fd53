"""Dropout at the price of a multiplication.

y = x * m / (1 - p),  m_i ~ Bernoulli(1 - p)

PyTorch draws CPU masks one Bernoulli at a time, which was a third of a training step. Here one byte decides one
element: SFC64 fills the bytes, seeded from torch's own generator, so `torch.manual_seed` and a saved generator state
govern it like any other randomness. p is therefore rounded to a multiple of 1/256 (and never to 0 or 1 unless it is);
the scale uses the rounded value, so the expectation is exact. Other devices use PyTorch's kernel.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """y = x * m / (1 - p) in training, y = x otherwise"""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"dropout must be in [0, 1), got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Any shape -> the same shape"""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        return _Drop.apply(x, self.p)  # type: ignore[no-any-return, no-untyped-call]

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual + dropout(x), in one pass where the device allows"""
        if not self.training or self.p == 0.0:
            return residual + x
        if x.device.type != "cpu":
            return residual + F.dropout(x, self.p)
        return _DropAdd.apply(residual, x, self.p)  # type: ignore[no-any-return, no-untyped-call]

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"p={self.p}"

    if TYPE_CHECKING:
        __call__ = forward


def kept(shape: torch.Size, p: float) -> tuple[Tensor, float]:
    """A mask of 0 and 1 (uint8) with P(1) = 1 - p, and the scale 1 / P(1)."""
    threshold = min(max(round((1.0 - p) * 256), 1), 255)
    size = shape.numel()
    seed = int(torch.randint(2**63 - 1, ()))
    words = np.random.Generator(np.random.SFC64(seed)).integers(0, 2**64, size=(size + 7) // 8, dtype=np.uint64)
    mask = np.less(words.view(np.uint8)[:size], threshold).view(np.uint8)
    return torch.from_numpy(mask).view(shape), 256 / threshold


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        mask, ctx.scale = kept(x.shape, p)
        ctx.save_for_backward(mask)
        return (x * mask.to(x.dtype)).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        (mask,) = ctx.saved_tensors
        return (gradient * mask.to(gradient.dtype)).mul_(ctx.scale), None


class _DropAdd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, residual: Tensor, x: Tensor, p: float) -> Tensor:
        mask, ctx.scale = kept(x.shape, p)
        ctx.save_for_backward(mask)
        ctx.dtype = x.dtype
        return torch.addcmul(residual, x.to(residual.dtype), mask.to(residual.dtype), value=ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient,) = gradients
        (mask,) = ctx.saved_tensors
        return gradient, (gradient * mask.to(gradient.dtype)).mul_(ctx.scale).to(ctx.dtype), None

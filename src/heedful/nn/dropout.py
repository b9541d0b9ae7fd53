"""Dropout.

    y = x * m / (1 - p),  m_i ~ Bernoulli(1 - p)

On a CPU the masks come from `heedful.performance.dropout_masks`.
"""

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

from heedful import performance
from heedful.performance import dropout_masks


class Dropout(nn.Module):
    """y = x * m / (1 - p) in training, y = x otherwise"""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"dropout must be in [0, 1), got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu" or not performance.enabled():
            return F.dropout(x, self.p)
        return dropout_masks.dropout(x, self.p)

    def add(self, residual: Tensor, x: Tensor) -> Tensor:
        """residual + dropout(x), in one pass on a CPU"""
        if not self.training or self.p == 0.0:
            return residual + x
        if x.device.type != "cpu" or not performance.enabled():
            return residual + F.dropout(x, self.p)
        return dropout_masks.add_dropout(residual, x, self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"

    if TYPE_CHECKING:
        __call__ = forward

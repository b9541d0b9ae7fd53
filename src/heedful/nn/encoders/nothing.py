"""The encoder of a language model, which has no source."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from heedful.nn.contract import Look, Maps, Memory


class Nothing(nn.Module):
    """A Memory without slots: a decoder built for its width, 0, has no cross-attention, and models p(y_t | y_<t)."""

    width = 0
    states: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("states", torch.empty(1, 0, 0), persistent=False)  # its type follows the model's

    def forward(self, tokens: Tensor, mask: Tensor, *, look: Look | None = None) -> Memory:
        """[B, 0], [B, 0] -> Memory of B rows"""
        if look is not None:
            look.check_layers("encoder", 0)
        if tokens.size(1):
            raise ValueError(f"a language model has no source, but this one has {tokens.size(1)} tokens")
        maps = Maps() if look is not None and look.record else None
        return Memory(self.states.expand(tokens.size(0), 0, 0), mask, maps)

    if TYPE_CHECKING:
        __call__ = forward

"""Recurrent encoders: one annotation vector per token."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from heedful.nn.cells import make_rnn
from heedful.nn.contract import Look, Maps, Memory
from heedful.nn.dropout import Dropout
from heedful.nn.encoders.transformer import SourceEmbed


class RecurrentEncoder(nn.Module):
    """h_t = dropout([forward RNN(x_t, h_{t-1}); backward RNN(x_t, h_{t+1})]), stacked

    `width` is the width of h_t; two directions have half of it each. The backward direction starts at the last real
    token of each row, so it reads no padding and needs no packed sequences.
    """

    def __init__(
        self,
        embed: SourceEmbed,
        width: int,
        *,
        cell: str = "lstm",
        reset: str = "after",
        layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.directions = 2 if bidirectional else 1
        if width % self.directions:
            raise ValueError(f"width {width} must be even, because each direction has half of it")
        self.embed = embed
        self.width = width
        input_widths = [embed.width] + [width] * (layers - 1)
        self.ahead = nn.ModuleList(make_rnn(cell, reset, size, width // self.directions) for size in input_widths)
        self.back = nn.ModuleList(make_rnn(cell, reset, size, width // 2) for size in input_widths if bidirectional)
        self.dropout = Dropout(dropout)

    def forward(self, source: Tensor, mask: Tensor, *, look: Look | None = None) -> Memory:
        """The source [B, S, ..], [B, S] -> Memory; there is no attention inside, so there are no maps."""
        if look is not None:
            look.check_layers("encoder", 0)
        states = self.embed(source)
        backward_order = reversal_order(mask) if self.back else None
        for layer, ahead in enumerate(self.ahead):
            parts = [ahead(states)[0]]
            if backward_order is not None:
                backward = self.back[layer](reorder_slots(states, backward_order))[0]
                parts.append(reorder_slots(backward, backward_order))
            states = self.dropout(torch.cat(parts, -1))
        states = states.masked_fill(~mask.unsqueeze(-1), 0.0)
        return Memory(states, mask, Maps() if look is not None and look.record else None)

    if TYPE_CHECKING:
        __call__ = forward


def reversal_order(mask: Tensor) -> Tensor:
    """The slot order [B, S] that reverses the real part of each row and keeps the padding after it; its own inverse."""
    slot = torch.arange(mask.size(1), device=mask.device).expand_as(mask)
    mirror = mask.sum(1, keepdim=True) - 1 - slot
    return torch.where(mask, mirror, slot)


def reorder_slots(states: Tensor, slots: Tensor) -> Tensor:
    """states[b, slots[b, s]] for every row and slot: [B, S, D], [B, S] -> [B, S, D]"""
    return states.gather(1, slots.unsqueeze(-1).expand_as(states))

"""The encoder of the 2014 sequence-to-sequence models without attention: the source becomes one vector."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from heedful.nn.contract import Look, Memory
from heedful.nn.encoders.rnn import RecurrentEncoder


class Bottleneck(nn.Module):
    """c = [last forward state; first backward state]: a Memory with S = 1

    Attention over one slot always returns c, so a decoder with attention sees c at every step (Cho et al. 2014); one
    without attention sees it only in its first state (Sutskever et al. 2014).
    """

    def __init__(self, encoder: RecurrentEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.width = encoder.width

    def forward(self, *source: Tensor, look: Look | None = None) -> Memory:
        """-> Memory of one slot, always real"""
        memory = self.encoder(*source, look=look)
        summary = memory.last()
        if self.encoder.directions == 2:
            half = self.width // 2
            summary = torch.cat((summary[:, :half], memory.states[:, 0, half:]), -1)
        return Memory(summary.unsqueeze(1), torch.ones_like(memory.mask[:, :1]), memory.maps)

    if TYPE_CHECKING:
        __call__ = forward

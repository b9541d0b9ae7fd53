"""Encoders of recordings: one annotation vector for every few frames of a spectrogram."""

from math import prod
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.nn.contract import Encoder, Look, Memory
from heedful.nn.dropout import Dropout
from heedful.nn.encoders.patches import prime_factors
from heedful.nn.encoders.rnn import RecurrentEncoder
from heedful.nn.positions import Positions


class FrameStem(nn.Module):
    """Convolutions over time, which shrink `stride` frames to one vector.

    One layer per prime factor f of the stride, with stride f and a kernel of f + 2: each output sees f vectors and one
    on each side. Padding stays zero, so a row of S slots gives the same ceil(S / f) vectors in every batch.
    """

    def __init__(self, features: int, width: int, stride: int) -> None:
        super().__init__()
        self.factors = tuple(prime_factors(stride)) or (1,)
        widths = [features, *[width] * len(self.factors)]
        self.shrink = nn.ModuleList(
            nn.Conv1d(narrow, wide, factor + 2, stride=factor)
            for narrow, wide, factor in zip(widths, widths[1:], self.factors, strict=False)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in self.factors)

    def forward(self, frames: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, F], [B, S] -> [B, ceil(S / stride), D] and its mask"""
        x = frames.masked_fill(~mask.unsqueeze(-1), 0.0)
        for factor, shrink, norm in zip(self.factors, self.shrink, self.norms, strict=True):
            x = shrink(F.pad(x.transpose(1, 2), (1, factor))).transpose(1, 2)
            mask = mask[:, ::factor]
            x = F.relu(norm(x)).masked_fill(~mask.unsqueeze(-1), 0.0)
        return x, mask

    if TYPE_CHECKING:
        __call__ = forward


class FrameEmbed(nn.Module):
    """x = dropout(x [+ P[slot]])"""

    def __init__(self, width: int, positions: Positions | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.width = width
        self.positions = positions
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[B, S, D] -> [B, S, D]"""
        return self.dropout(x if self.positions is None else x + self.positions(x.size(1)))

    if TYPE_CHECKING:
        __call__ = forward


class Frames(nn.Module):
    """A spectrogram -> fewer vectors -> an encoder of vectors. `reduction` is the number of frames per slot."""

    def __init__(self, stem: FrameStem, encoder: "Encoder | Pyramid") -> None:
        super().__init__()
        self.stem = stem
        self.encoder = encoder
        self.width = encoder.width
        self.reduction = prod(stem.factors) * getattr(encoder, "reduction", 1)

    def forward(self, frames: Tensor, mask: Tensor, *, look: Look | None = None) -> Memory:
        """[B, S, F], [B, S] -> Memory of ceil(S / reduction) slots"""
        x, mask = self.stem(frames, mask)
        return self.encoder(x, mask, look=look)

    if TYPE_CHECKING:
        __call__ = forward


class Pyramid(nn.Module):
    """h^l = RNN([h^{l-1}_{2s}; h^{l-1}_{2s+1}]), so each layer halves the slots (Chan et al. 2016)"""

    def __init__(self, embed: FrameEmbed, width: int, *, layers: int, **options: Any) -> None:
        super().__init__()
        embeds = [embed, *(FrameEmbed(2 * width) for _ in range(layers - 1))]
        self.layers = nn.ModuleList(RecurrentEncoder(each, width, **options) for each in embeds)
        self.width = width
        self.reduction = 2 ** (layers - 1)

    def forward(self, x: Tensor, mask: Tensor, *, look: Look | None = None) -> Memory:
        """[B, S, D], [B, S] -> Memory of ceil(S / 2^(layers - 1)) slots"""
        first, *others = self.layers
        memory: Memory = first(x, mask, look=look)
        for layer in others:
            memory = layer(join_pairs(memory.states), memory.mask[:, ::2], look=look)
        return memory

    if TYPE_CHECKING:
        __call__ = forward


def join_pairs(states: Tensor) -> Tensor:
    """[B, S, D] -> [B, ceil(S / 2), 2 D]; an odd last slot is joined with zeros"""
    return torch.cat((states[:, ::2], F.pad(states, (0, 0, 0, 1))[:, 1::2]), -1)

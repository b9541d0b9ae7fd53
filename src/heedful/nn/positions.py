"""Positions: a table [max_positions, D] whose row p is added to the embedding of the token at position p."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn


def position_angles(length: int, width: int, device: torch.device | None = None) -> Tensor:
    """p / 10000^(2i / D) for position p and pair i, [length, D / 2], in double precision."""
    position = torch.arange(length, dtype=torch.float64, device=device)
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64, device=device) * (-math.log(10000.0) / width))
    return torch.outer(position, rate)


def interleaved_sinusoids(length: int, width: int, device: torch.device | None = None) -> Tensor:
    """P[p, 2i] = sin(p / 10000^(2i/D)),  P[p, 2i+1] = cos(p / 10000^(2i/D))            (Vaswani et al. 2017)"""
    angle = position_angles(length, width, device)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)


def sinusoids_in_halves(length: int, width: int, device: torch.device | None = None) -> Tensor:
    """The same columns with all sines first, then all cosines, as in Marian and tensor2tensor."""
    angle = position_angles(length, width, device)
    return torch.cat((angle.sin(), angle.cos()), -1)


class Positions(nn.Module):
    """A table of `max_positions` rows; `forward(length, offset)` returns rows offset .. offset + length - 1."""

    table: Tensor

    def __init__(self, max_positions: int, width: int) -> None:
        super().__init__()
        self.max_positions = max_positions
        self.width = width

    def forward(self, length: int, offset: int = 0) -> Tensor:
        """-> [length, D]"""
        if offset + length > self.max_positions:
            raise ValueError(
                f"position {offset + length} is past the table of {self.max_positions} positions: "
                f"shorten the sequence, or build the model with max_positions >= {offset + length}"
            )
        return self.table[offset : offset + length]

    if TYPE_CHECKING:
        __call__ = forward


class Sinusoidal(Positions):
    """Sines and cosines, interleaved. The table is computed, so it is not saved with the weights."""

    formula = staticmethod(interleaved_sinusoids)

    def __init__(self, max_positions: int, width: int) -> None:
        super().__init__(max_positions, width)
        if width % 2:
            raise ValueError(f"sinusoidal positions need an even width, got {width}")
        self.register_buffer("table", torch.empty(max_positions, width), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill the table; needed again after `to_empty()` has moved a model off the meta device."""
        self.table.copy_(self.formula(self.max_positions, self.width, self.table.device))


class SinusoidalHalves(Sinusoidal):
    """Sines first, cosines after, as in Marian."""

    formula = staticmethod(sinusoids_in_halves)


class Learned(Positions):
    """A table that is trained like an embedding."""

    def __init__(self, max_positions: int, width: int) -> None:
        super().__init__(max_positions, width)
        self.table = nn.Parameter(torch.empty(max_positions, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """P ~ N(0, 1 / D)"""
        nn.init.normal_(self.table, std=self.width**-0.5)


class Fixed(Positions):
    """A table that is saved with the weights but not trained, for imported models."""

    def __init__(self, max_positions: int, width: int, table: Tensor | None = None) -> None:
        super().__init__(max_positions, width)
        if table is not None and table.shape != (max_positions, width):
            raise ValueError(f"the table has shape {tuple(table.shape)}, expected {(max_positions, width)}")
        self.register_buffer("table", torch.zeros(max_positions, width) if table is None else table.clone())


POSITIONS: dict[str, type[Positions]] = {
    "sinusoidal": Sinusoidal,
    "sinusoidal_halves": SinusoidalHalves,
    "learned": Learned,
    "fixed": Fixed,
}

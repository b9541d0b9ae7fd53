"""Where a token stands: a table [slots, D] whose row p is added to the embedding of the token at position p."""

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn


def angles(length: int, width: int, device: torch.device | None = None) -> Tensor:
    """p / 10000^(2i / D) for position p and pair i, [length, D / 2], in double precision."""
    position = torch.arange(length, dtype=torch.float64, device=device)
    rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64, device=device) * (-math.log(10000.0) / width))
    return torch.outer(position, rate)


def interleaved(length: int, width: int, device: torch.device | None = None) -> Tensor:
    """P[p, 2i] = sin(p / 10000^(2i/D)),  P[p, 2i+1] = cos(p / 10000^(2i/D))            (Vaswani et al. 2017)"""
    angle = angles(length, width, device)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)


def halves(length: int, width: int, device: torch.device | None = None) -> Tensor:
    """The same columns with all sines first, then all cosines, as Marian and tensor2tensor have them."""
    angle = angles(length, width, device)
    return torch.cat((angle.sin(), angle.cos()), -1)


class Positions(nn.Module):
    """A table of `slots` rows; `forward(length, offset)` gives rows offset .. offset + length - 1."""

    table: Tensor

    def __init__(self, slots: int, width: int) -> None:
        super().__init__()
        self.slots = slots
        self.width = width

    def forward(self, length: int, offset: int = 0) -> Tensor:
        """-> [length, D]"""
        if offset + length > self.slots:
            raise ValueError(
                f"position {offset + length} is past the table of {self.slots} positions: "
                f"shorten the sequence, or build the model with slots >= {offset + length}"
            )
        return self.table[offset : offset + length]

    if TYPE_CHECKING:
        __call__ = forward


class Sinusoidal(Positions):
    """Sines and cosines, interleaved. The table follows from its size, so it is not saved with the weights."""

    formula = staticmethod(interleaved)

    def __init__(self, slots: int, width: int) -> None:
        super().__init__(slots, width)
        if width % 2:
            raise ValueError(f"sinusoidal positions need an even width, got {width}")
        self.register_buffer("table", torch.empty(slots, width), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Fill the table; also after `to_empty()` has moved a model off the meta device."""
        self.table.copy_(self.formula(self.slots, self.width, self.table.device))


class SinusoidalHalves(Sinusoidal):
    """Sines first, cosines after, as in Marian."""

    formula = staticmethod(halves)


class Learned(Positions):
    """A table learned like any other embedding."""

    def __init__(self, slots: int, width: int) -> None:
        super().__init__(slots, width)
        self.table = nn.Parameter(torch.empty(slots, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """P ~ N(0, 1 / D)"""
        nn.init.normal_(self.table, std=self.width**-0.5)


class Given(Positions):
    """A table that comes with the weights (an imported model's own), saved with them and never trained."""

    def __init__(self, slots: int, width: int, table: Tensor | None = None) -> None:
        super().__init__(slots, width)
        if table is not None and table.shape != (slots, width):
            raise ValueError(f"the given table has shape {tuple(table.shape)}, expected {(slots, width)}")
        self.register_buffer("table", torch.zeros(slots, width) if table is None else table.clone())


POSITIONS: dict[str, type[Positions]] = {
    "sinusoidal": Sinusoidal,
    "sinusoidal_halves": SinusoidalHalves,
    "learned": Learned,
    "given": Given,
}

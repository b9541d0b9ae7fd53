"""An encoder of pictures: one annotation vector per patch."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.nn.contract import Look, Memory
from heedful.nn.dropout import Dropout
from heedful.nn.encoders.transformer import TransformerEncoder
from heedful.nn.layers import TransformerLayerOptions
from heedful.nn.positions import Learned

CHANNELS = 3  # red, green, blue


class PatchGrid(NamedTuple):
    """A picture of rows x columns square patches, each `patch` pixels wide."""

    rows: int
    columns: int
    patch: int

    @property
    def slots(self) -> int:
        return self.rows * self.columns

    @property
    def features(self) -> int:
        """The numbers per patch."""
        return self.patch**2 * CHANNELS

    def assemble(self, patches: Tensor) -> Tensor:
        """Patches from left to right, then from top to bottom, [B, S, F] -> picture [B, 3, height, width]"""
        grid: Tensor = patches.unflatten(2, (self.patch, self.patch, CHANNELS)).unflatten(1, (self.rows, self.columns))
        return grid.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)  # from [B, rows, columns, patch, patch, 3]


class LinearStem(nn.Module):
    """x_s = W patch_s + b            (Dosovitskiy et al. 2021)"""

    def __init__(self, grid: PatchGrid, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(grid.features, width)

    def forward(self, patches: Tensor) -> Tensor:
        """[B, S, F] -> [B, S, D]"""
        return self.project(patches)  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        __call__ = forward


class ConvolutionStem(nn.Module):
    """Convolutions over the whole picture, which shrink it until every patch is one vector.

    One layer per prime factor f of the patch size, with stride f and a kernel of f + 2: together they see the patch and
    the same number of pixels on each of its sides. A last layer, with a kernel of 3, sees the neighboring vectors.
    """

    def __init__(self, grid: PatchGrid, width: int) -> None:
        super().__init__()
        self.grid = grid
        factors = list(prime_factors(grid.patch))
        widths = [CHANNELS, *(max(width >> halvings, 1) for halvings in reversed(range(len(factors))))]
        self.shrink = nn.ModuleList(
            nn.Conv2d(narrow, wide, factor + 2, stride=factor, padding=1)
            for narrow, wide, factor in zip(widths, widths[1:], factors, strict=False)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(wide) for wide in widths[1:])
        self.last = nn.Conv2d(widths[-1], width, 3, padding=1)

    def forward(self, patches: Tensor) -> Tensor:
        """[B, S, F] -> [B, S, D]"""
        x = self.grid.assemble(patches)
        for shrink, norm in zip(self.shrink, self.norms, strict=True):
            x = norm(shrink(x).movedim(1, 3)).movedim(3, 1)  # over the channels of each place
            x = F.relu(x)
        return self.last(x).flatten(2).transpose(1, 2)  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        __call__ = forward


STEMS: dict[str, Callable[[PatchGrid, int], nn.Module]] = {"convolution": ConvolutionStem, "linear": LinearStem}


def prime_factors(number: int) -> Iterator[int]:
    """12 -> 2, 2, 3"""
    factor = 2
    while number > 1:
        while number % factor == 0:
            yield factor
            number //= factor
        factor += 1


class PatchEmbed(nn.Module):
    """x = dropout(stem(1 - pixels) + P[slot])

    With pixels from 0 to 1, white becomes 0, so the zeros that convolutions add at the edges are white too.
    """

    def __init__(self, grid: PatchGrid, width: int, *, stem: str = "convolution", dropout: float = 0.0) -> None:
        super().__init__()
        if stem not in STEMS:
            raise ValueError(f"stem {stem!r} is unknown; choose from {', '.join(STEMS)}")
        self.grid = grid
        self.width = width
        self.stem = STEMS[stem](grid, width)
        self.positions = Learned(grid.slots, width)
        self.dropout = Dropout(dropout)

    def forward(self, pixels: Tensor) -> Tensor:
        """[B, S, F] -> [B, S, D]"""
        if pixels.shape[1:] != (self.grid.slots, self.grid.features):
            slots, features = pixels.shape[1:]
            raise ValueError(
                f"this model reads pictures of {self.grid.slots} patches with {self.grid.features} numbers each, "
                f"but the picture has {slots} with {features}: scale it to {self.grid.rows * self.grid.patch} x "
                f"{self.grid.columns * self.grid.patch} pixels (height x width)"
            )
        return self.dropout(self.stem(1 - pixels) + self.positions(self.grid.slots))

    if TYPE_CHECKING:
        __call__ = forward


class Patches(nn.Module):
    """Patches -> vectors -> layers of self-attention. With `pool`, the memory has one slot, the mean of all vectors."""

    def __init__(
        self, embed: PatchEmbed, *, layers: int = 0, pool: bool = False, options: TransformerLayerOptions
    ) -> None:
        super().__init__()
        self.encoder = TransformerEncoder(embed, layers=layers, options=options)
        self.pool = pool
        self.width = embed.width

    def forward(self, pixels: Tensor, mask: Tensor, *, look: Look | None = None) -> Memory:
        """[B, S, F] from 0 to 1, [B, S] -> Memory; a patch that is not real is white"""
        memory = self.encoder(pixels.masked_fill(~mask.unsqueeze(-1), 1.0), mask, look=look)
        if not self.pool:
            return memory
        return Memory(memory.mean().unsqueeze(1), torch.ones_like(mask[:, :1]), memory.maps)

    if TYPE_CHECKING:
        __call__ = forward

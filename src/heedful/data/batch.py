"""Batches: padded tensors of sources and targets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from heedful.errors import require

require("torch", extra="train", whose="heedful.data.batch")

import numpy as np  # noqa: E402
import torch  # noqa: E402  # after `require`, which says how to install it
from torch import Tensor  # noqa: E402

from heedful.inputs.kinds import pad_features  # noqa: E402


@dataclass(frozen=True, slots=True)
class Batch:
    """Source tensors for the encoder, and the target twice: as input and as expected output, shifted by one.

    inputs   <s> y_1 y_2 ..
    targets  y_1 y_2 .. </s>        step t never sees its own output
    """

    source: tuple[Tensor, ...]  # tokens [B, S] or features [B, S, F], and mask [B, S]
    inputs: Tensor  # [B, T]
    targets: Tensor  # [N] expected tokens at the positions that are not padding, row by row
    target_positions: Tensor  # [N] those positions in the flattened [B * T]

    def to(self, device: torch.device | str) -> Self:

        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=True)

        return replace(self, **{part.name: map_tensors(move, getattr(self, part.name)) for part in fields(self)})

    def repeat_rows(self) -> Self:
        """All rows twice; `targets` are not repeated, because they are the same for both."""

        def repeat(tensor: Tensor) -> Tensor:
            return torch.cat((tensor, tensor))

        positions = torch.cat((self.target_positions, self.target_positions + self.inputs.numel()))
        return replace(
            self, source=map_tensors(repeat, self.source), inputs=repeat(self.inputs), target_positions=positions
        )


def map_tensors(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Apply a function to a tensor, or to every tensor of nested tuples."""
    return tuple(map_tensors(function, part) for part in value) if isinstance(value, tuple) else function(value)


def collate(
    pairs: Sequence[tuple[Any, Sequence[int]]], *, bos: int, eos: int, pad: int, end_source: bool = True
) -> Batch:
    """Pad pairs of a source row and a token list into a Batch; `end_source` appends the end token to every source."""
    sources, mask = pad_sources([[*source, eos] if end_source else source for source, _ in pairs], pad)
    inputs, _ = pad_rows([[bos, *target] for _, target in pairs], pad)
    outputs, output_mask = pad_rows([[*target, eos] for _, target in pairs], pad)
    positions = output_mask.flatten().nonzero().squeeze(1)
    return Batch((sources, mask), inputs, outputs.flatten()[positions], positions)


def pad_rows(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Rows of unequal length -> tokens [B, S] padded with `pad`, and the mask of tokens that are not padding."""
    lengths = torch.tensor([len(row) for row in rows])
    width = int(lengths.max()) if rows else 0
    tokens = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows], dtype=torch.long)
    return tokens, torch.arange(width) < lengths.unsqueeze(1)


def pad_sources(rows: Sequence[Any], pad: int) -> tuple[Tensor, Tensor]:
    """Rows of tokens -> tokens [B, S]; rows of features [S, F] -> features [B, S, F], bytes as 0 to 1; and the mask."""
    if not rows or np.ndim(rows[0]) != 2:
        return pad_rows(rows, pad)
    features, mask = pad_features(rows)
    return torch.from_numpy(features), torch.from_numpy(mask)

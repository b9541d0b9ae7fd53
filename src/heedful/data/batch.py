"""A batch: what one training step reads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from heedful.errors import require

require("torch", extra="train", whose="heedful.data.batch")

import torch  # noqa: E402  # after the message that says how to install it
from torch import Tensor  # noqa: E402


@dataclass(frozen=True, slots=True)
class Batch:
    """Source tensors as the encoder takes them, and the target twice: as input and as answer, one step apart.

    inputs   <s> y_1 y_2 ..
    targets  y_1 y_2 .. </s>        so that step t never sees its own answer
    """

    source: tuple[Tensor, ...]  # of text: tokens [B, S] and mask [B, S]
    inputs: Tensor  # [B, T]
    targets: Tensor  # [N] the answers at the real positions, row by row
    real: Tensor  # [N] where those positions are in the flattened [B * T]

    def to(self, device: torch.device | str) -> Self:
        """The same batch on another device."""

        def moved(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=True)

        return replace(self, **{part.name: each(moved, getattr(self, part.name)) for part in fields(self)})

    def twice(self) -> Self:
        """Every row, and once more every row; the targets, which are the same, stay as they are."""

        def doubled(tensor: Tensor) -> Tensor:
            return torch.cat((tensor, tensor))

        real = torch.cat((self.real, self.real + self.inputs.numel()))
        return replace(self, source=each(doubled, self.source), inputs=doubled(self.inputs), real=real)


def each(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """A tensor changed, or every tensor of a tuple, of tuples."""
    return tuple(each(change, part) for part in value) if isinstance(value, tuple) else change(value)


def collate(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], *, bos: int, eos: int, pad: int, end_source: bool = True
) -> Batch:
    """Pad pairs of token lists into a Batch; `end_source` closes every source with the end token."""
    ending = [eos] if end_source else []
    sources, mask = padded([[*source, *ending] for source, _ in pairs], pad)
    inputs, _ = padded([[bos, *target] for _, target in pairs], pad)
    answers, answered = padded([[*target, eos] for _, target in pairs], pad)
    real = answered.flatten().nonzero().squeeze(1)
    return Batch((sources, mask), inputs, answers.flatten()[real], real)


def padded(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Rows of unequal length -> tokens [B, S] filled up with `pad`, and the mask of what is real."""
    lengths = torch.tensor([len(row) for row in rows])
    width = int(lengths.max()) if rows else 0
    tokens = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows], dtype=torch.long)
    return tokens, torch.arange(width) < lengths.unsqueeze(1)

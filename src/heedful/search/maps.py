"""The maps of a hypothesis, put together from the steps of the search that found it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.nn.contract import Map, Maps, Memory


def follow(steps: Sequence[Maps], rows: Sequence[int], memory: Memory, sentence: int) -> Maps:
    """Row rows[i] of step i for every i, as a forced pass over the hypothesis would give them, without the row dim.

    Weights, scores and queries have one entry per step; keys and values are those that the last step saw.
    """
    encoder = () if memory.maps is None else tuple(_row(found, sentence) for found in memory.maps.encoder)
    if not steps:
        return Maps(encoder)
    picked = list(zip(steps, rows, strict=True))
    cross = tuple(
        _joined([_row(step.cross[layer], row) for step, row in picked]) for layer in range(len(steps[0].cross))
    )
    decoder = tuple(
        _joined([_row(step.decoder[layer], row) for step, row in picked]) for layer in range(len(steps[0].decoder))
    )
    return Maps(encoder, cross, decoder)


def _row(found: Map, row: int) -> Map:
    return found.transform(lambda part: part[row])


def _joined(steps: list[Map]) -> Map:
    """Maps [H, T_i, S_i] of growing S_i -> one map [H, sum T_i, S_last]; what was not there yet has weight 0."""
    last = steps[-1]
    return Map(
        _stacked([step.weights for step in steps], 0.0),
        _stacked([step.scores for step in steps], -torch.inf),
        _stacked([step.queries for step in steps], 0.0),
        last.keys,
        last.values,
    )


def _stacked(parts: list[Tensor | None], missing: float) -> Tensor | None:
    real = [part for part in parts if part is not None]
    if not real:
        return None
    width = real[-1].size(-1)
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.size(-1)), value=missing) for part in real], 1)

"""The attention maps of a hypothesis, collected from the steps of the search that found it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.nn.contract import Map, Maps, Memory


def collect_maps(steps: Sequence[Maps], rows: Sequence[int], memory: Memory, sentence: int) -> Maps:
    """The maps of one hypothesis, without the row dim: row rows[i] of every step i, as forced decoding would give them.

    Weights, scores and queries have one entry per step; keys and values are those of the last step.
    """
    encoder = () if memory.maps is None else tuple(_select_row(layer, sentence) for layer in memory.maps.encoder)
    if not steps:
        return Maps(encoder)
    picked = list(zip(steps, rows, strict=True))
    cross = tuple(
        _concatenate_steps([_select_row(step.cross[layer], row) for step, row in picked])
        for layer in range(len(steps[0].cross))
    )
    decoder = tuple(
        _concatenate_steps([_select_row(step.decoder[layer], row) for step, row in picked])
        for layer in range(len(steps[0].decoder))
    )
    return Maps(encoder, cross, decoder)


def _select_row(layer: Map, row: int) -> Map:
    return layer.transform(lambda part: part[row])


def _concatenate_steps(steps: list[Map]) -> Map:
    """Maps [H, T_i, S_i] of growing S_i -> one map [H, sum T_i, S_last]; columns missing in step i have weight 0."""
    last = steps[-1]
    return Map(
        _pad_and_concatenate([step.weights for step in steps], 0.0),
        _pad_and_concatenate([step.scores for step in steps], -torch.inf),
        _pad_and_concatenate([step.queries for step in steps], 0.0),
        last.keys,
        last.values,
    )


def _pad_and_concatenate(parts: list[Tensor | None], missing: float) -> Tensor | None:
    real = [part for part in parts if part is not None]
    if not real:
        return None
    width = real[-1].size(-1)
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.size(-1)), value=missing) for part in real], 1)

"""The largest of many, exactly and fast.

On a CPU a partial sort of 10 thousand numbers per row costs more than a decoder step of a small model. The k largest
numbers lie in the k blocks with the largest maxima, and block maxima are one vectorised pass.
"""

import torch
from torch import Tensor

BLOCK = 64


def best(values: Tensor) -> Tensor:
    """`values.argmax(-1)` of [R, V]; of equal values any."""
    rows, size = values.shape
    blocks = size // BLOCK
    if values.device.type != "cpu" or rows * blocks < 512:
        return values.argmax(-1)
    return top_sums(values.new_zeros(rows, 1), values.unsqueeze(1), 1)[1].squeeze(1)


def top_sums(bases: Tensor, values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest bases[b, r] + values[b, r, v] of each b, and where they are in the flattened [r, v].

    [B, R], [B, R, V] -> [B, k], [B, k]; fewer than k where there are fewer. On a CPU sums are as precise as `bases`.
    """
    groups, rows, size = values.shape
    k = min(k, rows * size)
    blocks = size // BLOCK
    if values.device.type != "cpu" or rows * blocks < 4 * k:
        bases = bases if values.device.type == "cpu" else bases.to(values)  # not every device has doubles
        sums = (bases.unsqueeze(-1) + values).flatten(1)
        found = sums.topk(k, -1)
        return found.values, found.indices
    whole = values[..., : blocks * BLOCK].unflatten(-1, (blocks, BLOCK))  # [B, R, blocks, BLOCK]
    peaks = (whole.amax(-1) + bases.unsqueeze(-1)).flatten(1)  # [B, R * blocks]
    chosen = peaks.topk(k, -1).indices  # [B, k] blocks
    row, block = chosen // blocks, chosen % blocks
    group = torch.arange(groups).unsqueeze(1)
    near = (whole[group, row, block] + bases.gather(1, row).unsqueeze(-1)).flatten(1)  # [B, k * BLOCK]
    at = ((row * size + block * BLOCK).unsqueeze(-1) + torch.arange(BLOCK)).flatten(1)
    if blocks * BLOCK < size:
        rest = (values[..., blocks * BLOCK :] + bases.unsqueeze(-1)).flatten(1)
        place = torch.arange(rows).unsqueeze(1) * size + torch.arange(blocks * BLOCK, size)
        near, at = torch.cat((near, rest), 1), torch.cat((at, place.flatten().expand(groups, -1)), 1)
    found = near.topk(k, -1)
    return found.values, at.gather(1, found.indices)

"""The largest of many, exactly and fast.

On a CPU a partial sort of 10 thousand numbers per row costs more than a decoder step of a small model. The k largest
numbers lie in the k blocks with the largest maxima, and block maxima are one vectorized pass.
"""

from functools import lru_cache

import torch
from torch import Tensor


@lru_cache
def block_size(size: int) -> int:
    """The largest divisor of `size` up to 128: blocks of equal size need no special case. Of a prime, 1."""
    return max(divisor for divisor in range(1, 129) if size % divisor == 0)


def best(values: Tensor) -> Tensor:
    """`values.argmax(-1)` of [R, V]; of equal values any."""
    rows, size = values.shape
    block = block_size(size)
    if values.device.type != "cpu" or block < 16 or rows * size < 2**17:
        return values.argmax(-1)
    whole = values.view(rows, -1, block)
    chosen = whole.amax(-1).argmax(-1)  # [R] blocks
    near = whole.gather(1, chosen.view(-1, 1, 1).expand(-1, -1, block)).squeeze(1)
    return chosen * block + near.argmax(-1)


def top_sums(bases: Tensor, values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest bases[b, r] + values[b, r, v] of each b, and where they are in the flattened [r, v].

    [B, R], [B, R, V] -> [B, k], [B, k]; fewer than k where there are fewer. On a CPU sums are as precise as `bases`.
    """
    groups, rows, size = values.shape
    k = min(k, rows * size)
    block = block_size(size)
    if block < 16 and size > 1000 and values.device.type == "cpu":  # no good divisor: fill up to one, then count back
        wide = -(-size // 64) * 64
        sums, where = top_sums(bases, torch.nn.functional.pad(values, (0, wide - size), value=-torch.inf), k)
        return sums, where // wide * size + where % wide
    blocks = size // block
    if values.device.type != "cpu" or block < 16 or rows * blocks < 4 * k:
        bases = bases if values.device.type == "cpu" else bases.to(values)  # not every device has doubles
        found = (bases.unsqueeze(-1) + values).flatten(1).topk(k, -1)
        return found.values, found.indices
    whole = values.view(groups, -1, block)  # [B, R * blocks, block]
    peaks = (whole.amax(-1).view(groups, rows, blocks) + bases.unsqueeze(-1)).view(groups, -1)
    chosen = peaks.topk(k, -1).indices  # [B, k] blocks
    near = whole.gather(1, chosen.unsqueeze(-1).expand(-1, -1, block))  # [B, k, block]
    sums = near + bases.gather(1, chosen // blocks).unsqueeze(-1)
    found = sums.view(groups, -1).topk(k, -1)
    inside = found.indices
    return found.values, chosen.gather(1, inside // block) * block + inside % block

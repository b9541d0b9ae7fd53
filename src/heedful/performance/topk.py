"""Exact argmax and top-k over a vocabulary, faster than PyTorch's on a CPU.

On a CPU a partial sort of 10 thousand numbers per row costs more than a decoder step of a small model. The k largest
numbers are in the k blocks with the largest maxima, and one vectorized pass computes these maxima.
"""

from functools import lru_cache

import torch
from torch import Tensor

from heedful import performance


@lru_cache
def block_size(vocab_size: int) -> int:
    """The largest divisor of `vocab_size` up to 128, so all blocks have the same size; 1 for a large prime."""
    return max(divisor for divisor in range(1, 129) if vocab_size % divisor == 0)


def argmax(values: Tensor) -> Tensor:
    """`values.argmax(-1)` of [R, V]; ties are broken arbitrarily."""
    rows, size = values.shape
    block = block_size(size)
    if values.device.type != "cpu" or block < 16 or rows * size < 2**17 or not performance.enabled():
        return values.argmax(-1)
    blocks = values.view(rows, -1, block)
    chosen = blocks.amax(-1).argmax(-1)  # [R] blocks
    inside = blocks.gather(1, chosen.view(-1, 1, 1).expand(-1, -1, block)).squeeze(1)
    return chosen * block + inside.argmax(-1)


def top_sums(bases: Tensor, values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest bases[b, r] + values[b, r, v] of each b, and their indices into the flattened [r, v].

    [B, R], [B, R, V] -> [B, k], [B, k], with k = R V if that is smaller. On a CPU sums are as precise as `bases`.
    """
    groups, rows, size = values.shape
    k = min(k, rows * size)
    block = block_size(size) if performance.enabled() else 1
    if (
        block < 16 and size > 1000 and values.device.type == "cpu" and performance.enabled()
    ):  # no good divisor: pad to one, then map indices back
        wide = -(-size // 64) * 64
        sums, where = top_sums(bases, torch.nn.functional.pad(values, (0, wide - size), value=-torch.inf), k)
        return sums, where // wide * size + where % wide
    blocks = size // block
    if values.device.type != "cpu" or block < 16 or rows * blocks < 4 * k:
        bases = bases if values.device.type == "cpu" else bases.to(values)  # not every device has doubles
        top = (bases.unsqueeze(-1) + values).flatten(1).topk(k, -1)
        return top.values, top.indices
    by_block = values.view(groups, -1, block)  # [B, R * blocks, block]
    maxima = (by_block.amax(-1).view(groups, rows, blocks) + bases.unsqueeze(-1)).view(groups, -1)
    chosen = maxima.topk(k, -1).indices  # [B, k] blocks
    inside = by_block.gather(1, chosen.unsqueeze(-1).expand(-1, -1, block))  # [B, k, block]
    sums = inside + bases.gather(1, chosen // blocks).unsqueeze(-1)
    top = sums.view(groups, -1).topk(k, -1)
    return top.values, chosen.gather(1, top.indices // block) * block + top.indices % block

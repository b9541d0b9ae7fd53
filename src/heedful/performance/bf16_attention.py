"""Compute attention in fp32 when the rest of a training step on a CPU uses bf16.

On a CPU, the backward pass of PyTorch's bf16 attention is slow: for 64 sentences of 24 tokens and 4 heads of width 32,
forward and backward take 5 times as long as in fp32 including the conversions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful import performance


def scaled_dot_product_attention(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool
) -> Tensor:
    """PyTorch's function of this name, but in fp32 if a bf16 gradient will be needed on a CPU."""
    if (
        query.dtype is torch.bfloat16
        and query.device.type == "cpu"
        and torch.is_grad_enabled()
        and performance.enabled()
    ):
        with torch.autocast("cpu", enabled=False):
            context = F.scaled_dot_product_attention(
                query.float(), keys.float(), values.float(), attn_mask=mask, is_causal=causal
            )
        return context.to(query.dtype)
    return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, is_causal=causal)

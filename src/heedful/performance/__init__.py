"""Optimizations that a reader would not expect, one module each, with what each gains.

    HEEDFUL_REFERENCE=1 heedful train        # none of them: the plain PyTorch code that they replace

| module | instead of | results |
|---|---|---|
| attribute_cache | look-ups of sub-modules by `nn.Module.__getattr__` during a search | equal to the bit |
| topk | `torch.topk` and `argmax` over a whole vocabulary | equal to the bit, of equal values any |
| allocator | memory that glibc returns to the system and requests again | equal to the bit |
| recurrent_step | the sequence kernel of an RNN for a sequence of one | equal within rounding |
| bf16_attention | bf16 attention in training on a CPU | equal within rounding |
| bf16_padding | a oneDNN kernel for each number of rows | equal within rounding |
| fused_loss | logits of all tokens, and autograd through them | equal within rounding |
| dropout_masks | a Bernoulli draw per element | equal in distribution |

The tests in tests/performance compare the results with and without each of them. The gains in the docstrings were
measured on one thread of a Xeon with AVX-512 and PyTorch 2.13, with both ways in turn in one process. A smaller
one is next to the code that it belongs to: `heedful.nn.attention.mask_if_any`.
"""

import os

from heedful.errors import require

require("torch", extra="train", whose="heedful.performance")


def enabled() -> bool:
    """Whether to use the optimizations: HEEDFUL_REFERENCE is unset, empty or 0. Read on every call, in about 1 µs."""
    return os.environ.get("HEEDFUL_REFERENCE", "") in ("", "0")

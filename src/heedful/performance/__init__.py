"""Optimizations of PyTorch code, one module each; the docstrings state the gains.

    HEEDFUL_REFERENCE=1 heedful train        # disable all of them and run the plain PyTorch code

| module | instead of | results |
|---|---|---|
| attribute_cache | lookups of sub-modules by `nn.Module.__getattr__` during a search | bit-identical |
| topk | `torch.topk` and `argmax` over a whole vocabulary | bit-identical values, ties may differ |
| allocator | memory that glibc returns to the system and requests again | bit-identical |
| recurrent_step | the sequence kernel of an RNN for a sequence of one | equal within rounding |
| bf16_attention | bf16 attention in training on a CPU | equal within rounding |
| bf16_padding | a oneDNN kernel for each number of rows | equal within rounding |
| fused_loss | logits of all tokens, and autograd through them | equal within rounding |
| dropout_masks | a Bernoulli draw per element | equal in distribution |

The tests in tests/performance compare the results with and without each optimization. The gains were measured on one
thread of a Xeon with AVX-512 and PyTorch 2.13, alternating both variants in one process. A smaller optimization is in
the module that uses it: `heedful.nn.attention.mask_if_any`.
"""

import os

from heedful.errors import require

require("torch", extra="train", whose="heedful.performance")


def enabled() -> bool:
    """Whether HEEDFUL_REFERENCE is unset, empty or 0. Read on every call, in about 1 µs."""
    return os.environ.get("HEEDFUL_REFERENCE", "") in ("", "0")

"""Quick attribute look-ups while a search runs.

`nn.Module` keeps sub-modules and parameters in dictionaries of its own, where Python finds them only after its normal
search has failed. A decoder step of a small model at batch 1 makes some two hundred such look-ups, a sixth of its time.
For the duration of a search they are ordinary attributes as well; whoever looks later, or from another thread after
this one is done, finds them the usual way. A sharded model is left alone: FSDP2 swaps parameters behind Python's back.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def quick(model: Any) -> Iterator[None]:
    """Mirror the sub-modules and parameters of every module in `model` as plain attributes, then forget them again."""
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    if any(hasattr(module, "unshard") for module in modules):
        modules = []
    for module in modules:
        module.__dict__.update(module._modules)
        module.__dict__.update(module._parameters)
    try:
        yield
    finally:
        for module in modules:
            for name in (*module._modules, *module._parameters):
                module.__dict__.pop(name, None)

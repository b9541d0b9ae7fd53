"""From gradients to weights: the optimizer, its learning rate, and the running mean of the weights.

The optimizers are PyTorch's, fused where the device has them; what is ours is how their state is named, so that a
checkpoint is a table of named tensors and not a pickle.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from heedful import config
from heedful.errors import HeedfulError
from heedful.training.clock import Clock
from heedful.training.distributed import local
from heedful.training.schedules import SCHEDULES

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
MOMENTS = ("exp_avg", "exp_avg_sq")  # what Adam remembers of every weight


def optimizer_of(chosen: config.TrainSettings, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a model; matrices decay, biases and norms do not."""
    groups = [
        {"params": [one for one in model.parameters() if one.ndim >= 2], "weight_decay": chosen.weight_decay},
        {"params": [one for one in model.parameters() if one.ndim < 2], "weight_decay": 0.0},
    ]
    options: dict[str, Any] = {"lr": 0.0, "betas": chosen.betas, "eps": chosen.epsilon}
    device = next(model.parameters()).device.type
    fused = device in ("cpu", "cuda")
    return OPTIMIZERS[chosen.optimizer]([group for group in groups if group["params"]], fused=fused, **options)


def rate_at(chosen: config.TrainSettings, clock: Clock, step: int) -> float:
    """The learning rate of a step, which counts from 1."""
    schedule = SCHEDULES[chosen.schedule]
    # A short run must not be all warm-up.
    warmup = min(chosen.warmup_steps, clock.steps // 4)
    return schedule(clock.position(step), peak=chosen.learning_rate, warmup_steps=warmup, steps=clock.steps)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The learning rate of the next step."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def scale(gradients: Iterable[Tensor], factor: float) -> None:
    """gradient *= factor"""
    torch._foreach_mul_(list(gradients), factor)  # what torch's own clipping does


def norm_of(gradients: Iterable[Tensor]) -> float:
    """|g|, over all gradients together"""
    total = nn.utils.get_total_norm(list(gradients))
    return float(total.full_tensor() if hasattr(total, "full_tensor") else total)


# ------------------------------------------------------------------------------------------- weights as named tensors


def named(model: nn.Module) -> dict[str, Tensor]:
    """Every weight once, by the first of its names (tied ones have several); of a sharded one, our piece."""
    return {name: local(weight.detach()) for name, weight in model.named_parameters()}


def put(into: Mapping[str, Tensor], tensors: Mapping[str, Tensor], whose: str) -> None:
    """Copy tensors by name; both must have the same names and shapes."""
    if into.keys() != tensors.keys():
        odd = sorted(into.keys() ^ tensors.keys())
        raise HeedfulError(
            f"{whose}: these weights belong to another model; only one of the two has {', '.join(odd[:3])}"
        )
    for name, own in into.items():
        if own.shape != tensors[name].shape:
            raise HeedfulError(f"{whose}: {name} is {tuple(tensors[name].shape)}, the model has {tuple(own.shape)}")
        own.copy_(tensors[name])


def moments(optimizer: torch.optim.Optimizer, model: nn.Module) -> tuple[dict[str, Tensor], int]:
    """What the optimizer remembers, by the weight's name, and how many steps it took."""
    names = {id(weight): name for name, weight in model.named_parameters()}
    found: dict[str, Tensor] = {}
    steps = 0
    for weight, state in optimizer.state.items():
        steps = int(state["step"])
        found.update({f"{names[id(weight)]}.{key}": local(state[key]) for key in MOMENTS})
    return found, steps


def put_moments(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor], steps: int, whose: str
) -> None:
    """What `moments` gave, put back."""
    optimizer.state.clear()
    if not steps:
        return
    for name, weight in model.named_parameters():
        state: dict[str, Any] = {"step": torch.tensor(float(steps))}  # fused kernels want it on the weight's device
        if weight.device.type != "cpu":
            state["step"] = state["step"].to(weight.device)
        for key in MOMENTS:
            state[key] = torch.zeros_like(weight, memory_format=torch.preserve_format)
            put({key: local(state[key])}, {key: tensors[f"{name}.{key}"]}, whose)
        optimizer.state[weight] = state


class Mean:
    """ema <- d ema + (1 - d) weights,  d = min(decay, (1 + k) / (10 + k)) after k steps

    The first steps forget fast, so that the mean is not held back by where it started.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, self.own = decay, {name: weight.clone() for name, weight in named(model).items()}
        self._flat = list(self.own.values())

    def update(self, weights: Iterable[Tensor], step: int) -> None:
        """Take in the weights after step k."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._flat, list(weights), 1 - decay)  # one pass over all of them


def averaged(every: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several sets of weights, summed in double precision."""
    total: dict[str, Tensor] = {}
    count = 0
    for weights in every:
        count += 1
        for name, weight in weights.items():
            total[name] = total[name] + weight.double() if name in total else weight.double()
    return {name: (weight / count).float() for name, weight in total.items()}

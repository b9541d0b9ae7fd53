"""The optimizer, its learning rate, and its state as named tensors.

The optimizers are PyTorch's, fused where the device has fused kernels. Their state is stored by weight name, so a
checkpoint is a table of named tensors and not a pickle.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from heedful import config
from heedful.training.clock import Clock
from heedful.training.distributed import local_shard
from heedful.training.schedules import SCHEDULES
from heedful.training.weights import copy_tensors_

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
MOMENTS = ("exp_avg", "exp_avg_sq")  # Adam's state of every weight


def make_optimizer(options: config.TrainSettings, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a model; weight decay applies to matrices, not to biases and norms."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for weight in weights if weight.ndim >= 2], "weight_decay": options.weight_decay},
        {"params": [weight for weight in weights if weight.ndim < 2], "weight_decay": 0.0},
    ]
    hyperparameters: dict[str, Any] = {"lr": 0.0, "betas": options.betas, "eps": options.epsilon}
    fused = weights[0].device.type in ("cpu", "cuda")
    nonempty = [group for group in groups if group["params"]]
    return OPTIMIZERS[options.optimizer](nonempty, fused=fused, **hyperparameters)


def learning_rate_at(options: config.TrainSettings, clock: Clock, step: int) -> float:
    """The learning rate of a step; steps count from 1."""
    schedule = SCHEDULES[options.schedule]
    # Warm-up is at most a quarter of a short run.
    warmup = min(options.warmup_steps, clock.steps // 4)
    return schedule(clock.position(step), peak=options.learning_rate, warmup_steps=warmup, steps=clock.steps)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def scale_gradients_(gradients: Iterable[Tensor], factor: float) -> None:
    """gradient *= factor"""
    torch._foreach_mul_(list(gradients), factor)  # as in torch's own clipping


def gradient_norm(gradients: Iterable[Tensor]) -> float:
    """|g|, over all gradients together"""
    total = nn.utils.get_total_norm(list(gradients))
    return float(total.full_tensor() if hasattr(total, "full_tensor") else total)


def optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> tuple[dict[str, Tensor], int]:
    """The moments by weight name, and the number of steps taken."""
    names = {id(weight): name for name, weight in model.named_parameters()}
    moments: dict[str, Tensor] = {}
    steps = 0
    for weight, state in optimizer.state.items():
        steps = int(state["step"])
        moments.update({f"{names[id(weight)]}.{key}": local_shard(state[key]) for key in MOMENTS})
    return moments, steps


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, model: nn.Module, moments: Mapping[str, Tensor], steps: int, origin: str
) -> None:
    """Restore what `optimizer_state` returned; error messages contain `origin`."""
    optimizer.state.clear()
    if not steps:
        return
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue
        state: dict[str, Any] = {"step": torch.tensor(float(steps))}  # fused kernels need it on the weight's device
        if weight.device.type != "cpu":
            state["step"] = state["step"].to(weight.device)
        for key in MOMENTS:
            state[key] = torch.zeros_like(weight, memory_format=torch.preserve_format)
            copy_tensors_({key: local_shard(state[key])}, {key: moments[f"{name}.{key}"]}, origin)
        optimizer.state[weight] = state

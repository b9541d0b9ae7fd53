"""Learning-rate schedules: pure functions of the step, which counts from 1 and may be fractional.

All rise linearly over `warmup_steps` to the peak, then:

    constant       stay at the peak
    inverse_sqrt   peak * sqrt(warmup / step)            (Noam's with peak = (D * warmup)^-1/2)
    linear         fall in a straight line to zero at `steps`
    cosine         fall along half a cosine to zero at `steps`
"""

import math
from collections.abc import Callable


def constant(step: float, *, peak: float, warmup_steps: int = 0, steps: int | None = None) -> float:  # noqa: ARG001
    """peak * min(1, step / warmup)"""
    return peak * _warmup_factor(step, warmup_steps)


def inverse_sqrt(step: float, *, peak: float, warmup_steps: int, steps: int | None = None) -> float:  # noqa: ARG001
    """peak * min(step / warmup, sqrt(warmup / step))"""
    _check_step(step)
    warmup = max(warmup_steps, 1)
    return peak * min(step / warmup, math.sqrt(warmup / step))


def linear(step: float, *, peak: float, warmup_steps: int = 0, steps: int | None = None) -> float:
    """peak * min(step / warmup, (steps - step) / (steps - warmup))"""
    return peak * min(_warmup_factor(step, warmup_steps), 1.0 - _decay_progress(step, warmup_steps, steps))


def cosine(step: float, *, peak: float, warmup_steps: int = 0, steps: int | None = None) -> float:
    """peak * min(step / warmup, (1 + cos(pi x)) / 2),  x = progress of the decay, from 0 to 1"""
    progress = _decay_progress(step, warmup_steps, steps)
    return peak * min(_warmup_factor(step, warmup_steps), (1.0 + math.cos(math.pi * progress)) / 2)


SCHEDULES: dict[str, Callable[..., float]] = {
    "constant": constant,
    "inverse_sqrt": inverse_sqrt,
    "linear": linear,
    "cosine": cosine,
}


def noam_peak(width: int, warmup_steps: int) -> float:
    """D^-1/2 * warmup^-1/2: the peak that makes `inverse_sqrt` the schedule of Vaswani et al. 2017."""
    return float((width * warmup_steps) ** -0.5)


def _warmup_factor(step: float, warmup_steps: int) -> float:
    _check_step(step)
    return min(1.0, step / warmup_steps) if warmup_steps else 1.0


def _decay_progress(step: float, warmup_steps: int, steps: int | None) -> float:
    if steps is None:
        raise ValueError("this schedule falls to zero at the last step: `steps` is required")
    if steps <= warmup_steps:
        raise ValueError(f"steps ({steps}) must exceed warmup_steps ({warmup_steps})")
    return min(1.0, max(0.0, (step - warmup_steps) / (steps - warmup_steps)))


def _check_step(step: float) -> None:
    if step < 1:
        raise ValueError(f"steps count from 1, got {step}")

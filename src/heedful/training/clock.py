"""Maps steps to positions in the learning-rate schedule, also when the last step of a run changes.

A run with a time limit does not know its last step in advance: it starts from an estimate and corrects it. Every
correction is appended to `refits`. Positions depend only on `steps` and `refits`, so a second run with the same refits
has the same learning rates, even if it is faster or slower. A run that was made longer has a correction as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import median
from typing import Self


@dataclass(frozen=True, slots=True)
class Clock:
    """The first estimate of the last step, and its corrections: (a, b) sets the last step to b after step a."""

    steps: int
    refits: tuple[tuple[int, int], ...] = ()

    @property
    def end(self) -> int:
        """The current estimate of the last step."""
        return self.refits[-1][1] if self.refits else self.steps

    def refit(self, step: int, end: int) -> Self:
        """The clock with one more correction; positions up to `step` do not change."""
        if end < step:
            raise ValueError(f"after step {step} the last step cannot be {end}")
        return replace(self, refits=(*self.refits, (step, end)))

    def position(self, step: int) -> float:
        """The schedule position of a step, from 0 to `steps`; a correction spreads the remaining positions evenly.

        p(k) = k before the first correction (a, b);  p(k) = steps - (steps - p(a)) (b - k) / (b - a) after it

        If the schedule is already at its end at step a, it continues where a schedule of b steps would be:
        p(a) = steps * a / b, so that p(k) = steps * k / b after it.
        """
        last_refit, position, end = 0, 0.0, self.steps
        for refit_step, new_end in self.refits:
            if refit_step >= step:
                break
            position = self._interpolate(position, last_refit, end, refit_step)
            if position >= self.steps and new_end > refit_step:
                position = self.steps * refit_step / new_end
            last_refit, end = refit_step, new_end
        return self._interpolate(position, last_refit, end, step)

    def _interpolate(self, position: float, last_refit: int, end: int, step: int) -> float:
        if last_refit == 0 and end == self.steps:
            return float(step)
        if end <= last_refit:
            return float(self.steps)
        return self.steps - (self.steps - position) * (end - step) / (end - last_refit)


def fit_last_step(step: int, elapsed_seconds: float, steps_per_second: float, limit_seconds: float) -> int:
    """The step at which the time limit is reached: step + (limit - elapsed) * rate, at least `step`."""
    return step + max(0, int((limit_seconds - elapsed_seconds) * steps_per_second))


def reserve_seconds(limit_seconds: float, validation_seconds: Sequence[float], finish_validations: float) -> float:
    """Seconds to reserve for the work after the last step (about `finish_validations` validations): 3 to 20 %.

    A validation is estimated by the median of the last three: the first ones produce long outputs, and a single one may
    be slow because the machine was busy.
    """
    expected = finish_validations * median(validation_seconds[-3:]) if validation_seconds else 0.0
    return min(0.2 * limit_seconds, max(0.03 * limit_seconds, expected))


def format_duration(seconds: float) -> str:
    """Seconds as --time accepts them, rounded up: 45s, 12m, 1h30m."""
    if seconds <= 90:
        return f"{ceil(seconds)}s"
    hours, minutes = divmod(ceil(seconds / 60), 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "")

"""The time budget of a run: how much of `train.time` is used, and which last step fits into the rest."""

import time
from statistics import median

from heedful.training.clock import fit_last_step, reserve_seconds

REFIT_SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)  # shares of the time


class TimeBudget:
    """Seconds that a run may use and has used; without a limit it only measures."""

    def __init__(self, limit_seconds: float | None, started: float, finish_validations: float) -> None:
        self.limit_seconds = limit_seconds
        self.earlier_seconds = 0.0  # used by earlier processes of a resumed run
        self.validation_seconds: list[float] = []
        self._started, self._finish_validations = started, finish_validations
        self._next_refit = 0

    @property
    def elapsed(self) -> float:
        """Seconds since the run started, without the pauses between its processes."""
        return self.earlier_seconds + time.perf_counter() - self._started

    @property
    def remaining(self) -> float | None:
        """Seconds left; None without a limit."""
        return None if self.limit_seconds is None else self.limit_seconds - self.elapsed

    @property
    def usual_validation_seconds(self) -> float | None:
        """The median of the last three validations; None before the first one."""
        return median(self.validation_seconds[-3:]) if self.validation_seconds else None

    def estimate_remaining(self, steps_left: int, steps_per_second: float) -> float | None:
        """Seconds for the steps left, within the limit, and for the work after them; None if unknown."""
        limit, validation = self.remaining, self.usual_validation_seconds
        if not steps_per_second or (limit is not None and validation is None):
            return None if limit is None else max(0.0, limit)
        expected = steps_left / steps_per_second + self._finish_validations * (validation or 0.0)
        return expected if limit is None or not steps_left else max(0.0, min(expected, limit))

    @property
    def reserve(self) -> float:
        """Seconds of the limit reserved for the work after the last step."""
        return reserve_seconds(self.limit_seconds or 0.0, self.validation_seconds, self._finish_validations)

    @property
    def usable_seconds(self) -> float:
        """Seconds of the limit for steps, validations and checkpoints."""
        return (self.limit_seconds or 0.0) - self.reserve

    @property
    def is_reserve_half_used(self) -> bool:
        return self.limit_seconds is not None and self.elapsed > self.limit_seconds - self.reserve / 2

    def new_last_step(self, step: int, last_step: int, steps_per_second: float) -> int:
        """The last step that fits into the time, if a correction is due and changes `last_step`; otherwise 0."""
        if self.limit_seconds is None:
            return 0
        usable_seconds = self.usable_seconds
        if self.elapsed >= usable_seconds:
            return step if last_step > step else 0
        due = self._next_refit
        while due < len(REFIT_SHARES) and self.elapsed >= REFIT_SHARES[due] * usable_seconds:
            due += 1
        if due == self._next_refit or not steps_per_second:
            return 0
        self._next_refit = due
        end = fit_last_step(step, self.elapsed, steps_per_second, usable_seconds)
        return end if abs(end - last_step) > 0.005 * end and end > step else 0

"""Skips steps whose gradient would damage the weights.

    loss or gradient is not finite        skip the step; after MAX_NONFINITE in a row, roll back to the last checkpoint
                                          and skip these batches; the second time, stop
    gradient is far above recent ones     skip the step; after MAX_SPIKES in a row, accept the new level

Decisions are pure functions of the guard, which every checkpoint stores: a resumed run makes the same decisions as an
uninterrupted one.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

WINDOW = 128  # accepted gradients that a new one is compared with
MIN_NORMS = 64  # accepted gradients before a spike can be detected
MAX_NONFINITE = 5  # steps in a row
MAX_SPIKES = 8  # steps in a row

Verdict = Literal["take", "not finite", "spike", "roll back", "stop"]


@dataclass(frozen=True, slots=True)
class SpikeGuard:
    """Recent gradient norms, and how many steps were skipped."""

    log_norms: tuple[float, ...] = ()  # of the last accepted gradients
    nonfinite_in_row: int = 0
    spikes_in_row: int = 0
    skipped: int = 0  # steps, in total
    has_rolled_back: bool = False

    def check(self, loss: float, norm: float, max_deviations: float | None) -> tuple[Verdict, Self]:
        """The verdict on a step, and the updated guard."""
        if not (math.isfinite(loss) and math.isfinite(norm)):
            after = replace(self, nonfinite_in_row=self.nonfinite_in_row + 1, skipped=self.skipped + 1)
            if after.nonfinite_in_row < MAX_NONFINITE:
                return "not finite", after
            return ("stop" if self.has_rolled_back else "roll back"), after
        log_norm = math.log(max(norm, 1e-30))
        if max_deviations is not None and self.is_spike(log_norm, max_deviations):
            if self.spikes_in_row + 1 < MAX_SPIKES:
                skipped = self.skipped + 1
                return "spike", replace(self, nonfinite_in_row=0, spikes_in_row=self.spikes_in_row + 1, skipped=skipped)
            return "take", replace(self, log_norms=(log_norm,), nonfinite_in_row=0, spikes_in_row=0)
        log_norms = (*self.log_norms, log_norm)[-WINDOW:]
        return "take", replace(self, log_norms=log_norms, nonfinite_in_row=0, spikes_in_row=0)

    def is_spike(self, log_norm: float, max_deviations: float) -> bool:
        """log_norm > mean + max_deviations * max(standard deviation, 0.1)

        Without the floor of 0.1, every small change in a steady run would be a spike.
        """
        if len(self.log_norms) < MIN_NORMS:
            return False
        mean = math.fsum(self.log_norms) / len(self.log_norms)
        variance = math.fsum((past - mean) ** 2 for past in self.log_norms) / len(self.log_norms)
        return log_norm > mean + max_deviations * max(math.sqrt(variance), 0.1)

    def after_roll_back(self, restored: Self) -> Self:
        """The guard of the restored checkpoint, with the rollback and all skipped steps recorded."""
        return replace(restored, has_rolled_back=True, nonfinite_in_row=0, skipped=self.skipped)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """Restore from JSON, which stores tuples as lists."""
        return cls(**{**stored, "log_norms": tuple(stored["log_norms"])})

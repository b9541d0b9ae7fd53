"""Skips steps whose gradient would damage the weights.

    a loss or gradient that is not finite   the step is skipped; after MAX_NONFINITE in a row the run rolls back to the
                                            last checkpoint and passes over these batches, once; after that it stops
    a gradient far above the last ones      the step is skipped; after MAX_SPIKES in a row it is the new normal

Decisions are pure functions of the guard, and the guard is part of every checkpoint: a resumed run decides as an
uninterrupted one.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

WINDOW = 128  # accepted gradients that a new one is compared with
MIN_NORMS = 64  # accepted gradients before anything is called a spike
MAX_NONFINITE = 5  # steps in a row
MAX_SPIKES = 8  # steps in a row

Verdict = Literal["take", "not finite", "spike", "roll back", "stop"]


@dataclass(frozen=True, slots=True)
class SpikeGuard:
    """The gradient norms so far, and how many steps were skipped."""

    log_norms: tuple[float, ...] = ()  # of the last accepted gradients
    nonfinite_in_row: int = 0
    spikes_in_row: int = 0
    skipped: int = 0  # steps, in total
    has_rolled_back: bool = False

    def check(self, loss: float, norm: float, max_deviations: float | None) -> tuple[Verdict, Self]:
        """What to do with a step, and the guard after it."""
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

        The floor of 0.1 keeps a steady run from calling every small change a spike.
        """
        if len(self.log_norms) < MIN_NORMS:
            return False
        mean = math.fsum(self.log_norms) / len(self.log_norms)
        variance = math.fsum((past - mean) ** 2 for past in self.log_norms) / len(self.log_norms)
        return log_norm > mean + max_deviations * max(math.sqrt(variance), 0.1)

    def after_roll_back(self, restored: Self) -> Self:
        """The guard of the restored checkpoint, which now knows of the roll-back and of all skipped steps."""
        return replace(restored, has_rolled_back=True, nonfinite_in_row=0, skipped=self.skipped)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """Restore the fields from JSON, which has lists for tuples."""
        return cls(**{**stored, "log_norms": tuple(stored["log_norms"])})

"""What keeps a bad batch from spoiling the weights.

    a loss or gradient that is not finite   the step is skipped; ROLL in a row: back to the last checkpoint, past the
                                            bad batches, once; after that: stop
    a gradient far above the last ones      the step is skipped; CALM in a row: it is not a spike but the new normal

Decisions are pure functions of what the guard has seen, and what it has seen is in every checkpoint: a resumed run
decides as the uninterrupted one would.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, Self

WINDOW = 128  # accepted gradients that a new one is compared with
ENOUGH = 64  # of them, before anything is called a spike
ROLL = 5
CALM = 8

Verdict = Literal["take", "not finite", "spike", "roll back", "stop"]


@dataclass(frozen=True, slots=True)
class Guard:
    """What the guard has seen."""

    norms: tuple[float, ...] = ()  # logarithms of the last accepted gradients' norms
    broken: int = 0  # steps in a row that were not finite
    spikes: int = 0  # steps in a row that were spikes
    skipped: int = 0  # of all
    rolled: bool = False

    def judge(self, loss: float, norm: float, deviations: float | None) -> tuple[Verdict, Self]:
        """What to do with a step, and the guard after it."""
        if not (math.isfinite(loss) and math.isfinite(norm)):
            after = replace(self, broken=self.broken + 1, skipped=self.skipped + 1)
            if after.broken < ROLL:
                return "not finite", after
            return ("stop" if self.rolled else "roll back"), after
        size = math.log(max(norm, 1e-30))
        if deviations is not None and self.is_spike(size, deviations):
            if self.spikes + 1 < CALM:
                return "spike", replace(self, broken=0, spikes=self.spikes + 1, skipped=self.skipped + 1)
            return "take", replace(self, norms=(size,), broken=0, spikes=0)
        return "take", replace(self, norms=(*self.norms, size)[-WINDOW:], broken=0, spikes=0)

    def is_spike(self, size: float, deviations: float) -> bool:
        """size > mean + deviations * max(standard deviation, 0.1): a steady run must not call every ripple a spike"""
        if len(self.norms) < ENOUGH:
            return False
        mean = math.fsum(self.norms) / len(self.norms)
        spread = math.sqrt(math.fsum((one - mean) ** 2 for one in self.norms) / len(self.norms))
        return size > mean + deviations * max(spread, 0.1)

    def after_rolling_back(self, before: Self) -> Self:
        """The guard of the checkpoint, which now knows that it was rolled back to, and how much was skipped."""
        return replace(before, rolled=True, broken=0, skipped=self.skipped)

    def plain(self) -> dict[str, Any]:
        """As JSON can write it; numbers survive to the last bit."""
        return asdict(self)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Self:
        """What `plain` gave."""
        return cls(**{**plain, "norms": tuple(plain["norms"])})

"""How far a run is, in steps: what the schedule sees, also when the last step moves.

A run by the clock cannot know its last step beforehand. It starts from an estimate and corrects it; every correction is
an entry of the journal, and position and end are pure functions of the journal. So the same journal gives the same
learning rates, whatever the wall clock of the second run says.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Self


@dataclass(frozen=True, slots=True)
class Clock:
    """The last step as first estimated, and the journal: after step a, the last step was taken to be b."""

    steps: int
    refits: tuple[tuple[int, int], ...] = ()

    @property
    def end(self) -> int:
        """The last step, as far as is known."""
        return self.refits[-1][1] if self.refits else self.steps

    def refit(self, step: int, end: int) -> Self:
        """The same clock with one more entry; what is behind stays as it was."""
        if end < step:
            raise ValueError(f"after step {step} the last step cannot be {end}")
        return replace(self, refits=(*self.refits, (step, end)))

    def position(self, step: int) -> float:
        """Where a step is on the way from 0 to `steps`: what is left of it is spread evenly up to the end.

        p(k) = k before the first entry (a, b);  p(k) = steps - (steps - p(a)) (b - k) / (b - a) after it
        """
        at, here, end = 0, 0.0, self.steps
        for after, until in self.refits:
            if after >= step:
                break
            here, at, end = self._between(here, at, end, after), after, until
        return self._between(here, at, end, step)

    def _between(self, here: float, at: int, end: int, step: int) -> float:
        if at == 0 and end == self.steps:
            return float(step)
        return float(self.steps) if end <= at else self.steps - (self.steps - here) * (end - step) / (end - at)


def fitted(step: int, elapsed: float, rate: float, limit: float) -> int:
    """The step that the time ends at: step + (limit - elapsed) * rate, never one that is behind."""
    return step + max(0, int((limit - elapsed) * rate))


def reserved(limit: float, looks: Sequence[float], work: float) -> float:
    """Seconds to keep for what comes after the last step, which is as much `work` as so many validations: 3 to 20 %.

    `looks` are the seconds that validations took. The median of the last three counts: those at first write at length,
    and one during which the machine stood still says nothing.
    """
    after = work * median(looks[-3:]) if looks else 0.0
    return min(0.2 * limit, max(0.03 * limit, after))

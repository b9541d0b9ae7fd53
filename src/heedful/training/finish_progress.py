"""How much time the work after the last step still needs, in units of one validation."""

from time import perf_counter

from heedful.training.events import EventHandler, Finishing


class FinishProgress:
    """Logs each task with the time left: the units left x the seconds per unit, as measured so far."""

    def __init__(self, on_event: EventHandler, step: int, units: float, unit_seconds: float | None) -> None:
        self.on_event, self.step, self.units_left, self.unit_seconds = on_event, step, units, unit_seconds
        self._started, self._units_done, self._current_units = perf_counter(), 0.0, 0.0

    def start(self, task: str, units: float) -> None:
        """The task before this one is done; this one takes about `units` validations."""
        self._units_done += self._current_units
        self.units_left = max(0.0, self.units_left - self._current_units)
        self._current_units = units
        if self._units_done:
            self.unit_seconds = (perf_counter() - self._started) / self._units_done
        remaining = None if self.unit_seconds is None else self.units_left * self.unit_seconds
        self.on_event(Finishing(self.step, task, remaining))

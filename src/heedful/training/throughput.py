"""Loss, gradient norm and speed since the last log line; validating and saving do not count as training time."""

import math
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

STEADY_STEPS = 10  # steps before the measured speed is reliable
RECENT_SECONDS, RECENT_SHARE = 20.0, 0.05  # of training, over which the speed is measured: the larger of both


@dataclass(frozen=True, slots=True)
class Averages:
    """Means over the steps since the last log line."""

    loss: float
    perplexity: float
    norm: float
    learning_rate: float  # of the last step
    tokens_per_second: float


class ThroughputMeter:
    """Sums since the last log line, and the present speed.

    The speed is that of the recent steps, because it changes when other programs start or end; the time of validations
    and checkpoints, which are rare, is averaged over the whole run.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        self._started = time.perf_counter()
        self._all_paused_seconds = 0.0
        self._step_ends: deque[float] = deque([0.0])  # of recent steps, in seconds of training
        self._reset()

    @property
    def training_seconds(self) -> float:
        """Seconds since the start, without pauses."""
        return time.perf_counter() - self._started - self._all_paused_seconds

    @property
    def steps_per_second(self) -> float:
        """Recent steps per second, times the share of time that is not paused; 0 until it is reliable."""
        if len(self._step_ends) <= STEADY_STEPS:
            return 0.0
        recent_pace = (len(self._step_ends) - 1) / max(1e-9, self._step_ends[-1] - self._step_ends[0])
        return recent_pace * self.training_seconds / max(1e-9, time.perf_counter() - self._started)

    def _reset(self) -> None:
        self._smoothed = self._nll = self._norm = self._learning_rate = self._paused_seconds = 0.0
        self._tokens = self._steps = 0
        self._since = time.perf_counter()

    @property
    def is_empty(self) -> bool:
        return not self._tokens

    def add_step(self, smoothed: float, nll: float, tokens: float, norm: float, learning_rate: float) -> None:
        self._smoothed, self._nll, self._tokens = self._smoothed + smoothed, self._nll + nll, self._tokens + int(tokens)
        self._norm, self._learning_rate, self._steps = self._norm + norm, learning_rate, self._steps + 1
        now = self.training_seconds
        self._step_ends.append(now)
        begin = now - max(RECENT_SECONDS, RECENT_SHARE * now)
        while len(self._step_ends) > STEADY_STEPS + 1 and self._step_ends[0] < begin:
            self._step_ends.popleft()

    def take_averages(self) -> Averages:
        """Return the averages since the last call and reset them."""
        training_seconds = max(1e-9, time.perf_counter() - self._since - self._paused_seconds)
        averages = Averages(
            loss=self._smoothed / self._tokens,
            perplexity=math.exp(min(700.0, self._nll / self._tokens)),
            norm=self._norm / self._steps,
            learning_rate=self._learning_rate,
            tokens_per_second=self._tokens / training_seconds,
        )
        self._reset()
        return averages

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time inside from the training time."""
        started = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - started
            self._paused_seconds += seconds
            self._all_paused_seconds += seconds

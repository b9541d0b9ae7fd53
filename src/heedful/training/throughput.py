"""Loss, gradient norm and speed since the last log line; validating and saving do not count as training time."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

STEADY_STEPS = 10  # steps before the measured speed is reliable


@dataclass(frozen=True, slots=True)
class Averages:
    """Means over the steps since the last log line."""

    loss: float
    perplexity: float
    norm: float
    learning_rate: float  # of the last step
    tokens_per_second: float


class ThroughputMeter:
    """Sums since the last log line, and steps per second since the start."""

    def __init__(self) -> None:
        self.steps_per_second = 0.0  # pauses included; 0 until it is reliable
        self._all_steps = 0
        self.start()

    def start(self) -> None:
        self._started = time.perf_counter()
        self._reset()

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
        self._all_steps += 1
        if self._all_steps >= STEADY_STEPS:
            self.steps_per_second = self._all_steps / max(1e-9, time.perf_counter() - self._started)

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
            self._paused_seconds += time.perf_counter() - started

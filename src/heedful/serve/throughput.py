"""Throughput of the engine in tokens per second, measured from its batches."""

from math import exp

DECAY_SECONDS = 10.0  # of translation time, after which the weight of a batch is 1/e
MAX_SPEEDUP = 4.0  # of a single batch over the estimate


class ThroughputEstimate:
    """Tokens per second: both sums decay exponentially, so a single odd batch has little weight."""

    def __init__(self) -> None:
        self.weighted_tokens = self.weighted_seconds = 0.0

    def record_batch(self, num_tokens: float, seconds: float, batch_budget_tokens: float) -> None:
        """Add a batch. Batches below half the budget are inefficient, so they count only if they raise the estimate.

        Tokens above MAX_SPEEDUP times the estimate are ignored: some need no translation, such as removed characters.
        """
        num_tokens = (
            min(num_tokens, MAX_SPEEDUP * self.tokens_per_second * seconds) if self.weighted_seconds else num_tokens
        )
        if num_tokens >= batch_budget_tokens / 2 or num_tokens > self.tokens_per_second * seconds:
            decay = exp(-seconds / DECAY_SECONDS)
            self.weighted_tokens = decay * self.weighted_tokens + num_tokens
            self.weighted_seconds = decay * self.weighted_seconds + seconds

    @property
    def tokens_per_second(self) -> float:
        """The estimate; 0 before the first batch."""
        return self.weighted_tokens / self.weighted_seconds if self.weighted_seconds else 0.0

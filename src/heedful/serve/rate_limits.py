"""Rate limits: a token bucket per client, of size `burst_tokens`, refilled by `tokens_per_second`."""

import time
from collections import OrderedDict
from dataclasses import dataclass

MAX_CLIENTS = 65_536  # with a bucket; the least recently used is dropped first


@dataclass(slots=True)
class TokenBucket:
    """Tokens that a client may spend, as of `updated_at` (monotonic clock)."""

    tokens: float
    updated_at: float


class RateLimiter:
    """One token bucket per client."""

    def __init__(self, tokens_per_second: float, burst_tokens: float) -> None:
        self.tokens_per_second, self.burst_tokens = tokens_per_second, burst_tokens
        self.buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def spend(self, client: str, num_tokens: float) -> float:
        """Take tokens from the client's bucket and return 0, or return the seconds until it has enough tokens.

        Spending more than `burst_tokens` requires a full bucket.
        """
        now = time.monotonic()
        bucket = self.buckets.get(client)
        if bucket is None:
            bucket = self.buckets[client] = TokenBucket(self.burst_tokens, now)
            if len(self.buckets) > MAX_CLIENTS:
                self.buckets.popitem(last=False)
        self.buckets.move_to_end(client)
        bucket.tokens = min(self.burst_tokens, bucket.tokens + (now - bucket.updated_at) * self.tokens_per_second)
        bucket.updated_at = now
        needed_tokens = min(num_tokens, self.burst_tokens)
        if bucket.tokens >= needed_tokens:
            bucket.tokens -= needed_tokens
            return 0.0
        return (needed_tokens - bucket.tokens) / self.tokens_per_second

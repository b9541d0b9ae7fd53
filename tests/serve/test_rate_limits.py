"""Rate limits: a token bucket per client."""

from hypothesis import given
from hypothesis import strategies as st

from heedful.serve import rate_limits
from heedful.serve.rate_limits import RateLimiter


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 200)), max_size=50), st.floats(1, 50), st.floats(1, 100))
def test_spending_is_limited_to_burst_plus_refill(spent, rate, burst):
    now = 0.0
    monotonic = rate_limits.time.monotonic
    rate_limits.time.monotonic = lambda: now
    try:
        limiter, total = RateLimiter(rate, burst), 0.0
        for later, amount in spent:
            now += later
            wait = limiter.spend("a", amount)
            assert 0 <= wait <= burst / rate + 1e-6
            total += 0.0 if wait else min(amount, burst)
            assert total <= burst + rate * now + 1e-6
            if wait:
                now += wait + 1e-6
                assert limiter.spend("a", amount) == 0
                total += min(amount, burst)
    finally:
        rate_limits.time.monotonic = monotonic


def test_clients_have_separate_buckets_and_the_oldest_is_dropped(monkeypatch):
    monkeypatch.setattr(rate_limits, "MAX_CLIENTS", 3)
    limiter = RateLimiter(tokens_per_second=1, burst_tokens=10)
    assert [limiter.spend(client, 10) for client in "abcd"] == [0, 0, 0, 0]
    assert limiter.spend("d", 10) > 0
    assert len(limiter.buckets) == 3

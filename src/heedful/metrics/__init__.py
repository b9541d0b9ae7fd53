"""How good is a translation? Strings in, numbers out."""

from heedful.metrics.score import METRICS, Interval, Options, Score, interval, score

__all__ = ["METRICS", "Interval", "Options", "Score", "interval", "score"]

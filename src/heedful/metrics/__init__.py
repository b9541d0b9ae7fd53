"""How good is a translation? Strings in, numbers out."""

from heedful.metrics.score import METRICS, Score, score

__all__ = ["METRICS", "Score", "score"]

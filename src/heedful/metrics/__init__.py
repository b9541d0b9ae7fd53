"""Scores of translations: strings in, numbers out."""

from heedful.metrics.score import METRICS, Interval, MetricOptions, MetricScore, interval, score

__all__ = ["METRICS", "Interval", "MetricOptions", "MetricScore", "interval", "score"]

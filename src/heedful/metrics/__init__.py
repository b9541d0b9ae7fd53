"""Metrics of translation quality."""

from heedful.metrics.score import METRICS, Interval, MetricOptions, MetricScore, interval, score

__all__ = ["METRICS", "Interval", "MetricOptions", "MetricScore", "interval", "score"]

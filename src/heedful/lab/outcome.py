"""What an experiment finds: estimates with intervals, a table, a chart, checks and the verdict. No torch.

Outcomes are stored as JSON, so that those of several people can be compared.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from heedful.errors import ConfigError

T_QUANTILES = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # 97.5 %, for 1 to 9 degrees of freedom
NORMAL_QUANTILE = 1.96

Verdict = Literal["confirmed", "not confirmed", "depends"]
Size = Literal["quick", "default", "long"]
Settings = Mapping[str, Any]  # names -> numbers, texts, or tuples of them


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        margin = (self.high - self.low) / 2
        if abs(self.high - self.value - margin) < 1e-6 * max(margin, 1e-12):
            return f"{format_value(self.value)} ±{format_value(margin)}"
        return f"{format_value(self.value)} ({format_value(self.low)} to {format_value(self.high)})"

    def overlaps(self, other: "Estimate") -> bool:
        return self.low <= other.high and other.low <= self.high


def estimate_mean(values: Sequence[float]) -> Estimate:
    """The mean and mean -+ t s / sqrt(n), with Student's t for n - 1 degrees of freedom; n >= 2"""
    count = len(values)
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    degrees = count - 1
    quantile = T_QUANTILES[degrees - 1] if degrees <= len(T_QUANTILES) else NORMAL_QUANTILE + 2.5 / degrees
    margin = quantile * math.sqrt(variance / count)
    return Estimate(mean, mean - margin, mean + margin)


def estimate_share(successes: int, count: int) -> Estimate:
    """A share and its Wilson interval, which is inside of [0, 1] also if no or every case is a success"""
    share, z2 = successes / count, NORMAL_QUANTILE**2
    center = (share + z2 / (2 * count)) / (1 + z2 / count)
    margin = NORMAL_QUANTILE * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2)) / (1 + z2 / count)
    return Estimate(share, min(share, max(0.0, center - margin)), max(share, min(1.0, center + margin)))


def estimate_difference(first: Estimate, second: Estimate) -> Estimate:
    """first - second, for independent estimates whose intervals are symmetric: their margins add as squares"""
    value = first.value - second.value
    margin = math.hypot((first.high - first.low) / 2, (second.high - second.low) / 2)
    return Estimate(value, value - margin, value + margin)


def estimate_slope(xs: Sequence[float], ys: Sequence[float]) -> Estimate:
    """The slope of the least-squares line through at least three points, with its t interval"""
    count = len(xs)
    mean_x, mean_y = math.fsum(xs) / count, math.fsum(ys) / count
    spread = math.fsum((x - mean_x) ** 2 for x in xs)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    squares = math.fsum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    degrees = count - 2
    quantile = T_QUANTILES[degrees - 1] if degrees <= len(T_QUANTILES) else NORMAL_QUANTILE + 2.5 / degrees
    margin = quantile * math.sqrt(squares / degrees / spread)
    return Estimate(slope, slope - margin, slope + margin)


Cell = str | int | float | Estimate


@dataclass(frozen=True, slots=True)
class ResultTable:
    """Rows of texts, numbers and estimates under the names of their columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """The points of one line of a chart; an x that is a text is a category."""

    name: str
    points: tuple[tuple[int | float | str, Estimate], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Several series over the same axis. Categories are points without a line."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """A part of a claim with its figures, as a sentence, and whether it holds."""

    statement: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of an experiment; the first check is the effect that the claim is about."""

    table: ResultTable
    chart: Chart
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Not confirmed if the first check, the effect, does not hold; depends if another one does not."""
        if not self.checks[0].holds:
            return "not confirmed"
        return "confirmed" if all(check.holds for check in self.checks) else "depends"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The findings of an experiment, and how they were made."""

    experiment: str
    claim: str
    size: str
    seed: int
    settings: dict[str, Any]
    findings: Findings
    seconds: float
    date: str
    machine: str
    versions: dict[str, str]

    def to_json(self) -> str:
        return ADAPTER.dump_json(self, indent=1).decode() + "\n"

    @classmethod
    def load(cls, path: Path) -> "Outcome":
        """Read an outcome that `heedful lab` wrote."""
        try:
            return ADAPTER.validate_json(path.read_bytes())
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ConfigError(
                f"{path} is not a result of heedful lab ({place + ': ' if place else ''}{first['msg']}): "
                "pass a .json file that heedful lab wrote"
            ) from None


ADAPTER = TypeAdapter(Outcome)


def format_value(value: float) -> str:
    """A number with a digit or two more than its interval usually justifies."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}" if abs(value) < 10_000 else f"{value:,.0f}"


def format_cell(cell: Cell) -> str:
    if isinstance(cell, float):
        return format_value(cell)
    return f"{cell:,}" if isinstance(cell, int) else str(cell)

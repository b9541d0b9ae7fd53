"""Events of a run, as frozen dataclasses.

An event handler is any function that takes an event: the terminal display, metrics.jsonl and notebooks each have one.
The training loop does not depend on them. `event_record` returns a line of metrics.jsonl: {"event": name, ...fields}.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from heedful.training.usability import ScoredSample, UsabilityFigures


@dataclass(frozen=True, slots=True)
class Note:
    """A message for the user: `level` is "info", "warning" or "choice" (a decision with its reason)."""

    text: str
    level: str = "info"
    step: int = 0


@dataclass(frozen=True, slots=True)
class Began:
    """Training is about to start or to resume."""

    step: int  # steps already taken
    steps: int  # the current estimate of the last step
    parameters: int
    pairs: int
    passes: float  # over the data, up to the last step
    seconds: float | None  # left; None without a time limit
    ranks: int
    device: str
    precision: str


@dataclass(frozen=True, slots=True)
class Stepped:
    """Means over the last `log_every` steps."""

    step: int
    steps: int
    loss: float  # label-smoothed, per target token: the training objective
    perplexity: float  # of the training batches, under dropout
    norm: float  # of the gradient, before clipping
    learning_rate: float
    tokens: int  # target tokens since the start of the run
    tokens_per_second: float
    epoch: float
    skipped: int  # steps, since the start of the run
    elapsed: float  # seconds since the start of the run, resumes included
    remaining: float | None  # seconds until the run ends, as estimated now


@dataclass(frozen=True, slots=True)
class SampleTranslation:
    """One sentence of the validation set and its current translation."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True, slots=True)
class Validated:
    """Loss and scores of a validation."""

    step: int
    loss: float  # -log p per target token, not smoothed
    perplexity: float
    bleu: float | None  # None for a language model, which translates nothing
    chrf: float | None
    best: bool  # by the chosen metric
    seconds: float
    samples: tuple[SampleTranslation, ...] = field(default=())
    weights: str = "last"  # or "ema", "average"
    accuracy: float | None = None  # of labels


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint was written."""

    step: int
    name: str
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Refitted:
    """The last step was moved, to fit the time limit."""

    step: int
    steps: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A step was skipped; `lines` are the pairs of its batch."""

    step: int
    why: str
    loss: float
    norm: float
    lines: tuple[tuple[str, int], ...]  # corpus and line number, only the first ones


@dataclass(frozen=True, slots=True)
class Finishing:
    """A task after the last step is about to start."""

    step: int
    task: str
    remaining: float | None  # seconds until the run ends, as estimated now


@dataclass(frozen=True, slots=True)
class Ended:
    """Training has ended, and the model directory is written."""

    step: int
    why: str
    weights: str
    scores: dict[str, Any]
    model: str
    elapsed: float
    figures: UsabilityFigures | None = None
    best: tuple[ScoredSample, ...] = ()  # of the validation set
    worst: tuple[ScoredSample, ...] = ()


Event = Note | Began | Stepped | Validated | Saved | Refitted | Skipped | Finishing | Ended
EventHandler = Callable[[Event], None]


def event_record(event: Event) -> dict[str, Any]:
    """The event as JSON values."""
    return {"event": type(event).__name__.lower(), **asdict(event)}

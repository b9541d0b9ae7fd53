"""Events of a run: small frozen values, one per thing that happens.

An event handler is any function of an event: the terminal display, metrics.jsonl and a notebook have one each. The loop
knows none of them. `event_record` returns the line of metrics.jsonl, which is {"event": name, ...fields}.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Note:
    """A message for a person: `level` is "info", "warning" or "choice" (a decision with its reason)."""

    text: str
    level: str = "info"
    step: int = 0


@dataclass(frozen=True, slots=True)
class Began:
    """The first step is about to start, or the first after resuming."""

    step: int  # steps already taken
    steps: int  # the last step, as far as is known
    parameters: int
    pairs: int
    passes: float  # over the data, up to the last step
    seconds: float | None  # that are left, in a run with a time limit
    ranks: int
    device: str
    precision: str


@dataclass(frozen=True, slots=True)
class Stepped:
    """The mean of the last steps, `log_every` of them."""

    step: int
    steps: int
    loss: float  # smoothed, per target token: what is minimized
    perplexity: float  # of the training batches, under dropout
    norm: float  # of the gradient, before clipping
    learning_rate: float
    tokens: int  # target tokens since the start of the run
    tokens_per_second: float
    epoch: float
    skipped: int  # steps, since the start of the run
    elapsed: float  # seconds since the start of the run, resumes included
    remaining: float  # seconds, as estimated now


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
    bleu: float
    chrf: float
    best: bool  # by the chosen metric
    seconds: float
    samples: tuple[SampleTranslation, ...] = field(default=())
    weights: str = "last"  # or "ema", "average"


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint was written."""

    step: int
    name: str
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Refitted:
    """The last step was moved, to end when the time is over."""

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
class Ended:
    """Training has ended, and the model directory is written."""

    step: int
    why: str
    weights: str
    scores: dict[str, Any]
    model: str
    elapsed: float


Event = Note | Began | Stepped | Validated | Saved | Refitted | Skipped | Ended
EventHandler = Callable[[Event], None]


def event_record(event: Event) -> dict[str, Any]:
    """The event as JSON can store it."""
    return {"event": type(event).__name__.lower(), **asdict(event)}

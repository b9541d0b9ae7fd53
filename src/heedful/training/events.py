"""What a run tells whoever watches: small frozen values, one per thing that happens.

A watch is any function of an event. The terminal display, metrics.jsonl and a notebook are three of them; the loop
knows none. `plain` gives the line of metrics.jsonl, which is {"event": name, ...fields}.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Note:
    """Something a person should know: `level` is "info", "warning" or "choice" (with why, what was measured)."""

    text: str
    level: str = "info"
    step: int = 0


@dataclass(frozen=True, slots=True)
class Began:
    """The first step is about to be taken, or the first after resuming."""

    step: int  # steps already behind
    steps: int  # the last step, as far as is known
    parameters: int
    pairs: int
    passes: float  # over the data, if it goes on to the last step
    seconds: float | None  # that it will take from here, if a measurement said so
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
    remaining: float  # seconds, as it looks now


@dataclass(frozen=True, slots=True)
class Sample:
    """One sentence of the validation set as the model says it now."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True, slots=True)
class Validated:
    """How good it is now."""

    step: int
    loss: float  # -log p per target token, not smoothed
    perplexity: float
    bleu: float
    chrf: float
    best: bool  # by the chosen metric
    seconds: float
    samples: tuple[Sample, ...] = field(default=())
    weights: str = "last"  # or "ema", "average"


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint is on the disk."""

    step: int
    name: str
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Refitted:
    """The last step was moved, to end with the clock."""

    step: int
    steps: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A step that was not taken, and the pairs it would have learned from."""

    step: int
    why: str
    loss: float
    norm: float
    lines: tuple[tuple[str, int], ...]  # corpus and line, the first of them


@dataclass(frozen=True, slots=True)
class Ended:
    """Training is over, and the model directory is written."""

    step: int
    why: str
    weights: str
    scores: dict[str, Any]
    model: str
    elapsed: float


Event = Note | Began | Stepped | Validated | Saved | Refitted | Skipped | Ended
Watch = Callable[[Event], None]


def plain(event: Event) -> dict[str, Any]:
    """The event as JSON can write it."""
    return {"event": type(event).__name__.lower(), **asdict(event)}

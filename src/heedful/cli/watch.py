"""What a person sees of a training run: dated lines."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import typer

from heedful.config import Settings
from heedful.data.prepare import Progress, Step
from heedful.train.events import Began, Ended, Event, Note, Refitted, Saved, Skipped, Stepped, Validated, Watch


@contextmanager
def watching(_settings: Settings) -> Iterator[tuple[Watch, Progress]]:
    """A watch for the loop, and one for the preparation."""

    def watch(event: Event) -> None:
        if text := line(event):
            typer.echo(f"{datetime.now():%H:%M:%S}  {text}", err=True)

    def progress(_step: Step) -> None:
        pass

    yield watch, progress


def line(event: Event) -> str:
    """One event as one line."""
    match event:
        case Note():
            return event.text
        case Began():
            return f"{event.parameters:,} weights, {event.pairs:,} pairs, {event.steps - event.step:,} steps to go"
        case Stepped():
            return (
                f"step {event.step:,} of {event.steps:,}  loss {event.loss:.3f}"
                f"  {event.tokens_per_second:,.0f} tokens/s  rate {event.learning_rate:.2e}  gradient {event.norm:.2f}"
                f"  pass {event.epoch:.2f}"
                f"  left {event.remaining:.0f} s"
            )
        case Validated():
            return (
                f"validated {event.weights}: loss {event.loss:.3f}  chrF {event.chrf:.2f}  BLEU {event.bleu:.2f}"
                + "".join(f"\n          {one.source}\n          {one.output}" for one in event.samples)
            )
        case Refitted():
            return f"the last step is now {event.steps:,}"
        case Skipped():
            return f"step {event.step:,} skipped: {event.why}"
        case Ended():
            return f"{event.why}: {event.scores}"
        case Saved():
            return ""

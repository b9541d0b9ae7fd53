"""What a person sees of a training run: a calm picture on a terminal, dated lines anywhere else.

Every event is folded into `Seen`; picture and lines are functions of it and of the time. What was said once and for all
(choices, warnings) stands above the picture and stays in the terminal's history. Sentences are anybody's, and escaped
before they are shown.
"""

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from heedful.cli.prepare import nearby, stages_shown
from heedful.config import Settings
from heedful.text.normalize import escape_invisible
from heedful.training.events import (
    Began,
    Ended,
    Event,
    EventHandler,
    Note,
    Refitted,
    SampleTranslation,
    Saved,
    Skipped,
    Stepped,
    Validated,
)
from heedful.training.report import LABELS, REPORT, mark_matches

if TYPE_CHECKING:
    from heedful.data.prepare import ProgressCallback, StageProgress

ROWS = 4  # validations in the table, and the best where it is older
TREND = 40  # validations in the little curve
LONGEST = 240  # characters shown of a sentence
NAMED = 5  # lines named of a skipped batch
FAR = 1e9  # seconds, beyond which no date is worked out


class Signs(NamedTuple):
    """What a console can show."""

    arrow: str
    dot: str
    heights: str


FANCY, PLAIN = Signs("→", " · ", "▁▂▃▄▅▆▇█"), Signs("->", " | ", "")


@dataclass(frozen=True)
class Seen:
    """What is worth showing of the events so far."""

    began: Began | None = None
    stepped: Stepped | None = None
    told: datetime = datetime.min  # when the later of these two came
    steps: int = 0  # the last step, as far as is known
    saved: int = 0
    validations: tuple[Validated, ...] = ()
    samples: tuple[SampleTranslation, ...] = ()
    before: tuple[SampleTranslation, ...] = ()  # the samples one validation earlier
    ended: Ended | None = None

    def after(self, event: Event, now: datetime) -> Self:
        """The same with one more event."""
        match event:
            case Began():
                return replace(self, began=event, told=now, steps=event.steps)
            case Stepped():
                return replace(self, stepped=event, told=now, steps=event.steps)
            case Refitted():
                return replace(self, steps=event.steps)
            case Saved():
                return replace(self, saved=event.step)
            case Validated():
                key = (event.step, event.weights)
                kept = (one for one in self.validations if one.step <= event.step and (one.step, one.weights) != key)
                samples, before = (event.samples, self.samples) if event.samples else (self.samples, self.before)
                return replace(self, validations=(*kept, event), samples=samples, before=before)
            case Ended():
                return replace(self, ended=event)
            case Note() | Skipped():
                return self

    @property
    def best(self) -> Validated | None:
        """The last that was the best so far."""
        return next((one for one in reversed(self.validations) if one.best), None)

    @property
    def ends(self) -> datetime | None:
        """When it is over, if that is known."""
        left = self.stepped.remaining if self.stepped else self.began.seconds if self.began else None
        return self.told + timedelta(seconds=left) if left and left < FAR else None

    @property
    def passes(self) -> float:
        """Over the data, at the end."""
        if self.stepped:
            return self.stepped.epoch * self.steps / self.stepped.step
        return self.began.passes if self.began else 0.0


# ---------------------------------------------------------------------------------------------------- words


def moment(when: datetime, now: datetime) -> str:
    """14:07, with the date where it is another day's."""
    return f"{when:%H:%M}" if when.date() == now.date() else f"{when:%Y-%m-%d %H:%M}"


def clock(seconds: float) -> str:
    """0:11:32"""
    return str(timedelta(seconds=int(seconds)))


def large(number: float) -> str:
    """A perplexity, which may be anything."""
    return f"{number:,.1f}" if number < 1e7 else f"{number:.1e}"


def forecast(seen: Seen, now: datetime) -> str:
    """ends 14:07; 61 passes over the data"""
    ends = f"ends {moment(seen.ends, now)}; " if seen.ends else ""
    return f"{ends}{seen.passes:.{0 if seen.passes >= 10 else 1}f} passes over the data"


def shown(text: str) -> str:
    """A sentence, safe and not too long."""
    text = escape_invisible(text[:LONGEST])
    return text if len(text) < LONGEST else text[: LONGEST - 3] + "..."


def line(event: Event, seen: Seen, now: datetime) -> str:
    """One event in words; `seen` knows it already."""
    match event:
        case Note():
            return escape_invisible(f"WARNING: {event.text}" if event.level == "warning" else event.text)
        case Began():
            many = f", {event.ranks} processes" if event.ranks > 1 else ""
            return (
                f"{event.parameters:,} weights, {event.pairs:,} pairs, {event.device} {event.precision}{many}; "
                f"{event.steps - event.step:,} steps to go; {forecast(seen, now)}"
            )
        case Stepped():
            ends = f"  ends {moment(seen.ends, now)}" if seen.ends else ""
            return (
                f"step {event.step:,} of {event.steps:,}  loss {event.loss:.3f}  perplexity {large(event.perplexity)}"
                f"  {event.tokens_per_second:,.0f} tokens/s  learning rate {event.learning_rate:.2e}"
                f"  gradient {event.norm:.2f}  skipped {event.skipped}"
                f"  pass {event.epoch:.1f} of {seen.passes:.1f}{ends}"
            )
        case Validated():
            return (
                f"validated {event.weights} at step {event.step:,}: loss {event.loss:.3f}  chrF {event.chrf:.2f}"
                f"  BLEU {event.bleu:.2f}{'  best so far' if event.best else ''}"
            )
        case Saved():
            return f"saved {event.name}"
        case Refitted():
            return f"the last step is now {event.steps:,}; {forecast(seen, now)}"
        case Skipped():
            some = ", ".join(f"{name}:{number}" for name, number in event.lines[:NAMED])
            more = ", ..." if len(event.lines) > NAMED else ""
            numbers = f"loss {event.loss:.3f}, gradient {event.norm:.2f}"
            return escape_invisible(
                f"WARNING: step {event.step:,} skipped ({event.why}): {numbers}; it had {some}{more}"
            )
        case Ended():
            return f"{event.why}; the best weights are: {event.weights}"


# ---------------------------------------------------------------------------------------------------- the picture


@dataclass(frozen=True)
class Picture:
    """All that changes; as many of the samples as the terminal is tall."""

    seen: Seen
    now: datetime
    signs: Signs = FANCY

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        top: list[RenderableType] = ["", self.bar(options.max_width), Padding(Text(self.state()), (0, 0, 0, 2))]
        if self.seen.stepped:
            top += ["", *numbers(self.seen.stepped, options.max_width)]
        if self.seen.validations:
            top += ["", *self.validations()]
        before = {one.source: one for one in self.seen.before}
        samples = [sample(one, before.get(one.source)) for one in self.seen.samples]
        if samples:
            samples[0] = Group("", Text("  bold: what the reference says too", "dim"), samples[0])
        room = console.height - 1
        for number, part in enumerate((*top, *samples)):
            room -= len(console.render_lines(part, options, pad=False))
            if number < len(top) or room >= 0:
                yield part

    def bar(self, width: int) -> RenderableType:
        """How far it is."""
        last = self.seen.stepped or self.seen.began
        step, steps = last.step if last else 0, max(1, self.seen.steps)
        text = Text(f"{step / steps:4.0%}  step {step:,} of {steps:,}", no_wrap=True)
        bar = ProgressBar(steps, step, width=max(8, min(60, width - len(text) - 4)), complete_style="cyan")
        row = Table.grid(padding=(0, 1))
        row.add_row(" ", bar, text)
        return row

    def state(self) -> str:
        """The time, the passes, and what is safe on the disk."""
        seen, parts = self.seen, [forecast(self.seen, self.now)]
        if seen.ended:
            parts = [f"{clock(seen.ended.elapsed)} elapsed", seen.ended.why]
        elif seen.stepped:
            parts = [f"{clock(seen.stepped.elapsed + (self.now - seen.told).total_seconds())} elapsed"]
            parts += [f"ends {moment(seen.ends, self.now)}"] if seen.ends else []
            over = seen.stepped.step >= seen.steps
            parts.append("scoring" if over else f"pass {seen.stepped.epoch:.1f} of {seen.passes:.1f}")
        parts += [f"saved at step {seen.saved:,}"] if seen.saved else []
        return self.signs.dot.join(parts)

    def validations(self) -> Iterator[Text]:
        """The last ones, and the best."""
        every, best = self.seen.validations, self.seen.best
        rows = every[-ROWS:]
        yield Text(f"{'':6}{'step':>9}{'loss':>9}{'chrF':>8}{'BLEU':>8}  weights", "dim", no_wrap=True)
        for one in rows if best is None or best in rows else (best, *rows):
            mark, style = ("best", "bold") if one is best else ("", "")
            numbers = f"{one.step:>9,}{one.loss:>9.3f}{one.chrf:>8.2f}{one.bleu:>8.2f}"
            yield Text(f"{mark:>6}{numbers}  {one.weights}", style, no_wrap=True)
        if curve := trend([one.chrf for one in every[-TREND:]], self.signs.heights):
            yield Text.assemble((f"{'chrF':>15}  ", "dim"), curve, no_wrap=True)


def numbers(event: Stepped, width: int) -> Iterator[Text]:
    """A row of names above a row of values, or more of them where it is narrow."""
    cells = {
        "loss": f"{event.loss:.3f}",
        "perplexity": large(event.perplexity),
        "tokens/s": f"{event.tokens_per_second:,.0f}",
        "learning rate": f"{event.learning_rate:.2e}",
        "gradient": f"{event.norm:.2f}",
        "skipped": f"{event.skipped:,}",
    }
    names = values = ""
    for name, value in cells.items():
        wide = max(9, len(name)) + 2
        if names and len(names) + wide > width:
            yield from (Text(names, "dim"), Text(values))
            names = values = ""
        names, values = f"{names}{name:>{wide}}", f"{values}{value:>{wide}}"
    yield from (Text(names, "dim"), Text(values))


def trend(values: list[float], heights: str) -> str:
    """▁▃▅▇█"""
    low, high = min(values), max(values)
    if not heights or high <= low:
        return ""
    return "".join(heights[round((value - low) / (high - low) * (len(heights) - 1))] for value in values)


def sample(now: SampleTranslation, before: SampleTranslation | None) -> RenderableType:
    """A sentence, and how the output changed since the last validation."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", justify="right", width=11, no_wrap=True)
    rows.add_column(overflow="fold")
    reference = shown(now.reference)
    rows.add_row("source", Text(shown(now.source)))
    rows.add_row("reference", Text(reference))
    for name, one in (("before", before), ("now", now)):
        if one:
            pieces = mark_matches(reference, shown(one.output))
            rows.add_row(name, Text.assemble(*((piece, "bold" if agrees else "") for piece, agrees in pieces)))
    return Padding(rows, (0, 0, 1, 0))


# ---------------------------------------------------------------------------------------------------- the display


class Display:
    """Takes events, and shows them. Nothing appears before the first: of several processes only one is told."""

    def __init__(self, settings: Settings, console: Console) -> None:
        self.settings, self.console = settings, console
        self.signs = FANCY if (console.encoding or "").lower().startswith("utf") else PLAIN
        self.drawn = console.is_terminal and not console.is_dumb_terminal
        self.seen, self.opened = Seen(), False
        self.stages = ExitStack()  # of the preparation
        self.stage: ProgressCallback | None = None
        self.live = Live(console=console, get_renderable=self.picture, refresh_per_second=1, redirect_stdout=False)

    def picture(self) -> Picture:
        """As it is now."""
        return Picture(self.seen, datetime.now(), self.signs)

    def prepared(self, step: "StageProgress") -> None:
        """A shard of the preparation is done."""
        if self.stage is None:
            self.open()
            self.stage = self.stages.enter_context(stages_shown(self.console))
        self.stage(step)

    def __call__(self, event: Event) -> None:
        """Something happened."""
        self.open()
        self.stages.close()
        self.stage = None
        now = datetime.now()
        self.seen = self.seen.after(event, now)
        text = line(event, self.seen, now)
        if not self.drawn:
            self.say(text)
            for one in event.samples if isinstance(event, Validated) else ():
                for name in ("source", "reference", "output"):
                    self.say(f"  {name:>9}  {shown(getattr(one, name))}")
        elif isinstance(event, Note | Skipped | Began):
            what, colon, why = text.partition(": ")
            style = "bold yellow" if what == "WARNING" else "bold" if colon else ""
            self.console.print(Padding(Text.assemble((what, style), colon, why), (0, 0, 0, 2)))
        if self.drawn and isinstance(event, Began):
            self.live.start()
            self.console.show_cursor(True)  # a second Ctrl-C ends at once, and must leave a terminal with a cursor

    def open(self) -> None:
        """Before anything else, what this is."""
        if not self.opened:
            self.opened = True
            languages = f"{self.settings.source} {self.signs.arrow} {self.settings.target}"
            self.say(
                f"heedful train  {languages}  in {escape_invisible(str(nearby(self.settings.train.output_dir)))}",
                "bold",
            )

    def say(self, text: str, style: str = "") -> None:
        """A line, dated where nobody looks on."""
        date = "" if self.drawn else f"{datetime.now():%Y-%m-%d %H:%M:%S}  "
        self.console.print(Text(date + text, style), soft_wrap=True)

    def close(self) -> None:
        """Leave the terminal as it was found, with the last picture in it."""
        self.stages.close()
        self.live.stop()


def summary(console: Console, settings: Settings, ended: Ended | None) -> None:
    """How good it became, where it is, and what to type next."""

    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style), soft_wrap=True)

    if ended is None:
        say("This run was finished before; another --out begins a new one.")
    else:
        say(f"Done: {ended.why}, after {ended.step:,} steps in {clock(ended.elapsed)}.", "bold")
        signatures: dict[str, str] = {}
        for corpus, some in ended.scores.items():
            if isinstance(some, dict):
                values = [f"{LABELS[name]} {one['value']:5.2f}" for name, one in some.items()]
                say(f"  {escape_invisible(corpus):>12}  {'   '.join(values)}")
                signatures |= {LABELS[name]: one["signature"] for name, one in some.items()}
        for name, signature in signatures.items():
            say(f"  {name:>12}  {signature}", "dim")
    run = nearby(settings.train.output_dir)
    for name, path in (("model", run / "model"), ("report", run / REPORT)):
        say(f"  {name:>12}  {escape_invisible(str(path))}")
    say("Next: " + escape_invisible(shlex.join(["heedful", "translate", str(run / "model")])))


@contextmanager
def watching(settings: Settings) -> Iterator[tuple[EventHandler, "ProgressCallback"]]:
    """A watch for the loop, and one for the preparation; at a good end, the summary."""
    display = Display(settings, Console(stderr=True, highlight=False))
    try:
        yield display, display.prepared
    finally:
        display.close()
    if display.seen.began:
        summary(Console(highlight=False), settings, display.seen.ended)

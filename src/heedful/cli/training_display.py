"""The display of a training run: a live picture on a terminal, timestamped lines elsewhere.

Each event updates a `DisplayState`; picture and lines are functions of the state and the time. Decisions and warnings
are printed above the picture and stay in the terminal's history. Sentences are untrusted, so they are escaped.
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

from heedful.cli.prepare import path_from_here, show_stages
from heedful.config import Settings
from heedful.inputs.kinds import make_input
from heedful.text.normalize import escape_invisible
from heedful.training.events import (
    Began,
    Ended,
    Event,
    EventHandler,
    Finishing,
    Note,
    Refitted,
    SampleTranslation,
    Saved,
    Skipped,
    Stepped,
    Validated,
)
from heedful.training.history import History
from heedful.training.report import LABELS, REPORT, advise_command, mark_matches, read_figures
from heedful.training.usability import describe_usability
from heedful.training.words import Phrase

if TYPE_CHECKING:
    from heedful.data.prepare import ProgressCallback, StageProgress

MAX_VALIDATION_ROWS = 4  # plus the best one if it is older
SCORE_WIDTHS = {"chrF": 8, "BLEU": 8, "perplexity": 12, "accuracy": 10}
MAX_SPARKLINE_POINTS = 40
MAX_SENTENCE_CHARACTERS = 240
MAX_SHOWN_LINES = 5  # of a skipped batch
MAX_FORECAST_SECONDS = 1e9  # a longer forecast is not shown as a date


class Symbols(NamedTuple):
    """Special characters, for consoles with and without Unicode."""

    arrow: str
    dot: str
    heights: str


UNICODE, ASCII = Symbols("→", " · ", "▁▂▃▄▅▆▇█"), Symbols("->", " | ", "")


@dataclass(frozen=True)
class DisplayState:
    """The events so far, as far as the display shows them."""

    began: Began | None = None
    stepped: Stepped | None = None
    updated: datetime = datetime.min  # when the later of these two arrived
    end_time: datetime | None = None  # the expected end of the run, if known
    steps: int = 0  # the planned last step
    saved_step: int = 0
    validations: tuple[Validated, ...] = ()
    samples: tuple[SampleTranslation, ...] = ()
    previous_samples: tuple[SampleTranslation, ...] = ()  # of the previous validation
    finishing: Finishing | None = None
    ended: Ended | None = None

    def after(self, event: Event, now: datetime) -> Self:
        match event:
            case Began():
                return replace(
                    self, began=event, updated=now, steps=event.steps, end_time=time_after(now, event.seconds)
                )
            case Stepped():
                end_time = time_after(now, event.remaining)
                return replace(self, stepped=event, updated=now, steps=event.steps, end_time=end_time)
            case Finishing():
                end_time = self.end_time if event.remaining is None else time_after(now, event.remaining)
                return replace(self, finishing=event, end_time=end_time)
            case Refitted():
                return replace(self, steps=event.steps)
            case Saved():
                return replace(self, saved_step=event.step)
            case Validated():
                key = (event.step, event.weights)
                kept = (
                    validated
                    for validated in self.validations
                    if validated.step <= event.step and (validated.step, validated.weights) != key
                )
                state = replace(self, validations=(*kept, event))
                if event.samples:
                    state = replace(state, samples=event.samples, previous_samples=self.samples)
                return state
            case Ended():
                return replace(self, ended=event)
            case Note() | Skipped():
                return self

    @property
    def best(self) -> Validated | None:
        return next((validated for validated in reversed(self.validations) if validated.best), None)

    @property
    def total_epochs(self) -> float:
        if self.stepped:
            return self.stepped.epoch * self.steps / self.stepped.step
        return self.began.passes * self.steps / max(1, self.began.steps) if self.began else 0.0


# ---------------------------------------------------------------------------------------------------- text


def time_after(now: datetime, seconds: float | None) -> datetime | None:
    """The time in so many seconds; None if they are unknown or too many."""
    return now + timedelta(seconds=seconds) if seconds is not None and seconds < MAX_FORECAST_SECONDS else None


def format_remaining(end: datetime, now: datetime) -> str:
    """about 12 s left, 3 min left, 2 h 5 min left, 3 d 4 h left"""
    seconds = (end - now).total_seconds()
    if seconds < 1:
        return "a few seconds left"
    if seconds < 99.5:
        return f"about {round(seconds)} s left"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min left"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min left"
    return f"{hours // 24} d {hours % 24} h left"


def format_elapsed(seconds: float) -> str:
    """0:11:32"""
    return str(timedelta(seconds=int(seconds)))


def format_perplexity(value: float) -> str:
    """1,234.5, or 1.2e+08 for very large values."""
    return f"{value:,.1f}" if value < 1e7 else f"{value:.1e}"


def forecast(state: DisplayState, now: datetime) -> str:
    """58 min left; 61 epochs"""
    end = format_remaining(state.end_time, now) if state.end_time else ""
    epochs = f"{state.total_epochs:.{0 if state.total_epochs >= 10 else 1}f} epochs" if state.total_epochs else ""
    return "; ".join(filter(None, (end, epochs)))


def shorten(text: str) -> str:
    """A sentence with control characters escaped, truncated if it is too long."""
    text = escape_invisible(text[:MAX_SENTENCE_CHARACTERS])
    return text if len(text) < MAX_SENTENCE_CHARACTERS else text[: MAX_SENTENCE_CHARACTERS - 3] + "..."


def describe_event(event: Event, state: DisplayState, now: datetime) -> str:
    """One line about an event; `state` includes the event."""
    match event:
        case Note():
            return escape_invisible(f"WARNING: {event.text}" if event.level == "warning" else event.text)
        case Began():
            processes = f", {event.ranks} processes" if event.ranks > 1 else ""
            return (
                f"{event.parameters:,} weights, {event.pairs:,} pairs, {event.device} {event.precision}{processes}; "
                f"{event.steps - event.step:,} steps left; {forecast(state, now)}"
            )
        case Stepped():
            end = f"  {format_remaining(state.end_time, now)}" if state.end_time else ""
            return (
                f"step {event.step:,} of {event.steps:,}  loss {event.loss:.3f}"
                f"  perplexity {format_perplexity(event.perplexity)}"
                f"  {event.tokens_per_second:,.0f} tokens/s  learning rate {event.learning_rate:.2e}"
                f"  gradient {event.norm:.2f}  skipped {event.skipped}"
                f"  epoch {event.epoch:.1f} of {state.total_epochs:.1f}{end}"
            )
        case Validated():
            scores = f"perplexity {format_perplexity(event.perplexity)}"
            if event.chrf is not None:
                scores = f"chrF {event.chrf:.2f}  BLEU {event.bleu:.2f}"
            if event.accuracy is not None:
                scores = f"accuracy {event.accuracy:.2f}"
            best = "  best so far" if event.best else ""
            return f"validated {event.weights} at step {event.step:,}: loss {event.loss:.3f}  {scores}{best}"
        case Saved():
            return f"saved {event.name}"
        case Refitted():
            return "; ".join(filter(None, (f"the last step is now {event.steps:,}", forecast(state, now))))
        case Skipped():
            lines = ", ".join(f"{name}:{number}" for name, number in event.lines[:MAX_SHOWN_LINES])
            more = ", ..." if len(event.lines) > MAX_SHOWN_LINES else ""
            numbers = f"loss {event.loss:.3f}, gradient {event.norm:.2f}"
            return escape_invisible(
                f"WARNING: step {event.step:,} skipped ({event.why}): {numbers}; lines {lines}{more}"
            )
        case Finishing():
            end = f"; {format_remaining(state.end_time, now)}" if state.end_time else ""
            return escape_invisible(f"{event.task}{end}")
        case Ended():
            return f"{event.why}; the best weights are: {event.weights}"


# ---------------------------------------------------------------------------------------------------- the picture


@dataclass(frozen=True)
class Picture:
    """The redrawn part of the display, with as many samples as fit the terminal."""

    state: DisplayState
    now: datetime
    symbols: Symbols = UNICODE

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        top: list[RenderableType] = [
            "",
            self.progress_bar(options.max_width),
            Padding(Text(self.status()), (0, 0, 0, 2)),
        ]
        if self.state.stepped:
            top += ["", *step_numbers(self.state.stepped, options.max_width)]
        if self.state.validations:
            top += ["", *self.validation_rows()]
        previous = {sample.source: sample for sample in self.state.previous_samples}
        samples = [render_sample(sample, previous.get(sample.source)) for sample in self.state.samples]
        if samples:
            samples[0] = Group("", Text("  bold: also in the reference", "dim"), samples[0])
        lines_left = console.height - 1
        for number, part in enumerate((*top, *samples)):
            lines_left -= len(console.render_lines(part, options, pad=False))
            if number < len(top) or lines_left >= 0:
                yield part

    def progress_bar(self, width: int) -> RenderableType:
        last = self.state.stepped or self.state.began
        step, steps = last.step if last else 0, max(1, self.state.steps)
        text = Text(f"{step / steps:4.0%}  step {step:,} of {steps:,}", no_wrap=True)
        bar = ProgressBar(steps, step, width=max(8, min(60, width - len(text) - 4)), complete_style="cyan")
        row = Table.grid(padding=(0, 1))
        row.add_row(" ", bar, text)
        return row

    def status(self) -> str:
        state, parts = self.state, [forecast(self.state, self.now)]
        if state.ended:
            parts = [f"{format_elapsed(state.ended.elapsed)} elapsed", state.ended.why]
        elif state.stepped:
            elapsed = state.stepped.elapsed + (self.now - state.updated).total_seconds()
            parts = [f"{format_elapsed(elapsed)} elapsed"]
            parts += [format_remaining(state.end_time, self.now)] if state.end_time else []
            epochs = f"epoch {state.stepped.epoch:.1f} of {state.total_epochs:.1f}"
            is_last_step = state.stepped.step >= state.steps
            task = state.finishing.task if state.finishing else "scoring validation" if is_last_step else epochs
            parts.append(escape_invisible(task))
        parts += [f"saved at step {state.saved_step:,}"] if state.saved_step else []
        return self.symbols.dot.join(parts)

    def validation_rows(self) -> Iterator[Text]:
        """A table of the last validations and the best one, and a sparkline of chrF."""
        validations, best = self.state.validations, self.state.best
        rows = validations[-MAX_VALIDATION_ROWS:]
        names = ("chrF", "BLEU") if rows and rows[0].chrf is not None else ("perplexity",)
        names = ("accuracy",) if rows and rows[0].accuracy is not None else names
        yield Text(
            f"{'':6}{'step':>9}{'loss':>9}{''.join(f'{name:>{SCORE_WIDTHS[name]}}' for name in names)}  weights",
            "dim",
            no_wrap=True,
        )
        for row in rows if best is None or best in rows else (best, *rows):
            mark, style = ("best", "bold") if row is best else ("", "")
            scores = (row.perplexity,) if row.chrf is None else (row.chrf, row.bleu)
            scores = scores if row.accuracy is None else (row.accuracy,)
            numbers = f"{row.step:>9,}{row.loss:>9.3f}"
            numbers += "".join(f"{score:>{SCORE_WIDTHS[name]}.2f}" for name, score in zip(names, scores, strict=True))
            yield Text(f"{mark:>6}{numbers}  {row.weights}", style, no_wrap=True)
        points = validations[-MAX_SPARKLINE_POINTS:]
        chrf_values = [validated.chrf for validated in points if validated.chrf is not None]
        if curve := sparkline(chrf_values, self.symbols.heights):
            yield Text.assemble((f"{'chrF':>15}  ", "dim"), curve, no_wrap=True)


def step_numbers(event: Stepped, width: int) -> Iterator[Text]:
    """A row of names above a row of values, wrapped on a narrow terminal."""
    cells = {
        "loss": f"{event.loss:.3f}",
        "perplexity": format_perplexity(event.perplexity),
        "tokens/s": f"{event.tokens_per_second:,.0f}",
        "learning rate": f"{event.learning_rate:.2e}",
        "gradient": f"{event.norm:.2f}",
        "skipped": f"{event.skipped:,}",
    }
    names = values = ""
    for name, value in cells.items():
        column_width = max(9, len(name)) + 2
        if names and len(names) + column_width > width:
            yield from (Text(names, "dim"), Text(values))
            names = values = ""
        names, values = f"{names}{name:>{column_width}}", f"{values}{value:>{column_width}}"
    yield from (Text(names, "dim"), Text(values))


def sparkline(values: list[float], heights: str) -> str:
    """▁▃▅▇█"""
    low, high = min(values), max(values)
    if not heights or high <= low:
        return ""
    return "".join(heights[round((value - low) / (high - low) * (len(heights) - 1))] for value in values)


def render_sample(now: SampleTranslation, previous: SampleTranslation | None) -> RenderableType:
    """Source, reference, and the outputs of the previous and the latest validation."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", justify="right", width=11, no_wrap=True)
    rows.add_column(overflow="fold")
    reference = shorten(now.reference)
    rows.add_row("source", Text(shorten(now.source)))
    rows.add_row("reference", Text(reference))
    for name, sample in (("before", previous), ("now", now)):
        if sample:
            words = mark_matches(reference, shorten(sample.output))
            rows.add_row(name, Text.assemble(*((word, "bold" if agrees else "") for word, agrees in words)))
    return Padding(rows, (0, 0, 1, 0))


# ---------------------------------------------------------------------------------------------------- the display


class TrainingDisplay:
    """Shows events. It prints nothing before the first one, because only rank 0 receives events."""

    def __init__(self, settings: Settings, console: Console) -> None:
        self.settings, self.console = settings, console
        self.symbols = UNICODE if (console.encoding or "").lower().startswith("utf") else ASCII
        self.is_live = console.is_terminal and not console.is_dumb_terminal
        self.state, self.has_header = DisplayState(), False
        self.stages = ExitStack()  # of the preparation
        self.show_stage: ProgressCallback | None = None
        self.live = Live(console=console, get_renderable=self.picture, refresh_per_second=1, redirect_stdout=False)

    def picture(self) -> Picture:
        return Picture(self.state, datetime.now(), self.symbols)

    def handle_preparation(self, step: "StageProgress") -> None:
        if self.show_stage is None:
            self.print_header()
            self.show_stage = self.stages.enter_context(show_stages(self.console))
        self.show_stage(step)

    def __call__(self, event: Event) -> None:
        self.print_header()
        self.stages.close()
        self.show_stage = None
        now = datetime.now()
        self.state = self.state.after(event, now)
        text = describe_event(event, self.state, now)
        if not self.is_live:
            self.print_line(text)
            for sample in event.samples if isinstance(event, Validated) else ():
                for name in ("source", "reference", "output"):
                    self.print_line(f"  {name:>9}  {shorten(getattr(sample, name))}")
        elif isinstance(event, Note | Skipped | Began):
            what, colon, why = text.partition(": ")
            style = "bold yellow" if what == "WARNING" else "bold" if colon else ""
            self.console.print(Padding(Text.assemble((what, style), colon, why), (0, 0, 0, 2)))
        if self.is_live and isinstance(event, Began):
            self.live.start()
            self.console.show_cursor(True)  # a second Ctrl-C exits immediately and must leave the cursor visible

    def print_header(self) -> None:
        """Print the languages and the run directory, once."""
        if not self.has_header:
            self.has_header = True
            languages = f"{self.settings.source} {self.symbols.arrow} {self.settings.target}"
            folder = escape_invisible(str(path_from_here(self.settings.train.output_dir)))
            self.print_line(f"heedful train  {languages}  in {folder}", "bold")

    def print_line(self, text: str, style: str = "") -> None:
        """Print a line, with a timestamp if the display is not live."""
        date = "" if self.is_live else f"{datetime.now():%Y-%m-%d %H:%M:%S}  "
        self.console.print(Text(date + text, style), soft_wrap=True)

    def close(self) -> None:
        self.stages.close()
        self.live.stop()


def print_summary(console: Console, settings: Settings, ended: Ended | None) -> None:
    """Print whether the model is usable, the scores, the paths of model and report, and the command to run next."""

    def print_line(text: str, style: str = "") -> None:
        console.print(Text(text, style), soft_wrap=True)

    run = path_from_here(settings.train.output_dir)
    figures = ended.figures if ended else None
    if ended is None:
        print_line("This run is already finished; train it longer with a larger --time or --steps.")
        figures = read_figures(History.load(run))
    else:
        duration = format_elapsed(ended.elapsed)
        print_line(f"Done: {ended.why}, after {ended.step:,} steps in {duration}.", "bold")
    if figures:
        print_line(describe_usability(figures), "bold")
    if ended:
        signatures: dict[str, str] = {}
        for corpus, scores in ended.scores.items():
            if isinstance(scores, dict):
                values = [f"{LABELS[name]} {score['value']:5.2f}" for name, score in scores.items()]
                print_line(f"  {escape_invisible(corpus):>12}  {'   '.join(values)}")
                signatures |= {LABELS[name]: score["signature"] for name, score in scores.items() if score["signature"]}
        for name, signature in signatures.items():
            print_line(f"  {name:>12}  {signature}", "dim")
    for name, path in (("model", run / "model"), ("report", run / REPORT)):
        print_line(f"  {name:>12}  {escape_invisible(str(path))}")
    for key, words in advise_command(run, figures, ended.elapsed).items() if ended else ():
        print_line(f"{Phrase(key).english} {escape_invisible(shlex.join(words))}")
    nouns = make_input(settings.input).nouns
    following = ["translate", str(run / "model"), *([nouns.file] if nouns else [])]
    if settings.input.kind == "none":
        following = ["generate", str(run / "model"), "--count", "5"]
    print_line("Next: " + escape_invisible(shlex.join(["heedful", *following])))


@contextmanager
def show_training(settings: Settings) -> Iterator[tuple[EventHandler, "ProgressCallback"]]:
    """Yield handlers for training events and preparation progress; print a summary after success."""
    display = TrainingDisplay(settings, Console(stderr=True, highlight=False))
    try:
        yield display, display.handle_preparation
    finally:
        display.close()
    if display.state.began:
        print_summary(Console(highlight=False), settings, display.state.ended)

"""What a person sees of `heedful train`."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from io import StringIO
from typing import get_args

import pytest
from rich.console import Console
from typer.testing import CliRunner

from heedful import config
from heedful.cli.app import app
from heedful.cli.training_display import (
    ASCII,
    UNICODE,
    DisplayState,
    Picture,
    TrainingDisplay,
    describe_event,
    format_remaining,
    print_summary,
    show_training,
    sparkline,
)
from heedful.data.prepare import StageProgress
from heedful.training.events import (
    Began,
    Ended,
    Event,
    Finishing,
    Note,
    Refitted,
    SampleTranslation,
    Saved,
    Skipped,
    Stepped,
    Validated,
)
from heedful.training.usability import UsabilityFigures
from support.timeouts import PATIENCE
from support.training_runs import settings_of, write_corpus, write_settings

NOW = datetime(2026, 11, 15, 13, 7)
EVIL = "a \x1b]0;owned\x07\x1b[2J\u202e \x9b31m [red]b[/red] \u2028c\ud800"
HARM = set("\x1b\x07\x9b\u202e\u2028\ud800")
SCORES = {"bleu": {"name": "bleu", "value": 36.6, "signature": "nrefs:1|case:mixed"}}
STEPPED = Stepped(400, 8000, 3.25, 17.5, 0.5, 2e-3, 1_000_000, 9_876.5, 3.05, 2, 180.0, 3600.0)
VALIDATED = Validated(
    400, 2.5, 12.2, 21.5, 48.25, True, 2.0, (SampleTranslation("a dog", "ein Hund", "ein Baum"),), "ema"
)
FIGURES = UsabilityFigures(8200, 1665, "bleu", 36.6, 35.0, 38.2, 1000, 0.5, 40.0, 1.0, 0.01, 0.5)
BEGAN = Began(0, 8000, 2_093_568, 28_995, 61.4, 3600.0, 2, "cpu", "bf16")
EVENTS = [
    Note("precision bf16: it is faster", "choice"),
    Note("the disk is full", "warning"),
    Note("resumed from step-00000400"),
    BEGAN,
    STEPPED,
    VALIDATED,
    Saved(400, "step-00000400", 0.1, 1000),
    Refitted(410, 8200),
    Skipped(420, "spike", 9.0, 77.0, tuple(("train", number) for number in range(20))),
    Finishing(8200, "scoring test2016", 12.0),
    Ended(
        8200, "the time limit is reached", "ema", {"weights": "ema", "test2016": SCORES}, "run/model", 3600.0, FIGURES
    ),
]


@pytest.fixture
def settings(tmp_path):
    return settings_of(tmp_path, tmp_path / "run")


def folded(events, seen=None, now=NOW):
    for event in events:
        seen = (seen or DisplayState()).after(event, now)
    return seen


def drawn(seen, width=80, height=50, symbols=UNICODE, now=NOW):
    console = Console(width=width, height=height, file=StringIO(), force_terminal=True, color_system=None)
    console.print(Picture(seen, now, symbols))
    return console.file.getvalue()


def test_the_examples_are_of_every_kind():
    assert {type(event) for event in EVENTS} == set(get_args(Event))


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("symbols", [UNICODE, ASCII])
@pytest.mark.parametrize("count", range(len(EVENTS) + 1))
def test_a_picture_can_be_drawn_after_every_event_at_every_width(count, symbols, width):
    shown = drawn(folded(EVENTS[:count], DisplayState()), width, symbols=symbols)
    assert max(map(len, shown.splitlines())) <= width
    if symbols is ASCII:
        assert shown.replace("━", "").replace("╸", "").replace("╺", "").isascii()
    if STEPPED in EVENTS[:count]:
        for number in ("400", "3.250", "17.5", "9,876", "2.00e-03", "0.50"):
            assert number in shown
    if VALIDATED in EVENTS[:count]:
        for number in ("best", "2.500", "48.25", "21.50", "ein Baum"):
            assert number in shown


@pytest.mark.parametrize("height", [18, 24, 30, 60])
def test_a_picture_is_not_taller_than_the_terminal(height):
    many = tuple(SampleTranslation(f"sentence {number} " * 9, "reference " * 9, "output " * 9) for number in range(9))
    shown = drawn(folded([*EVENTS[:6], replace(VALIDATED, step=500, samples=many)]), height=height)
    assert len(shown.splitlines()) < height
    assert ("sentence 0" in shown) == (height >= 24)
    assert ("sentence 4" in shown) == (height >= 60)


def test_samples_show_what_changed_since_the_last_validation():
    later = replace(VALIDATED, step=500, samples=(SampleTranslation("a dog", "ein Hund", "ein Hund"),))
    shown = drawn(folded([VALIDATED, later]))
    assert re.search(r"before\s+ein Baum\s+now\s+ein Hund", shown)
    assert "before" not in drawn(folded([VALIDATED]))
    tried = replace(later, samples=(), weights="last")  # other weights, at the end
    assert re.search(r"before\s+ein Baum\s+now\s+ein Hund", drawn(folded([VALIDATED, later, tried])))


def test_the_best_stays_in_the_table():
    worse = [replace(VALIDATED, step=500 + number, chrf=40.0, best=False) for number in range(9)]
    rows = [line for line in drawn(folded([VALIDATED, *worse])).splitlines() if " ema" in line]
    assert [row.split()[0] for row in rows] == ["best", "505", "506", "507", "508"]


def test_a_validation_that_is_repeated_takes_the_place_of_the_old_one():
    old = [replace(VALIDATED, step=step, chrf=10.0) for step in (100, 200, 300)]
    seen = folded([*old, replace(VALIDATED, step=200, chrf=20.0)])
    assert [(one.step, one.chrf) for one in seen.validations] == [(100, 10.0), (200, 20.0)]


def test_the_forecast():
    seen = folded([BEGAN])
    assert describe_event(BEGAN, seen, NOW).endswith("; 60 min left; 61 epochs")
    assert "60 min left" in drawn(seen)
    unlimited = replace(BEGAN, seconds=None)
    assert describe_event(unlimited, folded([unlimited]), NOW).endswith("; 8,000 steps left; 61 epochs")
    assert describe_event(STEPPED, folded([STEPPED]), NOW).endswith("  60 min left")
    assert describe_event(Refitted(410, 4000), folded([STEPPED, Refitted(410, 4000)]), NOW).endswith("30 epochs")
    early = folded([BEGAN, Refitted(3, 4000)])  # before the first line about steps
    assert describe_event(Refitted(3, 4000), early, NOW).endswith("; 31 epochs")
    continued = folded([Refitted(400, 4000)])  # a run that becomes longer says so before it begins
    assert describe_event(Refitted(400, 4000), continued, NOW) == "the last step is now 4,000"
    never = replace(STEPPED, remaining=1e15)
    assert "left" not in describe_event(never, folded([never]), NOW)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-30, "a few seconds left"),
        (0.4, "a few seconds left"),
        (12.3, "about 12 s left"),
        (99.4, "about 99 s left"),
        (100, "2 min left"),
        (180, "3 min left"),
        (5960, "99 min left"),
        (6000, "1 h 40 min left"),
        (86_400, "24 h 0 min left"),
        (3 * 86_400 + 7200, "3 d 2 h left"),
    ],
)
def test_the_time_left_is_a_duration(seconds, text):
    assert format_remaining(NOW + timedelta(seconds=seconds), NOW) == text


def test_the_time_left_goes_on_while_text_is_scored():
    last = replace(STEPPED, step=8000, remaining=75.0)
    scoring = folded([BEGAN, last])
    assert "about 70 s left · scoring validation" in drawn(scoring, now=NOW + timedelta(seconds=5))
    later = NOW + timedelta(seconds=60)
    finishing = Finishing(8000, "scoring test2016", 12.0)
    seen = folded([finishing], scoring, later)
    assert "0:04:00 elapsed · about 12 s left · scoring test2016" in drawn(seen, width=100, now=later)
    assert describe_event(finishing, seen, later) == "scoring test2016; about 12 s left"
    unknown = folded([replace(finishing, remaining=None)], scoring, later)
    assert "about 15 s left" in drawn(unknown, now=later)  # as forecast before


def test_the_clock_goes_on_between_two_events():
    assert "0:03:00 elapsed" in drawn(folded([STEPPED]))
    assert "0:03:05 elapsed" in drawn(folded([STEPPED]), now=NOW + timedelta(seconds=5))


def test_numbers_that_no_sane_run_has_are_no_error():
    for bad in (float("nan"), float("inf"), 1e300):
        odd = [replace(STEPPED, loss=bad, perplexity=bad, norm=bad), replace(VALIDATED, loss=bad, perplexity=bad)]
        assert max(map(len, drawn(folded(odd)).splitlines())) <= 80


def test_a_sparkline():
    assert sparkline([0.0, 1.0, 7.0], UNICODE.heights) == "▁▂█"
    assert sparkline([5.0], UNICODE.heights) == sparkline([1.0, 2.0], ASCII.heights) == ""


# ------------------------------------------------------------------------------------------------ hostile text


EVIL_EVENTS = [
    Note(EVIL, "choice"),
    Note(EVIL, "warning"),
    BEGAN,
    STEPPED,
    replace(VALIDATED, samples=(SampleTranslation(EVIL, EVIL, EVIL),)),
    Skipped(420, "spike", 9.0, 77.0, ((EVIL, 3),)),
    replace(EVENTS[-1], scores={EVIL: SCORES}),
]


@pytest.mark.parametrize("terminal", [True, False])
def test_hostile_text_cannot_command_a_terminal(terminal, settings):
    stream = StringIO()
    console = Console(file=stream, force_terminal=terminal, color_system=None, width=120, height=60, highlight=False)
    display = TrainingDisplay(settings, console)
    for event in EVIL_EVENTS:
        display(event)
    display.close()
    print_summary(console, settings, display.state.ended)
    said = re.sub(r"\x1b\[\??[\d;]*[A-Za-z]", "", stream.getvalue())  # rich's own way to move the cursor
    assert not HARM & set(said)
    assert said.count("\\x1b]0;owned\\x07\\x1b[2J") >= 6
    assert "[red]b[/red]" in said


# ------------------------------------------------------------------------------------------------ the display


def test_without_a_terminal_every_event_is_a_dated_line(settings):
    stream = StringIO()
    display = TrainingDisplay(settings, Console(file=stream, highlight=False))
    for event in EVENTS:
        display(event)
    display.close()
    lines = stream.getvalue().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ", line) for line in lines)
    assert len(lines) == 1 + len(EVENTS) + 3  # a title, and the three of a sample
    for word in ("WARNING: the disk is full", "WARNING: step 420 skipped", "reference  ein Hund", "output  ein Baum"):
        assert word in stream.getvalue()


def test_nothing_is_shown_before_the_first_event(settings, capsys):
    """Of several processes only one is told anything."""
    with show_training(settings):
        pass
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_what_was_said_stays_above_the_picture(settings):
    stream = StringIO()
    display = TrainingDisplay(settings, Console(file=stream, force_terminal=True, width=80, height=50, highlight=False))
    display.handle_preparation(StageProgress("clean", 1, 2, 100))
    display(EVENTS[0])  # the autopilot speaks between two preparations
    display.handle_preparation(StageProgress("clean", 2, 2, 100))
    for event in EVENTS:
        display(event)
    live = stream.getvalue()
    assert live.rindex("\x1b[?25h") > live.rindex("\x1b[?25l")  # there is a cursor, whatever ends the process
    display.close()
    said = re.sub(r"\x1b\[\??[\d;]*[A-Za-z]", "", stream.getvalue())
    places = [
        said.rindex(text)
        for text in ("en → de", "2/2", "precision bf16", "weights, ", "step 420 skipped", "the time limit is reached")
    ]
    assert places == sorted(places)


LIVE = """
from heedful.cli.training_display import show_training
from heedful.config import load
from heedful.training.events import *
with show_training(load({toml!r})) as (watch, progress):
    for event in {events!r}:
        watch(event)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals of this kind")
@pytest.mark.parametrize(("kind", "picture"), [("xterm-256color", True), ("dumb", False)])
def test_in_a_real_terminal(settings, kind, picture):
    import pty

    script = LIVE.format(toml=str(write_settings(settings)), events=EVENTS)
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": kind, "COLUMNS": "100", "LINES": "50", "PYTHONIOENCODING": "utf-8"}
    process = subprocess.Popen([sys.executable, "-c", script], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    try:
        while data := os.read(ours, 65536):
            said += data
    except OSError:  # Linux's way to say that the other end is closed
        pass
    os.close(ours)
    assert process.wait(PATIENCE) == 0, said.decode()
    assert ("━".encode() in said) == picture
    assert b"Next: heedful translate" in said


# ------------------------------------------------------------------------------------------------ the command


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A configuration, and what the command said the first time."""
    folder = write_corpus(tmp_path_factory.mktemp("cli"), pairs=120)
    short = {"steps": 8, "validate_every": 4, "log_every": 4, "precision": None, "micro_batches": 1, "exact": False}
    path = write_settings(settings_of(folder, folder / "run", **short))
    return path, CliRunner().invoke(app, ["train", str(path)])


def test_the_command_ends_with_scores_places_and_what_to_type_next(trained):
    path, first = trained
    run = path.with_suffix("")
    assert first.exit_code == 0, first.output
    for text in ("Done: all steps are done, after 8 steps", "BLEU", "nrefs:1|case:mixed", str(run / "report.html")):
        assert text in first.stdout
    assert first.stdout.splitlines()[1].startswith("Not usable yet: 8 of about 1,000 steps; BLEU ")
    assert re.search(rf"^Continue the training: heedful train {re.escape(str(run))} --time \d", first.stdout, re.M)
    assert first.stdout.splitlines()[-1] == f"Next: heedful translate {run / 'model'}"
    assert "step 8 of 8" in first.stderr
    assert (run / "report.html").is_file()


def test_choices_are_told_and_written_down(trained):
    path, first = trained
    choice = re.search(r"precision \w+: bf16 is .*", first.stderr)[0]
    assert choice in (path.with_suffix("") / "metrics.jsonl").read_text(encoding="utf-8")
    assert choice in (path.with_suffix("") / "report.html").read_text(encoding="utf-8")


def test_a_run_that_was_finished_says_so(trained):
    path, first = trained
    again = CliRunner().invoke(app, ["train", str(path)])
    assert again.exit_code == 0, again.output
    assert "already finished" in again.stdout
    assert first.stdout.splitlines()[1] == again.stdout.splitlines()[1]
    assert "Next: heedful translate" in again.stdout


def test_prepare_names_the_next_command(tmp_path):
    folder = write_corpus(tmp_path, pairs=60)
    path = write_settings(settings_of(folder, folder / "run"))
    done = CliRunner().invoke(app, ["prepare", str(path), "--set", "tokenizer.vocab_size=70"])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1].endswith(f"Next: heedful train {path} --set tokenizer.vocab_size=70")
    assert config.load(path).source == "en"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "--out"),
        (["--out", "run", "--time", "1m", "--steps", "5"], "not both"),
        (["--out", "run", "--set", "model.dropout=0.2"], "--recipe"),
    ],
)
def test_a_command_that_cannot_be_meant_says_what_to_type(options, told, tmp_path):
    files = [str(write_corpus(tmp_path) / f"train.{side}") for side in ("en", "de")]
    result = CliRunner().invoke(app, ["train", *files, *options])
    assert result.exit_code != 0
    assert told in str(result.exception)

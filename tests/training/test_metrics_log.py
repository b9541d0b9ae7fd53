"""metrics.jsonl tells each step once, however often it was taken."""

import json
from pathlib import Path

import pytest

from heedful.training.events import Note, Skipped, event_record
from heedful.training.history import METRICS
from heedful.training.metrics_log import MetricsLog


def told(folder):
    return [json.loads(line)["step"] for line in (folder / METRICS).read_text().splitlines()]


def test_every_event_is_written_and_passed_on(tmp_path):
    heard = []
    with MetricsLog(tmp_path, heard.append) as record:
        some = [Note("für dich", step=1), Skipped(2, "spike", 1.0, 2.0, (("train", 7),))]
        for event in some:
            record(event)
    assert heard == some
    written = [json.loads(line) for line in (tmp_path / METRICS).read_text(encoding="utf-8").splitlines()]
    assert written == json.loads(json.dumps([event_record(one) for one in some]))
    assert written[1]["lines"] == [["train", 7]]


def test_what_will_be_taken_again_is_forgotten(tmp_path):
    with MetricsLog(tmp_path, lambda _: None) as record:
        for step in range(6):
            record(Note("before", step=step))
        record.rewind(3)
        record(Note("again", step=4))
    assert told(tmp_path) == [0, 1, 2, 3, 4]


def test_steps_from_before_a_roll_back_are_not_taken_again(tmp_path):
    """Steps 1 to 5, back to 2, passing over three batches; then 3 and 4, of which 4 is lost."""
    with MetricsLog(tmp_path, lambda _: None) as record:
        for step in range(1, 6):
            record(Note("before", step=step))
        record.offset = 3
        for step in (2, 3, 4):
            record(Note("after", step=step))
        record.rewind(3, 3)
    assert told(tmp_path) == [1, 2, 3, 4, 5, 2, 3]
    with MetricsLog(tmp_path, lambda _: None) as record:
        record.rewind(2)  # the roll-back itself is to come again
    assert told(tmp_path) == [1, 2]


def test_a_line_that_was_being_written_when_it_was_killed_is_forgotten(tmp_path):
    (tmp_path / METRICS).write_text('{"event": "note", "step": 1}\n{"event": "no')
    with MetricsLog(tmp_path, lambda _: None) as record:
        record.rewind(9)
        record(Note("next", step=2))
    assert told(tmp_path) == [1, 2]


def test_of_several_processes_one_writes_and_speaks(tmp_path):
    heard = []
    with MetricsLog(tmp_path, heard.append, active=False) as record:
        record(Note("not mine"))
        record.rewind(0)
    assert not heard
    assert not (tmp_path / METRICS).exists()


def test_a_terminal_that_is_gone_does_not_stop_a_run(tmp_path):
    def gone(event):
        raise BrokenPipeError

    with MetricsLog(tmp_path, gone) as record:
        record(Note("into the void", step=1))
    assert told(tmp_path) == [1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk here that is always full")
def test_a_full_disk_does_not_stop_a_run(tmp_path):
    (tmp_path / METRICS).symlink_to("/dev/full")
    heard = []
    with MetricsLog(tmp_path, heard.append) as record:
        record(Note("not written", step=1))
    assert heard

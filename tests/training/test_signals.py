"""Asked to end, a run saves and ends with the code that was asked for; and nothing is lost or changed by it."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import pytest

from heedful.errors import HeedfulError
from heedful.training import checkpoint
from heedful.training.api import train
from heedful.training.loop import Interrupted
from heedful.training.signals import EXIT_CODES, catch_signals
from support.training_runs import events, on_step, outcome, settings_of, start_training

POSIX = pytest.mark.skipif(os.name == "nt", reason="Windows cannot send these signals to a process")


@POSIX
def test_every_signal_saves_and_the_same_command_goes_on(corpus, tmp_path, uninterrupted):
    """Asked three times at steps that are no multiples of anything, in three ways."""
    settings = settings_of(corpus, tmp_path / "run", log_every=1)
    assert EXIT_CODES == {"SIGINT": 130, "SIGTERM": 143, "SIGUSR1": 75}
    for step, (name, code) in zip((6, 22, 31), EXIT_CODES.items(), strict=True):
        ask = partial(signal.raise_signal, getattr(signal, name))
        with pytest.raises(Interrupted, match=f"stopped after step {step + 1}, which is saved") as told:
            train(settings, on_event=on_step(step, ask))
        assert told.value.exit_code == code
        assert checkpoint.find_newest(tmp_path / "run").state["step"] == step + 1
    train(settings)
    assert outcome(tmp_path / "run") == uninterrupted
    steps = [one["step"] for one in events(tmp_path / "run", "stepped")]
    assert steps == list(range(1, 41))  # each told once


@POSIX
def test_the_command_ends_with_the_code(corpus, tmp_path):
    settings = settings_of(corpus, tmp_path / "run", steps=10_000)
    child = start_training(settings)
    while not events(tmp_path / "run", "stepped"):
        assert child.poll() is None
        time.sleep(0.05)
    with pytest.raises(HeedfulError, match="another heedful train is running in"):
        train(settings)
    os.kill(child.pid, signal.SIGTERM)
    assert child.wait(60) == 143
    assert "which is saved; to continue, run the same command again" in (tmp_path / "run.log").read_text()


@POSIX
def test_the_second_signal_does_not_wait():
    code = (
        "import signal\n"
        "from heedful.training.signals import catch_signals\n"
        "with catch_signals() as stop_request:\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    assert stop_request.exit_code == 143\n"
        "    print('still here', flush=True)\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "    print('and still', flush=True)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (143, "still here\n"), ended.stderr


def test_handlers_are_put_back_and_other_threads_do_not_listen():
    before = signal.getsignal(signal.SIGINT)
    with catch_signals():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before

    codes = []

    def elsewhere():
        with catch_signals() as stop_request:
            codes.append(stop_request.exit_code)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert codes == [0]


def test_the_checkpoint_says_that_it_was_not_a_regular_one(corpus, tmp_path):
    """Where one rolls back to must not depend on when someone asked."""
    settings = settings_of(corpus, tmp_path / "run", steps=8, validate_every=8, log_every=1)
    with pytest.raises(Interrupted):
        train(settings, on_event=on_step(1, partial(signal.raise_signal, signal.SIGINT)))
    assert checkpoint.find_newest(tmp_path / "run").state["regular"] is False
    train(settings)
    assert checkpoint.find_newest(tmp_path / "run").state["regular"] is True

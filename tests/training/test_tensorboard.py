"""What TensorBoard would show is what the run told."""

import pytest
from typer.testing import CliRunner

from heedful.cli.app import app
from heedful.errors import MissingExtra
from heedful.training.api import train
from heedful.training.tensorboard import FOLDER, TRAINING_FIELDS, VALIDATION_FIELDS, TensorBoard
from support.training_runs import events, on_step, settings_of, write_settings

event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def curves(folder):
    """{tag: [(step, value)]}, as TensorBoard reads them."""
    read = event_accumulator.EventAccumulator(str(folder)).Reload()
    return {tag: [(one.step, one.value) for one in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


class Crash(Exception):
    """Something that nobody foresaw."""


def test_a_run_that_crashed_has_every_step_once(corpus, tmp_path):
    run = tmp_path / "run"
    settings = settings_of(corpus, run, steps=12, save_every=4, validate_every=6, validate_pairs=2, log_every=1)

    def crash():
        raise Crash

    for crashing in (True, False):
        with TensorBoard(run / FOLDER) as board:
            stop = on_step(7, crash) if crashing else lambda _event: None

            def watch(event, board=board, stop=stop):
                board(event)
                stop(event)

            if crashing:
                with pytest.raises(Crash):
                    train(settings, on_event=watch)
            else:
                train(settings, on_event=watch)
    found = curves(run / FOLDER)
    told = {one["step"]: one for one in events(run, "stepped")}
    for name in TRAINING_FIELDS:
        assert [step for step, _ in found[f"train/{name}"]] == list(range(1, 13))
        for step, value in found[f"train/{name}"]:
            assert value == pytest.approx(told[step][name], rel=1e-6)
    seen = {one["weights"] for one in events(run, "validated")}
    assert {f"validation, {weights}/{name}" for weights in seen for name in VALIDATION_FIELDS[:-1]} <= set(found)
    assert not any(name.endswith(VALIDATION_FIELDS[-1]) for name in found)  # text has no accuracy


def test_from_the_command_line(corpus, tmp_path):
    path = write_settings(settings_of(corpus, tmp_path / "run", steps=4, validate_pairs=2, log_every=1))
    done = CliRunner().invoke(app, ["train", str(path), "--tensorboard"])
    assert done.exit_code == 0, done.output
    assert len(curves(tmp_path / "run" / FOLDER)["train/loss"]) == 4


def test_without_the_package_one_is_told_what_to_type(monkeypatch, tmp_path):
    monkeypatch.setattr("heedful.errors.find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r"heedful\[tensorboard\]"):
        TensorBoard(tmp_path)

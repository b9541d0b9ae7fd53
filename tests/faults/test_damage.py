"""Whatever happens to the files of a checkpoint: it is noticed, said, and the one before is taken."""

import random
import shutil

import pytest

from heedful.errors import HeedfulError
from heedful.training import checkpoint
from heedful.training.api import train
from support.checkpoint_damage import damage_file
from support.training_runs import events, on_step, outcome, settings_of


class Crash(Exception):
    pass


def crash():
    raise Crash


@pytest.fixture(scope="module")
def half(corpus, tmp_path_factory):
    """A run that crashed at step 30, with checkpoints of steps 24 and 28."""
    run = tmp_path_factory.mktemp("half") / "run"
    with pytest.raises(Crash):
        train(settings_of(corpus, run, log_every=1), on_event=on_step(30, crash))
    assert [one.name for one in checkpoint.checkpoint_folders(run)] == ["step-00000028", "step-00000024"]
    return run


def test_no_damage_goes_unnoticed(half, tmp_path):
    run = shutil.copytree(half, tmp_path / "run")
    new, old = checkpoint.checkpoint_folders(run)
    draw = random.Random(1)
    for _ in range(100):
        what, mend = damage_file(new, old, draw)
        said = []
        found = checkpoint.find_newest(run, said.append)
        assert found is not None, what
        assert found.folder == old, what
        assert len(said) == 1, what
        assert new.name in said[0], what
        mend()
    assert checkpoint.find_newest(run).folder == new


def copied(half, run):
    """The half of a run, somewhere else: `folder` is a key that may change."""
    return shutil.copytree(half, run)


def test_a_run_goes_on_from_the_one_before_and_says_so(corpus, half, tmp_path, uninterrupted):
    run = copied(half, tmp_path / "run")
    what, _ = damage_file(run / "step-00000028", run / "step-00000024", random.Random(2))
    train(settings_of(corpus, run, log_every=1))
    assert outcome(run) == uninterrupted
    warned = [one["text"] for one in events(run, "note") if one["level"] == "warning"]
    assert any("step-00000028" in text and "falling back to the previous checkpoint" in text for text in warned), what
    assert (run / "damaged-step-00000028").is_dir()  # for whoever wants to look at it


def test_where_nothing_can_be_read_nothing_is_begun_anew(corpus, half, tmp_path):
    run = copied(half, tmp_path / "run")
    for folder in checkpoint.checkpoint_folders(run):
        (folder / "state.json").unlink()
    with pytest.raises(HeedfulError, match="none of its checkpoints can be read"):
        train(settings_of(corpus, run, log_every=1))
    assert len(checkpoint.checkpoint_folders(run)) == 2


def test_damage_while_it_runs_does_not_stop_it(corpus, half, tmp_path, uninterrupted):
    """An old checkpoint and the best one are harmed behind the run's back."""
    run = copied(half, tmp_path / "run")

    def harm():
        for path in (*run.glob("step-*/state.json"), *run.glob("best-*/model.safetensors")):
            path.write_bytes(path.read_bytes()[:10])

    train(settings_of(corpus, run, log_every=1), on_event=on_step(33, harm))
    assert outcome(run) == uninterrupted


def test_weights_that_are_gone_in_the_end_are_left_out(corpus, tmp_path):
    """A learning rate that nothing survives: the best weights are early ones, and someone deletes them."""
    run = tmp_path / "run"

    def harm():
        for folder in run.glob("best-*"):
            shutil.rmtree(folder)
        (run / "step-00000012" / "model.safetensors").write_bytes(b"")

    hopeless = {
        "learning_rate": 10.0,
        "schedule": "constant",
        "best_by": "loss",
        "ema": False,
        "average_checkpoints": 3,
    }
    settings = settings_of(corpus, run, steps=16, validate_every=4, validate_pairs=2, log_every=1, **hopeless)
    assert train(settings, on_event=on_step(15, harm)).is_dir()
    assert outcome(run)["best"]["step"] < 16
    left_out = [one["text"] for one in events(run, "note") if one["text"].endswith("this checkpoint is skipped")]
    assert [("best-" in text, "step-00000012" in text) for text in left_out] == [(True, False), (False, True)]

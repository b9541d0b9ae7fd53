"""Losses and gradients that are nan, inf or a million times too large, all over a run, which is killed as well."""

import random

import pytest
import torch

from heedful.training import checkpoint
from heedful.training.api import train
from heedful.training.spikes import MIN_NORMS
from support.training_runs import (
    events,
    kill_repeatedly,
    on_step,
    outcome,
    random_faults,
    settings_of,
    start_training,
    storm,
)

STEPS = 120


def finite(run):
    """Whether every tensor of every checkpoint and of the model is finite."""
    folders = [*checkpoint.checkpoint_folders(run), *checkpoint.checkpoint_folders(run, "best")]
    every = [load for folder in folders for load in folder.glob("*.safetensors")]
    return every and all(tensor.isfinite().all() for path in every for tensor in tensors(path))


def tensors(path):
    from safetensors.torch import load_file

    return load_file(path).values()


@pytest.mark.slow
def test_weights_stay_finite_and_every_decision_is_the_same_after_a_kill(corpus, tmp_path):
    faults = random_faults(random.Random(7), STEPS, 2)
    same = {"steps": STEPS, "micro_batches": 2, "validate_every": 60, "validate_pairs": 4, "log_every": 1}
    with storm(faults):
        train(settings_of(corpus, tmp_path / "whole", **same), on_event=on_step(100, lambda: None))
    whole = outcome(tmp_path / "whole")
    assert finite(tmp_path / "whole")
    assert whole["spike_guard"]["has_rolled_back"]
    verdicts = [one["why"] for one in events(tmp_path / "whole", "skipped")]
    assert {"not finite", "roll back", "spike"} == set(verdicts)
    assert whole["spike_guard"]["skipped"] == len(verdicts)

    run = tmp_path / "killed"
    settings = settings_of(corpus, run, **same)
    tally = kill_repeatedly(
        lambda: start_training(settings, faults), run, kills=3, steps=STEPS, seconds=2.0, draw=random.Random(8)
    )
    assert (tally.kills, tally.unloadable, tally.code) == (3, 0, 0), run.with_suffix(".log").read_text()
    assert outcome(run) == whole
    assert finite(run)
    told = [
        [(one["step"], one["why"], one["lines"]) for one in events(tmp_path / name, "skipped")]
        for name in ("whole", "killed")
    ]
    assert told[0] == told[1]


def test_a_spike_is_known_right_after_a_resume(corpus, tmp_path):
    """The window of gradients is in the checkpoint: an empty one would take the spike for a gradient like any other."""
    spike = MIN_NORMS + 6
    same = {"steps": MIN_NORMS + 10, "micro_batches": 1, "save_every": 5, "validate_every": 200, "log_every": 1}

    class Crash(Exception):
        pass

    def crash():
        raise Crash

    with storm({(spike, 0): "gradient is huge"}):
        settings = settings_of(corpus, tmp_path / "run", validate_pairs=2, **same)
        with pytest.raises(Crash):
            train(settings, on_event=on_step(spike - 1, crash))
        train(settings)
    assert [(one["step"], one["why"]) for one in events(tmp_path / "run", "skipped")] == [(spike, "spike")]


def test_the_storm_is_real():
    """A test of the test: without the guard, the weights do not survive it."""
    from heedful.data.batch import collate
    from heedful.training.loop import micro_batch_seed
    from support.toy_tasks import transformer

    model = transformer(8)
    batch = collate([([4, 5], [6, 7])], bos=1, eos=2, pad=0)
    norms = {}
    for wrong in ("loss is nan", "gradient is inf", "gradient is huge", None):
        with storm({(3, 1): wrong}):
            torch.manual_seed(micro_batch_seed(1, 3, 1))
            loss = model.train()(batch).smoothed
            model.zero_grad()
            loss.backward()
        norms[wrong] = float(torch.nn.utils.get_total_norm([one.grad for one in model.parameters()]))
    assert not torch.tensor([norms["loss is nan"], norms["gradient is inf"]]).isfinite().any()
    assert norms["gradient is huge"] == pytest.approx(1e6 * norms[None], rel=1e-3)

"""A run that ends too early, for whatever reason, and goes on, is the run that never ended early."""

import json
import random
import signal

import pytest
import torch

from heedful.data.batch import collate
from heedful.errors import HeedfulError
from heedful.training import checkpoint
from heedful.training.api import train
from heedful.training.distributed import World
from heedful.training.events import Stepped
from heedful.training.history import METRICS
from heedful.training.loop import Interrupted
from heedful.training.machine import explain_out_of_memory
from support import process_memory as memory
from support.training_runs import RECURRENT, events, on_step, outcome, random_faults, settings_of, storm


class Crash(Exception):
    """Something that nobody foresaw."""


def crash():
    raise Crash


def ask():
    signal.raise_signal(signal.SIGINT)


PIECES = {"kind": "bpe", "vocab_size": 60, "byte_fallback": False, "subword_regularization": 0.2}
KINDS = {
    "recurrent": {"model": RECURRENT, "optimizer": "adam", "schedule": "cosine", "ema": False},
    "with a CTC head": {"model": RECURRENT | {"ctc_head": {"weight": 0.3}}, "skip_spikes_above": False},
    "in bf16": {"precision": "bf16", "micro_batches": 1, "exact": False},
    "with words cut anew": {"tokenizer": PIECES, "micro_batches": 2},
    "averaged": {"average_checkpoints": 3, "keep_checkpoints": 2, "ema": False, "weight_decay": 0.1},
    "without a validation set": {"validation": False, "clip_norm": False, "best_by": "loss"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_changes_nothing(corpus, tmp_path, kind):
    short = {"steps": 24, "validate_every": 12, "validate_pairs": 4, "log_every": 1, **KINDS[kind]}
    train(settings_of(corpus, tmp_path / "whole", **short))
    settings = settings_of(corpus, tmp_path / "broken", **short)
    for step in (3, 13, 14, 22):
        with pytest.raises(Crash):
            train(settings, on_event=on_step(step, crash))
    train(settings)
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")
    told = [[one["step"] for one in events(tmp_path / run, "stepped")] for run in ("whole", "broken")]
    assert told[0] == told[1] == list(range(1, 25))


def test_a_finished_run_is_left_as_it_is(corpus, tmp_path):
    settings = settings_of(corpus, tmp_path / "run", steps=4, validate_pairs=2)
    model = train(settings)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.safetensors")}
    assert train(settings) == model
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.safetensors")} == before
    assert len(events(tmp_path / "run", "ended")) == 1


def test_a_run_killed_while_it_finishes_is_finished(corpus, tmp_path):
    """Its model is there, but nobody was told how good it is."""
    run = tmp_path / "run"
    train(settings_of(corpus, run, steps=4, validate_pairs=2))
    lines = (run / METRICS).read_text(encoding="utf-8").splitlines(keepends=True)
    assert '"ended"' in lines[-1]
    (run / METRICS).write_text("".join(lines[:-1]), encoding="utf-8")
    (run / "report.html").unlink()
    train(settings_of(corpus, run, steps=4, validate_pairs=2))
    assert len(events(run, "ended")) == 1
    assert "nrefs:1|case:mixed" in (run / "report.html").read_text(encoding="utf-8")


def test_the_checkpoints_that_stay_are_those_that_are_needed(corpus, tmp_path):
    train(
        settings_of(
            corpus, tmp_path / "run", steps=24, validate_every=8, validate_pairs=2, save_every=3, keep_checkpoints=3,
            keep_work_files=True,
        )
    )  # fmt: skip
    names = sorted(path.name for path in (tmp_path / "run").iterdir() if path.is_dir())
    steps = [name for name in names if name.startswith("step-")]
    assert steps == ["step-00000018", "step-00000021", "step-00000024"]
    best = {checkpoint.verify(tmp_path / "run" / name).state["best"]["step"] for name in steps} - {None}
    assert {name for name in names if name.startswith("best-")} >= {
        checkpoint.checkpoint_name(step, "best") for step in best
    }
    assert not list((tmp_path / "run").glob(".tmp-*"))


@pytest.mark.slow
def test_a_run_by_the_clock_can_be_repeated_from_its_journal(corpus, tmp_path):
    """The second run takes another time, and comes to the same bits."""
    settings = settings_of(corpus, tmp_path / "timed", steps=None, time="4s", validate_every=50, validate_pairs=2)
    train(settings)
    state = checkpoint.find_newest(tmp_path / "timed").state
    assert state["refits"]
    assert state["refits"][-1][1] == state["step"]
    again = settings_of(
        corpus, tmp_path / "again", steps=state["steps"], refits=state["refits"], validate_every=50, validate_pairs=2
    )
    train(again)
    weights = [
        {name: hashed for name, hashed in outcome(tmp_path / run).items() if name.endswith(".safetensors")}
        for run in ("timed", "again")
    ]
    assert weights[0] == weights[1]


# ------------------------------------------------------------------------------------------------ bad batches


def row(first, last):
    """Batches that are all bad."""
    return {(batch, 1): "loss is nan" for batch in range(first, last + 1)}


def test_rolling_back_does_not_depend_on_when_someone_asked_to_stop(corpus, tmp_path):
    """Two irregular checkpoints after the regular one of step 16, to which it has to go back from step 24."""
    same = {"save_every": 16, "validate_every": 40, "log_every": 1}
    with storm(row(20, 24)):
        train(settings_of(corpus, tmp_path / "whole", **same))
        settings = settings_of(corpus, tmp_path / "asked", **same)
        for step in (16, 18):
            with pytest.raises(Interrupted):
                train(settings, on_event=on_step(step, ask))
        train(settings)
    assert outcome(tmp_path / "asked") == outcome(tmp_path / "whole")
    assert outcome(tmp_path / "whole")["offset"] == 24 - 16
    skipped = [events(tmp_path / run, "skipped") for run in ("whole", "asked")]
    assert [one["step"] for one in skipped[0]] == [20, 21, 22, 23, 24]
    assert json.dumps(skipped[0]) == json.dumps(skipped[1])  # nan is not equal to itself


def test_what_happens_soon_after_rolling_back_changes_nothing(corpus, tmp_path):
    """Also not in metrics.jsonl, where steps 13 to 18 are told twice: what they were before, and after."""
    same = {"save_every": 12, "validate_every": 40, "log_every": 1, "steps": 32}
    with storm(row(14, 18)):
        train(settings_of(corpus, tmp_path / "whole", **same))
        settings = settings_of(corpus, tmp_path / "broken", **same)
        with pytest.raises(Crash):
            train(settings, on_event=on_step(13, crash, time=2))
        with pytest.raises(Interrupted, match="stopped after step 14"):
            train(settings, on_event=on_step(13, ask, time=2))
        with pytest.raises(Crash):
            train(settings, on_event=on_step(17, crash))
        train(settings)
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")
    for name in ("skipped", "stepped"):
        told = [[one["step"] for one in events(tmp_path / run, name)] for run in ("whole", "broken")]
        assert told[0] == told[1], name


def test_a_loss_that_stays_broken_ends_the_run_with_a_reason(corpus, tmp_path):
    with storm(row(6, 60)), pytest.raises(HeedfulError, match="not finite after rolling back") as told:
        train(settings_of(corpus, tmp_path / "run"))
    assert "train.learning_rate (now 0.005)" in str(told.value)
    assert [one["why"] for one in events(tmp_path / "run", "skipped")] == [
        *["not finite"] * 4, "roll back", *["not finite"] * 4, "stop"
    ]  # fmt: skip
    assert all(tensor.isfinite().all() for tensor in checkpoint.find_newest(tmp_path / "run").tensors("model").values())


def test_skipped_batches_are_told_by_their_lines(corpus, tmp_path):
    lines = (corpus / "train.en").read_text(encoding="utf-8").splitlines()
    with storm({(5, 2): "gradient is inf"}):
        train(settings_of(corpus, tmp_path / "run", steps=8, validate_pairs=2))
    (skipped,) = events(tmp_path / "run", "skipped")
    assert (skipped["step"], skipped["why"]) == (5, "not finite")
    assert skipped["lines"]
    assert all(name == "train" and 1 <= line <= len(lines) for name, line in skipped["lines"])
    assert outcome(tmp_path / "run")["spike_guard"]["skipped"] == 1
    assert outcome(tmp_path / "run")["optimizer_steps"] == 7


def test_a_storm_of_faults_has_every_kind_of_them():
    faults = random_faults(random.Random(5), 120, 4)
    assert len(set(faults.values())) == 4
    assert any(all(batch + k in {b for b, _ in faults} for k in range(6)) for batch, _ in faults)


# ------------------------------------------------------------------------------------------------ memory


@pytest.mark.slow
@pytest.mark.skipif(not memory.MEASURABLE, reason="read from Linux's /proc")
def test_memory_does_not_grow(corpus, tmp_path):
    held = {}

    def watch(event):
        if isinstance(event, Stepped):
            held[event.step] = memory.held("VmRSS")

    train(
        settings_of(
            corpus, tmp_path / "run", steps=400, micro_batches=1, log_every=20, save_every=40, validate_every=100,
            validate_pairs=2,
        ),
        on_event=watch,
    )  # fmt: skip
    assert held[400] - held[160] < 4e6, held


def test_the_number_of_threads_is_a_setting_of_the_run_alone(corpus, tmp_path):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    during = []
    try:
        settings = settings_of(corpus, tmp_path / "run", steps=2, validate_pairs=2, threads=1)
        train(settings, on_event=on_step(2, lambda: during.append(torch.get_num_threads())))
        assert (during, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)


def test_out_of_memory_says_what_to_change():
    batch = collate([([4, 5], [6, 7, 8])] * 3, bos=1, eos=2, pad=0)
    for error in (torch.OutOfMemoryError("CUDA"), MemoryError(), RuntimeError("can't allocate memory: 1 bytes")):
        told = r"a batch of 3 pairs, 4 target tokens long.*train\.micro_batches=4"
        with pytest.raises(HeedfulError, match=told), explain_out_of_memory(batch, 2):
            raise error
    with pytest.raises(RuntimeError, match="shapes do not match"), explain_out_of_memory(batch, 2):
        raise RuntimeError("shapes do not match")


def test_the_pace_of_events_is_the_one_that_was_asked_for(corpus, tmp_path):
    run = tmp_path / "run"
    train(settings_of(corpus, run, steps=10, log_every=3, validate_every=5, save_every=4, validate_pairs=2))
    steps = {name: [one["step"] for one in events(run, name)] for name in ("stepped", "validated", "saved")}
    assert steps["stepped"] == [3, 6, 9, 10]
    assert sorted(set(steps["validated"])) == [5, 10]
    assert steps["saved"] == [0, 4, 5, 8, 10]


def test_processes_that_see_different_disks_are_stopped(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(World, "broadcast", lambda _self, values, _device: [value + 1 for value in values])
    settings = settings_of(corpus, tmp_path / "run", steps=4, validate_pairs=2)
    with pytest.raises(
        HeedfulError, match="the processes found different checkpoints: use a disk that all processes share"
    ):
        train(settings)

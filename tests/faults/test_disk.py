"""A disk that is full for a while: training goes on, says so, keeps what is good, and saves again when it can."""

import os

import pytest

from support.checkpoint_damage import train_with_full_disk
from support.training_runs import SERVER, events, outcome, settings_of, write_settings


@pytest.mark.skipif(os.name == "nt", reason="files are kept small by RLIMIT_FSIZE, which Windows has not")
def test_a_full_disk_costs_checkpoints_and_nothing_else(corpus, tmp_path, uninterrupted):
    run = tmp_path / "run"
    path = write_settings(settings_of(corpus, run))
    child = SERVER.Process(target=train_with_full_disk, args=(str(path), str(tmp_path / "said"), 4096, 12, 28))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert outcome(run) == uninterrupted
    said = (tmp_path / "said").read_text(encoding="utf-8").splitlines()
    for step in (12, 16, 20, 24):
        assert any(text.startswith(f"the checkpoint of step {step} could not be written") for text in said), said
    assert all("the last good one is kept" in text for text in said)
    saved = [one["step"] for one in events(run, "saved")]
    assert saved[-1] == 40
    assert not {12, 16, 20, 24} & set(saved)
    assert not list(run.glob(".tmp-*"))

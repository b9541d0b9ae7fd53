"""Many processes, some of which die: exact mode gives the bits of one process, and nobody waits for the dead."""

import os
import random
import sys
import time
from functools import cache

import pytest
import torch

from heedful.training import checkpoint
from heedful.training.distributed import DdpReducer, init_distributed
from support import process_memory as memory
from support.free_ports import free_port
from support.timeouts import PATIENCE
from support.training_runs import (
    SERVER,
    RankProcesses,
    Torchrun,
    events,
    kill_repeatedly,
    outcome,
    random_faults,
    settings_of,
    start_training,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="PyTorch for Windows has no libuv for these"),
]


def reached(crew, run, step):
    """Wait until a checkpoint is there."""
    while crew.poll() is None and not any(
        one.name >= checkpoint.checkpoint_name(step) for one in checkpoint.checkpoint_folders(run)
    ):
        time.sleep(0.01)
    assert crew.poll() is None, run.with_suffix(".log").read_text()


def ended(crew, run):
    assert crew.wait() == 0, run.with_suffix(".log").read_text()
    return outcome(run)


def test_other_numbers_of_processes_give_the_same_bits(corpus, tmp_path, uninterrupted):
    """1 -> 2 -> 4 -> 1, each killed on the way."""
    run, draw = tmp_path / "run", random.Random(1)
    settings = settings_of(corpus, run)
    for ranks, step in ((1, 8), (2, 16), (4, 28)):
        crew = RankProcesses(ranks, settings, draw)
        reached(crew, run, step)
        crew.kill_all()
    assert ended(RankProcesses(1, settings, draw), run) == uninterrupted
    assert [one["ranks"] for one in events(run, "began")] == [1, 2, 4, 1]


def test_one_of_two_is_killed_and_the_other_ends_by_itself(corpus, tmp_path, uninterrupted):
    run, draw = tmp_path / "run", random.Random(2)
    settings = settings_of(corpus, run, save_every=1)
    tally = kill_repeatedly(lambda: RankProcesses(2, settings, draw), run, kills=2, steps=40, seconds=2.0, draw=draw)
    assert (tally.kills, tally.unloadable, tally.code) == (2, 0, 0), run.with_suffix(".log").read_text()
    assert outcome(run) == uninterrupted


@pytest.mark.skipif(not memory.MEASURABLE, reason="torchrun's processes are found through Linux's /proc")
def test_torchrun_starts_again_what_was_killed(corpus, tmp_path, uninterrupted):
    """Its store still knows the addresses of the dead."""
    run, draw = tmp_path / "run", random.Random(6)
    settings = settings_of(corpus, run, save_every=1)
    start = cache(lambda: Torchrun(2, settings, draw, restarts=10))
    tally = kill_repeatedly(start, run, kills=3, steps=40, seconds=2.0, draw=draw)
    assert (tally.kills, tally.unloadable, tally.code) == (3, 0, 0), run.with_suffix(".log").read_text()
    assert outcome(run) == uninterrupted


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_runs_that_are_not_exact_survive_too(corpus, tmp_path, parallel):
    """Their bits depend on the number of processes, and on nothing else."""
    chosen = {"parallel": parallel, "exact": False}
    draw = random.Random(3)
    crew = RankProcesses(2, settings_of(corpus, tmp_path / "whole", **chosen), draw)
    reached(crew, tmp_path / "whole", 4)
    (tmp_path / "whole" / ".tmp-step-00000036").touch()  # the first process cannot make its folder there
    whole = ended(crew, tmp_path / "whole")
    assert "the checkpoint of step 36 could not be written" in (tmp_path / "whole.log").read_text()

    run = tmp_path / "killed"
    settings = settings_of(corpus, run, save_every=1, **chosen)
    tally = kill_repeatedly(lambda: RankProcesses(2, settings, draw), run, kills=2, steps=40, seconds=2.0, draw=draw)
    assert (tally.kills, tally.unloadable, tally.code) == (2, 0, 0), run.with_suffix(".log").read_text()
    assert outcome(run) == whole
    if parallel == "fsdp":
        assert {"model-00000-of-00002.safetensors", "ema-00001-of-00002.safetensors"} < whole.keys()
        assert start_training(settings).wait(PATIENCE) == 1
        assert "has 2 shards: start 2 processes" in run.with_suffix(".log").read_text()


def test_bad_batches_of_one_process_are_skipped_by_all(corpus, tmp_path):
    """The storm hits single micro-batches, so one process at a time."""
    faults = random_faults(random.Random(4), 40, 4, share=0.2)
    pieces = {"kind": "bpe", "vocab_size": 60, "byte_fallback": False, "subword_regularization": 0.2}
    found = []
    for ranks in (1, 2):
        settings = settings_of(corpus, tmp_path / str(ranks), tokenizer=pieces)
        found.append(ended(RankProcesses(ranks, settings, random.Random(5), faults), tmp_path / str(ranks)))
    assert found[0] == found[1]
    assert found[0]["spike_guard"]["has_rolled_back"]
    assert found[0]["spike_guard"]["skipped"] > 6


def meet_and_part(rank, pipe, times):
    """Join the other process, give the group to DistributedDataParallel, leave."""
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
    for _ in range(times):
        port = str(free_port()) if rank == 0 else pipe.recv()
        if rank == 0:
            pipe.send(port)
        os.environ["MASTER_PORT"] = port
        run_nothing()


def run_nothing():
    with init_distributed(lambda _rank: torch.device("cpu")) as (world, device):
        reducer = DdpReducer(torch.nn.Linear(2, 2), world, device)
        world.broadcast([reducer.gradient_scale], device)


def test_no_process_waits_for_its_own_thread_when_it_leaves():
    """PyTorch's threads need Python's lock to end: without the care of `ProcessGroup`, one of these 80 never ends."""
    pipes = SERVER.Pipe()
    processes = [SERVER.Process(target=meet_and_part, args=(rank, pipes[rank], 80)) for rank in range(2)]
    for one in processes:
        one.start()
    end = time.monotonic() + PATIENCE
    for one in processes:
        one.join(max(0.0, end - time.monotonic()))
        one.kill()
        one.join()
    assert [one.exitcode for one in processes] == [0, 0]

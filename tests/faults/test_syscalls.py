"""Every system call of a save fails once, or is the last that the process makes: a checkpoint always loads."""

from collections import Counter

import pytest

from support.checkpoint_damage import FAILED, break_saves, broken_saves, strace_problem, sync_order
from support.training_runs import SERVER

WRITING = ("openat", "mkdir", "write", "fsync", "rename", "unlink", "unlinkat", "rmdir")


def disk_first(acts, run):
    """Every file and the folder is on the disk before the folder gets its name, and the name before LATEST tells it."""
    appears, told = acts.index(("rename", f"{run}/step-00000003")), acts.index(("rename", f"{run}/LATEST"))
    for name in ("/model.safetensors", "/optimizer.safetensors", "/state.json", "/MANIFEST.json", ""):
        assert ("sync", f"{run}/.tmp-step-00000003{name}") in acts[:appears], name
    assert ("sync", run) in acts[appears:told]
    assert ("sync", f"{run}/.tmp-LATEST") in acts[appears:told]
    gone = acts.index(("rename", f"{run}/.tmp-gone-step-00000001"))
    assert ("sync", run) in acts[told:gone]  # nothing old is given up before the new is there for good


@pytest.mark.slow
@pytest.mark.skipif(bool(strace_problem()), reason=strace_problem() or "strace is there")
def test_a_save_broken_at_any_call_leaves_a_checkpoint_that_loads(tmp_path):
    child = SERVER.Process(target=break_saves, args=(tmp_path, tmp_path / "result", 4, WRITING))
    child.start()
    child.join()
    assert child.exitcode == 0
    disk_first(sync_order(tmp_path / "clean"), str(tmp_path / "run"))
    every = list(broken_saves(tmp_path / "result"))
    assert not [one for one in every if one.wrong]
    codes = Counter(one.code for one in every)
    assert codes[FAILED] > 5  # the injections did something: some saves failed,
    assert codes[-9] > 5  # some were killed,
    assert {one.step for one in every} == {2, 3}  # before and after the new checkpoint appeared

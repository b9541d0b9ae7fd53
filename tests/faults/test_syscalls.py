"""Every system call of a save fails once, or is the last that the process makes: a checkpoint always loads."""

from collections import Counter

import pytest

from harm import FAILED, break_saves, broken_saves, why_not
from trainwork import SERVER

WRITING = ("openat", "mkdir", "write", "fsync", "rename", "unlink", "unlinkat", "rmdir")


@pytest.mark.slow
@pytest.mark.skipif(bool(why_not()), reason=why_not() or "strace is there")
def test_a_save_broken_at_any_call_leaves_a_checkpoint_that_loads(tmp_path):
    child = SERVER.Process(target=break_saves, args=(tmp_path, tmp_path / "result", 4, WRITING))
    child.start()
    child.join()
    assert child.exitcode == 0
    every = list(broken_saves(tmp_path / "result"))
    assert not [one for one in every if one.wrong]
    codes = Counter(one.code for one in every)
    assert codes[FAILED] > 5  # the injections did something: some saves failed,
    assert codes[-9] > 5  # some were killed,
    assert {one.step for one in every} == {2, 3}  # before and after the new checkpoint appeared

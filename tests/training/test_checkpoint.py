"""A checkpoint is there whole or not at all, and what has changed since it was written is never taken."""

import json
import shutil

import pytest
import torch

from heedful.errors import HeedfulError
from heedful.training import checkpoint
from heedful.training.checkpoint import (
    DamagedCheckpoint,
    checkpoint_folders,
    delete_folder,
    find_newest,
    prune,
    read_json_lines,
    remove_unfinished,
    save,
    verify,
)


def tensors(step):
    draw = torch.Generator().manual_seed(step)
    model = {"weight": torch.randn(7, 5, generator=draw), "bias": torch.randn(5, generator=draw)}
    return {"model": model, "optimizer": {"weight.exp_avg": torch.randn(7, 5, generator=draw)}}


def saved(run, *steps):
    """A run with these checkpoints."""
    for step in steps:
        save(run, step, tensors(step), {"step": step, "best": {"metric_value": 0.1 * step}})
    return run


def same(found, step):
    return found.state["step"] == step and all(
        found.tensors(file)[name].equal(tensor) for file, some in tensors(step).items() for name, tensor in some.items()
    )


def bits(tensor):
    return tensor.contiguous().flatten().view(torch.uint8).tolist()


def names(run):
    return sorted(path.name for path in run.iterdir())


def test_everything_comes_back_to_the_bit(tmp_path):
    odd = {
        "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(-0.0),
        "nan": torch.tensor([float("nan"), float("inf"), 1e-45]),
        "half": torch.randn(3).bfloat16(),
        "whole": torch.arange(5),
        "turned": torch.randn(3, 4).T,  # not contiguous
    }
    state = {"step": 12, "elapsed": 0.1 + 0.2, "refits": [[1, 2]], "merit": float("-inf"), "name": "größer"}
    save(tmp_path, 12, {"model": odd}, state)
    found = find_newest(tmp_path)
    assert found.state == state
    back = found.tensors("model")
    assert back.keys() == odd.keys()
    for name, tensor in odd.items():
        assert back[name].dtype == tensor.dtype
        assert bits(back[name]) == bits(tensor), name


def test_the_newest_wins_and_latest_names_it(tmp_path):
    saved(tmp_path, 5, 10, 100_000_000)
    assert same(find_newest(tmp_path), 100_000_000)
    assert (tmp_path / checkpoint.LATEST).read_text() == "step-100000000\n"
    assert find_newest(tmp_path / "nowhere") is None


def test_best_ones_are_no_checkpoints_to_go_on_from(tmp_path):
    saved(tmp_path, 5)
    save(tmp_path, 9, tensors(9), {"step": 9}, prefix="best")
    assert same(find_newest(tmp_path), 5)
    assert same(verify(tmp_path / "best-00000009"), 9)
    assert (tmp_path / checkpoint.LATEST).read_text() == "step-00000005\n"


def test_saving_the_same_again_changes_nothing(tmp_path):
    saved(tmp_path, 5)
    before = (tmp_path / "step-00000005" / checkpoint.MANIFEST).stat().st_mtime_ns
    saved(tmp_path, 5)
    assert (tmp_path / "step-00000005" / checkpoint.MANIFEST).stat().st_mtime_ns == before
    assert names(tmp_path) == ["LATEST", "step-00000005"]


def test_a_damaged_one_is_replaced_when_the_run_comes_by_again(tmp_path):
    saved(tmp_path, 5)
    (tmp_path / "step-00000005" / "model.safetensors").write_bytes(b"")
    saved(tmp_path, 5)
    assert same(find_newest(tmp_path), 5)
    assert names(tmp_path) == ["LATEST", "step-00000005"]


def test_a_save_that_fails_leaves_everything_as_it_was(tmp_path):
    saved(tmp_path, 5)
    before = names(tmp_path)
    with pytest.raises(TypeError):
        save(tmp_path, 10, tensors(10), {"step": 10, "odd": object()})  # after the tensors were written
    assert names(tmp_path) == before
    (tmp_path / ".tmp-step-00000010").write_text("a file where the folder should be")
    with pytest.raises(OSError, match="step-00000010"):
        saved(tmp_path, 10)
    assert same(find_newest(tmp_path), 5)


def test_what_the_writer_of_tensors_could_not_write_is_an_error_of_the_disk(tmp_path):
    with pytest.raises(OSError, match="No such file"):
        checkpoint.write_tensors(tmp_path / "nowhere", tensors(1))


def test_a_run_of_an_older_heedful_is_refused(tmp_path):
    """Neither resumed from nor passed over as damaged."""
    saved(tmp_path, 5, 10)
    manifest = tmp_path / "step-00000005" / checkpoint.MANIFEST
    manifest.write_text(checkpoint.manifest_text(json.loads(manifest.read_text()) | {"format": 1}))
    assert same(find_newest(tmp_path), 10)
    (tmp_path / "step-00000010" / checkpoint.STATE).unlink()
    for refuse in (find_newest, checkpoint.refuse_old_format):
        with pytest.raises(
            HeedfulError, match="step-00000005 was written by an older heedful; finish the run with that version"
        ):
            refuse(tmp_path)


# ------------------------------------------------------------------------------------------------ damage


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def other_format(path):
    path.write_text(checkpoint.manifest_text(json.loads(path.read_text()) | {"format": 99}))


def other_step(path):
    path.write_text(checkpoint.manifest_text(json.loads(path.read_text()) | {"step": 11}))


def spaced(path):
    path.write_text(json.dumps(json.loads(path.read_text())))


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("model.safetensors", cut, "model.safetensors has a different size than when it was written"),
        ("model.safetensors", flip, "model.safetensors has changed since it was written"),
        ("state.json", flip, "state.json has changed since it was written"),
        ("optimizer.safetensors", lambda path: path.unlink(), "does not contain the files listed in its manifest"),
        ("ema.safetensors", lambda path: path.touch(), "does not contain the files listed in its manifest"),
        (checkpoint.MANIFEST, lambda path: path.unlink(), "cannot be read"),
        (checkpoint.MANIFEST, cut, "cannot be read"),
        (checkpoint.MANIFEST, spaced, "MANIFEST.json has changed since it was written"),
        (checkpoint.MANIFEST, other_format, "has format 99, but this version of heedful reads format 2"),
        (checkpoint.MANIFEST, other_step, "contains a different step than its name states"),
        (checkpoint.MANIFEST, lambda path: path.write_text("[]"), "cannot be read"),
    ],
)
def test_damage_is_named_and_the_previous_checkpoint_is_used(tmp_path, file, damage, message):
    saved(tmp_path, 5, 10)
    damage(tmp_path / "step-00000010" / file)
    with pytest.raises(DamagedCheckpoint, match=message):
        verify(tmp_path / "step-00000010")
    said = []
    assert same(find_newest(tmp_path, said.append), 5)
    assert len(said) == 1
    assert "step-00000010" in said[0]
    assert "falling back to the previous checkpoint" in said[0]


def test_a_checkpoint_under_another_s_name_is_refused(tmp_path):
    saved(tmp_path, 5, 10)
    (tmp_path / "step-00000010").rename(tmp_path / "step-00000015")
    said = []
    assert same(find_newest(tmp_path, said.append), 5)
    assert "contains a different step than its name states" in said[0]


def test_what_a_file_browser_leaves_behind_is_no_damage(tmp_path):
    saved(tmp_path, 5)
    (tmp_path / "step-00000005" / ".DS_Store").touch()
    assert same(find_newest(tmp_path), 5)


# ------------------------------------------------------------------------------------------------ forgetting


def test_pruning_keeps_the_newest_and_those_that_are_named(tmp_path):
    saved(tmp_path, 1, 2, 3, 4, 5)
    prune(tmp_path, 2, also_keep=frozenset({"step-00000002"}))
    assert names(tmp_path) == ["LATEST", "step-00000002", "step-00000004", "step-00000005"]
    prune(tmp_path, 7)
    assert len(checkpoint_folders(tmp_path)) == 3


def test_retired_is_gone_even_where_an_earlier_try_left_something(tmp_path):
    saved(tmp_path, 1, 2)
    shutil.copytree(tmp_path / "step-00000002", tmp_path / ".tmp-gone-step-00000001")
    delete_folder(tmp_path / "step-00000001")
    assert names(tmp_path) == ["LATEST", "step-00000002"]


def test_what_an_interrupted_save_left_is_never_taken_and_swept_away(tmp_path):
    saved(tmp_path, 1)
    shutil.copytree(tmp_path / "step-00000001", tmp_path / ".tmp-step-00000002")  # whole, but never renamed
    (tmp_path / ".tmp-LATEST").write_text("step-00000002\n")
    assert same(find_newest(tmp_path), 1)
    remove_unfinished(tmp_path)
    assert names(tmp_path) == ["LATEST", "step-00000001"]


def test_records_are_whole_lines(tmp_path):
    path = tmp_path / "lines"
    assert list(read_json_lines(path)) == []
    path.write_bytes(b'{"a": 1}\nnot json\n{"a": "\xc3\xa9\\u2028"}\n{"a": 3')
    assert list(read_json_lines(path)) == [{"a": 1}, {"a": "é\u2028"}]

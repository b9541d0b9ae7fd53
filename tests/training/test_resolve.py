"""What is decided once stays decided, and a run is never mixed with another."""

import json

import pytest

from heedful.errors import ConfigError
from heedful.training.api import train
from heedful.training.flat_settings import flatten
from heedful.training.resolve import CHANGEABLE_KEYS, REQUESTED, RESOLVED
from support.training_runs import MODEL, outcome, settings_of, write_corpus

SHORT = {"steps": 4, "save_every": 4, "validate_every": 4, "validate_pairs": 2, "ema": False}


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """A run of four steps."""
    run = tmp_path_factory.mktemp("finished") / "run"
    train(settings_of(corpus, run, **SHORT))
    return run


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"learning_rate": 1e-4}, "train.learning_rate: 0.005 before, 0.0001 now"),
        ({"exact": False}, "train.exact: True before, False now"),
        ({"model": MODEL | {"width": 32}}, "model.width: 16 before, 32 now"),
    ],
)
def test_another_setting_is_refused_by_name(corpus, finished, changes, said):
    before = outcome(finished)
    with pytest.raises(ConfigError, match="was started with other settings") as told:
        train(settings_of(corpus, finished, **SHORT | changes))
    assert said in str(told.value)
    assert "--out" in str(told.value)
    assert outcome(finished) == before


def test_another_corpus_is_refused(finished, tmp_path):
    with pytest.raises(ConfigError, match=r"corpus: \w+ before, \w+ now"):
        train(settings_of(write_corpus(tmp_path, pairs=100), finished, **SHORT))


def test_the_same_corpus_elsewhere_is_the_same_corpus(finished, tmp_path):
    before = outcome(finished)
    train(settings_of(write_corpus(tmp_path), finished, **SHORT))
    assert outcome(finished) == before


def test_keys_that_change_no_number_may_change(corpus, finished):
    assert set(CHANGEABLE_KEYS) == {"keep_checkpoints", "keep_work_files", "log_every", "output_dir"}
    before = outcome(finished)
    train(settings_of(corpus, finished, **SHORT | {"keep_checkpoints": 5, "log_every": 1}))
    assert outcome(finished) == before


def test_what_is_left_open_is_worked_out_once(corpus, tmp_path):
    open_ones = {"micro_batches": None, "threads": None, "precision": None, "validate_every": None, "save_every": None}
    notes = []

    def watch(event):
        if type(event).__name__ == "Note" and event.level == "choice":
            notes.append(event.text)

    settings = settings_of(corpus, tmp_path / "run", **SHORT | open_ones)
    train(settings, on_event=watch)
    assert any(note.startswith("precision ") for note in notes)
    written = (tmp_path / "run" / RESOLVED).read_text()
    for key in open_ones:
        assert f"\n{key} = " in written
    notes.clear()
    train(settings, on_event=watch)
    assert not notes
    assert (tmp_path / "run" / RESOLVED).read_text() == written


def test_a_run_has_to_end_sometime(corpus, tmp_path):
    with pytest.raises(ConfigError, match=r"the length of training is not set: set train\.steps"):
        train(settings_of(corpus, tmp_path / "run", **SHORT | {"steps": None}))
    assert not (tmp_path / "run" / RESOLVED).exists()


def test_what_was_asked_is_kept_as_a_flat_table(finished):
    assert flatten({"a": {"b": 1, "c": {}}, "d": [2]}) == [("a.b", 1), ("d", [2])]
    asked = json.loads((finished / REQUESTED).read_text())
    assert asked["train.steps"] == 4
    assert not any(key.startswith(("data.", "train.output_dir")) for key in asked)

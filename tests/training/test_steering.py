"""Steering a run: its corpus is checked first, its length may change, and a stopped run can be made into a model."""

import json
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from heedful.bundle import open_bundle
from heedful.cli.app import app
from heedful.corpus.replay import REPLAY_NAME
from heedful.data.store import open_prepared
from heedful.errors import ConfigError, DataError
from heedful.training.api import train
from heedful.training.checkpoint import checkpoint_folders
from heedful.training.clock import Clock
from heedful.training.data import split_validation
from heedful.training.finetune import OLD_VALIDATION
from heedful.training.history import METRICS
from heedful.training.loop import Interrupted
from heedful.training.resolve import REQUESTED, RESOLVED
from support.training_runs import WORDS, events, on_step, outcome, settings_of

SHORT = {"steps": 12, "save_every": 4, "validate_every": 6, "validate_pairs": 4, "log_every": 1}
WEIGHTS = ("model.safetensors", "optimizer.safetensors", "ema.safetensors")


def run_heedful(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.output + (str(result.exception) if result.exception else "")


def weights_of(run: Path) -> dict:
    return {name: digest for name, digest in outcome(run).items() if name in WEIGHTS}


def interrupt():
    import os
    import signal

    os.kill(os.getpid(), signal.SIGINT)


# ---------------------------------------------------------------------------------------------------- another length


@settings(deadline=None)
@given(st.integers(4, 500), st.integers(1, 500), st.data())
def test_a_finished_schedule_continues_as_one_of_the_new_length(steps, extra, data):
    """p(k) = steps * k / end after the old last step, whatever the corrections before it."""
    clock = Clock(steps)
    for _ in range(data.draw(st.integers(0, 3))):
        last = clock.refits[-1][0] if clock.refits else 0
        if last + 1 >= clock.end:
            break
        step = data.draw(st.integers(last + 1, clock.end - 1))
        clock = clock.refit(step, data.draw(st.integers(step, step + 100)))
    old_end = clock.end
    longer = clock.refit(old_end, old_end + extra)
    for step in range(old_end + 1, longer.end + 1):
        assert longer.position(step) == pytest.approx(steps * step / longer.end)
    assert [longer.position(step) for step in range(old_end + 1)] == [
        clock.position(step) for step in range(old_end + 1)
    ]


def test_an_extended_run_equals_a_run_with_this_correction(corpus, tmp_path):
    """A finished run of 12 steps, extended to 20, has the weights of one run whose schedule is refitted at step 12."""
    extended, single = tmp_path / "extended", tmp_path / "single"
    train(settings_of(corpus, extended, **SHORT))
    train(settings_of(corpus, extended, **SHORT | {"steps": 20}))
    train(settings_of(corpus, single, **SHORT, refits=((12, 20),)))
    assert weights_of(extended) == weights_of(single)
    assert outcome(extended)["step"] == 20
    assert [event["step"] for event in events(extended, "ended")] == [12, 20]
    learning_rates = {event["step"]: event["learning_rate"] for event in events(extended, "stepped")}
    assert learning_rates[12] == pytest.approx(0.0, abs=1e-12)
    assert learning_rates[13] > learning_rates[20] == pytest.approx(0.0, abs=1e-12)


def test_an_extended_run_can_be_interrupted(corpus, tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    for run in (whole, stopped):
        train(settings_of(corpus, run, **SHORT))
    train(settings_of(corpus, whole, **SHORT | {"steps": 20}))
    for step in (14, 18):
        with pytest.raises(Interrupted):
            train(settings_of(corpus, stopped, **SHORT | {"steps": 20}), on_event=on_step(step, interrupt))
    train(settings_of(corpus, stopped, **SHORT | {"steps": 20}))
    assert weights_of(stopped) == weights_of(whole)


def test_a_stopped_run_stretches_the_rest_of_its_schedule(corpus, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(settings_of(corpus, run, **SHORT), on_event=on_step(6, interrupt))
    train(settings_of(corpus, run, **SHORT | {"steps": 18}))
    assert outcome(run)["refits"] == [[7, 18]]


@pytest.mark.slow
def test_a_longer_time_continues_a_run(corpus, tmp_path):
    run = tmp_path / "run"
    timed = SHORT | {"steps": None, "validate_every": 50}
    train(settings_of(corpus, run, **timed, time="3s"))
    first = outcome(run)
    train(settings_of(corpus, run, **timed, time="8s"))
    assert outcome(run)["step"] > 1.3 * first["step"]
    assert events(run, "ended")[-1]["elapsed"] < 12


@pytest.mark.parametrize("length", [{"steps": 12}, {"steps": 5}, {"steps": None, "time": "1s"}])
def test_a_run_cannot_be_made_shorter_than_it_is(corpus, tmp_path, length):
    run = tmp_path / "run"
    train(settings_of(corpus, run, **SHORT | {"steps": 14}))
    before = (run / RESOLVED).read_text(), (run / REQUESTED).read_text()
    state = json.loads((checkpoint_folders(run)[0] / "state.json").read_text())
    (checkpoint_folders(run)[0] / "state.json").write_text(json.dumps(state | {"elapsed": 100.0}))
    with pytest.raises(ConfigError, match=r"has already taken 14 steps.*--finish"):
        train(settings_of(corpus, run, **SHORT | length))
    assert ((run / RESOLVED).read_text(), (run / REQUESTED).read_text()) == before


def test_scoring_counts_as_time_of_a_run(corpus, tmp_path):
    run = tmp_path / "run"
    train(settings_of(corpus, run, **SHORT))
    lines = (run / METRICS).read_text().splitlines()
    ended = json.loads(lines[-1])
    assert ended["event"] == "ended"
    (run / METRICS).write_text("\n".join([*lines[:-1], json.dumps(ended | {"elapsed": 100.0})]) + "\n")
    with pytest.raises(ConfigError, match=r"has already taken 12 steps in 2m"):
        train(settings_of(corpus, run, **SHORT | {"steps": None, "time": "99s"}))


def test_the_directory_of_a_run_stands_for_its_settings(corpus, tmp_path):
    run = tmp_path / "run"
    train(settings_of(corpus, run, **SHORT))
    before = outcome(run)
    code, output = run_heedful("train", run)
    assert code == 0, output
    assert "already finished" in output
    assert outcome(run) == before
    code, output = run_heedful("train", run, "--steps", "16")
    assert code == 0, output
    assert outcome(run)["step"] == 16
    code, output = run_heedful("train", run, "--out", tmp_path / "other")
    assert code == 0, output
    assert outcome(tmp_path / "other")["step"] == 16
    code, output = run_heedful("train", tmp_path)
    assert code != 0
    assert "is a directory without a heedful.toml" in output


def test_a_copy_of_a_run_does_not_change_the_original(corpus, tmp_path):
    run, copied = tmp_path / "run", tmp_path / "copied"
    train(settings_of(corpus, run, **SHORT))
    shutil.copytree(run, copied)
    before = outcome(run)
    code, output = run_heedful("train", copied, "--steps", "16")
    assert code == 0, output
    assert outcome(copied)["step"] == 16
    assert outcome(run) == before


# ---------------------------------------------------------------------------------------------------- --finish


def test_a_stopped_run_can_be_finished_and_continued(corpus, tmp_path):
    """A model of the best weights so far; the run itself can go on as if nothing had happened."""
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    train(settings_of(corpus, whole, **SHORT))
    with pytest.raises(Interrupted, match=r"heedful train .*stopped --finish"):
        train(settings_of(corpus, stopped, **SHORT), on_event=on_step(7, interrupt))
    assert not (stopped / "model").exists()
    code, output = run_heedful("train", stopped, "--finish")
    assert code == 0, output
    assert "finished on request, of 12 steps" in output
    assert " 0 steps left" in output
    model = open_bundle(stopped / "model")
    assert model.scores["validation"]
    assert [event["step"] for event in events(stopped, "ended")] == [8]
    train(settings_of(corpus, stopped, **SHORT))
    assert outcome(stopped) == outcome(whole)
    assert [event["step"] for event in events(stopped, "ended")] == [8, 12]


def test_finishing_needs_a_checkpoint(corpus, tmp_path):
    with pytest.raises(ConfigError, match="has no checkpoint to make a model from: train first"):
        train(settings_of(corpus, tmp_path / "run", **SHORT), finish=True)


# ---------------------------------------------------------------------------------------------------- heedful check


@pytest.fixture
def shuffled(tmp_path):
    """400 pairs whose two sides do not belong together."""
    draw = random.Random(1)
    sources = [draw.choices(list(WORDS), k=draw.randint(5, 12)) for _ in range(400)]
    targets = [[WORDS[word] for word in words] for words in sources]
    draw.shuffle(targets)
    for name, lines in (("train.en", sources), ("train.de", targets)):
        (tmp_path / name).write_text("".join(" ".join(words) + "\n" for words in lines), encoding="utf-8")
    return tmp_path


def test_a_faulty_corpus_stops_a_new_run(shuffled, tmp_path):
    chosen = {"validation": False, **SHORT}
    with pytest.raises(DataError, match="heedful check found errors in the corpus:\n") as caught:
        train(settings_of(shuffled, tmp_path / "run", **chosen))
    assert "the two sides do not look like translations of each other: 400 (100.0%)" in str(caught.value)
    advice = "See them with heedful check (--fix writes a repaired copy), or train on the corpus as it is with --force"
    assert advice in str(caught.value)
    assert not (tmp_path / "run" / RESOLVED).exists()
    train(settings_of(shuffled, tmp_path / "run", **chosen), force=True)
    train(settings_of(shuffled, tmp_path / "run", **chosen | {"steps": 14}))  # its corpus is known


@pytest.mark.parametrize("overlap", ["pair", "keep"])
def test_pairs_that_prepare_drops_or_that_the_settings_keep_do_not_stop_a_run(overlap, corpus, tmp_path):
    for side in ("en", "de"):
        lines = (corpus / f"train.{side}").read_bytes() + (corpus / f"val.{side}").read_bytes()
        (tmp_path / f"train.{side}").write_bytes(lines)
        (tmp_path / f"val.{side}").write_bytes((corpus / f"val.{side}").read_bytes())
    chosen = settings_of(tmp_path, tmp_path / "run", **SHORT | {"steps": 2, "validate_pairs": 2})
    train(chosen.model_copy(update={"clean": chosen.clean.model_copy(update={"overlap": overlap})}))


# ---------------------------------------------------------------------------------------------------- files that stay


@pytest.mark.parametrize("keep", [False, True])
def test_a_finished_run_keeps_only_what_it_needs(corpus, tmp_path, keep):
    run = tmp_path / "run"
    chosen = settings_of(corpus, run, **SHORT, keep_work_files=keep)
    inside = chosen.data.model_copy(update={"prepared_dir": str(run / "prepared")})
    train(chosen.model_copy(update={"data": inside}))
    stages = {path.name for path in (run / "prepared").iterdir() if path.is_dir()}
    assert {"tokens", "text", "vocabulary"} <= stages
    assert ({"cut", "clean"} <= stages) == keep
    assert (len(checkpoint_folders(run)) > 1) == keep
    before = outcome(run)
    train(chosen.model_copy(update={"data": inside}))  # what was deleted is not needed, or made again
    assert outcome(run) == before
    longer = chosen.train.model_copy(update={"steps": 16})
    train(chosen.model_copy(update={"data": inside, "train": longer}))
    assert outcome(run)["step"] == 16


# ---------------------------------------------------------------------------------------------------- fine-tuning


@pytest.fixture(scope="module")
def old_run(corpus, tmp_path_factory):
    """A run of the toy language."""
    run = tmp_path_factory.mktemp("old") / "run"
    train(settings_of(corpus, run, **SHORT))
    return run


def finetune(old_run, corpus, run, *options):
    """Fine-tune through the command line; the events of the new run."""
    files = [corpus / "train.en", corpus / "train.de"]
    code, output = run_heedful(
        "train", *files, "--from", old_run / "model", "--out", run, "--steps", 4, *options,
        "--set", "train.validate_pairs=4", "--set", "train.micro_batches=1", "--set", "train.threads=1",
        "--set", "train.batch_tokens=600", "--set", "train.precision=fp32",
    )  # fmt: skip
    assert code == 0, output
    return output


def test_fine_tuning_measures_what_is_forgotten(old_run, corpus, tmp_path):
    run = tmp_path / "new"
    finetune(old_run, corpus, run)
    (note,) = (event["text"] for event in events(run, "note") if "forgotten" in event["text"])
    assert "chrF" in note
    scores = events(run, "ended")[-1]["scores"]
    assert {OLD_VALIDATION, f"{OLD_VALIDATION}_before"} <= set(scores)
    assert scores[f"{OLD_VALIDATION}_before"]["chrf"]["value"] > 0
    lines = (run / f"{OLD_VALIDATION}.en").read_text(encoding="utf-8").splitlines()
    assert lines == (corpus / "val.en").read_text(encoding="utf-8").splitlines()[: len(lines)]


def test_without_the_old_run_nothing_is_measured(old_run, corpus, tmp_path):
    model = tmp_path / "elsewhere"
    (old_run / "model").rename(model)
    try:
        code, output = run_heedful(
            "train", corpus / "train.en", corpus / "train.de", "--from", model, "--out", tmp_path / "new",
            "--replay", "0.3", "--steps", 4,
        )  # fmt: skip
        assert code != 0
        assert "the directory above it is not a run" in output
    finally:
        model.rename(old_run / "model")


def test_replay_mixes_in_old_pairs_but_validates_on_new_ones(old_run, corpus, tmp_path):
    new = tmp_path / "data"
    new.mkdir()
    for side in ("en", "de"):
        lines = (corpus / f"train.{side}").read_text(encoding="utf-8").splitlines()[:60]
        text = "".join(f"{line} {line.split()[0]}\n" for line in lines)
        (new / f"train.{side}").write_text(text, encoding="utf-8")
    run = tmp_path / "new"
    finetune(old_run, new, run, "--replay", "0.25")
    prepared = open_prepared(run / "prepared")
    assert [corpus.name for corpus in prepared.train] == ["train", f"{REPLAY_NAME}1"]
    assert prepared.corpus_weights == [0.75, 0.25]
    learned, validation = split_validation(prepared, 4)
    assert learned[1].num_rows == prepared.train[1].num_rows
    assert set(validation.texts) <= set((new / "train.en").read_text(encoding="utf-8").splitlines())
    assert events(run, "ended")


@pytest.mark.parametrize("share", ["0", "1", "1.5"])
def test_a_share_is_between_0_and_1(old_run, corpus, tmp_path, share):
    code, output = run_heedful(
        "train", corpus / "train.en", corpus / "train.de", "--from", old_run / "model", "--replay", share,
        "--out", tmp_path / "new", "--steps", 4,
    )  # fmt: skip
    assert code != 0
    assert "expected a share of the batches between 0 and 1, such as 0.3" in output


def test_replay_needs_a_model(corpus, tmp_path):
    code, output = run_heedful(
        "train", corpus / "train.en", corpus / "train.de", "--replay", "0.3", "--out", tmp_path / "new", "--steps", 4
    )
    assert code != 0
    assert "add --from with that model" in output

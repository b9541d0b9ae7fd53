"""What a model is judged by is never what it learned from."""

import itertools

import pytest

import heedful
from heedful.bundle import open_bundle
from heedful.data.prepare import prepare
from heedful.errors import DataError
from heedful.training.api import train
from heedful.training.data import make_plan, regularize, split_validation
from heedful.training.events import Note
from heedful.training.finish import choose_length_penalty
from heedful.training.validate import group_by_tokens
from support.training_runs import events, settings_of, write_corpus

PIECES = {"kind": "bpe", "vocab_size": 60, "byte_fallback": False}


def sources_learned(prepared, plan):
    """The sources of every pair in the batches of two passes."""
    (whole,) = prepared.train
    every = [text for folder in range(len(whole.folders)) for text in whole.texts("source", folder)]
    steps = itertools.takewhile(lambda step: plan.epoch_positions(step)[0].epoch < 2, itertools.count())
    return {every[row] for step in steps for micro in plan.batch(step) for row in micro.rows.tolist()}


@pytest.mark.parametrize("regularization", [0.0, 0.2])
def test_pairs_held_out_are_in_no_batch(corpus, tmp_path, regularization):
    tokenizer = PIECES | {"subword_regularization": regularization}
    settings = settings_of(corpus, tmp_path / "run", tokenizer=tokenizer, validation=False)
    prepared = prepare(settings)
    learned, held = split_validation(prepared, 20)
    corpora = regularize(prepared, learned, regularization, settings.seed)
    assert len(held) == 20
    assert sum(one.num_rows for one in corpora) + 20 == prepared.train[0].num_rows
    seen = sources_learned(
        prepared, make_plan(prepared, corpora, seed=settings.seed, batch_tokens=256, micro_batches=4)
    )
    assert len(seen) == corpora[0].num_rows  # everything else is in one
    assert not seen & set(held.texts)


def test_a_validation_set_is_read_in_its_order_and_nothing_is_held_out(corpus, tmp_path):
    prepared = prepare(settings_of(corpus, tmp_path / "run"))
    learned, held = split_validation(prepared, 5)
    assert learned == prepared.train
    assert held.texts == (corpus / "val.en").read_text(encoding="utf-8").splitlines()[:5]
    assert held.references == (corpus / "val.de").read_text(encoding="utf-8").splitlines()[:5]
    assert prepared.tokenizer("target").decode(held.targets) == held.references


def test_too_few_pairs_to_hold_some_out(tmp_path):
    settings = settings_of(write_corpus(tmp_path, pairs=8), tmp_path / "run", validation=False)
    with pytest.raises(DataError, match="too small to hold out pairs for validation: use at least 10"):
        split_validation(prepare(settings), 100)


def test_groups_stay_below_the_budget():
    groups = group_by_tokens(list("abcdef"), [2, 3, 3, 9, 1, 1], 6)
    assert groups == [["a", "b"], ["c"], ["d"], ["e", "f"]]


def test_a_run_stops_when_it_gets_no_better(corpus, tmp_path):
    """A learning rate that nothing survives: the first validations are the best."""
    settings = settings_of(
        corpus, tmp_path / "run", steps=60, learning_rate=10.0, validate_every=4, validate_pairs=2, patience=2,
        best_by="loss", ema=False,
    )  # fmt: skip
    train(settings)
    (ended,) = events(tmp_path / "run", "ended")
    assert ended["why"] == "no improvement in the last 2 validations"
    assert ended["step"] < 60
    validated = [one for one in events(tmp_path / "run", "validated") if one["step"] < ended["step"]]
    assert sum(one["best"] for one in validated) >= 1


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
@pytest.mark.parametrize(("mended", "chosen"), [(0, 1.0), (1, 1.0), (60, 1.4)])
def test_another_penalty_must_be_better_beyond_chance(metric, mended, chosen):
    references = [f"a {n} b {n + 1} c {n + 2} d" for n in range(100)]
    usual = [text.replace("c", "x") for text in references]
    said = {1.0: usual, 1.4: [*references[:mended], *usual[mended:]], 0.6: [text[:-4] for text in usual]}
    assert choose_length_penalty(said, references, metric) == chosen
    assert choose_length_penalty({1.0: usual}, references, metric) == 1.0


def test_training_calibrates_the_model_if_there_is_enough_validation_text(tmp_path, monkeypatch):
    folder = write_corpus(tmp_path, pairs=120)
    settings = settings_of(folder, folder / "run", steps=2, validate_every=2, save_every=2)
    emitted = []
    model = train(settings, on_event=emitted.append)
    reasons = [event.text for event in emitted if isinstance(event, Note)]
    assert any("reports no confidence: a calibrated confidence needs at least 2,000" in reason for reason in reasons)
    assert "calibration" not in open_bundle(model).statistics
    for module in ("heedful.confidence", "heedful.training.finish"):
        monkeypatch.setattr(f"{module}.MIN_SENTENCES", 5)
    monkeypatch.setattr("heedful.confidence.GROUPS", 2)
    monkeypatch.setattr("heedful.confidence.BINS", 2)
    model = train(settings_of(folder, folder / "other", steps=2, validate_every=2, save_every=2))
    translator = heedful.load(model)
    assert translator.calibration.sentences >= 5
    assert translator("a red house", confidence=True).confidence is not None

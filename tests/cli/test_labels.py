"""From a table with labels to a model that labels, by the command line: train, translate, evaluate, inspect."""

import json
import random

import pytest
from typer.testing import CliRunner

import heedful
from heedful.bundle import open_bundle
from heedful.cli.app import app
from heedful.config import parse_settings
from heedful.data.prepare import prepare
from heedful.errors import DataError, HeedfulError
from heedful.metrics.labels import split_slots
from heedful.training.api import train
from heedful.training.events import Note, Validated
from heedful.training.finetune import apply_finetuning_defaults
from support.training_runs import TRAIN, outcome

WORDS = ["the", "film", "actor", "music", "was", "really", "quite", "story", "good", "bad"]
MODEL = {"width": 16, "tie_embeddings": "none", "encoder": {"kind": "recurrent", "width": 16}}


def make_rows(count, seed, *, per_slot=False):
    draw, rows = random.Random(seed), []
    for _ in range(count):
        words = [*draw.choices(WORDS[:-2], k=draw.randint(2, 6)), draw.choice(WORDS[-2:])]
        draw.shuffle(words)
        tags = " ".join("ADJECTIVE" if word in WORDS[-2:] else "other" for word in words)
        rows.append((" ".join(words), tags if per_slot else "positive" if "good" in words else "negative"))
    return rows


def write(path, rows):
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def settings_for(folder, *, per_slot=False, **changes):
    """A run on the tables in a folder."""
    tree = {
        "source": "en",
        "target": "labels",
        "data": {
            "prepared_dir": str(folder / "prepared"),
            **{
                split: [{"files": [str(folder / f"{split}.tsv")], "columns": [1, 2]}]
                for split in ("train", "validation")
            },
        },
        "tokenizer": {"kind": "fields", "vocab_size": 60},
        "model": {**MODEL, "decoder": {"kind": "labels", "pooling": "none" if per_slot else "attention"}},
        "train": {
            **TRAIN,
            "steps": 100,
            "validate_pairs": 40,
            "learning_rate": 2e-2,
            "output_dir": str(folder / "run"),
            **changes,
        },
    }
    return parse_settings(tree)


@pytest.fixture(scope="module", params=[False, True], ids=["one", "per slot"])
def labeler(request, tmp_path_factory):
    folder, events = tmp_path_factory.mktemp("labels"), []
    for split, count, seed in (("train", 200, 1), ("validation", 40, 2), ("test", 30, 3)):
        rows = make_rows(count, seed, per_slot=request.param)
        write(folder / f"{split}.tsv", rows)
        for name, lines in zip(("txt", "labels"), zip(*rows, strict=True), strict=True):
            (folder / f"{split}.{name}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    model = train(settings_for(folder, per_slot=request.param), force=True, on_event=events.append)
    return folder, model, events, request.param


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_training_reports_labels_and_accuracy(labeler):
    _, model, events, per_slot = labeler
    (note,) = [event.text for event in events if isinstance(event, Note) and event.text.startswith("labels: ")]
    assert ("each slot" in note) == per_slot
    assert "one of 2 labels" in note
    validations = [event for event in events if isinstance(event, Validated)]
    assert validations[-1].accuracy > 90
    assert validations[-1].chrf is None
    scores = json.loads((model / "eval.json").read_text("utf-8"))
    assert scores["validation"]["accuracy"]["value"] > 90
    assert open_bundle(model).generation.beam == 1


def test_translate_prints_label_and_probability(labeler):
    folder, model, _, per_slot = labeler
    lines = run("translate", model, folder / "test.txt").splitlines()
    rows = make_rows(30, 3, per_slot=per_slot)
    labels, probabilities = zip(*(line.split("\t") for line in lines), strict=True)
    assert all(0 < float(probability) <= 1 for probability in probabilities)
    predicted, true = (split_slots(labels, [label for _, label in rows]) if per_slot
                       else (labels, [label for _, label in rows]))  # fmt: skip
    assert sum(map(str.__eq__, predicted, true)) > 0.9 * len(true)
    if not per_slot:
        best = json.loads(run("translate", model, folder / "test.txt", "--json").splitlines()[0])
        assert best["text"] == labels[0]
        ranked = run("translate", model, folder / "test.txt", "--nbest", "2").splitlines()
        assert {line.split(" ||| ")[1] for line in ranked[:2]} == {"positive", "negative"}


def test_evaluate_prints_accuracy_f1_and_confusions(labeler):
    folder, model, _, per_slot = labeler
    arguments = ("evaluate", model, folder / "test.labels", "--source", folder / "test.txt", "--samples", "20")
    text = run(*arguments)
    assert "accuracy" in text
    assert "macro F1" in text
    assert "precision" in text
    tree = json.loads(run(*arguments, "--json"))
    assert {score["name"] for score in tree["scores"]} == {"accuracy", "f1"}
    assert sum(map(sum, tree["confusion"]["counts"])) == tree["labels"]
    assert (tree["labels"] > 30) == per_slot
    if per_slot:
        unknown = [
            " ".join("?" * len(line.split())) for line in (folder / "test.labels").read_text("utf-8").splitlines()
        ]
        (folder / "unknown.labels").write_text("".join(f"{line}\n" for line in unknown), encoding="utf-8")
        done = CliRunner().invoke(app, ["evaluate", str(model), str(folder / "unknown.labels"), *arguments[3:5]])
        assert "has no known labels: every slot is `?`" in str(done.exception)


def test_inspect_shows_the_pooling(labeler, tmp_path):
    _, model, _, per_slot = labeler
    page = heedful.inspect(model, "the film was good")
    (sentence,) = page.trace.sentences
    assert ("cross" in sentence.attention) != per_slot
    result = CliRunner().invoke(app, ["inspect", str(model), "the film was good", "--out", str(tmp_path / "page.html")])
    assert result.exit_code == 0
    assert "not which word is the reason" in result.output


def test_exports_are_refused_in_words(labeler, tmp_path):
    _, model, _, _ = labeler
    for target in ("onnx", "ctranslate2", "hugging_face"):
        with pytest.raises(HeedfulError, match="models of labels"):
            heedful.export(model, tmp_path / target, to=target)


def test_the_same_run_gives_the_same_model(labeler):
    folder, _, _, per_slot = labeler
    again = settings_for(folder, per_slot=per_slot, output_dir=str(folder / "again"))
    train(again, force=True)
    assert outcome(folder / "again") == outcome(folder / "run")


def test_a_model_of_labels_is_fine_tuned_with_labels(labeler):
    folder, model, _, per_slot = labeler
    settings = settings_for(folder, per_slot=per_slot).model_copy(update={"model": None, "init_from": str(model)})
    tuned = apply_finetuning_defaults(settings)
    assert (tuned.output.kind, tuned.output.per_slot, tuned.train.best_by) == ("labels", per_slot, "accuracy")


def test_a_source_with_more_tokens_than_labels_is_dropped_or_refused(tmp_path):
    rows = make_rows(60, 1, per_slot=True)
    write(tmp_path / "train.tsv", [*rows, ("one two three", "other")])
    write(tmp_path / "validation.tsv", rows[:9])
    prepared = prepare(settings_for(tmp_path, per_slot=True))
    assert prepared.manifest["counts"]["dropped.unequal_labels"] == 1
    write(tmp_path / "validation.tsv", [*rows[:9], ("one two three", "other")])
    with pytest.raises(DataError, match=r"line 10 has 3 tokens but 1 labels: output\.per_slot needs a label"):
        prepare(settings_for(tmp_path, per_slot=True))


def test_a_labeler_refuses_what_only_translators_do(labeler):
    _, model, _, _ = labeler
    labeler_model = heedful.load(model)
    with pytest.raises(HeedfulError, match="`alignment` is for models that translate text"):
        labeler_model("the film", alignment="shifted")

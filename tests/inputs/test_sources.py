"""Sources that are not text, from files to answers: pictures, and none at all (language models)."""

import json
import math

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import heedful
from heedful.cli.app import app
from heedful.config import parse_settings
from heedful.corpus.launchers import LocalLauncher
from heedful.data.prepare import prepare
from heedful.data.store import open_prepared
from heedful.engines.base import SamplingOptions
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.inputs.kinds import INPUTS, make_input
from heedful.training.api import train
from heedful.training.data import load_data, make_plan
from support.picture_runs import language_model_settings, picture_settings, write_pictures, write_sentences
from support.training_runs import outcome


@pytest.fixture(scope="module")
def captions(tmp_path_factory):
    folder = write_pictures(tmp_path_factory.mktemp("captions"))
    return folder, train(picture_settings(folder, folder / "run", steps=240, learning_rate=1e-2))


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    folder = write_sentences(tmp_path_factory.mktemp("language"))
    return folder, train(language_model_settings(folder, folder / "run"))


def run(*arguments, text=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=text)


# ------------------------------------------------------------------------------------------------------- prepared data


def test_every_kind_has_a_section_and_says_which_sides_are_text():
    sections = [{"kind": "text"}, {"kind": "none"}, {"kind": "image"}]
    for section in sections:
        tree = {"source": "de", "target": "en"} if section["kind"] == "text" else {"target": "en"}
        settings = parse_settings({**tree, "input": section, "data": {"train": [{"files": ["a.tsv"]}]}})
        inputs = make_input(settings.input)
        assert isinstance(inputs, INPUTS[section["kind"]])
        assert inputs.text_sides[-1] == "target"
    assert {section["kind"] for section in sections} <= INPUTS.keys()


def test_rows_of_pictures_are_their_patches(captions):
    folder, _ = captions
    prepared = open_prepared(folder / "prepared")
    corpus, inputs = prepared.train[0], make_input(picture_settings(folder, folder).input)
    assert not prepared.has_text_source
    sources = corpus.texts_of_rows("source", range(corpus.num_rows))
    assert sorted(sources) == sorted({f"pictures/train{number}.png" for number in range(120)})
    for (row, _), source in zip(corpus.pairs(range(corpus.num_rows)), sources, strict=True):
        assert row.shape == (16, 48)
        picture = np.asarray(Image.open(folder / source).convert("RGB"))
        assert np.array_equal(inputs.picture(row), picture)


def test_prepared_bytes_do_not_depend_on_the_number_of_workers(tmp_path):
    folder = write_pictures(tmp_path, count=60)
    settings = picture_settings(folder, folder / "run")
    trees = []
    for name, launcher in (("one", LocalLauncher(1)), ("two", LocalLauncher(2))):
        data = settings.data.model_copy(update={"prepared_dir": str(tmp_path / name)})
        prepare(settings.model_copy(update={"data": data}), launcher=launcher)
        paths = [path for path in sorted((tmp_path / name).rglob("*")) if path.is_file()]
        trees.append(
            {
                path.relative_to(tmp_path / name): path.read_bytes()
                for path in paths
                if path.name not in ("settings.toml", ".heedful")  # they contain the directory
            }
        )
    assert trees[0] == trees[1]


def test_a_changed_picture_is_prepared_again(tmp_path):
    folder = write_pictures(tmp_path, count=30)
    settings = picture_settings(folder, folder / "run")
    first = prepare(settings).fingerprint
    assert prepare(settings).fingerprint == first
    Image.new("RGB", (16, 16), "purple").save(folder / "pictures" / "train0.png")
    assert prepare(settings).fingerprint != first


def test_unreadable_pictures_are_dropped_with_their_reason(tmp_path):
    folder = write_pictures(tmp_path, count=30)
    (folder / "pictures" / "train3.png").write_bytes(b"not a picture")
    (folder / "pictures" / "train4.png").unlink()
    prepared = prepare(picture_settings(folder, folder / "run"))
    assert prepared.train[0].num_rows == 28
    rejects = [json.loads(line) for line in (folder / "prepared" / "rejects.jsonl").read_text("utf-8").splitlines()]
    reasons = {reject["line"]: reject["reason"] for reject in rejects}
    assert reasons.keys() == {4, 5}
    assert "there is no such file" in reasons[5]
    assert prepared.manifest["counts"]["dropped.unreadable"] == 2


def test_an_unreadable_picture_of_a_test_set_is_an_error(tmp_path):
    folder = write_pictures(write_pictures(tmp_path, count=30), count=5, name="test", seed=2)
    (folder / "pictures" / "test2.png").unlink()
    tree = picture_settings(folder, folder / "run").model_dump(exclude_unset=True)
    tree["data"]["test"] = [{"files": [f"{folder}/test.tsv"]}]
    with pytest.raises(DataError, match=r"test2\.png: there is no such file.*every line"):
        prepare(parse_settings(tree))


def test_variations_depend_on_epoch_and_row_only(captions):
    folder, _ = captions
    settings = picture_settings(folder, folder)
    batches = []
    for _ in range(2):
        data = load_data(
            open_prepared(folder / "prepared"), validate_pairs=6, regularization=0.0, seed=1, inputs=settings.input
        )
        plan = make_plan(data.prepared, data.corpora, seed=1, batch_tokens=512, micro_batches=1)
        batches.append([data.load_batch(*plan.batch(step)).source[0] for step in (0, 0, 60)])
    assert all((a == b).all() for a, b in zip(*batches, strict=True))
    assert batches[0][0].min() >= 0
    assert batches[0][0].max() <= 1


def test_a_language_model_keeps_every_sentence_and_no_source(language_model):
    folder, _ = language_model
    prepared = open_prepared(folder / "prepared")
    assert prepared.manifest["counts"]["train.read"] == 300
    assert all(len(source) == 0 and len(target) > 0 for source, target in prepared.train[0].pairs(range(5)))
    assert list(prepared.manifest["tokenizers"]) == ["target"]


# ------------------------------------------------------------------------------------------------------------ training


def test_the_captions_are_learned(captions):
    folder, model = captions
    captioner = heedful.load(model)
    lines = [line.split("\t") for line in (folder / "train.tsv").read_text("utf-8").splitlines()]
    answers = captioner([folder / path for path, _ in lines[:40]], beam=1)
    right = sum(answer.text == caption for answer, (_, caption) in zip(answers, lines, strict=False))
    assert right >= 36
    array = np.asarray(Image.open(folder / lines[0][0]).convert("RGB"))
    with Image.open(folder / lines[0][0]) as picture:
        assert captioner(picture).text == captioner(array).text == captioner(folder / lines[0][0]).text


@pytest.mark.parametrize("kind", ["captions", "language_model"])
def test_an_interrupted_run_ends_with_the_same_weights(kind, tmp_path, request):
    folder, _ = request.getfixturevalue(kind)
    make = picture_settings if kind == "captions" else language_model_settings
    train(make(folder, tmp_path / "whole", steps=12))
    train(make(folder, tmp_path / "parts", steps=7))
    train(make(folder, tmp_path / "parts", steps=12))
    # An extended run refits its schedule, so a run of 12 steps with this refit is the reference.
    train(make(folder, tmp_path / "again", steps=12, refits=[(7, 12)]))
    assert outcome(tmp_path / "parts")[0] == outcome(tmp_path / "again")[0]


def test_a_language_model_is_scored_by_perplexity(language_model):
    folder, model = language_model
    language = heedful.load(model)
    texts = (folder / "train.txt").read_text("utf-8").splitlines()[:40]
    tokens, log_probabilities = language.score_texts(texts)
    figures = language.perplexity(texts)
    count = sum(map(len, tokens)) + len(texts)
    assert figures["perplexity"] == pytest.approx(math.exp(-sum(log_probabilities) / count))
    characters = sum(map(len, texts)) + len(texts)
    assert figures["bits"] == pytest.approx(-sum(log_probabilities) / math.log(2) / characters)
    assert figures["perplexity"] < 60  # the size of the vocabulary: it has learned something
    scores = json.loads((model / "eval.json").read_text("utf-8"))
    assert scores["validation"]["perplexity"]["value"] < 60


def test_generated_texts_begin_with_the_prefix(language_model):
    language = heedful.load(language_model[1])
    for options in ({"beam": 1}, {"beam": 3}, {"sampling": SamplingOptions(top_p=0.9, seed=4)}):
        assert language.generate("the dog", **options).text.startswith("the dog")
    samples = language.generate("", num_best=5, sampling=SamplingOptions())
    assert len(samples.alternatives) == 4
    with pytest.raises(HeedfulError, match="continues text"):
        language([5])


# -------------------------------------------------------------------------------------------------------- command line


def test_the_command_line_describes_pictures(captions):
    folder, model = captions
    done = run("translate", model, folder / "pictures" / "train0.png", folder / "nothing.png", "--json")
    assert done.exit_code == 1
    first, second = done.stdout.splitlines()
    assert json.loads(first)["source"].endswith("train0.png")
    assert second == ""
    listed = "".join(json.dumps({"image": str(folder / "pictures" / f"train{n}.png")}) + "\n" for n in range(3))
    assert len(run("translate", model, text=listed).stdout.splitlines()) == 3


def test_the_command_line_trains_and_generates(language_model, tmp_path):
    folder, model = language_model
    assert len(run("generate", model, "--count", "3", "--seed", "2").stdout.splitlines()) == 3
    assert run("generate", model, "--prefix", "the dog", "--beam", "2").stdout.startswith("the dog")
    table = json.loads(run("evaluate", model, folder / "train.txt", "--json").stdout)
    assert set(table["scores"]) == {"perplexity", "word_perplexity", "bits"}
    for arguments, message in (
        (("translate", model), "use heedful generate"),
        (("generate", "pt-en"), "is not a language model"),
        (("generate", model, "--length-penalty", "2"), "needs --beam"),
        (("train", folder / "train.txt", "--input", "pictures", "--out", tmp_path), "--input pictures is not known"),
        (("train", folder / "train.txt", "--input", "image", "--out", tmp_path), "is not a table"),
    ):
        result = run(*arguments)
        assert message in str(result.exception), arguments


def test_settings_that_do_not_fit_the_input_are_errors():
    data = {"train": [{"files": ["a.tsv"]}]}
    for tree, message in (
        ({"source": "en", "target": "en", "input": {"kind": "image"}, "data": data}, "remove `source`"),
        ({"target": "en", "input": {"kind": "none"}, "train": {"best_by": "chrf"}, "data": data}, "best_by"),
        ({"target": "en", "input": {"kind": "image", "height": 30}, "data": data}, "multiples of `patch`"),
        (
            {"target": "en", "input": {"kind": "image"}, "tokenizer": {"subword_regularization": 0.1}, "data": data},
            "subword_regularization",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            parse_settings(tree)

"""Sources that are not text, from files to answers: pictures, and none at all (language models)."""

import itertools
import json
import math
import re

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import heedful
from heedful.bundle import open_bundle
from heedful.cli.app import app
from heedful.config import ImageInputSettings, parse_settings
from heedful.corpus.arguments import settings_from_arguments
from heedful.corpus.launchers import LocalLauncher
from heedful.data.prepare import prepare
from heedful.data.store import open_prepared
from heedful.engines.base import SamplingOptions
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.inputs.kinds import INPUTS, make_input
from heedful.training.api import train
from heedful.training.data import load_data, make_plan, split_validation
from heedful.training.finetune import apply_finetuning_defaults
from heedful.translation.bulk import translate_file
from support.picture_runs import language_model_settings, picture_settings, write_pictures, write_sentences
from support.sound_runs import sound_settings, write_recordings
from support.training_runs import TRAIN, outcome


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


@pytest.mark.parametrize(("write", "make"), [(write_pictures, picture_settings), (write_recordings, sound_settings)])
def test_prepared_bytes_do_not_depend_on_the_number_of_workers(write, make, tmp_path):
    folder = write(tmp_path, count=40)
    settings = make(folder, folder / "run")
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
    with pytest.raises(DataError, match="Validation and test keep every line: repair"):
        prepare(parse_settings(tree))


def test_equal_names_in_two_directories_are_two_pictures(tmp_path):
    tables = []
    for name, seed in (("one", 1), ("two", 2)):
        folder = write_pictures(tmp_path / name, count=30, seed=seed)
        lines = [f"pictures/train{number}.png\ta square\n" for number in (*range(30), 0)]
        (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
        tables.append({"files": [f"{folder}/train.tsv"]})
    tree = picture_settings(tmp_path, tmp_path / "run").model_dump(exclude_unset=True)
    tree["data"]["train"], tree["clean"] = tables, {}
    prepared = prepare(parse_settings(tree))
    assert [corpus.num_rows for corpus in prepared.train] == [30, 30]
    assert prepared.manifest["counts"]["duplicates"] == 2
    (tmp_path / "two" / "again.tsv").write_bytes((tmp_path / "two" / "train.tsv").read_bytes())
    tree["data"]["train"] = [*tables, {"files": [f"{tmp_path}/two/again.tsv"]}]
    prepared = prepare(parse_settings({**tree, "clean": {"duplicates": "keep"}}))
    assert [corpus.num_rows for corpus in prepared.train] == [31, 31, 31]


@pytest.mark.parametrize("captions_per_picture", [1, 2, 5, 7])
def test_no_picture_is_both_in_training_and_held_out(captions_per_picture, tmp_path):
    folder = write_pictures(tmp_path, count=40)
    captions = [" ".join(words) for words in itertools.permutations(["a", "red", "square", "at"], 3)]
    lines = [
        f"pictures/train{number}.png\t{captions[(number + each) % len(captions)]}\n"
        for number in range(40)
        for each in range(captions_per_picture)
    ]
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    prepared = prepare(picture_settings(folder, folder / "run"))
    for pairs in (3, 8, 13, 20):
        (learned,), held_out = split_validation(prepared, pairs)
        assert learned.num_rows + len(held_out) == len(lines)
        assert 0 < len(held_out) <= pairs
        names = learned.texts_of_rows("source", range(learned.num_rows))
        if pairs > captions_per_picture:
            assert not set(names) & set(held_out.texts)


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
    prepared = open_prepared(folder / "prepared-text")
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
    for steps in (7, 12):
        train(make(folder, tmp_path / "parts", steps=steps))
    # An extended run refits its schedule, so the reference is a run of 7 steps with this refit.
    train(make(folder, tmp_path / "again", steps=7, refits=[(7, 12)]))
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "again")


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
    assert json.loads(second) == {"source": str(folder / "nothing.png"), "error": "there is no such file"}
    assert run("translate", model, folder / "nothing.png").stdout == "\n"
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
        (("generate", model, "--length-penalty", "2"), "--length-penalty needs --beam: add --beam 5"),
        (("train", folder / "train.txt", "--input", "pictures", "--out", tmp_path), "--input pictures is not known"),
        (("train", folder / "train.txt", "--input", "image", "--out", tmp_path), "is not a table"),
    ):
        result = run(*arguments)
        assert message in str(result.exception), arguments


def test_prefixes_and_texts_are_utf8_whatever_the_locale(language_model):
    _, model = language_model
    for charset in ("utf-8", "cp1252"):
        arguments = ["generate", str(model), "--prefix", "-", "--beam", "1", "--json"]
        result = CliRunner(charset=charset).invoke(app, arguments, input="привет\n".encode() + b"caf\xe9\r\nthe dog\n")
        assert result.exit_code == 0, result.exception
        lines = [json.loads(line) for line in result.stdout_bytes.decode().splitlines()]
        assert [line["source"] for line in lines] == ["привет", "caf\ufffd", "the dog"]


@pytest.mark.parametrize("name", ["list.txt", "list.jsonl"])
def test_a_list_of_pictures_may_begin_with_a_byte_order_mark(name, captions, tmp_path):
    folder, model = captions
    paths = [str(folder / "pictures" / f"train{number}.png") for number in range(2)]
    lines = paths if name == "list.txt" else [json.dumps({"image": path}) for path in paths]
    (tmp_path / name).write_text("\r\n".join(lines) + "\r\n", encoding="utf-8-sig", newline="")
    result = run("translate", model, tmp_path / name, "--json")
    assert [json.loads(line)["source"] for line in result.stdout.splitlines()] == paths


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


# ------------------------------------------------------------------------------------------------------------- misuse


def test_models_of_different_sources_make_no_ensemble(captions):
    with pytest.raises(HeedfulError, match="have different kinds of sources"):
        heedful.load("pt-en", others=[captions[1]])


def test_captions_are_scored_and_their_pictures_listed_in_a_file(captions, tmp_path):
    folder, model = captions
    rows = [line.split("\t") for line in (folder / "train.tsv").read_text("utf-8").splitlines()[:5]]
    (tmp_path / "pictures").write_text("".join(f"{folder / path}\n" for path, _ in rows), encoding="utf-8")
    (tmp_path / "captions").write_text("".join(f"{text}\n" for _, text in rows), encoding="utf-8")
    result = run("evaluate", model, tmp_path / "captions", "--source", tmp_path / "pictures", "--json")
    assert result.exit_code == 0
    assert 1 <= json.loads(result.output)["perplexity"] < 2


def test_fine_tuning_on_other_pictures_keeps_their_size_and_the_vocabulary(captions, tmp_path):
    _, model = captions
    other = write_pictures(tmp_path / "other", count=40, name="other", seed=2)
    tuned = train(
        parse_settings(
            {
                "target": "en",
                "input": {"kind": "image"},
                "init_from": str(model),
                "data": {"train": [{"files": [f"{other}/other.tsv"]}], "prepared_dir": f"{tmp_path}/prepared"},
                "train": {**TRAIN, "steps": 2, "output_dir": str(tmp_path / "run")},
            }
        )
    )
    description = open_bundle(tuned).description
    assert (description.input.height, description.input.patch) == (16, 4)
    assert open_bundle(tuned).tokenizer("target").size == open_bundle(model).tokenizer("target").size


@pytest.mark.parametrize(
    ("input", "message"),
    [
        ({"kind": "none"}, "was trained with input.kind = 'image', but this corpus has 'none'"),
        ({"kind": "image", "height": 32}, "was trained with input.height = 16: remove input.height"),
    ],
)
def test_fine_tuning_with_another_input_is_an_error(input, message, captions, tmp_path):
    folder, model = captions
    settings = {"target": "en", "input": input, "init_from": str(model)}
    settings |= {"data": {"train": [{"files": [f"{folder}/train.tsv"]}]}, "train": {"output_dir": str(tmp_path)}}
    with pytest.raises(ConfigError, match=re.escape(message)):
        apply_finetuning_defaults(parse_settings(settings))


@pytest.mark.parametrize("kind", ["captions", "language_model"])
def test_what_needs_source_text_is_refused(kind, request, tmp_path):
    _, model = request.getfixturevalue(kind)
    (tmp_path / "text").write_text("a\n" * 2000, encoding="utf-8")
    with pytest.raises(ConfigError, match="bulk translation is for models that translate text"):
        translate_file(model, tmp_path / "text", tmp_path / "out")
    with pytest.raises(ConfigError, match="calibration is for models that translate text"):
        heedful.calibrate(model, ["a"] * 2000, ["a"] * 2000)
    with pytest.raises(HeedfulError, match="no words of a source to link"):
        heedful.load(model).align(["a"], ["b"])


def test_windows_paths_get_advice(tmp_path):
    with pytest.raises(DataError, match="separate directories by / instead of"):
        INPUTS["image"](ImageInputSettings(kind="image")).read_row("pictures\\cat.png", tmp_path)


def test_one_language_is_enough_without_source_text(tmp_path):
    (tmp_path / "corpus.txt").write_text("a dog\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="only the target is a language"):
        settings_from_arguments([str(tmp_path / "corpus.txt")], "en-de", input="none")
    with pytest.raises(ConfigError, match="For a language model, add --input none"):
        settings_from_arguments([str(tmp_path / "corpus.txt")], None)

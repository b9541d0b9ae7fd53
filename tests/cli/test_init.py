"""`heedful init`, from Python and from the command line."""

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import heedful
from heedful import samples
from heedful.cli.app import app
from heedful.config import load
from heedful.errors import ConfigError, DataError

run = CliRunner().invoke


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for language, word in (("en", "house"), ("de", "Haus")):
        (tmp_path / f"train.{language}").write_text("".join(f"{word} {n}\n" for n in range(50)), encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("pair", samples.PAIRS)
def test_a_sample_is_unpacked_and_found_by_its_configuration(pair, tmp_path):
    path = heedful.init(tmp_path / "first", sample=pair, time="4m")
    settings = load(path)
    assert f"{settings.source}-{settings.target}" == pair
    assert settings.train.time == "4m"
    files = [
        file for split in (settings.data.train, settings.data.validation, settings.data.test) for file in split[0].files
    ]
    assert len(files) == 6
    assert (tmp_path / "first" / "data" / samples.LICENSE).is_file()


def test_every_line_that_says_something_is_explained(tmp_path):
    text = heedful.init(tmp_path / "first", sample="pt-en").read_text(encoding="utf-8")
    plain = [line for line in text.splitlines() if line and "#" not in line and not line.startswith("files =")]
    assert plain == ["[train]"]


def test_files_are_named_from_the_folder(pairs):
    path = heedful.init("captions", ["train.de", "train.en"], languages=("en", "de"), recipe="transformer-tiny")
    tree = tomllib.loads(path.read_text(encoding="utf-8"))
    assert tree["data"]["train"] == [{"files": ["../train.en", "../train.de"]}]  # in the order of the languages
    assert tree["recipe"] == "transformer-tiny"
    assert [Path(one).resolve() for one in load(path).data.train[0].files] == [pairs / "train.en", pairs / "train.de"]


def test_the_command_says_what_it_found_and_what_comes_next(pairs):
    shown = run(app, ["init", "captions", "train.en", "train.de", "--time", "10m"])
    assert shown.exit_code == 0, shown.output
    assert "50 train pairs" in shown.output
    assert "house 0  |  Haus 0" in shown.output
    assert shown.output.splitlines()[-1] == "Next: heedful train captions/heedful.toml"


def test_it_asks_at_most_four_questions(pairs, monkeypatch):
    asked = []
    monkeypatch.setattr("heedful.cli.init.can_prompt", lambda: True)
    answers = iter(["train.en train.de", "20m"])
    monkeypatch.setattr(
        "heedful.cli.init.prompt", lambda question, _default=None: asked.append(question) or next(answers)
    )
    assert run(app, ["init", "captions"]).exit_code == 0
    assert len(asked) == 2
    (pairs / "a").write_text("house\n" * 9, encoding="utf-8")
    (pairs / "b").write_text("Haus\n" * 9, encoding="utf-8")
    answers = iter(["a b", "en-de", "20m"])
    assert run(app, ["init", "other"]).exit_code == 0
    answers = iter(["", "ru-en", "4m"])
    assert run(app, ["init", "sample"]).exit_code == 0
    assert (pairs / "sample" / "data" / "train.ru").is_file()
    assert len(asked) == 2 + 3 + 3


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"sample": "pt-ne"}, ConfigError, "did you mean `pt-en`"),
        ({"sample": "pt-en", "files": ["train.en"]}, ConfigError, "a sample has its own files"),
        ({"sample": "pt-en", "time": "4x"}, ConfigError, "a time is written like"),
        ({"sample": "pt-en", "recipe": "transformer-tinny"}, ConfigError, "did you mean `transformer-tiny`"),
        ({}, ConfigError, "pass the files with the sentence pairs"),
        ({"files": ["train.en", "train.dd"], "languages": ("en", "de")}, DataError, "did you mean `train.de`"),
    ],
)
def test_mistakes_are_told_and_nothing_is_left_behind(given, error, says, pairs):
    with pytest.raises(error, match=says):
        heedful.init("new", **given)
    assert not (pairs / "new").exists()


def test_the_sample_of_pictures_has_no_faults(tmp_path):
    shown = run(app, ["init", str(tmp_path / "emoji"), "--sample", "emoji"])
    assert "heedful check finds no errors and no warnings" in shown.output
    assert len((tmp_path / "emoji" / "data" / "train.tsv").read_text(encoding="utf-8").splitlines()) == 100


def test_no_configuration_is_written_over(pairs):
    (pairs / "heedful.toml").write_text("mine", encoding="utf-8")
    shown = run(app, ["init", ".", "--sample", "pt-en"])
    assert isinstance(shown.exception, ConfigError)
    assert "already exists: train with it" in str(shown.exception)
    assert (pairs / "heedful.toml").read_text(encoding="utf-8") == "mine"


def test_without_a_person_to_ask_it_says_what_to_type(pairs):
    shown = run(app, ["init", "new"])
    assert "heedful init new train.en train.de" in str(shown.exception)
    assert "--sample pt-en" in str(shown.exception)

"""`heedful words` as a user types it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heedful.cli.app import app

run = CliRunner().invoke
TEXT = ["the cat sleeps in the basket", "a dog sleeps in a basket", "he drinks hot tea", "she drinks hot coffee"] * 60


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("corpus.txt").write_text("\n".join(TEXT) + "\n", encoding="utf-8")
    return tmp_path


def test_learn_then_look(corpus):
    learned = run(app, ["words", "corpus.txt", "--out", "words.vec", "--width", "12", "--subsample", "0"])
    assert learned.exit_code == 0, learned.output
    assert "words.vec: 13 words, vectors of width 12\nNext: heedful words near words.vec" in learned.stdout
    assert Path("words.vec").read_text().startswith("13 12\n")
    neighbors = run(app, ["words", "near", "words.vec", "tea", "Cat", "--count", "3"]).stdout.splitlines()
    assert neighbors[0] == "tea"
    cosines = [float(line.split()[0]) for line in neighbors[1:4]]
    assert cosines == sorted(cosines, reverse=True)
    assert not {"tea", "Cat"} & {line.split()[1] for line in neighbors[1:4]}
    assert neighbors[4] == "Cat"
    answer = json.loads(run(app, ["words", "analogy", "words.vec", "he", "she", "tea", "--json"]).stdout)
    assert list(answer) == ["he : she = tea : ?"]
    assert len(answer["he : she = tea : ?"]) == 10
    drawn = run(app, ["words", "map", "words.vec", "--out", "map.html"])
    assert drawn.stdout == "map.html: 13 words. Open it in a browser\n"
    assert Path("map.html").read_text().count("<circle") == 13
    few = run(app, ["words", "map", "words.vec", "tea", "cat", "dog", "--out", "map.html"])
    assert "3 words" in few.stdout


def test_every_method_by_options(corpus):
    for options in (["--method", "cbow"], ["--negatives", "0"], ["--method", "cbow", "--negatives", "0"]):
        shown = run(app, ["words", "learn", "corpus.txt", "--out", "w.vec", "--epochs", "1", "--width", "4", *options])
        assert shown.exit_code == 0, shown.output
        assert "w.vec: 13 words, vectors of width 4" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["corpos.txt", "--out", "w.vec"], "there is no file corpos.txt; did you mean `corpus.txt`?"),
        (["corpus.txt", "--out", "none/w.vec"], "--out none/w.vec: there is no directory none; create it first"),
        (["corpus.txt", "--out", "corpus.txt"], "--out corpus.txt is a directory or the corpus itself: choose another"),
        (["corpus.txt", "--out", "../{folder}/corpus.txt"], "is a directory or the corpus itself: choose another name"),
        (["corpus.txt", "--out", "."], "--out . is a directory or the corpus itself: choose another name"),
        (["corpus.txt", "--out", "w.vec", "--method", "glove"], "unknown method `glove`; known: skip-gram, cbow"),
        (["corpus.txt", "--out", "w.vec", "--min-count", "999"], "0 words occur at least 999 times in the text"),
        (["latin.txt", "--out", "w.vec"], "latin.txt:1: not UTF-8; save the file as UTF-8"),
        (["near", "corpus.txt", "cat"], "corpus.txt:1: expected a word and 5 numbers"),
        (["near", "tiny.vec", "dgo"], "there is no vector for `dgo`; did you mean `dog`?"),
        (["map", "tiny.vec", "--out", "map.html"], "a map needs at least three words"),
    ],
)
def test_mistakes_are_one_helpful_line(corpus, arguments, says):
    Path("latin.txt").write_bytes(b"caf\xe9\n")
    Path("tiny.vec").write_text("dog 1 2\ncat 3 4\n")
    before = Path("corpus.txt").read_bytes()
    shown = run(app, ["words", *(argument.format(folder=corpus.name) for argument in arguments)])
    assert shown.exit_code
    assert says in f"{shown.stderr}{shown.exception}"
    assert Path("corpus.txt").read_bytes() == before

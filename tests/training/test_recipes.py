"""Every recipe loads, explains itself, builds and learns; and says what its name promises."""

import json
import re
import tomllib
from pathlib import Path

import pytest

import heedful
from heedful.config import check, load, recipe, recipes
from heedful.errors import ConfigError
from heedful.training.flat_settings import flatten
from heedful.training.schedules import noam_peak

RECIPES = (
    "gru-luong", "lstm-bahdanau", "rnn-bottleneck", "sample", "transformer-base", "transformer-big", "transformer-tiny",
)  # fmt: skip
SMALL = {"width": 16, "inner": 32, "heads": 2, "layers": 1, "vocabulary": 340, "steps": 3, "batch_tokens": 600}
CORPUS = {"source": "en", "target": "de", "data": {"train": [{"files": "train"}]}}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """120 pairs; each side numbers the words of the other."""
    folder = tmp_path_factory.mktemp("corpus")
    rows = [[(number * step) % 17 for step in range(1, 4 + number % 7)] for number in range(1, 121)]
    for code, words in (("en", "abcdefghijklmnopq"), ("de", "QPONMLKJIHGFEDCBA")):
        lines = [" ".join(words[at] * 2 for at in row) + f" {number}" for number, row in enumerate(rows)]
        (folder / f"train.{code}").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return folder


def smaller(tree: dict, path: str = "") -> list[str]:
    """The `--set`s that make a recipe small."""
    found = []
    for key, value in tree.items():
        if isinstance(value, dict):
            found += smaller(value, f"{path}{key}.")
        elif key in SMALL:
            found.append(f"{path}{key}={SMALL[key]}")
    return found


def test_these_are_the_recipes():
    assert tuple(recipes()) == RECIPES


def test_an_unknown_recipe_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match=r"no recipe `gru-loung`; did you mean `gru-luong`\?"):
        recipe("gru-loung")


@pytest.mark.parametrize("name", RECIPES)
def test_every_key_is_explained_where_it_first_stands(name):
    explained: set[str] = set()
    text = recipes()[name].read_text(encoding="utf-8")
    assert text.startswith("# "), "a recipe begins with what it is for"
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.match(r"(\w+) = [^#]+?( +# \S.*)?$", line):
            assert found[2] or found[1] in explained, f"{name}:{number}: {line}"
            explained.add(found[1])
        assert len(line) <= 120
    assert len(explained) > 15


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_names_no_files_and_no_languages_and_says_how_long(name):
    tree = recipe(name)
    assert tree.keys() == {"tokenizer", "model", "train"}
    settings = check({**CORPUS, "recipe": name})
    assert settings.model is not None
    assert settings.train.steps


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_learns(name, corpus):
    file = corpus / f"{name}.toml"
    file.write_text(
        f'recipe = "{name}"\nsource = "en"\ntarget = "de"\n[data]\ntrain = [{{ files = "train" }}]\n'
        f'[train]\nfolder = "{name}"\nvalidate_pairs = 4\nlog_every = 1\nthreads = 1\nprecision = "fp32"\n'
    )
    model = heedful.train(load(file, smaller(recipe(name))))
    assert (model / "model.safetensors").is_file()
    records = [json.loads(line) for line in (model.parent / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [one["step"] for one in records if one["event"] == "stepped"] == [1, 2, 3]
    assert all(one["loss"] > 0 for one in records if one["event"] == "stepped")
    resolved = dict(flatten(load(model.parent / "heedful.toml").model_dump(mode="json")))
    for key, value in flatten(recipe(name)):  # what was done is what the recipe says, only smaller
        assert resolved[key] == SMALL.get(key.split(".")[-1], value)


def test_the_bottleneck_is_bahdanaus_model_without_attention():
    with_it, without = recipe("lstm-bahdanau"), recipe("rnn-bottleneck")
    assert with_it["model"]["encoder"].pop("kind") == "recurrent"
    assert without["model"]["encoder"].pop("kind") == "bottleneck"
    for key in ("attention", "asks", "first"):  # of one slot, the mean is the last
        with_it["model"]["decoder"].pop(key)
        without["model"]["decoder"].pop(key, None)
    assert with_it == without


def test_luong_asks_with_the_current_state_and_feeds_its_answer_back():
    decoder = recipe("gru-luong")["model"]["decoder"]
    assert (decoder["asks"], decoder["feeds"], decoder["attention"]["score"]) == ("current", True, "bilinear")


def test_the_big_transformer_is_the_papers():
    tree = recipe("transformer-big")
    train, encoder = tree["train"], tree["model"]["encoder"]
    assert encoder == tree["model"]["decoder"]
    assert (tree["model"]["width"], encoder["inner"], encoder["heads"], encoder["layers"]) == (1024, 4096, 16, 6)
    assert train["learning_rate"] == pytest.approx(noam_peak(1024, train["warmup_steps"]), rel=1e-3)
    assert train["validate_every"] % train["save_every"] == 0


def test_recipes_travel_with_the_package():
    """In a wheel and in an sdist, where there is no folder beside src."""
    build = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["force-include"] == {"recipes": "heedful/recipes"}
    assert "recipes" in build["targets"]["sdist"]["include"]

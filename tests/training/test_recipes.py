"""Every recipe loads, explains itself, builds and learns; and says what its name promises."""

import json
import re
import tomllib
from pathlib import Path

import pytest

import heedful
from heedful.config import find_recipes, load, parse_settings, read_recipe
from heedful.config.toml import tree_to_toml
from heedful.errors import ConfigError
from heedful.training.flat_settings import flatten
from heedful.training.schedules import noam_peak
from support.graph_runs import write_trees
from support.picture_runs import write_pictures
from support.sound_runs import write_recordings

RECIPES = (
    "captions-lstm", "captions-transformer", "ctc", "graph", "gru-luong", "lm-lstm", "lm-transformer", "lstm-bahdanau",
    "lstm-hard", "rnn-bottleneck", "sample-gru", "sample", "speech-lstm", "speech-transformer", "transformer-base",
    "transformer-big", "transformer-tiny",
)  # fmt: skip
SMALL = {
    "width": 16,
    "feedforward_size": 32,
    "heads": 2,
    "layers": 1,
    "vocab_size": 340,
    "reserved_pieces": 2,
    "steps": 3,
    "batch_tokens": 600,
    "features": 3,
}
CORPORA = {"text": "train", "image": "train.tsv", "audio": "recordings.tsv", "graph": "graphs.tsv", "none": "train.de"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """120 pairs; each side numbers the words of the other."""
    folder = tmp_path_factory.mktemp("corpus")
    rows = [[(number * step) % 17 for step in range(1, 4 + number % 7)] for number in range(1, 121)]
    for code, words in (("en", "abcdefghijklmnopq"), ("de", "QPONMLKJIHGFEDCBA")):
        lines = [" ".join(words[at] * 2 for at in row) + f" {number}" for number, row in enumerate(rows)]
        (folder / f"train.{code}").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    write_pictures(folder)
    write_recordings(folder, count=len(lines), name="recordings")
    write_trees(folder, count=len(lines), name="graphs")
    for name in (CORPORA["image"], CORPORA["audio"]):
        paths = [line.split("\t")[0] for line in (folder / name).read_text(encoding="utf-8").splitlines()]
        table = "".join(f"{path}\t{text}\n" for path, text in zip(paths, lines, strict=True))
        (folder / name).write_text(table, encoding="utf-8", newline="\n")
    return folder


def tree_for(name: str) -> dict:
    """A corpus of the kind that a recipe reads."""
    kind = read_recipe(name).get("input", {}).get("kind", "text")
    languages = {"source": "en", "target": "de"} if kind == "text" else {"target": "de"}
    return {"recipe": name, **languages, "data": {"train": [{"files": CORPORA[kind]}]}}


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
    assert tuple(find_recipes()) == RECIPES


def test_an_unknown_recipe_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match=r"no recipe `gru-loung`; did you mean `gru-luong`\?"):
        read_recipe("gru-loung")


@pytest.mark.parametrize("name", RECIPES)
def test_every_key_is_explained_where_it_first_stands(name):
    explained: set[str] = set()
    text = find_recipes()[name].read_text(encoding="utf-8")
    assert text.startswith("# "), "a recipe begins with what it is for"
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.match(r"(\w+) = [^#]+?( +# \S.*)?$", line):
            assert found[2] or found[1] in explained, f"{name}:{number}: {line}"
            explained.add(found[1])
        assert len(line) <= 120
    assert len(explained) > 15


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_names_no_files_and_no_languages_and_says_how_long(name):
    tree = read_recipe(name)
    assert tree.keys() - {"input"} == {"tokenizer", "model", "train"}
    settings = parse_settings(tree_for(name))
    assert settings.model is not None
    assert settings.train.steps


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_learns(name, corpus):
    file = corpus / f"{name}.toml"
    run = {"output_dir": name, "validate_pairs": 4, "log_every": 1, "threads": 1, "precision": "fp32"}
    tree = {**tree_for(name), "train": run}
    tree["data"]["prepared_dir"] = f"prepared-{tree['data']['train'][0]['files']}"
    file.write_text(tree_to_toml(tree), encoding="utf-8")
    model = heedful.train(load(file, smaller(read_recipe(name))))
    assert (model / "model.safetensors").is_file()
    records = [json.loads(line) for line in (model.parent / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert [one["step"] for one in records if one["event"] == "stepped"] == [1, 2, 3]
    assert all(one["loss"] > 0 for one in records if one["event"] == "stepped")
    resolved = dict(flatten(load(model.parent / "heedful.toml").model_dump(mode="json")))
    for key, value in flatten(read_recipe(name)):  # what was done is what the recipe says, only smaller
        assert resolved[key] == SMALL.get(key.split(".")[-1], value)


def test_the_bottleneck_is_bahdanaus_model_without_attention():
    with_it, without = read_recipe("lstm-bahdanau"), read_recipe("rnn-bottleneck")
    assert with_it["model"]["encoder"].pop("kind") == "recurrent"
    assert without["model"]["encoder"].pop("kind") == "bottleneck"
    for key in ("attention", "query_from", "initial_state"):  # of one slot, the mean is the last
        with_it["model"]["decoder"].pop(key)
        without["model"]["decoder"].pop(key, None)
    assert with_it == without


def test_the_captioning_lstm_is_that_of_show_attend_and_tell():
    tree = read_recipe("captions-lstm")
    decoder = tree["model"]["decoder"]
    assert (decoder["cell"], decoder["query_from"], decoder["initial_state"]) == ("lstm", "previous", "mean")
    assert decoder["gated_context"]
    assert decoder["attention"] == {"score": "additive"}
    assert tree["train"]["coverage_penalty"] > 0


@pytest.mark.parametrize(
    ("name", "other"),
    [("captions-lstm", "captions-transformer"), ("speech-lstm", "speech-transformer"), ("lm-lstm", "lm-transformer")],
)
def test_recipes_for_the_same_input_describe_it_in_the_same_way(name, other):
    assert [read_recipe(name)[key] for key in ("input", "tokenizer")] == [
        read_recipe(other)[key] for key in ("input", "tokenizer")
    ]


def test_luong_asks_with_the_current_state_and_feeds_its_answer_back():
    decoder = read_recipe("gru-luong")["model"]["decoder"]
    assert (decoder["query_from"], decoder["input_feeding"], decoder["attention"]["score"]) == (
        "current",
        True,
        "bilinear",
    )


def test_the_big_transformer_is_the_papers():
    tree = read_recipe("transformer-big")
    train, encoder = tree["train"], tree["model"]["encoder"]
    assert encoder == tree["model"]["decoder"]
    assert (tree["model"]["width"], encoder["feedforward_size"], encoder["heads"], encoder["layers"]) == (
        1024,
        4096,
        16,
        6,
    )
    assert train["learning_rate"] == pytest.approx(noam_peak(1024, train["warmup_steps"]), rel=1e-3)
    assert train["validate_every"] % train["save_every"] == 0


def test_recipes_travel_with_the_package():
    """In a wheel and in an sdist, where there is no folder beside src."""
    build = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["force-include"] == {"recipes": "heedful/recipes"}
    assert "recipes" in build["targets"]["sdist"]["include"]

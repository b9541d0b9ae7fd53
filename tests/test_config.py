"""heedful.toml: what may be written, what is refused and how helpfully, and the resolved form."""

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.config import (
    RENAMED_KEYS,
    CleanSettings,
    CorpusSettings,
    DataSettings,
    Settings,
    TokenizerSettings,
    assign,
    load,
    parse_settings,
    parse_value,
    to_toml,
)
from heedful.corpus.rules import RULES
from heedful.errors import ConfigError
from heedful.text.tokenizer import TOKENIZERS

SMALLEST = {"source": "en", "target": "de", "data": {"train": [{"files": ["a.en", "a.de"]}]}}


def with_attention(**attention):
    decoder = {"kind": "recurrent", "width": 8, "attention": {"score": "dot", **attention}}
    return {"width": 8, "encoder": {"kind": "recurrent", "width": 8}, "decoder": decoder}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "heedful.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_least_one_may_write(tmp_path):
    path = written(tmp_path, 'source = "no"\ntarget = "en"\n[[data.train]]\nfiles = "train"\n')
    settings = load(path)
    assert settings.source == "no"  # Norwegian, not False
    assert settings.data.train[0].files == ((tmp_path / "train").as_posix(),)
    assert settings.data.prepared_dir == (tmp_path / "prepared").as_posix()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokenizr": {}}, r"unknown key `tokenizr`; did you mean `tokenizer`\?"),
        ({"tokenizer": {"vocab_sise": 3}}, r"unknown key `tokenizer.vocab_sise`; did you mean `vocab_size`\?"),
        ({"data": {"train": [{"file": "x"}]}}, r"did you mean `files`\?"),
        ({"model": {"encoder": {"kind": "transformer", "layerz": 3}}}, r"encoder.layerz`; did you mean `layers`\?"),
        ({"model": {"decoder": {"kind": "recurent"}}}, r"decoder.kind` = 'recurent' .* mean `recurrent`\?"),
        ({"model": {"encoder": {"layers": 3}}}, r"`model.encoder.kind` is missing"),
        ({"train": {"time": 40}}, r"`train.time`: a time is written like 90s, 40m"),
        ({"train": {"ema": 1.5}}, r"`train.ema`: input should be less than 1, not 1.5"),
        ({"train": {"time": "0s"}}, r"`train.time`: a time must be longer than zero"),
        ({"train": {"refits": [[1, 2]]}}, r"`refits` repeats a finished run"),
        ({"train": {"exact": True, "parallel": "fsdp"}}, r"`exact` requires parallel"),
        ({"train": {"parallel": "fsdp"}, "model": with_attention(normalizer="sampled")}, 'set train.parallel = "ddp"'),
        ({"model": with_attention(combine="average")}, "`combine` is for several heads: set `heads`, or remove it"),
        (
            {"model": with_attention(normalizer="sampled", sampled={"estimator": "marginal", "soft_share": 0.2})},
            '`soft_share` has no effect with estimator = "marginal": remove it',
        ),
        (
            {
                "model": with_attention(
                    normalizer="sampled", sampled={"estimator": "straight_through", "entropy_weight": 0.5}
                )
            },
            "`entropy_weight` has no effect",
        ),
        ({"recipe": "transformer-tini"}, r"no recipe `transformer-tini`; did you mean `transformer-tiny`\?"),
        ({"tokenizer": {"kind": "bep"}}, r"`tokenizer.kind` = 'bep' is not known; did you mean `bpe`\?"),
        ({"tokenizer": {"vocab_size": "many"}}, r"`tokenizer.vocab_size`: .*not 'many'"),
        ({"data": {"train": []}}, r"`data.train`"),
        ({"data": {}}, r"`data.train` is missing"),
        ({"data": {"train": [{"files": "x", "tag": "news"}]}}, r"a tag looks like <news>"),
        ({"data": {"train": [{"files": "x", "weight": 1}, {"files": "y"}]}}, r"set a `weight` for every corpus"),
        ({"data": {"train": [{"files": "x", "weight": 1}], "temperature": 5}}, "not both"),
        ({"data": {"train": [{"files": "x", "name": "00001"}]}}, r"`data.train.0.name`"),
        ({"data": {"train": "train"}}, r"`data.train` is a list: write \[\[data.train\]\]"),
        ({"data": {"train": [{"files": "x", "tag": "<s>"}]}}, r"is a special token"),
        ({"data": {"train": [{"files": "x", "weight": float("inf")}]}}, r"`data.train.0.weight`"),
        ({"data": {"train": [{"files": "x"}], "prepared_dir": ""}}, r"`data.prepared_dir`"),
        ({"source": "english!"}, r"`source`"),
    ],
)
def test_a_mistake_names_the_key_and_says_what_to_do(change, says):
    with pytest.raises(ConfigError, match=says) as error:
        parse_settings(SMALLEST | change)
    assert error.value.exit_code == 2


RENAMED = [(section, old, new) for section, names in RENAMED_KEYS.items() for old, new in names.items()]
LAYERS = {"kind": "transformer", "layers": 1, "heads": 1, "feedforward_size": 4}
MODEL = {"width": 4, "encoder": LAYERS, "decoder": {"kind": "recurrent", "width": 4, "attention": {"score": "dot"}}}
IN_TOML = [row for row in RENAMED if row[0].split(".")[0] not in ("generation", "statistics", "export")]


@pytest.mark.parametrize(("section", "old", "new"), IN_TOML)
def test_an_old_key_gives_its_new_name(section, old, new, tmp_path):
    key = f"{section}.{old}".removeprefix(".")
    path = written(tmp_path, to_toml(parse_settings(SMALLEST | {"model": MODEL})))
    with pytest.raises(ConfigError, match=re.escape(f"heedful.toml: unknown key `{key}`; it is now `{new}`") + "$"):
        load(path, [f"{key}=1"])
    assert new in path.read_text(encoding="utf-8") + "feedforward_dropout init_from"  # the two that are None


def test_an_old_key_that_is_required_is_not_called_missing():
    layers = {"kind": "transformer", "layers": 1, "heads": 1, "inner": 4}
    with pytest.raises(ConfigError) as error:
        parse_settings(SMALLEST | {"model": MODEL | {"encoder": layers}})
    assert str(error.value).endswith(": unknown key `model.encoder.inner`; it is now `feedforward_size`")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="there is no file"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is a directory: pass the"):
        load(tmp_path)
    with pytest.raises(ConfigError, match=r"is not TOML: .*line 1"):
        load(written(tmp_path, "source = no"))
    (tmp_path / "latin.toml").write_bytes(b'source = "\xe9"')
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(tmp_path / "latin.toml")


def test_a_mistake_inside_a_list_is_told_once():
    with pytest.raises(ConfigError) as error:
        parse_settings(SMALLEST | {"data": {"train": [{"file": "x"}]}})
    assert str(error.value).count("train") == 2  # the unknown key and the missing one
    assert "at least 1 item" not in str(error.value)


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    path = tmp_path / "heedful.toml"
    path.write_bytes(b"\xef\xbb\xbf" + to_toml(parse_settings(SMALLEST)).encode())
    assert load(path).source == "en"


def test_set_overrides_the_file(tmp_path):
    path = written(tmp_path, to_toml(parse_settings(SMALLEST)))
    settings = load(
        path, ["tokenizer.vocab_size=4000", "data.train.0.tag=<news>", "clean.drop=['empty']", "source = pt-BR"]
    )
    assert settings.tokenizer.vocab_size == 4000
    assert settings.data.train[0].tag == "<news>"
    assert settings.clean.drop == ("empty",)
    assert settings.source == "pt-BR"


@pytest.mark.parametrize(("asked", "steps", "time"), [("train.steps=5", 5, None), ("train.time=1m", None, "1m")])
def test_what_is_asked_for_ends_a_run(asked, steps, time, tmp_path):
    found = load(written(tmp_path, to_toml(parse_settings(SMALLEST | {"train": {"time": "4m"}}))), [asked]).train
    assert (found.steps, found.time) == (steps, time)


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("vocabulary", "expected key=value"),
        ("=3", "expected key=value"),
        ("data.train.7.tag=<a>", r"there is no entry `7` in a list of 1 \(the first entry is 0\)"),
        ("data.train.x.tag=<a>", "there is no entry `x` in a list"),
        ("source.x=1", "`source` is a value, not a table"),
        ("data.train.9=x", "there is no entry `9` in a list"),
    ],
)
def test_set_says_what_is_wrong(assignment, says):
    tree = parse_settings(SMALLEST).model_dump(mode="json")
    with pytest.raises(ConfigError, match=says):
        assign(tree, assignment)


def test_values_of_set():
    assert [parse_value(text) for text in ("1e-4", "true", "no", "[1, 2]", '"x"', "a b")] == [
        1e-4,
        True,
        "no",
        [1, 2],
        "x",
        "a b",
    ]


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)  # not only spaces


@given(
    st.builds(
        Settings,
        source=st.just("en"),
        target=st.just("de"),
        seed=st.integers(0, 2**40),
        data=st.builds(
            DataSettings,
            train=st.lists(
                st.builds(CorpusSettings, files=st.tuples(texts), tag=st.none() | st.just("<a>")),
                min_size=1,
                max_size=3,
            ),
            prepared_dir=texts,
            max_reject_share=st.floats(0, 1),
        ),
        clean=st.builds(CleanSettings, max_words=st.integers(1, 99), drop=st.lists(texts, max_size=3).map(tuple)),
        tokenizer=st.builds(TokenizerSettings, shared=st.booleans(), kind=st.sampled_from(["bpe", "words"])),
    )
)
def test_the_resolved_form_reads_back(settings):
    assert parse_settings(tomllib.loads(to_toml(settings))) == settings


def test_the_configuration_and_the_tables_agree():
    assert set(get_args(TokenizerSettings.model_fields["kind"].annotation)) == set(TOKENIZERS)
    assert set(CleanSettings().drop) <= set(RULES)


def test_the_docs_show_what_may_be_written():
    page = (Path(__file__).parents[1] / "docs" / "data.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", page, re.S)
    shown = parse_settings(tomllib.loads(block))
    for section in ("clean", "tokenizer"):  # the defaults it shows are the defaults
        assert getattr(shown, section) == getattr(Settings.model_validate(SMALLEST), section)

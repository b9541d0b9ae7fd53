import pytest

from heedful.bundle import open_bundle
from heedful.errors import ConfigError, HeedfulError
from heedful.samples import MODELS, PAIRS, find_sample, model, sample_folder, unpack, validation_lines


def lines(path):
    data = path.read_bytes()
    assert data.endswith(b"\n")
    assert b"\r" not in data
    return data.decode().split("\n")[:-1]


@pytest.mark.parametrize("pair", PAIRS)
def test_a_sample_is_whole_and_keeps_its_parts_apart(pair, tmp_path):
    folder = unpack(pair, tmp_path / "new" / "folder")
    assert "CC BY 2.0 FR" in (folder / "ATTRIBUTION.md").read_text(encoding="utf-8")
    languages = pair.split("-")
    names = {f"{part}.{language}" for part in ("train", "valid", "test") for language in languages}
    assert {path.name for path in folder.iterdir()} == names | {"ATTRIBUTION.md"}
    for language in languages:
        train, valid, test = (lines(folder / f"{part}.{language}") for part in ("train", "valid", "test"))
        assert (len(train), len(valid), len(test)) == (40_000, 500, 500)
        assert all(line.strip() for line in train + valid + test)
        known = {line.casefold() for line in train}
        assert known.isdisjoint(line.casefold() for line in valid + test)
        assert {line.casefold() for line in valid}.isdisjoint(line.casefold() for line in test)


def test_a_limit_takes_the_first_training_pairs_and_leaves_the_rest(tmp_path):
    whole, few = unpack("pt-en", tmp_path / "whole"), unpack("pt-en", str(tmp_path / "few"), limit=30)
    for language in ("pt", "en"):
        assert lines(few / f"train.{language}") == lines(whole / f"train.{language}")[:30]
        assert lines(few / f"valid.{language}") == lines(whole / f"valid.{language}")
    assert unpack("pt-en", few, limit=10) == few  # again, over what is there
    assert len(lines(few / "train.pt")) == 10
    assert (unpack("pt-en", few, limit=0) / "train.pt").read_bytes() == b""  # only what is held out


def test_the_samples_are_small():
    folder = sample_folder("pt-en").parent
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 24_000_000


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_what_users_and_later_features_need(name, tmp_path, monkeypatch):
    bundle = open_bundle(name)
    assert bundle.folder == model(name).resolve()
    assert find_sample(bundle.folder) == name
    assert "fuck" in bundle.generation.suppress_words
    assert bundle.statistics["alignment"]["step"]
    assert bundle.statistics["calibration"]["sentences"] >= 2_000
    assert 0 < bundle.statistics["sentences"]["source"] < 0.1
    for side in ("source", "target"):
        assert bundle.tokenizer(side).tag_id("<reserved_63>") >= 63
    sources, references = validation_lines(name)
    assert len(sources) == len(references) == 500
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(HeedfulError, match="there is no model"):  # a directory with the name of a sample is meant
        open_bundle(name)


def test_other_directories_are_no_samples():
    assert find_sample(sample_folder("pt-en")) is None
    with pytest.raises(ConfigError, match="there is no sample model `pt-en-gr`; did you mean `pt-en-gru`"):
        model("pt-en-gr")


def test_what_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match="there is no sample `pt_en`; did you mean `pt-en`"):
        unpack("pt_en", tmp_path / "none")
    with pytest.raises(ConfigError, match="0 or more training pairs, not -1"):
        unpack("pt-en", tmp_path / "none", limit=-1)
    assert not (tmp_path / "none").exists()

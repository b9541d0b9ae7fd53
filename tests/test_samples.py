import pytest

from heedful.errors import ConfigError
from heedful.samples import PAIRS, find_sample, model, sample_folder, unpack, validation_lines


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


def test_a_model_directory_is_known_by_its_path():
    for pair in PAIRS:
        assert find_sample(model(pair)) == pair
        sources, references = validation_lines(pair)
        assert len(sources) == len(references) == 500
    assert find_sample(sample_folder("pt-en")) is None


def test_what_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match="there is no sample `pt_en`; did you mean `pt-en`"):
        unpack("pt_en", tmp_path / "none")
    with pytest.raises(ConfigError, match="0 or more training pairs, not -1"):
        unpack("pt-en", tmp_path / "none", limit=-1)
    assert not (tmp_path / "none").exists()

"""Fixtures of the server tests: two exports of small trained models."""

import pytest

import heedful
from heedful.training.api import train
from support.picture_runs import picture_settings, write_pictures
from support.training_runs import MODEL, settings_of, write_corpus

PIECES = {"kind": "bpe", "vocab_size": 330}


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """A directory with the export `one` of a run, and `two` of another, shorter run."""
    folder = write_corpus(tmp_path_factory.mktemp("serve"), pairs=120)
    for run, name, steps in (("run", "one", 150), ("other", "two", 60)):
        model = train(settings_of(folder, folder / run, model=MODEL, tokenizer=PIECES, steps=steps))
        heedful.export(model, folder / name, to="ctranslate2")
    return folder


@pytest.fixture(scope="session")
def captioner(tmp_path_factory):
    """The model directory of a run `squares` that describes pictures."""
    folder = write_pictures(tmp_path_factory.mktemp("captions"))
    options = {"steps": 120, "validate_every": 120, "save_every": 120, "micro_batches": 1, "learning_rate": 2e-2}
    return train(picture_settings(folder, folder / "squares", **options))


@pytest.fixture(scope="session")
def pictures(captioner):
    """Caption -> the content of a picture file."""
    folder = captioner.parents[1]
    lines = [line.split("\t") for line in (folder / "train.tsv").read_text(encoding="utf-8").splitlines()]
    return {caption: (folder / path).read_bytes() for path, caption in lines}

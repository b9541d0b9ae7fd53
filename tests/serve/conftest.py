"""Fixtures of the server tests: two exports of small trained models."""

import pytest

import heedful
from heedful.training.api import train
from support.caption_models import train_captioner
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
    """The model directory of a run `emoji` that describes pictures."""
    return train_captioner(tmp_path_factory.mktemp("captions"), "emoji")

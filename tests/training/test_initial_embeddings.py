"""A run whose embeddings start from word vectors."""

import numpy as np
import pytest
import torch

from heedful.bundle import open_bundle, read_float_weights
from heedful.embeddings import WordVectors, read_vectors, write_vectors
from heedful.errors import ConfigError, DataError
from heedful.training.api import train
from heedful.training.events import Note
from heedful.training.initial_embeddings import scale_vectors
from support.training_runs import MODEL, RECURRENT, WORDS, on_step, outcome, settings_of

SHORT = {"steps": 4, "save_every": 2, "validate_every": 4, "validate_pairs": 2, "ema": False, "learning_rate": 1e-9}
ENGLISH, GERMAN = list(WORDS)[:12], list(WORDS.values())


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """Twelve English words and all German ones."""
    folder, random = tmp_path_factory.mktemp("vectors"), np.random.default_rng(1)
    for name, words in (("en", ENGLISH), ("de", GERMAN)):
        write_vectors(folder / f"{name}.vec", WordVectors(words, random.normal(0, 3, (len(words), 16)).astype("f4")))
    return folder


def embedding_rows(run, side, words):
    """The rows of a finished model's table for words."""
    bundle = open_bundle(run / "model")
    ids = [bundle.tokenizer(side).encode([word])[0][0] for word in words]
    name = {"source": "encoder.embed.table.weight", "target": "decoder.embed.table.weight"}[side]
    return read_float_weights(bundle)[name][ids]


def test_both_tables_start_from_vectors(corpus, vectors, tmp_path):
    files = {"source": str(vectors / "en.vec"), "target": str(vectors / "de.vec")}
    model = RECURRENT | {"embeddings": files, "tie_embeddings": "none"}
    notes = []
    events = lambda event: notes.append(event.text) if isinstance(event, Note) else None  # noqa: E731
    tokenizer = {"kind": "words", "vocab_size": 80, "shared": False}
    train(settings_of(corpus, tmp_path / "run", model=model, tokenizer=tokenizer, **SHORT), on_event=events)
    for side, name, words in (("source", "en", ENGLISH), ("target", "de", GERMAN)):
        expected = scale_vectors(torch.from_numpy(read_vectors(vectors / f"{name}.vec").matrix)).numpy()
        np.testing.assert_allclose(embedding_rows(tmp_path / "run", side, words), expected, atol=1e-5)
    (source, target) = (note for note in notes if "embeddings: " in note)
    assert source.startswith("source embeddings: 12 of ")
    assert "are words of en.vec; they are " in source
    assert target.endswith("100% of the target tokens of the validation set")
    assert open_bundle(tmp_path / "run" / "model").model.embeddings is None


class StoppedError(Exception):
    """The run was stopped by the test."""


def stop() -> None:
    raise StoppedError


def test_a_resumed_run_equals_an_uninterrupted_one(corpus, vectors, tmp_path):
    model = MODEL | {"embeddings": str(vectors / "de.vec")}
    options = SHORT | {"learning_rate": 1e-2, "log_every": 1}
    train(settings_of(corpus, tmp_path / "whole", model=model, **options))
    with pytest.raises(StoppedError):
        train(settings_of(corpus, tmp_path / "part", model=model, **options), on_event=on_step(3, stop))
    train(settings_of(corpus, tmp_path / "part", model=model, **options))
    assert outcome(tmp_path / "part") == outcome(tmp_path / "whole")


def test_another_file_is_another_run(corpus, vectors, tmp_path):
    run = tmp_path / "run"
    train(settings_of(corpus, run, model=MODEL | {"embeddings": str(vectors / "de.vec")}, **SHORT))
    moved = tmp_path / "moved.vec"
    moved.write_bytes((vectors / "de.vec").read_bytes())
    train(settings_of(corpus, run, model=MODEL | {"embeddings": str(moved)}, **SHORT))  # the same content
    with pytest.raises(ConfigError, match=r"model\.embeddings\.source: \w+ before, \w+ now"):
        train(settings_of(corpus, run, model=MODEL | {"embeddings": str(vectors / "en.vec")}, **SHORT))


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ({"embeddings": "{}/fr.vec"}, DataError, "there is no file"),
        (
            {"embeddings": "{}/de.vec", "width": 32},
            ConfigError,
            "have 16 numbers, but model.width is 32: set model.width",
        ),
        ({"embeddings": {"source": "{}/en.vec", "target": "{}/de.vec"}}, ConfigError, "is one table for both sides"),
    ],
)
def test_mistakes_are_found_before_anything_is_prepared(vectors, tmp_path, model, error, message):
    files = model["embeddings"]
    files = (
        {side: file.format(vectors) for side, file in files.items()}
        if isinstance(files, dict)
        else files.format(vectors)
    )
    with pytest.raises(error, match=message):
        train(settings_of(tmp_path, tmp_path / "run", model=MODEL | model | {"embeddings": files}, **SHORT))

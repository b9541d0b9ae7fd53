"""Which corpora have labels."""

import random

import pytest

from heedful.config import parse_settings
from heedful.corpus.arguments import settings_from_arguments
from heedful.corpus.labels import find_labels
from heedful.errors import ConfigError

RANDOM = random.Random(1)
WORDS = ["the", "man", "dog", "cat", "house", "sees", "likes", "hates", "finds", "good", "bad", "great"]
REVIEWS = [(" ".join(RANDOM.choices(WORDS, k=8)), RANDOM.choice(("positive", "negative"))) for _ in range(60)]


def write(path, rows):
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_a_small_closed_set_is_labels(tmp_path):
    found = find_labels([write(tmp_path / "reviews.tsv", REVIEWS)])
    assert (found.labels, found.columns, len(found.texts)) == (["negative", "positive"], ("1", "2"), 60)
    swapped = [(label, text) for text, label in REVIEWS]
    assert find_labels([write(tmp_path / "swapped.tsv", swapped)]).columns == ("2", "1")
    named = [("stars", "review"), *swapped]
    assert find_labels([write(tmp_path / "named.tsv", named)]).columns == ("review", "stars")
    texts = write(tmp_path / "train.txt", [(text,) for text, _ in REVIEWS])
    labels = write(tmp_path / "train.labels", [(label,) for _, label in REVIEWS])
    assert find_labels([texts, labels]).labels == ["negative", "positive"]


@pytest.mark.parametrize(
    "rows",
    [
        [(f"sentence {number}", f"Satz {number}") for number in range(60)],  # a translation
        [(text, label) for text, label in REVIEWS[:12]],  # too few
        [(text, "positive") for text, _ in REVIEWS],  # one label
        [(f"word {number % 3}", label) for number, (_, label) in enumerate(REVIEWS)],  # always the same sources
    ],
)
def test_what_is_not_labels(tmp_path, rows):
    assert find_labels([write(tmp_path / "pairs.tsv", rows)]) is None


def test_settings_of_a_corpus_with_labels(tmp_path):
    file = write(tmp_path / "reviews.tsv", REVIEWS)
    settings = settings_from_arguments([file], None)
    assert (settings.output.kind, settings.target, settings.train.best_by) == ("labels", "labels", "accuracy")
    assert settings.data.train[0].columns == ("1", "2")
    assert settings_from_arguments([file], "en-xx").output.kind == "text"  # a pair asks for a translator
    with pytest.raises(ConfigError, match="the languages are not certain"):
        settings_from_arguments([file], None, ["output.kind=text"])


BASE = {"source": "en", "target": "labels", "data": {"train": [{"files": ["a.tsv"]}]}}
DECODER = {"kind": "labels", "pooling": "none"}
MODEL = {"width": 8, "tie_embeddings": "none", "encoder": {"kind": "recurrent", "width": 8}, "decoder": DECODER}


def test_a_decoder_of_labels_sets_the_output():
    settings = parse_settings(BASE | {"model": MODEL})
    assert (settings.output.kind, settings.output.per_slot, settings.tokenizer.kind) == ("labels", True, "fields")
    assert parse_settings(settings.model_dump(mode="json", exclude_none=True)) == settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output": {"kind": "labels"}, "model": MODEL}, "a label per slot needs output.per_slot = true"),
        ({"output": {"kind": "text"}, "model": MODEL}, 'does not produce output.kind = "text"'),
        ({"output": {"per_slot": True}}, "`per_slot` is for labels"),
        ({"output": {"kind": "labels"}, "train": {"best_by": "chrf"}}, "labels have no BLEU or chrF"),
        ({"train": {"best_by": "accuracy"}}, "is for labels: set output.kind"),
    ],
)
def test_settings_that_contradict_each_other(changes, message):
    with pytest.raises(ConfigError, match=message):
        parse_settings(BASE | changes)

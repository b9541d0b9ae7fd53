"""Laws of every tokenizer: exact round trip, fixed ids, tags that text cannot spell, sampling as a pure function."""

import json
import subprocess
import sys
from math import exp, sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import HeedfulError
from heedful.text.normalize import normalize
from heedful.text.tokenizer import (
    BOS,
    EOS,
    PAD,
    SPECIAL,
    TOKENIZERS,
    UNK,
    TableTokenizer,
    load,
    merge_pieces,
    split_characters,
    split_words,
    train,
)

TEXTS = [
    f"{who} {does} {what} in the {where}{end}"
    for who in ("A man", "The old woman", "Tom", "My sister", "Ein Mann", "Über uns")
    for does in ("sees", "paints", "sells", "has lost", "mag")
    for what in ("a house", "two dogs", "some bread", "the café", "the answer")
    for where in ("garden", "city", "rain", "Straße")
    for end in (".", "!", "?")
]
MADE = {kind: train(kind, TEXTS, 420, tags=["<2de>", "<news>"]) for kind in TOKENIZERS}
SUBWORDS = ["bpe", "unigram"]
any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n") | st.sampled_from(" ab.<>2deÜ"))


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_special_ids_are_fixed(kind):
    made = MADE[kind]
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
    assert made.pieces(range(6)) == [*SPECIAL, "<2de>", "<news>"]
    assert (made.tag_id("<2de>"), made.tag_id("<news>")) == (4, 5)
    with pytest.raises(HeedfulError, match="is not a tag"):
        made.tag_id("<fr>")
    with pytest.raises(HeedfulError, match="is not a tag"):
        made.tag_id("man")


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_known_text_comes_back(kind):
    made = MADE[kind]
    rows = made.encode(TEXTS)
    assert made.decode(rows) == TEXTS
    assert not any(UNK in row for row in rows)
    assert made.encode(TEXTS, threads=2) == rows
    assert made.encode([""]) == [[]]
    assert made.decode([[]]) == [""]


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_special_tokens_and_tags_say_nothing(kind):
    made = MADE[kind]
    row = made.encode(["Tom sees"])[0]
    assert made.decode([[BOS, made.tag_id("<2de>"), *row, EOS, PAD]]) == ["Tom sees"]


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_text_cannot_spell_a_special_token(kind):
    for text in ("<s> </s> <pad>", "<2de> Tom", "<news>"):
        assert not set(MADE[kind].encode([text])[0]) & {PAD, BOS, EOS, 4, 5}


@settings(max_examples=300)
@given(any_text)
def test_subwords_give_back_any_text(text):
    text, _ = normalize(text)
    for kind in SUBWORDS:
        assert MADE[kind].decode(MADE[kind].encode([text])) == [text]
        assert MADE[kind].decode(MADE[kind].sample([text], 0.3, seed=1)) == [text]


@given(any_text)
def test_cuts_lose_nothing(text):
    text, _ = normalize(text)
    for cut in (split_characters, split_words):
        assert "".join(cut(text)).replace("\u2581", " ").removeprefix(" ") == text
        assert all(cut(text))


def test_how_words_are_cut():
    assert split_words("ein Haus, na gut.") == ["▁ein", "▁Haus", ",", "▁na", "▁gut", "."]
    assert split_characters("ab c") == ["▁", "a", "b", "▁", "c"]


@pytest.mark.parametrize("kind", SUBWORDS)
def test_sampling_is_a_pure_function_of_the_seed(kind):
    made = MADE[kind]
    first = made.sample(TEXTS, 0.2, seed=5)
    made.sample(TEXTS[:7], 0.9, seed=6)
    assert made.sample(TEXTS, 0.2, seed=5) == first
    assert made.sample(TEXTS, 0.2, seed=6) != first
    assert made.decode(first) == TEXTS
    assert first != made.encode(TEXTS)


@pytest.mark.parametrize("kind", SUBWORDS)
def test_sampling_is_the_same_in_every_process(kind, tmp_path):
    """SentencePiece's own is not, whatever its seed."""
    MADE[kind].save(tmp_path / "model")
    code = (
        "import sys; from pathlib import Path; from heedful.text.tokenizer import load;"
        "print(load(Path(sys.argv[1])).sample(sys.argv[2:], 0.3, 7))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model"), *TEXTS[:40]]
    said = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert said[0] == said[1] == f"{MADE[kind].sample(TEXTS[:40], 0.3, 7)}\n"


@settings(max_examples=200)
@given(any_text)
def test_without_dropout_our_merges_are_those_of_sentencepiece(text):
    text, _ = normalize(text)
    made = MADE["bpe"]
    words_of = text.split(" ") if text else []
    ours = [
        number
        for word in words_of
        for number in made.ids_of_pieces(merge_pieces("▁" + word, made.scores, 0.0, lambda: 1.0))
    ]
    assert ours == made.encode([text])[0]


@settings(max_examples=200)
@given(any_text)
def test_words_share_no_pieces(text):
    text, _ = normalize(text)
    for kind in SUBWORDS:
        apart = [number for word in text.split(" ") for number in MADE[kind].encode([word])[0]] if text else []
        assert apart == MADE[kind].encode([text])[0]


def test_dropout_leaves_out_more_merges_the_larger_it_is():
    lengths = [sum(map(len, MADE["bpe"].sample(TEXTS, amount, 1))) for amount in (0.0, 0.1, 0.3, 0.6, 0.99)]
    assert lengths == sorted(lengths)
    assert lengths[0] == sum(map(len, MADE["bpe"].encode(TEXTS)))
    assert lengths[-1] > 0.9 * sum(len(text) for text in TEXTS)


def cuts(word: str, scores: dict[str, float]) -> dict[tuple[str, ...], float]:
    """Every way to cut a word into listed pieces, with the sum of their scores."""
    if not word:
        return {(): 0.0}
    starts = [word[:end] for end in range(1, len(word) + 1) if word[:end] in scores]
    return {
        (start, *rest): scores[start] + score
        for start in starts
        for rest, score in cuts(word[len(start) :], scores).items()
    }


@pytest.mark.parametrize("amount", [0.1, 1.0, 20.0])
def test_unigram_draws_by_probability(amount):
    """Each segmentation is drawn in proportion to P ^ amount; the best of every word, as often as that foretells."""
    made = MADE["unigram"]
    seen = foretold = variance = 0.0
    for word in sorted({word for text in TEXTS for word in text.split(" ")}):
        weights = {cut: exp(amount * score) for cut, score in cuts("\u2581" + word, made.scores).items()}
        drawn = [tuple(made.pieces(row)) for row in made.sample_segmentations(word, amount)]
        assert set(drawn) <= set(weights)
        best = max(weights, key=weights.__getitem__)
        share = weights[best] / sum(weights.values())
        seen += drawn.count(best)
        foretold += share * len(drawn)
        variance += share * (1 - share) * len(drawn)
    assert abs(seen - foretold) <= 4 * sqrt(variance) + 1e-6


def test_the_larger_the_amount_the_more_often_the_best_segmentation():
    made = MADE["unigram"]
    best = made.encode(TEXTS)
    same = [
        sum(a == b for a, b in zip(made.sample(TEXTS, amount, 1), best, strict=True))
        for amount in (0.1, 1.0, 20.0, 1000.0)
    ]
    assert same == sorted(same)
    assert same[-1] == len(TEXTS)


@pytest.mark.parametrize("kind", ["characters", "words"])
def test_what_cannot_be_sampled_says_so(kind):
    with pytest.raises(HeedfulError, match="does not support subword regularization: set"):
        MADE[kind].sample(TEXTS, 0.1, seed=1)


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_saved_is_loaded(kind, tmp_path):
    MADE[kind].save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.encode(TEXTS) == MADE[kind].encode(TEXTS)
    assert again.size == MADE[kind].size


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_training_is_deterministic(kind):
    again = train(kind, iter(TEXTS), 420, tags=["<2de>", "<news>"])
    assert again.pieces(range(again.size)) == MADE[kind].pieces(range(MADE[kind].size))


def test_without_byte_fallback_the_unknown_is_unknown():
    made = train("bpe", TEXTS, 200, byte_fallback=False)
    assert UNK in made.encode(["日本"])[0]
    assert UNK not in MADE["bpe"].encode(["日本"])[0]


def test_a_table_keeps_the_most_frequent():
    made = train("characters", ["aab", "abc"], len(SPECIAL) + 3)
    assert made.pieces(range(made.size))[4:] == ["a", "b", "▁"]
    assert made.decode(made.encode(["abc"])) == ["ab\u2047"]


@pytest.mark.parametrize(
    ("kind", "texts", "size", "says"),
    [
        ("bpe", TEXTS, 50, "bytes and characters alone"),
        ("unigram", TEXTS, 50, "bytes and characters alone"),
        ("bpe", [], 500, "there is no text"),
        ("bpee", TEXTS, 500, "did you mean `bpe`"),
    ],
)
def test_what_cannot_be_trained_says_why(kind, texts, size, says):
    with pytest.raises(HeedfulError, match=says):
        train(kind, texts, size)


@pytest.mark.parametrize("kind", list(TOKENIZERS))
@pytest.mark.parametrize(
    "cause", [KeyboardInterrupt(), SystemExit(3), OSError(5, "a bad disk"), HeedfulError("a bad line")]
)
def test_what_stops_the_text_stops_the_training_as_itself(kind, cause):
    def stopped():
        yield from TEXTS[:50]
        raise cause

    with pytest.raises(type(cause)) as told:
        train(kind, stopped(), 420)
    assert told.value is cause


def test_a_foreign_model_is_refused(tmp_path):
    (tmp_path / "model").write_bytes(b"not a model")
    with pytest.raises(HeedfulError, match="not a SentencePiece model"):
        load(tmp_path / "model")
    import io

    import sentencepiece

    foreign = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=foreign, vocab_size=200, minloglevel=2, hard_vocab_limit=False
    )
    (tmp_path / "model").write_bytes(foreign.getvalue())
    with pytest.raises(HeedfulError, match="starts with <pad>"):
        load(tmp_path / "model")


def test_a_misspelt_kind_is_helped():
    with pytest.raises(HeedfulError, match="unknown tokenizer `bep`; did you mean `bpe`"):
        train("bep", TEXTS, 300)


def test_a_table_is_json(tmp_path):
    MADE["words"].save(tmp_path / "model")
    table = json.loads((tmp_path / "model").read_text(encoding="utf-8"))
    assert TableTokenizer(table["kind"], table["pieces"]).size == MADE["words"].size

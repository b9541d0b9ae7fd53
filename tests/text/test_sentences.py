"""Sentence boundaries: the rules, one by one, and what holds for any text."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.text.sentences import RULES, TITLES, split_sentences

LANGUAGES = ["", *RULES, "pt-BR", "ja", "hi"]
TEXT = st.text(st.sampled_from("aB1 .!?\u2026。！।\"'»)(- \n") | st.characters(), max_size=120)


@given(TEXT, st.sampled_from(LANGUAGES))
def test_the_sentences_joined_are_the_text(text, language):
    sentences = split_sentences(text, language)
    assert "".join(sentence + space for sentence, space in sentences) == text
    assert all(sentence.strip() for sentence, _ in sentences[:-1])
    assert not any(space.strip() for _, space in sentences)


@given(TEXT, st.sampled_from(LANGUAGES))
def test_a_sentence_is_not_split_again(text, language):
    has_capitals = any(map(str.isupper, text))
    for sentence, _ in split_sentences(text, language):
        if any(map(str.isupper, sentence)) == has_capitals:
            assert len(split_sentences(sentence, language)) <= 1


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Dr. Silva left.", "He was tired."]),
        ("en", ["It is in the U.S. Senate.", "We moved to the U.S.", "He stayed."]),
        ("en", ["See No. 5.", "The answer is no.", "Five is right."]),
        ("en", ["We met at 5 p.m. Monday.", "He left at 6 p.m.", "Mary stayed."]),
        ("en", ["J. R. R. Tolkien wrote it.", "So did I.", "Tom read it."]),
        ("en", ['"Stop!" he said.', "I stopped."]),
        ("en", ["He paid 3.50 dollars.", "It was 2.5 times as much."]),
        ("en", ["What?!", "Really?", "Wait...", "Well."]),
        ("en", ['He said, "Go."', "She went."]),
        ("en", ["He came (I saw him).", "She did not."]),
        ("en", ["i like it.", "it is good."]),
        ("pt", ["O Sr. Silva saiu.", "Ele voltou às 5.", "Está bem."]),
        ("pt", ["Não sei o que é.", "Diga-me."]),
        ("ru", ["А. С. Пушкин родился в 1799 г.", "Он был поэтом."]),
        ("ru", ["Это не я.", "Это кот."]),
        ("de", ["Am 3. Mai kam er, z. B. mit Dr. Weber.", "Das war gut."]),
        ("ja", ["今日は。", "「行く。」", "明日も！！", "本当？"]),
        ("zh", ["你好。", "再见！"]),
        ("hi", ["यह अच्छा है।", "वह गया।"]),
        ("ar", ["هل هذا جيد؟", "نعم."]),
    ],
)
def test_sentences_are_found(language, sentences):
    space = "" if language in ("ja", "zh") else " "
    assert [sentence for sentence, _ in split_sentences(space.join(sentences), language)] == sentences


@pytest.mark.parametrize("language", RULES)
def test_every_word_of_the_tables_does_what_its_table_says(language):
    rules = RULES[language]
    for title in rules.titles | TITLES:
        assert len(split_sentences(f"Aa bb {title}. Xy zz.", language)) == 1, title
    for word in rules.numbered - rules.titles - TITLES:
        assert len(split_sentences(f"Aa bb {word}. 5 zz.", language)) == 1, word
        assert len(split_sentences(f"Aa bb {word}. Xy zz.", language)) == 2, word
    for word in rules.abbreviations - rules.numbered - rules.titles - TITLES:
        assert len(split_sentences(f"Aa bb {word}. Xy zz.", language)) == 1, word
        for starter in rules.starters:
            assert len(split_sentences(f"Aa bb {word}. {starter.capitalize()} zz.", language)) == 2, (word, starter)


@pytest.mark.parametrize("pattern", ["Aa bb. ", ".", ". ", '."', "( ", "。", "J. ", "a.b.", "… ! "])
def test_time_is_linear(pattern):
    def seconds(length):
        text = pattern * (length // len(pattern))
        start = time.process_time()
        split_sentences(text, "en")
        return time.process_time() - start

    short, long = (min(seconds(length) for _ in range(3)) for length in (10_000, 80_000))
    assert long < 40 * short + 0.05, (short, long)  # 8 times the length; quadratic would be 64 times

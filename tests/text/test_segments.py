"""Segments: nothing is lost, and every part fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.text.segments import segment_text

TEXT = st.text(st.sampled_from("ab .,;!?。、»\u2026 \n\t") | st.characters(), max_size=120)


@given(TEXT, st.integers(1, 40))
def test_nothing_is_lost_and_everything_fits(text, longest):
    parts = segment_text(text, lambda part: len(part) <= longest)
    assert "".join(part + gap for part, gap in parts).strip() == text.strip()
    assert all(len(part) <= longest or len(part) == 1 for part, _ in parts)


def test_a_sentence_that_fits_is_not_split():
    assert segment_text("One, two; three.", lambda _: True, gap=" ") == [("One, two; three.", " ")]


@pytest.mark.parametrize(
    ("text", "longest", "parts"),
    [
        ("One is here. Two is there.", 15, ["One is here.", "Two is there."]),
        ('He said "go." She went.', 15, ['He said "go."', "She went."]),
        ("今日は。明日も。", 5, ["今日は。", "明日も。"]),
        ("「行く。」明日。。", 6, ["「行く。」", "明日。。"]),
        ("first part, second part, third", 24, ["first part, second part,", "third"]),
        ("one two three four", 9, ["one two", "three", "four"]),
        ("abcdefgh", 4, ["abcd", "efgh"]),
    ],
)
def test_where_text_is_split(text, longest, parts):
    assert [part for part, _ in segment_text(text, lambda part: len(part) <= longest)] == parts

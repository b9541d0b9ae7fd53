"""What normalization removes, and that it is idempotent and says so."""

import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heedful.text.normalize import CHANGES, escape_invisible, normalize, normalize_all

awkward = st.text(
    st.characters(codec=None, exclude_characters="\n")
    | st.sampled_from("\u200c\u200d \t\u00a0\u0301ae\u0338\u200b\u00ad\r\u2581")
)


@given(awkward)
@example("a\u200b\u0301")  # what is removed kept a letter and its accent apart
@example("\u200c\u200d\u200c")
@example("\u035e\u200c\u06e0\u200d\u11f9")  # composing moves a mark away from a joiner
def test_twice_is_once(text):
    once, _ = normalize(text)
    assert normalize(once) == (once, {})
    assert not set(once) & set("\r\x00\u2028\u2029\u0085\ufeff\u200b\u2581\t")
    assert once == once.strip()


@given(st.lists(awkward))
def test_many_are_each(texts):
    together, changes = normalize_all(texts)
    assert together == [normalize(text)[0] for text in texts]
    assert (changes == {}) == (together == texts)


SAMPLES = {
    "halves": ("a\ud800b\udfff", "a\ufffdb\ufffd", 2),
    "separators": ("a\u2028b\x85c\rd", "a b c d", 3),
    "control": ("a\x00b\x07", "ab", 2),
    "invisible": ("a\u200bb\ufeff\u00ad\u202e", "ab", 4),
    "joiners": ("a\u200db", "ab", 1),
    "marker": ("\u2581a", "_a", 1),
    "odd_spaces": ("a\u00a0b\tc", "a b c", 2),
    "runs": ("a  b   c", "a b c", 2),
}


@pytest.mark.parametrize("name", list(CHANGES))
def test_every_change(name):
    text, result, times = SAMPLES[name]
    assert normalize(text) == (result, {name: times})


def test_other_changes():
    assert normalize(" a ") == ("a", {"edges": 1})
    assert normalize("e\u0301") == ("\u00e9", {"composed": 1})


@pytest.mark.parametrize("text", ["می\u200cخواهم", "क्\u200dष", "👩\u200d👩\u200d👧"])
def test_joiners_stay_where_letters_join(text):
    assert normalize(text) == (text, {})


def test_what_is_shown_cannot_move_the_cursor():
    assert escape_invisible("a\x1b[31m\u202eb\ud800\u2028") == "a\\x1b[31m\\u202eb\\ud800\\u2028"
    assert escape_invisible("Straße, 日本 👩 é") == "Straße, 日本 👩 é"


def test_the_quick_way_overlooks_no_character():
    for code in range(sys.maxunicode + 1):
        letter = chr(code)
        if letter.isprintable() and letter not in " \u2581":
            assert not any(change.pattern.search(letter) for change in CHANGES.values()), hex(code)

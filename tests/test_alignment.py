"""Links of words: from pieces to words, from weights to links, and which head aligns best."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.alignment import (
    STEP_CHOICES,
    AlignmentMethod,
    attention_of_words,
    correlate_pieces,
    find_best_method,
    format_pharaoh,
    hard_links,
    soft_alignment,
    word_indices,
)
from heedful.errors import HeedfulError
from heedful.text.tokenizer import train

TEXTS = ["ein rotes Haus", "das alte Haus steht dort", "zwei rote Katzen", "eine Katze , und ein Hund ."] * 20


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["▁ein", "▁Haus"], [0, 1]),
        (["▁ei", "n", "▁H", "aus"], [0, 0, 1, 1]),
        (["▁", "Haus", "▁", "da"], [0, 0, 1, 1]),
        (["H", "aus"], [0, 0]),
        (["▁"], [0]),
        ([], []),
    ],
)
def test_words_of_pieces(pieces, words):
    assert word_indices(pieces) == words


@given(st.lists(st.text("abcß,.", min_size=1, max_size=8), max_size=6))
def test_as_many_words_as_stand_between_spaces(words):
    text = " ".join(words)
    found = word_indices(TOKENIZER.pieces(TOKENIZER.encode([text])[0]))
    assert sorted(set(found)) == list(range(len(words)))
    assert found == sorted(found)


TOKENIZER = train("bpe", TEXTS, vocab_size=330)


def test_weights_of_words():
    weights = np.array([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7], [0.0, 0.0, 1.0]])
    words = attention_of_words(weights, [0, 0, 1], [0, 0, 1])  # pieces 0 and 1 are one word on both sides
    np.testing.assert_allclose(words, [[(0.75 + 0.3) / 2, (0.25 + 0.7) / 2], [0.0, 1.0]])


def test_every_word_has_its_strongest_link_or_all_that_are_strong_enough():
    weights = np.array([[0.6, 0.4], [0.2, 0.8], [0.0, 0.0]])  # nobody looked for the third
    assert hard_links(weights) == ((0, 0), (1, 1))
    assert hard_links(weights, 0.3) == ((0, 0), (1, 0), (1, 1))
    assert hard_links(np.zeros((0, 0))) == ()
    assert format_pharaoh(hard_links(weights)) == "0-0 1-1"


def test_the_methods_differ_by_one_step():
    weights = np.eye(4)[None, None]  # step t looks at slot t
    assert AlignmentMethod("naive")(weights, 3).argmax(1).tolist() == [0, 1, 2]
    assert AlignmentMethod("shifted")(weights, 3).argmax(1).tolist() == [1, 2, 3]
    assert AlignmentMethod("shifted")(weights[:, :, :3], 3).argmax(1).tolist() == [1, 2, 2]  # cut: the last is not read


def test_what_was_given_has_no_weight():
    assert not AlignmentMethod("naive")(np.eye(2)[None, None], 3)[0].any()


@pytest.mark.parametrize("method", [AlignmentMethod("naive", 2, 0), AlignmentMethod("naive", 0, 5)])
def test_a_head_that_is_not_there_is_refused(method):
    with pytest.raises(HeedfulError, match="no head"):
        method(np.ones((2, 2, 3, 4)), 3)


def test_a_misspelled_method_is_helped():
    with pytest.raises(HeedfulError, match="unknown alignment method `shiftet`; did you mean `shifted`"):
        AlignmentMethod("shiftet")


def test_correlation_is_the_correlation_of_occurrence():
    pairs = [([1, 2, 5], [7, 8]), ([1, 5], [7]), ([2, 5], [8, 9]), ([5], [9])]
    related = correlate_pieces(pairs)
    for source, target in related:
        occurs = [[source in one for one, _ in pairs], [target in other for _, other in pairs]]
        assert related[source, target] == pytest.approx(np.corrcoef(occurs)[0, 1])
    assert related[1, 7] == pytest.approx(1.0)
    assert (1, 9) not in related
    assert not any(source == 5 for source, _ in related)  # it is everywhere, and tells nothing


@pytest.mark.parametrize("step", STEP_CHOICES)
@pytest.mark.parametrize("place", [(0, 0), (1, 2)])
def test_the_head_that_links_what_belongs_together_is_found(step, place):
    random = np.random.default_rng(1)
    looks, pairs = [], []
    for _ in range(30):
        source = random.permutation(50)[:8]
        target = 100 + source[random.permutation(8)]
        attention = random.dirichlet(np.full(8, 0.05), (2, 3, 9))  # others look as sharply, elsewhere
        for at, piece in enumerate(target):
            row = np.full(8, 0.01)
            row[int(np.flatnonzero(source == piece - 100)[0])] = 0.93
            attention[(*place, at + (step == "shifted"))] = row
        looks.append((attention, source.tolist(), target.tolist()))
        pairs.append((source.tolist(), target.tolist()))
    assert find_best_method(looks, correlate_pieces(pairs)) == AlignmentMethod(step, *place)


def test_nothing_to_look_at_is_no_method():
    assert find_best_method([], {}) is None


def test_spaces_alone_have_no_links():
    assert soft_alignment(np.ones((1, 1, 3, 2)), ["▁a", "▁red"], ["▁", "▁"], AlignmentMethod()).shape == (0, 2)


def test_links_of_a_sentence():
    source, target = ["▁a", "▁red", "▁house"], ["▁ein", "▁Ha", "us", "▁rot"]
    looks = np.array([[0.9, 0.05, 0.05], [0.1, 0.1, 0.8], [0.1, 0.2, 0.7], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]])
    assert hard_links(soft_alignment(looks[None, None], source, target, AlignmentMethod())) == ((0, 0), (1, 2), (2, 1))

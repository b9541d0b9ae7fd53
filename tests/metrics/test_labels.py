"""Accuracy, macro F1 and the confusion table."""

import pytest

from heedful.errors import HeedfulError
from heedful.metrics import interval, score
from heedful.metrics.labels import count_confusions, split_slots

TRUE = ["cat", "cat", "cat", "dog", "dog", "bird"]
PREDICTED = ["cat", "cat", "dog", "dog", "fish", "cat"]


def test_worked_values():
    assert score("accuracy", PREDICTED, TRUE).value == pytest.approx(50.0)
    # F1: cat 2*2/(3+3), dog 2*1/(2+2), bird 0, fish 0
    assert score("f1", PREDICTED, TRUE).value == pytest.approx(100 * (2 / 3 + 1 / 2) / 4)
    confusion = count_confusions(PREDICTED, TRUE)
    assert confusion.labels == ("cat", "dog", "bird", "fish")
    assert confusion.counts.tolist() == [[2, 1, 0, 0], [0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert confusion.scores("cat") == pytest.approx((200 / 3, 200 / 3, 200 / 3))
    assert confusion.scores("fish") == (0.0, 0.0, 0.0)


def test_of_several_references_the_one_that_fits_counts():
    assert score("f1", ["a", "b"], [["b", "b"], ["a", "a"]]).value == 100.0
    assert score("f1", ["a", "b"], [["b", "a"], ["b", "a"]]).value == 0.0


def test_an_interval_resamples_lines():
    found = interval("f1", PREDICTED * 20, TRUE * 20, samples=50)
    assert found.mean - found.margin < found.value < found.mean + found.margin
    assert "of:macro" in found.signature


def test_slots_without_a_known_label_do_not_count():
    assert split_slots(["A B C", "A"], ["A ? B", "B A"]) == (["A", "C", "A", ""], ["A", "B", "B", "A"])


def test_text_has_no_macro_f1():
    with pytest.raises(HeedfulError, match=r"1,501 different lines: remove f1"):
        score("f1", ["a"] * 1500, [str(number) for number in range(1500)])

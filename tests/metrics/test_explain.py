import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.metrics.explain import explain
from heedful.metrics.ngrams import SMOOTHINGS
from heedful.metrics.score import MetricOptions

HYPOTHESIS, REFERENCES = "рыжий кот прилег на лавку", ["кот лежит на лавке", "на лавку легла кошка"]


def text(every):
    return "\n".join(line for one in every for line in (one.title, *one.lines))


def test_the_worked_values_are_shown():
    shown = text(explain(HYPOTHESIS, REFERENCES))
    for part in ("3/5 ", "1/4 ", "0/3 -> 0.5/3", "кот · на · лавку", "against 4, the closest of 4 and 4"):
        assert part in shown
    assert "(0.6000 x 0.2500)^(1/2) = 38.7298   sacreBLEU: 38.7298" in shown
    assert "(0.6000 x 0.2500 x 0.1667 x 0.1250)^(1/4) = 23.6435   sacreBLEU: 23.6435" in shown
    assert "= 37.2291   sacreBLEU: 37.2291" in shown
    assert "F1 = 2 P R / (P + R) = 0.2857" in shown
    assert "F (1 - penalty) = 0.4573" in shown
    *_, meteor = explain(HYPOTHESIS, REFERENCES[:1])
    assert meteor.value == pytest.approx(24.39, abs=5e-3)


def test_what_was_clipped_is_said():
    shown = text(explain("the the the the the the the", ["the cat is on the mat"]))
    assert "2/7 " in shown
    assert "'the' occurs 7 times, but at most 2 x in a reference" in shown


def test_a_short_sentence_is_measured_by_the_orders_it_has():
    bleu, *_ = explain("ja.", ["ja."])
    assert (bleu.value, bleu.library) == pytest.approx((100.0, 100.0))
    assert "the sentence is too short for n = 3" in "\n".join(bleu.lines)
    assert "BP = exp(1 - 5/2)" in text(explain("a b", ["a b c d e"]))
    assert "no word matches: 0.0000   sacreBLEU: 0.0000" in text(explain("x", ["y"]))


SENTENCES = st.text("ab .,A\u4e2d", max_size=12)


@settings(deadline=None)
@given(SENTENCES, st.lists(SENTENCES, min_size=1, max_size=3), st.sampled_from(sorted(SMOOTHINGS)), st.booleans())
def test_ours_is_the_library_s_and_nothing_breaks(hypothesis, references, smoothing, lowercase):
    for one in explain(hypothesis, references, options=MetricOptions("intl", lowercase, smoothing)):
        assert one.library is None or one.value == pytest.approx(one.library, abs=1e-9)
        assert 0.0 <= one.value <= 100.0 + 1e-9
        for line in one.lines:
            if "sacreBLEU: " in line:
                ours, theirs = line.split("   sacreBLEU: ")
                assert ours.endswith(f" {theirs}")

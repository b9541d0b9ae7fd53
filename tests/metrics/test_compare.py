import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import HeedfulError
from heedful.metrics.breakdown import find_worst_lines, score_by_length
from heedful.metrics.compare import GAIN_BINS, ComparedSystem, LineDifference, Tally, compare, first_difference
from heedful.metrics.score import score, sentence_scores
from heedful.metrics.text_warnings import find_text_warnings

REFERENCES = [["a small dog runs", "two men sit here", "she reads a book", "nobody"]]
OLD = ["a small cat runs", "two men sit here", "she reads a book", "nobody"]
NEW = ["a small dog runs", "two men sit here", "he writes", "none at all"]


def test_wins_losses_and_where_they_part():
    found = compare({"old": OLD, "new": NEW}, REFERENCES, metrics=["chrf"], samples=20)
    (rival,) = found.compared
    assert found.baseline == "old"
    assert rival.name == "new"
    assert rival.tally == Tally(wins=1, losses=2, ties=1, same=1)
    assert [one.place for one in rival.differences] == [3, None, 1, 1]
    assert [one.line for one in rival.largest_gains(5)] == [1]
    assert [one.line for one in rival.largest_losses(5)] == [4, 3]
    assert [one.line for one in rival.largest_losses(1)] == [4]
    assert rival.largest_gains(0) == []
    assert [one.second for one in rival.differences] == sentence_scores("chrf", NEW, REFERENCES)


def test_one_system_is_nothing_to_compare():
    with pytest.raises(HeedfulError, match="pass at least two systems"):
        compare({"old": OLD}, REFERENCES)


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        ("a b c", "a x c", 2),
        ("a b", "a b c", 3),
        ("a  b", "a b", None),
        ("", "", None),
        ("", "a b", 1),
        ("一只狗", "一条狗", 2),
    ],
)
def test_the_first_difference(first, second, place):
    assert first_difference(first, second) == first_difference(second, first) == place


@settings(deadline=None)
@given(st.lists(st.floats(-100, 100)))
def test_a_spread_has_every_line_once_and_agrees_with_the_tally(gains):
    rival = ComparedSystem("new", tuple(LineDifference(line, 0.0, gain, 1) for line, gain in enumerate(gains, 1)))
    counts = list(rival.gain_histogram.values())
    assert list(rival.gain_histogram) == list(GAIN_BINS)
    assert sum(counts) == len(gains)
    wins, losses = sum(gain > 1e-6 for gain in gains), sum(gain < -1e-6 for gain in gains)
    assert abs(rival.tally.wins - wins) <= gains.count(1e-6)
    assert (rival.tally.losses, rival.tally.wins + rival.tally.ties) == (losses, len(gains) - losses)


def test_bins_hold_what_they_say():
    for gain, name in ((-50, "-20 and more"), (-7, "-5 to -10"), (-1, "0 to -5"), (0, "equal"), (12, "+10 to +20")):
        assert ComparedSystem("new", (LineDifference(1, 50.0, 50.0 + gain, 1),)).gain_histogram[name] == 1


# ------------------------------------------------------------------------------------------------ some of the lines


def test_buckets_hold_every_line_once_and_score_themselves():
    references = [["w " * length for length in (3, 10, 11, 70, 20)]]
    hypotheses = ["w " * length for length in (3, 9, 11, 70, 2)]
    found = score_by_length(["bleu", "chrf"], hypotheses, references)
    assert [(one.shortest, one.longest, one.lines) for one in found] == [(0, 10, 2), (11, 20, 2), (61, None, 1)]
    assert found[1].scores == {
        name: score(name, hypotheses[2::2], [references[0][2::2]]).value for name in ("bleu", "chrf")
    }


def test_the_worst_come_first():
    found = find_worst_lines(NEW, REFERENCES, 2)
    assert [one.line for one in found] == [4, 3]
    assert found[0].chrf == sentence_scores("chrf", NEW, REFERENCES)[3]
    assert len(find_worst_lines(NEW, REFERENCES, 99)) == 4


# ------------------------------------------------------------------------------------------------ find_text_warnings

PLAIN = ["The dog barks, and Anna laughs."] * 10


@pytest.mark.parametrize(
    ("hypotheses", "references", "says"),
    [
        (["The dog barks , and Anna laughs ."] * 10, [PLAIN], "the translations look tokenized"),
        (PLAIN, [PLAIN, ["The dog barks , and Anna laughs ."] * 10], "a reference looks tokenized"),
        (["A dog ."] * 10, [["A cat ."] * 10], "both sides look tokenized"),
        (["the dog barks."] * 10, [PLAIN], "the translations look lower-cased"),
        (PLAIN, [["the dog barks."] * 10], "a reference looks lower-cased"),
        ([*PLAIN[1:], ""], [PLAIN], "1 of 10 translations are empty"),
        (PLAIN, [[*PLAIN[1:], " "]], "1 of 10 lines have only empty references"),
    ],
)
def test_what_was_written_otherwise_is_suspected(hypotheses, references, says):
    (found,) = find_text_warnings(hypotheses, references)
    assert says in found


def test_nothing_is_suspected_without_a_reason():
    assert find_text_warnings(PLAIN, [PLAIN]) == []
    assert find_text_warnings(["the dog barks."] * 10, [PLAIN], lowercase=True) == []
    assert find_text_warnings(["狗在叫。"] * 10, [["一只狗在叫。"] * 10]) == []
    assert find_text_warnings(["Quoi ?"] * 10, [["Comment ?"] * 10]) == []
    assert find_text_warnings([""] * 10, [PLAIN]) == ["10 of 10 translations are empty"]
    odd = [*PLAIN[:9], "One , two ."]
    assert find_text_warnings(odd, [PLAIN]) == []

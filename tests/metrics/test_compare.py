import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import HeedfulError
from heedful.metrics.breakdown import by_length, worst
from heedful.metrics.compare import BINS, Difference, Rival, Tally, compare, parting
from heedful.metrics.score import score, sentence_scores
from heedful.metrics.text_warnings import suspicions

REFERENCES = [["a small dog runs", "two men sit here", "she reads a book", "nobody"]]
OLD = ["a small cat runs", "two men sit here", "she reads a book", "nobody"]
NEW = ["a small dog runs", "two men sit here", "he writes", "none at all"]


def test_wins_losses_and_where_they_part():
    found = compare({"old": OLD, "new": NEW}, REFERENCES, metrics=["chrf"], samples=20)
    (rival,) = found.rivals
    assert found.first == "old"
    assert rival.name == "new"
    assert rival.tally == Tally(wins=1, losses=2, ties=1, same=1)
    assert [one.place for one in rival.differences] == [3, None, 1, 1]
    assert [one.line for one in rival.gains(5)] == [1]
    assert [one.line for one in rival.losses(5)] == [4, 3]
    assert [one.line for one in rival.losses(1)] == [4]
    assert rival.gains(0) == []
    assert [one.second for one in rival.differences] == sentence_scores("chrf", NEW, REFERENCES)


def test_one_system_is_nothing_to_compare():
    with pytest.raises(HeedfulError, match="give two systems or more"):
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
    assert parting(first, second) == parting(second, first) == place


@settings(deadline=None)
@given(st.lists(st.floats(-100, 100)))
def test_a_spread_has_every_line_once_and_agrees_with_the_tally(gains):
    rival = Rival("new", tuple(Difference(line, 0.0, gain, 1) for line, gain in enumerate(gains, 1)))
    counts = list(rival.spread.values())
    assert list(rival.spread) == list(BINS)
    assert sum(counts) == len(gains)
    wins, losses = sum(gain > 1e-6 for gain in gains), sum(gain < -1e-6 for gain in gains)
    assert abs(rival.tally.wins - wins) <= gains.count(1e-6)
    assert (rival.tally.losses, rival.tally.wins + rival.tally.ties) == (losses, len(gains) - losses)


def test_bins_hold_what_they_say():
    for gain, name in ((-50, "-20 and more"), (-7, "-5 to -10"), (-1, "0 to -5"), (0, "equal"), (12, "+10 to +20")):
        assert Rival("new", (Difference(1, 50.0, 50.0 + gain, 1),)).spread[name] == 1


# ------------------------------------------------------------------------------------------------ some of the lines


def test_buckets_hold_every_line_once_and_score_themselves():
    references = [["w " * length for length in (3, 10, 11, 70, 20)]]
    hypotheses = ["w " * length for length in (3, 9, 11, 70, 2)]
    found = by_length(["bleu", "chrf"], hypotheses, references)
    assert [(one.shortest, one.longest, one.lines) for one in found] == [(0, 10, 2), (11, 20, 2), (61, None, 1)]
    assert found[1].scores == {
        name: score(name, hypotheses[2::2], [references[0][2::2]]).value for name in ("bleu", "chrf")
    }


def test_the_worst_come_first():
    found = worst(NEW, REFERENCES, 2)
    assert [one.line for one in found] == [4, 3]
    assert found[0].chrf == sentence_scores("chrf", NEW, REFERENCES)[3]
    assert len(worst(NEW, REFERENCES, 99)) == 4


# ------------------------------------------------------------------------------------------------ suspicions

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
        (PLAIN, [[*PLAIN[1:], " "]], "1 of 10 lines have no reference"),
    ],
)
def test_what_was_written_otherwise_is_suspected(hypotheses, references, says):
    (found,) = suspicions(hypotheses, references)
    assert says in found


def test_nothing_is_suspected_without_a_reason():
    assert suspicions(PLAIN, [PLAIN]) == []
    assert suspicions(["the dog barks."] * 10, [PLAIN], lowercase=True) == []
    assert suspicions(["狗在叫。"] * 10, [["一只狗在叫。"] * 10]) == []
    assert suspicions(["Quoi ?"] * 10, [["Comment ?"] * 10]) == []
    assert suspicions([""] * 10, [PLAIN]) == ["10 of 10 translations are empty"]
    odd = [*PLAIN[:9], "One , two ."]
    assert suspicions(odd, [PLAIN]) == []

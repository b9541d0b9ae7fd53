import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.alignment import format_pharaoh
from heedful.errors import DataError
from heedful.metrics.alignment_error import Agreement, GoldAlignment, measure_agreement, parse_gold, parse_links

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "gold-alignments"
SETS = st.frozensets(st.tuples(st.integers(0, 30), st.integers(0, 30)))


@settings(deadline=None)
@given(SETS)
def test_what_is_printed_is_read_again(links):
    assert parse_links(format_pharaoh(links)) == links
    assert parse_gold(format_pharaoh(links)) == GoldAlignment(links, links)


def test_sure_and_possible_links_counted_from_one():
    assert parse_gold("1-1 2p3 2p3", first=1) == GoldAlignment(frozenset({(0, 0)}), frozenset({(0, 0), (1, 2)}))
    assert format_pharaoh({(10, 1), (2, 3)}) == "2-3 10-1"
    assert parse_links("") == frozenset()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("0-0 1", "`1` is not a link"),
        ("-1-2", "`-1-2` is not a link"),
        ("0:0", "is not a link"),
        ("1p2", "is a gold alignment"),
    ],
)
def test_what_is_no_alignment_is_said(line, says):
    with pytest.raises(DataError, match=says):
        parse_links(line)


def test_words_before_the_first_are_no_links():
    with pytest.raises(DataError, match="is before the first word; check whether words are counted from 0"):
        parse_gold("0-1", first=1)


def test_the_error_rate_by_hand():
    gold = [GoldAlignment(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (1, 2)}))]
    found = measure_agreement([frozenset({(0, 0), (1, 2), (5, 5)})], gold)
    assert found == Agreement(links=3, sure=2, in_sure=1, in_possible=2)
    assert (found.precision, found.recall, found.error_rate) == (2 / 3, 1 / 2, 1 - 3 / 5)
    assert measure_agreement([one.sure for one in gold], gold).error_rate == 0.0
    assert measure_agreement([frozenset()], [GoldAlignment(frozenset(), frozenset())]).error_rate == 0.0
    assert measure_agreement([frozenset()], gold).error_rate == 1.0
    with pytest.raises(DataError, match="1 alignments but 0 gold"):
        measure_agreement([frozenset()], [])


@settings(deadline=None)
@given(SETS, SETS, SETS)
def test_without_merely_possible_links_it_is_one_minus_f1(found, sure, more):
    one = measure_agreement([found], [GoldAlignment(sure, sure)])
    total = one.precision + one.recall
    if found and sure:
        f1 = 2 * one.precision * one.recall / total if total else 0.0
        assert one.error_rate == pytest.approx(1 - f1)
    assert measure_agreement([found], [GoldAlignment(sure, sure | more)]).error_rate <= one.error_rate + 1e-12


@pytest.mark.skipif(not DATA.is_dir(), reason="HEEDFUL_DATA has no gold-alignments")
@pytest.mark.parametrize(
    ("pair", "expected"), [("enfr", 0.04069), ("roen", 0.20746), ("jaen", 0.37358), ("zhen", 0.13314)]
)
def test_published_error_rates(pair, expected):
    found = [parse_links(line) for line in (DATA / f"{pair}.awesome-align.out").read_text().splitlines()]
    gold = [parse_gold(line, first=1) for line in (DATA / f"{pair}.gold").read_text().splitlines()]
    assert measure_agreement(found, gold).error_rate == pytest.approx(expected, abs=5e-6)

"""The table in docs/lectures/index.md: every formula of the lectures, once, with code and a test that exist."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "lectures" / "index.md"
NUMBERS = {
    "A": 15,
    "B": 8,
    "C": 15,
    "D": 3,
    "E": 12,
    "F": 4,
    "G": 16,
    "H": 8,
    "I": 5,
    "J": 6,
    "K": 10,
    "L": 13,
    "M": 16,
    "P": 8,
}
IDS = [f"{letter}{number}" for letter, last in NUMBERS.items() for number in range(1, last + 1)]
ID = r"(?<![A-Za-z0-9])[A-P]\d+(?![A-Za-z0-9])"


@pytest.fixture(scope="module")
def formulas():
    pytest.importorskip("sphinx", reason="sphinx is not installed: pip install 'heedful[docs]'")
    sys.path.insert(0, str(ROOT / "docs" / "_ext"))
    try:
        import formulas
    finally:
        sys.path.pop(0)
    return formulas


@pytest.fixture(scope="module")
def rows(formulas):
    return formulas.read_rows(PAGE.read_text(encoding="utf-8").split("```{formulas}\n")[1].split("```")[0])


def test_every_formula_is_in_the_table_once(rows):
    assert sorted(name for row in rows for name in row.ids) == sorted(IDS)


def test_code_and_tests_exist(formulas, rows):
    for row in rows:
        if row.reason:
            assert re.match("left out: |not there yet: |not a formula: |a claim, ", row.reason), row
        else:
            assert formulas.find_line(row.code) > 0
            assert re.match(r"tests/\S+ test_", row.test), row
            assert formulas.find_line(row.test) > 0


def test_a_test_that_is_named_by_a_formula_is_in_its_row(rows):
    tests = {name: row.test for row in rows for name in row.ids}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in re.findall(r"^def (test_[A-P]\d\w*)", path.read_text(encoding="utf-8"), re.MULTILINE):
            named = [
                word
                for word in re.match(r"test_((?:[A-P]\d+_(?:and_)?)+)", name)[1].split("_")
                if re.fullmatch(ID, word)
            ]
            for formula in named:
                assert tests[formula].startswith("tests/"), f"{formula} has the test {name}, but the table has no test"


def test_names_that_do_not_exist_are_errors(formulas):
    for place in ("src/heedful/nn/attention.py Nothing", "src/heedful/nothing.py Dot"):
        with pytest.raises(Exception, match=r"there is no \w+ in src/heedful"):
            formulas.find_line(place)
    with pytest.raises(Exception, match=r"a row needs a code and a test, or a reason: E1 \| dot"):
        formulas.read_rows("E1 | dot | nn/attention.py Dot")

import pytest

from law import check
from zoo import Case, pairwise

CASES = pairwise()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_law_holds(case: Case):
    check(case)

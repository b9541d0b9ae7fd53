import pytest

from support.law import check
from support.zoo import Case, pairwise

CASES = pairwise()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_law_holds(case: Case):
    check(case)

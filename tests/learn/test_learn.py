"""It learns: copy, reverse and sort, to the last per cent, with a fixed seed and number of updates."""

import pytest

from support.toy_tasks import RECIPES, TASKS, anti_diagonal, exact, train


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task"),
    [("transformer", "reverse"), ("lstm+additive", "sort"), ("gru+bilinear", "copy")],
    ids=lambda value: value,
)
def test_unseen_sequences_are_answered_exactly(name, task):
    """One task each in CI; `benchmarks/learn.py` has all of them."""
    assert task in TASKS
    model, _ = train(name, task)
    assert exact(model, task, RECIPES[name].longest) >= 0.99
    if task == "reverse":
        assert anti_diagonal(model, RECIPES[name].longest, reach=0) >= 0.9

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.search.filters import (
    FILTERS,
    ForcedPrefix,
    NoRepeatNgram,
    SuppressSequences,
    SuppressTokens,
    Temperature,
    TopK,
    TopP,
)

NOTHING = torch.empty(3, 0, dtype=torch.long)
EXAMPLES = {
    "temperature": [Temperature(0.3), Temperature(4.0)],
    "top_k": [TopK(1), TopK(3), TopK(100)],
    "top_p": [TopP(0.01), TopP(0.5), TopP(1.0)],
    "suppress_tokens": [SuppressTokens(()), SuppressTokens((0, 2)), SuppressTokens(tuple(range(6)))],
    "suppress_sequences": [
        SuppressSequences(()),
        SuppressSequences(((2,), (1, 3), (1, 3, 4))),
        SuppressSequences(tuple((token,) for token in range(6))),
    ],
    "no_repeat_ngram": [NoRepeatNgram(1), NoRepeatNgram(2), NoRepeatNgram(3)],
    "forced_prefix": [ForcedPrefix(((1,), (), (4, 5))), ForcedPrefix(((), (), ()))],
}


def test_every_filter_has_examples():
    assert set(EXAMPLES) == set(FILTERS)


@pytest.mark.parametrize("rule", [rule for rules in EXAMPLES.values() for rule in rules], ids=str)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_filter_keeps_at_least_one_token_adds_none_and_leaves_its_input_alone(rule, data):
    numbers = st.floats(-20, 5, width=32) | st.just(-torch.inf)
    rows = data.draw(st.lists(st.lists(numbers, min_size=6, max_size=6), min_size=3, max_size=3))
    said = data.draw(st.lists(st.lists(st.integers(0, 5), min_size=5, max_size=5), min_size=3, max_size=3))
    log_probs = torch.tensor(rows)
    log_probs[:, data.draw(st.integers(0, 5))] = 0.0  # what comes in has at least one token
    log_probs = log_probs.log_softmax(-1)
    before = log_probs.clone()
    state = rule.start(NOTHING)
    for length in range(5):
        after, state = rule(log_probs, torch.tensor(said)[:, :length], state)
        assert (after > -torch.inf).any(-1).all()
        assert not ((after > -torch.inf) & (before == -torch.inf)).any()
        assert torch.equal(log_probs, before)
        assert not after.isnan().any()


def test_top_p_keeps_the_best_token_alone_when_it_reaches_p():
    assert int(TopP(0.9)(torch.tensor([[0.95, 0.03, 0.02]]).log(), None, None)[0].isfinite().sum()) == 1


def test_top_k_keeps_exactly_k_of_equals():
    assert int(TopK(2)(torch.zeros(1, 5), None, None)[0].isfinite().sum()) == 2


def test_no_repeat_bans_what_would_complete_an_n_gram():
    tokens = torch.tensor([[1, 2, 3, 1, 2], [1, 2, 3, 2, 2]])
    after, _ = NoRepeatNgram(3)(torch.zeros(2, 5), tokens, None)
    assert after[0].tolist() == [0, 0, 0, -torch.inf, 0]  # 1 2 -> 3 was said before
    assert after[1].isfinite().all()


def test_suppressed_sequences_are_never_completed():
    tokens = torch.tensor([[1, 2], [2, 1], [3, 3]])
    after, _ = SuppressSequences(((1, 2, 4), (1, 3), (0,)))(torch.zeros(3, 5), tokens, None)
    assert after[0].tolist() == [-torch.inf, 0, 0, 0, -torch.inf]
    assert after[1].tolist() == [-torch.inf, 0, 0, -torch.inf, 0]
    assert after[2].tolist() == [-torch.inf, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Temperature(0.0), "above 0, got 0.0; to always choose the best token, use greedy search"),
        (lambda: TopK(0), "top-k must be at least 1, got 0"),
        (lambda: TopP(0.0), r"in \(0, 1\], got 0.0"),
        (lambda: TopP(1.5), r"in \(0, 1\], got 1.5"),
        (lambda: SuppressSequences(((1,), ())), "sequence must have at least one token"),
        (lambda: NoRepeatNgram(0), "n-gram size must be at least 1, got 0"),
        (
            lambda: ForcedPrefix(((1,),)).start(torch.empty(2, 0, dtype=torch.long)),
            "got 1 forced prefixes for 2 sentences",
        ),
    ],
)
def test_misuse_is_explained(make, message):
    with pytest.raises(ValueError, match=message):
        make()

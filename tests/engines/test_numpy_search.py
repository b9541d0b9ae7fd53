"""The searches in NumPy are the searches in PyTorch: the same answers, to the last bit, over random models."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from heedful.engines import numpy_search
from heedful.engines.base import EncodedSource, SamplingOptions, SearchOptions
from heedful.engines.torch import TorchEngine
from heedful.errors import HeedfulError
from heedful.nn.contract import Decoded, Map, Maps, Memory, State
from heedful.performance.topk import top_sums
from heedful.search.filters import Temperature, TopK, TopP
from heedful.search.stopping import LENGTH_RULES, STOPPING_RULES
from heedful.text.tokenizer import BOS, EOS

LAYERS, HEADS = 2, 3
SEQUENCES = st.lists(st.sampled_from([1, 3, 4]), min_size=1, max_size=3).map(tuple)  # with the end token
PRIME = 2**31 - 1


def hashed(past, tokens):
    return (past * 48271 + tokens * 7919 + 1) % PRIME


class Chaos(nn.Module):
    """A decoder whose every step depends on all of the past and the source, through a hash into a table."""

    def __init__(self, seed, words, eager=0.0, rows=499):
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.logits = 2 * torch.randn(rows, words, generator=draw)
        self.logits[:, EOS] += eager
        self.log_probs = self.logits.log_softmax(-1).numpy()
        self.looks = torch.rand(rows, LAYERS, HEADS, 16, generator=draw)

    def start(self, memory):
        return State(memory.states, memory.states.sum((1, 2)).long())

    def forward(self, tokens, state, look=None):
        past, places = state.past, []
        for token in tokens.split(1, 1):
            past = hashed(past, token.squeeze(1))
            places.append(past % len(self.logits))
        at = torch.stack(places, 1)  # [R, T]
        maps = None
        if look is not None:
            looks = self.looks[at][..., : state.source.size(1)].permute(2, 0, 3, 1, 4)  # [layers, R, heads, T, S]
            maps = Maps(cross=tuple(Map(weights=layer) for layer in looks))
        return Decoded(self.logits[at], maps), State(state.source, past)

    def project(self, states):
        return states

    def step(self, tokens, source, past):
        (states,), (before,) = source, past
        assert len(states) == len(tokens) == len(before)
        after = hashed(before, tokens)
        at = after % len(self.log_probs)
        return self.log_probs[at], [after], self.looks.numpy()[at][..., : states.shape[1]]


def encode(tokens, mask):
    return Memory((tokens * mask).unsqueeze(-1), mask)


def both(decoder, questions, search):
    """Answers by PyTorch, and by NumPy."""
    model = SimpleNamespace(encoder=encode, decoder=decoder, to=lambda _: model, eval=lambda: model)
    engine = TorchEngine(model)
    rows = np.zeros((len(questions), max(len(question.row) for question in questions), 1), dtype=np.int64)
    for row, question in enumerate(questions):
        rows[row, : len(question.row), 0] = question.row
    start = [rows], [rows.sum((1, 2))]
    return engine.translate(questions, search), numpy_search.run_search(decoder.step, *start, questions, search)


def same(ones, others):
    assert [len(one) for one in ones] == [len(other) for other in others]
    for one, other in zip(sum(ones, ()), sum(others, ()), strict=True):
        assert one.hypothesis == other.hypothesis
        assert (one.attention is None) == (other.attention is None)
        if one.attention is not None:
            np.testing.assert_array_equal(one.attention, other.attention)


@st.composite
def asked(draw, words):
    """Some questions of any length, limit and prefix."""
    some = []
    for _ in range(draw(st.integers(1, 5))):
        tokens = draw(st.lists(st.integers(4, words - 1), max_size=8))
        prefix = draw(st.lists(st.sampled_from([1, *range(4, words)]), max_size=3))
        limit = len(prefix) + draw(st.integers(1, 9))
        some.append(EncodedSource((*tokens, EOS), limit, tuple(prefix), index=len(some)))
    return some


@pytest.mark.parametrize(("length", "stopping"), list(product(LENGTH_RULES, STOPPING_RULES)))
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_beam_is_the_same_beam(length, stopping, data):
    words = data.draw(st.sampled_from([5, 40, 300]))
    decoder = Chaos(data.draw(st.integers(0, 1000)), words, data.draw(st.sampled_from([-4.0, 0.0, 2.0, 5.0])))
    beam = data.draw(st.integers(1, 6))
    search = SearchOptions(
        beam,
        num_best=data.draw(st.integers(1, beam)),
        length_rule=length,
        length_penalty=data.draw(st.sampled_from([0.0, 0.6, 1.0, 2.0])),
        attention=data.draw(st.booleans()),
        stopping=stopping,
        suppress_sequences=tuple(data.draw(st.lists(SEQUENCES, max_size=4))),
    )
    same(*both(decoder, data.draw(asked(words)), search))


def test_an_n_best_list_may_be_longer_than_its_beam():
    same(*both(Chaos(1, 40), [EncodedSource((5, EOS), 6), EncodedSource((EOS,), 2)], SearchOptions(beam=2, num_best=4)))


def test_a_beam_wider_than_all_there_is():
    same(*both(Chaos(1, 5), [EncodedSource((4, EOS), 3)], SearchOptions(beam=300, num_best=200)))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 4), st.integers(1, 300), st.integers(1, 12), st.integers(1, 5))
def test_the_largest_sums_are_those_of_a_sort(seed, groups, size, k, rows):
    draw = np.random.default_rng(seed)
    bases, values = draw.normal(size=(groups, rows)), draw.normal(size=(groups, rows, size)).astype(np.float32)
    sums, row, column = numpy_search.top_sums(bases, values, k)
    expected, where = top_sums(torch.from_numpy(bases), torch.from_numpy(values), k)
    real = slice(0, min(k, rows * size))
    np.testing.assert_array_equal(sums[:, real], expected)
    np.testing.assert_array_equal((row * size + column)[:, real], where)
    assert (sums[:, real.stop :] == -np.inf).all()


def test_of_equal_sums_the_first_is_first():
    _, row, column = numpy_search.top_sums(np.zeros((1, 2)), np.zeros((1, 2, 300), dtype=np.float32), 4)
    assert (row.tolist(), column.tolist()) == ([[0] * 4], [[0, 1, 2, 3]])


def test_sentences_that_are_done_leave_the_batch():
    decoder, sizes = Chaos(3, 40, eager=-50.0), []

    def step(tokens, source, past):
        sizes.append(len(tokens))
        return decoder.step(tokens, source, past)

    questions = [EncodedSource((5, EOS), limit) for limit in (1, 2, 3, 4)]
    rows = [np.ones((4, 2, 1), dtype=np.int64)], [np.arange(4)]
    numpy_search.run_search(step, *rows, questions, SearchOptions(beam=1))
    assert sizes == [4, 3, 2, 1]
    sizes.clear()
    numpy_search.run_search(step, *rows, questions, SearchOptions(beam=2))
    assert sizes == [4, 6, 4, 2]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([1, 4]), st.lists(st.lists(st.integers(4, 9), min_size=1, max_size=3)))
def test_no_hypothesis_contains_a_suppressed_sequence_after_its_prefix(seed, beam, rows):
    sequences = tuple(map(tuple, rows))
    questions = [EncodedSource((5, EOS), 9), EncodedSource((6, EOS), 9, (4, 5, 4))]
    for sampling in (None, SamplingOptions(seed=seed)):
        options = SearchOptions(beam, num_best=beam, sampling=sampling, suppress_sequences=sequences)
        for results in both(Chaos(seed, 40), questions, options):
            for question, hypotheses in zip(questions, results, strict=True):
                for tokens in (result.hypothesis.tokens for result in hypotheses):
                    ends = {
                        first + len(sequence)
                        for sequence in sequences
                        for first in range(len(tokens))
                        if tokens[first : first + len(sequence)] == sequence
                    }
                    assert all(end <= len(question.prefix) for end in ends)
                    assert tokens[: len(question.prefix)] == question.prefix


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from([0.3, 1.0, 1.7]),
    st.none() | st.integers(1, 12),
    st.none() | st.floats(0.01, 1.0),
)
def test_what_is_drawn_from_is_shaped_alike(seed, temperature, top_k, top_p):
    logits = torch.randn(3, 9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    shaped = expected = logits.log_softmax(-1)
    for rule in (Temperature(temperature), top_k and TopK(top_k), top_p and TopP(top_p)):
        expected = rule(expected, None, None)[0] if rule else expected
    found = numpy_search.filtered_probabilities(shaped.numpy(), SamplingOptions(temperature, top_k, top_p))
    np.testing.assert_allclose(found / found.sum(-1, keepdims=True), expected.softmax(-1), atol=1e-9)


def test_twenty_thousand_draws_follow_the_distribution():
    p = np.array([[0.5, 0.25, 0.0, 0.15, 0.07, 0.03]])
    with np.errstate(divide="ignore"):
        log_probs = np.log(p).repeat(20_000, 0)
    generators = [numpy_search.make_generator(5, number) for number in range(len(log_probs))]
    chosen = numpy_search.sample_tokens(
        log_probs, range(len(log_probs)), sampling=SamplingOptions(), generators=generators
    )
    counts = np.bincount(chosen, minlength=6)
    assert counts[2] == 0
    real = p[0] > 0
    assert stats.chisquare(counts[real], 20_000 * p[0, real]).pvalue > 0.01


def test_a_draw_depends_on_its_seed_and_number_alone():
    decoder = Chaos(2, 40)
    questions = [EncodedSource((5, 6, EOS), 9, prefix, number) for number, prefix in enumerate([(), (7,), (7, 8)])]

    def draw(some, seed):
        return both(decoder, some, SearchOptions(num_best=3, sampling=SamplingOptions(1.5, seed=seed)))[1]

    together = draw(questions, 1)
    assert draw(questions, 1) == together != draw(questions, 2)
    assert [draw([question], 1)[0] for question in questions] == together
    for some, question in zip(together, questions, strict=True):
        scores = [one.hypothesis.score for one in some]
        assert len({one.hypothesis.tokens for one in some}) > 1
        assert scores == sorted(scores, reverse=True)
        assert all(one.hypothesis.tokens[: len(question.prefix)] == question.prefix for one in some)


def test_misuse_is_explained():
    decoder, question = Chaos(1, 40), EncodedSource((5, EOS), 4)
    ask = [np.ones((1, 2, 1), dtype=np.int64)], [np.ones(1, dtype=np.int64)]
    with pytest.raises(HeedfulError, match="unknown length rule `powr`; did you mean `power`"):
        numpy_search.run_search(decoder.step, *ask, [question], SearchOptions(length_rule="powr"))
    with pytest.raises(HeedfulError, match="unknown stopping rule `soon`; known: ctranslate2, enough"):
        numpy_search.run_search(decoder.step, *ask, [question], SearchOptions(stopping="soon"))
    with pytest.raises(ValueError, match="cannot contain the end token"):
        numpy_search.run_search(decoder.step, *ask, [replace(question, prefix=(EOS,))], SearchOptions())
    with pytest.raises(ValueError, match="leaves no room within a maximum length of 4"):
        numpy_search.run_search(decoder.step, *ask, [replace(question, prefix=(BOS,) * 4)], SearchOptions())

"""What each search must do beyond the common laws."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from scipy import stats
from torch import nn

from heedful.data.batch import pad_rows
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.contract import Decoded, Look, Memory, State
from heedful.nn.decoders import TransformerDecoder
from heedful.nn.encoders import RecurrentEncoder, TransformerEncoder
from heedful.nn.layers import Embed, TransformerLayerOptions, output_layer
from heedful.nn.positions import Sinusoidal
from heedful.performance.attribute_cache import cached_attributes
from heedful.search import LENGTH_RULES, SEARCHES, STOPPING_RULES, Beam, DecodingLimits, Greedy, Sample
from heedful.search.filters import NoRepeatNgram, SuppressTokens, Temperature
from support.law import EVERYTHING, forced, replays, same_maps
from support.zoo import BOS, DECODER_CASES, EOS, PAD, WIDTH, Case, decoder, embed

TINY = 4  # words: pad, bos, eos and one more


@pytest.fixture(params=["lstm-previous-feeds", "gru-current", "transformer-pre-sinusoidal"])
def tiny(request):
    """A model of four words, small enough to try every sequence."""
    torch.manual_seed(1)
    model = Seq2Seq(
        RecurrentEncoder(embed(TINY), WIDTH), decoder(kind(request.param), "single", "additive", "soft", TINY)
    ).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)
    return model.eval()


def kind(name):
    """The decoder case of that name, with however many layers it has."""
    return next(case for case in DECODER_CASES if case == name or case.rsplit("-", 1)[0] == name)


def every_sequence(model, memory, limit, penalty, alpha):
    """(score, tokens, finished) of all sequences of up to `limit` tokens, best first."""
    found = []
    others = [token for token in range(TINY) if token != EOS]
    for length in range(limit + 1):
        for tokens in itertools.product(others, repeat=length):
            ends = length < limit  # at the limit a sequence is cut off, not ended
            said = [*tokens, EOS] if ends else list(tokens)
            states, _ = model.decoder(torch.tensor([[BOS, *said[:-1]]]), model.decoder.start(memory))
            each = model.decoder.project(states.states).log_softmax(-1)[0]
            total = float(each.gather(1, torch.tensor(said).unsqueeze(1)).sum())
            found.append((total / penalty(length, ends, alpha), tokens, ends))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("length", LENGTH_RULES)
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_a_wide_beam_is_brute_force(tiny, length, alpha):
    limit, best = 4, 5
    with torch.no_grad():
        memory = tiny.encoder(*pad_rows([[3, 1, 2], [1, 2]], PAD))
        search = Beam(size=TINY**limit, num_best=best, length_rule=length, length_penalty=alpha)
        found = search(tiny.decoder, memory, DecodingLimits(BOS, EOS, limit))
        for row, answers in enumerate(found):
            one = Memory(memory.states[row : row + 1], memory.mask[row : row + 1])
            expected = every_sequence(tiny, one, limit, LENGTH_RULES[length], alpha)[:best]
            assert [(answer.tokens, answer.finished) for answer in answers.hypotheses] == [e[1:] for e in expected]
            for answer, (score, _, _) in zip(answers.hypotheses, expected, strict=True):
                assert abs(answer.score - score) < 1e-9


class Fixed(nn.Module):
    """A student's model: three methods, no base class of ours, logits straight from a table of the last token."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits  # [V, V]

    def start(self, memory):
        return State(None, torch.zeros(memory.mask.size(0), 1))

    def forward(self, tokens, state, look=None):
        return Decoded(self.logits[tokens]), State(None, state.past + tokens.size(1))

    def project(self, states):
        return states


def nothing(rows):
    return Memory(torch.zeros(rows, 1, 1), torch.ones(rows, 1, dtype=torch.bool))


def test_a_hundred_thousand_samples_follow_the_distribution():
    torch.manual_seed(0)
    logits = torch.randn(8, 8)
    logits[:, EOS] = -torch.inf  # one step is enough
    found = Sample(seed=5)(Fixed(logits), nothing(100_000), DecodingLimits(BOS, EOS, 1))
    counts = torch.bincount(torch.tensor([one.best.tokens[0] for one in found]), minlength=8)
    expected = logits[BOS].softmax(-1) * 100_000
    real = expected > 0
    assert counts[~real].sum() == 0
    assert stats.chisquare(counts[real].double(), expected[real].double(), sum_check=False).pvalue > 0.01


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"temperature": 0.5}, lambda p: p**2 / (p**2).sum()),
        ({"top_k": 2}, lambda p: torch.where(p >= p.sort(descending=True)[0][1], p, 0.0)),
        ({"top_p": 0.6}, None),
    ],
)
def test_samples_follow_the_shaped_distribution(options, shape):
    p = torch.tensor([0.5, 0.25, 0.0, 0.15, 0.07, 0.03])
    logits = p.log().expand(6, 6)
    found = Sample(seed=6, **options)(Fixed(logits), nothing(50_000), DecodingLimits(BOS, EOS, 1))
    counts = torch.bincount(torch.tensor([one.best.tokens[0] for one in found]), minlength=6).double()
    wanted = torch.tensor([0.5, 0.25, 0, 0, 0, 0]) if shape is None else shape(p)
    wanted = (wanted / wanted.sum() * 50_000).double()
    assert counts[wanted == 0].sum() == 0
    real = wanted > 0
    assert stats.chisquare(counts[real], wanted[real], sum_check=False).pvalue > 0.01
    # Whatever shaped the choice, the log-probability is the model's own.
    assert abs(found[0].best.log_probability - float(p[found[0].best.tokens[0]].log())) < 1e-5


def test_the_same_seed_gives_the_same_sample_and_another_gives_another():
    torch.manual_seed(0)
    model, memory, rules = Fixed(torch.randn(9, 9)), nothing(20), DecodingLimits(BOS, EOS, 12)
    one, same, other = (Sample(seed=seed)(model, memory, rules) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_a_student_s_model_of_three_methods_gets_every_search():
    torch.manual_seed(0)
    model = Fixed(torch.randn(7, 7))
    for search in SEARCHES.values():
        for answers in search()(model, nothing(3), DecodingLimits(BOS, EOS, 5), trace=True):
            assert answers.trace.rebuild_hypotheses()[0].tokens == answers.best.tokens


class TestPrefix:
    rules = DecodingLimits(BOS, EOS, 6, prefix=((4, 5), (6,), (7, 8)))

    @pytest.mark.parametrize(
        "search", [Greedy(), Sample(seed=2), Beam(size=3, num_best=3)], ids=lambda s: type(s).__name__
    )
    @pytest.mark.parametrize("name", ["lstm-previous-feeds", "transformer-pre-sinusoidal"])
    def test_answers_begin_with_it_and_pay_for_it(self, search, name):
        model = Case("lstm-bi-1", kind(name), "concat", "scaled_dot", "soft", "greedy").model()
        with torch.no_grad():
            memory = model.encoder(*pad_rows([[5, 3, 2], [4, 2], [3, 3, 3, 2]], PAD), look=EVERYTHING)
            found = search(model.decoder, memory, self.rules, look=EVERYTHING, trace=True)
            for row, (answers, prefix) in enumerate(zip(found, self.rules.prefix, strict=True)):
                replays(answers)
                for answer in answers.hypotheses:
                    assert answer.tokens[: len(prefix)] == prefix
                    each, maps = forced(model, memory, answer, row, EVERYTHING)
                    torch.testing.assert_close(torch.tensor(answer.log_probabilities).double(), each, rtol=0, atol=1e-6)
                    same_maps(answer.maps, maps, memory.maps, row)

    def test_an_equal_prefix_is_the_same_search_from_there(self):
        """Of all sequences with this beginning a wide beam finds the best, whether it was read at once or forced."""
        torch.manual_seed(0)
        model = Fixed(torch.randn(6, 6))
        at_once = Beam(size=50)(model, nothing(2), DecodingLimits(BOS, EOS, 5, prefix=((3, 4), (3, 4))))
        ragged = Beam(size=50)(model, nothing(2), DecodingLimits(BOS, EOS, 5, prefix=((3, 4), ())))
        assert at_once[0].best.tokens == at_once[1].best.tokens == ragged[0].best.tokens
        assert abs(at_once[0].best.score - ragged[0].best.score) < 1e-5

    def test_misuse_is_explained(self):
        model = Fixed(torch.randn(6, 6))
        with pytest.raises(ValueError, match="got 1 prefixes for 2 sentences"):
            Greedy()(model, nothing(2), DecodingLimits(BOS, EOS, 5, prefix=((3,),)))
        with pytest.raises(ValueError, match="a prefix cannot contain the end token"):
            Greedy()(model, nothing(1), DecodingLimits(BOS, EOS, 5, prefix=((3, EOS),)))
        with pytest.raises(ValueError, match="leaves no room within a maximum length of 2"):
            Greedy()(model, nothing(1), DecodingLimits(BOS, EOS, 2, prefix=((3, 4),)))


@pytest.mark.parametrize("search", [Greedy(), Sample(seed=2), Beam(size=3, num_best=2)], ids=lambda s: type(s).__name__)
def test_lengths_stay_within_the_rules(search):
    torch.manual_seed(0)
    logits = torch.randn(7, 7)
    logits[:, EOS] += 3.0  # eager to end
    limits = (3, 8, 5, 4)
    for answers, limit in zip(
        search(Fixed(logits), nothing(4), DecodingLimits(BOS, EOS, limits, min_length=3)), limits, strict=True
    ):
        for answer in answers.hypotheses:
            assert 3 <= len(answer.tokens) <= limit
            assert answer.finished or len(answer.tokens) == limit


@pytest.mark.parametrize("search", [Greedy(), Sample(seed=2), Beam(size=4, num_best=4)], ids=lambda s: type(s).__name__)
def test_filters_act_in_every_search(search):
    torch.manual_seed(0)
    logits = torch.randn(8, 8) / 2
    logits[:, EOS] -= 5.0
    rules = DecodingLimits(BOS, EOS, 9, filters=(SuppressTokens((0, 1, 5)), NoRepeatNgram(2)))
    for answers in search(Fixed(logits), nothing(5), rules):
        for answer in answers.hypotheses:
            assert not {0, 1, 5} & set(answer.tokens)
            pairs = list(itertools.pairwise(answer.tokens))
            assert len(set(pairs)) == len(pairs)


class Countdown:
    """A filter with state: each hypothesis must say the word 3 exactly at its own step."""

    def start(self, tokens):
        return torch.arange(len(tokens))

    def __call__(self, log_probs, tokens, state):
        only = torch.full_like(log_probs, -torch.inf)
        only[:, 3] = log_probs[:, 3]
        return torch.where((state == tokens.size(1)).unsqueeze(1), only, log_probs), state


@pytest.mark.parametrize("search", [Greedy(), Beam(size=3, num_best=3)], ids=lambda s: type(s).__name__)
def test_the_state_of_a_filter_moves_with_its_hypothesis(search):
    torch.manual_seed(0)
    logits = torch.randn(8, 8)
    logits[:, EOS] -= 9.0
    for row, answers in enumerate(
        search(Fixed(logits), nothing(5), DecodingLimits(BOS, EOS, 6, filters=(Countdown(),)))
    ):
        assert all(answer.tokens[row] == 3 for answer in answers.hypotheses)


def test_exact_stopping_finds_no_worse_than_searching_to_the_limit():
    for seed in range(20):
        torch.manual_seed(seed)
        model, memory = Fixed(torch.randn(9, 9) * 2), nothing(1)
        rules = DecodingLimits(BOS, EOS, 7)
        for length, alpha in itertools.product(LENGTH_RULES, (0.0, 1.0, 1.5)):
            search = Beam(size=4, num_best=2, length_rule=length, length_penalty=alpha)
            stopped = search(model, memory, rules)[0]
            patient = replace(search, stopping="never")(model, memory, rules)[0]
            assert [a.tokens for a in stopped.hypotheses] == [a.tokens for a in patient.hypotheses]


@pytest.fixture(autouse=True)
def _never(monkeypatch):
    monkeypatch.setitem(STOPPING_RULES, "never", lambda now: False)


def test_sentences_that_are_done_leave_the_batch():
    rows = []

    class Counting(Fixed):
        def forward(self, tokens, state, look=None):
            rows.append(tokens.size(0))
            return super().forward(tokens, state, look)

    logits = torch.zeros(6, 6)
    Greedy()(Counting(logits), nothing(4), DecodingLimits(BOS, EOS, (1, 2, 3, 4), min_length=9))
    assert rows == [4, 3, 2, 1]
    rows.clear()
    Beam(size=2)(Counting(logits), nothing(4), DecodingLimits(BOS, EOS, (1, 2, 3, 4), min_length=9))
    assert rows == [4, 6, 4, 2]


def test_a_beam_keeps_its_sources_apart_when_row_counts_coincide():
    """After one step 10 sentences on a row each become 2 sentences on 5 rows each: equal counts, other sources."""
    model = Case("gru-uni-1", "transformer-pre-sinusoidal", "concat", "scaled_dot", "soft", "greedy").model()
    sources = [[3 + row % 8, 4 + row % 7, 2] for row in range(10)]
    limits = tuple(1 if row < 8 else 6 for row in range(10))
    with torch.no_grad():
        together = Beam(size=5)(model.decoder, model.encoder(*pad_rows(sources, PAD)), DecodingLimits(BOS, EOS, limits))
        alone = [
            Beam(size=5)(model.decoder, model.encoder(*pad_rows([source], PAD)), DecodingLimits(BOS, EOS, limit))[0]
            for source, limit in zip(sources, limits, strict=True)
        ]
    assert [one.best.tokens for one in together] == [one.best.tokens for one in alone]


def test_the_end_token_counts_or_not():
    assert LENGTH_RULES["power"](4, True, 1.0) == 5
    assert LENGTH_RULES["power_without_end"](4, True, 1.0) == 4
    assert LENGTH_RULES["power_without_end"](0, True, 1.0) == 1  # an empty answer must not divide by zero
    assert LENGTH_RULES["gnmt"](1, True, 0.5) == pytest.approx((7 / 6) ** 0.5)
    assert LENGTH_RULES["none"](4, True, 1.0) == 1


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("size", [1280, 1283], ids=["with blocks", "a prime"])
def test_single_precision_and_a_vocabulary_of_blocks_keep_the_laws_too(bias, size):
    """The way of production: logits written in place, candidates found by blocks."""
    torch.manual_seed(0)
    table = nn.Embedding(size, 16)
    words = Embed(table, positions=Sinusoidal(40, 16), scale_embeddings=True)
    options = TransformerLayerOptions(heads=2, feedforward_size=16)
    model = Seq2Seq(
        TransformerEncoder(words, layers=1, options=options),
        TransformerDecoder(words, output_layer(16, size, tied_to=table, bias=bias), 16, layers=1, options=options),
    ).eval()
    with torch.no_grad():
        memory = model.encoder(*pad_rows([[5, 3, 9, 2], [7, 2]], PAD), look=EVERYTHING)
        for search in (Greedy(), Beam(size=3, num_best=3), Sample(seed=1), Beam(size=1, length_rule="none")):
            found = search(model.decoder, memory, DecodingLimits(BOS, EOS, 6), look=EVERYTHING, trace=True)
            for row, answers in enumerate(found):
                replays(answers)
                for answer in answers.hypotheses:
                    each, _ = forced(model, memory, answer, row, EVERYTHING)
                    torch.testing.assert_close(torch.tensor(answer.log_probabilities), each, rtol=0, atol=1e-5)
        greedy = Greedy()(model.decoder, memory, DecodingLimits(BOS, EOS, 6))
        assert [one.best.tokens for one in found] == [one.best.tokens for one in greedy]  # the last was a beam of 1


class Keeps(nn.Module):
    """A student's cell whose state, past and logits are one and the same tensor."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(9, 9)

    def start(self, memory):
        return State(None, torch.zeros(memory.mask.size(0), 9))

    def forward(self, tokens, state, look=None):
        steps = []
        past = state.past
        for step in range(tokens.size(1)):
            past = torch.tanh(past + self.words(tokens[:, step])) * 3
            steps.append(past)
        states = past.unsqueeze(1) if len(steps) == 1 else torch.stack(steps, 1)
        return Decoded(states), State(None, past)

    def project(self, states):
        return states


@pytest.mark.parametrize("search", [Greedy(), Beam(size=3, num_best=3)], ids=lambda s: type(s).__name__)
def test_a_search_never_writes_into_what_the_model_holds(search):
    torch.manual_seed(0)
    model, memory = Keeps(), nothing(2)
    with torch.no_grad():
        for row, answers in enumerate(search(model, memory, DecodingLimits(BOS, EOS, 6, min_length=3))):
            for answer in answers.hypotheses:
                each, _ = forced(type("M", (), {"decoder": model}), memory, answer, row, None)
                torch.testing.assert_close(torch.tensor(answer.log_probabilities), each, rtol=0, atol=1e-5)


class Deep(Fixed):
    """A student's model whose `output` is not all there is to its `project`."""

    def __init__(self, logits):
        super().__init__(logits)
        self.output = nn.Linear(logits.size(1), logits.size(1))

    def project(self, states):
        return self.output(torch.tanh(states)) * 5


def test_project_is_asked_whatever_else_a_model_has():
    torch.manual_seed(0)
    model = Deep(torch.randn(9, 9))
    with torch.no_grad():
        (found,) = Greedy()(model, nothing(1), DecodingLimits(BOS, EOS, 5))
        each, _ = forced(type("M", (), {"decoder": model}), nothing(1), found.best, 0, None)
    torch.testing.assert_close(torch.tensor(found.best.log_probabilities), each, rtol=0, atol=1e-5)


class Watch:
    """A filter that counts, in its state, how many tokens each hypothesis has said."""

    def start(self, tokens):
        return torch.full((len(tokens),), tokens.size(1))

    def __call__(self, log_probs, tokens, state):
        assert (state == tokens.size(1)).all()
        return log_probs, state + 1


@pytest.mark.parametrize("prefix", [((3, 4), (5, 6)), ((3, 4), (5,)), ((3, 4), ())])
def test_a_filter_with_state_starts_after_what_a_prefix_gave(prefix):
    torch.manual_seed(0)
    model = Fixed(torch.randn(8, 8))
    rules = DecodingLimits(BOS, EOS, 6, prefix=prefix, filters=(Watch(), Temperature(0.5), SuppressTokens((4,))))
    first = [search(model, nothing(2), rules)[0].best for search in (Greedy(), Beam(size=20))]
    alone = [
        search(model, nothing(1), replace(rules, prefix=prefix[:1]))[0].best for search in (Greedy(), Beam(size=20))
    ]
    for one, other in zip(first, alone, strict=True):
        assert one.tokens[:2] == (3, 4)  # although 4 is forbidden: a prefix overrules every filter
        assert one.tokens == other.tokens  # what the other sentence has to say does not matter


class TestQuick:
    def mirrored(self, model):
        return any(name in part.__dict__ for part in model.modules() for name in (*part._modules, *part._parameters))

    def test_attributes_are_plain_inside_and_as_ever_outside(self):
        model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
        with cached_attributes(model):
            assert self.mirrored(model)
            assert model[0].weight is model[0]._parameters["weight"]
        assert not self.mirrored(model)

    def test_an_error_leaves_nothing_behind(self):
        model = nn.Linear(2, 2)
        with pytest.raises(RuntimeError, match="oops"), cached_attributes(model):
            raise RuntimeError("oops")
        assert not self.mirrored(model)

    def test_two_searches_at_once_do_not_disturb_each_other(self):
        model = Case("gru-uni-1", "transformer-pre-sinusoidal", "concat", "scaled_dot", "soft", "greedy").model()
        with torch.no_grad():
            memory = model.encoder(*pad_rows([[3, 4, 5, 2]], PAD))
        search = lambda _: Beam(size=3)(model.decoder, memory, DecodingLimits(BOS, EOS, 8))[0].best.tokens  # noqa: E731
        with ThreadPoolExecutor(4) as pool:
            assert len(set(pool.map(search, range(24)))) == 1
        assert not self.mirrored(model)

    def test_a_sharded_model_is_left_alone(self):
        model = nn.Linear(2, 2)
        model.unshard = lambda: None
        with cached_attributes(model):
            assert not self.mirrored(model)


def test_misuse_is_explained():
    with pytest.raises(ValueError, match="beam size must be at least 1, got 0"):
        Beam(size=0)
    with pytest.raises(ValueError, match=r"num_best must be between 1 and 2 .the beam size., but is 3"):
        Beam(size=2, num_best=3)
    with pytest.raises(ValueError, match="length_rule 'lenght' is unknown; choose from none, power"):
        Beam(length_rule="lenght")
    with pytest.raises(ValueError, match="stopping 'soon' is unknown; choose from exact"):
        Beam(stopping="soon")
    with pytest.raises(ValueError, match="got 2 maximum lengths for 3 sentences"):
        Greedy()(Fixed(torch.zeros(4, 4)), nothing(3), DecodingLimits(BOS, EOS, (2, 2)))
    with pytest.raises(ValueError, match="max_length must be at least 1, got 0"):
        Greedy()(Fixed(torch.zeros(4, 4)), nothing(1), DecodingLimits(BOS, EOS, 0))


def test_without_a_look_nothing_is_computed_for_maps(monkeypatch):
    """The explicit path, which forms weights, is never entered by a scaled dot product that nobody looks at."""
    from heedful.nn import attention as module

    scaled = "transformer-pre-sinusoidal-relu-scaled_dot-soft-concat"
    model = Case(scaled, "transformer-pre-sinusoidal", "concat", "scaled_dot", "soft", "greedy").model()

    def refuse(*_args):
        raise AssertionError("scores were formed")

    monkeypatch.setattr(module.ScaledDot, "forward", refuse)
    with torch.no_grad():
        memory = model.encoder(*pad_rows([[3, 4, 2]], PAD))
        for search in (Greedy(), Beam(size=2)):
            search(model.decoder, memory, DecodingLimits(BOS, EOS, 4))
        with pytest.raises(AssertionError, match="scores were formed"):
            Greedy()(model.decoder, memory, DecodingLimits(BOS, EOS, 4), look=Look())

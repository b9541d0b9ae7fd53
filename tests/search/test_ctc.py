"""The searches over slots: best path and prefix beam."""

import itertools

import pytest
import torch
from torch import nn

from heedful.nn.contract import Look, Memory
from heedful.nn.ctc import forward_backward
from heedful.nn.decoders import CTCDecoder
from heedful.search import Beam, BestPath, DecodingLimits, PrefixBeam
from heedful.search.filters import NoRepeatNgram
from support.law import replays

BOS, EOS = 1, 2
LIMITS = DecodingLimits(BOS, EOS, 50)


def random_model(seed, *, vocabulary=5, slots=4, upsample=1, scale=1.5):
    torch.manual_seed(seed)
    decoder = CTCDecoder(nn.Linear(3, vocabulary), 3, upsample=upsample, bos=BOS, eos=EOS).double()
    for parameter in decoder.parameters():
        nn.init.normal_(parameter, std=scale)
    mask = torch.arange(slots) < torch.tensor([[slots], [max(1, slots - 1)]])
    return decoder, Memory(torch.randn(2, slots, 3).double(), mask)


def every_sequence(decoder, memory, sentence):
    """(log p, labels) of all label sequences that fit, best first."""
    log_probs, mask = decoder.slot_labels(memory)
    log_probs, mask = log_probs.detach()[sentence : sentence + 1], mask[sentence : sentence + 1]
    found = []
    vocabulary = [label for label in range(1, log_probs.size(2)) if label not in (BOS, EOS)]
    for length in range(int(mask.sum()) + 1):
        for labels in itertools.product(vocabulary, repeat=length):
            tensor = torch.tensor([labels], dtype=torch.long).view(1, length)
            alignments = forward_backward(log_probs, mask, tensor, torch.ones_like(tensor, dtype=torch.bool))
            found.append((float(alignments.log_likelihood), labels))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("seed", range(12))
def test_a_beam_as_large_as_the_space_finds_the_best_labels(seed):
    upsample = 1 + seed % 2
    decoder, memory = random_model(seed, slots=4 // upsample, upsample=upsample)
    for sentence, result in enumerate(PrefixBeam(200, 5)(decoder, memory, LIMITS)):
        expected = every_sequence(decoder, memory, sentence)
        assert sum(torch.tensor([score for score, _ in expected]).exp()) == pytest.approx(1.0)
        for hypothesis, (score, labels) in zip(result.hypotheses, expected, strict=False):
            assert hypothesis.score == pytest.approx(score, abs=1e-9)
            assert hypothesis.tokens == labels or score == pytest.approx(
                next(other for other, tokens in expected if tokens == hypothesis.tokens)
            )


@pytest.mark.parametrize("seed", range(6))
def test_a_wide_beam_is_the_best_search(seed):
    decoder, memory = random_model(seed, slots=12, vocabulary=8)
    wide = PrefixBeam(200, 1)(decoder, memory, LIMITS)
    narrow, best_path = PrefixBeam(4, 2)(decoder, memory, LIMITS), BestPath()(decoder, memory, LIMITS)
    tokens = Beam(50, length_rule="none")(decoder, memory, LIMITS)
    for row in range(2):
        assert best_path[row].best.log_probability <= wide[row].best.log_probability + 1e-9
        assert narrow[row].best.log_probability <= wide[row].best.log_probability + 1e-9
        assert tokens[row].best.log_probability <= wide[row].best.log_probability + 1e-9


def test_the_best_path_need_not_be_the_best_labels():
    """p(blank, a) = (0.6, 0.4) twice: the best path is empty with 0.36, but `a` has 0.64."""
    decoder = CTCDecoder(nn.Linear(1, 4, bias=False), 1, bos=1, eos=2)
    nn.init.zeros_(decoder.output.weight)
    with torch.no_grad():
        decoder.output.weight[:, 0] = torch.tensor([0.6, 1e-9, 1e-9, 0.4]).log()
    memory = Memory(torch.ones(1, 2, 1), torch.ones(1, 2, dtype=torch.bool))
    assert BestPath()(decoder, memory, LIMITS)[0].best.tokens == ()
    (result,) = PrefixBeam(3, 2)(decoder, memory, LIMITS)
    assert [hypothesis.tokens for hypothesis in result.hypotheses] == [(3,), ()]
    assert torch.tensor(result.best.score).exp() == pytest.approx(0.64, abs=1e-6)


@pytest.mark.parametrize("upsample", [1, 2])
@pytest.mark.parametrize("search", [BestPath(), PrefixBeam(6, 4)], ids=["best-path", "beam"])
def test_scores_maps_and_traces(search, upsample):
    decoder, memory = random_model(3, slots=6, upsample=upsample)
    results = search(decoder, memory, LIMITS, look=Look(), trace=True)
    assert [r.best.tokens for r in search(decoder, memory, LIMITS)] == [r.best.tokens for r in results]
    for row, result in enumerate(results):
        replays(result)
        for hypothesis in result.hypotheses:
            assert hypothesis.finished
            weights = hypothesis.maps.cross[0].weights
            assert weights.shape == (1, len(hypothesis.tokens) + 1, 6)
            torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
            assert (weights[..., ~memory.mask[row]] == 0).all()
            centers = (weights[0] * torch.arange(6)).sum(-1)
            assert (centers.diff() >= -1e-9).all()  # monotonic
        alone = Memory(memory.states[row : row + 1], memory.mask[row : row + 1])
        (again,) = search(decoder, alone, LIMITS)
        assert [h.tokens for h in again.hypotheses] == [h.tokens for h in result.hypotheses]


def test_limits():
    decoder, memory = random_model(5, slots=16)
    free = PrefixBeam(8)(decoder, memory, LIMITS)[0].best
    assert len(free.tokens) > 2
    for search in (BestPath(), PrefixBeam(8)):
        short = search(decoder, memory, DecodingLimits(BOS, EOS, 2))[0].best
        assert len(short.tokens) <= 2
        assert short.finished == (len(short.tokens) < 2)
        assert len(short.log_probabilities) == len(short.tokens) + short.finished
        suppressed = search(decoder, memory, DecodingLimits(BOS, EOS, 50, suppress_tokens=(0, 3)))[0].best
        assert 3 not in suppressed.tokens
        for limits in (
            DecodingLimits(BOS, EOS, 9, prefix=((3,), (4,))),
            DecodingLimits(BOS, EOS, 9, min_length=2),
            DecodingLimits(BOS, EOS, 9, filters=(NoRepeatNgram(2),)),
        ):
            with pytest.raises(ValueError, match="use Greedy, Sample or Beam"):
                search(decoder, memory, limits)


def test_misuse_is_explained():
    with pytest.raises(ValueError, match="beam size must be at least 1, got 0"):
        PrefixBeam(0)
    with pytest.raises(ValueError, match="num_best must be between 1 and 3"):
        PrefixBeam(3, 4)

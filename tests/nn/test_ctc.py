"""CTC against the enumeration of all paths, against PyTorch, and as a decoder."""

import itertools
import math

import pytest
import torch
from torch import nn

from heedful.nn.contract import Look, Memory, State, select
from heedful.nn.ctc import (
    BLANK,
    count_required_slots,
    ctc_loss,
    explicit_ctc_loss,
    forward_backward,
    label_posteriors,
)
from heedful.nn.decoders import CTCDecoder
from heedful.search.ctc import remove_blanks

BOS, EOS = 1, 2


def row(*labels):
    labels = torch.tensor([labels], dtype=torch.long)
    return labels, torch.ones_like(labels, dtype=torch.bool)


def random_case(draw, dtype=torch.float32):
    """Logits, and labels of which some do not fit."""
    rows, slots, vocabulary, length = (int(torch.randint(low, 9, (), generator=draw)) for low in (1, 1, 2, 1))
    logits = 3 * torch.randn(rows, slots, vocabulary, generator=draw, dtype=dtype)
    mask = torch.arange(slots) < torch.randint(1, slots + 1, (rows, 1), generator=draw)
    labels = torch.randint(1, vocabulary, (rows, length), generator=draw)
    label_mask = torch.arange(length) < torch.randint(0, length + 1, (rows, 1), generator=draw)
    return logits.requires_grad_(), mask, labels, label_mask


def paths_of(slots, labels, vocabulary):
    every = itertools.product(range(vocabulary), repeat=slots)
    return torch.tensor([path for path in every if remove_blanks(path) == tuple(labels)]).view(-1, slots)


@pytest.mark.parametrize("loss", [ctc_loss, explicit_ctc_loss])
def test_the_worked_values_of_the_lecture(loss):
    log_probs = torch.tensor([[[0.6, 0.4], [0.5, 0.5], [0.7, 0.3]]], dtype=torch.double).log()
    mask = torch.ones(1, 3, dtype=torch.bool)
    for labels, probability in (((1,), 0.73), ((1, 1), 0.06), ((), 0.21)):
        nll = loss(log_probs, mask, *row(*labels))
        assert float(nll) == pytest.approx(-math.log(probability), abs=1e-12)
    assert round(float(loss(log_probs, mask, *row(1))), 6) == 0.314711


@pytest.mark.parametrize(("slots", "vocabulary"), [(1, 4), (2, 4), (3, 3), (4, 4), (5, 3), (6, 4)])
def test_the_sum_and_the_posteriors_are_those_of_all_paths(slots, vocabulary):
    torch.manual_seed(slots)
    log_probs = torch.randn(1, slots, vocabulary, dtype=torch.double).log_softmax(-1)
    mask = torch.ones(1, slots, dtype=torch.bool)
    total = 0.0
    for length in range(min(slots, 3) + 1):
        for labels in itertools.product(range(1, vocabulary), repeat=length):
            paths = paths_of(slots, labels, vocabulary)
            alignments = forward_backward(log_probs, mask, *row(*labels))
            if len(paths) == 0:
                assert alignments.log_likelihood == -torch.inf
                assert (alignments.posteriors == 0).all()
                continue
            likelihoods = log_probs[0, torch.arange(slots), paths].sum(1).exp()
            assert float(alignments.log_likelihood.exp()) == pytest.approx(float(likelihoods.sum()), abs=1e-10)
            total += float(likelihoods.sum())
            torch.testing.assert_close(alignments.posteriors.sum(2), torch.ones(1, slots).double())
            posterior = torch.zeros(slots, vocabulary, dtype=torch.double)
            posterior.index_put_(
                (torch.arange(slots).expand_as(paths), paths),
                (likelihoods / likelihoods.sum()).unsqueeze(1).expand(-1, slots),
                accumulate=True,
            )
            expected = torch.zeros(slots, vocabulary, dtype=torch.double)
            expected.scatter_add_(1, alignments.states.expand(slots, -1), alignments.posteriors[0])
            torch.testing.assert_close(expected, posterior, rtol=0, atol=1e-10)
    if slots <= 3:  # then these are all labels that fit
        assert total == pytest.approx(1.0, abs=1e-10)


def test_our_loss_and_its_gradient_are_those_of_pytorch():
    draw = torch.Generator().manual_seed(0)
    for _ in range(100):
        logits, mask, labels, label_mask = random_case(draw)
        fits = count_required_slots(labels, label_mask) <= mask.sum(1)
        gradients = []
        for loss in (ctc_loss, explicit_ctc_loss):
            losses = loss(logits.log_softmax(-1), mask, labels, label_mask)
            assert torch.equal(losses.isfinite(), fits)
            gradients.append(torch.autograd.grad(losses[fits].sum(), logits)[0])
            theirs = torch.nn.functional.ctc_loss(
                logits.log_softmax(-1).transpose(0, 1), labels, mask.sum(1), label_mask.sum(1), reduction="none"
            )
            torch.testing.assert_close(losses[fits], theirs[fits], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-5)


def test_the_gradient_is_that_of_finite_differences():
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 4, 3, dtype=torch.double, generator=draw).requires_grad_()
    mask = torch.tensor([[True] * 4, [True] * 3 + [False]])
    labels, label_mask = torch.tensor([[1, 1], [2, 0]]), torch.tensor([[True, True], [True, False]])
    assert torch.autograd.gradcheck(
        lambda x: explicit_ctc_loss(x.log_softmax(-1), mask, labels, label_mask).sum(), [logits]
    )


def test_nothing_underflows():
    """At 5,000 slots in benchmarks/latent.py."""
    torch.manual_seed(0)
    logits = torch.randn(1, 1000, 6).requires_grad_()
    labels = torch.randint(1, 6, (1, 40))
    arguments = (torch.ones(1, 1000, dtype=torch.bool), labels, torch.ones_like(labels, dtype=torch.bool))
    ours, theirs = (loss(logits.log_softmax(-1), *arguments) for loss in (explicit_ctc_loss, ctc_loss))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)
    assert float(ours.detach()) > 1000  # exp(-1000) is zero in double precision
    ours.backward()
    assert logits.grad.isfinite().all()
    assert logits.grad.abs().sum() > 20


def test_a_label_begins_where_its_paths_say():
    torch.manual_seed(2)
    slots, labels = 5, (1, 1, 2)
    log_probs = torch.randn(1, slots, 4, dtype=torch.double).log_softmax(-1)
    found = label_posteriors(forward_backward(log_probs, torch.ones(1, slots, dtype=torch.bool), *row(*labels)))[0]
    paths = paths_of(slots, labels, 4)
    weights = log_probs[0, torch.arange(slots), paths].sum(1).exp()
    begins = paths != BLANK
    begins[:, 1:] &= paths[:, 1:] != paths[:, :-1]
    for number in range(len(labels)):
        this = begins & (begins.cumsum(1) == number + 1)
        torch.testing.assert_close(found[number], (this * weights.unsqueeze(1)).sum(0) / weights.sum())


def make_decoder(upsample=1, width=4, vocabulary=5):
    torch.manual_seed(upsample)
    decoder = CTCDecoder(nn.Linear(width, vocabulary), width, upsample=upsample, bos=BOS, eos=EOS).double()
    for parameter in decoder.parameters():
        nn.init.normal_(parameter)
    return decoder


MEMORY = Memory(
    torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0)).double(),
    torch.tensor([[True, True, True], [True, True, False]]),
)


@pytest.mark.parametrize("upsample", [1, 2])
def test_a_step_of_the_decoder_is_the_exact_conditional_probability(upsample):
    """Their sum over a whole sequence is log p(y | x) by all paths, and they add up to 1 at every step."""
    decoder = make_decoder(upsample)
    log_probs, mask = decoder.slot_labels(MEMORY)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones_like(log_probs[..., 0]))
    for sequence in ((), (3,), (4, 4), (3, 4, 3), (4, 3, 3), (3, 3, 3)):
        inputs = torch.tensor([[BOS, *sequence]] * 2)
        decoded, _ = decoder(inputs, decoder.start(MEMORY))
        gold = torch.tensor([[*sequence, EOS]] * 2).unsqueeze(2)
        steps = decoded.states.gather(2, gold).squeeze(2)
        labels, label_mask = (part.expand(2, -1) for part in row(*sequence))
        likelihood = forward_backward(log_probs, mask, labels, label_mask).log_likelihood
        torch.testing.assert_close(steps.sum(1), likelihood)
        torch.testing.assert_close(decoded.states.exp().sum(-1), torch.ones_like(decoded.states[..., 0]))


def test_the_maps_of_the_decoder_are_those_of_all_paths():
    decoder = make_decoder()
    log_probs, _ = decoder.slot_labels(MEMORY)
    decoded, _ = decoder(torch.tensor([[BOS, 3, 3]] * 2), decoder.start(MEMORY), Look())
    weights = decoded.maps.cross[0].weights[0, 0]
    paths = torch.tensor(list(itertools.product(range(5), repeat=3)))
    likelihoods = log_probs[0, torch.arange(3), paths].sum(1).exp()
    for step, prefix in enumerate(((), (3,), (3, 3))):
        expected = torch.zeros(3).double()
        for path, likelihood in zip(paths.tolist(), likelihoods.tolist(), strict=True):
            labels = remove_blanks(path)
            if labels[:step] == prefix:
                begins = [s for s in range(3) if path[s] != BLANK and (s == 0 or path[s] != path[s - 1])]
                expected[begins[step] if len(labels) > step else 2] += likelihood
        torch.testing.assert_close(weights[step], expected / expected.sum())


def test_more_labels_than_slots_end_there():
    decoder = make_decoder()
    decoded, state = decoder(torch.tensor([[BOS, 3, 4, 3, 4]] * 2), decoder.start(MEMORY))
    assert decoded.states[0, 3, 4] == -torch.inf
    assert decoded.states[0, -1, EOS] == 0.0
    assert not decoded.states.isnan().any()
    picked = State(select(state.source, torch.tensor([1])), select(state.past, torch.tensor([1])), shared=True)
    after, _ = decoder(torch.tensor([[3]]), picked)
    assert after.states[0, 0, EOS] == 0.0


def test_misuse_is_explained():
    with pytest.raises(ValueError, match="upsample must be at least 1, got 0"):
        CTCDecoder(nn.Linear(4, 5), 4, upsample=0)

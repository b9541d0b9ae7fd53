from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heedful import config
from heedful.build import build
from heedful.data.batch import collate
from heedful.model.loss import chunked_loss, uncovered_attention
from heedful.model.seq2seq import hide_words
from heedful.nn.contract import Look, Map
from heedful.nn.dropout import Dropout
from support.inspection_models import MODELS, SIZE


def example(bias=True, dtype=torch.double):
    torch.manual_seed(0)
    output = nn.Linear(8, 30, bias=bias).to(dtype)
    return output, torch.randn(25, 8, dtype=dtype, requires_grad=True), torch.randint(30, (25,))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("chunk", [1, 7, 25, 100, None])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("fused", [True, False])
def test_chunks_are_torch_s_cross_entropy(smoothing, chunk, bias, fused):
    output, states, targets = example(bias)
    project = output if fused else lambda some: output(some)
    loss = chunked_loss(project, states, targets, label_smoothing=smoothing, chunk_tokens=chunk)
    inputs = (states, *output.parameters())
    found = torch.autograd.grad(3.0 * loss.smoothed, inputs)
    logits = output(states)
    plain = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    expected = torch.autograd.grad(3.0 * plain, inputs)
    torch.testing.assert_close(loss.smoothed, plain, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(loss.nll, F.cross_entropy(logits, targets, reduction="sum").detach())
    assert loss.tokens == 25
    assert not loss.nll.requires_grad
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("agreement", [0.5, 5.0])
@pytest.mark.parametrize("chunk", [1, 7, 24, 100, None])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("fused", [True, False])
def test_agreement_is_r_drop_s(smoothing, agreement, chunk, bias, fused):
    output, _, targets = example(bias)
    states = torch.randn(50, 8, dtype=torch.double, requires_grad=True)
    project = output if fused else lambda some: output(some)
    loss = chunked_loss(project, states, targets, label_smoothing=smoothing, r_drop=agreement, chunk_tokens=chunk)
    inputs = (states, *output.parameters())
    found = torch.autograd.grad(3.0 * loss.smoothed, inputs)
    one, other = output(states).split(25)
    both = [F.cross_entropy(view, targets, label_smoothing=smoothing, reduction="sum") for view in (one, other)]
    p, q = one.log_softmax(-1), other.log_softmax(-1)
    apart = [F.kl_div(a, b, log_target=True, reduction="sum") for a, b in ((p, q), (q, p))]
    plain = sum(both) / 2 + agreement / 4 * sum(apart)
    torch.testing.assert_close(loss.smoothed, plain, rtol=1e-12, atol=1e-12)
    for mine, torchs in zip(found, torch.autograd.grad(3.0 * plain, inputs), strict=True):
        torch.testing.assert_close(mine, torchs, rtol=0, atol=1e-12)
    nll = F.cross_entropy(output(states), targets.repeat(2), reduction="sum") / 2
    torch.testing.assert_close(loss.nll, nll.detach())
    assert loss.tokens == 25
    with torch.no_grad():
        again = chunked_loss(project, states, targets, label_smoothing=smoothing, r_drop=agreement, chunk_tokens=chunk)
    torch.testing.assert_close(again.smoothed, plain.detach(), rtol=1e-12, atol=1e-12)


def test_uncovered_attention_by_hand():
    """Two tokens and three slots: sums 0.7, 0.9 and 0.4, so (0.3)^2 + (0.1)^2 + (0.6)^2 = 0.46."""
    attention = torch.tensor([[[0.5, 0.3, 0.2], [0.2, 0.6, 0.2]]], dtype=torch.double)
    steps, slots = torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 3, dtype=torch.bool)
    assert uncovered_attention([Map(attention.unsqueeze(1))], steps, slots).item() == pytest.approx(0.46)
    padded = torch.nn.functional.pad(attention, (0, 2, 0, 1), value=9.0).unsqueeze(1)  # padded slots and a padded step
    masks = torch.tensor([[True, True, False]]), torch.tensor([[True, True, True, False, False]])
    assert uncovered_attention([Map(padded)], *masks).item() == pytest.approx(0.46)
    heads = torch.stack([attention, 1 - attention], 1)  # the mean of two heads in two layers is 0.5 everywhere
    assert uncovered_attention([Map(heads), Map(heads.flip(1))], steps, slots).item() == pytest.approx(0.0)


@pytest.mark.parametrize("kind", ["transformer-tiny", "lstm-bahdanau", "gru-luong"])
@pytest.mark.parametrize("r_drop", [0.0, 2.0])
def test_the_coverage_penalty_is_part_of_the_objective_in_training_only(kind, r_drop):
    batch = collate([([4, 5, 6], [7, 8]), ([5, 9], [10, 11, 12, 4])], bos=2, eos=3, pad=0)
    settings = config.ModelSettings.model_validate(MODELS[kind])
    model = build(settings, SIZE, SIZE, r_drop=r_drop, coverage_penalty=0.25)
    drop(model, 0.0)
    memory = model.encoder(*batch.source)
    decoded, _ = model.decoder(batch.inputs, model.decoder.start(memory), Look())
    attention = torch.cat([layer.weights for layer in decoded.maps.cross], 1).mean(1)  # [B, T, S]
    expected = sum(
        (1 - attention[row, : length + 1, : source + 1].sum(0)).square().sum()
        for row, (source, length) in enumerate([(3, 2), (2, 4)])
    )
    model.coverage_penalty = 0.0
    plain = model.train()(batch)
    model.coverage_penalty = 0.25
    loss = model(batch)
    torch.testing.assert_close(loss.smoothed, plain.smoothed + 0.25 * expected)
    torch.testing.assert_close(loss.nll, plain.nll)
    weights = [weight for name, weight in model.named_parameters() if "cross" in name or "attention" in name]
    before = torch.autograd.grad(plain.smoothed, weights, allow_unused=True)
    after = torch.autograd.grad(loss.smoothed, weights, allow_unused=True)
    penalty = torch.autograd.grad(0.25 * expected, weights, allow_unused=True)
    for with_it, without, alone in zip(after, before, penalty, strict=True):
        if alone is not None:
            torch.testing.assert_close(with_it, without + alone, rtol=1e-3, atol=1e-5)
    assert any(alone is not None and alone.abs().max() > 0 for alone in penalty)
    torch.testing.assert_close(model.eval()(batch).smoothed, model(batch).nll)


def test_who_agrees_with_himself_has_the_plain_loss():
    output, states, targets = example()
    plain = chunked_loss(output, states, targets, label_smoothing=0.1)
    twice = chunked_loss(output, states.repeat(2, 1), targets, label_smoothing=0.1, r_drop=5.0)
    torch.testing.assert_close(twice, plain)
    inputs = (states, *output.parameters())
    pairs = zip(*(torch.autograd.grad(loss.smoothed, inputs) for loss in (plain, twice)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other)


def drop(model, p):
    for part in model.modules():
        if isinstance(part, Dropout):
            part.p = p
        elif isinstance(part, nn.RNNBase):
            part.dropout = p if part.num_layers > 1 else 0.0


@pytest.mark.parametrize("kind", MODELS)
def test_every_model_reads_twice_in_training_only(kind):
    batch = collate([([4, 5, 6], [7, 8]), ([5, 9], [10, 11, 12, 4])], bos=2, eos=3, pad=0)
    model = build(config.ModelSettings.model_validate(MODELS[kind]), SIZE, SIZE, r_drop=5.0)
    model.eval()
    plain = model(batch)
    drop(model, 0.0)
    torch.testing.assert_close(model.train()(batch), plain)  # without dropout both readings are the same
    drop(model, 0.3)
    apart = model(batch)
    model.r_drop = 0.0
    assert apart.tokens == plain.tokens == model(batch).tokens
    assert apart.smoothed > apart.nll


def test_word_dropout_hides_a_share_of_all_words_but_the_start_token():
    torch.manual_seed(0)
    inputs = torch.randint(4, SIZE, (400, 50))
    shown = hide_words(inputs, 0.3, unknown=1)
    hidden = shown == 1
    assert not hidden[:, 0].any()
    assert hidden[:, 1:].double().mean().item() == pytest.approx(0.3, abs=0.02)
    torch.testing.assert_close(shown[~hidden], inputs[~hidden])


@pytest.mark.parametrize("kind", MODELS)
def test_word_dropout_is_the_loss_of_the_hidden_words_in_training_only(kind):
    batch = collate([([4, 5, 6], [7, 8]), ([5, 9], [10, 11, 12, 4])], bos=2, eos=3, pad=0)
    model = build(config.ModelSettings.model_validate(MODELS[kind]), SIZE, SIZE, word_dropout=0.5)
    drop(model, 0.0)
    plain = model.eval()(batch)
    torch.manual_seed(3)
    loss = model.train()(batch)
    torch.manual_seed(3)
    inputs = hide_words(batch.inputs, 0.5, unknown=1)
    assert not torch.equal(inputs, batch.inputs)
    torch.testing.assert_close(loss.nll, model.eval()(replace(batch, inputs=inputs)).nll)
    assert not torch.isclose(loss.nll, plain.nll)


def test_smoothing_is_torch_s_convention_and_not_fairseq_s():
    """logits (2, 1, 0, -1), gold 0, eps .1: .590190 over all V words, .640190 over the other V - 1."""
    output = nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        output.weight.copy_(torch.eye(4))
    logits, gold = torch.tensor([[2.0, 1.0, 0.0, -1.0]]), torch.tensor([0])
    assert chunked_loss(output, logits, gold, label_smoothing=0.1).smoothed.item() == pytest.approx(0.590190, abs=1e-5)
    fairseq = chunked_loss(output, logits, gold, label_smoothing=0.1 * 4 / 3).smoothed  # eps V / (V - 1)
    assert fairseq.item() == pytest.approx(0.640190, abs=1e-5)


def test_a_hopeless_gold_token_has_a_large_but_finite_loss():
    output, _, _ = example(bias=False, dtype=torch.float32)
    states = 1000 * torch.ones(1, 8)
    targets = output(states).argmin(-1)
    loss = chunked_loss(output, states, targets)
    assert loss.nll.isfinite()
    torch.testing.assert_close(loss.nll, F.cross_entropy(output(states), targets).detach())


def test_bf16_is_close_to_fp32():
    output, states, targets = example(dtype=torch.float32)
    plain = chunked_loss(output, states, targets, label_smoothing=0.1)
    expected = torch.autograd.grad(plain.smoothed, (states, *output.parameters()))
    with torch.autocast("cpu", torch.bfloat16):
        rough = chunked_loss(output, states, targets, label_smoothing=0.1)
    found = torch.autograd.grad(rough.smoothed, (states, *output.parameters()))
    assert rough.smoothed.dtype == torch.float32
    torch.testing.assert_close(rough.smoothed, plain.smoothed, rtol=0.01, atol=0.01)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() < 0.02 * other.norm()


def test_without_gradients_none_are_formed(monkeypatch):
    output, states, targets = example()

    def refuse(*_args, **_options):
        raise AssertionError("a gradient was formed")

    monkeypatch.setattr("heedful.model.loss.torch.zeros_like", refuse)
    with torch.no_grad():
        loss = chunked_loss(output, states, targets)
    assert not loss.smoothed.requires_grad
    with pytest.raises(AssertionError, match="a gradient was formed"):
        chunked_loss(output, states, targets)


def test_half_precision_products_are_made_in_fp32():
    """In fp16 most probabilities of a large vocabulary would be nothing."""
    output, states, targets = example(dtype=torch.float32)
    with torch.autocast("cpu", torch.float16):
        rough = chunked_loss(output, states, targets)
    torch.testing.assert_close(rough.smoothed, chunked_loss(output, states, targets).smoothed)


def test_misuse_is_explained():
    output, states, targets = example()
    with pytest.raises(ValueError, match=r"in \[0, 1\), got 1.0"):
        chunked_loss(output, states, targets, label_smoothing=1.0)
    with pytest.raises(ValueError, match=r"not be negative, got -1.0"):
        chunked_loss(output, states, targets, r_drop=-1.0)
    with pytest.raises(ValueError, match="25 targets need 50 states, not 25"):
        chunked_loss(output, states, targets, r_drop=1.0)
    loss = chunked_loss(output, states, targets).smoothed
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="differentiated twice"):
        loss.backward()

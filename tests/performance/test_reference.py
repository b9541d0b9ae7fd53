"""The law of `heedful.performance`: HEEDFUL_REFERENCE=1 changes the speed, and the results as little as promised.

Equal to the bit: cached attributes, the allocator. Within rounding: single steps, bf16, the fused loss.
In distribution: dropout.
"""

import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from heedful import performance
from heedful.data.batch import collate
from heedful.model.loss import chunked_loss
from heedful.nn.dropout import Dropout
from heedful.performance import allocator, attribute_cache, bf16_attention, fused_loss
from heedful.performance.topk import argmax, top_sums
from heedful.search import DecodingLimits
from heedful.training.machine import autocast
from support.law import LIMIT, SOURCE, read
from support.zoo import BOS, EOS, PAD, SEARCH_CASES, batch_for, pairwise, source_tensors

PAIRS = [([4, 5, 6, 3], [7, 8]), ([5, 2], [4, 4, 4]), ([9, 9, 7], [3])]
BATCH = collate(PAIRS, bos=BOS, eos=EOS, pad=PAD)
CASES = pairwise()[::8]


@contextmanager
def reference():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEEDFUL_REFERENCE", "1")
        yield


@pytest.mark.parametrize(("value", "enabled"), [(None, True), ("", True), ("0", True), ("1", False), ("yes", False)])
def test_the_switch(monkeypatch, value, enabled):
    monkeypatch.delenv("HEEDFUL_REFERENCE", raising=False)
    if value is not None:
        monkeypatch.setenv("HEEDFUL_REFERENCE", value)
    assert performance.enabled() is enabled


# ---------------------------------------------------------------------------------------------------- whole models


@pytest.mark.parametrize("case", CASES, ids=str)
def test_losses_gradients_and_searches_agree(case):
    def run():
        model = case.model().train()
        loss = model(batch_for(model.encoder, PAIRS))
        loss.smoothed.backward()
        gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
        with torch.no_grad():
            memory = model.eval().encoder(*source_tensors(model.encoder, SOURCE))
        results = SEARCH_CASES[case.search](model.decoder, memory, DecodingLimits(BOS, EOS, LIMIT))
        return loss, gradients, [hypothesis for result in results for hypothesis in result.hypotheses]

    loss, gradients, hypotheses = run()
    with reference():
        plain_loss, plain_gradients, plain_hypotheses = run()
    torch.testing.assert_close(tuple(loss), tuple(plain_loss), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(gradients, plain_gradients, rtol=1e-9, atol=1e-9)
    assert [hypothesis.tokens for hypothesis in hypotheses] == [hypothesis.tokens for hypothesis in plain_hypotheses]
    for hypothesis, plain in zip(hypotheses, plain_hypotheses, strict=True):
        assert hypothesis.score == pytest.approx(plain.score, abs=1e-9)


def test_the_plain_code_uses_none_of_them(monkeypatch):
    """Every one of them fails here, so that a use in reference mode is noticed."""

    def fail(*_args, **_options):
        raise AssertionError("an optimization was used")

    monkeypatch.setattr("heedful.nn.decoders.rnn.run_single_step", fail)
    monkeypatch.setattr("heedful.performance.dropout_masks.draw_mask", fail)
    monkeypatch.setattr(fused_loss._FusedCrossEntropy, "apply", fail)
    monkeypatch.setattr("heedful.performance.bf16_padding._PaddedProduct.apply", fail)
    case = next(case for case in CASES if "lstm-current-feeds" in case.decoder)
    model = case.model().train()
    model.decoder.dropout = Dropout(0.5)
    with pytest.raises(AssertionError, match="an optimization was used"):
        model(BATCH)
    with reference():
        model(BATCH).smoothed.backward()
        with autocast(torch.device("cpu"), "bf16"):
            nn.Linear(8, 8)(torch.randn(2048, 8)).sum().backward()


# ---------------------------------------------------------------------------------------------------- equal to the bit


def test_cached_attributes_change_no_bit():
    model = CASES[0].model()
    with torch.no_grad():
        memory = read(model)
        tokens = torch.full((len(SOURCE), 1), BOS)
        plain, _ = model.decoder(tokens, model.decoder.start(memory))
        with attribute_cache.cached_attributes(model):
            assert "decoder" in vars(model)
            cached, _ = model.decoder(tokens, model.decoder.start(memory))
    assert torch.equal(plain.states, cached.states)
    with reference(), attribute_cache.cached_attributes(model):
        assert "decoder" not in vars(model)


STEP = """
import torch
from torch import nn
from heedful.performance.allocator import keep_freed_memory

def step():
    torch.manual_seed(1)
    layer = nn.Sequential(nn.Linear(300, 1000), nn.Tanh(), nn.Linear(1000, 300))
    layer(torch.randn(500, 300)).square().sum().backward()
    return [weight.grad for weight in layer.parameters()]

before, kept, after = step(), keep_freed_memory(), step()
assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
print(kept)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_the_allocator_changes_no_bit():
    run = subprocess.run([sys.executable, "-c", STEP], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "True"


def test_the_allocator_is_left_alone_in_reference_mode(monkeypatch):
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda _: pytest.fail("the allocator was configured"))
    with reference():
        assert allocator.keep_freed_memory() is False


# ---------------------------------------------------------------------------------------------------- within rounding


@pytest.mark.parametrize("mask", [None, torch.tensor([True, True, True, False, True]).view(1, 1, 1, 5)])
def test_bf16_attention_agrees_within_rounding(mask):
    torch.manual_seed(0)
    parts = [torch.randn(2, 3, 5, 8).bfloat16().requires_grad_() for _ in range(3)]

    def run():
        context = bf16_attention.scaled_dot_product_attention(*parts, mask, False)
        assert context.dtype == torch.bfloat16
        return [context, *torch.autograd.grad(context.float().square().sum(), parts)]

    ours = run()
    with reference():
        plain = run()
    torch.testing.assert_close(ours, plain, rtol=0.05, atol=0.05)


def test_padded_products_agree_within_rounding():
    torch.manual_seed(0)
    layer, x = nn.Linear(24, 40), torch.randn(1100, 24, requires_grad=True)

    def run():
        with autocast(torch.device("cpu"), "bf16"):
            y = layer(x)
        return [y, *torch.autograd.grad(y.float().square().sum(), (x, *layer.parameters()))]

    ours = run()
    with reference():
        plain = run()
    for padded_product, product in zip(ours, plain, strict=True):
        scale = float(product.detach().abs().max())
        torch.testing.assert_close(padded_product, product, rtol=2e-2, atol=2e-2 * scale)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("r_drop", [0.0, 3.0])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
def test_the_fused_loss_is_the_explicit_one(label_smoothing, r_drop, bias, dtype, tolerance):
    torch.manual_seed(0)
    output = nn.Linear(8, 30, bias=bias).to(dtype)
    states = torch.randn(2 * 75 if r_drop else 75, 8, dtype=dtype, requires_grad=True)
    targets = torch.randint(30, (75,))

    def run():
        loss = chunked_loss(output, states, targets, label_smoothing=label_smoothing, r_drop=r_drop, chunk_tokens=32)
        return [loss.smoothed, loss.nll, *torch.autograd.grad(loss.smoothed, (states, *output.parameters()))]

    ours = run()
    with reference():
        plain = run()
    torch.testing.assert_close(ours, plain, rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------------------------------------------- in distribution


def p_value_of_homogeneity(first, second):
    """The p-value of the chi-square test that two vectors of counts are of the same distribution."""
    counts = torch.stack((first, second)).double()
    counts = counts[:, counts.sum(0) > 0]
    rare = counts.sum(0) < 20
    if rare.any():
        counts = torch.cat((counts[:, ~rare], counts[:, rare].sum(1, keepdim=True)), 1)
    expected = counts.sum(1, keepdim=True) * counts.sum(0) / counts.sum()
    statistic = ((counts - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor((counts.size(1) - 1) / 2, dtype=torch.double), statistic / 2))


def pattern_counts(kept):
    """How often each pattern of 8 neighbors occurs, which shows dependent neighbors."""
    return (kept.view(-1, 8).long() @ (2 ** torch.arange(8))).bincount(minlength=256)


def p_values(first, second):
    """Of the share that is kept, and of the patterns of neighbors."""
    return [
        p_value_of_homogeneity(count(first), count(second))
        for count in (lambda kept: kept.long().bincount(minlength=2), pattern_counts)
    ]


def kept_elements(p, *, size=2**20):
    return Dropout(p)(torch.ones(size)) != 0


@pytest.mark.parametrize("p", [0.125, 0.25, 0.5])  # multiples of 1/256, which are not rounded
def test_dropout_is_pytorch_s_in_distribution(p):
    torch.manual_seed(0)
    ours = kept_elements(p)
    with reference():
        plain = kept_elements(p)
        other = kept_elements(p + 0.005)
    assert min(p_values(ours, plain)) > 1e-3
    assert min(p_values(ours, other)) < 1e-6  # the test has power: against another p, and against dependent neighbors
    assert min(p_values(ours[: len(ours) // 2].repeat_interleave(2), plain)) < 1e-6


@pytest.mark.parametrize("p", [0.125, 0.5])
def test_two_dropout_masks_are_independent(p):
    torch.manual_seed(0)
    first, second = kept_elements(p), kept_elements(p)
    expected = torch.tensor([p * p, p * (1 - p), p * (1 - p), (1 - p) ** 2]) * len(first)
    counts = (2 * first.long() + second.long()).bincount(minlength=4)
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert float(torch.special.gammaincc(torch.tensor(1.5), statistic / 2)) > 1e-3


@pytest.mark.parametrize("p", [0.1, 0.3])
def test_a_rounded_dropout_keeps_its_share_and_its_mean(p):
    torch.manual_seed(0)
    rounded = 1 - round((1 - p) * 256) / 256
    y = Dropout(p)(torch.ones(2**20, dtype=torch.double))
    deviation = (rounded * (1 - rounded) / len(y)) ** 0.5
    assert abs(float((y == 0).double().mean()) - rounded) < 4 * deviation
    assert abs(float(y.mean()) - 1) < 4 * deviation / (1 - rounded)
    assert abs(rounded - p) <= 1 / 512


def test_dropout_in_reference_mode_is_pytorch_s():
    x, residual = torch.randn(100), torch.randn(100)
    with reference():
        torch.manual_seed(1)
        ours, added = Dropout(0.3)(x), Dropout(0.3).add(residual, x)
    torch.manual_seed(1)
    assert torch.equal(ours, F.dropout(x, 0.3))
    assert torch.equal(added, residual + F.dropout(x, 0.3))


@pytest.mark.parametrize(("rows", "size"), [(3, 1024), (5, 8000), (7, 1009)])  # the last is prime: no equal blocks
def test_the_fast_top_k_is_exact(rows, size, monkeypatch):
    draw = torch.Generator().manual_seed(rows)
    bases, values = torch.randn(2, rows, generator=draw).double(), torch.randn(2, rows, size, generator=draw)
    many = torch.randn(200, size, generator=draw)
    fast = (*top_sums(bases, values, 10), argmax(many))
    monkeypatch.setenv("HEEDFUL_REFERENCE", "1")
    assert all(torch.equal(a, b) for a, b in zip(fast, (*top_sums(bases, values, 10), argmax(many)), strict=True))

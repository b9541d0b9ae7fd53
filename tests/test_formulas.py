"""The worked values of the lectures, each test named by its id in the list of formulas."""

import math

import pytest
import torch
from torch import nn

from heedful.model.loss import chunked_loss
from heedful.nn.attention import (
    SCORES,
    Additive,
    Dot,
    GaussianWindow,
    MultiHead,
    Sampled,
    ScaledDot,
    SelfAttention,
    attend,
    soft,
)
from heedful.nn.cells import CELLS
from heedful.nn.contract import Look, Memory
from heedful.nn.encoders import TransformerEncoder
from heedful.nn.layers import Embed, TransformerLayerOptions
from heedful.nn.positions import Sinusoidal, SinusoidalHalves
from heedful.search.filters import Temperature, TopK, TopP

NOTHING = torch.empty(1, 0, dtype=torch.long)


def close(found, expected, within=1e-4):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), rtol=0, atol=within)


def test_C6_gradient_of_a_sigmoid_rnn_shrinks_by_a_quarter_at_each_step():
    torch.manual_seed(0)
    u = nn.init.orthogonal_(torch.empty(12, 12, dtype=torch.double))

    def step(h):
        return torch.sigmoid(u @ h)

    h = torch.randn(12, dtype=torch.double)
    norms, product = [], torch.eye(12, dtype=torch.double)
    for _ in range(20):
        jacobian = torch.autograd.functional.jacobian(step, h)
        h = step(h)
        slope = torch.diag(h * (1 - h))  # diag(sigma') U, not sigma' U
        close(jacobian, slope @ u, 1e-12)
        product = jacobian @ product
        norms.append(float(torch.linalg.matrix_norm(product, 2)))
    assert all(norm <= 0.25**steps * (1 + 1e-9) for steps, norm in enumerate(norms, 1))
    assert norms[-1] <= 9.1e-13


@pytest.mark.parametrize(("most", "expected"), [(1.0, (0.6, 0.8)), (5.0, (3.0, 4.0)), (10.0, (3.0, 4.0))])
def test_C7_clipping_scales_the_gradient_down_to_the_norm(most, expected):
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    nn.utils.clip_grad_norm_([parameter], most)
    close(parameter.grad, expected, 1e-5)


def gru_step(x, h, weights, *, reset_after: bool, keeps: bool):
    """One step by hand in each of the three conventions."""
    w, u, b, c = weights
    wr, wz, wn = (w @ x + b).chunk(3)
    ur, uz, un = (u @ h + c).chunk(3)
    r, z = torch.sigmoid(wr + ur), torch.sigmoid(wz + uz)
    inner = un if reset_after else u[2 * len(h) :] @ (r * h) + c[2 * len(h) :]
    n = torch.tanh(wn + (r * inner if reset_after else inner))
    return (1 - z) * n + z * h if keeps else (1 - z) * h + z * n


def test_C10_and_C11_our_gru_resets_after_the_product_and_z_keeps_the_old_state():
    torch.manual_seed(0)
    gru = CELLS["gru"](3, 4).double()
    for parameter in gru.parameters():
        nn.init.normal_(parameter)
    x, h = torch.randn(3, dtype=torch.double), torch.randn(4, dtype=torch.double)
    weights = tuple(gru.parameters())
    ours = gru(x.view(1, 1, 3), h.view(1, 1, 4))[0].flatten()
    close(gru_step(x, h, weights, reset_after=True, keeps=True), ours, 1e-12)
    bahdanau = gru_step(x, h, weights, reset_after=False, keeps=False)
    cho = gru_step(x, h, weights, reset_after=False, keeps=True)
    assert (bahdanau - ours).abs().max() > 0.01
    assert (cho - ours).abs().max() > 0.01


E9 = {"dot": ((0.0900, 0.2447, 0.6652), (1.4205, 1.5752)), "scaled_dot": ((0.1400, 0.2840, 0.5760), (1.2920, 1.4359))}


@pytest.mark.parametrize("kind", E9)
def test_E9_attention_by_hand(kind):
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    values = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    context, _, found = attend(
        SCORES[kind](2, 2), soft, torch.tensor([[1.0, 2.0]]), keys, values, glance=Look().glance_at("cross", 0)
    )
    close(found.weights[0], E9[kind][0])
    close(context[0], E9[kind][1])


def test_E3_additive_as_a_sum_is_additive_on_the_concatenation():
    torch.manual_seed(0)
    score = Additive(3, 5, 4).double()
    query, keys = torch.randn(2, 6, 3, dtype=torch.double), torch.randn(2, 7, 5, dtype=torch.double)
    both = torch.cat([query.unsqueeze(2).expand(-1, -1, 7, -1), keys.unsqueeze(1).expand(-1, 6, -1, -1)], -1)
    joined = torch.cat([score.query.weight, score.key.weight], 1)  # W' = [W U]
    expected = torch.tanh(both @ joined.T + score.key.bias) @ score.energy.weight[0]
    close(score(query, score.prepare(keys)), expected, 1e-12)


def test_F4_a_gated_recurrence_is_attention_over_its_candidates():
    torch.manual_seed(0)
    steps, width = 6, 4
    u, candidate = torch.rand(steps, width, dtype=torch.double), torch.randn(steps, width, dtype=torch.double)
    first = h = torch.randn(width, dtype=torch.double)
    for t in range(steps):
        h = u[t] * h + (1 - u[t]) * candidate[t]
    weights = torch.stack([u[i + 1 :].prod(0) * (1 - u[i]) for i in range(steps)])
    rest = u.prod(0)
    close((weights * candidate).sum(0) + rest * first, h, 1e-12)
    close(weights.sum(0) + rest, torch.ones(width), 1e-12)


def test_G7_uniform_scores_under_the_causal_mask_are_one_half_third():
    x = torch.zeros(1, 3, 4)
    _, _, found = attend(ScaledDot(4, 4), soft, x, x, x, causal=True, glance=Look().glance_at("decoder", 0))
    close(found.weights[0], [[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]], 1e-6)


def test_G10_the_scale_is_the_width_of_a_head():
    torch.manual_seed(0)
    mine = SelfAttention(16, 4)
    x = torch.randn(2, 5, 16)
    _, _, found = mine(x, glance=Look(frozenset({"scores", "queries", "keys"})).glance_at("encoder", 0))
    product = found.queries @ found.keys.transpose(-2, -1)
    close(found.scores, product / math.sqrt(16 / 4), 1e-6)


def test_G12_the_sum_over_heads_is_concat_times_the_output_matrix():
    torch.manual_seed(0)
    mine = MultiHead(12, 3, 12).double()
    memory = Memory(torch.randn(2, 5, 12, dtype=torch.double), torch.ones(2, 5, dtype=torch.bool))
    query = torch.randn(2, 4, 12, dtype=torch.double)
    source = mine.prepare(memory)
    context, _, found = mine(query, source, None, Look().glance_at("cross", 0))
    heads = found.weights @ source.values  # [B, H, T, d]
    per_head = mine.out.weight.unflatten(1, (3, 4))  # W_O^h = columns 4h .. 4h + 3
    summed = torch.einsum("bhtd,ohd->bto", heads, per_head) + mine.out.bias
    close(context, summed, 1e-12)


@pytest.mark.parametrize("positions", [False, True])
def test_G14_without_positions_a_permutation_of_the_tokens_permutes_the_states(positions):
    torch.manual_seed(0)
    embed = Embed(nn.Embedding(9, 8), positions=Sinusoidal(20, 8) if positions else None)
    options = TransformerLayerOptions(heads=2, feedforward_size=16)
    encoder = TransformerEncoder(embed, layers=2, options=options).double()
    tokens, order = torch.tensor([[3, 1, 4, 1, 5]]), torch.tensor([2, 0, 4, 1, 3])
    mask = torch.ones_like(tokens, dtype=torch.bool)
    states, permuted = encoder(tokens, mask).states, encoder(tokens[:, order], mask).states
    assert torch.allclose(states[:, order], permuted, atol=1e-10) is not positions
    assert not torch.allclose(states, permuted)  # equivariant, not invariant


def test_G15_a_context_of_2048_needs_4194304_scores_per_head():
    q = torch.zeros(1, 2048, 1)
    assert Dot(1, 1)(q, q).numel() == 4_194_304


def test_H1_sinusoids():
    close(Sinusoidal(3, 4)(2, offset=1), [[0.841471, 0.540302, 0.01, 0.99995], [0.909297, -0.416147, 0.019999, 0.9998]])
    interleaved, halves = Sinusoidal(50, 16), SinusoidalHalves(50, 16)
    assert torch.equal(interleaved.table[:, 0::2], halves.table[:, :8])
    assert torch.equal(interleaved.table[:, 1::2], halves.table[:, 8:])


def test_I2_cross_entropy_of_a_translation():
    """p(Eu) = .1, p(amo) = .2: not .9 and .8 but 2.302585 and 1.609438."""
    logits = torch.tensor([[0.1, 0.6, 0.3], [0.3, 0.2, 0.5]]).log()
    output = nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        output.weight.copy_(torch.eye(3))
    loss = chunked_loss(output, logits, torch.tensor([0, 1]))
    close(loss.nll, 3.912023, 1e-5)
    close(loss.nll / loss.tokens, 1.956012, 1e-5)
    close((loss.nll / loss.tokens).exp(), 7.0711)
    for row, expected in enumerate((2.302585, 1.609438)):
        close(chunked_loss(output, logits[row : row + 1], torch.tensor([row])).nll, expected, 1e-5)


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [(1.0, (0.7, 0.2, 0.1)), (0.5, (0.9074, 0.0741, 0.0185)), (2.0, (0.5229, 0.2795, 0.1976))],
)
def test_J4_temperature_divides_logits(temperature, expected):
    shaped, _ = Temperature(temperature)(torch.tensor([[0.7, 0.2, 0.1]]).log(), NOTHING, None)
    close(shaped.softmax(-1)[0], expected)


FIVE = torch.tensor([[0.5, 0.25, 0.15, 0.07, 0.03]]).log()


def test_J5_top_k_renormalizes():
    shaped, _ = TopK(2)(FIVE, NOTHING, None)
    close(shaped.softmax(-1)[0], (0.6667, 0.3333, 0, 0, 0))


@pytest.mark.parametrize(("p", "count"), [(0.5, 1), (0.75, 2), (0.9, 3), (0.95, 4), (1.0, 5)])
def test_J6_top_p_is_the_smallest_set_that_reaches_p(p, count):
    for dtype in (torch.float32, torch.float64):
        shaped, _ = TopP(p)(FIVE.to(dtype), NOTHING, None)
        assert int(shaped.isfinite().sum()) == count
    if p == 0.9:
        close(shaped.softmax(-1)[0], (0.5556, 0.2778, 0.1667, 0, 0))


def test_a_gaussian_window_moves_forward_and_is_normalized():
    """Graves 2013: phi_i = sum_m alpha_m exp(-beta_m (kappa_m - i)^2), the centers advance by exp(step)."""
    window = GaussianWindow(2, 2, components=1).double()
    with torch.no_grad():
        window.window.weight.zero_()
        window.window.bias.copy_(torch.tensor([0.3, 0.0, math.log(1.5)]))  # log alpha, log beta, log of the step
    keys, query = torch.randn(1, 5, 2).double(), torch.zeros(1, 1, 2).double()
    state = window.start(keys)
    for step in (1, 2, 3):
        center = -1.0 + 1.5 * step
        phi = torch.exp(0.3 - (center - torch.arange(5.0).double()) ** 2)
        attended = attend(window, soft, query, keys, keys, state=state, glance=Look().glance_at("cross", 0))
        torch.testing.assert_close(attended.map.weights[0, 0], phi / phi.sum())
        state = attended.state
        assert float(state.detach()) == pytest.approx(center)


def test_L6_the_expected_context_gives_the_geometric_mean():
    """NWGM: softmax(E[n]) is the normalized weighted geometric mean of the softmax of every slot, and near its mean."""
    torch.manual_seed(0)
    query, slots = torch.randn(1, 1, 8).double(), torch.randn(1, 5, 8).double()
    output = nn.Linear(8, 6).double()
    sampled = Sampled(decode="expected").eval()
    attended = attend(Dot(8, 8), sampled, query, slots, slots, glance=Look().glance_at("cross", 0))
    log_probs = output(slots[0]).log_softmax(-1)  # log p(y | the slot that is read), [5, 6]
    weights = attended.map.weights[0, 0].unsqueeze(1)
    found = output(attended.context[0, 0]).softmax(-1)
    torch.testing.assert_close(found, (weights * log_probs).sum(0).softmax(-1))
    for spread, error in ((1e-1, 1e-2), (1e-2, 1e-4)):  # of the contexts; the error of the mean is its square
        near = slots.mean(1) + spread * (slots[0] - slots.mean(1))
        exact = (weights * output(near).softmax(-1)).sum(0)
        torch.testing.assert_close(output((weights * near).sum(0)).softmax(-1), exact, rtol=0, atol=error)

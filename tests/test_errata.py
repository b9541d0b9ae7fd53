"""The errors of the slides that would break code: for each, ours is right and the slide's form is told apart from it.

Numbered as in the list of errata; 11 and 14 are about metrics.
"""

import math

import pytest
import torch
from torch import nn

from heedful.data.batch import collate
from heedful.model.loss import chunked_loss
from heedful.nn.attention import Additive, Bilinear, Dot, ScaledDot, SelfAttention, attend, soft
from heedful.nn.cells import CELLS, ResetBeforeGRU
from heedful.nn.contract import Look
from heedful.nn.encoders import RecurrentEncoder
from heedful.nn.layers import Embed, output_layer
from heedful.search.filters import Temperature
from support.zoo import DECODER_CASES, Case

LOOK = Look(frozenset({"weights", "scores", "queries", "keys"})).glance_at("decoder", 0)


def apart(one, other):
    return float((one - other).detach().abs().max())


def test_M1_the_future_is_masked_and_not_the_past():
    torch.manual_seed(0)
    x = torch.randn(1, 4, 8)
    _, _, found = SelfAttention(8, 2)(x, causal=True, glance=LOOK)
    i, j = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")  # i the query's row, j the key's column
    assert (found.weights[..., j > i] == 0).all()
    assert (found.weights[..., j <= i] > 0).all()
    slide = torch.where(i <= j, 0.0, -torch.inf)  # M_ij = 0 if i <= j, -inf if i > j
    scores = found.queries @ found.keys.transpose(-2, -1) / math.sqrt(4)
    assert apart((scores + slide).softmax(-1), found.weights) > 0.1


def test_M2_temperature_acts_on_logits_and_not_on_probabilities():
    p = torch.tensor([[0.7, 0.2, 0.1]])
    ours = Temperature(1.0)(p.log(), torch.empty(1, 0), None)[0].softmax(-1)
    assert apart(ours, p) < 1e-6
    slide = torch.softmax(p / 1.0, -1)
    assert apart(slide, torch.tensor([[0.464, 0.281, 0.255]])) < 1e-3
    assert apart(ours, slide) > 0.2


@pytest.mark.parametrize("kind", DECODER_CASES)
def test_M3_and_M12_a_step_reads_the_token_before_and_never_its_own_answer(kind):
    model = Case("lstm-bi-1", kind, "single", "additive", "soft", "greedy").model()
    batch = collate([([5, 6, 7], [3, 4, 9])], bos=1, eos=2, pad=0)
    assert batch.inputs.tolist() == [[1, 3, 4, 9]]
    assert batch.targets.tolist() == [3, 4, 9, 2]
    for step, answer in enumerate(batch.targets.tolist()):
        changed = batch.inputs.clone()
        changed[:, step + 1 :] = 10 - changed[:, step + 1 :]  # wherever this answer or a later one is read
        with torch.no_grad():
            start = model.decoder.start(model.encoder(*batch.source))
            one, other = (
                model.decoder.project(model.decoder(tokens, start)[0].states)[0, step]
                for tokens in (batch.inputs, changed)
            )
        assert torch.equal(one, other), answer
    # With the slide's y_t as the input of step t, the model would see what it has to say:
    assert (batch.targets[:-1] == batch.inputs[0, 1:]).all()
    assert not (batch.targets == batch.inputs[0]).any()


def test_M4_heads_divide_by_the_root_of_their_own_width():
    torch.manual_seed(0)
    _, _, found = SelfAttention(64, 8)(torch.randn(1, 5, 64), glance=LOOK)
    product = found.queries @ found.keys.transpose(-2, -1)
    assert apart(found.scores, product / math.sqrt(8)) < 1e-6
    assert apart(found.scores, product / math.sqrt(64)) > 0.1


def test_M5_rows_are_positions_so_it_is_q_times_k_transposed():
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 4)
    ours, _, _ = attend(ScaledDot(4, 4), soft, q, k, v)
    assert apart(ours, torch.softmax(q @ k.T / 2, -1) @ v) < 1e-6
    with pytest.raises(RuntimeError):  # softmax(Q^T K / sqrt d) V: the shapes do not even fit
        torch.softmax(q.T @ k / 2, -1) @ v
    square = torch.randn(4, 4)
    slide = torch.softmax(square.T @ square / 2, -1) @ square
    assert apart(attend(ScaledDot(4, 4), soft, square, square, square)[0], slide) > 0.01


def test_M6_the_numerator_is_the_score_of_its_own_slot():
    torch.manual_seed(0)
    s, h = torch.randn(1, 4), torch.randn(3, 4)
    _, _, found = attend(Dot(4, 4), soft, s, h, h, glance=LOOK)
    energy = (s @ h.T).exp()
    assert apart(found.weights, energy / energy.sum()) < 1e-6
    slide = energy[:, -1:].expand(1, 3) / energy.sum()  # exp(align(s_i, h_k)) on top too: k is the last of the sum
    assert apart(found.weights, slide) > 0.01
    assert abs(float(slide.sum()) - 1) > 0.01


@pytest.mark.parametrize("score", [Dot(4, 4), Bilinear(4, 4), Additive(4, 4)], ids=lambda score: type(score).__name__)
def test_M7_scores_are_exponentiated_before_they_are_normalized(score):
    torch.manual_seed(3)
    signs = []
    for _ in range(20):
        for parameter in score.parameters():
            nn.init.normal_(parameter)
        q, k = torch.randn(1, 4), torch.randn(6, 4)
        with torch.no_grad():
            _, _, found = attend(score, soft, q, score.prepare(k), k, glance=LOOK)
        assert (found.weights >= 0).all()
        assert apart(found.weights.sum(-1), torch.ones(1)) < 1e-6
        slide = found.scores / found.scores.sum()
        signs.append(bool((slide < 0).any()))  # a share of a sum of signed numbers is no probability
    assert sum(signs) > 10


def test_M8_the_unrolled_gate_has_the_right_limits():
    torch.manual_seed(0)
    steps = 5
    u, candidate = torch.rand(steps, dtype=torch.double), torch.randn(steps, dtype=torch.double)
    h = torch.zeros((), dtype=torch.double)
    for t in range(steps):
        h = u[t] * h + (1 - u[t]) * candidate[t]
    right = sum(u[i + 1 :].prod() * (1 - u[i]) * candidate[i] for i in range(steps))
    # prod_{j=i}^{t-i+1} u_j  prod_{k=1}^{i-1} (1 - u_k), indices from 1
    slide = sum(
        u[i - 1 : steps - i + 1].prod() * (1 - u[: i - 1]).prod() * candidate[i - 1] for i in range(1, steps + 1)
    )
    assert apart(right, h) < 1e-12
    assert apart(slide, h) > 0.01


@pytest.mark.parametrize("kind", [nn.GRU, ResetBeforeGRU])
def test_M8_our_cell_is_the_weighted_sum_of_its_candidates(kind):
    """h_t = sum_i (prod_{j > i} z_j) (1 - z_i) n_i + (prod_j z_j) h_0, with gates and candidates of the real cell"""
    torch.manual_seed(0)
    gru = kind(3, 4, batch_first=True).double()
    x, start = torch.randn(1, 6, 3, dtype=torch.double), torch.randn(1, 1, 4, dtype=torch.double)
    gates, candidates, h = [], [], start[0]
    with torch.no_grad():
        for t in range(6):
            inputs = nn.functional.linear(x[:, t], gru.weight_ih_l0, gru.bias_ih_l0)
            state = nn.functional.linear(h, gru.weight_hh_l0, gru.bias_hh_l0)
            r, z = torch.sigmoid(inputs[:, :8] + state[:, :8]).chunk(2, 1)
            if kind is nn.GRU:
                n = torch.tanh(inputs[:, 8:] + r * state[:, 8:])
            else:
                n = torch.tanh(inputs[:, 8:] + nn.functional.linear(r * h, gru.weight_hh_l0[8:], gru.bias_hh_l0[8:]))
            gates.append(z)
            candidates.append(n)
            h = gru(x[:, t : t + 1], h.unsqueeze(0))[1][0]
        z, n = torch.cat(gates), torch.cat(candidates)
        unrolled = sum(z[i + 1 :].prod(0) * (1 - z[i]) * n[i] for i in range(6)) + z.prod(0) * start[0, 0]
        last = gru(x, start)[1][0, 0]
    assert apart(unrolled, last) < 1e-12
    assert apart(unrolled - z.prod(0) * start[0, 0], last) > 1e-3  # the slide leaves out h_0


def test_M9_a_gru_is_the_engine_s_gru():
    """z keeps the old state: with z forced to 1 nothing moves; in the opposite convention it would all be new."""
    gru = CELLS["gru"](3, 4)
    with torch.no_grad():
        gru.bias_ih_l0[4:8] = 100.0  # gates are r, z, n
    h = torch.randn(1, 1, 4)
    assert apart(gru(torch.randn(1, 1, 3), h)[0], h) < 1e-6


def test_M10_the_loss_is_minus_log_p_and_not_one_minus_p():
    output = output_layer(2, 2)
    with torch.no_grad():
        output.weight.copy_(torch.eye(2))
    for p in (0.1, 0.2):
        loss = chunked_loss(output, torch.tensor([[p, 1 - p]]).log(), torch.tensor([0])).nll
        assert abs(float(loss) + math.log(p)) < 1e-5
        assert abs(float(loss) - (1 - p)) > 0.5


def test_M13_an_input_table_is_vocabulary_by_width():
    table = nn.Embedding(10_000, 512)
    assert table.weight.shape == (10_000, 512)
    assert output_layer(512, 10_000).weight.numel() == 5_120_000
    with pytest.raises(ValueError, match="same vocabulary and width"):
        output_layer(513, 10_000, tied_to=table)
    assert Embed(table)(torch.tensor([[9]])).shape == (1, 1, 512)  # a row for the id 9, and not 513 numbers
    assert torch.equal(Embed(table)(torch.tensor([[9]]))[0, 0], table.weight[9])


def test_M15_rows_of_q_ask_and_rows_of_k_answer():
    torch.manual_seed(0)
    q, k = torch.randn(2, 4), torch.randn(5, 4)
    context, _, found = attend(ScaledDot(4, 4), soft, q, k, k, glance=LOOK)
    assert found.weights.shape == (2, 5)  # one distribution per query, over the keys
    assert context.shape == (2, 4)
    one = torch.randn(3, 4)
    other = torch.randn(3, 4)
    swapped, _, _ = attend(ScaledDot(4, 4), soft, other, one, one)
    assert apart(attend(ScaledDot(4, 4), soft, one, other, other)[0], swapped) > 0.01


@pytest.mark.parametrize("cell", CELLS)
def test_M16_the_last_word_is_read(cell):
    """With the slide's x_{t-1} as the input of step t, no state of a forward encoder depends on the last word."""
    torch.manual_seed(0)
    encoder = RecurrentEncoder(Embed(nn.Embedding(9, 4)), 4, cell=cell, bidirectional=False)
    one, other = torch.tensor([[3, 4, 5]]), torch.tensor([[3, 4, 6]])
    mask = torch.ones(1, 3, dtype=torch.bool)
    with torch.no_grad():
        assert apart(encoder(one, mask).last(), encoder(other, mask).last()) > 1e-3
        # The slide: step t reads x_{t-1}; the first step reads a vector of zeros.
        states = []
        for tokens in (one, other):
            words = encoder.embed(tokens)
            late = torch.cat((torch.zeros_like(words[:, :1]), words[:, :-1]), 1)
            states.append(encoder.ahead[0](late)[0])
    assert torch.equal(*states)

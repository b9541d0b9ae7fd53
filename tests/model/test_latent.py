"""Sampled attention: its losses against the enumeration of all slots."""

import itertools

import pytest
import torch
from torch import nn

from heedful.data.batch import Batch, collate
from heedful.model.latent import find_sampled, marginal_loss, reinforce_loss
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.attention import SCORES, Attention, MultiHead, Sampled
from heedful.nn.contract import Look
from heedful.nn.decoders import RecurrentDecoder
from heedful.nn.encoders import RecurrentEncoder
from support.zoo import BOS, EOS, PAD, WIDTH, V, embed, output_layer

SOURCE, TARGET = [5, 3, 9, 4], [7]  # five slots and two steps, with their end tokens


def make_model(query_from, sampled, heads=None):
    torch.manual_seed(0)
    score = SCORES["bilinear"](WIDTH // (heads or 1), WIDTH // (heads or 1))
    attention = (
        MultiHead(WIDTH, heads, WIDTH, score=score, normalizer=sampled) if heads else Attention(score, WIDTH, sampled)
    )
    decoder = RecurrentDecoder(embed(), output_layer(WIDTH, V), WIDTH, WIDTH, attention, query_from=query_from)
    model = Seq2Seq(RecurrentEncoder(embed(), WIDTH), decoder).double()
    for weight in model.parameters():
        if weight.requires_grad:
            nn.init.normal_(weight, std=0.5)
    return model.train()


def make_batch(rows) -> Batch:
    return collate([(SOURCE, TARGET)] * rows, bos=BOS, eos=EOS, pad=PAD)


class Chosen(Sampled):
    """Attends to known slots, step by step."""

    def __init__(self, slots):
        super().__init__()
        self.slots, self.step = slots, 0  # [B, T]

    def forward(self, scores):
        steps = slice(self.step, self.step + scores.size(-2))
        self.step += scores.size(-2)
        return nn.functional.one_hot(self.slots[:, steps], scores.size(-1)).to(scores)


def enumerate_slots(model, batch_rows=25):
    """log p(s | x) and log p(y | s, x) for all sequences s of two slots, and the distributions."""
    slots = torch.tensor(list(itertools.product(range(5), repeat=2)))
    batch, kept = make_batch(batch_rows), model.decoder.attention.normalizer
    model.decoder.attention.normalizer = Chosen(slots)
    memory = model.encoder(*batch.source)
    decoded, _ = model.decoder(batch.inputs, model.decoder.start(memory), Look(frozenset({"scores"})))
    model.decoder.attention.normalizer = kept
    log_weights = decoded.maps.cross[0].scores[:, 0].log_softmax(-1)  # [25, 2, 5]
    log_p_of_slots = log_weights.gather(2, slots.unsqueeze(2)).squeeze(2).sum(1)
    log_probs = model.decoder.project(decoded.states).log_softmax(-1)
    gold = torch.tensor([[*TARGET, EOS]] * batch_rows).unsqueeze(2)
    entropy = -(log_weights * log_weights.exp()).sum((1, 2))
    return log_p_of_slots, log_probs.gather(2, gold).squeeze(2).sum(1), entropy


def trained(model):
    return [weight for weight in model.parameters() if weight.requires_grad]


@pytest.mark.parametrize("query_from", ["current", "previous"])
def test_the_mean_of_the_draws_is_the_exact_gradient(query_from):
    """Within 4 standard errors for every weight; 200,000 draws in benchmarks/latent.py."""
    entropy_weight = 0.3
    model = make_model(query_from, Sampled(soft_share=0.0, entropy_weight=entropy_weight))
    log_p, log_likelihood, entropy = enumerate_slots(model)
    assert float(log_p.detach().exp().sum()) == pytest.approx(1.0)
    # The bonus is for the distributions of the drawn slots, which count as given.
    objective = (log_p.exp() * log_likelihood).sum() + entropy_weight * (log_p.exp().detach() * entropy).sum()
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(-objective, trained(model))])

    sampled = find_sampled(model.decoder)
    batches, rows = 80, 60
    gradients = []
    for _ in range(batches):
        batch = make_batch(rows)
        loss = reinforce_loss(model.decoder, sampled, model.encoder(*batch.source), batch, 0.0)
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss.smoothed / rows, trained(model))]))
    draws = torch.stack(gradients)
    errors = (draws.mean(0) - expected).abs() / (draws.std(0) / batches**0.5 + 1e-12)
    assert float(errors.max()) < 5  # of several hundred weights
    assert float((errors > 3).double().mean()) < 0.02
    assert float(expected.abs().max()) > 0.1
    assert float(loss.smoothed.detach()) == pytest.approx(float(loss.nll))  # what is reported is the likelihood
    assert float(sampled.baseline.detach()) == pytest.approx(
        float((log_p.exp() * log_likelihood).sum().detach()) / 2, abs=0.2
    )


def test_the_marginal_loss_is_the_sum_over_all_slots():
    model = make_model("current", Sampled(estimator="marginal"))
    log_p, log_likelihood, _ = enumerate_slots(model)
    exact = -(log_p + log_likelihood).logsumexp(0)
    loss = marginal_loss(model.decoder, model.encoder(*make_batch(3).source), make_batch(3))
    assert loss.tokens == 6
    torch.testing.assert_close(loss.smoothed, 3 * exact)
    assert float(loss.nll) == float(loss.smoothed.detach())
    ours, theirs = (torch.autograd.grad(part, trained(model)) for part in (loss.smoothed / 3, exact))
    torch.testing.assert_close(ours, theirs)
    assert float(exact.detach()) <= float(-(log_p.exp() * log_likelihood).sum().detach())  # Jensen


@pytest.mark.parametrize("estimator", ["reinforce", "marginal", "straight_through"])
def test_a_model_trains_with_every_estimator(estimator):
    """Copy one of five symbols that the first slot shows."""
    torch.manual_seed(1)
    model = make_model("current", Sampled(estimator=estimator)).float()
    optimizer = torch.optim.Adam(trained(model), lr=0.02)
    losses = []
    for _ in range(60):
        symbols = torch.randint(4, V, (32,)).tolist()
        batch = collate([([symbol, 3], [symbol]) for symbol in symbols], bos=BOS, eos=EOS, pad=PAD)
        loss = model(batch)
        optimizer.zero_grad()
        (loss.smoothed / loss.tokens).backward()
        optimizer.step()
        losses.append(float(loss.nll) / loss.tokens)
    assert sum(losses[-5:]) < 0.35 * sum(losses[:5])
    assert (model.decoder.attention.normalizer.baseline != 0) == (estimator == "reinforce")


def test_several_heads_are_drawn_apart():
    model = make_model("current", Sampled(soft_share=0.0), heads=2)
    batch = make_batch(200)
    loss = model(batch)
    loss.smoothed.backward()
    decoded, _ = model.decoder(batch.inputs, model.decoder.start(model.encoder(*batch.source)), Look())
    slots = decoded.maps.cross[0].weights.argmax(-1)
    assert (slots[:, 0] != slots[:, 1]).any()


@pytest.mark.parametrize("decode", ["best", "expected"])
def test_evaluation_does_not_draw(decode):
    scores = torch.tensor([[0.0, 1.0, 0.9]])
    normalizer = Sampled(decode=decode, soft_share=0.0)
    drawn = torch.cat([normalizer(scores) for _ in range(2000)])
    torch.testing.assert_close(drawn.mean(0), scores.softmax(-1)[0], rtol=0, atol=0.04)
    assert set(drawn.flatten().tolist()) == {0.0, 1.0}
    expected = scores.softmax(-1) if decode == "expected" else torch.tensor([[0.0, 1.0, 0.0]])
    torch.testing.assert_close(normalizer.eval()(scores), expected)
    half = torch.cat([Sampled(soft_share=0.5)(scores) for _ in range(1000)])
    assert 0.45 < float((half.amax(-1) < 1.0).double().mean()) < 0.55


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_slots_are_drawn_by_their_probabilities_in_every_precision(dtype):
    scores = torch.zeros(100_000, 20, dtype=dtype)
    scores[:, 0] = 6.0
    shares = Sampled(soft_share=0.0)(scores).float().mean(0)
    expected = scores[0].double().softmax(-1)
    standard_errors = (expected * (1 - expected) / len(scores)).sqrt()
    assert ((shares - expected).abs() <= 5 * standard_errors).all()


def test_soft_queries_are_not_rewarded():
    """Also if one slot has all the weight, after rounding: it was not drawn."""
    gradients = []
    for reward_weight in (0.0, 1.0):
        model = make_model("current", Sampled(soft_share=1.0, entropy_weight=0.0, reward_weight=reward_weight)).float()
        with torch.no_grad():
            model.decoder.attention.score.key.weight.mul_(230.0)
        batch = make_batch(4)
        decoded, _ = model.decoder(
            batch.inputs, model.decoder.start(model.encoder(*batch.source)), Look(frozenset({"weights"}))
        )
        weights = decoded.maps.cross[0].weights
        assert ((weights.amax(-1) == 1.0) & ((weights > 0.0).sum(-1) > 1)).any()
        gradients.append(torch.autograd.grad(model(batch).smoothed, trained(model)))
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)


def test_misuse_is_explained():
    with pytest.raises(ValueError, match="estimator 'exact' is unknown; choose from reinforce, marginal"):
        Sampled(estimator="exact")
    with pytest.raises(ValueError, match="decode 'mean' is unknown; choose from best, expected"):
        Sampled(decode="mean")
    with pytest.raises(ValueError, match="query_from='current'"):
        make_model("previous", Sampled(estimator="marginal"))
    model = make_model("current", Sampled())
    with pytest.raises(ValueError, match="without CTC and sampled attention"):
        Seq2Seq(model.encoder, model.decoder, r_drop=1.0)

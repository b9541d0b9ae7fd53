"""Losses of sampled attention, whose slots s = (s_1 .. s_T) are a latent variable (Xu et al. 2015).

    log p(y | x) >= L = sum_s p(s | x) log p(y | s, x)                    Jensen's inequality

`reinforce_loss` draws s once and estimates the gradient of L, with a baseline b against the variance and a bonus for
the entropy H of the distributions:

    gradient = d log p(y | s, x) + reward_weight (log p(y | s, x) - b) d log p(s | x) + entropy_weight dH
    b <- decay b + (1 - decay) log p(y | s, x)

b is kept per token and multiplied by the length of the sentence. `marginal_loss` is exact, for decoders whose context
is read by nothing but the readout, so that the slots of different steps do not depend on each other:

    log p(y | x) = sum_t log sum_i p(s_t = i) p(y_t | s_t = i, y_<t, x)
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from heedful.data.batch import Batch
from heedful.model.loss import CHUNK_TOKENS, Loss, token_losses
from heedful.nn.attention import Sampled
from heedful.nn.contract import Decoder, Look, Memory
from heedful.nn.decoders import RecurrentDecoder
from heedful.nn.layers import promote_to_fp32


def find_sampled(decoder: Decoder) -> Sampled | None:
    """The normalizer whose draws need a loss of their own, if the decoder has one."""
    normalizer = getattr(getattr(decoder, "attention", None), "normalizer", None)
    needs_loss = isinstance(normalizer, Sampled) and normalizer.estimator != "straight_through"
    return normalizer if needs_loss else None


def latent_loss(decoder: Decoder, sampled: Sampled, memory: Memory, batch: Batch, label_smoothing: float) -> Loss:
    """The training loss of a decoder with sampled attention."""
    assert isinstance(decoder, RecurrentDecoder)
    if sampled.estimator == "marginal":
        return marginal_loss(decoder, memory, batch)
    return reinforce_loss(decoder, sampled, memory, batch, label_smoothing)


def reinforce_loss(decoder: Decoder, sampled: Sampled, memory: Memory, batch: Batch, label_smoothing: float) -> Loss:
    """-L of the batch, whose gradient is the estimate above; it updates the baseline."""
    decoded, _ = decoder(batch.inputs, decoder.start(memory), Look(frozenset({"weights", "scores"})))
    states = decoded.states.flatten(0, 1).index_select(0, batch.target_positions)
    smoothed, nll = token_losses(decoder.project, states, batch.targets, label_smoothing)
    rows, steps = batch.inputs.shape
    row_of_token = batch.target_positions // steps
    log_likelihood = nll.new_zeros(rows).index_add(0, row_of_token, -nll)  # log p(y | s, x) of every sentence
    lengths = nll.new_zeros(rows).index_add(0, row_of_token, torch.ones_like(nll))

    assert decoded.maps is not None
    (layer,) = decoded.maps.cross
    assert layer.weights is not None
    assert layer.scores is not None
    is_target = torch.zeros(rows * steps, dtype=torch.bool, device=nll.device)
    is_target[batch.target_positions] = True
    is_target = is_target.view(rows, 1, steps)
    log_probs = promote_to_fp32(layer.scores).log_softmax(-1)
    weights = layer.weights.detach()
    is_drawn = is_target & (weights.amax(-1) == 1.0)
    log_p_of_drawn = log_probs.masked_fill(weights != 1.0, 0.0).sum(-1).masked_fill(~is_drawn, 0.0).sum((1, 2))
    finite = log_probs.masked_fill(log_probs == -torch.inf, 0.0)
    entropy = -(finite * log_probs.exp()).sum(-1).masked_fill(~is_target, 0.0).sum()

    reward = log_likelihood - sampled.baseline * lengths
    objective = sampled.reward_weight * (reward * log_p_of_drawn).sum() + sampled.entropy_weight * entropy
    with torch.no_grad():
        sampled.baseline.lerp_(
            (log_likelihood.sum() / lengths.sum()).to(sampled.baseline), 1.0 - sampled.baseline_decay
        )
    # The objective gives a gradient only: its value is not a loss, and would change the sign of what is reported.
    return Loss(smoothed.sum() - (objective - objective.detach()), nll.sum(), len(nll))


def marginal_loss(decoder: RecurrentDecoder, memory: Memory, batch: Batch) -> Loss:
    """-log p(y | x) of the batch, summed over the slots of every step; without label smoothing."""
    states, log_weights = decoder.read_each_slot(batch.inputs, decoder.start(memory))
    states = states.flatten(0, 1).index_select(0, batch.target_positions)  # [N, S, E]
    log_weights = log_weights.flatten(0, 1).index_select(0, batch.target_positions)
    chunk_tokens = max(1, CHUNK_TOKENS // states.size(1))
    parts = [
        checkpoint(_mixture_nll, decoder.project, chunk, weights, gold, use_reentrant=False)
        for chunk, weights, gold in zip(
            states.split(chunk_tokens), log_weights.split(chunk_tokens), batch.targets.split(chunk_tokens), strict=True
        )
    ]
    nll = torch.stack(parts).sum()
    return Loss(nll, nll.detach(), len(batch.targets))


def _mixture_nll(
    project: Callable[[Tensor], Tensor] | nn.Linear, states: Tensor, log_weights: Tensor, targets: Tensor
) -> Tensor:
    """-sum_n log sum_i p(i) p(target_n | i)"""
    log_probs = promote_to_fp32(project(states)).log_softmax(-1)  # [n, S, V]
    gold = targets.view(-1, 1, 1).expand(-1, states.size(1), 1)
    return -(log_weights + log_probs.gather(2, gold).squeeze(2)).logsumexp(1).sum()

"""Connectionist temporal classification (Graves et al. 2006): p(y | x) is a sum over alignments.

Every slot s of the source emits a label or a blank, independently of the other slots: p_s(k). A path is one emission
per slot. Merging its equal neighbors and then removing its blanks gives the labels that it is an alignment of:

    p(y | x) = sum over paths that become y of prod_s p_s(path_s)

`forward_backward` computes this sum in time S (2 L + 1). The states are z = (blank, y_1, blank, y_2, .., y_L, blank),
and a path steps to the next state at every slot, stays, or skips a blank between two different labels:

    alpha_s(u) = p_s(z_u) (alpha_{s-1}(u) + alpha_{s-1}(u-1) + [z_u is a label and z_u != z_{u-2}] alpha_{s-1}(u-2))
    beta_s(u)  = the same from the other end, without p_s(z_u)
    p(y | x)   = sum_u alpha_s(u) beta_s(u), the same at every slot s

All sums are over logarithms, so nothing underflows. Padded slots are after the real ones and emit nothing.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful import performance

BLANK = 0  # the id of padding, which is never a label


class Alignments(NamedTuple):
    """The sum over all alignments of labels to slots."""

    log_likelihood: Tensor  # [B] log p(y | x), -inf if the labels do not fit into the slots
    states: Tensor  # [B, U] z: a blank, then every label followed by a blank
    posteriors: Tensor  # [B, S, U] p(slot s is in state u | x, y), 0 at padded slots


def forward_backward(log_probs: Tensor, mask: Tensor, labels: Tensor, label_mask: Tensor) -> Alignments:
    """Log-probabilities of slots [B, S, V] and labels [B, L] -> their alignments."""
    states, real, can_skip = alignment_states(labels, label_mask)
    emissions = log_probs.gather(2, states.unsqueeze(1).expand(-1, log_probs.size(1), -1))
    emissions = emissions.masked_fill(~real.unsqueeze(1), -torch.inf)
    last = 2 * label_mask.sum(1, keepdim=True)  # the state of the last blank
    state = torch.arange(states.size(1), device=states.device).expand_as(states)

    alpha = torch.where(state == 0, 0.0, -torch.inf).to(emissions)  # before the first slot
    alphas = []
    for slot in range(log_probs.size(1)):
        alpha = torch.where(mask[:, slot : slot + 1], emissions[:, slot] + _step_forward(alpha, can_skip), alpha)
        alphas.append(alpha)

    beta = torch.where((state == last) | (state == last - 1), 0.0, -torch.inf).to(emissions)  # after the last slot
    betas = []
    for slot in reversed(range(log_probs.size(1))):
        betas.append(beta)
        beta = torch.where(mask[:, slot : slot + 1], _step_back(emissions[:, slot] + beta, can_skip), beta)

    paths = torch.stack(alphas, 1) + torch.stack(betas[::-1], 1)
    log_likelihood = paths[:, -1].logsumexp(1)
    fits = (log_likelihood > -torch.inf).view(-1, 1, 1)
    posteriors = (paths - log_likelihood.view(-1, 1, 1)).exp().masked_fill(~(fits & mask.unsqueeze(-1)), 0.0)
    return Alignments(log_likelihood, states, posteriors)


def alignment_states(labels: Tensor, label_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """z, which of its entries are real, and which can be reached from two entries before; each [B, 2 L + 1]"""
    rows, length = labels.shape
    states = labels.new_full((rows, 2 * length + 1), BLANK)
    states[:, 1::2] = labels
    real = torch.ones_like(states, dtype=torch.bool)
    real[:, 1:] = label_mask.repeat_interleave(2, 1)
    can_skip = (states != BLANK) & (states != _shift(states, 2, BLANK))
    return states, real, can_skip


def count_required_slots(labels: Tensor, label_mask: Tensor) -> Tensor:
    """The least number of slots of each row: one per label, and one for the blank between two equal labels."""
    repeats = (labels[:, 1:] == labels[:, :-1]) & label_mask[:, 1:]
    return label_mask.sum(1) + repeats.sum(1)


def _step_forward(alpha: Tensor, can_skip: Tensor) -> Tensor:
    """log(alpha(u) + alpha(u-1) + [can_skip(u)] alpha(u-2))"""
    skipping = _shift(alpha, 2, -torch.inf).masked_fill(~can_skip, -torch.inf)
    return torch.stack((alpha, _shift(alpha, 1, -torch.inf), skipping)).logsumexp(0)


def _step_back(beta: Tensor, can_skip: Tensor) -> Tensor:
    """log(beta(u) + beta(u+1) + [can_skip(u+2)] beta(u+2)), where beta already includes p_s(z)"""
    skipping = _shift(beta.masked_fill(~can_skip, -torch.inf), -2, -torch.inf)
    return torch.stack((beta, _shift(beta, -1, -torch.inf), skipping)).logsumexp(0)


def _shift(x: Tensor, places: int, fill: float) -> Tensor:
    """x(u - places), and `fill` where there is no such entry: [B, U] -> [B, U]"""
    shifted = torch.full_like(x, fill)
    size = x.size(1)
    if abs(places) < size:
        target, source = slice(max(places, 0), size + min(places, 0)), slice(max(-places, 0), size - max(places, 0))
        shifted[:, target] = x[:, source]
    return shifted


def best_alignment(log_probs: Tensor, labels: Tensor) -> tuple[list[int], float]:
    """The state of every slot on the most probable path of labels [L] through slots [S, V], and its log p (Viterbi)

    It is `forward_backward` of one sentence with a maximum instead of the sum; log p is -inf if the labels do not fit.
    """
    states, _, can_skip = alignment_states(labels.unsqueeze(0), torch.ones_like(labels.unsqueeze(0), dtype=torch.bool))
    emissions = log_probs[:, states[0]]
    best = torch.full_like(emissions[:1], -torch.inf)  # [1, U]
    best[0, 0] = 0.0  # before the first slot
    steps = []
    for emission in emissions:
        skipping = _shift(best, 2, -torch.inf).masked_fill(~can_skip, -torch.inf)
        arrivals, step = torch.stack((best, _shift(best, 1, -torch.inf), skipping)).max(0)
        best = emission + arrivals
        steps.append(step[0].tolist())
    last = best[0, -2:].argmax() + max(0, best.size(1) - 2)  # the last label, or the blank after it
    path = [int(last)]
    for step in reversed(steps[1:]):
        path.append(path[-1] - step[path[-1]])
    return path[::-1], float(best[0, last])


def ctc_loss(log_probs: Tensor, mask: Tensor, labels: Tensor, label_mask: Tensor) -> Tensor:
    """-log p(y | x) of every row, [B], from log-softmax outputs [B, S, V]

    It is inf, without a gradient, where the labels do not fit. PyTorch's kernel computes it, unless HEEDFUL_REFERENCE=1
    is set.
    """
    if not performance.enabled():
        return explicit_ctc_loss(log_probs, mask, labels, label_mask)
    slots, lengths = mask.sum(1), label_mask.sum(1)
    arguments = (log_probs.transpose(0, 1), labels, slots, lengths)
    losses = F.ctc_loss(*arguments, blank=BLANK, reduction="none", zero_infinity=True)
    return losses.masked_fill(count_required_slots(labels, label_mask) > slots, torch.inf)


def explicit_ctc_loss(log_probs: Tensor, mask: Tensor, labels: Tensor, label_mask: Tensor) -> Tensor:
    """The same by `forward_backward`, whose posteriors are the gradient."""
    return _ExplicitCTCLoss.apply(log_probs, mask, labels, label_mask)  # type: ignore[no-any-return, no-untyped-call]


class _ExplicitCTCLoss(torch.autograd.Function):
    """d -log p(y | x) / d log p_s(k) = -sum over states u with z_u = k of p(slot s is in state u | x, y)"""

    @staticmethod
    def forward(ctx: Any, log_probs: Tensor, mask: Tensor, labels: Tensor, label_mask: Tensor) -> Tensor:
        log_likelihood, states, posteriors = forward_backward(log_probs, mask, labels, label_mask)
        slot_states = states.unsqueeze(1).expand_as(posteriors)
        ctx.save_for_backward(torch.zeros_like(log_probs).scatter_add_(2, slot_states, -posteriors))
        return -log_likelihood

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradients[0].view(-1, 1, 1) * gradient, None, None, None


def label_posteriors(alignments: Alignments) -> Tensor:
    """p(s is the first slot of label l | x, y), [B, L, S]: a distribution over the slots for every label that fits

    Slot s is the first of its label if slot s - 1 is in another state. That has the probability of the state at slot s
    minus that of staying in it; the difference of cumulated posteriors is the same, because states are never left and
    entered again: p(first = s) = p(state reached by s) - p(state reached by s - 1).
    """
    _, _, posteriors = alignments
    beyond = posteriors.flip(2).cumsum(2).flip(2)  # p(slot s is in state u or a later one)
    reached = beyond[:, :, 1::2]
    before = F.pad(reached, (0, 0, 1, 0))[:, :-1]
    return (reached - before).clamp(min=0.0).transpose(1, 2)

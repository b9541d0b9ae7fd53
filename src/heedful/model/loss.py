"""Cross-entropy with label smoothing, by chunks of tokens to save memory.

    p = softmax(W s + b)
    nll = -log p[gold]
    smoothed = (1 - eps) nll + eps mean_v(-log p[v])

This is PyTorch's convention: eps is spread over all V words. fairseq spreads it over the other V - 1, which is the
same loss with eps' = eps V / (V - 1).

With R-Drop (Liang et al. 2021) every token is predicted twice, with two dropout masks, and the loss penalizes the
difference:

    loss = 1/2 (smoothed_1 + smoothed_2) + alpha/4 (KL(p_1 || p_2) + KL(p_2 || p_1))
    KL(p || q) + KL(q || p) = sum_v (p[v] - q[v]) (log p[v] - log q[v])

The doubly stochastic term of Xu et al. 2015 makes a decoder look at every slot about once:

    loss = smoothed + lambda sum_s (1 - sum_t a_ts)^2

`explicit_loss` implements these formulas for one chunk. If the projection is an `nn.Linear`,
`heedful.performance.fused_loss` computes the loss together with its gradient.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from heedful import performance
from heedful.nn.contract import Map
from heedful.nn.layers import promote_to_fp32
from heedful.performance.fused_loss import fused_cross_entropy

CHUNK_TOKENS = 512  # per chunk: with fewer, matrix products are slow; with more, the logits exceed the cache
LARGE_VOCAB_SIZE = 2**17  # above this, chunks have half as many tokens, to save memory


class Loss(NamedTuple):
    """Sums over the target tokens; divide by `tokens` for means."""

    smoothed: Tensor  # the training objective, with R-Drop's term and the doubly stochastic one
    nll: Tensor  # -log p of the gold tokens, without a gradient; exp(nll / tokens) is the perplexity
    tokens: int


def chunked_loss(
    project: Callable[[Tensor], Tensor],
    states: Tensor,
    targets: Tensor,
    *,
    label_smoothing: float = 0.0,
    r_drop: float = 0.0,
    chunk_tokens: int | None = None,
) -> Loss:
    """Project states [N, D] to logits and compare them with targets [N], `chunk_tokens` at a time.

    `project` is an `nn.Linear` (fast: the forward pass computes the gradient) or any function to logits. `r_drop` is
    R-Drop's alpha; with it, `states` is [2 N, D]: the first prediction of all targets, then the second.
    """
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"label smoothing must be in [0, 1), got {label_smoothing}")
    if r_drop < 0.0:
        raise ValueError(f"r_drop must not be negative, got {r_drop}")
    views = 2 if r_drop else 1
    if len(states) != views * len(targets):
        raise ValueError(f"{len(targets)} targets need {views * len(targets)} states, not {len(states)}")
    if isinstance(project, nn.Linear) and performance.enabled():
        chunk_tokens = chunk_tokens or (CHUNK_TOKENS if project.out_features <= LARGE_VOCAB_SIZE else CHUNK_TOKENS // 2)
        smoothed, nll = fused_cross_entropy(
            project, states, targets, label_smoothing=label_smoothing, r_drop=r_drop, chunk_tokens=chunk_tokens
        )
        return Loss(smoothed, nll, len(targets))
    chunk_tokens = chunk_tokens or CHUNK_TOKENS
    state_chunks = states.view(views, len(targets), -1).split(chunk_tokens, 1)
    parts = [
        checkpoint(explicit_loss, project, chunk, gold, label_smoothing, r_drop, use_reentrant=False)
        for chunk, gold in zip(state_chunks, targets.split(chunk_tokens), strict=True)
    ]
    return Loss(torch.stack([s for s, _ in parts]).sum(), torch.stack([n for _, n in parts]).sum(), len(targets))


def token_losses(
    project: Callable[[Tensor], Tensor], states: Tensor, targets: Tensor, label_smoothing: float
) -> tuple[Tensor, Tensor]:
    """The smoothed loss and -log p of every target, [N] each, the second without a gradient; by chunks of tokens."""
    parts = [
        checkpoint(_explicit_token_losses, project, chunk, gold, label_smoothing, use_reentrant=False)
        for chunk, gold in zip(states.split(CHUNK_TOKENS), targets.split(CHUNK_TOKENS), strict=True)
    ]
    return torch.cat([smoothed for smoothed, _ in parts]), torch.cat([nll for _, nll in parts])


def _explicit_token_losses(
    project: Callable[[Tensor], Tensor], states: Tensor, targets: Tensor, label_smoothing: float
) -> tuple[Tensor, Tensor]:
    logits = promote_to_fp32(project(states))
    smoothed = F.cross_entropy(logits, targets, label_smoothing=label_smoothing, reduction="none")
    return smoothed, F.cross_entropy(logits.detach(), targets, reduction="none")


def explicit_loss(
    project: Callable[[Tensor], Tensor], states: Tensor, targets: Tensor, label_smoothing: float, r_drop: float
) -> tuple[Tensor, Tensor]:
    """The sums of smoothed loss and nll for states [views, rows, D]."""
    views, gold = len(states), targets.repeat(len(states))
    logits = promote_to_fp32(project(states.flatten(0, 1)))
    smoothed = F.cross_entropy(logits, gold, label_smoothing=label_smoothing, reduction="sum") / views
    if r_drop:
        first, second = logits.log_softmax(1).view(2, len(targets), -1)
        smoothed = smoothed + r_drop / 4 * ((first.exp() - second.exp()) * (first - second)).sum()
    return smoothed, F.cross_entropy(logits.detach(), gold, reduction="sum") / views


def uncovered_attention(cross: Sequence[Map], steps: Tensor, slots: Tensor) -> Tensor:
    """sum_s (1 - sum_t a_ts)^2, summed over the rows; a_ts is the mean over all layers and heads.

    `steps` [B, T] and `slots` [B, S] are the masks of the real tokens and the real slots.
    """
    weights = torch.cat([layer.weights for layer in cross if layer.weights is not None], 1)  # [B, L * H, T, S]
    attention = promote_to_fp32(weights).mean(1) * steps.unsqueeze(-1)
    return ((1 - attention.sum(1)) * slots).square().sum()

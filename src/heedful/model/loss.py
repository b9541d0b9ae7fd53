"""Cross-entropy with label smoothing, without ever holding all logits.

    p = softmax(W s + b)
    nll = -log p[gold]
    smoothed = (1 - eps) nll + eps mean_v(-log p[v])

This is PyTorch's convention: eps is spread over all V words. fairseq spreads it over the other V - 1, which is the
same loss with eps' = eps V / (V - 1).

With agreement (R-Drop, Liang et al. 2021) every token is read twice, under two dropouts, and both should say the same:

    loss = 1/2 (smoothed_1 + smoothed_2) + alpha/4 (KL(p_1 || p_2) + KL(p_2 || p_1))
    KL(p || q) + KL(q || p) = sum_v (p[v] - q[v]) (log p[v] - log q[v])

The projection and the cross-entropy are done together, a chunk of tokens at a time, and the gradient is formed on the
way: of the [tokens, V] logits only one chunk exists at any moment, so 256 thousand words fit where the
plain form needs several gigabytes, and the chunk stays in the cache.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from heedful.nn.layers import precise

CHUNK = 512  # tokens whose logits are held at once: fewer starve the matrix product, more leave the cache
EVEN = 64  # tokens; the last chunk is filled up to a multiple of it, as a product of a new size costs 20 ms to set up


class Loss(NamedTuple):
    """Sums over the target tokens; divide by `tokens` for means."""

    smoothed: Tensor  # what training minimizes, with agreement where it is asked for
    nll: Tensor  # -log p of the gold tokens, without a gradient; exp(nll / tokens) is the perplexity
    tokens: int


def chunked_loss(
    project: Callable[[Tensor], Tensor],
    states: Tensor,
    targets: Tensor,
    *,
    smoothing: float = 0.0,
    agreement: float = 0.0,
    chunk: int | None = None,
) -> Loss:
    """Project states [N, D] to logits and compare with targets [N], `chunk` tokens at a time.

    `project` is an `nn.Linear` (fast: the gradient is formed in the forward pass) or any function to logits.
    `agreement` is R-Drop's alpha; with it a target has two states, [2 N, D]: all the first ones, then all the second.
    """
    if not 0.0 <= smoothing < 1.0:
        raise ValueError(f"label smoothing must be in [0, 1), got {smoothing}")
    if agreement < 0.0:
        raise ValueError(f"agreement must not be negative, got {agreement}")
    views = 2 if agreement else 1
    if len(states) != views * len(targets):
        raise ValueError(f"{len(targets)} targets need {views * len(targets)} states, not {len(states)}")
    if isinstance(project, nn.Linear):
        # Half of it for a vocabulary so large that memory, not speed, is the concern.
        rows = chunk or (CHUNK if project.out_features <= 2**17 else CHUNK // 2)
        wants = torch.is_grad_enabled()
        smoothed, nll = _Fused.apply(states, project.weight, project.bias, targets, smoothing, agreement, rows, wants)  # type: ignore[no-untyped-call]
        return Loss(smoothed, nll, len(targets))
    rows = chunk or CHUNK
    views_of = states.view(views, len(targets), -1).split(rows, 1)
    parts = [
        checkpoint(_explicit, project, some, gold, smoothing, agreement, use_reentrant=False)
        for some, gold in zip(views_of, targets.split(rows), strict=True)
    ]
    return Loss(torch.stack([s for s, _ in parts]).sum(), torch.stack([n for _, n in parts]).sum(), len(targets))


def _explicit(
    project: Callable[[Tensor], Tensor], states: Tensor, targets: Tensor, smoothing: float, agreement: float
) -> tuple[Tensor, Tensor]:
    """Of states [views, rows, D], by the formulas as they stand."""
    views, gold = len(states), targets.repeat(len(states))
    logits = precise(project(states.flatten(0, 1)))
    smoothed = F.cross_entropy(logits, gold, label_smoothing=smoothing, reduction="sum") / views
    if agreement:
        one, other = logits.log_softmax(1).view(2, len(targets), -1)
        smoothed = smoothed + agreement / 4 * ((one.exp() - other.exp()) * (one - other)).sum()
    return smoothed, F.cross_entropy(logits.detach(), gold, reduction="sum") / views


class _Fused(torch.autograd.Function):
    """d smoothed / d logits = p - (1 - eps) 1[gold] - eps / V"""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        agreement: float,
        rows: int,
        wants: bool,
    ) -> tuple[Tensor, Tensor]:
        device = states.device.type
        wants = wants and any(ctx.needs_input_grad[:3])
        casting = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        low = torch.get_autocast_dtype(device) if casting else states.dtype
        if low is torch.float16:
            low = torch.float32  # most probabilities of a large vocabulary are nothing in fp16
        with torch.autocast(device, enabled=False) if casting else nullcontext():
            smoothed, nll, ctx.formed = _forward(states, weight, bias, targets, smoothing, agreement, rows, low, wants)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.formed is None:
            raise RuntimeError("the loss was differentiated twice; its gradient is formed once and handed over")
        scale = gradients[0]
        formed, ctx.formed = ctx.formed, None
        # In place: the gradient of a large table must not exist twice.
        of_states, of_weight, of_bias = (None if part is None else part.mul_(scale) for part in formed)
        return of_states, of_weight, of_bias, None, None, None, None, None


Gradients = tuple[Tensor | None, ...]  # of the states, the weight and the bias


def _forward(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    smoothing: float,
    agreement: float,
    rows: int,
    low: torch.dtype,
    wants: bool,
) -> tuple[Tensor, Tensor, Gradients]:
    """The sums of smoothed loss and nll, and (if wanted) their gradients; products in `low`, sums in fp32 or better."""
    tokens, vocabulary, views = len(targets), len(weight), 2 if agreement else 1
    rows = -(-rows // views)
    exact = torch.promote_types(states.dtype, torch.float32)
    table, offset = weight.to(low), None if bias is None else bias.to(low)
    uniform = weight.mean(0, dtype=exact)  # mean_v of the logits is the logit of the mean row
    level = weight.new_zeros((), dtype=exact) if bias is None else bias.mean(dtype=exact)
    each = states.view(views, tokens, -1)
    of_states = torch.empty_like(each) if wants else None
    of_weight = torch.zeros_like(weight, dtype=exact) if wants else None
    of_bias = torch.zeros_like(bias, dtype=exact) if wants and bias is not None else None
    buffer = table.new_empty(views * min(rows, tokens) + EVEN - 1, vocabulary)
    order = torch.arange(views * min(rows, tokens), device=states.device)
    nll, flat, apart = states.new_zeros(3, dtype=exact).unbind()
    for begin in range(0, tokens, rows):
        part = slice(begin, begin + rows)
        some, gold = each[:, part].flatten(0, 1).to(low), targets[part].repeat(views)
        count = len(some)
        here = (order[:count], gold)
        some = F.pad(some, (0, 0, 0, -count % EVEN))
        filled = torch.mm(some, table.t(), out=buffer[: len(some)])
        logits = filled[:count]
        if offset is not None:
            logits.add_(offset)
        # log sum exp = top - log p(top): safe, because p(top) >= 1 / V never underflows.
        top, at_gold = logits.amax(1).to(exact), logits[here].to(exact)
        gap = logits[: count // 2].to(exact) - logits[count // 2 :] if agreement else None
        p = torch.softmax(logits, 1, out=logits)
        norm = top - p.amax(1).to(exact).log()
        log_p = at_gold - norm
        nll -= log_p.sum()
        if smoothing:
            flat += (norm - torch.mv(some[:count].to(exact), uniform) - level).sum()
        if gap is not None:
            gap.sub_((norm[: count // 2] - norm[count // 2 :]).unsqueeze(1))
            apart += _agreed(p, gap, agreement)
        if of_states is None or of_weight is None:
            continue
        if gap is not None:
            p.index_put_(here, p.new_full((count,), smoothing - 1.0), accumulate=True)
        else:
            p.index_put_(here, (log_p.exp() - (1.0 - smoothing)).to(low))  # scatter_ would copy the whole chunk twice
        filled[count:] = 0.0
        of_states[:, part] = (filled @ table)[:count].view(views, count // views, -1)
        if low == exact:
            of_weight.addmm_(filled.t(), some)
        else:
            of_weight.add_(filled.t() @ some)
        if of_bias is not None:
            of_bias.add_(p.sum(0, dtype=exact))
    if smoothing and of_states is not None and of_weight is not None:
        of_states.sub_(smoothing * uniform)
        of_weight.sub_(states.sum(0, dtype=exact) * (smoothing / vocabulary))
        if of_bias is not None:
            of_bias.sub_(smoothing * views * tokens / vocabulary)
    formed = tuple(
        None if found is None or like is None else (found / views if agreement else found).to(like.dtype).view_as(like)
        for found, like in ((of_states, states), (of_weight, weight), (of_bias, bias))
    )
    total = (1.0 - smoothing) * nll + smoothing * flat + agreement / 2 * apart
    return total / views, nll / views, formed


def _agreed(p: Tensor, gap: Tensor, alpha: float) -> Tensor:
    """The sum over tokens of s = sum_v (p_1 - p_2) gap, gap = log p_1 - log p_2; p becomes p + alpha/2 ds / d logits.

    ds / d logits_1 = p_1 (gap - sum_v p_1 gap) + p_1 - p_2, and for the other view with p_1 and p_2 exchanged
    """
    one, other = p[: len(gap)], p[len(gap) :]
    of_one, of_other = (torch.linalg.vecdot(view.to(gap.dtype), gap).unsqueeze(1) for view in (one, other))
    between = one - other
    one.addcmul_(one, (gap - of_one).to(p.dtype), value=alpha / 2).add_(between, alpha=alpha / 2)
    other.addcmul_(other, (of_other - gap).to(p.dtype), value=alpha / 2).sub_(between, alpha=alpha / 2)
    apart: Tensor = (of_one - of_other).sum()
    return apart

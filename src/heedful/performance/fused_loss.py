"""Output projection and cross-entropy by chunks of tokens; the forward pass also computes the gradient.

    p = softmax(W s + b)
    d smoothed / d logits = p - (1 - eps) 1[gold] - eps / V

Only the logits of one chunk exist at a time. They stay in the cache, and a vocabulary of 256 thousand fits where the
plain form needs several gigabytes (`benchmarks/loss_memory.py`). Checkpointed chunks would project every token again in
the backward pass: for 2,048 tokens of width 128 and 10,000 words they take 2.1 times as long in fp32 and 3.2 times in
bf16. The loss can be differentiated only once.

The last chunk is padded with zeros to a multiple of ROW_MULTIPLE rows, because oneDNN needs 20 ms to set up a matrix
product of a new size.
"""

from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROW_MULTIPLE = 64
Gradients = tuple[Tensor | None, ...]  # of the states, the weight and the bias


def fused_cross_entropy(
    projection: nn.Linear,
    states: Tensor,
    targets: Tensor,
    *,
    label_smoothing: float,
    r_drop: float,
    chunk_tokens: int,
) -> tuple[Tensor, Tensor]:
    """The sums of the smoothed loss (with R-Drop's term) and of -log p[target], as in `heedful.model.loss`."""
    arguments = (projection.weight, projection.bias, targets, label_smoothing, r_drop, chunk_tokens)
    return _FusedCrossEntropy.apply(states, *arguments, torch.is_grad_enabled())  # type: ignore[no-any-return, no-untyped-call]


class _FusedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        label_smoothing: float,
        r_drop: float,
        chunk_tokens: int,
        grad_enabled: bool,
    ) -> tuple[Tensor, Tensor]:
        device = states.device.type
        needs_gradients = grad_enabled and any(ctx.needs_input_grad[:3])
        autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        product_dtype = torch.get_autocast_dtype(device) if autocast else states.dtype
        if product_dtype is torch.float16:
            product_dtype = torch.float32  # most probabilities of a large vocabulary are zero in fp16
        with torch.autocast(device, enabled=False) if autocast else nullcontext():
            smoothed, nll, ctx.gradients = _loss_and_gradients(
                states, weight, bias, targets, label_smoothing, r_drop, chunk_tokens, product_dtype, needs_gradients
            )
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("the loss was differentiated twice, but its gradient is computed only once")
        formed, ctx.gradients = ctx.gradients, None
        # In place: a copy of the gradient of a large table would take too much memory.
        states, weight, bias = (None if part is None else part.mul_(gradients[0]) for part in formed)
        return states, weight, bias, None, None, None, None, None


def _loss_and_gradients(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    label_smoothing: float,
    r_drop: float,
    chunk_tokens: int,
    product_dtype: torch.dtype,
    needs_gradients: bool,
) -> tuple[Tensor, Tensor, Gradients]:
    """The sums of smoothed loss and nll, and their gradients; products in `product_dtype`, sums in fp32 or better."""
    tokens, vocab_size, views = len(targets), len(weight), 2 if r_drop else 1
    chunk_tokens = -(-chunk_tokens // views)
    sum_dtype = torch.promote_types(states.dtype, torch.float32)
    table, offset = weight.to(product_dtype), None if bias is None else bias.to(product_dtype)
    mean_row = weight.mean(0, dtype=sum_dtype)  # mean_v of the logits is the logit of the mean row
    mean_bias = weight.new_zeros((), dtype=sum_dtype) if bias is None else bias.mean(dtype=sum_dtype)
    view_states = states.view(views, tokens, -1)
    states_grad = torch.empty_like(view_states) if needs_gradients else None
    weight_grad = torch.zeros_like(weight, dtype=sum_dtype) if needs_gradients else None
    bias_grad = torch.zeros_like(bias, dtype=sum_dtype) if needs_gradients and bias is not None else None
    buffer = table.new_empty(views * min(chunk_tokens, tokens) + ROW_MULTIPLE - 1, vocab_size)
    row_numbers = torch.arange(views * min(chunk_tokens, tokens), device=states.device)
    nll, uniform_nll, divergence = states.new_zeros(3, dtype=sum_dtype).unbind()
    for begin in range(0, tokens, chunk_tokens):
        part = slice(begin, begin + chunk_tokens)
        rows, gold = view_states[:, part].flatten(0, 1).to(product_dtype), targets[part].repeat(views)
        count = len(rows)
        at_gold = (row_numbers[:count], gold)
        rows = F.pad(rows, (0, 0, 0, -count % ROW_MULTIPLE))
        padded = torch.mm(rows, table.t(), out=buffer[: len(rows)])
        logits = padded[:count]
        if offset is not None:
            logits.add_(offset)
        # log sum exp = top - log p(top): safe, because p(top) >= 1 / V never underflows.
        top, gold_logits = logits.amax(1).to(sum_dtype), logits[at_gold].to(sum_dtype)
        log_ratio = logits[: count // 2].to(sum_dtype) - logits[count // 2 :] if r_drop else None
        p = torch.softmax(logits, 1, out=logits)
        log_sum_exp = top - p.amax(1).to(sum_dtype).log()
        gold_log_p = gold_logits - log_sum_exp
        nll -= gold_log_p.sum()
        if label_smoothing:
            uniform_nll += (log_sum_exp - torch.mv(rows[:count].to(sum_dtype), mean_row) - mean_bias).sum()
        if log_ratio is not None:
            log_ratio.sub_((log_sum_exp[: count // 2] - log_sum_exp[count // 2 :]).unsqueeze(1))
            divergence += _add_divergence_gradient_(p, log_ratio, r_drop)
        if states_grad is None or weight_grad is None:
            continue
        if log_ratio is not None:
            p.index_put_(at_gold, p.new_full((count,), label_smoothing - 1.0), accumulate=True)
        else:  # scatter_ would copy the whole chunk twice
            p.index_put_(at_gold, (gold_log_p.exp() - (1.0 - label_smoothing)).to(product_dtype))
        padded[count:] = 0.0
        states_grad[:, part] = (padded @ table)[:count].view(views, count // views, -1)
        if product_dtype == sum_dtype:
            weight_grad.addmm_(padded.t(), rows)
        else:
            weight_grad.add_(padded.t() @ rows)
        if bias_grad is not None:
            bias_grad.add_(p.sum(0, dtype=sum_dtype))
    if label_smoothing and states_grad is not None and weight_grad is not None:
        states_grad.sub_(label_smoothing * mean_row)
        weight_grad.sub_(states.sum(0, dtype=sum_dtype) * (label_smoothing / vocab_size))
        if bias_grad is not None:
            bias_grad.sub_(label_smoothing * views * tokens / vocab_size)
    gradients = tuple(
        None if grad is None or like is None else (grad / views if r_drop else grad).to(like.dtype).view_as(like)
        for grad, like in ((states_grad, states), (weight_grad, weight), (bias_grad, bias))
    )
    total = (1.0 - label_smoothing) * nll + label_smoothing * uniform_nll + r_drop / 2 * divergence
    return total / views, nll / views, gradients


def _add_divergence_gradient_(p: Tensor, log_ratio: Tensor, alpha: float) -> Tensor:
    """Add alpha/2 ds / d logits to p [2 N, V] in place, and return the sum over tokens of s.

    s = sum_v (p_1 - p_2) r,  r = log p_1 - log p_2
    ds / d logits_1 = p_1 (r - sum_v p_1 r) + p_1 - p_2, and for the other view with p_1 and p_2 exchanged
    """
    first, second = p[: len(log_ratio)], p[len(log_ratio) :]
    first_mean, second_mean = (
        torch.linalg.vecdot(view.to(log_ratio.dtype), log_ratio).unsqueeze(1) for view in (first, second)
    )
    difference = first - second
    first.addcmul_(first, (log_ratio - first_mean).to(p.dtype), value=alpha / 2).add_(difference, alpha=alpha / 2)
    second.addcmul_(second, (second_mean - log_ratio).to(p.dtype), value=alpha / 2).sub_(difference, alpha=alpha / 2)
    divergence: Tensor = (first_mean - second_mean).sum()
    return divergence

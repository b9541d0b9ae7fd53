"""X5: clipping the norm of the gradient prevents divergence at a high learning rate.

A recurrent network with tanh copies long sources. The optimizer is gradient descent with momentum: Adam divides by the
size of the gradients, and hides the effect. Nothing else protects the training: no step is skipped.
"""

import math
from collections.abc import Sequence
from statistics import median

import torch
from torch import nn

from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import Chart, Check, Estimate, Findings, ResultTable, Series, estimate_share
from heedful.lab.tasks import copy_pairs, make_batch, make_recurrent
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.layers import initialize

MOMENTUM = 0.9
LAST_STEPS = 10
MAX_LOSS = 1000.0  # larger losses, and those that are not finite, count as this


def descend(
    model: Seq2Seq, *, rate: float, clip_norm: float, min_length: int, words: int, steps: int, rows: int, seed: int
) -> list[float]:
    """Train by gradient descent; g <- g min(1, clip_norm / |g|), and `clip_norm=0` does not clip. The losses."""
    torch.manual_seed(seed)
    initialize(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM)
    draw = torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(steps):
        pairs = copy_pairs(rows, draw, min_length=min_length, max_length=min_length + 5, words=words)
        loss = model(make_batch(pairs))
        optimizer.zero_grad()
        (loss.smoothed / loss.tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip_norm or math.inf)
        optimizer.step()
        value = float(loss.nll / loss.tokens)
        losses.append(min(value, MAX_LOSS) if math.isfinite(value) else MAX_LOSS)
    return losses


def count_divergence(
    lab: Lab,
    *,
    rates: Sequence[float],
    clip_norms: tuple[float, float],
    runs: int,
    min_length: int,
    words: int,
    width: int,
    steps: int,
    rows: int,
) -> Findings:
    """Count runs whose loss rises, at each learning rate; `clip_norms=(0, 0)` clips in none."""
    names = ("without clipping", "with clipping")
    shares: dict[str, dict[str, Estimate]] = {name: {} for name in names}
    medians: dict[str, dict[str, float]] = {name: {} for name in names}
    done, progress = 0, lab.progress("runs")
    for rate in rates:
        for name, clip_norm in zip(names, clip_norms, strict=True):
            last, diverged = [], 0
            for run in range(runs):
                model = make_recurrent(words, width, cell="rnn", bidirectional=False)
                losses = descend(
                    model,
                    rate=rate,
                    clip_norm=clip_norm,
                    min_length=min_length,
                    words=words,
                    steps=steps,
                    rows=rows,
                    seed=1000 * lab.seed + run,
                )
                last.append(sum(losses[-LAST_STEPS:]) / LAST_STEPS)
                diverged += last[-1] > losses[0]
                done += 1
                progress(done, len(rates) * len(names) * runs)
            shares[name][f"{rate:g}"] = estimate_share(diverged, runs)
            medians[name][f"{rate:g}"] = median(last)
    highest = f"{max(rates):g}"
    without, clipped = (shares[name][highest] for name in names)
    checks = (
        Check(
            f"at the learning rate {highest}, runs without clipping diverge more often: {without} of them, with "
            f"clipping {clipped}; the intervals do not overlap",
            without.low > clipped.high,
        ),
        Check(f"with clipping, at most one run in ten diverges: {clipped.value:.2f}", clipped.value <= 0.1),
    )
    return Findings(
        ResultTable(
            ("learning rate", "training", "runs that diverge", "median loss at the end"),
            tuple((rate, name, shares[name][rate], medians[name][rate]) for rate in shares[names[0]] for name in names),
        ),
        Chart(
            "Runs whose loss is higher at the end than at the beginning",
            "learning rate",
            "share of runs",
            tuple(Series(name, tuple(shares[name].items())) for name in names),
        ),
        checks,
        (f"Losses above {MAX_LOSS:,.0f} count as {MAX_LOSS:,.0f}.",),
    )


EXPERIMENT = Experiment(
    title="gradient clipping",
    claim="Clipping the norm of the gradient prevents the divergence of recurrent networks at a high learning rate.",
    sizes={
        "quick": {
            "rates": (1.0,),
            "clip_norms": (0.0, 0.2),
            "runs": 6,
            "min_length": 10,
            "words": 12,
            "width": 48,
            "steps": 50,
            "rows": 32,
        },
        "default": {
            "rates": (0.25, 0.5, 1.0),
            "clip_norms": (0.0, 0.2),
            "runs": 10,
            "min_length": 10,
            "words": 12,
            "width": 64,
            "steps": 150,
            "rows": 32,
        },
    },
    function=count_divergence,
    sabotage={"clip_norms": (0.0, 0.0)},
)

"""X10: without the causal mask, a Transformer decoder reads the word that it has to predict.

The target is the source with a share of its words replaced at random, which nothing can predict: no honest model can
have a loss below the entropy of these words. Generation is compared with the source itself.
"""

import math
from functools import partial

from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import (
    Chart,
    Check,
    Estimate,
    Findings,
    ResultTable,
    Series,
    estimate_difference,
    estimate_mean,
)
from heedful.lab.tasks import (
    answer_greedily,
    copy_pairs,
    draw_test_pairs,
    make_transformer,
    noisy_pairs,
    share_right,
    train_model,
)

LAST_STEPS = 20  # whose mean is the loss at the end


def entropy_per_token(max_length: int, words: int, noise: float) -> float:
    """The smallest possible loss per token, H(word) n / (n + 1) for a mean length n; the end token is certain

    A word is the source's with probability 1 - noise + noise / V, and each other one with noise / V.
    """
    right, wrong = 1 - noise + noise / words, noise / words
    entropy = -right * math.log(right) - (words - 1) * wrong * math.log(wrong)
    mean_length = (3 + max_length) / 2
    return entropy * mean_length / (mean_length + 1)


def remove_mask(
    lab: Lab,
    *,
    max_length: int,
    words: int,
    width: int,
    noise: float,
    steps: int,
    rows: int,
    tests: int,
    masked: tuple[bool, bool] = (True, False),
) -> Findings:
    """Train with and without the mask; `masked=(True, True)` keeps it in both models."""
    floor = entropy_per_token(max_length, words, noise)
    make_pairs = partial(noisy_pairs, min_length=3, max_length=max_length, words=words, noise=noise)
    clean = partial(copy_pairs, min_length=3, max_length=max_length, words=words)
    pairs = draw_test_pairs(clean, tests, lab.seed)
    losses: dict[str, list[float]] = {}
    right: dict[str, Estimate] = {}
    for name, causal in zip(("with mask", "without mask"), masked, strict=True):
        model = make_transformer(words, width, causal=causal)
        report = lab.progress(name)
        losses[name] = train_model(model, make_pairs, steps=steps, rows=rows, peak=8e-3, seed=lab.seed, report=report)
        right[name] = estimate_mean(share_right(answer_greedily(model, pairs), pairs))
    last = {name: estimate_mean(each[-LAST_STEPS:]) for name, each in losses.items()}
    worse = estimate_difference(right["with mask"], right["without mask"])
    checks = (
        Check(
            f"without the mask, the loss in training falls to {last['without mask']}, below {floor:.3f}, the entropy "
            "of the targets given their sources",
            last["without mask"].high < floor,
        ),
        Check(f"without the mask, the share of right words in generated texts is lower by {worse}", worse.low > 0),
    )
    marks = range(0, steps, max(1, steps // 30))
    series = [
        Series(name, tuple((step + 1, Estimate(each[step], each[step], each[step])) for step in marks))
        for name, each in losses.items()
    ]
    lowest = Series("entropy", tuple((step + 1, Estimate(floor, floor, floor)) for step in (marks[0], marks[-1])))
    return Findings(
        ResultTable(
            ("model", "loss at the end", "right words, generated"),
            tuple((name, last[name], right[name]) for name in losses),
        ),
        Chart("Loss in training, per token", "step", "loss (nats)", (*series, lowest)),
        checks,
    )


EXPERIMENT = Experiment(
    title="training without the causal mask",
    claim="Without the causal mask, the loss in training falls, and generation fails.",
    sizes={
        "quick": {"max_length": 8, "words": 12, "width": 32, "noise": 0.3, "steps": 200, "rows": 64, "tests": 200},
        "default": {"max_length": 12, "words": 40, "width": 64, "noise": 0.3, "steps": 1500, "rows": 64, "tests": 500},
    },
    function=remove_mask,
    sabotage={"masked": (True, True)},
)

"""X14: soft attention against attention to one slot that is drawn.

soft         c = sum_i a_i v_i
reinforce    c = v_s with s drawn from a; the log-likelihood rewards the slots that were drawn
marginal     p(y) = sum_i a_i p(y | s = i), exactly, without a draw

In time, all of them learn the task; how fast is the mean share of right words over the whole training, the area under
the learning curve. Answers are without draws: they take the expectation over slots.
"""

from functools import partial
from statistics import fmean

from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import Chart, Check, Estimate, Findings, ResultTable, Series, estimate_mean
from heedful.lab.tasks import (
    MakePairs,
    Pair,
    answer_greedily,
    copy_pairs,
    draw_test_pairs,
    make_recurrent,
    share_right,
    train_model,
)
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.attention import Sampled

NUM_POINTS = 20  # of a learning curve
MAX_GAP = 0.1  # that the exact sum leaves, as a share of the gap between soft attention and drawn slots


def draw_slots(
    lab: Lab,
    *,
    max_length: int,
    words: int,
    width: int,
    steps: int,
    rows: int,
    tests: int,
    runs: int,
    drawn: bool = True,
) -> Findings:
    """Train `runs` models with each kind of attention; with `drawn=False`, all of them are soft."""
    make_pairs = partial(copy_pairs, min_length=3, max_length=max_length, words=words)
    pairs = draw_test_pairs(make_pairs, tests, lab.seed)
    every, curves = max(1, steps // NUM_POINTS), {}
    for name in ("soft", "reinforce", "marginal"):
        normalizer = Sampled(estimator=name, soft_share=0.0) if drawn and name != "soft" else "soft"
        make_model = partial(make_recurrent, words, width, normalizer=normalizer)
        curves[name] = [
            learning_curve(lab, f"{name}, run {run + 1}", make_model(), make_pairs, pairs, every, steps=steps,
                           rows=rows, seed=1000 * lab.seed + run)
            for run in range(runs)
        ]  # fmt: skip
    areas = {name: [fmean(curve) for curve in each] for name, each in curves.items()}

    def more(first: str, second: str) -> Estimate:
        return estimate_mean([one - other for one, other in zip(areas[first], areas[second], strict=True)])

    soft, exact = more("soft", "reinforce"), more("marginal", "reinforce")
    remaining = more("soft", "marginal")
    checks = (
        Check(f"over {steps} steps, soft attention has more right words than drawn slots, by {soft}", soft.low > 0),
        Check(f"the exact sum over slots has more right words than drawn slots, by {exact}", exact.low > 0),
        Check(
            f"it closes the gap to soft attention: {remaining} remains, at most {MAX_GAP:.0%} of the gap",
            remaining.value <= MAX_GAP * soft.value,
        ),
    )
    points = {
        name: [(every * at, estimate_mean(column)) for at, column in enumerate(zip(*each, strict=True), 1)]
        for name, each in curves.items()
    }
    return Findings(
        ResultTable(
            ("attention", "right words, mean over all steps", "right words at the end"),
            tuple((name, estimate_mean(areas[name]), each[-1][1]) for name, each in points.items()),
        ),
        Chart(
            "Learning curves",
            "step",
            "share of right words",
            tuple(Series(name, tuple(each)) for name, each in points.items()),
        ),
        checks,
    )


def learning_curve(
    lab: Lab, name: str, model: Seq2Seq, make_pairs: MakePairs, pairs: list[Pair], every: int, *, steps: int,
    rows: int, seed: int,
) -> list[float]:  # fmt: skip
    """Train in place; the share of right words on the same pairs after every `every` steps."""
    curve, report = [], lab.progress(name)

    def evaluate(step: int, total: int) -> None:
        report(step, total)
        if step % every == 0:
            model.eval()
            curve.append(fmean(share_right(answer_greedily(model, pairs), pairs)))
            model.train()

    train_model(model, make_pairs, steps=steps, rows=rows, peak=5e-3, seed=seed, report=evaluate)
    return curve


EXPERIMENT = Experiment(
    title="soft attention and drawn slots",
    claim="Soft attention learns faster than attention to drawn slots, and the exact sum over slots closes the gap.",
    sizes={
        "quick": {"max_length": 7, "words": 10, "width": 48, "steps": 120, "rows": 32, "tests": 100, "runs": 3},
        "default": {"max_length": 10, "words": 20, "width": 64, "steps": 500, "rows": 64, "tests": 200, "runs": 3},
    },
    function=draw_slots,
    sabotage={"drawn": False},
)

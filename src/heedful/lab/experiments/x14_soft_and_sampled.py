"""X14: soft attention against attention to one slot that is drawn.

soft         c = sum_i a_i v_i
reinforce    c = v_s with s drawn from a; the log-likelihood rewards the slots that were drawn
marginal     p(y) = sum_i a_i p(y | s = i), exactly, without a draw

In time, all of them learn the task; how fast is the mean loss over all steps, the area under the curve of the loss.
"""

from functools import partial
from statistics import fmean

from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import Chart, Check, Estimate, Findings, ResultTable, Series, estimate_mean
from heedful.lab.tasks import answer_greedily, copy_pairs, draw_test_pairs, make_recurrent, share_right, train_model
from heedful.nn.attention import Sampled

WINDOW = 10  # steps whose mean loss is shown


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
    losses: dict[str, list[list[float]]] = {}  # by kind, run and step
    right: dict[str, list[float]] = {}
    for name in ("soft", "reinforce", "marginal"):
        losses[name], right[name] = [], []
        for run in range(runs):
            normalizer = Sampled(estimator=name, soft_share=0.0) if drawn and name != "soft" else "soft"
            model = make_recurrent(words, width, normalizer=normalizer)
            report, seed = lab.progress(f"{name}, run {run + 1}"), 1000 * lab.seed + run
            losses[name].append(
                train_model(model, make_pairs, steps=steps, rows=rows, peak=5e-3, seed=seed, report=report)
            )
            right[name] += share_right(answer_greedily(model, pairs), pairs)
    areas = {name: [fmean(each) for each in every] for name, every in losses.items()}

    def less(first: str, second: str) -> Estimate:
        return estimate_mean([other - one for one, other in zip(areas[first], areas[second], strict=True)])

    soft, exact = less("soft", "reinforce"), less("marginal", "reinforce")
    checks = (
        Check(f"over {steps} steps, the loss of soft attention is lower than that of drawn slots, by {soft}",
              soft.low > 0),
        Check(f"the loss of the exact sum over slots is lower than that of drawn slots, by {exact}", exact.low > 0),
    )  # fmt: skip
    curves = {
        name: [
            (end, estimate_mean([fmean(each[end - WINDOW : end]) for each in every]))
            for end in range(WINDOW, steps + 1, WINDOW)
        ]
        for name, every in losses.items()
    }
    return Findings(
        ResultTable(
            ("attention", "loss over all steps", "loss at the end", "right words"),
            tuple(
                (name, estimate_mean(areas[name]), curves[name][-1][1], estimate_mean(right[name])) for name in right
            ),
        ),
        Chart(
            "Loss in training, per word",
            "step",
            "loss (nats)",
            tuple(Series(name, tuple(points)) for name, points in curves.items()),
        ),
        checks,
    )


EXPERIMENT = Experiment(
    title="soft attention and drawn slots",
    claim="Soft attention learns faster than attention to drawn slots, and the exact sum over slots closes the gap.",
    sizes={
        "quick": {"max_length": 7, "words": 10, "width": 48, "steps": 120, "rows": 32, "tests": 200, "runs": 3},
        "default": {"max_length": 10, "words": 20, "width": 64, "steps": 500, "rows": 64, "tests": 500, "runs": 3},
    },
    function=draw_slots,
    sabotage={"drawn": False},
)

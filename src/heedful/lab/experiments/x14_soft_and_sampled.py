"""X14: soft attention against attention to one slot that is drawn.

soft         c = sum_i a_i v_i
reinforce    c = v_s with s drawn from a; the log-likelihood rewards the slots that were drawn
marginal     p(y) = sum_i a_i p(y | s = i), exactly, without a draw
"""

from functools import partial

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
    drawn: bool = True,
) -> Findings:
    """Train with each kind of attention; with `drawn=False`, all of them are soft."""
    make_pairs = partial(copy_pairs, min_length=3, max_length=max_length, words=words)
    pairs = draw_test_pairs(make_pairs, tests, lab.seed)
    losses: dict[str, list[float]] = {}
    shares: dict[str, list[float]] = {}
    for name in ("soft", "reinforce", "marginal"):
        normalizer = Sampled(estimator=name, soft_share=0.0) if drawn and name != "soft" else "soft"
        model = make_recurrent(words, width, normalizer=normalizer)
        report = lab.progress(name)
        losses[name] = train_model(model, make_pairs, steps=steps, rows=rows, peak=5e-3, seed=lab.seed, report=report)
        shares[name] = share_right(answer_greedily(model, pairs), pairs)
    right = {name: estimate_mean(each) for name, each in shares.items()}

    def compare(first: str, second: str) -> Estimate:
        return estimate_mean([one - other for one, other in zip(shares[first], shares[second], strict=True)])

    gap, exact = compare("soft", "reinforce"), compare("marginal", "reinforce")
    checks = (
        Check(f"after {steps} steps, soft attention has more right words than drawn slots, by {gap}", gap.low > 0),
        Check(f"the exact sum over slots has more right words than drawn slots, by {exact}", exact.low > 0),
    )
    curves = {
        name: [(end, estimate_mean(each[end - WINDOW : end])) for end in range(WINDOW, steps + 1, WINDOW)]
        for name, each in losses.items()
    }
    return Findings(
        ResultTable(
            ("attention", "right words", "loss at the end"),
            tuple((name, right[name], curves[name][-1][1]) for name in right),
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
        "quick": {"max_length": 7, "words": 10, "width": 48, "steps": 120, "rows": 32, "tests": 200},
        "default": {"max_length": 10, "words": 20, "width": 64, "steps": 1000, "rows": 64, "tests": 500},
    },
    function=draw_slots,
    sabotage={"drawn": False},
)

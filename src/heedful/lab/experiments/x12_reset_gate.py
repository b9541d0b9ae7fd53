"""X12: a GRU that resets its state before or after the matrix product.

after:   n = tanh(W x + b + r * (U h + b'))      PyTorch, cuDNN
before:  n = tanh(W x + b + U (r * h) + b')      Cho et al. 2014

Both have the same weights, so weights that were trained with one form can be loaded into the other.
"""

from functools import partial

from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import Chart, Check, Findings, ResultTable, Series, estimate_mean
from heedful.lab.tasks import answer_greedily, copy_pairs, draw_test_pairs, make_recurrent, share_right, train_model

MIN_LOSS = 0.1  # of the right words: weights that lose less still work
MAX_DIFFERENCE = 0.02  # of the shares of right words of two models that are equally good


def exchange_gates(
    lab: Lab,
    *,
    min_length: int,
    max_length: int,
    words: int,
    width: int,
    steps: int,
    rows: int,
    tests: int,
    exchanged: bool = True,
) -> Findings:
    """Train both forms, then load the weights of each into the other; `exchanged=False` loads them into its own."""
    make_pairs = partial(copy_pairs, min_length=min_length, max_length=max_length, words=words)
    pairs = draw_test_pairs(make_pairs, tests, lab.seed)
    forms = ("after", "before")
    own, loaded = {}, {}
    for form, other in zip(forms, reversed(forms), strict=True):
        model = make_recurrent(words, width, reset=form)
        train_model(model, make_pairs, steps=steps, rows=rows, peak=5e-3, seed=lab.seed, report=lab.progress(form))
        own[form] = share_right(answer_greedily(model, pairs), pairs)
        receiver = make_recurrent(words, width, reset=other if exchanged else form).eval()
        receiver.load_state_dict(model.state_dict())
        loaded[form] = share_right(answer_greedily(receiver, pairs), pairs)
    lost = {
        form: estimate_mean([before - after for before, after in zip(own[form], loaded[form], strict=True)])
        for form in forms
    }
    difference = estimate_mean([first - second for first, second in zip(*own.values(), strict=True)])
    checks = (
        Check(
            f"weights do not fit the other form: they lose {lost['after']} (trained with reset after) and "
            f"{lost['before']} (before) of the right words, more than {MIN_LOSS}",
            min(lost["after"].low, lost["before"].low) > MIN_LOSS,
        ),
        Check(
            f"trained from scratch, both are equally good: they differ by {difference}, at most {MAX_DIFFERENCE}",
            abs(difference.value) <= MAX_DIFFERENCE,
        ),
    )
    shown = {
        **{f"reset {form}": estimate_mean(own[form]) for form in forms},
        **{
            f"trained {form}, run {other}": estimate_mean(loaded[form])
            for form, other in zip(forms, forms[::-1], strict=True)
        },
    }
    return Findings(
        ResultTable(("model", "right words"), tuple(shown.items())),
        Chart(
            "Copying with a GRU", "reset gate", "share of right words", (Series("right words", tuple(shown.items())),)
        ),
        checks,
    )


EXPERIMENT = Experiment(
    title="the reset gate before or after the product",
    claim="A GRU that resets before the product is as good as one that resets after it, but the weights of one "
    "do not work in the other.",
    sizes={
        "quick": {
            "min_length": 3,
            "max_length": 8,
            "words": 12,
            "width": 48,
            "steps": 120,
            "rows": 48,
            "tests": 200,
        },
        "default": {
            "min_length": 3,
            "max_length": 12,
            "words": 30,
            "width": 96,
            "steps": 800,
            "rows": 64,
            "tests": 500,
        },
    },
    function=exchange_gates,
    sabotage={"exchanged": False},
)

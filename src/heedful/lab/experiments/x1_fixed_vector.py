"""X1: a fixed vector degrades with the length of the source, attention does not.

Sources are joined sentences of random words, which the model copies. All models train on 1 to 3 sentences; 4 are longer
than any source of the training.
"""

from collections.abc import Sequence
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
    draw_test_pairs,
    joined_pairs,
    make_recurrent,
    make_transformer,
    share_right,
    train_model,
)

MAX_LOSS = 0.05  # of the models with attention, from one sentence to the longest of the training


def measure_lengths(
    lab: Lab,
    *,
    joined: Sequence[int],
    length: int,
    words: int,
    width: int,
    steps: int,
    rows: int,
    tests: int,
    fixed_vector: bool = True,
) -> Findings:
    """Train three models and count right words by length; `fixed_vector=False` gives the first one attention too."""
    models = {
        "fixed vector": make_recurrent(words, width, attention=None if fixed_vector else "bilinear"),
        "attention": make_recurrent(words, width),
        "Transformer": make_transformer(words, width // 2),
    }
    seen, lengths = max(joined), [*joined, max(joined) + 1]
    shares: dict[str, dict[int, Estimate]] = {}
    for name, model in models.items():
        make_pairs = partial(joined_pairs, joined=joined, length=length, words=words)
        peak = 8e-3 if name == "Transformer" else 5e-3
        train_model(model, make_pairs, steps=steps, rows=rows, peak=peak, seed=lab.seed, report=lab.progress(name))
        shares[name] = {}
        for count in lengths:
            pairs = draw_test_pairs(partial(joined_pairs, joined=(count,), length=length, words=words), tests, lab.seed)
            shares[name][count] = estimate_mean(share_right(answer_greedily(model, pairs), pairs))
    losses = {name: estimate_difference(each[joined[0]], each[seen]) for name, each in shares.items()}
    more = estimate_difference(losses["fixed vector"], losses["attention"])
    checks = [
        Check(
            f"from {joined[0]} to {seen} sentences, the fixed vector loses {losses['fixed vector']} of the right "
            f"words, {more} more than attention",
            losses["fixed vector"].low > 0 and more.low > 0,
        ),
        *(
            Check(f"{name} loses {losses[name]}, at most {MAX_LOSS}", losses[name].value <= MAX_LOSS)
            for name in ("attention", "Transformer")
        ),
    ]
    return Findings(
        ResultTable(
            ("model", *(f"{count} joined" for count in lengths), f"lost from {joined[0]} to {seen}"),
            tuple((name, *each.values(), losses[name]) for name, each in shares.items()),
        ),
        Chart(
            "Right words by the length of the source",
            "sentences in the source",
            "share of right words",
            tuple(Series(name, tuple(each.items())) for name, each in shares.items()),
        ),
        tuple(checks),
        (f"No source of the training has {seen + 1} sentences: there, every model also meets unseen positions.",),
    )


EXPERIMENT = Experiment(
    title="a fixed vector and the length of the source",
    claim="A fixed vector for the whole source degrades with the length of the source, attention does not.",
    sizes={
        "quick": {"joined": (1, 2, 3), "length": 4, "words": 12, "width": 64, "steps": 200, "rows": 64, "tests": 100},
        "default": {
            "joined": (1, 2, 3),
            "length": 5,
            "words": 30,
            "width": 128,
            "steps": 1200,
            "rows": 64,
            "tests": 500,
        },
        "long": {
            "joined": (1, 2, 3, 4, 5),
            "length": 6,
            "words": 60,
            "width": 192,
            "steps": 3000,
            "rows": 64,
            "tests": 1000,
        },
    },
    function=measure_lengths,
    sabotage={"fixed_vector": False},
)

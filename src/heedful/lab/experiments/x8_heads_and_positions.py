"""X8: what heads and positions contribute: Transformers that lack them learn to reverse their source.

Without positions, self-attention does not know the order of its slots. The number of heads changes nothing else: their
total width, and so the number of weights, is the same.
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
    make_transformer,
    reverse_pairs,
    share_right,
    train_model,
)

MAX_DIFFERENCE = 0.05  # between learned and sinusoidal positions


def ablate(
    lab: Lab,
    *,
    heads: Sequence[int],
    positions: Sequence[str | None],
    max_length: int,
    words: int,
    width: int,
    steps: int,
    rows: int,
    tests: int,
    ablated: bool = True,
) -> Findings:
    """Train one model per number of heads with the first positions, and one per kind of positions with most heads.

    `ablated=False` gives the model without positions those of the others.
    """
    make_pairs = partial(reverse_pairs, min_length=3, max_length=max_length, words=words)
    pairs = draw_test_pairs(make_pairs, tests, lab.seed)

    def measure(name: str, heads: int, kind: str | None) -> Estimate:
        model = make_transformer(words, width, heads=heads, positions=kind if ablated else kind or positions[0])
        train_model(model, make_pairs, steps=steps, rows=rows, peak=8e-3, seed=lab.seed, report=lab.progress(name))
        return estimate_mean(share_right(answer_greedily(model, pairs), pairs))

    most = max(heads)
    by_position = {f"{kind or 'no'} positions": measure(f"{kind or 'no'} positions", most, kind) for kind in positions}
    names = list(by_position)
    full = by_position[names[0]]
    by_heads = {count_heads(count): measure(count_heads(count), count, positions[0]) for count in heads[:-1]}
    by_heads[count_heads(most)] = full
    gap = estimate_difference(full, by_position[names[-1]])
    one_head = estimate_difference(full, by_heads[count_heads(heads[0])])
    checks = [
        Check(f"without positions, the share of right words is lower by {gap}", gap.low > 0),
        Check(f"with {count_heads(heads[0])} instead of {most} it is lower by {one_head}", one_head.low > 0),
    ]
    if len(names) > 2:
        kinds = estimate_difference(full, by_position[names[1]])
        statement = f"{names[0]} and {names[1]} differ by {kinds}, at most {MAX_DIFFERENCE}"
        checks.append(Check(statement, abs(kinds.value) <= MAX_DIFFERENCE))
    shares = {**by_heads, **by_position}
    return Findings(
        ResultTable(("model", "right words"), tuple(shares.items())),
        Chart("Reversing the source", "model", "share of right words", (Series("right words", tuple(shares.items())),)),
        tuple(checks),
        (f"Models of positions have {most} heads, models of heads have {names[0]}.",),
    )


def count_heads(count: int) -> str:
    return "1 head" if count == 1 else f"{count} heads"


EXPERIMENT = Experiment(
    title="heads and positions, ablated",
    claim="A Transformer needs positions and several heads; learned positions are as good as sinusoidal ones.",
    sizes={
        "quick": {
            "heads": (1, 4),
            "positions": ("sinusoidal", None),
            "max_length": 8,
            "words": 12,
            "width": 32,
            "steps": 200,
            "rows": 48,
            "tests": 200,
        },
        "default": {
            "heads": (1, 2, 4, 8),
            "positions": ("sinusoidal", "learned", None),
            "max_length": 16,
            "words": 30,
            "width": 64,
            "steps": 1000,
            "rows": 64,
            "tests": 500,
        },
    },
    function=ablate,
    sabotage={"ablated": False},
)

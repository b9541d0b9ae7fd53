"""X2: what the last state of a recurrent network remembers of its source.

Two models without attention learn to copy and to reverse their source, all of which passes through the last state of
the encoder. Copying needs the first word first, reversing the last one, and later words of an answer suffer from
earlier errors: the mean of both favors neither end. Three measurements by position: a linear probe that reads the word
from the last state; the gradient of the last state; and the words of the model's own answers.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from heedful.data.batch import pad_rows
from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import Chart, Check, Estimate, Findings, ResultTable, Series, estimate_mean
from heedful.lab.tasks import (
    EOS,
    FIRST,
    PAD,
    Pair,
    answer_greedily,
    copy_pairs,
    draw_test_pairs,
    make_recurrent,
    reverse_pairs,
    train_model,
)
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.encoders import Bottleneck

RIDGE = 1e-2
TASKS = {"copying": copy_pairs, "reversing": reverse_pairs}


def last_states(encoder: Bottleneck, pairs: list[Pair]) -> Tensor:
    """The vector of every source, [B, D]"""
    states: Tensor = encoder(*pad_rows([[*source, EOS] for source, _ in pairs], PAD)).states[:, 0]
    return states


@torch.no_grad()
def probe_words(encoder: Bottleneck, train: list[Pair], test: list[Pair], words: int) -> Tensor:
    """Whether a linear map of the last state finds the word at each position, [B, S]

    W = argmin |H W - Y|^2 + ridge |W|^2 for the states H and the words Y of the training pairs, one map per position.
    """
    (known, known_words), (new, new_words) = (
        (
            torch.cat((last_states(encoder, pairs), torch.ones(len(pairs), 1)), 1).double(),
            torch.tensor([source for source, _ in pairs]) - FIRST,
        )
        for pairs in (train, test)
    )
    gram = known.T @ known + RIDGE * torch.eye(known.size(1), dtype=torch.double)
    one_hot = torch.nn.functional.one_hot(known_words, words).double()  # [B, S, V]
    maps = torch.linalg.solve(gram, known.T @ one_hot.flatten(1)).view(-1, *one_hot.shape[1:])
    found = torch.einsum("bd,dsv->bsv", new, maps).argmax(-1)
    return (found == new_words).double()


def gradient_norms(encoder: Bottleneck, pairs: list[Pair], draw: torch.Generator) -> Tensor:
    """|d (r . h_n) / d x_i| for every position i and a random direction r, [B, S]"""
    table = encoder.encoder.embed.table  # type: ignore[attr-defined]
    tokens, mask = pad_rows([[*source, EOS] for source, _ in pairs], PAD)
    vectors = table(tokens).detach().requires_grad_()
    hook = table.register_forward_hook(lambda *_: vectors)
    try:
        state = encoder(tokens, mask).states[:, 0]
    finally:
        hook.remove()
    direction = torch.randn(state.shape, generator=draw)
    (gradient,) = torch.autograd.grad((state * direction).sum(), vectors)
    norms: Tensor = gradient.norm(dim=-1)[:, :-1].double()  # without the end token
    return norms


def right_answers(model: Seq2Seq, pairs: list[Pair]) -> Tensor:
    """Whether the model's answer has the word of each position of the target, [B, S]"""
    answers = answer_greedily(model, pairs)
    return torch.tensor(
        [
            [position < len(answer) and answer[position] == word for position, word in enumerate(target)]
            for answer, (_, target) in zip(answers, pairs, strict=True)
        ],
        dtype=torch.double,
    )


def measure(
    lab: Lab, task: str, run: int, *, cell: str, length: int, words: int, width: int, steps: int, rows: int,
    probed: int, tests: int, bidirectional: bool,
) -> dict[str, Tensor]:  # fmt: skip
    """Train for a task; the means of probe, gradient and answers by position of the source, each [S]"""
    make_pairs, seed = partial(TASKS[task], min_length=length, max_length=length, words=words), 1000 * lab.seed + run
    model = make_recurrent(words, width, attention=None, cell=cell, bidirectional=bidirectional)
    report = lab.progress(f"{task}, run {run + 1}")
    train_model(model, make_pairs, steps=steps, rows=rows, peak=5e-3, seed=seed, report=report)
    encoder = model.encoder
    assert isinstance(encoder, Bottleneck)
    test = draw_test_pairs(make_pairs, tests, lab.seed)
    gradients = gradient_norms(encoder, test, torch.Generator().manual_seed(seed))
    answers = right_answers(model, test)
    by_position = {
        "probe": probe_words(encoder, draw_test_pairs(make_pairs, probed, lab.seed + 1), test, words),
        "gradient": gradients / gradients.sum(1, keepdim=True),
        "answers": answers.flip(1) if task == "reversing" else answers,
    }
    return {name: each.mean(0) for name, each in by_position.items()}


def remember(lab: Lab, *, length: int, runs: int, bidirectional: bool = False, **sizes: Any) -> Findings:
    """Measure what one direction remembers; with `bidirectional`, the vector is from both ends of the source."""
    by_task = {
        task: [measure(lab, task, run, length=length, bidirectional=bidirectional, **sizes) for run in range(runs)]
        for task in TASKS
    }
    third, names = length // 3, ("probe", "gradient", "answers")

    def gap(each: Tensor) -> Estimate:
        """From the means of each run, [runs, S]"""
        return estimate_mean((each[:, -third:].mean(1) - each[:, :third].mean(1)).tolist())

    of_task = {
        task: {name: torch.stack([found[name] for found in every]) for name in names} for task, every in by_task.items()
    }
    measured = {name: torch.stack([each[name] for each in of_task.values()]).mean(0) for name in names}
    gaps = {name: gap(each) for name, each in measured.items()}
    checks = (
        Check(
            f"a probe of the last state finds words of the last third more often than of the first, by {gaps['probe']}",
            gaps["probe"].low > 0,
        ),
        Check(
            f"the share of the gradient is larger for words of the last third, by {gaps['gradient']}",
            gaps["gradient"].low > 0,
        ),
        Check(f"answers are right more often for the last third, by {gaps['answers']}", gaps["answers"].low > 0),
    )
    positions = {name: [estimate_mean(column.tolist()) for column in each.T] for name, each in measured.items()}
    return Findings(
        ResultTable(
            ("measure", "first word", "middle", "last word", "last third - first third"),
            tuple((name, each[0], each[length // 2], each[-1], gaps[name]) for name, each in positions.items()),
        ),
        Chart(
            "What remains of each word of the source",
            "position in the source",
            "share",
            tuple(
                Series(name, tuple((position, estimate) for position, estimate in enumerate(each, 1)))
                for name, each in positions.items()
            ),
        ),
        checks,
        tuple(
            f"{task} alone, last third - first third: "
            + ", ".join(f"{name} {gap(each)}" for name, each in of_task[task].items())
            for task in TASKS
        ),
    )


EXPERIMENT = Experiment(
    title="what the last state remembers",
    claim="The last state of a recurrent network remembers the end of the source better than its beginning.",
    sizes={
        "quick": {
            "cell": "gru",
            "length": 9,
            "words": 12,
            "width": 48,
            "steps": 150,
            "rows": 48,
            "probed": 2000,
            "tests": 300,
            "runs": 3,
        },
        "default": {
            "cell": "gru",
            "length": 30,
            "words": 20,
            "width": 128,
            "steps": 1000,
            "rows": 64,
            "probed": 10_000,
            "tests": 1000,
            "runs": 3,
        },
    },
    function=remember,
    sabotage={"bidirectional": True},
)

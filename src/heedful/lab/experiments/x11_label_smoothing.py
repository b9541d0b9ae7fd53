"""X11: label smoothing makes long texts less probable, so a large beam finds short ones.

Smoothing gives every word, and the end token, at least the probability smoothing / V at every step. An early end then
costs log(V / smoothing) nats, once, but every word costs some: with c nats per word, the empty text is more probable
than texts of more than log(V / smoothing) / c words. The target is the source with some words replaced at random, so
that no word is certain.
"""

from functools import partial

import torch

from heedful.data.batch import pad_rows
from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import Chart, Check, Estimate, Findings, ResultTable, Series, estimate_mean
from heedful.lab.tasks import BOS, EOS, PAD, Pair, draw_test_pairs, make_transformer, noisy_pairs, train_model
from heedful.model.seq2seq import Seq2Seq
from heedful.search import Beam, DecodingLimits
from heedful.types import Hypothesis

RULES = {"no normalization": ("none", 0.0), "mean log p": ("power", 1.0)}  # of a beam
MAX_DIFFERENCE = 0.05  # of the lengths, relative to those of the sources, with normalization


@torch.inference_mode()
def translate(model: Seq2Seq, pairs: list[Pair], beam: int, rule: str) -> list[Hypothesis]:
    memory = model.encoder(*pad_rows([[*source, EOS] for source, _ in pairs], PAD))
    limits = DecodingLimits(BOS, EOS, tuple(len(source) + 5 for source, _ in pairs), suppress_tokens=(PAD, BOS))
    name, penalty = RULES[rule]
    search = Beam(beam, length_rule=name, length_penalty=penalty)
    return [result.best for result in search(model.decoder, memory, limits)]


def smooth_labels(
    lab: Lab,
    *,
    smoothing: float,
    beam: int,
    min_length: int,
    max_length: int,
    words: int,
    width: int,
    noise: float,
    steps: int,
    rows: int,
    tests: int,
) -> Findings:
    """Compare two models that differ in the smoothing of their training; `smoothing=0` makes them equal."""
    make_pairs = partial(noisy_pairs, min_length=min_length, max_length=max_length, words=words, noise=noise)
    pairs = draw_test_pairs(make_pairs, tests, lab.seed)
    lengths: dict[str, dict[str, list[float]]] = {}
    certainty: dict[str, list[float]] = {}
    for name, amount in (("no smoothing", 0.0), ("smoothing", smoothing)):
        model = make_transformer(words, width, label_smoothing=amount)
        train_model(model, make_pairs, steps=steps, rows=rows, peak=8e-3, seed=lab.seed, report=lab.progress(name))
        greedy = translate(model, pairs, 1, "no normalization")
        certainty[name] = [each.log_probability / (len(each.tokens) + 1) for each in greedy]
        lengths[name] = {"beam 1": relative_lengths(greedy, pairs)}
        for rule in RULES:
            lengths[name][f"beam {beam}, {rule}"] = relative_lengths(translate(model, pairs, beam, rule), pairs)
    plain, smoothed = lengths.values()
    searches = list(plain)

    def shortened(search: str) -> Estimate:
        return estimate_mean([one - other for one, other in zip(plain[search], smoothed[search], strict=True)])

    shorter, normalized = shortened(searches[1]), shortened(searches[2])
    less_sure = estimate_mean([one - other for one, other in zip(*certainty.values(), strict=True)])
    checks = (
        Check(
            f"with {searches[1]}, texts of the smoothed model are shorter, by {shorter} of the length of the source",
            shorter.low > 0,
        ),
        Check(f"it is less sure: log p of its greedy words is lower by {less_sure}", less_sure.low > 0),
        Check(
            f"with {searches[2]}, the lengths differ by {normalized}, at most {MAX_DIFFERENCE}",
            abs(normalized.value) <= MAX_DIFFERENCE,
        ),
    )
    shown = {name: {search: estimate_mean(each) for search, each in table.items()} for name, table in lengths.items()}
    return Findings(
        ResultTable(
            ("model", "log p per word, greedy", *(f"length, {search}" for search in searches)),
            tuple((name, estimate_mean(certainty[name]), *each.values()) for name, each in shown.items()),
        ),
        Chart(
            "Length of the texts",
            "search",
            "length, relative to the source",
            tuple(Series(name, tuple(each.items())) for name, each in shown.items()),
        ),
        checks,
    )


def relative_lengths(hypotheses: list[Hypothesis], pairs: list[Pair]) -> list[float]:
    return [len(each.tokens) / len(source) for each, (source, _) in zip(hypotheses, pairs, strict=True)]


EXPERIMENT = Experiment(
    title="label smoothing and beam search",
    claim="Label smoothing makes a model less sure, so a large beam without length normalization finds shorter texts.",
    sizes={
        "quick": {
            "smoothing": 0.2,
            "beam": 20,
            "min_length": 10,
            "max_length": 14,
            "words": 12,
            "width": 32,
            "noise": 0.1,
            "steps": 250,
            "rows": 40,
            "tests": 60,
        },
        "default": {
            "smoothing": 0.1,
            "beam": 50,
            "min_length": 40,
            "max_length": 50,
            "words": 30,
            "width": 64,
            "noise": 0.1,
            "steps": 1000,
            "rows": 64,
            "tests": 100,
        },
    },
    function=smooth_labels,
    sabotage={"smoothing": 0.0},
)

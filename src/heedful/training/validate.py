"""How good is the model now? The loss of held-out pairs, and BLEU and chrF of what it really says about them.

A falling loss is not a better translation, so both are looked at; decoding a thousand sentences greedily takes a second
or two of a small model.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from heedful.data.batch import collate, padded
from heedful.data.store import Prepared, Stored
from heedful.errors import DataError
from heedful.metrics.score import MetricScore, score
from heedful.model.seq2seq import Seq2Seq
from heedful.search import Beam, Greedy, Rules
from heedful.text.tokenizer import BOS, EOS, PAD, Tokenizer
from heedful.training.events import Sample, Validated
from heedful.translation.translator import UNBOUNDED
from heedful.types import Hypothesis

ROWS = 64  # sentences decoded together
METRICS = ("bleu", "chrf")


@dataclass(frozen=True)
class Held:
    """Pairs that nothing is learned from."""

    sources: list[list[int]]
    targets: list[list[int]]
    texts: list[str]
    references: list[str]

    def __len__(self) -> int:
        return len(self.sources)


def held_out(prepared: Prepared, most: int) -> tuple[tuple[Stored, ...], Held]:
    """What to learn from and what to validate on: the validation corpora, or else the last pairs of the training ones.

    Prepared text is in the order of its hash, so its last pairs are as good a sample as any.
    """
    train, validation = prepared.train, prepared.split("validation")
    if validation:
        return train, read(validation, most)
    largest = max(range(len(train)), key=lambda number: train[number].rows)
    count = min(most, train[largest].rows // 10)
    if not count:
        raise DataError(
            "the corpus is too small to hold pairs out for validation: give at least 10, or a validation set"
        )
    rest, rows = train[largest].without_last(count), range(train[largest].rows - count, train[largest].rows)
    pairs = train[largest].pairs(rows)
    sources, targets = ([ids.tolist() for ids in side] for side in zip(*pairs, strict=True))
    texts, references = prepared.tokenizer("source").decode(sources), prepared.tokenizer("target").decode(targets)
    return (*train[:largest], rest, *train[largest + 1 :]), Held(sources, targets, texts, references)


def read(corpora: Sequence[Stored], most: int | None = None) -> Held:
    """Every pair of some corpora, or the first of each; as many of one as of another, where there are as many."""
    held = Held([], [], [], [])
    for corpus in corpora:
        count = corpus.rows if most is None else min(corpus.rows, -(-most // len(corpora)))
        for source, target in corpus.pairs(range(count)):
            held.sources.append(source.tolist())
            held.targets.append(target.tolist())
        for side, into in (("source", held.texts), ("target", held.references)):
            into += [text for folder in range(len(corpus.folders)) for text in corpus.texts(side, folder)][:count]
    return held


@torch.inference_mode()
def loss_of(model: Seq2Seq, held: Held, device: torch.device, batch_tokens: int = 4096) -> float:
    """-log p per target token, the end token included"""
    total, tokens, most = 0.0, 0, slots_of(model)
    order = sorted(range(len(held)), key=lambda row: (len(held.targets[row]), len(held.sources[row]), row))
    for rows in grouped(
        order, [max(len(held.sources[row]), len(held.targets[row])) + 1 for row in order], batch_tokens
    ):
        pairs = [(held.sources[row][: most - 1], held.targets[row][: most - 1]) for row in rows]
        batch = collate(pairs, bos=BOS, eos=EOS, pad=PAD)
        loss = model(batch.to(device))
        total, tokens = total + float(loss.nll), tokens + loss.tokens
    return total / tokens


def grouped(rows: Sequence[int], lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Rows in their order, in groups of at most `tokens`, padding included; a longer row is a group of its own."""
    groups: list[list[int]] = []
    longest = 0
    for row, length in zip(rows, lengths, strict=True):
        longest = max(longest, length)
        if groups and (len(groups[-1]) + 1) * longest <= tokens:
            groups[-1].append(row)
        else:
            groups.append([row])
            longest = length
    return groups


def slots_of(model: Seq2Seq) -> int:
    """How many positions a model has; without a table of them, as many as one likes."""
    positions = getattr(getattr(model.decoder, "embed", None), "positions", None)
    return UNBOUNDED if positions is None else int(positions.slots)


def decode(
    model: Seq2Seq, sources: Sequence[Sequence[int]], device: torch.device, search: Greedy | Beam
) -> list[Hypothesis]:
    """The best answer to every source, in their order; what is longer than the model has positions is cut."""
    answers: dict[int, Hypothesis] = {}
    most = slots_of(model)
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
    with torch.inference_mode():
        for begin in range(0, len(order), ROWS):
            rows = order[begin : begin + ROWS]
            tokens, mask = padded([[*sources[row][: most - 1], EOS] for row in rows], PAD)
            memory = model.encoder(tokens.to(device), mask.to(device))
            limits = tuple(min(2 * len(sources[row]) + 10, most) for row in rows)
            for row, found in zip(
                rows, search(model.decoder, memory, Rules(BOS, EOS, limits, never=(PAD, BOS))), strict=True
            ):
                answers[row] = found.best
    return [answers[row] for row in range(len(sources))]


def validate(
    model: Seq2Seq, held: Held, target: Tokenizer, device: torch.device, *, step: int, samples: int, weights: str
) -> Validated:
    """Loss, BLEU and chrF of the model as it is; `best` is for the caller to say."""
    begin, was = time.perf_counter(), model.training
    model.eval()
    try:
        loss = loss_of(model, held, device)
        outputs = target.decode([answer.tokens for answer in decode(model, held.sources, device, Greedy())])
    finally:
        model.train(was)
    bleu, chrf = (score(name, outputs, held.references).value for name in METRICS)
    shown = [len(held) * number // max(1, samples) for number in range(min(samples, len(held)))]
    return Validated(
        step=step,
        loss=loss,
        perplexity=math.exp(min(loss, 700.0)),
        bleu=bleu,
        chrf=chrf,
        best=False,
        seconds=time.perf_counter() - begin,
        samples=tuple(Sample(held.texts[row], held.references[row], outputs[row]) for row in shown),
        weights=weights,
    )


@dataclass(frozen=True)
class Scored:
    """BLEU and chrF with their signatures, and what was said."""

    scores: tuple[MetricScore, ...]
    outputs: list[str]
    answers: list[Hypothesis]

    def value(self, metric: str) -> float:
        """The value of one metric."""
        return next(one.value for one in self.scores if one.name == metric)


def scored(model: Seq2Seq, held: Held, target: Tokenizer, device: torch.device, search: Greedy | Beam) -> Scored:
    """How good the model is with some search."""
    answers = decode(model.eval(), held.sources, device, search)
    outputs = target.decode([answer.tokens for answer in answers])
    return Scored(tuple(score(name, outputs, held.references) for name in METRICS), outputs, answers)


def merit(found: Validated, metric: str) -> float:
    """The larger the better."""
    return -found.loss if metric == "loss" else float(getattr(found, metric))


def crowned(found: Validated) -> Validated:
    """The same, called the best."""
    return replace(found, best=True)

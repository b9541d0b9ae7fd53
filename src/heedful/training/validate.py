"""Validation: the loss on the validation set, and BLEU and chrF of its translations.

A lower loss does not always mean better translations, so both are measured. A small model translates a thousand
sentences greedily in a second or two.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from heedful.data.batch import collate
from heedful.engines.base import EncodedSource, SearchOptions
from heedful.engines.torch import TorchEngine
from heedful.metrics.labels import split_slots
from heedful.metrics.score import MetricScore, score
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.decoders import LabelDecoder
from heedful.text.tokenizer import BOS, EOS, PAD, Tokenizer
from heedful.training.data import ValidationSet
from heedful.training.events import SampleTranslation, Validated
from heedful.translation.translator import UNBOUNDED
from heedful.types import Hypothesis

BATCH_SENTENCES = 64  # translated together
METRICS, LABEL_METRICS = ("bleu", "chrf"), ("accuracy", "f1")
GREEDY = SearchOptions(beam=1)


@torch.inference_mode()
def validation_loss(model: Seq2Seq, validation: ValidationSet, device: torch.device, batch_tokens: int = 4096) -> float:
    """-log p per target token, the end token included"""
    sources, targets = validation.sources, validation.targets
    total, tokens, max_length = 0.0, 0, max_positions(model) - 1
    order = sorted(range(len(validation)), key=lambda row: (len(targets[row]), len(sources[row]), row))
    lengths = [max(len(sources[row]), len(targets[row])) + 1 for row in order]
    for rows in group_by_tokens(order, lengths, batch_tokens):
        pairs = [(truncate_source(validation, row, max_length), targets[row][:max_length]) for row in rows]
        batch = collate(pairs, bos=BOS, eos=EOS, pad=PAD, end_source=validation.has_text_source)
        loss = model(batch.to(device))
        total, tokens = total + float(loss.nll), tokens + loss.tokens
    return total / tokens


def group_by_tokens(rows: Sequence[int], lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Rows in order, in groups of at most `max_tokens` including padding; a longer row is its own group."""
    groups: list[list[int]] = []
    max_length = 0
    for row, length in zip(rows, lengths, strict=True):
        max_length = max(max_length, length)
        if groups and (len(groups[-1]) + 1) * max_length <= max_tokens:
            groups[-1].append(row)
        else:
            groups.append([row])
            max_length = length
    return groups


def max_positions(model: Seq2Seq) -> int:
    """The number of positions of a model; practically unlimited without a position table."""
    embed = getattr(model.decoder, "embed", None) or getattr(model.encoder, "embed", None)
    positions = getattr(embed, "positions", None)
    return UNBOUNDED if positions is None else int(positions.max_positions)


def truncate_source(validation: ValidationSet, row: int, max_length: int) -> Any:
    """A source that fits the positions of the model; only text may be too long."""
    return validation.sources[row][:max_length] if validation.has_text_source else validation.sources[row]


def make_question(validation: ValidationSet, row: int, positions: int) -> EncodedSource:
    """A source for the engine, truncated to the positions of the model."""
    source = truncate_source(validation, row, positions - 1)
    if not validation.has_text_source:
        return EncodedSource(source, min(2 * validation.max_target_tokens + 10, positions), index=row)
    max_length = min(2 * len(validation.sources[row]) + 10, positions)
    return EncodedSource((*source, EOS), max_length, index=row)


def translate_sources(engine: TorchEngine, validation: ValidationSet, search: SearchOptions) -> list[Hypothesis]:
    """The best hypothesis for each source, in order; sources of similar length share a batch."""
    hypotheses: dict[int, Hypothesis] = {}
    positions, sources = max_positions(engine.model), validation.sources
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
    for start in range(0, len(order), BATCH_SENTENCES):
        rows = order[start : start + BATCH_SENTENCES]
        answers = engine.translate([make_question(validation, row, positions) for row in rows], search)
        hypotheses |= {row: best.hypothesis for row, (best, *_) in zip(rows, answers, strict=True)}
    return [hypotheses[row] for row in range(len(sources))]


def validate(
    model: Seq2Seq,
    validation: ValidationSet,
    target: Tokenizer,
    device: torch.device,
    *,
    step: int,
    num_samples: int,
    weights: str,
) -> Validated:
    """Loss, BLEU and chrF of greedy translations; the caller sets `best`.

    Of a language model, the loss only; of labels, the loss and their accuracy.
    """
    started, was_training = time.perf_counter(), model.training
    model.eval()
    try:
        loss, engine = validation_loss(model, validation, device), TorchEngine(model, device)
        hypotheses = [] if validation.is_unconditional else translate_sources(engine, validation, GREEDY)
    finally:
        model.train(was_training)
    outputs = target.decode([hypothesis.tokens for hypothesis in hypotheses])
    values = {each.name: each.value for each in score_outputs(model, outputs, validation.references)}
    shown = [len(outputs) * index // max(1, num_samples) for index in range(min(num_samples, len(outputs)))]
    return Validated(
        step=step,
        loss=loss,
        perplexity=math.exp(min(loss, 700.0)),
        bleu=values.get("bleu"),
        chrf=values.get("chrf"),
        accuracy=values.get("accuracy"),
        best=False,
        seconds=time.perf_counter() - started,
        samples=tuple(
            SampleTranslation(validation.texts[row], validation.references[row], outputs[row]) for row in shown
        ),
        weights=weights,
    )


@dataclass(frozen=True)
class Evaluation:
    """BLEU and chrF with their signatures, and the translations."""

    scores: tuple[MetricScore, ...]
    outputs: list[str]
    hypotheses: list[Hypothesis]


def evaluate(
    model: Seq2Seq, validation: ValidationSet, target: Tokenizer, device: torch.device, search: SearchOptions
) -> Evaluation:
    """Translate and score pairs with the given search options."""
    hypotheses = translate_sources(TorchEngine(model, device), validation, search)
    outputs = target.decode([hypothesis.tokens for hypothesis in hypotheses])
    return Evaluation(score_outputs(model, outputs, validation.references), outputs, hypotheses)


def score_outputs(model: Seq2Seq, outputs: Sequence[str], references: Sequence[str]) -> tuple[MetricScore, ...]:
    """BLEU and chrF, or accuracy and macro F1 if the outputs are labels; nothing without outputs."""
    names, lines = METRICS, (outputs, references)
    if isinstance(model.decoder, LabelDecoder):
        names = LABEL_METRICS
        lines = split_slots(outputs, references) if model.decoder.is_per_slot else lines
    return tuple(score(name, *lines) for name in names) if lines[0] else ()


def value_to_maximize(validated: Validated, metric: str) -> float:
    """The value of a metric, negated if lower is better."""
    return -validated.loss if metric == "loss" else float(getattr(validated, metric))


def mark_best(validated: Validated) -> Validated:
    return replace(validated, best=True)

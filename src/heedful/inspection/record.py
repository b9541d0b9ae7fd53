"""Record a trace: a search, a forced pass over its answer, one more pass per silenced head, and other evidence.

Any object with the contract's methods works (one of an encoder, three of a decoder). The trace omits data that the
model does not expose, such as the vectors of a custom score function.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from heedful.data.batch import pad_sources
from heedful.inspection.evidence import AnswerScorer, ignore_progress, measure_evidence
from heedful.nn.attention import (
    SCORES,
    Additive,
    Attention,
    ContentLocation,
    GaussianWindow,
    Location,
    MultiHead,
    Sampled,
    SelfAttention,
    hard,
)
from heedful.nn.contract import PLACES, RECORDS, Look, Map, Maps, Memory, Place, Record
from heedful.nn.ctc import best_alignment, forward_backward
from heedful.nn.decoders import CTCDecoder
from heedful.search import Beam, DecodingLimits, Greedy, Sample
from heedful.search.filters import Filter
from heedful.search.stopping import LENGTH_RULES
from heedful.trace import (
    MIN_LOG_PROB,
    LatentAlignment,
    Reference,
    SearchNode,
    SearchTree,
    Sentence,
    Text,
    TraceAlignment,
    TraceStep,
    Vectors,
    locate_pieces,
    numbers_blob,
    readable_piece,
    weights_blob,
)
from heedful.types import Candidate, SearchResult

ONLY_WEIGHTS: frozenset[Record] = frozenset({"weights"})
EVERYTHING: frozenset[Record] = frozenset(RECORDS)
SearchStrategy = Beam | Greedy | Sample


@dataclass(frozen=True)
class InspectedModel:
    """A model to inspect, and conversions between its tokens and text."""

    encoder: Any
    decoder: Any
    bos: int
    eos: int
    source_pieces: Callable[[Sequence[int]], list[str]]  # ids -> names; U+2581 starts a word
    target_pieces: Callable[[Sequence[int]], list[str]]
    detokenize: Callable[[Sequence[int]], str]  # ids of the target -> text
    name: str = "model"
    languages: tuple[str, str] = ("", "")
    can_silence_heads: bool = True
    filters: tuple[Filter, ...] = ()
    suppress_tokens: tuple[int, ...] = ()  # never in an answer
    tokenize: "Callable[[str], InspectedSource] | None" = None  # None: sources must be ids
    unk: int | None = None  # the unknown piece, which replaces erased pieces; None: erased slots are masked

    @property
    def device(self) -> torch.device:
        first = next(self.decoder.parameters(), None) if isinstance(self.decoder, nn.Module) else None
        return torch.device("cpu") if first is None else first.device


@dataclass(frozen=True)
class InspectedSource:
    """A source as tokens and text; or as features of slots, with what to show of them."""

    ids: Any  # a tuple of ids, or features [S, F]
    text: str
    num_tags: int = 0  # tags at the start
    has_end: bool = True  # whether the last token is an end token
    max_length: int = 100  # of the target, in tokens
    prefix: tuple[int, ...] = ()  # tokens that the target must begin with
    shown: Text | None = None  # of a source that is not text
    erased: float = 1.0  # the features of an erased slot: white, or silence


@torch.inference_mode()
def record_sentence(
    model: InspectedModel,
    source: InspectedSource,
    search: SearchStrategy,
    *,
    forced_target: Sequence[int] | None = None,
    reference: Sequence[int] | None = None,
    top_k: int = 10,
    importance: bool = True,
    evidence: bool = False,
    vectors: Sequence[Place] = (),
    alignment: TraceAlignment | None = None,
    about: str = "",
    report: Callable[[str], None] = ignore_progress,
) -> Sentence:
    """Trace how a model translates a source, or how it scores `forced_target`.

    `top_k` is the number of candidates recorded per step, `vectors` the places whose vectors are recorded. `evidence`
    adds the measurements of `inspection.evidence`. `report` is called with a description of each stage.
    """
    report("search")
    rows, mask = (tensor.to(model.device) for tensor in pad_sources([source.ids], 0))
    memory = model.encoder(rows, mask, look=Look(EVERYTHING if "encoder" in vectors else ONLY_WEIGHTS))
    max_length = max(source.max_length, len(forced_target or ()) + 1)
    prefix = (source.prefix,) if source.prefix else None
    rules = DecodingLimits(
        model.bos, model.eos, max_length, prefix=prefix, suppress_tokens=model.suppress_tokens, filters=model.filters
    )
    result = search(model.decoder, memory, rules, trace=True)[0]
    answer = tuple(result.best.tokens) if forced_target is None else tuple(forced_target)
    has_ended = result.best.finished or forced_target is not None
    target = (*answer, model.eos) if has_ended else answer
    draws_slots = any(isinstance(module.normalizer, Sampled) for module in find_attentions(model, "cross"))
    least: frozenset[Record] = ONLY_WEIGHTS | {"scores"} if draws_slots else ONLY_WEIGHTS
    look = Look(EVERYTHING if {"cross", "decoder"} & set(vectors) else least)
    log_probs, decoder_maps = decode_forced(model, memory, target, look)
    target_log_probs = log_probs.gather(1, torch.tensor(target, device=log_probs.device).unsqueeze(1)).squeeze(1)
    total = finite_log_prob(float(target_log_probs.sum()))
    maps = Maps((memory.maps or Maps()).encoder, *((decoder_maps.cross, decoder_maps.decoder) if decoder_maps else ()))
    weights = {place: array for place in PLACES if (array := stack_weights(getattr(maps, place))) is not None}
    text = model.detokenize(answer)
    num_forced = len(source.prefix if forced_target is None else target)
    shown_source = source.shown or Text(
        text=source.text,
        pieces=locate_pieces(model.source_pieces(source.ids), source.text, source.num_tags, source.has_end),
        language=model.languages[0],
    )
    target_pieces = locate_pieces(model.target_pieces(target), text, 0, has_ended)
    importance_of_heads: dict[Any, Any] = {}
    if importance and model.can_silence_heads:
        report("importance of each head")
        importance_of_heads = measure_importance(model, (rows, mask), memory, target, total, weights)
    more_evidence: dict[str, Any] = {}
    if evidence:
        more_evidence = measure_evidence(
            scorer := AnswerScorer(
                model.encoder, model.decoder, model.bos, model.unk, source.ids, target, model.device, source.erased
            ),
            (model.source_pieces, model.target_pieces),
            range(source.num_tags, scorer.num_slots - (source.has_end and source.shown is None)),
            weights.get("cross"),
            alignment,
            report,
        )
    return Sentence(
        name=model.name,
        source=shown_source,
        target=Text(text=text, pieces=target_pieces, language=model.languages[1]),
        logp=total,
        score=ranking_score(search, total, len(answer), has_ended),
        steps=tuple(make_steps(model, log_probs, target_log_probs, top_k, num_forced)),
        tree=make_tree(model, search, result, memory, rules),
        attention={place: weights_blob(array) for place, array in weights.items()},
        importance=importance_of_heads,
        reading=alignment,
        latent=find_latent_alignment(model, memory, answer, maps.cross, has_ended=has_ended),
        vectors={place: layers for place in vectors if (layers := make_vectors(model, place, maps))},
        reference=compare_with_reference(model, search, memory, reference, result) if reference is not None else None,
        about=about,
        **more_evidence,
    )


def finite_log_prob(log_prob: float) -> float:
    """The value that a trace can store: CTC gives -inf to a target with more labels than slots."""
    return log_prob if isfinite(log_prob) else MIN_LOG_PROB


def decode_forced(
    model: InspectedModel, memory: Memory, target: Sequence[int], look: Look | None
) -> tuple[Tensor, Maps | None]:
    """Log-probabilities [T, V] before each token of `target`, in one pass, and the decoder's maps."""
    inputs = torch.tensor([[model.bos, *target[:-1]]], device=model.device)
    decoded, _ = model.decoder(inputs, model.decoder.start(memory), look)
    return model.decoder.project(decoded.states[0]).float().log_softmax(-1), decoded.maps


def stack_weights(maps: Sequence[Map]) -> np.ndarray[Any, Any] | None:
    """[layers, heads, T, S] of the first row; None if no map has weights."""
    layers = [layer.weights[0] for layer in maps if layer.weights is not None]
    return torch.stack(layers).float().cpu().numpy() if layers else None


def make_steps(
    model: InspectedModel, log_probs: Tensor, target_log_probs: Tensor, top_k: int, num_forced: int
) -> Iterator[TraceStep]:
    """For each token of the target: its log-probability, the entropy and the best candidates.

    The first `num_forced` tokens were not chosen by the search.
    """
    entropy = -(log_probs.exp() * log_probs.clamp(min=MIN_LOG_PROB)).sum(-1)
    values, indices = log_probs.topk(min(top_k, log_probs.size(-1)))
    names = {
        token: readable_piece(name)
        for row in indices.tolist()
        for token, name in zip(row, model.target_pieces(row), strict=True)
    }
    for row, log_prob in enumerate(target_log_probs.tolist()):
        best = tuple(
            (names[token], max(value, MIN_LOG_PROB))
            for token, value in zip(indices[row].tolist(), values[row].tolist(), strict=True)
        )
        is_forced = row < num_forced
        yield TraceStep(logp=max(log_prob, MIN_LOG_PROB), entropy=float(entropy[row]), top=best, forced=is_forced)


# ---------------------------------------------------------------------------------------------------------- search


def ranking_score(search: SearchStrategy, log_prob: float, num_tokens: int, has_ended: bool) -> float:
    """The score that ranks an answer: beam search normalizes by length, others use log p."""
    if not isinstance(search, Beam):
        return log_prob
    return log_prob / LENGTH_RULES[search.length_rule](num_tokens, has_ended, search.length_penalty)


def make_tree(
    model: InspectedModel, search: SearchStrategy, result: SearchResult, memory: Memory, rules: DecodingLimits
) -> SearchTree:
    """All candidates of a search, and the answer of greedy search."""
    assert result.trace is not None
    candidates = result.trace.candidates
    names = [readable_piece(name) for name in model.target_pieces([candidate.token for candidate in candidates])]
    nodes = tuple(make_node(candidate, name) for candidate, name in zip(candidates, names, strict=True))
    ends = [(candidate.score, -row) for row, candidate in enumerate(candidates) if candidate.score is not None]
    greedy = Greedy()(model.decoder, memory, rules)[0].best
    formulas = {
        "none": "log p",
        "power": f"log p / length^{getattr(search, 'length_penalty', 0):g}",
        "power_without_end": f"log p / length^{getattr(search, 'length_penalty', 0):g}, the end not counted",
        "gnmt": f"log p / ((5 + length) / 6)^{getattr(search, 'length_penalty', 0):g}",
    }
    return SearchTree(
        kind=type(search).__name__.lower(),
        size=getattr(search, "size", 1),
        length=formulas[search.length_rule] if isinstance(search, Beam) else "log p",
        nodes=nodes,
        best=-max(ends)[1] if ends else None,
        greedy=model.detokenize(greedy.tokens),
        greedy_score=ranking_score(search, greedy.log_probability, len(greedy.tokens), greedy.finished),
    )


def make_node(candidate: Candidate, text: str) -> SearchNode:
    return SearchNode(
        step=candidate.step,
        parent=candidate.parent,
        text=text,
        logp=max(candidate.log_probability, MIN_LOG_PROB),
        total=max(candidate.total, MIN_LOG_PROB),
        rank=candidate.rank,
        fate=candidate.fate,  # type: ignore[arg-type]
        why=candidate.why,
        score=candidate.score,
    )


def compare_with_reference(
    model: InspectedModel, search: SearchStrategy, memory: Memory, reference: Sequence[int], result: SearchResult
) -> Reference:
    """Score a reference. If the model prefers it to its own answer, the search failed, otherwise the model."""
    target = (*reference, model.eos)
    log_probs, _ = decode_forced(model, memory, target, None)
    total = finite_log_prob(
        float(log_probs.gather(1, torch.tensor(target, device=log_probs.device).unsqueeze(1)).sum())
    )
    score = ranking_score(search, total, len(reference), True)
    is_same = tuple(reference) == tuple(result.best.tokens)
    verdict = "same" if is_same else "search" if score > result.best.score else "model"
    return Reference(text=model.detokenize(reference), logp=total, score=score, verdict=verdict)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------- importance of a head


def measure_importance(
    model: InspectedModel,
    source: tuple[Tensor, Tensor],
    memory: Memory,
    target: Sequence[int],
    log_prob: float,
    weights: dict[Any, np.ndarray[Any, Any]],
) -> dict[Any, tuple[tuple[float, ...], ...]]:
    """The drop of the target's log p when a head is silenced, [layers][heads] per place."""
    rows = torch.tensor(target, device=memory.mask.device).unsqueeze(1)

    def log_prob_drop(place: Place, layer: int, head: int) -> float:
        silence = Look(frozenset(), frozenset({(place, layer, head)}))
        changed = model.encoder(*source, look=silence) if place == "encoder" else memory
        log_probs, _ = decode_forced(model, changed, target, None if place == "encoder" else silence)
        return log_prob - float(log_probs.gather(1, rows).sum())

    return {
        place: tuple(
            tuple(log_prob_drop(place, layer, head) for head in range(array.shape[1]))
            for layer in range(array.shape[0])
        )
        for place, array in weights.items()
        if place != "cross" or not isinstance(model.decoder, CTCDecoder)  # its map is a posterior, not a head
    }


# ------------------------------------------------------------------------------------------------- latent alignments


def find_latent_alignment(
    model: InspectedModel, memory: Memory, answer: Sequence[int], cross: Sequence[Map], *, has_ended: bool
) -> LatentAlignment | None:
    """The distribution over alignments, if the model has one and the answer has an alignment."""
    if isinstance(model.decoder, CTCDecoder):
        return make_trellis(model.decoder, memory, answer, has_ended=has_ended)
    modules = find_attentions(model, "cross")
    if len(cross) == 1 and cross[0].scores is not None and any(isinstance(m.normalizer, Sampled) for m in modules):
        return make_slot_distribution(cross[0].scores[0])
    return None


def make_trellis(
    decoder: CTCDecoder, memory: Memory, answer: Sequence[int], *, has_ended: bool
) -> LatentAlignment | None:
    """The posteriors of all states of CTC at every slot, and the best alignment; None if the labels do not fit."""
    log_probs, mask = decoder.slot_labels(memory)
    labels = torch.tensor([answer], dtype=torch.long, device=mask.device)
    alignments = forward_backward(log_probs.double(), mask, labels, torch.ones_like(labels, dtype=torch.bool))
    path, log_prob = best_alignment(log_probs[0].double(), labels[0])
    if log_prob < MIN_LOG_PROB:
        return None
    posteriors = alignments.posteriors.transpose(1, 2).cpu().numpy()  # [1, U, S]
    return LatentAlignment(
        kind="ctc",
        probabilities=weights_blob(posteriors),
        paths=(tuple(path),),
        logps=(log_prob,),
        total=None if has_ended else max(MIN_LOG_PROB, float(alignments.log_likelihood)),
    )


def make_slot_distribution(scores: Tensor) -> LatentAlignment:
    """The probability of every slot [H, T, S], and the most probable slots."""
    log_probs = scores.double().log_softmax(-1)
    best, slots = log_probs.max(-1)
    return LatentAlignment(
        kind="sampled",
        probabilities=weights_blob(log_probs.exp().cpu().numpy()),
        paths=tuple(map(tuple, slots.tolist())),
        logps=tuple(best.sum(-1).tolist()),
    )


# --------------------------------------------------------------------------------------------------------- vectors


def find_attentions(model: InspectedModel, place: Place) -> list[Any]:
    """heedful's attention modules at a place, in layer order."""
    part = model.encoder if place == "encoder" else model.decoder
    kinds = (Attention, MultiHead) if place == "cross" else (SelfAttention,)
    return [module for module in part.modules() if isinstance(module, kinds)] if isinstance(part, nn.Module) else []


def make_vectors(model: InspectedModel, place: Place, maps: Maps) -> tuple[Vectors, ...]:
    """The vectors of a place's scores, by layer; empty for a custom score function."""
    names = {kind: name for name, kind in SCORES.items() if kind is not GaussianWindow}  # its scores need a state
    layers, modules = getattr(maps, place), find_attentions(model, place)
    if len(layers) != len(modules) or any(type(module.score) not in names for module in modules):
        return ()
    return tuple(
        make_layer_vectors(names[type(module.score)], module, layer)
        for module, layer in zip(modules, layers, strict=True)
    )


def is_hard(normalizer: Any) -> bool:
    """Whether evaluation attends to one slot."""
    return normalizer is hard or (isinstance(normalizer, Sampled) and normalizer.decode == "best")


def make_layer_vectors(score_name: str, module: Any, layer: Map) -> Vectors:
    """The vectors of one layer, [heads, T or S, width]."""
    recorded = (layer.weights, layer.scores, layer.queries, layer.keys, layer.values)
    assert all(tensor is not None for tensor in recorded)
    weights, scores, queries, keys, values = (tensor[0] for tensor in recorded if tensor is not None)
    score, energy, moved = module.score, None, None
    if isinstance(score, ContentLocation):
        before = torch.cat((torch.zeros_like(weights[:, :1]), weights[:, :-1]), 1)  # [1, T, S]
        features = score.convolve(before.reshape(-1, 1, before.size(-1))).transpose(1, 2)  # [T, S, filters]
        moved = score.place(features).unsqueeze(0)
        score = score.content
    if isinstance(score, Additive):
        queries, energy = score.query(queries), score.energy.weight[0]
    if isinstance(score, Location):
        keys = score.slot.weight[: keys.size(-2)].expand(keys.size(0), -1, -1)

    def blob(tensor: Tensor, fraction_bits: int = 7) -> Any:
        return numbers_blob(tensor.float().cpu().numpy(), fraction_bits)

    return Vectors(
        score=score_name,  # type: ignore[arg-type]
        normalizer="hard" if is_hard(module.normalizer) else "soft",
        queries=blob(queries),
        keys=blob(keys),
        values=blob(values, 5),  # only shown as colors and in sums
        scores=blob(scores, 10),
        energy=None if energy is None else blob(energy),
        moved=None if moved is None else blob(moved),
    )

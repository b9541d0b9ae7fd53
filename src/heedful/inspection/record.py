"""From a model to a trace: a search, a forced pass over what it said, and one more for every head that is silenced.

Any object with the contract's methods will do (an encoder's one, a decoder's three). What it does not show (maps of a
model without attention, vectors of a score that heedful does not know) is left out of the trace.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from heedful.nn.attention import (
    NORMALIZERS,
    SCORES,
    Additive,
    Attention,
    ContentLocation,
    Location,
    MultiHead,
    SelfAttention,
)
from heedful.nn.contract import PLACES, RECORDS, Look, Map, Maps, Memory, Place, Record
from heedful.search import Beam, Greedy, Rules, Sample
from heedful.search.filters import Filter
from heedful.stopping import LENGTHS
from heedful.trace import (
    Node,
    Piece,
    Reading,
    Reference,
    Sentence,
    Step,
    Text,
    Tree,
    Vectors,
    numbers_blob,
    spelled,
    weights_blob,
)
from heedful.types import Candidate, Found

LOWEST = -1e4  # stands for -inf, which JSON cannot say
Search = Beam | Greedy | Sample


@dataclass(frozen=True)
class Subject:
    """A model under the glass, and how its tokens are spelled."""

    encoder: Any
    decoder: Any
    bos: int
    eos: int
    source: Callable[[Sequence[int]], list[str]]  # ids -> what each is called; U+2581 in front where a word begins
    target: Callable[[Sequence[int]], list[str]]
    say: Callable[[Sequence[int]], str]  # ids of the target -> text
    name: str = "model"
    languages: tuple[str, str] = ("", "")
    silences: bool = True  # whether its heads can be silenced
    filters: tuple[Filter, ...] = ()
    ask: "Callable[[str], Question] | None" = None  # text -> tokens, where it knows text

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        first = next(self.decoder.parameters(), None) if isinstance(self.decoder, nn.Module) else None
        return torch.device("cpu") if first is None else first.device


@dataclass(frozen=True)
class Question:
    """A source, as tokens and as text."""

    ids: tuple[int, ...]
    text: str
    tags: int = 0  # how many of the first tokens are tags
    ends: bool = True  # whether the last is an end token
    limit: int = 100


@torch.inference_mode()
def record(
    subject: Subject,
    question: Question,
    search: Search,
    *,
    forced: Sequence[int] | None = None,
    reference: Sequence[int] | None = None,
    top: int = 10,
    importance: bool = True,
    vectors: Sequence[Place] = (),
    reading: Reading | None = None,
    about: str = "",
) -> Sentence:
    """What the model did with a source; or, with `forced`, what it thinks of a target that is given."""
    tokens = torch.tensor([question.ids], device=subject.device)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    memory = subject.encoder(tokens, mask, look=Look(WHOLE if "encoder" in vectors else ONLY_WEIGHTS))
    limit = max(question.limit, len(forced or ()) + 1)
    rules = Rules(subject.bos, subject.eos, limit, filters=subject.filters)
    found = search(subject.decoder, memory, rules, trace=True)[0]
    said = tuple(found.best.tokens) if forced is None else tuple(forced)
    ended = found.best.finished or forced is not None
    gold = (*said, subject.eos) if ended else said
    look = Look(WHOLE if {"cross", "decoder"} & set(vectors) else ONLY_WEIGHTS)
    log_probs, maps = passed(subject, memory, gold, look)
    logps = log_probs.gather(1, torch.tensor(gold, device=log_probs.device).unsqueeze(1)).squeeze(1)
    own = float(logps.sum())
    every = Maps((memory.maps or Maps()).encoder, *((maps.cross, maps.decoder) if maps else ()))
    heads = {place: shown for place in PLACES if (shown := stacked(getattr(every, place))) is not None}
    text = subject.say(said)
    return Sentence(
        name=subject.name,
        source=Text(text=question.text, pieces=source_pieces(subject, question), language=subject.languages[0]),
        target=Text(text=text, pieces=target_pieces(subject, gold, text, ended), language=subject.languages[1]),
        logp=own,
        score=score_of(search, own, len(said), ended),
        steps=tuple(steps(subject, log_probs, gold, logps, top, forced is not None)),
        tree=tree(subject, search, found, memory, rules),
        attention={place: weights_blob(array) for place, array in heads.items()},
        importance=weighed(subject, (tokens, mask), memory, gold, own, heads)
        if importance and subject.silences
        else {},
        reading=reading,
        vectors={place: taken for place in vectors if (taken := vectors_of(subject, place, every))},
        reference=judged(subject, search, memory, reference, found) if reference is not None else None,
        about=about,
    )


ONLY_WEIGHTS: frozenset[Record] = frozenset({"weights"})
WHOLE: frozenset[Record] = frozenset(RECORDS)


def passed(subject: Subject, memory: Memory, gold: Sequence[int], look: Look | None) -> tuple[Tensor, Maps | None]:
    """Log-probabilities [T, V] before each token of `gold`, all at once."""
    inputs = torch.tensor([[subject.bos, *gold[:-1]]], device=subject.device)
    decoded, _ = subject.decoder(inputs, subject.decoder.start(memory), look)
    return subject.decoder.project(decoded.states[0]).float().log_softmax(-1), decoded.maps


def stacked(maps: Sequence[Map]) -> np.ndarray[Any, Any] | None:
    """[layers, heads, T, S] of the first row; None where nothing was shown."""
    seen = [one.weights[0] for one in maps if one.weights is not None]
    return torch.stack(seen).float().cpu().numpy() if seen else None


# ---------------------------------------------------------------------------------------------------------- pieces


def source_pieces(subject: Subject, question: Question) -> tuple[Piece, ...]:
    """The slots of the source."""
    return spelled(subject.source(question.ids), question.text, question.tags, question.ends)


def target_pieces(subject: Subject, gold: Sequence[int], text: str, ended: bool) -> tuple[Piece, ...]:
    """The steps of the target."""
    return spelled(subject.target(gold), text, 0, ended)


def spell(name: str) -> str:
    """A piece as people read it; a byte of ASCII is a character."""
    byte = name.startswith("<0x") and len(name) == 6 and name < "<0x80>"
    return chr(int(name[3:5], 16)) if byte else name.replace("\u2581", " ")


def steps(
    subject: Subject, log_probs: Tensor, gold: Sequence[int], logps: Tensor, top: int, forced: bool
) -> Iterator[Step]:
    """What the model thought before each token."""
    entropy = -(log_probs.exp() * log_probs.clamp(min=LOWEST)).sum(-1)
    values, indices = log_probs.topk(min(top, log_probs.size(-1)))
    names = {
        token: spell(name) for row in indices.tolist() for token, name in zip(row, subject.target(row), strict=True)
    }
    for row in range(len(gold)):
        best = tuple(
            (names[token], max(value, LOWEST))
            for token, value in zip(indices[row].tolist(), values[row].tolist(), strict=True)
        )
        yield Step(logp=max(float(logps[row]), LOWEST), entropy=float(entropy[row]), top=best, forced=forced)


# ---------------------------------------------------------------------------------------------------------- search


def score_of(search: Search, total: float, tokens: int, ended: bool) -> float:
    """How the search ranks an answer: a beam by length, others by log p alone."""
    if not isinstance(search, Beam):
        return total
    return total / LENGTHS[search.length](tokens, ended, search.length_penalty)


def tree(subject: Subject, search: Search, found: Found, memory: Memory, rules: Rules) -> Tree:
    """What was considered, and what greedy search would have said."""
    assert found.trace is not None
    considered = found.trace.candidates
    names = [spell(name) for name in subject.target([one.token for one in considered])]
    nodes = tuple(node(one, name) for one, name in zip(considered, names, strict=True))
    ends = [(one.score, -index) for index, one in enumerate(considered) if one.score is not None]
    greedy = Greedy()(subject.decoder, memory, rules)[0].best
    rule = {
        "none": "log p",
        "power": f"log p / length^{getattr(search, 'length_penalty', 0):g}",
        "power_without_end": f"log p / length^{getattr(search, 'length_penalty', 0):g}, the end not counted",
        "gnmt": f"log p / ((5 + length) / 6)^{getattr(search, 'length_penalty', 0):g}",
    }
    return Tree(
        kind=type(search).__name__.lower(),
        size=getattr(search, "size", 1),
        length=rule[search.length] if isinstance(search, Beam) else "log p",
        nodes=nodes,
        best=-max(ends)[1] if ends else None,
        greedy=subject.say(greedy.tokens),
        greedy_score=score_of(search, greedy.log_probability, len(greedy.tokens), greedy.finished),
    )


def node(one: Candidate, name: str) -> Node:
    """A candidate, spelled."""
    return Node(
        step=one.step,
        parent=one.parent,
        text=name,
        logp=max(one.log_probability, LOWEST),
        total=max(one.total, LOWEST),
        rank=one.rank,
        fate=one.fate,  # type: ignore[arg-type]
        why=one.why,
        score=one.score,
    )


def judged(subject: Subject, search: Search, memory: Memory, reference: Sequence[int], found: Found) -> Reference:
    """Had the model liked the reference better, the search erred; else the model did."""
    gold = (*reference, subject.eos)
    log_probs, _ = passed(subject, memory, gold, None)
    total = float(log_probs.gather(1, torch.tensor(gold, device=log_probs.device).unsqueeze(1)).sum())
    score = score_of(search, total, len(reference), True)
    same = tuple(reference) == tuple(found.best.tokens)
    verdict = "same" if same else "search" if score > found.best.score else "model"
    return Reference(text=subject.say(reference), logp=total, score=score, verdict=verdict)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ what a head is worth


def weighed(
    subject: Subject,
    source: tuple[Tensor, Tensor],
    memory: Memory,
    gold: Sequence[int],
    own: float,
    heads: dict[Any, np.ndarray[Any, Any]],
) -> dict[Any, tuple[tuple[float, ...], ...]]:
    """How much log p of the answer falls when a head says nothing; below 0, it would rise."""
    rows = torch.tensor(gold, device=memory.mask.device).unsqueeze(1)

    def without(place: Place, layer: int, head: int) -> float:
        silent = Look(frozenset(), frozenset({(place, layer, head)}))
        heard = subject.encoder(*source, look=silent) if place == "encoder" else memory
        log_probs, _ = passed(subject, heard, gold, None if place == "encoder" else silent)
        return own - float(log_probs.gather(1, rows).sum())

    return {
        place: tuple(
            tuple(without(place, layer, head) for head in range(array.shape[1])) for layer in range(array.shape[0])
        )
        for place, array in heads.items()
    }


# --------------------------------------------------------------------------------------------------------- vectors


def attentions(subject: Subject, place: Place) -> list[Any]:
    """heedful's own attentions of a model at a place, in the order of its layers."""
    part = subject.encoder if place == "encoder" else subject.decoder
    kinds = (Attention, MultiHead) if place == "cross" else (SelfAttention,)
    return [one for one in part.modules() if isinstance(one, kinds)] if isinstance(part, nn.Module) else []


def vectors_of(subject: Subject, place: Place, maps: Maps) -> tuple[Vectors, ...]:
    """What the scores of a place were made of; nothing where heedful does not know how they are made."""
    names = {kind: name for name, kind in SCORES.items()}
    layers, modules = getattr(maps, place), attentions(subject, place)
    if len(layers) != len(modules) or any(type(one.score) not in names for one in modules):
        return ()
    return tuple(
        vectors_of_layer(names[type(module.score)], module, one) for module, one in zip(modules, layers, strict=True)
    )


def vectors_of_layer(name: str, module: Any, seen: Map) -> Vectors:
    """One layer, [heads, T or S, width]."""
    parts = (seen.weights, seen.scores, seen.queries, seen.keys, seen.values)
    assert all(part is not None for part in parts)
    weights, scores, queries, keys, values = (part[0] for part in parts if part is not None)
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
    normalize = {act: word for word, act in NORMALIZERS.items()}[module.normalizer]

    def blob(part: Tensor, bits: int = 7) -> Any:
        return numbers_blob(part.float().cpu().numpy(), bits)

    return Vectors(
        score=name,  # type: ignore[arg-type]
        normalize=normalize,  # type: ignore[arg-type]
        queries=blob(queries),
        keys=blob(keys),
        values=blob(values, 5),  # only ever seen as colors, and in sums
        scores=blob(scores, 10),
        energy=None if energy is None else blob(energy),
        moved=None if moved is None else blob(moved),
    )

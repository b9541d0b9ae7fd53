"""Greedy search and sampling: one hypothesis per sentence, extended token by token."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from heedful.errors import require

require("torch", extra="train", whose="heedful.search")

import torch
from torch import Tensor

from heedful.nn.contract import Decoder, Look, Maps, Memory
from heedful.performance.attribute_cache import cached_attributes
from heedful.performance.topk import argmax
from heedful.search.decoding import DecodingLimits, start_decoding
from heedful.search.filters import Filter, Temperature, TopK, TopP
from heedful.search.hypotheses import SentencePath
from heedful.search.maps import collect_maps
from heedful.types import Candidate, SearchResult

TokenChoice = Callable[[Tensor, Sequence[int]], Tensor]  # log-probabilities [R, V], sentence of each row -> tokens [R]


@dataclass(frozen=True, slots=True)
class Greedy:
    """y_t = argmax p(y | y_<t, x): the best token at each step, which need not be the best sequence"""

    def __call__(
        self,
        decoder: Decoder,
        memory: Memory,
        limits: DecodingLimits,
        *,
        look: Look | None = None,
        trace: bool = False,
    ) -> list[SearchResult]:
        return generate(decoder, memory, limits, lambda log_probs, _: argmax(log_probs), look=look, trace=trace)


@dataclass(frozen=True, slots=True)
class Sample:
    """y_t ~ p(y | y_<t, x), after temperature, then top-k, then top-p

    Every sentence has its own random generator, seeded with `seed` and the sentence's index (its position in the batch
    unless `indices` is given), so its sample does not depend on the other sentences.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    indices: tuple[int, ...] | None = None

    def __call__(
        self,
        decoder: Decoder,
        memory: Memory,
        limits: DecodingLimits,
        *,
        look: Look | None = None,
        trace: bool = False,
    ) -> list[SearchResult]:
        filters: list[Filter] = [*limits.filters]
        if self.temperature != 1.0:
            filters.append(Temperature(self.temperature))
        if self.top_k is not None:
            filters.append(TopK(self.top_k))
        if self.top_p is not None:
            filters.append(TopP(self.top_p))
        indices = range(len(memory.mask)) if self.indices is None else self.indices
        if len(indices) != len(memory.mask):
            raise ValueError(f"got {len(indices)} indices for {len(memory.mask)} sentences")
        random = [Random(f"{self.seed} {index}").random for index in indices]

        def draw(log_probs: Tensor, sentences: Sequence[int]) -> Tensor:
            cumulative = log_probs.double().softmax(-1).cumsum(-1)
            drawn = torch.tensor([[random[sentence]()] for sentence in sentences], dtype=torch.float64)
            # right=True never selects a token with probability 0
            chosen = torch.searchsorted(cumulative, drawn.to(cumulative) * cumulative[:, -1:], right=True)
            return chosen.squeeze(1).clamp(max=log_probs.size(1) - 1)

        return generate(decoder, memory, replace(limits, filters=tuple(filters)), draw, look=look, trace=trace)


def generate(
    decoder: Decoder,
    memory: Memory,
    limits: DecodingLimits,
    choose: TokenChoice,
    *,
    look: Look | None = None,
    trace: bool = False,
) -> list[SearchResult]:
    """Extend every sentence by the token that `choose` picks, step by step; finished sentences leave the batch."""
    with torch.inference_mode(), cached_attributes(decoder):
        decoding, last = start_decoding(decoder, memory, limits, look)
        paths = [SentencePath(limits.eos, max_length, trace) for max_length in limits.max_lengths(len(last))]
        active = list(range(len(paths)))  # the sentence of each row
        maps: list[Maps] = []  # one per step
        while active:
            output = decoding.step(last)
            if output.maps is not None:
                maps.append(output.maps)
            chosen = choose(output.filtered, active)
            tokens, log_probs = chosen.tolist(), output.log_probs.gather(1, chosen.unsqueeze(1)).squeeze(1).tolist()
            staying = []
            for row, (sentence, token, log_prob) in enumerate(zip(active, tokens, log_probs, strict=True)):
                path = paths[sentence]
                if output.prefix_log_probs is not None:
                    path.start_with_prefix(last[row, 1:].tolist(), output.prefix_log_probs[row].tolist())
                path.append(row, token, log_prob)
                if trace:
                    _record_candidates(path, output.log_probs[row], output.filtered[row], token)
                if not path.done:
                    staying.append(row)
            rows = None
            if len(staying) < len(active):
                active = [active[row] for row in staying]
                rows = torch.tensor(staying, dtype=torch.long, device=last.device)
                chosen = chosen[rows]
            decoding.advance(rows, chosen, rows)
            last = chosen.unsqueeze(1)
    results = []
    for sentence, path in enumerate(paths):
        path_maps = collect_maps(maps[: len(path.rows)], path.rows, memory, sentence) if maps else None
        results.append(SearchResult((path.hypothesis(path_maps),), path.trace()))
    return results


def _record_candidates(path: SentencePath, log_probs: Tensor, filtered: Tensor, token: int) -> None:
    """Add the chosen token and the best alternative to the trace."""
    kept = (i for i in reversed(range(len(path.candidates))) if path.candidates[i].fate == "kept")
    parent = next(kept, None)
    total_before, length = sum(path.log_probs[:-1]), len(path.log_probs)
    if path.ended:
        fate, why = "finished", "the end token was chosen"
    elif length >= path.max_length:
        fate, why = "cut", "chosen, and the limit is reached"
    else:
        fate, why = "kept", "chosen"
    leading = filtered.topk(min(2, len(filtered)))
    others = [
        int(other)
        for value, other in zip(leading.values, leading.indices, strict=True)
        if other != token and value > -torch.inf
    ]

    def make_candidate(token: int, fate: str, why: str) -> Candidate:
        log_prob = float(log_probs[token])
        rank = int((filtered > filtered[token]).sum())
        score = total_before + log_prob if fate in ("finished", "cut") else None
        return Candidate(length, parent, token, log_prob, total_before + log_prob, rank, fate, why, score)

    candidates = [make_candidate(token, fate, why)]
    candidates += [make_candidate(other, "pruned", "not chosen") for other in others[:1]]
    path.candidates.extend(sorted(candidates, key=lambda candidate: candidate.rank))

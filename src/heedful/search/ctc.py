"""Searches of CTC models over slots: the best path, and prefix beam search.

A CTC decoder also works with the searches over tokens, which support filters and forced prefixes. These are faster.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import exp, inf, log1p

from heedful.errors import require

require("torch", extra="train", whose="heedful.search")

import torch
from torch import Tensor

from heedful.data.batch import pad_rows
from heedful.nn.contract import Look, Map, Maps, Memory, select
from heedful.nn.ctc import BLANK, forward_backward, label_posteriors
from heedful.nn.decoders.ctc import CTCDecoder
from heedful.search.decoding import DecodingLimits
from heedful.search.maps import collect_maps
from heedful.types import Candidate, Hypothesis, SearchResult, Trace

Labels = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BestPath:
    """The labels of the path argmax_k p_s(k): fast, but other labels can have more paths and a higher probability"""

    def __call__(
        self,
        decoder: CTCDecoder,
        memory: Memory,
        limits: DecodingLimits,
        *,
        look: Look | None = None,
        trace: bool = False,
    ) -> list[SearchResult]:
        with torch.inference_mode():
            log_probs, mask = _slot_labels(decoder, memory, limits)
            paths = log_probs.argmax(-1).masked_fill(~mask, BLANK).tolist()
            labels = [
                (remove_blanks(path)[:max_length],)
                for path, max_length in zip(paths, limits.max_lengths(len(paths)), strict=True)
            ]
            return _score(labels, decoder, memory, limits, 1, look, trace)


@dataclass(frozen=True, slots=True)
class PrefixBeam:
    """The `num_best` most probable label sequences that the `size` best prefixes of every slot lead to

    For every prefix g, the probabilities of all paths so far that become g are summed, apart for the paths that end in
    a blank and in the last label of g (Graves 2008; Hannun et al. 2014). The results are ranked by p(y | x), the sum of
    all paths; a length penalty is not needed.
    """

    size: int = 10
    num_best: int = 1

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"beam size must be at least 1, got {self.size}")
        if not 1 <= self.num_best <= self.size:
            raise ValueError(f"num_best must be between 1 and {self.size} (the beam size), but is {self.num_best}")

    def __call__(
        self,
        decoder: CTCDecoder,
        memory: Memory,
        limits: DecodingLimits,
        *,
        look: Look | None = None,
        trace: bool = False,
    ) -> list[SearchResult]:
        with torch.inference_mode():
            log_probs, mask = _slot_labels(decoder, memory, limits)
            labels = [
                search_prefixes(slots[:length], self.size, max_length)
                for slots, length, max_length in zip(
                    log_probs, mask.sum(1).tolist(), limits.max_lengths(len(log_probs)), strict=True
                )
            ]
            return _score(labels, decoder, memory, limits, self.num_best, look, trace)


def remove_blanks(path: Sequence[int]) -> Labels:
    """The labels of a path: merge equal neighbors, then remove blanks."""
    return tuple(label for slot, label in enumerate(path) if label != BLANK and (slot == 0 or path[slot - 1] != label))


def search_prefixes(log_probs: Tensor, size: int, max_length: int) -> list[Labels]:
    """The `size` best label sequences of one sentence, best first; [S, V] log-probabilities."""
    blanks = log_probs[:, BLANK].tolist()
    is_blank = torch.arange(log_probs.size(1), device=log_probs.device) == BLANK
    labels_only = log_probs.masked_fill(is_blank, -inf)
    # The `size` best continuations of a prefix are among its size + 1 best labels, one of which may be a repeat.
    top = labels_only.topk(min(size + 1, log_probs.size(1)), 1).indices.tolist()
    rows = labels_only.tolist()
    beam: dict[Labels, tuple[float, float]] = {(): (0.0, -inf)}  # log p of the paths that end in a blank, in a label
    for blank, row, best_labels in zip(blanks, rows, top, strict=True):
        extended: dict[Labels, tuple[float, float]] = {}
        for prefix, (ends_in_blank, ends_in_label) in beam.items():
            total = _log_add(ends_in_blank, ends_in_label)
            last = prefix[-1] if prefix else BLANK
            stays = ends_in_label + row[last] if prefix else -inf
            parent = beam.get(prefix[:-1]) if prefix else None
            if parent is not None:  # its parent also becomes this prefix, whatever the rank of the label
                repeats = len(prefix) > 1 and prefix[-2] == last
                stays = _log_add(stays, (parent[0] if repeats else _log_add(*parent)) + row[last])
            extended[prefix] = (total + blank, stays)
            if len(prefix) < max_length:
                for label in best_labels:
                    continued = (*prefix, label)
                    if continued not in beam:
                        extended[continued] = (-inf, (ends_in_blank if label == last else total) + row[label])
        best = sorted(extended.items(), key=lambda item: -_log_add(*item[1]))[:size]
        beam = {prefix: ends for prefix, ends in best if max(ends) > -inf}
    return list(beam)


def _log_add(a: float, b: float) -> float:
    """log(exp(a) + exp(b))"""
    high, low = (a, b) if a >= b else (b, a)
    return high if low == -inf else high + log1p(exp(low - high))


def _slot_labels(decoder: CTCDecoder, memory: Memory, limits: DecodingLimits) -> tuple[Tensor, Tensor]:
    """Log-probabilities of labels without the suppressed ones [B, S, V], and the mask of the slots."""
    if limits.prefix or limits.filters or limits.min_length:
        raise ValueError(
            "a search over slots supports no forced prefix, filter or minimum length: use Greedy, Sample or Beam"
        )
    log_probs, mask = decoder.slot_labels(memory)
    suppressed = {decoder.bos, decoder.eos, *limits.suppress_tokens} - {BLANK}
    log_probs[:, :, sorted(suppressed)] = -torch.inf
    return log_probs, mask


def _score(
    labels: Sequence[Sequence[Labels]],
    decoder: CTCDecoder,
    memory: Memory,
    limits: DecodingLimits,
    num_best: int,
    look: Look | None,
    trace: bool,
) -> list[SearchResult]:
    """Rank the label sequences of each sentence by their exact probability."""
    max_lengths = limits.max_lengths(len(labels))
    sentences = [sentence for sentence, sequences in enumerate(labels) for _ in sequences]
    sequences = [sequence for sequences in labels for sequence in sequences]
    finished = [len(sequence) < max_lengths[row] for row, sequence in zip(sentences, sequences, strict=True)]
    rows = torch.tensor(sentences, device=memory.mask.device)
    inputs, _ = pad_rows([[limits.bos, *sequence] for sequence in sequences], BLANK)
    outputs, _ = pad_rows([[*sequence, limits.eos] for sequence in sequences], BLANK)
    memories = Memory(select(memory.states, rows), select(memory.mask, rows))
    decoded, _ = decoder(inputs.to(rows.device), decoder.start(memories))
    scores = decoded.states.gather(2, outputs.to(rows.device).unsqueeze(2)).squeeze(2).tolist()
    slots = None if look is None else _find_slots(sequences, decoder, memories)
    hypotheses: list[list[Hypothesis]] = [[] for _ in labels]
    for row, (sentence, sequence, has_ended) in enumerate(zip(sentences, sequences, finished, strict=True)):
        log_probs = tuple(scores[row][: len(sequence) + has_ended])
        total = sum(log_probs)
        maps = None
        if look is not None and slots is not None:
            weights = slots[row][: len(log_probs)].unsqueeze(0) if "weights" in look.record else None
            maps = Maps(collect_maps((), (), memory, sentence).encoder, (Map(weights),))
        hypotheses[sentence].append(Hypothesis(sequence, total, total, log_probs, has_ended, maps))
    best = [tuple(sorted(ranked, key=lambda each: -each.score)[:num_best]) for ranked in hypotheses]
    return [SearchResult(ranked, _make_trace(ranked, limits.eos) if trace else None) for ranked in best]


def _find_slots(sequences: Sequence[Labels], decoder: CTCDecoder, memory: Memory) -> Tensor:
    """p(slot s is the first of label l | x, y) for every label, [R, L + 1, S]; the end is at the last real slot."""
    log_probs, mask = decoder.slot_labels(memory)
    labels, label_mask = pad_rows(sequences, BLANK)
    labels, label_mask = labels.to(mask.device), label_mask.to(mask.device)
    first = label_posteriors(forward_backward(log_probs.double(), mask, labels, label_mask))
    end = (mask & ~torch.nn.functional.pad(mask, (0, 1))[:, 1:]).to(first)
    slots = torch.cat((first, end.unsqueeze(1)), 1)
    lengths = label_mask.sum(1)
    slots[torch.arange(len(slots)), lengths] = end
    return slots.view(*slots.shape[:2], -1, decoder.upsample).sum(-1)


def _make_trace(hypotheses: Sequence[Hypothesis], eos: int) -> Trace:
    """The tree of the hypotheses: a search over slots does not extend all prefixes label by label."""
    candidates: list[Candidate] = []
    indices: dict[Labels, int] = {}
    for rank, hypothesis in enumerate(hypotheses):
        tokens = (*hypothesis.tokens, eos) if hypothesis.finished else hypothesis.tokens
        totals = accumulate(hypothesis.log_probabilities)
        for step, (token, log_prob, total) in enumerate(
            zip(tokens, hypothesis.log_probabilities, totals, strict=True), 1
        ):
            is_last = step == len(tokens)
            if tokens[:step] in indices and not is_last:
                continue
            fate, why = "kept", "begins a result"
            if is_last:
                fate, why = (
                    ("finished", "all slots are read") if hypothesis.finished else ("cut", "the limit is reached")
                )
            indices.setdefault(tokens[:step], len(candidates))
            parent = indices.get(tokens[: step - 1])
            score = hypothesis.score if is_last else None
            candidates.append(Candidate(step, parent, token, log_prob, total, rank, fate, why, score))
    return Trace(tuple(candidates))

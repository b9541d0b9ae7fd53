"""Decoding limits, and the decoding step that all searches share."""

from dataclasses import dataclass

from heedful.errors import require

require("torch", extra="train", whose="heedful.search")

import torch
from torch import Tensor, nn

from heedful.model.seq2seq import output_projection
from heedful.nn.contract import Decoder, Look, Maps, Memory, State, Tree, select
from heedful.nn.layers import promote_to_fp32
from heedful.search.filters import Filter, ForcedPrefix
from heedful.search.hypotheses import check_prefix


@dataclass(frozen=True, slots=True)
class DecodingLimits:
    """Start and end tokens, length limits, forced prefixes and filters of a search."""

    bos: int
    eos: int
    max_length: int | tuple[int, ...]  # in tokens, the end token included; for all sentences, or one for each
    min_length: int = 0  # no end token before this many tokens
    prefix: tuple[tuple[int, ...], ...] | None = None  # tokens that each sentence must begin with
    suppress_tokens: tuple[int, ...] = ()  # tokens that are never produced, such as the start token
    renormalize: bool = False  # whether the other tokens share the probability of suppressed ones, as in CTranslate2
    filters: tuple[Filter, ...] = ()

    def max_lengths(self, num_sentences: int) -> list[int]:
        lengths = [self.max_length] * num_sentences if isinstance(self.max_length, int) else list(self.max_length)
        if len(lengths) != num_sentences:
            raise ValueError(f"got {len(lengths)} maximum lengths for {num_sentences} sentences")
        if min(lengths, default=1) < 1:
            raise ValueError(f"max_length must be at least 1, got {min(lengths)}")
        return lengths


@dataclass(frozen=True, slots=True)
class StepOutput:
    """The distributions of one step, before and after filters."""

    log_probs: Tensor  # [R, V] by the model, -inf for suppressed tokens and for an end token before min_length
    filtered: Tensor  # [R, V] after filters and prefix; the same tensor if there are none
    prefix_log_probs: Tensor | None  # [R, T - 1] of the tokens that were read after the first, if any
    maps: Maps | None


@dataclass(slots=True)
class DecodingState:
    """The state of a search between two steps, for all rows of the batch."""

    decoder: Decoder
    limits: DecodingLimits
    look: Look | None
    state: State
    tokens: Tensor  # [R, t] so far
    filter_states: tuple[Tree, ...]
    forced: Tensor  # [R, longest prefix] the token that is forced at each step, or -1
    logits_buffer: Tensor

    def step(self, last: Tensor) -> StepOutput:
        """Read the tokens [R, T] and compute the distribution of the next. The next step overwrites the result."""
        decoded, state = self.decoder(last, self.state, self.look)
        prefix_log_probs = self._prefix_log_probs(decoded.states, last) if last.size(1) > 1 else None
        log_probs = self._log_probs(decoded.states[:, -1])
        if self.tokens.size(1) < self.limits.min_length and log_probs.size(1) > 1:
            log_probs[:, self.limits.eos] = -torch.inf
        for token in self.limits.suppress_tokens:
            log_probs[:, token] = -torch.inf
        if self.limits.renormalize:
            log_probs = log_probs.log_softmax(-1)
        filtered, filter_states = log_probs, []
        for filter_, filter_state in zip(self.limits.filters, self.filter_states, strict=True):
            filtered, filter_state = filter_(filtered, self.tokens, filter_state)
            filter_states.append(filter_state)
        if self.tokens.size(1) < self.forced.size(1):  # a prefix overrides all filters
            forced, _ = ForcedPrefix(())(log_probs, self.tokens, self.forced)
            filtered = torch.where(self.forced[:, self.tokens.size(1)].unsqueeze(1) < 0, filtered, forced)
        self.state, self.filter_states = state, tuple(filter_states)
        return StepOutput(log_probs, filtered, prefix_log_probs, decoded.maps)

    def _log_probs(self, states: Tensor) -> Tensor:
        """[R, D] -> log-probabilities [R, V], in a buffer that the next call overwrites."""
        output = output_projection(self.decoder)
        if not isinstance(output, nn.Linear) or states.dtype is not torch.float32:
            return promote_to_fp32(self.decoder.project(states)).log_softmax(-1)
        # Reuse one buffer at every step: allocating a tensor of this size is slower.
        logits = self.logits_buffer.resize_(states.size(0), output.out_features)
        if output.bias is None:
            torch.mm(states, output.weight.t(), out=logits)
        else:
            torch.addmm(output.bias, states, output.weight.t(), out=logits)
        return torch.log_softmax(logits, -1, out=logits)

    def _prefix_log_probs(self, states: Tensor, tokens: Tensor) -> Tensor:
        """Log-probabilities of tokens 1, 2, .. from the states before them, one step at a time to save memory."""
        steps = [
            self._log_probs(states[:, step]).gather(1, tokens[:, step + 1 : step + 2])
            for step in range(tokens.size(1) - 1)
        ]
        return torch.cat(steps, 1)

    def advance(self, rows: Tensor | None, tokens: Tensor, sentences: Tensor | None) -> None:
        """Continue the rows `rows` (None: all, in order) with one token each.

        `sentences` are the rows of a shared source that continue (None: all, in order).
        """
        source, past, shared = self.state.source, self.state.past, self.state.shared
        source_rows = sentences if shared else rows
        if source_rows is not None:
            source = select(source, source_rows)
        if rows is not None:
            past, self.filter_states = select(past, rows), select(self.filter_states, rows)
            self.tokens, self.forced = self.tokens.index_select(0, rows), self.forced.index_select(0, rows)
        self.state = State(source, past, shared)
        self.tokens = torch.cat((self.tokens, tokens.unsqueeze(1)), 1)


def start_decoding(
    decoder: Decoder, memory: Memory, limits: DecodingLimits, look: Look | None
) -> tuple[DecodingState, Tensor]:
    """The state before the first step, and the tokens [B, 1 + c] that this step reads.

    The first c tokens, where c is the length of the shortest prefix, are read together after the start token; the rest
    of longer prefixes is forced token by token.
    """
    rows, device = memory.mask.size(0), memory.mask.device
    prefixes = limits.prefix or ((),) * rows
    if len(prefixes) != rows:
        raise ValueError(f"got {len(prefixes)} prefixes for {rows} sentences")
    for prefix, max_length in zip(prefixes, limits.max_lengths(rows), strict=True):
        check_prefix(prefix, max_length, limits.eos)
    common = min(map(len, prefixes), default=0)
    tokens = torch.tensor([row[:common] for row in prefixes], dtype=torch.long, device=device).view(rows, common)
    forced = ForcedPrefix(tuple(row[common:] for row in prefixes)).start(tokens)
    filter_states = tuple(filter_.start(tokens) for filter_ in limits.filters)
    buffer = torch.empty(0, dtype=torch.float32, device=device)
    bos = torch.full((rows, 1), limits.bos, dtype=torch.long, device=device)
    decoding = DecodingState(decoder, limits, look, decoder.start(memory), tokens, filter_states, forced, buffer)
    return decoding, torch.cat((bos, tokens), 1)

"""What every search obeys, and the steps that every search takes."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from heedful.model.seq2seq import output_of
from heedful.nn.contract import Decoder, Look, Maps, Memory, State, Tree, select
from heedful.nn.layers import precise
from heedful.search.filters import Filter, Forced


@dataclass(frozen=True, slots=True)
class Rules:
    """Where a sequence starts and ends, how long it may be, what it must begin with and what may come next."""

    bos: int
    eos: int
    limit: int | tuple[int, ...]  # most tokens, the end token not counted where it comes in time; or one per sentence
    minimum: int = 0  # no end token before this many tokens
    prefix: tuple[tuple[int, ...], ...] | None = None  # what each sentence must begin with
    filters: tuple[Filter, ...] = ()

    def limits(self, sentences: int) -> list[int]:
        """The limit of each sentence."""
        limits = [self.limit] * sentences if isinstance(self.limit, int) else list(self.limit)
        if len(limits) != sentences:
            raise ValueError(f"{len(limits)} limits were given for {sentences} sentences")
        if min(limits, default=1) < 1:
            raise ValueError(f"a limit must allow at least 1 token, got {min(limits)}")
        return limits


@dataclass(frozen=True, slots=True)
class Step:
    """One step of all rows: what the model says and what the rules leave of it."""

    model: Tensor  # [R, V] log-probabilities
    shaped: Tensor  # [R, V] after minimum length, prefix and filters; the same tensor where they did not apply
    given: Tensor | None  # [R, T - 1] log-probabilities of the tokens that were read after the first, if any
    maps: Maps | None


@dataclass(slots=True)
class Walk:
    """Everything that moves with the rows of one search from step to step."""

    decoder: Decoder
    rules: Rules
    filters: tuple[Filter, ...]
    look: Look | None
    state: State
    tokens: Tensor  # [R, t] said so far
    memories: tuple[Tree, ...]  # the filters' states
    scratch: Tensor  # where logits are written

    def step(self, last: Tensor) -> Step:
        """Read the tokens [R, T], and say what may come next. What it says is gone with the next step."""
        decoded, state = self.decoder(last, self.state, self.look)
        model = self._log_probs(decoded.states[:, -1])
        if self.tokens.size(1) < self.rules.minimum and model.size(1) > 1:
            model[:, self.rules.eos] = -torch.inf
        shaped, memories = model, []
        for rule, memory in zip(self.filters, self.memories, strict=True):
            shaped, memory = rule(shaped, self.tokens, memory)
            memories.append(memory)
        given = self._given(decoded.states[:, :-1], last[:, 1:]) if last.size(1) > 1 else None
        self.state, self.memories = state, tuple(memories)
        return Step(model, shaped, given, decoded.maps)

    def _log_probs(self, states: Tensor) -> Tensor:
        """[..., D] -> log-probabilities [..., V] in a tensor that nobody else holds."""
        output = output_of(self.decoder)
        if not isinstance(output, nn.Linear) or states.dtype is not torch.float32 or states.dim() > 2:
            return precise(self.decoder.project(states)).log_softmax(-1)
        # A plain matrix: write into memory that is used again at every step. A fresh tensor of this size costs more.
        logits = self.scratch.resize_(states.size(0), output.out_features)
        if output.bias is None:
            torch.mm(states, output.weight.t(), out=logits)
        else:
            torch.addmm(output.bias, states, output.weight.t(), out=logits)
        return torch.log_softmax(logits, -1, out=logits)

    def _given(self, states: Tensor, tokens: Tensor) -> Tensor:
        return self._log_probs(states).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)

    def move(self, rows: Tensor | None, said: Tensor, sentences: Tensor | None) -> None:
        """Continue the rows `rows` (None: all, in order) with the tokens `said`.

        `sentences` are the rows of a shared source that go on (None: all, in order).
        """
        source, past, shared = self.state.source, self.state.past, self.state.shared
        which = sentences if shared else rows
        if which is not None:
            source = select(source, which)
        if rows is not None:
            past, self.memories = select(past, rows), select(self.memories, rows)
            self.tokens = self.tokens.index_select(0, rows)
        self.state = State(source, past, shared)
        self.tokens = torch.cat((self.tokens, said.unsqueeze(1)), 1)


def begin(decoder: Decoder, memory: Memory, rules: Rules, look: Look | None) -> tuple[Walk, Tensor]:
    """The walk before its first step, and the tokens [B, 1 + c] it starts from.

    The c tokens that all prefixes have are read at once with the start token; what longer ones have beyond that is
    forced token by token.
    """
    rows, device = memory.mask.size(0), memory.mask.device
    prefix = rules.prefix or ((),) * rows
    if len(prefix) != rows:
        raise ValueError(f"{len(prefix)} prefixes were given for {rows} sentences")
    for row, limit in zip(prefix, rules.limits(rows), strict=True):
        if len(row) >= limit:
            raise ValueError(f"a prefix of {len(row)} tokens leaves nothing to say within a limit of {limit}")
    common = min(map(len, prefix), default=0)
    said = torch.tensor([row[:common] for row in prefix], dtype=torch.long, device=device).view(rows, common)
    rest = tuple(row[common:] for row in prefix)
    filters = (Forced(rest), *rules.filters) if any(rest) else rules.filters
    memories = tuple(rule.start(rows, device) for rule in filters)
    start = torch.full((rows, 1), rules.bos, dtype=torch.long, device=device)
    walk = Walk(decoder, rules, filters, look, decoder.start(memory), said, memories, memory.states.new_empty(0))
    return walk, torch.cat((start, said), 1)

"""What every search obeys, and the steps that every search takes."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from heedful.model.seq2seq import output_projection
from heedful.nn.contract import Decoder, Look, Maps, Memory, State, Tree, select
from heedful.nn.layers import promote_to_fp32
from heedful.search.filters import Filter, Forced


@dataclass(frozen=True, slots=True)
class Rules:
    """Where a sequence starts and ends, how long it may be, what it must begin with and what may come next."""

    bos: int
    eos: int
    limit: int | tuple[int, ...]  # most steps, the one that says the end token included; or one limit per sentence
    minimum: int = 0  # no end token before this many tokens
    prefix: tuple[tuple[int, ...], ...] | None = None  # what each sentence must begin with
    never: tuple[int, ...] = ()  # tokens that are not words, such as the start token
    spread: bool = False  # whether their probability is shared out among the others, as CTranslate2 does
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

    model: Tensor  # [R, V] log-probabilities, -inf for an end token that comes too soon
    shaped: Tensor  # [R, V] after filters and prefix; the same tensor where there are none
    given: Tensor | None  # [R, T - 1] log-probabilities of the tokens that were read after the first, if any
    maps: Maps | None


@dataclass(slots=True)
class Walk:
    """Everything that moves with the rows of one search from step to step."""

    decoder: Decoder
    rules: Rules
    look: Look | None
    state: State
    tokens: Tensor  # [R, t] said so far
    memories: tuple[Tree, ...]  # the filters' states
    forced: Tensor  # [R, most] what the prefixes still say, -1 where a row is free
    scratch: Tensor  # where logits are written

    def step(self, last: Tensor) -> Step:
        """Read the tokens [R, T], and say what may come next. What it says is gone with the next step."""
        decoded, state = self.decoder(last, self.state, self.look)
        given = self._given(decoded.states, last) if last.size(1) > 1 else None
        model = self._log_probs(decoded.states[:, -1])
        if self.tokens.size(1) < self.rules.minimum and model.size(1) > 1:
            model[:, self.rules.eos] = -torch.inf
        for token in self.rules.never:
            model[:, token] = -torch.inf
        if self.rules.spread:
            model = model.log_softmax(-1)
        shaped, memories = model, []
        for rule, memory in zip(self.rules.filters, self.memories, strict=True):
            shaped, memory = rule(shaped, self.tokens, memory)
            memories.append(memory)
        if self.tokens.size(1) < self.forced.size(1):  # a prefix overrules every filter
            must, _ = Forced(())(model, self.tokens, self.forced)
            shaped = torch.where(self.forced[:, self.tokens.size(1)].unsqueeze(1) < 0, shaped, must)
        self.state, self.memories = state, tuple(memories)
        return Step(model, shaped, given, decoded.maps)

    def _log_probs(self, states: Tensor) -> Tensor:
        """[R, D] -> log-probabilities [R, V], in a tensor of the walk's own that the next call writes over."""
        output = output_projection(self.decoder)
        if not isinstance(output, nn.Linear) or states.dtype is not torch.float32:
            return promote_to_fp32(self.decoder.project(states)).log_softmax(-1)
        # A plain matrix: write into memory that is used again at every step. A fresh tensor of this size costs more.
        logits = self.scratch.resize_(states.size(0), output.out_features)
        if output.bias is None:
            torch.mm(states, output.weight.t(), out=logits)
        else:
            torch.addmm(output.bias, states, output.weight.t(), out=logits)
        return torch.log_softmax(logits, -1, out=logits)

    def _given(self, states: Tensor, tokens: Tensor) -> Tensor:
        """Log-probabilities of tokens 1, 2, .. from the states before them; a step at a time, as V may be large."""
        each = [
            self._log_probs(states[:, step]).gather(1, tokens[:, step + 1 : step + 2])
            for step in range(tokens.size(1) - 1)
        ]
        return torch.cat(each, 1)

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
            self.tokens, self.forced = self.tokens.index_select(0, rows), self.forced.index_select(0, rows)
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
        if rules.eos in row:
            raise ValueError("a prefix cannot contain the end token: nothing would follow it")
        if len(row) >= limit:
            raise ValueError(f"a prefix of {len(row)} tokens leaves nothing to say within a limit of {limit}")
    common = min(map(len, prefix), default=0)
    said = torch.tensor([row[:common] for row in prefix], dtype=torch.long, device=device).view(rows, common)
    forced = Forced(tuple(row[common:] for row in prefix)).start(said)
    memories = tuple(rule.start(said) for rule in rules.filters)
    scratch = torch.empty(0, dtype=torch.float32, device=device)
    start = torch.full((rows, 1), rules.bos, dtype=torch.long, device=device)
    walk = Walk(decoder, rules, look, decoder.start(memory), said, memories, forced, scratch)
    return walk, torch.cat((start, said), 1)

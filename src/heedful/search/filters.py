"""Filters restrict or reweight the next token.

A filter takes log-probabilities [R, V], the tokens so far [R, t] and its own state, and returns new log-probabilities
and a new state. To remove a token, set it to -inf. A filter must leave at least one token per row, must not return
values above 0, and must neither modify nor keep its input, which the next step overwrites. Its state is a tree whose
dim 0 is the row; `select` reorders it with the beams, so a filter can track each hypothesis.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from heedful.errors import require

require("torch", extra="train", whose="heedful.search")

import torch
from torch import Tensor

from heedful.nn.contract import Tree


class Filter(Protocol):
    """(log-probabilities, tokens so far, state) -> (log-probabilities, state)"""

    def start(self, tokens: Tensor) -> Tree:
        """The state after the tokens [R, t] of a prefix (usually empty); None for a stateless filter."""
        ...

    def __call__(self, log_probs: Tensor, tokens: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        """The log-probabilities [R, V] of the tokens that may follow the tokens [R, t]."""
        ...


class Stateless:
    """Base class of filters without state."""

    def start(self, tokens: Tensor) -> Tree:  # noqa: ARG002
        return None


@dataclass(frozen=True, slots=True)
class Temperature(Stateless):
    """p^(1/t) / sum p^(1/t): below 1 sharper, above 1 flatter"""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ValueError(
                f"temperature must be above 0, got {self.temperature}; to always choose the best token, use "
                "greedy search"
            )

    def __call__(self, log_probs: Tensor, tokens: Tensor, state: Tree) -> tuple[Tensor, Tree]:  # noqa: ARG002
        return (log_probs / self.temperature).log_softmax(-1), state


@dataclass(frozen=True, slots=True)
class TopK(Stateless):
    """Keep only the k most probable tokens"""

    k: int = 50

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"top-k must be at least 1, got {self.k}")

    def __call__(self, log_probs: Tensor, tokens: Tensor, state: Tree) -> tuple[Tensor, Tree]:  # noqa: ARG002
        best = log_probs.topk(min(self.k, log_probs.size(-1)), -1)
        return torch.full_like(log_probs, -torch.inf).scatter_(-1, best.indices, best.values), state


@dataclass(frozen=True, slots=True)
class TopP(Stateless):
    """Keep the smallest set of most probable tokens whose probability reaches p"""

    p: float = 0.9

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise ValueError(f"top-p must be in (0, 1], got {self.p}")

    def __call__(self, log_probs: Tensor, tokens: Tensor, state: Tree) -> tuple[Tensor, Tree]:  # noqa: ARG002
        ordered, order = log_probs.sort(stable=True, dim=-1, descending=True)
        probs = ordered.softmax(-1)
        before = probs.cumsum(-1) - probs  # the probability of all better tokens
        # Tolerate rounding: three tokens of .5, .25, .15 reach .9.
        ordered = ordered.masked_fill(before >= self.p - 8 * torch.finfo(probs.dtype).eps, -torch.inf)
        ordered[..., 0] = log_probs.amax(-1)
        return torch.full_like(log_probs, -torch.inf).scatter_(-1, order, ordered), state


@dataclass(frozen=True, slots=True)
class SuppressTokens(Stateless):
    """Remove these tokens"""

    tokens: tuple[int, ...] = ()

    def __call__(self, log_probs: Tensor, tokens: Tensor, state: Tree) -> tuple[Tensor, Tree]:  # noqa: ARG002
        where = torch.tensor(self.tokens, dtype=torch.long, device=log_probs.device)
        return _restore_empty_rows(log_probs, log_probs.index_fill(-1, where, -torch.inf)), state


@dataclass(frozen=True, slots=True)
class SuppressSequences(Stateless):
    """Remove tokens that would complete one of these sequences"""

    sequences: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not all(self.sequences):
            raise ValueError("a suppressed sequence must have at least one token")

    def __call__(self, log_probs: Tensor, tokens: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        banned = torch.zeros_like(log_probs, dtype=torch.bool)
        for *start, last in self.sequences:
            if len(start) <= tokens.size(1):
                recent = tokens[:, tokens.size(1) - len(start) :]
                banned[:, last] |= (recent == recent.new_tensor(start)).all(-1)
        return _restore_empty_rows(log_probs, log_probs.masked_fill(banned, -torch.inf)), state


@dataclass(frozen=True, slots=True)
class NoRepeatNgram(Stateless):
    """Remove tokens that would repeat an n-gram of the hypothesis"""

    n: int = 3

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"the n-gram size must be at least 1, got {self.n}")

    def __call__(self, log_probs: Tensor, tokens: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        length = tokens.size(1)
        if length < self.n:
            return log_probs, state
        grams = tokens.unfold(1, self.n, 1)  # [R, length - n + 1, n]
        recent = tokens[:, length - self.n + 1 :].unsqueeze(1)  # the last n - 1 tokens
        again = (grams[..., :-1] == recent).all(-1)  # [R, length - n + 1]
        banned = torch.zeros_like(log_probs, dtype=torch.bool)
        banned.scatter_reduce_(1, grams[..., -1], again, "amax")
        return _restore_empty_rows(log_probs, log_probs.masked_fill(banned, -torch.inf)), state


@dataclass(frozen=True, slots=True)
class ForcedPrefix:
    """Force row b to begin with tokens[b]"""

    tokens: tuple[tuple[int, ...], ...]

    def start(self, tokens: Tensor) -> Tree:
        """The forced token of each row and step, [R, t + longest prefix], or -1."""
        rows, length = tokens.shape
        if rows != len(self.tokens):
            raise ValueError(f"got {len(self.tokens)} forced prefixes for {rows} sentences")
        longest = max(map(len, self.tokens), default=0)
        forced = [[*[-1] * length, *row, *[-1] * (longest - len(row))] for row in self.tokens]
        return torch.tensor(forced, dtype=torch.long, device=tokens.device).view(rows, length + longest)

    def __call__(self, log_probs: Tensor, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        step = tokens.size(1)
        if step >= state.size(1):
            return log_probs, state
        forced = state[:, step : step + 1]
        index = forced.clamp(min=0)
        only = torch.full_like(log_probs, -torch.inf).scatter_(1, index, log_probs.gather(1, index))
        return torch.where(forced < 0, log_probs, _restore_empty_rows(log_probs, only)), state


FILTERS: dict[str, type[Filter]] = {
    "temperature": Temperature,
    "top_k": TopK,
    "top_p": TopP,
    "suppress_tokens": SuppressTokens,
    "suppress_sequences": SuppressSequences,
    "no_repeat_ngram": NoRepeatNgram,
    "forced_prefix": ForcedPrefix,
}


def _restore_empty_rows(before: Tensor, after: Tensor) -> Tensor:
    """`after`, but with the rows of `before` where every token was removed."""
    empty = after.amax(-1, keepdim=True) == -torch.inf
    return torch.where(empty, before, after) if bool(empty.any()) else after

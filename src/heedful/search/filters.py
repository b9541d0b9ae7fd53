"""Filters: what may come next.

A filter takes log-probabilities [R, V], the tokens so far [R, t] and its own state, and gives back both changed. It
removes a token by -inf, never all of a row, raises none above 0, and leaves its input as it is (and does not keep it:
the next step writes there). Its state is a tree whose dim 0 is the row, moved with the beams by `select`, so a filter
may remember where in a constraint each hypothesis stands.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from heedful.nn.contract import Tree


class Filter(Protocol):
    """(log-probabilities, tokens so far, state) -> (log-probabilities, state)"""

    def start(self, tokens: Tensor) -> Tree:
        """The state after the tokens [R, t] that a prefix has given (mostly none); None for a filter without memory."""
        ...

    def __call__(self, log_probs: Tensor, tokens: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        """What is left of the log-probabilities [R, V] after the tokens [R, t]."""
        ...


class Stateless:
    """What a filter without memory has for a start."""

    def start(self, tokens: Tensor) -> Tree:  # noqa: ARG002
        """Nothing to remember"""
        return None


@dataclass(frozen=True, slots=True)
class Temperature(Stateless):
    """p^(1/t) / sum p^(1/t): below 1 sharper, above 1 flatter"""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ValueError(f"temperature must be above 0, got {self.temperature}; for the best token use greedy")

    def __call__(self, log_probs: Tensor, tokens: Tensor, state: Tree) -> tuple[Tensor, Tree]:  # noqa: ARG002, D102
        return (log_probs / self.temperature).log_softmax(-1), state


@dataclass(frozen=True, slots=True)
class TopK(Stateless):
    """Only the k most probable tokens"""

    k: int = 50

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"top-k keeps at least 1 token, got {self.k}")

    def __call__(self, log_probs: Tensor, tokens: Tensor, state: Tree) -> tuple[Tensor, Tree]:  # noqa: ARG002, D102
        best = log_probs.topk(min(self.k, log_probs.size(-1)), -1)
        return torch.full_like(log_probs, -torch.inf).scatter_(-1, best.indices, best.values), state


@dataclass(frozen=True, slots=True)
class TopP(Stateless):
    """The smallest set of tokens whose probability reaches p; the best token always stays"""

    p: float = 0.9

    def __post_init__(self) -> None:
        if not 0 < self.p <= 1:
            raise ValueError(f"top-p must be in (0, 1], got {self.p}")

    def __call__(self, log_probs: Tensor, tokens: Tensor, state: Tree) -> tuple[Tensor, Tree]:  # noqa: ARG002, D102
        ordered, order = log_probs.sort(stable=True, dim=-1, descending=True)
        chance = ordered.softmax(-1)
        before = chance.cumsum(-1) - chance  # what the better tokens reach together
        # A few units of rounding short of p is p: three tokens of .5, .25, .15 do reach .9.
        ordered = ordered.masked_fill(before >= self.p - 8 * torch.finfo(chance.dtype).eps, -torch.inf)
        ordered[..., 0] = log_probs.amax(-1)
        return torch.full_like(log_probs, -torch.inf).scatter_(-1, order, ordered), state


@dataclass(frozen=True, slots=True)
class Forbid(Stateless):
    """Never these tokens"""

    tokens: tuple[int, ...] = ()

    def __call__(self, log_probs: Tensor, tokens: Tensor, state: Tree) -> tuple[Tensor, Tree]:  # noqa: ARG002, D102
        where = torch.tensor(self.tokens, dtype=torch.long, device=log_probs.device)
        return _spare(log_probs, log_probs.index_fill(-1, where, -torch.inf)), state


@dataclass(frozen=True, slots=True)
class NoRepeat(Stateless):
    """No sequence of n tokens twice in one hypothesis"""

    n: int = 3

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"an n-gram has at least 1 token, got {self.n}")

    def __call__(self, log_probs: Tensor, tokens: Tensor, state: Tree) -> tuple[Tensor, Tree]:  # noqa: D102
        length = tokens.size(1)
        if length < self.n:
            return log_probs, state
        grams = tokens.unfold(1, self.n, 1)  # [R, length - n + 1, n]
        recent = tokens[:, length - self.n + 1 :].unsqueeze(1)  # the n - 1 tokens that the next one would follow
        again = (grams[..., :-1] == recent).all(-1)  # [R, length - n + 1]
        banned = torch.zeros_like(log_probs, dtype=torch.bool)
        banned.scatter_reduce_(1, grams[..., -1], again, "amax")
        return _spare(log_probs, log_probs.masked_fill(banned, -torch.inf)), state


@dataclass(frozen=True, slots=True)
class Forced:
    """The first tokens of each sentence are given: row b must begin with tokens[b]; its state is what is left."""

    tokens: tuple[tuple[int, ...], ...]

    def start(self, tokens: Tensor) -> Tree:
        """What each row has to say at each step, [R, t + most], -1 where it is free."""
        rows, given = tokens.shape
        if rows != len(self.tokens):
            raise ValueError(f"{len(self.tokens)} forced beginnings were given for {rows} sentences")
        most = max(map(len, self.tokens), default=0)
        wanted = [[*[-1] * given, *row, *[-1] * (most - len(row))] for row in self.tokens]
        return torch.tensor(wanted, dtype=torch.long, device=tokens.device).view(rows, given + most)

    def __call__(self, log_probs: Tensor, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:  # noqa: D102
        step = tokens.size(1)
        if step >= state.size(1):
            return log_probs, state
        wanted = state[:, step : step + 1]
        index = wanted.clamp(min=0)
        only = torch.full_like(log_probs, -torch.inf).scatter_(1, index, log_probs.gather(1, index))
        return torch.where(wanted < 0, log_probs, _spare(log_probs, only)), state


FILTERS: dict[str, type[Filter]] = {
    "temperature": Temperature,
    "top_k": TopK,
    "top_p": TopP,
    "forbid": Forbid,
    "no_repeat": NoRepeat,
    "forced": Forced,
}


def _spare(before: Tensor, after: Tensor) -> Tensor:
    """`after`, but rows that would be left with nothing stay as they were."""
    empty = after.amax(-1, keepdim=True) == -torch.inf
    return torch.where(empty, before, after) if bool(empty.any()) else after

"""One token after another: greedy search and sampling."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import torch
from torch import Tensor

from heedful.nn.contract import Decoder, Look, Maps, Memory
from heedful.performance.attribute_cache import cached_attributes
from heedful.search.decoding import Rules, begin
from heedful.search.filters import Filter, Temperature, TopK, TopP
from heedful.search.maps import follow
from heedful.search.topk import best
from heedful.types import Candidate, Found, Hypothesis, Trace

Choose = Callable[[Tensor, Sequence[int]], Tensor]  # shaped log-probabilities [R, V], whose sentences -> tokens [R]


@dataclass(frozen=True, slots=True)
class Greedy:
    """y_t = argmax p(y | y_<t, x): the best token at each step, which need not be the best sequence"""

    def __call__(
        self, decoder: Decoder, memory: Memory, rules: Rules, *, look: Look | None = None, trace: bool = False
    ) -> list[Found]:
        """One hypothesis per sentence."""
        return generate(decoder, memory, rules, lambda shaped, _: best(shaped), look=look, trace=trace)


@dataclass(frozen=True, slots=True)
class Sample:
    """y_t ~ p(y | y_<t, x), after temperature, then top-k, then top-p

    Every sentence has a source of chance of its own, made from the seed and its number (its place in the batch, if no
    numbers are given): what is drawn for it does not depend on the batch it is in.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    numbers: tuple[int, ...] | None = None

    def __call__(
        self, decoder: Decoder, memory: Memory, rules: Rules, *, look: Look | None = None, trace: bool = False
    ) -> list[Found]:
        """One hypothesis per sentence."""
        filters: list[Filter] = [*rules.filters]
        if self.temperature != 1.0:
            filters.append(Temperature(self.temperature))
        if self.top_k is not None:
            filters.append(TopK(self.top_k))
        if self.top_p is not None:
            filters.append(TopP(self.top_p))
        numbers = range(len(memory.mask)) if self.numbers is None else self.numbers
        if len(numbers) != len(memory.mask):
            raise ValueError(f"{len(numbers)} numbers were given for {len(memory.mask)} sentences")
        chance = [Random(f"{self.seed} {number}").random for number in numbers]

        def draw(shaped: Tensor, sentences: Sequence[int]) -> Tensor:
            reached = shaped.double().softmax(-1).cumsum(-1)
            drawn = torch.tensor([[chance[sentence]()] for sentence in sentences], dtype=torch.float64)
            # right: never a token that adds nothing to the sum
            chosen = torch.searchsorted(reached, drawn.to(reached) * reached[:, -1:], right=True)
            return chosen.squeeze(1).clamp(max=shaped.size(1) - 1)

        return generate(decoder, memory, replace(rules, filters=tuple(filters)), draw, look=look, trace=trace)


@dataclass(slots=True)
class _Line:
    """One sentence under way."""

    limit: int
    tokens: list[int] = field(default_factory=list)
    each: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # where it stood in the batch at each step
    considered: list[Candidate] = field(default_factory=list)
    ended: bool = False

    def found(self, maps: Maps | None, trace: bool) -> Found:
        total = sum(self.each)
        answer = Hypothesis(tuple(self.tokens), total, total, tuple(self.each), self.ended, maps)
        return Found((answer,), Trace(tuple(self.considered)) if trace else None)


def generate(
    decoder: Decoder,
    memory: Memory,
    rules: Rules,
    choose: Choose,
    *,
    look: Look | None = None,
    trace: bool = False,
) -> list[Found]:
    """Left to right, one token per step, `choose` deciding; finished sentences leave the batch."""
    with torch.inference_mode(), cached_attributes(decoder):
        walk, last = begin(decoder, memory, rules, look)
        lines = [_Line(limit) for limit in rules.limits(len(last))]
        alive = list(range(len(lines)))  # which sentence each row belongs to
        steps: list[Maps] = []
        while alive:
            step = walk.step(last)
            if step.maps is not None:
                steps.append(step.maps)
            chosen = choose(step.shaped, alive)
            said, values = chosen.tolist(), step.model.gather(1, chosen.unsqueeze(1)).squeeze(1).tolist()
            stay = []
            for row, (sentence, token, value) in enumerate(zip(alive, said, values, strict=True)):
                line = lines[sentence]
                if step.given is not None:
                    _given(line, last[row, 1:].tolist(), step.given[row].tolist(), trace)
                line.rows.append(row)
                line.each.append(value)
                line.ended = token == rules.eos
                if not line.ended:
                    line.tokens.append(token)
                if trace:
                    _consider(line, step.model[row], step.shaped[row], token)
                if not line.ended and len(line.tokens) < line.limit:
                    stay.append(row)
            rows = None
            if len(stay) < len(alive):
                alive = [alive[row] for row in stay]
                rows = torch.tensor(stay, dtype=torch.long, device=last.device)
                chosen = chosen[rows]
            walk.move(rows, chosen, rows)
            last = chosen.unsqueeze(1)
    return [
        line.found(follow(steps[: len(line.rows)], line.rows, memory, sentence) if steps else None, trace)
        for sentence, line in enumerate(lines)
    ]


def _given(line: _Line, tokens: list[int], values: list[float], trace: bool) -> None:
    """Take over what the prefix said."""
    line.tokens.extend(tokens)
    line.each.extend(values)
    if trace:
        line.considered.extend(given_candidates(tokens, values))


def given_candidates(tokens: list[int], values: list[float]) -> list[Candidate]:
    """The trace of a prefix that was read at once."""
    totals = torch.tensor(values, dtype=torch.float64).cumsum(0).tolist()
    return [
        Candidate(step + 1, step - 1 if step else None, token, value, total, 0, "kept", "given as prefix")
        for step, (token, value, total) in enumerate(zip(tokens, values, totals, strict=True))
    ]


def _consider(line: _Line, model: Tensor, shaped: Tensor, token: int) -> None:
    """Trace the token chosen last and the best of the others, where there was another."""
    parent = next((i for i in reversed(range(len(line.considered))) if line.considered[i].fate == "kept"), None)
    before, count = sum(line.each[:-1]), len(line.each)
    if line.ended:
        fate, why = "finished", "the end token was chosen"
    elif count >= line.limit:
        fate, why = "cut", "chosen, and the limit is reached"
    else:
        fate, why = "kept", "chosen"
    leading = shaped.topk(min(2, len(shaped)))
    others = [
        int(other)
        for value, other in zip(leading.values, leading.indices, strict=True)
        if other != token and value > -torch.inf
    ]

    def candidate(said: int, fate: str, why: str) -> Candidate:
        value = float(model[said])
        rank = int((shaped > shaped[said]).sum())
        score = before + value if fate in ("finished", "cut") else None
        return Candidate(count, parent, said, value, before + value, rank, fate, why, score)

    both = [candidate(token, fate, why), *(candidate(other, "pruned", "not chosen") for other in others[:1])]
    line.considered.extend(sorted(both, key=lambda one: one.rank))

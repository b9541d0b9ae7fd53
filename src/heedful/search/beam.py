"""Beam search: keep the best few prefixes at every step."""

from bisect import insort
from dataclasses import dataclass, field, replace

import torch

from heedful.nn.contract import Decoder, Look, Maps, Memory
from heedful.performance.attribute_cache import cached_attributes
from heedful.search.decoding import Rules, Step, begin
from heedful.search.generate import given_candidates
from heedful.search.maps import follow
from heedful.search.topk import top_sums
from heedful.stopping import LENGTHS, STOPPINGS, Standing
from heedful.types import Candidate, Found, Hypothesis, Trace


@dataclass(frozen=True, slots=True)
class Beam:
    """The `best` sequences found by keeping the `size` best prefixes at each step

    2 x size continuations are looked at, so that `size` stay alive even when every prefix ends. An end counts only
    among the `size` best. Scores are L / penalty(n), see LENGTHS; when a sentence is done, see STOPPINGS. A beam of 1
    is greedy search when length="none"; with a length penalty it goes on past an end that a longer answer may beat.
    """

    size: int = 5
    best: int = 1
    length: str = "power"
    length_penalty: float = 1.0
    stopping: str = "exact"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"a beam has at least 1 place, got {self.size}")
        if not 1 <= self.best <= self.size:
            raise ValueError(f"a beam of {self.size} cannot give the best {self.best}: ask for 1 to {self.size}")
        for what, given, table in (("length", self.length, LENGTHS), ("stopping", self.stopping, STOPPINGS)):
            if given not in table:
                raise ValueError(f"{what} {given!r} is unknown; choose from {', '.join(table)}")

    def __call__(
        self, decoder: Decoder, memory: Memory, rules: Rules, *, look: Look | None = None, trace: bool = False
    ) -> list[Found]:
        """Up to `best` hypotheses per sentence, best first."""
        with torch.inference_mode(), cached_attributes(decoder):
            walk, last = begin(decoder, memory, rules, look)
            hunts = [_Hunt(self, rules.eos, limit, trace) for limit in rules.limits(len(last))]
            alive = list(range(len(hunts)))  # the sentences still sought; each has equally many rows, in this order
            steps: list[Maps] = []
            while alive:
                step = walk.step(last)
                active = [hunts[sentence] for sentence in alive]
                if step.maps is not None:
                    steps.append(step.maps)
                if step.given is not None:
                    for row, hunt in enumerate(active):
                        hunt.take(last[row, 1:].tolist(), step.given[row].tolist())
                self._extend(active, step)
                stay = [place for place, hunt in enumerate(active) if not hunt.done]
                alive = [alive[place] for place in stay]
                if alive:
                    nodes = [node for sentence in alive for node in hunts[sentence].live]
                    rows = torch.tensor([node.row for node in nodes], device=last.device)
                    last = torch.tensor([[node.token] for node in nodes], device=last.device)
                    sentences = None if len(stay) == len(active) else torch.tensor(stay, device=last.device)
                    walk.move(rows, last.squeeze(1), sentences)
        return [hunt.found(steps, memory, sentence) for sentence, hunt in enumerate(hunts)]

    def _extend(self, hunts: list["_Hunt"], step: Step) -> None:
        """Give each sentence its 2 x size best continuations."""
        count, rows = len(hunts), len(step.shaped) // len(hunts)
        totals = torch.tensor([[node.total for node in hunt.live] for hunt in hunts], dtype=torch.float64)  # [B, k]
        best, where = top_sums(totals, step.shaped.view(count, rows, -1), 2 * self.size)
        parents, tokens = where // step.shaped.size(1), where % step.shaped.size(1)
        model = step.model.view(count, -1).gather(1, where.to(step.model.device))
        everything = zip(hunts, best.tolist(), parents.tolist(), tokens.tolist(), model.tolist(), strict=True)
        for place, (hunt, *continuations) in enumerate(everything):
            hunt.extend(place * rows, *continuations)


@dataclass(slots=True, eq=False)
class _Node:
    """A prefix: its last token, what it continues, and the row of the batch that proposed it."""

    parent: "_Node | None"
    token: int
    value: float  # log-probability of the token by the model
    total: float  # of the prefix, as ranked
    row: int
    length: int
    index: int | None = None  # its place in the trace

    def path(self) -> list["_Node"]:
        """Every prefix on the way here, without the empty one."""
        nodes = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


def _empty() -> list[_Node]:
    return [_Node(None, -1, 0.0, 0.0, 0, 0)]


@dataclass(slots=True)
class _Hunt:
    """The search for one sentence: its live prefixes, and those that have ended, best first."""

    options: Beam
    eos: int
    limit: int
    tracing: bool
    live: list[_Node] = field(default_factory=_empty)
    ends: list[tuple[float, bool, _Node]] = field(default_factory=list)  # score, by the end token?, last prefix
    considered: list[Candidate] = field(default_factory=list)
    given: int = 0  # tokens that a prefix gave at once
    top_ended: bool = False
    done: bool = False

    def take(self, tokens: list[int], values: list[float]) -> None:
        """Begin with what the prefix said."""
        self.given = len(tokens)
        for token, value in zip(tokens, values, strict=True):
            (node,) = self.live
            index = node.length if self.tracing else None
            self.live = [_Node(node, token, value, node.total + value, 0, node.length + 1, index)]
        if self.tracing:
            self.considered.extend(given_candidates(tokens, values))

    def extend(
        self, first_row: int, totals: list[float], parents: list[int], tokens: list[int], values: list[float]
    ) -> None:
        """Sort the continuations, best first, into kept, ended and pruned; see whether the sentence is done."""
        size = self.options.size
        length = self.live[0].length + 1
        kept: list[_Node] = []
        judged: list[tuple[_Node, int, str, str, float | None]] = []  # for the trace
        for rank, (total, parent, token, value) in enumerate(zip(totals, parents, tokens, values, strict=True)):
            if total == -torch.inf or (len(kept) == size and rank >= size and not self.tracing):
                break
            node = _Node(self.live[parent], token, value, total, first_row + parent, length)
            ended = token == self.eos
            score = None
            if rank < size and (ended or length == self.limit):
                score = total / LENGTHS[self.options.length](length - ended, ended, self.options.length_penalty)
                insort(self.ends, (score, ended, node), key=lambda end: -end[0])
                self.top_ended = self.top_ended or rank == 0
                verdict = ("finished", "ended among the best") if ended else ("cut", "the limit is reached")
            elif ended:
                verdict = ("pruned", "ended outside the beam")
            elif len(kept) < size and length < self.limit:
                kept.append(node)
                verdict = ("kept", "among the best")
            else:
                verdict = ("pruned", "outside the beam")
            if self.tracing:
                judged.append((node, rank, *verdict, score))
        self.done = not kept or self._settled(kept[0].total, length)
        if self.tracing:
            self._record(judged)
        if kept and not self.done:
            self.live = kept
            if len(kept) < size:  # a tiny vocabulary has fewer continuations: the others follow along without any hope
                self.live = kept + [replace(kept[-1], total=-torch.inf)] * (size - len(kept))

    def _settled(self, live: float, length: int) -> bool:
        options = self.options
        return STOPPINGS[options.stopping](
            Standing(
                finished=[score for score, _, _ in self.ends],
                live=live,
                top_ended=self.top_ended,
                step=length,
                limit=self.limit,
                size=options.size,
                best=options.best,
                alpha=options.length_penalty,
                penalty=LENGTHS[options.length],
            )
        )

    def _record(self, judged: list[tuple[_Node, int, str, str, float | None]]) -> None:
        for node, rank, fate, why, score in judged:
            if self.done and fate == "kept":
                fate, why = "pruned", "the search had ended"
            assert node.parent is not None
            node.index = len(self.considered)
            self.considered.append(
                Candidate(node.length, node.parent.index, node.token, node.value, node.total, rank, fate, why, score)
            )

    def found(self, steps: list[Maps], memory: Memory, sentence: int) -> Found:
        """The answer, with its maps where somebody looked."""
        answers = []
        for score, ended, node in self.ends[: self.options.best]:
            path = node.path()
            each = tuple(step.value for step in path)
            tokens = tuple(step.token for step in (path[:-1] if ended else path))
            rows = [step.row for step in path[self.given :]]
            maps = follow(steps[: len(rows)], rows, memory, sentence) if steps else None
            answers.append(Hypothesis(tokens, score, sum(each), each, ended, maps))
        return Found(tuple(answers), Trace(tuple(self.considered)) if self.tracing else None)

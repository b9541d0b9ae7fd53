"""The hypotheses of one sentence during a search, for the searches in PyTorch and in NumPy. No torch."""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice
from math import inf
from typing import Any

from heedful.search.stopping import LENGTH_RULES, STOPPING_RULES, SearchProgress
from heedful.types import Candidate, Hypothesis, Trace


def check_prefix(prefix: Sequence[int], max_length: int, eos: int) -> None:
    """Raise ValueError unless a hypothesis can begin with `prefix` and continue within `max_length`."""
    if eos in prefix:
        raise ValueError("a prefix cannot contain the end token")
    if len(prefix) >= max_length:
        raise ValueError(f"a prefix of {len(prefix)} tokens leaves no room within a maximum length of {max_length}")


def prefix_candidates(tokens: Sequence[int], log_probs: Sequence[float]) -> list[Candidate]:
    """The trace of a prefix that was decoded in one step."""
    totals = islice(accumulate(log_probs, initial=0.0), 1, None)
    return [
        Candidate(step + 1, step - 1 if step else None, token, log_prob, total, 0, "kept", "given as prefix")
        for step, (token, log_prob, total) in enumerate(zip(tokens, log_probs, totals, strict=True))
    ]


# ------------------------------------------------------------------------------------------------------------ beam


@dataclass(frozen=True, slots=True)
class BeamOptions:
    """Beam size, number of hypotheses to return, length penalty and stopping rule."""

    size: int = 5
    num_best: int = 1
    length_rule: str = "power"
    length_penalty: float = 1.0
    stopping: str = "exact"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"beam size must be at least 1, got {self.size}")
        if not 1 <= self.num_best <= self.size:
            raise ValueError(f"num_best must be between 1 and {self.size} (the beam size), but is {self.num_best}")
        for key, name, table in (
            ("length_rule", self.length_rule, LENGTH_RULES),
            ("stopping", self.stopping, STOPPING_RULES),
        ):
            if name not in table:
                raise ValueError(f"{key} {name!r} is unknown; choose from {', '.join(table)}")


@dataclass(slots=True, eq=False)
class PrefixNode:
    """A prefix: its last token, the prefix it continues, and the row of the batch that proposed it."""

    parent: "PrefixNode | None"
    token: int
    log_prob: float  # of the token, by the model
    total: float  # of the prefix, after filters
    row: int
    length: int
    trace_index: int | None = None

    def path(self) -> list["PrefixNode"]:
        """Every prefix from the first token to this one."""
        nodes = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]


def _empty_prefix() -> list[PrefixNode]:
    return [PrefixNode(None, -1, 0.0, 0.0, 0, 0)]


@dataclass(slots=True)
class SentenceBeam:
    """The beam of one sentence: its live prefixes, its finished hypotheses, and whether its search is done."""

    options: BeamOptions
    eos: int
    max_length: int
    tracing: bool = False
    live: list[PrefixNode] = field(default_factory=_empty_prefix)
    finished: list[tuple[float, bool, PrefixNode]] = field(default_factory=list)  # score, ended?, node; best first
    candidates: list[Candidate] = field(default_factory=list)  # the trace
    prefix_length: int = 0  # tokens of a prefix that was decoded in one step
    top_ended: bool = False
    done: bool = False

    def start_with_prefix(self, tokens: list[int], log_probs: list[float]) -> None:
        self.prefix_length = len(tokens)
        for token, log_prob in zip(tokens, log_probs, strict=True):
            (node,) = self.live
            index = node.length if self.tracing else None
            self.live = [PrefixNode(node, token, log_prob, node.total + log_prob, 0, node.length + 1, index)]
        if self.tracing:
            self.candidates.extend(prefix_candidates(tokens, log_probs))

    def extend(
        self,
        first_row: int,
        totals: Sequence[float],
        parents: Sequence[int],
        tokens: Sequence[int],
        log_probs: Sequence[float],
    ) -> None:
        """Classify continuations as kept, finished or pruned, and decide whether the sentence is done.

        Continuations are sorted, best first. Continuation i adds tokens[i] to live[parents[i]], which is row
        first_row + parents[i] of the batch. An end token counts only among the `size` best.
        """
        options, size, eos, max_length = self.options, self.options.size, self.eos, self.max_length
        live, tracing = self.live, self.tracing
        length = live[0].length + 1
        kept: list[PrefixNode] = []
        decisions: list[tuple[PrefixNode, int, str, str, float | None]] = []  # for the trace
        for rank, (total, parent, token, log_prob) in enumerate(zip(totals, parents, tokens, log_probs, strict=True)):
            if total == -inf or (len(kept) == size and rank >= size and not tracing):
                break
            node = PrefixNode(live[parent], token, log_prob, total, first_row + parent, length)
            ended = token == eos
            score = None
            if rank < size and (ended or length == max_length):
                score = total / LENGTH_RULES[options.length_rule](length - ended, ended, options.length_penalty)
                insort(self.finished, (score, ended, node), key=lambda end: -end[0])
                self.top_ended = self.top_ended or rank == 0
                verdict = ("finished", "ended among the best") if ended else ("cut", "the limit is reached")
            elif ended:
                verdict = ("pruned", "ended outside the beam")
            elif len(kept) < size and length < max_length:
                kept.append(node)
                verdict = ("kept", "among the best")
            else:
                verdict = ("pruned", "outside the beam")
            if tracing:
                decisions.append((node, rank, *verdict, score))
        self.done = not kept or self._should_stop(kept[0].total, length)
        if self.tracing:
            self._record(decisions)
        if not self.done:
            self.live = kept

    def pad(self, width: int) -> None:
        """Pad `live` to `width` prefixes with copies of the last one, with a total of -inf."""
        if len(self.live) < width:
            self.live += [replace(self.live[-1], total=-inf)] * (width - len(self.live))

    def _should_stop(self, best_live: float, length: int) -> bool:
        options = self.options
        return STOPPING_RULES[options.stopping](
            SearchProgress(
                finished=[score for score, _, _ in self.finished],
                best_live=best_live,
                top_ended=self.top_ended,
                step=length,
                max_length=self.max_length,
                beam_size=options.size,
                num_best=options.num_best,
                alpha=options.length_penalty,
                penalty=LENGTH_RULES[options.length_rule],
            )
        )

    def _record(self, decisions: list[tuple[PrefixNode, int, str, str, float | None]]) -> None:
        for node, rank, fate, why, score in decisions:
            if self.done and fate == "kept":
                fate, why = "pruned", "the search had ended"
            assert node.parent is not None
            node.trace_index = len(self.candidates)
            parent = node.parent.trace_index
            self.candidates.append(
                Candidate(node.length, parent, node.token, node.log_prob, node.total, rank, fate, why, score)
            )

    def best_hypotheses(self) -> list[tuple[Hypothesis, list[int]]]:
        """The `num_best` hypotheses, each with the row of the batch that proposed its token at each step."""
        results = []
        for score, ended, node in self.finished[: self.options.num_best]:
            path = node.path()
            log_probs = tuple(step.log_prob for step in path)
            tokens = tuple(step.token for step in (path[:-1] if ended else path))
            rows = [step.row for step in path[self.prefix_length :]]
            results.append((Hypothesis(tokens, score, sum(log_probs), log_probs, ended), rows))
        return results

    def trace(self) -> Trace | None:
        return Trace(tuple(self.candidates)) if self.tracing else None


# ------------------------------------------------------------------------------------------------------ single path


@dataclass(slots=True)
class SentencePath:
    """The one hypothesis of a sentence that greedy search or sampling extends token by token."""

    eos: int
    max_length: int
    tracing: bool = False
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # its row of the batch at each step
    candidates: list[Candidate] = field(default_factory=list)  # the trace
    ended: bool = False

    @property
    def done(self) -> bool:
        return self.ended or len(self.tokens) >= self.max_length

    def start_with_prefix(self, tokens: list[int], log_probs: list[float]) -> None:
        self.tokens.extend(tokens)
        self.log_probs.extend(log_probs)
        if self.tracing:
            self.candidates.extend(prefix_candidates(tokens, log_probs))

    def append(self, row: int, token: int, log_prob: float) -> None:
        self.rows.append(row)
        self.log_probs.append(log_prob)
        self.ended = token == self.eos
        if not self.ended:
            self.tokens.append(token)

    def hypothesis(self, maps: Any = None) -> Hypothesis:
        total = sum(self.log_probs)
        return Hypothesis(tuple(self.tokens), total, total, tuple(self.log_probs), self.ended, maps)

    def trace(self) -> Trace | None:
        return Trace(tuple(self.candidates)) if self.tracing else None

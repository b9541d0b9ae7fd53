"""The searches of `heedful.search` in NumPy: no PyTorch, no knowledge of what computes a step.

    answers = found(step, source, past, questions, Search(beam=5))

`step(tokens [R], source, past) -> (log p [R, V], past, attention [R, layers, heads, S] or None)` is all of the model
there is. `source` and `past` are arrays whose axis 0 is the row; `source` never changes, `past` with every token. The
rules are those of the searches in PyTorch, and a law says that both give the same answers.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from heedful.engines.base import Answer, Draw, Question, Search
from heedful.errors import HeedfulError, did_you_mean
from heedful.stopping import LENGTHS, STOPPINGS, Standing
from heedful.text.tokenizer import BOS, EOS, PAD
from heedful.types import Hypothesis

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = Sequence[Array]
Step: TypeAlias = Callable[[Array, Arrays, Arrays], tuple[Array, Arrays, Array | None]]
Choose: TypeAlias = Callable[[Array, Sequence[int]], Array]  # log p [R, V] of those sentences -> tokens [R]

BLOCK = 128


def found(
    step: Step, source: Arrays, past: Arrays, questions: Sequence[Question], search: Search
) -> list[tuple[Answer, ...]]:
    """Up to `search.best` answers to each question, best first; row i of source and past is question i's."""
    for what, name, table in (("length", search.length, LENGTHS), ("stopping", search.stopping, STOPPINGS)):
        if name not in table:
            raise HeedfulError(f"unknown {what} rule `{name}`" + did_you_mean(name, table))
    step = partial(worded, step, search.spread)
    for question in questions:
        if EOS in question.prefix:
            raise ValueError("a prefix cannot contain the end token: nothing would follow it")
        if len(question.prefix) >= question.limit:
            raise ValueError(f"{len(question.prefix)} tokens of prefix leave nothing to say within {question.limit}")
    if search.draw is None and max(search.beam, search.best) > 1:
        return beam(step, source, past, questions, search)
    if search.draw is None:
        return [(one,) for one in one_by_one(step, source, past, questions, greedy, search.attention)]
    times = search.best  # every draw is a question of its own
    asked = [replace(one, number=times * one.number + at) for one in questions for at in range(times)]
    again = np.repeat(np.arange(len(questions)), times)
    chances = [chance(search.draw.seed, question.number) for question in asked]
    choose = partial(drawn, draw=search.draw, chances=chances)
    told = one_by_one(step, picked(source, again), picked(past, again), asked, choose, search.attention)
    groups = (told[at : at + times] for at in range(0, len(told), times))
    return [tuple(sorted(some, key=lambda one: -one.hypothesis.score)) for some in groups]


def worded(step: Step, spread: bool, tokens: Array, source: Arrays, past: Arrays) -> tuple[Array, Arrays, Array | None]:
    """A step in which what is no word is never said; its probability may be spread over what is."""
    log_probs, past, looked = step(tokens, source, past)
    log_probs[:, [PAD, BOS]] = -inf
    if spread:
        log_probs = log_probs - np.logaddexp.reduce(log_probs, -1, keepdims=True)
    return log_probs, past, looked


def picked(arrays: Arrays, rows: Array | Sequence[int]) -> list[Array]:
    """Those rows of every array."""
    return [array.take(rows, 0) for array in arrays]


def followed(seen: Iterable[tuple[Array | None, int]], slots: int) -> Array | None:
    """One row of the attention of each step -> [layers, heads, steps, slots]; None of a model that does not look."""
    rows = [looked[row][..., :slots] for looked, row in seen if looked is not None]
    return np.stack(rows, 2) if rows else None


def forced(log_probs: Array, wanted: Sequence[int]) -> Array:
    """Log p where row r may only say wanted[r], or anything if that is -1."""
    rows = [row for row, token in enumerate(wanted) if token >= 0]
    if not rows:
        return log_probs
    shaped, must = log_probs.copy(), [wanted[row] for row in rows]
    shaped[rows] = -inf
    shaped[rows, must] = log_probs[rows, must]
    return shaped


def due(question: Question, length: int) -> int:
    """What a prefix says after so many tokens; -1 when it is over."""
    return question.prefix[length] if length < len(question.prefix) else -1


# ------------------------------------------------------------------------------------------------------ one by one


@dataclass(slots=True)
class _Line:
    """One sentence under way."""

    tokens: list[int] = field(default_factory=list)
    each: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)  # where it stood in the batch at each step
    ended: bool = False


def one_by_one(
    step: Step, source: Arrays, past: Arrays, questions: Sequence[Question], choose: Choose, attention: bool = False
) -> list[Answer]:
    """One token per step, `choose` deciding where no prefix does; sentences that end leave the batch."""
    lines = [_Line() for _ in questions]
    alive = list(range(len(questions)))
    tokens = np.full(len(alive), BOS)
    seen: list[Array | None] = []
    while alive:
        log_probs, past, looked = step(tokens, source, past)
        seen.append(looked if attention else None)
        length = len(seen) - 1
        tokens = choose(forced(log_probs, [due(questions[sentence], length) for sentence in alive]), alive)
        values = log_probs[np.arange(len(tokens)), tokens].tolist()
        stay = []
        for row, (sentence, token, value) in enumerate(zip(alive, tokens.tolist(), values, strict=True)):
            line = lines[sentence]
            line.rows.append(row)
            line.each.append(value)
            line.ended = token == EOS
            if not line.ended:
                line.tokens.append(token)
                if len(line.tokens) < questions[sentence].limit:
                    stay.append(row)
        if len(stay) < len(alive):
            alive = [alive[row] for row in stay]
            tokens, source, past = tokens[stay], picked(source, stay), picked(past, stay)
    return [
        Answer(
            Hypothesis(tuple(line.tokens), sum(line.each), sum(line.each), tuple(line.each), line.ended),
            followed(zip(seen, line.rows, strict=False), len(question.tokens)),
        )
        for line, question in zip(lines, questions, strict=True)
    ]


def greedy(log_probs: Array, sentences: Sequence[int]) -> Array:  # noqa: ARG001
    """y_t = argmax p(y | y_<t, x)"""
    chosen: Array = log_probs.argmax(-1)
    return chosen


def chance(seed: int, number: int) -> np.random.Generator:
    """What decides the draws of one sentence, wherever it stands."""
    return np.random.Generator(np.random.Philox(key=[seed % 2**64, number % 2**64]))


def drawn(log_probs: Array, sentences: Sequence[int], *, draw: Draw, chances: Sequence[np.random.Generator]) -> Array:
    """y_t ~ p(y | y_<t, x) as shaped: the first token at which the sum of p passes a number drawn from [0, sum)"""
    reached = shares(log_probs.astype(np.float64), draw).cumsum(-1)
    level = np.array([chances[sentence].random() for sentence in sentences]) * reached[:, -1]
    chosen: Array = np.minimum((reached <= level[:, None]).sum(-1), log_probs.shape[1] - 1)
    return chosen


def shares(log_probs: Array, draw: Draw) -> Array:
    """In proportion to p^(1/t); of the k best only; of the fewest best only that together reach p"""
    shaped = log_probs / draw.temperature
    found: Array = np.exp(shaped - shaped.max(-1, keepdims=True))
    if draw.top_k is None and draw.top_p is None:
        return found
    order = np.argsort(-found, axis=-1, kind="stable")
    best_first = np.take_along_axis(found, order, -1)
    if draw.top_k is not None:
        best_first[:, draw.top_k :] = 0.0
    if draw.top_p is not None:
        share = best_first / best_first.sum(-1, keepdims=True)
        before = share.cumsum(-1) - share  # what the better tokens reach together
        # A few units of single precision short of p is p: three tokens of .5, .25, .15 do reach .9.
        out = before >= draw.top_p - 8 * np.finfo(np.float32).eps
        out[:, 0] = False  # the best always stays
        best_first[out] = 0.0
    np.put_along_axis(found, order, best_first, -1)
    return found


# ------------------------------------------------------------------------------------------------------------ beam


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """A prefix: its last token, what it continues, and the row of the batch that proposed it."""

    before: "_Node | None"
    token: int
    value: float  # log p of the token
    total: float  # of the prefix, as ranked
    row: int
    length: int

    def path(self) -> list["_Node"]:
        """Every prefix on the way here, without the empty one."""
        nodes, node = [], self
        while node.before is not None:
            nodes.append(node)
            node = node.before
        return nodes[::-1]


@dataclass(slots=True)
class _Hunt:
    """The search for one sentence: its live prefixes, and those that have ended, best first."""

    live: list[_Node] = field(default_factory=lambda: [_Node(None, BOS, 0.0, 0.0, 0, 0)])
    ends: list[tuple[float, bool, _Node]] = field(default_factory=list)  # score, by the end token?, last prefix
    top_ended: bool = False


def beam(
    step: Step, source: Arrays, past: Arrays, questions: Sequence[Question], search: Search
) -> list[tuple[Answer, ...]]:
    """The `best` sequences found by keeping the best few prefixes at each step

    Of the 2 x size best continuations L + log p, an end counts among the first `size`, and `size` others stay alive.
    An ended one is ranked by L / penalty(n), see LENGTHS; when a sentence is done, see STOPPINGS.
    """
    size = max(search.beam, search.best)
    hunts = [_Hunt() for _ in questions]
    alive = list(range(len(questions)))  # each has equally many rows, in this order
    tokens = np.full(len(alive), BOS)
    own = source  # a copy for each row, made anew only when sentences or widths change
    seen: list[Array | None] = []
    width = 1
    while alive:
        log_probs, past, looked = step(tokens, own, past)
        seen.append(looked if search.attention else None)
        wanted = [due(questions[sentence], len(seen) - 1) for sentence in alive for _ in range(width)]
        shaped = forced(log_probs, wanted).reshape(len(alive), width, -1)
        totals = np.array([[node.total for node in hunts[sentence].live] for sentence in alive])
        sums, parents, said = best_sums(totals, shaped, 2 * size)
        first = np.arange(0, len(tokens), width)[:, None]
        values = log_probs[first + parents, said].tolist()
        everything = zip(sums.tolist(), parents.tolist(), said.tolist(), values, strict=True)
        stay = [
            place
            for place, (sentence, continuations) in enumerate(zip(alive, everything, strict=True))
            if extend(hunts[sentence], questions[sentence], search, size, place * width, *continuations)
        ]
        alive = [alive[place] for place in stay]
        if not alive:
            break
        wide = max(len(hunts[sentence].live) for sentence in alive)
        for live in (hunts[sentence].live for sentence in alive):
            if len(live) < wide:  # where there were fewer continuations, the others follow along without any hope
                live += [replace(live[-1], total=-inf)] * (wide - len(live))
        if wide != width or len(stay) < len(sums):
            source = picked(source, stay)
            own = picked(source, np.repeat(np.arange(len(stay)), wide))
            width = wide
        nodes = [node for sentence in alive for node in hunts[sentence].live]
        past = picked(past, [node.row for node in nodes])
        tokens = np.array([node.token for node in nodes])
    return [told(hunt, question, search, seen) for hunt, question in zip(hunts, questions, strict=True)]


def extend(
    hunt: _Hunt,
    question: Question,
    search: Search,
    size: int,
    first_row: int,
    totals: Sequence[float],
    parents: Sequence[int],
    tokens: Sequence[int],
    values: Sequence[float],
) -> bool:
    """Sort the continuations, best first, into kept, ended and pruned; whether the sentence goes on."""
    penalty, length = LENGTHS[search.length], hunt.live[0].length + 1
    kept: list[_Node] = []
    for rank, (total, parent, token, value) in enumerate(zip(totals, parents, tokens, values, strict=True)):
        if total == -inf or (len(kept) == size and rank >= size):
            break
        ended = token == EOS
        node = _Node(hunt.live[parent], token, value, total, first_row + parent, length)
        if rank < size and (ended or length == question.limit):
            score = total / penalty(length - ended, ended, search.length_penalty)
            insort(hunt.ends, (score, ended, node), key=lambda end: -end[0])
            hunt.top_ended = hunt.top_ended or rank == 0
        elif not ended and len(kept) < size and length < question.limit:
            kept.append(node)
    if not kept:
        return False
    hunt.live = kept
    standing = Standing(
        finished=[score for score, _, _ in hunt.ends],
        live=kept[0].total,
        top_ended=hunt.top_ended,
        step=length,
        limit=question.limit,
        size=size,
        best=search.best,
        alpha=search.length_penalty,
        penalty=penalty,
    )
    return not STOPPINGS[search.stopping](standing)


def told(hunt: _Hunt, question: Question, search: Search, seen: Sequence[Array | None]) -> tuple[Answer, ...]:
    """The best of those that have ended."""
    answers = []
    for score, ended, node in hunt.ends[: search.best]:
        path = node.path()
        each = tuple(step.value for step in path)
        tokens = tuple(step.token for step in (path[:-1] if ended else path))
        looked = followed(zip(seen, (step.row for step in path), strict=False), len(question.tokens))
        answers.append(Answer(Hypothesis(tokens, score, sum(each), each, ended), looked))
    return tuple(answers)


def best_sums(bases: Array, values: Array, k: int) -> tuple[Array, Array, Array]:
    """The k largest bases[b, r] + values[b, r, v] of each b, best first, with their r and v; of equals the first.

    [B, R], [B, R, V] -> three of [B, k], or fewer where there are fewer. The k largest lie in the k blocks with the
    largest maxima, and block maxima are one quick pass.
    """
    groups, _, size = values.shape
    begins = np.arange(0, size, BLOCK)
    peaks = np.maximum.reduceat(values, begins, axis=-1) + bases[:, :, None]
    chosen = largest(peaks.reshape(groups, -1), k)  # [B, k] blocks
    row, column = chosen // len(begins), chosen % len(begins) * BLOCK
    near = column[:, :, None] + np.arange(BLOCK)  # [B, k, BLOCK]
    inside = near < size
    near = np.where(inside, near, 0)
    sums = (
        values[np.arange(groups)[:, None, None], row[:, :, None], near] + np.take_along_axis(bases, row, 1)[..., None]
    )
    sums = np.where(inside, sums, -inf).reshape(groups, -1)
    at = largest(sums, k)
    order = np.argsort(-np.take_along_axis(sums, at, 1), axis=-1, kind="stable")
    at = np.take_along_axis(at, order, 1)
    pick = partial(np.take_along_axis, indices=at, axis=1)
    return pick(sums), np.take_along_axis(row, at // BLOCK, 1), pick(near.reshape(groups, -1))


def largest(values: Array, k: int) -> Array:
    """Where the k largest of each row are, in the order of their places, of equals the first: [B, n] -> [B, k]"""
    groups, size = values.shape
    if k >= size:
        return np.broadcast_to(np.arange(size), values.shape)
    least = np.partition(values, size - k, axis=-1)[:, size - k, None]
    above, equal = values > least, values == least
    room = k - above.sum(-1, keepdims=True)
    return np.nonzero(above | (equal & (equal.cumsum(-1) <= room)))[1].reshape(groups, k)

"""The face that all engines have: sources as tokens in, hypotheses out.

    answers = engine.answers([Question(tokens=(57, 12, EOS), limit=20)], Search(beam=5))

`Question`, `Search` and `Answer` are plain values, so an engine may live in another process or another language.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum, inf
from typing import Any, Protocol

from numpy.typing import NDArray

from heedful.errors import HeedfulError
from heedful.types import Hypothesis

COLDEST = 1e-3
MOST_THREADS = 1024


@dataclass(frozen=True, slots=True)
class Draw:
    """y_t ~ p(y | y_<t, x), after temperature, then top-k, then top-p; the seed and the question's number decide."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not COLDEST <= self.temperature < inf:
            raise HeedfulError(
                f"a temperature must be at least {COLDEST}, not {self.temperature}; for the best token, do not draw"
            )
        if self.top_k is not None and self.top_k < 1:
            raise HeedfulError(f"top-k must leave at least 1 token, not {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise HeedfulError(f"top-p is a share of all probability, above 0 and up to 1, not {self.top_p}")


@dataclass(frozen=True, slots=True)
class Search:
    """How to look for answers: the `best` of a beam, or `best` draws."""

    beam: int = 5
    best: int = 1
    length: str = "power"
    length_penalty: float = 1.0
    draw: Draw | None = None
    attention: bool = False  # whether answers come with their cross-attention
    tokens: bool = True  # whether log p of every token is wanted, which may cost an engine a second pass
    stopping: str = "likely"  # when a beam is done; an engine that has only a rule of its own follows that
    spread: bool = False  # whether what is never said shares out its probability, as in CTranslate2's own searches


@dataclass(frozen=True, slots=True)
class Question:
    """One source as the model reads it: with a tag before it and the end token after it, where it expects them."""

    tokens: tuple[int, ...]
    limit: int  # most steps of an answer
    prefix: tuple[int, ...] = ()  # what an answer must begin with
    number: int = 0  # its place among all that is asked: draws depend on it, and not on the batch it is in


@dataclass(frozen=True, slots=True)
class Answer:
    """A hypothesis, and (on request) where each of its steps looked."""

    hypothesis: Hypothesis
    attention: NDArray[Any] | None = None  # [layers, heads, steps, slots]


def score_of(log_probabilities: Sequence[float], search: Search) -> float:
    """L / n^alpha, the end counted, which a beam ranks by; of one place in the beam, and of draws, L alone."""
    ranked = search.length == "power" and search.draw is None and max(search.beam, search.best) > 1
    return fsum(log_probabilities) / float(max(1, len(log_probabilities)) ** (search.length_penalty if ranked else 0.0))


def by_limit(
    questions: Sequence[Question], searched: Callable[[Sequence[Question], int], list[tuple[Answer, ...]]]
) -> list[tuple[Answer, ...]]:
    """For engines that have one limit for a batch: questions of one limit go together; answers in their order."""
    found: dict[int, tuple[Answer, ...]] = {}
    for limit in {question.limit for question in questions}:
        rows = [row for row, question in enumerate(questions) if question.limit == limit]
        found |= zip(rows, searched([questions[row] for row in rows], limit), strict=True)
    return [found[row] for row in range(len(questions))]


def usable_threads(threads: int | None) -> int | None:
    """A number of threads that a machine can have; None leaves it to the engine."""
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise HeedfulError(f"threads must be 1 to {MOST_THREADS:,}, not {threads:,}")
    return threads


class Engine(Protocol):
    """Anything that can answer."""

    name: str

    def answers(self, questions: Sequence[Question], search: Search) -> list[tuple[Answer, ...]]:
        """Up to `search.best` answers to each question, best first; the questions are one batch."""
        ...

    def given(
        self, questions: Sequence[Question], targets: Sequence[Sequence[int]], *, attention: bool = False
    ) -> list[Answer]:
        """What the model says of given answers: log p of every token and of the end after them, and where it looked."""
        ...

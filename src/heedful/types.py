"""The values that travel between the parts, free of torch."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One answer of a search.

    score ranks the n-best list: a beam's is its total (after filters) normalized by length, else it is log_probability.
    log_probability = sum of `log_probabilities`: what the model itself gives to these tokens and, where the
    hypothesis finished, to the end token after them.
    """

    tokens: tuple[int, ...]  # without the start token, without the end token
    score: float
    log_probability: float
    log_probabilities: tuple[float, ...]  # one per token, and one more for the end token where finished
    finished: bool  # False: cut off by the limit
    maps: Any = None  # `nn.contract.Maps` of this sentence, where a Look asked for them


@dataclass(frozen=True, slots=True)
class Candidate:
    """One continuation that a search considered, and what became of it."""

    step: int  # how many tokens it has, itself included
    parent: int | None  # index in `Trace.candidates` of what it continues; None at the start
    token: int
    log_probability: float  # of this token, by the model
    total: float  # of the whole prefix, as the search ranks it
    rank: int  # among all continuations of this sentence at this step, from 0
    fate: str  # one of FATES
    why: str
    score: float | None = None  # normalized by length, where finished or cut


FATES = ("kept", "finished", "cut", "pruned")


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything a search considered for one sentence, in order."""

    candidates: tuple[Candidate, ...]

    def path(self, index: int) -> tuple[Candidate, ...]:
        """From the first token to candidate `index`."""
        steps = []
        at: int | None = index
        while at is not None:
            steps.append(self.candidates[at])
            at = self.candidates[at].parent
        return tuple(reversed(steps))

    def replay(self) -> tuple[Hypothesis, ...]:
        """Every hypothesis that ended, best first; the search returned as many of the first as it was asked for."""
        ends = [index for index, one in enumerate(self.candidates) if one.fate in ("finished", "cut")]
        answers = []
        for index in ends:
            path, last = self.path(index), self.candidates[index]
            ended = last.fate == "finished"
            each = tuple(one.log_probability for one in path)
            tokens = tuple(one.token for one in (path[:-1] if ended else path))
            assert last.score is not None
            answers.append(Hypothesis(tokens, last.score, sum(each), each, ended))
        return tuple(sorted(answers, key=lambda answer: -answer.score))


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found for one sentence: its hypotheses, best first, and (on request) how it got there."""

    hypotheses: tuple[Hypothesis, ...]
    trace: Trace | None = None

    @property
    def best(self) -> Hypothesis:
        """The first of the hypotheses."""
        return self.hypotheses[0]


@dataclass(frozen=True, slots=True)
class Flag:
    """Something odd about an input or an output, by a name that docs/flags.md explains."""

    name: str
    side: str  # "input" or "output"
    detail: str  # one short sentence for a person, with the numbers


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a translation, and how sure the model was of it."""

    text: str
    log_probability: float


@dataclass(frozen=True, slots=True)
class Translation:
    """A text and what the model says about it; of several sentences, their values are joined and summed."""

    source: str
    text: str
    score: float  # ranks the alternatives
    log_probability: float  # of all tokens and ends
    tokens: tuple[Token, ...] = ()
    alignment: tuple[tuple[int, int], ...] | None = None  # (source word, target word), from 0, where it was asked for
    flags: tuple[Flag, ...] = ()
    alternatives: tuple["Translation", ...] = ()  # the others of the n best
    weights: tuple[tuple[float, ...], ...] | None = None  # of each target word on each source word, where asked for

    def __str__(self) -> str:
        return self.text


def plain(found: Translation) -> dict[str, Any]:
    """A translation as JSON can write it; what is not there is left out."""
    tree = {key: value for key, value in asdict(found).items() if value is not None and key != "alternatives"}
    others = [plain(one) for one in found.alternatives]
    return tree | ({"alternatives": others} if others else {})

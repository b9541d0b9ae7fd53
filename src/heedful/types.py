"""Hypotheses, search traces and translations, which several packages use. No torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One output sequence of a search.

    `score` ranks the n-best list: for a beam it is the total (after filters) normalized by length, otherwise it is
    `log_probability`, the sum of `log_probabilities`.
    """

    tokens: tuple[int, ...]  # without start and end token
    score: float
    log_probability: float
    log_probabilities: tuple[float, ...]  # by the model: one per token, and one for the end token if finished
    finished: bool  # False: truncated at the maximum length
    maps: Any = None  # `nn.contract.Maps` of this sentence, if the search was called with a Look


@dataclass(frozen=True, slots=True)
class Candidate:
    """One continuation that a search considered, and whether it was kept."""

    step: int  # its number of tokens
    parent: int | None  # index in `Trace.candidates` of the prefix it continues; None at the start
    token: int
    log_probability: float  # of this token, by the model
    total: float  # of the whole prefix, as the search ranks it
    rank: int  # among all continuations of this sentence at this step, from 0
    fate: str  # one of FATES
    why: str
    score: float | None = None  # normalized by length, if finished or cut


FATES = ("kept", "finished", "cut", "pruned")


@dataclass(frozen=True, slots=True)
class Trace:
    """All continuations that a search considered for one sentence, in order."""

    candidates: tuple[Candidate, ...]

    def path(self, index: int) -> tuple[Candidate, ...]:
        """The candidates from the first token to candidate `index`."""
        steps = []
        current: int | None = index
        while current is not None:
            steps.append(self.candidates[current])
            current = self.candidates[current].parent
        return tuple(reversed(steps))

    def rebuild_hypotheses(self) -> tuple[Hypothesis, ...]:
        """Every hypothesis that finished or was truncated, best first; the search returned the first `num_best`."""
        hypotheses = []
        for index, last in enumerate(self.candidates):
            if last.fate not in ("finished", "cut"):
                continue
            path, finished = self.path(index), last.fate == "finished"
            log_probs = tuple(candidate.log_probability for candidate in path)
            tokens = tuple(candidate.token for candidate in (path[:-1] if finished else path))
            assert last.score is not None
            hypotheses.append(Hypothesis(tokens, last.score, sum(log_probs), log_probs, finished))
        return tuple(sorted(hypotheses, key=lambda hypothesis: -hypothesis.score))


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hypotheses of one sentence, best first, and (on request) the trace of the search."""

    hypotheses: tuple[Hypothesis, ...]
    trace: Trace | None = None

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]


@dataclass(frozen=True, slots=True)
class Flag:
    """A warning about an input or an output; docs/flags.md explains each name."""

    name: str
    side: str  # "input" or "output"
    detail: str  # one short sentence for readers of the translation
    # The measured values behind the sentence. Flags that differ only in these are equal, so a line has one of them.
    figures: Mapping[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a translation and its log-probability."""

    text: str
    log_probability: float


@dataclass(frozen=True, slots=True)
class Confidence:
    """How good a translated sentence probably is (docs/confidence.md); for a text, its least certain sentence."""

    label: str  # sure, check or unsure
    probability: float  # that chrF is above 50
    expected: float  # chrF
    lower_bound: float  # that chrF reaches with a probability of 90 %


@dataclass(frozen=True, slots=True)
class Translation:
    """A translated text. Scores of several sentences are summed, their other values concatenated."""

    source: str
    text: str
    score: float  # ranks the alternatives
    log_probability: float  # of all tokens and end tokens
    tokens: tuple[Token, ...] = ()
    alignment: tuple[tuple[int, int], ...] | None = None  # (source word, target word), from 0, if requested
    flags: tuple[Flag, ...] = ()
    alternatives: tuple["Translation", ...] = ()  # the rest of the n-best list
    weights: tuple[tuple[float, ...], ...] | None = None  # attention of target words to source words, if requested
    confidence: Confidence | None = None  # if requested, and the model is calibrated

    def __str__(self) -> str:
        return self.text


def translation_to_dict(translation: Translation) -> dict[str, Any]:
    """A translation as a JSON object, without the fields that are None."""
    tree = {key: value for key, value in asdict(translation).items() if value is not None and key != "alternatives"}
    alternatives = [translation_to_dict(alternative) for alternative in translation.alternatives]
    return tree | ({"alternatives": alternatives} if alternatives else {})

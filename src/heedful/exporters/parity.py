"""The proof of an export: does it say the same?

    proof = prove(ours, theirs, texts)        # Proof(sentences=200, same=200, largest=2e-6, ...)

The same sentences are searched by both, and both score our answers: answers must be the same tokens (ties apart), and
log-probabilities the same numbers. A wrong matrix, a swapped special token or a forgotten scale moves the numbers at
once, even where the first words come out right. And both score nonsense in which every piece of both vocabularies
occurs: two words that changed places would go unseen until somebody uses them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan, nan

from heedful.engines.base import EncodedSource, SearchOptions
from heedful.errors import ConfigError, HeedfulError
from heedful.metrics.score import score
from heedful.text.normalize import normalize
from heedful.text.tokenizer import SPECIAL, UNK
from heedful.translation.translator import TranslationOptions, Translator, make_batches

SAME = 0.995  # of the answers, where nothing is rounded
NEAR = 1e-3  # log p of a token, where nothing is rounded
OWN = 80.0  # BLEU of rounded answers against our own, at least
MEAN = 0.1  # difference of log p of a token on average, where something is rounded
STRANGE = 0.5  # the same in nonsense, where a model is less sure of itself
ROW = 30  # pieces in a line of nonsense
TIE = 1e-3  # two answers whose scores are nearer than this are a tie


class ProofError(HeedfulError):
    """An export that does not say what the model says."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class Proof:
    """What was compared, and what came of it."""

    sentences: int
    same: int  # answers with the same tokens
    ties: int  # others, whose scores by our model differ by less than TIE
    largest: float  # difference of log p of a token, in our answers and in nonsense
    mean: float  # difference of log p of a token in our answers
    own: float  # BLEU of their answers against ours: 100 where they are the same
    rounded: bool
    strange: float = 0.0  # mean difference of log p of a token in nonsense
    usual: int | None = None  # answers that are the same where our search ends by its own rule, not by theirs
    bleu: tuple[float, float] | None = None  # of ours and of theirs against the references, where those are known

    @property
    def faults(self) -> list[str]:
        """Why it is no proof."""
        if self.rounded:
            found = [f"BLEU against the model's own answers is {self.own:.1f}"] if not self.own >= OWN else []
            found += [f"log p of a token differs by {self.mean:.2g} on average"] if not self.mean <= MEAN else []
            strange = f"log p of a token in nonsense differs by {self.strange:.2g} on average"
            return found + ([strange] if not self.strange <= STRANGE else [])
        found = []
        if (self.same + self.ties) < SAME * self.sentences:
            found.append(f"{self.sentences - self.same - self.ties} of {self.sentences} answers differ")
        if not self.largest <= NEAR:  # also where it is no number
            found.append(f"log p of a token differs by {self.largest:.3g}")
        return found

    @property
    def line(self) -> str:
        """For the model card and the terminal."""
        ties = f" ({self.ties} more are ties)" if self.ties else ""
        found = [f"{self.same} of {self.sentences} answers are the same tokens{ties}"]
        if self.usual is not None:
            found.append(f"{self.usual} where each search ends by its own rule")
        found.append(f"log p of a token differs by {self.largest:.1e} at most, {self.mean:.1e} on average")
        if self.own < 99.995:
            found.append(f"BLEU against the model's own answers {self.own:.2f}")
        if self.bleu:
            found.append(f"BLEU {self.bleu[1]:.2f}, the model's own {self.bleu[0]:.2f}")
        return "; ".join(found)


def prove(
    ours: Translator,
    theirs: Translator,
    texts: Sequence[str],
    references: Sequence[str] | None = None,
    *,
    stopping: str = "likely",
    rounded: bool = False,
) -> Proof:
    """Compare two translators of the same model; `stopping` is the rule by which theirs ends a search."""
    search = replace(
        ours.search_options(TranslationOptions()), stopping=stopping, renormalize=stopping == "ctranslate2"
    )
    segmented = ours.make_segments([normalize(text)[0] for text in texts], TranslationOptions(), 0)
    questions = [segment.source for some in segmented for segment in some]
    if not questions:
        raise ConfigError("there is nothing to prove it with: the probes are empty")
    mine, other = ours.translate_sources(questions, search), theirs.translate_sources(questions, search)
    said = [[some[0].hypothesis.tokens for some in one] for one in (mine, other)]
    differ = [row for row in range(len(questions)) if said[0][row] != said[1][row]]
    ties = sum(tied(ours, questions[row], said[0][row], said[1][row], search) for row in differ)
    apart = differences(ours, theirs, questions, said[0])
    nonsense = differences(ours, theirs, *alphabet(ours))
    own_rule = ours.search_options(TranslationOptions())
    usual = None
    if own_rule.stopping != stopping:
        alone = [some[0].hypothesis.tokens for some in ours.translate_sources(questions, own_rule)]
        usual = sum(a == b for a, b in zip(alone, said[1], strict=True))
    texts_of = [ours.target.decode(one) for one in said]
    own = score("bleu", texts_of[1], texts_of[0]).value
    bleu = None
    if references and all(len(some) == 1 for some in segmented):
        first, second = (score("bleu", one, list(references)).value for one in texts_of)
        bleu = (first, second)
    return Proof(
        sentences=len(questions),
        same=len(questions) - len(differ),
        ties=ties,
        largest=largest_of(apart if rounded else apart + nonsense),
        strange=sum(nonsense) / len(nonsense),
        usual=usual,
        mean=sum(apart) / len(apart),
        own=own,
        rounded=rounded,
        bleu=bleu,
    )


def alphabet(ours: Translator) -> tuple[list[EncodedSource], list[list[int]]]:
    """Sources and answers in which every piece occurs: neighbors in the lists are not neighbors here."""
    sides = [[UNK, *range(len(SPECIAL), side.size)] for side in (ours.source, ours.target)]
    count = max(1, *(-(-len(side) // ROW) for side in sides))
    sources, targets = ([side[at::count] for at in range(count)] for side in sides)
    questions = [EncodedSource((*(source or [UNK]), *ours.source_end), ROW) for source in sources]
    return questions, targets


def differences(
    ours: Translator, theirs: Translator, questions: Sequence[EncodedSource], said: Sequence[Sequence[int]]
) -> list[float]:
    """How far apart log p of every token of some answers is."""
    lengths = [len(question.tokens) + len(tokens) for question, tokens in zip(questions, said, strict=True)]
    found: list[float] = []
    for rows in make_batches(lengths):
        some = [questions[row] for row in rows], [said[row] for row in rows]
        for one, two in zip(ours.engine.score_targets(*some), theirs.engine.score_targets(*some), strict=True):
            pairs = zip(one.hypothesis.log_probabilities, two.hypothesis.log_probabilities, strict=True)
            found += [abs(a - b) for a, b in pairs]
    return found


def largest_of(values: Sequence[float]) -> float:
    """The largest, or no number where one is none: `max` may pass over it."""
    return nan if any(map(isnan, values)) else max(values)


def tied(
    ours: Translator, question: EncodedSource, one: Sequence[int], other: Sequence[int], search: SearchOptions
) -> bool:
    """Whether our model likes both nearly the same: then the last bits of a sum decided."""
    first, second = ours.engine.score_targets([question, question], [one, other])
    scores = [
        answer.hypothesis.log_probability / max(1, len(answer.hypothesis.log_probabilities)) ** search.length_penalty
        for answer in (first, second)
    ]
    return bool(abs(scores[0] - scores[1]) < TIE)

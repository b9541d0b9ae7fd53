"""The proof of an export: a comparison of its output with the model's.

    proof = prove(ours, theirs, sources)      # Proof(sentences=200, same=200, largest=2e-6, ...)

Both translate the same sentences, and both score our answers. The answers must have the same tokens (except ties) and
equal log-probabilities: a wrong matrix, a swapped special token or a missing scale changes the numbers even if the
first words are right. Both also score nonsense with every piece of both vocabularies, to detect swapped pieces.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import Any

import numpy as np

from heedful.engines.base import EncodedSource, SearchOptions
from heedful.errors import ConfigError, HeedfulError
from heedful.inputs.kinds import make_input
from heedful.metrics.score import score
from heedful.text.normalize import normalize
from heedful.text.tokenizer import SPECIAL, UNK
from heedful.translation.sources import SourceTranslator
from heedful.translation.translator import TranslationOptions, Translator, make_batches

MIN_SAME_SHARE = 0.995  # of answers with the same tokens, in float32
MAX_DIFFERENCE = 1e-3  # of log p of a token, in float32
MIN_QUANTIZED_BLEU = 80.0  # against the model's answers
MAX_QUANTIZED_DIFFERENCE = 0.1  # mean difference of log p of a token
MAX_QUANTIZED_NONSENSE_DIFFERENCE = 0.5  # the same in nonsense, where models are less certain
NONSENSE_PIECES = 30  # per line
TIE_THRESHOLD = 1e-3  # two answers whose scores differ by less are a tie


class ProofError(HeedfulError):
    """An export whose output differs from the model's."""

    exit_code = 4


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a comparison; the field names are keys in export.json."""

    sentences: int
    same: int  # answers with the same tokens
    ties: int  # different answers whose scores by our model differ by less than TIE_THRESHOLD
    largest: float  # difference of log p of a token, in our answers and in nonsense
    mean: float  # difference of log p of a token in our answers
    own: float  # BLEU of their answers against ours: 100 if they are the same
    rounded: bool  # whether the weights are quantized
    strange: float = 0.0  # mean difference of log p of a token in nonsense
    usual: int | None = None  # same answers if our search uses its own stopping rule, not theirs
    bleu: tuple[float, float] | None = None  # ours and theirs against the references, if any

    @property
    def faults(self) -> list[str]:
        """The reasons to reject the export. Each comparison fails for NaN."""
        if self.rounded:
            checks = {
                f"BLEU against the model's output is {self.own:.1f}": self.own >= MIN_QUANTIZED_BLEU,
                f"log p of a token differs by {self.mean:.2g} on average": self.mean <= MAX_QUANTIZED_DIFFERENCE,
                f"log p of a token in nonsense differs by {self.strange:.2g} on average": (
                    self.strange <= MAX_QUANTIZED_NONSENSE_DIFFERENCE
                ),
            }
        else:
            num_different = self.sentences - self.same - self.ties
            checks = {
                f"{num_different} of {self.sentences} translations differ": (
                    self.same + self.ties >= MIN_SAME_SHARE * self.sentences
                ),
                f"log p of a token differs by {self.largest:.3g}": self.largest <= MAX_DIFFERENCE,
            }
        return [fault for fault, passed in checks.items() if not passed]

    @property
    def summary(self) -> str:
        """One line for the model card and the terminal."""
        ties = f" ({self.ties} more are ties)" if self.ties else ""
        parts = [f"{self.same} of {self.sentences} translations have the same tokens{ties}"]
        if self.usual is not None:
            parts.append(f"{self.usual} if each search uses its own stopping rule")
        parts.append(f"log p of a token differs by {self.largest:.1e} at most, {self.mean:.1e} on average")
        if self.own < 99.995:
            parts.append(f"BLEU against the model's output {self.own:.2f}")
        if self.bleu:
            parts.append(f"BLEU {self.bleu[1]:.2f}, the model's {self.bleu[0]:.2f}")
        return "; ".join(parts)


def prove(
    ours: Translator,
    theirs: Translator,
    sources: Sequence[Any],
    references: Sequence[str] | None = None,
    *,
    stopping: str = "likely",
    is_quantized: bool = False,
) -> Proof:
    """Compare two translators of the same model; `stopping` is the stopping rule of their search."""
    search_options = replace(
        ours.search_options(TranslationOptions()), stopping=stopping, renormalize=stopping == "ctranslate2"
    )
    questions = make_questions(ours, sources)
    if not questions:
        raise ConfigError("the probes are empty: add sentences to verify the export with")
    our_answers, their_answers = (
        [candidates[0].hypothesis.tokens for candidates in translator.translate_sources(questions, search_options)]
        for translator in (ours, theirs)
    )
    different = [row for row in range(len(questions)) if our_answers[row] != their_answers[row]]
    ties = sum(is_tie(ours, questions[row], our_answers[row], their_answers[row], search_options) for row in different)
    differences = log_prob_differences(ours, theirs, questions, our_answers)
    nonsense_differences = log_prob_differences(ours, theirs, *make_nonsense(ours))
    own_search = ours.search_options(TranslationOptions())
    num_usual = None
    if own_search.stopping != stopping:
        usual = [candidates[0].hypothesis.tokens for candidates in ours.translate_sources(questions, own_search)]
        num_usual = sum(a == b for a, b in zip(usual, their_answers, strict=True))
    our_texts, their_texts = ours.target.decode(our_answers), ours.target.decode(their_answers)
    bleu = None
    if references and len(questions) == len(references):
        bleu = (
            score("bleu", our_texts, list(references)).value,
            score("bleu", their_texts, list(references)).value,
        )
    return Proof(
        sentences=len(questions),
        same=len(questions) - len(different),
        ties=ties,
        largest=max_or_nan(differences if is_quantized else differences + nonsense_differences),
        strange=sum(nonsense_differences) / len(nonsense_differences),
        usual=num_usual,
        mean=sum(differences) / len(differences),
        own=score("bleu", their_texts, our_texts).value,
        rounded=is_quantized,
        bleu=bleu,
    )


def make_questions(translator: Translator, sources: Sequence[Any]) -> list[EncodedSource]:
    """The sources as the engine reads them."""
    if isinstance(translator, SourceTranslator):
        return [translator.encode(source, TranslationOptions(), number) for number, source in enumerate(sources)]
    lines = translator.make_segments([normalize(text)[0] for text in sources], TranslationOptions(), 0)
    return [segment.source for line in lines for segment in line]


def make_nonsense(translator: Translator) -> tuple[list[EncodedSource], list[list[int]]]:
    """Sources and targets with every piece; neighbors in the vocabulary are not neighbors here."""
    inputs = make_input(translator.bundle.description.input)
    sides = [translator.bundle.tokenizer(side) for side in inputs.text_sides]
    vocabularies = [[UNK, *range(len(SPECIAL), side.size)] for side in sides]
    count = max(1, *(-(-len(vocabulary) // NONSENSE_PIECES) for vocabulary in vocabularies))
    *sources, targets = ([vocabulary[row::count] for row in range(count)] for vocabulary in vocabularies)
    rows: list[Any] = inputs.random_rows(count, np.random.default_rng(0)) if not sources else []
    rows += [(*(source or [UNK]), *translator.source_end) for side in sources for source in side]
    return [EncodedSource(row, NONSENSE_PIECES) for row in rows], targets


def log_prob_differences(
    ours: Translator, theirs: Translator, questions: Sequence[EncodedSource], targets: Sequence[Sequence[int]]
) -> list[float]:
    """The absolute difference of log p of every token of the targets."""
    lengths = [len(source.row) + len(target) for source, target in zip(questions, targets, strict=True)]
    differences: list[float] = []
    for rows in make_batches(lengths):
        batch = [questions[row] for row in rows], [targets[row] for row in rows]
        for answer, other in zip(ours.engine.score_targets(*batch), theirs.engine.score_targets(*batch), strict=True):
            pairs = zip(answer.hypothesis.log_probabilities, other.hypothesis.log_probabilities, strict=True)
            differences += [abs(a - b) for a, b in pairs]
    return differences


def max_or_nan(values: Sequence[float]) -> float:
    """The maximum, or NaN if any value is NaN, which `max` may skip."""
    return nan if any(map(isnan, values)) else max(values)


def is_tie(
    translator: Translator,
    source: EncodedSource,
    first: Sequence[int],
    second: Sequence[int],
    search_options: SearchOptions,
) -> bool:
    """Whether the model scores two targets nearly the same, so rounding decides between them."""
    scores = [
        answer.hypothesis.log_probability
        / max(1, len(answer.hypothesis.log_probabilities)) ** search_options.length_penalty
        for answer in translator.engine.score_targets([source, source], [first, second])
    ]
    return bool(abs(scores[0] - scores[1]) < TIE_THRESHOLD)

"""Words that a model may not use in a translation (`suppress_words` in generation_config.json).

    suppressor = WordSuppressor(compile_words(("bad", "very bad")), engine, tokenizer)
    results = [suppressor.replace_words(*pair, options) for pair in zip(sources, results)]

A source whose best hypothesis contains such a word is translated again, with the token sequences that spelled the word
suppressed, until a hypothesis has none. It is translated alone, so the result does not depend on its batch. All other
sources cost one regular expression, and keep their results.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from math import fsum
from pathlib import Path

from heedful.engines.base import EncodedSource, Engine, EngineResult, SearchOptions
from heedful.errors import ConfigError
from heedful.text.tokenizer import Tokenizer
from heedful.trace import locate_pieces
from heedful.types import Flag

MAX_RETRIES = 8  # then the word is masked
MASK = "***"
Sequences = tuple[tuple[int, ...], ...]
SUPPRESSED = Flag("suppressed", "output", "The first choice contained a word that this model may not use.")


def read_words(path: str | Path) -> tuple[str, ...]:
    """The words or phrases of a UTF-8 file, one per line; blank lines and lines that start with # are skipped."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"the word list {path} cannot be read: {reason}. Pass a text file, one word per line"
        ) from None
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


@lru_cache(maxsize=8)
def compile_words(words: tuple[str, ...]) -> re.Pattern[str] | None:
    r"""A pattern that matches each word or phrase as a whole, in any case; None without words.

    ("bad", "very bad") -> (?<!\w)(?:v(?:ery\s+bad)|b(?:ad))(?!\w); with groups by first letter, few words are compared.
    """
    phrases = sorted({" ".join(word.lower().split()) for word in words} - {""}, reverse=True)  # longer ones first
    groups = []
    for letter, group in groupby(phrases, key=lambda phrase: phrase[0]):
        endings = [r"\s+".join(map(re.escape, phrase[1:].split(" "))) for phrase in group]
        groups.append(f"{re.escape(letter)}(?:{'|'.join(endings)})")
    return re.compile(rf"(?<!\w)(?:{'|'.join(groups)})(?!\w)", re.IGNORECASE) if groups else None


@dataclass(frozen=True, slots=True)
class WordSuppressor:
    """Replaces hypotheses that contain a suppressed word; words of a prefix that the caller forced are kept."""

    pattern: re.Pattern[str]
    engine: Engine
    tokenizer: Tokenizer  # of the target

    def replace_words(
        self, source: EncodedSource, results: tuple[EngineResult, ...], options: SearchOptions
    ) -> tuple[EngineResult, ...]:
        """The results without such words: of the same search if the best one has none, else of another search."""
        clean = self.results_without_words(source, results)
        return clean if clean and clean[0] is results[0] else self.search_again(source, results[:1], options)[0]

    def search_again(
        self, source: EncodedSource, results: tuple[EngineResult, ...], options: SearchOptions
    ) -> tuple[tuple[EngineResult, ...], Sequences]:
        """Search until the best hypothesis has no such word; return the results, and the suppressed sequences.

        If MAX_RETRIES searches are not enough, choose the best hypothesis without such words, or mask them.
        """
        num_best = options.num_best if options.sampling else max(options.beam, options.num_best)
        sequences: Sequences = ()
        for _ in range(MAX_RETRIES):
            if not self.find_words(source, results[0]):
                break
            words = [
                (result.hypothesis.tokens, *span) for result in results for span in self.find_words(source, result)
            ]
            sequences = tuple(dict.fromkeys((*sequences, *(tokens[first:end] for tokens, first, end in words))))
            again = replace(options, num_best=num_best, suppress_sequences=sequences)
            (results,) = self.engine.translate([source], again)
        clean = self.results_without_words(source, results)[: options.num_best]
        return tuple(
            replace(result, suppressed=True) for result in clean or (self.mask_words(source, results[0]),)
        ), sequences

    def results_without_words(self, source: EncodedSource, results: Sequence[EngineResult]) -> tuple[EngineResult, ...]:
        return tuple(result for result in results if not self.find_words(source, result))

    def find_words(self, source: EncodedSource, result: EngineResult) -> list[tuple[int, int]]:
        """The first token, and the one after the last, of each suppressed word that ends after the prefix."""
        tokens = result.hypothesis.tokens
        (text,) = self.tokenizer.decode([tokens])
        matches = list(self.pattern.finditer(text))
        pieces = locate_pieces(self.tokenizer.pieces(tokens), text, has_end=False) if matches else ()
        spans = []
        for match in matches:
            rows = [row for row, piece in enumerate(pieces) if piece.start < match.end() and piece.end > match.start()]
            first, end = (rows[0], rows[-1] + 1) if rows else (0, len(tokens))
            if end > len(source.prefix):
                spans.append((first, end))
        return spans

    def mask_words(self, source: EncodedSource, result: EngineResult) -> EngineResult:
        """The result with MASK for each word; the first token of MASK has the log p and the attention of the word."""
        (mask,) = self.tokenizer.encode([MASK])
        tokens, log_probs = list(result.hypothesis.tokens), list(result.hypothesis.log_probabilities)
        steps = list(range(0 if result.attention is None else result.attention.shape[2]))
        for first, end in reversed(self.find_words(source, result)):
            tokens[first:end] = mask
            steps[first:end] = steps[first : first + 1] * len(mask)
            if log_probs:
                log_probs[first:end] = [fsum(log_probs[first:end]), *[0.0] * (len(mask) - 1)]
        return replace(
            result,
            hypothesis=replace(result.hypothesis, tokens=tuple(tokens), log_probabilities=tuple(log_probs)),
            attention=None if result.attention is None else result.attention.take(steps, 2),
        )

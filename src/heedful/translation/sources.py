"""Models whose sources are not text: pictures, recordings, graphs, and none at all (language models).

captioner = heedful.load("my-captions")
captioner("cat.png").text                       # also PIL images and arrays
transcriber = heedful.load("my-transcripts")
transcriber("seven.wav").text                   # also arrays and `heedful.inputs.sound.Recording`
labeler = heedful.load("my-graphs")
labeler("molecule.npz").text                    # also a `heedful.inputs.graphs.Graph`
model = heedful.load("my-language-model")
model.generate("The cat", sampling=SamplingOptions(top_p=0.9)).text
model.perplexity(["The cat sleeps."])           # per token, per word, and bits per character
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any, Unpack

from heedful.alignment import SPACE, Links
from heedful.bundle import Bundle
from heedful.engines.base import EncodedSource, EngineResult
from heedful.errors import ConfigError, HeedfulError, suggest_arguments
from heedful.inputs.kinds import StoredRow, make_input
from heedful.metrics.perplexity import measure_perplexity
from heedful.text.normalize import normalize
from heedful.translation.translator import (
    BatchCallback,
    TranslationKeywords,
    TranslationOptions,
    Translator,
    add_suppressed_flag,
    check_texts,
    encode_texts,
    join_lines_with_spaces,
    make_batches,
    spell_out_options,
)
from heedful.types import Token, Translation


class SourceTranslator(Translator):
    """A translator whose sources are not text: each is one row, which is never split."""

    @suggest_arguments
    @spell_out_options
    def __call__(self, sources: Any, **options: Unpack[TranslationKeywords]) -> Any:
        """Translate one source or a list of them; `options` are those of `TranslationOptions`."""
        window = sources if isinstance(sources, list | tuple) else [sources]
        translations = list(self.stream([window], TranslationOptions(**options)))
        return translations if isinstance(sources, list | tuple) else translations[0]

    def stream(
        self,
        windows: Iterable[Sequence[Any]],
        options: TranslationOptions,
        on_batch: BatchCallback = lambda _done, _total: None,
    ) -> Iterator[Translation]:
        """Translate every source of every window, in order; the sources of a window are batched together."""
        self.check_options(options)
        first_index, search = 0, self.search_options(options)
        for window in windows:
            encoded = [self.encode(source, options, first_index + number) for number, source in enumerate(window)]
            first_index += len(window)
            results = self.translate_without_words(encoded, search, options.suppress_words, on_batch)
            for source, rankings in zip(window, results, strict=True):
                yield self.assemble(self.name_source(source), rankings[: options.num_best])

    def check_options(self, options: TranslationOptions) -> None:
        """Raise HeedfulError for options that need source text."""
        for name in ("tag", "alignment", "split_sentences"):
            if getattr(options, name) is not None:
                raise HeedfulError(f"`{name}` is for models that translate text: remove it")

    def encode(self, source: Any, options: TranslationOptions, index: int) -> EncodedSource:
        """The row of a source, with the limits of its translation."""
        raise NotImplementedError

    def name_source(self, source: Any) -> str:
        """What results call a source."""
        return str(source)

    def score_targets(
        self, sources: Sequence[Any], targets: Sequence[str], *, attention: bool = False, tag: str | None = None
    ) -> list[EngineResult]:
        """Log p of every token of given outputs, end token included, and (on request) the cross-attention."""
        options = TranslationOptions(tag=tag)
        self.check_options(options)
        if len(sources) != len(targets):
            raise HeedfulError(f"got {len(sources):,} sources but {len(targets):,} outputs")
        target_ids = encode_texts(self.target, check_texts(targets))
        encoded = [self.encode(source, options, index) for index, source in enumerate(sources)]
        return self.score_encoded(encoded, target_ids, [len(ids) + 1 for ids in target_ids], attention=attention)

    def align(self, *_: Any, **_options: Any) -> list[Links]:
        """Not supported: word links need a source text."""
        raise HeedfulError(f"{self.location} does not translate text, so there are no words of a source to link")

    def encode_prefix(self, prefix: str) -> tuple[int, ...]:
        """The tokens of a prefix, which the translation must begin with."""
        tokens = tuple(encode_texts(self.target, [prefix])[0])
        if len(tokens) + 10 > self.max_tokens:
            raise HeedfulError(
                f"the prefix has {len(tokens):,} pieces; this model produces at most {self.max_tokens:,}"
            )
        return tokens

    def assemble(self, source: str, results: Sequence[EngineResult]) -> Translation:
        """A translation with its alternatives."""
        first, *others = (add_suppressed_flag(self.describe(source, result), [result]) for result in results)
        return replace(first, alternatives=tuple(others))

    def describe(self, source: str, result: EngineResult) -> Translation:
        hypothesis = result.hypothesis
        (text,) = self.target.decode([hypothesis.tokens])
        text = join_lines_with_spaces(text)
        pieces = zip(self.target.pieces(hypothesis.tokens), hypothesis.log_probabilities, strict=False)
        tokens = tuple(Token(piece.replace(SPACE, " "), log_prob) for piece, log_prob in pieces)
        return Translation(source, text, hypothesis.score, hypothesis.log_probability, tokens)


class MediaTranslator(SourceTranslator):
    """Describes pictures, transcribes recordings or labels graphs: paths, arrays, or the bytes of files."""

    def encode(self, source: Any, options: TranslationOptions, index: int) -> EncodedSource:
        inputs = make_input(self.bundle.description.input)
        row = source.row if isinstance(source, StoredRow) else inputs.read_row(source)
        if is_per_slot(self.bundle):
            if options.prefix:
                raise HeedfulError("a label has no prefix: remove it")
            num_slots = ceil(len(row) / getattr(self.bundle.model.encoder, "reduction", 1))
            return EncodedSource(row, num_slots + 2, (), index)
        prefix = self.encode_prefix(options.prefix)
        max_length = min(len(prefix) + self.bundle.generation.max_length, self.max_tokens)
        return EncodedSource(row, max_length, prefix, index)

    def name_source(self, source: Any) -> str:
        nouns = make_input(self.bundle.description.input).nouns
        return str(source) if isinstance(source, str | Path) or nouns is None else f"(a {nouns.source})"


class Labeler(SourceTranslator):
    """Labels texts; a blank one has no label. A long text is cut to the length of the longest training text."""

    def stream(
        self,
        windows: Iterable[Sequence[Any]],
        options: TranslationOptions,
        on_batch: BatchCallback = lambda _done, _total: None,
    ) -> Iterator[Translation]:
        """Label every text of every window, in order."""
        for translation in super().stream(windows, options, on_batch):
            yield translation if translation.source.strip() else Translation(translation.source, "", 0.0, 0.0, ())

    def encode(self, source: Any, options: TranslationOptions, index: int) -> EncodedSource:
        if not isinstance(source, str):
            raise HeedfulError("this model labels text: pass a string, or a list of strings")
        if options.prefix:
            raise HeedfulError("a label has no prefix: remove it")
        (ids,) = encode_texts(self.source, [normalize(source)[0]])
        ids = ids[: self.max_source_tokens]
        return EncodedSource((*ids, *self.source_end), len(ids) + 2, (), index)


class LanguageModel(SourceTranslator):
    """Continues texts: a source is the text to continue, which may be empty."""

    def encode(self, source: Any, options: TranslationOptions, index: int) -> EncodedSource:
        if not isinstance(source, str):
            raise HeedfulError("a language model continues text: pass a string, or a list of strings")
        if options.prefix:
            raise HeedfulError("a language model continues its input: pass the prefix as the input")
        prefix = self.encode_prefix(normalize(source)[0])
        max_length = min(len(prefix) + self.bundle.generation.max_length, self.max_tokens)
        return EncodedSource((), max_length, prefix, index)

    def generate(self, text: str = "", **options: Unpack[TranslationKeywords]) -> Translation:
        """Continue a text; with `num_best`, the other continuations are in `alternatives`."""
        continuation: Translation = self(text, **options)
        return continuation

    def perplexity(
        self, texts: Sequence[str], on_batch: Callable[[int, int], object] = lambda _done, _total: None
    ) -> dict[str, float]:
        """Perplexity per token and per word, and bits per character, of texts."""
        tokens, log_probabilities = self.score_texts(texts, on_batch)
        return measure_perplexity(sum(log_probabilities), tokens, texts)

    def score_texts(
        self, texts: Sequence[str], on_batch: Callable[[int, int], object] = lambda _done, _total: None
    ) -> tuple[list[list[int]], list[float]]:
        """The tokens of each text, and the log-probability of the whole text with its end."""
        tokens = encode_texts(self.target, texts)
        for number, ids in enumerate(tokens, 1):
            if len(ids) + 1 > self.max_tokens:
                raise HeedfulError(
                    f"line {number:,} has {len(ids):,} pieces; this model supports at most {self.max_tokens - 1:,}: "
                    "split it into sentences"
                )
        log_probabilities, done = [0.0] * len(tokens), 0
        for rows in make_batches([len(ids) + 1 for ids in tokens]):
            results = self.engine.score_targets([EncodedSource((), 1)] * len(rows), [tokens[row] for row in rows])
            for row, result in zip(rows, results, strict=True):
                log_probabilities[row] = result.hypothesis.log_probability
            done += len(rows)
            on_batch(done, len(tokens))
        return tokens, log_probabilities


def require_text_source(bundle: Bundle, action: str) -> None:
    """Raise a ConfigError if the sources of a model are not text, as `action` needs."""
    if "source" not in bundle.tokenizers:
        raise ConfigError(f"{action} is for models that translate text, and {bundle.folder} does not")


def require_language_model(translator: Translator) -> LanguageModel:
    """The translator, or a ConfigError if it is not a language model."""
    if not isinstance(translator, LanguageModel):
        raise ConfigError(f"{translator.location} is not a language model: use heedful translate")
    return translator


def is_labeler(bundle: Bundle) -> bool:
    """Whether a model produces labels."""
    return bundle.model.decoder.kind == "labels"


def is_per_slot(bundle: Bundle) -> bool:
    """Whether a model produces a label for each slot of its source."""
    return getattr(bundle.model.decoder, "pooling", None) == "none"


TRANSLATORS: dict[str, Callable[..., SourceTranslator]] = {
    "image": MediaTranslator,
    "audio": MediaTranslator,
    "graph": MediaTranslator,
    "none": LanguageModel,
}

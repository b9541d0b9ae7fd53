"""The translator maps texts to `Translation` objects, in order.

    translator = heedful.load("runs/en-de")
    translator("Good morning")                                   # Translation(text="Guten Morgen", score=-0.41, ...)
    translator(["One.", "Two."], beam=1)                         # a list returns a list
    translator("Good morning", num_best=3, alignment="shifted")  # .alternatives, .alignment

A text may have several lines and any length. Each line is translated separately; blank lines stay blank. Lines are
split into sentences if the training lines seldom had several, because such a model leaves out sentences.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from inspect import Parameter, signature
from math import fsum
from typing import Any, TypedDict, TypeVar, Unpack, overload

import numpy as np

from heedful.alignment import SPACE, AlignmentMethod, Array, Links, hard_links, soft_alignment
from heedful.bundle import Bundle
from heedful.confidence import Calibration, Features, measure_features
from heedful.engines.base import EncodedSource, Engine, EngineResult, SamplingOptions, SearchOptions
from heedful.errors import HeedfulError, suggest_arguments
from heedful.sentinel import input_flags, nested_value, output_flags, unknown_ids
from heedful.text.normalize import normalize
from heedful.text.segments import WIDE_CLAUSES, segment_text
from heedful.text.sentences import WIDE_ENDS, split_sentences
from heedful.text.tokenizer import EOS, Tokenizer
from heedful.translation.suppression import SUPPRESSED, WordSuppressor, compile_words
from heedful.types import Confidence, Token, Translation

BATCH_TOKENS = 2048  # of sources in one batch, padding included
BATCH_SENTENCES = 128  # maximum per batch
UNBOUNDED = 1 << 30
MAX_LENGTH_STEP = 64  # maximum lengths are multiples of this: engines with one per batch seldom split a batch
MAX_LENGTH_PENALTY = 8
WIDE_SCRIPTS = {"CJK", "HIRAGANA", "KATAKANA"}
WIDE_STOPS = tuple(WIDE_ENDS + WIDE_CLAUSES)
# Lines are split into sentences unless this share of the training sources, or more, had several. The corpora that were
# measured have 2 % (benchmarks/sentences.py); between 2 % and 100 % the value is a guess.
MULTIPLE_SENTENCES_SHARE = 0.3
BatchCallback = Callable[[int, int], object]  # numbers of translated and of all segments
INDICES_PER_LINE = 1 << 20  # for its segments, so sampling depends only on the line's position


@dataclass(frozen=True, slots=True)
class TranslationOptions:
    """How to translate; None means the default of the model directory."""

    beam: int | None = None
    num_best: int = 1
    length_penalty: float | None = None
    sampling: SamplingOptions | None = None
    prefix: str = ""  # the translation must begin with it
    tag: str | None = None  # put before the source, as in training
    alignment: str | None = None  # naive, shifted, or best: the head that training found to align best
    alignment_threshold: float | None = None  # minimum share of a word's attention for a link; None: only the strongest
    tokens: bool = True  # whether to return log p of every token; some engines are faster without
    soft_alignment: bool = False  # whether to return attention weights of words too
    split_sentences: bool | None = None  # translate the sentences of a line separately; None: as the model was trained
    suppress_words: Sequence[str] | None = None  # words or phrases that no translation may contain; () for none
    confidence: bool = False  # whether to return how sure the model is, which needs attention and the whole n-best list


class TranslationKeywords(TypedDict, total=False):
    """The fields of `TranslationOptions`, for type checkers and editors."""

    beam: int | None
    num_best: int
    length_penalty: float | None
    sampling: SamplingOptions | None
    prefix: str
    tag: str | None
    alignment: str | None
    alignment_threshold: float | None
    tokens: bool
    soft_alignment: bool
    split_sentences: bool | None
    suppress_words: Sequence[str] | None
    confidence: bool


Function = TypeVar("Function", bound=Callable[..., Any])


def spell_out_options(function: Function) -> Function:
    """Replace `**options` in a signature by the fields of `TranslationOptions`, for `help` and completion."""
    own, before = signature(function), list(signature(function).parameters.values())[:-1]
    options = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for field in fields(TranslationOptions)
    ]
    function.__signature__ = own.replace(parameters=[*before, *options])  # type: ignore[attr-defined]
    return function


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a line that is translated separately."""

    text: str
    gap: str  # the space after it
    ids: tuple[int, ...]
    source: EncodedSource


@dataclass(frozen=True, slots=True)
class TranslatedSegment:
    """A segment and one of its translations."""

    segment: Segment
    result: EngineResult
    text: str


class Translator:
    """A model and its tokenizers."""

    def __init__(self, bundle: Bundle, engine: Engine) -> None:
        self.bundle, self.engine = bundle, engine
        self.target = bundle.tokenizer("target")
        self.location = bundle.folder  # the directory that was loaded
        # The length limit of a target, start token included.
        self.max_tokens = bundle.model.max_positions if bundle.model.positions else UNBOUNDED
        self.has_wide_target = is_wide_target(bundle.statistics)
        self.source_end = (EOS,) if bundle.description.source_ends else ()
        self.calibration = read_calibration(bundle, engine)
        if "source" not in bundle.tokenizers:  # `encode_sources` of a subclass replaces what follows
            return
        self.source = bundle.tokenizer("source")
        self.unknown_ids = unknown_ids(self.source)
        longest = int(nested_value(bundle.statistics, "lengths", "source", "longest") or bundle.generation.max_length)
        share_of_multiple = nested_value(bundle.statistics, "sentences", "source") or 0.0
        self.splits_sentences = share_of_multiple < MULTIPLE_SENTENCES_SHARE
        self.max_source_tokens = max(1, min(longest, self.max_tokens - len(self.source_end) - 1))  # room for a tag

    @overload
    def __call__(  # type: ignore[overload-overlap]  # a string is a sequence of strings too: the first one applies
        self, texts: str, **options: Unpack[TranslationKeywords]
    ) -> Translation: ...
    @overload
    def __call__(self, texts: Sequence[str], **options: Unpack[TranslationKeywords]) -> list[Translation]: ...
    @suggest_arguments
    @spell_out_options
    def __call__(
        self, texts: str | Sequence[str], **options: Unpack[TranslationKeywords]
    ) -> Translation | list[Translation]:
        """Translate one text or many; `options` are those of `TranslationOptions`."""
        window = [texts] if isinstance(texts, str) else check_texts(texts)
        translations = list(self.stream([window], TranslationOptions(**options)))
        return translations[0] if isinstance(texts, str) else translations

    def stream(
        self,
        windows: Iterable[Sequence[str]],
        options: TranslationOptions,
        on_batch: BatchCallback = lambda _done, _total: None,
    ) -> Iterator[Translation]:
        """Translate every text of every window, in order; the texts of a window are batched together.

        After every batch, `on_batch` gets the number of translated segments and of all segments of the window.
        """
        first_index, search = 0, self.search_options(options)
        for texts in windows:
            lines_of_texts = [[normalize(line)[0] for line in text.split("\n")] for text in texts]
            lines = [line for lines in lines_of_texts for line in lines]
            segments_of_lines = self.make_segments(lines, options, first_index)
            first_index += len(lines) * INDICES_PER_LINE
            sources = [segment.source for line in segments_of_lines for segment in line]
            results = iter(self.translate_without_words(sources, search, options.suppress_words, on_batch))
            translations = iter(
                [
                    self.assemble_line(line, line_segments, [next(results) for _ in line_segments], options)
                    for line, line_segments in zip(lines, segments_of_lines, strict=True)
                ]
            )
            for text, text_lines in zip(texts, lines_of_texts, strict=True):
                yield join_lines(text, [next(translations) for _ in text_lines])

    def search_options(self, options: TranslationOptions) -> SearchOptions:
        """The engine's options; those that are None get the model's defaults."""
        defaults = self.bundle.generation
        beam = defaults.beam if options.beam is None else options.beam
        penalty = defaults.length_penalty if options.length_penalty is None else options.length_penalty
        threshold = options.alignment_threshold
        if beam < 1 or options.num_best < 1:
            raise HeedfulError("beam and n-best size must be at least 1")
        if not 0 <= penalty <= MAX_LENGTH_PENALTY:
            raise HeedfulError(f"length penalty must be between 0 and {MAX_LENGTH_PENALTY}, not {penalty}")
        if threshold is not None and not 0 < threshold <= 1:
            raise HeedfulError(f"alignment threshold must be above 0 and at most 1, not {threshold}")
        needs_confidence = self.find_calibration(options) is not None
        return SearchOptions(
            max(beam, options.num_best),
            beam if needs_confidence else options.num_best,
            defaults.length_rule,
            penalty,
            options.sampling,
            needs_confidence or options.alignment is not None,
            needs_confidence or options.tokens,
        )

    def make_segments(self, lines: Sequence[str], options: TranslationOptions, first_index: int) -> list[list[Segment]]:
        """The segments of each line: usually its sentences, none for a blank line."""
        segments_of_lines: list[list[Segment]] = []
        tag = self.tag_tokens(options.tag)
        prefix = tuple(encode_texts(self.target, [options.prefix])[0])
        if len(prefix) + 10 > self.max_tokens:
            raise HeedfulError(
                f"the prefix has {len(prefix):,} pieces; this model produces at most {self.max_tokens:,}"
            )
        for parts in self.split_lines(lines, options):
            row: list[Segment] = []
            for text, gap, ids in parts:
                source = EncodedSource(
                    (*tag, *ids, *self.source_end),
                    self.max_target_length(len(ids), len(prefix)),
                    () if row else prefix,
                    first_index + len(row),
                )
                row.append(Segment(text, gap, tuple(ids), source))
            segments_of_lines.append(row)
            first_index += INDICES_PER_LINE
        return segments_of_lines

    def split_lines(self, lines: Sequence[str], options: TranslationOptions) -> list[list[tuple[str, str, list[int]]]]:
        """The parts of each line that are translated separately: text, space after it, tokens.

        No part is longer than the training sources.
        """
        language, target_language = self.bundle.description.source, self.bundle.description.target
        is_split = self.splits_sentences if options.split_sentences is None else options.split_sentences
        # A prefix of several sentences begins the translation of the line, not that of its first sentence.
        is_split = is_split and len(split_sentences(options.prefix, target_language)) <= 1
        parts_of_lines = [split_sentences(line, language) if is_split else [(line, "")] * bool(line) for line in lines]
        ids_of_parts = iter(self.source.encode([text for parts in parts_of_lines for text, _ in parts]))

        def fit(text: str, gap: str, ids: list[int]) -> list[tuple[str, str, list[int]]]:
            if len(ids) <= self.max_source_tokens:
                return [(text, gap, ids)]
            smaller = segment_text(text, self.is_short_enough, language, gap)
            ids_of_smaller = self.source.encode([part for part, _ in smaller])
            return [(*part, part_ids) for part, part_ids in zip(smaller, ids_of_smaller, strict=True)]

        return [
            [segment for text, gap in parts for segment in fit(text, gap, next(ids_of_parts))]
            for parts in parts_of_lines
        ]

    def max_target_length(self, source_tokens: int, prefix_tokens: int = 0) -> int:
        """The number of decoding steps after which a search stops."""
        expected = -(-(2 * source_tokens + 10) // MAX_LENGTH_STEP) * MAX_LENGTH_STEP
        max_length = max(min(self.bundle.generation.max_length, expected), prefix_tokens + 10)
        return min(max_length, self.max_tokens - 1)

    def gap_after(self, segment: Segment) -> str:
        """The space after a segment's translation; added where only the source's script omits it after a full stop."""
        ended = segment.text[-1:] in WIDE_STOPS
        return " " if not segment.gap and ended and not self.has_wide_target else segment.gap

    def tag_tokens(self, name: str | None) -> tuple[int, ...]:
        return () if name is None else (self.source.tag_id(name),)

    def is_short_enough(self, text: str) -> bool:
        """Whether a text is at most as long as the training sources."""
        return len(self.source.encode([text])[0]) <= self.max_source_tokens

    def translate_sources(
        self,
        sources: Sequence[EncodedSource],
        search: SearchOptions,
        on_batch: BatchCallback = lambda _done, _total: None,
    ) -> list[tuple[EngineResult, ...]]:
        """Translate the sources in batches; results in input order."""
        results: dict[int, tuple[EngineResult, ...]] = {}
        for rows in make_batches([len(source.row) for source in sources]):
            results |= zip(rows, self.engine.translate([sources[row] for row in rows], search), strict=True)
            on_batch(len(results), len(sources))
        return [results[row] for row in range(len(sources))]

    def translate_without_words(
        self,
        sources: Sequence[EncodedSource],
        search: SearchOptions,
        words: Sequence[str] | None,
        on_batch: BatchCallback = lambda _done, _total: None,
    ) -> list[tuple[EngineResult, ...]]:
        """Translate the sources, and again those whose translation contains a suppressed word."""
        results = self.translate_sources(sources, search, on_batch)
        suppressor = self.word_suppressor(words)
        if suppressor is None:
            return results
        return [suppressor.replace_words(*pair, search) for pair in zip(sources, results, strict=True)]

    def word_suppressor(self, words: Sequence[str] | None = None) -> WordSuppressor | None:
        """The suppressor of these words, or of the model's if None; None if there are no words."""
        if isinstance(words, str):
            raise HeedfulError("suppress_words must be a list of words, not a string")
        pattern = compile_words(tuple(self.bundle.generation.suppress_words if words is None else words))
        return pattern and WordSuppressor(pattern, self.engine, self.target)

    def assemble_line(
        self,
        line: str,
        line_segments: Sequence[Segment],
        results: Sequence[tuple[EngineResult, ...]],
        options: TranslationOptions,
    ) -> Translation:
        """Join the best results of all segments; alternative n joins the n-th best results."""
        count = min(options.num_best, max(map(len, results), default=1))
        ranked = [[ranking[min(rank, len(ranking) - 1)] for ranking in results] for rank in range(count)]
        first, *others = [
            add_suppressed_flag(self.join_segments(line, line_segments, chosen, options), chosen) for chosen in ranked
        ]
        confidence = self.line_confidence(line_segments, results, options)
        return replace(first, alternatives=tuple(others), confidence=confidence)

    def join_segments(
        self, line: str, line_segments: Sequence[Segment], chosen: Sequence[EngineResult], options: TranslationOptions
    ) -> Translation:
        hypotheses = [result.hypothesis for result in chosen]
        texts = [join_lines_with_spaces(text) for text in self.target.decode([each.tokens for each in hypotheses])]
        parts = [TranslatedSegment(*three) for three in zip(line_segments, chosen, texts, strict=True)]
        text = "".join(part.text + self.gap_after(part.segment) for part in parts).rstrip(" ")
        log_probability = fsum(each.log_probability for each in hypotheses)
        method = None if options.alignment is None else self.alignment_method(options.alignment)
        weights = self.line_attention(parts, method) if method else None
        flags = dict.fromkeys(
            flag
            for segment in line_segments
            for flag in input_flags(segment.text, segment.ids, self.bundle.statistics, self.unknown_ids)
        )
        flags |= dict.fromkeys(
            output_flags(
                line,
                text,
                log_probability=log_probability,
                tokens=sum(len(each.tokens) for each in hypotheses),
                source_tokens=sum(len(segment.ids) for segment in line_segments),
                finished=all(each.finished for each in hypotheses),
                statistics=self.bundle.statistics,
                ends=max(1, len(line_segments)),
                untranslated=[part.segment.text for part in parts if not part.text],
                attention=None if weights is None else weights.sum(0).tolist(),
            )
        )
        tokens = tuple(
            Token(piece.replace(SPACE, " "), log_prob)
            for each in hypotheses
            # `log_probabilities` also has the end token.
            for piece, log_prob in zip(self.target.pieces(each.tokens), each.log_probabilities, strict=False)
        )
        score = fsum(each.score for each in hypotheses)
        translation = Translation(line, text, score, log_probability, tokens, flags=tuple(flags))
        if weights is None:
            return translation
        rounded = tuple(tuple(row) for row in weights.round(4).tolist()) if options.soft_alignment else None
        return replace(translation, alignment=hard_links(weights, options.alignment_threshold), weights=rounded)

    # --------------------------------------------------------------------------------------------- given translations

    def score_targets(
        self, sources: Sequence[str], targets: Sequence[str], *, attention: bool = False, tag: str | None = None
    ) -> list[EngineResult]:
        """Log p of every token of given translations, end token included, and (on request) the cross-attention."""
        if len(sources) != len(targets):
            raise HeedfulError(f"got {len(sources):,} sources but {len(targets):,} translations")
        tag_tokens = self.tag_tokens(tag)
        source_ids, target_ids = (
            encode_texts(tokenizer, check_texts(texts))
            for tokenizer, texts in ((self.source, sources), (self.target, targets))
        )
        encoded = [EncodedSource((*tag_tokens, *ids, *self.source_end), 1) for ids in source_ids]
        lengths = [max(len(row.row), len(ids) + 1) for row, ids in zip(encoded, target_ids, strict=True)]
        return self.score_encoded(encoded, target_ids, lengths, attention=attention)

    def score_encoded(
        self,
        sources: Sequence[EncodedSource],
        targets: Sequence[Sequence[int]],
        lengths: Sequence[int],
        *,
        attention: bool = False,
    ) -> list[EngineResult]:
        """The scores of encoded pairs; HeedfulError if one of the lengths is above the limit of the model."""
        for line, length in enumerate(lengths, 1):
            if length > self.max_tokens:
                raise HeedfulError(
                    f"line {line:,} has {length:,} pieces; this model supports at most {self.max_tokens:,}"
                )
        results: dict[int, EngineResult] = {}
        for rows in make_batches(lengths):
            batch = [sources[row] for row in rows], [targets[row] for row in rows]
            results |= zip(rows, self.engine.score_targets(*batch, attention=attention), strict=True)
        return [results[row] for row in range(len(sources))]

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        alignment: str = "best",
        *,
        threshold: float | None = None,
        tag: str | None = None,
    ) -> list[Links]:
        """The word links of given translations: (source word, target word), from 0."""
        method = self.alignment_method(alignment)
        results = self.score_targets(sources, targets, attention=True, tag=tag)
        return [
            hard_links(self.segment_attention(result, ids, method), threshold)
            for result, ids in zip(results, encode_texts(self.source, sources), strict=True)
        ]

    # ---------------------------------------------------------------------------------------------------- confidence

    def find_calibration(self, options: TranslationOptions) -> Calibration | None:
        """The model's calibration, if confidence is requested. It holds only for the search that it was fitted with."""
        defaults = self.bundle.generation
        is_default_search = (
            options.beam in (None, defaults.beam)
            and options.length_penalty in (None, defaults.length_penalty)
            and options.num_best <= defaults.beam
            and options.sampling is None
            and not options.prefix
        )
        return self.calibration if options.confidence and is_default_search else None

    def line_confidence(
        self,
        line_segments: Sequence[Segment],
        results: Sequence[tuple[EngineResult, ...]],
        options: TranslationOptions,
    ) -> Confidence | None:
        """The confidence of the least certain segment."""
        calibration = self.find_calibration(options)
        if calibration is None:
            return None
        pairs = zip(line_segments, results, strict=True)
        return least_certain(
            [calibration.confidence(self.segment_features(segment.ids, ranking)) for segment, ranking in pairs]
        )

    def segment_features(self, ids: Sequence[int], results: Sequence[EngineResult]) -> Features:
        """The features of a segment's n-best list."""
        hypotheses = [result.hypothesis for result in results]
        texts = self.target.decode([hypothesis.tokens for hypothesis in hypotheses])
        ratio = self.bundle.statistics.get("ratio") or 1.0
        return measure_features(hypotheses, texts, self.attention_to_pieces(results[0], len(ids)), len(ids), ratio)

    def attention_to_pieces(self, result: EngineResult, source_tokens: int) -> Array | None:
        """[target pieces, source pieces] of the head that aligns best; without one, the mean of the last layer's heads.

        CTranslate2 returns only this map, and leaves out the end token.
        """
        end = 0 if result.attention is None else result.attention.shape[-1] - len(self.source_end)
        if result.attention is None or end < source_tokens:
            return None
        stored = self.bundle.statistics.get("alignment") or {}
        layer = stored.get("layer")
        method = AlignmentMethod("naive", len(result.attention) - 1 if layer is None else layer, stored.get("head"))
        return method(result.attention, len(result.hypothesis.tokens))[:, end - source_tokens : end]

    # ---------------------------------------------------------------------------------------------------- alignment

    def alignment_method(self, name: str) -> AlignmentMethod:
        """The alignment method with this name; "best" is the one that training stored for this model."""
        if name != "best":
            return AlignmentMethod(name)
        stored = self.bundle.statistics.get("alignment")
        if not stored:
            raise HeedfulError(f"{self.bundle.folder} does not record which head aligns best: use naive or shifted")
        return AlignmentMethod(**stored)

    def segment_attention(self, result: EngineResult, ids: Sequence[int], method: AlignmentMethod) -> Array:
        """The attention of each word of a segment's translation to each word of the segment."""
        attention, tokens = result.attention, result.hypothesis.tokens
        if attention is None or attention.shape[-1] < len(ids) + len(self.source_end):
            raise HeedfulError("this model has no attention to source words, so it cannot return an alignment")
        first = attention.shape[-1] - len(self.source_end) - len(ids)  # after a tag
        return soft_alignment(
            attention[..., first : first + len(ids)], self.source.pieces(ids), self.target.pieces(tokens), method
        )

    def line_attention(self, parts: Sequence[TranslatedSegment], method: AlignmentMethod) -> Array:
        """The same for a whole line; each segment attends only to itself."""
        blocks, ends, glued = [], [0, 0], [False, False]  # target, source; glued: the next segment continues a word
        for part in parts:
            block = self.segment_attention(part.result, part.segment.ids, method)
            starts = []
            for axis, gap in enumerate((self.gap_after(part.segment), part.segment.gap)):
                starts.append(ends[axis] - (glued[axis] and block.shape[axis] > 0 and ends[axis] > 0))
                ends[axis] = starts[axis] + block.shape[axis]
                glued[axis] = not gap and (block.shape[axis] > 0 or glued[axis])
            blocks.append((starts, block))
        line = np.zeros(ends)
        for (row, column), block in blocks:
            line[row : row + block.shape[0], column : column + block.shape[1]] += block
        return line


def add_suppressed_flag(translation: Translation, chosen: Sequence[EngineResult]) -> Translation:
    """The translation, with the flag `suppressed` if a result replaces one with a suppressed word."""
    is_suppressed = any(result.suppressed for result in chosen)
    return replace(translation, flags=(*translation.flags, SUPPRESSED)) if is_suppressed else translation


def read_calibration(bundle: Bundle, engine: Engine) -> Calibration | None:
    """The calibration of a model; None if it has none, or if the engine returns no attention."""
    stored = bundle.statistics.get("calibration")
    return Calibration(**stored) if stored and getattr(engine, "name", "") != "hugging_face" else None


def least_certain(confidences: Iterable[Confidence | None]) -> Confidence | None:
    """The confidence with the lowest probability; None if there is none."""
    known = [confidence for confidence in confidences if confidence is not None]
    return min(known, key=lambda each: (each.probability, each.expected), default=None)


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """The ids of every text, normalized as training text was."""
    return tokenizer.encode([normalize(text)[0] for text in texts])


def check_texts(texts: Sequence[str]) -> list[str]:
    """The texts as a list; HeedfulError unless they are a sequence of strings."""
    if isinstance(texts, str | bytes) or not all(isinstance(text, str) for text in texts):
        raise HeedfulError("the texts must be a string or a list of strings")
    return list(texts)


def is_wide_target(statistics: Mapping[str, Any]) -> bool:
    """Whether the target is written without spaces between sentences."""
    scripts = nested_value(statistics, "scripts", "target") or {}
    return bool(sum(share for script, share in scripts.items() if script in WIDE_SCRIPTS) > 0.5)


def join_lines_with_spaces(text: str) -> str:
    """The text on one line: byte pieces can produce line breaks."""
    return text.replace("\r", " ").replace("\n", " ").strip()


def make_batches(lengths: Sequence[int]) -> list[list[int]]:
    """Group rows of similar length to reduce padding; longest first, so running out of memory shows early."""
    batches: list[list[int]] = []
    longest = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        batch = batches[-1] if batches else []
        if batch and len(batch) < BATCH_SENTENCES and (len(batch) + 1) * longest <= BATCH_TOKENS:
            batch.append(row)
        else:
            batches.append([row])
            longest = lengths[row]
    return batches


def join_lines(text: str, lines: Sequence[Translation]) -> Translation:
    """The translations of a text's lines as one translation."""
    if len(lines) == 1:
        others = tuple(replace(alternative, source=text) for alternative in lines[0].alternatives)
        return replace(lines[0], source=text, alternatives=others)
    return Translation(
        text,
        "\n".join(line.text for line in lines),
        fsum(line.score for line in lines),
        fsum(line.log_probability for line in lines),
        tuple(token for line in lines for token in line.tokens),
        None,
        tuple(dict.fromkeys(flag for line in lines for flag in line.flags)),
        confidence=least_certain(line.confidence for line in lines),
    )

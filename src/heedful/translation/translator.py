"""The translator: text in, `Translation` out, order kept.

    translator = heedful.load("runs/en-de")
    translator("Good morning")                                  # Translation(text="Guten Morgen", score=-0.41, ...)
    translator(["One.", "Two."], beam=1)                        # a list gives a list
    translator("Good morning", best=3, alignment="shifted")     # .alternatives, .alignment

A text may have several lines and any length: lines are translated one by one and stay lines, a line that is longer than
those the model was trained on is cut into sentences, and blank lines stay blank. What goes together into a batch is
decided here alone, in `batches`; engines know tokens only.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path
from typing import Any, overload

import numpy as np

from heedful.alignment import SPACE, Array, Links, Reading, hard, soft
from heedful.bundle import Bundle, open_bundle
from heedful.engines.base import Answer, Draw, Engine, Question, Search
from heedful.errors import HeedfulError, did_you_mean, require
from heedful.exported import is_export, open_export
from heedful.sentinel import input_flags, nested_value, output_flags, unknown_ids
from heedful.text.normalize import normalize
from heedful.text.segments import WIDE_CLAUSES, WIDE_ENDS, segments
from heedful.text.tokenizer import EOS, Tokenizer, order_of
from heedful.types import Token, Translation

BATCH_TOKENS = 2048  # of sources in one batch, padding included
ROWS = 128  # sentences in one batch at most
UNBOUNDED = 1 << 30
ROOM = 64  # limits are multiples of this: engines that have one limit for a batch seldom have to cut it
LARGEST_PENALTY = 8
WIDE_SCRIPTS = {"CJK", "HIRAGANA", "KATAKANA"}
WIDE_STOPS = tuple(WIDE_ENDS + WIDE_CLAUSES)
PARTS = 1 << 20  # numbers kept for the parts of a line, so that a draw depends on the line's place alone


def _torch(bundle: Bundle, folder: Path, **options: Any) -> Engine:  # noqa: ARG001  # same face as the others
    require("torch", extra="train", whose="heedful.load")
    from heedful.engines.torch import opened

    return opened(bundle, **options)


def _ctranslate2(bundle: Bundle, folder: Path, **options: Any) -> Engine:
    from heedful.engines.ctranslate2 import opened

    sides = (bundle.tokenizer(side) for side in ("source", "target"))
    pieces = [side.pieces(range(side.size)) for side in sides]
    return opened(folder, *pieces, ends=bundle.description.source_ends, **options)


def _hugging_face(bundle: Bundle, folder: Path, **options: Any) -> Engine:
    require("torch", extra="train", whose="this export")
    from heedful.engines.hugging_face import opened

    return opened(folder, *(order_of(bundle.tokenizer(side)) for side in ("source", "target")), **options)


def _onnx(bundle: Bundle, folder: Path, **options: Any) -> Engine:  # noqa: ARG001  # same face as the others
    from heedful.engines.onnx import opened

    return opened(folder, **options)


ENGINES: dict[str, Callable[..., Engine]] = {
    "torch": _torch,
    "ctranslate2": _ctranslate2,
    "hugging_face": _hugging_face,
    "onnx": _onnx,
}


def load(
    folder: str | Path, *, others: Iterable[str | Path] = (), engine: str | None = None, **options: Any
) -> "Translator":
    """A translator from a model directory, a run or an export; all is verified before anything is allocated.

    With `others`, further runs or model directories of the same vocabulary, it is their ensemble.
    """
    if engine is not None and engine not in ENGINES:
        raise HeedfulError(f"unknown engine `{engine}`" + did_you_mean(engine, ENGINES))
    others = list(others)
    if others and engine not in (None, "torch"):
        raise HeedfulError(f"an ensemble runs in PyTorch, not in {engine}")
    for one in (folder, *others) if others else ():
        if is_export(Path(one)):
            raise HeedfulError(f"an ensemble is made of runs or model directories; {one} is an export")
    if is_export(Path(folder)):
        export = open_export(folder)
        if engine not in (None, export.about.engine):
            raise HeedfulError(f"{folder} is an export for {export.about.engine}, not for {engine}")
        translator = Translator(export.bundle, ENGINES[export.about.engine](export.bundle, export.folder, **options))
        translator.place = export.folder
        return translator
    bundle = open_bundle(folder)
    if others:
        options["others"] = [member(open_bundle(one), bundle) for one in others]
    return Translator(bundle, ENGINES[engine or "torch"](bundle, bundle.folder, **options))


def member(bundle: Bundle, first: Bundle) -> Bundle:
    """Another model of an ensemble, where it speaks the language of the first."""
    for side in ("source", "target"):
        own, other = bundle.tokenizer(side), first.tokenizer(side)
        if own.size != other.size or own.pieces(range(own.size)) != other.pieces(range(other.size)):
            raise HeedfulError(
                f"{first.folder} and {bundle.folder} have different vocabularies ({side} side). Models for an ensemble "
                "are trained on the same files, such as with --set seed=2"
            )
    return bundle


@dataclass(frozen=True, slots=True)
class Options:
    """How to translate; what is None is as the model directory says."""

    beam: int | None = None
    best: int = 1
    length_penalty: float | None = None
    draw: Draw | None = None
    prefix: str = ""  # how the translation must begin
    tag: str | None = None  # put before the source, as in training
    alignment: str | None = None  # naive, shifted, or best: the head that training found to align best
    least: float | None = None  # of a word's attention that makes a link; None: each word has its strongest
    tokens: bool = True  # whether log p of every token is wanted; some engines are quicker without
    soft: bool = False  # whether the weights themselves are given beside the links


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a line that is translated by itself."""

    text: str
    gap: str  # the space after it
    ids: tuple[int, ...]
    question: Question


@dataclass(frozen=True, slots=True)
class Part:
    """A segment and one answer to it."""

    segment: Segment
    answer: Answer
    text: str


class Translator:
    """A model and its tokenizers."""

    def __init__(self, bundle: Bundle, engine: Engine) -> None:
        self.bundle, self.engine = bundle, engine
        self.source, self.target = (bundle.tokenizer(side) for side in ("source", "target"))
        self.place = bundle.folder  # what was loaded; of an export, the whole of it
        self.unknown = unknown_ids(self.source)
        self.most = bundle.model.slots if bundle.model.positions else UNBOUNDED  # pieces of an answer, start included
        self.wide = wide(bundle.statistics)
        self.end = (EOS,) if bundle.description.source_ends else ()
        longest = int(nested_value(bundle.statistics, "lengths", "source", "longest") or bundle.generation.limit)
        self.longest = max(1, min(longest, self.most - len(self.end) - 1))  # and a tag

    @overload
    def __call__(self, texts: str, **options: Any) -> Translation: ...
    @overload
    def __call__(self, texts: Sequence[str], **options: Any) -> list[Translation]: ...
    def __call__(self, texts: str | Sequence[str], **options: Any) -> Translation | list[Translation]:
        """One text or many; `options` are those of `Options`."""
        many = [texts] if isinstance(texts, str) else listed(texts)
        found = list(self.stream([many], Options(**options)))
        return found[0] if isinstance(texts, str) else found

    def stream(self, windows: Iterable[Sequence[str]], options: Options) -> Iterator[Translation]:
        """Every text of every window, in order; those of one window are translated together."""
        asked, search = 0, self.search(options)
        for texts in windows:
            lines = [[normalize(line)[0] for line in text.split("\n")] for text in texts]
            flat = [line for some in lines for line in some]
            segmented = self.segmented(flat, options, asked)
            every = [segment for some in segmented for segment in some]
            asked += len(flat) * PARTS
            answers = iter(self.answered([segment.question for segment in every], search))
            found = iter(
                [
                    self.line(line, some, [next(answers) for _ in some], options)
                    for line, some in zip(flat, segmented, strict=True)
                ]
            )
            for text, some in zip(texts, lines, strict=True):
                yield together(text, [next(found) for _ in some])

    def search(self, options: Options) -> Search:
        """What the engine is told."""
        usual = self.bundle.generation
        beam = usual.beam if options.beam is None else options.beam
        penalty = usual.length_penalty if options.length_penalty is None else options.length_penalty
        if beam < 1 or options.best < 1:
            raise HeedfulError("a beam, and the best of it, must be 1 or more")
        if not 0 <= penalty <= LARGEST_PENALTY:
            raise HeedfulError(f"a length penalty lies between 0 and {LARGEST_PENALTY}, not {penalty}")
        if options.least is not None and not 0 < options.least <= 1:
            raise HeedfulError(f"the least share of attention lies above 0 and up to 1, not {options.least}")
        return Search(
            max(beam, options.best),
            options.best,
            usual.length,
            penalty,
            options.draw,
            options.alignment is not None,
            options.tokens,
        )

    def segmented(self, lines: Sequence[str], options: Options, asked: int) -> list[list[Segment]]:
        """What of each line is translated by itself: nothing of a blank one, mostly all of it."""
        found: list[list[Segment]] = []
        tag = self.tag(options.tag)
        prefix = tuple(encoded(self.target, [options.prefix])[0])
        if len(prefix) + 10 > self.most:
            raise HeedfulError(f"the prefix has {len(prefix):,} pieces; this model can say {self.most:,} at most")
        for line, ids in zip(lines, self.source.encode(lines), strict=True):
            parts = [(line, "", ids)] if line else []
            if len(ids) > self.longest:
                cut = segments(line, self.fits)
                parts = [
                    (text, gap, own)
                    for (text, gap), own in zip(cut, self.source.encode([text for text, _ in cut]), strict=True)
                ]
            row: list[Segment] = []
            for text, gap, own in parts:
                room = -(-(2 * len(own) + 10) // ROOM) * ROOM
                limit = max(min(self.bundle.generation.limit, room), len(prefix) + 10)
                question = Question(
                    (*tag, *own, *self.end), min(limit, self.most - 1), () if row else prefix, asked + len(row)
                )
                row.append(Segment(text, gap, tuple(own), question))
            found.append(row)
            asked += PARTS
        return found

    def gap(self, segment: Segment) -> str:
        """What stands after its translation: a space also after a full stop that needs none in the source's script."""
        ended = segment.text[-1:] in WIDE_STOPS
        return " " if not segment.gap and ended and not self.wide else segment.gap

    def tag(self, name: str | None) -> tuple[int, ...]:
        """The tokens that a tag is: one, or none."""
        return () if name is None else (self.source.tag(name),)

    def fits(self, text: str) -> bool:
        """Whether it is no longer than what was trained on."""
        return len(self.source.encode([text])[0]) <= self.longest

    def answered(self, questions: Sequence[Question], search: Search) -> list[tuple[Answer, ...]]:
        """The answers to all questions, in their order, batch by batch."""
        answers: dict[int, tuple[Answer, ...]] = {}
        for rows in batches([len(question.tokens) for question in questions]):
            answers |= zip(rows, self.engine.answers([questions[row] for row in rows], search), strict=True)
        return [answers[row] for row in range(len(questions))]

    def line(
        self, line: str, some: Sequence[Segment], answers: Sequence[tuple[Answer, ...]], options: Options
    ) -> Translation:
        """One line from its segments: the best answer to each, and as alternatives the second of each, the third ..."""
        count = max(map(len, answers), default=1)
        ranked = [[every[min(rank, len(every) - 1)] for every in answers] for rank in range(count)]
        first, *others = [self.ranked(line, some, chosen, options) for chosen in ranked]
        return replace(first, alternatives=tuple(others))

    def ranked(self, line: str, some: Sequence[Segment], chosen: Sequence[Answer], options: Options) -> Translation:
        """One answer to each segment, joined."""
        hypotheses = [answer.hypothesis for answer in chosen]
        texts = [one_line(text) for text in self.target.decode([one.tokens for one in hypotheses])]
        parts = [Part(*three) for three in zip(some, chosen, texts, strict=True)]
        text = "".join(part.text + self.gap(part.segment) for part in parts).rstrip(" ")
        sure = fsum(one.log_probability for one in hypotheses)
        flags = dict.fromkeys(
            flag
            for segment in some
            for flag in input_flags(segment.text, segment.ids, self.bundle.statistics, self.unknown)
        )
        flags |= dict.fromkeys(
            output_flags(
                line,
                text,
                log_probability=sure,
                tokens=sum(len(one.tokens) for one in hypotheses),
                source_tokens=sum(len(segment.ids) for segment in some),
                finished=all(one.finished for one in hypotheses),
                statistics=self.bundle.statistics,
                ends=max(1, len(some)),
            )
        )
        tokens = tuple(
            Token(piece.replace(SPACE, " "), value)
            for one in hypotheses
            for piece, value in zip(
                self.target.pieces(one.tokens), one.log_probabilities, strict=False
            )  # the end apart
        )
        score = fsum(one.score for one in hypotheses)
        found = Translation(line, text, score, sure, tokens, flags=tuple(flags))
        if options.alignment is None:
            return found
        weights = self.weights(parts, self.reading(options.alignment))
        shown = tuple(tuple(row) for row in weights.round(4).tolist()) if options.soft else None
        return replace(found, alignment=hard(weights, options.least), weights=shown)

    # ------------------------------------------------------------------------------------------------ given answers

    def given(
        self, sources: Sequence[str], targets: Sequence[str], *, attention: bool = False, tag: str | None = None
    ) -> list[Answer]:
        """What the model says of given translations: log p of every token and end, and (on request) where it looked."""
        if len(sources) != len(targets):
            raise HeedfulError(f"{len(sources):,} sources but {len(targets):,} translations: they must be as many")
        first = self.tag(tag)
        questions = [Question((*first, *ids, *self.end), 1) for ids in encoded(self.source, listed(sources))]
        wanted = encoded(self.target, listed(targets))
        for line, (one, other) in enumerate(zip(questions, wanted, strict=True), 1):
            if max(len(one.tokens), len(other) + 1) > self.most:
                pieces = max(len(one.tokens), len(other) + 1)
                raise HeedfulError(f"line {line:,} has {pieces:,} pieces; this model can hold {self.most:,}")
        lengths = [max(len(one.tokens), len(other) + 1) for one, other in zip(questions, wanted, strict=True)]
        found: dict[int, Answer] = {}
        for rows in batches(lengths):
            some = [questions[row] for row in rows], [wanted[row] for row in rows]
            found |= zip(rows, self.engine.given(*some, attention=attention), strict=True)
        return [found[row] for row in range(len(questions))]

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        alignment: str = "best",
        *,
        least: float | None = None,
        tag: str | None = None,
    ) -> list[Links]:
        """Which words of given translations came from which: (source word, target word), from 0."""
        reading = self.reading(alignment)
        answers = self.given(sources, targets, attention=True, tag=tag)
        return [
            hard(self.looked(answer, ids, reading), least)
            for answer, ids in zip(answers, encoded(self.source, sources), strict=True)
        ]

    # ---------------------------------------------------------------------------------------------------- alignment

    def reading(self, name: str) -> Reading:
        """How to read links off attention."""
        if name != "best":
            return Reading(name)
        told = self.bundle.statistics.get("alignment")
        if not told:
            raise HeedfulError(f"{self.bundle.folder} does not say which head aligns best: take naive or shifted")
        return Reading(**told)

    def looked(self, answer: Answer, ids: Sequence[int], reading: Reading) -> Array:
        """How much each word of an answer looked at each word of its segment."""
        attention, tokens = answer.attention, answer.hypothesis.tokens
        if attention is None or attention.shape[-1] < len(ids) + len(self.end):
            raise HeedfulError("this model does not look at the words of its source, so there is no alignment")
        first = attention.shape[-1] - len(self.end) - len(ids)  # a tag
        return soft(
            attention[..., first : first + len(ids)], self.source.pieces(ids), self.target.pieces(tokens), reading
        )

    def weights(self, parts: Sequence[Part], reading: Reading) -> Array:
        """The same of a whole line, whose segments look at themselves alone."""
        blocks, ends, glued = [], [0, 0], [False, False]  # of target and source; is the last word still open?
        for part in parts:
            block = self.looked(part.answer, part.segment.ids, reading)
            begins = []
            for axis, gap in enumerate((self.gap(part.segment), part.segment.gap)):
                begins.append(ends[axis] - (glued[axis] and block.shape[axis] > 0 and ends[axis] > 0))
                ends[axis] = begins[axis] + block.shape[axis]
                glued[axis] = not gap and (block.shape[axis] > 0 or glued[axis])
            blocks.append((begins, block))
        whole = np.zeros(ends)
        for (row, column), block in blocks:
            whole[row : row + block.shape[0], column : column + block.shape[1]] += block
        return whole


def encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Ids of every text, normalized as training text was."""
    return tokenizer.encode([normalize(text)[0] for text in texts])


def listed(texts: Sequence[str]) -> list[str]:
    """Texts, and nothing that only looks like them."""
    if isinstance(texts, str | bytes) or not all(isinstance(one, str) for one in texts):
        raise HeedfulError("give a text, or a list of texts")
    return list(texts)


def wide(statistics: Mapping[str, Any]) -> bool:
    """Whether the target is written without spaces between sentences."""
    scripts = nested_value(statistics, "scripts", "target") or {}
    return bool(sum(share for script, share in scripts.items() if script in WIDE_SCRIPTS) > 0.5)


def one_line(text: str) -> str:
    """Without the line breaks that a model can spell with bytes: a line in is a line out."""
    return text.replace("\r", " ").replace("\n", " ").strip()


def batches(lengths: Sequence[int]) -> list[list[int]]:
    """Which questions go together: of like length, so that little is padded; the longest first, so that memory shows
    early whether it is enough.
    """
    found: list[list[int]] = []
    longest = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if found and len(found[-1]) < ROWS and (len(found[-1]) + 1) * longest <= BATCH_TOKENS:
            found[-1].append(row)
        else:
            found.append([row])
            longest = lengths[row]
    return found


def together(text: str, lines: Sequence[Translation]) -> Translation:
    """The lines of one text as one translation."""
    if len(lines) == 1:
        others = tuple(replace(one, source=text) for one in lines[0].alternatives)
        return replace(lines[0], source=text, alternatives=others)
    return Translation(
        text,
        "\n".join(line.text for line in lines),
        fsum(line.score for line in lines),
        fsum(line.log_probability for line in lines),
        tuple(token for line in lines for token in line.tokens),
        None,
        tuple(dict.fromkeys(flag for line in lines for flag in line.flags)),
    )

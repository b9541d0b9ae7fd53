"""`heedful.inspect(...)`: a page that shows how a model translates sentences."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heedful.config import CTCSettings
from heedful.corpus.text_files import suggest_path
from heedful.engines.base import EncodedSource, SearchOptions
from heedful.errors import ConfigError, HeedfulError, require, suggest_arguments
from heedful.html import write_html
from heedful.inputs.kinds import Box, GraphInput, make_input
from heedful.inspection.figure import render_svg
from heedful.inspection.lecture import arithmetic_places, attach_lecture, parse_lecture
from heedful.inspection.live import LiveModel, describe_model, make_live_model
from heedful.inspection.page import render_page, wrap_in_iframe
from heedful.text.normalize import normalize
from heedful.trace import (
    MAX_SOUND_CHARS,
    SNAPSHOTS,
    Lecture,
    Piece,
    Sentence,
    SnapshotSeries,
    Text,
    TraceAlignment,
    TraceDocument,
    read_snapshots,
)
from heedful.translation.loading import load
from heedful.translation.sources import LanguageModel, SourceTranslator
from heedful.translation.suppression import MASK
from heedful.translation.translator import TranslationOptions, Translator, encode_texts

if TYPE_CHECKING:
    from heedful.inspection.record import InspectedModel, InspectedSource, SearchStrategy

MAX_WAV_BYTES = MAX_SOUND_CHARS * 3 // 4  # longer recordings are shown, but cannot be played
DEFAULT_BEAM = 5  # for models without generation settings
MAX_DEFAULT_VECTOR_CHARS = 40_000  # of the page, for vectors that were not asked for


@dataclass(frozen=True)
class Page:
    """A trace and its page, which notebooks display; with a model, the page translates other sentences itself."""

    trace: TraceDocument
    live: LiveModel | None = None

    def html(self) -> str:
        """The page as one self-contained HTML file."""
        return render_page(self.trace, self.live)

    def save(self, path: str | Path) -> Path:
        """Write the page atomically."""
        path = Path(path)
        write_html(path, self.html())
        return path

    def svg(self, sentence: int = 0, *, pieces: bool = False) -> str:
        if not self.trace.sentences:
            raise HeedfulError("there is no sentence to draw: pass a sentence")
        return render_svg(self.trace.sentences[sentence], pieces=pieces)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """For notebooks: the page in a frame, or an image if scripts are disabled."""
        bundle = {"text/html": wrap_in_iframe(self.html())}
        with suppress(HeedfulError):  # a model without attention over words
            bundle["image/svg+xml"] = self.svg()
        return bundle


@suggest_arguments
def inspect(
    model: "str | Path | Translator | InspectedModel | TraceDocument",
    sentences: Any = (),
    *,
    reference: str | None = None,
    beam: int | None = None,
    against: "str | Path | Translator | InspectedModel | None" = None,
    against_beam: int | None = None,
    importance: bool = True,
    evidence: bool = True,
    arithmetic: Sequence[str] | None = None,
    title: str | None = None,
    lecture: str | Path | Lecture | None = None,
    live: str | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Page:
    """Return a page that shows how a model translates some sentences, describes pictures, transcribes
    recordings or continues texts.

    `model` is a model directory, a translator, an `InspectedModel` (any model with the contract's methods; its
    sentences may be lists of ids) or a trace. `sentences` is one source or a list: for a model of pictures, each is a
    path, a PIL image, an array or the bytes of a file. Compare with another model (`against`) or another beam size
    (`against_beam`). `importance` and `evidence` can be switched off to save time: the importance of each head, and
    the contributions of source pieces with the other measurements of `inspection.evidence`. `arithmetic` lists the
    places (encoder, cross, decoder) whose vectors are included; by default, those of cross-attention are, as long as
    they are small. `lecture` is a lecture file (a path, or its text), or a `heedful.trace.Lecture`. With `live`, the
    page contains the model, its weights as int8, float16 or float32, and translates what its reader types.
    `on_progress` is called with the name of each stage.
    """
    slides, file = load_lecture(lecture)
    if isinstance(model, TraceDocument):
        if live is not None:
            raise HeedfulError("a trace has no model that a live page could run: pass a model, or remove `live`")
        return Page(attach_lecture(model, slides, file))
    is_list = isinstance(sentences, Iterable) and not isinstance(sentences, str | bytes | np.ndarray)
    texts = list(sentences) if is_list else [sentences]
    if texts and all(isinstance(token, int) for token in texts):
        texts = [texts]
    if reference is not None and len(texts) != 1:
        raise HeedfulError(
            f"with a reference, only one sentence can be inspected, but there are {len(texts)}: pass one sentence"
        )
    require("torch", extra="train", whose="heedful.inspect")
    first = open_model(model)
    places = tuple(dict.fromkeys((*(arithmetic or ()), *arithmetic_places(slides))))
    is_automatic = arithmetic is None and not places
    vectors = ("cross",) if is_automatic else places
    options: dict[str, Any] = {"importance": importance, "evidence": evidence, "vectors": vectors}
    if on_progress is not None:
        options["report"] = on_progress
    traces = [sentence for text in texts for sentence in trace_text(first, text, reference, beam, options)]
    if against is not None or against_beam is not None:
        second = first if against is None else open_model(against)
        width = beam if against_beam is None else against_beam
        others = [sentence for text in texts for sentence in trace_text(second, text, reference, width, options)]
        traces = [*with_distinct_names(traces, others, beam, against_beam)]
    if is_automatic:
        traces = [*limit_vectors(traces, MAX_DEFAULT_VECTOR_CHARS)]
    snapshots = load_snapshots(first)
    live_model = None if live is None else make_live_model(first, live)
    if not traces and snapshots is None and live_model is None:
        raise HeedfulError(
            'there is nothing to show: pass a sentence, for example: heedful inspect my-model "Good morning"'
        )
    title = title or (model_name(first) if isinstance(first, Translator) else first.name)
    trace = TraceDocument(title=title, sentences=tuple(traces), film=snapshots)
    trace = attach_lecture(trace, slides, file, is_live=live_model is not None)
    return Page(trace, live_model and live_model.with_name(title))


def load_lecture(source: str | Path | Lecture | None) -> tuple[Lecture | None, str]:
    """The lecture, and its name for error messages. A string with several lines is the text of a lecture file."""
    if source is None or isinstance(source, Lecture):
        return source, "the lecture"
    if isinstance(source, str) and "\n" in source:
        return parse_lecture(source), "the lecture"
    path = Path(source)
    if not path.is_file():
        raise ConfigError(f"there is no lecture file {path}{suggest_path(path)}")
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors on Windows may write a byte order mark
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 at byte {error.start + 1}: save it as UTF-8") from None
    return parse_lecture(text, str(path)), str(path)


def limit_vectors(sentences: Sequence[Sentence], max_chars: int) -> Iterator[Sentence]:
    """The sentences with the vectors that fit into `max_chars`: of all layers, of the opening head's layer, or none."""
    num_chars = 0
    for sentence in sentences:
        layers = sentence.vectors.get("cross", ())
        sizes = [len(vectors.model_dump_json()) if vectors else 0 for vectors in layers]
        layer = opening_layer(sentence) if sizes else 0
        if num_chars + sum(sizes) <= max_chars:
            kept = set(range(len(sizes)))
        else:
            kept = {layer} if num_chars + sizes[layer] <= max_chars else set()
        num_chars += sum(sizes[index] for index in kept)
        layers = tuple(
            vectors if index in kept else None for index, vectors in enumerate(sentence.vectors.get("cross", ()))
        )
        yield sentence.model_copy(update={"vectors": {"cross": layers} if any(layers) else {}})


def opening_layer(sentence: Sentence) -> int:
    """The layer of the head on which the page opens (`openingHead` in viewer/data.js)."""
    if sentence.reading and sentence.reading.layer is not None and sentence.reading.head is not None:
        return sentence.reading.layer
    weights = sentence.attention["cross"].array()  # [layers, heads, T, S]
    strongest = weights.mean((0, 1)).argmax(-1)  # [T]
    agreement = weights[:, :, range(len(strongest)), strongest].sum(-1)  # [layers, heads]
    num_heads: int = weights.shape[1]
    return int(agreement.argmax()) // num_heads


def open_model(model: "str | Path | Translator | InspectedModel") -> "Translator | InspectedModel":
    """Load a translator from a path; return anything else unchanged."""
    return load(model) if isinstance(model, str | Path) else model


def with_distinct_names(
    first: Sequence[Sentence], second: Sequence[Sentence], first_beam: int | None, second_beam: int | None
) -> Iterator[Sentence]:
    """All traces, with a suffix if the same name occurs in both lists."""
    shared = {sentence.name for sentence in first} & {sentence.name for sentence in second}
    suffixes = (
        ("", " (2)")
        if second_beam is None
        else tuple(f", beam {beam}" if beam else ", default beam" for beam in (first_beam, second_beam))
    )
    for sentences, suffix in zip((first, second), suffixes, strict=True):
        for sentence in sentences:
            is_shared = sentence.name in shared
            yield sentence.model_copy(update={"name": sentence.name + suffix}) if is_shared else sentence


def trace_text(
    model: "Translator | InspectedModel", text: Any, reference: str | None, beam: int | None, options: dict[str, Any]
) -> Iterator[Sentence]:
    """Yield a trace per segment of a text, and one for its reference; `options` go to `record_sentence`."""
    from heedful.inspection.record import InspectedSource, record_sentence

    if not isinstance(model, Translator):
        search = make_search(DEFAULT_BEAM if beam is None else beam)
        if isinstance(text, str) and model.tokenize is None:
            raise HeedfulError("this model has no tokenizer: pass token ids, for example: [[5, 7, 2]]")
        source = (
            model.tokenize(text)
            if isinstance(text, str) and model.tokenize
            else InspectedSource(tuple(text), source_text(model, text))
        )
        yield record_sentence(model, source, search, **options)
        return
    inspected, generation = wrap_translator(model), model.bundle.generation
    width = generation.beam if beam is None else beam
    rule, penalty = generation.length_rule, generation.length_penalty
    if isinstance(model.bundle.model.decoder, CTCSettings):  # as `TorchEngine.translate`
        rule, penalty = "none", 0.0
    search = make_search(width, rule, penalty)
    search_options = SearchOptions(width, 1, generation.length_rule, generation.length_penalty, stopping="exact")
    alignment = model.bundle.statistics.get("alignment")
    options = {
        **options,
        "alignment": TraceAlignment(**alignment) if alignment else None,
        "about": describe_model(model),
    }
    reference_ids = tuple(encode_texts(model.target, [reference])[0]) if reference is not None else None
    sources = encode_source(model, text) if isinstance(model, SourceTranslator) else encode_segments(model, text)
    if reference is not None and isinstance(model, LanguageModel):
        raise HeedfulError("a language model continues its input, so it has no reference: remove --reference")
    if reference_ids is not None and len(sources) != 1:
        raise HeedfulError(
            "with a reference, the text must be a single sentence that is not longer than the training "
            f"sentences, but it was split into {len(sources)}"
        )
    for encoded, source in sources:
        filtered = suppress_words(inspected, model, encoded, search_options)
        yield mask_words(record_sentence(filtered, source, search, reference=reference_ids, **options), model)
        if reference_ids is not None:
            forced = replace(filtered, name=f"{inspected.name}, reference")
            yield mask_words(record_sentence(forced, source, search, forced_target=reference_ids, **options), model)


def encode_segments(translator: Translator, text: Any) -> "list[tuple[EncodedSource, InspectedSource]]":
    """The segments of a text."""
    from heedful.inspection.record import InspectedSource

    lines = [normalize(line)[0] for line in str(text).split("\n")]
    segments = [segment for line in translator.make_segments(lines, TranslationOptions(), 0) for segment in line]
    return [
        (
            segment.source,
            InspectedSource(
                segment.source.row,
                segment.text,
                has_end=bool(translator.source_end),
                max_length=segment.source.max_length,
            ),
        )
        for segment in segments
    ]


def encode_source(translator: SourceTranslator, source: Any) -> "list[tuple[EncodedSource, InspectedSource]]":
    """A picture, spectrogram or graph with the places of its slots, the text to continue, or a whole text to label."""
    from heedful.inspection.record import InspectedSource

    encoded = translator.encode(source, TranslationOptions(), 0)
    if "source" in translator.bundle.tokenizers:
        text, has_end = normalize(source)[0], bool(translator.source_end)
        return [(encoded, InspectedSource(encoded.row, text, has_end=has_end, max_length=encoded.max_length))]
    inputs = make_input(translator.bundle.description.input)
    png, boxes = inputs.png(encoded.row), inputs.boxes(encoded.row, frames_per_slot(translator))
    seconds, wav, edges = inputs.seconds(encoded.row), inputs.wav(source), None
    if isinstance(inputs, GraphInput):
        graph = inputs.decode(source)
        names = graph.names or tuple(map(str, range(graph.num_nodes)))
        places = enumerate(zip(names, boxes, strict=True))
        pieces = [Piece(text=f" {name}", word=slot, box=box) for slot, (name, box) in places]
        edges = tuple((start, end) for start, end in graph.edges.T.tolist())
    elif seconds is None:
        pieces = [Piece(text=f" {name}", word=slot, box=box) for slot, (name, box) in enumerate(name_boxes(boxes))]
    else:
        intervals = [(seconds * left, seconds * right) for left, _, right, _ in boxes]
        pieces = [
            Piece(text=f" {interval[0]:.2f} s", word=slot, box=box, interval=interval)
            for slot, (box, interval) in enumerate(zip(boxes, intervals, strict=True))
        ]
    name = translator.name_source(source)
    shown = Text(
        text=name if png is None else Path(name).name,  # the page need not tell where the file is
        pieces=tuple(pieces),
        picture=b64encode(png).decode() if png else None,
        sound=b64encode(wav).decode() if wav and len(wav) <= MAX_WAV_BYTES else None,
        edges=edges,
    )
    inspected = InspectedSource(
        encoded.row,
        shown.text,
        has_end=False,
        max_length=encoded.max_length,
        prefix=encoded.prefix,
        shown=shown,
        erased=inputs.erased,
    )
    return [(encoded, inspected)]


def frames_per_slot(translator: Translator) -> int:
    return getattr(translator.bundle.model.encoder, "reduction", 1)


def name_boxes(boxes: Sequence[Box]) -> list[tuple[str, Box]]:
    """Boxes of a grid with names such as those of the cells of a spreadsheet: columns A, B, ..., rows 1, 2, ..."""
    lefts, tops = (sorted({box[side] for box in boxes}) for side in (0, 1))
    return [(f"{letters(lefts.index(box[0]))}{tops.index(box[1]) + 1}", box) for box in boxes]


def letters(column: int) -> str:
    """A, B, ..., Z, AA, AB, ... for 0, 1, 2, ..."""
    higher, last = divmod(column, 26)
    return (letters(higher - 1) if higher else "") + chr(ord("A") + last)


def suppress_words(
    inspected: "InspectedModel", translator: Translator, source: EncodedSource, options: SearchOptions
) -> "InspectedModel":
    """The model, with a filter if its answer would contain a word that it may not use."""
    from heedful.search.filters import SuppressSequences

    suppressor = translator.word_suppressor()
    if suppressor is None:
        return inspected
    (results,) = translator.engine.translate([source], options)
    _, sequences = suppressor.search_again(source, results, options)
    return replace(inspected, filters=(SuppressSequences(sequences),)) if sequences else inspected


def mask_words(sentence: Sentence, translator: Translator) -> Sentence:
    """The trace, with words that the model may not use masked: in the text of greedy search, and as neighbors."""
    suppressor = translator.word_suppressor()
    if suppressor is None:
        return sentence
    tree = sentence.tree
    if tree is not None and tree.greedy is not None:
        tree = tree.model_copy(update={"greedy": suppressor.pattern.sub(MASK, tree.greedy)})
    neighbors = {
        side: tuple(tuple((suppressor.pattern.sub(MASK, text), cosine) for text, cosine in pieces) for pieces in lists)
        for side, lists in sentence.neighbors.items()
    }
    return sentence.model_copy(update={"tree": tree, "neighbors": neighbors})


def source_text(model: "InspectedModel", ids: Sequence[int]) -> str:
    """The text of a source given as ids; the last is the end token."""
    return "".join(model.source_pieces(list(ids)[:-1])).replace("\u2581", " ").strip()


def make_search(beam: int, length_rule: str = "power", length_penalty: float = 1.0) -> "SearchStrategy":
    """Beam search, or greedy search for a beam of 1."""
    from heedful.search import Beam, Greedy

    if beam < 1:
        raise HeedfulError(f"the beam must be at least 1, not {beam}")
    return Greedy() if beam == 1 else Beam(beam, 1, length_rule, length_penalty)


def wrap_translator(translator: Translator) -> "InspectedModel":
    from heedful.engines.torch import TorchEngine
    from heedful.inspection.record import InspectedModel
    from heedful.text.tokenizer import BOS, EOS, PAD, UNK

    if not isinstance(translator.engine, TorchEngine):
        raise HeedfulError("only PyTorch models can be inspected: load the model directory, not an export")
    bundle, model = translator.bundle, translator.engine.model
    source_tokenizer = bundle.tokenizers.get("source")
    return InspectedModel(
        model.encoder,
        model.decoder,
        BOS,
        EOS,
        source_pieces=source_tokenizer.pieces if source_tokenizer else lambda _ids: [],
        target_pieces=translator.target.pieces,
        detokenize=lambda ids: translator.target.decode([list(ids)])[0].strip(),
        name=model_name(translator),
        languages=(bundle.description.source, bundle.description.target),
        unk=UNK,
        suppress_tokens=(PAD, BOS),
    )


def model_name(translator: Translator) -> str:
    """The name of the model directory, or of the run that contains it."""
    folder = translator.bundle.folder
    return folder.parent.name if folder.name == "model" else folder.name


def load_snapshots(model: "Translator | InspectedModel") -> SnapshotSeries | None:
    """The snapshots recorded by training, if the model is in its run directory."""
    return read_snapshots(model.bundle.folder.parent / SNAPSHOTS) if isinstance(model, Translator) else None

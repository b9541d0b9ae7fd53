"""The trace format: how a model translated a sentence, as JSON.

    trace = TraceDocument(title="en-de", sentences=(sentence,))
    text = dump_trace(trace)                # JSON; docs/trace-format.md explains every key
    trace = parse_trace(text)               # raises HeedfulError with the place of an error

The field names of the classes are the keys of the JSON. Arrays are blobs: `sqrt8` stores a weight w as
round(255 sqrt(w)), so the error is at most 1/255; `half` stores numbers as 16-bit floats. Both are deflated and encoded
in base64, which a browser can read without a library.
"""

import json
import re
import struct
import zlib
from base64 import b64decode, b64encode
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

import heedful
from heedful.alignment import word_indices
from heedful.errors import HeedfulError, did_you_mean
from heedful.text.normalize import escape_invisible

FORMAT, VERSION = "heedful-trace", 1
MIN_LOG_PROB = -1e4  # replaces -inf, which JSON cannot represent
MAX_BLOB_NUMBERS = 1 << 26
MAX_PIECES = 4096  # of a source or a target
MAX_SENTENCES = 1000
MAX_SLIDES = 200
MAX_NOTES = 2000  # characters
MAX_PICTURE_CHARS = 1 << 22  # of a PNG in base64
MAX_EDGES = 1 << 16
MAX_PICTURE_SIDE = 4096  # pixels
MAX_SOUND_CHARS = 1 << 22  # of a WAV in base64: a minute and a half at 16 kHz
PNG_START = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"  # followed by width and height, four bytes each
SNAPSHOTS = "snapshots.jsonl"  # written by training to the run directory

Array = NDArray[Any]
Share = Annotated[float, Field(ge=0, le=1)]
Place = Literal["encoder", "cross", "decoder"]
Panel = Literal["stage", "next", "heads", "map", "alignment", "search", "compare", "film", "evidence"]
PageLanguage = Literal["en", "pt", "ru"]
Side = Literal["source", "target"]
ContributionMethod = Literal["erasure", "gradients"]
DeletionMethod = Literal["erasure", "gradients", "attention", "head", "random"]
RatedPieces = tuple[tuple[str, float], ...]  # pieces as shown, each with its log-probability or cosine, best first
PLACES: tuple[Place, ...] = get_args(Place)
PANELS: tuple[Panel, ...] = get_args(Panel)
PAGE_LANGUAGES: tuple[PageLanguage, ...] = get_args(PageLanguage)


class TracePart(BaseModel):
    """Base class of all parts of a trace: frozen, and unknown keys are errors."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


# ---------------------------------------------------------------------------------------------------------- arrays


class Blob(TracePart):
    """A compressed array."""

    shape: tuple[NonNegativeInt, ...]
    kind: Literal["sqrt8", "half"]
    data: str

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if prod(self.shape) > MAX_BLOB_NUMBERS:
            raise ValueError(f"an array of {prod(self.shape):,} numbers is larger than {MAX_BLOB_NUMBERS:,}")
        self.decompress()
        return self

    def decompress(self) -> bytes:
        """The raw bytes; ValueError if their number does not match the shape."""
        size = prod(self.shape) * (1 if self.kind == "sqrt8" else 2)
        try:
            decompressor = zlib.decompressobj()
            data = decompressor.decompress(b64decode(self.data, validate=True), size + 1)
        except (ValueError, zlib.error) as error:
            raise ValueError(f"is not deflated base64 ({error})") from None
        if len(data) != size or not decompressor.eof or decompressor.unused_data:
            raise ValueError(f"holds {len(data):,} bytes, but a shape of {list(self.shape)} takes {size:,}")
        return data

    def array(self) -> Array:
        data = np.frombuffer(self.decompress(), np.uint8)
        if self.kind == "sqrt8":
            return ((data / 255.0) ** 2).reshape(self.shape)
        low, high = data[: len(data) // 2], data[len(data) // 2 :]
        return np.stack((low, high), -1).reshape(-1).view("<f2").astype(float).reshape(self.shape)


def deflate_base64(data: bytes) -> str:
    return b64encode(zlib.compress(data, 9)).decode()


def weights_blob(array: Array) -> Blob:
    """Encode attention weights, between 0 and 1."""
    data = np.round(255 * np.sqrt(np.clip(array, 0.0, 1.0))).astype(np.uint8)
    return Blob(shape=array.shape, kind="sqrt8", data=deflate_base64(data.tobytes()))


def numbers_blob(array: Array, fraction_bits: int = 10) -> Blob:
    """Encode any numbers: all lower bytes, then all upper bytes, which are similar and compress well.

    Each number keeps `fraction_bits` bits: 7 are three digits and need three quarters of the space of 10.
    """
    halves = np.clip(np.nan_to_num(array, neginf=-65504.0), -65504.0, 65504.0).astype("<f2")
    if fraction_bits < 10:
        step = 1 << (10 - fraction_bits)
        patterns = halves.view("<u2")
        can_round = np.abs(halves) < 32768.0  # larger numbers would round to infinity
        halves = np.where(can_round, (patterns + step // 2) & ~np.uint16(step - 1), patterns).astype("<u2").view("<f2")
    pairs = np.frombuffer(halves.tobytes(), np.uint8).reshape(-1, 2)
    return Blob(shape=array.shape, kind="half", data=deflate_base64(pairs.T.tobytes()))


# ------------------------------------------------------------------------------------------------------ a sentence


class Piece(TracePart):
    """One slot of a source, or one step of a target."""

    text: str  # as shown; starts with a space where a word begins
    start: NonNegativeInt = 0  # position in the text, in characters
    end: NonNegativeInt = 0
    word: NonNegativeInt | None = None  # index of its word, from 0; None for a tag or an end token
    letter: NonNegativeInt | None = None  # pieces with the same number are bytes of one character, displayed together
    # of a slot of a picture or spectrogram: left, top, right and bottom, in shares of its width and height
    box: tuple[Share, Share, Share, Share] | None = None
    interval: tuple[NonNegativeFloat, NonNegativeFloat] | None = None  # of a slot of a recording: its seconds

    @field_validator("interval")
    @classmethod
    def _check_interval(cls, interval: tuple[float, float] | None) -> tuple[float, float] | None:
        if interval and not interval[0] < interval[1]:
            raise ValueError("is the start and the end in seconds: the start must be before the end")
        return interval

    @field_validator("box")
    @classmethod
    def _check_box(cls, box: tuple[float, float, float, float] | None) -> tuple[float, float, float, float] | None:
        if box and not (box[0] < box[2] and box[1] < box[3]):
            raise ValueError("is left, top, right, bottom: left must be less than right, and top less than bottom")
        return box


def read_png_size(text: str) -> tuple[int, int]:
    """Width and height of a PNG in base64, in pixels; ValueError if it is not one."""
    with suppress(ValueError):
        start = b64decode(text, validate=True)[: len(PNG_START) + 8]
        if start.startswith(PNG_START) and len(start) == len(PNG_START) + 8:
            width, height = struct.unpack(">II", start[-8:])
            return width, height
    raise ValueError("is not a PNG in base64")


def is_wav(text: str) -> bool:
    """Whether a text is a WAV file in base64."""
    try:
        content = b64decode(text, validate=True)
    except ValueError:
        return False
    return content.startswith(b"RIFF") and content[8:12] == b"WAVE"


class Text(TracePart):
    """A text and its pieces; or a picture, whose text is its name and whose pieces have a `box`.

    A recording has the picture of its spectrogram, and its pieces also have an `interval`. A graph has its drawing and
    its `edges`.
    """

    text: str
    pieces: Annotated[tuple[Piece, ...], Field(max_length=MAX_PIECES)]
    language: str = ""
    picture: Annotated[str, Field(max_length=MAX_PICTURE_CHARS)] | None = None  # PNG in base64
    sound: Annotated[str, Field(max_length=MAX_SOUND_CHARS)] | None = None  # WAV in base64
    # pairs of pieces: the second attends to the first
    edges: Annotated[tuple[tuple[NonNegativeInt, NonNegativeInt], ...], Field(max_length=MAX_EDGES)] | None = None

    @field_validator("sound")
    @classmethod
    def _check_sound(cls, sound: str | None) -> str | None:
        if sound is not None and not is_wav(sound):
            raise ValueError("is not a WAV in base64")
        return sound

    @field_validator("picture")
    @classmethod
    def _check_picture(cls, picture: str | None) -> str | None:
        if picture is not None:
            width, height = read_png_size(picture)
            if not (1 <= width <= MAX_PICTURE_SIDE and 1 <= height <= MAX_PICTURE_SIDE):
                raise ValueError(f"has {width:,} x {height:,} pixels; the limit is {MAX_PICTURE_SIDE:,} per side")
        return picture

    @model_validator(mode="after")
    def _check_boxes(self) -> Self:
        num_boxes = sum(piece.box is not None for piece in self.pieces)
        if self.picture is None and num_boxes:
            raise ValueError("the pieces of a text have no `box`: add the `picture` that they are parts of")
        if self.picture is not None and not num_boxes == len(self.pieces) > 0:
            raise ValueError("every piece of a picture has a `box`, and there is at least one piece")
        num_intervals = sum(piece.interval is not None for piece in self.pieces)
        if num_intervals not in (0, len(self.pieces)) or (num_intervals and self.picture is None):
            raise ValueError("all pieces of a recording have an `interval`, and a `picture` shows its spectrogram")
        if self.sound is not None and not num_intervals:
            raise ValueError("the pieces of a recording have an `interval`: add them, or remove `sound`")
        if self.edges is not None and self.picture is None:
            raise ValueError("a graph has the `picture` of its drawing: add it, or remove `edges`")
        if any(max(edge) >= len(self.pieces) for edge in self.edges or ()):
            raise ValueError(f"`edges` has a piece that does not exist; the pieces are 0 to {len(self.pieces) - 1}")
        return self


class TraceStep(TracePart):
    """The distribution from which a piece of the target was chosen."""

    logp: float  # of the chosen piece
    entropy: float | None = None  # in nats
    top: RatedPieces  # the most probable pieces and their log-probabilities
    forced: bool = False  # taken from a reference or a prefix, not chosen


class LensStep(TracePart):
    """What one decoder layer predicts at one step, if the output layer reads its state (the logit lens)."""

    logp: float  # of the piece that the target has at this step
    rank: NonNegativeInt  # of this piece among all pieces; 0 is the most probable
    top: RatedPieces  # the most probable pieces and their log-probabilities


class SearchNode(TracePart):
    """One continuation that the search considered."""

    step: PositiveInt  # length of the prefix in pieces, this one included
    parent: NonNegativeInt | None = None  # index of the node it continues
    text: str
    logp: float
    total: float  # of the whole prefix, as the search ranks it
    rank: NonNegativeInt  # among all continuations of this step
    fate: Literal["kept", "finished", "cut", "pruned"]
    why: str = ""
    score: float | None = None  # normalized by length, if it ended


class SearchTree(TracePart):
    """All continuations that a search considered."""

    kind: str  # beam, greedy, sample
    size: PositiveInt = 1
    length: str = ""  # how scores are normalized, as text or a formula
    nodes: tuple[SearchNode, ...] = ()
    best: NonNegativeInt | None = None  # the last node of the answer
    greedy: str | None = None  # the answer of greedy search
    greedy_score: float | None = None  # its score, by the same rule

    @model_validator(mode="after")
    def _check_parents(self) -> Self:
        for index, node in enumerate(self.nodes):
            parent = self.nodes[node.parent] if node.parent is not None and node.parent < index else None
            if (node.parent is not None or node.step != 1) and (parent is None or parent.step != node.step - 1):
                raise ValueError(f"node {index} is at step {node.step}, and its parent is not one step before it")
        if self.best is not None and self.best >= len(self.nodes):
            raise ValueError(f"`best` is {self.best}, but there is no node {self.best}")
        return self


class Vectors(TracePart):
    """The vectors from which the scores of one layer are computed: [heads, T or S, width]."""

    score: Literal["dot", "scaled_dot", "bilinear", "additive", "location", "content_location"]
    normalizer: Literal["soft", "hard"] = Field(
        "soft",
        validation_alias=AliasChoices("normalizer", "normalize", "normalise"),  # the last two: older files
    )
    queries: Blob  # W q for additive scores
    keys: Blob  # as the score uses them: W k for bilinear, U k + b for additive scores; the rows of W for location
    values: Blob
    scores: Blob  # [heads, T, S]; -65504 where a slot is masked
    energy: Blob | None = None  # v of additive scores
    moved: Blob | None = None  # F f of content_location: [heads, T, S, width]


class TraceAlignment(TracePart):
    """The head that aligns words best, at the step that produces a piece (naive) or the next one (shifted)."""

    step: Literal["naive", "shifted"] = "naive"
    layer: NonNegativeInt | None = None
    head: NonNegativeInt | None = None


class LatentAlignment(TracePart):
    """The distribution over alignments, where the alignment is a latent variable.

    ctc      p(slot s is in state u | source, target) for the states blank, piece 1, blank, piece 2, .., blank
    sampled  p(slot s is drawn at step t), of every head
    """

    kind: Literal["ctc", "sampled"]
    probabilities: Blob  # ctc: [1, states, slots], with several slots per source piece; sampled: [heads, T, S]
    # of every head, the most probable path. ctc: the state of every slot; sampled: the slot of every step
    paths: tuple[tuple[NonNegativeInt, ...], ...]
    logps: tuple[float, ...]  # of these paths
    total: float | None = None  # ctc, of an answer that was cut off: log p of exactly these labels, over all paths


class Reference(TracePart):
    """The expected translation."""

    text: str
    logp: float
    score: float  # by the rule of the search
    verdict: Literal["search", "model", "same"]  # what caused a different answer: the search or the model


class Sentence(TracePart):
    """A source, its translation, and how the model computed it."""

    name: str  # of the model or the setting
    source: Text
    target: Text
    logp: float
    score: float
    steps: tuple[TraceStep, ...]
    tree: SearchTree | None = None
    attention: dict[Place, Blob] = Field(default_factory=dict)  # [layers, heads, T, S]
    importance: dict[Place, tuple[tuple[float, ...], ...]] = Field(default_factory=dict)  # [layers][heads]
    reading: TraceAlignment | None = None
    latent: LatentAlignment | None = None
    vectors: dict[Place, tuple[Vectors | None, ...]] = Field(default_factory=dict)  # None: omitted to save space
    reference: Reference | None = None
    about: str = ""
    lens: tuple[tuple[LensStep, ...], ...] = ()  # [decoder layers][T]
    neighbors: dict[Side, tuple[RatedPieces, ...]] = Field(default_factory=dict)  # the nearest embeddings, by piece
    contributions: dict[ContributionMethod, Blob] = Field(default_factory=dict)  # [T, S], in nats
    deletion: dict[DeletionMethod, tuple[float, ...]] = Field(default_factory=dict)  # log p after 0, 1, .. deletions

    @model_validator(mode="after")
    def _check_shapes(self) -> Self:
        source, target = len(self.source.pieces), len(self.target.pieces)
        if len(self.steps) != target:
            raise ValueError(f"{len(self.steps)} steps for a target of {target} pieces")
        expected = {"encoder": (source, source), "cross": (target, source), "decoder": (target, target)}
        for place, blob in self.attention.items():
            if len(blob.shape) != 4 or blob.shape[2:] not in (expected[place], (expected[place][0], 1)):
                raise ValueError(
                    f"attention.{place} has shape {list(blob.shape)}, not [layers, heads, *{expected[place]}]"
                )
            heads = [len(row) for row in self.importance.get(place, ())]
            if heads not in ([], [blob.shape[1]] * blob.shape[0]):
                raise ValueError(f"importance.{place} is not [{blob.shape[0]}][{blob.shape[1]}] numbers")
            if place == "cross" and self.reading:
                for key, index, count in zip(
                    ("layer", "head"), (self.reading.layer, self.reading.head), blob.shape, strict=False
                ):
                    if index is not None and index >= count:
                        raise ValueError(f"reading.{key} is {index}, but there are {count}")
            if place in self.vectors:
                self._check_vectors(place, blob.shape)
        if missing := self.vectors.keys() - self.attention.keys():
            raise ValueError(f"vectors.{min(missing)} without attention.{min(missing)}")
        if missing := self.importance.keys() - self.attention.keys():
            raise ValueError(f"importance.{min(missing)} without attention.{min(missing)}")
        self._check_evidence(source, target)
        self._check_latent(source, target)
        return self

    def _check_evidence(self, source: int, target: int) -> None:
        for index, layer in enumerate(self.lens):
            if len(layer) != target:
                raise ValueError(f"lens: layer {index} has {len(layer)} steps for a target of {target} pieces")
        for side, pieces in self.neighbors.items():
            if len(pieces) != (count := {"source": source, "target": target}[side]):
                raise ValueError(f"neighbors.{side} has {len(pieces)} lists for {count} pieces")
        for method, blob in self.contributions.items():
            if blob.shape != (target, source):
                raise ValueError(f"contributions.{method} has shape {list(blob.shape)}, not [{target}, {source}]")
        if len(lengths := {len(curve) for curve in self.deletion.values()}) > 1:
            raise ValueError(f"the deletion curves have different lengths: {sorted(lengths)}")
        if not lengths <= set(range(2, source + 2)):
            raise ValueError(f"a deletion curve has {min(lengths)} values, not 2 to {source + 1}")

    def _check_latent(self, source: int, target: int) -> None:
        if self.latent is None:
            return
        shape, is_ctc = self.latent.probabilities.shape, self.latent.kind == "ctc"
        rows = (2 * target - 1, 2 * target + 1) if is_ctc else (target,)  # the end token of CTC is not a label
        fits = len(shape) == 3 and shape[1] in rows and (shape[0] == 1 or not is_ctc) and source > 0 < shape[2]
        if not fits or (shape[2] % source if is_ctc else shape[2] != source):
            wanted = f"[1, {rows[0]}, a multiple of {source}]" if is_ctc else f"[heads, {target}, {source}]"
            raise ValueError(f"latent.probabilities has shape {list(shape)}, not {wanted}")
        length, limit = (shape[2], shape[1]) if is_ctc else (shape[1], shape[2])
        is_path = [len(path) == length and max(path) < limit for path in self.latent.paths]
        if len(is_path) != shape[0] or len(self.latent.logps) != shape[0] or not all(is_path):
            raise ValueError(f"latent.paths and latent.logps need {shape[0]} paths of {length} numbers below {limit}")

    def _check_vectors(self, place: Place, shape: tuple[int, ...]) -> None:
        layers, heads, rows, columns = shape
        if len(self.vectors[place]) != layers:
            raise ValueError(f"vectors.{place} has {len(self.vectors[place])} layers, not {layers}")
        for layer in filter(None, self.vectors[place]):
            expected = {
                "queries": (heads, rows),
                "keys": (heads, columns),
                "values": (heads, columns),
                "scores": (heads, rows),
            }
            for name, sizes in expected.items():
                shape = getattr(layer, name).shape
                if len(shape) != 3 or shape[:2] != sizes:
                    wanted = ", ".join(map(str, sizes))
                    raise ValueError(f"vectors.{place}: {name} has shape {list(shape)}, not [{wanted}, width]")
            width = layer.queries.shape[2]
            fits = [layer.keys.shape[2] == width, layer.scores.shape[2] == columns]
            fits += [layer.energy is None or layer.energy.shape == (width,)]
            fits += [layer.moved is None or layer.moved.shape == (heads, rows, columns, width)]
            if not all(fits):
                raise ValueError(f"vectors.{place}: queries, keys, scores, energy and moved do not fit together")


# -------------------------------------------------------------------------------------------------------- snapshots


class SnapshotSentence(TracePart):
    """One sentence as translated at one validation."""

    target: Text
    attention: Blob | None = None  # cross-attention [layers, heads, T, S]


class Snapshot(TracePart):
    """One validation of a training run."""

    step: NonNegativeInt
    loss: float | None = None
    bleu: float | None = None
    chrf: float | None = None
    takes: tuple[SnapshotSentence, ...]


class SnapshotSeries(TracePart):
    """The same sentences at each validation of a training run (the key `film` of a trace)."""

    sources: tuple[Text, ...]
    frames: tuple[Snapshot, ...] = ()

    @model_validator(mode="after")
    def _check_shapes(self) -> Self:
        for frame in self.frames:
            if len(frame.takes) != len(self.sources):
                raise ValueError(
                    f"the frame of step {frame.step} has {len(frame.takes)} takes, not {len(self.sources)}"
                )
            for take, source in zip(frame.takes, self.sources, strict=True):
                size = len(take.target.pieces), len(source.pieces)
                if take.attention and take.attention.shape[2:] not in (size, (size[0], 1)):
                    raise ValueError(f"the frame of step {frame.step} has attention of another size than its texts")
        return self


# ---------------------------------------------------------------------------------------------------------- a lecture

# The keys of the page's address (step=2&head=3.2): those with a choice of values, and those with a pattern.
STATE_CHOICES: dict[str, tuple[str, ...]] = {
    "place": PLACES,
    "tab": tuple(panel for panel in PANELS if panel != "stage"),
    "reading": ("naive", "shifted"),
    "link": ("soft", "hard"),
    "theme": ("light", "dark", "projector"),
    "lang": PAGE_LANGUAGES,
    "sort": ("layer", "entropy", "diagonality", "importance"),
    "search": ("greedy", "beam", "sample"),
}
HEAD_OF_PLACE = rf"({'|'.join(PLACES)})-([1-9][0-9]?\.[1-9][0-9]?)"
EDIT = rf"({'|'.join(PLACES)})-(mean|[1-9][0-9]?\.[1-9][0-9]?)-[1-9][0-9]{{0,4}}-[1-9][0-9]{{0,4}}-([0-9]{{1,2}}|100)"
STATE_PATTERNS: dict[str, tuple[str, str]] = {  # pattern, and how a message describes it
    **dict.fromkeys(("sentence", "step", "slot", "frame", "take"), ("[1-9][0-9]{0,4}", "a number from 1 on")),
    "scene": (r"[0-4](\.[0-9]{1,4})?|5", "a number from 0 to 5"),
    "head": (r"[1-9][0-9]{0,3}\.[1-9][0-9]{0,3}|mean", "layer.head, such as 3.2, or mean"),
    "threshold": (r"0|1|0\.[0-9]{1,20}", "a number between 0 and 1, such as 0.1"),
    "beam": ("[2-9]|1[0-2]", "a number from 2 to 12"),
    "penalty": (r"[01](\.[0-9]{1,4})?|2", "a number from 0 to 2"),
    "temperature": (r"0\.[1-9][0-9]{0,3}|1(\.[0-9]{1,4})?|2", "a number from 0.1 to 2"),
    "topk": ("[1-4]?[0-9]|50", "a number from 0 to 50"),
    "seed": ("[0-9]{1,6}", "a number from 0 to 999999"),
    "silence": (f"{HEAD_OF_PLACE}(_{HEAD_OF_PLACE})*", "heads joined by _, such as cross-3.2_encoder-1.1"),
    "edit": (f"{EDIT}(_{EDIT})*", "place, head, step, slot and percent, such as cross-3.2-4-6-70"),
}
STATE_TEXTS = {  # encoded as in an address, and how a message describes them
    "text": "a sentence, with %26 for & and %25 for %",
    "force": "the first pieces as the address of the page has them, such as %5B%22%20The%22%5D",
}
LIVE_KEYS = ("text", "search", "beam", "penalty", "temperature", "topk", "seed", "force", "silence", "edit")


def parse_state(state: str) -> dict[str, str]:
    """The keys and values of an address such as `step=2&head=3.2`; ValueError if one is unknown or repeated."""
    values: dict[str, str] = {}
    for part in state.split("&") if state else ():
        key, _, value = part.partition("=")
        if key in values:
            raise ValueError(f"`{key}` appears twice: remove one of them")
        if key in STATE_CHOICES:
            if value not in STATE_CHOICES[key]:
                raise ValueError(f"`{key}` is {value!r}{did_you_mean(value, STATE_CHOICES[key])}")
        elif key in STATE_PATTERNS:
            pattern, description = STATE_PATTERNS[key]
            if not re.fullmatch(pattern, value):
                raise ValueError(f"`{key}` is {value!r}: write {description}")
        elif key in STATE_TEXTS:
            if not _is_state_text(key, value):
                raise ValueError(f"`{key}` is {value!r:.60}: write {STATE_TEXTS[key]}")
        else:
            known = [*STATE_CHOICES, *STATE_PATTERNS, *STATE_TEXTS]
            raise ValueError(f"unknown key `{key}` in `{part}`{did_you_mean(key, known)}")
        values[key] = value
    return values


def _is_state_text(key: str, value: str) -> bool:
    """Whether the page can read the value of `text` (any but an empty one) or of `force` (a list of pieces)."""
    try:
        text = unquote(value, errors="strict")
        pieces = json.loads(text) if key == "force" else [text]
    except (ValueError, RecursionError):
        return False
    is_encoded = not re.search("=|%(?![0-9A-Fa-f]{2})", value)
    return is_encoded and isinstance(pieces, list) and all(isinstance(piece, str) and piece.strip() for piece in pieces)


class Slide(TracePart):
    """One view of the page, and what the lecturer says about it."""

    panel: Panel
    state: str = ""  # what follows # in the page's address
    notes: dict[PageLanguage, Annotated[str, Field(max_length=MAX_NOTES)]] = Field(default_factory=dict)

    @field_validator("state")
    @classmethod
    def _check_state(cls, state: str) -> str:
        parse_state(state)
        return state


class Lecture(TracePart):
    """Slides that lead through the page."""

    title: str = ""
    slides: Annotated[tuple[Slide, ...], Field(min_length=1, max_length=MAX_SLIDES)]


# ----------------------------------------------------------------------------------------------------------- the file


class TraceDocument(TracePart):
    """A whole trace file."""

    format: Literal["heedful-trace"] = "heedful-trace"
    version: Literal[1] = 1
    maker: str = ""
    title: str = ""
    sentences: Annotated[tuple[Sentence, ...], Field(max_length=MAX_SENTENCES)] = ()
    film: SnapshotSeries | None = None
    lecture: Lecture | None = None


def dump_trace(trace: TraceDocument) -> str:
    """The trace as JSON, without values that are None or equal to their default."""
    tree = {"format": FORMAT, "version": VERSION, "maker": trace.maker or f"heedful {heedful.__version__}"}
    tree |= trace.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    return json.dumps(round_floats(tree), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def round_floats(tree: Any) -> Any:
    """Round every float to six decimals."""
    if isinstance(tree, float):
        return round(tree, 6)
    if isinstance(tree, dict):
        return {key: round_floats(value) for key, value in tree.items()}
    return [round_floats(item) for item in tree] if isinstance(tree, list) else tree


def parse_trace(text: str | bytes) -> TraceDocument:
    """Parse and validate untrusted JSON."""
    try:
        tree = json.loads(text, parse_constant=_reject_constant)
        json.dumps(tree, ensure_ascii=False).encode()  # rejects lone surrogates, which JSON can write
    except (ValueError, RecursionError) as error:
        raise HeedfulError(f"this is not JSON ({escape_invisible(str(error)[:200])})") from None
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise HeedfulError(f"this is not a trace: it has no key `format` with the value {FORMAT!r}")
    if isinstance(tree.get("version"), int) and tree["version"] > VERSION:
        raise HeedfulError(
            f"this trace has version {tree['version']}; heedful {heedful.__version__} reads version "
            f"{VERSION}: write the trace again with heedful inspect"
        )
    try:
        return TraceDocument.model_validate(tree)
    except ValidationError as error:
        first, *others = error.errors()
        where = ".".join(str(key) for key in first["loc"])[:200]
        more = f"; and {len(others)} more" if others else ""
        raise HeedfulError(
            f"{escape_invisible(where) or 'the trace'}: {escape_invisible(first['msg'][:300])}{more}"
        ) from None


def read_snapshots(path: Path) -> SnapshotSeries | None:
    """The snapshots in the file, by step; None if it does not exist or holds none."""
    if not path.is_file():
        return None
    snapshots: list[Snapshot] = []
    series = None
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            series = parse_trace(line).film
        except HeedfulError:  # the last line of a run that was killed
            continue
        snapshots += series.frames if series else ()
    latest = {snapshot.step: snapshot for snapshot in snapshots}  # a run that rolled back recorded some steps twice
    return series and series.model_copy(update={"frames": tuple(latest[step] for step in sorted(latest))})


def _reject_constant(word: str) -> None:
    raise ValueError(f"{word} is not a valid JSON number")


# ---------------------------------------------------------------------------------------------------------- pieces


def locate_pieces(names: list[str], text: str, num_tags: int = 0, has_end: bool = True) -> tuple[Piece, ...]:
    """Convert the tokenizer's pieces to `Piece` objects with their positions in the text.

    The first `num_tags` are tags; with `has_end`, the last is an end token. Bytes (`<0xE2>`) are shown as the character
    they encode.
    """
    inner = names[num_tags : len(names) - has_end]
    pieces: list[Piece] = [Piece(text=name) for name in names[:num_tags]]
    words = list(word_indices(inner)) if text.strip() else [None] * len(inner)
    position, letter, row = 0, 0, 0
    while row < len(inner):
        num_bytes = _count_character_bytes(inner, row)
        body = _decode_bytes(inner[row : row + num_bytes]) if num_bytes else inner[row].replace("\u2581", " ")
        bare = body.strip(" ")  # empty for a piece that is only a space
        start = text.find(bare, position)
        start = position if start < 0 or start > position + 8 else start
        end = min(len(text), start + len(bare))
        if num_bytes:
            shown = (" " if row and text[start - 1 : start] == " " else "") + bare
            pieces += [
                Piece(text=shown, start=start, end=end, word=word, letter=letter)
                for word in words[row : row + num_bytes]
            ]
            letter += 1
        else:
            pieces.append(Piece(text=body, start=start, end=end, word=words[row]))
        position = end
        row += num_bytes or 1
    return (*pieces, *(Piece(text=name, start=len(text), end=len(text)) for name in names[len(names) - has_end :]))


def readable_piece(name: str) -> str:
    """The display name of a piece: U+2581 becomes a space, an ASCII byte its character."""
    is_ascii = name.startswith("<0x") and len(name) == 6 and name < "<0x80>"
    return chr(int(name[3:5], 16)) if is_ascii else name.replace("\u2581", " ")


def _count_character_bytes(names: list[str], row: int) -> int:
    """The number of pieces from `row` on that are bytes of one character; 0 if piece `row` is not a byte."""
    data = b""
    for count, name in enumerate(names[row : row + 4], 1):
        if not (name.startswith("<0x") and name.endswith(">") and len(name) == 6):
            break
        try:
            data += bytes([int(name[3:5], 16)])
            data.decode()
        except UnicodeDecodeError:
            continue
        except ValueError:
            break
        return count
    return int(names[row].startswith("<0x") and len(names[row]) == 6)


def _decode_bytes(names: list[str]) -> str:
    return bytes(int(name[3:5], 16) for name in names).decode(errors="replace")

"""The trace: what a model did with a sentence, as data that anyone can write and read.

    trace = Trace(title="en-de", sentences=(sentence,))
    text = dumped(trace)                    # JSON; docs/trace-format.md says what every key means
    trace = parsed(text)                    # a HeedfulError says where it is wrong

Arrays are blobs: `sqrt8` keeps a weight w as round(255 sqrt(w)), which is never off by more than 1/255; `half` keeps
numbers as 16-bit floats. Both are deflated, and written in base64, so that a browser can read them without a library.
"""

import json
import zlib
from base64 import b64decode, b64encode
from math import prod
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

import heedful
from heedful.alignment import word_indices
from heedful.errors import HeedfulError
from heedful.text.normalize import escape_invisible

FORMAT, VERSION = "heedful-trace", 1
PLACES = ("encoder", "cross", "decoder")
LARGEST = 1 << 26  # numbers in one blob
PIECES = 4096  # of one side
SCORES = ("dot", "scaled_dot", "bilinear", "additive", "location", "content_location")

Array = NDArray[Any]
Count = Annotated[int, Field(ge=0)]
Place = Literal["encoder", "cross", "decoder"]


class Part(BaseModel):
    """A part of a trace: frozen, and closed to keys it does not know."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


# ---------------------------------------------------------------------------------------------------------- arrays


class Blob(Part):
    """An array."""

    shape: tuple[Count, ...]
    kind: Literal["sqrt8", "half"]
    data: str

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if prod(self.shape) > LARGEST:
            raise ValueError(f"an array of {prod(self.shape):,} numbers is larger than {LARGEST:,}")
        self.bytes()
        return self

    def bytes(self) -> bytes:
        """What was packed, of exactly the size that the shape says."""
        size = prod(self.shape) * (1 if self.kind == "sqrt8" else 2)
        try:
            unpacker = zlib.decompressobj()
            data = unpacker.decompress(b64decode(self.data, validate=True), size + 1)
        except (ValueError, zlib.error) as error:
            raise ValueError(f"is not deflated base64 ({error})") from None
        if len(data) != size or not unpacker.eof or unpacker.unused_data:
            raise ValueError(f"holds {len(data):,} bytes, but a shape of {list(self.shape)} takes {size:,}")
        return data

    def array(self) -> Array:
        """The numbers."""
        data = np.frombuffer(self.bytes(), np.uint8)
        if self.kind == "sqrt8":
            return ((data / 255.0) ** 2).reshape(self.shape)
        low, high = data[: len(data) // 2], data[len(data) // 2 :]
        return np.stack((low, high), -1).reshape(-1).view("<f2").astype(float).reshape(self.shape)


def packed(data: bytes) -> str:
    """Deflated, in base64."""
    return b64encode(zlib.compress(data, 9)).decode()


def weights_blob(array: Array) -> Blob:
    """Attention weights, between 0 and 1."""
    data = np.round(255 * np.sqrt(np.clip(array, 0.0, 1.0))).astype(np.uint8)
    return Blob(shape=array.shape, kind="sqrt8", data=packed(data.tobytes()))


def numbers_blob(array: Array, bits: int = 10) -> Blob:
    """Any numbers: first the lower bytes of all, then the upper ones, which are much alike and pack well.

    Of the fraction `bits` are kept: 7 are three digits, and pack into three quarters of what 10 take.
    """
    halves = np.clip(np.nan_to_num(array, neginf=-65504.0), -65504.0, 65504.0).astype("<f2")
    if bits < 10:
        step = 1 << (10 - bits)
        spelled_out = halves.view("<u2")
        fits = np.abs(halves) < 32768.0  # the largest would be rounded to infinity
        halves = np.where(fits, (spelled_out + step // 2) & ~np.uint16(step - 1), spelled_out).astype("<u2").view("<f2")
    pairs = np.frombuffer(halves.tobytes(), np.uint8).reshape(-1, 2)
    return Blob(shape=array.shape, kind="half", data=packed(pairs.T.tobytes()))


# ------------------------------------------------------------------------------------------------------ a sentence


class Piece(Part):
    """One slot of a source, or one step of a target."""

    text: str  # as it is shown; a space in front where a word begins
    start: Count = 0  # where it stands in the text, in characters
    end: Count = 0
    word: Count | None = None  # the word it is part of, counted from 0; None of a tag or an end token
    letter: Count | None = None  # pieces of the same number are bytes of one character, and are shown as one


class Text(Part):
    """A text and its pieces."""

    text: str
    pieces: Annotated[tuple[Piece, ...], Field(max_length=PIECES)]
    language: str = ""


class Step(Part):
    """What the model thought before it said a piece."""

    logp: float  # of the piece that was said
    entropy: float | None = None  # in nats
    top: tuple[tuple[str, float], ...]  # the most probable pieces and their log-probabilities, best first
    forced: bool = False  # given by a reference or a prefix, not chosen


class Node(Part):
    """One continuation that the search considered."""

    step: Annotated[int, Field(ge=1)]  # how many pieces it has, itself included
    parent: Count | None = None  # index of what it continues
    text: str
    logp: float
    total: float  # of the whole prefix, as the search ranks it
    rank: Count  # among all continuations of this step
    fate: Literal["kept", "finished", "cut", "pruned"]
    why: str = ""
    score: float | None = None  # normalized by length, where it ended


class Tree(Part):
    """The search."""

    kind: str  # beam, greedy, sample
    size: Annotated[int, Field(ge=1)] = 1
    length: str = ""  # how scores are normalized, in words or a formula
    nodes: tuple[Node, ...] = ()
    best: Count | None = None  # the node that the answer ends with
    greedy: str | None = None  # what greedy search says
    greedy_score: float | None = None  # its score, by the same rule

    @model_validator(mode="after")
    def _grown(self) -> Self:
        for index, node in enumerate(self.nodes):
            parent = self.nodes[node.parent] if node.parent is not None and node.parent < index else None
            if (node.parent is not None or node.step != 1) and (parent is None or parent.step != node.step - 1):
                raise ValueError(f"node {index} is at step {node.step}, and its parent is not one step before it")
        if self.best is not None and self.best >= len(self.nodes):
            raise ValueError(f"there is no node {self.best} to be the best")
        return self


class Vectors(Part):
    """What the scores of one layer were made of: [heads, T or S, width]."""

    score: Literal["dot", "scaled_dot", "bilinear", "additive", "location", "content_location"]
    normalize: Literal["soft", "hard"] = "soft"
    queries: Blob  # of additive scores W q
    keys: Blob  # as the score gets them: W k of bilinear, U k + b of additive scores; of location, the rows of W
    values: Blob
    scores: Blob  # [heads, T, S]; -65504 where a slot is hidden
    energy: Blob | None = None  # v of additive scores
    moved: Blob | None = None  # F f of content_location: [heads, T, S, width]


class Reading(Part):
    """Which head aligns words best, and whether one reads the step that says a piece or the one after it."""

    step: Literal["naive", "shifted"] = "naive"
    layer: Count | None = None
    head: Count | None = None


class Reference(Part):
    """What should have been said."""

    text: str
    logp: float
    score: float  # by the rule of the search
    verdict: Literal["search", "model", "same"]  # whose error it is that the answer is another


class Sentence(Part):
    """A source, an answer, and how the model got there."""

    name: str  # of the model, or of the setting
    source: Text
    target: Text
    logp: float
    score: float
    steps: tuple[Step, ...]
    tree: Tree | None = None
    attention: dict[Place, Blob] = Field(default_factory=dict)  # [layers, heads, T, S]
    importance: dict[Place, tuple[tuple[float, ...], ...]] = Field(default_factory=dict)  # [layers][heads]
    reading: Reading | None = None
    vectors: dict[Place, tuple[Vectors, ...]] = Field(default_factory=dict)
    reference: Reference | None = None
    about: str = ""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        source, target = len(self.source.pieces), len(self.target.pieces)
        if len(self.steps) != target:
            raise ValueError(f"{len(self.steps)} steps for a target of {target} pieces")
        wanted = {"encoder": (source, source), "cross": (target, source), "decoder": (target, target)}
        for place, blob in self.attention.items():
            if len(blob.shape) != 4 or blob.shape[2:] not in (wanted[place], (wanted[place][0], 1)):
                raise ValueError(
                    f"attention.{place} has shape {list(blob.shape)}, not [layers, heads, *{wanted[place]}]"
                )
            heads = [len(row) for row in self.importance.get(place, ())]
            if heads not in ([], [blob.shape[1]] * blob.shape[0]):
                raise ValueError(f"importance.{place} is not [{blob.shape[0]}][{blob.shape[1]}] numbers")
            if place == "cross" and self.reading:
                for what, value, count in zip(
                    ("layer", "head"), (self.reading.layer, self.reading.head), blob.shape, strict=False
                ):
                    if value is not None and value >= count:
                        raise ValueError(f"reading.{what} is {value}, but there are {count}")
            if place in self.vectors:
                self._made_of(place, blob.shape)
        if lost := self.vectors.keys() - self.attention.keys():
            raise ValueError(f"vectors.{min(lost)} without attention.{min(lost)}")
        if lost := self.importance.keys() - self.attention.keys():
            raise ValueError(f"importance.{min(lost)} without attention.{min(lost)}")
        return self

    def _made_of(self, place: Place, shape: tuple[int, ...]) -> None:
        layers, heads, rows, columns = shape
        if len(self.vectors[place]) != layers:
            raise ValueError(f"vectors.{place} has {len(self.vectors[place])} layers, not {layers}")
        for one in self.vectors[place]:
            wanted = {
                "queries": (heads, rows),
                "keys": (heads, columns),
                "values": (heads, columns),
                "scores": (heads, rows),
            }
            for name, ends in wanted.items():
                shape = getattr(one, name).shape
                if len(shape) != 3 or shape[:2] != ends:
                    raise ValueError(f"vectors.{place}: {name} has shape {list(shape)}, not {list(ends)} and a width")
            wide = one.queries.shape[2]
            same = [one.keys.shape[2] == wide, one.scores.shape[2] == columns]
            same += [one.energy is None or one.energy.shape == (wide,)]
            same += [one.moved is None or one.moved.shape == (heads, rows, columns, wide)]
            if not all(same):
                raise ValueError(f"vectors.{place}: queries, keys, scores, energy and moved do not fit together")


# ---------------------------------------------------------------------------------------------------------- a film


class Take(Part):
    """One sentence at one moment of training."""

    target: Text
    attention: Blob | None = None  # cross-attention [layers, heads, T, S]


class Frame(Part):
    """One moment of training."""

    step: Count
    loss: float | None = None
    bleu: float | None = None
    chrf: float | None = None
    takes: tuple[Take, ...]


class Film(Part):
    """The same sentences at each validation of a training run."""

    sources: tuple[Text, ...]
    frames: tuple[Frame, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
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


class Trace(Part):
    """A whole file."""

    format: Literal["heedful-trace"] = "heedful-trace"
    version: Literal[1] = 1
    maker: str = ""
    title: str = ""
    sentences: Annotated[tuple[Sentence, ...], Field(max_length=1000)] = ()
    film: Film | None = None


def dumped(trace: Trace) -> str:
    """As JSON; what is not there, or is as usual, is left out."""
    tree = {"format": FORMAT, "version": VERSION, "maker": trace.maker or f"heedful {heedful.__version__}"}
    tree |= trace.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    return json.dumps(rounded(tree), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def rounded(tree: Any) -> Any:
    """Six digits after the point are enough for a log-probability."""
    if isinstance(tree, float):
        return round(tree, 6)
    if isinstance(tree, dict):
        return {key: rounded(value) for key, value in tree.items()}
    return [rounded(one) for one in tree] if isinstance(tree, list) else tree


def parsed(text: str | bytes) -> Trace:
    """From JSON that may come from anywhere."""
    try:
        tree = json.loads(text, parse_constant=_never)
        json.dumps(tree, ensure_ascii=False).encode()  # no half characters, which JSON can spell
    except (ValueError, RecursionError) as error:
        raise HeedfulError(f"this is not JSON ({escape_invisible(str(error)[:200])})") from None
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise HeedfulError(f"this is not a trace: it does not begin with format {FORMAT!r}")
    if isinstance(tree.get("version"), int) and tree["version"] > VERSION:
        raise HeedfulError(f"this trace has version {tree['version']}; heedful {heedful.__version__} reads {VERSION}")
    try:
        return Trace.model_validate(tree)
    except ValidationError as error:
        first, *others = error.errors()
        where = ".".join(str(one) for one in first["loc"])[:200]
        more = f"; and {len(others)} more" if others else ""
        raise HeedfulError(
            f"{escape_invisible(where) or 'the trace'}: {escape_invisible(first['msg'][:300])}{more}"
        ) from None


def _never(word: str) -> None:
    raise ValueError(f"{word} is not a number")


# ---------------------------------------------------------------------------------------------------------- pieces


def spelled(pieces: list[str], text: str, special: int = 0, last: bool = True) -> tuple[Piece, ...]:
    """Pieces as a tokenizer names them, with their places in the text.

    `special` says how many of the first are tags; `last`, that the last is an end token. Bytes (`<0xE2>`) are shown as
    the character they spell.
    """
    inner = pieces[special : len(pieces) - last]
    found: list[Piece] = [Piece(text=name) for name in pieces[:special]]
    words = _words(inner, text)
    at, letter, row = 0, 0, 0
    while row < len(inner):
        run = _bytes_from(inner, row)
        body = _letters(inner[row : row + run]) if run else inner[row].replace("\u2581", " ")
        bare = body.strip(" ")  # a piece that is but a space stands nowhere
        begin = text.find(bare, at)
        begin = at if begin < 0 or begin > at + 8 else begin
        end = min(len(text), begin + len(bare))
        if run:
            shown = (" " if row and text[begin - 1 : begin] == " " else "") + bare
            found += [
                Piece(text=shown, start=begin, end=end, word=words[row + at_byte], letter=letter)
                for at_byte in range(run)
            ]
            letter += 1
        else:
            found.append(Piece(text=body, start=begin, end=end, word=words[row]))
        at = end
        row += run or 1
    return (*found, *(Piece(text=name, start=len(text), end=len(text)) for name in pieces[len(pieces) - last :]))


def _bytes_from(pieces: list[str], row: int) -> int:
    """How many pieces from here on are the bytes of one character; 0 where there is none."""
    spelled_out = b""
    for count, piece in enumerate(pieces[row : row + 4], 1):
        if not (piece.startswith("<0x") and piece.endswith(">") and len(piece) == 6):
            break
        try:
            spelled_out += bytes([int(piece[3:5], 16)])
            spelled_out.decode()
        except UnicodeDecodeError:
            continue
        except ValueError:
            break
        return count
    return int(pieces[row].startswith("<0x") and len(pieces[row]) == 6)


def _letters(pieces: list[str]) -> str:
    data = bytes(int(piece[3:5], 16) for piece in pieces)
    return data.decode(errors="replace")


def _words(pieces: list[str], text: str) -> list[int | None]:
    return list(word_indices(pieces)) if text.strip() else [None] * len(pieces)

"""The kinds of sources: how a source becomes a row of a batch.

A row has one entry per slot: token ids [S], or features [S, F]. INPUTS maps each kind of `[input]` to a type:

    inputs = make_input(settings.input)
    row = inputs.read_row("cat.png", folder)     # for text, the tokenizer makes the row instead
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from heedful.config import (
    AudioInputSettings,
    GraphInputSettings,
    ImageInputSettings,
    InputSettings,
    NoInputSettings,
    Section,
    TextInputSettings,
)
from heedful.inputs import graphs, pictures, sound

Row: TypeAlias = NDArray[Any]  # token ids [S], or features [S, F]
Box: TypeAlias = tuple[float, float, float, float]  # left, top, right and bottom, in shares of the picture

SIDES = ("source", "target")
RANDOM_FRAMES = 100
RANDOM_NODES = 30


class Nouns(NamedTuple):
    """What messages call a source in a file, and the text about it."""

    key: str  # in tables and requests
    source: str
    sources: str
    text: str
    texts: str
    file: str  # an example
    task: str  # of a model


@dataclass(frozen=True, slots=True, eq=False)
class StoredRow:
    """A source that is already a row."""

    row: Row


class Input(Protocol):
    """One kind of sources."""

    @property
    def text_sides(self) -> tuple[str, ...]:
        """The sides that are text, and so have a tokenizer."""
        ...

    @property
    def num_features(self) -> int | None:
        """F, the numbers per slot; None if a row contains token ids."""
        ...

    @property
    def num_slots(self) -> int | None:
        """S, if it is the same for all sources."""
        ...

    @property
    def dtype(self) -> type[np.generic]:
        """The type of the numbers of a row that is stored."""
        ...

    @property
    def erased(self) -> float:
        """The features of a slot that shows nothing, as the encoder reads them."""
        ...

    @property
    def nouns(self) -> Nouns | None:
        """None if a source is not a file."""
        ...

    def read_row(self, source: Any, folder: Path | None = None) -> Row:
        """The row of a source that is not text: paths are relative to `folder`. DataError if it cannot be read."""
        ...

    def decode(self, source: Any) -> Any:
        """The content of a file, which `read_row` takes too. MediaError if it cannot be read."""
        ...

    def augment(self, row: Row, generator: np.random.Generator) -> Row:
        """A variation of a row, for training."""
        ...

    def boxes(self, row: Row, reduction: int) -> Sequence[Box]:
        """The place of every slot of a memory in `png`, in shares of its sides; empty if there is no picture.

        `reduction` is the number of slots of the row per slot of the memory.
        """
        ...

    def seconds(self, row: Row) -> float | None:
        """The duration of the recording of a row; None if it is none."""
        ...

    def png(self, row: Row) -> bytes | None:
        """The picture of a row as a PNG; None if there is none."""
        ...

    def wav(self, source: Any) -> bytes | None:
        """The recording of a source as a WAV; None if it is none."""
        ...

    def random_rows(self, count: int, generator: np.random.Generator) -> list[Row]:
        """Rows of nonsense; of text, the tokenizer has the pieces."""
        ...

    def files_digest(self, sources: Iterable[str], folder: Path) -> str:
        """A hash that changes if one of the files that sources name changes; empty if they name none."""
        ...


class NotMedia:
    """What sources that are not in files have in common."""

    __slots__ = ()
    num_features = None
    erased = 0.0
    nouns = None

    def decode(self, source: Any) -> Any:
        return source

    def augment(self, row: Row, generator: np.random.Generator) -> Row:  # noqa: ARG002  # one signature for all
        return row

    def boxes(self, row: Row, reduction: int) -> Sequence[Box]:  # noqa: ARG002
        return ()

    def seconds(self, row: Row) -> float | None:  # noqa: ARG002
        return None

    def png(self, row: Row) -> bytes | None:  # noqa: ARG002
        return None

    def wav(self, source: Any) -> bytes | None:  # noqa: ARG002
        return None

    def files_digest(self, sources: Iterable[str], folder: Path) -> str:  # noqa: ARG002
        return ""


@dataclass(frozen=True, slots=True)
class TextInput(NotMedia):
    """Text, which the tokenizer of the source turns into rows of token ids."""

    settings: TextInputSettings
    text_sides = SIDES
    num_slots = None
    dtype = np.uint32

    def read_row(self, source: Any, folder: Path | None = None) -> Row:  # noqa: ARG002
        raise TypeError("the tokenizer of the source makes the rows of text")

    def random_rows(self, count: int, generator: np.random.Generator) -> list[Row]:  # noqa: ARG002
        raise TypeError("the tokenizer of the source makes the rows of text")


@dataclass(frozen=True, slots=True)
class NoInput(NotMedia):
    """No source, as in a language model: a row without slots."""

    settings: NoInputSettings
    text_sides = ("target",)
    num_slots = 0
    dtype = np.uint16

    def read_row(self, source: Any, folder: Path | None = None) -> Row:  # noqa: ARG002
        return np.empty(0, np.uint16)

    def random_rows(self, count: int, generator: np.random.Generator) -> list[Row]:  # noqa: ARG002
        return [self.read_row(None)] * count


@dataclass(frozen=True, slots=True)
class ImageInput:
    """Pictures: a slot is a square patch, a row [S, 3 patch^2] has the pixels (0 to 255) of every patch."""

    settings: ImageInputSettings
    text_sides = ("target",)
    dtype = np.uint8
    erased = 1.0  # white
    nouns: ClassVar[Nouns] = Nouns("image", "picture", "pictures", "caption", "captions", "a.png", "describes pictures")

    @property
    def num_features(self) -> int:
        return 3 * self.settings.patch**2

    @property
    def num_slots(self) -> int:
        return (self.settings.height // self.settings.patch) * (self.settings.width // self.settings.patch)

    def boxes(self, row: Row, reduction: int) -> Sequence[Box]:  # noqa: ARG002
        return pictures.patch_boxes(self.settings.height, self.settings.width, self.settings.patch)

    def read_row(self, source: Any, folder: Path | None = None) -> Row:
        return pictures.to_patches(self.decode(locate(source, folder)), self.settings.patch)

    def decode(self, source: Any) -> pictures.Pixels:
        """The pixels of a path, the bytes of a file, a PIL image or an array."""
        return pictures.read_picture(source, self.settings.height, self.settings.width)

    def seconds(self, row: Row) -> float | None:  # noqa: ARG002
        return None

    def png(self, row: Row) -> bytes | None:
        return pictures.picture_png(self.picture(row))

    def wav(self, source: Any) -> bytes | None:  # noqa: ARG002
        return None

    def picture(self, row: Row) -> NDArray[np.uint8]:
        """The picture [height, width, 3] of a row."""
        return pictures.from_patches(row, self.settings.height, self.settings.width, self.settings.patch)

    def augment(self, row: Row, generator: np.random.Generator) -> Row:
        if not (self.settings.shift or self.settings.crop or self.settings.color):
            return row
        varied = pictures.augment(self.picture(row), generator, self.settings)
        return pictures.to_patches(varied, self.settings.patch)

    def random_rows(self, count: int, generator: np.random.Generator) -> list[Row]:
        return list(generator.integers(0, 256, (count, self.num_slots, self.num_features), np.uint8))

    def files_digest(self, sources: Iterable[str], folder: Path) -> str:
        return digest_files(sources, folder)


@dataclass(frozen=True, slots=True)
class AudioInput:
    """Recordings: a slot is a frame, a row [S, bands] is a spectrogram from -1 (silence) to 1, as `sound.log_mel`."""

    settings: AudioInputSettings
    text_sides = ("target",)
    num_slots = None
    dtype = np.float16
    erased = -1.0  # silence
    nouns: ClassVar[Nouns] = Nouns(
        "audio", "recording", "recordings", "transcript", "transcripts", "a.wav", "transcribes recordings"
    )

    @property
    def num_features(self) -> int:
        return self.settings.bands

    def read_row(self, source: Any, folder: Path | None = None) -> Row:
        chosen, recording = self.settings, self.decode(locate(source, folder))
        spectrogram = sound.log_mel(
            recording.samples, chosen.rate, bands=chosen.bands, window=chosen.window, hop=chosen.hop
        )
        return spectrogram.astype(self.dtype)

    def decode(self, source: Any) -> sound.Recording:
        """At the rate of the settings: of a path, the bytes of a file, an array or another recording."""
        rate = self.settings.rate
        recording = sound.read_recording(source, max_seconds=self.settings.max_seconds, rate=rate)
        samples = sound.resample(recording.samples, recording.rate, rate)[: int(self.settings.max_seconds * rate)]
        return sound.Recording(samples.clip(-sound.MAX_SAMPLE, sound.MAX_SAMPLE), rate)

    def augment(self, row: Row, generator: np.random.Generator) -> Row:
        return sound.augment(row, generator, self.settings)

    def boxes(self, row: Row, reduction: int) -> Sequence[Box]:
        """Each slot of the memory has the whole height of the spectrogram, and the time of its frames."""
        starts = range(0, len(row), reduction)
        return [(start / len(row), 0.0, min(1.0, (start + reduction) / len(row)), 1.0) for start in starts]

    def seconds(self, row: Row) -> float | None:
        return len(row) * round(self.settings.hop * self.settings.rate) / self.settings.rate

    def png(self, row: Row) -> bytes | None:
        return pictures.picture_png(sound.spectrogram_picture(row))

    def wav(self, source: Any) -> bytes | None:
        return sound.wav_bytes(self.decode(source).samples, self.settings.rate)

    def random_rows(self, count: int, generator: np.random.Generator) -> list[Row]:
        shapes = [(length, self.num_features) for length in generator.integers(1, RANDOM_FRAMES, count)]
        return [generator.uniform(-1, 1, shape).astype(self.dtype) for shape in shapes]

    def files_digest(self, sources: Iterable[str], folder: Path) -> str:
        return digest_files(sources, folder)


@dataclass(frozen=True, slots=True)
class GraphInput:
    """Graphs: a slot is a node, a row [S, features + max_neighbors] has its features and neighbors: `graphs.to_row`."""

    settings: GraphInputSettings
    text_sides = ("target",)
    num_slots = None
    dtype = np.float32
    erased = 0.0  # a node without features and neighbors
    nouns: ClassVar[Nouns] = Nouns("graph", "graph", "graphs", "label", "labels", "a.npz", "reads graphs")

    @property
    def num_features(self) -> int:
        return self.settings.features + self.settings.max_neighbors

    def read_row(self, source: Any, folder: Path | None = None) -> Row:
        return graphs.to_row(self.decode(locate(source, folder)), self.settings.max_neighbors)

    def decode(self, source: Any) -> graphs.Graph:
        """The graph of a path, the bytes of an .npz file, or a `Graph`."""
        return graphs.read_graph(source, self.settings)

    def augment(self, row: Row, generator: np.random.Generator) -> Row:  # noqa: ARG002
        return row

    def boxes(self, row: Row, reduction: int) -> Sequence[Box]:  # noqa: ARG002
        return graphs.node_boxes(self.graph(row))

    def graph(self, row: Row) -> graphs.Graph:
        """The graph of a row, without names."""
        return graphs.from_row(row, self.settings.features)

    def seconds(self, row: Row) -> float | None:  # noqa: ARG002
        return None

    def png(self, row: Row) -> bytes | None:
        return pictures.picture_png(graphs.draw_graph(self.graph(row)))

    def wav(self, source: Any) -> bytes | None:  # noqa: ARG002
        return None

    def random_rows(self, count: int, generator: np.random.Generator) -> list[Row]:
        sizes = generator.integers(1, min(RANDOM_NODES, self.settings.max_nodes), count, endpoint=True).tolist()
        return [
            graphs.to_row(graphs.random_graph(self.settings, size, generator), self.settings.max_neighbors)
            for size in sizes
        ]

    def files_digest(self, sources: Iterable[str], folder: Path) -> str:
        """Also by the files of a graph that is a directory, whose own time does not change with them."""
        parts = ("", f"/{graphs.NODES_FILE}", f"/{graphs.EDGES_FILE}")
        return digest_files((source + part for source in sources for part in parts), folder)


def locate(source: Any, folder: Path | None) -> Any:
    """A source; if it is a path, relative to `folder`."""
    return folder / source if folder is not None and isinstance(source, str | Path) else source


def digest_files(sources: Iterable[str], folder: Path) -> str:
    """By sizes and modification times: reading all files again would take as long as preparing them."""
    digest = hashlib.blake2b(digest_size=16)
    for source in sources:
        try:
            status = (folder / source).stat()
            digest.update(f"{source}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
        except OSError:
            digest.update(f"{source}\0missing\n".encode())
    return digest.hexdigest()


INPUTS: dict[str, Any] = {
    "text": TextInput,
    "none": NoInput,
    "image": ImageInput,
    "audio": AudioInput,
    "graph": GraphInput,
}
NOUNS: dict[str, Nouns] = {kind: inputs.nouns for kind, inputs in INPUTS.items() if inputs.nouns}


def make_input(settings: Section | InputSettings) -> Input:
    """The input that the section `[input]` describes."""
    input_kind: Input = INPUTS[settings.kind](settings)  # type: ignore[union-attr]  # every section of InputSettings has one
    return input_kind


def pad_features(rows: Sequence[Row]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Rows of features [S, F] -> features [B, S, F], bytes as 0 to 1, and the mask [B, S] of real slots."""
    lengths = np.array([len(row) for row in rows])
    features = np.zeros((len(rows), lengths.max(), rows[0].shape[1]), rows[0].dtype)
    for number, row in enumerate(rows):
        features[number, : len(row)] = row
    scale = np.float32(255 if features.dtype == np.uint8 else 1)
    return features.astype(np.float32) / scale, np.arange(features.shape[1]) < lengths[:, None]

"""The kinds of sources: how a source becomes a row of a batch.

A row has one entry per slot: token ids [S], or features [S, F]. INPUTS maps each kind of `[input]` to a type:

    inputs = make_input(settings.input)
    row = inputs.read_row("cat.png", folder)     # for text, the tokenizer makes the row instead
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from heedful.config import ImageInputSettings, InputSettings, NoInputSettings, Section, TextInputSettings
from heedful.inputs.pictures import augment, from_patches, patch_boxes, read_picture, to_patches

Row: TypeAlias = NDArray[Any]  # token ids [S], or features [S, F]
Box: TypeAlias = tuple[float, float, float, float]  # left, top, right and bottom, in shares of the picture

SIDES = ("source", "target")


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

    def read_row(self, source: Any, folder: Path | None = None) -> Row:
        """The row of a source that is not text: paths are relative to `folder`. DataError if it cannot be read."""
        ...

    def augment(self, row: Row, generator: np.random.Generator) -> Row:
        """A variation of a row, for training."""
        ...

    def files_digest(self, sources: Iterable[str], folder: Path) -> str:
        """A hash that changes if one of the files that sources name changes; empty if they name none."""
        ...


@dataclass(frozen=True, slots=True)
class TextInput:
    """Text, which the tokenizer of the source turns into rows of token ids."""

    settings: TextInputSettings
    text_sides = SIDES
    num_features = None
    num_slots = None

    def read_row(self, source: Any, folder: Path | None = None) -> Row:  # noqa: ARG002  # one signature for all
        raise TypeError("the tokenizer of the source makes the rows of text")

    def augment(self, row: Row, generator: np.random.Generator) -> Row:  # noqa: ARG002
        return row

    def files_digest(self, sources: Iterable[str], folder: Path) -> str:  # noqa: ARG002
        return ""


@dataclass(frozen=True, slots=True)
class NoInput:
    """No source, as in a language model: a row without slots."""

    settings: NoInputSettings
    text_sides = ("target",)
    num_features = None
    num_slots = 0

    def read_row(self, source: Any, folder: Path | None = None) -> Row:  # noqa: ARG002
        return np.empty(0, np.uint16)

    def augment(self, row: Row, generator: np.random.Generator) -> Row:  # noqa: ARG002
        return row

    def files_digest(self, sources: Iterable[str], folder: Path) -> str:  # noqa: ARG002
        return ""


@dataclass(frozen=True, slots=True)
class ImageInput:
    """Pictures: a slot is a square patch, a row [S, 3 patch^2] has the pixels (0 to 255) of every patch."""

    settings: ImageInputSettings
    text_sides = ("target",)

    @property
    def num_features(self) -> int:
        return 3 * self.settings.patch**2

    @property
    def num_slots(self) -> int:
        return (self.settings.height // self.settings.patch) * (self.settings.width // self.settings.patch)

    @property
    def boxes(self) -> list[Box]:
        """The place of every slot in the picture."""
        return patch_boxes(self.settings.height, self.settings.width, self.settings.patch)

    def read_row(self, source: Any, folder: Path | None = None) -> Row:
        """The patches of a picture: a path, the bytes of a file, a PIL image or an array."""
        if folder is not None and isinstance(source, str | Path):
            source = folder / source
        return to_patches(read_picture(source, self.settings.height, self.settings.width), self.settings.patch)

    def picture(self, row: Row) -> NDArray[np.uint8]:
        """The picture [height, width, 3] of a row."""
        return from_patches(row, self.settings.height, self.settings.width, self.settings.patch)

    def augment(self, row: Row, generator: np.random.Generator) -> Row:
        if not (self.settings.shift or self.settings.crop or self.settings.color):
            return row
        return to_patches(augment(self.picture(row), generator, self.settings), self.settings.patch)

    def files_digest(self, sources: Iterable[str], folder: Path) -> str:
        """By sizes and modification times: reading all pictures again would take as long as preparing them."""
        digest = hashlib.blake2b(digest_size=16)
        for source in sources:
            try:
                status = (folder / source).stat()
                digest.update(f"{source}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
            except OSError:
                digest.update(f"{source}\0missing\n".encode())
        return digest.hexdigest()


INPUTS: dict[str, Any] = {"text": TextInput, "none": NoInput, "image": ImageInput}


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

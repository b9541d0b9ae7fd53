"""Examines pictures for `heedful check`: which cannot be read, are unsuitable, or are the same.

Two pictures are the same if the model sees the same pixels: their digest is of the scaled picture, not of the file.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heedful.config import ImageInputSettings
from heedful.inputs.pictures import MISSING, PictureError, decode_picture

MAX_ENLARGEMENT = 2.0  # of each side; beyond, a picture is small
MIN_USED_SHARE = 1 / 8  # of the input's area; the rest is padding
PROGRESS_PAIRS = 64


@dataclass(frozen=True, slots=True)
class PictureExamination:
    """The digest of a picture (0: unreadable, or of one color) and its faults: kind -> detail."""

    digest: int = 0
    faults: dict[str, str] = field(default_factory=dict)


def examine_picture(path: Path, settings: ImageInputSettings) -> PictureExamination:
    try:
        picture = decode_picture(path, settings.height, settings.width)
    except PictureError as error:
        kind = "missing_picture" if error.reason == MISSING else "unreadable_picture"
        return PictureExamination(faults={kind: error.reason})
    (height, width), (scaled_height, scaled_width) = picture.size, picture.scaled_size
    faults = {}
    if max(scaled_height / height, scaled_width / width) > MAX_ENLARGEMENT:
        faults["small_picture"] = f"{width:,} x {height:,} pixels for an input of {settings.width} x {settings.height}"
    if scaled_height * scaled_width < MIN_USED_SHARE * settings.height * settings.width:
        faults["narrow_picture"] = f"{width:,} x {height:,} pixels"
    if picture.is_one_color:
        return PictureExamination(faults=faults | {"one_color": ""})
    digest = hashlib.blake2b(picture.pixels.tobytes(), digest_size=8).digest()
    return PictureExamination(int.from_bytes(digest, "big"), faults)


def examine_pictures(
    sources: Sequence[str], folder: Path, settings: ImageInputSettings, progress: Callable[[int], None]
) -> list[PictureExamination]:
    """Examine the pictures of a piece, whose paths are relative to `folder`; a picture may have several captions."""
    pictures: dict[str, PictureExamination] = {}
    for row, source in enumerate(sources):
        if source not in pictures:
            pictures[source] = examine_picture(folder / source, settings)
        if row % PROGRESS_PAIRS == 0:
            progress(min(PROGRESS_PAIRS, len(sources) - row))
    return [pictures[source] for source in sources]

"""Pictures: decode them safely, cut them into patches, and vary them in training.

    picture = read_picture("cat.png", 32, 32)     # [height, width, 3] uint8
    row = to_patches(picture, 4)                  # [64, 48] uint8: one slot per patch

A picture file is untrusted: its format must be in FORMATS, and the size of the file and the number of pixels are
checked before anything is decoded. Every picture that cannot be used raises MediaError with the reason.
"""

import warnings
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from heedful.config.settings import ImageInputSettings
from heedful.errors import require
from heedful.inputs.media import MediaError, check_size, read_content

if TYPE_CHECKING:
    from PIL import Image

# A path, the content of a file, an open picture, or an array [H, W], [H, W, 3] or [H, W, 4] of uint8 or of shares 0..1.
PictureSource: TypeAlias = "str | Path | bytes | Image.Image | NDArray[Any]"
Pixels: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.float32]
Box: TypeAlias = tuple[float, float, float, float]

MAX_PIXELS = 13_000_000  # to decode, in up to 270 MB (WebP); most photos (JPEG) are scaled down while decoding
MAX_BLOCKS = 20_000  # chunks of a PNG or segments of a JPEG
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_JPEG_SCANS = 200  # a progressive JPEG has about ten; each scan costs time for the whole picture
FORMATS = {"PNG": (".png",), "JPEG": (".jpg", ".jpeg"), "GIF": (".gif",), "WEBP": (".webp",), "BMP": (".bmp",)}
ORIENTATION_TAG = 0x0112  # of EXIF
WHITE = 255
MAX_COLOR_RANGE = 2  # of 255, in a picture of one color
LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # gray = LUMA . (red, green, blue), by ITU-R BT.601

_warnings_lock = Lock()  # the filters of `warnings` belong to the process


@dataclass(frozen=True, slots=True)
class DecodedPicture:
    """A picture that is scaled to fit and centered on white, and the height and width that it had."""

    pixels: Pixels  # [height, width, 3]
    size: tuple[int, int]
    scaled_size: tuple[int, int]

    @property
    def is_one_color(self) -> bool:
        """Whether all pixels without the padding are equal, except for rounding."""
        (height, width), (room_height, room_width) = self.scaled_size, self.pixels.shape[:2]
        top, left = (room_height - height) // 2, (room_width - width) // 2
        used = self.pixels[top : top + height, left : left + width]
        return bool(np.ptp(used, axis=(0, 1)).max() <= MAX_COLOR_RANGE)


# ------------------------------------------------------------------------------------------------------------- read


def read_picture(source: PictureSource, height: int, width: int) -> Pixels:
    """Decode a picture, scale it to fit into [height, width], and center it on white."""
    return decode_picture(source, height, width).pixels


def decode_picture(source: PictureSource, height: int, width: int) -> DecodedPicture:
    """`read_picture`, with the size of the picture before it is scaled."""
    require("PIL", extra="image", whose="reading pictures")
    from PIL import Image, UnidentifiedImageError

    name = str(source) if isinstance(source, str | Path) else "the picture"
    try:
        with _warnings_lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a damaged EXIF block, for example
            return _fit(*_open(source, height, width), height, width)
    except MediaError as error:
        raise MediaError(error.reason, name) from None
    except UnidentifiedImageError:
        raise MediaError(f"not one of the formats {', '.join(FORMATS)}, or damaged", name) from None
    except Image.DecompressionBombError:
        raise MediaError(f"too many pixels; the limit is {MAX_PIXELS:,}", name) from None
    except MemoryError:
        raise MediaError("there is not enough memory to decode it", name) from None
    except Exception as error:  # the decoders raise all kinds of errors for damaged files
        raise MediaError(f"damaged or incomplete ({str(error) or type(error).__name__})", name) from error


def _open(source: PictureSource, height: int, width: int) -> tuple["Image.Image", tuple[int, int]]:
    """An open picture that is small enough to be decoded, and its width and height."""
    from PIL import Image

    match source:
        case str() | Path():
            image, size = _open_bytes(read_content(source), height, width)
            suffix, kind = Path(source).suffix.lower(), str(image.format)
            if suffix not in FORMATS[kind] and any(suffix in suffixes for suffixes in FORMATS.values()):
                raise MediaError(f"the name ends in {suffix}, but the content is {kind}; rename the file")
        case bytes():
            image, size = _open_bytes(source, height, width)
        case np.ndarray():
            image = Image.fromarray(_as_bytes(source))
            size = image.size
        case Image.Image():
            image, size = source, source.size
        case _:
            raise MediaError(f"a {type(source).__name__}; use a path, the bytes of a file, a PIL image or an array")
    if image.width * image.height > MAX_PIXELS:
        raise MediaError(f"{image.width:,} x {image.height:,} pixels; the limit is {MAX_PIXELS:,}")
    if not image.width * image.height:
        raise MediaError("0 pixels")
    return image, size


def _open_bytes(content: bytes, height: int, width: int) -> tuple["Image.Image", tuple[int, int]]:
    """Read the header of a file; of its frames, the first counts."""
    from PIL import Image
    from PIL.JpegImagePlugin import JpegImageFile
    from PIL.PngImagePlugin import PngImageFile

    check_size(content, "the picture")
    if _has_many_blocks(content):
        raise MediaError(f"more than {MAX_BLOCKS:,} chunks or segments")
    image: Image.Image = Image.open(BytesIO(content), formats=list(FORMATS))
    size = image.size
    if isinstance(image, PngImageFile):
        Image.open(BytesIO(content), formats=["PNG"]).verify()  # checksums, which decoding ignores
    if isinstance(image, JpegImageFile):
        image.format = "JPEG"  # also if it contains several pictures (MPO)
        if content.count(b"\xff\xda") > MAX_JPEG_SCANS:
            raise MediaError(f"more than {MAX_JPEG_SCANS} scans")
        if "progressive" not in image.info and _has_single_scan(content, image.layers):
            side = 2 * max(height, width)
            image.draft(None, (side, side))
    return image, size


def _has_many_blocks(content: bytes) -> bool:
    """Whether a PNG has too many chunks, or a JPEG too many segments before its pixels: reading them takes minutes."""
    position, blocks = len(PNG_SIGNATURE), 0
    if content.startswith(PNG_SIGNATURE):  # each chunk: length, type, data, checksum
        while position < len(content) and blocks <= MAX_BLOCKS:
            position += 12 + int.from_bytes(content[position : position + 4], "big")
            blocks += 1
    elif content.startswith(b"\xff\xd8"):  # each segment: marker, length with its own two bytes, data
        position = 2
        while content[position : position + 1] == b"\xff" and blocks <= MAX_BLOCKS:
            if content[position + 1 : position + 2] == b"\xda":
                break
            position += 2 + int.from_bytes(content[position + 2 : position + 4], "big")
            blocks += 1
    return blocks > MAX_BLOCKS


def _has_single_scan(content: bytes, components: int) -> bool:
    """Whether the first scan of a JPEG has all components; otherwise, the decoder keeps all coefficients in memory."""
    position = 2
    while content[position : position + 1] == b"\xff":
        if content[position + 1 : position + 2] == b"\xda":
            return content[position + 4] == components
        position += 2 + int.from_bytes(content[position + 2 : position + 4], "big")
    return False


def _as_bytes(array: NDArray[Any]) -> Pixels:
    """[H, W], [H, W, 3] or [H, W, 4] of uint8, or of shares 0..1."""
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (3, 4)):
        raise MediaError(f"an array of shape {list(array.shape)}; use [H, W], [H, W, 3] or [H, W, 4]")
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if not np.issubdtype(array.dtype, np.floating):
        raise MediaError(f"an array of {array.dtype}; use uint8 (0 to 255) or floats (0 to 1)")
    if not ((array >= 0) & (array <= 1)).all():
        raise MediaError("an array of floats outside 0 to 1")
    return (array * WHITE).round().astype(np.uint8)


def _fit(image: "Image.Image", size: tuple[int, int], height: int, width: int) -> DecodedPicture:
    """Decode, scale to fit into [height, width] without distortion, turn upright, and center on white."""
    from PIL import Image

    image.load()
    turn = _read_orientation(image)
    if image.mode.startswith("I"):  # 16 bits
        image = Image.fromarray((np.asarray(image).clip(0, 65_535) >> 8).astype(np.uint8))
    image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    is_sideways = turn in _TURNS_SIDEWAYS
    room = (height, width) if is_sideways else (width, height)
    scale = min(room[0] / size[0], room[1] / size[1])
    scaled = (max(1, round(size[0] * scale)), max(1, round(size[1] * scale)))
    if scaled != image.size:
        image = image.resize(scaled, Image.Resampling.BICUBIC)
    if turn is not None:
        image = image.transpose(turn)
    canvas = Image.new("RGB", (width, height), "white")
    corner = ((width - image.width) // 2, (height - image.height) // 2)
    canvas.paste(image, corner, image if image.mode == "RGBA" else None)
    upright = size if is_sideways else size[::-1]
    return DecodedPicture(np.array(canvas), upright, (image.height, image.width))


_TURNS = (None, None, 0, 3, 1, 5, 4, 6, 2)  # orientation of EXIF -> Image.Transpose
_TURNS_SIDEWAYS = (2, 4, 5, 6)


def _read_orientation(image: "Image.Image") -> "Image.Transpose | None":
    """How the picture is turned upright, from EXIF; None if it already is, or if EXIF is damaged."""
    from PIL import Image

    try:
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
        turn = _TURNS[orientation] if orientation > 0 else None
    except Exception:  # see read_picture; without EXIF, the picture is still usable
        return None
    return None if turn is None else Image.Transpose(turn)


def picture_png(picture: Pixels) -> bytes:
    """[H, W, 3] -> the content of a PNG file."""
    require("PIL", extra="image", whose="writing pictures")
    from PIL import Image

    file = BytesIO()
    Image.fromarray(picture).save(file, "PNG", optimize=True)
    return file.getvalue()


# ---------------------------------------------------------------------------------------------------------- patches


def to_patches(picture: Pixels, patch: int) -> Pixels:
    """[height, width, 3] -> [S, patch * patch * 3]: patches from left to right, then from top to bottom."""
    height, width, channels = picture.shape
    grid = picture.reshape(height // patch, patch, width // patch, patch, channels)
    return grid.swapaxes(1, 2).reshape(-1, patch * patch * channels)


def from_patches(row: Pixels, height: int, width: int, patch: int) -> Pixels:
    """The inverse of `to_patches`."""
    grid = row.reshape(height // patch, width // patch, patch, patch, -1)
    return grid.swapaxes(1, 2).reshape(height, width, -1)


def patch_boxes(height: int, width: int, patch: int) -> list[Box]:
    """(left, top, right, bottom) of every patch, as shares of the picture's sides."""
    return [
        (left / width, top / height, (left + patch) / width, (top + patch) / height)
        for top in range(0, height, patch)
        for left in range(0, width, patch)
    ]


# ----------------------------------------------------------------------------------------------------- augmentation


def augment(picture: Pixels, generator: np.random.Generator, settings: ImageInputSettings) -> Pixels:
    """Cut off a random margin (`crop`) and enlarge the rest, shift it (`shift`), and vary its colors (`color`).

    The generator draws the same number of values for all settings.
    """
    crop, left, top, shift_x, shift_y, *colors = generator.random(8)
    values = picture.astype(np.float32)
    values = _zoom(values, 0, settings.crop * crop, top, _shift(shift_y, settings.shift))
    values = _zoom(values, 1, settings.crop * crop, left, _shift(shift_x, settings.shift))
    if settings.color:
        values = _vary_colors(values, *(1 + settings.color * (2 * draw - 1) for draw in colors))
    return values.round().astype(np.uint8)


def _shift(draw: float, most: int) -> int:
    """A draw of 0..1 as a whole number from -most to most."""
    return int(draw * (2 * most + 1)) - most


def _zoom(values: Floats, axis: int, crop: float, draw: float, shift: int) -> Floats:
    """Along one axis: y[i] = x[(i - shift + 1/2) * (1 - crop) + draw * crop * n - 1/2], interpolated; else white."""
    size = values.shape[axis]
    moved = np.arange(size) - shift
    place = ((moved + 0.5) * (1 - crop) + draw * crop * size - 0.5).clip(0, size - 1)
    below = place.astype(np.int64)
    shape = (-1, 1, 1) if axis == 0 else (1, -1, 1)
    weight = (place - below).astype(np.float32).reshape(shape)
    x0, x1 = values.take(below, axis), values.take(np.minimum(below + 1, size - 1), axis)
    is_inside = ((moved >= 0) & (moved < size)).reshape(shape)
    return np.where(is_inside, x0 + weight * (x1 - x0), np.float32(WHITE))


def _vary_colors(values: Floats, brightness: float, contrast: float, saturation: float) -> Floats:
    """x * brightness; then the distance to the mean gray * contrast; then the distance to its own gray * saturation."""
    colors = values * np.float32(brightness)
    mean = (colors @ LUMA).mean()
    colors = mean + np.float32(contrast) * (colors - mean)
    gray = (colors @ LUMA)[..., None]
    varied: Floats = gray + np.float32(saturation) * (colors - gray)
    return varied.clip(0, WHITE)

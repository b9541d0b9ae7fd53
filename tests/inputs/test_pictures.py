"""Pictures: what is read, what is rejected, patches and augmentation."""

import io
import re
import subprocess
import sys
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from heedful.config.settings import ImageInputSettings
from heedful.errors import DataError, MissingExtra
from heedful.inputs.media import MediaError, read_content
from heedful.inputs.pictures import (
    MAX_PIXELS,
    augment,
    decode_picture,
    from_patches,
    patch_boxes,
    picture_png,
    read_picture,
    to_patches,
)
from support.hostile_pictures import FILES, PATHS, SUFFIXES, encode, png, read_in_process, write_hostile_pictures
from support.process_memory import MB, MEASURABLE

MAX_GROWTH = 300 * MB


def save(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def random_picture(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def settings(**options) -> ImageInputSettings:
    return ImageInputSettings(kind="image", **options)


# ------------------------------------------------------------------------------------------------------------- read


def test_a_picture_of_the_right_size_is_unchanged_from_every_source(tmp_path):
    picture = random_picture(24, 32)
    content = picture_png(picture)
    path = tmp_path / "a picture.PNG"
    path.write_bytes(content)
    sources = [path, str(path), content, Image.fromarray(picture), picture, picture / 255]
    for source in sources:
        np.testing.assert_array_equal(read_picture(source, 24, 32), picture)
    assert read_content(path) == content


@pytest.mark.parametrize("kind", SUFFIXES)
def test_every_format_is_read(kind):
    color = np.array([200, 100, 50])
    picture = np.full((16, 16, 3), color, np.uint8)
    assert np.abs(read_picture(save(Image.fromarray(picture), kind), 16, 16) - color).max() <= 4


@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 40), st.integers(1, 40))
def test_a_picture_is_scaled_to_fit_and_centered_on_white(height, width, room_height, room_width):
    black = read_picture(np.zeros((height, width), np.uint8), room_height, room_width) == 0
    rows, columns = black.all(axis=2).any(axis=1).nonzero()[0], black.all(axis=2).any(axis=0).nonzero()[0]
    used = (len(rows), len(columns))
    scale = min(room_height / height, room_width / width)
    assert used == (max(1, round(height * scale)), max(1, round(width * scale)))
    assert room_height == used[0] or room_width == used[1]
    for places, room, size in ((rows, room_height, used[0]), (columns, room_width, used[1])):
        assert places.tolist() == list(range((room - size) // 2, (room - size) // 2 + size))
    assert black.sum() == used[0] * used[1] * 3


def test_transparency_is_composited_over_white():
    pixels = np.zeros((2, 2, 4), np.uint8)  # black, with opacity 0, 1/3, 2/3 and 1
    pixels[..., 3] = [[0, 85], [170, 255]]
    expected = np.array([[255, 170], [85, 0]])[..., None].repeat(3, axis=2)
    for source in (pixels, save(Image.fromarray(pixels)), save(Image.fromarray(pixels), "WEBP", lossless=True)):
        np.testing.assert_array_equal(read_picture(source, 2, 2), expected)


def test_colors_of_transparent_pixels_do_not_bleed_when_the_picture_is_scaled():
    pixels = np.zeros((64, 64, 4), np.uint8)
    pixels[..., 0] = 255  # red, but invisible
    assert (read_picture(pixels, 8, 8) == 255).all()


WHITE_AND_BLACK = np.array([[255, 0], [0, 255]], np.uint8)
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "I", "F")


@pytest.mark.parametrize("mode", MODES)
def test_unusual_modes_are_read(mode):
    image = Image.fromarray(WHITE_AND_BLACK).convert("P" if mode == "PA" else mode).convert(mode)
    if mode == "I":
        image = Image.fromarray(WHITE_AND_BLACK.astype(np.int32) * 257)
    np.testing.assert_array_equal(read_picture(image, 2, 2), WHITE_AND_BLACK[..., None].repeat(3, axis=2))


def test_16_bits_and_transparent_palettes_are_read_from_files():
    deep = Image.fromarray(np.array([[0, 65_535], [32_768, 255]], np.uint16))
    assert deep.mode == "I;16"
    assert read_picture(save(deep), 2, 2)[..., 0].tolist() == [[0, 255], [128, 0]]
    palette = Image.fromarray(np.array([[0, 1]], np.uint8), mode=None).convert("P")
    palette.putpalette([10, 20, 30, 40, 50, 60])
    expected = [[[255, 255, 255], [40, 50, 60]]]
    for kind in ("PNG", "GIF"):
        assert read_picture(save(palette, kind, transparency=0), 1, 2).tolist() == expected


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_orientation_of_exif_is_applied(kind, orientation):
    """A gray corner that viewers show at the top left, for all eight orientations."""
    upright = np.full((16, 24, 3), 255, np.uint8)
    upright[:8, :8] = 100
    turns = {
        1: lambda x: x, 2: np.fliplr, 3: lambda x: np.rot90(x, 2), 4: np.flipud,
        5: lambda x: x.swapaxes(0, 1), 6: lambda x: np.rot90(x, 1), 7: lambda x: np.rot90(x, 2).swapaxes(0, 1),
        8: lambda x: np.rot90(x, 3),
    }  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = Image.fromarray(np.ascontiguousarray(turns[orientation](upright)))
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 100}}.get(kind, {})
    picture = read_picture(save(stored, kind, exif=exif, **options), 16, 24)
    assert np.abs(picture.astype(int) - upright).max() <= 2


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_the_size_is_that_of_the_upright_picture_before_it_is_scaled(kind):
    exif = Image.Exif()
    for orientation, size in ((1, (300, 600)), (6, (600, 300))):
        exif[0x0112] = orientation
        picture = decode_picture(save(Image.fromarray(random_picture(300, 600)), kind, exif=exif), 20, 20)
        assert picture.size == size
        assert picture.scaled_size == (size[0] // 30, size[1] // 30)
        assert not picture.is_one_color
    assert decode_picture(save(Image.new("RGB", (300, 600), "green"), kind), 20, 20).is_one_color


def test_a_damaged_exif_block_does_not_matter():
    picture = random_picture(8, 8)
    for exif in (b"Exif\0\0garbage", b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01", b"Exif\0\0MM\0*\xff\xff\xff\xff"):
        np.testing.assert_array_equal(read_picture(save(Image.fromarray(picture), exif=exif), 8, 8), picture)
    exif = Image.Exif()
    for orientation in (0, 9, 65_535):
        exif[0x0112] = orientation
        np.testing.assert_array_equal(read_picture(save(Image.fromarray(picture), exif=exif), 8, 8), picture)


def test_of_an_animation_the_first_frame_counts():
    frames = [Image.new("RGB", (8, 8), color) for color in ("black", "white")]
    for kind, options in (("GIF", {}), ("WEBP", {"lossless": True}), ("PNG", {})):
        content = save(frames[0], kind, save_all=True, append_images=frames[1:], **options)
        assert not read_picture(content, 8, 8).any()


def test_a_photo_with_more_pixels_than_the_limit_is_scaled_down_while_decoding():
    side = int(MAX_PIXELS**0.5) + 100
    photo = save(Image.new("L", (side, side), 100), "JPEG", quality=20)
    assert np.abs(read_picture(photo, 8, 8).astype(int) - 100).max() <= 3


def test_a_pil_image_is_not_changed():
    content = save(Image.fromarray(random_picture(400, 400)), "JPEG")
    image, same = Image.open(io.BytesIO(content)), Image.open(io.BytesIO(content))
    read_picture(image, 8, 8)
    assert image.size == (400, 400)
    assert image.tobytes() == same.tobytes()


# --------------------------------------------------------------------------------------------------------- rejected


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (np.zeros((2, 2, 2), np.uint8), r"shape \[2, 2, 2\]; use \[H, W\]"),
        (np.zeros(4, np.uint8), r"shape \[4\]"),
        (np.zeros((2, 2), int), "an array of int64; use uint8"),
        (np.full((2, 2), 2.0), "floats outside 0 to 1"),
        (np.full((2, 2), np.nan), "floats outside 0 to 1"),
        (np.zeros((0, 2), np.uint8), "0 pixels"),
        (np.zeros((1, MAX_PIXELS + 1), np.uint8), "pixels; the limit is 13,000,000"),
        (None, "a NoneType; use a path"),
        ("a\0b.png", "cannot be read"),
        ("x" * 5_000, "cannot be read"),
    ],
)
def test_a_source_of_the_wrong_kind_is_rejected(source, reason):
    with pytest.raises(MediaError, match=reason):
        read_picture(source, 8, 8)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return write_hostile_pictures(tmp_path_factory.mktemp("hostile"), 80)


@pytest.mark.skipif(not MEASURABLE, reason="links, pipes and /proc are needed")
def test_hostile_pictures_are_rejected_with_their_reasons(hostile):
    reasons, growth = read_in_process([picture.path for picture in hostile])
    wrong = [
        (picture, why) for picture, why in zip(hostile, reasons, strict=True) if not re.search(picture.reason, str(why))
    ]
    assert wrong == []
    assert growth < MAX_GROWTH
    assert {picture.kind for picture in hostile} >= {*FILES, *PATHS} - {"unreadable"}


def test_the_error_names_the_file(tmp_path):
    with pytest.raises(DataError, match=r"^.*nothing\.png: there is no such file$") as caught:
        read_picture(tmp_path / "nothing.png", 8, 8)
    assert caught.value.reason == "there is no such file"


@pytest.mark.skipif(not MEASURABLE, reason="permissions of POSIX are needed")
def test_an_unreadable_file_is_rejected(tmp_path):
    """Also if the tests run as root, who may read everything: the reading process then becomes nobody."""
    path = tmp_path / "secret.png"
    path.write_bytes(picture_png(random_picture(8, 8)))
    path.chmod(0)
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    code = (
        "import os, sys; from heedful.inputs.media import read_content\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "try: read_content(sys.argv[1])\nexcept Exception as error: print(error.reason)"
    )
    run = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert run.stdout == "cannot be read (Permission denied)\n"


@pytest.mark.skipif(not MEASURABLE, reason="memory is measured on Linux")
@pytest.mark.slow
def test_the_largest_allowed_pictures_are_read_in_bounded_memory(tmp_path):
    image = Image.new("RGBA", (4_000, MAX_PIXELS // 4_000), (10, 20, 30, 40))
    image.save(tmp_path / "webp.webp", lossless=True, quality=0, method=0)
    image.convert("CMYK").save(tmp_path / "jpeg.jpg", progressive=True, subsampling=0, quality=30)
    for path in sorted(tmp_path.iterdir()):
        reasons, growth = read_in_process([path])
        assert reasons == [None]
        assert 100 * MB < growth < MAX_GROWTH, path.name


@pytest.mark.parametrize("kind", SUFFIXES)
def test_a_truncated_picture_never_becomes_another_picture(kind):
    """What the last bytes lack (an end marker, at most 12 bytes) may be missing; the pixels may not."""
    content = encode(kind, np.random.default_rng(2))
    picture = read_picture(content, 32, 32)
    for length in range(0, len(content) - 12, 7):
        with pytest.raises(MediaError):
            read_picture(content[:length], 32, 32)
    for length in range(len(content) - 12, len(content)):
        with suppress(MediaError):
            np.testing.assert_array_equal(read_picture(content[:length], 32, 32), picture)


@given(st.sampled_from(sorted(SUFFIXES)), st.integers(0, 5), st.data())
def test_flipped_bytes_are_read_or_rejected_and_nothing_else(kind, seed, data):
    content = bytearray(encode(kind, np.random.default_rng(seed)))
    for place in data.draw(st.lists(st.integers(0, min(len(content) - 1, 200)), min_size=1, max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    with suppress(MediaError):
        assert read_picture(bytes(content), 8, 8).shape == (8, 8, 3)


def test_warnings_of_the_decoder_are_not_shown(recwarn):
    content = png(
        (b"IHDR", b"\0\0\0\1\0\0\0\1\x08\0\0\0\0"),
        (b"acTL", b"\0" * 8),
        (b"IDAT", zlib.compress(b"\0\0")),
        (b"IEND", b""),
    )
    with pytest.warns(UserWarning, match="APNG"):
        Image.open(io.BytesIO(content))
    read_picture(content, 1, 1)
    assert not recwarn.list


def test_without_pillow_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr("heedful.errors.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'heedful\[image\]'"):
        read_picture(b"", 8, 8)
    with pytest.raises(MissingExtra, match=r"pip install 'heedful\[image\]'"):
        picture_png(random_picture(8, 8))


# ---------------------------------------------------------------------------------------------------------- patches

PICTURES = st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4)).flatmap(
    lambda size: st.tuples(arrays.arrays(np.uint8, (size[0] * size[2], size[1] * size[2], 3)), st.just(size[2]))
)


@given(PICTURES)
def test_patches_and_boxes_cover_the_picture_in_the_same_order(case):
    picture, patch = case
    height, width, _ = picture.shape
    row = to_patches(picture, patch)
    assert row.shape == (height * width // patch**2, patch * patch * 3)
    np.testing.assert_array_equal(from_patches(row, height, width, patch), picture)
    boxes = patch_boxes(height, width, patch)
    assert len(boxes) == len(row)
    for pixels, (left, top, right, bottom) in zip(row, boxes, strict=True):
        rows, columns = (
            slice(round(a * size), round(b * size)) for a, b, size in ((top, bottom, height), (left, right, width))
        )
        np.testing.assert_array_equal(pixels, picture[rows, columns].reshape(-1))


def test_a_picture_survives_as_png():
    picture = random_picture(12, 20)
    np.testing.assert_array_equal(read_picture(picture_png(picture), 12, 20), picture)


# ----------------------------------------------------------------------------------------------------- augmentation


def test_augmentation_depends_on_the_generator_alone():
    picture = random_picture(16, 24)
    options = settings(height=16, width=24, shift=3, crop=0.3, color=0.4)
    before = picture.copy()
    first, again, other = (augment(picture, np.random.default_rng(seed), options) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.5
    np.testing.assert_array_equal(picture, before)
    assert first.dtype == np.uint8


@given(st.integers(0, 99))
def test_without_options_nothing_changes_but_as_many_numbers_are_drawn(seed):
    picture = random_picture(8, 12, seed=seed)
    plain, all_options = np.random.default_rng(seed), np.random.default_rng(seed)
    np.testing.assert_array_equal(augment(picture, plain, settings()), picture)
    augment(picture, all_options, settings(shift=2, crop=0.5, color=0.5))
    assert plain.random() == all_options.random()


@given(st.integers(0, 9_999))
def test_a_shifted_picture_is_the_picture_elsewhere_and_white_where_nothing_is(seed):
    picture = random_picture(8, 10, seed=seed) // 2
    shifted = augment(picture, np.random.default_rng(seed), settings(shift=2))
    padded = np.pad(picture, ((2, 2), (2, 2), (0, 0)), constant_values=255)
    candidates = [padded[y : y + 8, x : x + 10] for y in range(5) for x in range(5)]
    assert any((shifted == candidate).all() for candidate in candidates)


def test_all_shifts_occur():
    dot = np.full((8, 8, 3), 255, np.uint8)
    dot[4, 4] = 0
    generator = np.random.default_rng(0)
    places = {tuple(np.argwhere(augment(dot, generator, settings(shift=1))[..., 0] == 0)[0]) for _ in range(200)}
    assert places == {(y, x) for y in (3, 4, 5) for x in (3, 4, 5)}


@given(st.integers(0, 9_999), st.floats(0, 0.9))
def test_a_crop_is_a_monotone_part_of_the_picture(seed, crop):
    """A gradient stays a gradient, flatter by the part that is cut off, without white at the margins."""
    gradient = np.arange(0, 240, 10, dtype=np.uint8)[None, :, None].repeat(24, axis=0).repeat(3, axis=2)
    row = augment(gradient, np.random.default_rng(seed), settings(height=24, width=24, crop=crop))[0, :, 0].astype(int)
    assert (np.diff(row) >= 0).all()
    assert row.max() <= gradient.max()
    assert row[-1] - row[0] >= (1 - crop) * 230 - 11


@given(st.integers(0, 9_999))
def test_a_gray_picture_stays_gray_and_black_stays_black(seed):
    generator, options = np.random.default_rng(seed), settings(color=0.5)
    gray = augment(np.full((8, 8, 3), 100, np.uint8), generator, options)
    assert np.ptp(gray) == 0
    assert 50 <= gray.min() <= 150
    assert not augment(np.zeros((8, 8, 3), np.uint8), generator, options).any()


def test_too_many_chunks_or_segments_are_rejected_at_once():
    for kind, block in (("PNG", b"\0\0\0\0tEXt" + zlib.crc32(b"tEXt").to_bytes(4, "big")), ("JPEG", b"\xff\xfe\0\2")):
        stream = io.BytesIO()
        Image.new("RGB", (8, 8), "red").save(stream, kind)
        content, start = stream.getvalue(), 33 if kind == "PNG" else 2  # after the header
        assert read_picture(content[:start] + 100 * block + content[start:], 8, 8).shape == (8, 8, 3)
        with pytest.raises(MediaError, match="more than 20,000 chunks or segments"):
            read_picture(content[:start] + 1_000_000 * block + content[start:], 8, 8)

"""Picture files that break careless readers, each with the reason for which it must be rejected.

for hostile in write_hostile_pictures(folder, 500, seed=1):
    hostile.path, hostile.kind, hostile.reason      # the reason is a regular expression
reasons, growth = read_in_process([hostile.path for hostile in ...])
"""

import io
import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

Generator = np.random.Generator
SUFFIXES = {"PNG": ".png", "JPEG": ".jpg", "GIF": ".gif", "WEBP": ".webp", "BMP": ".bmp"}
DAMAGED = r"damaged or incomplete \(.+\)|not one of the formats|pixels; the limit"
TOO_LARGE = r"pixels; the limit is 13,000,000"
NO_PICTURE = "not one of the formats"


@dataclass(frozen=True)
class HostileFile:
    """A file, the kind of its fault, and a regular expression of the reason."""

    path: Path
    kind: str
    reason: str


# ------------------------------------------------------------------------------------------------------- good files


def encode(kind: str, generator: Generator, **options) -> bytes:
    """A small valid picture of random colors."""
    height, width = generator.integers(8, 60, 2)
    file = io.BytesIO()
    Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(file, kind, **options)
    return file.getvalue()


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG file of these chunks, with correct checksums."""
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def png_header(width: int, height: int, bits: int = 8, color: int = 2) -> tuple[bytes, bytes]:
    return b"IHDR", struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)


@cache
def zeros(megabytes: int) -> bytes:
    """Compressed; a thousandth of the size."""
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(megabytes)) + packer.flush()


SMALL_PNG = (png_header(1, 1, color=0), (b"IDAT", zlib.compress(b"\0\0")), (b"IEND", b""))


def insert_chunks(*chunks: tuple[bytes, bytes]) -> bytes:
    return png(SMALL_PNG[0], *chunks, *SMALL_PNG[1:])


# ------------------------------------------------------------------------------------------------------------ faults


def truncate(kind: str) -> Callable[[Generator], bytes]:
    def make(generator: Generator) -> bytes:
        content = encode(kind, generator)
        return content[: int(generator.integers(1, len(content) - 12))]

    return make


def corrupt_png(generator: Generator) -> bytes:
    """One bit of the data or of a checksum."""
    content = bytearray(encode("PNG", generator))
    content[generator.integers(33, len(content) - 12)] ^= 1 << int(generator.integers(8))
    return bytes(content)


def huge_png(generator: Generator) -> bytes:
    width, height = generator.integers(20_000, 2**31 - 1, 2)
    return png(png_header(int(width), int(height)), *SMALL_PNG[1:])


def png_bomb(generator: Generator) -> bytes:
    """A complete picture of one color: 14 KB that unpack to 110 MB."""
    side = int(generator.integers(10_000, 11_000))
    packer = zlib.compressobj(9)
    row = bytes(1 + (side + 7) // 8)
    data = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    return png(png_header(side, side, bits=1, color=0), (b"IDAT", data), (b"IEND", b""))


def many_texts(generator: Generator) -> bytes:
    """Each text is below the limit of one text, together they are not."""
    return insert_chunks(*[(b"zTXt", b"a\0\0" + zeros(1))] * int(generator.integers(66, 80)))


def huge_jpeg(generator: Generator, *, progressive: bool = False) -> bytes:
    content = encode("JPEG", generator, progressive=progressive)
    place = content.index(b"\xff\xc2" if progressive else b"\xff\xc0") + 5
    sides = generator.integers(20_000, 65_500, 2) if not progressive else generator.integers(4_000, 9_000, 2)
    return content[:place] + struct.pack(">HH", *map(int, sides)) + content[place + 4 :]


def many_components_apart(generator: Generator) -> bytes:
    """A baseline JPEG of 100 million pixels whose first scan has one component: its decoder would keep everything."""
    content = encode("JPEG", generator)
    place, scan = content.index(b"\xff\xc0") + 5, content.rindex(b"\xff\xda")
    header = (
        content[:place] + struct.pack(">HH", 10_000, int(generator.integers(9_000, 11_000))) + content[place + 4 : scan]
    )
    return header + b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00" + content[scan + 14 :]


def many_scans(generator: Generator) -> bytes:
    content = encode("JPEG", generator, progressive=True)
    last, end = content.rindex(b"\xff\xda"), len(content) - 2
    return content[:end] + content[last:end] * int(generator.integers(200, 2_000)) + content[end:]


def gif(screen: tuple[int, int], frame: tuple[int, int], data: bytes = b"\x02\x4c\x01\x00") -> bytes:
    return (
        b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80, 0, 0) + b"\xff\xff\xff\0\0\0"
        + b"," + struct.pack("<HHHHB", 0, 0, *frame, 0) + data + b"\0;"
    )  # fmt: skip


def huge_gif(generator: Generator) -> bytes:
    width, height = map(int, generator.integers(10_000, 65_535, 2))
    return gif((width, height), (8, 8))


def huge_frame(generator: Generator) -> bytes:
    """A small screen with a huge frame."""
    width, height = map(int, generator.integers(10_000, 65_535, 2))
    return gif((8, 8), (width, height))


def huge_webp(generator: Generator) -> bytes:
    """A small animation whose canvas is said to have up to 256 million pixels."""
    first, second = (Image.fromarray(generator.integers(0, 256, (9, 9, 3), dtype=np.uint8)) for _ in range(2))
    file = io.BytesIO()
    first.save(file, "WEBP", save_all=True, append_images=[second])
    content = file.getvalue()
    place = content.index(b"VP8X") + 12
    canvas = b"".join(struct.pack("<I", int(side) - 1)[:3] for side in generator.integers(4_000, 16_000, 2))
    return content[:place] + canvas + content[place + 6 :]


@cache
def large_webp() -> bytes:
    """A complete picture with more pixels than allowed, in about a hundred bytes."""
    file = io.BytesIO()
    Image.new("L", (3_700, 3_700), "white").save(file, "WEBP", lossless=True, quality=0, method=0)
    return file.getvalue()


def huge_bmp(generator: Generator) -> bytes:
    content = encode("BMP", generator)
    width, height = map(int, generator.integers(10_000, 2**31 - 1, 2))
    if generator.random() < 0.5:
        height = -height  # from top to bottom
    return content[:18] + struct.pack("<ii", width, height) + content[26:]


def other_format(generator: Generator) -> bytes:
    kind = ("TIFF", "PPM", "ICO", "TGA", "PDF", "EPS", "PCX", "SGI", "DDS", "JPEG2000")[generator.integers(10)]
    return encode(kind, generator)


def svg_bomb(_generator: Generator) -> bytes:
    entities = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    return f'<!DOCTYPE svg [<!ENTITY a0 "x">{entities}]><svg><text>&a9;</text></svg>'.encode()


def random_bytes(generator: Generator) -> bytes:
    signature = (b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF\x64\0\0\0WEBP", b"BM")[
        generator.integers(6)
    ]
    return signature + generator.bytes(int(generator.integers(1, 4_000)))


# kind -> (suffix, content, the reason)
FILES: dict[str, tuple[str, Callable[[Generator], bytes], str]] = {
    **{f"truncated {kind}": (suffix, truncate(kind), DAMAGED) for kind, suffix in SUFFIXES.items()},
    "empty": (".png", lambda _: b"", "empty, 0 bytes"),
    "random bytes": (".jpg", random_bytes, rf"{DAMAGED}|the name ends in"),
    "web page": (".jpg", lambda _: b"<!DOCTYPE html><h1>404 Not Found</h1>", NO_PICTURE),
    "JPEG named .png": (".png", lambda generator: encode("JPEG", generator), r"ends in \.png, but the content is JPEG"),
    "PNG named .jpg": (".jpg", lambda generator: encode("PNG", generator), r"ends in \.jpg, but the content is PNG"),
    "WebP named .gif": (".gif", lambda generator: encode("WEBP", generator), r"ends in \.gif, but the content is WEBP"),
    "other format": (".png", other_format, NO_PICTURE),
    "SVG with entities": (".png", svg_bomb, NO_PICTURE),
    "damaged PNG": (".png", corrupt_png, DAMAGED),
    "PNG with huge sides": (".png", huge_png, rf"{TOO_LARGE}|too many pixels"),
    "PNG without width": (".png", lambda _: png(png_header(0, 5), *SMALL_PNG[1:]), "0 pixels|damaged|not one"),
    "PNG bomb": (".png", png_bomb, TOO_LARGE),
    "PNG with a color profile bomb": (".png", lambda _: insert_chunks((b"iCCP", b"a\0\0" + zeros(80))), DAMAGED),
    "PNG with a text bomb": (".png", lambda _: insert_chunks((b"zTXt", b"a\0\0" + zeros(80))), DAMAGED),
    "PNG with an international text bomb": (
        ".png", lambda _: insert_chunks((b"iTXt", b"a\0\1\0\0\0" + zeros(80))), DAMAGED
    ),
    "PNG with many texts": (".png", many_texts, DAMAGED),
    "PNG with a huge chunk": (".png", lambda _: png(SMALL_PNG[0])[:-4] + b"\xff\xff\xff\xf0IDATx", DAMAGED),
    "JPEG with huge sides": (".jpg", huge_jpeg, rf"{TOO_LARGE}|too many pixels"),
    "progressive JPEG with huge sides": (".jpg", lambda generator: huge_jpeg(generator, progressive=True), TOO_LARGE),
    "JPEG with separate components": (".jpg", many_components_apart, TOO_LARGE),
    "JPEG with many scans": (".jpg", many_scans, "more than 200 scans"),
    "GIF with a huge screen": (".gif", huge_gif, rf"{TOO_LARGE}|too many pixels"),
    "GIF with a huge frame": (".gif", huge_frame, rf"{TOO_LARGE}|too many pixels"),
    "GIF without frames": (".gif", lambda _: b"GIF89a\x08\0\x08\0\0\0\0;", DAMAGED),
    "WebP with a huge canvas": (".webp", huge_webp, rf"{TOO_LARGE}|too many pixels"),
    "WebP with too many pixels": (".webp", lambda _: large_webp(), TOO_LARGE),
    "BMP with huge sides": (".bmp", huge_bmp, rf"{TOO_LARGE}|too many pixels|damaged|not one"),
}  # fmt: skip


# kind -> (suffix, how it is created, the reason); what is on disk is no ordinary file
HostilePaths = dict[str, tuple[str, Callable[[Path], None], str]]


def make_paths(suffix: str, content: bytes) -> HostilePaths:
    """`content` is that of a valid file."""

    def write_large_file(path: Path) -> None:
        """Followed by 64 MB of nothing (a sparse file)."""
        path.write_bytes(content)
        os.truncate(path, 64 << 20)

    def write_unreadable(path: Path) -> None:
        path.write_bytes(content)
        path.chmod(0)

    return {
        "large file": (suffix, write_large_file, "more than 33,554,432 bytes"),
        "directory": (suffix, Path.mkdir, "a directory, not a file"),
        "symbolic link to itself": (
            suffix, lambda path: path.symlink_to(path.name), r"cannot be read \(.*symbolic links.*\)"
        ),
        "symbolic link to nothing": (
            suffix, lambda path: path.symlink_to(f"nothing{suffix}"), "there is no such file"
        ),
        "endless device": (suffix, lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
        "pipe": (suffix, os.mkfifo, "not a regular file"),
        "unreadable": (suffix, write_unreadable, r"cannot be read \(Permission denied\)"),
        "missing": (suffix, lambda path: None, "there is no such file"),
    }  # fmt: skip


PATHS = make_paths(".png", png(*SMALL_PNG))


def write_hostile_pictures(folder: Path, count: int, seed: int = 1) -> list[HostileFile]:
    """`count` pictures, all kinds in turn; each has other contents."""
    return list(write_hostile_files(folder, count, seed, FILES, PATHS))


def write_hostile_files(
    folder: Path,
    count: int,
    seed: int,
    files: dict[str, tuple[str, Callable[[Generator], bytes], str]],
    paths: HostilePaths,
) -> Iterator[HostileFile]:
    kinds = [*files, *paths]
    if os.geteuid() == 0:  # who may read everything
        kinds.remove("unreadable")
    for number in range(count):
        kind = kinds[number % len(kinds)]
        suffix, make, reason = files[kind] if kind in files else paths[kind]
        path = folder / f"{number:04}{suffix}"
        if kind in files:
            path.write_bytes(make(np.random.default_rng((seed, number))))
        else:
            make(path)
        yield HostileFile(path, kind, reason)


# ------------------------------------------------------------------------------------------------------------ memory


def read_in_process(paths: Sequence[Path]) -> tuple[list[str | None], int]:
    """Read pictures in a new process: why each one is rejected (None: it is not), and by how much its peak grows."""
    run = subprocess.run(
        [sys.executable, __file__], input="\n".join(map(str, paths)), capture_output=True, text=True, check=True
    )
    result = json.loads(run.stdout)
    return result["reasons"], result["growth"]


def peak_memory() -> int:
    """The largest memory of this process so far, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def main() -> None:
    """Paths from standard input; a good picture is read first, so that the imports do not count."""
    from heedful.inputs.media import MediaError
    from heedful.inputs.pictures import read_picture

    for kind in SUFFIXES:
        read_picture(encode(kind, np.random.default_rng(0)), 32, 32)
    before, reasons = peak_memory(), []
    for path in sys.stdin.read().splitlines():
        try:
            read_picture(path, 32, 32)
            reasons.append(None)
        except MediaError as error:
            reasons.append(error.reason)
    print(json.dumps({"reasons": reasons, "growth": peak_memory() - before}))


if __name__ == "__main__":
    main()

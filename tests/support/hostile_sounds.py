"""Sound files that break careless readers, each with the reason for which it must be rejected.

for hostile in write_hostile_sounds(folder, 500, seed=1):
    hostile.path, hostile.kind, hostile.reason      # the reason is a regular expression
reasons, growth = read_in_process([hostile.path for hostile in ...])
"""

import io
import json
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import soundfile

from support.hostile_pictures import HostileFile, make_paths, peak_memory, write_hostile_files

Generator = np.random.Generator
SUFFIXES = {"WAV": ".wav", "FLAC": ".flac", "OGG": ".ogg", "MP3": ".mp3"}
RATE = 16_000
MAX_SECONDS = 30.0
DAMAGED = r"not one of the formats WAV, FLAC, OGG, MP3, or damaged|incomplete: it|0 samples"
NO_SOUND = "not one of the formats"
TOO_LONG = r"seconds; the limit is 30"


def encode(kind: str, samples: np.ndarray, rate: int = RATE, **options) -> bytes:
    file = io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, 1, format=kind, **options) as stream:
        for start in range(0, len(samples), 16_000):  # libsndfile crashes if it gets many minutes of OGG at once
            stream.write(samples[start : start + 16_000])
    return file.getvalue()


def noise(generator: Generator, seconds: float = 0.5) -> np.ndarray:
    return generator.uniform(-0.5, 0.5, round(seconds * RATE))


def wav(
    samples: bytes, *, rate: int = RATE, channels: int = 1, bits: int = 16, kind: int = 1, size: int | None = None
) -> bytes:
    """A WAV file with this header."""
    block = channels * bits // 8
    header = struct.pack("<HHIIHH", kind, channels, rate, min(rate * block, 2**32 - 1), block % 65_536, bits)
    body = b"fmt " + struct.pack("<I", len(header)) + header
    body += b"data" + struct.pack("<I", len(samples) if size is None else size) + samples
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def truncate(kind: str) -> Callable[[Generator], bytes]:
    def make(generator: Generator) -> bytes:
        content = encode(kind, noise(generator))
        return content[: int(generator.integers(60, len(content) * 3 // 4))]

    return make


@cache
def long_recording(kind: str) -> bytes:
    """Ten minutes of silence, in few bytes if the format compresses."""
    return encode(kind, np.zeros(600 * 8_000), 8_000)


def random_bytes(generator: Generator) -> bytes:
    signature = (b"", b"RIFF\x64\0\0\0WAVE", b"fLaC", b"OggS", b"\xff\xf0", b"Creative Voice File")
    return signature[generator.integers(len(signature))] + generator.bytes(int(generator.integers(1, 4_000)))


def not_numbers(generator: Generator) -> bytes:
    samples = noise(generator).astype(np.float32)
    samples[generator.integers(len(samples))] = generator.choice([np.nan, np.inf, -np.inf])
    return encode("WAV", samples, subtype="FLOAT")


def loud(generator: Generator) -> bytes:
    return encode("WAV", noise(generator) * 1e20, subtype="DOUBLE")


def other_format(generator: Generator) -> bytes:
    kind = ("AIFF", "AU", "CAF", "W64", "VOC", "SVX", "PAF", "NIST")[generator.integers(8)]
    return encode(kind, noise(generator))


def long_flac_header(generator: Generator) -> bytes:
    """A short FLAC that says that it has hours."""
    content = bytearray(encode("FLAC", noise(generator)))
    content[21] |= 0x0F  # the upper bits of the number of samples
    return bytes(content)


# kind -> (suffix, content, the reason)
FILES: dict[str, tuple[str, Callable[[Generator], bytes], str]] = {
    **{f"truncated {kind}": (SUFFIXES[kind], truncate(kind), DAMAGED) for kind in SUFFIXES},
    "empty": (".wav", lambda _: b"", "empty, 0 bytes"),
    "random bytes": (".wav", random_bytes, rf"{DAMAGED}|the name ends in|is not one|seconds|incomplete|0 samples"),
    "web page": (".mp3", lambda _: b"<!DOCTYPE html><h1>404 Not Found</h1>", NO_SOUND),
    "text": (".wav", lambda _: b"seven\n" * 200, NO_SOUND),
    "FLAC named .wav": (
        ".wav", lambda generator: encode("FLAC", noise(generator)), r"ends in \.wav, but the content is FLAC"
    ),
    "WAV named .mp3": (
        ".mp3", lambda generator: encode("WAV", noise(generator)), r"ends in \.mp3, but the content is WAV"
    ),
    "other format": (".wav", other_format, NO_SOUND),
    "long WAV": (".wav", lambda _: long_recording("WAV"), TOO_LONG),
    "long FLAC": (".flac", lambda _: long_recording("FLAC"), TOO_LONG),
    "long OGG": (".ogg", lambda _: long_recording("OGG"), TOO_LONG),
    "long MP3": (".mp3", lambda _: long_recording("MP3"), TOO_LONG),
    "FLAC with a long header": (".flac", long_flac_header, rf"{TOO_LONG}|{DAMAGED}"),
    "WAV with a long header": (".wav", lambda _: wav(bytes(2_000), size=0x7FFFFFF0), DAMAGED),
    "WAV without samples": (".wav", lambda _: wav(b""), "0 samples|damaged"),
    "WAV with many channels": (".wav", lambda _: wav(bytes(4_000), channels=900), "900 channels|damaged"),
    "WAV without channels": (".wav", lambda _: wav(bytes(4_000), channels=0), DAMAGED),
    "WAV with a huge rate": (".wav", lambda _: wav(bytes(4_000), rate=4_000_000_000), "samples per second|damaged"),
    "WAV with a low rate": (".wav", lambda _: wav(bytes(4_000), rate=10), "10 samples per second"),
    "WAV with rate 0": (".wav", lambda _: wav(bytes(4_000), rate=0), "samples per second|damaged"),
    "WAV of an unknown codec": (".wav", lambda _: wav(bytes(4_000), kind=0x1234), DAMAGED),
    "WAV that is not of numbers": (".wav", not_numbers, "samples that are not numbers"),
    "WAV of large numbers": (".wav", loud, "samples outside -1 to 1"),
    "headers alone": (".flac", lambda _: b"fLaC" + bytes(100), rf"{DAMAGED}|samples per second|channels"),
}  # fmt: skip
PATHS = make_paths(".wav", wav(bytes(2_000)))


def write_hostile_sounds(folder: Path, count: int, seed: int = 1) -> list[HostileFile]:
    """`count` files, all kinds in turn; each has other contents, where the kind allows it."""
    return list(write_hostile_files(folder, count, seed, FILES, PATHS))


def read_in_process(paths: Sequence[Path]) -> tuple[list[str | None], int]:
    """Read recordings in a new process: why each one is rejected (None: it is not), and by how much its peak grows."""
    run = subprocess.run(
        [sys.executable, "-m", "support.hostile_sounds"],
        input="\n".join(map(str, paths)),
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    result = json.loads(run.stdout)
    return result["reasons"], result["growth"]


def main() -> None:
    """Paths from standard input; good recordings are read first, so that the imports do not count."""
    from heedful.inputs.media import MediaError
    from heedful.inputs.sound import read_recording

    for kind in SUFFIXES:
        read_recording(encode(kind, noise(np.random.default_rng(0))), max_seconds=MAX_SECONDS, rate=RATE)
    before, reasons = peak_memory(), []
    for path in sys.stdin.read().splitlines():
        try:
            read_recording(path, max_seconds=MAX_SECONDS, rate=RATE)
            reasons.append(None)
        except MediaError as error:
            reasons.append(error.reason)
    print(json.dumps({"reasons": reasons, "growth": peak_memory() - before}))


if __name__ == "__main__":
    main()

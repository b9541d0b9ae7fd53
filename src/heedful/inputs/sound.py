"""Recordings: decode them safely, resample them, compute their log-mel spectrogram, and vary it in training.

    recording = read_recording("seven.wav", max_seconds=30)     # one channel
    samples = resample(recording.samples, recording.rate, 16_000)
    row = log_mel(samples, 16_000, bands=80, window=0.025, hop=0.01)      # [S, 80]: one slot per frame

A file is untrusted: its format must be in FORMATS, and its size, length, rate and channels are checked before anything
is decoded. Every recording that cannot be used raises MediaError with the reason.
"""

import wave
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from io import BytesIO
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from heedful.config.settings import AudioInputSettings
from heedful.errors import require
from heedful.inputs.media import MediaError, check_size, read_content
from heedful.inputs.mp3 import count_frames

if TYPE_CHECKING:
    from soundfile import SoundFile

Samples: TypeAlias = NDArray[np.float64]  # [N], usually from -1 to 1
Spectrogram: TypeAlias = NDArray[np.float32]  # [S, bands]
# A path, the content of a file, a `Recording`, or an array [N] or [N, channels] of int16 or of floats -1..1.
SoundSource: TypeAlias = "str | Path | bytes | Recording | NDArray[Any]"

FORMATS = {"WAV": (".wav",), "FLAC": (".flac",), "OGG": (".ogg", ".oga", ".opus"), "MP3": (".mp3",)}
MIN_RATE, MAX_RATE = 4_000, 192_000
MAX_CHANNELS = 8
MAX_SAMPLE = 8.0  # of a file with floats, some of which exceed 1 a little
BLOCK_FRAMES = 1 << 16
UNKNOWN_FRAMES = 1 << 62  # of a FLAC that was written to a pipe
UNKNOWN_SIZES = (0, 0xFFFFFFFF, 0x7FFFFFFF)  # of a WAV that was written to a pipe

ZERO_CROSSINGS = 24  # of the resampling filter, on each side
KAISER_BETA = 9.0  # its stop band is 90 dB below
ROLLOFF = 0.945  # of the lower of both Nyquist frequencies: where the filter is at one half
MAX_RATIO_TERM = 10_000  # of both rates in lowest terms; others are rounded, by less than one in 10^4
CHUNK_NUMBERS = 1 << 22

RANGE_DECIBELS = 80.0  # below the loudest band; what is quieter counts as silence
MIN_POWER = 1e-10
LINEAR_HERTZ = 1_000.0  # below, the mel scale is linear, with HERTZ_PER_MEL; above, logarithmic
HERTZ_PER_MEL = 200 / 3
LOG_STEP = np.log(6.4) / 27
MAX_MASKED_SHARE = 0.2  # of a recording, by one mask


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Samples [N] of one channel, from -1 to 1, and their number per second."""

    samples: NDArray[Any]
    rate: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


# ------------------------------------------------------------------------------------------------------------- read


def read_recording(source: SoundSource, *, max_seconds: float, rate: int) -> Recording:
    """Decode a recording and average its channels; `rate` is that of arrays."""
    require("soundfile", extra="audio", whose="reading recordings")
    from soundfile import SoundFileError

    name = str(source) if isinstance(source, str | Path) else "the recording"
    try:
        return _read(source, max_seconds, rate)
    except MediaError as error:
        raise MediaError(error.reason, name) from None
    except MemoryError:
        raise MediaError("there is not enough memory to decode it", name) from None
    except (SoundFileError, RuntimeError, ValueError, OSError, OverflowError) as error:  # from the decoders
        reason = f"not one of the formats {', '.join(FORMATS)}, or damaged"
        raise MediaError(reason, name) from error


def _read(source: SoundSource, max_seconds: float, rate: int) -> Recording:
    match source:
        case str() | Path():
            return _decode(read_content(source), max_seconds, Path(source).suffix.lower())
        case bytes():
            return _decode(source, max_seconds)
        case Recording():
            return _check(_from_array(source.samples), source.rate, max_seconds)
        case np.ndarray():
            return _check(_from_array(source), rate, max_seconds)
    raise MediaError(f"a {type(source).__name__}; use a path, the bytes of a file, an array or a Recording")


def _check_limits(num_frames: int, rate: int, channels: int, max_seconds: float) -> None:
    if not MIN_RATE <= rate <= MAX_RATE:
        raise MediaError(f"{rate:,} samples per second; use {MIN_RATE:,} to {MAX_RATE:,}")
    if not 1 <= channels <= MAX_CHANNELS:
        raise MediaError(f"{channels:,} channels; the limit is {MAX_CHANNELS}")
    if num_frames > max_seconds * rate:
        raise MediaError(f"{num_frames / rate:,.1f} seconds; the limit is {max_seconds:g}")


def _check(samples: Samples, rate: int, max_seconds: float) -> Recording:
    """A recording of samples [N] or [N, channels] that are usable numbers."""
    if not len(samples):
        raise MediaError("0 samples")
    channels = samples.reshape(len(samples), -1)
    _check_limits(len(channels), rate, channels.shape[1], max_seconds)
    if not np.isfinite(channels).all():
        raise MediaError("samples that are not numbers, or infinite")
    if np.abs(channels).max() > MAX_SAMPLE:
        raise MediaError("samples outside -1 to 1")
    return Recording(channels.mean(axis=1), rate)


def _from_array(array: NDArray[Any]) -> Samples:
    """[N] or [N, channels] of int16 or of floats."""
    if array.ndim not in (1, 2):
        raise MediaError(f"an array of shape {list(array.shape)}; use [N] or [N, channels]")
    if array.dtype == np.int16:
        return array / 32_768
    if not np.issubdtype(array.dtype, np.floating):
        raise MediaError(f"an array of {array.dtype}; use int16 or floats (-1 to 1)")
    return array.astype(np.float64)


def _decode(content: bytes, max_seconds: float, suffix: str = "") -> Recording:
    """Decode a file whose header keeps the limits; a file that says more than it contains is incomplete."""
    from soundfile import SoundFile

    check_size(content, "the recording")
    if not content.startswith((b"RIFF", b"fLaC", b"OggS", b"ID3", b"\xff")):  # libsndfile also reads headerless files
        raise MediaError(f"not one of the formats {', '.join(FORMATS)}, or damaged")
    if content.startswith((b"ID3", b"\xff")):
        content = count_frames(content)
    with SoundFile(BytesIO(content)) as file:
        kind = "WAV" if file.format == "WAVEX" else file.format
        if kind not in FORMATS:
            raise MediaError(f"{kind} is not one of the formats {', '.join(FORMATS)}")
        if suffix not in FORMATS[kind] and any(suffix in suffixes for suffixes in FORMATS.values()):
            raise MediaError(f"the name ends in {suffix}, but the content is {kind}; rename the file")
        rate, channels, num_frames = file.samplerate, file.channels, file.frames
        if num_frames >= UNKNOWN_FRAMES:
            raise MediaError("it does not say how long it is, because it was written to a pipe; encode it to a file")
        _check_limits(num_frames, rate, channels, max_seconds)
        blocks = list(_decode_blocks(file, int(max_seconds * rate) + 1))
    samples = np.concatenate(blocks) if blocks else np.empty(0)
    if len(samples) < num_frames or not COMPLETE.get(kind, bool)(content):
        raise MediaError(f"incomplete: it ends after {len(samples) / rate:,.2f} seconds")
    return _check(samples, rate, max_seconds)


def _decode_blocks(file: "SoundFile", max_frames: int) -> Iterator[Samples]:
    """At most `max_frames` frames as one channel, whatever the header says: eight would need eight times the memory."""
    while max_frames > 0 and len(block := file.read(min(BLOCK_FRAMES, max_frames), dtype="float64", always_2d=True)):
        max_frames -= len(block)
        yield _check(block, file.samplerate, inf).samples


def _is_complete_wav(content: bytes) -> bool:
    """Whether the samples are as many bytes as their header says; libsndfile accepts fewer."""
    position = 12
    while position + 8 <= len(content):  # each chunk: name, length, content
        size = int.from_bytes(content[position + 4 : position + 8], "little")
        if content[position : position + 4] == b"data":
            return size in UNKNOWN_SIZES or position + 8 + size <= len(content)
        position += 8 + size + size % 2
    return False


def _is_complete_ogg(content: bytes) -> bool:
    """Whether the last page is there and marked as the end of the stream."""
    start = content.rfind(b"OggS")
    header, segments = content[start : start + 27], start + 27
    if len(header) < 27 or not header[5] & 4:
        return False
    content_start = segments + header[26]  # after the size of each segment
    return len(content) >= content_start + sum(content[segments:content_start])


COMPLETE = {"WAV": _is_complete_wav, "OGG": _is_complete_ogg}  # by format; others say how long they are


def wav_bytes(samples: NDArray[Any], rate: int) -> bytes:
    """Samples from -1 to 1 as a WAV file of 16 bits."""
    file = BytesIO()
    with wave.open(file, "wb") as stream:
        stream.setnchannels(1)
        stream.setsampwidth(2)
        stream.setframerate(rate)
        stream.writeframes((samples * 32_768).round().clip(-32_768, 32_767).astype("<i2").tobytes())
    return file.getvalue()


# --------------------------------------------------------------------------------------------------------- resample


def resample(samples: Samples, rate: int, new_rate: int) -> Samples:
    """y[n] = sum_k x[k] h(n M - k L),  M / L = rate / new_rate in lowest terms

    h is a sinc with a Kaiser window. Only every L-th value of h meets a sample, so there are L filters, and output n
    uses filter n M mod L.
    """
    up, down = lowest_terms(new_rate, rate)
    if up == down:
        return samples
    filters = _polyphase_filters(up, down)  # [L, K]
    num_taps = filters.shape[1]
    padded = np.pad(samples, num_taps // 2)
    positions = np.arange(ceil(len(samples) * up / down)) * down
    windows = sliding_window_view(np.pad(padded, (0, num_taps)), num_taps)
    chunk = max(1, CHUNK_NUMBERS // num_taps)
    parts = (positions[start : start + chunk] for start in range(0, len(positions), chunk))
    return np.concatenate([np.einsum("nk,nk->n", windows[part // up + 1], filters[part % up]) for part in parts])


def lowest_terms(new_rate: int, rate: int) -> tuple[int, int]:
    """L and M of `resample`, at most MAX_RATIO_TERM: there are L filters with about 50 max(1, M / L) values each."""
    if new_rate > rate:
        down, up = lowest_terms(rate, new_rate)
        return up, down
    return Fraction(new_rate, rate).limit_denominator(MAX_RATIO_TERM).as_integer_ratio()


@lru_cache(8)
def _polyphase_filters(up: int, down: int) -> Samples:
    """[L, K]: filter p has h at p / L of a sample after the middle of K samples."""
    cutoff = ROLLOFF * min(1.0, up / down)  # as a share of the old Nyquist frequency
    half = ceil(ZERO_CROSSINGS / cutoff)
    distance = np.arange(up)[:, None] / up - np.arange(1 - half, half + 1)  # in old samples
    window = np.i0(KAISER_BETA * np.sqrt((1 - (distance / half) ** 2).clip(0))) / np.i0(KAISER_BETA)
    filters: Samples = cutoff * np.sinc(cutoff * distance) * window
    filters /= filters.sum(axis=1, keepdims=True)  # a constant stays the same
    return filters


# ----------------------------------------------------------------------------------------------------- spectrogram


def log_mel(samples: Samples, rate: int, *, bands: int, window: float, hop: float) -> Spectrogram:
    """x[s, m] = 1 + max(10 log10(P[s, m] / max P), -80) / 40,  P[s, m] = sum_f W[m, f] |FFT(hann * frame s)|^2

    So the loudest band is 1, and everything 80 dB below is -1, whatever the volume of the recording.
    """
    size, step = round(window * rate), round(hop * rate)
    fft_size = fft_length(size)
    before = (fft_size - size) // 2
    weights = np.pad(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size), (before, fft_size - size - before))
    frames = sliding_window_view(np.pad(samples, fft_size // 2), fft_size)[::step]
    power = np.abs(np.fft.rfft(frames * weights)) ** 2 @ mel_filters(rate, fft_size, bands).T
    decibels = 10 * np.log10(power.clip(MIN_POWER))
    spectrogram: Spectrogram = 1 + (decibels - decibels.max()).clip(-RANGE_DECIBELS) / (RANGE_DECIBELS / 2)
    return spectrogram.astype(np.float32)


def fft_length(window_samples: int) -> int:
    """The power of two that the window fits into."""
    return 1 << (window_samples - 1).bit_length()


@lru_cache(8)
def mel_filters(rate: int, fft_size: int, bands: int) -> Samples:
    """[bands, fft_size / 2 + 1]: triangles that are equally wide on the mel scale of Slaney, each with area 1"""
    edges = mel_to_hertz(np.linspace(0, hertz_to_mel(np.array(rate / 2)), bands + 2))
    frequencies = np.fft.rfftfreq(fft_size, 1 / rate)
    left, middle, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (frequencies - left) / (middle - left), (right - frequencies) / (right - middle)
    filters: Samples = np.minimum(rising, falling).clip(0) * 2 / (right - left)
    return filters


def hertz_to_mel(hertz: Samples) -> Samples:
    """f / (200 / 3) below 1 kHz; above, 27 mels for each factor of 6.4"""
    above = LINEAR_HERTZ / HERTZ_PER_MEL + np.log(np.maximum(hertz, LINEAR_HERTZ) / LINEAR_HERTZ) / LOG_STEP
    return np.where(hertz < LINEAR_HERTZ, hertz / HERTZ_PER_MEL, above)


def mel_to_hertz(mel: Samples) -> Samples:
    """The inverse of `hertz_to_mel`."""
    above = LINEAR_HERTZ * np.exp(LOG_STEP * (mel - LINEAR_HERTZ / HERTZ_PER_MEL))
    return np.where(mel < LINEAR_HERTZ / HERTZ_PER_MEL, mel * HERTZ_PER_MEL, above)


def spectrogram_picture(row: NDArray[Any]) -> NDArray[np.uint8]:
    """[S, bands] from -1 to 1 -> [bands, S, 3]: time from left to right, low tones at the bottom, loud is dark"""
    gray = (127.5 * (1 - row.astype(np.float32).clip(-1, 1))).round().astype(np.uint8)
    return np.repeat(gray.T[::-1, :, None], 3, axis=2)


# ---------------------------------------------------------------------------------------------------- augmentation


def augment(row: NDArray[Any], generator: np.random.Generator, settings: AudioInputSettings) -> NDArray[Any]:
    """Shift a spectrogram in time, then replace random bands and random times by its mean (SpecAugment, without warps).

    The number of values that the generator draws depends only on the settings.
    """
    draws = generator.random((1 + settings.band_masks + settings.time_masks, 2))
    most = round(settings.shift / settings.hop)
    varied, mean = _shift(row, int(draws[0, 0] * (2 * most + 1)) - most), row.mean(dtype=np.float32)
    longest = min(round(settings.time_mask_seconds / settings.hop), int(MAX_MASKED_SHARE * len(row)))
    for number, (width, start) in enumerate(draws[1:]):
        if number < settings.band_masks:
            varied[:, _span(width, start, settings.band_mask_size, row.shape[1])] = mean
        else:
            varied[_span(width, start, longest, len(row))] = mean
    return varied


def _shift(row: NDArray[Any], shift: int) -> NDArray[Any]:
    """A copy, later by `shift` frames (earlier if negative); what is missing is silence."""
    shifted = np.full_like(row, -1)
    length = max(0, len(row) - abs(shift))
    shifted[max(0, shift) :][:length] = row[max(0, -shift) :][:length]
    return shifted


def _span(width: float, start: float, longest: int, size: int) -> slice:
    """Two draws of 0..1 as a span of 0 to `longest` places that is inside 0..size."""
    length = int(width * (min(longest, size) + 1))
    begin = int(start * (size - length + 1))
    return slice(begin, begin + length)

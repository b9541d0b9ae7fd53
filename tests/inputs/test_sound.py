"""Recordings: what is read, what is rejected, resampling, spectrograms and their variations."""

import io
import itertools
import re
import time
import tracemalloc
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from scipy import signal

from heedful.config.settings import AudioInputSettings
from heedful.errors import DataError, MissingExtra
from heedful.inputs.kinds import make_input
from heedful.inputs.media import MediaError
from heedful.inputs.sound import (
    MAX_RATIO_TERM,
    Recording,
    _polyphase_filters,
    augment,
    hertz_to_mel,
    log_mel,
    lowest_terms,
    mel_to_hertz,
    read_recording,
    resample,
    spectrogram_picture,
    wav_bytes,
)
from support.hostile_sounds import FILES, PATHS, SUFFIXES, encode, read_in_process, write_hostile_sounds
from support.process_memory import MB, MEASURABLE

RATE = 16_000
MAX_GROWTH = 300 * MB


def settings(**options) -> AudioInputSettings:
    return AudioInputSettings(kind="audio", **options)


def tone(hertz, rate=RATE, seconds=0.5, amplitude=0.5):
    return amplitude * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def noise(seconds=0.5, rate=RATE, seed=0):
    return np.random.default_rng(seed).uniform(-0.5, 0.5, round(seconds * rate))


def read(source, *, max_seconds=30.0, rate=RATE):
    return read_recording(source, max_seconds=max_seconds, rate=rate)


# ------------------------------------------------------------------------------------------------------------- read


def test_a_recording_is_the_same_from_every_source(tmp_path):
    samples = np.round(noise() * 32_768) / 32_768
    content = wav_bytes(samples, RATE)
    path = tmp_path / "a recording.WAV"
    path.write_bytes(content)
    whole = (samples * 32_768).astype(np.int16)
    sources = [path, str(path), content, samples, whole, np.stack((samples, samples), 1), Recording(samples, RATE)]
    for source in sources:
        recording = read(source)
        assert recording.rate == RATE
        np.testing.assert_array_equal(recording.samples, samples)
    assert read(path).seconds == 0.5


@pytest.mark.parametrize("kind", SUFFIXES)
def test_every_format_is_read(kind):
    recording = read(encode(kind, tone(440), RATE))
    assert recording.rate == RATE
    assert abs(recording.seconds - 0.5) < 0.1  # MP3 pads
    spectrum = np.abs(np.fft.rfft(recording.samples))
    assert abs(np.fft.rfftfreq(len(recording.samples), 1 / RATE)[spectrum.argmax()] - 440) < 5


def mp3_without_count(mode, rate=RATE, channels=1):
    """Two seconds that are quiet, then two that are loud; the first frame says how many frames the file has."""
    samples = np.concatenate([1e-4 * noise(2, rate), noise(2, rate, seed=1)])
    file = io.BytesIO()
    options = {"format": "MP3", "subtype": "MPEG_LAYER_III", "bitrate_mode": mode, "compression_level": 0.5}
    soundfile.write(file, np.stack([samples] * channels, 1), rate, **options)
    content = file.getvalue()
    return content[content.index(content[:2], 192) :]


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000])
@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
def test_an_mp3_without_the_number_of_its_frames_is_read_completely(mode, rate, channels):
    content = mp3_without_count(mode, rate, channels)
    recording = read(content)
    assert (recording.rate, recording.seconds) == (rate, pytest.approx(4, abs=0.2))
    assert np.abs(recording.samples[:rate]).max() < 0.01 < 0.2 < np.abs(recording.samples[-rate : -rate // 2]).max()
    with pytest.raises(MediaError, match="incomplete: its last frame is cut off"):
        read(content[:-5])


TAG = b"ID3\x03\0\0\0\0\x02\0" + bytes(256)


@pytest.mark.parametrize("between", [b"noise", bytes(500), TAG, TAG + bytes(100), mp3_without_count("CONSTANT")])
def test_what_is_between_the_frames_of_an_mp3_is_skipped(between):
    content = mp3_without_count("CONSTANT")
    place = content.index(content[:3], len(content) // 2)
    whole = read(content).seconds
    more = len(between) > 1_000
    assert read(content[:place] + between + content[place:]).seconds == pytest.approx((1 + more) * whole, abs=0.1)
    assert read(TAG + content + b"TAG" + bytes(125)).seconds == whole


def test_a_long_gap_in_an_mp3_is_not_taken_for_its_end():
    content = mp3_without_count("CONSTANT")
    place = content.index(content[:3], len(content) // 2)
    with pytest.raises(MediaError, match="damaged"):
        read(content[:place] + bytes(5_000) + content[place:])


def test_mp3_files_that_are_joined_are_read_completely():
    content = encode("MP3", noise(2), RATE)
    assert read(content + content).seconds == pytest.approx(4, abs=0.3)


def test_an_mp3_of_heads_alone_is_read_or_rejected_soon():
    frame = mp3_without_count("CONSTANT")[:4]
    for content in (frame * 1_000_000, frame + b"ID3" * 1_000_000, TAG[:6] + bytes(4) * 1_000_000):
        begin = time.process_time()
        with suppress(MediaError):
            read(content)
        assert time.process_time() - begin < 5


@pytest.mark.parametrize("cut", [1, 10, 100])
@pytest.mark.parametrize("kind", SUFFIXES)
def test_a_file_without_its_end_is_rejected(kind, cut):
    with pytest.raises(MediaError, match=r"incomplete|damaged"):
        read(encode(kind, noise(), RATE)[:-cut])


def test_a_flac_of_unknown_length_is_rejected_with_the_reason():
    content = bytearray(encode("FLAC", noise(), RATE))
    content[21] &= 0xF0
    content[22:26] = bytes(4)  # the number of samples
    with pytest.raises(MediaError, match="does not say how long it is, because it was written to a pipe"):
        read(bytes(content))


def test_channels_are_averaged_while_decoding():
    file = io.BytesIO()
    soundfile.write(file, np.zeros((4 * 192_000, 8), np.int16), 192_000, format="FLAC")
    tracemalloc.start()
    assert read(file.getvalue()).seconds == 4
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 30 * MB  # all channels have 49 MB


def test_channels_are_averaged():
    left, right = noise(seed=1), noise(seed=2)
    file = io.BytesIO()
    soundfile.write(file, np.stack((left, right), 1), RATE, format="WAV", subtype="DOUBLE")
    np.testing.assert_allclose(read(file.getvalue()).samples, (left + right) / 2)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.zeros((2, 3, 4)), "an array of shape [2, 3, 4]; use [N] or [N, channels]"),
        (np.zeros(5, np.int64), "an array of int64; use int16 or floats"),
        (np.zeros(0), "0 samples"),
        (np.array([0.0, np.nan]), "samples that are not numbers"),
        (np.array([0.0, 9.0]), "samples outside -1 to 1"),
        (np.zeros(31 * RATE), "31.0 seconds; the limit is 30"),
        (np.zeros((100, 9)), "9 channels; the limit is 8"),
        (Recording(np.zeros(100), 500), "500 samples per second; use 4,000 to 192,000"),
        (7, "a int; use a path, the bytes of a file, an array or a Recording"),
        (b"", "empty, 0 bytes"),
    ],
)
def test_what_cannot_be_used_is_rejected_with_its_reason(source, message):
    with pytest.raises(MediaError, match=re.escape(f"the recording: {message}")) as error:
        read(source)
    assert isinstance(error.value, DataError)


def test_hostile_files_are_rejected_with_their_reason_and_little_memory(tmp_path):
    hostile = write_hostile_sounds(tmp_path, 2 * (len(FILES) + len(PATHS)))
    reasons, growth = read_in_process([each.path for each in hostile])
    wrong = {
        each.kind: reason
        for each, reason in zip(hostile, reasons, strict=True)
        if not re.search(each.reason, reason or "it was read")
    }
    assert not wrong
    if MEASURABLE:
        assert growth <= MAX_GROWTH


@pytest.mark.parametrize("kind", SUFFIXES)
def test_a_changed_file_is_read_or_rejected(kind):
    content = encode(kind, noise(), RATE)
    generator = np.random.default_rng(1)
    for _ in range(40):
        changed = bytearray(content)
        for place in generator.integers(0, len(changed), 5):
            changed[place] = generator.integers(256)
        with suppress(MediaError):
            recording = read(bytes(changed))
            assert np.isfinite(recording.samples).all()


def test_without_soundfile_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("heedful.errors.find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=re.escape("pip install 'heedful[audio]'")):
        read(np.zeros(10))


# --------------------------------------------------------------------------------------------------------- resample

RATES = [(8_000, 16_000), (44_100, 16_000), (48_000, 8_000), (22_050, 16_000), (11_025, 48_000)]


@pytest.mark.parametrize(("old", "new"), RATES)
def test_resampling_is_scipys_with_the_same_filter(old, new):
    common = np.gcd(old, new)
    up, down = int(new // common), int(old // common)
    samples, filters = noise(0.02, old), _polyphase_filters(up, down)  # [L, K]
    whole = signal.upfirdn(filters[:, ::-1].T.ravel(), samples, up)  # delayed by half of the filter
    ours = resample(samples, old, new)
    assert len(ours) == -(-len(samples) * new // old)
    np.testing.assert_allclose(ours, whole[filters.size // 2 :: down][: len(ours)], atol=1e-12)


@pytest.mark.parametrize(("old", "new"), RATES)
def test_tones_stay_and_tones_above_the_new_limit_vanish(old, new):
    edge = round(0.05 * new)
    kept = resample(tone(1_000, old), old, new)
    np.testing.assert_allclose(kept[edge:-edge], tone(1_000, new)[: len(kept)][edge:-edge], atol=1e-4)
    if new < old:
        gone = resample(tone(new / 2 + 0.45 * (old - new) / 2, old), old, new)
        assert np.abs(gone[edge:-edge]).max() < 2e-4 * 0.5


@given(st.integers(4_000, 50_000), st.integers(4_000, 50_000), st.integers(1, 400))
def test_any_two_rates(old, new, size):
    ours = resample(np.full(size, 0.25), old, new)
    assert abs(len(ours) - size * new / old) <= 1
    assert np.abs(ours).max() < 0.4


@given(st.integers(4_000, 192_000), st.integers(4_000, 192_000))
def test_filters_are_few_and_the_ratio_nearly_exact(old, new):
    up, down = lowest_terms(new, old)
    assert max(up, down) <= MAX_RATIO_TERM
    assert up / down == pytest.approx(new / old, rel=1e-4)


def test_the_ratio_of_usual_rates_is_exact():
    usual = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 88_200, 96_000, 176_400, 192_000)
    for old, new in itertools.permutations(usual, 2):
        assert Fraction(*lowest_terms(new, old)) == Fraction(new, old)


def test_rates_without_a_common_factor_need_little_memory():
    samples = tone(1_000, 191_999)
    tracemalloc.start()
    ours = resample(samples, 191_999, RATE)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 150 * MB
    np.testing.assert_allclose(ours[800:-800], tone(1_000)[: len(ours)][800:-800], atol=0.02)


def test_the_same_rate_changes_nothing():
    samples = noise()
    assert resample(samples, RATE, RATE) is samples


# ------------------------------------------------------------------------------------------------------ spectrogram


@pytest.mark.parametrize(
    ("rate", "bands", "window", "hop"), [(16_000, 80, 0.025, 0.01), (8_000, 40, 0.025, 0.01), (22_050, 64, 0.05, 0.02)]
)
def test_the_spectrogram_is_librosas(rate, bands, window, hop):
    librosa = pytest.importorskip("librosa", reason="librosa is not installed: pip install librosa")
    samples = noise(0.7, rate) * np.linspace(0, 1, round(0.7 * rate)) + tone(700, rate, 0.7)
    size = round(window * rate)
    power = librosa.feature.melspectrogram(
        y=samples,
        sr=rate,
        n_fft=1 << (size - 1).bit_length(),
        win_length=size,
        hop_length=round(hop * rate),
        n_mels=bands,
        pad_mode="constant",
    )
    reference = 1 + librosa.power_to_db(power, ref=np.max, top_db=80) / 40
    np.testing.assert_allclose(log_mel(samples, rate, bands=bands, window=window, hop=hop), reference.T, atol=1e-4)


def test_a_tone_is_in_its_band_and_its_volume_does_not_matter():
    loud = log_mel(tone(1_000), RATE, bands=80, window=0.025, hop=0.01)
    assert loud.shape == (51, 80)
    assert (loud.min(), loud.max()) == (-1, 1)
    middle = mel_to_hertz(np.linspace(0, hertz_to_mel(np.array(8_000.0)), 82))[1:-1]
    assert abs(middle[loud[25].argmax()] - 1_000) < 60
    quiet = log_mel(tone(1_000, amplitude=0.1), RATE, bands=80, window=0.025, hop=0.01)
    np.testing.assert_allclose(quiet, loud, atol=1e-5)


@given(st.floats(0, 20_000))
def test_mels_and_hertz_are_inverse(hertz):
    assert mel_to_hertz(hertz_to_mel(np.array(hertz))) == pytest.approx(hertz)


def test_mel_of_known_frequencies():
    """By Slaney's Auditory Toolbox: 1 kHz is 15 mel, 6.4 kHz 42."""
    np.testing.assert_allclose(hertz_to_mel(np.array([0, 500, 1_000, 6_400])), [0, 7.5, 15, 42])


def test_a_spectrogram_is_drawn_with_low_tones_at_the_bottom():
    row = np.full((3, 2), -1.0, np.float16)
    row[1, 0] = 1
    picture = spectrogram_picture(row)
    assert picture.shape == (2, 3, 3)
    assert picture[:, :, 0].tolist() == [[255, 255, 255], [255, 0, 255]]


# ---------------------------------------------------------------------------------------------------- augmentation


def row(seed=0, frames=60, bands=20):
    return np.random.default_rng(seed).uniform(-1, 1, (frames, bands)).astype(np.float16)


def varied(options, seed=0, **size):
    return augment(row(**size), np.random.default_rng(seed), settings(bands=20, **options))


def test_without_variations_a_row_stays():
    np.testing.assert_array_equal(varied({}), row())


def test_masks_are_spans_of_the_mean():
    counts = set()
    for seed in range(40):
        changed = (varied({"band_masks": 1, "band_mask_size": 5}, seed) != row()).any(axis=0)
        places = changed.nonzero()[0]
        assert len(places) <= 5
        assert len(places) == 0 or places[-1] - places[0] == len(places) - 1
        counts.add(len(places))
        masked = varied({"time_masks": 1, "time_mask_seconds": 9.0}, seed)
        frames = (masked != row()).any(axis=1).nonzero()[0]
        assert len(frames) <= 12  # a fifth
        assert np.allclose(masked[frames], row().mean(dtype=np.float32), atol=1e-3)
    assert counts == {0, 1, 2, 3, 4, 5}


def test_shifts_move_and_fill_with_silence():
    shifts = set()
    for seed in range(60):
        moved = varied({"shift": 0.03}, seed)
        (shift,) = [s for s in range(-3, 4) if np.array_equal(moved[max(0, s) : 60 + s], row()[max(0, -s) : 60 - s])]
        shifts.add(shift)
        assert (moved[:shift] == -1).all() if shift > 0 else (moved[60 + shift :] == -1).all()
    assert shifts == set(range(-3, 4))


@given(st.integers(1, 5), st.integers(0, 99))
def test_short_rows_can_be_varied(frames, seed):
    options = {"shift": 0.1, "band_masks": 2, "time_masks": 2}
    assert varied(options, seed, frames=frames).shape == (frames, 20)


def test_the_original_is_not_modified():
    original = row()
    augment(original, np.random.default_rng(3), settings(bands=20, band_masks=3, time_masks=3, shift=0.1))
    np.testing.assert_array_equal(original, row())


# ------------------------------------------------------------------------------------------------------- the input


def test_a_row_is_stored_in_half_precision_and_its_slots_are_its_frames():
    inputs = make_input(settings(bands=20))
    frames = inputs.read_row(tone(440))
    assert frames.dtype == np.float16
    assert frames.shape == (51, inputs.num_features)
    boxes = inputs.boxes(frames, 4)
    assert len(boxes) == 13
    assert boxes[0] == (0.0, 0.0, 4 / 51, 1.0)
    assert boxes[-1][2] == 1.0
    assert inputs.png(frames).startswith(b"\x89PNG")


@pytest.mark.parametrize("max_seconds", [0.5, 1.23456, 2.0])
@pytest.mark.parametrize("rate", [11_025, 22_050, 44_100])
def test_what_is_decoded_can_be_decoded_again(rate, max_seconds):
    """Resampling rounds the length up, and overshoots."""
    inputs = make_input(settings(max_seconds=max_seconds))
    loud = 7.99 * np.sign(tone(60, rate, int(max_seconds * rate) / rate) + 1e-9)
    recording = inputs.decode(Recording(loud, rate))
    assert np.array_equal(inputs.decode(recording).samples, recording.samples)
    assert len(inputs.read_row(recording)) > 40


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050])
def test_the_duration_of_a_row_is_that_of_its_recording(rate):
    inputs = make_input(settings(rate=rate, bands=20))
    row = inputs.read_row(tone(440, rate, 20))
    assert inputs.seconds(row) == pytest.approx(20, abs=0.02)


def test_the_recording_of_a_source_is_resampled():
    content = make_input(settings(rate=8_000)).wav(Recording(tone(440), RATE))
    assert read(content).rate == 8_000
    assert read(content).seconds == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hop": 0.05}, "`hop` must be at most `window`"),
        ({"rate": 8_000, "bands": 200}, "`bands` must be at most 128"),
        ({"rate": 100}, "greater than or equal to 4000"),
    ],
)
def test_settings_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        settings(**options)

"""`heedful check` of recordings with transcripts: planted faults are found, and good corpora have none."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from heedful.cli.app import app
from heedful.config import Settings, parse_settings
from heedful.corpus.check import check
from heedful.corpus.findings import SOUND_RULES
from heedful.corpus.media import clipped_share
from heedful.inputs.sound import resample, wav_bytes
from support.corpus_faults import sentences

NUM_TRAIN, NUM_TEST, RATE = 30, 6, 8_000
TEXTS = [text for text, _ in sentences(NUM_TRAIN + NUM_TEST)]


def random_recording(seed: int, seconds: float) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.5, 0.5, round(seconds * RATE))


def write_transcripts(path: Path, rows: list[list[str]]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture
def folder(tmp_path) -> Path:
    """train/transcripts.tsv and test/transcripts.tsv, with a recording per line that is as long as its text."""
    for split, numbers in (("train", range(NUM_TRAIN)), ("test", range(NUM_TRAIN, NUM_TRAIN + NUM_TEST))):
        (tmp_path / split).mkdir()
        rows = []
        for row, number in enumerate(numbers, 1):
            samples = random_recording(number, len(TEXTS[number]) / 40)
            (tmp_path / split / f"{row}.wav").write_bytes(wav_bytes(samples, RATE))
            rows.append([f"{row}.wav", TEXTS[number]])
        write_transcripts(tmp_path / split / "transcripts.tsv", rows)
    return tmp_path


def sound_settings(folder: Path, **options: object) -> Settings:
    data = {split: [{"files": [str(folder / split)]}] for split in ("train", "test")}
    chosen = {"kind": "audio", "rate": RATE, "bands": 20, **options}
    return parse_settings({"target": "en", "data": data, "input": chosen, "tokenizer": {"kind": "words"}})


def write(samples: np.ndarray, rate: int = RATE) -> Callable[[Path], object]:
    return lambda folder: (folder / "train" / "7.wav").write_bytes(wav_bytes(samples, rate))


def truncate(folder: Path) -> None:
    path = folder / "train" / "7.wav"
    path.write_bytes(path.read_bytes()[:2_000])


def copy_as_flac(folder: Path) -> None:
    samples, rate = soundfile.read(folder / "train" / "2.wav", dtype="int16")
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="FLAC")
    (folder / "train" / "copy.flac").write_bytes(file.getvalue())
    path = folder / "train" / "transcripts.tsv"
    rows = [row.split("\t") for row in path.read_text(encoding="utf-8").splitlines()]
    rows[6] = ["copy.flac", rows[1][1]]
    write_transcripts(path, rows)


def seconds_of_line_7() -> float:
    return len(TEXTS[6]) / 40


# kind -> how it is planted into line 7 of the training part; what the finding says
FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing_recording": (lambda folder: (folder / "train" / "7.wav").unlink(), "there is no such file"),
    "unreadable_recording": (truncate, "incomplete: it ends after"),
    "silent": (write(np.zeros(round(seconds_of_line_7() * RATE))), ""),
    "clipped": (write(3 * random_recording(99, seconds_of_line_7())), "of the samples are at full scale"),
    "low_rate": (write(resample(random_recording(99, seconds_of_line_7()), RATE, 5_000), 5_000), "5,000 samples"),
    "speed": (write(random_recording(99, seconds_of_line_7() / 6)), "characters per second; usual here are 40"),
    "duplicate_recording": (copy_as_flac, "line 7 has the recording of line 2 of transcripts.tsv"),
    "recording_overlap": (
        lambda folder: (folder / "train" / "7.wav").write_bytes((folder / "test" / "3.wav").read_bytes()),
        "line 7 has the recording of line 3 of transcripts.tsv",
    ),
}


def test_good_recordings_have_no_findings(folder):
    report = check(sound_settings(folder))
    assert report.pairs == {"train": NUM_TRAIN, "test": NUM_TEST}
    assert report.findings == ()
    assert {"ratio", "copy", "not_parallel", "picture_overlap", "one_color"} <= report.unchecked
    assert not SOUND_RULES.keys() & report.unchecked


@pytest.mark.parametrize("kind", SOUND_RULES)
def test_every_fault_of_a_recording_is_found_with_its_line(kind, folder):
    plant, detail = FAULTS[kind]
    plant(folder)
    report = check(sound_settings(folder))
    found = {finding.kind: finding for finding in report.findings}
    assert found.keys() - {"duplicate", "speed"} == {kind} - {"speed"}  # a test recording is of another length
    finding = found[kind]
    assert (finding.lines.tolist(), finding.corpus) == ([7], "train")
    assert detail in finding.detail
    assert report.has_errors == (kind == "recording_overlap")


def test_an_unreadable_recording_in_test_is_an_error(folder):
    (folder / "test" / "1.wav").write_bytes(b"<html>")
    (finding,) = check(sound_settings(folder)).findings
    assert (finding.kind, finding.level, finding.corpus) == ("unreadable_recording", "error", "test")


def test_recordings_that_are_longer_than_the_limit_cannot_be_read(folder):
    found = {finding.kind for finding in check(sound_settings(folder, max_seconds=0.3)).findings}
    assert "unreadable_recording" in found


def test_single_peaks_are_not_clipped():
    loudness = np.zeros(1000)
    loudness[[3, 50, 51, 400]] = 1.0
    assert clipped_share(loudness) == 0
    loudness[100:110] = 1.0
    assert clipped_share(loudness) == 8 / 1000


def test_the_command_line_reports_recordings(folder):
    words = ["check", str(folder / "train"), "--input", "audio", "--pair", "en", "--test", str(folder / "test")]
    result = CliRunner().invoke(app, [*words, "--set", "input.rate=8000"], terminal_width=200)
    assert result.exit_code == 0
    assert "all recordings readable · no silence · no test recordings in training" in result.output
    assert "pictures" not in result.output

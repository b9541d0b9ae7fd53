"""Small trainings whose sources are recordings: sequences of tones, with their names as transcripts."""

import random
from pathlib import Path

import numpy as np

from heedful.config import Settings, parse_settings
from heedful.inputs.sound import wav_bytes
from support.training_runs import TRAIN

RATE = 8_000
TONES = {"low": 300, "middle": 900, "high": 2_500}
TONE_SECONDS = 0.12


def tones(names: list[str], seed: int = 0) -> np.ndarray:
    """One tone after the other, in a little noise."""
    noise = np.random.default_rng(seed)
    times = np.arange(round(TONE_SECONDS * RATE)) / RATE
    parts = [np.sin(2 * np.pi * TONES[name] * times) * np.hanning(len(times)) for name in names]
    samples = np.concatenate(parts) * noise.uniform(0.2, 0.8)
    return samples + 0.002 * noise.standard_normal(len(samples))


def write_recordings(folder: Path, *, count: int = 90, name: str = "train", seed: int = 1) -> Path:
    """Recordings of one to three tones, and a table of their paths and transcripts."""
    draw = random.Random(seed)
    (folder / "recordings").mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(count):
        names = draw.choices(list(TONES), k=draw.randint(1, 3))
        path = f"recordings/{name}{number}.wav"
        (folder / path).write_bytes(wav_bytes(tones(names, seed=1000 * seed + number), RATE))
        lines.append(f"{path}\t{' '.join(names)}")
    (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def sound_settings(folder: Path, run: Path, *, encoder: dict | None = None, **train: object) -> Settings:
    """Settings of a small run; varied, so that resuming must repeat the variations."""
    decoder = {"kind": "recurrent", "width": 16, "cell": "gru", "attention": {"score": "additive"}}
    recurrent = {"kind": "recurrent_frames", "stride": 4, "width": 16, "cell": "gru"}
    return parse_settings(
        {
            "target": "en",
            "input": {
                "kind": "audio", "rate": RATE, "bands": 12, "max_seconds": 2.0, "shift": 0.02, "band_masks": 1,
                "band_mask_size": 2,
            },
            "data": {"train": [{"files": [f"{folder}/train.tsv"]}], "prepared_dir": f"{folder}/prepared"},
            "clean": {"duplicates": "keep"},
            "tokenizer": {"kind": "words", "vocab_size": 20},
            "model": {"width": 16, "encoder": encoder or recurrent, "decoder": decoder},
            "train": {**TRAIN, "batch_tokens": 600, "output_dir": str(run), **train},
        }
    )  # fmt: skip

"""Recordings as sources: spoken digits, alone and in strings.

    python benchmarks/speech.py [--quick] [--only PART ...] [--runs DIR] [--seeds 3] [--digit-time 5m]
                                [--string-time 20m]

    digits    one digit per recording, in 300 test recordings
    strings   3 to 7 digits of one speaker, joined with random pauses: word error rate of a Transformer and an LSTM;
              does the attention move forward, and is that of a digit on its recording? Also with noise
    speaker   the same for a speaker that was not in training (reported)
    resume    a training on recordings that is killed (kill -9) 20 times ends with the same bits
    prepare   1 and 2 workers prepare the same bytes from recordings
    hostile   500 truncated, mislabeled, long and malicious files are rejected, with their reasons, in little memory

The data are the Free Spoken Digits: 10 digits, 6 speakers, 50 recordings of each. Recordings 0 to 4 are the test, as
its authors say; 5 to 9 are the validation here, which chooses checkpoints and the head whose attention is measured.
Strings of a split have recordings of that split only. All models are trained by `heedful train`. With --runs, corpora
and models stay in DIR, and finished models are not trained again.
"""

import argparse
import re
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

import heedful
import media_faults
from heedful.engines.base import EncodedSource
from heedful.inputs.kinds import make_input
from heedful.inputs.sound import Recording, read_recording, wav_bytes
from report import DATA, header, verdict
from sources import settings_tree, train

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

Array = NDArray[Any]
Claim = tuple[str, float, float]
RATE = 8_000
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SPLITS = {"test": range(5), "valid": range(5, 10), "train": range(10, 50)}  # indices of recordings
HELD_OUT = "theo"
STRING_COUNTS = {"train": 6_000, "valid": 200, "test": 300}
PAUSES = (0.05, 0.4)  # seconds
NOISES = (20, 10, 5, 0)  # signal-to-noise ratios in dB
MIN_ORDER = 0.95  # rank correlation of a head that moves forward; of those, the one with the most weight is measured
AUDIO = {
    "kind": "audio", "rate": RATE, "bands": 40, "max_seconds": 10.0, "shift": 0.05, "band_masks": 1,
    "band_mask_size": 6, "time_masks": 1, "time_mask_seconds": 0.05,
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """What to measure, where, and for how long to train."""

    folder: Path
    quick: bool
    seeds: int
    digit_time: str
    string_time: str


# ------------------------------------------------------------------------------------------------------------ settings


def transformer(width: int) -> dict[str, Any]:
    layers = {"heads": 4, "feedforward_size": 4 * width, "norm": "pre", "dropout": 0.1}
    return {
        "width": width, "positions": "sinusoidal", "scale_embeddings": True, "dropout": 0.1,
        "encoder": {"kind": "frames", "stride": 4, "layers": 3, **layers},
        "decoder": {"kind": "transformer", "layers": 2, **layers},
    }  # fmt: skip


def lstm(width: int) -> dict[str, Any]:
    return {
        "width": width, "scale_embeddings": True, "output_bias": True, "dropout": 0.1,
        "encoder": {"kind": "recurrent_frames", "stride": 4, "width": width, "layers": 2, "dropout": 0.1},
        "decoder": {
            "kind": "recurrent", "cell": "lstm", "width": width, "dropout": 0.1, "attention": {"score": "additive"}
        },
    }  # fmt: skip


MODELS = {"transformer": transformer, "lstm": lstm}


def train_model(
    options: Options,
    name: str,
    make_settings: Callable[[int], dict[str, Any]],
    folder: Path,
    time_limit: str,
    seed: int = 1,
    label_smoothing: float = 0.1,
) -> Any:
    """A trained model for the tables of a folder, with the settings of a width."""
    train_options: dict[str, Any] = {
        "batch_tokens": 16_000,
        "learning_rate": 1e-3,
        "warmup_steps": 400,
        "label_smoothing": label_smoothing,
    }
    train_options |= {"time": time_limit}
    if options.quick:
        train_options = {
            "batch_tokens": 3_000, "steps": 15, "validate_every": 15, "validate_pairs": 4, "warmup_steps": 5,
            "learning_rate": 5e-3, "label_smoothing": label_smoothing, "ema": False,
        }  # fmt: skip
    tree = settings_tree(
        folder,
        ("train.tsv", "valid.tsv"),
        tokenizer={"kind": "words", "vocab_size": 20},
        train=train_options,
        seed=seed,
        input=AUDIO,
        model=make_settings(32 if options.quick else 128),
    )
    return heedful.load(train(options.folder, name, tree))


# ---------------------------------------------------------------------------------------------------------------- data


@cache
def read_digits() -> dict[tuple[str, int, int], Array]:
    """(speaker, digit, index) -> samples"""
    digits = {}
    with tarfile.open(DATA / "free-spoken-digits" / "recordings.tar.xz") as archive:
        for member in archive:
            if match := re.fullmatch(r"(?:.*/)?(\d)_(\w+)_(\d+)\.wav", member.name):
                file = archive.extractfile(member)
                assert file is not None
                recording = read_recording(file.read(), max_seconds=10.0, rate=RATE)
                digits[match[2], int(match[1]), int(match[3])] = recording.samples
    return digits


def speakers() -> list[str]:
    return sorted({speaker for speaker, _, _ in read_digits()})


@dataclass(frozen=True)
class Utterance:
    """A recording of digits: where it is, what is said, and when, in seconds."""

    path: Path
    digits: tuple[int, ...]
    intervals: tuple[tuple[float, float], ...]

    @property
    def text(self) -> str:
        return " ".join(WORDS[digit] for digit in self.digits)


def write_table(folder: Path, split: str, utterances: Sequence[Utterance]) -> None:
    lines = [f"{utterance.path.relative_to(folder).as_posix()}\t{utterance.text}\n" for utterance in utterances]
    (folder / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")


def write_digits(folder: Path, options: Options) -> dict[str, list[Utterance]]:
    """One digit per recording."""
    splits: dict[str, list[Utterance]] = {}
    for split, indices in SPLITS.items():
        (folder / split).mkdir(parents=True, exist_ok=True)
        splits[split] = []
        for (speaker, digit, index), samples in sorted(read_digits().items()):
            if index in indices and not (options.quick and index % 5):
                path = folder / split / f"{digit}_{speaker}_{index}.wav"
                path.write_bytes(wav_bytes(samples, RATE))
                splits[split].append(Utterance(path, (digit,), ((0.0, len(samples) / RATE),)))
        write_table(folder, split, splits[split])
    return splits


def write_strings(
    folder: Path, counts: Mapping[str, int], speakers_of: Mapping[str, Sequence[str]]
) -> dict[str, list[Utterance]]:
    """Strings of 3 to 7 digits, each of one speaker, with random pauses of silence before, between and after them.

    Training also has strings of 1 and 2 digits: there, attention has little to choose from.
    """
    splits: dict[str, list[Utterance]] = {}
    recordings = read_digits()
    for number, split in enumerate(SPLITS):
        draw, indices = np.random.default_rng((7, number)), SPLITS[split]
        (folder / split).mkdir(parents=True, exist_ok=True)
        splits[split] = []
        for row in range(counts[split]):
            speaker = str(draw.choice(speakers_of[split]))
            digits = tuple(int(digit) for digit in draw.integers(0, 10, draw.integers(1 if split == "train" else 3, 8)))
            parts, intervals, position = [], [], 0
            for digit in digits:
                samples = recordings[speaker, digit, int(draw.choice(indices))]
                pause = np.zeros(round(draw.uniform(*PAUSES) * RATE))
                begin = position + len(pause)
                position = begin + len(samples)
                parts += [pause, samples]
                intervals.append((begin / RATE, position / RATE))
            parts.append(np.zeros(round(draw.uniform(*PAUSES) * RATE)))
            path = folder / split / f"{row}.wav"
            path.write_bytes(wav_bytes(np.concatenate(parts), RATE))
            splits[split].append(Utterance(path, digits, tuple(intervals)))
        write_table(folder, split, splits[split])
    return splits


def string_counts(options: Options) -> Mapping[str, int]:
    return dict.fromkeys(STRING_COUNTS, 12) | {"train": 60} if options.quick else STRING_COUNTS


# -------------------------------------------------------------------------------------------------------------- scores


def count_errors(words: Sequence[str], reference: Sequence[str]) -> int:
    """The smallest number of words to insert, delete or replace."""
    row = list(range(len(reference) + 1))
    for number, word in enumerate(words, 1):
        before, row = row, [number]
        for place, other in enumerate(reference):
            row.append(min(before[place] + (word != other), before[place + 1] + 1, row[-1] + 1))
    return row[-1]


def word_error_rate(texts: Sequence[str], utterances: Sequence[Utterance]) -> float:
    """Errors in percent of the spoken words."""
    errors = sum(
        count_errors(text.split(), utterance.text.split()) for text, utterance in zip(texts, utterances, strict=True)
    )
    return 100 * errors / sum(len(utterance.digits) for utterance in utterances)


def transcribe(model: Any, sources: Sequence[Any]) -> list[str]:
    return [answer.text for answer in model(list(sources), beam=5)]


def add_noise(samples: Array, decibels: float, seed: int) -> Array:
    """White noise with this signal-to-noise ratio."""
    noise = np.random.default_rng(seed).standard_normal(len(samples))
    noisy: Array = samples + noise * np.sqrt((samples**2).mean()) * 10 ** (-decibels / 20)
    noisy /= max(1.0, np.abs(noisy).max())
    return noisy


# ------------------------------------------------------------------------------------------------------------- digits


def measure_digits(options: Options) -> list[Claim]:
    folder = options.folder / "digits"
    splits = write_digits(folder, options)
    test, shares = splits["test"], []
    print(f"\n# digits: {', '.join(f'{name} {len(rows):,}' for name, rows in splits.items())}")
    for seed in range(1, options.seeds + 1):
        model = train_model(options, f"digits-{seed}", lstm, folder, options.digit_time, seed)
        texts = transcribe(model, [str(utterance.path) for utterance in test])
        shares.append(100 * mean(text == utterance.text for text, utterance in zip(texts, test, strict=True)))
        print(f"  seed {seed}: {shares[-1]:.2f} % of {len(test)} test recordings", flush=True)
    return [("digits: right, in percent (the worst seed)", min(shares), 0.0 if options.quick else 97.0)]


# ------------------------------------------------------------------------------------------------------------- strings


def measure_strings(options: Options) -> list[Claim]:
    folder, claims = options.folder / "strings", []
    splits = write_strings(folder, string_counts(options), dict.fromkeys(SPLITS, speakers()))
    print(f"\n# strings: {', '.join(f'{name} {len(rows):,}' for name, rows in splits.items())}")
    for kind in MODELS:
        model = train_model(options, f"strings-{kind}", MODELS[kind], folder, options.string_time)
        test = splits["test"]
        error_rate = word_error_rate(transcribe(model, [str(utterance.path) for utterance in test]), test)
        print(f"{kind}: word error rate {error_rate:.2f} %", flush=True)
        for decibels in NOISES:
            noisy = [
                Recording(add_noise(read(utterance), decibels, number), RATE) for number, utterance in enumerate(test)
            ]
            print(f"  noise at {decibels:2} dB: {word_error_rate(transcribe(model, noisy), test):6.2f} %", flush=True)
        heads = measure_heads(model, splits["valid"])
        head = max(range(len(heads)), key=lambda head: (heads[head][0] >= MIN_ORDER, heads[head][1]))
        order, inside = measure_heads(model, test)[head]
        print(f"  head {head}, chosen on validation: rank correlation {order:.3f}, inside {inside:.1%}", flush=True)
        claims += [
            (f"strings, {kind}: minus the word error rate in percent", -error_rate, -1e9 if options.quick else -3.0),
            (f"strings, {kind}: rank correlation of step and mean slot", order, -1.0 if options.quick else MIN_ORDER),
            (f"strings, {kind}: weight of a digit on its recording", inside, 0.0 if options.quick else 0.8),
        ]
    return claims


def read(utterance: Utterance) -> Array:
    return read_recording(utterance.path, max_seconds=10.0, rate=RATE).samples


def measure_heads(model: Any, utterances: Sequence[Utterance]) -> list[tuple[float, float]]:
    """For every head of every layer, while the model reads the reference: how monotone it is, and what is inside.

    The first is the rank correlation of a digit's number and its mean slot (mean of all strings), the second the weight
    of a digit on the slots whose middle is within its recording (mean of all digits).
    """
    inputs: Any = make_input(model.bundle.description.input)
    reduction, hop = model.bundle.model.encoder.reduction, inputs.settings.hop
    orders: list[Array] = []
    insides: list[Array] = []
    for utterance in utterances:
        (ids,) = model.target.encode([utterance.text])
        source = EncodedSource(inputs.read_row(utterance.path), 1)
        (result,) = model.engine.score_targets([source], [ids], attention=True)
        weights = result.attention[:, :, : len(ids)].reshape(-1, len(ids), result.attention.shape[-1])  # [heads, T, S]
        slots = np.arange(weights.shape[-1])
        orders.append(np.array([rank_correlation(head @ slots) for head in weights]))
        middles = (slots * reduction + (reduction - 1) / 2) * hop
        is_inside = np.array([(begin <= middles) & (middles < end) for begin, end in utterance.intervals])
        insides += list((weights * is_inside).sum(-1).T)
    return list(zip(np.mean(orders, 0).tolist(), np.mean(insides, 0).tolist(), strict=True))


def rank_correlation(values: Array) -> float:
    """Spearman's correlation with 0, 1, 2, ..."""
    ranks = values.argsort().argsort()
    return float(np.corrcoef(ranks, np.arange(len(values)))[0, 1])


def measure_speaker(options: Options) -> list[Claim]:
    """Reported: a speaker that was not in training."""
    others = [speaker for speaker in speakers() if speaker != HELD_OUT]
    folder = options.folder / "speaker"
    splits = write_strings(folder, string_counts(options), {"train": others, "valid": others, "test": [HELD_OUT]})
    model = train_model(options, "speaker-lstm", lstm, folder, options.string_time)
    error_rate = word_error_rate(transcribe(model, [str(each.path) for each in splits["test"]]), splits["test"])
    print(f"\nlstm without {HELD_OUT}: word error rate {error_rate:.2f} % on his strings", flush=True)
    return []


# -------------------------------------------------------------------------------------------------------- same results


def few_recordings(options: Options, name: str, corpora: int = 1) -> tuple[Path, dict[str, Any]]:
    """A folder of strings in several tables, and settings for it."""
    folder = options.folder / name
    counts = {"train": 60 if options.quick else 400, "valid": 12, "test": 1}
    write_strings(folder, counts, dict.fromkeys(SPLITS, speakers()))
    tree = settings_tree(
        folder, ("train.tsv", "valid.tsv"), tokenizer={"kind": "words", "vocab_size": 20}, train={}, input=AUDIO,
        model=lstm(32),
    )  # fmt: skip
    lines = (folder / "train.tsv").read_text(encoding="utf-8").splitlines()
    tree["data"]["train"] = media_faults.split_table(folder, lines, corpora)
    return folder, tree


def measure_resume(options: Options) -> list[Claim]:
    folder, tree = few_recordings(options, "resume")
    return media_faults.measure_resume("recordings", folder, tree, batch_tokens=3_000, quick=options.quick)


def measure_prepare(options: Options) -> list[Claim]:
    return media_faults.measure_prepare(*few_recordings(options, "prepare", media_faults.CORPORA))


def measure_hostile(options: Options) -> list[Claim]:
    sounds = import_module("support.hostile_sounds")
    folder = options.folder / "hostile"
    return media_faults.measure_hostile(
        folder, sounds.write_hostile_sounds, sounds.read_in_process, quick=options.quick
    )


PARTS: dict[str, Callable[[Options], list[Claim]]] = {
    "digits": measure_digits,
    "strings": measure_strings,
    "speaker": measure_speaker,
    "resume": measure_resume,
    "prepare": measure_prepare,
    "hostile": measure_hostile,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few steps on few recordings, with looser bounds")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--runs", type=Path, metavar="DIR", help="keep corpora and models here")
    parser.add_argument("--seeds", type=int, default=3, help="of the models of single digits")
    parser.add_argument("--digit-time", default="5m", help="of each seed")
    parser.add_argument("--string-time", default="20m", help="of each model")
    arguments = parser.parse_args()
    header(__file__)
    if arguments.quick:
        arguments.seeds = 1
    with tempfile.TemporaryDirectory(prefix="speech-") as name:
        folder = (arguments.runs or Path(name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        options = Options(folder, arguments.quick, arguments.seeds, arguments.digit_time, arguments.string_time)
        return verdict([claim for part in arguments.only for claim in PARTS[part](options)])


if __name__ == "__main__":
    sys.exit(main())

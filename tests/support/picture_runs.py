"""Small trainings whose sources are not text: captions of colored squares, and a language model."""

import random
from pathlib import Path

from PIL import Image

from heedful.config import Settings, parse_settings
from support.training_runs import LAYER, TRAIN, WORDS

COLORS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (40, 70, 220), "black": (10, 10, 10)}
PLACES = {"left": 0, "right": 8}


def write_pictures(folder: Path, *, count: int = 120, name: str = "train", seed: int = 1) -> Path:
    """Pictures of 16 x 16 with a colored square at the left or right; a table of their paths and captions."""
    draw = random.Random(seed)
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    lines = []
    for number in range(count):
        color, place = draw.choice(list(COLORS)), draw.choice(list(PLACES))
        picture = Image.new("RGB", (16, 16), "white")
        top = draw.randint(0, 8)
        picture.paste(COLORS[color], (PLACES[place], top, PLACES[place] + 8, top + 8))
        picture.putpixel((number % 16, 15), (number, 0, 200))  # all files differ
        path = f"pictures/{name}{number}.png"
        picture.save(folder / path)
        lines.append(f"{path}\ta {color} square at the {place}")
    (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def write_sentences(folder: Path, *, count: int = 300) -> Path:
    """Sentences of a small language, one per line."""
    draw = random.Random(3)
    lines = [" ".join(draw.choices(list(WORDS), k=draw.randint(3, 8))) for _ in range(count)]
    (folder / "train.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def picture_settings(folder: Path, run: Path, **train: object) -> Settings:
    """Settings of a small captioning run; augmented, so that resuming must repeat the augmentation."""
    decoder = {"kind": "recurrent", "width": 16, "cell": "gru", "attention": {"score": "additive"}}
    return parse_settings(
        {
            "target": "en",
            "input": {"kind": "image", "height": 16, "width": 16, "patch": 4, "shift": 1, "color": 0.1},
            "data": {
                "train": [{"files": [f"{folder}/train.tsv"]}],
                "prepared_dir": f"{folder}/prepared",
            },
            "clean": {"duplicates": "keep"},
            "tokenizer": {"kind": "words", "vocab_size": 40},
            "model": {"width": 16, "encoder": {"kind": "patches", "layers": 0}, "decoder": decoder},
            "train": {**TRAIN, "batch_tokens": 512, "output_dir": str(run), **train},
        }
    )


def language_model_settings(folder: Path, run: Path, **train: object) -> Settings:
    return parse_settings(
        {
            "target": "en",
            "input": {"kind": "none"},
            "data": {"train": [{"files": [f"{folder}/train.txt"]}], "prepared_dir": f"{folder}/prepared-text"},
            "tokenizer": {"kind": "words", "vocab_size": 60},
            "model": {"width": 16, "positions": "sinusoidal", "encoder": {"kind": "nothing"}, "decoder": LAYER},
            "train": {**TRAIN, "output_dir": str(run), **train},
        }
    )

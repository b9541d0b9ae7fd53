"""A small model that describes pictures: beams (wide) and towers (high) of four colors."""

from itertools import product
from pathlib import Path

import numpy as np

from heedful import config
from heedful.inputs.pictures import picture_png
from heedful.training.api import train

COLORS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200), "black": (20, 20, 20)}
SHAPES = {"beam": (slice(2, 6), slice(None)), "tower": (slice(None), slice(2, 6))}
CAPTIONS = [f"a {color} {shape}" for color, shape in product(COLORS, SHAPES)]
LAYER = {"layers": 1, "heads": 2, "feedforward_size": 32}
MODEL = {
    "width": 16, "positions": "sinusoidal", "dropout": 0.0, "tie_embeddings": "target",
    "encoder": {"kind": "patches", "stem": "linear", **LAYER},
    "decoder": {"kind": "transformer", "dropout": 0.0, **LAYER},
}  # fmt: skip
TRAIN = {
    "steps": 80, "batch_tokens": 256, "micro_batches": 1, "threads": 1, "precision": "fp32", "learning_rate": 1e-2,
    "warmup_steps": 8, "validate_every": 80, "save_every": 80, "log_every": 80,
}  # fmt: skip


def draw_picture(caption: str, seed: int = 0) -> bytes:
    """A PNG file of 8 x 8 pixels; the seed varies its color."""
    _, color, shape = caption.split()
    picture = np.full((8, 8, 3), 255, np.uint8)
    picture[SHAPES[shape]] = np.add(COLORS[color], np.random.default_rng(seed).integers(-20, 21, 3))
    return picture_png(picture)


def train_captioner(folder: Path, name: str = "emoji") -> Path:
    """The model directory; that of the run is `folder/name`."""
    for split, seeds in (("train", range(8)), ("validation", range(8, 9))):
        lines = []
        for caption, seed in product(CAPTIONS, seeds):
            (folder / f"{caption} {seed}.png").write_bytes(draw_picture(caption, seed))
            lines.append(f"{caption} {seed}.png\t{caption}\n")
        (folder / f"{split}.tsv").write_text("".join(lines))
    data = {split: [{"files": str(folder / f"{split}.tsv")}] for split in ("train", "validation")}
    return train(
        config.parse_settings(
            {
                "source": "image", "target": "en", "input": {"kind": "image", "height": 8, "width": 8, "patch": 4},
                "data": {"prepared_dir": str(folder / "prepared")} | data, "tokenizer": {"kind": "words"},
                "model": MODEL, "train": TRAIN | {"output_dir": str(folder / name)},
            }
        )
    )  # fmt: skip

"""Two small corpora with a trained model each, to try heedful without a network.

    unpack("pt-en", "first/data")     # train, valid and test of both languages, and ATTRIBUTION.md
    heedful.load(model("pt-en"))      # a translator

Short sentences from Tatoeba, CC BY 2.0 FR. `scripts/samples` selects them, `scripts/sample_models` trains the models.
"""

import gzip
from importlib.resources import files
from pathlib import Path

from heedful.errors import ConfigError, did_you_mean

PAIRS = ("pt-en", "ru-en")
PARTS = ("train", "valid", "test")
LICENSE = "ATTRIBUTION.md"


def unpack(pair: str, folder: str | Path, limit: int | None = None) -> Path:
    """Write a corpus as text files, with at most `limit` training pairs; return its directory."""
    packed = sample_folder(pair)
    if limit is not None and limit < 0:
        raise ConfigError(f"limit must be 0 or more training pairs, not {limit}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        for language in pair.split("-"):
            lines = read_part(packed, part, language).splitlines(keepends=True)[: limit if part == "train" else None]
            (folder / f"{part}.{language}").write_bytes(b"".join(lines))
    (folder / LICENSE).write_bytes((packed.parent / LICENSE).read_bytes())
    return folder


def model(pair: str) -> Path:
    """Return the model directory of a sample."""
    return sample_folder(pair) / "model"


def suppressed_words_file() -> Path:
    """The English words that the sample models may not use in a translation, one per line."""
    return Path(str(files("heedful.samples"))) / "suppressed.en.txt"


def find_sample(folder: Path) -> str | None:
    """The name of the sample whose model directory is `folder`, or None."""
    return next((pair for pair in PAIRS if model(pair).resolve() == folder.resolve()), None)


def validation_lines(pair: str) -> tuple[list[str], list[str]]:
    """The sources and the references of a sample's validation set."""
    source, target = (read_part(sample_folder(pair), "valid", language) for language in pair.split("-"))
    return source.decode().splitlines(), target.decode().splitlines()


def read_part(packed: Path, part: str, language: str) -> bytes:
    return gzip.decompress((packed / f"{part}.{language}.gz").read_bytes())


def sample_folder(pair: str) -> Path:
    if pair not in PAIRS:
        raise ConfigError(f"there is no sample `{pair}`" + did_you_mean(pair, PAIRS))
    return Path(str(files("heedful.samples"))) / pair

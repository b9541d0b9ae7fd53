"""Two small corpora, some pictures and recordings, and three trained models, to try heedful without a network.

    unpack("pt-en", "first/data")     # train, valid and test of both languages, and ATTRIBUTION.md
    unpack_media("emoji", "first/data")         # pictures/, and train.tsv with their captions
    unpack_media("digits", "first/data")        # recordings/, and train.tsv with their transcripts
    heedful.load(model("pt-en"))      # a translator

The models are two Transformers and, as "pt-en-gru", a recurrent model with additive attention. The corpora are short
sentences from Tatoeba, CC BY 2.0 FR; the pictures are from Twemoji, CC BY 4.0, the recordings from the
Free Spoken Digit Dataset, CC BY-SA 4.0. `scripts/samples` selects them,
`scripts/sample_models` trains the models.
"""

import gzip
import zipfile
from importlib.resources import files
from pathlib import Path

from heedful.errors import ConfigError, did_you_mean

PAIRS = ("pt-en", "ru-en")
MEDIA = {"emoji": "image", "digits": "audio"}  # the kind of the input
CORPORA = (*PAIRS, *MEDIA)
MODELS = (*PAIRS, "pt-en-gru")
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


def unpack_media(name: str, folder: str | Path) -> Path:
    """Write pictures or recordings, a table of their paths and texts, and the license; return the directory."""
    if name not in MEDIA:
        raise ConfigError(f"there is no sample `{name}` of pictures or recordings" + did_you_mean(name, MEDIA))
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(_folder() / f"{name}.zip") as archive:
        archive.extractall(folder)
    (folder / LICENSE).write_bytes((_folder() / LICENSE).read_bytes())
    return folder


def model(name: str) -> Path:
    """Return the model directory of a sample."""
    if name not in MODELS:
        raise ConfigError(f"there is no sample model `{name}`" + did_you_mean(name, MODELS))
    return _folder() / name / "model"


def suppressed_words_file() -> Path:
    """The English words that the sample models may not use in a translation, one per line."""
    return _folder() / "suppressed.en.txt"


def find_sample(folder: Path) -> str | None:
    """The name of the sample whose model directory is `folder`, or None."""
    return next((name for name in MODELS if model(name).resolve() == folder.resolve()), None)


def validation_lines(name: str) -> tuple[list[str], list[str]]:
    """The sources and the references of the validation set of a sample model."""
    languages = name.split("-")[:2]
    packed = sample_folder("-".join(languages))
    source, target = (read_part(packed, "valid", language) for language in languages)
    return source.decode().splitlines(), target.decode().splitlines()


def read_part(packed: Path, part: str, language: str) -> bytes:
    return gzip.decompress((packed / f"{part}.{language}.gz").read_bytes())


def sample_folder(pair: str) -> Path:
    if pair not in PAIRS:
        raise ConfigError(f"there is no sample `{pair}`" + did_you_mean(pair, CORPORA))
    return _folder() / pair


def _folder() -> Path:
    return Path(str(files("heedful.samples")))

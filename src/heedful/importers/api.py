"""`heedful.import_model(...)`: a model of another toolkit as a model directory to inspect, fine-tune and serve.

    bundle = heedful.import_model("opus-mt-en-de", "en-de")        # a folder as Hugging Face publishes it

The files of a folder tell its format: see IMPORT_FORMATS.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from heedful import config
from heedful.bundle import Bundle, describe_section, write_bundle
from heedful.errors import ConfigError, HeedfulError
from heedful.importers import ctranslate2, g2p, marian
from heedful.importers.imported_model import ImportedModel

LANGUAGE = re.compile(config.LANGUAGE_PATTERN)
# What reading an arbitrary folder may raise; a HeedfulError is none of these.
READ_ERRORS = (OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError, RuntimeError, BadZipFile)


@dataclass(frozen=True)
class ImportFormat:
    """How to recognize and read the models of another toolkit."""

    matches: Callable[[Path], bool]
    read_model: Callable[[Path], ImportedModel]
    expected_files: str  # for messages


IMPORT_FORMATS = {
    "marian": ImportFormat(
        marian.is_marian_folder, marian.read_model, "config.json, model.safetensors, source.spm, target.spm, vocab.json"
    ),
    "ctranslate2": ImportFormat(
        ctranslate2.is_ctranslate2_folder, ctranslate2.read_model, "model.bin and its vocabularies"
    ),
    "g2p_en": ImportFormat(g2p.is_g2p_folder, g2p.read_model, "checkpoint20.npz, graphemes.txt, phonemes.txt"),
}


def import_model(folder: str | Path, out: str | Path, *, languages: tuple[str, str] | None = None) -> Bundle:
    """Read a model of another toolkit and write it as a model directory."""
    folder = Path(folder).resolve()
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; name the one that holds the model's files")
    try:
        import_format = next((known for known in IMPORT_FORMATS.values() if known.matches(folder)), None)
        if import_format is None:
            formats = "; ".join(f"{name} ({known.expected_files})" for name, known in IMPORT_FORMATS.items())
            raise HeedfulError(f"{folder} holds no model that heedful can import: {formats}")
        imported = import_format.read_model(folder)
        check_weights(imported)
    except READ_ERRORS as error:
        raise HeedfulError(f"{folder} cannot be imported: {type(error).__name__}, {str(error)[:200]}") from None
    languages = languages or imported.languages
    if languages is None or not all(LANGUAGE.match(language) for language in languages):
        only = "" if languages is None else f", only {'-'.join(languages)[:50]}"
        raise ConfigError(f"{folder} does not name its two languages{only}: add --pair en-de")
    return write_bundle(
        out,
        model=imported.model,
        weights=imported.weights,
        tokenizers=imported.tokenizers,
        languages=languages,
        source_ends=imported.source_ends,
        generation=imported.generation,
        card=make_card(imported, languages, folder.name),
    )


def check_weights(imported: ImportedModel) -> None:
    """Raise an error if weights are not finite or (if PyTorch is installed) do not fit the model settings."""
    for name, array in imported.weights.items():
        if not np.isfinite(array).all():
            raise HeedfulError(f"{name} holds what is not a number: the model is damaged")
    if find_spec("torch") is None:
        return
    import torch

    from heedful.build import build

    with torch.device("meta"):
        model = build(imported.model, *(imported.tokenizers[side].size for side in ("source", "target")))
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    shapes = {name: array.shape for name, array in imported.weights.items()}
    for name in sorted(expected.keys() | shapes.keys()):
        if expected.get(name) != shapes.get(name):
            raise HeedfulError(f"{name} has the shape {shapes.get(name)}, but the model needs {expected.get(name)}")


def make_card(imported: ImportedModel, languages: tuple[str, str], name: str) -> str:
    """The model card: where the model comes from. Their own card is not copied."""
    return f"""---
language: {[language.replace("_", "-").split("-")[0].lower() for language in languages]}
library_name: heedful
pipeline_tag: translation
---

# {languages[0]} to {languages[1]}

Imported from `{name}` ({imported.kind}): {describe_section(imported.model.model_dump(exclude_defaults=True))}.

It was trained by others: its license, its data and its limits are those of where it came from. heedful knows nothing of
the text it was trained on, so it cannot say when an input is unlike that.

```sh
heedful translate DIR        # where DIR is this folder
```
"""

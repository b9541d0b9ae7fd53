"""`heedful.import_model(...)`: convert another toolkit's model to a model directory.

    bundle = heedful.import_model("opus-mt-en-de", "en-de")        # as published on Hugging Face

The format is detected from the file names: see IMPORT_FORMATS.
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
from heedful.errors import ConfigError, HeedfulError, suggest_arguments
from heedful.importers import ctranslate2, g2p, marian
from heedful.importers.imported_model import ImportedModel

LANGUAGE = re.compile(config.LANGUAGE_PATTERN)
# Errors of reading arbitrary files; HeedfulError is not among them.
READ_ERRORS = (OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError, RuntimeError, BadZipFile)


@dataclass(frozen=True)
class ImportFormat:
    """How to detect and read the models of a toolkit."""

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


@suggest_arguments
def import_model(folder: str | Path, out: str | Path, *, languages: tuple[str, str] | None = None) -> Bundle:
    """Read another toolkit's model and write it as a model directory."""
    folder = Path(folder).resolve()
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a directory: pass the directory with the model's files")
    try:
        import_format = next((known for known in IMPORT_FORMATS.values() if known.matches(folder)), None)
        if import_format is None:
            formats = "; ".join(f"{name} ({known.expected_files})" for name, known in IMPORT_FORMATS.items())
            raise HeedfulError(f"{folder} has no model that heedful can import; supported: {formats}")
        imported = import_format.read_model(folder)
        check_weights(imported)
    except READ_ERRORS as error:
        raise HeedfulError(f"{folder} cannot be imported: {type(error).__name__}, {str(error)[:200]}") from None
    languages = languages or imported.languages
    if languages is None or not all(LANGUAGE.match(language) for language in languages):
        only = "" if languages is None else f", only {'-'.join(languages)[:50]}"
        raise ConfigError(f"{folder} does not state its two languages{only}: add them, for example: --pair en-de")
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
    """Raise an error if weights are not finite or, if PyTorch is installed, do not fit the settings."""
    for name, array in imported.weights.items():
        if not np.isfinite(array).all():
            raise HeedfulError(f"{name} has values that are NaN or infinite: the model is damaged; download it again")
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
            raise HeedfulError(f"{name} has shape {shapes.get(name)}, but the model needs {expected.get(name)}")


def make_card(imported: ImportedModel, languages: tuple[str, str], name: str) -> str:
    """The model card; the original card is not copied."""
    return f"""---
language: {[language.replace("_", "-").split("-")[0].lower() for language in languages]}
library_name: heedful
pipeline_tag: translation
---

# {languages[0]} to {languages[1]}

Imported from `{name}` ({imported.kind}): {describe_section(imported.model.model_dump(exclude_defaults=True))}.

The license, data and limits are those of the original model. heedful has no statistics of its training text, so it
cannot warn about inputs that differ from it.

```sh
heedful translate DIR        # where DIR is this directory
```
"""

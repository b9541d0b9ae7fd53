"""`heedful.import_model(...)`: what others trained, as a model directory that one can inspect, fine-tune and serve.

    bundle = heedful.import_model("opus-mt-en-de", "en-de")        # a folder as Hugging Face publishes it

Which kind of folder it is, its files tell: see READERS.
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
from heedful.importers.imported_model import Foreign

LANGUAGE = re.compile(config.LANGUAGE_PATTERN)
# What reading a folder of anything may end in; a HeedfulError is none of these.
ODD = (OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError, RuntimeError, BadZipFile)


@dataclass(frozen=True)
class Reader:
    """A line of READERS."""

    known: Callable[[Path], bool]
    read: Callable[[Path], Foreign]
    files: str


READERS = {
    "marian": Reader(marian.known, marian.read, "config.json, model.safetensors, source.spm, target.spm, vocab.json"),
    "ctranslate2": Reader(ctranslate2.known, ctranslate2.read, "model.bin and its vocabularies"),
    "g2p_en": Reader(g2p.known, g2p.read, "checkpoint20.npz, graphemes.txt, phonemes.txt"),
}


def import_model(folder: str | Path, out: str | Path, *, languages: tuple[str, str] | None = None) -> Bundle:
    """Read somebody else's model, and write it as a model directory."""
    folder = Path(folder).resolve()
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; name the one that holds the model's files")
    try:
        kind = next((name for name, reader in READERS.items() if reader.known(folder)), None)
        if kind is None:
            kinds = "; ".join(f"{name} ({reader.files})" for name, reader in READERS.items())
            raise HeedfulError(f"{folder} holds no model that heedful can import: {kinds}")
        found = READERS[kind].read(folder)
        fits(found)
    except ODD as error:
        raise HeedfulError(f"{folder} cannot be imported: {type(error).__name__}, {str(error)[:200]}") from None
    spoken = languages or found.languages
    if spoken is None or not all(LANGUAGE.match(one) for one in spoken):
        said = "" if spoken is None else f", only {'-'.join(spoken)[:50]}"
        raise ConfigError(f"{folder} does not say which two languages it speaks{said}: add --pair en-de")
    return write_bundle(
        out,
        model=found.model,
        weights=found.weights,
        tokenizers=found.tokenizers,
        languages=spoken,
        source_ends=found.source_ends,
        generation=found.generation,
        card=card(found, spoken, folder.name),
    )


def fits(found: Foreign) -> None:
    """Refuse weights that are no numbers, or (where PyTorch can say) not those of the model that is described."""
    for name, array in found.weights.items():
        if not np.isfinite(array).all():
            raise HeedfulError(f"{name} holds what is not a number: the model is damaged")
    if find_spec("torch") is None:
        return
    import torch

    from heedful.build import build

    with torch.device("meta"):
        model = build(found.model, *(found.tokenizers[side].size for side in ("source", "target")))
    wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    given = {name: array.shape for name, array in found.weights.items()}
    for name in sorted(wanted.keys() | given.keys()):
        if wanted.get(name) != given.get(name):
            raise HeedfulError(f"{name} has the shape {given.get(name)}, but the model needs {wanted.get(name)}")


def card(found: Foreign, languages: tuple[str, str], name: str) -> str:
    """The model card: whose it is. What they wrote about it stays with them."""
    return f"""---
language: {[one.replace("_", "-").split("-")[0].lower() for one in languages]}
library_name: heedful
pipeline_tag: translation
---

# {languages[0]} to {languages[1]}

Imported from `{name}` ({found.kind}): {describe_section(found.model.model_dump(exclude_defaults=True))}.

It was trained by others: its license, its data and its limits are those of where it came from. heedful knows nothing of
the text it was trained on, so it cannot say when an input is unlike that.

```sh
heedful translate DIR        # where DIR is this folder
```
"""

"""`heedful.import_model(...)`: what others trained, as a model directory that one can inspect, fine-tune and serve.

bundle = heedful.import_model("opus-mt-en-de", "en-de")        # a folder as Hugging Face publishes it
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from heedful.bundle import Bundle, in_words, write
from heedful.errors import ConfigError, HeedfulError
from heedful.imports import ctranslate2, g2p, marian
from heedful.imports.foreign import Foreign


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
        raise ConfigError(f"{folder} is not a folder")
    kind = next((name for name, reader in READERS.items() if reader.known(folder)), None)
    if kind is None:
        kinds = "; ".join(f"{name} ({reader.files})" for name, reader in READERS.items())
        raise HeedfulError(f"{folder} holds no model that heedful can import: {kinds}")
    try:
        found = READERS[kind].read(folder)
    except (OSError, KeyError, ValueError) as error:
        raise HeedfulError(f"{folder} cannot be read as {kind}: {str(error)[:200]}") from None
    spoken = languages or found.languages
    if spoken is None:
        raise ConfigError(f"{folder} does not say which languages it speaks: add --pair en-de")
    return write(
        out,
        model=found.model,
        weights=found.weights,
        tokenizers=found.tokenizers,
        languages=spoken,
        source_ends=found.source_ends,
        generation=found.generation,
        card=card(found, spoken, folder.name),
    )


def card(found: Foreign, languages: tuple[str, str], name: str) -> str:
    """The model card: whose it is. What they wrote about it stays with them."""
    return f"""---
language: {[one.replace("_", "-").split("-")[0].lower() for one in languages]}
library_name: heedful
pipeline_tag: translation
---

# {languages[0]} to {languages[1]}

Imported from `{name}` ({found.kind}): {in_words(found.model.model_dump(exclude_defaults=True))}.

It was trained by others: its licence, its data and its limits are those of where it came from. heedful knows nothing of
the text it was trained on, so it cannot say when an input is unlike that.

```sh
heedful translate DIR        # where DIR is this folder
```
"""

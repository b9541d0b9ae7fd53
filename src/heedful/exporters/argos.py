"""`NAME.argosmodel`: a package for Argos Translate and LibreTranslate.

    ctranslate2.write(bundle, folder, "int8")
    pack(bundle, folder, Path("en-de.argosmodel"))

    heedful-en_de/
      metadata.json            the two languages, versions
      model/                   the CTranslate2 model
      sentencepiece.model      the tokenizer of both sides, with heedful's normalization
      minisbd/rules.onnx       rules for sentence boundaries, so that no download is needed after installation
      README.md                the model card, and how Argos Translate searches

The file is an uncompressed zip without timestamps: the same model gives the same bytes.
"""

import json
import shutil
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from heedful import config
from heedful.bundle import CARD_FILE, Bundle, sibling
from heedful.errors import HeedfulError, require
from heedful.exporters import ctranslate2
from heedful.exporters.normalizer import add_normalizer
from heedful.exporters.sentence_splitter import make_sentence_splitter
from heedful.exporters.transformer import require_text_source
from heedful.files import sync_path
from heedful.text.language_codes import language_name
from heedful.text.tokenizer import SubwordTokenizer

SUFFIX = ".argosmodel"
QUANTIZATIONS = ("int8", *(kind for kind in ctranslate2.QUANTIZATIONS if kind != "int8"))  # Argos computes in int8
BEAM, LENGTH_PENALTY = 4, 0.2  # Argos Translate's search; only the beam is a setting


def pack(bundle: Bundle, folder: Path, path: Path, *, proof_section: str = "") -> None:
    """Pack a CTranslate2 model into an .argosmodel; `proof_section` is appended to its README."""
    tokenizer = check_supported(bundle)
    if path.suffix != SUFFIX:
        raise HeedfulError(f"Argos Translate only installs files that end in {SUFFIX}: rename {path.name}")
    if path.exists():
        raise HeedfulError(f"{path} already exists: choose another file name")
    source, target = bundle.description.source, bundle.description.target
    contents: dict[str, bytes | Path] = {
        f"model/{file.name}": file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")
    }
    contents |= {
        "metadata.json": make_metadata(source, target),
        "sentencepiece.model": add_normalizer(tokenizer.model),
        "minisbd/rules.onnx": make_sentence_splitter(source),
        CARD_FILE: (make_readme(bundle) + proof_section).encode(),
    }
    new = sibling(path, "new")
    try:
        with ZipFile(new, "w") as archive:
            for inner, content in sorted(contents.items()):
                add_file(archive, f"heedful-{source}_{target}/{inner}", content)
        sync_path(new)
        new.rename(path)
    except OSError as error:
        raise HeedfulError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        new.unlink(missing_ok=True)


def check_supported(bundle: Bundle) -> SubwordTokenizer:
    """Return the tokenizer of both sides; raise an error if Argos Translate cannot run the model."""
    require("onnx", extra="export", whose="heedful export --to argos")
    require_text_source(bundle.model, "Argos Translate")
    source, target = (bundle.tokenizer(side) for side in ("source", "target"))
    if not (isinstance(source, SubwordTokenizer) and isinstance(target, SubwordTokenizer)):
        raise HeedfulError(
            f"Argos Translate supports SentencePiece vocabularies only, not {bundle.description.tokenizer}: "
            'train with tokenizer.kind = "bpe" or "unigram"'
        )
    if source.model != target.model:
        raise HeedfulError(
            "Argos Translate uses one tokenizer for both languages, but this model has two: train with "
            "tokenizer.shared = true"
        )
    if bundle.description.tags:
        raise HeedfulError(
            f"Argos Translate does not support tags, but this model uses {' '.join(bundle.description.tags)}: "
            "train a model for one language pair, without tags"
        )
    if not all(isinstance(part, config.TransformerSettings) for part in (bundle.model.encoder, bundle.model.decoder)):
        raise HeedfulError(
            "Argos Translate runs CTranslate2, which does not support recurrent models: train a Transformer"
        )
    return source


def make_metadata(source: str, target: str) -> bytes:
    """metadata.json in ASCII, because Argos Translate reads it in the system's encoding."""
    metadata = {
        "type": "translate",
        "package_version": "1.0",
        "argos_version": "1.11",  # the first version known to read minisbd/; not checked by Argos
        "from_code": source, "from_name": display_name(source),
        "to_code": target, "to_name": display_name(target),
    }  # fmt: skip
    return (json.dumps(metadata, indent=1) + "\n").encode()


def display_name(code: str) -> str:
    """German for de, Portuguese (pt-BR) for pt-BR, gsw for gsw."""
    name = language_name(code)
    return name if len(code) == 2 or name == code else f"{name} ({code})"


def make_readme(bundle: Bundle) -> str:
    card = (bundle.folder / CARD_FILE).read_text(encoding="utf-8").rstrip()
    generation, description = bundle.generation, bundle.description
    return f"""{card}

## In Argos Translate and LibreTranslate

```python
from argostranslate import package, translate

package.install_from_path("NAME{SUFFIX}")
translate.translate("...", "{description.source}", "{description.target}")
```

- Remove other packages for the same language pair first. Otherwise the one that the file system lists first is used.
- Argos Translate searches with a beam of {BEAM} (set by ARGOS_BEAM_SIZE) and a fixed length penalty of \
{LENGTH_PENALTY}; this model was scored with {generation.beam} and {generation.length_penalty}.
- Argos Translate computes in int8 if the processor supports it, whatever the type of the weights, unless \
ARGOS_COMPUTE_TYPE=default; LibreTranslate computes in the type of the weights.
- When LibreTranslate updates its models, it replaces packages with a lower version than its own.
- Text is split into sentences by the rules in minisbd/, and every _ in the output becomes a space.
"""


def add_file(archive: ZipFile, name: str, content: bytes | Path) -> None:
    """Add a file to the archive, with a fixed date."""
    info = ZipInfo(name)
    info.create_system, info.external_attr = 3, 0o644 << 16  # the same on every platform
    if isinstance(content, bytes):
        archive.writestr(info, content)
        return
    info.file_size = content.stat().st_size  # files above 2 GB need zip64 fields
    with content.open("rb") as file, archive.open(info, "w") as packed:
        shutil.copyfileobj(file, packed, 1 << 20)

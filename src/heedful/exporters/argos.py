"""`NAME.argosmodel`: a model as Argos Translate, and so LibreTranslate, installs it.

    write(open_bundle("runs/en-de"), Path("en-de.argosmodel"), "int8")

    heedful-en_de/
      metadata.json            the two languages, versions
      model/                   what CTranslate2 reads
      sentencepiece.model      the one tokenizer of both sides, which normalizes text as heedful does
      minisbd/rules.onnx       where sentences end, so that nothing need be fetched after the installation
      README.md                the model card, and how Argos Translate searches

The file is a plain zip with neither times nor compression: the same model gives the same bytes.
"""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile, ZipInfo

from heedful import config
from heedful.bundle import CARD_FILE, Bundle, sibling
from heedful.errors import HeedfulError
from heedful.exporters import ctranslate2
from heedful.exporters.normalizer import normalizing
from heedful.exporters.sentence_splitter import splitter
from heedful.files import sync_path
from heedful.text.tokenizer import SubwordTokenizer

SUFFIX = ".argosmodel"
ROUNDINGS = ("int8", *(kind for kind in ctranslate2.ROUNDINGS if kind != "int8"))  # what Argos computes in, first
BEAM, LENGTH_PENALTY = 4, 0.2  # how Argos Translate searches: the first is a setting, the second is not
NAMES = {  # of frequent languages; others are called by their code, unless the caller says more
    "ar": "Arabic", "bg": "Bulgarian", "ca": "Catalan", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "es": "Spanish", "fi": "Finnish", "fr": "French", "hi": "Hindi", "hu": "Hungarian",
    "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "nl": "Dutch", "pl": "Polish",
    "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sv": "Swedish", "tr": "Turkish", "uk": "Ukrainian",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


def write(
    bundle: Bundle,
    path: Path,
    rounding: str = "int8",
    *,
    codes: tuple[str, str] | None = None,
    names: tuple[str, str] | None = None,
    version: str = "1.0",
) -> None:
    """Write the one file; nothing is left behind where it cannot be."""
    check(bundle)
    with TemporaryDirectory() as made:
        ctranslate2.write(bundle, Path(made), rounding)
        pack(bundle, Path(made), path, codes=codes, names=names, version=version)


def pack(
    bundle: Bundle,
    folder: Path,
    path: Path,
    *,
    codes: tuple[str, str] | None = None,
    names: tuple[str, str] | None = None,
    version: str = "1.0",
    proved: str = "",
) -> None:
    """The same from a folder that CTranslate2 reads, for instance one that was proved."""
    tokenizer = check(bundle)
    if path.suffix != SUFFIX:
        raise HeedfulError(f"Argos Translate installs files whose names end in {SUFFIX}, not {path.name}")
    if path.exists():
        raise HeedfulError(f"{path} is there already: name another file")
    codes = codes or (bundle.description.source, bundle.description.target)
    top = f"heedful-{codes[0]}_{codes[1]}"
    contents: dict[str, bytes | Path] = {
        f"model/{file.name}": file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")
    }
    contents |= {
        "metadata.json": metadata(codes, names or (name(codes[0]), name(codes[1])), version),
        "sentencepiece.model": normalizing(tokenizer.model),
        "minisbd/rules.onnx": splitter(codes[0]),
        CARD_FILE: (readme(bundle, codes) + proved).encode(),
    }
    new = sibling(path, "new")
    try:
        with ZipFile(new, "w") as archive:
            for inner, content in sorted(contents.items()):
                add(archive, f"{top}/{inner}", content)
        sync_path(new)
        new.rename(path)
    except OSError as error:
        raise HeedfulError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        new.unlink(missing_ok=True)


def check(bundle: Bundle) -> SubwordTokenizer:
    """The tokenizer of both sides, if Argos Translate can run the model at all."""
    source, target = (bundle.tokenizer(side) for side in ("source", "target"))
    if not (isinstance(source, SubwordTokenizer) and isinstance(target, SubwordTokenizer)):
        raise HeedfulError(
            f"Argos Translate reads SentencePiece's vocabularies, not {bundle.description.tokenizer}: "
            'train with tokenizer.kind = "bpe" or "unigram"'
        )
    if source.model != target.model:
        raise HeedfulError(
            "Argos Translate has one tokenizer for both languages, and this model has two: train with "
            "tokenizer.shared = true"
        )
    if bundle.description.tags:
        raise HeedfulError(
            f"Argos Translate puts no tags before a source, and this model knows {' '.join(bundle.description.tags)}: "
            "train a model for one pair of languages, without tags"
        )
    if not all(isinstance(part, config.TransformerSettings) for part in (bundle.model.encoder, bundle.model.decoder)):
        raise HeedfulError("Argos Translate runs CTranslate2, which knows no recurrent models: train a Transformer")
    return source


def metadata(codes: tuple[str, str], names: tuple[str, str], version: str) -> bytes:
    """In ASCII, since Argos Translate reads it in whatever encoding the system has."""
    told = {
        "type": "translate",
        "package_version": version,
        "argos_version": "1.11",  # the first that was seen to read minisbd/; nothing looks at it
        "from_code": codes[0], "from_name": names[0],
        "to_code": codes[1], "to_name": names[1],
    }  # fmt: skip
    return (json.dumps(told, indent=1) + "\n").encode()


def name(code: str) -> str:
    """What people call it, pt-BR like pt with its code."""
    known = NAMES.get(code.lower().replace("_", "-").split("-")[0], code)
    return known if len(code) == 2 or known == code else f"{known} ({code})"


def readme(bundle: Bundle, codes: tuple[str, str]) -> str:
    """The model card, and what is different in there."""
    card = (bundle.folder / CARD_FILE).read_text(encoding="utf-8").rstrip()
    search = bundle.generation
    return f"""{card}

## In Argos Translate and LibreTranslate

```python
from argostranslate import package, translate

package.install_from_path("NAME{SUFFIX}")
translate.translate("...", "{codes[0]}", "{codes[1]}")
```

- Remove another package for the same two languages first: the one that the file system lists first would be used.
- It searches with a beam of {BEAM} (the setting ARGOS_BEAM_SIZE) and a length penalty of {LENGTH_PENALTY}, which is \
fixed; this model was scored with {search.beam} and {search.length_penalty}.
- Argos Translate computes in 8 bits where the processor can, whatever the file holds, unless \
ARGOS_COMPUTE_TYPE=default; LibreTranslate computes in what the file holds.
- LibreTranslate, when told to update its models, replaces a package whose version is lower than that of its own.
- It translates sentence by sentence, cut by the rules in minisbd/, and turns every _ of an answer into a space.
"""


def add(archive: ZipFile, inner: str, content: bytes | Path) -> None:
    """A file under a name, from the same day as all others."""
    info = ZipInfo(inner)
    info.create_system, info.external_attr = 3, 0o644 << 16  # wherever it is written
    if isinstance(content, bytes):
        archive.writestr(info, content)
        return
    info.file_size = content.stat().st_size  # so that large ones get the fields they need
    with content.open("rb") as file, archive.open(info, "w") as into:
        shutil.copyfileobj(file, into, 1 << 20)

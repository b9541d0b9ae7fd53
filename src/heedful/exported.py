"""What an exported folder holds: the files of its engine, and beside them what makes it a translator again.

    model.bin, config.json, ...     what CTranslate2 (or ONNX Runtime) reads, and nothing else
    heedful/                        the model directory it came from, without its weights
      export.json                   which engine, how it was rounded, its files with sizes and hashes, the proof

So other tools open the folder as their own, and `heedful.load` opens it too.
"""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from heedful.alignment import Reading
from heedful.bundle import (
    CARD,
    STATISTICS,
    WEIGHTS,
    Bundle,
    Entry,
    FileName,
    Part,
    digest,
    dumped,
    entry_of,
    open_bundle,
    parsed,
    plain_file,
    refused,
    sync,
)
from heedful.data.store import MANIFEST

INNER, ABOUT = "heedful", "export.json"
PROVED = """

## Export

This is the model for {}, in {}. Compared with the model directory it was made from: {}.
"""


class About(Part):
    """export.json."""

    format_version: Literal[1] = 1
    engine: Literal["ctranslate2", "hugging_face", "onnx"]
    quantization: str = "float32"
    files: Annotated[dict[FileName, Entry], Field(max_length=16)]
    proof: dict[str, float | bool | tuple[float, float] | None]


@dataclass(frozen=True)
class Export:
    """An exported folder that was verified."""

    folder: Path
    bundle: Bundle
    about: About


def is_export(folder: Path) -> bool:
    """Whether a folder is an export."""
    return (folder / INNER / ABOUT).is_file()


def open_export(folder: str | Path) -> Export:
    """Verify it like a model directory: every file has the size and the hash that was written down."""
    folder = Path(folder).resolve()
    bundle = open_bundle(folder / INNER, weights=False)
    path = plain_file(bundle.folder, ABOUT)
    about = About.check(parsed(path.read_bytes(), path), path)
    for name, entry in about.files.items():
        file = plain_file(folder, name)
        if file.stat().st_size != entry.size or digest(file) != entry.sha256:
            raise refused(file, "is damaged: its size or sha256 is not what was written down")
    return Export(folder, bundle, about)


def write_inner(
    folder: Path,
    bundle: Bundle,
    engine: str,
    quantization: str,
    line: str,
    proof: Mapping[str, Any],
    reading: Reading | None,
) -> None:
    """Beside the engine's files, everything of the model directory but its weights; the proof is in the card too."""
    inner = folder / INNER
    inner.mkdir()
    for file in sorted(bundle.folder.iterdir()):
        if file.is_file() and file.name not in (WEIGHTS, MANIFEST):
            shutil.copyfile(file, inner / file.name)
    statistics = {**bundle.statistics, "alignment": asdict(reading) if reading else None}
    (inner / STATISTICS).write_bytes(dumped({key: value for key, value in statistics.items() if value is not None}))
    text = (inner / CARD).read_text(encoding="utf-8").rstrip() + PROVED.format(engine, quantization, line)
    for card in (inner / CARD, *([folder / CARD] if (folder / CARD).is_file() else [])):
        card.write_text(text, encoding="utf-8")
    files = {file.name: entry_of(file) for file in sorted(folder.iterdir()) if file.is_file()}
    about = {"format_version": 1, "engine": engine, "quantization": quantization, "files": files, "proof": dict(proof)}
    (inner / ABOUT).write_bytes(dumped(about))
    entries = {file.name: entry_of(file) for file in sorted(inner.iterdir())}
    (inner / MANIFEST).write_bytes(dumped({"format_version": 1, "files": entries}))
    for file in (*inner.iterdir(), inner):
        sync(file)

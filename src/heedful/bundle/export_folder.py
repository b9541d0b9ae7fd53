"""An export: the engine's files, and a directory `heedful` with the rest of the model directory.

    model.bin, config.json, ...     read by CTranslate2 (or ONNX Runtime)
    heedful/                        the original model directory, without its weights
      export.json                   the engine, the quantization, the engine's files with sizes and hashes, the proof

Other tools and `heedful.load` can open the directory.
"""

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from heedful.alignment import AlignmentMethod
from heedful.bundle.format import (
    CARD_FILE,
    CONFIG_FILE,
    EXPORT_FILE,
    FORMAT_VERSION,
    GENERATION_FILE,
    INNER_FOLDER,
    STATISTICS_FILE,
    WEIGHTS_FILE,
    Bundle,
    FileEntry,
    FileName,
    JsonSection,
    bundle_error,
    check_version,
    dump_json,
)
from heedful.bundle.verify import check_file, open_bundle, parse_json, upgrade_keys_
from heedful.bundle.write import manifest_entry, write_manifest
from heedful.data.store import MANIFEST
from heedful.files import file_sha256

EXPORT_CARD = """

## Export

Exported for {}, in {}. Compared with the original model: {}.
"""


class ExportManifest(JsonSection):
    """export.json."""

    format_version: Literal[2] = 2
    engine: Literal["ctranslate2", "hugging_face", "onnx"]
    quantization: str = "float32"
    files: Annotated[dict[FileName, FileEntry], Field(max_length=16)]
    proof: dict[str, float | bool | tuple[float, float] | None]


@dataclass(frozen=True)
class ExportedModel:
    """A verified export."""

    folder: Path
    bundle: Bundle
    manifest: ExportManifest


def is_export(folder: Path) -> bool:
    return (folder / INNER_FOLDER / EXPORT_FILE).is_file()


def open_export(folder: str | Path) -> ExportedModel:
    """Verify an export like a model directory: the size and the hash of every file."""
    folder = Path(folder).resolve()
    bundle = open_bundle(folder / INNER_FOLDER, weights=False)
    path = check_file(bundle.folder, EXPORT_FILE)
    tree = parse_json(path.read_bytes(), path)
    check_version(tree, path)
    if tree.get("format_version", 1) == 1:
        upgrade_keys_(tree, "export", 1, path)
        tree["format_version"] = FORMAT_VERSION
    manifest = ExportManifest.check(tree, path)
    for name, entry in manifest.files.items():
        file = check_file(folder, name)
        if file.stat().st_size != entry.size or file_sha256(file) != entry.sha256:
            raise bundle_error(file, "is damaged: its size or sha256 differs from export.json")
    return ExportedModel(folder, bundle, manifest)


def write_inner_folder(
    folder: Path,
    bundle: Bundle,
    engine: str,
    quantization: str,
    line: str,
    proof: Mapping[str, Any],
    alignment: AlignmentMethod | None,
) -> None:
    """Write the model directory without weights next to the engine's files; `line` is the proof for the card."""
    inner = folder / INNER_FOLDER
    inner.mkdir()
    for file in sorted(bundle.folder.iterdir()):
        if file.is_file() and file.name not in (WEIGHTS_FILE, MANIFEST):
            shutil.copyfile(file, inner / file.name)
    statistics = {**bundle.statistics, "alignment": asdict(alignment) if alignment else None}
    contents = {  # in the current format, even if the bundle has an older one
        CONFIG_FILE: bundle.description.model_dump(mode="json"),
        GENERATION_FILE: bundle.generation.model_dump(mode="json"),
        STATISTICS_FILE: {key: value for key, value in statistics.items() if value is not None},
    }
    for name, tree in contents.items():
        (inner / name).write_bytes(dump_json(tree))
    text = (inner / CARD_FILE).read_text(encoding="utf-8").rstrip() + EXPORT_CARD.format(engine, quantization, line)
    for card in (inner / CARD_FILE, *([folder / CARD_FILE] if (folder / CARD_FILE).is_file() else [])):
        card.write_text(text, encoding="utf-8")
    files = {file.name: manifest_entry(file) for file in sorted(folder.iterdir()) if file.is_file()}
    manifest = {
        "format_version": FORMAT_VERSION, "engine": engine, "quantization": quantization, "files": files,
        "proof": dict(proof),
    }  # fmt: skip
    (inner / EXPORT_FILE).write_bytes(dump_json(manifest))
    write_manifest(inner)

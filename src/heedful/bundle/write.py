"""Write a model directory atomically."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

import heedful
from heedful import config
from heedful.bundle.format import (
    CARD_FILE,
    CONFIG_FILE,
    FORMAT_VERSION,
    GENERATION_FILE,
    SCORES_FILE,
    STATISTICS_FILE,
    TOKEN_IDS,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
    Array,
    Bundle,
    GenerationSettings,
    ModelDescription,
    dump_json,
    piece_ids,
    sibling,
    tied_names,
    tokenizer_kind,
)
from heedful.bundle.verify import verify_bundle
from heedful.data.store import MANIFEST, SIDES
from heedful.errors import HeedfulError
from heedful.files import file_sha256, sync_path
from heedful.text.tokenizer import JSON_KINDS, Tokenizer


def write_bundle(
    folder: str | Path,
    *,
    model: config.ModelSettings,
    weights: Mapping[str, Array],
    tokenizers: Mapping[str, Tokenizer],
    languages: tuple[str, str],
    input: config.InputSettings = config.TextInputSettings(),  # noqa: B008  # immutable
    card: str,
    tags: Sequence[str] = (),
    source_ends: bool = True,
    generation: GenerationSettings | None = None,
    statistics: Mapping[str, Any] | None = None,
    scores: Mapping[str, Any] | None = None,
) -> Bundle:
    """Write a model directory next to `folder`, verify it and rename it; replaces a previous model.

    `weights` are the arrays of `state_dict()`, all float16, float32 or float64; a tied table needs only one of its
    names. If the writer is killed, `open_bundle(folder)` still finds a complete model: this one or the previous one.
    """
    folder = Path(folder).resolve()
    if folder.exists() and not (folder / WEIGHTS_FILE).is_file() and (folder.is_file() or any(folder.iterdir())):
        raise HeedfulError(f"{folder} exists and is not a model, so it is not overwritten. Choose another directory")
    stored = stored_weights(model, weights)
    files = {
        side: f"{side}.{'vocabulary.json' if tokenizer_kind(tokenizers[side]) in JSON_KINDS else 'spm'}"
        for side in SIDES
        if side in tokenizers
    }
    description = ModelDescription.model_validate(
        {
            "format_version": FORMAT_VERSION, "heedful_version": heedful.__version__,
            "source": languages[0], "target": languages[1],
            "vocabulary": {side: tokenizers[side].size for side in files}, "tokens": TOKEN_IDS, "tags": tuple(tags),
            "tokenizer": tokenizer_kind(tokenizers[min(files)]), "files": files, "source_ends": source_ends,
            "model": model, "input": input,
            "dtype": next(iter(stored.values())).dtype.name, "parameters": sum(map(np.size, stored.values())),
        }
    )  # fmt: skip
    contents = {
        CONFIG_FILE: dump_json(description.model_dump(mode="json")),
        VOCABULARY_FILE: dump_json(piece_ids(tokenizers)),
        GENERATION_FILE: dump_json((generation or GenerationSettings()).model_dump(mode="json")),
        STATISTICS_FILE: dump_json(statistics or {}),
        SCORES_FILE: dump_json(scores or {}),
        CARD_FILE: card.encode(),
    }
    new = sibling(folder, "new")
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        for name, data in contents.items():
            (new / name).write_bytes(data)
        for side in files:
            tokenizers[side].save(new / files[side])
        save_file(stored, new / WEIGHTS_FILE, metadata={"format": "pt"})  # some tools require this
        (new / WEIGHTS_FILE).chmod((new / CONFIG_FILE).stat().st_mode)  # safetensors makes it private to the owner
        write_manifest(new)
        bundle = verify_bundle(new)
        replace_folder(new, folder)
    except (OSError, SafetensorError) as error:
        raise HeedfulError(f"{folder} cannot be written: {error}. A previous model there is unchanged") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return replace(bundle, folder=folder)


def replace_statistics(bundle: Bundle, statistics: Mapping[str, Any]) -> Bundle:
    """Replace training_statistics.json of a model directory, as atomically as `write_bundle`."""
    contents = {  # in the current format, even if the bundle has an older one
        CONFIG_FILE: bundle.description.model_dump(mode="json"),
        GENERATION_FILE: bundle.generation.model_dump(mode="json"),
        STATISTICS_FILE: statistics,
    }
    folder, new = bundle.folder, sibling(bundle.folder, "new")
    try:
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(folder, new, ignore=shutil.ignore_patterns(MANIFEST))
        for name, tree in contents.items():
            (new / name).write_bytes(dump_json(tree))
        write_manifest(new)
        changed = verify_bundle(new)
        replace_folder(new, folder)
    except OSError as error:
        raise HeedfulError(f"{folder} cannot be written: {error}. The model is unchanged") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return replace(changed, folder=folder)


def write_manifest(folder: Path) -> None:
    """Write manifest.json for all files of a directory, and flush everything to disk."""
    entries = {path.name: manifest_entry(path) for path in sorted(folder.iterdir())}
    for name in entries:
        sync_path(folder / name)
    (folder / MANIFEST).write_bytes(dump_json({"format_version": FORMAT_VERSION, "files": entries}))
    sync_path(folder / MANIFEST)
    sync_path(folder)


def manifest_entry(path: Path) -> dict[str, Any]:
    return {"size": path.stat().st_size, "sha256": file_sha256(path)}


def replace_folder(new: Path, folder: Path) -> None:
    """Rename the old directory, move the new one in, remove the old; `find_bundle` handles interruptions."""
    old = sibling(folder, "old")
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)  # left by a killed writer
        folder.rename(old)
    new.rename(folder)
    sync_path(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def stored_weights(model: config.ModelSettings, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return each weight once, contiguous, with one dtype; a tied table has one name."""
    aliases, arrays = tied_names(model), dict[str, Array]()
    for name, array in weights.items():
        stored = aliases.get(name, name)
        if stored in arrays and not np.array_equal(arrays[stored], array):
            raise ValueError(
                f"tie_embeddings = {model.tie_embeddings!r}, but {name} differs from the table it is tied to"
            )
        arrays[stored] = np.asarray(array, order="C")
    if len(dtypes := {array.dtype.name for array in arrays.values()}) != 1:
        raise ValueError(f"weights must have one dtype, not {', '.join(sorted(dtypes)) or 'none'}")
    return arrays

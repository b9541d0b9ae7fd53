"""Open a model directory: find it, verify it, read its weights.

Files are untrusted. Before anything larger than `MAX_PARSED_BYTES` is read, every file is checked: it is listed in the
manifest, is in the directory, has the listed size and hash, and is consistent with the others.
"""

import json
from collections.abc import Mapping, Set
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from heedful import config, samples
from heedful.bundle.format import (
    CONFIG_FILE,
    CTC_WEIGHT,
    EXPORT_FILE,
    FORMAT_VERSION,
    GENERATION_FILE,
    INNER_FOLDER,
    MAX_FILE_BYTES,
    MAX_HEADER_BYTES,
    MAX_PARSED_BYTES,
    MAX_POSITION_NUMBERS,
    OUTPUT_WEIGHT,
    REQUIRED_FILES,
    SCORES_FILE,
    STATISTICS_FILE,
    TARGET_TABLE,
    TOKEN_IDS,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
    Array,
    Bundle,
    GenerationSettings,
    Manifest,
    ModelDescription,
    TrainingStatistics,
    WeightsHeader,
    bundle_error,
    check_version,
    dump_json,
    piece_ids,
    sibling,
    source_table_name,
    target_table_name,
    tied_names,
    tokenizer_kind,
)
from heedful.config.renamed import find_key, rename_keys_
from heedful.data.store import MANIFEST
from heedful.errors import HeedfulError
from heedful.files import file_sha256
from heedful.text.tokenizer import SPECIAL, Tokenizer, load


def open_bundle(folder: str | Path, *, weights: bool = True) -> Bundle:
    """Verify a model directory, the one in a run directory, or a bundled sample such as `pt-en`.

    With `weights=False` the weights may be missing: an export stores them in its own format.
    """
    if str(folder) in samples.MODELS and not Path(folder).exists():
        folder = samples.model(str(folder))
    try:
        return verify_bundle(find_bundle(Path(folder).resolve()).resolve(), weights=weights)
    except OSError as error:
        raise HeedfulError(f"{error.filename or folder} cannot be read: {error.strerror or error}") from None


def read_weights(bundle: Bundle) -> dict[str, Array]:
    """Read the weights by name for `load_state_dict`; a tied table has all of its names."""
    path = bundle.folder / WEIGHTS_FILE
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise bundle_error(path, f"changed after it was verified ({error})") from None
    return weights | {alias: weights[stored] for alias, stored in tied_names(bundle.model).items()}


def read_float_weights(bundle: Bundle) -> dict[str, Array]:
    """Read the weights and convert them to float32, which every engine supports."""
    return {name: array.astype(np.float32, copy=False) for name, array in read_weights(bundle).items()}


def find_bundle(folder: Path) -> Path:
    """Return the model directory: `folder`, its `model`, or the temporary directory that a killed writer left."""
    for place in (folder, folder / "model"):
        for candidate in (place,) if place.exists() else (sibling(place, "new"), sibling(place, "old")):
            if (candidate / MANIFEST).is_file():
                return candidate
    if (folder / INNER_FOLDER / EXPORT_FILE).is_file():
        raise HeedfulError(f"{folder} is an export, which can only translate: pass the original model directory")
    if folder.is_file():
        raise HeedfulError(f"there is no model in {folder}, which is a file: pass the model directory")
    if not folder.exists():
        raise HeedfulError(f"there is no model in {folder}: the directory does not exist; check the path")
    if (folder / "requested.json").is_file():
        raise HeedfulError(
            f"there is no model in {folder} yet: training is not finished. To resume it, rerun the same "
            "heedful train command"
        )
    raise HeedfulError(
        f"there is no model in {folder}: neither this directory nor its subdirectory `model` contains "
        f"{MANIFEST}. Check the path; if writing the model was interrupted, rerun the command that "
        "writes it"
    )


def verify_bundle(folder: Path, *, weights: bool = True) -> Bundle:
    version, contents = read_listed_files(folder, REQUIRED_FILES if weights else REQUIRED_FILES - {WEIGHTS_FILE})
    description_tree, generation_tree, statistics_tree, scores = (
        parse_json(contents[name], folder / name)
        for name in (CONFIG_FILE, GENERATION_FILE, STATISTICS_FILE, SCORES_FILE)
    )
    check_version(description_tree, folder / CONFIG_FILE)
    if description_tree.get("format_version") != version:
        raise bundle_error(folder / CONFIG_FILE, f"'format_version': should be {version}, as in {MANIFEST}")
    for tree, section, name in (
        (description_tree.get("model"), "model", CONFIG_FILE),
        (generation_tree, "generation", GENERATION_FILE),
        (statistics_tree, "statistics", STATISTICS_FILE),
    ):
        upgrade_keys_(tree, section, version, folder / name)
    description = ModelDescription.check(description_tree | {"format_version": FORMAT_VERSION}, folder / CONFIG_FILE)
    generation = GenerationSettings.check(generation_tree, folder / GENERATION_FILE)
    statistics = TrainingStatistics.check(statistics_tree, folder / STATISTICS_FILE).model_dump(exclude_unset=True)
    if weights:
        check_sizes(folder, description, read_shapes(folder / WEIGHTS_FILE, description.dtype))
    if not set(description.files.values()) <= contents.keys() - REQUIRED_FILES:
        raise bundle_error(folder / MANIFEST, "does not list the tokenizers")
    tokenizers = {side: load_tokenizer(folder, description, side) for side in description.text_sides}
    if contents[VOCABULARY_FILE] != dump_json(piece_ids(tokenizers)):
        raise bundle_error(folder / VOCABULARY_FILE, "its pieces differ from those of the tokenizers")
    return Bundle(folder, description, tokenizers, generation, statistics, scores)


def upgrade_keys_(tree: Any, section: str, version: int, path: Path) -> None:
    """Rename the keys of format 1, in place; a key of another format is an error."""
    if not isinstance(tree, dict):
        return
    if key := find_key(tree, section, old=version > 1):
        raise bundle_error(path, f"{key!r} is not a key of format {version}")
    if version == 1:
        rename_keys_(tree, section)


def read_listed_files(folder: Path, required: Set[str] = frozenset()) -> tuple[int, dict[str, bytes]]:
    """Return the format version and the contents of the listed files except weights; verify sizes and hashes."""
    path = check_file(folder, MANIFEST)
    tree = parse_json(data := path.read_bytes(), path)
    check_version(tree, path)
    manifest = Manifest.check(tree, path)
    if data != dump_json(tree):  # it has no hash, but one canonical form
        raise bundle_error(path, "was changed after heedful wrote it")
    if missing := required - manifest.files.keys():
        raise bundle_error(path, f"does not list {', '.join(sorted(missing))}")
    contents = {}
    for name, entry in manifest.files.items():
        path = check_file(folder, name)
        if path.stat().st_size != entry.size:
            raise bundle_error(path, f"has {path.stat().st_size:,} bytes, but should have {entry.size:,}")
        contents[name] = b"" if name == WEIGHTS_FILE else path.read_bytes()
        if (file_sha256(path) if name == WEIGHTS_FILE else sha256(contents[name]).hexdigest()) != entry.sha256:
            raise bundle_error(path, "is damaged: its sha256 differs from the manifest")
    return manifest.format_version, contents


def check_file(folder: Path, name: str) -> Path:
    """Return the path of a file that is in this directory and within its size limit."""
    path, max_bytes = folder / name, MAX_FILE_BYTES.get(name, MAX_PARSED_BYTES)
    if not path.is_file():
        raise bundle_error(path, "is missing or not a file")
    if path.resolve().parent != folder:
        raise bundle_error(path, "is a link to a file outside the directory")
    if path.stat().st_size > max_bytes:
        raise bundle_error(path, f"is larger than {max_bytes:,} bytes")
    return path


def read_shapes(path: Path, dtype: str) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight. Format: 8 bytes of header length, JSON, tensors without gap or overlap."""
    itemsize, size = np.dtype(dtype).itemsize, path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(MAX_HEADER_BYTES, size - 8):
            raise bundle_error(path, f"is damaged: according to its first 8 bytes, its header has {length:,} bytes")
        tree = parse_json(file.read(length), path)
    metadata = tree.pop("__metadata__", {})
    tensors = WeightsHeader.check({"metadata": metadata, "tensors": tree}, path).tensors
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].data_offsets):
        if tensor.dtype != f"F{8 * itemsize}":
            raise bundle_error(path, f"{name} is {tensor.dtype[:20]!a}, but {CONFIG_FILE} says {dtype}")
        if tensor.data_offsets != [end, end + prod(tensor.shape) * itemsize]:
            raise bundle_error(path, f"{name} has offsets that do not fit its shape and the tensors before it")
        end = tensor.data_offsets[1]
    if 8 + length + end != size:
        raise bundle_error(
            path, f"is damaged: its tensors end at byte {8 + length + end:,}, but the file has {size:,} bytes"
        )
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def check_sizes(folder: Path, description: ModelDescription, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check that config.json fits the weights and does not describe a larger model."""
    model, aliases = description.model, tied_names(description.model)
    targets = (CTC_WEIGHT,) if target_table_name(model) is None else (TARGET_TABLE, OUTPUT_WEIGHT)
    tables = ((source_table_name(model), "source"), *((name, "target") for name in targets))
    for name, side in ((name, side) for name, side in tables if name is not None):
        if side not in description.vocabulary:
            raise bundle_error(
                folder / CONFIG_FILE, f"the encoder reads text, but the input is {description.input.kind}"
            )
        expected, shape = (description.vocabulary[side], model.width), shapes.get(aliases.get(name, name))
        if shape != expected:
            raise bundle_error(folder / WEIGHTS_FILE, f"{name} has shape {shape}, but {CONFIG_FILE} says {expected}")
    total = sum(map(prod, shapes.values()))
    if total != description.parameters:
        raise bundle_error(
            folder / WEIGHTS_FILE, f"has {total:,} numbers, but {CONFIG_FILE} says {description.parameters:,}"
        )
    position_numbers = model.max_positions * model.width if model.positions else 0
    if min_parameters(model, description.input) > total or position_numbers > MAX_POSITION_NUMBERS:
        raise bundle_error(
            folder / CONFIG_FILE,
            f"`model` describes a model with far more weights than the {total:,} in {WEIGHTS_FILE}",
        )


def min_parameters(model: config.ModelSettings, input: config.InputSettings) -> int:
    """Return a lower bound of the number of weights, from the largest matrices, without building them."""
    width, encoder, decoder = model.width, model.encoder, model.decoder
    memory_width = encoder.width if isinstance(encoder, config.RecurrentSettings) else width
    memory_width *= not isinstance(encoder, config.NothingSettings)
    total = 0
    if isinstance(input, config.ImageInputSettings):  # a vector of each patch, and the weights of the pixels of one
        total += (input.height // input.patch) * (input.width // input.patch) * width + 3 * input.patch**2
    if isinstance(input, config.AudioInputSettings):  # the first convolution
        total += input.bands * width
    if isinstance(input, config.GraphInputSettings):  # the first layer
        total += input.features * width
    for part in (encoder, decoder):
        if isinstance(part, config.NothingSettings):
            continue
        if isinstance(part, config.GraphSettings):
            total += (part.layers - 1) * width**2 * (part.heads if part.combine == "average" else 1)
            continue
        if isinstance(part, config.TransformerSettings | config.PatchesSettings):
            heads = part.heads if part.combine == "average" else 1
            total += part.layers * width * (width * heads + part.feedforward_size)
        elif isinstance(part, config.LabelSettings):
            continue
        elif isinstance(part, config.CTCSettings):
            total += upper_weights(part.upsample, memory_width, width)
        else:
            total += part.width * width + part.layers * part.width**2 // 2  # each of two directions has half the width
    if isinstance(decoder, config.RecurrentDecoderSettings):
        attention = decoder.attention
        heads = attention.heads or 0 if attention is not None and attention.combine == "average" else 0
        total += decoder.width * memory_width * (decoder.layers * decoder.bridge + heads)
    if model.ctc_head is not None:
        total += upper_weights(model.ctc_head.upsample, memory_width, memory_width)
    return total


def upper_weights(upsample: int | None, memory_width: int, width: int) -> int:
    """Return the number of weights of the matrix with which CTC makes several slots of one."""
    return upsample * memory_width * width if upsample is not None and upsample > 1 else 0


def load_tokenizer(folder: Path, description: ModelDescription, side: str) -> Tokenizer:
    """Load and check the tokenizer of one side. SentencePiece < 0.2.2 crashed on some files."""
    path, size = folder / description.files[side], description.vocabulary[side]
    try:
        tokenizer = load(path)
        kind, pieces = tokenizer_kind(tokenizer), tokenizer.pieces(range(tokenizer.size))
        for tag in description.tags if side == "source" else ():
            tokenizer.tag_id(tag)
    except (HeedfulError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise bundle_error(path, f"is not a tokenizer for this model ({str(error)[:200]!a})") from None
    first_side = min(description.text_sides)  # the target may have another kind
    expected_kind = description.tokenizer if side == first_side else kind
    if (kind, len(pieces), len(set(pieces))) != (expected_kind, size, size):
        raise bundle_error(
            path,
            f"is a tokenizer of kind {kind[:20]!a} with {len(set(pieces)):,} pieces, but the model needs "
            f"{expected_kind} with {size:,}",
        )
    if tuple(pieces[: len(SPECIAL)]) != SPECIAL or description.tokens != TOKEN_IDS:
        raise bundle_error(path, f"does not start with {' '.join(SPECIAL)}, or {CONFIG_FILE} has other ids for them")
    return tokenizer


def parse_json(data: bytes, path: Path) -> dict[str, Any]:
    """Parse an object of strict JSON: no duplicate keys, no NaN, no deep nesting, no lone surrogates."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(tree := dict(pairs)) < len(pairs):
            raise ValueError("a key occurs twice")
        return tree

    def reject(word: str) -> None:
        raise ValueError(f"{word} is not a valid JSON number")

    try:
        tree = json.loads(data.decode(), object_pairs_hook=unique, parse_constant=reject)
        json.dumps(tree, ensure_ascii=False).encode()  # fails for lone surrogates, which JSON can contain
    except (ValueError, RecursionError) as error:
        raise bundle_error(path, f"is not JSON ({str(error)[:200]!a})") from None
    if not isinstance(tree, dict):
        raise bundle_error(path, "is not a JSON object")
    return tree

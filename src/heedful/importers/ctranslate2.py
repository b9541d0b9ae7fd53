"""Read a Transformer from CTranslate2's model.bin, without the engine.

    model.bin, source_vocabulary.*, target_vocabulary.* (or shared_vocabulary.*), sentencepiece.model or none

    binary_version u32 | name | revision u32 | count u32 | count x (name, rank u8, dims u32.., type u8, bytes u32, data)
    | count of aliases u32 | (alias, name)..            a name is its length u16 and bytes that end with a zero

Weights in 8 or 16 bits keep their precision. If no position table is stored, the engine computes one: positions count
from 1, with width / 2 - 1 in the exponent's denominator. The import stores that table.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heedful import config
from heedful.errors import HeedfulError
from heedful.importers.imported_model import (
    PAD_LOGIT,
    Array,
    ImportedModel,
    as_float32,
    read_file,
    read_json,
    read_json_object,
    read_lines,
    renumber_pieces,
    reorder_rows,
    set_start_row_,
)
from heedful.text.tokenizer import SPECIAL, BorrowedTokenizer, TableTokenizer, Tokenizer

TYPES = ("<f4", "i1", "<i2", "<i4", "<f2", "bfloat16")  # by their number in newer files
OLD_TYPES = {4: "<f4", 1: "i1", 2: "<i2"}  # by their size in bytes in older files
ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu"}
MAX_MODEL_BYTES = 1 << 34
DEFAULT_POSITIONS = 512  # for a model that stores none
SIDES = {"source": "encoder", "target": "decoder"}


def is_ctranslate2_folder(folder: Path) -> bool:
    return (folder / "model.bin").is_file()


def read_model(folder: Path) -> ImportedModel:
    """Read the model, its weights and its vocabularies."""
    arrays = read_variables(folder / "model.bin")
    settings = read_json_object(folder / "config.json") if (folder / "config.json").is_file() else {}
    unknown, end = str(settings.get("unk_token", "<unk>")), str(settings.get("eos_token", "</s>"))
    first = str(settings.get("decoder_start_token", settings.get("bos_token", "<s>")))
    if settings.get("add_source_bos"):
        raise HeedfulError(f"{folder} needs a start token before every source, which heedful does not support")
    starts_from_zeros = bool(arrays.pop("decoder/start_from_zero_embedding", np.array(0)))
    tokenizers, orders = dict[str, Tokenizer](), dict[str, list[int]]()
    start: int | None = None
    for side, part in SIDES.items():
        vocabulary = read_vocabulary(folder, side, len(arrays[find_embedding_name(arrays, part)]))
        pad = next((name for name in ("<pad>", "<blank>") if name in vocabulary and name != first), None)
        bos = first if first in vocabulary and first != end and not starts_from_zeros else None
        orders[side], pieces = renumber_pieces(vocabulary, (pad, unknown, bos, end), folder)
        tokenizers[side] = make_tokenizer(folder, side, pieces, orders[side])
        if side == "target" and not starts_from_zeros:
            if first not in vocabulary:
                raise HeedfulError(f"{folder}: the start token {first} of the decoder is not in its vocabulary")
            start = vocabulary.index(first)
    sizes = {side: tokenizer.size for side, tokenizer in tokenizers.items()}
    return ImportedModel(
        kind="Transformer for CTranslate2",
        model=make_model_settings(arrays),
        weights=convert_weights(arrays, orders, sizes, start),
        tokenizers=tokenizers,
        source_ends=bool(settings.get("add_source_eos", False)),
    )


# ------------------------------------------------------------------------------------------------------- model.bin


def read_variables(path: Path) -> dict[str, Array]:
    """Every array of a model.bin by its name, dequantized."""
    if not path.is_file() or path.stat().st_size > MAX_MODEL_BYTES:
        raise HeedfulError(f"{path} is not a file, or is larger than {MAX_MODEL_BYTES:,} bytes")
    data, position = path.read_bytes(), 0

    def read_number(form: str) -> Any:
        nonlocal position
        (value,) = struct.unpack_from(f"<{form}", data, position)
        position += struct.calcsize(f"<{form}")
        return value

    def read_name() -> str:
        nonlocal position
        length = read_number("H")
        text = data[position : position + length].rstrip(b"\0").decode()
        position += length
        return text

    try:
        version = read_number("I")
        if not 2 <= version <= 6:
            raise HeedfulError(f"{path} has CTranslate2 format {version}; heedful reads formats 2 to 6")
        name, _ = read_name(), read_number("I")
        if name not in ("TransformerBase", "TransformerBig", "TransformerSpec"):
            raise HeedfulError(f"{path} is a {name[:50]!a}; heedful imports encoder-decoder Transformers only")
        arrays: dict[str, Array] = {}
        for _ in range(read_number("I")):
            name = read_name()
            shape = [read_number("I") for _ in range(read_number("B"))]
            kind = TYPES[read_number("B")] if version >= 4 else OLD_TYPES[read_number("B")]
            item_bytes = 2 if kind == "bfloat16" else np.dtype(kind).itemsize
            num_bytes = read_number("I") if version >= 4 else read_number("I") * item_bytes
            arrays[name] = decode_numbers(data[position : position + num_bytes], kind).reshape(shape)
            position += num_bytes
        arrays = dequantize(arrays)
        for _ in range(read_number("I") if version >= 3 else 0):
            alias = read_name()
            arrays[alias] = arrays[read_name()]
    except (struct.error, ValueError, LookupError, TypeError) as error:
        raise HeedfulError(f"{path} is not a CTranslate2 model, or is damaged ({str(error)[:100]!a})") from None
    if position != len(data) or not arrays:
        raise HeedfulError(f"{path} is damaged: it has {len(data):,} bytes, but its variables end at {position:,}")
    return arrays


def dequantize(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Divide integers by their scale, one per array or one per row."""
    scales = {name.removesuffix("_scale"): array for name, array in arrays.items() if name.endswith("_scale")}
    return {
        name: array / (scales[name][:, None] if scales[name].ndim else scales[name]) if name in scales else array
        for name, array in arrays.items()
        if not name.endswith("_scale")
    }


def decode_numbers(data: bytes, kind: str) -> Array:
    """An array of one of TYPES; bfloat16, which NumPy lacks, is the upper half of a float32."""
    if kind == "bfloat16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(data, kind)


# --------------------------------------------------------------------------------------------------- conversion


def find_embedding_name(arrays: Mapping[str, Array], part: str) -> str:
    for name in (f"{part}/embeddings/weight", f"{part}/embeddings_0/weight"):
        if name in arrays:
            return name
    raise HeedfulError(f"model.bin has no embeddings for its {part}")


def count_layers(arrays: Mapping[str, Array], part: str) -> int:
    layers = {int(number[1]) for name in arrays if (number := re.match(rf"{part}/layer_(\d+)/", name))}
    if layers != set(range(len(layers))) or not layers:
        raise HeedfulError(f"model.bin has no layers for its {part}")
    return len(layers)


def make_model_settings(arrays: Mapping[str, Array]) -> config.ModelSettings:
    width = arrays[find_embedding_name(arrays, "decoder")].shape[1]
    scales = {int(arrays.get(f"{part}/scale_embeddings", np.array(1))) for part in SIDES.values()}
    if len(scales) > 1:
        raise HeedfulError("this model scales the embeddings of one side only, which heedful does not support")

    def part_settings(part: str) -> dict[str, Any]:
        activation = int(arrays.get(f"{part}/activation", np.array(0)))
        if activation not in ACTIVATIONS:
            raise HeedfulError(f"heedful does not support activation {activation} of CTranslate2")
        return {
            "kind": "transformer",
            "layers": count_layers(arrays, part),
            "heads": int(arrays.get(f"{part}/num_heads", arrays.get("num_heads", np.array(8)))),
            "feedforward_size": arrays[f"{part}/layer_0/ffn/linear_0/weight"].shape[0],
            "norm": "pre" if f"{part}/layer_norm/gamma" in arrays else "post",
            "activation": ACTIVATIONS[activation],
        }

    stored = arrays.get("encoder/position_encodings/encodings")
    return config.ModelSettings.model_validate(
        {
            "width": width, "positions": "learned",
            "max_positions": DEFAULT_POSITIONS if stored is None else len(stored),
            "tie_embeddings": "none", "scale_embeddings": bool(scales.pop()), "output_bias": True,
            "encoder": part_settings("encoder"), "decoder": part_settings("decoder"),
        }
    )  # fmt: skip


def convert_weights(
    variables: Mapping[str, Array], orders: Mapping[str, Sequence[int]], sizes: Mapping[str, int], start: int | None
) -> dict[str, Array]:
    """Weights by our names; raise an error if any are missing or left over."""
    weights: dict[str, Array] = {}
    rest = dict(variables)

    def take_norm(ours: str, theirs: str) -> None:
        weights[f"{ours}.weight"], weights[f"{ours}.bias"] = rest.pop(f"{theirs}/gamma"), rest.pop(f"{theirs}/beta")

    def take_linear(ours: str, theirs: str) -> None:
        weights[f"{ours}.weight"], weights[f"{ours}.bias"] = rest.pop(f"{theirs}/weight"), rest.pop(f"{theirs}/bias")

    try:
        for side, part in SIDES.items():
            table = rest.pop(find_embedding_name(rest, part))
            weights[f"{part}.embed.table.weight"] = reorder_rows(table, orders[side], sizes[side])
            positions = rest.pop(f"{part}/position_encodings/encodings", None)
            positions = default_position_table(table.shape[1]) if positions is None else positions
            weights[f"{part}.embed.positions.table"] = positions
            for number in range(count_layers(variables, part)):
                here, there = f"{part}.layers.{number}", f"{part}/layer_{number}"
                take_norm(f"{here}.around_attention.norm", f"{there}/self_attention/layer_norm")
                take_linear(f"{here}.attention.project", f"{there}/self_attention/linear_0")
                take_linear(f"{here}.attention.out", f"{there}/self_attention/linear_1")
                take_norm(f"{here}.around_feed_forward.norm", f"{there}/ffn/layer_norm")
                take_linear(f"{here}.feed_forward.up", f"{there}/ffn/linear_0")
                take_linear(f"{here}.feed_forward.down", f"{there}/ffn/linear_1")
                if part == "decoder":
                    take_norm(f"{here}.around_cross.norm", f"{there}/attention/layer_norm")
                    for index, matrix in enumerate(("query", "memory", "out")):
                        take_linear(f"{here}.cross.{matrix}", f"{there}/attention/linear_{index}")
            if f"{part}/layer_norm/gamma" in rest:
                take_norm(f"{part}.norm", f"{part}/layer_norm")
    except KeyError as error:
        raise HeedfulError(f"model.bin has no {str(error)[:100]}: heedful does not support such a model") from None
    if unknown := sorted(
        name for name, array in rest.items() if array.ndim and not name.startswith("decoder/projection/")
    ):
        raise HeedfulError(
            f"model.bin has {unknown[0]}, which heedful does not support: it is another kind of Transformer"
        )
    set_start_row_(weights["decoder.embed.table.weight"], orders["target"], start)
    output = rest["decoder/projection/weight"]
    bias = rest.get("decoder/projection/bias", np.zeros(len(output), np.float32))
    weights["decoder.plain_projection.weight"] = reorder_rows(output, orders["target"], sizes["target"])
    weights["decoder.plain_projection.bias"] = reorder_rows(bias, orders["target"], sizes["target"], PAD_LOGIT)
    return {name: as_float32(array) for name, array in weights.items()}


def default_position_table(width: int) -> Array:
    """sin((p + 1) 10000^(-i / (D/2 - 1))), then the cosines: the engine's default positions"""
    rate = np.exp(np.arange(width // 2) * (-np.log(10000.0) / (width // 2 - 1)))
    angles = np.outer(np.arange(1, DEFAULT_POSITIONS + 1), rate)
    return np.concatenate((np.sin(angles), np.cos(angles)), -1)


# ---------------------------------------------------------------------------------------------------- vocabularies


def read_vocabulary(folder: Path, side: str, size: int) -> list[str]:
    """The pieces of source or target; a missing <unk> is added, as in the engine."""
    for name in (f"{side}_vocabulary", "shared_vocabulary"):
        text_file, json_file = folder / f"{name}.txt", folder / f"{name}.json"
        if text_file.is_file():
            pieces = read_lines(text_file)
        elif json_file.is_file():
            pieces = [str(piece) for piece in read_json(json_file)]
        else:
            continue
        pieces = [*pieces, "<unk>"] if "<unk>" not in pieces and len(pieces) + 1 == size else pieces
        if len(pieces) != size or len(set(pieces)) != size:
            raise HeedfulError(
                f"{folder}: {name} has {len(set(pieces)):,} different pieces, but the model has {size:,}"
            )
        return pieces
    raise HeedfulError(f"{folder} has no vocabulary for its {side}: add {side}_vocabulary.json or .txt")


def make_tokenizer(folder: Path, side: str, pieces: Sequence[str], order: Sequence[int]) -> Tokenizer:
    """A SentencePiece tokenizer if there is a model file, else letters if every piece is one, else words."""
    ours = (folder / f"{side}.spm", folder / "heedful" / f"{side}.spm")  # the second: an export of heedful
    for file in (*ours, folder / "sentencepiece.model", folder.parent / "sentencepiece.model"):
        if file.is_file():
            return BorrowedTokenizer(read_file(file), pieces, order)
    rest = pieces[len(SPECIAL) :]
    if all(len(piece) == 1 for piece in rest):
        return TableTokenizer("letters", pieces)
    if any("\u2581" in piece for piece in rest):
        raise HeedfulError(f"the SentencePiece model is missing: copy it to {folder / 'sentencepiece.model'}")
    return TableTokenizer("words", [*SPECIAL, *("\u2581" + piece for piece in rest)])

"""A Transformer that CTranslate2 was given, read back from its model.bin without the engine.

    model.bin, source_vocabulary.*, target_vocabulary.* (or shared_vocabulary.*), sentencepiece.model or none

    binary_version u32 | name | revision u32 | count u32 | count x (name, rank u8, dims u32.., type u8, bytes u32, data)
    | count of aliases u32 | (alias, name)..            a name is u16 bytes long and ends with a zero

What was rounded to 8 or 16 bits stays as coarse as it is. Where no table of positions is stored, the engine counts
positions from 1 and has width / 2 - 1 in the exponent's denominator; here that becomes a table like any other.
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
    NEVER,
    Array,
    Foreign,
    data_of,
    floats,
    json_of,
    lines_of,
    ordered,
    rows,
    started,
    tree_of,
)
from heedful.text.tokenizer import SPECIAL, BorrowedTokenizer, TableTokenizer, Tokenizer

TYPES = ("<f4", "i1", "<i2", "<i4", "<f2", "bfloat16")  # by their number in newer files
OLD_TYPES = {4: "<f4", 1: "i1", 2: "<i2"}  # by the bytes of a number in older ones
ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu"}
LARGEST_MODEL = 1 << 34  # bytes
SLOTS = 512  # positions of a model that stores none
SIDES = {"source": "encoder", "target": "decoder"}


def known(folder: Path) -> bool:
    """Whether this is such a folder."""
    return (folder / "model.bin").is_file()


def read(folder: Path) -> Foreign:
    """The model, its weights and its vocabularies."""
    arrays = variables(folder / "model.bin")
    about = tree_of(folder / "config.json") if (folder / "config.json").is_file() else {}
    unknown, end = str(about.get("unk_token", "<unk>")), str(about.get("eos_token", "</s>"))
    first = str(about.get("decoder_start_token", about.get("bos_token", "<s>")))
    if about.get("add_source_bos"):
        raise HeedfulError(f"{folder}: this model wants a start token before every source, which heedful does not put")
    zero = bool(arrays.pop("decoder/start_from_zero_embedding", np.array(0)))
    tokenizers, orders = dict[str, Tokenizer](), dict[str, list[int]]()
    start: int | None = None
    for side, part in SIDES.items():
        listed = vocabulary(folder, side, len(arrays[table_of(arrays, part)]))
        pad = next((one for one in ("<pad>", "<blank>") if one in listed and one != first), None)
        own = first if first in listed and first != end and not zero else None
        orders[side], pieces = ordered(listed, (pad, unknown, own, end), folder)
        tokenizers[side] = tokenizer(folder, side, pieces, orders[side])
        if side == "target" and not zero:
            if first not in listed:
                raise HeedfulError(f"{folder}: the decoder starts with {first}, which is not among its pieces")
            start = listed.index(first)
    sizes = {side: one.size for side, one in tokenizers.items()}
    model = described(arrays)
    return Foreign(
        kind="Transformer for CTranslate2",
        model=model,
        weights=renamed(arrays, orders, sizes, start),
        tokenizers=tokenizers,
        source_ends=bool(about.get("add_source_eos", False)),
    )


# ------------------------------------------------------------------------------------------------------- model.bin


def variables(path: Path) -> dict[str, Array]:
    """Every array of a model.bin by its name, rounded ones put back to scale."""
    if not path.is_file() or path.stat().st_size > LARGEST_MODEL:
        raise HeedfulError(f"{path} is not a file, or larger than {LARGEST_MODEL:,} bytes")
    data, at = path.read_bytes(), 0

    def take(form: str) -> Any:
        nonlocal at
        (value,) = struct.unpack_from(f"<{form}", data, at)
        at += struct.calcsize(f"<{form}")
        return value

    def word() -> str:
        nonlocal at
        length = take("H")
        text = data[at : at + length].rstrip(b"\0").decode()
        at += length
        return text

    try:
        version = take("I")
        if not 2 <= version <= 6:
            raise HeedfulError(f"{path} has format {version} of CTranslate2; heedful reads 2 to 6")
        name, _ = word(), take("I")
        if name not in ("TransformerBase", "TransformerBig", "TransformerSpec"):
            raise HeedfulError(f"{path} holds a {name[:50]!a}; heedful reads encoder-decoder Transformers")
        found: dict[str, Array] = {}
        for _ in range(take("I")):
            name = word()
            shape = [take("I") for _ in range(take("B"))]
            kind = TYPES[take("B")] if version >= 4 else OLD_TYPES[take("B")]
            width = 2 if kind == "bfloat16" else np.dtype(kind).itemsize
            length = take("I") if version >= 4 else take("I") * width
            found[name] = plain(data[at : at + length], kind).reshape(shape)
            at += length
        found = to_scale(found)
        for _ in range(take("I") if version >= 3 else 0):
            name = word()
            found[name] = found[word()]
    except (struct.error, ValueError, LookupError, TypeError) as error:
        raise HeedfulError(f"{path} is not a model of CTranslate2, or damaged ({str(error)[:100]!a})") from None
    if at != len(data) or not found:
        raise HeedfulError(f"{path} is damaged: it has {len(data):,} bytes, and what it lists ends at {at:,}")
    return found


def to_scale(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """What was rounded to whole numbers, divided by its scale: one for all, or one for each row."""
    scales = {name.removesuffix("_scale"): array for name, array in arrays.items() if name.endswith("_scale")}
    return {
        name: array / (scales[name][:, None] if scales[name].ndim else scales[name]) if name in scales else array
        for name, array in arrays.items()
        if not name.endswith("_scale")
    }


def plain(data: bytes, kind: str) -> Array:
    """Numbers of a type that NumPy may not know: bfloat16 is the upper half of a float32."""
    if kind == "bfloat16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(data, kind)


# --------------------------------------------------------------------------------------------------- what it means


def table_of(arrays: Mapping[str, Array], part: str) -> str:
    """The name of a side's embeddings."""
    for name in (f"{part}/embeddings/weight", f"{part}/embeddings_0/weight"):
        if name in arrays:
            return name
    raise HeedfulError(f"model.bin has no table of words for its {part}")


def layers_of(arrays: Mapping[str, Array], part: str) -> int:
    """How many layers a side has."""
    found = {int(number[1]) for name in arrays if (number := re.match(rf"{part}/layer_(\d+)/", name))}
    if found != set(range(len(found))) or not found:
        raise HeedfulError(f"model.bin has no layers for its {part}")
    return len(found)


def described(arrays: Mapping[str, Array]) -> config.ModelSettings:
    """Our words for their variables."""
    width = arrays[table_of(arrays, "decoder")].shape[1]
    scales = {int(arrays.get(f"{part}/scale_embeddings", np.array(1))) for part in SIDES.values()}
    if len(scales) > 1:
        raise HeedfulError("this model scales the embeddings of one side only, which heedful cannot build")

    def side(part: str) -> dict[str, Any]:
        activation = int(arrays.get(f"{part}/activation", np.array(0)))
        if activation not in ACTIVATIONS:
            raise HeedfulError(f"heedful has no activation like CTranslate2's number {activation}")
        return {
            "kind": "transformer",
            "layers": layers_of(arrays, part),
            "heads": int(arrays.get(f"{part}/num_heads", arrays.get("num_heads", np.array(8)))),
            "feedforward_size": arrays[f"{part}/layer_0/ffn/linear_0/weight"].shape[0],
            "norm": "pre" if f"{part}/layer_norm/gamma" in arrays else "post",
            "activation": ACTIVATIONS[activation],
        }

    stored = arrays.get("encoder/position_encodings/encodings")
    return config.ModelSettings.model_validate(
        {
            "width": width, "positions": "learned", "max_positions": SLOTS if stored is None else len(stored),
            "tie_embeddings": "none", "scale_embeddings": bool(scales.pop()), "output_bias": True,
            "encoder": side("encoder"), "decoder": side("decoder"),
        }
    )  # fmt: skip


def renamed(
    given: Mapping[str, Array], orders: Mapping[str, Sequence[int]], sizes: Mapping[str, int], start: int | None
) -> dict[str, Array]:
    """Our names, their numbers; what is left over belongs to a kind of model that heedful does not know."""
    found: dict[str, Array] = {}
    arrays = dict(given)

    def norm(ours: str, theirs: str) -> None:
        found[f"{ours}.weight"], found[f"{ours}.bias"] = arrays.pop(f"{theirs}/gamma"), arrays.pop(f"{theirs}/beta")

    def linear(ours: str, theirs: str) -> None:
        found[f"{ours}.weight"], found[f"{ours}.bias"] = arrays.pop(f"{theirs}/weight"), arrays.pop(f"{theirs}/bias")

    try:
        for side, part in SIDES.items():
            table = arrays.pop(table_of(arrays, part))
            found[f"{part}.embed.table.weight"] = rows(table, orders[side], sizes[side])
            stored = arrays.pop(f"{part}/position_encodings/encodings", None)
            found[f"{part}.embed.positions.table"] = counted_from_one(table.shape[1]) if stored is None else stored
            for number in range(layers_of(given, part)):
                here, there = f"{part}.layers.{number}", f"{part}/layer_{number}"
                norm(f"{here}.around_attention.norm", f"{there}/self_attention/layer_norm")
                linear(f"{here}.attention.project", f"{there}/self_attention/linear_0")
                linear(f"{here}.attention.out", f"{there}/self_attention/linear_1")
                norm(f"{here}.around_feed_forward.norm", f"{there}/ffn/layer_norm")
                linear(f"{here}.feed_forward.up", f"{there}/ffn/linear_0")
                linear(f"{here}.feed_forward.down", f"{there}/ffn/linear_1")
                if part == "decoder":
                    norm(f"{here}.around_cross.norm", f"{there}/attention/layer_norm")
                    for place, what in enumerate(("query", "memory", "out")):
                        linear(f"{here}.cross.{what}", f"{there}/attention/linear_{place}")
            if f"{part}/layer_norm/gamma" in arrays:
                norm(f"{part}.norm", f"{part}/layer_norm")
    except KeyError as error:
        raise HeedfulError(f"model.bin has no {str(error)[:100]}: heedful cannot build such a model") from None
    if odd := sorted(
        name for name, array in arrays.items() if array.ndim and not name.startswith("decoder/projection/")
    ):
        raise HeedfulError(
            f"model.bin has {odd[0]} and more that heedful cannot build: it is another kind of Transformer"
        )
    started(found["decoder.embed.table.weight"], orders["target"], start)
    output = arrays["decoder/projection/weight"]
    bias = arrays.get("decoder/projection/bias", np.zeros(len(output), np.float32))
    found["decoder.plain_projection.weight"] = rows(output, orders["target"], sizes["target"])
    found["decoder.plain_projection.bias"] = rows(bias, orders["target"], sizes["target"], NEVER)
    return {name: floats(array) for name, array in found.items()}


def counted_from_one(width: int) -> Array:
    """sin((p + 1) 10000^(-i / (D/2 - 1))), then the cosines: the engine's own positions"""
    rate = np.exp(np.arange(width // 2) * (-np.log(10000.0) / (width // 2 - 1)))
    angles = np.outer(np.arange(1, SLOTS + 1), rate)
    return np.concatenate((np.sin(angles), np.cos(angles)), -1)


# ---------------------------------------------------------------------------------------------------- vocabularies


def vocabulary(folder: Path, side: str, size: int) -> list[str]:
    """The pieces of a side; the engine adds an <unk> where the list has none."""
    for name in (f"{side}_vocabulary", "shared_vocabulary"):
        text, listed = folder / f"{name}.txt", folder / f"{name}.json"
        if text.is_file():
            pieces = lines_of(text)
        elif listed.is_file():
            pieces = [str(one) for one in json_of(listed)]
        else:
            continue
        pieces = [*pieces, "<unk>"] if "<unk>" not in pieces and len(pieces) + 1 == size else pieces
        if len(pieces) != size or len(set(pieces)) != size:
            raise HeedfulError(f"{folder}: {len(set(pieces)):,} different pieces in {name}, {size:,} in the model")
        return pieces
    raise HeedfulError(f"{folder} has no list of pieces for its {side}")


def tokenizer(folder: Path, side: str, pieces: Sequence[str], order: Sequence[int]) -> Tokenizer:
    """A SentencePiece model beside it; or letters, where every piece is one; or words."""
    near = (folder / f"{side}.spm", folder / "heedful" / f"{side}.spm")  # the second: an export of our own
    for place in (*near, folder / "sentencepiece.model", folder.parent / "sentencepiece.model"):
        if place.is_file():
            return BorrowedTokenizer(data_of(place), pieces, order)
    rest = pieces[len(SPECIAL) :]
    if all(len(piece) == 1 for piece in rest):
        return TableTokenizer("letters", pieces)
    if any("\u2581" in piece for piece in rest):
        raise HeedfulError(
            f"put the SentencePiece model that made its pieces beside it: {folder / 'sentencepiece.model'}"
        )
    return TableTokenizer("words", [*SPECIAL, *("\u2581" + piece for piece in rest)])

"""A model inside of an inspection page: its settings, its pieces and its weights, for the engine in viewer/engine.

    live = make_live_model(translator, "int8")
    render_page(trace, live)

Weights are int8 with a scale per row (a vector stays float32), float16 or float32. `unpack_weights` returns the numbers
that the page computes with, so that PyTorch can be compared with the page.
"""

import struct
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.bundle import read_float_weights
from heedful.bundle.format import TOKEN_IDS, Bundle, tied_names
from heedful.errors import HeedfulError, did_you_mean
from heedful.inputs.kinds import make_input
from heedful.text.tokenizer import SPECIAL, UNK, SubwordTokenizer, TableTokenizer, Tokenizer, is_tag
from heedful.translation.translator import Translator

Array = NDArray[Any]
ENCODERS, DECODERS = ("transformer", "recurrent", "bottleneck"), ("transformer", "recurrent")  # of the engine
PIECE_KINDS = {2: "unknown", 3: "control", 4: "whole", 6: "byte"}  # by SentencePiece's type; 1 is plain text
UNUSED = 5
SEGMENTATIONS = {1: "unigram", 2: "bpe"}  # by SentencePiece's model type


@dataclass(frozen=True)
class LiveModel:
    """What a page needs to run a model."""

    description: dict[str, Any]
    weights: bytes

    def with_name(self, name: str) -> "LiveModel":
        """The same model with the name that its answers have."""
        return replace(self, description=self.description | {"name": name})


def make_live_model(translator: Any, quantization: str = "int8") -> LiveModel:
    """The model of a translator, for a page; HeedfulError with the reason if the page's engine cannot run it."""
    if quantization not in PACKERS:
        raise HeedfulError(f"a page cannot hold weights as `{quantization}`" + did_you_mean(quantization, PACKERS))
    if not isinstance(translator, Translator):
        raise not_live("it was not built from heedful's settings")
    bundle = translator.bundle
    check_can_run(bundle)
    ties = tied_names(bundle.model)
    weights = {name: array for name, array in read_float_weights(bundle).items() if name not in ties}
    tensors, data = pack_weights(weights, quantization)
    source, target = (describe_tokenizer(bundle.tokenizer(side)) for side in ("source", "target"))
    generation = bundle.generation
    description = {
        "settings": bundle.model.model_dump(mode="json"),
        "tensors": tensors,
        "ties": ties,
        "tokens": TOKEN_IDS,
        "tokenizers": {"source": None if source == target else source, "target": target},
        "source_end": translator.source_end,
        "limits": {
            "max_length": generation.max_length,
            "max_tokens": translator.max_tokens,
            "max_source": translator.max_source_tokens,
        },
        "generation": generation.model_dump(include={"beam", "length_rule", "length_penalty"}),
        "suppress_words": generation.suppress_words,
        "languages": (bundle.description.source, bundle.description.target),
        "alignment": bundle.statistics.get("alignment") or None,
        "about": f"{describe_model(translator)}, {quantization}",
    }
    return LiveModel(description, data)


def describe_model(translator: Translator) -> str:
    model, count = translator.bundle.model, translator.bundle.description.parameters
    parts = [f"{part.kind} {getattr(part, 'layers', '')}".strip() for part in (model.encoder, model.decoder)]
    return f"{' + '.join(parts)}, width {model.width}, {count:,} weights"


def not_live(reason: str) -> HeedfulError:
    return HeedfulError(f"the page cannot run this model: {reason}. Remove --live: the page then shows recordings")


def check_can_run(bundle: Bundle) -> None:
    """Raise HeedfulError with the reason if the page's engine cannot run this model."""
    description, model = bundle.description, bundle.model
    if description.input.kind != "text":
        nouns = make_input(description.input).nouns
        raise not_live(f"its sources are {nouns.sources}" if nouns else "it has no source")
    if model.encoder.kind not in ENCODERS or model.decoder.kind not in DECODERS:
        part = model.encoder.kind if model.encoder.kind not in ENCODERS else model.decoder.kind
        raise not_live(f"its engine has no {part}")


# ------------------------------------------------------------------------------------------------------------- weights


def pack_int8(array: Array) -> bytes:
    """The scale of each row, then the rows: W[i, j] = scale[i] * q[i, j]"""
    rows = array.reshape(len(array), -1)
    scales = (np.abs(rows).max(1) / 127).astype("<f4")
    quantized = np.rint(rows / np.where(scales > 0, scales, 1.0)[:, None])
    packed: bytes = scales.tobytes() + quantized.clip(-127, 127).astype("i1").tobytes()
    return packed


def unpack_int8(data: bytes, shape: tuple[int, ...]) -> Array:
    scales = np.frombuffer(data[: 4 * shape[0]], "<f4")
    rows: Array = scales[:, None] * np.frombuffer(data[4 * shape[0] :], "i1").reshape(shape[0], -1)
    return rows.reshape(shape)


class Packer(NamedTuple):
    """How the numbers of a tensor become bytes, and bytes numbers."""

    pack: Callable[[Array], bytes]
    unpack: Callable[[bytes, tuple[int, ...]], Array]


PACKERS = {
    "int8": Packer(pack_int8, unpack_int8),
    "float16": Packer(
        lambda array: array.astype("<f2").tobytes(), lambda data, shape: np.frombuffer(data, "<f2").reshape(shape)
    ),
    "float32": Packer(
        lambda array: array.astype("<f4").tobytes(), lambda data, shape: np.frombuffer(data, "<f4").reshape(shape)
    ),
}


def tensor_kind(array: Array, quantization: str) -> str:
    """Vectors, such as biases, stay float32: they are few, and matter much."""
    return quantization if array.ndim > 1 else "float32"


def pack_weights(weights: Mapping[str, Array], quantization: str) -> tuple[list[dict[str, Any]], bytes]:
    """Name, shape and kind of each tensor, and the bytes of all, in this order."""
    kinds = {name: tensor_kind(array, quantization) for name, array in weights.items()}
    tensors = [{"name": name, "shape": array.shape, "kind": kinds[name]} for name, array in weights.items()]
    return tensors, b"".join(PACKERS[kinds[name]].pack(array) for name, array in weights.items())


def unpack_weights(weights: Mapping[str, Array], quantization: str) -> dict[str, Array]:
    """The same weights as the page computes with them, in float32."""
    packers = {name: PACKERS[tensor_kind(array, quantization)] for name, array in weights.items()}
    return {
        name: packers[name].unpack(packers[name].pack(array), array.shape).astype(np.float32)
        for name, array in weights.items()
    }


# ---------------------------------------------------------------------------------------------------------- tokenizers


def describe_tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """The pieces of a tokenizer, with their scores, and the kinds of those that are not text."""
    if isinstance(tokenizer, SubwordTokenizer):
        return describe_sentencepiece(tokenizer.model)
    if isinstance(tokenizer, TableTokenizer):
        special = {UNK: "unknown"} | {
            number: "control"
            for number, piece in enumerate(tokenizer.vocabulary)
            if number != UNK and (piece in SPECIAL or is_tag(piece))
        }
        return {"kind": tokenizer.kind, "pieces": tokenizer.vocabulary, "special": special}
    raise not_live("its tokenizer is that of an imported model")


def describe_sentencepiece(model: bytes) -> dict[str, Any]:
    """The same for a SentencePiece model, without its library: its Python interface does not tell all kinds."""
    pieces: list[str] = []
    scores: list[float] = []
    special: dict[int, str] = {}
    specs: dict[int, dict[int, Any]] = {2: {}, 3: {}, 5: {}}  # trainer, normalizer, denormalizer
    for number, value in protobuf_fields(model):
        if number == 1:
            fields = dict(protobuf_fields(value))
            kind = fields.get(3, 1)
            if kind == UNUSED:
                raise not_live("its tokenizer has unused pieces")
            if kind in PIECE_KINDS:
                special[len(pieces)] = PIECE_KINDS[kind]
            pieces.append(fields[1].decode())
            scores.append(float(f"{struct.unpack('<f', fields.get(2, bytes(4)))[0]:.9g}"))
        elif number in specs:
            specs[number].update(protobuf_fields(value))
    trainer, normalizer, denormalizer = specs.values()
    segmentation = SEGMENTATIONS.get(trainer.get(3, 1))
    plain_spaces = normalizer.get(3, 1) and not normalizer.get(4, 1) and normalizer.get(5, 1) and not trainer.get(24, 0)
    if segmentation is None or not plain_spaces or normalizer.get(2) or denormalizer.get(2):
        raise not_live("its tokenizer normalizes text or splits it in a way of its own")
    return {"kind": segmentation, "pieces": pieces, "scores": scores, "special": special}


def protobuf_fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field: an int, 4 or 8 bytes of a number, or the bytes of a string or a message."""
    at = 0

    def read_integer() -> int:
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = read_integer()
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            yield number, read_integer()
            continue
        size = {1: 8, 5: 4}[wire_type] if wire_type != 2 else read_integer()
        yield number, message[at : at + size]
        at += size


def encode_weights(live: LiveModel) -> str:
    return b64encode(live.weights).decode()

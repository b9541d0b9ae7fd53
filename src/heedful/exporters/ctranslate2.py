"""A Transformer as CTranslate2 reads it, straight from the weights of a model directory: no PyTorch.

CTranslate2 shows one map of cross-attention: the mean of the first heads of one layer. So the head that training found
to align words best is put first (heads may stand in any order, as long as all four matrices agree) and shown alone.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful import config
from heedful.alignment import AlignmentMethod
from heedful.bundle import Bundle, read_float_weights
from heedful.data.store import SIDES
from heedful.errors import HeedfulError, require
from heedful.exporters.transformer import sinusoids, usual
from heedful.text.tokenizer import BOS, EOS, SPECIAL, UNK

Array = NDArray[Any]
ROUNDINGS = ("float32", "int8", "int8_float32", "bfloat16", "float16")


def write(bundle: Bundle, folder: Path, rounding: str = "float32") -> AlignmentMethod | None:
    """Write model.bin, config.json and the vocabularies; gives how to read links of words off what it will show."""
    require("ctranslate2", extra="export", whose="heedful export --to ctranslate2")
    told = bundle.statistics.get("alignment")
    reading = AlignmentMethod(**told) if told else None
    spec = filled(bundle.model, read_float_weights(bundle), reading)
    for side in SIDES:
        tokenizer = bundle.tokenizer(side)
        words = tokenizer.pieces(range(tokenizer.size))
        (spec.register_source_vocabulary if side == "source" else spec.register_target_vocabulary)(words)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (SPECIAL[one] for one in (UNK, BOS, EOS))
    spec.config.decoder_start_token = SPECIAL[BOS]
    spec.config.add_source_bos = False
    spec.config.add_source_eos = bundle.description.source_ends  # so that others need only spell the pieces
    spec.validate()
    spec.optimize(quantization=None if rounding == "float32" else rounding)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))
    return AlignmentMethod(reading.step, 0, 0) if reading else None


def filled(model: config.ModelSettings, weights: Mapping[str, Array], reading: AlignmentMethod | None = None) -> Any:
    """Its specification with our numbers in it, showing the head of `reading`."""
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    encoder, decoder = usual(model, "CTranslate2")
    if model.positions is None:
        raise HeedfulError(
            "CTranslate2 gives every Transformer positions, and this one has none: heedful export --to onnx"
        )
    if encoder.heads != decoder.heads:
        raise HeedfulError("CTranslate2 has one number of heads for encoder and decoder: heedful export --to onnx")
    kinds = {"relu": Activation.RELU, "gelu": Activation.GELU, "silu": Activation.SWISH}
    layer, head = (reading.layer, reading.head) if reading else (None, None)
    if layer is not None and head is not None:
        weights = head_first(weights, f"decoder.layers.{layer}.cross", decoder.heads, head)
    spec = TransformerSpec.from_config(
        (encoder.layers, decoder.layers),
        encoder.heads,
        pre_norm=encoder.norm == "pre",
        activation=kinds[encoder.activation],
        alignment_layer=-1 if layer is None else layer,
        alignment_heads=decoder.heads if head is None else 1,
    )

    def norm(into: Any, name: str) -> None:
        into.gamma, into.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def linear(into: Any, name: str) -> None:
        into.weight = weights[f"{name}.weight"]
        if f"{name}.bias" in weights:
            into.bias = weights[f"{name}.bias"]

    for side, name, layers in ((spec.encoder, "encoder", encoder.layers), (spec.decoder, "decoder", decoder.layers)):
        table = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        table.weight, side.scale_embeddings = weights[f"{name}.embed.table.weight"], model.scale_embeddings
        side.position_encodings.encodings = positions(model, weights, name)
        if encoder.norm == "pre":
            norm(side.layer_norm, f"{name}.norm")
        for number in range(layers):
            into, at = side.layer[number], f"{name}.layers.{number}"
            norm(into.self_attention.layer_norm, f"{at}.around_attention.norm")
            linear(into.self_attention.linear[0], f"{at}.attention.project")
            linear(into.self_attention.linear[1], f"{at}.attention.out")
            norm(into.ffn.layer_norm, f"{at}.around_feed_forward.norm")
            linear(into.ffn.linear_0, f"{at}.feed_forward.up")
            linear(into.ffn.linear_1, f"{at}.feed_forward.down")
            if name == "decoder":
                norm(into.attention.layer_norm, f"{at}.around_cross.norm")
                for place, what in enumerate(("query", "memory", "out")):
                    linear(into.attention.linear[place], f"{at}.cross.{what}")
    linear(spec.decoder.projection, "decoder.plain_projection")
    return spec


def head_first(weights: Mapping[str, Array], name: str, heads: int, head: int) -> dict[str, Array]:
    """The same cross-attention with one of its heads in the first place."""
    order = [head, *(one for one in range(heads) if one != head)]

    def moved(array: Array, times: int = 1) -> Array:
        return array.reshape(times, heads, -1, *array.shape[1:])[:, order].reshape(array.shape)

    changed = {
        f"{name}.{part}.{what}": moved(weights[f"{name}.{part}.{what}"], times)
        for part, times in (("query", 1), ("memory", 2))
        for what in ("weight", "bias")
        if f"{name}.{part}.{what}" in weights
    }
    out = weights[f"{name}.out.weight"]
    return {**weights, **changed, f"{name}.out.weight": np.ascontiguousarray(moved(out.T).T)}


def positions(model: config.ModelSettings, weights: Mapping[str, Array], side: str) -> Array:
    """The table [slots, width]."""
    if (name := f"{side}.embed.positions.table") in weights:
        return weights[name]
    halves = sinusoids(model.max_positions, model.width)
    if model.positions == "sinusoidal_halves":
        return halves
    return np.stack(np.split(halves, 2, -1), -1).reshape(halves.shape)

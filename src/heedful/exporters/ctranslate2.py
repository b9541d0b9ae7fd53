"""Write a Transformer for CTranslate2 from the weights of a model directory, without PyTorch.

CTranslate2 returns one cross-attention map: the mean of the first heads of one layer. So the head that aligns words
best becomes the first head (any order works if all four matrices agree), and only its map is returned.
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
from heedful.exporters.transformer import require_standard_transformer, sinusoidal_positions
from heedful.text.tokenizer import BOS, EOS, SPECIAL, UNK

Array = NDArray[Any]
QUANTIZATIONS = ("float32", "int8", "int8_float32", "bfloat16", "float16")


def write(bundle: Bundle, folder: Path, quantization: str = "float32") -> AlignmentMethod | None:
    """Write model.bin, config.json and the vocabularies; return how to align words with the engine's map."""
    require("ctranslate2", extra="export", whose="heedful export --to ctranslate2")
    alignment = bundle.statistics.get("alignment")
    reading = AlignmentMethod(**alignment) if alignment else None
    spec = build_spec(bundle.model, read_float_weights(bundle), reading)
    for side in SIDES:
        tokenizer = bundle.tokenizer(side)
        pieces = tokenizer.pieces(range(tokenizer.size))
        (spec.register_source_vocabulary if side == "source" else spec.register_target_vocabulary)(pieces)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = (SPECIAL[token] for token in (UNK, BOS, EOS))
    spec.config.decoder_start_token = SPECIAL[BOS]
    spec.config.add_source_bos = False
    spec.config.add_source_eos = bundle.description.source_ends  # the engine adds the end token
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))
    return AlignmentMethod(reading.step, 0, 0) if reading else None


def build_spec(
    model: config.ModelSettings, weights: Mapping[str, Array], reading: AlignmentMethod | None = None
) -> Any:
    """A `TransformerSpec` with the weights of a model that returns the map of the head of `reading`."""
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    encoder, decoder = require_standard_transformer(model, "CTranslate2")
    if model.positions is None:
        raise HeedfulError(
            "CTranslate2 requires positions, but this Transformer has none: use heedful export --to onnx"
        )
    if encoder.heads != decoder.heads:
        raise HeedfulError(
            "CTranslate2 requires equal numbers of heads in encoder and decoder: use heedful export --to onnx"
        )
    activations = {"relu": Activation.RELU, "gelu": Activation.GELU, "silu": Activation.SWISH}
    layer, head = (reading.layer, reading.head) if reading else (None, None)
    if layer is not None and head is not None:
        weights = move_head_first(weights, f"decoder.layers.{layer}.cross", decoder.heads, head)
    spec = TransformerSpec.from_config(
        (encoder.layers, decoder.layers),
        encoder.heads,
        pre_norm=encoder.norm == "pre",
        activation=activations[encoder.activation],
        alignment_layer=-1 if layer is None else layer,
        alignment_heads=decoder.heads if head is None else 1,
    )

    def set_norm(spec: Any, name: str) -> None:
        spec.gamma, spec.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def set_linear(spec: Any, name: str) -> None:
        spec.weight = weights[f"{name}.weight"]
        if f"{name}.bias" in weights:
            spec.bias = weights[f"{name}.bias"]

    for side, name, layers in ((spec.encoder, "encoder", encoder.layers), (spec.decoder, "decoder", decoder.layers)):
        table = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        table.weight, side.scale_embeddings = weights[f"{name}.embed.table.weight"], model.scale_embeddings
        side.position_encodings.encodings = position_table(model, weights, name)
        if encoder.norm == "pre":
            set_norm(side.layer_norm, f"{name}.norm")
        for number in range(layers):
            layer_spec, prefix = side.layer[number], f"{name}.layers.{number}"
            set_norm(layer_spec.self_attention.layer_norm, f"{prefix}.around_attention.norm")
            set_linear(layer_spec.self_attention.linear[0], f"{prefix}.attention.project")
            set_linear(layer_spec.self_attention.linear[1], f"{prefix}.attention.out")
            set_norm(layer_spec.ffn.layer_norm, f"{prefix}.around_feed_forward.norm")
            set_linear(layer_spec.ffn.linear_0, f"{prefix}.feed_forward.up")
            set_linear(layer_spec.ffn.linear_1, f"{prefix}.feed_forward.down")
            if name == "decoder":
                set_norm(layer_spec.attention.layer_norm, f"{prefix}.around_cross.norm")
                for index, part in enumerate(("query", "memory", "out")):
                    set_linear(layer_spec.attention.linear[index], f"{prefix}.cross.{part}")
    set_linear(spec.decoder.projection, "decoder.plain_projection")
    return spec


def move_head_first(weights: Mapping[str, Array], name: str, heads: int, head: int) -> dict[str, Array]:
    """The weights with `head` as the first head of the cross-attention `name`."""
    order = [head, *(other for other in range(heads) if other != head)]

    def reorder(array: Array, blocks: int = 1) -> Array:
        return array.reshape(blocks, heads, -1, *array.shape[1:])[:, order].reshape(array.shape)

    changed = {
        f"{name}.{part}.{kind}": reorder(weights[f"{name}.{part}.{kind}"], blocks)
        for part, blocks in (("query", 1), ("memory", 2))
        for kind in ("weight", "bias")
        if f"{name}.{part}.{kind}" in weights
    }
    out = weights[f"{name}.out.weight"]
    return {**weights, **changed, f"{name}.out.weight": np.ascontiguousarray(reorder(out.T).T)}


def position_table(model: config.ModelSettings, weights: Mapping[str, Array], side: str) -> Array:
    """The table of positions of encoder or decoder, [positions, width]."""
    if (name := f"{side}.embed.positions.table") in weights:
        return weights[name]
    halves = sinusoidal_positions(model.max_positions, model.width)
    if model.positions == "sinusoidal_halves":
        return halves
    return np.stack(np.split(halves, 2, -1), -1).reshape(halves.shape)

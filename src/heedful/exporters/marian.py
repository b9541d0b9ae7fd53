"""Write a Transformer for Hugging Face's Marian classes; `importers/marian.py` reads it back.

    model.safetensors, config.json, generation_config.json      MarianMTModel.from_pretrained(folder)
    source.spm, target.spm, vocab.json, tokenizer_config.json   MarianTokenizer.from_pretrained(folder)

Marian is post-norm. A pre-norm model is written as Pegasus, which has the same names and a final LayerNorm. Their
positions have all sines first and then all cosines; our `sinusoidal` positions interleave them. The columns of the
residual stream may be in any order if all matrices that read or write it agree, so they are reordered to match.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from heedful import config
from heedful.bundle import CARD_FILE, Bundle, read_float_weights
from heedful.data.store import SIDES
from heedful.errors import HeedfulError
from heedful.exporters.transformer import require_standard_transformer, sinusoidal_positions
from heedful.text.tokenizer import (
    BOS,
    EOS,
    PAD,
    SPECIAL,
    UNK,
    BorrowedTokenizer,
    SubwordTokenizer,
    Tokenizer,
    own_ids_of_foreign,
)

Array = NDArray[Any]
QUANTIZATIONS = ("float32",)
CLASSES = {"post": ("marian", "MarianMTModel"), "pre": ("pegasus", "PegasusForConditionalGeneration")}
PREFIX, OUTPUT_BIAS = "model.", "final_logits_bias"
Axis = Literal["reads", "writes", "neither"]  # whether a weight reads or writes the residual stream, or neither


@dataclass(frozen=True, slots=True)
class WeightName:
    """A weight's names; `ours` is the concatenation of `theirs`."""

    ours: str
    theirs: tuple[str, ...]
    axis: Axis


def weight_names(model: config.ModelSettings) -> Iterator[WeightName]:
    """Every weight of a model except its embeddings and output layer."""
    for side in ("encoder", "decoder"):
        settings: config.TransformerSettings = getattr(model, side)
        for number in range(settings.layers):
            here, there = f"{side}.layers.{number}.", f"{PREFIX}{side}.layers.{number}."
            yield from linear_names(
                here + "attention.project", [f"{there}self_attn.{part}_proj" for part in "qkv"], "reads"
            )
            yield from linear_names(here + "attention.out", [there + "self_attn.out_proj"], "writes")
            yield from norm_names(here + "around_attention.norm", there + "self_attn_layer_norm")
            if side == "decoder":
                yield from linear_names(here + "cross.query", [there + "encoder_attn.q_proj"], "reads")
                yield from linear_names(
                    here + "cross.memory", [f"{there}encoder_attn.{part}_proj" for part in "kv"], "reads"
                )
                yield from linear_names(here + "cross.out", [there + "encoder_attn.out_proj"], "writes")
                yield from norm_names(here + "around_cross.norm", there + "encoder_attn_layer_norm")
            yield from linear_names(here + "feed_forward.up", [there + "fc1"], "reads")
            yield from linear_names(here + "feed_forward.down", [there + "fc2"], "writes")
            yield from norm_names(here + "around_feed_forward.norm", there + "final_layer_norm")
        if settings.norm == "pre":
            yield from norm_names(f"{side}.norm", f"{PREFIX}{side}.layer_norm")


def linear_names(ours: str, theirs: Sequence[str], axis: Axis) -> Iterator[WeightName]:
    """A matrix and its bias; the bias belongs to the residual stream only if the matrix writes to it."""
    yield WeightName(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), axis)
    yield WeightName(
        f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), "writes" if axis == "writes" else "neither"
    )


def norm_names(ours: str, theirs: str) -> Iterator[WeightName]:
    for part in ("weight", "bias"):
        yield WeightName(f"{ours}.{part}", (f"{theirs}.{part}",), "writes")


def column_order(model: config.ModelSettings) -> Array:
    """The columns of the residual stream in the order of Marian's positions: sines first."""
    columns = np.arange(model.width)
    return np.concatenate((columns[::2], columns[1::2])) if model.positions == "sinusoidal" else columns


def reorder_columns(array: Array, axis: Axis, columns: Array) -> Array:
    """A weight with the columns of the residual stream in another order."""
    if axis == "reads":
        return array[..., columns]
    return array[columns] if axis == "writes" else array


# --------------------------------------------------------------------------------------------------------- writing


def write(bundle: Bundle, folder: Path, quantization: str = "float32") -> None:  # noqa: ARG001  # the signature of all formats
    """Write the files for `from_pretrained`: model, tokenizer, generation settings and model card."""
    model = bundle.model
    check_supported(model)
    tokenizers = [bundle.tokenizer(side) for side in SIDES]
    folder.mkdir(parents=True, exist_ok=True)
    orders = (np.array(own_ids_of_foreign(tokenizer)) for tokenizer in tokenizers)
    save_file(
        convert_weights(model, read_float_weights(bundle), *orders), folder / "model.safetensors", {"format": "pt"}
    )
    # save_file makes it private to the owner
    (folder / "model.safetensors").chmod((bundle.folder / CARD_FILE).stat().st_mode)
    write_json(folder / "config.json", make_config(bundle, *tokenizers))
    write_json(folder / "generation_config.json", make_generation_config(bundle, tokenizers[1]))
    write_tokenizers(bundle, folder, *tokenizers)
    (folder / CARD_FILE).write_bytes((bundle.folder / CARD_FILE).read_bytes())


def check_supported(model: config.ModelSettings) -> None:
    """Raise an error if Hugging Face's classes do not support the model."""
    encoder, _ = require_standard_transformer(model, "Hugging Face")
    if model.positions not in ("sinusoidal", "sinusoidal_halves"):
        raise HeedfulError(
            "Hugging Face's Marian and Pegasus support sinusoidal positions only: use heedful export --to onnx"
        )
    if encoder.norm == "pre" and model.tie_embeddings != "all":
        raise HeedfulError(
            "Hugging Face requires that a pre-norm model has only one embedding table: use heedful export --to "
            'ctranslate2, or train a model with tie_embeddings = "all"'
        )


def convert_weights(
    model: config.ModelSettings, weights: Mapping[str, Array], source: Array, target: Array
) -> dict[str, Array]:
    """Weights by their names in Marian; `source` and `target` list our token ids in the order of theirs."""
    columns, converted = column_order(model), dict[str, Array]()
    for name in weight_names(model):
        whole = reorder_columns(weights[name.ours], name.axis, columns)
        for part, array in zip(name.theirs, np.split(whole, len(name.theirs)), strict=True):
            converted[part] = array
    tables = {"encoder": source, "decoder": target}
    if model.tie_embeddings == "all":
        converted[PREFIX + "shared.weight"] = weights["decoder.embed.table.weight"][target][:, columns]
    else:
        for side, order in tables.items():
            converted[f"{PREFIX}{side}.embed_tokens.weight"] = weights[f"{side}.embed.table.weight"][order][:, columns]
    if model.tie_embeddings == "none":
        converted["lm_head.weight"] = weights["decoder.plain_projection.weight"][target][:, columns]
    if model.encoder.kind == "transformer" and model.encoder.norm == "pre":  # Pegasus stores its positions
        for side in tables:
            converted[f"{PREFIX}{side}.embed_positions.weight"] = sinusoidal_positions(model.max_positions, model.width)
    bias = weights.get("decoder.plain_projection.bias")
    converted[OUTPUT_BIAS] = np.zeros((1, len(target)), np.float32) if bias is None else bias[target][None]
    return {name: np.ascontiguousarray(array) for name, array in converted.items()}


def special_token_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Their ids of the special tokens; an imported vocabulary uses its pad as the start token."""
    ids = {ours: theirs for theirs, ours in enumerate(own_ids_of_foreign(tokenizer))}
    if BOS not in ids:
        raise HeedfulError(
            "the original of this imported model uses one token for start and end, so its vocabulary has no start "
            "token: use heedful export --to ctranslate2"
        )
    return {"bos": ids[BOS], "eos": ids[EOS], "pad": ids.get(PAD, ids[BOS])}


def make_config(bundle: Bundle, source: Tokenizer, target: Tokenizer) -> dict[str, Any]:
    model, special = bundle.model, special_token_ids(target)
    encoder, decoder = require_standard_transformer(model, "Hugging Face")
    kind, architecture = CLASSES[encoder.norm]
    return {
        "architectures": [architecture], "model_type": kind, "is_encoder_decoder": True, "dtype": "float32",
        "d_model": model.width, "vocab_size": len(own_ids_of_foreign(source)),
        "max_position_embeddings": model.max_positions,
        "encoder_layers": encoder.layers, "encoder_attention_heads": encoder.heads,
        "encoder_ffn_dim": encoder.feedforward_size,
        "decoder_layers": decoder.layers, "decoder_attention_heads": decoder.heads,
        "decoder_ffn_dim": decoder.feedforward_size,
        "activation_function": encoder.activation, "scale_embedding": model.scale_embeddings,
        "dropout": decoder.dropout, "attention_dropout": 0.0,
        "activation_dropout": decoder.dropout if decoder.feedforward_dropout is None else decoder.feedforward_dropout,
        "decoder_vocab_size": len(own_ids_of_foreign(target)),
        "share_encoder_decoder_embeddings": model.tie_embeddings == "all",
        "tie_word_embeddings": model.tie_embeddings != "none",
        "bos_token_id": special["bos"], "eos_token_id": special["eos"], "pad_token_id": special["pad"],
        "decoder_start_token_id": special["bos"], "forced_eos_token_id": None,
    }  # fmt: skip


def make_generation_config(bundle: Bundle, target: Tokenizer) -> dict[str, Any]:
    """generation_config.json: the same search, as far as Hugging Face supports it."""
    generation, special = bundle.generation, special_token_ids(target)
    if generation.length_rule not in ("power", "none"):
        raise HeedfulError(
            f"Hugging Face does not support the length rule `{generation.length_rule}`: use heedful export --to onnx"
        )
    return {
        "num_beams": generation.beam,
        "length_penalty": generation.length_penalty if generation.length_rule == "power" else 0.0,
        "max_new_tokens": min(generation.max_length, bundle.model.max_positions), "early_stopping": False,
        "decoder_start_token_id": special["bos"], "bos_token_id": special["bos"], "eos_token_id": special["eos"],
        "pad_token_id": special["pad"],
        "bad_words_ids": [[token] for token in sorted({special["bos"], special["pad"]})],
        "forced_eos_token_id": None,
    }  # fmt: skip


def write_tokenizers(bundle: Bundle, folder: Path, *tokenizers: Tokenizer) -> None:
    """Write the files of MarianTokenizer: two SentencePiece models and the id of every piece."""
    vocabularies = []
    for side, tokenizer in zip(SIDES, tokenizers, strict=True):
        if not isinstance(tokenizer, SubwordTokenizer | BorrowedTokenizer):
            raise HeedfulError(
                "Hugging Face's MarianTokenizer needs SentencePiece models, but this model reads characters or words: "
                'train with tokenizer.kind = "bpe" or "unigram"'
            )
        (folder / f"{side}.spm").write_bytes(tokenizer.model)
        pieces = tokenizer.pieces(own_ids_of_foreign(tokenizer))
        if isinstance(tokenizer, BorrowedTokenizer) and tokenizer.order:
            pieces[special_token_ids(tokenizer)["pad"]] = SPECIAL[PAD]  # they use one token for both
        vocabularies.append({piece: number for number, piece in enumerate(pieces)})
    separate = bundle.model.tie_embeddings != "all"
    write_json(folder / "vocab.json", vocabularies[0])
    if separate:
        write_json(folder / "target_vocab.json", vocabularies[1])
    languages = bundle.description
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "MarianTokenizer", "source_lang": languages.source, "target_lang": languages.target,
            "unk_token": SPECIAL[UNK], "eos_token": SPECIAL[EOS], "pad_token": SPECIAL[PAD],
            "separate_vocabs": separate, "model_max_length": min(512, bundle.model.max_positions),
        },
    )  # fmt: skip


def write_json(path: Path, tree: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(tree, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

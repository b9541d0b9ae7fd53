"""A Transformer as Hugging Face's Marian classes read it; also the way back (`imports/marian.py`).

    model.safetensors, config.json, generation_config.json      MarianMTModel.from_pretrained(folder)
    source.spm, target.spm, vocab.json, tokenizer_config.json   MarianTokenizer.from_pretrained(folder)

Marian is post-norm. A pre-norm model goes into the layout of Pegasus, which has the same names and a last LayerNorm.
Both have sines first and cosines after; ours interleaves them, unless told otherwise. The columns of the residual
stream can be put in any order as long as every matrix that reads or writes it agrees, so they are put in theirs.
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
from heedful.exporters.transformer import sinusoids, usual
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
ROUNDINGS = ("float32",)
CLASSES = {"post": ("marian", "MarianMTModel"), "pre": ("pegasus", "PegasusForConditionalGeneration")}
INSIDE, OUTPUT_BIAS = "model.", "final_logits_bias"
Axis = Literal["reads", "writes", "is"]  # what a weight does with the residual stream


@dataclass(frozen=True, slots=True)
class Name:
    """A weight here and there: their parts, one below the other, are ours."""

    ours: str
    theirs: tuple[str, ...]
    axis: Axis


def names(model: config.ModelSettings) -> Iterator[Name]:
    """Every weight of a model but its tables."""
    for side in ("encoder", "decoder"):
        part: config.TransformerSettings = getattr(model, side)
        for number in range(part.layers):
            here, there = f"{side}.layers.{number}.", f"{INSIDE}{side}.layers.{number}."
            yield from linear(here + "attention.project", [f"{there}self_attn.{one}_proj" for one in "qkv"], "reads")
            yield from linear(here + "attention.out", [there + "self_attn.out_proj"], "writes")
            yield from norm(here + "around_attention.norm", there + "self_attn_layer_norm")
            if side == "decoder":
                yield from linear(here + "cross.query", [there + "encoder_attn.q_proj"], "reads")
                yield from linear(here + "cross.memory", [f"{there}encoder_attn.{one}_proj" for one in "kv"], "reads")
                yield from linear(here + "cross.out", [there + "encoder_attn.out_proj"], "writes")
                yield from norm(here + "around_cross.norm", there + "encoder_attn_layer_norm")
            yield from linear(here + "feed_forward.up", [there + "fc1"], "reads")
            yield from linear(here + "feed_forward.down", [there + "fc2"], "writes")
            yield from norm(here + "around_feed_forward.norm", there + "final_layer_norm")
        if part.norm == "pre":
            yield from norm(f"{side}.norm", f"{INSIDE}{side}.layer_norm")


def linear(ours: str, theirs: Sequence[str], axis: Axis) -> Iterator[Name]:
    """A matrix and its bias; a bias inside a head has nothing to do with the residual stream."""
    yield Name(f"{ours}.weight", tuple(f"{one}.weight" for one in theirs), axis)
    yield Name(f"{ours}.bias", tuple(f"{one}.bias" for one in theirs), "writes" if axis == "writes" else "is")


def norm(ours: str, theirs: str) -> Iterator[Name]:
    """Two vectors of the residual stream's width."""
    for part in ("weight", "bias"):
        yield Name(f"{ours}.{part}", (f"{theirs}.{part}",), "writes")


def ordered(model: config.ModelSettings) -> Array:
    """The columns of the residual stream as their positions have them: sines first."""
    every = np.arange(model.width)
    return np.concatenate((every[::2], every[1::2])) if model.positions == "sinusoidal" else every


def arranged(array: Array, axis: Axis, columns: Array) -> Array:
    """A weight whose reading or writing side is put in another order."""
    if axis == "reads":
        return array[..., columns]
    return array[columns] if axis == "writes" else array


# --------------------------------------------------------------------------------------------------------- writing


def write(bundle: Bundle, folder: Path, rounding: str = "float32") -> None:  # noqa: ARG001  # same face as the others
    """Write what `from_pretrained` reads: the model, its tokenizer, how it searches, and its card."""
    model = bundle.model
    fits(model)
    tokenizers = [bundle.tokenizer(side) for side in SIDES]
    folder.mkdir(parents=True, exist_ok=True)
    orders = (np.array(own_ids_of_foreign(one)) for one in tokenizers)
    save_file(tensors(model, read_float_weights(bundle), *orders), folder / "model.safetensors", {"format": "pt"})
    (folder / "model.safetensors").chmod(
        (bundle.folder / CARD_FILE).stat().st_mode
    )  # it writes for the owner's eyes alone
    kept(folder / "config.json", described(bundle, *tokenizers))
    kept(folder / "generation_config.json", searched(bundle, tokenizers[1]))
    write_tokenizers(bundle, folder, *tokenizers)
    (folder / CARD_FILE).write_bytes((bundle.folder / CARD_FILE).read_bytes())


def fits(model: config.ModelSettings) -> None:
    """Refuse what their classes cannot compute."""
    encoder, _ = usual(model, "Hugging Face")
    if model.positions not in ("sinusoidal", "sinusoidal_halves"):
        raise HeedfulError("their Marian and Pegasus have sinusoidal positions only: heedful export --to onnx")
    if encoder.norm == "pre" and model.tie_embeddings != "all":
        raise HeedfulError(
            'the class for pre-norm models has one table for both languages: train with model.tie_embeddings = "all", '
            'or with norm = "post"; or use heedful export --to ctranslate2'
        )


def tensors(
    model: config.ModelSettings, weights: Mapping[str, Array], source: Array, target: Array
) -> dict[str, Array]:
    """Their names, our numbers; `source` and `target` are our ids in the order of their numbers."""
    columns, found = ordered(model), dict[str, Array]()
    for name in names(model):
        whole = arranged(weights[name.ours], name.axis, columns)
        for part, array in zip(name.theirs, np.split(whole, len(name.theirs)), strict=True):
            found[part] = array
    tables = {"encoder": source, "decoder": target}
    if model.tie_embeddings == "all":
        found[INSIDE + "shared.weight"] = weights["decoder.embed.table.weight"][target][:, columns]
    else:
        for side, order in tables.items():
            found[f"{INSIDE}{side}.embed_tokens.weight"] = weights[f"{side}.embed.table.weight"][order][:, columns]
    if model.tie_embeddings == "none":
        found["lm_head.weight"] = weights["decoder.plain_projection.weight"][target][:, columns]
    if model.encoder.kind == "transformer" and model.encoder.norm == "pre":  # which that class keeps in the file
        for side in tables:
            found[f"{INSIDE}{side}.embed_positions.weight"] = sinusoids(model.max_positions, model.width)
    bias = weights.get("decoder.plain_projection.bias")
    found[OUTPUT_BIAS] = np.zeros((1, len(target)), np.float32) if bias is None else bias[target][None]
    return {name: np.ascontiguousarray(array) for name, array in found.items()}


def numbers(tokenizer: Tokenizer) -> dict[str, int]:
    """Where the special tokens stand in their order: a borrowed list starts with its pad."""
    place = {here: there for there, here in enumerate(own_ids_of_foreign(tokenizer))}
    if BOS not in place:
        raise HeedfulError(
            "this model was borrowed from one that starts and ends with the same token; here it has two, and their "
            "list has no place for the other: heedful export --to ctranslate2"
        )
    return {"bos": place[BOS], "eos": place[EOS], "pad": place.get(PAD, place[BOS])}


def described(bundle: Bundle, source: Tokenizer, target: Tokenizer) -> dict[str, Any]:
    """config.json."""
    model, special = bundle.model, numbers(target)
    encoder, decoder = usual(model, "Hugging Face")
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


def searched(bundle: Bundle, target: Tokenizer) -> dict[str, Any]:
    """generation_config.json: the same search, as far as they have it."""
    usual, special = bundle.generation, numbers(target)
    if usual.length_rule not in ("power", "none"):
        raise HeedfulError(f"their search knows no length rule `{usual.length_rule}`")
    return {
        "num_beams": usual.beam, "length_penalty": usual.length_penalty if usual.length_rule == "power" else 0.0,
        "max_new_tokens": min(usual.max_length, bundle.model.max_positions), "early_stopping": False,
        "decoder_start_token_id": special["bos"], "bos_token_id": special["bos"], "eos_token_id": special["eos"],
        "pad_token_id": special["pad"], "bad_words_ids": [[one] for one in sorted({special["bos"], special["pad"]})],
        "forced_eos_token_id": None,
    }  # fmt: skip


def write_tokenizers(bundle: Bundle, folder: Path, *tokenizers: Tokenizer) -> None:
    """What MarianTokenizer reads: two SentencePiece models, and the number of every piece."""
    lists = []
    for side, tokenizer in zip(SIDES, tokenizers, strict=True):
        if not isinstance(tokenizer, SubwordTokenizer | BorrowedTokenizer):
            raise HeedfulError("their tokenizer is made of SentencePiece models; this model reads characters or words")
        (folder / f"{side}.spm").write_bytes(tokenizer.model)
        pieces = tokenizer.pieces(own_ids_of_foreign(tokenizer))
        if isinstance(tokenizer, BorrowedTokenizer) and tokenizer.order:
            pieces[numbers(tokenizer)["pad"]] = SPECIAL[PAD]  # there, one token pads and starts
        lists.append({piece: number for number, piece in enumerate(pieces)})
    separate = bundle.model.tie_embeddings != "all"
    kept(folder / "vocab.json", lists[0])
    if separate:
        kept(folder / "target_vocab.json", lists[1])
    languages = bundle.description
    kept(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "MarianTokenizer", "source_lang": languages.source, "target_lang": languages.target,
            "unk_token": SPECIAL[UNK], "eos_token": SPECIAL[EOS], "pad_token": SPECIAL[PAD],
            "separate_vocabs": separate, "model_max_length": min(512, bundle.model.max_positions),
        },
    )  # fmt: skip


def kept(path: Path, tree: Mapping[str, Any]) -> None:
    """JSON as their library writes it."""
    path.write_text(json.dumps(tree, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

"""Read Hugging Face Marian models (such as OPUS-MT) and our own exports, without transformers.

    config.json, model.safetensors, source.spm, target.spm, vocab.json

Their vocabulary starts with </s> <unk> and ends with <pad>, which is also the start token. Ours starts with <pad> <unk>
<s> </s>: their <pad> becomes our <s>, and a <pad> with probability 0 is added. The tokenizers store the original order
for `heedful export --to hugging_face`.
"""

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from heedful import config
from heedful.bundle import GenerationSettings
from heedful.errors import HeedfulError
from heedful.exporters.marian import CLASSES, OUTPUT_BIAS, PREFIX, weight_names
from heedful.importers.imported_model import (
    PAD_LOGIT,
    Array,
    ImportedModel,
    as_float32,
    read_file,
    read_json_object,
    renumber_pieces,
    reorder_rows,
    set_start_row_,
)
from heedful.text.tokenizer import SPECIAL, UNK, BorrowedTokenizer, SubwordTokenizer, Tokenizer

NORMS = {kind: norm for norm, (kind, _) in CLASSES.items()}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}


def is_marian_folder(folder: Path) -> bool:
    return (folder / "config.json").is_file() and read_json_object(folder / "config.json").get("model_type") in NORMS


def read_model(folder: Path) -> ImportedModel:
    """Read the model, its weights and its tokenizers."""
    settings = read_json_object(folder / "config.json")
    is_shared = bool(settings.get("share_encoder_decoder_embeddings", True))
    tied = "none" if not settings.get("tie_word_embeddings", True) else "all" if is_shared else "target"
    model = make_model_settings(settings, tied)
    tensors = read_tensors(folder)
    if not is_shared and not (folder / "target_vocab.json").is_file():
        raise HeedfulError(f"{folder} has two embedding tables but no target_vocab.json")
    files = ("vocab.json", "vocab.json" if is_shared else "target_vocab.json")
    vocabularies = [read_vocabulary(folder / name) for name in files]
    orders, pieces = zip(
        *(renumber_pieces(listed, special_pieces(settings, listed), folder) for listed in vocabularies), strict=True
    )
    tokenizers: dict[str, Tokenizer] = {
        side: make_tokenizer(folder / f"{side}.spm", pieces[index], orders[index])
        for index, side in enumerate(("source", "target"))
    }
    weights = {
        name.ours: np.concatenate([require_tensor(tensors, part) for part in name.theirs])
        for name in weight_names(model)
    }
    tables = {side: find_embedding(tensors, side, tied) for side in ("encoder", "decoder")}
    for index, side in enumerate(tables):
        table = reorder_rows(tables[side], orders[index], len(pieces[index]))
        start = read_count(settings, "decoder_start_token_id")
        weights[f"{side}.embed.table.weight"] = set_start_row_(table, orders[index], start)
    if tied == "none":
        output = require_tensor(tensors, "lm_head.weight")
        weights["decoder.plain_projection.weight"] = reorder_rows(output, orders[1], len(pieces[1]))
    else:
        weights["decoder.plain_projection.weight"] = weights["decoder.embed.table.weight"]
    bias = tensors.get(OUTPUT_BIAS, np.zeros(len(vocabularies[1]), np.float32)).reshape(-1)
    weights["decoder.plain_projection.bias"] = reorder_rows(bias, orders[1], len(pieces[1]), PAD_LOGIT)
    return ImportedModel(
        kind=f"{settings['model_type'].capitalize()}, Hugging Face format",
        model=model,
        weights=weights,
        tokenizers=tokenizers,
        languages=read_languages(folder),
        generation=read_generation(folder, settings),
    )


def make_model_settings(settings: Mapping[str, Any], tied: str) -> config.ModelSettings:
    if settings.get("normalize_embedding") or settings.get("normalize_before") or settings.get("add_final_layer_norm"):
        raise HeedfulError("this Marian model has extra LayerNorms, which heedful does not support")
    activation = str(settings.get("activation_function"))
    if activation not in ACTIVATIONS:
        raise HeedfulError(f"heedful does not support activation `{activation}`, only {', '.join(ACTIVATIONS)}")

    def part(side: str) -> dict[str, Any]:
        return {
            "kind": "transformer",
            "layers": read_count(settings, f"{side}_layers"),
            "heads": read_count(settings, f"{side}_attention_heads"),
            "feedforward_size": read_count(settings, f"{side}_ffn_dim"),
            "norm": NORMS[settings["model_type"]],
            "activation": ACTIVATIONS[activation],
            "dropout": settings.get("dropout", 0.1),
            "feedforward_dropout": settings.get("activation_dropout", 0.0),
        }

    return config.ModelSettings.model_validate(
        {
            "width": read_count(settings, "d_model"), "positions": "sinusoidal_halves",
            "max_positions": read_count(settings, "max_position_embeddings"),
            "scale_embeddings": bool(settings.get("scale_embedding")),
            "dropout": settings.get("dropout", 0.1), "tie_embeddings": tied, "output_bias": True,
            "encoder": part("encoder"), "decoder": part("decoder"),
        }
    )  # fmt: skip


def read_count(settings: Mapping[str, Any], key: str) -> int:
    """A non-negative integer of config.json."""
    value = settings.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise HeedfulError(f"config.json: `{key}` is {str(value)[:50]!a}, not a number")
    return value


def read_tensors(folder: Path) -> dict[str, Array]:
    """Every tensor of model.safetensors, by name."""
    path = folder / "model.safetensors"
    if (folder / "model.safetensors.index.json").is_file():
        raise HeedfulError(
            f"{folder} has its weights in several files: save them as one file with save_pretrained of transformers"
        )
    if not path.is_file():
        raise HeedfulError(
            f"{folder} has no model.safetensors. heedful does not read pytorch_model.bin, which can run "
            "code when opened: if you trust it, convert it with model.save_pretrained(DIRECTORY) of the "
            "transformers package"
        )
    try:
        with safe_open(path, "numpy") as file:
            return {name: as_float32(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118  # not a dictionary
    except (SafetensorError, OSError, TypeError) as error:
        more = ": convert it to float32, because NumPy does not support bfloat16" if "bfloat16" in str(error) else ""
        raise HeedfulError(f"{path} cannot be read: {str(error)[:200]!a}{more}") from None


def require_tensor(weights: Mapping[str, Array], name: str) -> Array:
    if name not in weights:
        raise HeedfulError(f"model.safetensors has no `{name}`, which config.json requires")
    return weights[name]


def find_embedding(weights: Mapping[str, Array], side: str, tied: str) -> Array:
    shared = f"{PREFIX}shared.weight"
    return require_tensor(
        weights, shared if tied == "all" and shared in weights else f"{PREFIX}{side}.embed_tokens.weight"
    )


def read_vocabulary(path: Path) -> list[str]:
    """The pieces of a vocabulary file, in the order of their ids."""
    tree = read_json_object(path)
    ids = tree.values()
    if {*map(str, ids)} != {*map(str, range(len(tree)))} or not all(isinstance(number, int) for number in ids):
        raise HeedfulError(f"{path} must map every piece to a different id, starting from 0")
    return sorted(tree, key=lambda piece: tree[piece])


def special_pieces(settings: Mapping[str, Any], pieces: Sequence[str]) -> tuple[str | None, ...]:
    """Their names of <pad> <unk> <s> </s>; None for a <pad> that is also the start (as usual) or end token."""
    start, end, pad = (read_count(settings, f"{name}_token_id") for name in ("decoder_start", "eos", "pad"))
    if max(start, end, pad) >= len(pieces):
        raise HeedfulError("config.json has special tokens that are not in vocab.json")
    start_piece = None if start == end else pieces[start]
    return (None if pad in (start, end) else pieces[pad], SPECIAL[UNK], start_piece, pieces[end])


def make_tokenizer(path: Path, pieces: Sequence[str], order: Sequence[int]) -> Tokenizer:
    """A SubwordTokenizer if heedful exported the model, else a BorrowedTokenizer."""
    model = read_file(path)
    if list(order) == list(range(len(pieces))):
        subwords = SubwordTokenizer(model)
        if subwords.pieces(range(subwords.size)) == list(pieces):
            return subwords
    return BorrowedTokenizer(model, pieces, order)


def read_languages(folder: Path) -> tuple[str, str] | None:
    """Source and target language from tokenizer_config.json; None if it names none."""
    path = folder / "tokenizer_config.json"
    tree = read_json_object(path) if path.is_file() else {}
    source, target = tree.get("source_lang"), tree.get("target_lang")
    return (str(source), str(target)) if source and target else None


def read_generation(folder: Path, settings: Mapping[str, Any]) -> GenerationSettings:
    """Search settings from generation_config.json, or for older models from config.json."""
    path = folder / "generation_config.json"
    tree = {**settings, **(read_json_object(path) if path.is_file() else {})}
    max_length = positive_or_default(tree, "max_new_tokens", positive_or_default(tree, "max_length", 256))
    return GenerationSettings(
        beam=int(min(256, positive_or_default(tree, "num_beams", 4))),
        length_penalty=min(8.0, positive_or_default(tree, "length_penalty", 1.0)),
        max_length=int(min(65_536, max_length, read_count(settings, "max_position_embeddings"))),
    )


def positive_or_default(tree: Mapping[str, Any], key: str, default: float) -> float:
    """A positive finite number; the default for anything else."""
    value = tree.get(key)
    is_valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf
    return float(value) if is_valid and value is not None else default

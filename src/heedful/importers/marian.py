"""Marian as Hugging Face publishes it (OPUS-MT and its kin), and our own exports: no transformers package.

    config.json, model.safetensors, source.spm, target.spm, vocab.json

Their vocabulary starts with </s> and <unk> and ends with <pad>, which also starts every translation. Ours starts with
<pad> <unk> <s> </s>: their <pad> becomes our <s>, and a new <pad> is added that says nothing. The tokenizers remember
the order, so that `heedful export --to hugging_face` puts everything back where it was.
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
from heedful.exporters.marian import CLASSES, INSIDE, OUTPUT_BIAS, names
from heedful.importers.imported_model import NEVER, Array, Foreign, data_of, floats, ordered, rows, started, tree_of
from heedful.text.tokenizer import SPECIAL, UNK, BorrowedTokenizer, SubwordTokenizer, Tokenizer

NORMS = {kind: norm for norm, (kind, _) in CLASSES.items()}
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}


def known(folder: Path) -> bool:
    """Whether this is such a folder."""
    return (folder / "config.json").is_file() and tree_of(folder / "config.json").get("model_type") in NORMS


def read(folder: Path) -> Foreign:
    """The model, its weights and its tokenizers."""
    about = tree_of(folder / "config.json")
    whole = bool(about.get("share_encoder_decoder_embeddings", True))
    tied = "none" if not about.get("tie_word_embeddings", True) else "all" if whole else "target"
    model = described(about, tied)
    weights = tensors(folder)
    if not whole and not (folder / "target_vocab.json").is_file():
        raise HeedfulError(f"{folder} has two tables of words, but no target_vocab.json")
    lists = [listed(folder / name) for name in ("vocab.json", "vocab.json" if whole else "target_vocab.json")]
    orders, pieces = zip(*(ordered(one, special(about, one), folder) for one in lists), strict=True)
    tokenizers: dict[str, Tokenizer] = {
        side: tokenizer(folder / f"{side}.spm", pieces[at], orders[at]) for at, side in enumerate(("source", "target"))
    }
    found = {name.ours: np.concatenate([one(weights, part) for part in name.theirs]) for name in names(model)}
    tables = {side: table(weights, side, tied) for side in ("encoder", "decoder")}
    for at, side in enumerate(tables):
        own = rows(tables[side], orders[at], len(pieces[at]))
        found[f"{side}.embed.table.weight"] = started(own, orders[at], number(about, "decoder_start_token_id"))
    if tied == "none":
        found["decoder.plain_projection.weight"] = rows(one(weights, "lm_head.weight"), orders[1], len(pieces[1]))
    else:
        found["decoder.plain_projection.weight"] = found["decoder.embed.table.weight"]
    bias = weights.get(OUTPUT_BIAS, np.zeros(len(lists[1]), np.float32)).reshape(-1)
    found["decoder.plain_projection.bias"] = rows(bias, orders[1], len(pieces[1]), NEVER)
    return Foreign(
        kind=f"{about['model_type'].capitalize()}, as Hugging Face keeps it",
        model=model,
        weights=found,
        tokenizers=tokenizers,
        languages=languages(folder),
        generation=searched(folder, about),
    )


def described(about: Mapping[str, Any], tied: str) -> config.ModelSettings:
    """Our words for their config.json."""
    if about.get("normalize_embedding") or about.get("normalize_before") or about.get("add_final_layer_norm"):
        raise HeedfulError("this is a kind of Marian with LayerNorms in other places, which heedful cannot build")
    activation = str(about.get("activation_function"))
    if activation not in ACTIVATIONS:
        raise HeedfulError(f"heedful has no activation `{activation}`; it knows {', '.join(ACTIVATIONS)}")

    def part(side: str) -> dict[str, Any]:
        return {
            "kind": "transformer",
            "layers": number(about, f"{side}_layers"),
            "heads": number(about, f"{side}_attention_heads"),
            "feedforward_size": number(about, f"{side}_ffn_dim"),
            "norm": NORMS[about["model_type"]],
            "activation": ACTIVATIONS[activation],
            "dropout": about.get("dropout", 0.1),
            "feedforward_dropout": about.get("activation_dropout", 0.0),
        }

    return config.ModelSettings.model_validate(
        {
            "width": number(about, "d_model"), "positions": "sinusoidal_halves",
            "max_positions": number(about, "max_position_embeddings"),
            "scale_embeddings": bool(about.get("scale_embedding")),
            "dropout": about.get("dropout", 0.1), "tie_embeddings": tied, "output_bias": True,
            "encoder": part("encoder"), "decoder": part("decoder"),
        }
    )  # fmt: skip


def number(about: Mapping[str, Any], key: str) -> int:
    """A whole number of config.json."""
    value = about.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise HeedfulError(f"config.json: `{key}` is {str(value)[:50]!a}, not a number")
    return value


def tensors(folder: Path) -> dict[str, Array]:
    """Every tensor by its name there."""
    path = folder / "model.safetensors"
    if (folder / "model.safetensors.index.json").is_file():
        raise HeedfulError(
            f"{folder} has its weights in several files: write one, with save_pretrained of transformers"
        )
    if not path.is_file():
        raise HeedfulError(
            f"{folder} has no model.safetensors. A pytorch_model.bin can run code when opened, so heedful opens none: "
            "convert it where you trust it, with model.save_pretrained(FOLDER) of the transformers package"
        )
    try:
        with safe_open(path, "numpy") as file:
            return {name: floats(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118  # it is no dictionary
    except (SafetensorError, OSError, TypeError) as error:
        more = ": convert it to float32, NumPy does not know bfloat16" if "bfloat16" in str(error) else ""
        raise HeedfulError(f"{path} cannot be read: {str(error)[:200]!a}{more}") from None


def one(weights: Mapping[str, Array], name: str) -> Array:
    """A tensor that must be there."""
    if name not in weights:
        raise HeedfulError(f"model.safetensors has no `{name}`, which config.json promises")
    return weights[name]


def table(weights: Mapping[str, Array], side: str, tied: str) -> Array:
    """The embeddings of a side."""
    shared = f"{INSIDE}shared.weight"
    return one(weights, shared if tied == "all" and shared in weights else f"{INSIDE}{side}.embed_tokens.weight")


def listed(path: Path) -> list[str]:
    """The pieces in the order of their numbers."""
    tree = tree_of(path)
    if {*map(str, tree.values())} != {*map(str, range(len(tree)))} or not all(
        isinstance(n, int) for n in tree.values()
    ):
        raise HeedfulError(f"{path} does not give every piece a number of its own, from 0")
    return sorted(tree, key=lambda piece: tree[piece])


def special(about: Mapping[str, Any], pieces: Sequence[str]) -> tuple[str | None, ...]:
    """What they call <pad> <unk> <s> </s>: the start is mostly their pad, and then there is no pad of its own."""
    start, end, pad = (number(about, f"{name}_token_id") for name in ("decoder_start", "eos", "pad"))
    if max(start, end, pad) >= len(pieces):
        raise HeedfulError("config.json names special tokens that vocab.json does not have")
    own_start = None if start == end else pieces[start]
    return (None if pad in (start, end) else pieces[pad], SPECIAL[UNK], own_start, pieces[end])


def tokenizer(path: Path, pieces: Sequence[str], order: Sequence[int]) -> Tokenizer:
    """One of ours, if it was ours before; or theirs, borrowed."""
    model = data_of(path)
    if list(order) == list(range(len(pieces))):
        own = SubwordTokenizer(model)
        if own.pieces(range(own.size)) == list(pieces):
            return own
    return BorrowedTokenizer(model, pieces, order)


def languages(folder: Path) -> tuple[str, str] | None:
    """What tokenizer_config.json says."""
    path = folder / "tokenizer_config.json"
    tree = tree_of(path) if path.is_file() else {}
    found = tree.get("source_lang"), tree.get("target_lang")
    return (str(found[0]), str(found[1])) if all(found) else None


def searched(folder: Path, about: Mapping[str, Any]) -> GenerationSettings:
    """How they search: generation_config.json, or in older folders config.json."""
    path = folder / "generation_config.json"
    tree = {**about, **(tree_of(path) if path.is_file() else {})}
    most = usual(tree, "max_new_tokens", usual(tree, "max_length", 256))
    return GenerationSettings(
        beam=int(min(256, usual(tree, "num_beams", 4))),
        length_penalty=min(8.0, usual(tree, "length_penalty", 1.0)),
        max_length=int(min(65_536, most, number(about, "max_position_embeddings"))),
    )


def usual(tree: Mapping[str, Any], key: str, default: float) -> float:
    """A number that a search can be given; a default for what is none."""
    value = tree.get(key)
    sound = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf
    return float(value) if sound and value is not None else default

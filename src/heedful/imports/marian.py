"""Marian as Hugging Face publishes it (OPUS-MT and its kin), and our own exports: no transformers package.

    config.json, model.safetensors, source.spm, target.spm, vocab.json

Their vocabulary starts with </s> and <unk> and ends with <pad>, which also starts every translation. Ours starts with
<pad> <unk> <s> </s>: their <pad> becomes our <s>, and a new <pad> is added that says nothing. The tokenizers remember
the order, so that `heedful export --to hugging_face` puts everything back where it was.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from heedful import config
from heedful.bundle import Generation
from heedful.errors import HeedfulError
from heedful.export.marian import CLASSES, INSIDE, OUTPUT_BIAS, names
from heedful.imports.foreign import NEVER, Array, Foreign, floats, ordered, rows, tree_of
from heedful.text.tokenizer import SPECIAL, UNK, Borrowed, Subwords, Tokenizer

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
    lists = [listed(folder / name) for name in ("vocab.json", "vocab.json" if tied == "all" else "target_vocab.json")]
    if tied != "all" and not (folder / "target_vocab.json").is_file():
        raise HeedfulError(f"{folder} has two tables of words, but no target_vocab.json")
    orders, pieces = zip(*(ordered(one, special(about, one), folder) for one in lists), strict=True)
    tokenizers: dict[str, Tokenizer] = {
        side: tokenizer(folder / f"{side}.spm", pieces[at], orders[at]) for at, side in enumerate(("source", "target"))
    }
    found = {name.ours: np.concatenate([one(weights, part) for part in name.theirs]) for name in names(model)}
    tables = {side: table(weights, side, tied) for side in ("encoder", "decoder")}
    for at, side in enumerate(tables):
        found[f"{side}.embed.table.weight"] = rows(tables[side], orders[at], len(pieces[at]))
    output = one(weights, "lm_head.weight") if tied == "none" else tables["decoder"]
    found["decoder.plain_projection.weight"] = rows(output, orders[1], len(pieces[1]))
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


def described(about: Mapping[str, Any], tied: str) -> config.Model:
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
            "inner": number(about, f"{side}_ffn_dim"),
            "norm": NORMS[about["model_type"]],
            "activation": ACTIVATIONS[activation],
            "dropout": about.get("dropout", 0.1),
        }

    return config.Model.model_validate(
        {
            "width": number(about, "d_model"), "positions": "sinusoidal_halves",
            "slots": number(about, "max_position_embeddings"), "scale": bool(about.get("scale_embedding")),
            "dropout": about.get("dropout", 0.1), "tied": tied, "bias": True,
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
    if not path.is_file():
        raise HeedfulError(
            f"{folder} has no model.safetensors. A pytorch_model.bin can run code when opened, so heedful opens none: "
            "convert it where you trust it, with model.save_pretrained(FOLDER) of the transformers package"
        )
    try:
        with safe_open(path, "numpy") as file:
            return {name: floats(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118  # it is no dictionary
    except (SafetensorError, OSError, TypeError) as error:
        raise HeedfulError(f"{path} cannot be read: {str(error)[:200]!a}") from None


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
    if sorted(tree.values()) != list(range(len(tree))):
        raise HeedfulError(f"{path} does not give every piece a number of its own, from 0")
    return sorted(tree, key=lambda piece: tree[piece])


def special(about: Mapping[str, Any], pieces: Sequence[str]) -> tuple[str | None, ...]:
    """What they call <pad> <unk> <s> </s>: the start is mostly their pad, and then there is no pad of its own."""
    start, end, pad = (number(about, f"{name}_token_id") for name in ("decoder_start", "eos", "pad"))
    if max(start, end, pad) >= len(pieces):
        raise HeedfulError("config.json names special tokens that vocab.json does not have")
    return (None if pad == start else pieces[pad], SPECIAL[UNK], pieces[start], pieces[end])


def tokenizer(path: Path, pieces: Sequence[str], order: Sequence[int]) -> Tokenizer:
    """One of ours, if it was ours before; or theirs, borrowed."""
    if not path.is_file():
        raise HeedfulError(f"{path} is missing: the SentencePiece model belongs to it")
    model = path.read_bytes()
    if list(order) == list(range(len(pieces))):
        own = Subwords(model)
        if own.pieces(range(own.size)) == list(pieces):
            return own
    return Borrowed(model, pieces, order)


def languages(folder: Path) -> tuple[str, str] | None:
    """What tokenizer_config.json says."""
    path = folder / "tokenizer_config.json"
    tree = tree_of(path) if path.is_file() else {}
    found = tree.get("source_lang"), tree.get("target_lang")
    return (str(found[0]), str(found[1])) if all(found) else None


def searched(folder: Path, about: Mapping[str, Any]) -> Generation:
    """How they search: generation_config.json, or in older folders config.json."""
    path = folder / "generation_config.json"
    tree = {**about, **(tree_of(path) if path.is_file() else {})}
    most = tree.get("max_new_tokens") or tree.get("max_length") or 256
    return Generation(
        beam=min(256, max(1, int(tree.get("num_beams") or 4))),
        length_penalty=min(8.0, max(0.0, float(1.0 if tree.get("length_penalty") is None else tree["length_penalty"]))),
        limit=min(65_536, max(1, int(most)), number(about, "max_position_embeddings")),
    )

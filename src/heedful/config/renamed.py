"""Renamed keys: of heedful.toml, and of model directories since format 2.

The error for an old key in a heedful.toml or `--set` suggests the new name. Model directories of format 1 are read
with the same table.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_LAYERS = {"inner": "feedforward_size", "inner_dropout": "feedforward_dropout", "normalise": "normalizer"}

# Section -> old key -> new key. The sections [model...] are those of config.json too.
RENAMED_KEYS: dict[str, dict[str, str]] = {
    "": {"start": "init_from"},
    "data": {"folder": "prepared_dir", "longest_bytes": "max_line_bytes", "reject_limit": "max_reject_share"},
    "clean": {"longest_words": "max_words", "longest_tokens": "max_tokens", "largest_ratio": "max_length_ratio"},
    "tokenizer": {
        "vocabulary": "vocab_size",
        "coverage": "character_coverage",
        "sample": "training_pairs",
        "regularisation": "subword_regularization",
    },
    "model": {
        "slots": "max_positions",
        "scale": "scale_embeddings",
        "tied": "tie_embeddings",
        "bias": "output_bias",
    },
    "model.encoder": _LAYERS,
    "model.decoder": _LAYERS | {"asks": "query_from", "feeds": "input_feeding", "first": "initial_state"},
    "model.decoder.attention": {"normalise": "normalizer"},
    "train": {
        "folder": "output_dir",
        "optimiser": "optimizer",
        "clip": "clip_norm",
        "smoothing": "label_smoothing",
        "agreement": "r_drop",
        "average": "average_checkpoints",
        "spike": "skip_spikes_above",
        "metric": "best_by",
        "samples": "show_samples",
        "keep": "keep_checkpoints",
    },
    # Files of a model directory: generation_config.json, training_statistics.json and export.json.
    "generation": {"length": "length_rule", "limit": "max_length"},
    "statistics.usual.input": {"tokenised": "tokenized"},
    "export": {"rounding": "quantization"},
}


def rename_keys_(tree: dict[str, Any], root: str) -> None:
    """Rename the keys of format 1, in place; `tree` is the section `root`."""
    for _, names, table in _tables(tree, root):
        for old, new in names.items():
            if old in table:
                table[new] = table.pop(old)


def find_key(tree: Mapping[str, Any], root: str, *, old: bool) -> str | None:
    """Return the first renamed key in a tree, by its old or new name, or None."""
    for section, names, table in _tables(tree, root):
        for key in names if old else names.values():
            if key in table:
                return f"{section}.{key}"
    return None


def _tables(tree: Mapping[str, Any], root: str) -> Iterator[tuple[str, dict[str, str], dict[str, Any]]]:
    """Yield (section, its renamed keys, its table) for each section below `root` that the tree has."""
    for section, names in RENAMED_KEYS.items():
        if f"{section}.".startswith(f"{root}."):
            table: Any = tree
            for key in section.split(".")[1:]:
                table = table.get(key) if isinstance(table, dict) else None
            if isinstance(table, dict):
                yield section, names, table

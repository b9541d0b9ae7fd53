"""Applies rules to lists of pairs: which pairs are dropped, and by which rule."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars
from polars import col

from heedful.corpus.rules import RULES, Profile, apply_rules, letters_only, make_profile
from heedful.errors import ConfigError, did_you_mean


def check_rule_names(names: Sequence[str]) -> None:
    """Raise a ConfigError if `clean.drop` names a rule that does not exist."""
    for name in names:
        if name not in RULES:
            raise ConfigError(f"clean.drop: there is no rule `{name}`" + did_you_mean(name, RULES))


def profile_pairs(
    source: Sequence[str], target: Sequence[str], max_words: int, max_length_ratio: float
) -> dict[str, Any]:
    """The profile of pairs, as JSON values."""
    profile = make_profile(make_pair_table(source, target), max_words=max_words, max_length_ratio=max_length_ratio)
    return {name: getattr(profile, name) for name in Profile.__slots__}


def make_pair_table(source: Sequence[str], target: Sequence[str]) -> polars.DataFrame:
    return polars.DataFrame(
        {"source": source, "target": target}, schema={"source": polars.String, "target": polars.String}
    )


def keep_letters(texts: Sequence[str]) -> list[str]:
    """The letters of each text, upper-cased, without spaces and punctuation."""
    return (
        polars.Series("text", texts, dtype=polars.String).to_frame().select(letters_only(col("text")))["text"].to_list()
    )


def broken_rules(
    source: Sequence[str], target: Sequence[str], drop: Sequence[str], profile: Mapping[str, Any]
) -> dict[int, str]:
    """Row -> the first rule in `drop` that it breaks."""
    flags = apply_rules(make_pair_table(source, target), Profile(**profile), drop)
    reasons: dict[int, str] = {}
    for name in reversed(drop):
        left, right = flags[name]
        reasons.update(dict.fromkeys(np.flatnonzero(left | right).tolist(), name))
    return reasons

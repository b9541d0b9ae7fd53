"""Which pairs of a piece are left out, and by which rule."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars
from polars import col

from heedful.corpus.rules import RULES, Profile, find, letters_of, profiled
from heedful.errors import ConfigError, did_you_mean


def known(names: Sequence[str]) -> None:
    """Refuse a `clean.drop` that names a rule there is not."""
    for name in names:
        if name not in RULES:
            raise ConfigError(f"clean.drop: there is no rule `{name}`" + did_you_mean(name, RULES))


def profile_of(
    source: Sequence[str], target: Sequence[str], longest_words: int, largest_ratio: float
) -> dict[str, Any]:
    """What is usual in some pairs, as plain values."""
    profile = profiled(table(source, target), longest_words=longest_words, largest_ratio=largest_ratio)
    return {name: getattr(profile, name) for name in Profile.__slots__}


def table(source: Sequence[str], target: Sequence[str]) -> polars.DataFrame:
    """A table of pairs."""
    return polars.DataFrame(
        {"source": source, "target": target}, schema={"source": polars.String, "target": polars.String}
    )


def letters(texts: Sequence[str]) -> list[str]:
    """Each text by its letters only."""
    return (
        polars.Series("text", texts, dtype=polars.String).to_frame().select(letters_of(col("text")))["text"].to_list()
    )


def faults(
    source: Sequence[str], target: Sequence[str], drop: Sequence[str], profile: Mapping[str, Any]
) -> dict[int, str]:
    """Row -> the first rule of `drop` that it breaks."""
    found = find(table(source, target), Profile(**profile), drop)
    reasons: dict[int, str] = {}
    for name in reversed(drop):
        left, right = found[name]
        reasons.update(dict.fromkeys(np.flatnonzero(left | right).tolist(), name))
    return reasons

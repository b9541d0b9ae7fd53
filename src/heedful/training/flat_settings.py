"""Settings as flat tables, to show what differs between two requests."""

from collections.abc import Iterable, Mapping
from typing import Any

LENGTH_KEYS = ("train.time", "train.steps")  # of a run, which may change them


def flatten(tree: Mapping[str, Any], path: str = "") -> list[tuple[str, Any]]:
    """{"a": {"b": 1}} -> [("a.b", 1)]"""
    rows: list[tuple[str, Any]] = []
    for key, value in tree.items():
        rows += flatten(value, f"{path}{key}.") if isinstance(value, dict) else [(f"{path}{key}", value)]
    return rows


def describe_changes(before: Mapping[str, Any], now: Mapping[str, Any], keys: Iterable[str], when: str) -> str:
    """One line per key whose value differs; empty if none does."""
    return "\n".join(
        f"  {key}: {before.get(key)} {when}, {now.get(key)} now" for key in keys if before.get(key) != now.get(key)
    )

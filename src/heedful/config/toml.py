"""Write TOML: resolved settings, to save them with the results, and other trees of plain values."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel


def to_toml(settings: BaseModel) -> str:
    """Write every key whose value is not None; `load` reads it back."""
    return tree_to_toml(settings.model_dump(mode="json", exclude_none=True))


def tree_to_toml(tree: Mapping[str, Any]) -> str:
    """Write tables, lists of tables and plain values; `tomllib.loads` reads them back."""
    return "\n".join(_table_lines(tree, ())).strip() + "\n"


def _table_lines(tree: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    tables = {key: value for key, value in tree.items() if isinstance(value, dict)}
    arrays = {
        key: value for key, value in tree.items() if isinstance(value, list) and value and isinstance(value[0], dict)
    }
    lines = [f"{key} = {_toml_value(value)}" for key, value in tree.items() if key not in tables and key not in arrays]
    for key, table in tables.items():
        lines += ["", f"[{'.'.join((*path, key))}]", *_table_lines(table, (*path, key))]
    for key, array in arrays.items():
        for table in array:
            lines += ["", f"[[{'.'.join((*path, key))}]]", *_table_lines(table, (*path, key))]
    return lines


def _toml_value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    # JSON's strings, numbers and booleans are valid TOML, except for this character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

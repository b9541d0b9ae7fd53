"""Read heedful.toml: file, recipe and `--set` options, merged and validated.

    settings = load("heedful.toml", assignments=["tokenizer.vocab_size=4000"])

Precedence: `--set a.b=c` > file > its recipe > default. Paths are relative to the file that names them. The error
for an unknown key has its place and a suggestion.
"""

import json
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from heedful.config.renamed import RENAMED_KEYS
from heedful.config.settings import CorpusSettings, EmbeddingFiles, Section, Settings
from heedful.errors import ConfigError, did_you_mean, renamed_message

SPLITS = ("train", "validation", "test")
Location = tuple[str | int, ...]  # of a value, as pydantic reports it: ("data", "train", 0, "files")


def load(path: str | Path, assignments: Iterable[str] = ()) -> Settings:
    """Read a file, apply `key=value` assignments (`--set`), validate the result."""
    path = Path(path)
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # editors on Windows may write a byte order mark
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}: check the path, or create the file with heedful init") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a directory: pass the heedful.toml in it") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        hint = '; put text in quotes, such as source = "no"' if "Invalid value" in str(error) else ""
        raise ConfigError(f"{path} is not TOML: {error}{hint}") from None
    for assignment in assignments:
        assign(tree, assignment)
    return parse_settings(tree, where=str(path), root=path.parent)


def as_settings(settings: Settings | str | Path) -> Settings:
    """Return settings unchanged; load them from a path."""
    return settings if isinstance(settings, Settings) else load(settings)


def parse_settings(tree: Mapping[str, Any], *, where: str = "the configuration", root: Path | None = None) -> Settings:
    """Validate a tree of plain values. Relative paths are resolved from `root`."""
    if isinstance(name := tree.get("recipe"), str):
        tree = merge_trees(read_recipe(name), tree)
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as failure:
        raise ConfigError(f"{where}: " + "; ".join(_explain_all(failure))) from None
    return settings if root is None else with_absolute_paths(settings, root)


def find_recipes() -> dict[str, Path]:
    """Name -> file of every recipe that is part of heedful."""
    package = Path(__file__).parents[1]
    installed = package / "recipes"
    folder = installed if installed.is_dir() else package.parents[1] / "recipes"  # in a clone, beside src
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_recipe(name: str) -> dict[str, Any]:
    """Read a recipe as a tree: a heedful.toml without languages and files."""
    recipes = find_recipes()
    if name not in recipes:
        raise ConfigError(f"there is no recipe `{name}`" + did_you_mean(name, recipes))
    return tomllib.loads(recipes[name].read_text(encoding="utf-8"))


def merge_trees(base: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Merge table by table; a table of another `kind` replaces the base's."""
    result = dict(base)
    for key, value in override.items():
        below = result.get(key)
        mergeable = (
            isinstance(below, dict) and isinstance(value, dict) and value.get("kind") in (None, below.get("kind"))
        )
        result[key] = merge_trees(below or {}, value) if mergeable else value
    return result


def with_absolute_paths(settings: Settings, root: Path) -> Settings:
    """Return the settings with relative paths resolved from `root`."""

    def absolute(path: str) -> str:
        return (root / path).absolute().as_posix()

    def move(corpora: tuple[CorpusSettings, ...]) -> tuple[CorpusSettings, ...]:
        return tuple(
            corpus.model_copy(update={"files": tuple(absolute(file) for file in corpus.files)}) for corpus in corpora
        )

    data, train, tokenizer = settings.data, settings.train, settings.tokenizer
    splits = {split: move(getattr(data, split)) for split in SPLITS}
    update: dict[str, Any] = {
        "data": data.model_copy(update=splits | {"prepared_dir": absolute(data.prepared_dir)}),
        "train": train.model_copy(update={"output_dir": absolute(train.output_dir)}),
    }
    if settings.init_from:
        update["init_from"] = absolute(settings.init_from)
    if settings.model and settings.model.embeddings:
        embeddings = {side: absolute(file) for side, file in settings.model.embeddings if file is not None}
        update["model"] = settings.model.model_copy(update={"embeddings": EmbeddingFiles(**embeddings)})
    if tokenizer.files:
        update["tokenizer"] = tokenizer.model_copy(update={"files": tuple(absolute(file) for file in tokenizer.files)})
    return settings.model_copy(update=update)


def name_corpora(settings: Settings) -> list[tuple[str, str, CorpusSettings]]:
    """(name, split, corpus) of every corpus; a corpus without a name is named after its split."""
    corpora = [
        (corpus.name or (split if number == 0 else f"{split}{number + 1}"), split, corpus)
        for split in SPLITS
        for number, corpus in enumerate(getattr(settings.data, split))
    ]
    for name, times in Counter(name.casefold() for name, _, _ in corpora).items():  # file systems may ignore case
        if times > 1:
            raise ConfigError(f"{times} corpora are named `{name}`: set a different `name` for each")
    return corpora


def assign(tree: dict[str, Any], assignment: str) -> None:
    """Apply `a.b.0.c=value` to a tree; the value is TOML, or else a plain string."""
    key, equals, value = assignment.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"--set {assignment}: expected key=value, such as tokenizer.vocab_size=4000")
    here: Any = tree
    for part in parts[:-1]:
        try:
            here = here[int(part)] if isinstance(here, list) else here.setdefault(part, {})
        except (IndexError, ValueError):
            raise ConfigError(
                f"--set {assignment}: there is no entry `{part}` in a list of {len(here)} (the first entry is 0)"
            ) from None
        if not isinstance(here, dict | list):
            raise ConfigError(f"--set {assignment}: `{part}` is a value, not a table")
    last: Any = int(parts[-1]) if isinstance(here, list) and parts[-1].isdigit() else parts[-1]
    try:
        here[last] = parse_value(value.strip())
    except (IndexError, TypeError):
        raise ConfigError(
            f"--set {assignment}: there is no entry `{parts[-1]}` in a list of {len(here)} (the first entry is 0)"
        ) from None
    if parts == ["train", "steps"]:
        here.pop("time", None)  # a time in the file would override these steps


def parse_value(text: str) -> Any:
    """Parse a value of `--set`: TOML, or else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


# ---------------------------------------------------------------------------------------------------------- errors

# Parts that pydantic adds to the location of a key with several types.
_UNION_TAGS = (
    "transformer",
    "recurrent",
    "bottleneck",
    "patches",
    "ctc",
    "constrained-float",
    "constrained-int",
    "literal[False]",
)


def _explain_all(failure: ValidationError) -> list[str]:
    errors = [error for error in failure.errors() if error["loc"][-1:] != ("literal[False]",)]  # its sibling says more
    causes = {error["loc"][:depth] for error in errors for depth in range(len(error["loc"]))}
    renamed = {
        (*error["loc"][:-1], new)
        for error in errors
        if error["type"] == "extra_forbidden" and (new := _new_name(error))
    }
    return [explain(error) for error in errors if error["loc"] not in causes | renamed]


def explain(error: Mapping[str, Any]) -> str:
    location: Location = error["loc"]
    key, kind, value = _dotted(location), error["type"], error["input"]
    last = key.split(".")[-1]
    if kind == "extra_forbidden":
        if new := _new_name(error):
            return renamed_message("key", key, new)
        elsewhere = [name for name in all_keys() if name.split(".")[-1] == last]
        hint = did_you_mean(last, keys_of(location[:-1]))
        return f"unknown key `{key}`" + (f"; did you mean `{elsewhere[0]}`?" if len(elsewhere) == 1 else hint)
    if kind == "union_tag_invalid":
        kinds = [word.strip(" '") for word in error["ctx"]["expected_tags"].split(",")]
        return f"`{key}.kind` = {error['ctx']['tag']!r} is not known" + did_you_mean(error["ctx"]["tag"], kinds)
    if kind == "union_tag_not_found":
        return f"`{key}.kind` is missing"
    if kind == "missing":
        return f"`{key}` is missing"
    if kind == "literal_error":
        options = [word.strip(" '") for word in error["ctx"]["expected"].replace(" or ", ", ").split(",")]
        return f"`{key}` = {value!r} is not known" + did_you_mean(str(value), options)
    if kind == "tuple_type":
        return f"`{key}` is a list: write [[{key}]] above its keys, or {last} = [{{ files = ... }}]"
    if kind == "string_type":
        return f"`{key}` = {json.dumps(value, default=str)} is not text; put text in quotes"
    if kind == "string_pattern_mismatch" and (rule := _PATTERN_RULES.get(last)):
        return f"`{key}` = {value!r}: {rule}"
    message = error["msg"].removeprefix("Value error, ")
    return f"`{key}`: {message[0].lower()}{message[1:]}" + ("" if isinstance(value, dict) else f", not {value!r}")


_PATTERN_RULES = {
    "source": "a language is a code, such as en, de or pt-BR",
    "target": "a language is a code, such as en, de or pt-BR",
    "name": "a name starts with a letter and has no spaces",
    "tag": "a tag looks like <news>, with no spaces",
}


def _dotted(location: Location) -> str:
    return ".".join(str(part) for part in location if part not in _UNION_TAGS)


def _new_name(error: Mapping[str, Any]) -> str | None:
    """Return the new name of a renamed key, or None."""
    return RENAMED_KEYS.get(_dotted(error["loc"][:-1]), {}).get(str(error["loc"][-1]))


def keys_of(location: Location) -> list[str]:
    """List the keys of the section at a location such as ("data", "train", 0)."""
    sections: list[type[BaseModel]] = [Settings]
    for part in location:
        if isinstance(part, str) and part in sections[0].model_fields:
            annotation = sections[0].model_fields[part].annotation
            sections = [kind for kind in _classes_in(annotation) if issubclass(kind, Section)]
        elif isinstance(part, str):  # the `kind`, where there are several
            sections = [
                section
                for section in sections
                if part in getattr(section.model_fields["kind"].annotation, "__args__", ())
            ]
    return list(sections[0].model_fields)


def all_keys() -> list[str]:
    """List "section.key" of the sections that are neither in lists nor specific to a `kind`."""
    return [
        f"{name}.{key}"
        for name, field in Settings.model_fields.items()
        for section in _classes_in(field.annotation)
        if issubclass(section, Section)
        for key in section.model_fields
    ]


def _classes_in(annotation: Any) -> list[type]:
    if isinstance(annotation, type):
        return [annotation]
    return [kind for part in getattr(annotation, "__args__", ()) for kind in _classes_in(part)]

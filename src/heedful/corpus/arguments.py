"""Settings from command-line arguments: a heedful.toml, or the files of a corpus."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.config import Settings


def settings_from_arguments(
    files: Sequence[str],
    pair: str | None,
    sets: Sequence[str] = (),
    *,
    validation: Sequence[str] = (),
    test: Sequence[str] = (),
    recipe: str | None = None,
    out: str | None = None,
) -> "Settings":
    """Settings from one .toml, or from files and a language pair such as "en-de"."""
    from heedful.config import assign, load, parse_settings

    if is_settings_file(files):
        if pair or validation or test:
            raise ConfigError("the .toml sets the languages and files: remove --pair, --validation and --test")
        return load(files[0], [*([f"recipe={recipe}"] if recipe else []), *sets])
    if len(files) > 2:
        raise ConfigError(
            f"got {len(files)} files, but a corpus is two files, or one file with both languages. List "
            "several corpora in a heedful.toml. To pass two files to an option, repeat it: --validation "
            "val.en --validation val.de"
        )
    source, target = find_languages(files, pair)
    data = {"train": [{"files": list(files)}]} | {
        split: [{"files": list(paths)}] for split, paths in (("validation", validation), ("test", test)) if paths
    }
    tree: dict[str, Any] = {"source": source, "target": target, "data": data}
    if recipe:
        tree["recipe"] = recipe
    if out:
        tree["data"]["prepared_dir"] = (Path(out) / "prepared").as_posix()
    for setting in sets:
        assign(tree, setting)
    return parse_settings(tree, where="the command line", root=Path.cwd() if out else None)


def is_settings_file(files: Sequence[str]) -> bool:
    """Whether the files are one heedful.toml and not a corpus."""
    if len(files) > 1 and any(file.endswith(".toml") for file in files):
        raise ConfigError("the .toml lists the corpora: pass only the .toml, or only the files")
    return files[0].endswith(".toml")


def find_languages(files: Sequence[str], pair: str | None) -> tuple[str, str]:
    """Source and target language from --pair, or else from the suffixes of the files."""
    if pair:
        source, dash, target = pair.partition("-")
        if not (source and dash and target):
            raise ConfigError(f"--pair {pair}: expected two language codes, such as en-de")
        return source, target
    from heedful.corpus.readers import pair_format
    from heedful.corpus.text_files import strip_compression_suffix

    paths = [Path(file) for file in files]
    for path in paths:
        if path.is_dir():
            raise ConfigError(f"{path} is a directory: pass the files in it, for example: train.en train.de")
    suffixes = [strip_compression_suffix(path).suffix.removeprefix(".") for path in paths]
    if len(paths) == 2 and suffixes[0] != suffixes[1] and all(1 < len(suffix) <= 8 for suffix in suffixes):
        return suffixes[0], suffixes[1]
    if len(paths) == 1 and pair_format(paths[0]) == ".tsv":
        return "source", "target"
    if len(paths) == 1 and not pair_format(paths[0]) and paths[0].is_file():
        raise ConfigError(f"{paths[0]} is one text file: pass one file per language, for example: train.en train.de")
    if len(paths) == 2 and suffixes[0] == suffixes[1] and suffixes[0] not in ("", "txt"):
        raise ConfigError(f"both files end in .{suffixes[0]}: add the language pair, for example: --pair en-de")
    raise ConfigError("the file names do not show the languages: add the language pair, for example: --pair en-de")

"""Settings from command-line arguments: a heedful.toml, or the files of a corpus."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.errors import ConfigError, DataError, did_you_mean

if TYPE_CHECKING:
    from heedful.config import Settings
    from heedful.corpus.labels import LabeledText

# en-de, en-pt-BR, en-US-pt_BR: a subtag after the first dash begins with a capital letter.
PAIR = re.compile(r"([^\W\d_]+(?:[-_][A-Z][^\W_]*)*)-(\S+)")
FILES_HELP = "two text files, or one .tsv, .csv, .xlsx, .jsonl, .tmx or .parquet"
INPUT_KINDS = ("text", "image", "audio", "graph", "none")
INPUT_HELP = (
    "Kind of sources: text; image, for a table of pictures and captions; audio, for a table of recordings and "
    "transcripts; graph, for a table of graphs and labels; none, for a language model."
)
COLUMNS_HELP = "Columns of source and target in a table, by number or name: 2,3 or English,German (default: detected)."


def settings_from_arguments(
    files: Sequence[str],
    pair: str | None,
    sets: Sequence[str] = (),
    *,
    validation: Sequence[str] = (),
    test: Sequence[str] = (),
    recipe: str | None = None,
    out: str | None = None,
    columns: str | Sequence[str] | None = None,
    sheet: str | None = None,
    input: str | None = None,
) -> "Settings":
    """Settings from one .toml, or from files and a language pair such as "en-de"; `input` is a kind of sources."""
    from heedful.config import assign, load, parse_settings

    if is_settings_file(files):
        if pair or validation or test or input:
            raise ConfigError("the .toml sets the languages and files: remove --pair, --validation, --test and --input")
        settings = load(files[0], [*([f"recipe={recipe}"] if recipe else []), *sets])
        return select_columns(settings, columns, sheet)
    if len(files) > 2:
        raise ConfigError(
            f"got {len(files)} files, but a corpus is two files, or one file with both languages. List "
            "several corpora in a heedful.toml. To pass two files to an option, repeat it: --validation "
            "val.en --validation val.de"
        )
    recipe_input = find_input_of_recipe(recipe)
    kind = input or recipe_input or "text"
    if recipe_input not in (None, kind):
        raise ConfigError(f"the recipe {recipe} is for --input {recipe_input}, not for --input {kind}")
    if kind not in INPUT_KINDS:
        raise ConfigError(f"--input {kind} is not known" + did_you_mean(kind, INPUT_KINDS))
    output = find_output_of_sets(sets) or recipe_section(recipe, "output").get("kind")
    labeled = None
    may_be_labels = output in (None, "labels") and (recipe is None or output == "labels")
    if kind in ("text", "graph") and not pair and may_be_labels:
        labeled = find_labeled_text(files, split_columns(columns), sheet)
    if labeled:
        source = kind if kind != "text" else guess_source_language(labeled.texts)
        target = "labels"
        columns = columns or labeled.columns or None
    elif kind == "text":
        source, target = find_languages(files, pair, split_columns(columns), sheet)
    else:
        source, target = kind, find_target_language(files, pair, kind)
    data = {"train": [{"files": list(files)}]} | {
        split: [{"files": list(paths)}] for split, paths in (("validation", validation), ("test", test)) if paths
    }
    tree: dict[str, Any] = {"source": source, "target": target, "data": data}
    if kind != "text" and recipe_input is None:
        tree["input"] = {"kind": kind}
    if kind == "graph":
        from heedful.corpus.media import measure_graphs

        tree["input"] = {"kind": kind, **measure_graphs(files, split_columns(columns), sheet)}
    if labeled and output is None:
        tree["output"] = {"kind": "labels"}
    if recipe:
        tree["recipe"] = recipe
    if out:
        tree["data"]["prepared_dir"] = (Path(out) / "prepared").as_posix()
    for setting in sets:
        assign(tree, setting)
    settings = parse_settings(tree, where="the command line", root=Path.cwd() if out else None)
    return select_columns(settings, columns, sheet)


def find_input_of_recipe(recipe: str | None) -> str | None:
    """The kind of sources that a recipe is for; None if it does not say."""
    kind = recipe_section(recipe, "input").get("kind")
    return None if kind is None else str(kind)


def recipe_section(recipe: str | None, name: str) -> dict[str, Any]:
    """A section of a recipe; empty if there is none."""
    if recipe is None:
        return {}
    from heedful.config import read_recipe

    section: dict[str, Any] = read_recipe(recipe).get(name, {})
    return section


def find_output_of_sets(sets: Sequence[str]) -> str | None:
    """The value of `--set output.kind=...`, if it is among the settings."""
    return next((text.partition("=")[2] for text in reversed(sets) if text.startswith("output.kind=")), None)


def find_labeled_text(files: Sequence[str], columns: Sequence[str], sheet: str | None) -> "LabeledText | None":
    """The labels of a corpus, if its targets are a small closed set and all its files can be read."""
    from heedful.corpus.labels import find_labels
    from heedful.corpus.readers import pair_format

    paths = [Path(file) for file in files]
    is_readable = all(path.is_file() for path in paths) and (len(paths) == 2 or pair_format(paths[0]))
    if not is_readable or (len(paths) == 1 and pair_format(paths[0]) == ".tmx"):
        return None
    try:
        return find_labels(files, columns, sheet)
    except DataError:  # reported when the corpus is read
        return None


def guess_source_language(texts: Sequence[str]) -> str:
    from heedful.corpus.languages import guess_language

    return guess_language(list(texts)) or "und"


def find_target_language(files: Sequence[str], pair: str | None, kind: str) -> str:
    """The language of the text if the sources are not text: from --pair, the suffix of the file or the text itself."""
    from heedful.corpus.languages import guess_language
    from heedful.corpus.readers import language_suffix, pair_format, read_pairs

    if pair:
        language = pair.removeprefix(f"{kind}-")
        if PAIR.fullmatch(language):
            raise ConfigError(f"--pair {pair}: with --input {kind}, only the target is a language: --pair {kind}-en")
        return language
    path = Path(files[0])
    if (
        path.is_file()
        and not pair_format(path)
        and 1 < len(language_suffix(path)) <= 3
        and language_suffix(path) != "txt"
    ):
        return language_suffix(path)
    first_block = next(read_pairs(files, kind, "und"), None)
    return (guess_language(first_block.target) if first_block else None) or "und"


def split_columns(columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """The two columns of an option such as `--columns 2,3`; a name with a comma needs a sequence."""
    if columns is None:
        return ()
    names = tuple(name.strip() for name in columns.split(",")) if isinstance(columns, str) else tuple(map(str, columns))
    if len(names) != 2 or not all(names):
        raise ConfigError(f"--columns {columns}: expected two columns, source first, such as 2,3 or English,German")
    return names


def select_columns(settings: "Settings", columns: str | Sequence[str] | None, sheet: str | None) -> "Settings":
    """The settings with these columns and this sheet in every corpus that is a table."""
    from heedful.config import SPLITS
    from heedful.corpus.readers import is_table, is_workbook

    names, splits = split_columns(columns), {}
    corpora = [corpus for split in SPLITS for corpus in getattr(settings.data, split)]
    if names and not any(is_table(corpus.files) for corpus in corpora):
        raise ConfigError(
            "--columns is for tables (.csv, .tsv, .xlsx, .jsonl, .parquet), and no file is one: remove it"
        )
    if sheet and not any(is_workbook(corpus.files) for corpus in corpora):
        raise ConfigError("--sheet is for .xlsx workbooks, and no file is one: remove it")
    for split in SPLITS:
        splits[split] = tuple(
            corpus.model_copy(
                update=({"columns": names} if names and is_table(corpus.files) else {})
                | ({"sheet": sheet} if sheet and is_workbook(corpus.files) else {})
            )
            for corpus in getattr(settings.data, split)
        )
    return settings.model_copy(update={"data": settings.data.model_copy(update=splits)})


def is_settings_file(files: Sequence[str]) -> bool:
    """Whether the files are one heedful.toml and not a corpus."""
    if len(files) > 1 and any(file.endswith(".toml") for file in files):
        raise ConfigError("the .toml lists the corpora: pass only the .toml, or only the files")
    return files[0].endswith(".toml")


def find_languages(
    files: Sequence[str], pair: str | None, columns: Sequence[str] = (), sheet: str | None = None
) -> tuple[str, str]:
    """Source and target language from --pair, or else from the suffixes or the contents of the files."""
    if pair:
        match = PAIR.fullmatch(pair)
        if match is None:
            raise ConfigError(f"--pair {pair}: expected two language codes, such as en-de")
        return match[1], match[2]
    from heedful.corpus.readers import PAIR_FORMATS, pair_format
    from heedful.corpus.text_files import strip_compression_suffix

    paths = [Path(file) for file in files]
    for path in paths:
        if path.is_dir():
            raise ConfigError(
                f"{path} is a directory: pass the files in it, for example: train.en train.de; if it contains pictures "
                "and captions, add --input image; if recordings and transcripts, --input audio"
            )
    suffixes = [strip_compression_suffix(path).suffix.removeprefix(".") for path in paths]
    if len(paths) == 2 and suffixes[0] != suffixes[1] and all(1 < len(suffix) <= 8 for suffix in suffixes):
        return suffixes[0], suffixes[1]
    if len(paths) == 1 and pair_format(paths[0]) and paths[0].is_file():
        return detect_languages(paths[0], columns, sheet)
    if len(paths) == 1 and not pair_format(paths[0]) and paths[0].is_file():
        raise ConfigError(
            f"{paths[0]} is one text file: pass one file per language, for example: train.en train.de; or a "
            f"{PAIR_FORMATS} with both. For a language model, add --input none"
        )
    if len(paths) == 2 and suffixes[0] == suffixes[1] and suffixes[0] not in ("", "txt"):
        raise ConfigError(f"both files end in .{suffixes[0]}: add the language pair, for example: --pair en-de")
    raise ConfigError("the file names do not show the languages: add the language pair, for example: --pair en-de")


def detect_languages(path: Path, columns: Sequence[str], sheet: str | None) -> tuple[str, str]:
    """The languages of one file with both sides: as it declares them, or as its text looks."""
    from heedful.corpus.readers import pair_format
    from heedful.corpus.tables import TABLES, Selection, detect_layout, open_table
    from heedful.corpus.tmx import declared_languages, list_counts

    if pair_format(path) == ".tmx":
        codes = declared_languages(path)
        if len(codes) == 2 and all(codes):
            first, second = codes
            return first, second
        raise ConfigError(
            f"{path} has the languages {list_counts(codes)}: choose two, source first, for example: --pair "
            f"{'-'.join(list(codes)[:2]) if len(codes) > 1 else 'en-de'}"
        )
    if pair_format(path) in TABLES:
        selection = Selection(tuple(columns), sheet)
        layout = detect_layout(open_table(path, selection), selection=selection)
        source, target = layout.languages
        if source and target and source != target:
            return source, target
        guesses = " and ".join(
            f"column {column + 1} looks like {language}" if language else f"column {column + 1} is not clear"
            for column, language in zip(layout.columns, layout.languages, strict=True)
        )
        raise ConfigError(
            f"{path}: the languages are not certain ({guesses}): add the language pair, source first, for example: "
            "--pair en-de. If it is not natural language, use any two names: --pair source-target. If a column "
            "contains the paths of pictures, add --input image; of recordings, --input audio; of graphs, --input graph"
        )
    raise ConfigError(f"{path.name} does not show its languages: add the language pair, for example: --pair en-de")

"""Texts as arguments of functions: files, or lists of lines. Settings of a check or a run from such texts."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.corpus.arguments import is_settings_file, settings_from_arguments
from heedful.corpus.replay import add_replay
from heedful.corpus.text_files import suggest_path
from heedful.errors import ConfigError, DataError
from heedful.files import update_text

if TYPE_CHECKING:
    from heedful.config import Settings

Texts = str | Path | Sequence[str]  # a file, or lines
SURROGATE = re.compile("[\ud800-\udfff]")  # cannot be written to a file
MAX_FILE_NAMES = 10  # a longer list of strings cannot be a list of file names


def settings_from_texts(
    source: "Settings | Texts",
    target: Texts | None,
    folder: Path | None,
    *,
    pair: str | None = None,
    validation: Sequence[Texts] = (),
    test: Sequence[Texts] = (),
    columns: str | Sequence[str] | None = None,
    sheet: str | None = None,
    input: str | None = None,
    **options: Any,
) -> "Settings":
    """Settings from the arguments of `heedful.check` and `heedful.train`; lists of lines are written to `folder`.

    `options` are those of `training_settings`.
    """
    from heedful.config import Settings

    if isinstance(source, Settings):
        if any((target is not None, pair, validation, test, columns, sheet, input, *options.values())):
            raise ConfigError("the settings name the files and all options: pass no other arguments")
        return source
    if target is None and not isinstance(source, str | Path) and input != "none":
        raise ConfigError("the source is a list of lines: pass the list of their translations too")
    for split, corpus in (("validation", validation), ("test", test)):
        if isinstance(corpus, str | Path):
            raise ConfigError(f"{split} must be a list of one or two files, for example: ['{split}.en', '{split}.de']")
    corpora = {"train": [source] if target is None else [source, target], "validation": validation, "test": test}
    suffixes = pair.split("-", 1) if pair else ["source", "target"]
    files = {split: write_lists(corpus, split, suffixes, folder) for split, corpus in corpora.items()}
    make_settings = training_settings if options else settings_from_arguments
    splits: dict[str, Any] = {split: files[split] for split in ("validation", "test")}
    return make_settings(files["train"], pair, **splits, columns=columns, sheet=sheet, input=input, **options)


def write_lists(corpus: Sequence[Texts], split: str, suffixes: Sequence[str], folder: Path | None) -> list[str]:
    """The files of a corpus; lists of lines are written to `folder`, for example to train.en and train.de."""
    files = []
    for number, texts in enumerate(corpus):
        if isinstance(texts, str | Path):
            files.append(str(texts))
            continue
        if folder is None:
            raise ConfigError("lists of lines are stored in the run directory: pass one, for example: out='my-model'")
        path = folder / f"{split}.{suffixes[min(number, len(suffixes) - 1)]}"
        lines = check_lines(texts, f"the {('source', 'target')[min(number, 1)]} of {split}")
        path.parent.mkdir(parents=True, exist_ok=True)
        update_text(path, "".join(f"{line}\n" for line in lines))
        files.append(str(path))
    return files


def check_lines(lines: Iterable[Any], name: str) -> list[str]:
    """The lines as a list; DataError unless they are strings without line breaks, and not the names of files."""
    lines = list(lines)
    if not lines:
        raise DataError(f"{name} is an empty list: pass one string per line")
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str) or "\n" in line:
            problem = "has a line break" if isinstance(line, str) else f"is not a string but {type(line).__name__}"
            raise DataError(f"line {number:,} of {name} {problem}: pass one string per line")
        if not line.isascii() and SURROGATE.search(line):
            raise DataError(f"line {number:,} of {name} has half a character (a surrogate): decode the text as UTF-8")
    if len(lines) <= MAX_FILE_NAMES and all(0 < len(line) < 200 and Path(line).is_file() for line in lines):
        raise DataError(f"{name} is a list of file names, but a list contains lines: pass Path objects for files")
    return lines


def training_settings(
    files: Sequence[str],
    pair: str | None = None,
    *,
    out: str | Path | None = None,
    time: str | None = None,
    steps: int | None = None,
    recipe: str | None = None,
    init_from: str | Path | None = None,
    validation: Sequence[str] = (),
    test: Sequence[str] = (),
    columns: str | Sequence[str] | None = None,
    sheet: str | None = None,
    replay: float | None = None,
    input: str | None = None,
    sets: Sequence[str] = (),
) -> "Settings":
    """The settings of a run, from a heedful.toml or from files, and from options."""
    out = None if out is None else str(out)
    run_paths: list[str] = []
    if len(files) == 1 and Path(files[0]).is_dir() and input is None:
        run_paths = moved_run_settings(Path(files[0]))
        files = [find_settings_file(Path(files[0]))]
    if not out and not is_settings_file(files):
        require_files(files, input)
        raise ConfigError("no run directory: add one, for example: --out my-model")
    if init_from and recipe:
        raise ConfigError(
            "--from and --recipe cannot be combined: --from uses the settings of the model it names. Remove --recipe"
        )
    if not recipe and not init_from and not is_settings_file(files) and any(text.startswith("model.") for text in sets):
        raise ConfigError(
            "--set model.* needs a recipe, because the autopilot chooses all of [model]: add --recipe "
            "transformer-tiny. Or train without --set model.*, edit autopilot.toml in the run directory, "
            "and train with that file"
        )
    start = [f"init_from={Path(init_from).absolute().as_posix()}"] if init_from else []
    sets = [*run_paths, *option_settings(out, time, steps), *start, *sets]
    settings = settings_from_arguments(
        files,
        pair,
        sets,
        validation=validation,
        test=test,
        recipe=recipe,
        out=out,
        columns=columns,
        sheet=sheet,
        input=input,
    )
    if steps is not None and settings.train.time is not None:  # the .toml has a time
        settings = settings.model_copy(update={"train": settings.train.model_copy(update={"time": None})})
    return settings if replay is None else add_replay(settings, replay)


def require_files(files: Sequence[str], input: str | None) -> None:
    """DataError for a file that does not exist; one name alone can also be the prefix of two files, like data/train."""
    from heedful.corpus.readers import pair_format

    for path in map(Path, files):
        is_prefix = len(files) == 1 and input is None and not pair_format(path)
        if not is_prefix and not path.exists():
            raise DataError(f"there is no file {path}{suggest_path(path)}")


def moved_run_settings(folder: Path) -> list[str]:
    """The paths of a run, which its heedful.toml may name as they were before it was moved or copied."""
    if not (folder / "requested.json").is_file():  # a project, not a run
        return []
    settings = [f"train.output_dir={folder.absolute().as_posix()}"]
    prepared = folder / "prepared"
    return [*settings, *([f"data.prepared_dir={prepared.absolute().as_posix()}"] if prepared.is_dir() else [])]


def find_settings_file(folder: Path) -> str:
    """The heedful.toml in the directory of a run, or of a project that `heedful init` wrote."""
    path = folder / "heedful.toml"
    if not path.is_file():
        raise ConfigError(
            f"{folder} is a directory without a heedful.toml: pass the directory of a run, or the files with sentence "
            "pairs, for example: train.en train.de; for pictures with captions, add --input "
            "image; for recordings with transcripts, --input audio"
        )
    return str(path)


def option_settings(out: str | None, time: str | None, steps: int | None) -> list[str]:
    """The options --time, --steps and --out as settings such as `train.steps=10`."""
    if time is not None and steps is not None:
        raise ConfigError("use --time or --steps, not both")
    settings = [f"train.time={time}"] if time is not None else []
    settings += [f"train.steps={steps}"] if steps is not None else []
    return [*settings, *([f"train.output_dir={Path(out).absolute().as_posix()}"] if out else [])]

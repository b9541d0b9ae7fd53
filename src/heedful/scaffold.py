"""`heedful.init(...)`: write a commented heedful.toml for the given files.

    heedful.init("first", sample="pt-en", time="4m")
    heedful.init("captions", ["train.en", "train.de"], time="40m")

The file sets the corpora, the languages and the training time; the autopilot chooses everything else. Other keys are
shown as comments.
"""

import json
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path

from heedful import samples
from heedful.config import parse_settings
from heedful.corpus.readers import is_table, is_workbook, resolve_files
from heedful.errors import ConfigError, suggest_arguments

SETTINGS_FILE = "heedful.toml"
SAMPLE_SPLITS = {"train": "train", "validation": "valid", "test": "test"}  # split -> its name in a sample
SPLIT_COMMENTS = {
    "train": "the training pairs; add more corpora with more of these sections",
    "validation": "measures progress during training; without it, some pairs are held out",
    "test": "scored once, at the end; never used for selection",
}


@suggest_arguments
def init(
    folder: str | Path,
    files: Sequence[str | Path] = (),
    *,
    languages: tuple[str, str] | None = None,
    sample: str | None = None,
    validation: Sequence[str | Path] = (),
    test: Sequence[str | Path] = (),
    time: str = "40m",
    recipe: str | None = None,
    columns: Sequence[str] = (),
    sheet: str | None = None,
) -> Path:
    """Write `folder`/heedful.toml for these files, or unpack a sample and write it for the sample; return its path.

    `columns` and `sheet` are those of tables (.csv, .tsv, .xlsx). An existing heedful.toml is never overwritten.
    """
    folder = Path(folder)
    path = folder / SETTINGS_FILE
    if path.exists():
        raise ConfigError(f"{path} exists already: train with it, or choose another directory")
    if sample:
        if files or validation or test:
            raise ConfigError("a sample has its own files: pass --sample or files, not both")
        data = folder / "data"
        if sample in samples.MEDIA:
            source, target, corpora = samples.MEDIA[sample], "en", {"train": [data / "train.tsv"]}
            recipe = recipe or SAMPLE_RECIPES[source]  # the autopilot needs more pairs
        else:
            samples.sample_folder(sample)
            source, target = sample.split("-")
            corpora = {
                split: [data / f"{part}.{code}" for code in (source, target)] for split, part in SAMPLE_SPLITS.items()
            }
    elif files and languages:
        source, target = languages
        splits = {"train": files, "validation": validation, "test": test}
        corpora = {split: list(resolve_files(paths, source, target)) for split, paths in splits.items() if paths}
    else:
        raise ConfigError("pass the files with the sentence pairs and their languages, or a sample")
    text = make_toml(folder, source, target, corpora, time, recipe, columns, sheet)
    parse_settings(tomllib.loads(text), where="heedful init")
    if sample:
        unpack = samples.unpack_media if sample in samples.MEDIA else samples.unpack
        unpack(sample, folder / "data")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


SAMPLE_RECIPES = {"image": "captions-transformer", "audio": "speech-lstm"}
INPUT_LINES = {
    "image": [
        ("", ""),
        ("[input]", ""),
        ('kind = "image"', "the sources are pictures, scaled to 32 x 32 pixels: see docs/data.md"),
    ],
    "audio": [
        ("", ""),
        ("[input]", ""),
        ('kind = "audio"', "the sources are recordings: see docs/guide/speech.md"),
        ("rate = 8000", "samples per second"),
        ("bands = 40", "numbers per frame, for tones up to 4 kHz"),
        ("", ""),
        ("[tokenizer]", ""),
        ('kind = "words"', "one token for each digit"),
    ],
}


def make_toml(
    folder: Path,
    source: str,
    target: str,
    corpora: dict[str, list[Path]],
    time: str,
    recipe: str | None,
    columns: Sequence[str] = (),
    sheet: str | None = None,
) -> str:
    """Return the text of a commented heedful.toml."""
    lines = [
        ("# Settings for `heedful train`. Paths are relative to the directory of this file.", ""),
        *([] if source in INPUT_LINES else [(f"source = {quote_toml(source)}", "the source language")]),
        (f"target = {quote_toml(target)}", "the target language"),
        (
            f"recipe = {quote_toml(recipe or 'transformer-tiny')}",
            "a model and its settings; without it, the autopilot chooses them for your corpus and machine",
        ),
    ]
    if recipe is None:
        lines[-1] = ("# " + lines[-1][0], lines[-1][1])
    for split, files in corpora.items():
        names = ", ".join(quote_toml(relative_path(path, folder)) for path in files)
        lines += [("", ""), (f"[[data.{split}]]", SPLIT_COMMENTS[split]), (f"files = [{names}]", "")]
        if is_table(files):
            lines += [(f"columns = [{', '.join(map(quote_toml, columns))}]", "source and target")] if columns else []
            lines += [(f"sheet = {quote_toml(sheet)}", "")] if sheet and is_workbook(files) else []
    lines += INPUT_LINES.get(source, [])
    lines += [
        ("", ""),
        ("[train]", ""),
        (f"time = {quote_toml(time)}", "from start to end; Ctrl-C is safe, and the same command resumes"),
        ('output_dir = "run"', "checkpoints, the report and the model"),
    ]
    width = max(len(line) for line, comment in lines if comment)
    return "".join((f"{line:{width}}  # {comment}" if comment else line) + "\n" for line, comment in lines)


def relative_path(path: Path, folder: Path) -> str:
    """Return a path relative to `folder`, or absolute on another drive."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # another drive on Windows
        return path.absolute().as_posix()


def quote_toml(text: str) -> str:
    """Quote a string for TOML, which quotes like JSON."""
    return json.dumps(text, ensure_ascii=False)

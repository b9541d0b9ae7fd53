"""`heedful.init(...)`: a folder with a commented heedful.toml, from the files one has.

    heedful.init("first", sample="pt-en", time="4m")
    heedful.init("captions", ["train.en", "train.de"], time="40m")

Nothing is chosen here that the autopilot chooses better: the file says where the pairs are, which languages they have
and how long training may take. What else could be said stands in it as a comment.
"""

import json
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path

from heedful import samples
from heedful.config import check
from heedful.corpus.readers import resolve_files
from heedful.errors import ConfigError

FILE = "heedful.toml"
SPLITS = {"train": "train", "validation": "valid", "test": "test"}  # and the sample's names for them
WHY = {
    "train": "what it learns from; more of these may follow",
    "validation": "how good it is on the way; leave it out and some pairs are held out",
    "test": "scored once, at the end; nothing is chosen on it",
}


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
) -> Path:
    """Write `folder`/heedful.toml for these files, or for a sample that is unpacked beside it; gives its path.

    A heedful.toml that is there already is never written over.
    """
    folder = Path(folder)
    path = folder / FILE
    if path.exists():
        raise ConfigError(f"{path} is there already: train with it, or name another folder")
    if sample:
        if files or validation or test:
            raise ConfigError("a sample brings its own files: give --sample or files, not both")
        samples.place(sample)
        source, target = sample.split("-")
        data = folder / "data"
        corpora = {split: [data / f"{part}.{code}" for code in (source, target)] for split, part in SPLITS.items()}
    elif files and languages:
        source, target = languages
        given = {"train": files, "validation": validation, "test": test}
        corpora = {split: list(resolve_files(some, source, target)) for split, some in given.items() if some}
    else:
        raise ConfigError("say which files hold the pairs and which languages they have, or name a sample")
    text = configuration(folder, source, target, corpora, time, recipe)
    check(tomllib.loads(text), where="heedful init")
    if sample:
        samples.unpack(sample, folder / "data")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    return path


def configuration(
    folder: Path, source: str, target: str, corpora: dict[str, list[Path]], time: str, recipe: str | None
) -> str:
    """The text of a heedful.toml, every line explained."""
    lines = [
        ("# What `heedful train` reads. Paths are taken from this file's folder.", ""),
        (f"source = {quoted(source)}", "the language that is read"),
        (f"target = {quoted(target)}", "the language that is written"),
        (
            f"recipe = {quoted(recipe or 'transformer-tiny')}",
            "a model and its settings; without it they are chosen by your corpus and your machine",
        ),
    ]
    if recipe is None:
        lines[-1] = ("# " + lines[-1][0], lines[-1][1])
    for split, files in corpora.items():
        named = ", ".join(quoted(relative(one, folder)) for one in files)
        lines += [("", ""), (f"[[data.{split}]]", WHY[split]), (f"files = [{named}]", "")]
    lines += [
        ("", ""),
        ("[train]", ""),
        (f"time = {quoted(time)}", "from start to end; Ctrl-C is safe, and the same command goes on"),
        ('folder = "run"', "checkpoints, the report and the model"),
    ]
    width = max(len(left) for left, why in lines if why)
    return "".join((f"{left:{width}}  # {why}" if why else left) + "\n" for left, why in lines)


def relative(path: Path, folder: Path) -> str:
    """A path as the file writes it: from its folder, where one way leads there."""
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # another drive of Windows
        return path.absolute().as_posix()


def quoted(text: str) -> str:
    """A string of TOML; JSON writes it the same way."""
    return json.dumps(text, ensure_ascii=False)

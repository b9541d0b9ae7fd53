"""Translations on the command line: who said what, and what should have been said."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.errors import ConfigError, DataError
from heedful.metrics.score import Options, bleu_of, measure
from heedful.text.normalize import escape_invisible

if TYPE_CHECKING:
    from heedful.translation.translator import Translator

WINDOW = 500  # lines that a model translates between two words about the progress


@dataclass(frozen=True, slots=True)
class Used:
    """A model that was given instead of a file, and what it said."""

    translator: "Translator"
    said: list[str]
    seconds: float

    @property
    def summary(self) -> dict[str, float]:
        """Its size, and how fast it was here."""
        bundle = self.translator.bundle
        size = sum(one.stat().st_size for one in self.translator.location.rglob("*") if one.is_file())
        return {
            "weights": bundle.description.parameters,
            "megabytes": round(size / 1e6, 1),
            "lines_a_second": round(len(self.said) / self.seconds, 1),
        }

    @property
    def line(self) -> str:
        """The same for a person."""
        found = self.summary
        return (
            f"{found['weights']:,} weights, {found['megabytes']:,} MB; {found['lines_a_second']:,} lines a second here"
        )


@dataclass(frozen=True, slots=True)
class Given:
    """Texts of equally many lines."""

    systems: dict[str, list[str]]  # by name, what each said
    references: list[list[str]]
    sources: list[str] | None
    models: dict[str, Used] = field(default_factory=dict)  # those of the systems that are models

    def line(self, number: int, *systems: str) -> list[tuple[str, str]]:
        """All there is of a line, counted from 1, and what it is: source, references, what some systems said."""
        found = [("source", self.sources[number - 1])] if self.sources else []
        for at, one in enumerate(self.references, 1):
            found.append((f"reference {at}" if len(self.references) > 1 else "reference", one[number - 1]))
        return found + [(name, self.systems[name][number - 1]) for name in systems]


def read(systems: Mapping[str, str], references: Sequence[str], source: str | None) -> Given:
    """What systems said, what they should have said, and of what: line N of each belongs to line N of the others."""
    sources = texts_of(source) if source else None
    wanted = [texts_of(one) for one in references]
    texts = dict(zip(references, wanted, strict=True)) | ({source: sources} if source and sources else {})
    as_many(texts)
    said, models = {}, {}
    for name, one in systems.items():
        if Path(one).is_dir():
            models[name] = used(one, sources)
            said[name] = models[name].said
        else:
            said[name] = texts_of(one)
            as_many({one: said[name]} | texts)
    return Given(said, wanted, sources, models)


def as_many(texts: Mapping[str, Sequence[str]]) -> None:
    """An error where files have unequal numbers of lines."""
    (first, lines), *others = texts.items()
    for name, some in others:
        if len(some) != len(lines):
            raise DataError(
                f"{first} has {len(lines):,} lines and {name} has {len(some):,}: line N of one must belong to "
                "line N of the other; was a line lost, or is one of them of another test set?"
            )


def used(folder: str, sources: Sequence[str] | None) -> Used:
    """A model, and what it says of the sources."""
    if sources is None:
        raise ConfigError(f"{folder} is a model: say what it shall translate, such as --source test.en")
    from heedful.cli.translate import Told
    from heedful.translation.translator import TranslationOptions, load

    translator, told, said = load(folder), Told(), []
    begin = time.perf_counter()
    windows = (list(sources[at : at + WINDOW]) for at in range(0, len(sources), WINDOW))
    for found in translator.stream(told.between(windows), TranslationOptions()):
        said.append(found.text)
        told.lines += 1
    return Used(translator, said, time.perf_counter() - begin)


def texts_of(given: str) -> list[str]:
    """The lines of a text, plain, .gz or .zst; an error where one cannot be read."""
    from heedful.corpus.readers import reject_reason
    from heedful.corpus.text_files import MAX_LINE_BYTES, iterate_lines, suggest_path

    path, texts = Path(given), []
    if path.is_dir():
        raise ConfigError(
            f"{given} is a folder, and a text belongs here. A model is named first in heedful evaluate MODEL test.de "
            "--source test.en, and last in heedful compare test.de MODEL --source test.en"
        )
    if not path.is_file():
        raise DataError(f"there is no file {given}{suggest_path(path)}")
    for number, line in enumerate(iterate_lines(path), 1):
        if wrong := reject_reason(line, MAX_LINE_BYTES):
            raise DataError(f"{given}:{number}: {wrong}; mend it, or save the file as UTF-8")
        texts.append(line.decode())
    if not texts:
        raise DataError(f"{given} is empty; name the right file")
    return texts


def warn(texts: Sequence[str]) -> None:
    """What is likely wrong, beside the results."""
    for text in texts:
        typer.echo(f"heedful: warning: {escape_invisible(text)}", err=True)


def asked(metrics: Sequence[str], tokenize: str, lowercase: bool, smooth: str) -> tuple[list[str], Options]:
    """Metrics (["a,b", "c"] are three) and their options; a mistake is told before anything is computed."""
    names = list(dict.fromkeys(name for one in metrics for name in one.split(",")))
    options = Options(tokenize, lowercase, smooth)
    bleu_of(options)
    for name in names:
        measure(name)
    return names, options


def chance(p: float | None) -> str:
    """A p-value, with as many digits as say something."""
    return "" if p is None else f"{p:.3f}" if p >= 0.001 else "< 0.001"

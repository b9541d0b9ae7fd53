"""The systems that `heedful evaluate` and `heedful compare` score: files of translations, or models."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.errors import ConfigError, DataError
from heedful.metrics.score import MetricOptions, find_metric, make_bleu
from heedful.text.normalize import escape_invisible

if TYPE_CHECKING:
    from heedful.translation.translator import Translator

WINDOW_LINES = 500  # translated between two progress reports


@dataclass(frozen=True, slots=True)
class UsedModel:
    """A system that is a model, and its translations."""

    translator: "Translator"
    translations: list[str]
    seconds: float

    @property
    def summary(self) -> dict[str, float]:
        num_bytes = sum(file.stat().st_size for file in self.translator.location.rglob("*") if file.is_file())
        return {
            "weights": self.translator.bundle.description.parameters,
            "megabytes": round(num_bytes / 1e6, 1),
            "lines_a_second": round(len(self.translations) / self.seconds, 1),
        }

    @property
    def size_and_speed(self) -> str:
        weights, megabytes, speed = self.summary.values()
        return f"{weights:,} weights, {megabytes:,} MB; {speed:,} lines per second on this machine"


@dataclass(frozen=True, slots=True)
class ScoredTexts:
    """Translations, references and sources with equal numbers of lines."""

    systems: dict[str, list[str]]  # translations by the name of the system
    references: list[list[str]]
    sources: list[str] | None
    models: dict[str, UsedModel] = field(default_factory=dict)  # the systems that are models

    def labeled_line(self, number: int, *systems: str) -> list[tuple[str, str]]:
        """(label, text) of source, references and translations by `systems` of line `number`, counted from 1."""
        rows = [("source", self.sources[number - 1])] if self.sources else []
        for index, lines in enumerate(self.references, 1):
            rows.append((f"reference {index}" if len(self.references) > 1 else "reference", lines[number - 1]))
        return rows + [(name, self.systems[name][number - 1]) for name in systems]


def read_texts(systems: Mapping[str, str], references: Sequence[str], source: str | None) -> ScoredTexts:
    """Read files and run models on the source; all texts must have the same number of lines."""
    source_lines = read_lines(source) if source else None
    reference_lines = [read_lines(path) for path in references]
    texts = dict(zip(references, reference_lines, strict=True))
    texts |= {source: source_lines} if source and source_lines else {}
    check_line_counts(texts)
    translations, models = {}, {}
    for name, path in systems.items():
        if Path(path).is_dir():
            models[name] = translate_source(path, source_lines)
            translations[name] = models[name].translations
        else:
            translations[name] = read_lines(path)
            check_line_counts({path: translations[name]} | texts)
    return ScoredTexts(translations, reference_lines, source_lines, models)


def check_line_counts(texts: Mapping[str, Sequence[str]]) -> None:
    (first_name, first_lines), *others = texts.items()
    for name, lines in others:
        if len(lines) != len(first_lines):
            raise DataError(
                f"{first_name} has {len(first_lines):,} lines and {name} has {len(lines):,}, but line N of one must "
                "match line N of the other: look for a missing line, or a file from another test set"
            )


def translate_source(folder: str, sources: Sequence[str] | None) -> UsedModel:
    if sources is None:
        raise ConfigError(f"{folder} is a model: add the text to translate, for example: --source test.en")
    from heedful.cli.translate import ProgressReporter
    from heedful.translation.translator import TranslationOptions, load

    translator, reporter, translations = load(folder), ProgressReporter(), []
    start_time = time.perf_counter()
    windows = (list(sources[start : start + WINDOW_LINES]) for start in range(0, len(sources), WINDOW_LINES))
    for translation in translator.stream(reporter.report_between(windows), TranslationOptions()):
        translations.append(translation.text)
        reporter.lines += 1
    return UsedModel(translator, translations, time.perf_counter() - start_time)


def read_lines(file: str) -> list[str]:
    """The lines of a text file (plain, .gz or .zst)."""
    from heedful.corpus.readers import reject_reason
    from heedful.corpus.text_files import MAX_LINE_BYTES, iterate_lines, suggest_path

    path, texts = Path(file), []
    if path.is_dir():
        raise ConfigError(
            f"{file} is a directory, but a text file is expected here. The model is the first argument of "
            "heedful evaluate (heedful evaluate MODEL test.de --source test.en) and the last of heedful "
            "compare (heedful compare test.de MODEL --source test.en)"
        )
    if not path.is_file():
        raise DataError(f"there is no file {file}{suggest_path(path)}")
    for number, line in enumerate(iterate_lines(path), 1):
        if problem := reject_reason(line, MAX_LINE_BYTES):
            raise DataError(f"{file}:{number}: {problem}; fix the line, or save the file as UTF-8")
        texts.append(line.decode())
    if not texts:
        raise DataError(f"{file} is empty: check that it is the right file")
    return texts


def print_warnings(texts: Sequence[str]) -> None:
    for text in texts:
        typer.echo(f"heedful: warning: {escape_invisible(text)}", err=True)


def parse_metrics(
    metrics: Sequence[str], tokenize: str, lowercase: bool, smooth: str
) -> tuple[list[str], MetricOptions]:
    """The metric names (["a,b", "c"] are three) and options, all validated."""
    names = list(dict.fromkeys(name for value in metrics for name in value.split(",")))
    options = MetricOptions(tokenize, lowercase, smooth)
    make_bleu(options)
    for name in names:
        find_metric(name)
    return names, options


def format_p_value(p: float | None) -> str:
    """0.123, or < 0.001; empty for None."""
    return "" if p is None else f"{p:.3f}" if p >= 0.001 else "< 0.001"

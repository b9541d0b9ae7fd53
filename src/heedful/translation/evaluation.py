"""`heedful.evaluate(...)` and `heedful.compare(...)`: score translations, which are lists, files or models.

    heedful.evaluate("test.hypotheses", "test.de")["bleu"].value
    heedful.evaluate("my-model", "test.de", source="test.en", metrics="chrf")
    heedful.compare({"old": "old.hypotheses", "new": new_lines}, "test.de").compared[0].tally

A string or a `Path` names a file (plain, .gz or .zst) or a model; a list contains the lines.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.corpus.texts import Texts, check_lines
from heedful.errors import ConfigError, DataError, suggest_arguments
from heedful.metrics.compare import Comparison
from heedful.metrics.compare import compare as compare_systems
from heedful.metrics.score import DEFAULT_SAMPLES, Interval, MetricOptions, find_metric, interval, make_bleu, make_stem
from heedful.samples import MODELS

if TYPE_CHECKING:
    from heedful.translation.translator import Translator

WINDOW_LINES = 500  # translated between two progress reports
SYSTEM_NAME = "translation"  # of the only system that is evaluated

WindowWatcher = Callable[[Iterable[list[str]]], Iterable[list[str]]]  # yields the windows, and reports progress


@suggest_arguments
def evaluate(
    hypotheses: "Texts | Translator",
    references: Texts | Sequence[Texts],
    *,
    source: Texts | None = None,
    metrics: str | Sequence[str] = ("bleu", "chrf", "ter"),
    tokenization: str = "13a",
    lowercase: bool = False,
    smoothing: str = "exp",
    stemmer: str | None = None,
    samples: int = DEFAULT_SAMPLES,
) -> dict[str, Interval]:
    """Score translations, or a model on `source`, against one or several references; return a score per metric.

    The lines of a text are a list; several references are a list of lists or of `Path` objects. `samples` is the number
    of resamplings for the 95 % intervals.
    """
    names, options = parse_metrics(metrics, MetricOptions(tokenization, lowercase, smoothing, stemmer))
    texts = read_texts({SYSTEM_NAME: hypotheses}, as_list_of_texts(references), source)
    lines = texts.systems[SYSTEM_NAME]
    return {name: interval(name, lines, texts.references, options=options, samples=samples) for name in names}


@suggest_arguments
def compare(
    systems: "Mapping[str, Texts | Translator]",
    references: Texts | Sequence[Texts],
    *,
    source: Texts | None = None,
    metrics: str | Sequence[str] = ("bleu", "chrf"),
    test: str = "bs",
    samples: int | None = None,
    tokenization: str = "13a",
    lowercase: bool = False,
    smoothing: str = "exp",
    stemmer: str | None = None,
) -> Comparison:
    """Compare systems, by name, with the first one: scores with p-values, and the differences of each line.

    Systems and references are those of `heedful.evaluate`. `test` is "bs" (paired bootstrap) or "ar" (approximate
    randomization), with `samples` resamplings.
    """
    if not isinstance(systems, Mapping):
        raise ConfigError('systems must be a dict, for example: {"old": "old.hypotheses", "new": "new.hypotheses"}')
    names, options = parse_metrics(metrics, MetricOptions(tokenization, lowercase, smoothing, stemmer))
    texts = read_texts(systems, as_list_of_texts(references), source)
    return compare_systems(texts.systems, texts.references, metrics=names, test=test, samples=samples, options=options)


# --------------------------------------------------------------------------------------------- files, lists and models


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


def read_texts(
    systems: "Mapping[str, Texts | Translator]",
    references: Sequence[Texts],
    source: Texts | None,
    watch: WindowWatcher = iter,
) -> ScoredTexts:
    """Read files and run models on the source; all texts must have the same number of lines."""
    source_lines = None if source is None else read_lines(source, "the source")
    reference_names = [
        "the reference" if len(references) == 1 else f"reference {number}" for number in range(1, len(references) + 1)
    ]
    reference_lines = [read_lines(*named) for named in zip(references, reference_names, strict=True)]
    texts = {
        text_name(text, name): lines
        for text, name, lines in zip(references, reference_names, reference_lines, strict=True)
    }
    texts |= {text_name(source, "the source"): source_lines} if source is not None and source_lines else {}
    check_line_counts(texts)
    translations, models = {}, {}
    for name, system in systems.items():
        if isinstance(system, str | Path | Sequence) and not is_model(system):
            translations[name] = read_lines(system, name)
            check_line_counts({text_name(system, name): translations[name]} | texts)
        else:
            models[name] = translate_source(system, source_lines, watch)
            translations[name] = models[name].translations
    return ScoredTexts(translations, reference_lines, source_lines, models)


def as_list_of_texts(references: Texts | Sequence[Texts]) -> list[Texts]:
    """One or several references as a list; a list of strings is one reference."""
    if isinstance(references, str | Path) or all(isinstance(line, str) for line in references):
        return [references]  # type: ignore[list-item]
    return list(references)


def is_model(system: Texts) -> bool:
    """Whether a system is a directory or the name of a sample model."""
    return isinstance(system, str | Path) and (
        Path(system).is_dir() or (str(system) in MODELS and not Path(system).exists())
    )


def text_name(texts: Texts, name: str) -> str:
    """How a message names a text: its file, or else `name`."""
    return str(texts) if isinstance(texts, str | Path) else name


def check_line_counts(texts: Mapping[str, Sequence[str]]) -> None:
    (first_name, first_lines), *others = texts.items()
    for name, lines in others:
        if len(lines) != len(first_lines):
            raise DataError(
                f"{first_name} has {len(first_lines):,} lines and {name} has {len(lines):,}, but line N of one must "
                "match line N of the other: look for a missing line, or a file from another test set"
            )


def translate_source(
    model: "Texts | Translator", sources: Sequence[str] | None, watch: WindowWatcher = iter
) -> UsedModel:
    from heedful.translation.loading import load
    from heedful.translation.translator import TranslationOptions, Translator

    if not isinstance(model, str | Path | Translator):
        raise ConfigError("a system must be a file, a list of lines, a model directory or a translator")
    if sources is None:
        name = model.location if isinstance(model, Translator) else model
        raise ConfigError(
            f"{name} is a model: add the text to translate, for example: --source test.en (in Python: source=)"
        )
    translator = model if isinstance(model, Translator) else load(model)
    if translator.bundle.description.input.kind == "none":
        raise ConfigError(f"{translator.location} is a language model, which translates nothing")
    start_time = time.perf_counter()
    windows = (list(sources[start : start + WINDOW_LINES]) for start in range(0, len(sources), WINDOW_LINES))
    translations = [translation.text for translation in translator.stream(watch(windows), TranslationOptions())]
    return UsedModel(translator, translations, time.perf_counter() - start_time)


def read_lines(texts: Texts, name: str = "the text") -> list[str]:
    """The lines of a text file (plain, .gz or .zst), or of a list; messages use `name` for a list."""
    if not isinstance(texts, str | Path):
        return check_lines(texts, name)
    from heedful.corpus.readers import reject_reason
    from heedful.corpus.text_files import MAX_LINE_BYTES, iterate_lines, suggest_path

    path, lines = Path(texts), []
    if path.is_dir():
        raise ConfigError(
            f"{texts} is a directory, but a text file is expected here. The model is the first argument of "
            "heedful evaluate (heedful evaluate MODEL test.de --source test.en) and the last of heedful "
            "compare (heedful compare test.de MODEL --source test.en)"
        )
    if not path.is_file():
        hint = suggest_path(path) or ("; pass text as a list of lines, not as a string" if " " in str(texts) else "")
        raise DataError(f"there is no file {texts}{hint}")
    for number, line in enumerate(iterate_lines(path), 1):
        if problem := reject_reason(line, MAX_LINE_BYTES):
            raise DataError(f"{texts}:{number}: {problem}; fix the line, or save the file as UTF-8")
        lines.append(line.decode())
    if not lines:
        raise DataError(f"{texts} is empty: check that it is the right file")
    return lines


def parse_metrics(metrics: str | Sequence[str], options: MetricOptions) -> tuple[list[str], MetricOptions]:
    """The metric names (["a,b", "c"] are three) and options, all validated."""
    values = [metrics] if isinstance(metrics, str) else metrics
    names = list(dict.fromkeys(name.strip() for value in values for name in value.split(",")))
    make_bleu(options)
    make_stem(options)
    for name in names:
        find_metric(name)
    return names, options

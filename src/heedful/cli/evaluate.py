"""`heedful evaluate`: scores with intervals, signatures and explanations."""

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from math import exp, fsum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.cli.systems import print_warnings, report_windows
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.metrics.alignment_error import measure_agreement, parse_gold, parse_links
from heedful.metrics.breakdown import LengthBucket, PoorLine, find_worst_lines, score_by_length
from heedful.metrics.explain import explain as explain_scores
from heedful.metrics.explain import format_row
from heedful.metrics.score import DEFAULT_SAMPLES, METRICS, Interval, MetricOptions, interval
from heedful.metrics.text_warnings import find_text_warnings
from heedful.text.normalize import escape_invisible
from heedful.translation.evaluation import SYSTEM_NAME, ScoredTexts, is_model, parse_metrics, read_lines, read_texts

if TYPE_CHECKING:
    from heedful.bundle import Bundle
    from heedful.metrics.labels import Confusion
    from heedful.translation.translator import Translator

StyledLine = tuple[str, str]  # text, and its style in rich
DEFAULT_METRICS, LABEL_METRICS = "bleu,chrf,ter", "accuracy,f1"
MAX_SHOWN_LABELS = 12  # rows and columns of a confusion table
METRIC_HELP = f"Metrics, separated by commas: {', '.join(METRICS)}."


def evaluate(
    hypotheses: str = typer.Argument(
        ..., help="Translations, one per line (plain, .gz or .zst); or a model, with --source."
    ),
    references: list[str] = typer.Argument(None, help="Reference translations, one or more files."),
    source: str | None = typer.Option(None, "--source", help="Source text; required if a model is scored."),
    metrics: list[str] = typer.Option(
        [DEFAULT_METRICS], "--metric", help=METRIC_HELP + f" Of labels: {LABEL_METRICS} by default."
    ),
    tokenize: str = typer.Option(
        "13a", "--tokenize", help="sacreBLEU tokenizer for all metrics of words: 13a, intl, char, zh, none, ..."
    ),
    lowercase: bool = typer.Option(False, "--lowercase", help="Ignore case (TER and METEOR always do)."),
    smooth: str = typer.Option("exp", "--smooth", help="BLEU smoothing: exp, floor, add-k or none."),
    stemmer: str | None = typer.Option(
        None, "--stemmer", help="Language of the words, such as english: METEOR also matches words with equal stems."
    ),
    samples: int = typer.Option(
        DEFAULT_SAMPLES, "--samples", help="Number of bootstrap resamplings for the intervals."
    ),
    explain: int | None = typer.Option(
        None, "--explain", metavar="LINE", help="Only show how the scores of this line are computed."
    ),
    worst: int = typer.Option(0, "--worst", metavar="N", min=0, help="Also show the N lines with the lowest chrF."),
    by_length: bool = typer.Option(False, "--by-length", help="Also show scores by sentence length."),
    gold: str | None = typer.Option(
        None, "--gold", help="Gold alignment file (0-0 1p2): print the error rate of an alignment file or a model."
    ),
    first: int = typer.Option(0, "--first", min=0, max=1, help="With --gold: index of the first word, 0 or 1."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Score translations against one or more references.

    Prints sacreBLEU's scores with 95 % intervals and signatures.

    \b
      heedful evaluate test.hypotheses test.de --source test.en --worst 10
      heedful evaluate test.hypotheses test.de --explain 3
      heedful evaluate my-model test.de --source test.en
      heedful evaluate my-language-model test.txt
      heedful evaluate my-labels test.labels --source test.txt
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    label_model = find_label_model(hypotheses)
    if label_model and metrics == [DEFAULT_METRICS]:
        metrics = [LABEL_METRICS]
    names, options = parse_metrics(metrics, MetricOptions(tokenize, lowercase, smooth, stemmer))
    if gold is not None:
        print_alignment_errors(hypotheses, references or [], source, gold, first, as_json)
        return
    if is_language_model(hypotheses):
        if source:
            raise ConfigError(f"{hypotheses} is a language model, which has no source: remove --source")
        print_perplexity(hypotheses, references or [], as_json)
        return
    if not references:
        raise ConfigError(
            f"no reference translations: add the reference file, for example: heedful evaluate {hypotheses} test.de"
        )
    texts = read_texts({SYSTEM_NAME: hypotheses}, references, source, report_windows)
    model = texts.models.get(SYSTEM_NAME)
    if explain is not None:
        print_explanations(texts, explain, options, as_json)
        return
    outputs = texts.systems[SYSTEM_NAME]
    if label_model or "f1" in names:
        from heedful.translation.sources import is_per_slot

        per_slot = bool(label_model and is_per_slot(label_model))
        print_label_scores(hypotheses, references, outputs, texts.references, names, samples, per_slot, as_json)
        return
    warnings = find_text_warnings(outputs, texts.references, lowercase=lowercase)
    scores = [interval(name, outputs, texts.references, options=options, samples=samples) for name in names]
    worst_lines = find_worst_lines(outputs, texts.references, worst, options=options) if worst else []
    buckets = score_by_length(names, outputs, texts.references, options=options) if by_length else []
    if as_json:
        content = {
            "hypotheses": hypotheses,
            "references": references,
            "lines": len(outputs),
            "scores": [asdict(score) for score in scores],
            "by_length": [asdict(bucket) for bucket in buckets],
            "worst": [asdict(line) | dict(texts.labeled_line(line.line, SYSTEM_NAME)) for line in worst_lines],
            "warnings": warnings,
        }
        if model and texts.sources:
            content |= {"model": model.summary, "perplexity": perplexity(model.translator, texts)}
        typer.echo(json.dumps(content))
        return
    print_warnings(warnings)
    count = f"{len(references)} references" if len(references) > 1 else references[0]
    print_lines([(f"heedful evaluate  {hypotheses}  {len(outputs):,} lines against {count}", "bold")])
    print_lines(score_lines(scores))
    if model and texts.sources:
        value = perplexity(model.translator, texts)
        text = "not available" if value is None else f"{value:.2f}"
        print_lines(
            [
                ("", ""),
                (f"  perplexity of the first reference  {text}", ""),
                ("  per piece: not comparable between models with different vocabularies", "dim"),
                (f"  {model.size_and_speed}", ""),
            ]
        )
    print_lines(length_lines(buckets))
    print_lines(poor_lines(texts, worst_lines))
    more = ["--explain", str(worst_lines[0].line)] if worst_lines else ["--worst", "10"]
    more += ["--source", source] if model and source else []
    more += [*(["--tokenize", tokenize] if tokenize != "13a" else []), *(["--lowercase"] if lowercase else [])]
    more += ["--smooth", smooth] if smooth != "exp" else []
    more += ["--stemmer", stemmer] if stemmer else []
    print_lines([("", ""), (f"Next: {shlex.join(['heedful', 'evaluate', hypotheses, *references, *more])}", "")])


def open_system(system: str) -> "Bundle | None":
    """The model directory of a system; None if it is a file."""
    from heedful.bundle import is_export, open_bundle, open_export

    if not is_model(system):
        return None
    return open_export(system).bundle if is_export(Path(system)) else open_bundle(system)


def is_language_model(system: str) -> bool:
    bundle = open_system(system)
    return bundle is not None and bundle.description.input.kind == "none"


def find_label_model(system: str) -> "Bundle | None":
    """The model directory of a system that is a model of labels."""
    bundle = open_system(system)
    return bundle if bundle is not None and bundle.model.decoder.kind == "labels" else None


def print_label_scores(
    system: str,
    reference_files: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    names: Sequence[str],
    samples: int,
    per_slot: bool,
    as_json: bool,
) -> None:
    """Print the scores of labels, precision and recall of each, and which were taken for which."""
    from heedful.metrics.labels import count_confusions, split_slots

    if len(references) > 1:
        raise ConfigError("labels have one reference: pass one file of true labels")
    predicted, true = split_slots(outputs, references[0]) if per_slot else (list(outputs), list(references[0]))
    if not true:
        raise DataError(f"{reference_files[0]} has no known labels: every slot is `?`")
    scores = [interval(name, predicted, [true], samples=samples) for name in names]
    confusion = count_confusions([label.strip() for label in predicted], [label.strip() for label in true])
    if as_json:
        content = {
            "hypotheses": system,
            "references": list(reference_files),
            "labels": len(true),
            "scores": [asdict(score) for score in scores],
            "confusion": {"labels": confusion.labels, "counts": confusion.counts.tolist()},
        }
        typer.echo(json.dumps(content))
        return
    count = f"{len(true):,} labels of {len(outputs):,} lines" if per_slot else f"{len(outputs):,} lines"
    print_lines([(f"heedful evaluate  {system}  {count} against {reference_files[0]}", "bold")])
    print_lines(score_lines(scores))
    print_lines(confusion_lines(confusion))


def confusion_lines(confusion: "Confusion") -> Iterator[StyledLine]:
    """Precision, recall, F1 and the predictions for each true label; the most frequent labels only."""
    labels = confusion.labels[:MAX_SHOWN_LABELS]
    width = max(*map(len, labels), len("true label"))
    columns = [max(len(str(confusion.counts[:, index].max())), len(str(index + 1))) for index in range(len(labels))]
    numbers = "".join(f"  {index + 1:>{columns[index]}}" for index in range(len(labels)))
    yield "", ""
    yield f"  {'':>3}  {'true label':{width}}  precision  recall     F1   predicted as{numbers}", "dim"
    for index, label in enumerate(labels):
        precision, recall, f1 = confusion.scores(label)
        cells = "".join(f"  {confusion.counts[index, column]:>{columns[column]}}" for column in range(len(labels)))
        row = f"  {index + 1:>3}  {label:{width}}  {precision:9.1f}  {recall:6.1f}  {f1:5.1f}   {'':12}{cells}"
        yield row, ""
    if len(confusion.labels) > len(labels):
        yield f"  {len(confusion.labels) - len(labels):,} less frequent labels are not shown; --json has all", "dim"


def print_perplexity(model: str, texts: Sequence[str], as_json: bool) -> None:
    """Print the perplexity of a language model on a text."""
    from rich.console import Console
    from rich.progress import Progress

    from heedful.translation.loading import load
    from heedful.translation.sources import require_language_model

    if len(texts) != 1:
        raise ConfigError(f"{model} is a language model: pass one text, for example: heedful evaluate {model} test.txt")
    language_model, lines = require_language_model(load(model)), read_lines(texts[0])
    stderr = Console(stderr=True)
    with Progress(console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        task = progress.add_task("scoring", total=len(lines))
        figures = language_model.perplexity(lines, lambda done, _total: progress.update(task, completed=done))
    if as_json:
        typer.echo(json.dumps({"model": model, "lines": len(lines), "scores": figures}))
        return
    print_lines([(f"heedful evaluate  {model}  {len(lines):,} lines of {texts[0]}", "bold")])
    print_lines(
        [
            (f"  perplexity per token  {figures['perplexity']:10.2f}", ""),
            (f"  perplexity per word   {figures['word_perplexity']:10.2f}", ""),
            (f"  bits per character    {figures['bits']:10.4f}", ""),
            ("  the end of a line counts as a token, a word and a character; compare models with different", "dim"),
            ("  vocabularies by words or characters only", "dim"),
        ]
    )


def perplexity(translator: "Translator", texts: ScoredTexts) -> float | None:
    """exp(-log p of the first reference / its tokens, ends included); None if a line is too long for the model."""
    try:
        scored = [result.hypothesis for result in translator.score_targets(texts.sources or [], texts.references[0])]
    except HeedfulError as error:
        print_warnings([f"no perplexity: {error}"])
        return None
    tokens = sum(len(hypothesis.log_probabilities) for hypothesis in scored)
    return exp(-fsum(hypothesis.log_probability for hypothesis in scored) / tokens)


def print_alignment_errors(
    hypotheses: str, references: Sequence[str], source: str | None, gold: str, first: int, as_json: bool
) -> None:
    """Print the error rate of an alignment file, or of each method to extract links from a model's attention."""
    gold_alignments = [parse_gold(line, first=first) for line in read_lines(gold)]
    if not is_model(hypotheses):
        alignments = {hypotheses: [parse_links(line) for line in read_lines(hypotheses)]}
    elif not source or len(references) != 1:
        raise ConfigError(
            f"{hypotheses} is a model: pass the two texts to align, for example: test.de --source test.en"
        )
    else:
        from heedful.alignment import STEP_CHOICES
        from heedful.translation.loading import load

        translator, texts = load(hypotheses), (read_lines(source), read_lines(references[0]))
        methods = [*STEP_CHOICES, *(["best"] if translator.bundle.statistics.get("alignment") else [])]
        alignments = {method: [frozenset(links) for links in translator.align(*texts, method)] for method in methods}
    agreements = {name: measure_agreement(links, gold_alignments) for name, links in alignments.items()}
    if as_json:
        rates = {
            name: {"precision": agreement.precision, "recall": agreement.recall, "aer": agreement.error_rate}
            for name, agreement in agreements.items()
        }
        typer.echo(json.dumps(rates))
        return
    width = max(map(len, agreements))
    print_lines([(f"  {'':{width}}  precision   recall      AER", "dim")])
    print_lines(
        (f"  {name:{width}}  {agreement.precision:9.3f}{agreement.recall:9.3f}{agreement.error_rate:9.3f}", "")
        for name, agreement in agreements.items()
    )


def print_explanations(texts: ScoredTexts, line: int, options: MetricOptions, as_json: bool) -> None:
    """Print one line, and how each of its scores is computed."""
    outputs = texts.systems[SYSTEM_NAME]
    if not 1 <= line <= len(outputs):
        raise HeedfulError(f"--explain {line}: choose a line from 1 to {len(outputs):,}")
    references = [lines[line - 1] for lines in texts.references]
    explanations = explain_scores(outputs[line - 1], references, options=options)
    if as_json:
        typer.echo(json.dumps({"line": line, "explained": [asdict(explanation) for explanation in explanations]}))
        return
    print_lines((format_row(name, text), "") for name, text in texts.labeled_line(line, SYSTEM_NAME))
    for explanation in explanations:
        print_lines([("", ""), (explanation.title, "bold"), *((text, "") for text in explanation.lines)])


def print_lines(rows: Iterable[StyledLine]) -> None:
    """Print lines without wrapping."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for text, style in rows:
        console.print(Text(escape_invisible(text), style), soft_wrap=True)


def score_lines(scores: Sequence[Interval]) -> Iterator[StyledLine]:
    """One row per score with its interval, then the signatures."""
    width = max(len(METRICS[score.name].title) for score in scores)
    yield f"  {'':{width}}  {'score':>7}   95 % interval", "dim"
    for score in scores:
        low, high = score.mean - score.margin, score.mean + score.margin
        yield f"  {METRICS[score.name].title:{width}}  {score.value:7.2f}   {low:.2f} to {high:.2f}", ""
    for score in scores:
        yield f"  {METRICS[score.name].label}  {score.signature}", "dim"


def length_lines(buckets: Sequence[LengthBucket]) -> Iterator[StyledLine]:
    widths = {name: max(7, len(METRICS[name].label)) for bucket in buckets for name in bucket.scores}
    if buckets:
        labels = "".join(f"  {METRICS[name].label:>{width}}" for name, width in widths.items())
        yield "", ""
        yield f"  {'tokens':>9}  {'lines':>7}{labels}", "dim"
    for bucket in buckets:
        span = f"{bucket.shortest} to {bucket.longest}" if bucket.longest else f"from {bucket.shortest}"
        values = "".join(f"  {value:>{widths[name]}.2f}" for name, value in bucket.scores.items())
        yield f"  {span:>9}  {bucket.lines:>7,}{values}", ""


def poor_lines(texts: ScoredTexts, worst_lines: Sequence[PoorLine]) -> Iterator[StyledLine]:
    for line in worst_lines:
        yield "", ""
        yield f"  line {line.line:,}   chrF {line.chrf:.2f}", "bold"
        for name, text in texts.labeled_line(line.line, SYSTEM_NAME):
            yield format_row(name, text), ""

"""`heedful evaluate`: how good translations are, with everything one needs to believe the numbers."""

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from math import exp, fsum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.cli.systems import Given, asked, read, texts_of, warn
from heedful.errors import ConfigError, HeedfulError
from heedful.metrics import alignment_error as alignment
from heedful.metrics import breakdown
from heedful.metrics import explain as arithmetic
from heedful.metrics.score import METRICS, SAMPLES, Interval, Options, interval
from heedful.metrics.text_warnings import suspicions
from heedful.text.normalize import escape_invisible

if TYPE_CHECKING:
    from heedful.translation.translator import Translator

Shown = tuple[str, str]  # a line, and its style
NAME = "translation"
KNOWN = f"Some of: {', '.join(METRICS)}."


def evaluate(
    hypotheses: str = typer.Argument(
        ..., help="The translations, one a line (.gz, .zst too); or a model, and --source."
    ),
    references: list[str] = typer.Argument(None, help="What they should be; several files are several references."),
    source: str | None = typer.Option(None, "--source", help="What was translated, or what a model shall translate."),
    metrics: list[str] = typer.Option(["bleu,chrf,ter"], "--metric", help=KNOWN),
    tokenize: str = typer.Option(
        "13a", "--tokenize", "--tokenize", help="For BLEU and ROUGE: 13a, intl, char, zh, none, ..."
    ),
    lowercase: bool = typer.Option(False, "--lowercase", help="Ignore case (TER always does)."),
    smooth: str = typer.Option("exp", "--smooth", help="For BLEU: exp, floor, add-k, none."),
    samples: int = typer.Option(SAMPLES, "--samples", help="Of the bootstrap that gives the intervals."),
    explain: int | None = typer.Option(None, "--explain", metavar="LINE", help="Only the arithmetic of this one line."),
    worst: int = typer.Option(0, "--worst", metavar="N", min=0, help="Show the N lines with the lowest chrF."),
    by_length: bool = typer.Option(False, "--by-length", help="Scores of short and of long sentences."),
    gold: str | None = typer.Option(
        None,
        "--gold",
        help="Links that people drew (0-0 1p2): the error rate of alignments, or of a model's attention.",
    ),
    first: int = typer.Option(0, "--first", min=0, max=1, help="Of --gold: the number of the first word, 0 or 1."),
    as_json: bool = typer.Option(False, "--json", help="For machines."),
) -> None:
    """Score translations against one or more references: sacreBLEU's numbers, with 95 % intervals and signatures.

    \b
      heedful evaluate test.hypotheses test.de --source test.en --worst 10
      heedful evaluate test.hypotheses test.de --explain 3
      heedful evaluate my-model test.de --source test.en
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    names, options = asked(metrics, tokenize, lowercase, smooth)
    if gold is not None:
        show_aligned(hypotheses, references or [], source, gold, first, as_json)
        return
    if not references:
        raise ConfigError(f"say what the translations should be: heedful evaluate {hypotheses} test.de")
    given = read({NAME: hypotheses}, references, source)
    model = given.models.get(NAME)
    if explain is not None:
        show_explained(given, explain, options, as_json)
        return
    outputs = given.systems[NAME]
    doubts = suspicions(outputs, given.references, lowercase=lowercase)
    scores = [interval(name, outputs, given.references, options=options, samples=samples) for name in names]
    poor = breakdown.worst(outputs, given.references, worst, options=options) if worst else []
    buckets = breakdown.by_length(names, outputs, given.references, options=options) if by_length else []
    if as_json:
        found = {
            "hypotheses": hypotheses,
            "references": references,
            "lines": len(outputs),
            "scores": [asdict(one) for one in scores],
            "by_length": [asdict(one) for one in buckets],
            "worst": [asdict(one) | dict(given.line(one.line, NAME)) for one in poor],
            "warnings": doubts,
        }
        if model and given.sources:
            found |= {"model": model.summary, "perplexity": perplexity(model.translator, given)}
        typer.echo(json.dumps(found))
        return
    warn(doubts)
    count = f"{len(references)} references" if len(references) > 1 else references[0]
    show([(f"heedful evaluate  {hypotheses}  {len(outputs):,} lines against {count}", "bold")])
    show(score_lines(scores))
    if model and given.sources:
        value = perplexity(model.translator, given)
        text = "not available" if value is None else f"{value:.2f}"
        show([("", ""), (f"  perplexity of the first reference  {text}", "")])
        show([("  by this model's own pieces: of two vocabularies it says nothing", "dim"), (f"  {model.line}", "")])
    show(length_lines(buckets))
    show(worst_lines(given, poor))
    more = ["--explain", str(poor[0].line)] if poor else ["--worst", "10"]
    more += ["--source", source] if model and source else []
    more += [*(["--tokenize", tokenize] if tokenize != "13a" else []), *(["--lowercase"] if lowercase else [])]
    more += ["--smooth", smooth] if smooth != "exp" else []
    show([("", ""), (f"Next: {shlex.join(['heedful', 'evaluate', hypotheses, *references, *more])}", "")])


def perplexity(translator: "Translator", given: Given) -> float | None:
    """exp(-log p of the first reference / its tokens, ends included); None where a line is too long for the model."""
    try:
        answers = [one.hypothesis for one in translator.score_targets(given.sources or [], given.references[0])]
    except HeedfulError as error:
        warn([f"no perplexity: {error}"])
        return None
    tokens = sum(len(one.log_probabilities) for one in answers)
    return exp(-fsum(one.log_probability for one in answers) / tokens)


def show_aligned(
    hypotheses: str, references: Sequence[str], source: str | None, gold: str, first: int, as_json: bool
) -> None:
    """The error rate of alignments, or of every way to read a model's attention."""
    wanted = [alignment.parse_gold(line, first=first) for line in texts_of(gold)]
    if not Path(hypotheses).is_dir():
        found = {hypotheses: [alignment.parse(line) for line in texts_of(hypotheses)]}
    elif not source or len(references) != 1:
        raise ConfigError(
            f"{hypotheses} is a model: give the two texts that it shall align, such as test.de --source test.en"
        )
    else:
        from heedful.alignment import STEP_CHOICES
        from heedful.translation.translator import load

        translator, texts = load(hypotheses), (texts_of(source), texts_of(references[0]))
        ways = [*STEP_CHOICES, *(["best"] if translator.bundle.statistics.get("alignment") else [])]
        found = {way: [frozenset(one) for one in translator.align(*texts, way)] for way in ways}
    agreed = {name: alignment.agreement(links, wanted) for name, links in found.items()}
    if as_json:
        rates = {
            name: {"precision": one.precision, "recall": one.recall, "aer": one.error_rate}
            for name, one in agreed.items()
        }
        typer.echo(json.dumps(rates))
        return
    width = max(map(len, agreed))
    show([(f"  {'':{width}}  precision   recall      AER", "dim")])
    show(
        (f"  {name:{width}}  {one.precision:9.3f}{one.recall:9.3f}{one.error_rate:9.3f}", "")
        for name, one in agreed.items()
    )


def show_explained(given: Given, line: int, options: Options, as_json: bool) -> None:
    """One line, and how each of its values comes about."""
    lines = len(given.systems[NAME])
    if not 1 <= line <= lines:
        raise HeedfulError(f"--explain {line}: there are lines 1 to {lines:,}")
    references = [one[line - 1] for one in given.references]
    every = arithmetic.explain(given.systems[NAME][line - 1], references, options=options)
    if as_json:
        typer.echo(json.dumps({"line": line, "explained": [asdict(one) for one in every]}))
        return
    show((arithmetic.row(name, text), "") for name, text in given.line(line, NAME))
    for one in every:
        show([("", ""), (one.title, "bold"), *((text, "") for text in one.lines)])


def show(rows: Iterable[Shown]) -> None:
    """Lines as they are, however wide the terminal."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for text, style in rows:
        console.print(Text(escape_invisible(text), style), soft_wrap=True)


def score_lines(scores: Sequence[Interval]) -> Iterator[Shown]:
    """Every score with its interval, and below what exactly it is."""
    width = max(len(METRICS[one.name].title) for one in scores)
    yield f"  {'':{width}}  {'score':>7}   95 % interval", "dim"
    for one in scores:
        low, high = one.mean - one.margin, one.mean + one.margin
        yield f"  {METRICS[one.name].title:{width}}  {one.value:7.2f}   {low:.2f} to {high:.2f}", ""
    for one in scores:
        yield f"  {METRICS[one.name].label}  {one.signature}", "dim"


def length_lines(buckets: Sequence[breakdown.Bucket]) -> Iterator[Shown]:
    """A row for every bucket that has lines."""
    widths = {name: max(7, len(METRICS[name].label)) for one in buckets for name in one.scores}
    if buckets:
        heads = "".join(f"  {METRICS[name].label:>{width}}" for name, width in widths.items())
        yield "", ""
        yield f"  {'tokens':>9}  {'lines':>7}{heads}", "dim"
    for one in buckets:
        span = f"{one.shortest} to {one.longest}" if one.longest else f"from {one.shortest}"
        values = "".join(f"  {value:>{widths[name]}.2f}" for name, value in one.scores.items())
        yield f"  {span:>9}  {one.lines:>7,}{values}", ""


def worst_lines(given: Given, poor: Sequence[breakdown.Poor]) -> Iterator[Shown]:
    """The lines that came out worst, whole."""
    for one in poor:
        yield "", ""
        yield f"  line {one.line:,}   chrF {one.chrf:.2f}", "bold"
        for name, text in given.line(one.line, NAME):
            yield arithmetic.row(name, text), ""

"""`heedful compare`: scores, significance tests, and the lines that differ most."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from heedful.cli.evaluate import METRIC_HELP, StyledLine, print_lines
from heedful.cli.systems import format_p_value, print_warnings, report_windows
from heedful.errors import ConfigError
from heedful.metrics.compare import ComparedSystem, Comparison
from heedful.metrics.compare import compare as compare_systems
from heedful.metrics.score import METRICS, MetricOptions
from heedful.metrics.significance import TESTS
from heedful.metrics.text_warnings import find_text_warnings
from heedful.translation.evaluation import ScoredTexts, parse_metrics, read_texts

MAX_BAR_CHARACTERS = 40


def compare(
    reference: str = typer.Argument(..., help="Reference translations, one per line; add more with --reference."),
    systems: list[str] = typer.Argument(..., help="Translation files or model directories; the first is the baseline."),
    references: list[str] = typer.Option([], "--reference", help="Another reference file; repeatable."),
    source: str | None = typer.Option(None, "--source", help="Source text; required if a system is a model."),
    names: str | None = typer.Option(None, "--names", help="System names, such as old,new (default: the file names)."),
    metrics: list[str] = typer.Option(["bleu,chrf"], "--metric", help=METRIC_HELP),
    test: str = typer.Option("bs", "--test", help="bs: paired bootstrap; ar: approximate randomization."),
    samples: int | None = typer.Option(
        None, "--samples", help="Number of resamplings (default: 1,000 for bs, 10,000 for ar)."
    ),
    tokenize: str = typer.Option(
        "13a", "--tokenize", help="sacreBLEU tokenizer for all metrics of words: 13a, intl, char, zh, none, ..."
    ),
    lowercase: bool = typer.Option(False, "--lowercase", help="Ignore case (TER and METEOR always do)."),
    smooth: str = typer.Option("exp", "--smooth", help="BLEU smoothing: exp, floor, add-k or none."),
    stemmer: str | None = typer.Option(
        None, "--stemmer", help="Language of the words, such as english: METEOR also matches words with equal stems."
    ),
    num_lines: int = typer.Option(5, "--most", metavar="N", min=0, help="Show the N largest gains and losses."),
    out: str | None = typer.Option(None, "--out", help="Also write an HTML report, such as compare.html."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Compare systems on the same text, with significance tests.

    Reports scores, p-values, wins and losses, and the lines that differ most.

    \b
      heedful compare test.de old.hypotheses new.hypotheses --source test.en --out compare.html
      heedful compare test.de old-model new-model --source test.en
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    metric_names, options = parse_metrics(metrics, MetricOptions(tokenize, lowercase, smooth, stemmer))
    paths = dict(zip(name_systems(systems, names), systems, strict=True))
    texts = read_texts(paths, [reference, *references], source, report_windows)
    warnings = [
        f"{name}: {warning}"
        for name, lines in texts.systems.items()
        for warning in find_text_warnings(lines, texts.references, lowercase=lowercase)
    ]
    comparison = compare_systems(
        texts.systems, texts.references, metrics=metric_names, test=test, samples=samples, options=options
    )
    if out:
        from heedful.cli.compare_page import write_page

        write_page(Path(out), comparison, texts, test, warnings)
    if as_json:
        models = {name: model.summary for name, model in texts.models.items()}
        typer.echo(json.dumps(comparison_as_dict(comparison) | {"models": models, "warnings": warnings}))
        return
    print_warnings(warnings)
    title = f"heedful compare  {len(texts.references[0]):,} lines, each system against {comparison.baseline}"
    print_lines([(title, "bold"), *score_lines(comparison, test)])
    if texts.models:
        width = max(map(len, texts.models))
        print_lines(
            [("", ""), *((f"  {name:{width}}  {model.size_and_speed}", "") for name, model in texts.models.items())]
        )
    for system in comparison.compared:
        print_lines(gain_lines(system, comparison.baseline))
        print_lines(changed_lines(system, comparison.baseline, texts, num_lines))
    command = ["heedful", "compare", reference, *systems, *(["--source", source] if source else [])]
    following = f"open {out}" if out else shlex.join([*command, "--out", "compare.html"])
    print_lines([("", ""), (f"Next: {following}", "")])


def name_systems(systems: Sequence[str], names: str | None) -> list[str]:
    """The names from --names, else the file names, else the paths if the file names are not unique."""
    unique_names = names.split(",") if names is not None else [Path(path).name or path for path in systems]
    if names is None and len(set(unique_names)) < len(unique_names):
        unique_names = list(systems)
    if len(unique_names) != len(systems):
        raise ConfigError(
            f"--names {names}: {len(unique_names)} names for {len(systems)} systems; pass one name per system"
        )
    if len(set(unique_names)) < len(unique_names) or not all(unique_names):
        raise ConfigError("two systems have the same name: set different names, for example: --names old,new")
    return unique_names


def comparison_as_dict(comparison: Comparison) -> dict[str, object]:
    rivals = [
        {
            "name": system.name,
            "tally": asdict(system.tally),
            "spread": system.gain_histogram,
            "lines": [asdict(difference) for difference in system.differences],
        }
        for system in comparison.compared
    ]
    return {"scores": [asdict(score) for score in comparison.scores], "rivals": rivals}


def score_lines(comparison: Comparison, significance_test: str) -> Iterator[StyledLine]:
    """One table per metric with a row per system, then the signatures."""
    baseline_scores = [score for score in comparison.scores if score.system == comparison.baseline]
    width = max(len(text) for score in comparison.scores for text in (score.system, METRICS[score.name].title))
    for score in comparison.scores:
        if score in baseline_scores:
            title = METRICS[score.name].title
            yield f"  {title:{width}}  {'score':>7}  {'95 % interval':>16}  {'change':>7}  {'p':>7}", "dim"
        interval = f"{score.mean - score.margin:.2f} to {score.mean + score.margin:.2f}"
        change = "" if score in baseline_scores else f"{score.difference:+.2f}"
        numbers = f"{score.value:7.2f}  {interval:>16}  {change:>7}  {format_p_value(score.p):>7}  {score.verdict}"
        yield f"  {score.system:{width}}  {numbers}".rstrip(), ""
    yield (
        f"  p: {TESTS[significance_test].label}, each system against the first; not corrected for multiple tests",
        "dim",
    )
    for score in baseline_scores:
        yield f"  {METRICS[score.name].label}  {score.signature}", "dim"


def gain_lines(system: ComparedSystem, baseline: str) -> Iterator[StyledLine]:
    """Wins and losses by sentence, and a histogram of the gains."""
    tally, largest = system.tally, max(system.gain_histogram.values())
    yield "", ""
    yield f"{system.name} against {baseline}, sentence by sentence (chrF)", "bold"
    yield f"  {tally.wins:,} better, {tally.losses:,} worse, {tally.ties:,} equal ({tally.same:,} identical)", ""
    for name, count in system.gain_histogram.items():
        yield f"  {name:>12}  {count:>6,}  {'#' * round(MAX_BAR_CHARACTERS * count / largest)}".rstrip(), ""


def changed_lines(system: ComparedSystem, baseline: str, texts: ScoredTexts, num_lines: int) -> Iterator[StyledLine]:
    """The lines with the largest gains and the largest losses, and the first word that differs."""
    changes = ("gained", system.largest_gains(num_lines)), ("lost", system.largest_losses(num_lines))
    for verb, differences in changes:
        for difference in differences:
            change = f"{verb} {abs(difference.gain):.2f} ({difference.first:.2f} to {difference.second:.2f})"
            yield "", ""
            yield f"  line {difference.line:,} {change}; word {difference.place} is the first that differs", "bold"
            rows = texts.labeled_line(difference.line, baseline, system.name)
            width = max(len(name) for name, _ in rows)
            for name, text in rows:
                yield f"    {name:>{width}}  {text}", ""

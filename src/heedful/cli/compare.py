"""`heedful compare`: is one system better than another, is it luck, and where do they differ?"""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from heedful.cli.evaluate import KNOWN, Shown, show
from heedful.cli.systems import Given, asked, chance, read, warn
from heedful.errors import ConfigError
from heedful.metrics import compare as comparison
from heedful.metrics.score import METRICS
from heedful.metrics.significance import TESTS
from heedful.metrics.text_warnings import suspicions

BAR = 40  # characters of the longest


def compare(
    reference: str = typer.Argument(..., help="What the translations should be; more with --reference."),
    systems: list[str] = typer.Argument(..., help="Files of translations, or models; each is compared with the first."),
    references: list[str] = typer.Option([], "--reference", help="One more reference (repeat for more)."),
    source: str | None = typer.Option(None, "--source", help="What was translated, or what models shall translate."),
    names: str | None = typer.Option(None, "--names", help="What to call the systems: old,new (default: their files)."),
    metrics: list[str] = typer.Option(["bleu,chrf"], "--metric", help=KNOWN),
    test: str = typer.Option("bs", "--test", help="bs: paired bootstrap; ar: approximate randomization."),
    samples: int | None = typer.Option(None, "--samples", help="Of the test (default: bs 1,000; ar 10,000)."),
    tokenize: str = typer.Option(
        "13a", "--tokenize", "--tokenize", help="For BLEU and ROUGE: 13a, intl, char, zh, none, ..."
    ),
    lowercase: bool = typer.Option(False, "--lowercase", help="Ignore case (TER always does)."),
    smooth: str = typer.Option("exp", "--smooth", help="For BLEU: exp, floor, add-k, none."),
    most: int = typer.Option(5, "--most", metavar="N", min=0, help="Show the N lines that gained and lost most."),
    out: str | None = typer.Option(None, "--out", help="Write all of it as one page, such as compare.html."),
    as_json: bool = typer.Option(False, "--json", help="For machines."),
) -> None:
    """Compare translations of the same text: scores, p-values, wins and losses, and where they differ.

    \b
      heedful compare test.de old.hypotheses new.hypotheses --source test.en --out compare.html
      heedful compare test.de old-model new-model --source test.en
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    known, options = asked(metrics, tokenize, lowercase, smooth)
    given = read(dict(zip(names_of(systems, names), systems, strict=True)), [reference, *references], source)
    doubts = [
        f"{name}: {doubt}"
        for name, some in given.systems.items()
        for doubt in suspicions(some, given.references, lowercase=lowercase)
    ]
    found = comparison.compare(
        given.systems,
        given.references,
        metrics=known,
        test=test,
        samples=samples,
        options=options,
    )
    if out:
        from heedful.cli.compare_page import write_page

        write_page(Path(out), found, given, test, doubts)
    if as_json:
        models = {name: one.summary for name, one in given.models.items()}
        typer.echo(json.dumps(plain(found) | {"models": models, "warnings": doubts}))
        return
    warn(doubts)
    show([(f"heedful compare  {len(given.references[0]):,} lines, each system against {found.first}", "bold")])
    show(score_lines(found, test))
    if given.models:
        width = max(map(len, given.models))
        show([("", ""), *((f"  {name:{width}}  {one.line}", "") for name, one in given.models.items())])
    for rival in found.rivals:
        show(rival_lines(rival, found.first))
        show(changed_lines(rival, found.first, given, most))
    again = ["heedful", "compare", reference, *systems, *(["--source", source] if source else [])]
    then = f"open {out}" if out else shlex.join([*again, "--out", "compare.html"])
    show([("", ""), (f"Next: {then}", "")])


def names_of(systems: Sequence[str], names: str | None) -> list[str]:
    """What the systems are called: as asked, or else as their files, with folders where names alone are not enough."""
    found = names.split(",") if names is not None else [Path(one).name or one for one in systems]
    if names is None and len(set(found)) < len(found):
        found = list(systems)
    if len(found) != len(systems):
        raise ConfigError(f"--names {names}: {len(found)} names for {len(systems)} systems")
    if len(set(found)) < len(found) or not all(found):
        raise ConfigError("systems need names that differ: say them, such as --names old,new")
    return found


def plain(found: comparison.Comparison) -> dict[str, object]:
    """For machines."""
    rivals = [
        {
            "name": one.name,
            "tally": asdict(one.tally),
            "spread": one.spread,
            "lines": [asdict(line) for line in one.differences],
        }
        for one in found.rivals
    ]
    return {"scores": [asdict(one) for one in found.scores], "rivals": rivals}


def score_lines(found: comparison.Comparison, test: str) -> Iterator[Shown]:
    """Metric by metric, every system; then the signatures."""
    firsts = [one for one in found.scores if one.system == found.first]
    width = max(len(text) for one in found.scores for text in (one.system, METRICS[one.name].title))
    for one in found.scores:
        if one in firsts:
            title = METRICS[one.name].title
            yield f"  {title:{width}}  {'score':>7}  {'95 % interval':>16}  {'change':>7}  {'p':>7}", "dim"
        interval = f"{one.mean - one.margin:.2f} to {one.mean + one.margin:.2f}"
        change = "" if one in firsts else f"{one.difference:+.2f}"
        numbers = f"{one.value:7.2f}  {interval:>16}  {change:>7}  {chance(one.p):>7}  {one.verdict}"
        yield f"  {one.system:{width}}  {numbers}".rstrip(), ""
    yield f"  p: {TESTS[test].label}, each system against the first by itself", "dim"
    for one in firsts:
        yield f"  {METRICS[one.name].label}  {one.signature}", "dim"


def rival_lines(rival: comparison.Rival, first: str) -> Iterator[Shown]:
    """Wins and losses by sentence, and how large they are."""
    tally, largest = rival.tally, max(rival.spread.values())
    yield "", ""
    yield f"{rival.name} against {first}, sentence by sentence (chrF)", "bold"
    yield f"  {tally.wins:,} better, {tally.losses:,} worse, {tally.ties:,} equal ({tally.same:,} the same words)", ""
    for name, count in rival.spread.items():
        yield f"  {name:>12}  {count:>6,}  {'#' * round(BAR * count / largest)}".rstrip(), ""


def changed_lines(rival: comparison.Rival, first: str, given: Given, most: int) -> Iterator[Shown]:
    """The lines that gained most, and those that lost most, with the first word that differs."""
    for title, some in (("gained", rival.gains(most)), ("lost", rival.losses(most))):
        for one in some:
            change = f"{title} {abs(one.gain):.2f} ({one.first:.2f} to {one.second:.2f})"
            yield "", ""
            yield f"  line {one.line:,} {change}; they part at word {one.place}", "bold"
            texts = given.line(one.line, first, rival.name)
            width = max(len(name) for name, _ in texts)
            for name, text in texts:
                yield f"    {name:>{width}}  {text}", ""

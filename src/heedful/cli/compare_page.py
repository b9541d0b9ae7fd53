"""compare.html: a comparison as one page in the look of a run's report.html, without its script: nothing runs here."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from heedful.cli.systems import Given, chance
from heedful.html import (
    HEIGHT,
    RIGHT,
    TOP,
    WIDTH,
    Html,
    escape_text,
    fill_template,
    make_ticks,
    remark,
    section,
    table,
    tag,
    write_html,
)
from heedful.metrics.compare import Comparison, Difference, Rival
from heedful.metrics.score import METRICS
from heedful.metrics.significance import TESTS, Against
from heedful.text.normalize import escape_invisible
from heedful.training.report import TEMPLATE, mark_matches

SHOWN = 25  # sentences that gained most, and as many that lost most
SIDE = 112  # left of the bars, for their names
FOOT, ROW = 24, 28  # under a chart for its scale, and the least for a system


def write_page(path: Path, found: Comparison, given: Given, test: str, doubts: Sequence[str]) -> None:
    """Write the page, whole or not at all."""
    write_html(path, page(found, given, test, doubts))


def page(found: Comparison, given: Given, test: str, doubts: Sequence[str]) -> str:
    """The page of a comparison."""
    title = f"{', '.join(rival.name for rival in found.rivals)} against {found.first}"
    parts = (
        heading(title, found, given),
        *(tag("p", doubt, class_="warning") for doubt in doubts),
        section("Scores", scores(found, test)),
        *([section("Models", models(given))] if given.models else ()),
        section("Sentence by sentence", sentences(found)),
        *(
            section(f"Where {rival.name} {verb} most", changed(some, rival, found.first, given))
            for rival in found.rivals
            for verb, some in (("gained", rival.gains(SHOWN)), ("lost", rival.losses(SHOWN)))
        ),
    )
    look = TEMPLATE.read_text(encoding="utf-8").partition('<script type="application/json"')[0]
    template = f"{look}<script></script>\n</body>\n</html>\n"
    return fill_template(template, title=title, body=Html("\n".join(parts)), data=None)


def heading(title: str, found: Comparison, given: Given) -> Html:
    """Who is compared, and the first metric of each."""
    first = [one for one in found.scores if one.name == found.scores[0].name]
    tiles = {f"{METRICS[one.name].label}, {one.system}": f"{one.value:.2f}" for one in first}
    if len(first) == 2:
        tiles |= {"change": f"{first[1].difference:+.2f}", "p": chance(first[1].p)}
    tiles["lines"] = f"{len(given.references[0]):,}"
    tiles["references"] = str(len(given.references))
    return tag(
        "header",
        tag("h1", title),
        remark("Translations of the same text, compared by heedful."),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles.items()), class_="tiles"),
    )


def scores(found: Comparison, test: str) -> Iterator[Html]:
    """Every metric of every system, and what exactly it is."""
    rows = [
        (
            METRICS[one.name].title,
            one.system,
            f"{one.value:.2f}",
            f"{one.mean - one.margin:.2f} to {one.mean + one.margin:.2f}",
            f"{one.difference:+.2f}" if one.p is not None else "",
            chance(one.p),
            one.verdict,
            "",
        )
        for one in found.scores
    ]
    yield table(("metric", "system", "score", "95 % interval", "change", "p", "", ""), rows)
    yield remark(
        f"p is how often a change as large would come about by chance ({TESTS[test].label}); each system is tested "
        "against the first by itself, so of many systems some will seem to differ by luck."
    )
    signatures = {METRICS[one.name].label: one.signature for one in found.scores}
    yield table(("metric", "signature"), list(signatures.items()), code=[1])


def models(given: Given) -> Iterator[Html]:
    """How large the models are, and how fast they were."""
    rows = [
        (name, f"{one['weights']:,}", f"{one['megabytes']:,}", f"{one['lines_a_second']:,}", "")
        for name, one in ((name, used.summary) for name, used in given.models.items())
    ]
    yield table(("system", "weights", "megabytes", "lines a second", ""), rows)
    yield remark("One after the other, on the machine that made this page.")


def sentences(found: Comparison) -> Iterator[Html]:
    """Wins, losses, and how large they are."""
    rows = [(one.name, one.tally.wins, one.tally.losses, one.tally.ties, one.tally.same, "") for one in found.rivals]
    yield remark(f"By the chrF of every sentence, against {found.first}.")
    yield table(("system", "better", "worse", "equal", "the same words", ""), rows)
    metric = found.scores[0].name
    charts = [whiskers([one for one in found.scores if one.name == metric]), *map(bars, found.rivals)]
    yield tag("div", *charts, class_="charts")


def changed(some: Sequence[Difference], rival: Rival, first: str, given: Given) -> Iterator[Html]:
    """Sentences, bold where they agree with the reference, marked at the first word that differs."""
    if some:
        yield remark("Bold is what the reference says too, in that order; marked is the first word that differs.")
    for one in some:
        *told, old, new = given.line(one.line, first, rival.name)
        reference = given.references[0][one.line - 1]
        yield tag("p", f"Line {one.line:,}: {one.first:.1f} → {one.second:.1f} ({one.gain:+.1f})", class_="source")
        said = [(name, marked(reference, text, one.place)) for name, text in (old, new)]
        yield table(("", ""), [*told, *said])


def marked(reference: str, output: str, place: int | None) -> Html:
    """An output, bold where the reference says the same, with a mark on the piece of this number."""
    told = []
    for at, (piece, agrees) in enumerate(mark_matches(reference, output), 1):
        text = tag("b", piece.rstrip()) if agrees else Html(escape_text(piece.rstrip()))
        told.append((tag("mark", text) if at == place else text) + " " * piece.endswith(" "))
    return Html("".join(told))


# ---------------------------------------------------------------------------------------------------- drawings


def figure(title: str, drawn: Sequence[Html], said: str, height: float = HEIGHT) -> Html:
    """A drawing under its title, which a screen reader says in words."""
    label = escape_invisible(f"{title}: {said}")
    picture = tag("svg", *drawn, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label)
    return tag("figure", tag("figcaption", title), picture)


def bars(rival: Rival) -> Html:
    """How many sentences gained or lost how much, as bars."""
    spread = rival.spread
    each, longest = (HEIGHT - 2 * TOP) / len(spread), max(1, *spread.values())
    drawn = []
    for number, (name, count) in enumerate(spread.items()):
        y, width = TOP + each * number, (WIDTH - SIDE - 6 * RIGHT) * count / longest
        kind = "point second" if number < len(spread) // 2 else "point"
        faint = 0.4 if number == len(spread) // 2 else 1
        drawn += [
            tag("text", name, x=SIDE - 8, y=round(y + each / 2 + 4, 1), text_anchor="end"),
            tag(
                "rect",
                x=SIDE,
                y=round(y + 2, 1),
                width=round(width, 1),
                height=round(each - 4, 1),
                class_=kind,
                fill_opacity=faint,
            ),
            tag("text", f"{count:,}", x=round(SIDE + width + 6, 1), y=round(y + each / 2 + 4, 1)),
        ]
    said = ", ".join(f"{name}: {count:,}" for name, count in spread.items())
    return figure(f"{rival.name}: change of sentences, in chrF", drawn, said)


def whiskers(some: Sequence[Against]) -> Html:
    """Scores as points, intervals as lines."""
    places = [place for one in some for place in (one.mean - one.margin, one.mean + one.margin, one.value)]
    low, high = min(places), max(*places, min(places) + 0.1)
    height = max(HEIGHT, TOP + FOOT + ROW * len(some))
    each = (height - TOP - FOOT) / len(some)

    def x(value: float) -> float:
        return round(2 * RIGHT + (WIDTH - 4 * RIGHT) * (value - low) / (high - low), 1)

    drawn = []
    for at in make_ticks(low, high, 5):
        drawn += [
            tag("line", x1=x(at), x2=x(at), y1=TOP, y2=height - FOOT, class_="grid"),
            tag("text", f"{at:,.6g}", x=x(at), y=height - 6, text_anchor="middle"),
        ]
    for number, one in enumerate(some):
        y, kind = round(TOP + each * (number + 0.7), 1), "" if number else " second"
        drawn += [
            tag("text", f"{one.system}  {one.value:.2f}", x=2 * RIGHT, y=y - 8),
            tag("line", x1=x(one.mean - one.margin), x2=x(one.mean + one.margin), y1=y, y2=y, class_=f"curve{kind}"),
            tag("circle", cx=x(one.value), cy=y, r=4, class_=f"point{kind}"),
        ]
    said = (f"{one.system} {one.value:.2f}, {one.mean - one.margin:.2f} to {one.mean + one.margin:.2f}" for one in some)
    return figure(f"{METRICS[some[0].name].label} with 95 % intervals", drawn, "; ".join(said), height)

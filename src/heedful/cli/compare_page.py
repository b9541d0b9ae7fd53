"""compare.html: a comparison as one HTML file without scripts, styled like a run's report.html."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from heedful.cli.systems import format_p_value
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
from heedful.metrics.compare import ComparedSystem, Comparison, LineDifference
from heedful.metrics.score import METRICS
from heedful.metrics.significance import TESTS, PairedScore
from heedful.text.normalize import escape_invisible
from heedful.training.report import TEMPLATE, mark_matches
from heedful.translation.evaluation import ScoredTexts

MAX_SHOWN_SENTENCES = 25  # with the largest gains, and as many with the largest losses
BAR_LABEL_WIDTH = 112  # pixels left of the bars
SCALE_HEIGHT, MIN_SYSTEM_HEIGHT = 24, 28  # pixels


def write_page(path: Path, comparison: Comparison, texts: ScoredTexts, test: str, warnings: Sequence[str]) -> None:
    write_html(path, render_page(comparison, texts, test, warnings))


def render_page(comparison: Comparison, texts: ScoredTexts, test: str, warnings: Sequence[str]) -> str:
    title = f"{', '.join(system.name for system in comparison.compared)} against {comparison.baseline}"
    parts = (
        page_header(title, comparison, texts),
        *(tag("p", warning, class_="warning") for warning in warnings),
        section("Scores", score_tables(comparison, test)),
        *([section("Models", model_table(texts))] if texts.models else ()),
        section("Sentence by sentence", gain_section(comparison)),
        *(
            section(
                f"Where {system.name} {verb} most",
                changed_sentences(differences, system.name, comparison.baseline, texts),
            )
            for system in comparison.compared
            for verb, differences in (
                ("gained", system.largest_gains(MAX_SHOWN_SENTENCES)),
                ("lost", system.largest_losses(MAX_SHOWN_SENTENCES)),
            )
        ),
    )
    style = TEMPLATE.read_text(encoding="utf-8").partition('<script type="application/json"')[0]
    template = f"{style}<script></script>\n</body>\n</html>\n"
    return fill_template(template, title=title, body=Html("\n".join(parts)), data=None)


def page_header(title: str, comparison: Comparison, texts: ScoredTexts) -> Html:
    """The title and tiles with the first metric of each system."""
    first_scores = first_metric_scores(comparison)
    tiles = {f"{METRICS[score.name].label}, {score.system}": f"{score.value:.2f}" for score in first_scores}
    if len(first_scores) == 2:
        tiles |= {"change": f"{first_scores[1].difference:+.2f}", "p": format_p_value(first_scores[1].p)}
    tiles["lines"] = f"{len(texts.references[0]):,}"
    tiles["references"] = str(len(texts.references))
    return tag(
        "header",
        tag("h1", title),
        remark("Translations of the same text, compared by heedful."),
        tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles.items()), class_="tiles"),
    )


def first_metric_scores(comparison: Comparison) -> list[PairedScore]:
    return [score for score in comparison.scores if score.name == comparison.scores[0].name]


def score_tables(comparison: Comparison, test: str) -> Iterator[Html]:
    """Every metric of every system, and the signatures."""
    rows = [
        (
            METRICS[score.name].title,
            score.system,
            f"{score.value:.2f}",
            f"{score.mean - score.margin:.2f} to {score.mean + score.margin:.2f}",
            f"{score.difference:+.2f}" if score.p is not None else "",
            format_p_value(score.p),
            score.verdict,
            "",
        )
        for score in comparison.scores
    ]
    yield table(("metric", "system", "score", "95 % interval", "change", "p", "", ""), rows)
    yield remark(
        f"p is the probability of a change this large by chance ({TESTS[test].label}). Each system is tested against "
        "the first without correction for multiple tests, so among many systems one may seem to differ by chance."
    )
    signatures = {METRICS[score.name].label: score.signature for score in comparison.scores}
    yield table(("metric", "signature"), list(signatures.items()), code=[1])


def model_table(texts: ScoredTexts) -> Iterator[Html]:
    rows = [
        (name, f"{summary['weights']:,}", f"{summary['megabytes']:,}", f"{summary['lines_a_second']:,}", "")
        for name, summary in ((name, model.summary) for name, model in texts.models.items())
    ]
    yield table(("system", "weights", "megabytes", "lines a second", ""), rows)
    yield remark("Speed on the machine that wrote this page, one model after the other.")


def gain_section(comparison: Comparison) -> Iterator[Html]:
    """Wins and losses, and charts of their sizes."""
    tallies = [(system.name, system.tally) for system in comparison.compared]
    rows = [(name, tally.wins, tally.losses, tally.ties, tally.same, "") for name, tally in tallies]
    yield remark(f"By the chrF of each sentence, against {comparison.baseline}.")
    yield table(("system", "better", "worse", "equal", "identical", ""), rows)
    charts = [interval_chart(first_metric_scores(comparison)), *map(draw_gain_histogram, comparison.compared)]
    yield tag("div", *charts, class_="charts")


def changed_sentences(
    differences: Sequence[LineDifference], system: str, baseline: str, texts: ScoredTexts
) -> Iterator[Html]:
    """Sentences in bold where they agree with the reference, marked at the first word that differs."""
    if differences:
        yield remark(
            "Bold words also occur in the reference, in the same order. The first word that differs "
            "between the two translations is marked."
        )
    for difference in differences:
        *context, old, new = texts.labeled_line(difference.line, baseline, system)
        reference = texts.references[0][difference.line - 1]
        change = f"{difference.first:.1f} → {difference.second:.1f} ({difference.gain:+.1f})"
        yield tag("p", f"Line {difference.line:,}: {change}", class_="source")
        outputs = [(name, mark_agreement(reference, text, difference.place)) for name, text in (old, new)]
        yield table(("", ""), [*context, *outputs])


def mark_agreement(reference: str, output: str, marked_number: int | None) -> Html:
    """The output, bold where the reference agrees, with a mark on the word of this number."""
    words = []
    for number, (word, agrees) in enumerate(mark_matches(reference, output), 1):
        text = tag("b", word.rstrip()) if agrees else Html(escape_text(word.rstrip()))
        words.append((tag("mark", text) if number == marked_number else text) + " " * word.endswith(" "))
    return Html("".join(words))


# ---------------------------------------------------------------------------------------------------- drawings


def figure(title: str, shapes: Sequence[Html], description: str, height: float = HEIGHT) -> Html:
    """A drawing with its title, and a description for screen readers."""
    label = escape_invisible(f"{title}: {description}")
    picture = tag("svg", *shapes, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label)
    return tag("figure", tag("figcaption", title), picture)


def draw_gain_histogram(system: ComparedSystem) -> Html:
    histogram = system.gain_histogram
    bar_height, largest = (HEIGHT - 2 * TOP) / len(histogram), max(1, *histogram.values())
    shapes = []
    for number, (name, count) in enumerate(histogram.items()):
        y, width = TOP + bar_height * number, (WIDTH - BAR_LABEL_WIDTH - 6 * RIGHT) * count / largest
        kind = "point second" if number < len(histogram) // 2 else "point"
        opacity = 0.4 if number == len(histogram) // 2 else 1
        shapes += [
            tag("text", name, x=BAR_LABEL_WIDTH - 8, y=round(y + bar_height / 2 + 4, 1), text_anchor="end"),
            tag(
                "rect",
                x=BAR_LABEL_WIDTH,
                y=round(y + 2, 1),
                width=round(width, 1),
                height=round(bar_height - 4, 1),
                class_=kind,
                fill_opacity=opacity,
            ),
            tag("text", f"{count:,}", x=round(BAR_LABEL_WIDTH + width + 6, 1), y=round(y + bar_height / 2 + 4, 1)),
        ]
    description = ", ".join(f"{name}: {count:,}" for name, count in histogram.items())
    return figure(f"{system.name}: change of sentences, in chrF", shapes, description)


def interval_chart(system_scores: Sequence[PairedScore]) -> Html:
    """A chart with scores as points and intervals as lines."""
    bounds = [(score.mean - score.margin, score.mean + score.margin) for score in system_scores]
    values = [
        value for score, interval in zip(system_scores, bounds, strict=True) for value in (*interval, score.value)
    ]
    low, high = min(values), max(*values, min(values) + 0.1)
    height = max(HEIGHT, TOP + SCALE_HEIGHT + MIN_SYSTEM_HEIGHT * len(system_scores))
    row_height = (height - TOP - SCALE_HEIGHT) / len(system_scores)

    def x(value: float) -> float:
        return round(2 * RIGHT + (WIDTH - 4 * RIGHT) * (value - low) / (high - low), 1)

    shapes, descriptions = [], []
    for tick in make_ticks(low, high, 5):
        shapes += [
            tag("line", x1=x(tick), x2=x(tick), y1=TOP, y2=height - SCALE_HEIGHT, class_="grid"),
            tag("text", f"{tick:,.6g}", x=x(tick), y=height - 6, text_anchor="middle"),
        ]
    for number, (score, (lower, upper)) in enumerate(zip(system_scores, bounds, strict=True)):
        y, kind = round(TOP + row_height * (number + 0.7), 1), "" if number else " second"
        shapes += [
            tag("text", f"{score.system}  {score.value:.2f}", x=2 * RIGHT, y=y - 8),
            tag("line", x1=x(lower), x2=x(upper), y1=y, y2=y, class_=f"curve{kind}"),
            tag("circle", cx=x(score.value), cy=y, r=4, class_=f"point{kind}"),
        ]
        descriptions.append(f"{score.system} {score.value:.2f}, {lower:.2f} to {upper:.2f}")
    title = f"{METRICS[system_scores[0].name].label} with 95 % intervals"
    return figure(title, shapes, "; ".join(descriptions), height)

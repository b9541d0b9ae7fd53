"""NAME.html: the outcome of an experiment as one page without scripts: claim, verdict, figure, table, settings."""

from pathlib import Path

from heedful.html import Html, fill_template, remark, section, table, tag
from heedful.lab.figure import draw_svg
from heedful.lab.outcome import Outcome, format_cell

TEMPLATE = Path(__file__).with_name("page.html")


def render_page(outcome: Outcome) -> str:
    """The page as HTML."""
    findings = outcome.findings
    title = f"{outcome.experiment}: {findings.verdict}"
    checks = [(check.statement, "holds" if check.holds else "does not hold") for check in findings.checks]
    rows = [[format_cell(cell) for cell in row] for row in findings.table.rows]
    settings = {"size": outcome.size, "seed": outcome.seed, **outcome.settings}
    facts = {"date": outcome.date, "seconds": f"{outcome.seconds:.0f}", "machine": outcome.machine, **outcome.versions}
    parts = (
        tag("h1", f"Experiment {outcome.experiment}"),
        tag("p", outcome.claim),
        tag("p", f"Verdict: {findings.verdict}", class_=f"verdict {findings.verdict}"),
        tag("figure", Html(draw_svg(findings.chart))),
        section("Why", [table(("check", "result"), checks)]),
        section("Table", [table(findings.table.columns, rows), remark("± and brackets: 95 % intervals.")]),
        section("Notes", [tag("p", note) for note in findings.notes]),
        section("Settings", [table(("setting", "value"), [(name, str(value)) for name, value in settings.items()])]),
        section("Run", [table(("", ""), list(facts.items()))]),
    )
    template = TEMPLATE.read_text(encoding="utf-8")
    return fill_template(template, title=title, body=Html("\n".join(parts)), data=None)

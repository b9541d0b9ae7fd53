"""The table of formulas: adds the line numbers of code and tests at build time.

    ```{formulas}
    E1 | dot product | nn/attention.py Dot | tests/test_formulas.py test_E9_attention_by_hand
    L2 | recurrent attention model | - left out: needs a policy over locations
    ```

A row has one id or several, what it is, and either the code (in src/heedful) and its test, or a dash with the reason
why there is none. A name that does not exist is an error.
"""

import ast
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
HEADINGS = ("", "formula or claim", "code", "test")


class Row(NamedTuple):
    """The ids of formulas, what they are, and the places of code and test, or why there are none."""

    ids: tuple[str, ...]
    title: str
    code: str
    test: str
    reason: str


def read_rows(text: str) -> list[Row]:
    rows = []
    for line in text.strip().splitlines():
        ids, title, *rest = (cell.strip() for cell in line.split("|"))
        if rest[0].startswith("- ") and len(rest) == 1:
            rows.append(Row(tuple(ids.split()), title, "", "", rest[0].removeprefix("- ")))
        elif len(rest) == 2:
            rows.append(Row(tuple(ids.split()), title, f"src/heedful/{rest[0]}", rest[1], ""))
        else:
            raise ExtensionError(f"a row needs a code and a test, or a reason: {line}")
    return rows


def find_line(place: str) -> int:
    """The line that defines a name: "src/heedful/nn/attention.py Dot"."""
    path, name = place.split()
    file = ROOT / path
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")) if file.is_file() else ast.Module([], [])):
        targets: list[Any] = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if name in (getattr(node, "name", None), *(getattr(target, "id", None) for target in targets)):
            return int(getattr(node, "lineno", 0))
    raise ExtensionError(f"there is no {name} in {path}")


class FormulaTable(SphinxDirective):
    """The directive `formulas`."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        rows = [HEADINGS]
        for row in read_rows("\n".join(self.content)):
            places = [
                f"{place.split()[0]}:{find_line(place)} {place.split()[1]}" for place in (row.code, row.test) if place
            ]
            rows.append((" ".join(row.ids), row.title, *(places or (row.reason, ""))))
        group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in HEADINGS), cols=len(HEADINGS))
        head, *body = (nodes.row("", *(nodes.entry("", self.make_cell(text)) for text in row)) for row in rows)
        group += [nodes.thead("", head), nodes.tbody("", *body)]
        return [nodes.table("", group)]

    def make_cell(self, text: str) -> nodes.paragraph:
        """Identifiers and file names are the same in all languages, so cells are not translated."""
        is_place = text.startswith(("src/", "tests/"))
        paragraph = nodes.paragraph("", "", nodes.literal(text, text) if is_place else nodes.Text(text))
        paragraph["translatable"] = False
        return paragraph


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("formulas", FormulaTable)
    return {"parallel_read_safe": True}

"""The glossary as a table: docs/glossary.toml in three languages, each term with the page that explains it.

    ```{terms}
    lectures/attention: attention, query, key
    ```

Every term of the glossary is named once; a missing or an unknown one is an error.
"""

import tomllib
from collections.abc import Iterable
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

GLOSSARY: dict[str, dict[str, str]] = tomllib.loads(
    (Path(__file__).parents[1] / "glossary.toml").read_text(encoding="utf-8")
)
HEADINGS = ("English", "Português", "Русский", "")


def read_pages(lines: Iterable[str]) -> dict[str, str]:
    """{"query": "lectures/attention", ..}; a term of the glossary is known by its first form."""
    pages: dict[str, str] = {}
    for line in lines:
        page, _, terms = line.partition(": ")
        pages |= dict.fromkeys(terms.split(", "), page)
    known = {first_form(key) for key in GLOSSARY["pt"]}
    if wrong := known ^ pages.keys():
        raise ExtensionError(f"named by the page or by the glossary, not by both: {', '.join(sorted(wrong))}")
    return pages


def first_form(forms: str) -> str:
    """'atenç|ão, atent|o' -> 'atenção'"""
    return forms.split(", ")[0].replace("|", "")


class TermTable(SphinxDirective):
    """The directive `terms`."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        pages = read_pages(self.content)
        body = []
        for key in sorted(GLOSSARY["pt"], key=str.casefold):
            words = [key.split(", ")[0], *(first_form(GLOSSARY[language][key]) for language in GLOSSARY)]
            body.append([*map(self.make_words, words), self.make_link(pages[words[0]])])
        head = [self.make_words(text) for text in HEADINGS]
        group = nodes.tgroup("", *(nodes.colspec(colwidth=1) for _ in HEADINGS), cols=len(HEADINGS))
        rows = [nodes.row("", *(nodes.entry("", cell) for cell in row)) for row in (head, *body)]
        group += [nodes.thead("", rows[0]), nodes.tbody("", *rows[1:])]
        return [nodes.table("", group)]

    def make_words(self, words: str) -> nodes.paragraph:
        """Not translated, as the table has all languages."""
        paragraph = nodes.paragraph("", words)
        paragraph["translatable"] = False
        return paragraph

    def make_link(self, page: str) -> nodes.paragraph:
        """With the title of the page."""
        link = addnodes.pending_xref(
            "", nodes.inline(), refdomain="std", reftype="doc", reftarget=f"/{page}", refexplicit=False, refwarn=True
        )
        link["refdoc"] = self.env.docname
        paragraph = nodes.paragraph("", "", link)
        paragraph["translatable"] = False
        return paragraph


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("terms", TermTable)
    return {"parallel_read_safe": True}

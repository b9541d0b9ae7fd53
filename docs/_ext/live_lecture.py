"""Lectures whose slides ask a model: the statements as a list, and the live page with the slides.

    ```{live-lecture}
    ```

The slides are the TOML file beside the page of the same name. The English build writes the live page, live/NAME.html,
because it is too large to commit; the other languages link to it.
"""

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from heedful.inspection.api import inspect
from heedful.inspection.lecture import parse_lecture

LECTURES = {"lectures/ten-slides": ("pt-en", "O gato preto bebeu o leite.")}  # page: model, and its recorded sentence


def page_of(name: str) -> str:
    return f"live/{name.rpartition('/')[2]}.html"


class LiveLecture(SphinxDirective):
    """The directive `live-lecture`: each statement is a link to its slide."""

    def run(self) -> list[nodes.Node]:
        name, language = self.env.docname, self.config.language
        if self.env.app.builder.name == "gettext":  # the slides have their own translations
            return []
        file = Path(self.env.srcdir, f"{name}.toml")
        self.env.note_dependency(str(file))
        up = "../" * name.count("/") + ("" if language == "en" else "../")
        page = f"{up}{page_of(name)}#lang={language}"
        slides = nodes.enumerated_list(enumtype="arabic", suffix=".")
        for number, slide in enumerate(parse_lecture(file.read_text(encoding="utf-8"), file.name).slides, 1):
            statement, _, rest = slide.notes[language].partition(". ")
            link = nodes.reference("", f"{statement}.", refuri=f"{page}&slide={number}")
            paragraph = nodes.paragraph("", "", link, nodes.Text(f" {rest}"))
            paragraph["translatable"] = False
            slides += nodes.list_item("", paragraph)
        return [slides]


def write_pages(app: Sphinx, failure: Exception | None) -> None:
    if failure is not None or app.builder.format != "html" or app.config.language != "en":
        return
    for name, (model, sentence) in LECTURES.items():
        page = inspect(model, sentence, lecture=Path(app.srcdir, f"{name}.toml"), live="int8")
        path = Path(app.outdir, page_of(name))
        path.parent.mkdir(exist_ok=True)
        page.save(path)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("live-lecture", LiveLecture)
    app.connect("build-finished", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

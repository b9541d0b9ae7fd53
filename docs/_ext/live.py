"""A page of `heedful inspect --live` in a frame of a lecture, on the state that its address describes.

    ```{live} text=O gato preto dorme na casa.&tab=map&view=stage
    The caption, whose first sentence is the title of the frame.
    ```

All frames show one page, LIVE, which is made when the English site is built, from a model that heedful includes. It is
loaded when a reader scrolls to it. The link below a frame opens the same state in a page of its own.
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

LIVE = "live/pt-en.html"
MODEL = "pt-en"
SENTENCE = "O gato preto dorme na casa."  # recorded: what the page shows before the model is read
LINKS = {
    "en": "Open it on a page of its own",
    "pt": "Abrir em uma página separada",
    "ru": "Открыть на отдельной странице",
}


class LiveFrame(nodes.General, nodes.Element):
    """A frame with its caption."""


def address(state: str, language: str, *, is_whole: bool) -> str:
    """The fragment of a state in a language; the whole page has no `view`."""
    parts = [part.partition("=") for part in state.split("&")]
    kept = [f"{key}={quote(value)}" for key, _, value in parts if not (is_whole and key == "view")]
    return "&".join([*kept, f"lang={language}"])


class LiveDirective(SphinxDirective):
    """The directive `live`."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        text = " ".join(self.content)
        inside, messages = self.parse_inline(text, lineno=self.content_offset + 1)
        caption = nodes.paragraph(text, "", *inside)
        caption.source, caption.line = self.env.doc2path(self.env.docname), self.content_offset + 1
        return [LiveFrame("", caption, state=self.arguments[0]), *messages]


def open_frame(writer: Any, node: LiveFrame) -> None:
    config = writer.builder.config
    up = "../" * writer.builder.current_docname.count("/") + ("" if config.language == "en" else "../")
    frame, whole = (f"{up}{LIVE}#{address(node['state'], config.language, is_whole=whole)}" for whole in (False, True))
    title = re.split(r"(?<=[.?!]) ", node.astext())[0]
    writer.body.append(
        f'<figure class="live"><iframe src="{writer.attval(frame)}" title="{writer.attval(title)}" loading="lazy">'
        "</iframe><figcaption>"
    )
    node["link"] = f'<a href="{writer.attval(whole)}">{LINKS[config.language]}</a></figcaption></figure>\n'


def close_frame(writer: Any, node: LiveFrame) -> None:
    writer.body.append(node["link"])


def write_page(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html" or app.config.language != "en":
        return
    import heedful
    from heedful.samples import model

    path = Path(app.outdir) / LIVE
    path.parent.mkdir(exist_ok=True)
    heedful.inspect(model(MODEL), SENTENCE, title="heedful", live="int8").save(path)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_node(LiveFrame, html=(open_frame, close_frame))
    app.add_directive("live", LiveDirective)
    app.connect("build-finished", write_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

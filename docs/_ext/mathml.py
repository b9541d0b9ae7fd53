"""Render formulas as MathML at build time, so that pages need no script, font or other server."""

from typing import Any
from xml.etree.ElementTree import Element, tostring
from xml.sax.saxutils import unescape

from docutils import nodes
from latex2mathml.converter import convert_to_element
from sphinx.application import Sphinx

SCRIPTS = ("msub", "msup", "msubsup")


def render(formula: str, display: str) -> str:
    tree = convert_to_element(formula, display=display)
    for row in tree.iter("mrow"):
        space_functions(row)
    return unescape(tostring(tree, encoding="unicode"))


def space_functions(row: Element) -> None:
    """Thin spaces between log, exp, ... and the symbols beside them, as in TeX; MathML has none."""
    children = list(row)
    for place in range(len(children) - 1, 0, -1):
        pair = children[place - 1 : place + 1]
        if any(map(is_function, pair)) and not any(child.tag in ("mo", "mspace") for child in pair):
            row.insert(place, Element("mspace", width="0.167em"))


def is_function(element: Element) -> bool:
    """Whether this is log, exp, ..., perhaps with an index or exponent."""
    if element.tag in SCRIPTS:
        return is_function(element[0])
    return element.tag == "mi" and len(element.text or "") > 1 and (element.text or "").isalpha()


def inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(render(node.astext(), "inline"))
    raise nodes.SkipNode


def display(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="formula">{render(node.astext(), "block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

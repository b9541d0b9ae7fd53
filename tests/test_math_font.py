"""Formulas are right with the bundled font alone: it has every sign; roots, braces, sums and hats have their size."""

import html
import json
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from support.timeouts import PATIENCE

ROOT = Path(__file__).parents[1]
STATIC = ROOT / "docs" / "_static"
sys.path.append(str(ROOT / "docs" / "_ext"))
FORMULAS = {
    "brace": r"M = \begin{cases} 0 & j \le i \\ -\infty & j > i \end{cases}",
    "root": r"\sqrt{\frac{a}{b}}",
    "sum": r"\sum_{i} a_i",
    "hat": r"\hat{h}",
    "parenthesis": r"\left( \frac{a}{b} \right)",
}


def mathml(formula: str, display: str = "block") -> str:
    pytest.importorskip("sphinx", reason="pip install 'heedful[docs]'")
    return import_module("mathml").render(formula, display)


def formulas_of(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    text = re.sub(r"^```\w.*?^```$|`[^`\n]+`", "", text, flags=re.S | re.M)
    return [
        *re.findall(r"\$\$(.+?)\$\$", text, re.S),
        *re.findall(r"(?<![$\\])\$([^$\n]+(?:\n[^$\n]+)?)\$(?!\$)", re.sub(r"\$\$.+?\$\$", "", text, flags=re.S)),
    ]


def test_every_sign_of_a_formula_is_in_the_font():
    known = set((STATIC / "fonts" / "characters.txt").read_text(encoding="utf-8"))
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "reference" not in page.parts]
    pages += (ROOT / "docs" / "notebooks").glob("*.ipynb")
    formulas = [(page.name, formula) for page in pages for formula in formulas_of(page)]
    assert len(formulas) > 150
    for name, formula in formulas:
        signs = set(html.unescape(re.sub(r"<[^>]+>", "", mathml(formula)))) - known
        assert not "".join(signs).strip(), f"{name}: {formula} needs {signs}: subset the font again"


@pytest.mark.parametrize(
    ("formula", "spaces"),
    [(r"-\log p(y)", 1), (r"p \log_2 p", 2), (r"\tanh(W x)", 0), (r"\alpha x", 0), (r"\frac{\log p}{\exp e_i}", 2)],
)
def test_functions_have_a_space_beside_symbols(formula, spaces):
    assert mathml(formula).count("<mspace") == spaces


def test_the_font_comes_with_its_license():
    assert (STATIC / "fonts" / "stix-two-math-subset.woff2").read_bytes()[:4] == b"wOF2"
    assert "SIL OPEN FONT LICENSE" in (STATIC / "fonts" / "OFL.txt").read_text(encoding="utf-8")
    assert "fonts/stix-two-math-subset.woff2" in (STATIC / "heedful.css").read_text(encoding="utf-8")


def measure(chromium, folder: Path, font: str) -> dict[str, dict[str, float]]:
    """Boxes of the parts of FORMULAS, drawn with one font."""
    body = "".join(f'<div id="{name}">{mathml(formula)}</div>' for name, formula in FORMULAS.items())
    body += f'<p id="small">{mathml(FORMULAS["sum"], "inline")}</p>'
    page_path = folder / "formulas.html"
    page_path.write_text(
        f'<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="{(STATIC / "heedful.css").as_uri()}">'
        f"<style>math {{ font-family: {font} !important; font-size: 20px !important; }}</style>{body}",
        encoding="utf-8",
    )
    page = chromium.new_page()
    page.goto(page_path.as_uri())
    page.evaluate("document.fonts.load('20px \"STIX Two Math\"')")
    page.wait_for_function("document.fonts.status === 'loaded'", timeout=1000 * PATIENCE)
    boxes = page.evaluate(
        """() => Object.fromEntries([
            ["brace", "#brace mtable"], ["brace sign", "#brace mo[stretchy], #brace mrow > mo:not(:nth-child(2))"],
            ["root", "#root msqrt"], ["under the root", "#root mfrac"],
            ["sum", "#sum mo"], ["small sum", "#small mo"],
            ["base", "#hat mi"], ["hat", "#hat mo"],
            ["fraction", "#parenthesis mfrac"], ["parenthesis", "#parenthesis mo"],
        ].map(([name, path]) => {
            const box = document.querySelector(path).getBoundingClientRect();
            return [name, {top: box.top, left: box.left, width: box.width, height: box.height}];
        }))"""
    )
    page.close()
    return boxes


@pytest.mark.slow
def test_roots_braces_sums_and_hats_have_their_size(chromium, tmp_path):
    boxes = measure(chromium, tmp_path, '"STIX Two Math"')
    assert boxes["brace sign"]["height"] >= 0.9 * boxes["brace"]["height"]
    assert boxes["parenthesis"]["height"] >= 0.9 * boxes["fraction"]["height"]
    assert boxes["sum"]["height"] >= 1.25 * boxes["small sum"]["height"]
    root, inside = boxes["root"], boxes["under the root"]
    assert root["top"] < inside["top"]
    assert root["left"] < inside["left"]
    assert root["width"] > inside["width"] + 4
    base, hat = boxes["base"], boxes["hat"]
    assert hat["top"] < base["top"] + 0.3 * base["height"]
    assert abs((hat["left"] + hat["width"] / 2) - (base["left"] + base["width"] / 2)) < base["width"]
    assert boxes["parenthesis"]["height"] <= 1.2 * boxes["fraction"]["height"]
    without = measure(chromium, tmp_path, '"DejaVu Sans", sans-serif')  # a text font: the test can fail
    assert without["parenthesis"]["height"] > 1.2 * without["fraction"]["height"]

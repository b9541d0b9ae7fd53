"""The figures of the lectures: drawn again from their data, in three languages, on their pages."""

import json
import math
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LECTURES = ROOT / "docs" / "lectures"
PLACED = {page: re.findall(r"^```\{figure\} figures/(.+)\.svg$", page.read_text(encoding="utf-8"), re.M)
          for page in sorted(LECTURES.glob("*.md"))}  # fmt: skip

MEASURED = [path.stem for path in sorted((ROOT / "docs" / "_ext" / "figures" / "data").glob("*.json"))]


@pytest.fixture(scope="module")
def figures():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "_ext"))
        import figures

        yield figures


def test_every_figure_is_what_its_data_say(figures):
    drawn = figures.files()
    assert {path.name for path in drawn} == {path.name for path in figures.FOLDER.glob("*.svg")}
    stale = [path.name for path, svg in drawn.items() if path.read_bytes() != svg.encode()]
    assert not stale, f"run scripts/figures: {stale}"


def test_another_number_is_another_figure(figures, monkeypatch):
    weights = json.loads((ROOT / "docs/_ext/figures/data/gru.json").read_text(encoding="utf-8"))
    before = figures.draw("attention-gru", "en")
    monkeypatch.setattr(figures.attention, "data", lambda name: weights | {"first": 0.5})
    assert figures.draw("attention-gru", "en") != before


@pytest.mark.parametrize("page", PLACED, ids=lambda page: page.stem)
def test_every_page_has_three_figures(page):
    shows_slides = "```{live-lecture}" in page.read_text(encoding="utf-8")
    assert shows_slides or len(PLACED[page]) >= 3


def test_every_figure_is_on_one_page_with_words_for_those_who_cannot_see_it(figures):
    placed = [name for names in PLACED.values() for name in names]
    assert sorted(placed) == sorted(figures.DRAWINGS)
    for page, names in PLACED.items():
        text = page.read_text(encoding="utf-8")
        for name in names:
            block = re.search(rf"^```{{figure}} figures/{name}\.svg\n(.*?)^```$", text, re.M | re.S)[1]
            assert re.fullmatch(rf":alt: \S.{{20,}}\n:name: fig-{name}\n\n\S.+\n", block), f"{page.name}: {name}"


def test_no_word_is_left_that_no_figure_uses(figures, monkeypatch):
    used = set()
    plain = figures.Figure.t

    def look_up(figure, words, **values):
        used.add(words)
        return plain(figure, words, **values)

    monkeypatch.setattr(figures.Figure, "t", look_up)
    for name in figures.DRAWINGS:
        figures.draw(name, "pt")
    assert used == set(figures.words.TABLE)


@pytest.mark.parametrize(("column", "language"), [(0, "pt"), (1, "ru")])
def test_figures_follow_the_glossary(figures, column, language, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests"))
    from test_glossary import violations

    glossary = tomllib.loads((ROOT / "docs" / "glossary.toml").read_text(encoding="utf-8"))[language]
    wrong = {english: terms for english, words in figures.words.TABLE.items()
             if (terms := violations(glossary, re.sub(r"\$[^$]*\$", " ", english), words[column]))}  # fmt: skip
    assert not wrong


def contrast(one, other):
    """https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio"""

    def luminance(color):
        parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_words_and_lines_have_contrast(figures, theme):
    colors = {name: pair[theme] for name, pair in figures.canvas.COLORS.items()}
    for name, color in colors.items():
        if name.endswith("-soft"):
            assert contrast(colors["ink"], color) >= 4.5, name
        elif name not in ("faint", "panel", "paper", "on-weight"):
            assert contrast(color, colors["paper"]) >= (3 if name == "line" else 4.5), name
    assert contrast(colors["weight"], colors["on-weight"]) >= 4.5
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_words_stay_inside_the_frame(figures):
    """An estimate of widths; letters of system fonts differ, so the margin is small."""
    for path, svg in figures.files().items():
        for x, size, anchor, more, words in re.findall(
            r'<text x="([\d.]+)" y="[\d.]+" font-size="([\d.]+)" text-anchor="(\w+)"([^>]*)>(.*?)</text>', svg
        ):
            if "rotate" in more:
                continue
            width = 0.9 * figures.canvas.wide(re.sub(r"<[^>]+>|&\w+;", "", words), float(size))
            left = float(x) - {"start": 0, "middle": width / 2, "end": width}[anchor]
            assert left >= -4, f"{path.name}: {words}"
            assert left + width <= 724, f"{path.name}: {words}"


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_the_data_are_what_the_cells_and_the_bundled_model_compute(figures, name):
    from figures.measure import MEASURES

    assert sorted(MEASURES) == sorted(MEASURED)
    committed = json.loads((ROOT / f"docs/_ext/figures/data/{name}.json").read_text(encoding="utf-8"))
    assert_close(MEASURES[name](), committed)


def assert_close(found, wanted):
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key in wanted:
            assert_close(found[key], wanted[key])
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_close(one, other)
    elif isinstance(wanted, float):
        assert math.isclose(found, wanted, rel_tol=1e-2, abs_tol=1e-3)
    else:
        assert found == wanted

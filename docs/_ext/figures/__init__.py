"""The figures of the lectures: SVG drawn from data, in one style, in three languages, for light and dark pages.

scripts/figures writes them to docs/lectures/figures; tests/test_figures.py draws them again and compares.
"""

from pathlib import Path

from figures import (
    attention,
    captions,
    decoding,
    encoder_decoder,
    graphs,
    hard_attention,
    index,
    looking_inside,
    metrics,
    recurrent,
    scores,
    speech,
    today,
    training,
    transformer,
    words_as_vectors,
)
from figures.canvas import DRAWINGS, Figure
from figures.words import LANGUAGES

PAGES = (
    index,
    words_as_vectors,
    recurrent,
    encoder_decoder,
    attention,
    scores,
    transformer,
    training,
    decoding,
    metrics,
    looking_inside,
    captions,
    speech,
    hard_attention,
    graphs,
    today,
)
FOLDER = Path(__file__).parents[2] / "lectures" / "figures"


def draw(name: str, language: str) -> str:
    """Return a figure as SVG."""
    drawing = DRAWINGS[name]
    figure = Figure(language, drawing.height)
    drawing.draw(figure)
    return figure.svg()


def path_of(name: str, language: str) -> Path:
    """attention-weights.svg is English; attention-weights.pt.svg is beside it."""
    return FOLDER / (f"{name}.svg" if language == "en" else f"{name}.{language}.svg")


def files() -> dict[Path, str]:
    """Return every figure in every language."""
    return {path_of(name, language): draw(name, language) for name in DRAWINGS for language in LANGUAGES}

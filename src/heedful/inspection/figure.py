"""One attention map as a figure: SVG for papers and slides, PNG, or a heat map in the terminal."""

from html import escape
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text as Colored

from heedful.alignment import AlignmentMethod
from heedful.errors import HeedfulError, require
from heedful.text.normalize import escape_invisible
from heedful.trace import Piece, Sentence

Array = NDArray[Any]
CELL_PIXELS, LETTER_WIDTH_PIXELS, LETTER_HEIGHT_PIXELS = 26, 8.2, 15
FONTS = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
LIGHT, DARK = (247, 251, 255), (8, 48, 107)  # weights 0 and 1: one hue, for color-blind readers
MAX_TERMINAL_ROW_LETTERS, MAX_TERMINAL_COLUMN_LETTERS = 20, 12


def attention_map(sentence: Sentence, pieces: bool = False) -> tuple[Array, list[str], list[str]]:
    """Cross-attention [T, S] of the best head or the mean of all, with labels of rows and columns."""
    blob = sentence.attention.get("cross")
    if blob is None or blob.shape[-1] != len(sentence.source.pieces):
        raise HeedfulError("this model has no attention over the source words, so there is no map to draw")
    array = blob.array()
    reading = AlignmentMethod(**sentence.reading.model_dump()) if sentence.reading else AlignmentMethod()
    weights = reading(array, len(sentence.target.pieces))
    rows, columns = (group_pieces(side.pieces, not pieces) for side in (sentence.target, sentence.source))
    merged = np.stack([weights[:, members].sum(1) for _, members in columns], 1)
    merged = np.stack([merged[members].mean(0) for _, members in rows])
    return merged, [label for label, _ in rows], [label for label, _ in columns]


def group_pieces(pieces: tuple[Piece, ...], by_words: bool) -> list[tuple[str, list[int]]]:
    """(label, indices) of pieces shown together: those of a word, or the bytes of one character."""

    def group_key(item: tuple[int, Piece]) -> tuple[Any, ...]:
        index, piece = item
        if by_words and piece.word is not None:
            return ("word", piece.word)
        return ("piece", index) if piece.letter is None else ("letter", piece.letter)

    groups = []
    for _, items in groupby(enumerate(pieces), group_key):
        members = list(items)
        texts = {
            ("letter", piece.letter) if piece.letter is not None else index: piece.text for index, piece in members
        }
        label = "".join(texts.values()).strip()
        groups.append((label or "\u2423", [index for index, _ in members]))
    return groups


def render_svg(sentence: Sentence, *, pieces: bool = False) -> str:
    """A heat map as SVG with the source above and the translation at the side, by words or `pieces`."""
    weights, rows, columns = attention_map(sentence, pieces)
    side = 16 + LETTER_WIDTH_PIXELS * max(map(len, rows), default=1)
    above = 16 + 0.75 * LETTER_WIDTH_PIXELS * max(map(len, columns), default=1) + LETTER_HEIGHT_PIXELS
    wide, high = side + CELL_PIXELS * len(columns) + above * 0.75, above + CELL_PIXELS * len(rows) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{high:.0f}" '
        f'viewBox="0 0 {wide:.0f} {high:.0f}" font-family="{FONTS}" font-size="14">',
        f"<title>{escape_xml(sentence.source.text)} / {escape_xml(sentence.target.text)}</title>",
        f'<rect width="{wide:.0f}" height="{high:.0f}" fill="#ffffff"/>',
    ]
    for column, label in enumerate(columns):
        x, y = side + CELL_PIXELS * (column + 0.5), above - 8
        parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" transform="rotate(-45 {x:.1f} {y:.1f})">{escape_xml(label)}</text>'
        )
    size = CELL_PIXELS - 1
    for row, label in enumerate(rows):
        y = above + CELL_PIXELS * row
        parts.append(
            f'<text x="{side - 8:.1f}" y="{y + CELL_PIXELS * 0.68:.1f}" text-anchor="end">{escape_xml(label)}</text>'
        )
        for column in range(len(columns)):
            red, green, blue = weight_color(float(weights[row, column]))
            parts.append(
                f'<rect x="{side + CELL_PIXELS * column:.1f}" y="{y:.1f}" width="{size}" height="{size}" '
                f'fill="rgb({red},{green},{blue})"><title>{weights[row, column]:.3f}</title></rect>'
            )
    return "\n".join([*parts, "</svg>\n"])


def escape_xml(text: str) -> str:
    """Text for XML, with invisible characters escaped."""
    return escape(escape_invisible(text).replace("\ufffe", "").replace("\uffff", ""))


def weight_color(weight: float) -> tuple[int, int, int]:
    """RGB of an attention weight, from light to dark blue."""
    share = min(1.0, max(0.0, weight)) ** 0.7
    red, green, blue = (round(low + (high - low) * share) for low, high in zip(LIGHT, DARK, strict=True))
    return red, green, blue


def render_png(svg: str, zoom: int = 2) -> bytes:
    require("resvg_py", extra="figure", whose="a PNG")
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=zoom))


def render_terminal(sentence: Sentence, *, pieces: bool = False) -> Colored:
    """A heat map for the terminal; source words are vertical, above their columns."""
    weights, rows, columns = attention_map(sentence, pieces)
    column_labels = [escape_invisible(name)[:MAX_TERMINAL_COLUMN_LETTERS] for name in columns]
    row_labels = [escape_invisible(name)[:MAX_TERMINAL_ROW_LETTERS] for name in rows]
    width, height = max(map(len, row_labels), default=1), max(map(len, column_labels), default=1)
    chart = Colored()
    for level in range(height):
        letters = [label.rjust(height)[level] for label in column_labels]
        chart.append(" " * (width + 1) + "".join(f"{letter}  " for letter in letters) + "\n")
    for label, row in zip(row_labels, weights, strict=True):
        chart.append(f"{label:>{width}} ")
        for weight in row.tolist():
            red, green, blue = weight_color(weight)
            ink = "white" if weight > 0.35 else "black"
            chart.append(
                f"{min(99, round(100 * weight)):>2} " if weight >= 0.05 else "   ",
                f"{ink} on rgb({red},{green},{blue})",
            )
        chart.append("\n")
    return chart

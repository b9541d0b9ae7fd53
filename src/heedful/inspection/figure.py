"""One map as a figure: SVG for papers and slides, PNG of it, and a heat map in the terminal."""

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
CELL, LETTER, TALL = 26, 8.2, 15  # pixels: a cell, the width of a letter, the height of one
FONTS = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
LIGHT, DARK = (
    (247, 251, 255),
    (8, 48, 107),
)  # of no attention and of all: one hue, so that everybody can tell them apart


def map_of(sentence: Sentence, pieces: bool = False) -> tuple[Array, list[str], list[str]]:
    """Cross-attention [T, S] by the best head, or the mean of all; and what its rows and columns are called."""
    blob = sentence.attention.get("cross")
    if blob is None or blob.shape[-1] != len(sentence.source.pieces):
        raise HeedfulError("this model does not look at the words of its source, so there is no map to draw")
    array = blob.array()
    reading = sentence.reading
    how = AlignmentMethod(**reading.model_dump()) if reading else AlignmentMethod()
    weights = how(array, len(sentence.target.pieces))
    rows, columns = (groups(side.pieces, pieces) for side in (sentence.target, sentence.source))
    joined = np.stack([weights[:, some].sum(1) for _, some in columns], 1)
    joined = np.stack([joined[some].mean(0) for _, some in rows])
    return joined, [name for name, _ in rows], [name for name, _ in columns]


def groups(some: tuple[Piece, ...], pieces: bool) -> list[tuple[str, list[int]]]:
    """Which pieces are shown as one, and what they are called together."""

    def key(pair: tuple[int, Piece]) -> tuple[Any, ...]:
        at, piece = pair
        if piece.letter is not None and (pieces or piece.word is None):
            return ("letter", piece.letter)
        return ("piece", at) if pieces or piece.word is None else ("word", piece.word)

    found = []
    for _, members in groupby(enumerate(some), key):
        inside = list(members)
        once = {("letter", one.letter) if one.letter is not None else at: one.text for at, one in inside}
        name = "".join(once.values()).strip()
        found.append((name or "\u2423", [at for at, _ in inside]))
    return found


def figure(sentence: Sentence, *, pieces: bool = False) -> str:
    """A heat map as SVG: the source above, the translation at the side."""
    weights, rows, columns = map_of(sentence, pieces)
    side = 16 + LETTER * max(map(len, rows), default=1)
    above = 16 + 0.75 * LETTER * max(map(len, columns), default=1) + TALL
    wide, high = side + CELL * len(columns) + above * 0.75, above + CELL * len(rows) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide:.0f}" height="{high:.0f}" '
        f'viewBox="0 0 {wide:.0f} {high:.0f}" font-family="{FONTS}" font-size="14">',
        f"<title>{safe(sentence.source.text)} / {safe(sentence.target.text)}</title>",
        f'<rect width="{wide:.0f}" height="{high:.0f}" fill="#ffffff"/>',
    ]
    for at, name in enumerate(columns):
        x = side + CELL * (at + 0.5)
        parts.append(
            f'<text x="{x:.1f}" y="{above - 8:.1f}" transform="rotate(-45 {x:.1f} {above - 8:.1f})">{safe(name)}</text>'
        )
    for row, name in enumerate(rows):
        y = above + CELL * row
        parts.append(f'<text x="{side - 8:.1f}" y="{y + CELL * 0.68:.1f}" text-anchor="end">{safe(name)}</text>')
        for column in range(len(columns)):
            red, green, blue = color(float(weights[row, column]))
            parts.append(
                f'<rect x="{side + CELL * column:.1f}" y="{y:.1f}" width="{CELL - 1}" height="{CELL - 1}" '
                f'fill="rgb({red},{green},{blue})"><title>{weights[row, column]:.3f}</title></rect>'
            )
    return "\n".join([*parts, "</svg>\n"])


def safe(text: str) -> str:
    """Text for XML, with what cannot be seen written out."""
    return escape(escape_invisible(text).replace("\ufffe", "").replace("\uffff", ""))


def color(weight: float) -> tuple[int, int, int]:
    """From light to dark blue."""
    share = min(1.0, max(0.0, weight)) ** 0.7
    red, green, blue = (round(low + (high - low) * share) for low, high in zip(LIGHT, DARK, strict=True))
    return red, green, blue


def png(svg: str, zoom: int = 2) -> bytes:
    """The figure in dots."""
    require("resvg_py", extra="figure", whose="a PNG")
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=zoom))


def terminal(sentence: Sentence, *, pieces: bool = False) -> Colored:
    """A heat map of characters: source words stand upright above their columns."""
    weights, rows, columns = map_of(sentence, pieces)
    names, rows = ([escape_invisible(name)[:longest] for name in some] for some, longest in ((columns, 12), (rows, 20)))
    side, high = max(map(len, rows), default=1), max(map(len, names), default=1)
    shown = Colored()
    for level in range(high):
        letters = [name.rjust(high)[level] for name in names]
        shown.append(" " * (side + 1) + "".join(f"{letter}  " for letter in letters) + "\n")
    for name, row in zip(rows, weights, strict=True):
        shown.append(f"{name:>{side}} ")
        for weight in row.tolist():
            red, green, blue = color(weight)
            ink = "white" if weight > 0.35 else "black"
            shown.append(
                f"{min(99, round(100 * weight)):>2} " if weight >= 0.05 else "   ",
                f"{ink} on rgb({red},{green},{blue})",
            )
        shown.append("\n")
    return shown

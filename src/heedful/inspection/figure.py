"""One attention map as a figure: SVG for papers and slides, PNG, or a heat map in the terminal."""

from html import escape
from itertools import groupby
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from rich.text import Text as Colored

from heedful.alignment import AlignmentMethod
from heedful.errors import HeedfulError, require
from heedful.inputs.kinds import Box
from heedful.text.normalize import escape_invisible
from heedful.trace import Piece, Sentence, read_png_size

Array = NDArray[Any]
CELL_PIXELS, LETTER_WIDTH_PIXELS, LETTER_HEIGHT_PIXELS = 26, 8.2, 15
FONTS = "Helvetica, Arial, 'DejaVu Sans', sans-serif"
LIGHT, DARK = (247, 251, 255), (8, 48, 107)  # weights 0 and 1: one hue, for color-blind readers
PICTURE_PIXELS, PICTURES_PER_LINE, MAX_VEIL = 128, 6, 0.85
MAX_PICTURE_WORD_LETTERS, MAX_TERMINAL_CELLS = 18, 38  # two characters per cell: lines of a terminal of 80 characters
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


def slot_boxes(sentence: Sentence) -> list[Box]:
    """The boxes of the slots if the source is a picture, otherwise none."""
    return [piece.box for piece in sentence.source.pieces if piece.box]


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
    """A heat map as SVG with the source above and the translation at the side, by words or `pieces`.

    Of a picture: the picture once per word, as `render_pictures` draws it.
    """
    weights, rows, columns = attention_map(sentence, pieces)
    if sentence.source.picture:
        return render_pictures(sentence, weights, rows)
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


def render_pictures(sentence: Sentence, weights: Array, words: list[str]) -> str:
    """The picture once per word: the less a slot was looked at, compared with the strongest, the whiter it is."""
    assert sentence.source.picture is not None
    columns, rows = read_png_size(sentence.source.picture)
    size = PICTURE_PIXELS, round(PICTURE_PIXELS * rows / columns)
    name = f"picture-{crc32(sentence.source.picture.encode()):08x}"  # a notebook may show several figures
    per_line = min(len(words), PICTURES_PER_LINE)
    wide, high = size[0] + 16, size[1] + 2 * LETTER_HEIGHT_PIXELS + 8
    width, height = wide * per_line, high * -(-len(words) // per_line)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" font-family="{FONTS}" font-size="14">',
        f"<title>{escape_xml(sentence.source.text)} / {escape_xml(sentence.target.text)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<defs><image id="{name}" width="{size[0]}" height="{size[1]}" '
        f'image-rendering="optimizeSpeed" xlink:href="data:image/png;base64,{sentence.source.picture}"/></defs>',
    ]
    for index, (word, row) in enumerate(zip(words, weights, strict=True)):
        x, y = wide * (index % per_line) + 8, high * (index // per_line) + 8
        parts.append(f'<g transform="translate({x} {y})"><use xlink:href="#{name}"/>')
        for (left, top, right, bottom), weight in zip(slot_boxes(sentence), row.tolist(), strict=True):
            veil = MAX_VEIL * (1 - weight / max(row.max(), 1e-9))
            parts.append(
                f'<rect x="{size[0] * left:.2f}" y="{size[1] * top:.2f}" width="{size[0] * (right - left):.2f}" '
                f'height="{size[1] * (bottom - top):.2f}" fill="#ffffff" fill-opacity="{veil:.3f}">'
                f"<title>{weight:.3f}</title></rect>"
            )
        parts.append(f'<rect width="{size[0]}" height="{size[1]}" fill="none" stroke="#999999"/>')
        parts.append(
            f'<text x="{size[0] / 2}" y="{size[1] + LETTER_HEIGHT_PIXELS + 2}" '
            f'text-anchor="middle">{escape_xml(word[:MAX_PICTURE_WORD_LETTERS])}</text></g>'
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
    """A heat map for the terminal; source words are vertical, above their columns.

    Of a picture: one map of its slots per word.
    """
    weights, rows, columns = attention_map(sentence, pieces)
    if sentence.source.picture:
        return render_terminal_pictures(sentence, weights, rows)
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
            chart.append(f"{format_weight(weight)} ", f"{ink} on rgb({red},{green},{blue})")
        chart.append("\n")
    return chart


def format_weight(weight: float) -> str:
    """Percent in two characters; nothing below 5 %."""
    return f"{min(99, round(100 * weight)):>2}" if weight >= 0.05 else "  "


def render_terminal_pictures(sentence: Sentence, weights: Array, words: list[str]) -> Colored:
    """Maps of the slots beside each other, one per word; the strongest slot of each is the darkest."""
    boxes = slot_boxes(sentence)
    lefts, tops = (sorted({box[side] for box in boxes}) for side in (0, 1))
    places = {(tops.index(box[1]), lefts.index(box[0])): slot for slot, box in enumerate(boxes)}
    per_line = max(1, MAX_TERMINAL_CELLS // (len(lefts) + 1))
    chart = Colored()
    for first in range(0, len(words), per_line):
        shown = range(first, min(first + per_line, len(words)))
        for line in range(len(tops)):
            for word, column in ((word, column) for word in shown for column in range(len(lefts))):
                slot = places.get((line, column))
                weight = 0.0 if slot is None else float(weights[word, slot])
                share = weight / max(float(weights[word].max()), 1e-9)
                red, green, blue = weight_color(share)
                ink = "white" if share > 0.35 else "black"
                chart.append(format_weight(weight), f"{ink} on rgb({red},{green},{blue})")
                chart.append("  " if column == len(lefts) - 1 else "")
            chart.append("\n")
        width = 2 * len(lefts)
        labels = [escape_invisible(words[word])[:width] for word in shown]
        chart.append("  ".join(label.ljust(width) for label in labels).rstrip() + "\n\n")
    return chart

"""A map of word vectors as a page: the frequent words in two dimensions."""

from collections.abc import Sequence

import numpy as np

from heedful.embeddings.vectors import Floats, WordVectors
from heedful.html import Html, fill_template, remark, tag

MAP_SIZE, MARGIN = 1600, 90  # of the drawing, in its own units
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src '$style'">
<title>$title</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 1rem auto; max-width: 1100px; padding: 0 1rem }
svg { width: 100%; border: 1px solid #8888; border-radius: 8px } text { font-size: 17px; fill: currentColor }
circle { fill: #2a78d6 } .quiet { color: #6b6b6b }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd } .quiet { color: #aaa } }
</style></head><body>$body<script>$code</script></body></html>
"""


def project_to_plane(matrix: Floats) -> Floats:
    """The two principal components of the vectors: [V, D] -> [V, 2]"""
    centered = matrix - matrix.mean(0)
    _, _, axes = np.linalg.svd(centered, full_matrices=False)
    plane: Floats = centered @ axes[:2].T
    return plane


def select_words(vectors: WordVectors, words: Sequence[str], count: int) -> WordVectors:
    """The given words, or else the first `count`, which are the most frequent ones."""
    rows = [vectors.row_of(word) for word in words] or list(range(min(count, len(vectors.words))))
    return WordVectors([vectors.words[row] for row in rows], vectors.directions[rows])


def draw_map(vectors: WordVectors) -> Html:
    plane = project_to_plane(vectors.matrix)
    low, high = plane.min(0), plane.max(0)
    places = MARGIN + (MAP_SIZE - 2 * MARGIN) * (plane - low) / np.maximum(high - low, 1e-12)
    shapes = []
    for word, (x, y) in zip(vectors.words, places.round(1).tolist(), strict=True):
        shapes += [tag("circle", cx=x, cy=y, r=3), tag("text", word, x=x + 6, y=y + 5)]
    label = f"map of {len(vectors.words)} words"
    return tag("svg", *shapes, viewBox=f"0 0 {MAP_SIZE} {MAP_SIZE}", role="img", aria_label=label)


def render_map(vectors: WordVectors, name: str) -> str:
    """A page with the map, without scripts and requests."""
    title = f"Words of {name}"
    body = Html(
        tag("h1", title)
        + remark(
            f"{len(vectors.words):,} words; the two directions in which their vectors (of length 1) differ most. "
            "Words that are near each other here may be far apart in the other dimensions."
        )
        + draw_map(vectors)
    )
    return fill_template(PAGE, title=title, body=body, data=None)

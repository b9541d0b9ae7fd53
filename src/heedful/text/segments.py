"""Split text into parts that a model can translate, preferably sentences.

    parts = segment_text(text, fits, "en")             # [("One sentence.", " "), ("Another.", "")]
    "".join(text + gap for text, gap in parts)         # the text again

A sentence that does not fit is split between clauses, a clause between words, a word anywhere; adjacent parts that fit
together are merged again.
"""

import re
from collections.abc import Callable

from heedful.text.sentences import Segments, split_sentences

Fits = Callable[[str], bool]

WIDE_CLAUSES = "\u3001\uff0c\uff1b\uff1a"
BOUNDARIES = (
    re.compile(f"(?<=[,;:\u2014\u2013\u060c\u061b])\\s+|(?<=[{WIDE_CLAUSES}])"),
    re.compile("\\s+"),
)


def segment_text(text: str, fits: Fits, language: str = "", gap: str = "") -> Segments:
    """Return the sentences of a text [(sentence, space after it)], those that do not fit in parts that do.

    `gap` is the space after the text.
    """
    *sentences, (last, _) = split_sentences(text, language) or [("", "")]
    return [part for sentence, space in [*sentences, (last, gap)] for part in segment_sentence(sentence, space, fits)]


def segment_sentence(text: str, gap: str, fits: Fits, level: int = 0) -> Segments:
    """Return [(part, space after it)] such that every part fits; `gap` is the space after the last."""
    if fits(text):
        return [(text, gap)]
    if level == len(BOUNDARIES):
        middle = len(text) // 2
        halves = [(text[:middle], ""), (text[middle:], gap)] if middle else []
        return [part for half in halves for part in segment_sentence(*half, fits, level)] or [(text, gap)]
    packed: Segments = []
    for part, space in split_at(text, BOUNDARIES[level]):
        if packed and fits(longer := packed[-1][0] + packed[-1][1] + part):
            packed[-1] = (longer, space)
        else:
            packed.append((part, space))
    packed[-1] = (packed[-1][0], packed[-1][1] + gap)
    return [smaller for part, space in packed for smaller in segment_sentence(part, space, fits, level + 1)]


def split_at(text: str, boundary: re.Pattern[str]) -> Segments:
    """Return the parts between boundaries, each with the space after it."""
    parts, begin = [], 0
    for match in boundary.finditer(text):
        if match.start() > begin:
            parts.append((text[begin : match.start()], match[0]))
            begin = match.end()
    return [*parts, (text[begin:], "")] if begin < len(text) else parts

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
    parts = split_at(text, BOUNDARIES[level])
    parts[-1] = (parts[-1][0], parts[-1][1] + gap)
    segments: Segments = []
    begin = 0
    while begin < len(parts):
        end = fitting_end(parts, begin, fits)
        merged, space = join_parts(parts[begin:end])
        segments += segment_sentence(merged, space, fits, level + 1)
        begin = end
    return segments


def fitting_end(parts: Segments, begin: int, fits: Fits) -> int:
    """The end of the parts from `begin` that fit together: by doubling, then bisection, so `fits` is seldom called."""
    end, step = begin + 1, 1
    while end < len(parts) and fits(join_parts(parts[begin : end + step])[0]):
        end, step = min(end + step, len(parts)), 2 * step
    too_far = min(end + step, len(parts) + 1)
    while too_far - end > 1:
        middle = (end + too_far) // 2
        end, too_far = (middle, too_far) if fits(join_parts(parts[begin:middle])[0]) else (end, middle)
    return end


def join_parts(parts: Segments) -> tuple[str, str]:
    """The parts as one, with the space after the last."""
    last, gap = parts[-1]
    return "".join(text + space for text, space in parts[:-1]) + last, gap


def split_at(text: str, boundary: re.Pattern[str]) -> Segments:
    """Return the parts between boundaries, each with the space after it."""
    parts, begin = [], 0
    for match in boundary.finditer(text):
        if match.start() > begin:
            parts.append((text[begin : match.start()], match[0]))
            begin = match.end()
    return [*parts, (text[begin:], "")] if begin < len(text) else parts

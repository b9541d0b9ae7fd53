"""Split text that is too long for a model, preferably between sentences.

    pieces = segment_text(text, fits)                   # [("One sentence.", " "), ("Another.", "")]
    "".join(text + gap for text, gap in pieces)        # the text again

Text is split after every sentence, because most models are trained on single sentences. A sentence that does not fit is
split between clauses, a clause between words, a word anywhere; adjacent parts that fit together are merged again.
"""

import re
from collections.abc import Callable

Fits = Callable[[str], bool]
Segments = list[tuple[str, str]]  # text, and the space after it

CLOSERS = "\"'\u00bb\u201d\u2019)\\]\u300d\u300f"
ENDS, WIDE_ENDS = ".!?\u2026\u061f\u0964", "\u3002\uff01\uff1f"  # wide scripts have no space after a sentence
WIDE_CLAUSES = "\u3001\uff0c\uff1b\uff1a"
BOUNDARIES = (
    re.compile(
        f"(?<=[{ENDS}][{CLOSERS}])\\s+|(?<=[{ENDS}])\\s+"
        f"|(?<=[{WIDE_ENDS}][{CLOSERS}])|(?<=[{WIDE_ENDS}])(?![{WIDE_ENDS}{CLOSERS}])"
    ),
    re.compile(f"(?<=[,;:\u2014\u2013\u060c\u061b])\\s+|(?<=[{WIDE_CLAUSES}])"),
    re.compile("\\s+"),
)


def segment_text(text: str, fits: Fits, level: int = 0) -> Segments:
    """Return [(part, space after it)] such that every part fits."""
    if fits(text):
        return [(text, "")]
    if level == len(BOUNDARIES):
        middle = len(text) // 2
        return (
            [(text, "")]
            if not middle
            else segment_text(text[:middle], fits, level) + segment_text(text[middle:], fits, level)
        )
    packed: Segments = []
    for part, gap in split_at(text, BOUNDARIES[level]):
        if level and packed and fits(longer := packed[-1][0] + packed[-1][1] + part):
            packed[-1] = (longer, gap)
        else:
            packed.append((part, gap))
    result: Segments = []
    for part, gap in packed:
        smaller = segment_text(part, fits, level + 1)
        result += [*smaller[:-1], (smaller[-1][0], gap)]
    return result


def split_at(text: str, boundary: re.Pattern[str]) -> Segments:
    """Return the parts between boundaries, each with the space after it."""
    parts, begin = [], 0
    for match in boundary.finditer(text):
        if match.start() > begin:
            parts.append((text[begin : match.start()], match[0]))
            begin = match.end()
    return [*parts, (text[begin:], "")] if begin < len(text) else parts

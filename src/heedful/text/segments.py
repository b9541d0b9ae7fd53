"""Text that is too long for a model, cut where it hurts least.

    pieces = segments(text, fits)                      # [("One sentence.", " "), ("Another.", "")]
    "".join(text + gap for text, gap in pieces)        # the text again

At the ends of all sentences: most models saw one sentence at a time. A sentence that does not fit is cut at its
clauses, a clause at its words, a word anywhere; of these, neighbors that fit together stay together.
"""

import re
from collections.abc import Callable

Fits = Callable[[str], bool]
Segments = list[tuple[str, str]]  # text, and the space after it

CLOSERS = "\"'\u00bb\u201d\u2019)\\]\u300d\u300f"
ENDS, WIDE_ENDS = ".!?\u2026\u061f\u0964", "\u3002\uff01\uff1f"  # those of the wide scripts need no space after them
WIDE_CLAUSES = "\u3001\uff0c\uff1b\uff1a"
BOUNDARIES = (
    re.compile(
        f"(?<=[{ENDS}][{CLOSERS}])\\s+|(?<=[{ENDS}])\\s+"
        f"|(?<=[{WIDE_ENDS}][{CLOSERS}])|(?<=[{WIDE_ENDS}])(?![{WIDE_ENDS}{CLOSERS}])"
    ),
    re.compile(f"(?<=[,;:\u2014\u2013\u060c\u061b])\\s+|(?<=[{WIDE_CLAUSES}])"),
    re.compile("\\s+"),
)


def segments(text: str, fits: Fits, level: int = 0) -> Segments:
    """The text whole where it fits, or in parts that do."""
    if fits(text):
        return [(text, "")]
    if level == len(BOUNDARIES):
        middle = len(text) // 2
        return (
            [(text, "")] if not middle else segments(text[:middle], fits, level) + segments(text[middle:], fits, level)
        )
    packed: Segments = []
    for part, gap in cut(text, BOUNDARIES[level]):
        if level and packed and fits(joined := packed[-1][0] + packed[-1][1] + part):
            packed[-1] = (joined, gap)
        else:
            packed.append((part, gap))
    found: Segments = []
    for part, gap in packed:
        inner = segments(part, fits, level + 1)
        found += [*inner[:-1], (inner[-1][0], gap)]
    return found


def cut(text: str, boundary: re.Pattern[str]) -> Segments:
    """The parts between boundaries, each with the space that follows it."""
    parts, begin = [], 0
    for found in boundary.finditer(text):
        if found.start() > begin:
            parts.append((text[begin : found.start()], found[0]))
            begin = found.end()
    return [*parts, (text[begin:], "")] if begin < len(text) else parts

"""Text normalization that reports its changes.

    text, removed = normalize("a\u200bb  c")        # ("ab c", {"invisible": 1, "runs": 1})

The same function runs before training and before translation. It is idempotent.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple


class Change(NamedTuple):
    """One replacement and its reason."""

    pattern: re.Pattern[str]  # a character class or a literal, which are fast to scan
    replacement: str
    reason: str


JOINING_SCRIPTS = (  # scripts with joining letters, and emoji: U+200C and U+200D are significant there
    "\u0600-\u08ff\u0900-\u0dff\u0e00-\u0fff\u1000-\u109f\u1780-\u18af\ufb50-\ufdff\ufe0f\ufe70-\ufefc"
    "\u2600-\u27bf\u2190-\u21ff\u2b00-\u2bff\U0001f000-\U0001faff"
)
CHANGES = {  # applied in this order; none produces input of an earlier one
    "halves": Change(re.compile("[\ud800-\udfff]"), "\ufffd", "a lone surrogate is half a character"),
    "separators": Change(
        re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]"), " ", "other programs would split a line at them"
    ),
    "control": Change(re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]"), "", "control characters are not text"),
    "invisible": Change(
        re.compile(
            "[\u00ad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\u061c\ufeff\ufff9-\ufffb"
            "\U000e0000-\U000e007f]"
        ),
        "",
        "zero-width characters, soft hyphens, direction marks and tags change the tokens invisibly",
    ),
    "joiners": Change(
        re.compile(f"(?<![{JOINING_SCRIPTS}])[\u200c\u200d]+|(?<=[\u200c\u200d])[\u200c\u200d]+"),
        "",
        "joiners between letters that do not join",
    ),
    "marker": Change(re.compile("\u2581"), "_", "SentencePiece uses this character for spaces"),
    "odd_spaces": Change(
        re.compile("[\t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]"),
        " ",
        "spaces that are not U+0020 change the tokens",
    ),
    "runs": Change(re.compile(" {2,}"), " ", "one space is enough"),
}


def normalize(text: str) -> tuple[str, dict[str, int]]:
    """Return the text in NFC with all CHANGES applied, and the count of each change."""
    # Fast path for most sentences: CHANGES matches only unprintable characters, U+2581 and double spaces.
    if text.isprintable() and "\u2581" not in text and "  " not in text and unicodedata.is_normalized("NFC", text):
        return (text, {}) if text == (stripped := text.strip(" ")) else (stripped, {"edges": 1})
    counts: Counter[str] = Counter()
    before = None
    while text != before:  # a removed character may have separated two others
        before = text
        if not unicodedata.is_normalized("NFC", text):
            text, counts["composed"] = unicodedata.normalize("NFC", text), 1
        for name, change in CHANGES.items():
            text, times = change.pattern.subn(change.replacement, text)
            counts[name] += times
        if text != (stripped := text.strip(" ")):
            text, counts["edges"] = stripped, 1
    return text, {name: times for name, times in counts.items() if times}


def normalize_all(texts: Iterable[str]) -> tuple[list[str], dict[str, int]]:
    """Normalize every text; return the texts and the total count of each change."""
    total: Counter[str] = Counter()
    clean = []
    for text in texts:
        text, changes = normalize(text)
        clean.append(text)
        if changes:
            total.update(changes)
    return clean, dict(total)


def decode_line(line: bytes) -> tuple[str, bool]:
    r"""Decode a line without its \r; return it and whether it was UTF-8. Invalid bytes become U+FFFD."""
    line = line.removesuffix(b"\r")
    try:
        return line.decode(), True
    except UnicodeDecodeError:
        return line.decode(errors="replace"), False


def escape_invisible(text: str) -> str:
    """Write control, format and surrogate characters as escapes, so that untrusted text is safe on a terminal."""
    return "".join(
        letter.encode("unicode_escape").decode("ascii")
        if unicodedata.category(letter) in INVISIBLE_CATEGORIES
        else letter
        for letter in text
    )


INVISIBLE_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")

"""Normalization that says what it changed.

    text, removed = normalize("a\u200bb  c")        # ("ab c", {"invisible": 1, "runs": 1})

The same function runs before training and before translating. It is idempotent.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple


class Change(NamedTuple):
    """What is replaced, by what, and why."""

    pattern: re.Pattern[str]  # one class of characters, or a literal: scanned at full speed
    by: str
    why: str


JOINED = (  # scripts whose letters join, and emoji: there U+200C and U+200D carry meaning
    "\u0600-\u08ff\u0900-\u0dff\u0e00-\u0fff\u1000-\u109f\u1780-\u18af\ufb50-\ufdff\ufe0f\ufe70-\ufefc"
    "\u2600-\u27bf\u2190-\u21ff\u2b00-\u2bff\U0001f000-\U0001faff"
)
CHANGES = {  # in this order: each leaves nothing for those before it
    "halves": Change(re.compile("[\ud800-\udfff]"), "\ufffd", "a lone surrogate is half a character"),
    "separators": Change(
        re.compile("[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]"), " ", "other programs would split a line at them"
    ),
    "control": Change(re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f]"), "", "control characters say nothing"),
    "invisible": Change(
        re.compile(
            "[\u00ad\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\u061c\ufeff\ufff9-\ufffb"
            "\U000e0000-\U000e007f]"
        ),
        "",
        "zero-width characters, soft hyphens, direction marks and tags change the tokens, unseen",
    ),
    "joiners": Change(
        re.compile(f"(?<![{JOINED}])[\u200c\u200d]+|(?<=[\u200c\u200d])[\u200c\u200d]+"),
        "",
        "joiners where nothing joins",
    ),
    "marker": Change(re.compile("\u2581"), "_", "SentencePiece keeps this mark for spaces"),
    "odd_spaces": Change(
        re.compile("[\t\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]"),
        " ",
        "spaces that are not U+0020 change the tokens",
    ),
    "runs": Change(re.compile(" {2,}"), " ", "one space is enough"),
}


def normalize(text: str) -> tuple[str, dict[str, int]]:
    """The text in Unicode's composed form (NFC) without what CHANGES names, and how often each change was made."""
    # Most sentences need nothing, and this says so quickly: all that CHANGES names is unprintable, but for two.
    if text.isprintable() and "\u2581" not in text and "  " not in text and unicodedata.is_normalized("NFC", text):
        return (text, {}) if text == (bare := text.strip(" ")) else (bare, {"edges": 1})
    counts: Counter[str] = Counter()
    before = None
    while text != before:  # a character that is gone may have kept two others apart
        before = text
        if not unicodedata.is_normalized("NFC", text):
            text, counts["composed"] = unicodedata.normalize("NFC", text), 1
        for name, change in CHANGES.items():
            text, times = change.pattern.subn(change.by, text)
            counts[name] += times
        if text != (bare := text.strip(" ")):
            text, counts["edges"] = bare, 1
    return text, {name: times for name, times in counts.items() if times}


def normalize_all(texts: Iterable[str]) -> tuple[list[str], dict[str, int]]:
    """`normalize` of every text, and the sum of the changes."""
    total: Counter[str] = Counter()
    clean = []
    for text in texts:
        text, changes = normalize(text)
        clean.append(text)
        if changes:
            total.update(changes)
    return clean, dict(total)


def decoded(line: bytes) -> tuple[str, bool]:
    r"""A line of a file without its end (\r), and whether it was UTF-8; where it was not, it is replaced by U+FFFD."""
    line = line.removesuffix(b"\r")
    try:
        return line.decode(), True
    except UnicodeDecodeError:
        return line.decode(errors="replace"), False


def visible(text: str) -> str:
    """Text from anywhere, safe to show: control, format and half characters are written as escapes.

    A terminal obeys control characters, and a line of a corpus is anybody's.
    """
    return "".join(_escaped(letter) if unicodedata.category(letter) in UNSEEN else letter for letter in text)


UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")

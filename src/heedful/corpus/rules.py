"""The table of rules for pairs: `heedful check` reports violations, `heedful prepare` drops them.

A rule is a Polars expression on one side or on the pair, so a million pairs are tested in one call. Where a full test
is expensive, a cheap `screen` first selects the few rows that need it.

    flags = apply_rules(table, profile)        # rule -> (bool per pair for the source, for the target)
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import log

import numpy as np
import polars
from numpy.typing import NDArray
from polars import Expr, col

Bools = NDArray[np.bool_]

SCRIPTS = (
    "Latin", "Cyrillic", "Greek", "Arabic", "Hebrew", "Georgian", "Armenian", "Ethiopic", "Hangul", "Han", "Hiragana",
    "Katakana", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala",
    "Thai", "Lao", "Khmer", "Myanmar", "Tibetan",
)  # fmt: skip
JAPANESE = ("Han", "Hiragana", "Katakana")  # used together, even if a text has little of one of them


@dataclass(frozen=True, slots=True)
class Profile:
    """What is typical for a corpus (scripts of each side, length ratio), and the limits from the settings."""

    source_scripts: tuple[str, ...]
    target_scripts: tuple[str, ...]
    ratio: float  # median of target characters per source character
    max_words: int = 200
    max_length_ratio: float = 4.0


@dataclass(frozen=True, slots=True)
class Rule:
    """A fault, how it is detected, its likely cause and its fix.

    level        "warning" or "note", if the share of pairs is below `error_share`
    error_share  the share of pairs above which it is an error; None: never
    min_share    the share below which it is not reported
    """

    what: str
    cause: str
    fix: str
    level: str = "warning"
    error_share: float | None = None
    min_share: float = 0.0
    side: Callable[[Expr, Profile, str], Expr] | None = None
    pair: Callable[[Profile], Expr] | None = None
    screen: Callable[[Expr, Profile, str], Expr] | None = None  # of a side; only matching rows get the full test


def foreign_letter_class(profile: Profile, side: str) -> str:
    """A regular expression class of the letters outside the scripts of a side."""
    scripts = profile.source_scripts if side == "source" else profile.target_scripts
    allowed = "".join(rf"\p{{{script}}}" for script in scripts)
    return rf"[\p{{L}}--[\p{{Common}}\p{{Inherited}}{allowed}]]"


def is_wrong_script(text: Expr, profile: Profile, side: str) -> Expr:
    """Whether more than half of the letters are outside the scripts of the side."""
    return text.str.count_matches(foreign_letter_class(profile, side)) * 2 > text.str.count_matches(r"\p{L}")


CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\x{2028}\x{2029}]"
INVISIBLE = (
    r"[\x{ad}\x{180e}\x{200b}\x{200e}\x{200f}\x{202a}-\x{202e}\x{2060}-\x{2064}\x{2066}-\x{206f}\x{61c}\x{feff}"
    r"\x{fff9}-\x{fffb}\x{e0000}-\x{e007f}]"
)
# UTF-8 read as Windows-1252, Latin-1 or Windows-1251: the letter of a lead byte, then characters of the continuation
# bytes 80..BF. Some of these are punctuation, which may also follow a letter in good text, as in « café ».
_UPPER_HALF = bytes(range(0x80, 0xC0))
_PUNCTUATION = r"\x{a0}§©ª«®°·º»–—‘’‚“”„…‹›™"
_FOLLOWS = "".join(rf"\x{{{ord(letter):x}}}" for letter in _UPPER_HALF.decode("cp1252", "ignore")) + r"\x{80}-\x{9f}"
_RARE = rf"[{_FOLLOWS}--{_PUNCTUATION}]"
_FOLLOWS_1251 = "".join(rf"\x{{{ord(letter):x}}}" for letter in _UPPER_HALF.decode("cp1251", "ignore"))
MOJIBAKE = (
    rf"[\xc2-\xc5\xce-\xd1\xd8\xd9][{_FOLLOWS}]|(?:[\xd6\xd7]{_RARE}){{2}}"
    rf"|[\xe0-\xef](?:{_RARE}[{_FOLLOWS}]|[{_FOLLOWS}]{_RARE})|\xf0\x{{178}}[{_FOLLOWS}]"
    rf"|\x{{fffd}}|(?:[\u0420\u0421][{_FOLLOWS_1251}]){{2}}|\u0432\u0402[{_FOLLOWS_1251}]"
    rf"|[A-Za-z][В-Е][{_FOLLOWS_1251}]|[В-Е][{_FOLLOWS_1251}][A-Za-z]|[ВГ][†‡€‰•¤¦§©¬®°±µ¶]"
)
# French has a space before ? ! : ; so these do not count.
TOKENIZED = r" [.,、。](?: |$)|@-@|&apos;|&quot;| (?:n't|'s|'re|'ll) "
SUBWORDS = r"@@(?: |$)|\x{2581}"
MARKUP = r"</?[A-Za-z][^<>]*>|&(?:[A-Za-z]{2,8}|#[0-9]{1,6});"


def letters_only(text: Expr) -> Expr:
    """Upper-cased (so that ß equals ss), without spaces and punctuation, to compare variants of a sentence."""
    return text.str.to_uppercase().str.replace_all(r"[^\p{L}\p{M}\p{N}]+", "")


def matches_pattern(pattern: str) -> Callable[[Expr, Profile, str], Expr]:
    """A rule that matches a regular expression."""
    return lambda text, _profile, _side: text.str.contains(pattern)


def has_non_ascii(text: Expr, _profile: Profile, _side: str) -> Expr:
    """Whether any character needs more than one byte; cheap to test."""
    return text.str.len_bytes() != text.str.len_chars()


def is_too_long(text: Expr, profile: Profile, _side: str) -> Expr:
    """Whether it has more words than allowed or, for scripts without spaces, more than eight characters for each."""
    return (text.str.count_matches(" ", literal=True) >= profile.max_words) | (
        text.str.len_chars() > 8 * profile.max_words
    )


def has_unusual_ratio(profile: Profile) -> Expr:
    """|log(target / source characters) - its median| > log(max_length_ratio), with 4 added to both lengths."""
    source, target = (col(side).str.len_chars().cast(polars.Float32) + 4 for side in ("source", "target"))
    return ((target / source).log() - log(profile.ratio)).abs() > log(profile.max_length_ratio)


FIX_BY_DROPPING = "heedful prepare drops them (clean.drop)"
FIX_BY_NORMALIZING = "heedful prepare normalizes them; check --fix writes a clean copy"

RULES: dict[str, Rule] = {
    "empty": Rule(
        "one side is empty",
        "a missing translation, or a blank line that only one side has",
        FIX_BY_DROPPING,
        error_share=0.1,
        side=lambda text, _profile, _side: text.str.strip_chars().str.len_bytes() == 0,
    ),
    "copy": Rule(
        "both sides are the same",
        "untranslated text",
        FIX_BY_DROPPING,
        error_share=0.2,
        pair=lambda _profile: (
            (col("source").str.strip_chars().str.to_lowercase() == col("target").str.strip_chars().str.to_lowercase())
            & col("source").str.contains(r"\p{L}")
        ),
    ),
    "long": Rule(
        "one side is very long",
        "several sentences, or a document, on one line",
        f"{FIX_BY_DROPPING}; clean.max_words sets the limit",
        error_share=0.2,
        side=is_too_long,
        screen=lambda text, profile, _side: text.str.len_bytes() > profile.max_words,
    ),
    "ratio": Rule(
        "one side is much longer than the other",
        "a partial translation, or pairs that do not belong together",
        f"{FIX_BY_DROPPING}; clean.max_length_ratio sets the limit",
        error_share=0.1,
        pair=has_unusual_ratio,
    ),
    "wrong_script": Rule(
        "letters of another script",
        "another language, or a side that was not translated",
        FIX_BY_DROPPING,
        error_share=0.1,
        side=is_wrong_script,
        screen=lambda text, profile, side: text.str.contains(foreign_letter_class(profile, side)),
    ),
    "mojibake": Rule(
        "garbled characters",
        "UTF-8 that was once read as Windows-1252, 1251 or Latin-1",
        f"{FIX_BY_DROPPING}; better: read the original file again as UTF-8",
        error_share=0.02,
        side=matches_pattern(MOJIBAKE),
        screen=has_non_ascii,
    ),
    "control": Rule(
        "control characters or odd line breaks",
        "text copied from PDFs, terminals or databases; many programs split lines at them",
        FIX_BY_NORMALIZING,
        side=matches_pattern(CONTROL),
    ),
    "invisible": Rule(
        "invisible characters",
        "text from web pages or word processors; a model treats a word that contains one as another word",
        FIX_BY_NORMALIZING,
        side=matches_pattern(INVISIBLE),
        screen=has_non_ascii,
    ),
    "subwords": Rule(
        "text that was already split into subwords (@@ or \u2581)",
        "files that were saved after BPE or SentencePiece",
        f"{FIX_BY_DROPPING}; better: use the original text (sed -r 's/@@( |$)//g' undoes BPE)",
        error_share=0.05,
        side=matches_pattern(SUBWORDS),
    ),
    "tokenized": Rule(
        "text that was already tokenized",
        "a Moses-like tokenizer was used; the model would learn to write spaces before full stops",
        "use the original text, or a detokenizer",
        min_share=0.02,
        side=matches_pattern(TOKENIZED),
    ),
    "markup": Rule(
        "HTML tags or entities",
        "text taken from web pages",
        "remove them if you do not want them translated",
        level="note",
        side=matches_pattern(MARKUP),
    ),
}


def make_profile(table: polars.DataFrame, *, max_words: int = 200, max_length_ratio: float = 4.0) -> Profile:
    median_ratio = table.select(
        ((col("target").str.len_chars() + 4) / (col("source").str.len_chars() + 4)).median().alias("ratio")
    ).item()
    scripts = [find_scripts(table[side]) for side in ("source", "target")]
    return Profile(scripts[0], scripts[1], float(median_ratio or 1.0), max_words, max_length_ratio)


def find_scripts(texts: polars.Series, min_letter_share: float = 0.05) -> tuple[str, ...]:
    """The scripts with at least this share of the letters, in about 4,000 evenly spaced lines."""
    sample = texts.gather_every(max(1, len(texts) // 4000)).str.join(" ")
    counts = sample.to_frame("text").select(
        col("text").str.count_matches(rf"\p{{{script}}}").alias(script) for script in SCRIPTS
    )
    numbers = dict(zip(SCRIPTS, counts.row(0), strict=True)) if counts.height else dict.fromkeys(SCRIPTS, 0)
    total = sum(numbers.values())
    scripts = {script for script, number in numbers.items() if total and number >= min_letter_share * total}
    scripts = scripts or {"Latin"}
    return tuple(script for script in SCRIPTS if script in scripts or (script in JAPANESE and "Hiragana" in scripts))


def apply_rules(
    table: polars.DataFrame, profile: Profile, names: Iterable[str] = RULES
) -> dict[str, tuple[Bools, Bools]]:
    """Rule -> which pairs break it by their source, and which by their target; a rule on the pair flags both."""
    tests: dict[str, Expr] = {}
    for name in names:
        rule = RULES[name]
        if rule.pair is not None:
            tests[name] = rule.pair(profile)
        for side in ("source", "target"):
            test = rule.screen or rule.side
            if test is not None:
                tests[f"{name}.{side}"] = test(col(side), profile, side)
    results = table.select(expression.fill_null(False).alias(key) for key, expression in tests.items())
    flagged = {key: results[key].to_numpy().copy() for key in tests}
    for key, flags in flagged.items():
        name, _, side = key.partition(".")
        test = RULES[name].side
        if RULES[name].screen is not None and test is not None and flags.any():
            screened = table.filter(polars.Series(flags)).select(test(col(side), profile, side).alias("flag"))["flag"]
            flags[flags] = screened.to_numpy()
    return {
        name: (
            (flagged[name], flagged[name])
            if name in flagged
            else (flagged[f"{name}.source"], flagged[f"{name}.target"])
        )
        for name in names
    }

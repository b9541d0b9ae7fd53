"""What can be wrong with a pair, as one table of rules: `heedful check` counts by it, `heedful prepare` filters by it.

A rule looks at one side or at the pair and is a Polars expression, so a million pairs are judged at once. Where a full
test is dear, a cheap `screen` first picks the few rows that need it.

    flags = find(table, profile)        # rule -> (bool per pair for the source, for the target)
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
    *(
        "Latin",
        "Cyrillic",
        "Greek",
        "Arabic",
        "Hebrew",
        "Georgian",
        "Armenian",
        "Ethiopic",
        "Hangul",
        "Han",
        "Hiragana",
    ),
    *(
        "Katakana",
        "Devanagari",
        "Bengali",
        "Gurmukhi",
        "Gujarati",
        "Tamil",
        "Telugu",
        "Kannada",
        "Malayalam",
        "Sinhala",
    ),
    *("Thai", "Lao", "Khmer", "Myanmar", "Tibetan"),
)
JAPANESE = ("Han", "Hiragana", "Katakana")  # written together, though a text may have little of one of them


@dataclass(frozen=True, slots=True)
class Profile:
    """What is usual in a corpus: the scripts of each side, the ratio of lengths; and what one may set."""

    source_scripts: tuple[str, ...]
    target_scripts: tuple[str, ...]
    ratio: float  # median of target characters per source character
    longest_words: int = 200
    largest_ratio: float = 4.0


@dataclass(frozen=True, slots=True)
class Rule:
    """A fault, how it is found, what it comes from and what mends it.

    level  "warning" or "note" as long as few pairs have it
    alarm  the share of pairs from which on it is an error; None: never
    report the share below which it is not worth a word
    """

    what: str
    cause: str
    fix: str
    level: str = "warning"
    alarm: float | None = None
    report: float = 0.0
    side: Callable[[Expr, Profile, str], Expr] | None = None
    pair: Callable[[Profile], Expr] | None = None
    screen: Callable[[Expr, Profile, str], Expr] | None = None  # of a side; rows without it are fine


def foreign_letters(profile: Profile, side: str) -> str:
    """A class of the letters that are of none of a side's scripts."""
    scripts = profile.source_scripts if side == "source" else profile.target_scripts
    own = "".join(rf"\p{{{script}}}" for script in scripts)
    return rf"[\p{{L}}--[\p{{Common}}\p{{Inherited}}{own}]]"


def wrong_script(text: Expr, profile: Profile, side: str) -> Expr:
    """More letters of other scripts than of the side's own."""
    return text.str.count_matches(foreign_letters(profile, side)) * 2 > text.str.count_matches(r"\p{L}")


CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\x{2028}\x{2029}]"
INVISIBLE = (
    r"[\x{ad}\x{180e}\x{200b}\x{200e}\x{200f}\x{202a}-\x{202e}\x{2060}-\x{2064}\x{2066}-\x{206f}\x{61c}\x{feff}"
    r"\x{fff9}-\x{fffb}\x{e0000}-\x{e007f}]"
)
# UTF-8 read as Windows-1252, Latin-1 or Windows-1251: a lead byte's letter, then what the continuation bytes 80..BF
# look like there. Some of these are punctuation that may well follow a letter, as in « café ».
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
# French writes ? ! : ; apart, so these do not count.
TOKENIZED = r" [.,、。](?: |$)|@-@|&apos;|&quot;| (?:n't|'s|'re|'ll) "
SUBWORDS = r"@@(?: |$)|\x{2581}"
MARKUP = r"</?[A-Za-z][^<>]*>|&(?:[A-Za-z]{2,8}|#[0-9]{1,6});"


def letters_of(text: Expr) -> Expr:
    """In capitals (which ß and ss share), without spaces and punctuation: what all spellings of a sentence share."""
    return text.str.to_uppercase().str.replace_all(r"[^\p{L}\p{M}\p{N}]+", "")


def has(pattern: str) -> Callable[[Expr, Profile, str], Expr]:
    """A rule that is one regular expression."""
    return lambda text, _profile, _side: text.str.contains(pattern)


def beyond_ascii(text: Expr, _profile: Profile, _side: str) -> Expr:
    """Some character takes more than a byte: cheap to ask."""
    return text.str.len_bytes() != text.str.len_chars()


def too_long(text: Expr, profile: Profile, _side: str) -> Expr:
    """More words than allowed, or, where words are not written apart, eight characters for each."""
    return (text.str.count_matches(" ", literal=True) >= profile.longest_words) | (
        text.str.len_chars() > 8 * profile.longest_words
    )


def unusual_ratio(profile: Profile) -> Expr:
    """|log(target / source characters) - its median| > log(largest ratio); short texts get four characters' grace."""
    source, target = (col(side).str.len_chars().cast(polars.Float32) + 4 for side in ("source", "target"))
    return ((target / source).log() - log(profile.ratio)).abs() > log(profile.largest_ratio)


PREPARE = "heedful prepare leaves them out (clean.drop)"
NORMALIZE = "heedful prepare normalizes them; check --fix writes a clean copy"

RULES: dict[str, Rule] = {
    "empty": Rule(
        "one side is empty",
        "a missing translation, or a blank line that only one side has",
        PREPARE,
        alarm=0.1,
        side=lambda text, _profile, _side: text.str.strip_chars().str.len_bytes() == 0,
    ),
    "copy": Rule(
        "both sides are the same",
        "untranslated text",
        PREPARE,
        alarm=0.2,
        pair=lambda _profile: (
            (col("source").str.strip_chars().str.to_lowercase() == col("target").str.strip_chars().str.to_lowercase())
            & col("source").str.contains(r"\p{L}")
        ),
    ),
    "long": Rule(
        "one side is very long",
        "several sentences, or a document, on one line",
        f"{PREPARE}; clean.max_words sets the limit",
        alarm=0.2,
        side=too_long,
        screen=lambda text, profile, _side: text.str.len_bytes() > profile.longest_words,
    ),
    "ratio": Rule(
        "one side is much longer than the other",
        "a partial translation, or pairs that do not belong together",
        f"{PREPARE}; clean.max_length_ratio sets the limit",
        alarm=0.1,
        pair=unusual_ratio,
    ),
    "wrong_script": Rule(
        "letters of another script",
        "another language, or a side that was not translated",
        PREPARE,
        alarm=0.1,
        side=wrong_script,
        screen=lambda text, profile, side: text.str.contains(foreign_letters(profile, side)),
    ),
    "mojibake": Rule(
        "garbled characters",
        "UTF-8 that was once read as Windows-1252, 1251 or Latin-1",
        f"{PREPARE}; better, read the original again as UTF-8",
        alarm=0.02,
        side=has(MOJIBAKE),
        screen=beyond_ascii,
    ),
    "control": Rule(
        "control characters or odd line breaks",
        "text copied out of PDFs, terminals or databases; many programs split lines at them",
        NORMALIZE,
        side=has(CONTROL),
    ),
    "invisible": Rule(
        "invisible characters",
        "web pages and word processors; a word with one inside is another word to a model",
        NORMALIZE,
        side=has(INVISIBLE),
        screen=beyond_ascii,
    ),
    "subwords": Rule(
        "text that was already cut into subwords (@@ or \u2581)",
        "files taken after BPE or SentencePiece",
        f"{PREPARE}; better, use the text from before (sed -r 's/@@( |$)//g' undoes BPE)",
        alarm=0.05,
        side=has(SUBWORDS),
    ),
    "tokenized": Rule(
        "text that was already tokenized",
        "a Moses-like tokenizer was run; the model would learn to answer with spaces before full stops",
        "use the text from before, or a detokenizer",
        report=0.02,
        side=has(TOKENIZED),
    ),
    "markup": Rule(
        "HTML tags or entities",
        "text taken from web pages",
        "remove them if you do not want them translated",
        level="note",
        side=has(MARKUP),
    ),
}


def profiled(table: polars.DataFrame, *, longest_words: int = 200, largest_ratio: float = 4.0) -> Profile:
    """What is usual in a table of `source` and `target`."""
    usual = table.select(
        ((col("target").str.len_chars() + 4) / (col("source").str.len_chars() + 4)).median().alias("ratio")
    ).item()
    scripts = [scripts_of(table[side]) for side in ("source", "target")]
    return Profile(scripts[0], scripts[1], float(usual or 1.0), longest_words, largest_ratio)


def scripts_of(texts: polars.Series, least: float = 0.05) -> tuple[str, ...]:
    """The scripts that hold at least a share of the letters of some lines, spread over the whole."""
    joined = texts.gather_every(max(1, len(texts) // 4000)).str.join(" ")
    counts = joined.to_frame("text").select(
        col("text").str.count_matches(rf"\p{{{script}}}").alias(script) for script in SCRIPTS
    )
    numbers = dict(zip(SCRIPTS, counts.row(0), strict=True)) if counts.height else dict.fromkeys(SCRIPTS, 0)
    total = sum(numbers.values())
    found = {script for script, number in numbers.items() if total and number >= least * total} or {"Latin"}
    return tuple(script for script in SCRIPTS if script in found or (script in JAPANESE and "Hiragana" in found))


def find(table: polars.DataFrame, profile: Profile, names: Iterable[str] = RULES) -> dict[str, tuple[Bools, Bools]]:
    """For each rule, which pairs break it: by their source, by their target; a rule of the pair blames both."""
    asked: dict[str, Expr] = {}
    for name in names:
        rule = RULES[name]
        if rule.pair is not None:
            asked[name] = rule.pair(profile)
        for side in ("source", "target"):
            test = rule.screen or rule.side
            if test is not None:
                asked[f"{name}.{side}"] = test(col(side), profile, side)
    answers = table.select(expression.fill_null(False).alias(key) for key, expression in asked.items())
    found = {key: answers[key].to_numpy().copy() for key in asked}
    for key, flags in found.items():
        name, _, side = key.partition(".")
        test = RULES[name].side
        if RULES[name].screen is not None and test is not None and flags.any():
            few = table.filter(polars.Series(flags)).select(test(col(side), profile, side).alias("flag"))["flag"]
            flags[flags] = few.to_numpy()
    return {
        name: (found[name], found[name]) if name in found else (found[f"{name}.source"], found[f"{name}.target"])
        for name in names
    }

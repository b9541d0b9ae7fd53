"""The rules of heedful.corpus.rules once more, in plain Python and one pair at a time: to be right, not to be fast."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from math import log

import regex  # type: ignore[import-untyped]  # knows the scripts of letters; sacrebleu brings it

from heedful.corpus.rules import Profile

WHITE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
WHITE += "\u2028\u2029\u202f\u205f\u3000"
LETTER = regex.compile(r"\p{L}")
MARKUP = re.compile(r"<[/]?[a-zA-Z][^<>]*>|&([a-zA-Z]{2,8}|#[0-9]{1,6});")
CONTROL = {*map(chr, [*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0x2028, 0x2029])}
INVISIBLE = {*map(chr, [0xAD, 0x61C, 0x180E, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x2065)])}
INVISIBLE |= {*map(chr, [*range(0x2066, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080)])}

CONTINUATION = bytes(range(0x80, 0xC0))
WESTERN = {*CONTINUATION.decode("cp1252", "ignore"), *CONTINUATION[:32].decode("latin-1")}
CYRILLIC = {*CONTINUATION.decode("cp1251", "ignore")}
TELLING = WESTERN - {*"\xa0§©ª«®°·º»–—‘’‚“”„…‹›™"}  # what does not follow a letter in good text
TWO_BYTES = {*map(chr, [*range(0xC2, 0xC6), *range(0xCE, 0xD2), 0xD8, 0xD9])}


def on_a_side(judge: Callable[[str, Profile], bool]) -> Callable[[str, str, Profile], bool]:
    """A rule of sides breaks where one of them does."""
    return lambda source, target, profile: judge(source, profile) or judge(target, profile)


def copied(source: str, target: str, _: Profile) -> bool:
    return source.strip(WHITE).lower() == target.strip(WHITE).lower() and LETTER.search(source) is not None


def too_long(text: str, profile: Profile) -> bool:
    return text.count(" ") >= profile.max_words or len(text) > 8 * profile.max_words


def unusual(source: str, target: str, profile: Profile) -> bool:
    ratio = (len(target) + 4) / (len(source) + 4)
    return abs(log(ratio / profile.ratio)) > log(profile.max_length_ratio)


@cache
def own_letters(scripts: tuple[str, ...]) -> Callable[[str], object]:
    own: Callable[[str], object] = regex.compile(
        "|".join(rf"\p{{{name}}}" for name in (*scripts, "Zyyy", "Zinh"))
    ).match
    return own


def foreign(text: str, scripts: tuple[str, ...]) -> bool:
    letters, own = LETTER.findall(text), own_letters(scripts)
    return sum(own(letter) is None for letter in letters) * 2 > len(letters)


def wrong_script(source: str, target: str, profile: Profile) -> bool:
    return foreign(source, profile.source_scripts) or foreign(target, profile.target_scripts)


def garbled(text: str, _: Profile) -> bool:
    padded = text + "\0\0\0"
    return any(map(garbled_here, padded, padded[1:], padded[2:], padded[3:]))


def garbled_here(one: str, two: str, three: str, four: str) -> bool:
    """Whether UTF-8 that was read as something else begins here."""
    if one == "\ufffd":
        return True
    if one in TWO_BYTES:
        return two in WESTERN
    if one in "Ö×":
        return two in TELLING and three in "Ö×" and four in TELLING
    if "à" <= one <= "ï":
        return {two, three} <= WESTERN and bool({two, three} & TELLING)
    if one == "ð":
        return two == "Ÿ" and three in WESTERN
    if one.isascii() and one.isalpha():
        return "В" <= two <= "Е" and three in CYRILLIC
    if one in "РС" and two in CYRILLIC and three in "РС" and four in CYRILLIC:
        return True
    if one == "в":
        return two == "Ђ" and three in CYRILLIC
    if "В" <= one <= "Е" and two in CYRILLIC and three.isascii() and three.isalpha():
        return True
    return one in "ВГ" and two in "†‡€‰•¤¦§©¬®°±µ¶"


def tokenized(text: str, _: Profile) -> bool:
    apart = any(f" {mark} " in text or text.endswith(f" {mark}") for mark in ".,、。")
    return apart or any(sign in text for sign in ("@-@", "&apos;", "&quot;", " n't ", " 's ", " 're ", " 'll "))


REFERENCE: dict[str, Callable[[str, str, Profile], bool]] = {
    "empty": on_a_side(lambda text, _: not text.strip(WHITE)),
    "copy": copied,
    "long": on_a_side(too_long),
    "ratio": unusual,
    "wrong_script": wrong_script,
    "mojibake": on_a_side(garbled),
    "control": on_a_side(lambda text, _: any(letter in CONTROL for letter in text)),
    "invisible": on_a_side(lambda text, _: any(letter in INVISIBLE for letter in text)),
    "subwords": on_a_side(lambda text, _: "@@ " in text or text.endswith("@@") or "\u2581" in text),
    "tokenized": on_a_side(tokenized),
    "markup": on_a_side(lambda text, _: MARKUP.search(text) is not None),
}


def reference(
    source: Sequence[str], target: Sequence[str], profile: Profile, names: Iterable[str] = REFERENCE
) -> dict[str, list[bool]]:
    """Rule -> for every pair, whether it breaks the rule."""
    pairs = list(zip(source, target, strict=True))
    return {name: [REFERENCE[name](one, two, profile) for one, two in pairs] for name in names}

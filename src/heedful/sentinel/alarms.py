"""The alarms: what each looks at, when it rings, what it says.

An alarm is a function from what is known to one short sentence, or to "" where all is well: one line of INPUT_ALARMS or
OUTPUT_ALARMS, and one of MEANINGS. What is usual for a model comes from its training statistics; what is not known
there, no alarm speaks of. The thresholds were chosen on one half of real translations and tried on the other
(`benchmarks/sentinel.py`).
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from math import exp, isfinite, log, sqrt
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from unicodedata import name as unicode_name

from heedful.sentinel.numbers import lost
from heedful.text.normalize import escape_invisible
from heedful.types import Flag

if TYPE_CHECKING:
    from heedful.text.tokenizer import Tokenizer

Side = Literal["input", "output"]

MEANINGS = {
    "empty": "There is nothing to translate, or nothing came out. Look at the line of the file; of an output, compare "
    "with a wider beam.",
    "unknown": "Much of the input is unknown to the vocabulary: another language or script, emoji, garbled text. The "
    "model guesses there. Check the encoding and the language.",
    "tokenized": "The input looks already tokenized or cut into subwords, but the model was trained on plain text. "
    "Translate the text from before.",
    "script": "Most letters are of a script that the training text did not have: the wrong language, or an output that "
    "was not translated. Check the direction of the model.",
    "long": "The input is longer than anything in training; often the end is lost. Split it into sentences.",
    "copied": "The output is the source, word for word. That is right for names and code; else the model does not know "
    "these words, or the input was in the target language already.",
    "looping": "A phrase, or some characters, stand there again and again; the rest is likely lost. Try a wider beam, "
    "or forbid n-grams to be repeated.",
    "length": "The output is far shorter or longer than training would lead one to expect: something was left out or "
    "made up. Compare both texts.",
    "numbers": "A number of the source is not in the output in any form that we know: it was lost or changed. Compare "
    "the numbers.",
    "urls": "A web address, an e-mail address or an @handle of the source is not in the output as it was. Copy it.",
    "unfinished": "The search was cut off by its limit of tokens, so the end is missing. Raise the limit, or split the "
    "input.",
    "unsure": "The model gives this output less probability per token than 99 % of its answers in validation. Have a "
    "person read it.",
}

UNKNOWN = 0.2  # share of tokens
OWN = 0.05  # the share of a script among the letters of training, from which on it is one of its own
USUAL = 0.05  # the share of training pairs, from which on an alarm says nothing
# |log(tokens / expected)| of a good translation of n source tokens stays below SPREAD + SHORT / sqrt(n). Where the full
# stop is gone too, -CUT is too short.
SPREAD, SHORT, CUT = 0.5, 1.0, 0.5
LOOP = 4  # words in a row that each repeat the one a period before; of characters twice as many
SAME = 0.9  # share of words that source and output share, where one is a copy
ORDINARY = 7  # letters of words that are no names: fewer may be copied

MARKS = "\"'.,;:!?()[]{}…-–—«»„“”‘’¿¡*"
WORD = re.compile(r"[^\W\d_]+(?:['’、。，・-][^\W\d_]+)*")
ENDS = re.compile(r"[.!?…。！？।؟][\"'“”’»«)\]]*\s*$")
# Those of `heedful check`, which needs Polars; French writes ? ! : ; apart, so these do not count.
TOKENIZED = re.compile(r" [.,、。](?: |$)|@-@|&apos;|&quot;| (?:n't|'s|'re|'ll) |@@(?: |$)|\u2581")
ADDRESS = re.compile(  # in ASCII, as East Asian text goes on without a space
    r"(?:(?:https?|ftp)://|\bwww\.)[\w.~:/?#@!$&()*+,;=%-]+|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?<![\w@])@\w{2,}",
    re.ASCII | re.IGNORECASE,
)


class Input(NamedTuple):
    """What the alarms of an input see."""

    text: str
    ids: Sequence[int]
    statistics: Mapping[str, Any]
    unknown: Collection[int]


class Output(NamedTuple):
    """What the alarms of an output see."""

    source: str
    text: str
    log_probability: float | None
    tokens: int
    source_tokens: int
    finished: bool
    statistics: Mapping[str, Any]
    words: Sequence[str]  # `bare` of the text
    ends: int


def input_flags(
    text: str, ids: Sequence[int], statistics: Mapping[str, Any], unknown: Collection[int] = ()
) -> tuple[Flag, ...]:
    """What is unusual about an input; `ids` are its tokens, `unknown` comes from `unknown_ids`."""
    if not text.strip():
        return (Flag("empty", "input", "There is no text."),)
    return ring(INPUT_ALARMS, Input(text, ids, statistics, unknown), "input")


def output_flags(
    source: str,
    output: str,
    *,
    log_probability: float | None = None,
    tokens: int,
    source_tokens: int,
    finished: bool = True,
    statistics: Mapping[str, Any],
    ends: int = 1,
) -> tuple[Flag, ...]:
    """What is wrong with an output, as far as one can tell without knowing its language.

    `tokens` and `source_tokens` are counted without end tokens; `ends` is how many of these the log-probability counts:
    one for each sentence that was translated by itself.
    """
    if not source.strip():
        return ()
    if not output.strip():
        return (Flag("empty", "output", f"Nothing came out for {len(source.split())} words of source."),)
    given = Output(source, output, log_probability, tokens, source_tokens, finished, statistics, bare(output), ends)
    return ring(OUTPUT_ALARMS, given, "output")


def ring(alarms: Mapping[str, Callable[[Any], str]], given: Input | Output, side: Side) -> tuple[Flag, ...]:
    """The alarms that have something to say, but for those that training itself would have set off."""
    flags = [Flag(name, side, detail) for name, alarm in alarms.items() if (detail := alarm(given))]
    return tuple(flag for flag in flags if (number(given.statistics, "usual", side, flag.name) or 0.0) < USUAL)


def usual(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, float]]:
    """For the key `usual` of training statistics: side -> alarm -> the share of training pairs that would set it off.

    Where training text is tokenized, or targets often equal their sources, an answer that does so is no news.
    """
    looks = [
        input_flags(source, (), {}) + output_flags(source, target, tokens=0, source_tokens=0, statistics={})
        for source, target in pairs
    ]
    rang = Counter((flag.side, flag.name) for flags in looks for flag in flags)
    sides: dict[str, dict[str, float]] = {"input": {}, "output": {}}
    for (side, name), times in rang.items():
        sides[side][name] = times / len(looks)
    return sides


def inside(statistics: Mapping[str, Any], *keys: str) -> Any:
    """What stands deep inside, or None."""
    found: Any = statistics
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def number(statistics: Mapping[str, Any], *keys: str) -> float | None:
    """A finite number deep inside, or None."""
    found = inside(statistics, *keys)
    return float(found) if isinstance(found, int | float) and isfinite(found) else None


# ---------------------------------------------------------------------------------------------------------- of inputs


def unknown_ids(tokenizer: "Tokenizer") -> frozenset[int]:
    """UNK and the bytes that a character without a piece begins with: each character counts once."""
    pieces = tokenizer.pieces(range(tokenizer.size))
    begins = {f"<0x{byte:02X}>" for byte in range(256) if not 0x80 <= byte < 0xC0}
    return frozenset(number for number, piece in enumerate(pieces) if piece == "<unk>" or piece in begins)


def unknown(given: Input) -> str:
    """count(unknown) / count(tokens) >= UNKNOWN"""
    if not given.unknown or not given.ids:
        return ""
    count = sum(number in given.unknown for number in given.ids)
    return f"{count} of {len(given.ids)} tokens are unknown." if count >= UNKNOWN * len(given.ids) else ""


def tokenized(given: Input) -> str:
    """Marks that a tokenizer leaves."""
    found = TOKENIZED.search(given.text)
    return f"`{escape_invisible(found[0])}` looks like the work of a tokenizer." if found else ""


def too_long(given: Input) -> str:
    """More tokens than any source of the training."""
    longest = number(given.statistics, "lengths", "source", "longest")
    if longest is None or len(given.ids) <= longest:
        return ""
    return f"{len(given.ids)} tokens; the longest in training had {longest:.0f}."


def other_input_script(given: Input) -> str:
    """Most letters are foreign to the sources of the training."""
    return other_script(given.text, given.statistics, "source")


# --------------------------------------------------------------------------------------------------------- of outputs


def copied(given: Output) -> str:
    """The words of both are the same, and enough of them are no names, numbers, addresses or code."""
    source, output = set(bare(given.source)), set(given.words)
    if len(source & output) < SAME * max(len(source), len(output)):
        return ""
    words = [word.strip(MARKS) for word in given.source.split()]
    shouted = given.source.isupper() and len(words) > 3  # then capitals say nothing
    ordinary = [word for word in words if WORD.fullmatch(word) and (shouted or not word[0].isupper())]
    return "The output is the source." if sum(map(len, ordinary)) >= ORDINARY else ""


def looping(given: Output) -> str:
    """Words, or characters of a word, that repeat what stood so many places before; more than the source does."""
    found = loop(given.words, LOOP)
    if not found:
        return ""
    (phrase, times), (_, own) = found, loop(bare(given.source), LOOP / 2) or ("", 0)
    return f"`{clipped(phrase)}` stands there {times} times in a row." if times > 2 * own else ""


def length(given: Output) -> str:
    """|log(tokens / (ratio * source tokens))| > SPREAD + SHORT / sqrt(source tokens)"""
    ratio = number(given.statistics, "ratio")
    if not ratio or not given.source_tokens or not given.tokens:
        return ""
    off = log(given.tokens / (ratio * given.source_tokens))
    cut = off < -CUT and ENDS.search(given.source) and not ENDS.search(given.text)
    if not cut and abs(off) <= SPREAD + SHORT / sqrt(given.source_tokens):
        return ""
    ending = ", and the full stop is gone" if cut else ""
    return f"{given.tokens} tokens for {given.source_tokens} of source: {exp(off):.1f} times what is usual{ending}."


def numbers(given: Output) -> str:
    """Numbers of the source that the output lacks; those in addresses aside."""
    gone = lost(ADDRESS.sub(" ", given.source) if addresses(given.source) else given.source, given.text)
    return f"Not in the output: {clipped(', '.join(gone))}." if gone else ""


def urls(given: Output) -> str:
    """Addresses of the source that the output lacks; `https://` and a slash at the end are of no account."""
    output = given.text.lower()
    gone = [one for one in addresses(given.source) if re.sub("^https?://|/$", "", one.lower()) not in output]
    return f"Not in the output: {clipped(', '.join(gone))}." if gone else ""


def addresses(text: str) -> list[str]:
    """Web and e-mail addresses and @handles, without the marks after them."""
    if "@" not in text and "://" not in text and "www." not in text:
        return []
    return [found.rstrip(".,;:!?)") for found in ADDRESS.findall(text)]


def other_output_script(given: Output) -> str:
    """Most letters are foreign to the targets of the training, names that the source has aside."""
    return other_script(given.text, given.statistics, "target", given.source)


def unfinished(given: Output) -> str:
    """Cut off by the limit."""
    return "" if given.finished else f"Cut off after {given.tokens} tokens."


def unsure(given: Output) -> str:
    """log p / (tokens + ends) below the first percentile of validation."""
    least = number(given.statistics, "confidence", "p1")
    if least is None or given.log_probability is None:
        return ""
    each = given.log_probability / (given.tokens + given.ends)
    return f"log p per token is {each:.2f}; in validation 99 % were above {least:.2f}." if each < least else ""


INPUT_ALARMS: dict[str, Callable[[Input], str]] = {
    "unknown": unknown,
    "tokenized": tokenized,
    "script": other_input_script,
    "long": too_long,
}
OUTPUT_ALARMS: dict[str, Callable[[Output], str]] = {
    "copied": copied,
    "looping": looping,
    "length": length,
    "numbers": numbers,
    "urls": urls,
    "script": other_output_script,
    "unfinished": unfinished,
    "unsure": unsure,
}

# ----------------------------------------------------------------------------------------------------- what they share


def bare(text: str) -> list[str]:
    """The words in small letters, without the marks around them."""
    return [word.strip(MARKS) or word for word in text.casefold().split()]


def clipped(text: str, most: int = 60) -> str:
    """Text of anybody's, short and safe to show."""
    return escape_invisible(text if len(text) <= most else f"{text[:most]}…")


@cache
def script_of(letter: str) -> str:
    """The first word of its Unicode name, as in the training statistics: LATIN, CYRILLIC, CJK."""
    return unicode_name(letter, "UNKNOWN").split(" ")[0]


def other_script(text: str, statistics: Mapping[str, Any], side: str, source: str = "") -> str:
    """Whether most letters are of scripts that are not a side's own; names that `source` has too are never foreign."""
    own = {script for script, share in (inside(statistics, "scripts", side) or {}).items() if share >= OWN}
    if "HIRAGANA" in own:
        own |= {"CJK", "KATAKANA", "KATAKANA-HIRAGANA"}  # written together, though a text may have little of one
    if not own or ("LATIN" in own and text.isascii()):
        return ""
    letters = Counter({letter: count for letter, count in Counter(text).items() if letter.isalpha()})
    foreign = {letter for letter in letters if script_of(letter) not in own}
    count, total = sum(letters[letter] for letter in foreign), letters.total()
    if 2 * count > total:
        names = {word.strip(MARKS) for word in source.split() if word.strip(MARKS)[:1].isupper()}
        count -= sum(letter in foreign for word in text.split() if word.strip(MARKS) in names for letter in word)
    return f"{count} of {total} letters are not {' or '.join(sorted(own))}." if 2 * count > total else ""


def loop(words: Sequence[str], least: float) -> tuple[str, int] | None:
    """What is repeated, and how often: a phrase of words, or characters within a long word."""
    for parts, joint, copies in ((words, " ", 1), *((word, "", 2) for word in words if len(word) > 9)):
        if len(parts) - len(set(parts)) >= copies * least:  # else there cannot be a run of that length
            end, period, run = longest_run(parts, copies, least)
            if run:
                return joint.join(parts[end - period : end]), 1 + run // period
    return None


def longest_run(parts: Sequence[str], copies: int, least: float) -> tuple[int, int, int]:
    """(end, period, run) of the longest stretch of parts that each equal what stands `period` places before.

    It counts from copies * max(period, least) parts on; else the run is 0. In one pass: a part that does not go on as
    before begins a stretch whose period is the way back to its like.
    """
    last: dict[str, int] = {}
    best = (0, 1, 0)
    period = run = 0
    for place, part in enumerate(parts):
        if run and part == parts[place - period]:
            run += 1
        else:
            period = place - last.get(part, place)
            run = int(period > 0)
        if run > best[2] and run >= copies * max(period, least):
            best = place + 1, period, run
        last[part] = place
    return best

"""The checks that set flags.

A check takes a `CheckedInput` or `CheckedOutput` and returns a `Fault` or None. To add a check, add a line to
INPUT_CHECKS or OUTPUT_CHECKS and one to MEANINGS. Checks compare with the model's training statistics; a check whose
statistic is missing sets no flag. The thresholds were chosen on one half of real translations and tested on the other
(`benchmarks/sentinel.py`).
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from math import exp, isfinite, log, sqrt
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from unicodedata import name as unicode_name

from heedful.sentinel.languages import (
    LETTERS,
    MAX_FREQUENT_SHARE,
    MIN_WORDS,
    SURPRISE_THRESHOLD,
    find_other_language,
    surprise,
)
from heedful.sentinel.markup import differences, find_markup, find_placeholders
from heedful.sentinel.numbers import find_lost_numbers
from heedful.text.normalize import escape_invisible
from heedful.text.sentences import split_sentences
from heedful.types import Flag

if TYPE_CHECKING:
    from heedful.text.tokenizer import Tokenizer

Side = Literal["input", "output"]

MEANINGS = {
    "empty": "The input or the output is empty. Check that line of the file; if only the output is empty, try a wider "
    "beam.",
    "unknown": "Much of the input is not in the vocabulary: another language or script, emoji, garbled text. The model "
    "guesses there. Check the encoding and the language.",
    "tokenized": "The input looks tokenized or split into subwords, but the model was trained on plain text. Translate "
    "the original text.",
    "script": "Most letters belong to a script that the training text does not have: the wrong language, or an output "
    "that was not translated. Check the direction of the model.",
    "language": "The words are not those of the language that the model translates from. Check the language of the "
    "input, and the direction of the model.",
    "long": "The input is longer than any training source; the end of the output is often missing. Split the input "
    "into sentences.",
    "copied": "The output repeats the source word for word. That is correct for names and code. Otherwise the model "
    "does not know these words, or the input is already in the target language.",
    "looping": "The output repeats a phrase or some characters over and over; the rest is likely missing. Try a wider "
    "beam, or forbid repeated n-grams.",
    "length": "The output is much shorter or longer than translations in training: something is missing or invented. "
    "Compare both texts.",
    "numbers": "The output does not contain a number of the source in any known form: it was dropped or changed. "
    "Compare the numbers.",
    "urls": "The output does not contain a web address, e-mail address or @handle of the source unchanged. Copy it.",
    "placeholders": "A placeholder such as {name} or %s was lost, changed or added. A program that fills it in will "
    "fail or show wrong text. Correct the placeholder.",
    "markup": "A tag, a character entity or the address of a Markdown link was lost, changed or added. Correct it.",
    "omitted": "A sentence or a part of one seems to be missing. Compare both texts, and translate the missing part "
    "separately.",
    "unfinished": "The output reached the maximum length before the model ended it, so the end is missing. Split the "
    "input.",
    "suppressed": "The first choice contained a word that this model may not use. Compare the meaning of both texts.",
    "unsure": "The model is less sure of this output than of 99 % of its outputs in validation. Have a person read it.",
}

UNKNOWN_SHARE_THRESHOLD = 0.2  # of tokens
NATIVE_SCRIPT_SHARE = 0.05  # minimum share of the letters in training for a script of the language
USUAL_FLAG_RATE = 0.05  # a flag that this share of training pairs has is not reported
# |log(tokens / expected)| of a good translation of n source tokens is below LENGTH_SPREAD + SHORT_LENGTH_SPREAD /
# sqrt(n). If the full stop is missing too, log(tokens / expected) < -CUT_LENGTH_SPREAD is too short.
LENGTH_SPREAD, SHORT_LENGTH_SPREAD, CUT_LENGTH_SPREAD = 0.5, 1.0, 0.5
MIN_LOOP_WORDS = 4  # consecutive words that repeat the words before them; for characters, twice as many
MIN_OMITTED_SHARE = 0.5  # of the expected tokens of the missing sentences that the output is short of
MIN_OMITTED_WORDS = 3  # neighboring source words
IGNORED_ATTENTION_THRESHOLD = 0.1  # an omitted word gets less than this share of the mean attention per source word
COPY_SHARE_THRESHOLD = 0.9  # of words that source and output have in common
MIN_COPIED_LETTERS = 7  # in words that are not names: fewer may be copied

PUNCTUATION = "\"'.,;:!?()[]{}…-–—«»„“”‘’¿¡*"
WORD = re.compile(r"[^\W\d_]+(?:['’、。，・-][^\W\d_]+)*")
SENTENCE_END = re.compile(r"[.!?…。！？।؟][\"'“”’»«)\]]*\s*$")
POSSIBLE_END = re.compile("[.!?…;。！？；।؟]+")
# The patterns of `heedful check`, which needs Polars; French writes ? ! : ; with a space, so these do not count.
TOKENIZED = re.compile(r" [.,、。](?: |$)|@-@|&apos;|&quot;| (?:n't|'s|'re|'ll) |@@(?: |$)|\u2581")
ADDRESS = re.compile(  # ASCII only, because East Asian text continues without a space
    r"(?:(?:https?|ftp)://|\bwww\.)[\w.~:/?#@!$&()*+,;=%-]+|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?<![\w@])@\w{2,}",
    re.ASCII | re.IGNORECASE,
)

SCRIPT_NAMES = {"CJK": "Chinese"}  # the others are capitalized


class Fault(NamedTuple):
    """What a check reports: a sentence for readers of the translation, and the measured values."""

    detail: str
    figures: Mapping[str, float] = {}


class CheckedInput(NamedTuple):
    """The argument of input checks."""

    text: str
    ids: Sequence[int]
    statistics: Mapping[str, Any]
    unknown: Collection[int]


class CheckedOutput(NamedTuple):
    """The argument of output checks."""

    source: str
    text: str
    log_probability: float | None
    tokens: int
    source_tokens: int
    finished: bool
    statistics: Mapping[str, Any]
    words: Sequence[str]  # `bare_words` of the text
    ends: int
    untranslated: Sequence[str] = ()  # parts of the source whose translation is empty
    attention: Sequence[float] | None = None  # that each source word gets from all output words


def input_flags(
    text: str, ids: Sequence[int], statistics: Mapping[str, Any], unknown: Collection[int] = ()
) -> tuple[Flag, ...]:
    """The flags of an input; `ids` are its tokens, `unknown` is the result of `unknown_ids`."""
    if not text.strip():
        return (Flag("empty", "input", "There is no text."),)
    return run_checks(INPUT_CHECKS, CheckedInput(text, ids, statistics, unknown), "input")


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
    untranslated: Sequence[str] = (),
    attention: Sequence[float] | None = None,
) -> tuple[Flag, ...]:
    """The flags of an output; no check needs to know its language.

    `tokens` and `source_tokens` do not include end tokens; `ends` is the number of end tokens that the log-probability
    includes: one for each sentence that was translated separately. `untranslated` are the sentences whose translation
    is empty; `attention` is the attention that each word of the source, split at spaces, gets in total.
    """
    if not source.strip():
        return ()
    if not output.strip():
        return (Flag("empty", "output", "The output is empty.", {"source_words": len(source.split())}),)
    subject = CheckedOutput(
        source,
        output,
        log_probability,
        tokens,
        source_tokens,
        finished,
        statistics,
        bare_words(output),
        ends,
        untranslated,
        attention,
    )
    return run_checks(OUTPUT_CHECKS, subject, "output")


def run_checks(
    checks: Mapping[str, Callable[[Any], Fault | None]], subject: CheckedInput | CheckedOutput, side: Side
) -> tuple[Flag, ...]:
    """The flags of all checks that report a fault, except flags that are common in the training text."""
    faults = [(name, fault) for name, check in checks.items() if (fault := check(subject))]
    flags = [Flag(name, side, fault.detail, fault.figures) for name, fault in faults]
    rates = [nested_number(subject.statistics, "usual", side, flag.name) or 0.0 for flag in flags]
    return tuple(flag for flag, rate in zip(flags, rates, strict=True) if rate < USUAL_FLAG_RATE)


def flag_rates(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, float]]:
    """The key `usual` of training statistics: side -> flag -> the share of training pairs that have it.

    If training text is tokenized, or targets often equal their sources, the same is normal in outputs.
    """
    flags_of_pairs = [
        input_flags(source, (), {}) + output_flags(source, target, tokens=0, source_tokens=0, statistics={})
        for source, target in pairs
    ]
    counts = Counter((flag.side, flag.name) for flags in flags_of_pairs for flag in flags)
    rates: dict[str, dict[str, float]] = {"input": {}, "output": {}}
    for (side, name), count in counts.items():
        rates[side][name] = count / len(flags_of_pairs)
    return rates


def nested_value(statistics: Mapping[str, Any], *keys: str) -> Any:
    """statistics[key][key].., or None if a key is missing."""
    value: Any = statistics
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None  # Mapping would take twice as long
    return value


def nested_number(statistics: Mapping[str, Any], *keys: str) -> float | None:
    """`nested_value` if it is a finite number, or None."""
    value = nested_value(statistics, *keys)
    return float(value) if isinstance(value, int | float) and isfinite(value) else None


# --------------------------------------------------------------------------------------------------------- input checks


def unknown_ids(tokenizer: "Tokenizer") -> frozenset[int]:
    """UNK, and the tokens of bytes that start a character: a character spelled in bytes counts once."""
    pieces = tokenizer.pieces(range(tokenizer.size))
    first_bytes = {f"<0x{byte:02X}>" for byte in range(256) if not 0x80 <= byte < 0xC0}
    return frozenset(index for index, piece in enumerate(pieces) if piece == "<unk>" or piece in first_bytes)


def check_unknown(subject: CheckedInput) -> Fault | None:
    """count(unknown) / count(tokens) >= UNKNOWN_SHARE_THRESHOLD"""
    if not subject.unknown or not subject.ids:
        return None
    count, total = sum(token in subject.unknown for token in subject.ids), len(subject.ids)
    if count < UNKNOWN_SHARE_THRESHOLD * total:
        return None
    return Fault("The model does not know much of this text.", {"unknown_tokens": count, "tokens": total})


def check_tokenized(subject: CheckedInput) -> Fault | None:
    match = TOKENIZED.search(subject.text)
    return Fault(f"`{escape_invisible(match[0])}` looks like the output of a tokenizer.") if match else None


def check_long(subject: CheckedInput) -> Fault | None:
    longest = nested_number(subject.statistics, "lengths", "source", "longest")
    if longest is None or len(subject.ids) <= longest:
        return None
    figures = {"tokens": len(subject.ids), "longest_in_training": longest}
    return Fault("The text is longer than every text that the model was trained on.", figures)


def check_input_script(subject: CheckedInput) -> Fault | None:
    """Most letters belong to scripts that training sources do not have."""
    return find_foreign_script(subject.text, subject.statistics, "source")


def check_input_language(subject: CheckedInput) -> Fault | None:
    """The words are those of another language, or too few of them are frequent in training sources."""
    frequent = nested_value(subject.statistics, "words", "source")
    words = LETTERS.findall(subject.text) if frequent else []
    if len(words) < MIN_WORDS:
        return None
    common = [word for word in words if not word[0].isupper()]
    figures = {"words": len(common), "frequent_words": len([word for word in common if word in frequent])}
    if language := find_other_language(words, frequent):
        return Fault(f"The text seems to be in another language ({language}).", figures)
    if figures["frequent_words"] >= MAX_FREQUENT_SHARE * len(common):
        return None
    share = min(MAX_FREQUENT_SHARE, sum(frequent.values()))
    if surprise(figures["frequent_words"], len(common), share) < SURPRISE_THRESHOLD:
        return None
    return Fault("The text seems to be in another language.", figures)


# -------------------------------------------------------------------------------------------------------- output checks


def check_copied(subject: CheckedOutput) -> Fault | None:
    """Source and output have the same words, and enough of them are not names, numbers, addresses or code."""
    source, output = set(bare_words(subject.source)), set(subject.words)
    if len(source & output) < COPY_SHARE_THRESHOLD * max(len(source), len(output)):
        return None
    words = [word.strip(PUNCTUATION) for word in subject.source.split()]
    all_capitals = subject.source.isupper() and len(words) > 3  # then capitals do not mark names
    ordinary = [word for word in words if WORD.fullmatch(word) and (all_capitals or not word[0].isupper())]
    return Fault("The output repeats the source.") if sum(map(len, ordinary)) >= MIN_COPIED_LETTERS else None


def check_looping(subject: CheckedOutput) -> Fault | None:
    """Words, or characters within a word, are repeated more often than in the source."""
    loop = find_loop(subject.words, MIN_LOOP_WORDS)
    if not loop:
        return None
    (phrase, times), (_, source_times) = loop, find_loop(bare_words(subject.source), MIN_LOOP_WORDS / 2) or ("", 0)
    if times <= 2 * source_times:
        return None
    return Fault(f"`{clip_text(phrase)}` occurs {times} times in a row.", {"times": times})


def check_length(subject: CheckedOutput) -> Fault | None:
    """|log(tokens / (ratio * source tokens))| > LENGTH_SPREAD + SHORT_LENGTH_SPREAD / sqrt(source tokens)"""
    tokens, source_tokens = subject.tokens, subject.source_tokens
    deviation = length_deviation(subject)
    if deviation is None:
        return None
    lost_end = SENTENCE_END.search(subject.source) and not SENTENCE_END.search(subject.text)
    is_cut = deviation < -CUT_LENGTH_SPREAD and lost_end
    if not is_cut and abs(deviation) <= LENGTH_SPREAD + SHORT_LENGTH_SPREAD / sqrt(source_tokens):
        return None
    ending = ", and the full stop is missing" if is_cut else ""
    figures = {"tokens": tokens, "source_tokens": source_tokens, "times_usual_length": round(exp(deviation), 2)}
    return Fault(f"The output is much {'shorter' if deviation < 0 else 'longer'} than usual{ending}.", figures)


def length_deviation(subject: CheckedOutput) -> float | None:
    """log(tokens / expected tokens), or None if that is not known."""
    ratio = nested_number(subject.statistics, "ratio")
    if not ratio or ratio < 0 or not subject.source_tokens or not subject.tokens:
        return None
    return log(subject.tokens / (ratio * subject.source_tokens))


def check_numbers(subject: CheckedOutput) -> Fault | None:
    """The output lacks numbers of the source; numbers in addresses do not count."""
    source = ADDRESS.sub(" ", subject.source) if find_addresses(subject.source) else subject.source
    return describe_lost(find_lost_numbers(source, subject.text))


def check_urls(subject: CheckedOutput) -> Fault | None:
    """The output lacks addresses of the source; `https://` and a trailing slash do not count."""
    output = subject.text.lower()
    return describe_lost(
        [
            address
            for address in find_addresses(subject.source)
            if re.sub("^https?://|/$", "", address.lower()) not in output
        ]
    )


def find_addresses(text: str) -> list[str]:
    """Web and e-mail addresses and @handles, without the punctuation after them."""
    if "@" not in text and "://" not in text and "www." not in text:
        return []
    return [address.rstrip(".,;:!?)") for address in ADDRESS.findall(text)]


def check_placeholders(subject: CheckedOutput) -> Fault | None:
    return describe_lost(*differences(find_placeholders, subject.source, subject.text))


def check_markup(subject: CheckedOutput) -> Fault | None:
    return describe_lost(*differences(find_markup, subject.source, subject.text))


def check_omitted(subject: CheckedOutput) -> Fault | None:
    """A sentence has no translation; or m of n sentences are missing, and at least MIN_OMITTED_SHARE of their tokens:
    tokens / expected <= 1 - MIN_OMITTED_SHARE * m / n; or MIN_OMITTED_WORDS neighboring words get no attention.
    """
    if subject.untranslated:
        return describe_lost([f"`{clip_text(text)}`" for text in subject.untranslated])
    deviation = length_deviation(subject)
    if deviation is not None and deviation < 0 and (sentences := len(split_sentences(subject.source))) > 1:
        # Translators join sentences by semicolons, and abbreviations look like ends: count every possible end.
        missing = sentences - max(len(split_sentences(subject.text)), len(POSSIBLE_END.findall(subject.text)))
        if missing > 0 and exp(deviation) <= 1 - MIN_OMITTED_SHARE * missing / sentences:
            return Fault(
                f"The source has {sentences} sentences, the output has {sentences - missing}.",
                {"source_sentences": sentences, "sentences": sentences - missing},
            )
    phrase = find_ignored_words(subject.source.split(), subject.attention or ())
    return Fault(f"The output may lack: `{clip_text(' '.join(phrase))}`.") if phrase else None


def check_output_script(subject: CheckedOutput) -> Fault | None:
    """Most letters, except in names of the source, belong to scripts that training targets do not have."""
    return find_foreign_script(subject.text, subject.statistics, "target", subject.source)


def check_unfinished(subject: CheckedOutput) -> Fault | None:
    return (
        None if subject.finished else Fault("The end is missing: the output was too long.", {"tokens": subject.tokens})
    )


def check_unsure(subject: CheckedOutput) -> Fault | None:
    """log p / (tokens + ends) < the first percentile in validation"""
    threshold = nested_number(subject.statistics, "confidence", "p1")
    if threshold is None or subject.log_probability is None:
        return None
    mean = subject.log_probability / (subject.tokens + subject.ends)
    if mean >= threshold:
        return None
    figures = {"log_probability_per_token": round(mean, 4), "threshold": round(threshold, 4)}
    return Fault("The model is much less sure than usual.", figures)


INPUT_CHECKS: dict[str, Callable[[CheckedInput], Fault | None]] = {
    "unknown": check_unknown,
    "tokenized": check_tokenized,
    "script": check_input_script,
    "language": check_input_language,
    "long": check_long,
}
OUTPUT_CHECKS: dict[str, Callable[[CheckedOutput], Fault | None]] = {
    "copied": check_copied,
    "looping": check_looping,
    "length": check_length,
    "numbers": check_numbers,
    "urls": check_urls,
    "placeholders": check_placeholders,
    "markup": check_markup,
    "omitted": check_omitted,
    "script": check_output_script,
    "unfinished": check_unfinished,
    "unsure": check_unsure,
}

# ----------------------------------------------------------------------------------------------------- shared functions


def bare_words(text: str) -> list[str]:
    """The words in lowercase, without surrounding punctuation."""
    return [word.strip(PUNCTUATION) or word for word in text.casefold().split()]


def clip_text(text: str, max_chars: int = 60) -> str:
    """Shorten and escape untrusted text."""
    return escape_invisible(text if len(text) <= max_chars else f"{text[:max_chars]}…")


def describe_lost(lost: Sequence[str], added: Sequence[str] = ()) -> Fault | None:
    """A fault that lists what the output lacks or, if it lacks nothing, what only the output has."""
    if lost:
        return Fault(f"Not in the output: {clip_text(', '.join(lost))}.", {"lost": len(lost)})
    return Fault(f"Only in the output: {clip_text(', '.join(added))}.", {"added": len(added)}) if added else None


def find_ignored_words(words: Sequence[str], attention: Sequence[float]) -> list[str]:
    """The longest phrase of words that get almost no attention, if it has MIN_OMITTED_WORDS words with letters."""
    if len(attention) != len(words) or not words:
        return []
    threshold = IGNORED_ATTENTION_THRESHOLD * sum(attention) / len(words)
    runs = [
        [word for word, _ in run]
        for ignored, run in groupby(zip(words, attention, strict=True), key=lambda pair: pair[1] < threshold)
        if ignored
    ]
    longest = max(runs, key=len, default=[])
    return longest if sum(bool(LETTERS.search(word)) for word in longest) >= MIN_OMITTED_WORDS else []


@cache
def script_of(letter: str) -> str:
    """The first word of its Unicode name, as in training statistics: LATIN, CYRILLIC, CJK."""
    return unicode_name(letter, "UNKNOWN").split(" ")[0]


def find_foreign_script(text: str, statistics: Mapping[str, Any], side: str, source: str = "") -> Fault | None:
    """A fault if most letters, except in names of `source`, belong to scripts that a side lacks in training."""
    shares = nested_value(statistics, "scripts", side) or {}
    native = {script for script, share in shares.items() if share >= NATIVE_SCRIPT_SHARE}
    if "HIRAGANA" in native:
        native |= {"CJK", "KATAKANA", "KATAKANA-HIRAGANA"}  # used together, even if a text has few letters of one
    if not native or ("LATIN" in native and text.isascii()):
        return None
    foreign = {letter for letter in set(text) if letter.isalpha() and script_of(letter) not in native}
    if not foreign:
        return None
    count, total = sum(letter in foreign for letter in text), sum(map(str.isalpha, text))
    if 2 * count > total:
        names = {word.strip(PUNCTUATION) for word in source.split() if word.strip(PUNCTUATION)[:1].isupper()}
        count -= sum(letter in foreign for word in text.split() if word.strip(PUNCTUATION) in names for letter in word)
    if 2 * count <= total:
        return None
    usual = " or ".join(sorted(SCRIPT_NAMES.get(script, script.capitalize()) for script in native))
    return Fault(f"Most letters are not {usual}.", {"foreign_letters": count, "letters": total})


def find_loop(words: Sequence[str], min_words: float) -> tuple[str, int] | None:
    """The repeated phrase, or characters within a long word, and the number of repetitions."""
    for parts, separator, copies in ((words, " ", 1), *((word, "", 2) for word in words if len(word) > 9)):
        if len(parts) - len(set(parts)) >= copies * min_words:  # otherwise no run can be long enough
            end, period, run = longest_run(parts, copies, min_words)
            if run:
                return separator.join(parts[end - period : end]), 1 + run // period
    return None


def longest_run(parts: Sequence[str], copies: int, min_parts: float) -> tuple[int, int, int]:
    """(end, period, run) of the longest run of parts that each equal the part `period` places before.

    A run shorter than copies * max(period, min_parts) counts as 0. One pass: a part that does not continue the current
    run starts a new one, whose period is the distance to the last equal part.
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
        if run > best[2] and run >= copies * max(period, min_parts):
            best = place + 1, period, run
        last[part] = place
    return best

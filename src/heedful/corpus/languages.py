"""Guesses languages by script and, for Latin and Cyrillic, by the most frequent small words.

This detects swapped files or a third language in a file; it does not identify the language of short texts.
`sort_lines_by_language` decides between the two languages of a corpus, using only the words of its two sides.
"""

from collections.abc import Sequence

import numpy as np
import polars
from numpy.typing import NDArray

from heedful.corpus.parallel import Integers, WordIndex, index_words
from heedful.corpus.rules import find_scripts
from heedful.text.language_codes import base_language
from heedful.text.small_words import SMALL_WORDS

Bools = NDArray[np.bool_]

SCRIPT_OF = {
    "el": "Greek", "ar": "Arabic", "fa": "Arabic", "ur": "Arabic", "he": "Hebrew", "yi": "Hebrew", "hi": "Devanagari",
    "mr": "Devanagari", "ne": "Devanagari", "bn": "Bengali", "pa": "Gurmukhi", "gu": "Gujarati", "ta": "Tamil",
    "te": "Telugu", "kn": "Kannada", "ml": "Malayalam", "si": "Sinhala", "th": "Thai", "lo": "Lao", "km": "Khmer",
    "my": "Myanmar", "bo": "Tibetan", "ka": "Georgian", "hy": "Armenian", "am": "Ethiopic", "ko": "Hangul", "zh": "Han",
    "ru": "Cyrillic", "uk": "Cyrillic", "bg": "Cyrillic", "be": "Cyrillic", "mk": "Cyrillic",
}  # fmt: skip
MIN_LEAN = 1.5  # nats per word, for a line to be in the language of the other side
MIN_PARTNER_LEAN = 0.5  # of the other line of such a pair, to be swapped
MIN_LEANING_WORDS = 3  # of a line; fewer can be names
MIN_SHARE_DIFFERENCE = 0.03  # of small words between two sides in different languages
MAX_TURNS = 12  # times that pairs are turned round to see which are swapped
MIN_SMALL_WORDS = 6  # different ones of a language, before a text is said to be in it


def count_small_words(side: WordIndex) -> tuple[list[str], NDArray[np.float64], NDArray[np.int64]]:
    """Languages; [languages, lines] small words of each in every line; [languages] different small words of each."""
    names = list(SMALL_WORDS)
    small_words = polars.DataFrame(
        {"word": [word for words in SMALL_WORDS.values() for word in words.split()],
         "language": [row for row, words in enumerate(SMALL_WORDS.values()) for _ in words.split()]}
    )  # fmt: skip
    vocabulary = polars.DataFrame({"word": side.vocabulary, "id": np.arange(len(side.vocabulary))})
    table = np.zeros((len(names), len(side.vocabulary)), bool)
    matches = vocabulary.join(small_words, on="word")
    table[matches["language"].to_numpy(), matches["id"].to_numpy()] = True
    counts = [np.bincount(side.rows, weights=row[side.ids], minlength=side.num_lines) for row in table]
    return names, np.array(counts), table.sum(1)


def small_word_shares(side: WordIndex) -> tuple[NDArray[np.float64], Integers]:
    """[languages] the share of small words of each among all words, and how many different ones there are."""
    counts = dict(zip(side.vocabulary, side.counts.tolist(), strict=True))
    matches = [[counts[word] for word in words.split() if word in counts] for words in SMALL_WORDS.values()]
    shares = np.array([sum(numbers) for numbers in matches]) / max(len(side.ids), 1)
    return shares, np.array([len(numbers) for numbers in matches])


def are_different_languages(source: WordIndex, target: WordIndex) -> bool:
    """Whether one language is more frequent on the source side and another on the target side."""
    difference = small_word_shares(source)[0] - small_word_shares(target)[0]
    return bool(difference.max() > MIN_SHARE_DIFFERENCE and difference.min() < -MIN_SHARE_DIFFERENCE)


def guess_language(texts: Sequence[str]) -> str | None:
    """The language of some lines, by script and small words; None if it is not clear."""
    readable = [text.encode(errors="replace").decode() for text in texts if text]
    if not readable:
        return None
    lines = polars.Series("text", readable)
    scripts = find_scripts(lines)
    if "Hiragana" in scripts:
        return "ja"
    if not set(scripts) & {"Latin", "Cyrillic"}:
        codes = [code for code, script in SCRIPT_OF.items() if script in scripts]
        return codes[0] if len(codes) == 1 else None
    shares, different = small_word_shares(index_words(lines))
    second, best = np.argsort(shares)[-2:]
    is_sure = shares[best] > max(1.25 * shares[second], 0.05) and different[best] >= MIN_SMALL_WORDS
    return list(SMALL_WORDS)[best] if is_sure else None


def spelling_scores(vocabulary: polars.Series, in_training: Bools) -> NDArray[np.float64]:
    """How similar each word is to the training words: mean log p(letter trigram), boundaries count as letters."""
    codes = np.frombuffer("\n".join(["", *vocabulary, ""]).encode("utf-32-le"), np.uint32)
    word = np.cumsum(codes == ord("\n"))[1:-1] - 1
    inside = codes[1:-1] != ord("\n")
    trigrams = (codes[:-2] * 0x9E3779B1 ^ codes[1:-1] * 0x85EBCA6B ^ codes[2:] * 0xC2B2AE35)[inside] >> 12
    word = word[inside]
    counts = np.bincount(trigrams[in_training[word]], minlength=1 << 20)
    fit = np.log((counts[trigrams] + 0.5) / (counts.sum() + 1))
    mean: NDArray[np.float64] = np.bincount(word, fit, len(vocabulary)) / np.bincount(word, minlength=len(vocabulary))
    return mean


def identify_language(side: WordIndex, code: str) -> tuple[str | None, Bools]:
    """The language a side seems to be in (None: unknown, or the declared one), and which lines are in a third one.

    Such lines have few frequent words of the side, and either small words of another language or rare words whose
    spelling differs from that of the other rare words.
    """
    names, counts, different = count_small_words(side)
    declared, total = base_language(code), counts.sum(1)
    best = names[int(total.argmax())]
    in_declared = counts[names.index(declared)] if declared in names else np.zeros(side.num_lines)
    in_others = counts[[name != declared for name in names]].max(0)
    words = np.bincount(side.rows, minlength=side.num_lines)
    rare = side.counts < max(5, 3e-4 * len(side.ids))  # small words of the side's language are not rare
    num_rare = np.bincount(side.rows, rare[side.ids], side.num_lines)
    fit = spelling_scores(side.vocabulary, side.counts >= 5)
    rare_fit, odd = fit[side.counts < 5], np.zeros(len(fit))
    if len(rare_fit) >= 100:  # otherwise there is too little to compare with
        odd[rare] = (fit[rare] - rare_fit.mean()) / max(rare_fit.std(), 0.1)
    oddness = np.bincount(side.rows, odd[side.ids], side.num_lines) / np.sqrt(np.maximum(num_rare, 1))
    unlike = oddness < -4
    strange = (
        (words >= 4) & (num_rare >= 0.7 * words) & (unlike | ((in_others > 2 * in_declared) & (declared in names)))
    )
    # tags, abbreviations and names can look like a few small words of a language, but not like many different ones
    is_sure = total.max() > max(2 * in_declared.sum(), 0.05 * words.sum()) and different[total.argmax()] >= 8
    return best if is_sure and declared in names else None, strange


def sort_lines_by_language(source: WordIndex, target: WordIndex) -> tuple[Bools, Bools, Bools]:
    """Which pairs are swapped; which source lines are in the target's language, and target lines in the source's.

    The lean of a line is the mean lean of its words. One side that is clearly in the other language is enough to say
    that a pair is wrong; it is swapped if the other side leans the wrong way, too, and else untranslated.

    Many swapped pairs would blur the leans. So pairs that lean the wrong way are turned round, and the leans computed
    again, until nothing changes; but only if the sides are in two known languages, because sides in the same language
    would be pulled apart by chance.
    """
    words = polars.concat([source.vocabulary, target.vocabulary]).unique(maintain_order=True)
    ids = [number_words(side, words) for side in (source, target)]
    can_turn = are_different_languages(source, target)
    is_turned = np.zeros(source.num_lines, bool)
    for _ in range(MAX_TURNS):
        in_source, in_target = ~is_turned[source.rows], ~is_turned[target.rows]
        left, right = (
            np.bincount(np.concatenate(parts), minlength=len(words)).astype(np.int64)
            for parts in ((ids[0][in_source], ids[1][~in_target]), (ids[1][in_target], ids[0][~in_source]))
        )
        lean = word_leans(words, left, right)
        source_lean, target_lean = (
            mean_by_line(side, lean[number]) for side, number in zip((source, target), ids, strict=True)
        )
        was_turned, is_turned = is_turned, (source_lean < 0) & (target_lean > 0) & can_turn
        if (was_turned == is_turned).all():
            break
    source_words, target_words = (np.bincount(side.rows, minlength=side.num_lines) for side in (source, target))
    as_target = (source_lean < -MIN_LEAN) & (source_words >= MIN_LEANING_WORDS)
    as_source = (target_lean > MIN_LEAN) & (target_words >= MIN_LEANING_WORDS)
    swapped = (as_target & (target_lean > MIN_PARTNER_LEAN)) | (as_source & (source_lean < -MIN_PARTNER_LEAN))
    return swapped, as_target & ~swapped, as_source & ~swapped


def word_leans(words: polars.Series, left: Integers, right: Integers) -> NDArray[np.float64]:
    """log p(word | source side) - log p(word | target side), from counts; for rare words, from the spelling."""
    lean = np.log((left + 0.5) / max(left.sum(), 1)) - np.log((right + 0.5) / max(right.sum(), 1))
    spelling_lean = spelling_scores(words, left >= 5) - spelling_scores(words, right >= 5)
    return np.where(left + right >= 5, lean.clip(-4, 4), spelling_lean.clip(-2, 2))


def number_words(side: WordIndex, words: polars.Series) -> Integers:
    """The places, in a list of words, of the words of a side."""
    places = polars.DataFrame({"word": words, "place": np.arange(len(words))})
    own = polars.DataFrame({"word": side.vocabulary}).join(places, on="word", how="left", maintain_order="left")
    numbers: Integers = own["place"].to_numpy()[side.ids]
    return numbers


def mean_by_line(side: WordIndex, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of the values of each line's words; 0 without words."""
    number = np.bincount(side.rows, minlength=side.num_lines)
    mean: NDArray[np.float64] = np.bincount(side.rows, values, side.num_lines) / np.maximum(number, 1)
    return mean

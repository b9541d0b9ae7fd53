"""Guesses languages by script and, for Latin and Cyrillic, by the most frequent small words.

This detects swapped files or a third language in a file; it does not identify the language of short texts.
`lines_in_other_language` decides between the two languages of a corpus, using only the words of its two sides.
"""

import numpy as np
import polars
from numpy.typing import NDArray

from heedful.corpus.parallel import WordIndex
from heedful.text.small_words import SMALL_WORDS

Bools = NDArray[np.bool_]

SCRIPT_OF = {
    "el": "Greek", "ar": "Arabic", "fa": "Arabic", "ur": "Arabic", "he": "Hebrew", "yi": "Hebrew", "hi": "Devanagari",
    "mr": "Devanagari", "ne": "Devanagari", "bn": "Bengali", "pa": "Gurmukhi", "gu": "Gujarati", "ta": "Tamil",
    "te": "Telugu", "kn": "Kannada", "ml": "Malayalam", "si": "Sinhala", "th": "Thai", "lo": "Lao", "km": "Khmer",
    "my": "Myanmar", "bo": "Tibetan", "ka": "Georgian", "hy": "Armenian", "am": "Ethiopic", "ko": "Hangul", "zh": "Han",
    "ru": "Cyrillic", "uk": "Cyrillic", "bg": "Cyrillic", "be": "Cyrillic", "mk": "Cyrillic",
}  # fmt: skip
LONG_CODES = {
    "eng": "en", "deu": "de", "ger": "de", "fra": "fr", "fre": "fr", "spa": "es", "por": "pt", "ita": "it", "nld": "nl",
    "dut": "nl", "swe": "sv", "dan": "da", "nor": "no", "nob": "no", "nb": "no", "fin": "fi", "pol": "pl", "ces": "cs",
    "cze": "cs", "ron": "ro", "rum": "ro", "hun": "hu", "tur": "tr", "ind": "id", "vie": "vi", "cat": "ca", "rus": "ru",
    "ukr": "uk", "bul": "bg", "srp": "sr", "ell": "el", "ara": "ar", "heb": "he", "hin": "hi", "ben": "bn", "jpn": "ja",
    "zho": "zh", "cmn": "zh", "kor": "ko", "tha": "th", "fas": "fa", "kat": "ka", "hye": "hy",
}  # fmt: skip


def base_language(code: str) -> str:
    """The two-letter code of a language code: pt-BR, por -> pt."""
    code = code.lower().replace("_", "-").split("-")[0]
    return LONG_CODES.get(code, code)


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


def lines_in_other_language(source: WordIndex, target: WordIndex) -> tuple[Bools, Bools]:
    """Which source lines are in the target's language, and which target lines are in the source's.

    The lean of a word is log p(word | source side) - log p(word | target side); for rare words it is computed from the
    spelling. The lean of a line is the mean of its words.
    """
    counts = (
        polars.DataFrame({"word": source.vocabulary, "source": source.counts})
        .join(
            polars.DataFrame({"word": target.vocabulary, "target": target.counts}), on="word", how="full", coalesce=True
        )
        .fill_null(0)
    )
    left, right = (counts[side].to_numpy() for side in ("source", "target"))
    lean = np.log((left + 0.5) / len(source.ids)) - np.log((right + 0.5) / len(target.ids))
    spelling_lean = spelling_scores(counts["word"], left >= 5) - spelling_scores(counts["word"], right >= 5)
    lean = np.where(left + right >= 5, lean.clip(-4, 4), spelling_lean.clip(-2, 2))
    table = counts.select("word", lean=polars.Series(lean))
    leans = [_mean_lean(side, table) for side in (source, target)]
    return leans[0] < -1.5, leans[1] > 1.5


def _mean_lean(side: WordIndex, table: polars.DataFrame) -> NDArray[np.float64]:
    """The mean lean of each line; 0 for lines that are too short."""
    word = polars.DataFrame({"word": side.vocabulary}).join(table, on="word", how="left", maintain_order="left")
    number = np.bincount(side.rows, minlength=side.num_lines)
    total = np.bincount(side.rows, word["lean"].to_numpy()[side.ids], side.num_lines)
    return np.where(number >= 3, total / np.maximum(number, 1), 0.0)

"""Guesses languages by script and, for Latin and Cyrillic, by the most frequent small words.

This detects swapped files or a third language in a file; it does not identify the language of short texts.
`lines_in_other_language` decides between the two languages of a corpus, using only the words of its two sides.
"""

import numpy as np
import polars
from numpy.typing import NDArray

from heedful.corpus.parallel import WordIndex

Bools = NDArray[np.bool_]

SMALL_WORDS = {
    "en": "a i the and of to in is that it was for with his he she are this at from have not you they were an by",
    "de": "der die und das den von zu mit sich des auf ist im dem nicht ein eine als auch es er sie einem einen werden",
    "fr": "le la les des est dans une pour que qui sur au avec il elle pas du un et ce sont cette je vous ne aux se",
    "es": "el los las que del una por con para es su al lo como más pero sus este en un muy está y no yo ella",
    "pt": "a o os de que do da em um uma para com não por mais dos como mas foi ao ele das tem sua é eu você está na",
    "it": "il di che è un una per non sono con del della gli le nel alla anche più dei questo ha lo si mi io due",
    "nl": "de het een van en in dat die te op voor met zijn niet aan er ook als bij maar om uit door hij ze twee",
    "sv": "och att det som en på är av för med den till inte har de ett om han var jag sig ska",
    "da": "og at det som en på er af for med den til ikke har de et om han var jeg sig skal",
    "no": "og at det som en på er av for med den til ikke har de et om han var jeg seg skal",
    "fi": "ja on ei se että hän mutta oli niin kun joka ovat minä sinä tämä myös mitä kuin",
    "pl": "i w nie na się z do że to jest o jak ale po co tak za od jego są przez tylko dla jestem",
    "cs": "a v na se je že s z do to o ve jsem ale za by pro po jako jeho jsou při které dva muž",
    "ro": "și de în la cu pe nu un o este care din să pentru sunt mai că s-a fost ca",
    "hu": "a az és hogy nem is egy ez azt van meg volt csak már ha mint vagy",
    "tr": "bir ve bu için da de ile ne çok o var mı ben sen olarak daha gibi değil",
    "id": "yang dan di itu dengan untuk tidak ini dari dalam akan pada juga saya ke karena adalah",
    "vi": "là của và có không được cho các một người trong đã với này tôi những để",
    "ca": "el la els les de i que un una per amb és no del al dels en com més va",
    "ru": "и в не на я что он с это как его но по она к у за мы из от ты так все бы же вы",
    "uk": "і в не на я що він з це як його але по вона до у за ми із від ти так все та є",
    "bg": "и в не на се да от за е с че по ще са това той като но до му",
    "sr": "и у је да се на за не су од са као што али то он",
}
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

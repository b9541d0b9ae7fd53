"""Whether a text is in the language of the training text, decided by its words alone.

Training stores the most frequent words of the source side with their shares (`frequent_words`). A text is in another
language if

- it has at least two small words of another language, and at least as many of them as frequent words of training
  (each counted without the words that both have), or
- it has so few frequent words of training that this is no chance: n KL(k / n, p) > SURPRISE_THRESHOLD for k frequent
  words among n words, where p is their share in training, at most MAX_FREQUENT_SHARE. Capitalized words do not count,
  because they may be names.

The first rule needs a line in SMALL_WORDS for the other language, the second needs a longer text.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import log

from heedful.text.small_words import SMALL_WORDS

NUM_FREQUENT_WORDS = 300
MIN_WORDS = 4  # shorter texts are not judged
MIN_SMALL_WORDS = 2  # of the other language
MAX_FREQUENT_SHARE = 0.5  # p is at most this: other text of the language has fewer words that are frequent in training
SURPRISE_THRESHOLD = 9.0  # log(1 / probability), so about 1 in 8,000 texts like those of training

LETTERS = re.compile(r"[^\W\d_]+")
LANGUAGES_OF_WORD: dict[str, tuple[str, ...]] = {
    word: tuple(language for language, words in SMALL_WORDS.items() if word in words.split())
    for words in SMALL_WORDS.values()
    for word in words.split()
}


def frequent_words(texts: Iterable[str]) -> dict[str, float]:
    """The most frequent words and the small words of their language -> their share of all words that are not
    capitalized.

    The small words are included because a narrow corpus, such as captions, lacks many of them.
    """
    counts = Counter(word for text in texts for word in LETTERS.findall(text) if not word[0].isupper())
    languages = {language: sum(counts[word] for word in words.split()) for language, words in SMALL_WORDS.items()}
    likely = max(languages, key=lambda language: languages[language])
    small = SMALL_WORDS[likely].split() if languages[likely] else []
    total = max(1, counts.total())
    words = dict.fromkeys([*(word for word, _ in counts.most_common(NUM_FREQUENT_WORDS)), *small])
    return {word: round(counts[word] / total, 6) for word in words}


def find_other_language(words: Sequence[str], frequent: Mapping[str, float]) -> str:
    """The code of another language whose small words the text has, or ""."""
    in_lowercase = [word.casefold() for word in words]
    candidates = [
        languages
        for word in in_lowercase
        if word not in frequent and (languages := LANGUAGES_OF_WORD.get(word))
    ]  # fmt: skip
    if len(candidates) < MIN_SMALL_WORDS:
        return ""
    known = [LANGUAGES_OF_WORD.get(word, ()) for word in in_lowercase if word in frequent]
    others = Counter(language for languages in candidates for language in languages)
    for language, count in others.most_common():
        if count < MIN_SMALL_WORDS:
            break
        if count >= sum(language not in languages for languages in known):
            return language
    return ""


def surprise(num_frequent: int, num_words: int, share: float) -> float:
    """n KL(k / n, p) if k / n < p, else 0: a bound of -log P(at most k of n)."""
    rate = num_frequent / num_words
    if not rate < share < 1:
        return 0.0
    information = (1 - rate) * log((1 - rate) / (1 - share)) + (rate * log(rate / share) if rate else 0.0)
    return num_words * information

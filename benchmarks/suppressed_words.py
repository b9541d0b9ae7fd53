"""Do the sample models answer news without obscene and hateful words?

The sample models translate news sentences from Portuguese (NTREX) and Russian (NTREX, newstest 2013). No translation
may contain a word of `src/heedful/samples/suppressed.en.txt`. The same sentences are translated without the list, to
count how often it was needed: a translation whose first choice has no listed word must stay the same. To test the
mechanism itself, common words are suppressed in a part of the sentences.

    python benchmarks/suppressed_words.py [--quick]

HEEDFUL_DATA is the directory of the corpora (default: ../shared/data next to the repository).
"""

import argparse
import re
import sys

import heedful
from heedful import samples
from heedful.translation.suppression import compile_words, read_words
from heedful.translation.translator import Translator
from heedful.types import Translation
from report import header, read_lines, verdict

NEWS = {
    "pt-en": ("ntrex/newstest2019-ref.por-BR.txt.gz",),
    "ru-en": ("ntrex/newstest2019-ref.rus.txt.gz", "newstest/newstest2013.en-ru.ru.gz"),
}
COMMON_WORDS = ("the", "is", "in the")
WINDOW = 250  # sentences translated together


def read_news(pair: str, count: int) -> list[str]:
    """The first sentences of the news of a language."""
    return [line for name in NEWS[pair] for line in read_lines(name)][:count]


def translate(translator: Translator, sentences: list[str], words: tuple[str, ...] | None) -> list[Translation]:
    windows = [sentences[first : first + WINDOW] for first in range(0, len(sentences), WINDOW)]
    return [translation for window in windows for translation in translator(window, suppress_words=words)]


def count_matches(pattern: re.Pattern[str], translations: list[Translation]) -> int:
    return sum(pattern.search(translation.text) is not None for translation in translations)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="fewer sentences")
    quick = options.parse_args().quick
    header(__file__)
    each, common = (50, 10) if quick else (1_000, 100)
    listed, frequent = compile_words(read_words(samples.suppressed_words_file())), compile_words(COMMON_WORDS)
    assert listed
    assert frequent
    total = remaining = changed = common_before = common_after = 0
    print("model  sentences  with a listed word before, after  changed without need")
    for pair in NEWS:
        translator = heedful.load(samples.model(pair))
        sentences = read_news(pair, each)
        before, after = (translate(translator, sentences, words) for words in ((), None))
        pairs = list(zip(before, after, strict=True))
        different = sum(old.text != new.text and not listed.search(old.text) for old, new in pairs)
        counts = count_matches(listed, before), count_matches(listed, after)
        print(f"{pair:6} {len(pairs):9} {counts[0]:25} {counts[1]:6} {different:21}")
        for old, new in pairs:
            if match := listed.search(old.text):
                print(f"  {match[0]!r}: {old.source!r}\n    before  {old.text!r}\n    after   {new.text!r}")
        total, remaining, changed = total + len(pairs), remaining + counts[1], changed + different
        common_before += count_matches(frequent, before[:common])
        common_after += count_matches(frequent, translate(translator, sentences[:common], COMMON_WORDS))
    print(f"\ncommon words: {common_before} of {2 * common} translations have one, {common_after} if suppressed\n")
    return verdict(
        [
            ("news sentences", total, 100 if quick else 2_000),
            ("minus translations changed without need", -changed, 0),
            ("translations with a common word", common_before, common),
            ("minus those that still have one", -common_after, 0),
            ("minus translations with a listed word", -remaining, 0),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())

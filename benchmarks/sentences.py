"""Is a sentence lost when a line has several?

Part 1, lines: 1,000 lines of two or three test sentences each, translated by the bundled models as whole lines, as
lines that heedful splits into sentences (the default), and sentence by sentence. A sentence is omitted if none of the
content words of its reference is in the output. Claims: with the default, at most 0.1 % more sentences are omitted than
sentence by sentence, and BLEU is within 0.3 of it.

Part 2, boundaries: all sentences of Tatoeba, newstest, NTREX and FLORES with an abbreviation before a capital letter or
at their end (Moses's list of abbreviations, initials, and German ordinals), joined with one or two other sentences.
Lines that hold several sentences themselves were excluded by rule, and those listed in SEVERAL by hand. The rules were
developed on one half of the sentences (CRC-32 even); the claims are about all of them, and the other half is reported.
Claims: F1 at least 0.97 at all boundaries and at least 0.9 at abbreviations, and above those of sentencex.

    python benchmarks/sentences.py [--quick]
"""

import argparse
import random
import re
import sys
import zlib
from collections.abc import Callable

import heedful
from heedful import samples
from heedful.metrics import score
from heedful.text.sentences import split_sentences
from report import DATA, header, read_lines, verdict

TATOEBA = {
    "pt": ("tatoeba-eng-por/test.por.gz", "tatoeba-eng-por/test.eng.gz"),
    "ru": ("tatoeba-eng-rus/test.rus.gz", "tatoeba-eng-rus/test.eng.gz"),
}
CODES = {"en": "eng", "pt": "por", "ru": "rus", "de": "deu"}
CONTENT_WORD = re.compile(r"[^\W\d_]{4,}")

# ---------------------------------------------------------------------------------------------------------------- lines


def measure_lines(name: str, num_lines: int) -> list[tuple[str, float, float]]:
    translator = heedful.load(samples.model(name))
    sources, references = map(read_lines, TATOEBA[name[:2]])
    pairs = [
        pair for pair in zip(sources, references, strict=True) if all(map(is_one_sentence, pair, (name[:2], "en")))
    ]
    generator = random.Random(1)
    lines = [generator.sample(pairs, generator.choice((2, 3))) for _ in range(num_lines)]
    joined = [" ".join(source for source, _ in line) for line in lines]
    expected = [" ".join(reference for _, reference in line) for line in lines]
    single = iter(translator([source for line in lines for source, _ in line]))
    systems = {
        "whole lines": [line.text for line in translator(joined, split_sentences=False)],
        "split lines (default)": [line.text for line in translator(joined)],
        "sentence by sentence": [" ".join(next(single).text for _ in line) for line in lines],
    }
    rates, bleu = {}, {}
    for system, outputs in systems.items():
        omitted = sum(count_omissions(line, output) for line, output in zip(lines, outputs, strict=True))
        rates[system] = 100 * omitted / sum(map(len, lines))
        bleu[system] = score("bleu", outputs, expected).value
        print(f"{name:10} {system:22} omitted {rates[system]:6.2f} %  BLEU {bleu[system]:5.1f}", flush=True)
    split, alone = "split lines (default)", "sentence by sentence"
    return [
        (f"{name}: omissions, split minus single, %", -(rates[split] - rates[alone]), -0.1),
        (f"{name}: BLEU, split minus single", -abs(bleu[split] - bleu[alone]), -0.3),
    ]


def count_omissions(line: list[tuple[str, str]], output: str) -> int:
    """The sentences of a line none of whose reference's content words is in the output, although it has some."""
    words = set(CONTENT_WORD.findall(output.lower()))
    contents = [set(CONTENT_WORD.findall(reference.lower())) for _, reference in line]
    return sum(bool(content) and not content & words for content in contents)


def is_one_sentence(text: str, language: str) -> bool:
    return len(split_sentences(text, language)) == 1 and text[-1:] in ".!?"


# ----------------------------------------------------------------------------------------------------------- boundaries

END = re.compile(r"[.!?\u2026][\"'»”’)\]]*$")
CANDIDATE = re.compile(
    r"(?P<last>(?<![^\s(\[\"'«„“])[^\s(\[\"«„“]*?)(?P<mark>[.!?\u2026]+)(?P<close>[\"'»“”’)\]]*)\s+(?=\S)"
)
LAST_WORD = re.compile(r"(?:^|[\s(\[\"'«„“])([^\s(\[\"«„“]*)\.\s*$")
DOTTED = re.compile(r"(?:[^\W\d_]{1,3}\.)+[^\W\d_]{1,3}")
ORDINAL = re.compile(r"\d{1,2}|[IVX]{1,5}")
# Parts of lines that hold several sentences, found by reading lines that heedful split.
SEVERAL = (
    "século XIX. Um agente", "eu vi. É verdade", "de A até B. A imaginação", "termina com a. O plural",
    "termina com o. O plural", "неустановленных лиц. Сейчас", "млрд руб. Эта же", "млрд руб. Контракты",
    "млрд руб. В силу", "Vitamine E und C. Vor allem", "Geismar II und III. Die", "chemical's pH. You can",
    'World War I. "A Square', "vitamins E and C. But most", "It is I. Open", "4:00 a.m. I don't plan",
    "и др. Среди них", 'Mrs. Brown?" "Yes', 'Sra. Brown?" "Sim', 'Sr. Smith." "É',
    "C. Meyer. It shows", "C. Meyer. Mostra",
    "А. Линд. 18 лет", "Это не я. Это кот", "не я. Это был", "modern art. There are", "19. Jahrhundert. Ein Reise",
    "30 м. Также яхты", "561 л. Задние",
)  # fmt: skip


class Abbreviations:
    """Moses's abbreviations of a language."""

    def __init__(self, language: str) -> None:
        from sacremoses.corpus import NonbreakingPrefixes

        self.language = language
        entries = [entry.split() for entry in NonbreakingPrefixes().words(language)]
        entries = [entry for entry in entries if len(entry[0]) > 1 or entry[0].isupper()]
        self.words = {entry[0].casefold() for entry in entries if len(entry) == 1}
        self.numbered = {entry[0].casefold() for entry in entries if len(entry) > 1}

    def contains(self, word: str, following: str) -> bool:
        if word.casefold() in self.numbered:
            return following[:1].isdigit()
        if len(word) == 1:
            return word.isupper()
        is_ordinal = self.language == "de" and ORDINAL.fullmatch(word) is not None
        return word.casefold() in self.words or DOTTED.fullmatch(word) is not None or is_ordinal

    def is_before(self, text: str, place: int) -> bool:
        match = LAST_WORD.search(text[max(0, place - 40) : place])
        return match is not None and self.contains(match[1], text[place:])

    def sort_out(self, text: str) -> bool | None:
        """Whether a sentence has an abbreviation before a capital letter or at its end; None for several sentences."""
        has_abbreviation = self.is_before(text, len(text))
        for match in CANDIDATE.finditer(text):
            following = next((letter for letter in text[match.end() : match.end() + 8] if letter.isalnum()), "a")
            if match["mark"] == "." and not match["close"] and self.contains(match["last"], text[match.end() :]):
                has_abbreviation = has_abbreviation or not following.islower()
            elif not following.islower():
                return None
        return None if any(part in text for part in SEVERAL) else has_abbreviation


def measure_boundaries(languages: tuple[str, ...], max_sentences: int | None) -> list[tuple[str, float, float]]:
    from sentencex import segment

    systems: dict[str, Callable[[str, str], list[tuple[str, str]]]] = {
        "heedful": split_sentences,
        "sentencex": lambda text, language: [(part, "") for part in segment(language, text)],
        "after every mark": lambda text, _: split_after_marks(text),
    }
    # system -> half -> [everywhere, at abbreviations] -> [right, false, missed]
    counts = {system: [[[0, 0, 0], [0, 0, 0]] for _ in range(2)] for system in systems}
    for language in languages:
        abbreviations = Abbreviations(language)
        kinds = {text: abbreviations.sort_out(text) for text in read_texts(language) if END.search(text)}
        plain = [text for text, has_abbreviation in kinds.items() if has_abbreviation is False]
        generator = random.Random(1)
        for text in [text for text, has_abbreviation in kinds.items() if has_abbreviation][:max_sentences]:
            sentences = [*generator.sample(plain, generator.randint(1, 2)), text]
            generator.shuffle(sentences)
            line, half = " ".join(sentences), zlib.crc32(text.encode()) % 2
            expected = boundaries([(sentence, " ") for sentence in sentences])
            for system, split in systems.items():
                predicted = boundaries(split(line, language))
                for place in expected | predicted:
                    kind = 0 if place in expected & predicted else 1 if place in predicted else 2
                    counts[system][half][0][kind] += 1
                    counts[system][half][1][kind] += abbreviations.is_before(line, place)
        print(f"{language}: {sum(bool(kind) for kind in kinds.values())} sentences with abbreviations", flush=True)
    both = {system: [add(*(half[part] for half in halves)) for part in range(2)] for system, halves in counts.items()}
    for system, halves in counts.items():
        for part, where in enumerate(("everywhere", "at abbreviations")):
            right, false, missed = both[system][part]
            print(
                f"{system:16} {where:16} {f1(both[system][part]):.3f} ({right} right, {false} wrong, {missed} missed);"
                f" half used for development {f1(halves[0][part]):.3f}, other half {f1(halves[1][part]):.3f}"
            )
    ours, theirs = (list(map(f1, both[system])) for system in ("heedful", "sentencex"))
    return [
        ("boundary F1 everywhere", ours[0], 0.97),
        ("boundary F1 at abbreviations", ours[1], 0.9),
        ("the smaller lead over sentencex", min(ours[0] - theirs[0], ours[1] - theirs[1]), 0.0),
    ]


def boundaries(parts: list[tuple[str, str]]) -> set[int]:
    """Where sentences begin, except the first."""
    places, place = set(), 0
    for text, space in parts[:-1]:
        place += len(text) + len(space)
        places.add(place)
    return places


def split_after_marks(text: str) -> list[tuple[str, str]]:
    """The rule that heedful used for long lines before: every mark with a space after it ends a sentence."""
    parts = re.split(r"((?<=[.!?\u2026])\s+|(?<=[.!?\u2026][\"'»”’)\]])\s+)", text)
    return list(zip(parts[::2], [*parts[1::2], ""], strict=True))


def add(*rows: list[int]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


def f1(counts: list[int]) -> float:
    right, false, missed = counts
    return 2 * right / max(1, 2 * right + false + missed)


def read_texts(language: str) -> list[str]:
    code = CODES[language]
    patterns = (f"tatoeba-eng-*/*.{code}.gz", f"newstest/*.{language}.gz", f"ntrex/*.{code}*.gz")
    files = [file for pattern in patterns for file in DATA.glob(pattern)]
    files += [DATA / f"flores-bergamot/{part}.{language}.gz" for part in ("dev", "test")]
    return list(dict.fromkeys(text for file in sorted(files) for text in read_lines(str(file))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 lines of one model, boundaries of German only")
    arguments = parser.parse_args()
    header(__file__)
    try:
        claims = measure_boundaries(("de", "ru") if arguments.quick else tuple(CODES), 200 if arguments.quick else None)
    except ModuleNotFoundError as error:
        sys.exit(f"{error.name} is missing: pip install sacremoses sentencex")
    for name in ("pt-en",) if arguments.quick else samples.MODELS:
        claims += measure_lines(name, 100 if arguments.quick else 1000)
    return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())

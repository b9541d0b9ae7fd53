"""Do the flags find faults in translations, without false alarms?

Good pairs are human translations in both directions: captions (Multi30k), everyday sentences (Tatoeba), news
(newstest), news and encyclopedia text from English (NTREX, FLORES), software (Debian). Any flag about their output is a
false alarm. Faults of every mechanical kind are planted into the same pairs; a fault counts as found if a flag of its
kind is raised. The thresholds of `heedful.sentinel` were selected on every other line of held-out text; the claims are
measured on the other lines, and both results are shown. No model is involved, so flags about probabilities are not
tested. The flag `language` is tested with the sources of all corpora: as inputs of models of their own language, in and
out of domain, and of models of other languages with the same script.

    python benchmarks/sentinel.py [--quick]

HEEDFUL_DATA is the directory of the corpora (default: ../shared/data next to the repository).
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from heedful.sentinel import Flag, frequent_words, input_flags, output_flags
from heedful.sentinel.checks import find_addresses
from heedful.sentinel.numbers import NUMBER, parse_numbers
from heedful.text.tokenizer import Tokenizer, train
from report import header, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.corpus_faults import DATA, lines

Corpus = tuple[str, str, list[str], list[str]]
NEWS = "newstest/newstest{}.en-{}.*"
CORPORA: dict[str, dict[str, Corpus]] = {  # family -> name -> sides, files to train on, for the exam (none: a half)
    "captions": {
        "multi30k de": ("en", "de", ["multi30k/train.*"], ["multi30k/test_2016_flickr.*", "multi30k/val.*"]),
        "multi30k fr": ("en", "fr", ["multi30k/train.*"], ["multi30k/test_2016_flickr.*", "multi30k/val.*"]),
    },
    "everyday": {
        "tatoeba pt": ("eng", "por", ["tatoeba-eng-por/train.*"], ["tatoeba-eng-por/test.*"]),
        "tatoeba ru": ("eng", "rus", ["tatoeba-eng-rus/train.*"], ["tatoeba-eng-rus/test.*"]),
    },
    "news": {
        f"newstest {code}": ("en", code, [NEWS.format(year, code) for year in old], [NEWS.format(new, code)])
        for code, old, new in (("de", (2015, 2016), 2017), ("ru", (2015, 2016), 2017), ("fr", (2013, 2014), 2015))
    },
    "from English": {
        "ntrex es": ("src.eng", "ref.spa", ["ntrex/newstest2019-*.txt"], []),
        "ntrex cs": ("src.eng", "ref.ces", ["ntrex/newstest2019-*.txt"], []),
        **{
            f"flores {code}": ("en", code, ["flores-bergamot/dev.*"], ["flores-bergamot/test.*"])
            for code in ("de", "fr", "pt", "ru")
        },
    },
    "software": {
        f"debian {code}": ("en", code, [f"debian-parallel/en-{code}.*"], []) for code in ("de", "pt_BR", "ru")
    },
}  # fmt: skip
TAUGHT = 5_000  # pairs of each corpus that its vocabulary and statistics come from

# ------------------------------------------------------------------------------------------------------------- courses


class Pair(NamedTuple):
    source: str
    output: str
    finished: bool = True


@dataclass(frozen=True)
class Course:
    """One corpus in one direction: its training statistics and held-out pairs."""

    name: str
    family: str
    tokenizer: Tokenizer
    statistics: dict[str, Any]
    pairs: tuple[Pair, ...]

    def half(self, first: int) -> "Course":
        """Every other pair."""
        return replace(self, pairs=self.pairs[first::2])

    def flags(self, pairs: Sequence[Pair]) -> list[tuple[Flag, ...]]:
        """The flags of some pairs."""
        lengths = [
            map(len, self.tokenizer.encode(side)) for side in zip(*((p.source, p.output) for p in pairs), strict=True)
        ]
        return [
            output_flags(*pair[:2], tokens=b, source_tokens=a, finished=pair.finished, statistics=self.statistics)
            for pair, a, b in zip(pairs, *lengths, strict=True)
        ]


def read(patterns: Iterable[str], source: str, target: str) -> list[tuple[str, str]]:
    """The pairs of some files."""
    sides = [
        [line for name in patterns for line in lines(name.replace("*", code) + ".gz")] for code in (source, target)
    ]
    return list(zip(*sides, strict=True))


def courses(kind: str) -> list[Course]:
    """Every corpus in both directions, with one vocabulary per corpus."""
    made = []
    for family, corpora in CORPORA.items():
        for name, (source, target, taught, held) in corpora.items():
            old, new = read(taught, source, target), read(held, source, target)
            if not new:
                new, old = old[: len(old) // 2], old[len(old) // 2 :]
            old = Random(0).sample(old, min(TAUGHT, len(old)))
            tokenizer = train(kind, [text for pair in old for text in pair], 4_000)
            for way, direction in ((1, "en-"), (-1, "-en")):
                pairs = tuple(Pair(pair[::way][0], pair[::way][1]) for pair in new if all(pair))
                known = statistics(tokenizer, [pair[::way] for pair in old])
                made.append(Course(f"{name} {direction}", family, tokenizer, known, pairs))
    return made


def statistics(tokenizer: Tokenizer, pairs: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The training statistics that output flags use and that need no model."""
    from heedful.training.statistics import SIDES, count_scripts

    texts = dict(zip(SIDES, zip(*pairs, strict=True), strict=True))
    tokens = [sum(map(len, tokenizer.encode(texts[side]))) for side in SIDES]
    return {
        "ratio": tokens[1] / tokens[0],
        "scripts": {side: count_scripts(texts[side]) for side in SIDES},
        "words": {"source": frequent_words(texts["source"])},
    }


# -------------------------------------------------------------------------------------------------------------- faults

ADDRESSES = (
    "https://www.example.org/a/path?page=2#part",
    "http://example.com",
    "ftp://ftp.example.net/pub/file-1.2.tar.gz",
    "www.example.org/~user/index.html",
    "info@example.org",
    "first.last+news@mail.example.co.uk",
    "@example_user",
)
FOREIGN = {
    "LATIN": "A sentence in the letters of Rome, which nobody asked for.",
    "CYRILLIC": "Предложение на русском языке, о котором никто не просил.",
    "GREEK": "Μια πρόταση στα ελληνικά που κανείς δεν ζήτησε.",
    "ARABIC": "جملة بالعربية لم يطلبها أحد من المترجم.",
    "HEBREW": "משפט בעברית שאף אחד לא ביקש.",
    "DEVANAGARI": "हिन्दी में एक वाक्य जो किसी ने नहीं माँगा।",
    "HANGUL": "아무도 부탁하지 않은 한국어 문장입니다.",
    "CJK": "没有人要求的一个中文句子。",
    "HIRAGANA": "だれも頼んでいない日本語の文です。",
}

Spoil = Callable[[Random, Pair, Course], Pair | None]  # None: this pair cannot carry the fault


class Fault(NamedTuple):
    """How to damage a pair, and the flags that count as found."""

    spoil: Spoil
    flags: tuple[str, ...]


def numbered(change: Callable[[Random, str], str]) -> Fault:
    """Change a number in the translation that occurs once on each side."""

    def spoil(draw: Random, pair: Pair, _: Course) -> Pair | None:
        found = list(NUMBER.finditer(pair.output))
        values = [[*parse_numbers(match[0])] for match in found]
        wanted = [[*parse_numbers(match[0])] for match in NUMBER.finditer(pair.source)]
        once = [m for m, value in zip(found, values, strict=True) if values.count(value) == wanted.count(value) == 1]
        if not once or find_addresses(pair.source):
            return None
        match = draw.choice(once)
        other = change(draw, match[0])
        if parse_numbers(other).keys() == parse_numbers(match[0]).keys():
            return None
        return pair._replace(output=pair.output[: match.start()] + other + pair.output[match.end() :])

    return Fault(spoil, ("numbers",))


def digit_changed(draw: Random, number: str) -> str:
    place = draw.choice([place for place, letter in enumerate(number) if letter.isdigit()])
    other = draw.choice([digit for digit in "0123456789" if digit != number[place]])
    return number[:place] + other + number[place + 1 :]


def digits_swapped(draw: Random, number: str) -> str:
    places = [place for place in range(len(number) - 1) if number[place : place + 2].isdigit()]
    if not places:
        return number
    place = draw.choice(places)
    return number[:place] + number[place + 1] + number[place] + number[place + 2 :]


def digit_lost(draw: Random, number: str) -> str:
    place = draw.choice([place for place, letter in enumerate(number) if letter.isdigit()])
    return number[:place] + number[place + 1 :] if sum(map(str.isdigit, number)) > 1 else number


def mark_lost(_: Random, number: str) -> str:
    return "".join(filter(str.isdigit, number))


def addressed(change: Callable[[Random, str], str]) -> Fault:
    """Append an address to both sides, changed in the translation."""

    def spoil(draw: Random, pair: Pair, _: Course) -> Pair:
        address = draw.choice(ADDRESSES)
        return Pair(f"{pair.source} ({address})", f"{pair.output} {change(draw, address)}".rstrip())

    return Fault(spoil, ("urls",))


def decorated(parts: Sequence[str], flag: str, change: Callable[[Random, str], str]) -> Fault:
    """Put a part that must be kept into both sides, changed in the translation."""

    def spoil(draw: Random, pair: Pair, _: Course) -> Pair:
        part = draw.choice(parts)
        return Pair(f"{part} {pair.source}", f"{change(draw, part)} {pair.output}".strip())

    return Fault(spoil, (flag,))


def inner_letter_changed(draw: Random, part: str) -> str:
    places = [place for place, letter in enumerate(part) if letter.isalnum()] or [len(part) - 1]
    place = draw.choice(places)
    return part[:place] + draw.choice([letter for letter in "kqz" if letter != part[place]]) + part[place + 1 :]


def sentence_omitted(draw: Random, pair: Pair, course: Course) -> Pair | None:
    """Put another pair beside this one, and leave out its translation."""
    other = draw.choice(course.pairs)
    texts = (pair.source, pair.output, other.source, other.output)
    if not all(text.endswith((".", "!", "?")) and not text.endswith("...") for text in texts):
        return None
    return Pair(f"{pair.source} {other.source}", draw.choice([pair.output, other.output]))


def letter_changed(draw: Random, address: str) -> str:
    place = draw.choice([place for place in range(len(address) // 2, len(address)) if address[place].isalnum()])
    other = draw.choice([letter for letter in "abcxyz0189" if letter != address[place]])
    return address[:place] + other + address[place + 1 :]


def copied(draw: Random, pair: Pair, but: int) -> Pair | None:
    """Copy the source, or most of it, where humans translated most words."""
    words, other = pair.source.split(), pair.output.split()
    if len(words) < (12 if but else 4) or len(set(words) & set(other)) > len(words) / 2:
        return None
    for _ in range(but):
        words[draw.randrange(len(words))] = draw.choice(other)
    return pair._replace(output=" ".join(words))


def repeated(least: int, most: int, times: tuple[int, int]) -> Spoil:
    """Repeat some words some times."""

    def spoil(draw: Random, pair: Pair, _: Course) -> Pair | None:
        words = pair.output.split()
        size = draw.randint(least, most)
        if len(words) < size:
            return None
        place = draw.randrange(len(words) - size + 1)
        said = words[place : place + size] * draw.randint(*times)
        return pair._replace(output=" ".join([*words[:place], *said, *words[place + size :]]))

    return spoil


def stammered(draw: Random, pair: Pair, _: Course) -> Pair | None:
    """Repeat the end of a word."""
    words = pair.output.split()
    places = [place for place, word in enumerate(words) if len(word) > 3 and word.isalpha()]
    if not places:
        return None
    place, size = draw.choice(places), draw.randint(1, 3)
    words[place] += words[place][-size:] * draw.randint(8, 20)
    return pair._replace(output=" ".join(words))


def cut(_: Random, pair: Pair, __: Course) -> Pair | None:
    words = pair.output.split()
    return pair._replace(output=" ".join(words[: len(words) // 3])) if len(words) >= 6 else None


def babbled(draw: Random, pair: Pair, course: Course) -> Pair:
    """Append other sentences up to three times the length."""
    output = pair.output
    while len(output) < 3 * len(pair.output):
        output += " " + draw.choice(course.pairs).output
    return pair._replace(output=output)


def in_other_script(draw: Random, pair: Pair, course: Course) -> Pair:
    """Another sentence, in a script other than the target's."""
    own = course.statistics["scripts"]["target"]
    return pair._replace(output=FOREIGN[draw.choice([script for script in FOREIGN if own.get(script, 0) < 0.05])])


def unfinished(_: Random, pair: Pair, __: Course) -> Pair:
    words = pair.output.split()
    return Pair(pair.source, " ".join(words[: -(-2 * len(words) // 3)]), finished=False)


LONG = ("looping", "length")
PLACEHOLDERS = ("{name}", "{0}", "{}", "{user.id:>8}", "{{name}}", "%s", "%d", "%(count)d", "%1$s", "$name", "${name}")
MARKUP = ("<b>", "</b>", "<br/>", '<a href="x.html">', "&nbsp;", "&#39;", "[](page.html)", "![](picture.png)")
FAULTS = {
    "number lost": numbered(lambda _draw, _number: ""),
    "digit changed": numbered(digit_changed),
    "digits swapped": numbered(digits_swapped),
    "digit lost": numbered(digit_lost),
    "decimal mark lost": numbered(mark_lost),
    "address lost": addressed(lambda _draw, _address: ""),
    "address changed": addressed(letter_changed),
    "copied": Fault(lambda draw, pair, _course: copied(draw, pair, but=0), ("copied", "script")),
    "copied but for a word": Fault(lambda draw, pair, _course: copied(draw, pair, but=1), ("copied", "script")),
    "empty": Fault(lambda _draw, pair, _course: pair._replace(output=""), ("empty",)),
    "blank": Fault(lambda _draw, pair, _course: pair._replace(output=" \u00a0"), ("empty",)),
    "word repeated": Fault(repeated(1, 1, (5, 12)), ("looping",)),
    "phrase repeated": Fault(repeated(2, 5, (3, 8)), ("looping",)),
    "sentence repeated": Fault(lambda _draw, pair, _course: pair._replace(output=" ".join([pair.output] * 3)), LONG),
    "characters repeated": Fault(stammered, ("looping",)),
    "cut to a third": Fault(cut, ("length",)),
    "three times as long": Fault(babbled, ("length",)),
    "other script": Fault(in_other_script, ("script",)),
    "unfinished": Fault(unfinished, ("unfinished",)),
    "placeholder lost": decorated(PLACEHOLDERS, "placeholders", lambda _draw, _part: ""),
    "placeholder changed": decorated(PLACEHOLDERS, "placeholders", inner_letter_changed),
    "markup lost": decorated(MARKUP, "markup", lambda _draw, _part: ""),
    "markup changed": decorated(MARKUP, "markup", inner_letter_changed),
    "sentence omitted": Fault(sentence_omitted, ("omitted", "length")),
}  # fmt: skip


def plant_faults(fault: Fault, courses: Sequence[Course], each: int, seed: int) -> list[tuple[Course, Pair]]:
    """`each` damaged pairs per kind, drawn from all courses without repetition."""
    draw, drawn = Random(seed), set[Pair]()
    spoiled: list[tuple[Course, Pair]] = []
    for _ in range(1_000 * each):
        course = draw.choice(courses)
        pair = draw.choice(course.pairs)
        other = None if pair in drawn else fault.spoil(draw, pair, course)
        drawn.add(pair)
        if other is not None:
            spoiled.append((course, other))
        if len(spoiled) == each:
            break
    return spoiled


# ---------------------------------------------------------------------------------------------------------------- exam


def recall(fault: Fault, courses: Sequence[Course], each: int, seed: int) -> tuple[int, int, list[Pair]]:
    """The numbers of planted and found faults, and the missed ones."""
    spoiled = plant_faults(fault, courses, each, seed)
    missed = [
        pair
        for course, pair in spoiled
        if not {flag.name for flag in course.flags([pair])[0]} & set(fault.flags)
    ]  # fmt: skip
    return len(spoiled), len(spoiled) - len(missed), missed


def sample_courses(courses: Sequence[Course], good: int) -> list[Course]:
    """Equally many pairs of every family, and of every course in a family."""
    families = Counter(course.family for course in courses)
    shares = [good // len(families) // families[course.family] for course in courses]
    return [
        replace(course, pairs=tuple(Random(seed).sample(course.pairs, share)))
        for seed, (course, share) in enumerate(zip(courses, shares, strict=True))
    ]


def answered(course: Course) -> Iterable[tuple[str, list[Pair]]]:
    """Real systems and their outputs on FLORES, if HEEDFUL_DATA has them."""
    family, code, direction = course.name.split()
    way, target = (f"en-{code}", code) if direction == "en-" else (f"{code}-en", "en")
    for system in ("bergamot-tiny", "bergamot-base-memory"):
        name = f"flores-bergamot/test.{way}.{system}.{target}.gz"
        if family == "flores" and (DATA / name).exists():
            yield (
                f"{system} {way}",
                [Pair(pair.source, said) for pair, said in zip(course.pairs, lines(name), strict=True)],
            )


def counted(flags: Sequence[tuple[Flag, ...]]) -> tuple[int, str]:
    """The number of pairs with a flag, and the count of each flag."""
    kinds = Counter(flag.name for some in flags for flag in some)
    return sum(map(bool, flags)), ", ".join(f"{kind} {times}" for kind, times in kinds.items())


def source_language(course: Course) -> str:
    _, code, direction = course.name.split()
    return "en" if direction == "en-" else code.partition("_")[0]


def examine_languages(courses: Sequence[Course], each: int) -> tuple[float, float]:
    """The shares of texts in other languages that are found and of texts in the same language that are flagged; prints
    both for every course. Texts have four words or more.
    """
    texts = {
        course.name: Random(0).sample(sources, min(each, len(sources)))
        for course in courses
        if (sources := [pair.source for pair in course.pairs if len(pair.source.split()) >= 4])
    }
    languages = {course.name: source_language(course) for course in courses}
    print(f"\n{'flag `language`, %':22} own corpus  own language, other corpora  other languages of the script")
    totals = {"alarms": [0, 0], "other": [0, 0]}
    examples: list[str] = []
    for course in courses:
        shares: dict[str, list[int]] = {}
        for name, sources in texts.items():
            other = languages[name]
            if (other == "ru") != (languages[course.name] == "ru"):
                continue
            kind = "own" if name == course.name else "same" if other == languages[course.name] else other
            flagged = [
                text for text in sources
                if any(flag.name == "language" for flag in input_flags(text, (), course.statistics))
            ]  # fmt: skip
            total = totals["alarms" if kind in ("own", "same") else "other"]
            for counts in (total, shares.setdefault(kind, [0, 0])):
                counts[0] += len(flagged)
                counts[1] += len(sources)
            examples += [f"{course.name}: {clipped(text)}" for text in flagged[:2] if kind in ("own", "same")]
        cells = {kind: f"{100 * count / total:.1f}" for kind, (count, total) in shares.items()}
        own, same = (cells.pop(kind, "-") for kind in ("own", "same"))
        print(f"{course.name:22} {own:>10}  {same:>27}  {', '.join(f'{kind} {cells[kind]}' for kind in sorted(cells))}")
    found, alarms = (counts[0] / counts[1] for counts in (totals["other"], totals["alarms"]))
    print(f"all: found {found:.1%} of {totals['other'][1]:,}, false alarms {alarms:.2%} of {totals['alarms'][1]:,}")
    print("\nfalse alarms of `language`, at most two of each kind", *examples, sep="\n")
    return found, alarms


def clipped(text: str, most: int = 110) -> str:
    return text if len(text) <= most else text[:most] + "…"


def microseconds(courses: Sequence[Course]) -> float:
    """CPU time per pair, input and output; the best of twenty rounds, because of other load."""
    work = [(course.statistics, pair) for course in courses for pair in course.pairs[:100]]
    rounds = []
    for _ in range(20):
        begin = time.process_time()
        for known, pair in work:
            input_flags(pair.source, (), known)
            output_flags(*pair[:2], tokens=9, source_tokens=9, statistics=known)
        rounds.append((time.process_time() - begin) / len(work) * 1e6)
    return min(rounds)


def examine_faults(chosen: Sequence[Course], examined: Sequence[Course], each: int) -> tuple[int, int]:
    """The numbers of planted and found faults; prints a table of kinds and some misses."""
    print(f"{'fault':24} planted  found  recall   (where thresholds were chosen)")
    total, before, examples = Counter[str](), Counter[str](), list[str]()
    for seed, (name, fault) in enumerate(FAULTS.items()):
        count, hits, missed = recall(fault, examined, each, seed)
        others, others_found, _ = recall(fault, chosen, each, 100 + seed)
        total.update(planted=count, found=hits)
        before.update(planted=others, found=others_found)
        examples += [f"{name}: {clipped(pair.source)!r} -> {clipped(pair.output)!r}" for pair in missed[:3]]
        print(f"{name:24} {count:7} {hits:6} {hits / count:7.1%}   ({others_found / others:.1%})", flush=True)
    share, share_before = (some["found"] / some["planted"] for some in (total, before))
    print(f"{'all':24} {total['planted']:7} {total['found']:6} {share:7.1%}   ({share_before:.1%})")
    print("\nmissed, at most three of each kind", *examples, sep="\n")
    return total["planted"], total["found"]


def examine_good(chosen: Sequence[Course], examined: Sequence[Course], good: int) -> tuple[int, int]:
    """The numbers of good and flagged pairs; prints a table of corpora and every false alarm."""
    print(f"\n{'good translations':20} pairs  false alarms  (where thresholds were chosen)")
    total = alarms = alarms_before = 0
    examples: list[str] = []
    for course, other in zip(sample_courses(examined, good), sample_courses(chosen, good), strict=True):
        flags, size = course.flags(course.pairs), len(course.pairs)
        (count, listed), (before, _) = counted(flags), counted(other.flags(other.pairs))
        total, alarms, alarms_before = total + size, alarms + count, alarms_before + before
        print(f"{course.name:20} {size:5} {count:4} {count / size:6.2%}   ({before / size:.2%})  {listed}".rstrip())
        examples += [
            f"{flag.name}: {flag.detail} {clipped(pair.source)!r} -> {clipped(pair.output)!r}"
            for pair, some in zip(course.pairs, flags, strict=True)
            for flag in some
        ]
    print(f"{'all':20} {total:5} {alarms:4} {alarms / total:6.2%}   ({alarms_before / total:.2%})")
    print("\nevery false alarm", *examples, sep="\n")
    return total, alarms


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="words for tokens, fewer faults and pairs")
    quick = options.parse_args().quick
    header(__file__)
    each, good = (20, 1_500) if quick else (110, 5_040)
    every = courses("words" if quick else "bpe")
    chosen, examined = ([course.half(first) for course in every] for first in range(2))
    faults, found = examine_faults(chosen, examined, each)
    pairs, alarms = examine_good(chosen, examined, good)
    other_languages, language_alarms = examine_languages(examined, 40 if quick else 200)

    print(f"\n{'real systems':30} pairs  alarms")
    for course in every:
        for system, said in answered(course):
            count, listed = counted(course.flags(said))
            print(f"{system:30} {len(said):5} {count:4} {count / len(said):6.2%}  {listed}")

    cost = {family: microseconds([course for course in examined if course.family == family]) for family in CORPORA}
    print(f"\nmicroseconds per pair: {', '.join(f'{family} {time:.0f}' for family, time in cost.items())}\n")
    return verdict(
        [
            ("faults planted", faults, 350 if quick else 2_000),
            ("mechanical faults found", found / faults, 0.99),
            ("texts in other languages found", other_languages, 0.8),
            ("minus false alarms of `language`, %", -100 * language_alarms, -0.5),
            ("good pairs", pairs, 1_400 if quick else 5_000),
            ("minus false alarms, % of good pairs", -100 * alarms / pairs, -0.5),
            (
                "minus microseconds per caption or everyday sentence",
                -max(cost["captions"], cost["everyday"]),
                -150 if quick else -50,
            ),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())

"""Faults planted into real text, and what the doctor should call them: for its exam and for its tests.

    planted = plant(material("multi30k"), each=20, seed=1)      # pairs, and which lines carry which fault
    settings = written(folder, planted.pairs, ...)              # ready for heedful.corpus.check.check

HEEDFUL_DATA is the folder of the real text (default: ../shared/data beside the repository).
"""

import gzip
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random

from heedful import config
from heedful.text.small_words import SMALL_WORDS

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
CORPORA = {  # name -> folder, source, target, validation, test
    "multi30k": ("multi30k", "en", "de", "val", "test_2016_flickr"),
    "tatoeba por": ("tatoeba-eng-por", "eng", "por", "valid", "test"),
    "tatoeba rus": ("tatoeba-eng-rus", "eng", "rus", "valid", "test"),
}
SAFE = 1000  # first pairs that stay as they are, for others to be copies of
Pair = tuple[str, str]


@cache
def lines(name: str) -> tuple[str, ...]:
    """The lines of a packed file of HEEDFUL_DATA."""
    return tuple(gzip.decompress((DATA / name).read_bytes()).decode().split("\n")[:-1])


@dataclass(frozen=True)
class Material:
    """A clean corpus, and what else one needs to spoil it."""

    source: str
    target: str
    pairs: tuple[Pair, ...]
    validation: tuple[Pair, ...]
    test: tuple[Pair, ...]
    third: tuple[str, ...]  # 1,000 lines in French, 1,000 in Czech: neither
    foreign: tuple[str, ...]  # text in a script that is neither's


def material(name: str, most: int | None = None) -> Material:
    """A corpus of CORPORA; of each part the first `most` pairs."""
    folder, source, target, *held = CORPORA[name]
    pairs, validation, test = (
        tuple(zip(lines(f"{folder}/{split}.{source}.gz"), lines(f"{folder}/{split}.{target}.gz"), strict=True))[:most]
        for split in ("train", *held)
    )
    third = lines("multi30k/test_2016_flickr.fr.gz") + lines("multi30k/test_2016_flickr.cs.gz")
    foreign = lines("small-parallel-enja/train.ja.gz")
    return Material(source, target, pairs, validation, test, third, foreign)


def missing() -> list[str]:
    """The folders of HEEDFUL_DATA that are not there."""
    folders = [folder for folder, *_ in CORPORA.values()] + ["small-parallel-enja"]
    return [folder for folder in folders if not (DATA / folder).is_dir()]


def written(
    folder: Path, parts: Mapping[str, tuple[Sequence[str], Sequence[str]]], source: str, target: str
) -> config.Settings:
    """Write split -> (source lines, target lines) and say where they are; lone surrogates stand for bare bytes."""
    data = {}
    for split, texts in parts.items():
        paths = [folder / f"{split}.{code}" for code in (source, target)]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes("".join(f"{line}\n" for line in text).encode(errors="surrogateescape"))
        data[split] = [{"files": [str(path) for path in paths]}]
    tree = {"source": source, "target": target, "data": data, "tokenizer": {"kind": "words"}}
    return config.parse_settings(tree)


def unzipped(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Pairs -> source lines, target lines."""
    return [source for source, _ in pairs], [target for _, target in pairs]


ENGLISH, GERMAN = (SMALL_WORDS[code].split()[:25] for code in ("en", "de"))
NOUNS = [f"{one}{two}" for one in ("ba", "ke", "lo", "mi", "nu", "sta", "tri") for two in ("rad", "fen", "ling", "mos")]


def sentences(rows: int, seed: int = 1) -> list[Pair]:
    """Sentences of a made-up world, word by word in English and German: a capital, some words, a full stop."""
    draw, pairs = Random(seed), []
    for _ in range(rows):
        words = [
            (ENGLISH[place], GERMAN[place]) if draw.random() < 0.5 else (f"{noun}s", f"{noun}en".capitalize())
            for place, noun in ((draw.randrange(25), draw.choice(NOUNS)) for _ in range(draw.randrange(5, 14)))
        ]
        source, target = (" ".join(side).capitalize() + "." for side in zip(*words, strict=True))
        pairs.append((source, target))
    return pairs


# ------------------------------------------------------------------------------------------------- faults of a line


@dataclass(frozen=True)
class Fault:
    """How a pair is spoiled, and what the doctor should call it.

    spoil  (draw, pair, material) -> the spoiled pair, or None where this pair cannot carry the fault
    kinds  the findings that name it; any of them will do
    side   whose file the finding must name; None: both sides are to blame
    """

    spoil: Callable[[Random, Pair, Material], Pair | None]
    kinds: tuple[str, ...]
    side: str | None = None
    statistical: bool = False


def of_side(
    side: str, change: Callable[[Random, str, Material], str | None], *kinds: str, statistical: bool = False
) -> Fault:
    """A fault of one side alone."""

    def spoil(draw: Random, pair: Pair, given: Material) -> Pair | None:
        other = change(draw, pair[side == "target"], given)
        if other is None:
            return None
        return (pair[0], other) if side == "target" else (other, pair[1])

    return Fault(spoil, kinds, side, statistical)


def inserted(characters: str) -> Callable[[Random, str, Material], str | None]:
    """One of some characters inside the line, at neither end."""

    def change(draw: Random, text: str, _: Material) -> str | None:
        place = draw.randrange(1, len(text)) if len(text) > 2 else 0
        return text[:place] + draw.choice(characters) + text[place:] if place else None

    return change


def changed(function: Callable[[str], str]) -> Callable[[Random, str, Material], str | None]:
    """What a function makes of a line, where that is another line."""

    def change(_: Random, text: str, __: Material) -> str | None:
        other = function(text)
        return None if other == text else other

    return change


def read_as(encoding: str) -> Callable[[str], str]:
    """UTF-8 read as something else, which turns every character but ASCII into two or three others."""

    def garble(text: str) -> str:
        several = [bytes([byte]) for byte in text.encode()]
        return "".join(one.decode(encoding, "ignore") or one.decode("latin-1") for one in several)

    return garble


def shouted(pair: Pair) -> Pair:
    """The same words, in other case and with other spaces."""
    source, target = ("  ".join(text.swapcase().split()) + " " for text in pair)
    return source, target


def as_bpe(text: str) -> str:
    """Every longer word cut in two, the subword-nmt way."""
    return " ".join(f"{word[:3]}@@ {word[3:]}" if len(word) > 4 else word for word in text.split())


def as_pieces(text: str) -> str:
    """Every word marked, the SentencePiece way."""
    return " ".join(f"\u2581{word[:4]} {word[4:]}".strip() for word in text.split())


def tokenized(text: str) -> str:
    """Punctuation set apart, as Moses does."""
    return "".join(f" {letter}" if letter in ".,?!" else letter for letter in text)


def several(pairs: Sequence[Pair], draw: Random, number: int, side: int) -> str:
    """Many sentences on one line."""
    return " ".join(pair[side] for pair in draw.choices(pairs, k=number))


def half_of(pair: Pair) -> Pair | None:
    """The target cut after half of its words; None if there are fewer than six."""
    words = pair[1].split()
    return (pair[0], " ".join(words[: len(words) // 2])) if len(words) >= 6 else None


def with_other_number(draw: Random, pair: Pair) -> Pair:
    number = draw.randrange(21, 900)
    return f"{pair[0]} {number}", f"{pair[1]} {number + draw.randrange(1, 10)}"


def long_enough(pair: Pair) -> bool:
    """Four words a side: of a shorter line nobody can say which language it is in."""
    return min(len(text.split()) for text in pair) >= 4


def elsewhere(side: int) -> Callable[[Random, str, Material], str | None]:
    """A line of another pair, in the language of a side."""

    def change(draw: Random, _: str, given: Material) -> str | None:
        pair = draw.choice(given.pairs)
        return pair[side] if long_enough(pair) else None

    return change


BLANKS = ("", " ", "   ")
CONTROLS = "\x01\x07\x0b\x0c\r\x1b\x1c\x7f\x85\x9d\u2028\u2029"
UNSEEN = "\xad\u200b\u200e\u200f\u202a\u202e\u2060\ufeff\U000e0041"
LINE_FAULTS: dict[str, Fault] = {
    "empty source": of_side("source", lambda draw, text, _: draw.choice(BLANKS), "empty"),
    "empty target": of_side("target", lambda draw, text, _: draw.choice(BLANKS), "empty"),
    "copy": Fault(lambda draw, pair, _: (pair[0], pair[0]), ("copy",)),
    "copy in capitals": Fault(lambda draw, pair, _: (pair[0], pair[0].upper()), ("copy",)),
    "cut short": Fault(lambda draw, pair, _: (pair[0], pair[1][:4]) if len(pair[0]) > 60 else None, ("ratio",)),
    "too much": Fault(
        lambda draw, pair, given: (pair[0], several(given.pairs, draw, 15, 1)) if len(pair[0]) < 60 else None,
        ("ratio",),
    ),
    "long source": of_side("source", lambda draw, text, given: several(given.pairs, draw, 150, 0), "long"),
    "long target": of_side("target", lambda draw, text, given: several(given.pairs, draw, 150, 1), "long"),
    "foreign source": of_side("source", lambda draw, text, given: draw.choice(given.foreign), "wrong_script"),
    "foreign target": of_side("target", lambda draw, text, given: draw.choice(given.foreign), "wrong_script"),
    "read as cp1252": of_side("target", changed(read_as("cp1252")), "mojibake"),
    "read as latin-1": of_side("target", changed(read_as("latin-1")), "mojibake"),
    "read as cp1251": of_side("target", changed(read_as("cp1251")), "mojibake"),
    "replacement": of_side("source", inserted("\ufffd"), "mojibake"),
    "control source": of_side("source", inserted(CONTROLS), "control"),
    "control target": of_side("target", inserted(CONTROLS), "control"),
    "invisible source": of_side("source", inserted(UNSEEN), "invisible"),
    "invisible target": of_side("target", inserted(UNSEEN), "invisible"),
    "BPE": of_side("target", changed(as_bpe), "subwords"),
    "SentencePiece": of_side("source", changed(as_pieces), "subwords"),
    "HTML": of_side("target", lambda draw, text, _: draw.choice((f"<b>{text}</b>", f"{text}&nbsp;")), "markup"),
    "not UTF-8": of_side("target", inserted("\udcff\udcc3\udc80\udcfe"), "rejected"),
    "NUL": of_side("source", inserted("\0"), "rejected"),
    "duplicate": Fault(lambda draw, pair, given: draw.choice(given.pairs[:SAFE]), ("duplicate",)),
    "duplicate, shouted": Fault(lambda draw, pair, given: shouted(draw.choice(given.pairs[:SAFE])), ("duplicate",)),
    "leak": Fault(lambda draw, pair, given: draw.choice(given.validation + given.test), ("overlap",)),
    "leak, shouted": Fault(lambda draw, pair, given: shouted(draw.choice(given.test)), ("overlap",)),
    "leak of a side": Fault(
        lambda draw, pair, given: (shouted(draw.choice(given.test))[0], pair[1]), ("overlap_side", "overlap")
    ),
    "another number": Fault(lambda draw, pair, _: with_other_number(draw, pair), ("numbers",)),
    "cut in half": Fault(lambda draw, pair, _: half_of(pair), ("truncated", "ratio"), statistical=True),
    "swapped": Fault(
        lambda draw, pair, _: (pair[1], pair[0]) if long_enough(pair) else None, ("swapped",), statistical=True
    ),
    "untranslated target": of_side("target", elsewhere(0), "untranslated", "wrong_script", statistical=True),
    "untranslated source": of_side("source", elsewhere(1), "untranslated", "wrong_script", statistical=True),
    "third language": of_side(
        "target",
        lambda draw, text, given: draw.choice(given.third),
        *("wrong_language", "untranslated", "wrong_script"),
        statistical=True,
    ),
}
LEAKS = ("leak", "leak, shouted", "leak of a side")


@dataclass(frozen=True)
class Planted:
    """Pairs, and the lines (from 1) that carry each fault of LINE_FAULTS."""

    pairs: tuple[Pair, ...]
    where: Mapping[str, tuple[int, ...]]


def plant(given: Material, each: int, seed: int, names: Sequence[str] = tuple(LINE_FAULTS)) -> Planted:
    """Spoil `each` pairs in every way, no pair twice, none of the first SAFE."""
    draw = Random(seed)
    pairs, free = list(given.pairs), list(range(SAFE, len(given.pairs)))
    draw.shuffle(free)
    where: dict[str, list[int]] = {name: [] for name in names}
    for name, places in where.items():
        while len(places) < each:
            row = free.pop()
            spoiled = LINE_FAULTS[name].spoil(draw, pairs[row], given)
            if spoiled is not None:
                pairs[row] = spoiled
                places.append(row + 1)
    return Planted(tuple(pairs), {name: tuple(places) for name, places in where.items()})


# ------------------------------------------------------------------------------------------------- faults of a file


@dataclass(frozen=True)
class Stretch:
    """Target lines [begin, begin + length), from 0, go with source lines that lag by so many."""

    begin: int
    length: int
    lag: int


def shifted(target: Sequence[str], stretch: Stretch, filler: Sequence[str]) -> list[str]:
    """As many lines as before: some added where the stretch begins and lost where it ends, or the other way round."""
    begin, end, lag = stretch.begin, stretch.begin + stretch.length, stretch.lag
    inside = [*filler[:lag], *target[begin : end - lag]] if lag > 0 else [*target[begin - lag : end], *filler[:-lag]]
    return [*target[:begin], *inside, *target[end:]]


def some_stretches(draw: Random, rows: int, number: int) -> list[Stretch]:
    """Stretches of many lengths and lags, one in each of `number` parts of a file, well apart."""
    part, found = rows // number, []
    for place in range(number):
        length = draw.choice([size for size in (20, 30, 50, 100, 300, 1000, 2000) if size < part // 2])
        lag = draw.choice([lag for lag in (1, 1, 2, 3, 5, 12, 40, 150) if lag <= length // 2]) * draw.choice((-1, 1))
        begin = place * part + draw.randrange(100, part - length - 50)
        found.append(Stretch(begin, length, lag))
    return found


@dataclass(frozen=True)
class Whole:
    """A fault of a whole corpus: what becomes of its training part, and the finding."""

    spoil: Callable[[Random, Material], Material]
    kinds: tuple[str, ...]
    corpus: str = "train"


def each_target(change: Callable[[str], str]) -> Callable[[Random, Material], Material]:
    """Every line of the target changed."""
    return lambda draw, given: replace(given, pairs=tuple((one, change(two)) for one, two in given.pairs))


def shuffled(draw: Random, given: Material) -> Material:
    """One side sorted anew."""
    sources, targets = unzipped(given.pairs)
    return replace(given, pairs=tuple(zip(sources, draw.sample(targets, len(targets)), strict=True)))


def unrelated(_: Random, given: Material) -> Material:
    """The source lines of one half with the target lines of the other."""
    (sources, targets), half = unzipped(given.pairs), len(given.pairs) // 2
    return replace(given, pairs=tuple(zip(sources[:half], targets[half : 2 * half], strict=True)))


def translated_wrongly(_: Random, given: Material) -> Material:
    """A target in French, over and over."""
    french = itertools.cycle(given.third[:1000])
    return replace(given, pairs=tuple((source, next(french)) for source, _ in given.pairs))


WHOLE_FAULTS: dict[str, Whole] = {
    "files swapped": Whole(
        lambda draw, given: replace(given, pairs=tuple((two, one) for one, two in given.pairs)), ("language",)
    ),
    "file in a third language": Whole(translated_wrongly, ("language",)),
    "file never translated": Whole(
        lambda draw, given: replace(given, pairs=tuple((one, one) for one, _ in given.pairs)), ("copy",)
    ),
    "one side shuffled": Whole(shuffled, ("not_parallel",)),
    "two unrelated files": Whole(unrelated, ("not_parallel",)),
    "file after BPE": Whole(each_target(as_bpe), ("subwords",)),
    "file after SentencePiece": Whole(each_target(as_pieces), ("subwords",)),
    "file after a tokenizer": Whole(each_target(tokenized), ("tokenized",)),
    "lower-cased references": Whole(
        lambda draw, given: replace(given, test=tuple((one, two.lower()) for one, two in given.test)),
        ("lower_cased",),
        "test",
    ),
    "lower-cased training": Whole(each_target(str.lower), ("lower_cased",)),
    "file read as cp1252": Whole(each_target(read_as("cp1252")), ("mojibake",)),
    "empty files": Whole(lambda draw, given: replace(given, pairs=()), ("no_pairs",)),
}

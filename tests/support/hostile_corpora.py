r"""Corpora that break careless readers, and what must become of every pair of them; all a function of a pair's number.

    corpora = write_hostile(folder, 1_000_000)       plain and packed files, TSV, JSONL, and their heedful.toml
    judge(open_prepared(folder / "prepared"), corpora)

    corpora = write_repeated(folder, 20_000_000)     every fifth pair is a copy of an earlier one

Both sides of a pair begin with its number, so that one that lost its partner shows.
"""

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from heedful.data.store import SIDES, PreparedData, StoredCorpus

MASK = (1 << 64) - 1


def scrambled(number: int) -> int:
    """64 bits that look random (SplitMix64)."""
    number = (number + 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9 & MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & MASK
    return number ^ number >> 31


def phrases(seed: int, vowels: str) -> list[str]:
    draw = random.Random(seed)
    words = [
        "".join(draw.choice("bdfgklmnprst") + draw.choice(vowels) for _ in range(2 + at % 3)) for at in range(2000)
    ]
    return [" ".join(draw.choices(words, k=4)) for _ in range(4096)]


PHRASES = (phrases(1, "aeiou"), phrases(2, "aeiouäöüé"))


def sentences(number: int, length: int) -> tuple[str, str]:
    """The two sides of a pair: its number and so many phrases."""
    bits = scrambled(number)
    at = [bits >> shift & 4095 for shift in range(0, 12 * length, 12)]
    left, right = PHRASES
    return f"{number} {' '.join([left[one] for one in at])}", f"{number} {' '.join([right[one] for one in at])}"


@dataclass(frozen=True, slots=True)
class Made:
    """A corpus: its name, its files, the number of its first pair and how many there are."""

    name: str
    files: tuple[str, ...]
    first: int
    pairs: int

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.pairs)


def write_settings(folder: Path, corpora: list[Made]) -> None:
    train = "".join(f'[[data.train]]\nname = "{one.name}"\nfiles = {json.dumps(one.files)}\n' for one in corpora)
    tokenizer = '[tokenizer]\nkind = "bpe"\nvocab_size = 1000\ntraining_pairs = 20000\n'
    text = f'source = "en"\ntarget = "de"\n[data]\nprepared_dir = "prepared"\n{train}{tokenizer}'
    (folder / "heedful.toml").write_text(text, encoding="utf-8")


# --------------------------------------------------------------------------------------------------------- hostile

LIMIT = 1 << 16  # bytes of a side
FORMS = {  # file names, share of all pairs, most bytes of a line
    "plain": (("plain.en", "plain.de"), 0.4, LIMIT),
    "packed": (("packed.en.gz", "packed.de.gz"), 0.2, LIMIT),
    "table": (("table.tsv",), 0.2, 8 * LIMIT),
    "records": (("records.jsonl.gz",), 0.2, 8 * LIMIT),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to be hostile: what it does to one side's text (where bytes are surrogate escapes) or to the line."""

    text: Callable[[str], str] = str
    line: Callable[[bytes], bytes] = bytes
    rejected: str = ""  # why
    dropped: str = ""  # by which rule
    forms: tuple[str, ...] = tuple(FORMS)


def instead(character: str, *forms: str) -> Kind:
    """For the first space something else, which normalization turns back."""
    return Kind(lambda text: text.replace(" ", character, 1), forms=forms or tuple(FORMS))


def broken(data: bytes) -> Kind:
    """Bytes that are not UTF-8 before the first space."""
    return Kind(lambda text: text.replace(" ", data.decode(errors="surrogateescape") + " ", 1), rejected="not UTF-8")


def stretched(size: int, **fate: str) -> Kind:
    """So many bytes."""
    return Kind(lambda text: text + "x" * (size - len(text.encode())), **fate)


KINDS = {
    "lone carriage return": instead("\r"),
    "two of them": instead("\r\r"),
    "U+2028": instead("\u2028"),
    "U+2029": instead("\u2029"),
    "U+0085": instead("\u0085"),
    "vertical tab": instead("\x0b"),
    "form feed": instead("\x0c"),
    "file separator": instead("\x1c"),
    "tab": instead("\t", "plain", "packed", "records"),
    "newline in a record": instead("\n", "records"),
    "byte order mark": Kind(lambda text: "\ufeff" + text),
    "Windows' line end": Kind(line=lambda line: line + b"\r"),
    "stray byte": broken(b"\xff"),
    "half a sequence": broken(b"\xe2\x82"),
    "surrogate in UTF-8": broken(b"\xed\xa0\x80"),
    "overlong slash": broken(b"\xc0\xaf"),
    "NUL": Kind(lambda text: text + "\0", rejected="a NUL character"),
    "as long as may be": stretched(LIMIT, dropped="long"),
    "one byte longer": stretched(LIMIT + 1, rejected=f"longer than {LIMIT:,} bytes"),
    "1 MB": stretched(1_000_000, rejected="longer than"),
    "lone surrogate": Kind(
        lambda text: text + "\ud800", rejected="a lone surrogate, which is half a character", forms=("records",)
    ),
    "no tab": Kind(
        line=lambda line: line.split(b"\t")[0], rejected="no tab between source and target", forms=("table",)
    ),
    "half a record": Kind(line=lambda line: line[:20], rejected="not JSON", forms=("records",)),
    "null": Kind(line=lambda line: line.replace(b"}", b', "target": null}'), rejected="missing", forms=("records",)),
}
OF_FORM = {form: [name for name, kind in KINDS.items() if form in kind.forms] for form in FORMS}


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair as it stands in its files, and its fate: kept as `texts`, or rejected in one of the files, or dropped."""

    texts: tuple[str, str]
    lines: tuple[bytes, ...]
    kind: str = ""
    rejected: str = ""
    file: str = ""
    dropped: str = ""


def hostile(form: str, number: int) -> Pair:
    """Two neighbors of every hundred pairs are hostile, each kind in turn, on either side in turn."""
    files, _, most = FORMS[form]
    texts = sentences(number, 3)
    if number % 7 == 0:
        texts = texts[0] + " \U0001f600", texts[1]  # in JSON two surrogates that belong together
    turn, place = divmod(number, 100)
    if place not in (7, 8):
        return Pair(texts, encoded(form, texts, escaped=number % 2 == 0))
    names = OF_FORM[form]
    turns, which = divmod(2 * turn + place - 7, len(names))
    name = "one byte longer" if names[which] == "1 MB" and turns % 4 else names[which]  # a few hundred in a million
    kind, side = KINDS[name], turns // 4 % 2
    spoiled = (kind.text(texts[0]), texts[1]) if side == 0 else (texts[0], kind.text(texts[1]))
    lines = list(encoded(form, spoiled, escaped=name == "lone surrogate"))
    at = side % len(files)
    lines[at] = kind.line(lines[at])
    reason = kind.rejected
    if reason == "not UTF-8":
        cells = lines[at].split(b"\t")  # of a TSV; any other line is one cell
        reason += f" at byte {bad_byte(cells[side % len(cells)])}"
    elif reason == "longer than":
        reason += f" {most:,} bytes"
    return Pair(texts, tuple(lines), name, reason, files[at], kind.dropped)


def bad_byte(data: bytes) -> int:
    """Where a text stops being UTF-8, from 1."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.start + 1
    raise ValueError("it is UTF-8")


def encoded(form: str, texts: tuple[str, str], *, escaped: bool) -> tuple[bytes, ...]:
    """The line of each file."""
    if form == "records":
        text = json.dumps({"source": texts[0], "target": texts[1]}, ensure_ascii=escaped)
        return (text.encode(errors="surrogateescape"),)
    sides = tuple(text.encode(errors="surrogateescape") for text in texts)
    return (b"\t".join(sides),) if form == "table" else sides


def write_hostile(folder: Path, pairs: int) -> list[Made]:
    """Every file begins with a byte order mark; the last file of every corpus lacks its last newline."""
    corpora, first = [], 0
    for form, (files, share, _) in FORMS.items():
        made = Made(form, files, first, int(pairs * share))
        with ExitStack() as stack:
            streams = [stack.enter_context(writer(folder / name)) for name in files]
            for stream in streams:
                stream.write(b"\xef\xbb\xbf")
            for number in made.numbers:
                for stream, line in zip(streams, hostile(form, number).lines, strict=True):
                    last = number == made.numbers[-1] and stream is streams[-1]
                    stream.write(line if last else line + b"\n")
        corpora.append(made)
        first += made.pairs
    write_settings(folder, corpora)
    return corpora


def writer(path: Path) -> Any:
    return gzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else path.open("wb")


def judge(prepared: PreparedData, corpora: list[Made]) -> dict[str, int]:
    """How many pairs are not what they must be; all zero, if all is well."""
    wrong = Counter(misaligned=0, altered=0, lost=0, listed_wrongly=0, tokenized_wrongly=0)
    for made, stored in zip(corpora, prepared.train, strict=True):
        seen = np.zeros(made.pairs, np.int64)
        for folder in range(len(stored.folders)):
            texts = list(zip(*(stored.texts(side, folder) for side in SIDES), strict=True))
            ids = zip(*(prepared.tokenizer(side).decode(rows(stored, folder, side)) for side in SIDES), strict=True)
            for both, line, again in zip(texts, stored.array(folder, "line").tolist(), ids, strict=True):
                number = made.first + line - 1
                seen[line - 1] += 1
                wrong["misaligned"] += any(text.split(" ")[0] != str(number) for text in both)
                wrong["altered"] += both != hostile(made.name, number).texts
                wrong["tokenized_wrongly"] += again != both
        cut, clean = prepared.folder / "cut" / made.name, sorted((prepared.folder / "clean").glob(f"{made.name}-*"))
        rejects = records(cut / "rejects.jsonl")
        dropped = (record for path in clean for record in records(path / "dropped.jsonl"))
        for number in made.numbers:
            pair, line = hostile(made.name, number), number - made.first + 1
            if pair.rejected:
                found = next(rejects, {})
                where = Path(found.get("file", "")).name, found.get("line"), found.get("reason", "").split(": ")[0]
                wrong["listed_wrongly"] += where != (pair.file, line, pair.rejected)
            elif pair.dropped:
                expected = {"corpus": made.name, "line": line, "reason": pair.dropped}
                wrong["listed_wrongly"] += next(dropped, {}) != expected
            wrong["lost"] += int(seen[line - 1]) != (not pair.rejected and not pair.dropped)
        wrong["listed_wrongly"] += len([*rejects, *dropped])
    return dict(wrong)


def rows(stored: StoredCorpus, folder: int, side: str) -> list[list[int]]:
    """The ids of all pairs of one folder."""
    ids, begins = stored.array(folder, side).tolist(), stored.array(folder, f"{side}.begin").tolist()
    return [ids[begin:end] for begin, end in pairwise(begins)]


def records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="\n") as stream:
        yield from map(json.loads, stream)


def planted(corpora: list[Made]) -> Counter[str]:
    """How many pairs there are of each kind of hostility."""
    kinds = Counter(hostile(made.name, number).kind for made in corpora for number in made.numbers)
    del kinds[""]
    return kinds


def write_unequal(folder: Path, pairs: int, lost: int) -> tuple[Path, Path]:
    """Two files, the second without line `lost`, and unequal.toml, which names them."""
    both = [sentences(number, 3) for number in range(pairs)]
    files = folder / "unequal.en", folder / "unequal.de"
    for side, path in enumerate(files):
        texts = [pair[side] + "\n" for line, pair in enumerate(both, 1) if side == 0 or line != lost]
        path.write_text("".join(texts), encoding="utf-8", newline="\n")
    settings = 'source = "en"\ntarget = "de"\n[data]\ntrain = [{files = "unequal"}]\n'
    (folder / "unequal.toml").write_text(settings, encoding="utf-8")
    return files


# -------------------------------------------------------------------------------------------------------- repeated

EVERY = 5  # the last of so many pairs is a copy


def original(number: int) -> int:
    """Which pair this one repeats; itself, if it is new."""
    if number % EVERY < EVERY - 1:
        return number
    earlier = scrambled(number) % number
    return earlier - (earlier % EVERY == EVERY - 1)


def everywhere(number: int) -> int:
    """Like `original`, but nine of ten pairs are the very first."""
    return number if number % 10 == 0 else 0


Law = Callable[[int], int]


def repeated(number: int, law: Law = original) -> tuple[str, str]:
    """About 250 bytes; every other copy is one only after normalization."""
    first = law(number)
    source, target = sentences(first, 4)
    return (source.replace(" ", "  ", 1), target) if first < number and number % 2 else (source, target)


def write_repeated(folder: Path, pairs: int, law: Law = original) -> list[Made]:
    """Two corpora, three quarters and the rest; copies are of either."""
    edge = pairs * 3 // 4
    corpora = [Made("one", ("one.en", "one.de"), 0, edge), Made("two", ("two.en", "two.de"), edge, pairs - edge)]
    for made in corpora:
        numbers = iter(made.numbers)
        with ExitStack() as stack:
            streams = [stack.enter_context((folder / name).open("wb")) for name in made.files]
            while some := [repeated(number, law) for number in islice(numbers, 10_000)]:
                for stream, side in zip(streams, zip(*some, strict=True), strict=True):
                    stream.write("".join([text + "\n" for text in side]).encode())
    write_settings(folder, corpora)
    return corpora


def judge_survivors(text: Path, corpora: list[Made], law: Law = original) -> dict[str, int]:
    """How many pairs of text/ are not what they must be: first of their kind, once, in the order of the hash."""
    wrong = Counter(not_first=0, altered=0, lost=0, disordered=0)
    for made in corpora:
        seen = np.zeros(made.pairs, np.int8)
        last = b""
        for folder in sorted(text.iterdir()):
            lines = np.load(folder / f"{made.name}.line.npy")
            np.add.at(seen, lines - 1, 1)
            with (
                (folder / f"{made.name}.source").open("rb") as source,
                (folder / f"{made.name}.target").open("rb") as target,
            ):
                for line, *pair in zip(lines.tolist(), source, target, strict=True):
                    number = made.first + line - 1
                    both = b"".join(pair)
                    wrong["not_first"] += law(number) != number
                    wrong["altered"] += both.decode() != "\n".join((*repeated(number, law), ""))
                    digest = blake2b(both, digest_size=16).digest()
                    wrong["disordered"] += digest <= last
                    last = digest
        expected = np.fromiter((law(number) == number for number in made.numbers), np.bool_, made.pairs)
        wrong["lost"] += int((seen != expected).sum())
    return dict(wrong)

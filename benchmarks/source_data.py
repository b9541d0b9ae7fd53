"""The corpora of benchmarks/sources.py: each function writes a directory, the same one every time.

    write_sentences(folder, 20_000)     train.txt, valid.txt and test.txt: English sentences of tatoeba-mono
    write_emoji(folder, "en")           pictures/CODE.png, and tables of their paths and captions: train.tsv, valid.tsv,
                                        test.tsv and special.tsv (flags and keycaps that are not in train.tsv)
    write_strips(folder)                the same of rows of 2 to 5 emoji, with boxes.jsonl: where each caption is
    write_formulas(folder)              train.tsv and test.tsv of im2latex-sample

What is held out depends only on a hash of the sentence, or of the code of the emoji.
"""

import gzip
import json
import lzma
import random
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

from PIL import Image

from heedful.text.normalize import normalize
from report import DATA

VALIDATION_SENTENCES = 2_000
EMOJI_SIDE = 32
CELLS = 5  # of a strip
AND = " and "
HELD_OUT_SHARE = 0.1  # of the groups of emoji: for validation, and the same for the test
STRIP_COUNTS = (("train", 20_000), ("valid", 300), ("test", 1_000))
STRIP_EMOJI = 200  # each is in 300 strips of the training part

SKIN_TONES = {f"1F3F{digit}" for digit in "BCDEF"}
IGNORED = SKIN_TONES | {"200D", "FE0F", "2640", "2642"}  # joiner, variation, female and male
SAME = {  # gendered characters and couples -> without gender
    "1F468": "1F9D1", "1F469": "1F9D1",  # man, woman -> person
    "1F466": "1F9D2", "1F467": "1F9D2",  # boy, girl -> child
    "1F474": "1F9D3", "1F475": "1F9D3",  # old man, old woman -> older person
    "1F934": "1FAC5", "1F478": "1FAC5",  # prince, princess -> person with crown
    "1F936": "1F9D1-1F384", "1F385": "1F9D1-1F384",  # in Christmas clothes
    **dict.fromkeys(("1F46B", "1F46C", "1F46D"), "1F9D1-1F91D-1F9D1"),  # holding hands
    "1F48F": "1F9D1-2764-1F48B-1F9D1", "1F491": "1F9D1-2764-1F9D1",  # couples
}  # fmt: skip


def hash_share(text: str) -> float:
    """A number from 0 to 1 that only depends on the text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) / 2**64


def write_lines(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


# ---------------------------------------------------------------------------------------------------------- sentences


def split_sentences(num_test: int, max_sentences: int | None = None) -> dict[str, list[str]]:
    """Distinct normalized sentences: `num_test` for the test, some for validation, the rest for training."""
    text = lzma.decompress((DATA / "tatoeba-mono" / "eng.txt.xz").read_bytes()).decode()
    lines = {normalize(line)[0] for line in text.splitlines()[:max_sentences]} - {""}
    ordered = sorted(lines, key=lambda line: (hash_share(line), line))
    end = num_test + VALIDATION_SENTENCES
    return {"test": ordered[:num_test], "valid": ordered[num_test:end], "train": ordered[end:]}


def write_sentences(folder: Path, num_test: int, max_sentences: int | None = None) -> dict[str, list[str]]:
    sentences = split_sentences(num_test, max_sentences)
    for split, lines in sentences.items():
        write_lines(folder / f"{split}.txt", lines)
    return sentences


# -------------------------------------------------------------------------------------------------------------- emoji


@dataclass(frozen=True)
class Emoji:
    """A picture with its captions."""

    code: str
    category: str
    is_variant: bool  # with a skin tone
    captions: dict[str, str]  # language -> text
    place: tuple[int, int]  # of its cell in the sheet

    @property
    def group(self) -> str:
        """The code without skin tone and gender: pictures of a group are so alike that they must not be split."""
        parts = [SAME.get(part, part) for part in self.code.split("-") if part not in IGNORED]
        return "-".join(parts) or self.code

    @property
    def is_special(self) -> bool:
        """Flags and keycaps: the name of a country cannot be derived from its flag alone."""
        return self.category == "Flags" or "20E3" in self.code

    @property
    def split(self) -> str:
        share = hash_share(self.group)
        held_out = "test" if share < HELD_OUT_SHARE else "valid" if share < 2 * HELD_OUT_SHARE else "train"
        return "special" if self.is_special and held_out != "train" else held_out


@cache
def read_emoji() -> list[Emoji]:
    text = gzip.decompress((DATA / "emoji-captions" / "captions.tsv.gz").read_bytes()).decode()
    names, *rows = (line.split("\t") for line in text.splitlines())
    records = [dict(zip(names, row, strict=True)) for row in rows]
    languages = ("en", "pt", "ru", "de", "fr", "es")
    return [
        Emoji(
            record["code"],
            record["category"],
            record["kind"] == "skin",
            {language: normalize(record[language])[0] for language in languages},
            (int(record["sheet_x"]), int(record["sheet_y"])),
        )
        for record in records
    ]


@cache
def read_pictures() -> dict[str, Image.Image]:
    """Code -> picture on white."""
    sheet = Image.open(DATA / "emoji-captions" / "sheet32.png").convert("RGBA")
    pictures = {}
    for emoji in read_emoji():
        left, top = (34 * number + 1 for number in emoji.place)
        cell = sheet.crop((left, top, left + EMOJI_SIDE, top + EMOJI_SIDE))
        picture = Image.new("RGB", cell.size, "white")
        picture.paste(cell, mask=cell)
        pictures[emoji.code] = picture
    return pictures


def write_emoji(folder: Path, language: str, max_members: int | None = None) -> dict[str, list[Emoji]]:
    """One table per split; returns the emoji of each, in the order of the table."""
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    splits: dict[str, list[Emoji]] = {"train": [], "valid": [], "test": [], "special": []}
    for emoji in read_emoji():
        splits[emoji.split].append(emoji)
    for split, members in splits.items():
        if max_members and len(members) > max_members:
            members[:] = random.Random(1).sample(members, max_members)
        for emoji in members:
            read_pictures()[emoji.code].save(folder / "pictures" / f"{emoji.code}.png")
        write_lines(
            folder / f"{split}.tsv", [f"pictures/{emoji.code}.png\t{emoji.captions[language]}" for emoji in members]
        )
    return splits


# ------------------------------------------------------------------------------------------------------------- strips


@dataclass(frozen=True)
class Strip:
    """Emoji in some of the cells of a wide picture, from left to right."""

    path: str
    captions: tuple[str, ...]
    cells: tuple[int, ...]

    @property
    def caption(self) -> str:
        return AND.join(self.captions)

    @property
    def boxes(self) -> list[tuple[float, float, float, float]]:
        """Left, top, right and bottom of each emoji, in shares of the picture."""
        return [(cell / CELLS, 0.0, (cell + 1) / CELLS, 1.0) for cell in self.cells]


def strip_emoji() -> list[Emoji]:
    """Some things, food, animals, places and faces, with a name without `and`."""
    excluded = {"Flags", "People & Body", "Symbols", "Component"}
    emoji = [
        emoji
        for emoji in read_emoji()
        if emoji.category not in excluded and not emoji.is_special and "and" not in emoji.captions["en"].split()
    ]
    return sorted(emoji, key=lambda each: hash_share(each.code))[:STRIP_EMOJI]


def write_strips(folder: Path, counts: Sequence[tuple[str, int]] = STRIP_COUNTS) -> dict[str, list[Strip]]:
    """Strips with English captions; the test has other rows of the same emoji. Only training has rows of one emoji."""
    draw, emoji = random.Random(28), strip_emoji()
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    splits: dict[str, list[Strip]] = {}
    known: set[tuple[tuple[int, ...], tuple[str, ...]]] = set()  # the rows of training
    for split, count in counts:
        splits[split] = []
        while (number := len(splits[split])) < count:
            cells = sorted(draw.sample(range(CELLS), draw.randint(1 if split == "train" else 2, CELLS)))
            chosen = draw.sample(emoji, len(cells))
            row = (tuple(cells), tuple(each.code for each in chosen))
            if split == "train":
                known.add(row)
            elif row in known:
                continue
            picture = Image.new("RGB", (CELLS * EMOJI_SIDE, EMOJI_SIDE), "white")
            for cell, each in zip(cells, chosen, strict=True):
                picture.paste(read_pictures()[each.code], (cell * EMOJI_SIDE, 0))
            path = f"pictures/{split}-{number:05}.png"
            picture.save(folder / path, compress_level=1)
            splits[split].append(Strip(path, tuple(each.captions["en"] for each in chosen), tuple(cells)))
        write_lines(folder / f"{split}.tsv", [f"{strip.path}\t{strip.caption}" for strip in splits[split]])
    records = [{"path": strip.path, "captions": strip.captions, "boxes": strip.boxes} for strip in splits["test"]]
    write_lines(folder / "boxes.jsonl", [json.dumps(record, ensure_ascii=False) for record in records])
    return splits


# ----------------------------------------------------------------------------------------------------------- formulas


def write_formulas(folder: Path, max_pairs: int | None = None) -> dict[str, list[tuple[str, str]]]:
    """Pictures of formulas and their LaTeX; the two blank pictures and an empty formula are left out."""
    source = DATA / "im2latex-sample"
    formulas = gzip.decompress((source / "formulas.lst.gz").read_bytes()).decode("latin-1").split("\n")
    with tarfile.open(source / "images.tar") as archive:
        archive.extractall(folder, filter="data")
    splits = {}
    for split, name in (("train", "train"), ("valid", "validate"), ("test", "test")):
        pairs = []
        for line in (source / f"{name}.lst").read_text().splitlines():
            number, stem, _ = line.split()
            formula, path = normalize(formulas[int(number)])[0], f"images/{stem}.png"
            if formula and (folder / path).is_file():
                pairs.append((path, formula))
        splits[split] = pairs[:max_pairs]
        write_lines(folder / f"{split}.tsv", ["\t".join(pair) for pair in splits[split]])
    return splits

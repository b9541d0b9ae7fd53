"""Translation memories (TMX 1.4): reads units, and translates those that have no target.

    fill_memory("in.tmx", "out.tmx", "en", "de", translate)        # FillCounts(new=120, kept=880, without_source=0)

A unit that has a target keeps it. Units are streamed, so the memory may have any size; the new file is written
atomically.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TextIO
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from heedful.corpus.text_files import explain_read_errors, open_decompressed
from heedful.errors import DataError

LANGUAGE_ATTRIBUTES = ("{http://www.w3.org/XML/1998/namespace}lang", "lang")
CODE_TAGS = {"bpt", "ept", "it", "ph", "ut"}  # contain codes of another program; <hi> and <sub> contain text
ARCHIVE_SUFFIXES = (".gz", ".zst", ".bz2", ".xz", ".zip")
WINDOW_UNITS = 2000  # translated together
MAX_SCANNED_UNITS = 1000  # to find out which languages a memory has
HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4">
<header creationtool="heedful" creationtoolversion={version} segtype="sentence" o-tmf="TMX" adminlang="en" \
srclang={source} datatype="plaintext"/>
<body>
"""
TAIL = "</body>\n</tmx>\n"

Translate = Callable[[list[str]], list[str]]


def iterate_units(path: Path) -> Iterator[ElementTree.Element]:
    """The units of a translation memory, one by one."""
    try:
        with explain_read_errors(path), open_decompressed(path) as stream:
            events = ElementTree.iterparse(stream, events=("start", "end"))
            _, root = next(events)
            for event, element in events:
                if event == "end" and local_tag(element) == "tu":
                    yield element
                    root.clear()  # keeps memory constant
                elif event == "start" and local_tag(element) == "body":
                    root = element
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # the last two: an unknown encoding
        raise DataError(f"{path} is not well-formed TMX: {error}") from None


def local_tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def texts_by_language(unit: Iterable[ElementTree.Element]) -> dict[str, str]:
    """The segments of a unit by language code, as declared."""
    texts: dict[str, str] = {}
    for variant in unit:
        code = next((variant.attrib[name] for name in LANGUAGE_ATTRIBUTES if name in variant.attrib), "")
        for segment in variant:
            if local_tag(segment) == "seg":
                texts.setdefault(code, segment_text(segment))
    return texts


def matching_codes(codes: Iterable[str], language: str) -> list[str]:
    """The codes that mean a language: an exact match, else `pt` matches pt-BR and pt-BR matches pt, but never pt-PT."""
    plain = {code: code.lower().replace("_", "-") for code in codes}
    language = language.lower().replace("_", "-")
    exact = [code for code in plain if plain[code] == language]
    return exact[:1] or [
        code for code in plain if plain[code].startswith(f"{language}-") or language.startswith(f"{plain[code]}-")
    ]


def text_in_language(unit: Iterable[ElementTree.Element], language: str) -> str | None:
    """The segment in a language."""
    texts = texts_by_language(unit)
    return next((texts[code] for code in matching_codes(texts, language)), None)


class TmxLanguages:
    """Picks two languages of a translation memory, and notes which ones it declares."""

    def __init__(self, path: Path, source: str, target: str) -> None:
        self.path, self.languages = path, (source, target)
        self.declared = Counter[str]()
        self.used: tuple[Counter[str], Counter[str]] = (Counter(), Counter())

    def texts(self, unit: Iterable[ElementTree.Element]) -> tuple[str | None, str | None]:
        """Source and target of a unit; raises a DataError if the unit has two variants of a language."""
        texts = texts_by_language(unit)
        self.declared.update(texts.keys())
        sides: list[str | None] = []
        for language, used in zip(self.languages, self.used, strict=True):
            codes = matching_codes(texts, language)
            if len(codes) > 1:
                raise DataError(
                    f"{self.path} has {' and '.join(codes)}, which are both {language}: say which one, for example: "
                    f"--pair {'-'.join(codes[0] if other == language else other for other in self.languages)}"
                )
            used.update(codes)
            sides.append(texts[codes[0]] if codes else None)
        return sides[0], sides[1]

    def check_used(self) -> None:
        """Raise a DataError if a language is in no unit."""
        for language, used in zip(self.languages, self.used, strict=True):
            if self.declared and not used:
                example = "-".join(list(self.declared)[:2])
                raise DataError(
                    f"{self.path} has no text in {language}: its languages are {list_counts(self.declared)}. Choose "
                    f"two of them, source first, for example: --pair {example if '-' in example else 'en-de'}"
                )

    def describe(self) -> str:
        """languages en-US and pt-BR (of en-US, pt-BR, fr)"""
        sides = [", ".join(used) for used in self.used]
        return f"languages {sides[0]} and {sides[1]}"


def list_counts(codes: Counter[str]) -> str:
    """en (120 units), pt-BR (118 units)"""
    return ", ".join(f"{code or '(none)'} ({count:,} units)" for code, count in codes.most_common(12))


def declared_languages(path: Path) -> Counter[str]:
    """The languages of the first MAX_SCANNED_UNITS units, with the number of units that have each."""
    codes = Counter[str]()
    for unit in islice(iterate_units(path), MAX_SCANNED_UNITS):
        codes.update(texts_by_language(unit).keys())
    return codes


def segment_text(segment: ElementTree.Element) -> str:
    """The text of a segment without codes; not recursive, because files may nest to any depth."""
    texts, stack = [], [(segment, False)]
    while stack:
        element, is_closed = stack.pop()
        if is_closed:
            texts.append(element.tail or "")
            continue
        if element is not segment:
            stack.append((element, True))  # its tail follows its content
        if local_tag(element) not in CODE_TAGS:
            texts.append(element.text or "")
            stack += [(child, False) for child in reversed(element)]
    return "".join(texts)


@dataclass(frozen=True, slots=True)
class FillCounts:
    """How many units were translated, already had a target, or have no source."""

    new: int = 0
    kept: int = 0
    without_source: int = 0


def fill_memory(
    path: str | Path, out: str | Path, source: str, target: str, translate: Translate, version: str = ""
) -> FillCounts:
    """Write a copy of the memory in which every unit with a source has a target."""
    path, out = Path(path), Path(out)
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    if out.exists() and out.samefile(path):
        raise DataError(f"{out} is both input and output: choose another name for the new translation memory")
    if out.is_dir() or out.suffix in ARCHIVE_SUFFIXES:
        raise DataError(
            f"{out} is a directory or has the name of a compressed file: choose another name for the new "
            "translation memory, for example: new.tmx"
        )
    part = out.with_name(f"{out.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(HEAD.format(version=quoteattr(version), source=quoteattr(source)))
            counts = FillCounts()
            units = iterate_units(path)
            while window := list(islice(units, WINDOW_UNITS)):
                counts = _write_units(stream, window, source, target, translate, counts)
            stream.write(TAIL)
        if not counts.new + counts.kept:
            raise DataError(
                f"no unit of {path} has text in {source}, the source language of the model: check the "
                "languages of the file and of the model"
            )
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return counts


def _write_units(
    stream: TextIO,
    units: Sequence[ElementTree.Element],
    source: str,
    target: str,
    translate: Translate,
    counts: FillCounts,
) -> FillCounts:
    """Write units with their targets filled; return the updated counts."""
    texts = [text_in_language(unit, source) for unit in units]
    is_empty = [not (text_in_language(unit, target) or "").strip() for unit in units]
    gaps = [row for row, text in enumerate(texts) if text and text.strip() and is_empty[row]]
    for row, text in zip(gaps, translate([" ".join((texts[row] or "").split()) for row in gaps]), strict=True):
        _set_target_(units[row], target, text)
    for unit in units:
        unit.tail = "\n"
        for node in unit.iter():
            node.tag = local_tag(node)  # the new file has no namespace
        stream.write(ElementTree.tostring(unit, encoding="unicode"))
    missing = sum(text is None for text in texts)
    return replace(
        counts,
        new=counts.new + len(gaps),
        kept=counts.kept + len(units) - len(gaps) - missing,
        without_source=counts.without_source + missing,
    )


def _set_target_(unit: ElementTree.Element, language: str, text: str) -> None:
    """Add the variant in a language to a unit, replacing an empty one."""
    for variant in list(unit):
        old_text = text_in_language([variant], language)
        if old_text is not None and not old_text.strip():
            unit.remove(variant)
    new_variant = ElementTree.SubElement(unit, "tuv", {LANGUAGE_ATTRIBUTES[0]: language})
    ElementTree.SubElement(new_variant, "seg").text = "".join(_xml_characters(text))


def _xml_characters(text: str) -> Iterator[str]:
    return (letter for letter in text if letter in "\t\n\r" or "\x20" <= letter < "\ufffe" or letter > "\uffff")

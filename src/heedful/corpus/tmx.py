"""Translation memories (TMX 1.4) with gaps, filled.

    fill("in.tmx", "out.tmx", "en", "de", translate)        # Filled(new=120, kept=880, without_source=0)

A unit that has a target keeps it. Units stream through, so a memory of any size does; the new file appears whole or not
at all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TextIO
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from heedful.corpus.readers import LANGUAGE_ATTRIBUTES, named, units, variant
from heedful.errors import DataError

PACKED = (".gz", ".zst", ".bz2", ".xz", ".zip")
WINDOW = 2000  # units that are translated together
HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4">
<header creationtool="heedful" creationtoolversion={version} segtype="sentence" o-tmf="TMX" adminlang="en" \
srclang={source} datatype="plaintext"/>
<body>
"""
TAIL = "</body>\n</tmx>\n"

Translate = Callable[[list[str]], list[str]]


@dataclass(frozen=True, slots=True)
class Filled:
    """How many units were translated, had a target before, have no source."""

    new: int = 0
    kept: int = 0
    without_source: int = 0


def fill(
    path: str | Path, out: str | Path, source: str, target: str, translate: Translate, version: str = ""
) -> Filled:
    """Write the memory again, with a target in every unit that has a source."""
    path, out = Path(path), Path(out)
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    if out.exists() and out.samefile(path):
        raise DataError(f"{out} is the memory itself: give the new one another name")
    if out.is_dir() or out.suffix in PACKED:
        raise DataError(f"{out} cannot be the new memory: name a plain file, such as new.tmx")
    part = out.with_name(f"{out.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(HEAD.format(version=quoteattr(version), source=quoteattr(source)))
            counts = Filled()
            every = units(path)
            while some := list(islice(every, WINDOW)):
                counts = written(stream, some, source, target, translate, counts)
            stream.write(TAIL)
        if not counts.new + counts.kept:
            raise DataError(f"no unit of {path} has a text in {source}, the language that the model reads")
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)
    return counts


def written(
    stream: TextIO, some: Sequence[ElementTree.Element], source: str, target: str, translate: Translate, counts: Filled
) -> Filled:
    """Some units, and the counts with theirs."""
    texts = [variant(unit, source) for unit in some]
    empty = [not (variant(unit, target) or "").strip() for unit in some]
    gaps = [row for row, text in enumerate(texts) if text and text.strip() and empty[row]]
    for row, text in zip(gaps, translate([" ".join((texts[row] or "").split()) for row in gaps]), strict=True):
        add(some[row], target, text)
    for unit in some:
        unit.tail = "\n"
        for node in unit.iter():
            node.tag = named(node)  # the new file has no namespace
        stream.write(ElementTree.tostring(unit, encoding="unicode"))
    missing = sum(text is None for text in texts)
    return replace(
        counts,
        new=counts.new + len(gaps),
        kept=counts.kept + len(some) - len(gaps) - missing,
        without_source=counts.without_source + missing,
    )


def add(unit: ElementTree.Element, language: str, text: str) -> None:
    """The variant in a language, instead of one that was empty."""
    for old in list(unit):
        alone = variant([old], language)
        if alone is not None and not alone.strip():
            unit.remove(old)
    made = ElementTree.SubElement(unit, "tuv", {LANGUAGE_ATTRIBUTES[0]: language})
    ElementTree.SubElement(made, "seg").text = "".join(valid(text))


def valid(text: str) -> Iterator[str]:
    """The characters that XML allows."""
    return (one for one in text if one in "\t\n\r" or "\x20" <= one < "\ufffe" or one > "\uffff")

"""Which word goes with which? Alignments as sets of links, and how far they are from what people drew.

    agreement([parse("0-0 1-2")], [parse_gold("1-1 2p3", first=1)])

Pharaoh's format is one line per sentence, `source-target` from 0. Gold alignments write `i-j` for a link that is sure
and `ipj` for one that is possible.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heedful.errors import DataError

Links = frozenset[tuple[int, int]]  # (source word, target word), from 0

LINK = re.compile(r"([0-9]+)([-p])([0-9]+)")


@dataclass(frozen=True, slots=True)
class Gold:
    """What people drew; every sure link is possible too."""

    sure: Links
    possible: Links


def parse(line: str) -> Links:
    """0-0 1-2 -> {(0, 0), (1, 2)}"""
    found = parse_gold(line)
    if found.possible != found.sure:
        raise DataError(f"`{line[:80]}` has possible links: it is a gold alignment, not one in Pharaoh's format")
    return found.sure


def parse_gold(line: str, *, first: int = 0) -> Gold:
    """1-1 2p3 -> sure {(0, 0)}, possible {(0, 0), (1, 2)}, where words are counted from `first` = 1"""
    sure, possible = set(), set()
    for word in line.split():
        link = LINK.fullmatch(word)
        if not link:
            raise DataError(f"`{word[:80]}` is not a link: write 0-0 (or 0p0 for one that is only possible)")
        pair = int(link[1]) - first, int(link[3]) - first
        if min(pair) < 0:
            raise DataError(f"`{word}` is a word before the first: are the words counted from {1 - first}?")
        possible.add(pair)
        if link[2] == "-":
            sure.add(pair)
    return Gold(frozenset(sure), frozenset(possible))


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """{(0, 0), (1, 2)} -> 0-0 1-2, in order"""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


@dataclass(frozen=True, slots=True)
class Agreement:
    """How well alignments A agree with sure links S and possible links P                     (Och and Ney 2003)

    precision = |A & P| / |A|, recall = |A & S| / |S|, AER = 1 - (|A & S| + |A & P|) / (|A| + |S|)
    """

    links: int
    sure: int
    in_sure: int
    in_possible: int

    @property
    def precision(self) -> float:
        """|A & P| / |A|"""
        return self.in_possible / self.links if self.links else 0.0

    @property
    def recall(self) -> float:
        """|A & S| / |S|"""
        return self.in_sure / self.sure if self.sure else 0.0

    @property
    def error_rate(self) -> float:
        """AER = 1 - (|A & S| + |A & P|) / (|A| + |S|), 0 where there is nothing to align"""
        all_links = self.links + self.sure
        return 1 - (self.in_sure + self.in_possible) / all_links if all_links else 0.0


def agreement(found: Sequence[Links], gold: Sequence[Gold]) -> Agreement:
    """Of a whole corpus: links are counted over all sentences."""
    if len(found) != len(gold):
        raise DataError(f"{len(found):,} alignments but {len(gold):,} gold ones: they must be as many")
    return Agreement(
        sum(len(links) for links in found),
        sum(len(one.sure) for one in gold),
        sum(len(links & one.sure) for links, one in zip(found, gold, strict=True)),
        sum(len(links & one.possible) for links, one in zip(found, gold, strict=True)),
    )

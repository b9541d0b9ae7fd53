"""Word alignments as sets of links, and their error rate against gold alignments.

    measure_agreement([parse_links("0-0 1-2")], [parse_gold("1-1 2p3", first=1)])

Pharaoh's format has one line per sentence and `source-target` links, counted from 0. Gold alignments write `i-j` for a
sure link and `ipj` for a possible one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from heedful.errors import DataError

Links = frozenset[tuple[int, int]]  # (source word, target word), from 0

LINK_PATTERN = re.compile(r"([0-9]+)([-p])([0-9]+)")


@dataclass(frozen=True, slots=True)
class GoldAlignment:
    """The links that annotators drew; every sure link is also possible."""

    sure: Links
    possible: Links


def parse_links(line: str) -> Links:
    """0-0 1-2 -> {(0, 0), (1, 2)}"""
    alignment = parse_gold(line)
    if alignment.possible != alignment.sure:
        raise DataError(f"`{line[:80]}` has possible links: this is a gold alignment, not Pharaoh's format")
    return alignment.sure


def parse_gold(line: str, *, first: int = 0) -> GoldAlignment:
    """1-1 2p3 -> sure {(0, 0)}, possible {(0, 0), (1, 2)}, if words are counted from `first` = 1"""
    sure, possible = set(), set()
    for word in line.split():
        link = LINK_PATTERN.fullmatch(word)
        if not link:
            raise DataError(f"`{word[:80]}` is not a link: write 0-0 (or 0p0 for a possible link)")
        pair = int(link[1]) - first, int(link[3]) - first
        if min(pair) < 0:
            raise DataError(f"`{word}` is before the first word; check whether words are counted from {1 - first}")
        possible.add(pair)
        if link[2] == "-":
            sure.add(pair)
    return GoldAlignment(frozenset(sure), frozenset(possible))


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
        return self.in_possible / self.links if self.links else 0.0

    @property
    def recall(self) -> float:
        return self.in_sure / self.sure if self.sure else 0.0

    @property
    def error_rate(self) -> float:
        """AER; 0 if there are no links"""
        all_links = self.links + self.sure
        return 1 - (self.in_sure + self.in_possible) / all_links if all_links else 0.0


def measure_agreement(alignments: Sequence[Links], gold: Sequence[GoldAlignment]) -> Agreement:
    """The agreement over a whole corpus; links of all sentences are counted together."""
    if len(alignments) != len(gold):
        raise DataError(f"{len(alignments):,} alignments but {len(gold):,} gold alignments: the numbers must be equal")
    return Agreement(
        sum(len(links) for links in alignments),
        sum(len(annotated.sure) for annotated in gold),
        sum(len(links & annotated.sure) for links, annotated in zip(alignments, gold, strict=True)),
        sum(len(links & annotated.possible) for links, annotated in zip(alignments, gold, strict=True)),
    )

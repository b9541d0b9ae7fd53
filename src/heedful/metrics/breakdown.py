"""One number for a corpus hides much: scores by the length of sentences, and the sentences that came out worst."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from heedful.metrics.score import DEFAULT, Lines, Options, score, sentence_scores, tokenizer

LENGTHS = (10, 20, 30, 40, 60)  # tokens: the longest of every bucket but the last


@dataclass(frozen=True, slots=True)
class Bucket:
    """The lines whose first reference has `shortest` to `longest` tokens."""

    shortest: int
    longest: int | None
    lines: int
    scores: dict[str, float]


def by_length(
    metrics: Sequence[str], hypotheses: Lines, references: Sequence[Lines], *, options: Options = DEFAULT
) -> list[Bucket]:
    """The scores of short and of long sentences; length is counted in BLEU's tokens, of the first reference."""
    cut = tokenizer(options)
    rows: dict[int, list[int]] = {}
    for row, reference in enumerate(references[0]):
        rows.setdefault(bisect_left(LENGTHS, len(cut(reference))), []).append(row)
    found = []
    for at, some in sorted(rows.items()):
        mine, theirs = [hypotheses[row] for row in some], [[one[row] for row in some] for one in references]
        scores = {name: score(name, mine, theirs, options=options).value for name in metrics}
        bounds = (0, *(longest + 1 for longest in LENGTHS))[at], (*LENGTHS, None)[at]
        found.append(Bucket(*bounds, len(some), scores))
    return found


@dataclass(frozen=True, slots=True)
class Poor:
    """A line that came out badly."""

    line: int  # from 1
    chrf: float


def worst(hypotheses: Lines, references: Sequence[Lines], number: int, *, options: Options = DEFAULT) -> list[Poor]:
    """The lines with the lowest chrF, the lowest first."""
    scores = sentence_scores("chrf", hypotheses, references, options=options)
    return sorted((Poor(line, one) for line, one in enumerate(scores, 1)), key=lambda one: one.chrf)[:number]

"""Scores by sentence length, and the lines with the lowest scores."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from heedful.metrics.score import DEFAULT_OPTIONS, Lines, MetricOptions, make_tokenizer, score, sentence_scores

MAX_BUCKET_TOKENS = (10, 20, 30, 40, 60)  # of each bucket; the last bucket has no limit


@dataclass(frozen=True, slots=True)
class LengthBucket:
    """The lines whose first reference has `shortest` to `longest` tokens."""

    shortest: int
    longest: int | None
    lines: int
    scores: dict[str, float]


def score_by_length(
    metrics: Sequence[str], hypotheses: Lines, references: Sequence[Lines], *, options: MetricOptions = DEFAULT_OPTIONS
) -> list[LengthBucket]:
    """Scores by sentence length, which is the number of BLEU tokens in the first reference."""
    tokenize = make_tokenizer(options)
    rows_by_bucket: dict[int, list[int]] = {}
    for row, reference in enumerate(references[0]):
        rows_by_bucket.setdefault(bisect_left(MAX_BUCKET_TOKENS, len(tokenize(reference))), []).append(row)
    buckets = []
    for index, rows in sorted(rows_by_bucket.items()):
        bucket_hypotheses = [hypotheses[row] for row in rows]
        bucket_references = [[lines[row] for row in rows] for lines in references]
        scores = {name: score(name, bucket_hypotheses, bucket_references, options=options).value for name in metrics}
        bounds = (0, *(longest + 1 for longest in MAX_BUCKET_TOKENS))[index], (*MAX_BUCKET_TOKENS, None)[index]
        buckets.append(LengthBucket(*bounds, len(rows), scores))
    return buckets


@dataclass(frozen=True, slots=True)
class PoorLine:
    """A line with a low chrF."""

    line: int  # from 1
    chrf: float


def find_worst_lines(
    hypotheses: Lines, references: Sequence[Lines], count: int, *, options: MetricOptions = DEFAULT_OPTIONS
) -> list[PoorLine]:
    """The `count` lines with the lowest chrF, lowest first."""
    scores = sentence_scores("chrf", hypotheses, references, options=options)
    lines = (PoorLine(line, chrf) for line, chrf in enumerate(scores, 1))
    return sorted(lines, key=lambda line: line.chrf)[:count]

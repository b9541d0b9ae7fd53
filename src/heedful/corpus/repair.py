"""`heedful check --fix`: a cleaned copy beside every corpus that needs one.

Paired again: shifted lines of known lag. Normalized: everything. Turned round: swapped pairs. What comes of that is
judged anew, as a pair that was mended is another pair; left out is what `clean.drop` names, duplicates, overlap, lines
in another language.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import numpy as np
import polars
from polars import col

from heedful.config import CorpusSettings, Settings, name_corpora
from heedful.corpus.check import MOST_UNEQUAL, Exam, judge, overlapping, pieces, repeated, telling
from heedful.corpus.languages import sides
from heedful.corpus.parallel import Integers, Shift, words
from heedful.corpus.readers import bare, kind, lines, read
from heedful.corpus.rules import profiled
from heedful.text.normalize import normalize_all

MENDED = {"unequal", "rejected", "shift", "swapped", "control", "invisible"}
DROPPED = {"shift", "swapped", "untranslated", "wrong_language"}  # what is still so when all is mended
HOPELESS = {"no_pairs", "not_parallel", "language"}  # only other files help


def fix(settings: Settings, exams: Sequence[Exam]) -> dict[str, tuple[int, int, tuple[Path, ...]]]:
    """Write the copies: name -> (pairs before, pairs after, files)."""
    corpora = {name: corpus for name, _, corpus in name_corpora(settings)}
    treated = [again(exam, corpora[exam.name], settings) if curable(exam, settings) else exam for exam in exams]
    repeated(treated)
    overlapping(treated)
    return {
        before.name: (before.pairs, *written(before, after, corpora[before.name], settings))
        for before, after in zip(exams, treated, strict=True)
        if before is not after
    }


def dropped(settings: Settings) -> set[str]:
    """The kinds of pairs that are left out."""
    duplicates = {"duplicate"} if settings.clean.duplicates == "drop" else set()
    overlap = {"pair": {"overlap"}, "either": {"overlap", "overlap_side"}, "keep": set[str]()}[settings.clean.overlap]
    return {*settings.clean.drop, *DROPPED, *duplicates, *overlap}


def curable(exam: Exam, settings: Settings) -> bool:
    """Whether there is something to mend, and a way to do it."""
    faults = {fault for fault, _ in exam.lines}
    return bool(faults & (MENDED | dropped(settings))) and not faults & HOPELESS and not exam.lost


def again(exam: Exam, corpus: CorpusSettings, settings: Settings) -> Exam:
    """Examine what comes of a corpus when its lines are paired again, normalized and turned round."""
    after, profile = Exam(exam.name, exam.split, exam.files), None
    for number, table in enumerate(treated_pieces(exam, corpus, settings)):
        clean = settings.clean
        profile = profile or profiled(table, longest_words=clean.max_words, largest_ratio=clean.max_length_ratio)
        after.pairs += table.height
        judge(after, table, profile, (settings.source, settings.target), number)
    return after


def written(before: Exam, after: Exam, corpus: CorpusSettings, settings: Settings) -> tuple[int, tuple[Path, ...]]:
    """Write what is good of a corpus: how many pairs, and where."""
    drop = dropped(settings)
    bad = [lines for (fault, _), every in after.lines.items() if fault in drop for lines in every]
    gone = np.unique(np.concatenate([np.array([], np.int64), *bad]))
    names = beside(before.files, settings.source, settings.target)
    count = 0
    with ExitStack() as stack:
        streams = [stack.enter_context(name.open("w", encoding="utf-8", newline="\n")) for name in names]
        for table in treated_pieces(before, corpus, settings):
            good = table.filter(~col("line").is_in(gone.tolist()), col("source") != "", col("target") != "")
            count += good.height
            pairs = good.select("source", "target").rows()
            columns = zip(*pairs, strict=True) if len(streams) == 2 else [map("\t".join, pairs)]
            for stream, texts in zip(streams, columns, strict=False):  # of no pairs, there are no columns
                stream.writelines(f"{text}\n" for text in texts)
    return count, names


def treated_pieces(exam: Exam, corpus: CorpusSettings, settings: Settings) -> Iterator[polars.DataFrame]:
    """The pieces of a corpus: source, target and the source's line, of lines that go together."""
    schema = {"source": polars.String, "target": polars.String, "line": polars.Int64}
    for number, (source, target, line, others) in enumerate(raw_pieces(exam, corpus, settings)):
        left, right = rejoined(line, others, [shift for at, shift in exam.shifts if at == number])
        texts = [normalize_all(side[row] for row in rows)[0] for side, rows in ((source, left), (target, right))]
        yield turned(polars.DataFrame([*texts, line[left]], schema=schema))


def raw_pieces(
    exam: Exam, corpus: CorpusSettings, settings: Settings
) -> Iterator[tuple[list[str], list[str], Integers, Integers]]:
    """Both sides of every piece, and the line numbers of each; files of different lengths are one piece."""
    if ("unequal", "pair") in exam.lines:
        source, target = (
            [line.decode(errors="replace") for line in islice(lines(path), MOST_UNEQUAL)] for path in exam.files
        )
        yield source, target, np.arange(1, len(source) + 1), np.arange(1, len(target) + 1)
    else:
        blocks = read(corpus.files, settings.source, settings.target, longest=settings.data.max_line_bytes)
        for table in pieces(blocks, []):
            line = table["line"].to_numpy()
            yield table["source"].to_list(), table["target"].to_list(), line, line


def rejoined(line: Integers, others: Integers, found: Sequence[Shift]) -> tuple[Integers, Integers]:
    """Which row of the source goes with which row of the target, by the line numbers of both.

    Straight, but for the shifts, of which those of known lag stay. Left out are the doubtful lines around the ends of a
    shift, and lines whose partner was rejected.
    """
    wanted, doubtful = line.copy(), np.zeros(len(line), bool)
    for shift in found:
        wanted[shift.begin : shift.end] += shift.lag or 0
        doubtful[shift.begin : shift.end] |= shift.lag is None
        for edge in {shift.begin, shift.end} - {0, len(line)}:
            doubtful[max(0, edge - 2) : edge + 2] = True
    partner = np.searchsorted(others, wanted)
    there = np.isin(wanted, others) & ~doubtful
    left = np.flatnonzero(there)
    first = np.sort(np.unique(partner[left], return_index=True)[1])  # a target line is used once
    return left[first], partner[left[first]]


def turned(table: polars.DataFrame) -> polars.DataFrame:
    """Pairs that are the wrong way round, the right way round."""
    if not telling(table["source"], table["target"]):
        return table
    as_target, as_source = sides(words(table["source"]), words(table["target"]))
    both = polars.lit(polars.Series(as_target & as_source))
    return table.with_columns(
        source=polars.when(both).then("target").otherwise("source"),
        target=polars.when(both).then("source").otherwise("target"),
    )


def beside(files: tuple[Path, ...], source: str, target: str) -> tuple[Path, ...]:
    """train.en.gz, train.de.gz -> train.clean.en, train.clean.de; corpus.tmx -> corpus.clean.tsv"""
    if len(files) == 1 and kind(files[0]):
        return (bare(files[0]).with_suffix(".clean.tsv"),)
    return tuple(
        bare(path).with_name(f"{bare(path).stem}.clean.{language}")
        for path, language in zip(files, (source, target), strict=True)
    )

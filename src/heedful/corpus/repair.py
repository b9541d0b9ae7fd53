"""`heedful check --fix`: writes a cleaned copy next to every corpus that needs one.

Shifted lines with a known lag are paired again, all text is normalized, and swapped pairs are swapped back. The result
is examined again, because repaired pairs are new pairs. Pairs that break a rule of `clean.drop`, duplicates, overlap
and lines in another language are dropped.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import numpy as np
import polars
from polars import col

from heedful.config import CorpusSettings, Settings, name_corpora
from heedful.corpus.examination import (
    MAX_UNEQUAL_LINES,
    CorpusExamination,
    examine_piece,
    has_enough_lines,
    make_duplicate_keys,
    note_duplicates,
    note_overlap,
    split_pieces,
)
from heedful.corpus.languages import sort_lines_by_language
from heedful.corpus.parallel import Integers, Shift, index_words
from heedful.corpus.readers import pair_format, read_corpus
from heedful.corpus.rules import make_profile
from heedful.corpus.text_files import iterate_lines, strip_compression_suffix
from heedful.errors import ConfigError
from heedful.text.normalize import normalize_all

REPAIRED_FAULTS = {"unequal", "rejected", "shift", "swapped", "control", "invisible"}
ALWAYS_DROPPED = {
    "shift",
    "swapped",
    "untranslated",
    "wrong_language",
    "numbers",
    "truncated",
}  # if any remain after the repair
UNREPAIRABLE_FAULTS = {"no_pairs", "not_parallel", "language"}  # these need other files


def can_repair(settings: Settings) -> bool:
    return settings.input.kind == "text"


def repair(settings: Settings, exams: Sequence[CorpusExamination]) -> dict[str, tuple[int, int, tuple[Path, ...]]]:
    """Write the copies: name -> (pairs before, pairs after, files)."""
    if not can_repair(settings):
        raise ConfigError("--fix is for pairs of texts; heedful prepare normalizes other corpora, and drops bad lines")
    corpora = {name: corpus for name, _, corpus in name_corpora(settings)}
    repaired = [
        examine_repaired(exam, corpora[exam.name], settings) if is_repairable(exam, settings) else exam
        for exam in exams
    ]
    note_duplicates(repaired)
    note_overlap(repaired)
    return {
        before.name: (before.pairs, *write_copy(before, after, corpora[before.name], settings))
        for before, after in zip(exams, repaired, strict=True)
        if before is not after
    }


def dropped_faults(settings: Settings) -> set[str]:
    duplicates = {"duplicate"} if settings.clean.duplicates == "drop" else set()
    overlap = {"pair": {"overlap"}, "either": {"overlap", "overlap_side"}, "keep": set[str]()}[settings.clean.overlap]
    return {*settings.clean.drop, *ALWAYS_DROPPED, *duplicates, *overlap}


def is_repairable(exam: CorpusExamination, settings: Settings) -> bool:
    """Whether there is something to repair, and a way to repair it."""
    faults = {fault for fault, _ in exam.lines}
    is_faulty = bool(faults & (REPAIRED_FAULTS | dropped_faults(settings)))
    return is_faulty and not faults & UNREPAIRABLE_FAULTS and not exam.is_unpairable


def examine_repaired(exam: CorpusExamination, corpus: CorpusSettings, settings: Settings) -> CorpusExamination:
    """Examine a corpus after repair."""
    after, profile = CorpusExamination(exam.name, exam.split, exam.files), None
    for number, table in enumerate(repaired_pieces(exam, corpus, settings)):
        clean = settings.clean
        profile = profile or make_profile(table, max_words=clean.max_words, max_length_ratio=clean.max_length_ratio)
        after.pairs += table.height
        examine_piece(after, table, profile, (settings.source, settings.target), number)
        after.keys.append(make_duplicate_keys(table))
    return after


def write_copy(
    before: CorpusExamination, after: CorpusExamination, corpus: CorpusSettings, settings: Settings
) -> tuple[int, tuple[Path, ...]]:
    """Write the good pairs of a corpus; return their number and the files."""
    drop = dropped_faults(settings)
    bad = [lines for (fault, _), parts in after.lines.items() if fault in drop for lines in parts]
    bad_lines = np.unique(np.concatenate([np.array([], np.int64), *bad]))
    paths = clean_paths(before.files, settings.source, settings.target)
    count = 0
    with ExitStack() as stack:
        streams = [stack.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in paths]
        for table in repaired_pieces(before, corpus, settings):
            good = table.filter(~col("line").is_in(bad_lines.tolist()), col("source") != "", col("target") != "")
            count += good.height
            pairs = good.select("source", "target").rows()
            columns = zip(*pairs, strict=True) if len(streams) == 2 else [map("\t".join, pairs)]
            for stream, texts in zip(streams, columns, strict=False):  # without pairs, there are no columns
                stream.writelines(f"{text}\n" for text in texts)
    return count, paths


def repaired_pieces(exam: CorpusExamination, corpus: CorpusSettings, settings: Settings) -> Iterator[polars.DataFrame]:
    """The pieces of a corpus after repair: source, target and the line of the source."""
    schema = {"source": polars.String, "target": polars.String, "line": polars.Int64}
    for number, (source, target, source_lines, target_lines) in enumerate(raw_pieces(exam, corpus, settings)):
        shifts = [shift for piece, shift in exam.shifts if piece == number]
        left, right = pair_rows(source_lines, target_lines, shifts)
        texts = [normalize_all(side[row] for row in rows)[0] for side, rows in ((source, left), (target, right))]
        yield turn_swapped_pairs(polars.DataFrame([*texts, source_lines[left]], schema=schema))


def raw_pieces(
    exam: CorpusExamination, corpus: CorpusSettings, settings: Settings
) -> Iterator[tuple[list[str], list[str], Integers, Integers]]:
    """Both sides of every piece, and the line numbers of each; files of different lengths are one piece."""
    if ("unequal", "pair") in exam.lines:
        source, target = (
            [line.decode(errors="replace") for line in islice(iterate_lines(path), MAX_UNEQUAL_LINES)]
            for path in exam.files
        )
        yield source, target, np.arange(1, len(source) + 1), np.arange(1, len(target) + 1)
    else:
        for table in split_pieces(read_corpus(corpus, settings), []):
            lines = table["line"].to_numpy()
            yield table["source"].to_list(), table["target"].to_list(), lines, lines


def pair_rows(source_lines: Integers, target_lines: Integers, shifts: Sequence[Shift]) -> tuple[Integers, Integers]:
    """Which row of the source belongs to which row of the target, by the line numbers of both.

    Lines with equal numbers, except in shifts with a known lag. Shifts with an unknown lag, the doubtful lines around
    the ends of a shift, and lines whose partner was rejected are dropped.
    """
    partner_line, is_doubtful = source_lines.copy(), np.zeros(len(source_lines), bool)
    for shift in shifts:
        partner_line[shift.begin : shift.end] += shift.lag or 0
        is_doubtful[shift.begin : shift.end] |= shift.lag is None
        for edge in {shift.begin, shift.end} - {0, len(source_lines)}:
            is_doubtful[max(0, edge - 2) : edge + 2] = True
    partner = np.searchsorted(target_lines, partner_line)
    left = np.flatnonzero(np.isin(partner_line, target_lines) & ~is_doubtful)
    first = np.sort(np.unique(partner[left], return_index=True)[1])  # use each target line only once
    return left[first], partner[left[first]]


def turn_swapped_pairs(table: polars.DataFrame) -> polars.DataFrame:
    """Exchange source and target of swapped pairs."""
    if not has_enough_lines(table["source"], table["target"]):
        return table
    is_swapped, _, _ = sort_lines_by_language(index_words(table["source"]), index_words(table["target"]))
    swapped = polars.lit(polars.Series(is_swapped))
    return table.with_columns(
        source=polars.when(swapped).then("target").otherwise("source"),
        target=polars.when(swapped).then("source").otherwise("target"),
    )


def clean_paths(files: tuple[Path, ...], source: str, target: str) -> tuple[Path, ...]:
    """train.en.gz, train.de.gz -> train.clean.en, train.clean.de; corpus.tmx -> corpus.clean.tsv"""
    if len(files) == 1 and pair_format(files[0]):
        return (strip_compression_suffix(files[0]).with_suffix(".clean.tsv"),)
    plain = [strip_compression_suffix(path) for path in files]
    return tuple(
        path.with_name(f"{path.stem}.clean.{language}") for path, language in zip(plain, (source, target), strict=True)
    )

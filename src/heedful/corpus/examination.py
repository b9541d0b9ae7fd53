"""Examines a corpus in pieces of 262,144 pairs and notes every fault.

Each piece is tested with the rules of `rules.py`, for lines that are not parallel (`parallel.py`) and for lines in a
wrong language (`languages.py`). Only 32 bytes per pair are kept, to find duplicates and overlap of training and test.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
import polars
from polars import col

from heedful.config import (
    AudioInputSettings,
    CorpusSettings,
    GraphInputSettings,
    ImageInputSettings,
    Settings,
)
from heedful.corpus.completeness import differing_numbers, find_truncated
from heedful.corpus.languages import identify_language, sort_lines_by_language
from heedful.corpus.media import MediaSettings, examine_media, label_slots, note_speeds
from heedful.corpus.parallel import Evidence, Integers, Shift, WordIndex, find_shifts, find_split, index_words
from heedful.corpus.readers import Block, Reject, UnequalCounts, read_corpus
from heedful.corpus.rules import RULES, Bools, Profile, apply_rules, letters_only, make_profile
from heedful.corpus.text_files import iterate_lines
from heedful.text.language_codes import base_language

PIECE_PAIRS = 1 << 18
HEAD_PAIRS = 20_000  # kept to train a vocabulary on
MIN_DISTINCT_LINES = 200  # with fewer, which words belong together cannot be learned
NEED_MANY_LINES = ("not_parallel", "shift", "swapped", "untranslated", "truncated", "language", "wrong_language")
MIN_KNOWN_SHARE = 0.5  # of lines must have words that occur again; lists of names, for example, have few
MIN_SUPPORT_NATS = 0.5  # per line, that the two sides are parallel; about 0 if they are not
MAX_UNEQUAL_LINES = 1 << 20  # that are compared if two files have different lengths


@dataclass(slots=True, eq=False)
class CorpusExamination:
    """The faults noted in one corpus."""

    name: str
    split: str
    files: tuple[Path, ...]
    pairs: int = 0
    lines: dict[tuple[str, str], list[Integers]] = field(default_factory=dict)  # by fault and side
    samples: dict[tuple[str, str], str] = field(default_factory=dict)
    details: dict[tuple[str, str], str] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    shifts: list[tuple[int, Shift]] = field(default_factory=list)  # with the number of their piece
    layout: str = ""  # of a table, in words
    is_large_enough: bool = False  # for the findings that need many lines
    is_unpairable: bool = False  # two files of different lengths, without evidence which lines belong together
    keys: list[polars.DataFrame] = field(default_factory=list)
    lower_case_lines: dict[str, int] = field(default_factory=lambda: {"source": 0, "target": 0})
    head: polars.DataFrame | None = None

    def file(self, side: str) -> str:
        return str(self.files[-1] if side == "target" else self.files[0])

    def note(self, fault: str, side: str, lines: Integers, sample: str, detail: str = "") -> None:
        self.lines.setdefault((fault, side), []).append(lines)
        self.samples.setdefault((fault, side), sample)
        if detail:
            self.details.setdefault((fault, side), detail)

    def note_rows(self, fault: str, side: str, flags: Bools, table: polars.DataFrame, detail: str = "") -> None:
        """Note the flagged rows of a table."""
        if flags.any():
            first = table.row(int(flags.argmax()), named=True)
            sample = f"{first['source']}  |  {first['target']}" if side == "pair" else first[side]
            self.note(fault, side, table["line"].to_numpy()[flags], sample, detail)


def note_layout(exam: CorpusExamination, blocks: Iterator[Block]) -> Iterator[Block]:
    """The same blocks; the layout of a table and its line breaks are noted on the way."""
    for block in blocks:
        exam.layout = block.layout or exam.layout
        if block.broken_lines:
            first = block.lines.index(block.broken_lines[0]) if block.broken_lines[0] in block.lines else None
            sample = "" if first is None else f"{block.source[first]}  |  {block.target[first]}"
            exam.note("line_breaks", "pair", np.array(block.broken_lines), sample)
        yield block


def split_pieces(blocks: Iterator[Block], rejects: list[Reject]) -> Iterator[polars.DataFrame]:
    """Blocks -> tables of PIECE_PAIRS rows: source, target, line; rejects are appended to the list."""
    piece: list[Block] = []
    for block in blocks:
        piece.append(block)
        rejects += block.rejects
        if sum(len(part.lines) for part in piece) >= PIECE_PAIRS:
            yield make_table(piece)
            piece = []
    if piece:
        yield make_table(piece)


def make_table(blocks: Sequence[Block]) -> polars.DataFrame:
    return polars.DataFrame(
        {
            "source": polars.Series([text for block in blocks for text in block.source], dtype=polars.String),
            "target": polars.Series([text for block in blocks for text in block.target], dtype=polars.String),
            "line": polars.Series([line for block in blocks for line in block.lines], dtype=polars.Int64),
        }
    )


def make_duplicate_keys(table: polars.DataFrame) -> polars.DataFrame:
    """64-bit hashes of each side and of the pair, ignoring case, spaces and punctuation; 0 if empty."""
    letters = table.select(letters_only(col("source")), letters_only(col("target")), "line")
    return letters.select(
        polars.when(col("source") == "").then(0).otherwise(col("source").hash(seed=1)).alias("source"),
        polars.when(col("target") == "").then(0).otherwise(col("target").hash(seed=2)).alias("target"),
        polars.struct("source", "target").hash(seed=3).alias("pair"),
        "line",
    )


def make_media_keys(table: polars.DataFrame, folder: Path, digests: Sequence[int]) -> polars.DataFrame:
    """64-bit hashes: of the source (0: none), its path, the text without case and punctuation, and the pair."""
    paths = polars.Series("path", [str(folder / source) for source in table["source"]], dtype=polars.String)
    return table.select(
        polars.Series("source", digests, dtype=polars.UInt64),
        paths.hash(seed=1),
        letters_only(col("target")).hash(seed=2),
        polars.struct(paths, letters_only(col("target"))).hash(seed=3).alias("pair"),
        "line",
    )


def examine(
    exam: CorpusExamination, corpus: CorpusSettings, settings: Settings, progress: Callable[[int], None]
) -> CorpusExamination:
    """Read a whole corpus and note every fault."""
    languages = (settings.source, settings.target)
    profile: Profile | None = None
    blocks = note_layout(exam, read_corpus(corpus, settings))
    try:
        for number, table in enumerate(split_pieces(blocks, exam.rejects)):
            exam.pairs += table.height
            has_text_source, has_labels = settings.input.kind == "text", settings.output.kind == "labels"
            side = "source" if has_labels else "target"  # the only one with text, if not both have
            both_are_text = has_text_source and not has_labels
            texts = table if both_are_text else table.with_columns(source=side, target=side)
            if profile is None:
                clean = settings.clean
                profile = make_profile(texts, max_words=clean.max_words, max_length_ratio=clean.max_length_ratio)
                exam.head = table.head(HEAD_PAIRS)
            if both_are_text:
                examine_piece(exam, table, profile, languages, number)
            elif has_text_source or not has_labels:
                examine_side(exam, texts, profile, side, settings.source if has_labels else settings.target)
            match settings.input:
                case ImageInputSettings() | AudioInputSettings() | GraphInputSettings() as media:
                    note_media(exam, table, media, progress, per_slot=settings.output.per_slot)
                case _:
                    exam.keys.append(make_duplicate_keys(texts))
                    progress(table.height)
    except UnequalCounts as error:
        note_unequal_counts(exam, error)
    if not exam.pairs and not exam.rejects and not exam.lines:
        exam.note("no_pairs", "pair", np.array([1]), "")
    for side in ("source", "target")[: len(exam.files)]:
        if rejects := [reject for reject in exam.rejects if reject.file == exam.file(side)]:
            lines = np.array([reject.line for reject in rejects])
            exam.note("rejected", side, lines, rejects[0].sample, rejects[0].reason)
    return exam


def examine_piece(
    exam: CorpusExamination, table: polars.DataFrame, profile: Profile, languages: tuple[str, str], number: int
) -> None:
    for fault, (left, right) in apply_rules(table, profile).items():
        if RULES[fault].pair is not None:
            exam.note_rows(fault, "pair", left, table)
        else:
            exam.note_rows(fault, "source", left, table)
            exam.note_rows(fault, "target", right, table)
    exam.note_rows("numbers", "pair", differing_numbers(table), table)
    for side in ("source", "target"):
        count_lower_case(exam, table, side)
    if not has_enough_lines(table["source"], table["target"]):
        return
    exam.is_large_enough = True
    evidence = Evidence(table["source"], table["target"])
    if evidence.known_share >= MIN_KNOWN_SHARE:
        if evidence.support_nats < MIN_SUPPORT_NATS:
            exam.note_rows("not_parallel", "pair", np.ones(table.height, bool), table)
        else:
            note_shifts(exam, table, find_shifts(evidence), number)
    swapped, as_target, as_source = sort_lines_by_language(*evidence.words)
    exam.note_rows("swapped", "pair", swapped, table)
    exam.note_rows("untranslated", "source", as_target, table)
    exam.note_rows("untranslated", "target", as_source, table)
    for side, words, other in zip(("source", "target"), evidence.words, ("target", "source"), strict=True):
        exam.note_rows("truncated", side, find_truncated(table, words, other, side), table)
    for side, words, code, in_other in zip(
        ("source", "target"), evidence.words, languages, (as_target | swapped, as_source | swapped), strict=True
    ):
        note_language(exam, table, side, words, code, in_other)


def examine_side(exam: CorpusExamination, table: polars.DataFrame, profile: Profile, side: str, language: str) -> None:
    """A corpus of which only one side is text, here twice: rules that compare both sides do not apply."""
    rules = [name for name, rule in RULES.items() if rule.pair is None]
    for fault, (_, flags) in apply_rules(table, profile, rules).items():
        exam.note_rows(fault, side, flags, table)
    count_lower_case(exam, table, side)
    if has_enough_lines(table[side], table[side]):
        exam.is_large_enough = True
        words = index_words(table[side])
        note_language(exam, table, side, words, language, np.zeros(table.height, bool))


def count_lower_case(exam: CorpusExamination, table: polars.DataFrame, side: str) -> None:
    lower = (~col(side).str.contains(r"\p{Lu}")) & col(side).str.contains(r"\p{Ll}")
    exam.lower_case_lines[side] += int(table.select(lower.sum()).item())


def note_language(
    exam: CorpusExamination, table: polars.DataFrame, side: str, words: WordIndex, code: str, in_other: Bools
) -> None:
    """Note a side in a wrong language, or its lines in a third one, except those of `in_other`."""
    wrong, strange = identify_language(words, code)
    if wrong:
        detail = f"looks like {wrong}, not {base_language(code)}"
        exam.note_rows("language", side, np.ones(table.height, bool), table, detail)
    else:
        exam.note_rows("wrong_language", side, strange & ~in_other, table)


def note_media(
    exam: CorpusExamination,
    table: polars.DataFrame,
    settings: MediaSettings,
    progress: Callable[[int], None],
    *,
    per_slot: bool,
) -> None:
    """Read the files of a piece, note their faults, and keep their digests.

    With `per_slot`, a source may be in several splits if each of its slots is labeled in only one of them.
    """
    folder = exam.files[0].parent
    examined = examine_media(table["source"].to_list(), folder, settings, progress)
    examined = note_speeds(examined, table["target"].to_list())
    for kind in dict.fromkeys(kind for each in examined for kind in each.faults):
        flags = np.array([kind in each.faults for each in examined])
        exam.note_rows(kind, "source", flags, table, examined[int(flags.argmax())].faults[kind])
    digests = [each.digest for each in examined]
    if per_slot:
        rows, digests = label_slots(digests, table["target"].to_list())
        keys = make_media_keys(table[rows], folder, digests)
        exam.keys.append(keys.with_columns(pair=polars.struct("source", "pair").hash(seed=3)))
    else:
        exam.keys.append(make_media_keys(table, folder, digests))


def has_enough_lines(source: polars.Series, target: polars.Series) -> bool:
    """Whether there are enough distinct lines to learn which words belong together, and their language."""
    return min(source.n_unique(), target.n_unique()) >= MIN_DISTINCT_LINES


def note_shifts(exam: CorpusExamination, table: polars.DataFrame, shifts: Sequence[Shift], number: int) -> None:
    """Note the stretches of lines that are not parallel."""
    line = table["line"].to_numpy()
    for shift in shifts:
        row = table.row(shift.begin, named=True)
        exam.note("shift", "pair", line[shift.begin : shift.end], f"{row['source']}  |  {row['target']}")
        lag = "" if shift.lag is None else f": source line n belongs to target line n{shift.lag:+d}"
        detail = f"lines {line[shift.begin]:,} to {line[shift.end - 1]:,}{lag}"
        exam.details["shift", "pair"] = "; ".join(filter(None, (exam.details.get(("shift", "pair")), detail)))
    exam.shifts += [(number, shift) for shift in shifts]


def note_unequal_counts(exam: CorpusExamination, error: UnequalCounts) -> None:
    """Find where two files of different lengths diverge."""
    texts = [
        polars.Series(side, [line.decode(errors="replace") for line in islice(iterate_lines(path), MAX_UNEQUAL_LINES)])
        for side, path in (("source", error.source), ("target", error.target))
    ]
    shorter = min(map(len, texts))
    exam.pairs, exam.is_unpairable = min(error.counts), True
    exam.lines.clear()  # faults of mismatched pairs mean nothing
    begin, where = 0, "one of them is empty"
    if shorter:
        evidence = Evidence(texts[0], texts[1])
        exam.is_unpairable = (
            not has_enough_lines(*texts)
            or evidence.known_share < MIN_KNOWN_SHARE
            or evidence.support_nats < MIN_SUPPORT_NATS
        )
        shifts = find_shifts(evidence) or [find_split(evidence)]
        begin = min(shifts[0].begin, shorter)
        exam.shifts = [(0, shift) for shift in shifts]
        where = (
            f"they diverge near line {begin + 1:,}" if begin < shorter else "lines are missing at the end of one file"
        )
        where += " (uncertain, because there is little evidence)" if exam.is_unpairable else ""
    sample = "  |  ".join(text[begin] if begin < len(text) else "(nothing)" for text in texts)
    detail = f"{error.counts[0]:,} and {error.counts[1]:,}; {where}"
    exam.note("unequal", "pair", np.array([begin + 1]), sample, detail)


def note_duplicates(exams: Sequence[CorpusExamination]) -> None:
    """Note training pairs that occur earlier, in the same corpus or in another."""
    training = [exam for exam in exams if exam.split == "train"]
    keys = [
        piece.with_columns(corpus=polars.lit(number)) for number, exam in enumerate(training) for piece in exam.keys
    ]
    if not keys:
        return
    repeated = polars.concat(keys).filter(~col("pair").is_first_distinct() & (col("source") != 0))
    for number, exam in enumerate(training):
        lines = repeated.filter(corpus=number)["line"].to_numpy()
        if len(lines):
            exam.note("duplicate", "pair", lines, "")


def note_overlap(exams: Sequence[CorpusExamination]) -> None:
    """Note training pairs of which both sides or one side are in validation or test."""
    held_out_keys = [piece for exam in exams if exam.split != "train" for piece in exam.keys]
    if not held_out_keys:
        return
    held_out = polars.concat(held_out_keys)
    for exam in exams:
        if exam.split == "train" and exam.keys:
            keys = polars.concat(exam.keys)
            in_pair, in_source, in_target = (
                keys[side].is_in(held_out[side].unique().implode()) & (keys[side] != 0)
                for side in ("pair", "source", "target")
            )
            for fault, flags in (("overlap", in_pair), ("overlap_side", (in_source | in_target) & ~in_pair)):
                if flags.any():
                    exam.note(fault, "pair", keys["line"].to_numpy()[flags.to_numpy()], "")


def note_repeated_media(exams: Sequence[CorpusExamination], noun: str) -> None:
    """Note training pictures, recordings or graphs that are also under another path, or in validation or test."""
    keys = [piece.with_columns(exam=polars.lit(number)) for number, exam in enumerate(exams) for piece in exam.keys]
    if not keys:
        return
    table = polars.concat(keys).filter(col("source") != 0)
    training = [number for number, exam in enumerate(exams) if exam.split == "train"]
    held_out = table.filter(~col("exam").is_in(training)).unique("source", keep="first", maintain_order=True)
    in_training = table.filter(col("exam").is_in(training))
    first = in_training.unique("source", keep="first", maintain_order=True)
    copies = in_training.join(first, on="source", suffix="_other", maintain_order="left").filter(
        col("path") != col("path_other")
    )
    leaks = in_training.join(held_out, on="source", suffix="_other", maintain_order="left")
    for fault, repeated in ((f"duplicate_{noun}", copies), (f"{noun}_overlap", leaks)):
        for (number,), rows in repeated.group_by("exam", maintain_order=True):
            row = rows.row(0, named=True)
            file = Path(exams[row["exam_other"]].file("source")).name
            detail = f"line {row['line']:,} has the {noun} of line {row['line_other']:,} of {file}"
            exams[int(str(number))].note(fault, "source", rows["line"].to_numpy(), "", detail)


def note_lower_case(exams: Sequence[CorpusExamination]) -> None:
    """Note sides that have no capital letters in one corpus but have them in another."""
    for side in ("source", "target"):
        shares = {exam.name: exam.lower_case_lines[side] / exam.pairs for exam in exams if exam.pairs >= 50}
        if shares and min(shares.values()) < 0.5:
            for exam in exams:
                if shares.get(exam.name, 0.0) > 0.95:
                    detail = f"{shares[exam.name]:.0%} of its lines have no capital letter"
                    exam.note("lower_cased", side, np.array([1]), "", detail)

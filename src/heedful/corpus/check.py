"""`heedful check`: finds what is wrong with a corpus, where, the likely cause, and the fix.

report = heedful.check("heedful.toml")    # or: heedful.check("train.en", "train.de")
report.findings[0]        # the worst: kind, level, count, file:line, a sample, the likely cause, the fix
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars

from heedful.config import Settings, name_corpora
from heedful.corpus.examination import (
    NEED_MANY_LINES,
    CorpusExamination,
    examine,
    note_duplicates,
    note_lower_case,
    note_overlap,
    note_repeated_media,
)
from heedful.corpus.findings import ALL_RULES, LEVELS, MEDIA_RULES, Finding, Report
from heedful.corpus.parallel import WORD_PATTERN
from heedful.corpus.readers import resolve_files
from heedful.corpus.texts import Texts, settings_from_texts
from heedful.errors import HeedfulError, suggest_arguments
from heedful.inputs.kinds import NOUNS, make_input
from heedful.text.normalize import normalize_all
from heedful.text.tokenizer import UNK, train

MAX_SAMPLE_CHARACTERS = 160
FATAL_IF_HELD_OUT = tuple(  # validation and test keep every line
    f"{fault}_{nouns.source}" for fault in ("missing", "unreadable") for nouns in NOUNS.values()
)
COMPARES_SIDES = frozenset(
    {"unequal", "shift", "not_parallel", "swapped", "untranslated", "truncated", "numbers", "copy", "ratio"}
)
ALL_MEDIA_RULES = frozenset(kind for rules in MEDIA_RULES.values() for kind in rules)
UNCHECKED_KINDS: dict[str, frozenset[str]] = {  # by kind of sources
    "text": frozenset(ALL_MEDIA_RULES),
    "none": COMPARES_SIDES | ALL_MEDIA_RULES,
    **{kind: COMPARES_SIDES | {"overlap"} | ALL_MEDIA_RULES - rules.keys() for kind, rules in MEDIA_RULES.items()},
}
MAX_EXAMINED_BYTES = 100_000_000  # by `heedful init` and `heedful train`; larger corpora take minutes


@suggest_arguments
def check(
    source: Settings | Texts,
    target: Texts | None = None,
    *,
    pair: str | None = None,
    validation: Sequence[Texts] = (),
    test: Sequence[Texts] = (),
    columns: str | Sequence[str] | None = None,
    sheet: str | None = None,
    input: str | None = None,
    progress: Callable[[int], None] = lambda _pairs: None,
) -> Report:
    """Examine a corpus, or every corpus of a heedful.toml or of its settings; the worst findings come first.

    With `target`, both are files or lists of lines; otherwise `source` is a heedful.toml or a file with both sides.
    `pair` is the language pair, such as "en-de". `validation` and `test` are files or lists of both sides.
    `columns` and `sheet` are those of tables (.csv, .tsv, .xlsx), such as "2,3" or ["English", "German"]. `input` is
    the kind of sources: "text", "image", "audio" or "graph" (a table with paths of pictures, recordings or graphs), or
    "none" (one file with text).
    """
    with TemporaryDirectory() as folder:
        settings = settings_from_texts(
            source,
            target,
            Path(folder),
            pair=pair,
            validation=validation,
            test=test,
            columns=columns,
            sheet=sheet,
            input=input,
        )
        report = make_report(settings, examine_corpora(settings, progress))
    findings = (
        replace(finding, file=Path(finding.file).name) if finding.file.startswith(folder) else finding
        for finding in report.findings
    )
    return replace(report, findings=tuple(findings))


def examine_corpora(
    settings: Settings, progress: Callable[[int], None] = lambda _pairs: None
) -> list[CorpusExamination]:
    """Examine every corpus of every split, then duplicates and overlap between them."""
    exams = []
    for name, split, corpus in name_corpora(settings):
        files = resolve_files(corpus.files, settings.source, settings.target)
        exams.append(examine(CorpusExamination(name, split, files), corpus, settings, progress))
    note_duplicates(exams)
    if nouns := make_input(settings.input).nouns:
        note_repeated_media(exams, nouns.source)
    else:
        note_overlap(exams)
    note_lower_case(exams)
    return exams


def make_report(settings: Settings, exams: Sequence[CorpusExamination]) -> Report:
    """The findings of all examinations, with their levels, the worst first."""
    findings = []
    for exam in exams:
        for (fault, side), parts in exam.lines.items():
            rule, lines = ALL_RULES[fault], np.unique(np.concatenate(parts))
            total = exam.pairs + (len(lines) if fault == "rejected" else 0)  # rejected lines are in no pair
            share = len(lines) / max(total, 1)
            if share < rule.min_share:
                continue
            is_error = rule.error_share is not None and share > rule.error_share
            is_error |= exam.split != "train" and fault in FATAL_IF_HELD_OUT
            level = "error" if is_error else rule.level
            findings.append(
                Finding(
                    fault, level, exam.name, exam.file(side), lines, len(lines), share,
                    exam.samples[fault, side][:MAX_SAMPLE_CHARACTERS], exam.details.get((fault, side), ""),
                )
            )  # fmt: skip
    tokens = measure_tokens(settings, exams)
    if tokens and (tokens["unknown"] > 0.01 or max(tokens.get(side, 0) for side in ("source", "target")) > 3.5):
        findings.append(Finding("fragments", "warning", "train", "", np.array([], np.int64), 0, 0.0, ""))
    findings.sort(key=lambda finding: (LEVELS.index(finding.level), -finding.share))
    layouts = {exam.name: exam.layout for exam in exams if exam.layout}
    unchecked = frozenset(kind for exam in exams if not exam.is_large_enough for kind in NEED_MANY_LINES)
    unchecked |= (
        {"overlap", "picture_overlap", "recording_overlap", "graph_overlap", "lower_cased"}
        if len(exams) == 1
        else set()
    )
    unchecked |= UNCHECKED_KINDS[settings.input.kind]
    unchecked |= COMPARES_SIDES if settings.output.kind == "labels" else set()
    return Report({exam.name: exam.pairs for exam in exams}, tuple(findings), tokens, layouts, unchecked)


def measure_tokens(
    settings: Settings, exams: Sequence[CorpusExamination], max_training_pairs: int = 8_000
) -> dict[str, float]:
    """Tokens per word of each side and the share of unknown tokens (or bytes), on held-out text."""
    heads = [exam.head for exam in exams if exam.split == "train" and exam.head is not None]
    if sum(head.height for head in heads) < 300:  # a tenth of them would be too few to measure
        return {}
    table = polars.concat(heads).sample(fraction=1.0, shuffle=True, seed=1)
    num_held_out = min(table.height // 10, 1_000)
    chosen = settings.tokenizer
    result: dict[str, float] = {}
    unknown = total = 0
    texts = {
        side: normalize_all(table[side].head(max_training_pairs + num_held_out).to_list())[0]
        for side in make_input(settings.input).text_sides
        if side == "source" or settings.output.kind == "text"
    }
    if not texts:  # files with labels
        return {}
    tokenizers: dict[str, Any] = {}
    for side, side_texts in texts.items():
        training_sides = texts.values() if chosen.shared else (side_texts,)
        training_texts = [text for training_side in training_sides for text in training_side[num_held_out:]]
        key = "both" if chosen.shared else side
        if key not in tokenizers:
            size = min(chosen.vocab_size, 300 + len(training_texts) // 2)
            try:
                tokenizers[key] = train(
                    chosen.kind,
                    training_texts,
                    size,
                    byte_fallback=chosen.byte_fallback,
                    character_coverage=chosen.character_coverage,
                )
            except HeedfulError:  # too little text for a vocabulary; `heedful prepare` reports it
                return {}
        tokenizer, held_out_texts = tokenizers[key], side_texts[:num_held_out]
        rows = tokenizer.encode(held_out_texts)
        pieces = [piece for row in rows for piece in tokenizer.pieces(row)]
        count = sum(map(len, rows))
        unknown += sum(row.count(UNK) for row in rows) + sum(piece.startswith("<0x") for piece in pieces)
        total += count
        result[side] = count / max(1, int(polars.Series(held_out_texts).str.count_matches(WORD_PATTERN).sum()))
    return result | {"unknown": unknown / max(total, 1), "vocabulary": float(tokenizer.size)}

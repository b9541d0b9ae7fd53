"""The doctor: what is wrong with a corpus, where, why, and what mends it.

    report = heedful.check("heedful.toml")
    report.findings[0]        # the worst: kind, level, how many, file:line, a sample, the likely cause, the fix

Corpora are read in pieces of 262,144 pairs; a piece is judged by the rules of `rules.py`, by whether its lines are
parallel at all (`parallel.py`) and in the right language (`languages.py`). Of what was read only 32 bytes a pair are
kept, to find duplicates and overlap between training and test.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars
from polars import col

from heedful.config import CorpusSettings, Settings, as_settings, name_corpora
from heedful.corpus.languages import named, short, sides
from heedful.corpus.parallel import WORDS, Evidence, Integers, Shift, parting, shifts
from heedful.corpus.readers import Block, Reject, UnequalCounts, lines, paired, read
from heedful.corpus.rules import RULES, Bools, Profile, Rule, find, letters_of, profiled
from heedful.errors import HeedfulError
from heedful.text.normalize import normalize_all
from heedful.text.tokenizer import UNK, train

PIECE = 1 << 18  # pairs judged at a time
LEAST_PARALLEL = 200  # different lines below which a corpus cannot be its own dictionary
LEAST_KNOWN = 0.5  # of the lines must have words that occur again; names and their transliterations, say, have none
LEAST_SUPPORT = 0.5  # nats a line that the two sides belong together; of sides that do not, it is 0 but for noise
MOST_UNEQUAL = 1 << 20  # lines of two files of different lengths that are compared
LEVELS = ("error", "warning", "note")

FIX = "heedful check --fix writes a copy without them"
CORPUS_RULES: dict[str, Rule] = {
    "no_pairs": Rule("there is nothing in it", "an empty file", "name the right file", alarm=0.0),
    "unequal": Rule(
        "the two files have different numbers of lines",
        "a line was lost or added on one side only, often by a program that splits at other characters than newlines",
        "mend the line named here, or: heedful check --fix pairs what is left again",
        alarm=0.0,
    ),
    "rejected": Rule(
        "lines that cannot be read",
        "bytes that are not UTF-8, NUL characters, records without two sides, very long lines",
        "they are left out and listed in rejects.jsonl; data.max_reject_share says how many are too many",
        alarm=0.05,
    ),
    "shift": Rule(
        "from here on the two sides are not translations of each other",
        "a line was lost or added on one side",
        "heedful check --fix pairs them again where it can, and leaves the rest out",
        alarm=0.0,
    ),
    "not_parallel": Rule(
        "the two sides do not look like translations of each other",
        "files that do not belong together, or one of them was sorted or shuffled on its own",
        "find the right pair of files",
        alarm=0.0,
    ),
    "language": Rule(
        "a side is not in the language it should be in",
        "source and target were given the wrong way round, or a wrong file",
        "change `source` and `target`, or name the files the other way round",
        alarm=0.0,
    ),
    "swapped": Rule(
        "source and target are the wrong way round",
        "two directions were put together",
        f"{FIX}, turned round",
        alarm=0.05,
    ),
    "untranslated": Rule("both sides are in the same language", "text that was never translated", FIX, alarm=0.1),
    "wrong_language": Rule("a line seems to be in a third language", "a mixed collection", FIX, "note", alarm=0.1),
    "duplicate": Rule(
        "pairs that occur more than once",
        "collections that contain each other; a model learns them by heart",
        "heedful prepare keeps the first of those that are the same to the letter (clean.duplicates)",
    ),
    "overlap": Rule(
        "training pairs that are also in validation or test",
        "the test set was drawn from the same collection; scores would be too good to be true",
        "heedful prepare leaves them out of training (clean.overlap); check --fix does too",
        alarm=0.0,
    ),
    "overlap_side": Rule(
        "training pairs of which one side is also in validation or test",
        "common sentences, or another translation of a test sentence",
        'clean.overlap = "either" leaves them out of training',
    ),
    "lower_cased": Rule(
        "a side is in lower case, and its other files are not",
        "a step of an older recipe; a model trained on it never writes a capital",
        "use the text from before",
        alarm=0.0,
    ),
    "fragments": Rule(
        "words fall into many tokens, or characters have none",
        "the vocabulary is too small for this language, or was made for another text",
        "a larger tokenizer.vocab_size, tokenizer.byte_fallback = true, or tokenizer.character_coverage = 1.0",
    ),
}
ALL_RULES = RULES | CORPUS_RULES


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of fault in one file."""

    kind: str  # a key of ALL_RULES
    level: str  # one of LEVELS
    corpus: str
    file: str
    lines: Integers  # every one of them, from 1
    count: int
    share: float  # of the corpus's pairs
    sample: str
    detail: str = ""

    @property
    def rule(self) -> Rule:
        """What it means, where it comes from, what mends it."""
        return ALL_RULES[self.kind]

    def to_dict(self) -> dict[str, Any]:
        """For machines; of many lines, the first hundred."""
        return {
            "kind": self.kind, "level": self.level, "corpus": self.corpus, "file": self.file, "count": self.count,
            "share": round(self.share, 6), "lines": self.lines[:100].tolist(), "sample": self.sample,
            "detail": self.detail, "what": self.rule.what, "cause": self.rule.cause, "fix": self.rule.fix,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """What the doctor says."""

    pairs: dict[str, int]  # by corpus
    findings: tuple[Finding, ...]  # the worst first
    tokens: dict[str, float]  # tokens per word of each side and the share of unknown tokens

    @property
    def errors(self) -> bool:
        """Whether something is so wrong that one should not train on it."""
        return any(finding.level == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            "errors": self.errors,
            "pairs": self.pairs,
            "tokens": self.tokens,
            "findings": [finding.to_dict() for finding in self.findings],
        }


@dataclass(slots=True, eq=False)
class Exam:
    """What was seen of one corpus."""

    name: str
    split: str
    files: tuple[Path, ...]
    pairs: int = 0
    lines: dict[tuple[str, str], list[Integers]] = field(default_factory=dict)  # by kind and side
    samples: dict[tuple[str, str], str] = field(default_factory=dict)
    details: dict[tuple[str, str], str] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    shifts: list[tuple[int, Shift]] = field(default_factory=list)  # with the number of their piece
    lost: bool = False  # of two files of different lengths: nobody can tell which lines go together
    keys: list[polars.DataFrame] = field(default_factory=list)
    low: dict[str, int] = field(default_factory=lambda: {"source": 0, "target": 0})  # lines without a capital
    head: polars.DataFrame | None = None

    def file(self, side: str) -> str:
        """The file a side is in."""
        return str(self.files[-1] if side == "target" else self.files[0])

    def note(self, fault: str, side: str, lines: Integers, sample: str, detail: str = "") -> None:
        """Add some lines with a fault."""
        self.lines.setdefault((fault, side), []).append(lines)
        self.samples.setdefault((fault, side), sample)
        if detail:
            self.details.setdefault((fault, side), detail)

    def flag(self, fault: str, side: str, flags: Bools, table: polars.DataFrame, detail: str = "") -> None:
        """Add the rows of a table that have a fault."""
        if flags.any():
            first = table.row(int(flags.argmax()), named=True)
            shown = f"{first['source']}  |  {first['target']}" if side == "pair" else first[side]
            self.note(fault, side, table["line"].to_numpy()[flags], shown, detail)


def pieces(blocks: Iterator[Block], rejects: list[Reject]) -> Iterator[polars.DataFrame]:
    """Blocks -> tables of PIECE rows: source, target, line."""
    some: list[Block] = []
    for block in blocks:
        some.append(block)
        rejects += block.rejects
        if sum(len(one.lines) for one in some) >= PIECE:
            yield table_of(some)
            some = []
    if some:
        yield table_of(some)


def table_of(blocks: Sequence[Block]) -> polars.DataFrame:
    """One table of several blocks."""
    return polars.DataFrame(
        {
            "source": polars.Series([text for block in blocks for text in block.source], dtype=polars.String),
            "target": polars.Series([text for block in blocks for text in block.target], dtype=polars.String),
            "line": polars.Series([line for block in blocks for line in block.lines], dtype=polars.Int64),
        }
    )


def keys_of(table: polars.DataFrame) -> polars.DataFrame:
    """64-bit keys of each side and of the pair, blind to case, spaces and punctuation; 0 where nothing is left."""
    bare_text = table.select(letters_of(col("source")), letters_of(col("target")), "line")
    return bare_text.select(
        polars.when(col("source") == "").then(0).otherwise(col("source").hash(seed=1)).alias("source"),
        polars.when(col("target") == "").then(0).otherwise(col("target").hash(seed=2)).alias("target"),
        polars.struct("source", "target").hash(seed=3).alias("pair"),
        "line",
    )


def examine(exam: Exam, corpus: CorpusSettings, settings: Settings, progress: Callable[[int], None]) -> Exam:
    """Read one corpus to its end and note every fault."""
    languages = (settings.source, settings.target)
    profile: Profile | None = None
    blocks = read(corpus.files, *languages, longest=settings.data.max_line_bytes)
    try:
        for number, table in enumerate(pieces(blocks, exam.rejects)):
            exam.pairs += table.height
            if profile is None:
                clean = settings.clean
                profile = profiled(table, longest_words=clean.max_words, largest_ratio=clean.max_length_ratio)
                exam.head = table.head(20_000)
            judge(exam, table, profile, languages, number)
            progress(table.height)
    except UnequalCounts as error:
        unequal(exam, error)
    if not exam.pairs and not exam.rejects and not exam.lines:
        exam.note("no_pairs", "pair", np.array([1]), "")
    for side in ("source", "target")[: len(exam.files)]:
        if some := [reject for reject in exam.rejects if reject.file == exam.file(side)]:
            exam.note("rejected", side, np.array([reject.line for reject in some]), some[0].sample, some[0].reason)
    return exam


def judge(exam: Exam, table: polars.DataFrame, profile: Profile, languages: tuple[str, str], number: int) -> None:
    """Every test of one piece."""
    for fault, (left, right) in find(table, profile).items():
        if RULES[fault].pair is not None:
            exam.flag(fault, "pair", left, table)
        else:
            exam.flag(fault, "source", left, table)
            exam.flag(fault, "target", right, table)
    exam.keys.append(keys_of(table))
    for side in ("source", "target"):
        lower = (~col(side).str.contains(r"\p{Lu}")) & col(side).str.contains(r"\p{Ll}")
        exam.low[side] += int(table.select(lower.sum()).item())
    if not telling(table["source"], table["target"]):
        return
    evidence = Evidence(table["source"], table["target"])
    if evidence.known >= LEAST_KNOWN:
        if evidence.support < LEAST_SUPPORT:
            exam.flag("not_parallel", "pair", np.ones(table.height, bool), table)
        else:
            misplaced(exam, table, shifts(evidence), number)
    as_target, as_source = sides(*evidence.words)
    both = as_target & as_source
    exam.flag("swapped", "pair", both, table)
    exam.flag("untranslated", "source", as_target & ~both, table)
    exam.flag("untranslated", "target", as_source & ~both, table)
    for side, words, code, elsewhere in zip(
        ("source", "target"), evidence.words, languages, (as_target, as_source), strict=True
    ):
        wrong, strange = named(words, code)
        if wrong:
            exam.flag("language", side, np.ones(table.height, bool), table, f"looks like {wrong}, not {short(code)}")
        else:
            exam.flag("wrong_language", side, strange & ~elsewhere, table)


def telling(source: polars.Series, target: polars.Series) -> bool:
    """Whether there are enough different lines to learn from them which words go together, and whose they are."""
    return min(source.n_unique(), target.n_unique()) >= LEAST_PARALLEL


def misplaced(exam: Exam, table: polars.DataFrame, found: Sequence[Shift], number: int) -> None:
    """Note the stretches of lines that are not parallel."""
    line = table["line"].to_numpy()
    for shift in found:
        row = table.row(shift.begin, named=True)
        exam.note("shift", "pair", line[shift.begin : shift.end], f"{row['source']}  |  {row['target']}")
        goes = "" if shift.lag is None else f": source line n goes with target line n{shift.lag:+d}"
        detail = f"lines {line[shift.begin]:,} to {line[shift.end - 1]:,}{goes}"
        exam.details["shift", "pair"] = "; ".join(filter(None, (exam.details.get(("shift", "pair")), detail)))
    exam.shifts += [(number, shift) for shift in found]


def unequal(exam: Exam, error: UnequalCounts) -> None:
    """Where do two files of different lengths part?"""
    texts = [
        polars.Series(side, [line.decode(errors="replace") for line in islice(lines(path), MOST_UNEQUAL)])
        for side, path in (("source", error.source), ("target", error.target))
    ]
    shorter = min(map(len, texts))
    exam.pairs, exam.lost = min(error.counts), True
    exam.lines.clear()  # of what was paired wrongly, nothing else can be said
    begin, where = 0, "one of them is empty"
    if shorter:
        evidence = Evidence(texts[0], texts[1])
        exam.lost = not telling(*texts) or evidence.known < LEAST_KNOWN or evidence.support < LEAST_SUPPORT
        found = shifts(evidence) or [parting(evidence)]
        begin = min(found[0].begin, shorter)
        exam.shifts = [(0, shift) for shift in found]
        where = f"they part near line {begin + 1:,}" if begin < shorter else "lines are missing at the end of one"
        where += " (a guess, as there is little to go by)" if exam.lost else ""
    sample = "  |  ".join(text[begin] if begin < len(text) else "(nothing)" for text in texts)
    detail = f"{error.counts[0]:,} against {error.counts[1]:,}; {where}"
    exam.note("unequal", "pair", np.array([begin + 1]), sample, detail)


def check(settings: Settings | str | Path, *, progress: Callable[[int], None] = lambda _pairs: None) -> Report:
    """Examine every corpus of the settings, or of a heedful.toml; the worst findings first."""
    settings = as_settings(settings)
    return report(settings, examine_all(settings, progress))


def examine_all(settings: Settings, progress: Callable[[int], None] = lambda _pairs: None) -> list[Exam]:
    """Every corpus of every split, and what they share."""
    languages = (settings.source, settings.target)
    exams = []
    for name, split, corpus in name_corpora(settings):
        exams.append(examine(Exam(name, split, paired(corpus.files, *languages)), corpus, settings, progress))
    repeated(exams)
    overlapping(exams)
    cased(exams)
    return exams


def repeated(exams: Sequence[Exam]) -> None:
    """Pairs of the training corpora that came before, in the same corpus or in another."""
    training = [exam for exam in exams if exam.split == "train"]
    keys = [
        piece.with_columns(corpus=polars.lit(number)) for number, exam in enumerate(training) for piece in exam.keys
    ]
    if not keys:
        return
    every = polars.concat(keys)
    again = every.filter(~col("pair").is_first_distinct() & (col("source") != 0))
    for number, exam in enumerate(training):
        rows = again.filter(corpus=number)["line"].to_numpy()
        if len(rows):
            exam.note("duplicate", "pair", rows, "")


def overlapping(exams: Sequence[Exam]) -> None:
    """Training pairs of which both sides, or one, are in validation or test."""
    held = [piece for exam in exams if exam.split != "train" for piece in exam.keys]
    if not held:
        return
    kept = polars.concat(held)
    for exam in exams:
        if exam.split == "train" and exam.keys:
            keys = polars.concat(exam.keys)
            pair, *either = (
                keys[side].is_in(kept[side].unique().implode()) & (keys[side] != 0)
                for side in ("pair", "source", "target")
            )
            one = (either[0] | either[1]) & ~pair
            for fault, flags in (("overlap", pair), ("overlap_side", one)):
                if flags.any():
                    exam.note(fault, "pair", keys["line"].to_numpy()[flags.to_numpy()], "")


def cased(exams: Sequence[Exam]) -> None:
    """A side that has no capitals in one file and has them in another."""
    for side in ("source", "target"):
        shares = {exam.name: exam.low[side] / exam.pairs for exam in exams if exam.pairs >= 50}
        if shares and min(shares.values()) < 0.5:
            for exam in exams:
                if shares.get(exam.name, 0.0) > 0.95:
                    exam.note(
                        "lower_cased", side, np.array([1]), "", f"{shares[exam.name]:.0%} of its lines have no capital"
                    )


def report(settings: Settings, exams: Sequence[Exam]) -> Report:
    """What was noted, weighed and ranked."""
    findings = []
    for exam in exams:
        for (fault, side), some in exam.lines.items():
            rule, every = ALL_RULES[fault], np.unique(np.concatenate(some))
            share = len(every) / max(exam.pairs, 1)
            if share < rule.report:
                continue
            level = "error" if rule.alarm is not None and share > rule.alarm else rule.level
            findings.append(
                Finding(
                    fault, level, exam.name, exam.file(side), every, len(every), share,
                    exam.samples[fault, side][:160], exam.details.get((fault, side), ""),
                )
            )  # fmt: skip
    tokens = tokenized(settings, exams)
    if tokens and (tokens["unknown"] > 0.01 or max(tokens["source"], tokens["target"]) > 3.5):
        findings.append(Finding("fragments", "warning", "train", "", np.array([], np.int64), 0, 0.0, ""))
    findings.sort(key=lambda finding: (LEVELS.index(finding.level), -finding.share))
    return Report({exam.name: exam.pairs for exam in exams}, tuple(findings), tokens)


def tokenized(settings: Settings, exams: Sequence[Exam], most: int = 8_000) -> dict[str, float]:
    """Tokens per word of each side, and the share of tokens that are unknown (or bytes), of text not trained on."""
    heads = [exam.head for exam in exams if exam.split == "train" and exam.head is not None]
    if not heads or sum(head.height for head in heads) < 100:
        return {}
    every = polars.concat(heads).sample(fraction=1.0, shuffle=True, seed=1)
    held = min(every.height // 10, 1_000)
    chosen = settings.tokenizer
    result: dict[str, float] = {}
    unknown = total = 0
    texts = {side: normalize_all(every[side].head(most + held).to_list())[0] for side in ("source", "target")}
    trained: dict[str, Any] = {}
    for side, every_text in texts.items():
        taught = [text for one in (texts.values() if chosen.shared else (every_text,)) for text in one[held:]]
        which = "both" if chosen.shared else side
        if which not in trained:
            size = min(chosen.vocab_size, 300 + len(taught) // 2)
            try:
                trained[which] = train(
                    chosen.kind,
                    taught,
                    size,
                    byte_fallback=chosen.byte_fallback,
                    character_coverage=chosen.character_coverage,
                )
            except HeedfulError:  # too little text for a vocabulary; `heedful prepare` says so where it matters
                return {}
        rows = trained[which].encode(every_text[:held])
        pieces_of_all = [piece for row in rows for piece in trained[which].pieces(row)]
        count = sum(map(len, rows))
        unknown += sum(row.count(UNK) for row in rows) + sum(piece.startswith("<0x") for piece in pieces_of_all)
        total += count
        result[side] = count / max(1, int(polars.Series(every_text[:held]).str.count_matches(WORDS).sum()))
    return result | {"unknown": unknown / max(total, 1), "vocabulary": float(trained[which].size)}

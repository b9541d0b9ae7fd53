"""What `heedful check` reports: the faults of whole corpora, findings, and the report."""

from dataclasses import dataclass
from typing import Any

from heedful.corpus.parallel import Integers
from heedful.corpus.rules import RULES, Rule

LEVELS = ("error", "warning", "note")
MAX_LISTED_LINES = 100  # of a finding, in JSON

FIX_BY_COPY = "heedful check --fix writes a copy without them"
CORPUS_RULES: dict[str, Rule] = {
    "no_pairs": Rule("there is nothing in it", "an empty file", "name the right file", error_share=0.0),
    "unequal": Rule(
        "the two files have different numbers of lines",
        "a line was lost or added on one side only, often by a program that splits at other characters than newlines",
        "repair the line named here, or: heedful check --fix pairs what is left again",
        error_share=0.0,
    ),
    "rejected": Rule(
        "lines that cannot be read",
        "bytes that are not UTF-8, NUL characters, records without two sides, very long lines",
        "they are dropped and listed in rejects.jsonl; data.max_reject_share says how many are too many",
        error_share=0.05,
    ),
    "shift": Rule(
        "from here on the two sides are not translations of each other",
        "a line was lost or added on one side",
        "heedful check --fix pairs them again where it can, and drops the rest",
        error_share=0.0,
    ),
    "not_parallel": Rule(
        "the two sides do not look like translations of each other",
        "files that do not belong together, or one of them was sorted or shuffled on its own",
        "find the right pair of files",
        error_share=0.0,
    ),
    "language": Rule(
        "a side is not in the language it should be in",
        "source and target were given the wrong way round, or a wrong file",
        "change `source` and `target`, or name the files the other way round",
        error_share=0.0,
    ),
    "swapped": Rule(
        "source and target are the wrong way round",
        "two directions were put together",
        f"{FIX_BY_COPY}, turned round",
        error_share=0.05,
    ),
    "untranslated": Rule(
        "both sides are in the same language", "text that was never translated", FIX_BY_COPY, error_share=0.1
    ),
    "wrong_language": Rule(
        "a line seems to be in a third language", "a mixed collection", FIX_BY_COPY, "note", error_share=0.1
    ),
    "duplicate": Rule(
        "pairs that occur more than once",
        "collections that contain each other; a model learns them by heart",
        "heedful prepare keeps the first of those that are the same to the letter (clean.duplicates)",
    ),
    "overlap": Rule(
        "training pairs that are also in validation or test",
        "the test set was drawn from the same collection; scores would be too good to be true",
        "heedful prepare drops them from training (clean.overlap); check --fix does too",
        error_share=0.0,
    ),
    "overlap_side": Rule(
        "training pairs of which one side is also in validation or test",
        "common sentences, or another translation of a test sentence",
        'clean.overlap = "either" drops them from training',
    ),
    "lower_cased": Rule(
        "a side is in lower case, and its other files are not",
        "a step of an older recipe; a model trained on it never writes a capital",
        "use the text from before",
        error_share=0.0,
    ),
    "fragments": Rule(
        "words are split into many tokens, or characters have none",
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
    lines: Integers  # all of them, from 1
    count: int
    share: float  # of the corpus's pairs
    sample: str
    detail: str = ""

    @property
    def rule(self) -> Rule:
        """The rule: its meaning, likely cause and fix."""
        return ALL_RULES[self.kind]

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with the first MAX_LISTED_LINES lines."""
        return {
            "kind": self.kind, "level": self.level, "corpus": self.corpus, "file": self.file, "count": self.count,
            "share": round(self.share, 6), "lines": self.lines[:MAX_LISTED_LINES].tolist(), "sample": self.sample,
            "detail": self.detail, "what": self.rule.what, "cause": self.rule.cause, "fix": self.rule.fix,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `heedful check`."""

    pairs: dict[str, int]  # by corpus
    findings: tuple[Finding, ...]  # the worst first
    tokens: dict[str, float]  # tokens per word of each side and the share of unknown tokens

    @property
    def has_errors(self) -> bool:
        """Whether something is so wrong that one should not train on it."""
        return any(finding.level == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "errors": self.has_errors,
            "pairs": self.pairs,
            "tokens": self.tokens,
            "findings": [finding.to_dict() for finding in self.findings],
        }

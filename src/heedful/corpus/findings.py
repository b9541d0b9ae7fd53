"""The report of `heedful check`: its findings, and the faults of whole corpora."""

from dataclasses import dataclass, field
from typing import Any

from heedful.corpus.parallel import Integers
from heedful.corpus.rules import RULES, Rule

LEVELS = ("error", "warning", "note")
MAX_LISTED_LINES = 100  # of a finding, in JSON

FIX_BY_COPY = "heedful check --fix writes a copy without them"
CORPUS_RULES: dict[str, Rule] = {
    "no_pairs": Rule("the corpus has no pairs", "an empty file", "use the right file", error_share=0.0),
    "unequal": Rule(
        "the two files have different numbers of lines",
        "a line was lost or added on one side only, often by a program that does not split lines at newlines only",
        "repair the line named here, or use heedful check --fix, which pairs the remaining lines again",
        error_share=0.0,
    ),
    "rejected": Rule(
        "lines that cannot be read",
        "bytes that are not UTF-8, NUL characters, records without two sides, very long lines",
        "convert a file that is not UTF-8: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW; otherwise they are dropped and "
        "listed in rejects.jsonl (data.max_reject_share sets how many are allowed)",
        error_share=0.05,
    ),
    "line_breaks": Rule(
        "fields with line breaks",
        "text with several lines in one cell; a field that begins with a quote that is not closed",
        "each line break is read as a space, because a sentence is one line; check the quotes if pairs look wrong",
        level="note",
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
        "source and target are swapped, or a file is wrong",
        "swap `source` and `target`, or use the right files",
        error_share=0.0,
    ),
    "swapped": Rule(
        "source and target are swapped",
        "two translation directions were merged",
        "heedful check --fix writes a copy in which these pairs are swapped back",
        error_share=0.05,
    ),
    "untranslated": Rule(
        "both sides are in the same language", "text that was never translated", FIX_BY_COPY, error_share=0.1
    ),
    "wrong_language": Rule(
        "a line seems to be in a third language", "a mixed collection", FIX_BY_COPY, "note", error_share=0.1
    ),
    "numbers": Rule(
        "numbers that only one side has",
        "a wrong or changed translation; a model trained on it writes wrong numbers",
        f"correct them, or: {FIX_BY_COPY}",
    ),
    "truncated": Rule(
        "a side ends too early",
        "text that was cut at a maximum length, or a translation that was never finished",
        f"use the complete text, or: {FIX_BY_COPY}",
        error_share=0.1,
        min_share=0.003,  # of clean lines of Tatoeba, 0.1 % look truncated
    ),
    "duplicate": Rule(
        "pairs that occur more than once",
        "collections that overlap; a model memorizes such pairs",
        "heedful prepare keeps only the first of identical pairs (clean.duplicates)",
    ),
    "overlap": Rule(
        "training pairs that are also in validation or test",
        "the test set was drawn from the same collection; scores would be too high",
        "heedful prepare (clean.overlap) and heedful check --fix drop them from training",
        error_share=0.0,
    ),
    "overlap_side": Rule(
        "training pairs of which one side is also in validation or test",
        "common sentences, or another translation of a test sentence",
        'clean.overlap = "either" drops them from training',
    ),
    "lower_cased": Rule(
        "a side is in lower case here, but not in other files",
        "lower-casing in an older pipeline; a model trained on it never writes capital letters",
        "use the original text",
        error_share=0.0,
    ),
    "fragments": Rule(
        "words are split into many tokens, or some characters have no token",
        "the vocabulary is too small for this language, or was trained on other text",
        "set a larger tokenizer.vocab_size, tokenizer.byte_fallback = true, or tokenizer.character_coverage = 1.0",
    ),
}
PICTURE_RULES: dict[str, Rule] = {
    "missing_picture": Rule(
        "pictures that do not exist",
        "wrong paths: they are relative to the directory of the file with the captions",
        "correct the paths; heedful prepare drops such pairs from training, but not from validation and test",
        error_share=0.05,
    ),
    "unreadable_picture": Rule(
        "pictures that cannot be read",
        "incomplete downloads, web pages saved as pictures, other formats than PNG, JPEG, GIF, WebP and BMP",
        "replace them; heedful prepare drops such pairs from training, but not from validation and test",
        error_share=0.05,
    ),
    "one_color": Rule(
        "pictures of one color",
        "placeholders, or transparent pictures whose content is white",
        "replace them, or remove their lines",
        error_share=0.1,
    ),
    "small_picture": Rule(
        "pictures that are much smaller than the input",
        "thumbnails or placeholders",
        "use larger versions, or set a smaller input.height and input.width",
    ),
    "narrow_picture": Rule(
        "pictures that are mostly padding, because they are very wide or very high",
        "banners, strips or lines of text in an input of another shape",
        "set input.height and input.width in the shape of the pictures, or cut the pictures into parts",
    ),
    "duplicate_picture": Rule(
        "pictures that are also stored under another name",
        "collections that overlap; copies in another format",
        "remove the copies; captions of one picture should name the same file",
    ),
    "picture_overlap": Rule(
        "training pictures that are also in validation or test",
        "the test set was drawn from the same collection; scores would be too high",
        "remove these lines from training, or move all lines of a picture to the same split",
        error_share=0.0,
    ),
}
SOUND_RULES: dict[str, Rule] = {
    "missing_recording": Rule(
        "recordings that do not exist",
        "wrong paths: they are relative to the directory of the file with the transcripts",
        "correct the paths; heedful prepare drops such pairs from training, but not from validation and test",
        error_share=0.05,
    ),
    "unreadable_recording": Rule(
        "recordings that cannot be read",
        "incomplete downloads, other formats than WAV, FLAC, OGG and MP3, more than input.max_seconds",
        "replace or cut them; heedful prepare drops such pairs from training, but not from validation and test",
        error_share=0.05,
    ),
    "silent": Rule(
        "recordings of silence",
        "a microphone that was off, or a wrong channel",
        "replace them, or remove their lines",
        error_share=0.1,
    ),
    "clipped": Rule(
        "recordings that are clipped",
        "they were recorded too loudly: the tops of their waves are cut off",
        "record them again, or keep them if the model will hear such recordings",
    ),
    "low_rate": Rule(
        "recordings with fewer samples per second than the input",
        "telephone recordings; their high tones are missing",
        "set a lower input.rate, or use the original recordings",
    ),
    "speed": Rule(
        "transcripts that are much too long or too short for their recording",
        "recordings that were cut, or transcripts of other recordings",
        "listen to some of them; correct or remove their lines",
    ),
    "duplicate_recording": Rule(
        "recordings that are also stored under another name",
        "collections that overlap; copies in another format",
        "remove the copies",
    ),
    "recording_overlap": Rule(
        "training recordings that are also in validation or test",
        "the test set was drawn from the same collection; scores would be too high",
        "remove these lines from training, or move all lines of a recording to the same split",
        error_share=0.0,
    ),
}
GRAPH_RULES: dict[str, Rule] = {
    "missing_graph": Rule(
        "graphs that do not exist",
        "wrong paths: they are relative to the directory of the file with the labels",
        "correct the paths; heedful prepare drops such pairs from training, but not from validation and test",
        error_share=0.05,
    ),
    "unreadable_graph": Rule(
        "graphs that cannot be read",
        "no nodes, edges between nodes that do not exist, other numbers of features, more nodes or neighbors than the "
        "limits",
        "repair them, or set input.features, input.max_nodes and input.max_neighbors; heedful prepare drops such pairs "
        "from training, but not from validation and test",
        error_share=0.05,
    ),
    "no_edges": Rule(
        "graphs without edges between different nodes",
        "edges that were lost; such nodes attend only to themselves",
        "add the edges, or use a model that needs none",
    ),
    "repeated_edges": Rule(
        "graphs that list an edge several times",
        "graphs that were merged, or edges with several types",
        "each edge counts once; write how often it occurs into the features if it matters",
        level="note",
    ),
    "duplicate_graph": Rule(
        "graphs that are also stored under another name",
        "collections that overlap",
        "remove the copies; labels of one graph should name the same file",
    ),
    "graph_overlap": Rule(
        "training graphs that are also in validation or test",
        "the test set was drawn from the same collection; scores would be too high. With a label per node, the same "
        "node is labeled twice",
        "remove these lines from training, or move all lines of a graph to the same split; with a label per node, "
        "write ? for the nodes of other splits",
        error_share=0.0,
    ),
}
MEDIA_RULES = {"image": PICTURE_RULES, "audio": SOUND_RULES, "graph": GRAPH_RULES}  # by the kind of the input
ALL_RULES = RULES | CORPUS_RULES | PICTURE_RULES | SOUND_RULES | GRAPH_RULES


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
    layouts: dict[str, str] = field(default_factory=dict)  # corpus -> how its table is read, in words
    unchecked: frozenset[str] = frozenset()  # kinds of findings that need more lines, or a second corpus

    @property
    def has_errors(self) -> bool:
        """Whether a finding is so severe that you should not train on this corpus."""
        return any(finding.level == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        return {
            "errors": self.has_errors,
            "pairs": self.pairs,
            "layouts": self.layouts,
            "tokens": self.tokens,
            "findings": [finding.to_dict() for finding in self.findings],
        }

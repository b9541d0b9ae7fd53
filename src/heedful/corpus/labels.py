"""Whether the targets of a corpus are labels: a small closed set, such as `positive` and `negative`."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from heedful.corpus.readers import pair_format, read_pairs
from heedful.corpus.tables import TABLES, Selection, open_table

MAX_LABELS = 100
MIN_PAIRS_PER_LABEL = 10
MAX_LABEL_CHARACTERS = 60
MIN_VARIED_SHARE = 0.3  # of the texts that are labeled: many occur only once
MAX_READ_PAIRS = 20_000


class LabeledText(NamedTuple):
    """A corpus of texts with labels."""

    texts: Sequence[str]  # those that were read to find out
    labels: Sequence[str]  # the different ones
    columns: tuple[str, ...]  # of text and label in a table; empty if they are the usual ones


def find_labels(files: Sequence[str], columns: Sequence[str] = (), sheet: str | None = None) -> LabeledText | None:
    """The labels of a corpus; None if its targets are not a small closed set.

    In a table of two columns without `columns`, either may be the labels.
    """
    for candidate in candidate_columns(files, columns, sheet):
        texts, targets = read_beginning(files, candidate, sheet)
        counts = Counter(target.strip() for target in targets)
        header = targets[0].strip() if candidate and targets and counts[targets[0].strip()] == 1 else None
        names = (texts[0].strip(), header) if header else ()
        if header:
            texts, targets = texts[1:], targets[1:]
            del counts[header]
        if is_closed_set(texts, counts):
            by_name = tuple(name for name in names if name) if not columns else ()
            return LabeledText(texts, sorted(counts), by_name or tuple(candidate if not columns else ()))
    return None


def candidate_columns(files: Sequence[str], columns: Sequence[str], sheet: str | None) -> list[Sequence[str]]:
    """The columns that may be text and label."""
    path = Path(files[0])
    if len(files) > 1 or columns or pair_format(path) not in TABLES:
        return [columns]
    widths = Counter(len(record.fields) for record in open_table(path, Selection((), sheet)).head)
    return [("1", "2"), ("2", "1")] if widths.most_common(1)[:1] and widths.most_common(1)[0][0] == 2 else []


def read_beginning(files: Sequence[str], columns: Sequence[str], sheet: str | None) -> tuple[list[str], list[str]]:
    """The first texts and targets of a corpus."""
    texts: list[str] = []
    targets: list[str] = []
    for block in read_pairs(files, "und", "labels", columns=columns, sheet=sheet):
        texts += block.source
        targets += block.target
        if len(texts) >= MAX_READ_PAIRS:
            break
    return texts, targets


def is_closed_set(texts: Sequence[str], counts: Counter[str]) -> bool:
    """Whether there are few different targets, each short and frequent, for many different texts."""
    return (
        1 < len(counts) <= MAX_LABELS
        and len(texts) >= MIN_PAIRS_PER_LABEL * len(counts)
        and all(0 < len(label) <= MAX_LABEL_CHARACTERS for label in counts)
        and len(set(texts)) >= max(MIN_VARIED_SHARE * len(texts), 2 * len(counts))
    )

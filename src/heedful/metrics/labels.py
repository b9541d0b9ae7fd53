"""Scores of classifiers: macro F1, and the confusion table.

F1 of a label = 2 right / (predicted + true)        macro F1 = its mean over the labels that occur
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.base import Metric, Score

from heedful.errors import HeedfulError
from heedful.metrics.means import MeanSignature

MAX_LABELS = 1_000
UNKNOWN = ("?", "\u2047")  # labels of slots that do not count: not known, or not in the vocabulary of the targets


class MacroF1(Metric):
    """100 mean_label F1(label), over the labels that occur in hypotheses or references, as in scikit-learn.

    Of several references, the one that equals the hypothesis counts, or else the first.
    """

    _SIGNATURE_TYPE = MeanSignature

    def __init__(self, signature_fields: dict[str, str], references: Sequence[Sequence[str]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name, self.signature_fields = "F1", signature_fields
        self.references = [[line.strip() for line in lines] for lines in references]
        self._ref_cache: Any = self.references  # sacreBLEU's paired tests look at it
        self.num_refs = len(references)

    def _extract_corpus_statistics(self, hypotheses: Sequence[str], references: Any) -> Any:  # noqa: ARG002
        """A row per line: one-hot counts of right, predicted and true labels."""
        predicted = [line.strip() for line in hypotheses]
        true = [
            hypothesis if hypothesis in choices else choices[0]
            for hypothesis, choices in zip(predicted, zip(*self.references, strict=True), strict=True)
        ]
        labels = sorted({*predicted, *(label for lines in self.references for label in lines)})
        if len(labels) > MAX_LABELS:
            raise HeedfulError(
                f"macro F1 is for labels of a small set, but there are {len(labels):,} different lines: remove f1"
            )
        number = {label: index for index, label in enumerate(labels)}
        rows, statistics = np.arange(len(true)), np.zeros((len(true), 3, len(labels)), np.uint8)
        columns = [np.array([number[label] for label in side], dtype=int) for side in (predicted, true)]
        statistics[rows, 1, columns[0]] = statistics[rows, 2, columns[1]] = 1
        statistics[:, 0] = statistics[:, 1] & statistics[:, 2]
        return list(statistics.reshape(len(true), -1))

    def _compute_score_from_stats(self, stats: Any) -> Score:
        right, predicted, true = np.asarray(stats, dtype=float).reshape(3, -1)
        occurs = predicted + true > 0
        return Score(self.name, float(100 * (2 * right[occurs] / (predicted + true)[occurs]).mean()))

    def _aggregate_and_compute(self, stats: Any) -> Score:
        return self._compute_score_from_stats(np.asarray(stats, dtype=float).sum(0))

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Sequence[Any]) -> dict[str, Any]:
        return {"references": refs}

    def _compute_segment_statistics(self, hypothesis: Any, ref_kwargs: dict[str, Any]) -> list[float]:
        raise NotImplementedError("labels are counted for all lines together")


@dataclass(frozen=True)
class Confusion:
    """How often each true label (a row) was predicted as each label (a column)."""

    labels: tuple[str, ...]  # the most frequent true labels first
    counts: NDArray[np.int64]

    def scores(self, label: str) -> tuple[float, float, float]:
        """Precision, recall and F1 of a label, in percent; 0 where nothing was counted."""
        index = self.labels.index(label)
        right = int(self.counts[index, index])
        predicted, true = int(self.counts[:, index].sum()), int(self.counts[index].sum())
        ratios = ((right, predicted), (right, true), (2 * right, predicted + true))
        precision, recall, f1 = (100 * count / max(1, total) for count, total in ratios)
        return precision, recall, f1


def count_confusions(predicted: Sequence[str], true: Sequence[str]) -> Confusion:
    """The confusion table of labels."""
    frequencies = Counter(true)
    labels = sorted({*predicted, *true}, key=lambda label: (-frequencies[label], label))
    number = {label: index for index, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)), np.int64)
    for (row, column), times in Counter(zip(true, predicted, strict=True)).items():
        counts[number[row], number[column]] = times
    return Confusion(tuple(labels), counts)


def split_slots(outputs: Sequence[str], references: Sequence[str]) -> tuple[list[str], list[str]]:
    """Lines with a label per slot as two lists of labels, without slots whose true label is unknown."""
    predicted: list[str] = []
    true: list[str] = []
    for output, reference in zip(outputs, references, strict=True):
        labels = output.split(" ")
        for slot, label in enumerate(reference.split(" ")):
            if label not in UNKNOWN:
                predicted.append(labels[slot] if slot < len(labels) else "")
                true.append(label)
    return predicted, true

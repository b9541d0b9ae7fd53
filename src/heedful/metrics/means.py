"""Metrics that sacreBLEU lacks, as subclasses of its `Metric`: means over sentences (ROUGE, METEOR), and NIST.

This makes sacreBLEU's bootstrap and paired tests available for them, as for BLEU.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric, Score, Signature

from heedful import __version__
from heedful.metrics.ngrams import NistCounts, ngram_information, nist, nist_counts


class MeanSignature(Signature):
    """sacreBLEU's signature, with the fields of the metric and heedful's version."""

    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        self.info |= args["signature_fields"] | {"version": f"heedful-{__version__}"}


class SentenceMean(Metric):
    """scale / N sum_i max_r value(hypothesis_i, reference_ir), or with the mean over r"""

    _SIGNATURE_TYPE = MeanSignature

    def __init__(
        self,
        name: str,
        value: Callable[[Any, Any], float],
        prepare: Callable[[str], Any],
        signature_fields: dict[str, str],
        references: Sequence[Sequence[str]],
        combine: Callable[[list[float]], float] = max,
        scale: float = 100.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name, self.value, self.prepare, self.combine, self.scale = name, value, prepare, combine, scale
        self.signature_fields = signature_fields
        self._ref_cache = self._cache_references(references)

    def _preprocess_segment(self, sent: str) -> Any:
        return self.prepare(sent)

    def _extract_reference_info(self, refs: Sequence[Any]) -> dict[str, Any]:
        return {"references": refs}

    def _compute_segment_statistics(self, hypothesis: Any, ref_kwargs: dict[str, Any]) -> list[float]:
        return [self.combine([self.value(hypothesis, reference) for reference in ref_kwargs["references"]]), 1.0]

    def _compute_score_from_stats(self, stats: Any) -> Score:
        return Score(self.name, float(self.scale * stats[0] / stats[1]))

    def _aggregate_and_compute(self, stats: Any) -> Score:
        return self._compute_score_from_stats(np.asarray(stats, dtype=float).sum(0))


class Nist(Metric):
    """NIST; resampling keeps the information of n-grams, which is that of all references."""

    _SIGNATURE_TYPE = MeanSignature

    def __init__(
        self,
        prepare: Callable[[str], list[str]],
        signature_fields: dict[str, str],
        references: Sequence[Sequence[str]],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name, self.prepare, self.signature_fields = "NIST", prepare, signature_fields
        self.information = ngram_information(prepare(line) for lines in references for line in lines)
        self._ref_cache = self._cache_references(references)

    def _preprocess_segment(self, sent: str) -> Any:
        return self.prepare(sent)

    def _extract_reference_info(self, refs: Sequence[Any]) -> dict[str, Any]:
        return {"references": refs}

    def _compute_segment_statistics(self, hypothesis: Any, ref_kwargs: dict[str, Any]) -> list[float]:
        counts = nist_counts(hypothesis, ref_kwargs["references"], self.information)
        return [*counts.information, *counts.totals, counts.length, counts.reference_length]

    def _compute_score_from_stats(self, stats: Any) -> Score:
        *sums, length, reference_length = map(float, stats)
        order = len(sums) // 2
        counts = NistCounts(tuple(sums[:order]), tuple(map(int, sums[order:])), int(length), reference_length)
        return Score(self.name, nist(counts))

    def _aggregate_and_compute(self, stats: Any) -> Score:
        return self._compute_score_from_stats(np.asarray(stats, dtype=float).sum(0))

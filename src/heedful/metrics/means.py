"""Metrics that are means over sentences (ROUGE, exact match), as subclasses of sacreBLEU's `Metric`.

This makes sacreBLEU's bootstrap and paired tests available for them, as for BLEU.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric, Score, Signature

from heedful import __version__


class MeanSignature(Signature):
    """sacreBLEU's signature, with the fields of the metric and heedful's version."""

    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        self.info |= args["signature_fields"] | {"version": f"heedful-{__version__}"}


class SentenceMean(Metric):
    """100 / N sum_i max_r value(hypothesis_i, reference_ir)"""

    _SIGNATURE_TYPE = MeanSignature

    def __init__(
        self,
        name: str,
        value: Callable[[Any, Any], float],
        prepare: Callable[[str], Any],
        signature_fields: dict[str, str],
        references: Sequence[Sequence[str]],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name, self.value, self.prepare = name, value, prepare
        self.signature_fields = signature_fields
        self._ref_cache = self._cache_references(references)

    def _preprocess_segment(self, sent: str) -> Any:
        return self.prepare(sent)

    def _extract_reference_info(self, refs: Sequence[Any]) -> dict[str, Any]:
        return {"references": refs}

    def _compute_segment_statistics(self, hypothesis: Any, ref_kwargs: dict[str, Any]) -> list[float]:
        return [max(self.value(hypothesis, reference) for reference in ref_kwargs["references"]), 1.0]

    def _compute_score_from_stats(self, stats: Any) -> Score:
        return Score(self.name, float(100 * stats[0] / stats[1]))

    def _aggregate_and_compute(self, stats: Any) -> Score:
        return self._compute_score_from_stats(np.asarray(stats, dtype=float).sum(0))

"""How good is a translation? sacreBLEU's metrics behind one small face: strings in, a number and its signature out.

    score("bleu", hypotheses, references)        # Score(name="bleu", value=41.2, signature="nrefs:1|case:mixed|...")

A value without its signature says little: two BLEUs of the same text may be three points apart.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.errors import HeedfulError, did_you_mean


@dataclass(frozen=True, slots=True)
class Score:
    """A value between 0 and 100 and what exactly it measures."""

    name: str
    value: float
    signature: str


def _bleu() -> Any:
    from sacrebleu import BLEU

    return BLEU()


def _chrf() -> Any:
    from sacrebleu import CHRF

    return CHRF()


def _ter() -> Any:
    from sacrebleu import TER

    return TER()


METRICS: dict[str, Callable[[], Any]] = {"bleu": _bleu, "chrf": _chrf, "ter": _ter}  # sacrebleu is imported on demand


def score(name: str, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """One metric of a whole corpus; every hypothesis has one reference."""
    if name not in METRICS:
        raise HeedfulError(f"unknown metric `{name}`" + did_you_mean(name, METRICS))
    if len(hypotheses) != len(references):
        raise HeedfulError(f"{len(hypotheses):,} translations but {len(references):,} references: they must be as many")
    if not hypotheses:
        raise HeedfulError("there is nothing to score")
    metric = METRICS[name]()
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(name, float(value), str(metric.get_signature()))

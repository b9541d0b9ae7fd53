"""X15: does attention show which source pieces a model used?

The model that comes with heedful translates sentences. Pieces of the source are replaced by <unk>, the most important
first, and log p of the translation is measured after each deletion. The area under this curve is small if the order is
good. It is normalized: 1 before any deletion, 0 after all.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.engines.base import EncodedSource
from heedful.engines.torch import TorchEngine
from heedful.inspection.evidence import AnswerScorer, attention_importance, deletion_curves, erasure_contributions
from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import Chart, Check, Estimate, Findings, ResultTable, Series, estimate_mean
from heedful.lab.tasks import read_sample
from heedful.search import Beam, DecodingLimits
from heedful.text.tokenizer import BOS, EOS, PAD, UNK
from heedful.translation.loading import load
from heedful.translation.translator import encode_texts

SAMPLE = "pt-en"
MAX_LENGTH = 60
MIN_DROP = 1.0  # nats between no deletions and all: below it, the normalized area is noise
NUM_ORDERS = 5  # random ones
SHOWN_PARTS = 10  # of a source, in the figure


def delete_pieces(lab: Lab, *, sentences: int, permuted: bool = False) -> Findings:
    """Compare orders of deletion; with `permuted`, the weights of attention change their slots at random."""
    translator = load(SAMPLE, threads=1)
    engine = translator.engine
    assert isinstance(engine, TorchEngine)
    draw = np.random.default_rng(lab.seed)
    lines = read_sample(SAMPLE, "test")[0]
    chosen = [lines[number] for number in draw.permutation(len(lines))[:sentences].tolist()]
    progress = lab.progress("sentences")
    curves: dict[str, list[NDArray[np.float64]]] = {"erasure": [], "attention": [], "random": []}
    for done, ids in enumerate(encode_texts(translator.source, chosen), 1):
        row = (*ids, EOS)
        tokens = torch.tensor([row])
        with torch.inference_mode():
            memory = engine.model.encoder(tokens, torch.ones_like(tokens, dtype=torch.bool))
        limits = DecodingLimits(BOS, EOS, MAX_LENGTH, suppress_tokens=(PAD, BOS))
        answer = Beam(5)(engine.model.decoder, memory, limits)[0].best.tokens
        (scored,) = engine.score_targets([EncodedSource(row, MAX_LENGTH)], [answer], attention=True)
        target = (*answer, EOS)
        scorer = AnswerScorer(engine.model.encoder, engine.model.decoder, BOS, UNK, row, target, engine.device)
        importance = attention_importance(scored.attention, None, len(target), len(row))
        if permuted:
            importance["attention"] = draw.permutation(importance["attention"])
        importance["erasure"] = erasure_contributions(scorer).sum(0)
        measured = deletion_curves(
            scorer, importance, range(len(ids)), max_deletions=len(ids), num_random_orders=NUM_ORDERS
        )
        if measured["random"][0] - measured["random"][-1] >= MIN_DROP:
            for name, each in curves.items():
                each.append(normalize_curve(measured[name]))
        progress(done, len(chosen))
    return summarize_areas(curves)


def normalize_curve(curve: Sequence[float]) -> NDArray[np.float64]:
    """(log p_k - log p_n) / (log p_0 - log p_n) for k = 0 .. n deletions"""
    values = np.array(curve)
    heights: NDArray[np.float64] = (values - values[-1]) / (values[0] - values[-1])
    return heights


def summarize_areas(curves: dict[str, list[NDArray[np.float64]]]) -> Findings:
    areas = {
        name: [float((heights[:-1] + heights[1:]).mean() / 2) for heights in each] for name, each in curves.items()
    }

    def compare(first: str, second: str) -> Estimate:
        return estimate_mean([one - other for one, other in zip(areas[first], areas[second], strict=True)])

    chance, better = compare("random", "attention"), compare("attention", "erasure")
    checks = (
        Check(f"attention finds used pieces better than chance: its area is smaller by {chance}", chance.low > 0),
        Check(f"erasing each piece alone finds them better than attention, by {better}", better.low > 0),
    )
    parts = np.linspace(0, 1, SHOWN_PARTS + 1)
    points = {
        name: np.array([np.interp(parts, np.linspace(0, 1, len(heights)), heights) for heights in each])
        for name, each in curves.items()
    }
    return Findings(
        ResultTable(
            ("order of deletion", "area under the curve"),
            tuple((name, estimate_mean(each)) for name, each in areas.items()),
        ),
        Chart(
            "log p of the translation while source pieces are deleted",
            "share of the pieces that are deleted",
            "log p (1: no deletion, 0: all)",
            tuple(
                Series(name, tuple((float(part), estimate_mean(each[:, at].tolist())) for at, part in enumerate(parts)))
                for name, each in points.items()
            ),
        ),
        checks,
        ("The mean of all heads and layers of cross-attention, summed over the translation.",),
    )


EXPERIMENT = Experiment(
    title="attention as evidence",
    claim="Attention finds the source pieces that a model used better than chance, but not as well as erasing them.",
    sizes={"quick": {"sentences": 50}, "default": {"sentences": 500}},
    function=delete_pieces,
    sabotage={"permuted": True},
)

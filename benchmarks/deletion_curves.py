"""Which method finds the source pieces that a model used: erasure, gradients, attention or chance?

For each caption, the pieces of the source are replaced by <unk> one after another, the most important first, and
log p of the model's own translation y is measured after each replacement. A method that finds what the model used makes
log p fall fast. Its figure is the normalized area under this curve, the mean over the path from 0 to n deletions of

    (log p_k - log p_n) / (log p_0 - log p_n)        log p_k: log p(y) after k deletions, n: all pieces of the source

Methods: erasure (each piece alone), integrated gradients, the mean of all cross-attention heads, the single head that
aligns words best (by the criterion of training, which may prefer a mean of heads), and the mean of random orders. The
order of a method is by the contribution to log p of the whole translation. Means over captions have 95 % bootstrap
intervals; methods are compared caption by caption.

Claims: the areas of erasure and of integrated gradients are smaller than that of random orders: the 95 % interval of
the paired difference is above 0. For attention nothing is claimed.

    python benchmarks/deletion_curves.py [--model MODEL] [--time 15m] [--captions 500] [--quick]

An English-German Transformer translates captions of Multi30k; without --model, it is trained first. Then the bundled
Portuguese-English model, which was trained to the end, translates as many short sentences of its own test set.
--quick: only the bundled model, 40 sentences.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from heedful.alignment import AlignmentMethod, all_methods, correlate_pieces
from heedful.engines.base import EncodedSource
from heedful.engines.torch import TorchEngine
from heedful.inspection.api import wrap_translator
from heedful.inspection.evidence import (
    AnswerScorer,
    attention_importance,
    deletion_curves,
    erasure_contributions,
    find_table,
    gradient_contributions,
)
from heedful.samples import read_part, sample_folder
from heedful.text.tokenizer import EOS
from heedful.trace import TraceAlignment
from heedful.translation.loading import load
from heedful.translation.translator import TranslationOptions, Translator, encode_texts
from report import DATA, header, read_lines, verdict

METHODS = {
    "erasure": "erasure",
    "gradients": "integrated gradients",
    "attention": "attention, mean of all heads",
    "head": "attention, best aligning head",
    "random": "random order",
}
TEST = "multi30k/test_2016_flickr.en.gz"
NUM_RANDOM_ORDERS = 5
MIN_DROP = 1.0  # nats between no deletions and all: below it, the normalized area is noise
SHOWN_DELETIONS = (1, 2, 3, 5)
NUM_SAMPLES = 10_000  # of the bootstrap

CORRELATED_PAIRS, ALIGNED_PAIRS = 20_000, 200  # of training and validation text, to choose a head

Array = NDArray[np.float64]
Pairs = Sequence[Sequence[str]]  # the lines of both sides
Claim = tuple[str, float, float]  # what, measured, minimum


def find_best_head(translator: Translator, train: Pairs, valid: Pairs) -> TraceAlignment:
    """The head whose strongest links have the highest total correlation, as in `heedful.alignment`, without means."""
    tokenizers = (translator.source, translator.target)
    train_ids, valid_ids = (
        [encode_texts(tokenizer, side[:count]) for tokenizer, side in zip(tokenizers, pairs, strict=True)]
        for pairs, count in ((train, CORRELATED_PAIRS), (valid, ALIGNED_PAIRS))
    )
    correlations = correlate_pieces(zip(*train_ids, strict=True))
    totals: dict[AlignmentMethod, float] = defaultdict(float)
    assert isinstance(translator.engine, TorchEngine)
    for source, target in zip(*valid_ids, strict=True):
        encoded = EncodedSource((*source, EOS), 1)
        (scored,) = translator.engine.score_targets([encoded], [target], attention=True)
        assert scored.attention is not None
        attention = scored.attention[..., :-1]
        related = np.array([[correlations.get((s, t), 0.0) for s in source] for t in target])
        for method in all_methods(*attention.shape[:2]):
            if method.head is not None:
                strongest = method(attention, len(target)).argmax(-1)
                totals[method] += float(related[np.arange(len(target)), strongest].sum())
    best = max(totals, key=lambda method: totals[method])
    return TraceAlignment(step=best.step, layer=best.layer, head=best.head)  # type: ignore[arg-type]


def measure_captions(
    translator: Translator, texts: Sequence[str], best_head: TraceAlignment
) -> tuple[list[dict[str, Array]], dict[str, float]]:
    """The deletion curves of each text by method, and the seconds that each method took."""
    model = wrap_translator(translator)
    options = TranslationOptions(split_sentences=False)
    lines = translator.make_segments(texts, options, 0)
    sources = [segment.source for line in lines for segment in line]
    assert isinstance(translator.engine, TorchEngine)
    curves, seconds = [], defaultdict[str, float](float)
    for number, source in enumerate(sources, 1):
        ((result, *_),) = translator.engine.translate([source], translator.search_options(options))
        answer = result.hypothesis.tokens
        (scored,) = translator.engine.score_targets([source], [answer], attention=True)
        target = (*answer, EOS)
        scorer = AnswerScorer(model.encoder, model.decoder, model.bos, model.unk, source.row, target, model.device)
        table = find_table(model.encoder, source.row)
        assert table is not None
        start = time.perf_counter()
        importance = {"erasure": erasure_contributions(scorer).sum(0)}
        seconds["erasure"] += time.perf_counter() - start
        start = time.perf_counter()
        gradients = gradient_contributions(scorer, table, step_groups=[range(len(target))])
        seconds["gradients"] += time.perf_counter() - start
        if gradients is not None:
            importance["gradients"] = gradients.sum(0)
        importance |= attention_importance(scored.attention, best_head, len(target), len(source.row))
        erasable = range(len(source.row) - len(translator.source_end))
        measured = deletion_curves(
            scorer, importance, erasable, max_deletions=len(erasable), num_random_orders=NUM_RANDOM_ORDERS
        )
        curves.append({name: np.array(curve) for name, curve in measured.items()})
        if number % 50 == 0:
            print(f"{number} of {len(sources)}", file=sys.stderr, flush=True)
    return curves, seconds


def normalized_area(curve: Array) -> float:
    """The area under (log p_k - log p_n) / (log p_0 - log p_n), with the k axis scaled to [0, 1]; trapezoids."""
    heights = (curve - curve[-1]) / (curve[0] - curve[-1])
    return float((heights[:-1] + heights[1:]).mean() / 2)


def bootstrap_interval(values: Array) -> tuple[float, float]:
    """The 95 % interval of the mean: resampled captions, percentiles of their means."""
    rows = np.random.default_rng(1).integers(0, len(values), (NUM_SAMPLES, len(values)))
    low, high = np.percentile(values[rows].mean(1), (2.5, 97.5))
    return float(low), float(high)


def compare_methods(label: str, curves: Sequence[dict[str, Array]]) -> list[Claim]:
    """Print the areas and their differences; returns the claims."""
    complete = Counter(frozenset(each) for each in curves)
    methods = [name for name in METHODS if name in max(complete, key=len)]
    kept = [each for each in curves if set(each) == set(methods) and each["random"][0] - each["random"][-1] >= MIN_DROP]
    print(f"captions measured: {len(kept)} of {len(curves)}; the others lack a method or lose under {MIN_DROP:g} nat")
    print(f"pieces of a source: {np.mean([len(each['random']) - 1 for each in kept]):.1f} on average")
    drop = [each["random"][0] - each["random"][-1] for each in kept]
    print(f"log p without deletions: {np.mean([each['random'][0] for each in kept]):.1f}", end="; ")
    print(f"it falls by {np.mean(drop):.1f} nats if all pieces are deleted")
    areas = {name: np.array([normalized_area(each[name]) for each in kept]) for name in methods}
    lost = " ".join(f"{count:>6}" for count in SHOWN_DELETIONS)
    print(f"\n{'area under the curve':32} {'mean':>6}  {'95 % interval':16} {'nats lost after':>15} {lost} deletions")
    for name in methods:
        low, high = bootstrap_interval(areas[name])
        losses = [
            np.mean([each[name][0] - each[name][count] for each in kept if len(each[name]) > count])
            for count in SHOWN_DELETIONS
        ]
        numbers = " ".join(f"{loss:6.2f}" for loss in losses)
        print(f"{METHODS[name]:32} {areas[name].mean():6.3f}  {low:.3f} to {high:.3f}   {'':15} {numbers}")
    print(f"\n{'paired differences':64} {'mean':>6}  {'95 % interval':18} smaller for")
    gains: dict[tuple[str, str], float] = {}
    for first, second in combinations(methods, 2):
        difference = areas[second] - areas[first]
        low, high = bootstrap_interval(difference)
        gains[first, second] = low
        names = f"{METHODS[second]} - {METHODS[first]}"
        share = f"{100 * (difference > 0).mean():.0f} % of captions"
        print(f"{names:64} {difference.mean():6.3f}  {low:6.3f} to {high:6.3f}   {share}")
    return [
        (f"{label}: area of random order - {METHODS[name]}, lower end of the interval", gains[name, "random"], 0.0)
        for name in ("erasure", "gradients")
    ]


def train_model(folder: str, duration: str) -> str:
    """An English-German Transformer, trained on Multi30k."""
    files = [str(DATA / "multi30k" / f"train.{code}.gz") for code in ("en", "de")]
    command = [sys.executable, "-m", "heedful", "train", *files, "--out", folder, "--time", duration]
    for code in ("en", "de"):
        command += ["--validation", str(DATA / "multi30k" / f"val.{code}.gz")]
    subprocess.run([*command, "--recipe", "transformer-tiny"], check=True, capture_output=True)
    return folder


def read_sample(part: str, language: str) -> list[str]:
    return read_part(sample_folder("pt-en"), part, language).decode().splitlines()


def measure_model(folder: str, texts: Sequence[str], train: Pairs, valid: Pairs) -> list[Claim]:
    translator = load(folder)
    best_head = find_best_head(translator, train, valid)
    description, scores = translator.bundle.description, translator.bundle.scores.get("validation", {})
    label = f"{description.source}-{description.target}"
    quality = "".join(f", {name} {metric['value']:.1f} on validation" for name, metric in scores.items())
    print(f"\n{label}: {description.parameters:,} weights{quality}")
    print(f"best aligning head: layer {best_head.layer}, head {best_head.head}, {best_head.step}")
    curves, seconds = measure_captions(translator, texts, best_head)
    print(", ".join(f"{METHODS[name]} {1000 * spent / len(curves):.0f} ms" for name, spent in seconds.items()), "each")
    return compare_methods(label, curves)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="only a bundled sample model, 40 sentences")
    options.add_argument("--model", metavar="MODEL", help="an English-German model (default: train one)")
    options.add_argument("--time", default="15m", help="to train a model in, if none is given")
    options.add_argument("--captions", type=int, default=500)
    arguments = options.parse_args()
    header(__file__)
    languages = ("pt", "en")
    train, valid, test = ([read_sample(part, code) for code in languages] for part in ("train", "valid", "test"))
    if arguments.quick:
        return verdict(measure_model("pt-en", test[0][:40], train, valid))
    captions = read_lines(TEST)[: arguments.captions]
    captions_train, captions_valid = (
        [read_lines(f"multi30k/{part}.{code}.gz") for code in ("en", "de")] for part in ("train", "val")
    )
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or train_model(folder, arguments.time)
        claims = measure_model(model, captions, captions_train, captions_valid)
    claims += measure_model("pt-en", test[0][: arguments.captions], train, valid)
    print()
    return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())

"""Is the confidence of a translation calibrated?

The bundled models are calibrated on the official validation sets of Tatoeba (2,000 sentences each), and measured on
a random part of the official test sets, and on text of other domains: news and encyclopedia text (newstest, FLORES) and
package descriptions (Debian). Nothing is claimed about the other domains; the table shows how much is lost there.

    coverage    the share of sentences whose chrF reaches the 90 % lower bound
    ECE         expected calibration error of P(chrF > c): the mean over ten groups of equal size, sorted by the
                probability, of |mean probability - share of sentences above c|; the largest of the six thresholds
    AURC        area under the risk-coverage curve: the mean over k of the mean of 100 - chrF over the k sentences with
                the highest scores; compared with ranking by mean log p in a paired bootstrap over the sentences

    python benchmarks/confidence.py [--quick] [--others COUNT] [--features FILE]

`--features` stores the measured features and reuses them in the next run, so that only the statistics are repeated.
HEEDFUL_DATA is the directory of the corpora (default: ../shared/data next to the repository).
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from dataclasses import astuple
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

import heedful
from heedful import samples
from heedful.bundle import open_bundle
from heedful.confidence import LABEL_THRESHOLD, THRESHOLDS, Calibration, Features, fit_calibration
from heedful.metrics.score import sentence_scores
from heedful.translation.calibrate import measure_sources, store_calibration
from heedful.translation.translator import Translator, encode_texts
from report import header, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.corpus_faults import lines

Array = NDArray[Any]
OTHER_DOMAINS = {
    "pt-en": {"FLORES": "flores-bergamot/test.{pt,en}", "Debian": "debian-parallel/en-pt_BR.{pt_BR,en}"},
    "ru-en": {"newstest": "newstest/newstest2018.en-ru.{ru,en}", "Debian": "debian-parallel/en-ru.{ru,en}"},
}
TATOEBA = {"pt-en": "tatoeba-eng-por/{}.{{por,eng}}", "ru-en": "tatoeba-eng-rus/{}.{{rus,eng}}"}
RESAMPLINGS = 1_000
ECE_GROUPS = 10
SEEN_SENTENCES = 4_000


class Measured:
    """Translated sentences: their features, chrF and sources."""

    def __init__(self, features: list[list[float]], chrf: list[float], sources: list[str]) -> None:
        self.features = [Features(*row) for row in features]
        self.chrf, self.sources = np.array(chrf), sources


def read_pairs(pattern: str, count: int | None = None) -> list[tuple[str, str]]:
    """The pairs of two files, such as test.{pt,en}; with `count`, a random sample."""
    stem, _, codes = pattern.partition("{")
    sides = [lines(f"{stem}{code}.gz") for code in codes.rstrip("}").split(",")]
    pairs = [pair for pair in zip(*sides, strict=True) if pair[0].strip() and pair[1].strip()]
    if count is None:
        return pairs
    if "test" in stem:  # the features were chosen on these sentences of the test sets
        seen = set(Random(1).sample(pairs, min(SEEN_SENTENCES, len(pairs) // 2)))
        pairs = [pair for pair in pairs if pair not in seen]
    return Random(2).sample(pairs, min(count, len(pairs)))


def measure(translator: Translator, pairs: list[tuple[str, str]]) -> list[list[Any]]:
    """The features, chrF and sources of translated pairs; texts that would be split are left out."""
    encoded = encode_texts(translator.source, [source for source, _ in pairs])
    rows = [row for row, ids in enumerate(encoded) if 0 < len(ids) <= translator.max_source_tokens]
    features, outputs = measure_sources(translator, [encoded[row] for row in rows])
    chrf = sentence_scores("chrf", outputs, [pairs[row][1] for row in rows])
    return [[astuple(each) for each in features], chrf, [pairs[row][0] for row in rows]]


def measure_all(pair: str, quick: bool, num_others: int, path: Path | None) -> dict[str, Measured]:
    """Validation set, test set and other domains; measurements that the file `path` has are not repeated."""
    cache = json.loads(path.read_text()) if path and path.exists() else {}
    translator = heedful.load(samples.model(pair), threads=1)
    sets = {"validation": TATOEBA[pair].format("valid"), "test": TATOEBA[pair].format("test"), **OTHER_DOMAINS[pair]}
    counts = {"validation": None, "test": 600 if quick else 9_000}
    for name, pattern in sets.items():
        key = f"{pair} {name}"
        if key not in cache and not (quick and name in OTHER_DOMAINS[pair]):
            start = time.monotonic()
            cache[key] = measure(translator, read_pairs(pattern, counts.get(name, num_others)))
            print(f"# {key}: {len(cache[key][1]):,} sentences in {time.monotonic() - start:.0f} s", flush=True)
            if path:
                path.write_text(json.dumps(cache))
    return {name: Measured(*cache[f"{pair} {name}"]) for name in sets if f"{pair} {name}" in cache}


# ---------------------------------------------------------------------------------------------------------- figures


def calibration_error(probabilities: Array, hits: Array) -> float:
    """sum over groups of n_g / n |mean probability - share of hits|"""
    groups = np.array_split(np.argsort(probabilities, kind="stable"), ECE_GROUPS)
    errors = [len(group) * abs(probabilities[group].mean() - hits[group].mean()) for group in groups]
    return float(sum(errors) / len(hits))


def risk_area(scores: Array, chrf: Array) -> float:
    """mean over k of the mean of 100 - chrF over the k highest scores"""
    risks = 100 - chrf[np.argsort(-scores, kind="stable")]
    return float((np.cumsum(risks) / np.arange(1, len(risks) + 1)).mean())


def compare_areas(scores: Array, baseline: Array, chrf: Array) -> float:
    """The share of bootstrap samples in which the scores are not better than the baseline: a one-sided p-value."""
    draw = np.random.default_rng(1)
    samples = (draw.integers(0, len(chrf), len(chrf)) for _ in range(RESAMPLINGS))
    losses = sum(risk_area(scores[rows], chrf[rows]) >= risk_area(baseline[rows], chrf[rows]) for rows in samples)
    return (losses + 1) / (RESAMPLINGS + 1)


def examine(name: str, calibration: Calibration, measured: Measured) -> dict[str, float]:
    """The figures of one text; prints a row."""
    chrf = measured.chrf
    bounds = np.array([calibration.lower_bound(each) for each in measured.features])
    probabilities = {c: np.array([calibration.probability(x, c) for x in measured.features]) for c in THRESHOLDS}
    scores = np.array([calibration.score(each) for each in measured.features])
    baseline = np.array([each.mean_probability for each in measured.features])  # exp of mean log p: the same ranking
    labels = np.array([calibration.confidence(each).label for each in measured.features])
    figures = {
        "coverage": float((chrf >= bounds).mean()),
        "ece": max(calibration_error(probabilities[c], chrf > c) for c in THRESHOLDS),
        "area": risk_area(scores, chrf),
        "baseline": risk_area(baseline, chrf),
        "p": compare_areas(scores, baseline, chrf),
    }
    print(
        f"{name:20} {len(chrf):6,} {chrf.mean():6.1f} {bounds.mean():6.1f} {figures['coverage']:9.1%} "
        f"{figures['ece']:6.3f} {figures['area']:6.2f} {figures['baseline']:10.2f} {figures['p']:6.3f}  "
        + "  ".join(describe_label(label, labels, chrf) for label in ("sure", "check", "unsure")),
        flush=True,
    )
    return figures


def describe_label(label: str, labels: Array, chrf: Array) -> str:
    """The share of sentences with a label, and the share of these whose chrF is above LABEL_THRESHOLD."""
    with_label = chrf[labels == label]
    above = f"{(with_label > LABEL_THRESHOLD).mean():4.0%}" if len(with_label) else "   -"
    return f"{len(with_label) / len(chrf):4.0%} {above}"


def measure_cost(pair: str, calibration: Calibration, count: int) -> None:
    """Print how much longer translation takes with confidence, in interleaved runs."""
    texts = [source for source, _ in read_pairs(TATOEBA[pair].format("test"), count)]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        shutil.copytree(samples.model(pair), model)
        store_calibration(open_bundle(model), calibration)
        models = {"torch": model}
        try:
            heedful.export(model, Path(folder) / "export", probes=texts[:20])
            models["ctranslate2"] = Path(folder) / "export"
        except heedful.HeedfulError as error:
            print(f"# no CTranslate2 here: {error}")
        for engine, path in models.items():
            translator = heedful.load(path, threads=1)
            assert translator(texts[0], confidence=True).confidence is not None
            seconds = dict.fromkeys((False, True), float("inf"))
            for with_confidence in (False, True) * 3:
                start = time.process_time()
                translator(texts, tokens=False, confidence=with_confidence)
                seconds[with_confidence] = min(seconds[with_confidence], time.process_time() - start)
            without, with_it = (len(texts) / seconds[key] for key in (False, True))
            print(f"{engine}: {without:,.0f} sentences per CPU second, with confidence {with_it:,.0f} "
                  f"({with_it / without:.2f} of the speed)", flush=True)  # fmt: skip


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="one model, 600 test sentences, no other domains")
    options.add_argument("--others", type=int, default=300, help="sentences of each other domain")
    options.add_argument("--features", type=Path, help="file to store measured features in, and to reuse them from")
    arguments = options.parse_args()
    header(__file__)
    path, quick = arguments.features, arguments.quick
    claims: list[tuple[str, float, float]] = []
    tables = {}
    for pair in ("pt-en",) if quick else samples.PAIRS:
        tables[pair] = measure_all(pair, quick, arguments.others, path)
    print(f"\n{'':20} {'lines':>6} {'chrF':>6} {'bound':>6} {'coverage':>9} {'ECE':>6} {'AURC':>6} {'mean log p':>10} "
          f"{'p':>6}  {'sure':>9}  {'check':>9}  {'unsure':>9}")  # fmt: skip
    for pair, measured in tables.items():
        validation = measured.pop("validation")
        calibration = fit_calibration(validation.features, validation.chrf.tolist(), validation.sources)
        for name, text in measured.items():
            figures = examine(f"{pair} {name}", calibration, text)
            if name == "test":
                slack = 0.02 if quick else 0.0  # 600 sentences
                claims += [
                    (f"{pair}: coverage of the 90 % bound", figures["coverage"], 0.88 - slack),
                    (f"{pair}: minus its coverage", -figures["coverage"], -0.92 - slack),
                    (f"{pair}: minus the expected calibration error", -figures["ece"], -0.05 - 2 * slack),
                    (f"{pair}: minus p that mean log p ranks as well", -figures["p"], -0.5 if quick else -0.05),
                ]
    print(f"(of each label: share of the sentences, and how many of them have chrF > {LABEL_THRESHOLD})\n")
    measure_cost("pt-en", calibration, 100)
    print()
    return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())

"""Calibrate a model: translate validation text once, fit `heedful.confidence` on it, and store the fitted numbers.

calibrate("runs/en-de", sources, references)    # at least 2,000 sentences that are not in the training text
heedful.load("runs/en-de")("Good morning", confidence=True).confidence
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from heedful.bundle import Bundle, open_bundle, replace_statistics
from heedful.confidence import Calibration, Features, check_sentences, fit_calibration
from heedful.engines.base import EncodedSource, SearchOptions
from heedful.errors import HeedfulError
from heedful.metrics.score import sentence_scores
from heedful.translation.translator import Translator, check_texts, encode_texts, load


def calibrate(model: str | Path, sources: Sequence[str], references: Sequence[str]) -> Calibration:
    """Fit the confidence of a model directory or run on pairs of sentences, and store it in the model directory."""
    if len(sources) != len(references):
        raise HeedfulError(
            f"got {len(sources):,} sources but {len(references):,} references: the numbers must be equal"
        )
    pairs = zip(check_texts(sources), check_texts(references), strict=True)
    pairs_with_text = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
    check_sentences(len(pairs_with_text))
    bundle = open_bundle(model)  # an export has no weights: it keeps the calibration of its original
    translator = load(bundle.folder)
    source_texts, reference_texts = zip(*pairs_with_text, strict=True)
    calibration = fit_translator(translator, encode_texts(translator.source, source_texts), reference_texts)
    store_calibration(translator.bundle, calibration)
    return calibration


def fit_translator(translator: Translator, sources: Sequence[Sequence[int]], references: Sequence[str]) -> Calibration:
    """Fit the confidence on encoded sources; those that are longer than in training, which are split, are left out."""
    rows = [row for row, ids in enumerate(sources) if 0 < len(ids) <= translator.max_source_tokens]
    check_sentences(len(rows))
    features, outputs = measure_sources(translator, [sources[row] for row in rows])
    chrf = sentence_scores("chrf", outputs, [references[row] for row in rows])
    return fit_calibration(features, chrf, translator.source.decode([sources[row] for row in rows]))


def measure_sources(translator: Translator, sources: Sequence[Sequence[int]]) -> tuple[list[Features], list[str]]:
    """The features of each source's translation by the model's default search, and the translations."""
    defaults = translator.bundle.generation
    search = SearchOptions(defaults.beam, defaults.beam, defaults.length_rule, defaults.length_penalty, attention=True)
    encoded = [EncodedSource((*ids, *translator.source_end), translator.max_target_length(len(ids))) for ids in sources]
    results = translator.translate_sources(encoded, search)
    features = [translator.segment_features(ids, ranking) for ids, ranking in zip(sources, results, strict=True)]
    return features, translator.target.decode([ranking[0].hypothesis.tokens for ranking in results])


def store_calibration(bundle: Bundle, calibration: Calibration) -> Bundle:
    """Add the fitted numbers to training_statistics.json."""
    return replace_statistics(bundle, {**bundle.statistics, "calibration": asdict(calibration)})

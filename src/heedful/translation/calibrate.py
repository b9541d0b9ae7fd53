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
from heedful.errors import HeedfulError, suggest_arguments
from heedful.metrics.score import sentence_scores
from heedful.samples import find_sample
from heedful.translation.loading import load
from heedful.translation.sources import require_text_source
from heedful.translation.translator import BatchCallback, Translator, check_texts, encode_texts


@suggest_arguments
def calibrate(
    model: str | Path,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    on_batch: BatchCallback = lambda _done, _total: None,
) -> Calibration:
    """Fit the confidence of a model directory or run on pairs of sentences, and store it in the model directory.

    After every batch, `on_batch` gets the number of translated sentences and of all sentences.
    """
    if len(sources) != len(references):
        raise HeedfulError(
            f"got {len(sources):,} sources but {len(references):,} references: the numbers must be equal"
        )
    pairs = zip(check_texts(sources), check_texts(references), strict=True)
    pairs_with_text = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
    check_sentences(len(pairs_with_text))
    bundle = open_bundle(model)  # an export has no weights: it keeps the calibration of its original
    require_text_source(bundle, "calibration")
    if find_sample(bundle.folder):
        raise HeedfulError(
            f"{bundle.folder} is part of the installed package, and it is already calibrated: "
            "to calibrate it for other text, copy the directory and pass the copy"
        )
    translator = load(bundle.folder)
    source_texts, reference_texts = zip(*pairs_with_text, strict=True)
    calibration = fit_translator(translator, encode_texts(translator.source, source_texts), reference_texts, on_batch)
    store_calibration(translator.bundle, calibration)
    return calibration


def fit_translator(
    translator: Translator,
    sources: Sequence[Sequence[int]],
    references: Sequence[str],
    on_batch: BatchCallback = lambda _done, _total: None,
) -> Calibration:
    """Fit the confidence on encoded sources; those that are longer than in training, which are split, are left out."""
    rows = [row for row, ids in enumerate(sources) if 0 < len(ids) <= translator.max_source_tokens]
    check_sentences(len(rows))
    features, outputs = measure_sources(translator, [sources[row] for row in rows], on_batch)
    chrf = sentence_scores("chrf", outputs, [references[row] for row in rows])
    return fit_calibration(features, chrf, translator.source.decode([sources[row] for row in rows]))


def measure_sources(
    translator: Translator,
    sources: Sequence[Sequence[int]],
    on_batch: BatchCallback = lambda _done, _total: None,
) -> tuple[list[Features], list[str]]:
    """The features of each source's translation by the model's default search, and the translations."""
    defaults = translator.bundle.generation
    search = SearchOptions(defaults.beam, defaults.beam, defaults.length_rule, defaults.length_penalty, attention=True)
    encoded = [EncodedSource((*ids, *translator.source_end), translator.max_target_length(len(ids))) for ids in sources]
    results = translator.translate_sources(encoded, search, on_batch)
    features = [translator.segment_features(ids, ranking) for ids, ranking in zip(sources, results, strict=True)]
    return features, translator.target.decode([ranking[0].hypothesis.tokens for ranking in results])


def store_calibration(bundle: Bundle, calibration: Calibration) -> Bundle:
    """Add the fitted numbers to training_statistics.json."""
    return replace_statistics(bundle, {**bundle.statistics, "calibration": asdict(calibration)})

"""Confidence: probabilities are calibrated, bounds cover, and neither depends on the batch, the order or the engine."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, astuple, replace
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import heedful
from heedful import confidence, samples
from heedful.bundle import open_bundle
from heedful.bundle.format import CONFIG_FILE, GENERATION_FILE, STATISTICS_FILE
from heedful.cli.app import app
from heedful.confidence import (
    BINS,
    LEVELS,
    MIN_SENTENCES,
    THRESHOLDS,
    Features,
    choose_label,
    conformal_bound,
    fit_calibration,
    isotonic_regression,
    mean_entropy,
    measure_features,
    trigram_similarity,
)
from heedful.data.store import MANIFEST
from heedful.engines.base import SamplingOptions
from heedful.errors import ConfigError, HeedfulError
from heedful.translation.calibrate import calibrate, measure_sources, store_calibration
from heedful.translation.translator import encode_texts
from heedful.types import Confidence, Hypothesis
from support.timeouts import PATIENCE

SENTENCES = ["Bom dia.", "O Tom não sabe nadar.", "Ela comprou um livro velho ontem.", "Oi!"]


def simulate(count: int, seed: int = 1) -> tuple[list[Features], np.ndarray, list[str]]:
    """Sentences whose chrF depends on their features, with more noise for those that are less certain."""
    draw = np.random.default_rng(seed)
    quality = draw.beta(3, 1.5, count)
    features = [
        Features(float(q), float(3 * log(q)), abs(float(noise)), float(2 - q + noise), float(0.5 + q / 2))
        for q, noise in zip(quality, draw.normal(0, 0.1, count), strict=True)
    ]
    chrf = np.clip(100 * quality + draw.normal(0, 5 + 15 * (1 - quality), count), 0, 100)
    return features, chrf, [f"sentence {seed} {number}" for number in range(count)]


@pytest.fixture(scope="module")
def calibration():
    return fit_calibration(*simulate(2_000))


@pytest.fixture(scope="module")
def model(tmp_path_factory, calibration):
    """A sample model with a calibration that was fitted on simulated sentences."""
    folder = tmp_path_factory.mktemp("confidence") / "model"
    shutil.copytree(samples.model("pt-en"), folder)
    store_calibration(open_bundle(folder), calibration)
    return folder


@pytest.fixture(scope="module")
def translator(model):
    return heedful.load(model)


# ---------------------------------------------------------------------------------------------------- statistics

VALUES = st.lists(st.tuples(st.floats(0, 100), st.integers(1, 9), st.floats(0, 50)), min_size=1, max_size=40)


@given(VALUES)
def test_isotonic_regression_is_monotone_and_keeps_the_mean_and_the_order(rows):
    values, weights, distances = (np.array(column, float) for column in zip(*rows, strict=True))
    fitted = isotonic_regression(values, weights)
    assert (np.diff(fitted) >= 0).all()
    assert np.isclose((fitted * weights).sum(), (values * weights).sum())
    assert (isotonic_regression(values + distances, weights) >= fitted - 1e-9).all()


@given(VALUES)
def test_isotonic_regression_equals_the_reference(rows):
    optimize = pytest.importorskip("scipy.optimize")
    values, weights, _ = (np.array(column, float) for column in zip(*rows, strict=True))
    assert np.allclose(isotonic_regression(values, weights), optimize.isotonic_regression(values, weights=weights).x)


@pytest.mark.parametrize("level", LEVELS)
def test_a_conformal_bound_covers_exactly_as_promised(level):
    draw, count, trials = np.random.default_rng(1), 119, 20_000
    values = draw.gamma(2.0, 20.0, (trials, count + 1))
    covered = np.mean([row[-1] >= conformal_bound(row[:-1], level) for row in values])
    assert covered == pytest.approx(level, abs=4 * (0.25 / trials) ** 0.5)  # 120 is a multiple of 1 / (1 - level)


def test_a_conformal_bound_of_few_values():
    assert conformal_bound(np.array([40.0] * 8), 0.9) == 0.0  # 9 ranks: none is in the lowest tenth
    assert conformal_bound(np.array([50.999, 60, 70, 80, 90, 91, 92, 93, 94]), 0.9) == 50.99


@pytest.mark.parametrize("seed", [2, 3])
def test_bounds_cover_and_probabilities_are_calibrated(seed):
    calibration = fit_calibration(*simulate(4_000, seed))
    features, chrf, _ = simulate(10_000, seed + 10)
    bins = np.searchsorted(calibration.edges, [calibration.score(each) for each in features])
    for level in LEVELS:
        covered = chrf >= [calibration.lower_bound(each, level) for each in features]
        assert covered.mean() == pytest.approx(level, abs=0.02)
        for number in range(BINS):
            assert covered[bins == number].mean() == pytest.approx(level, abs=0.06)
    for threshold in THRESHOLDS:
        probabilities = np.array([calibration.probability(each, threshold) for each in features])
        for group in np.array_split(np.argsort(probabilities), 10):
            assert probabilities[group].mean() == pytest.approx((chrf[group] > threshold).mean(), abs=0.08)


@given(st.lists(st.floats(0, 1), min_size=5, max_size=5), st.floats(0, 0.5))
def test_probabilities_rise_with_the_score_and_fall_with_the_threshold(calibration, numbers, step):
    features = Features(*numbers)
    curve = [calibration.probability(features, threshold) for threshold in THRESHOLDS]
    assert all(0 <= probability <= 1 for probability in curve)
    assert curve == sorted(curve, reverse=True)
    bounds = [calibration.lower_bound(features, level) for level in LEVELS]
    assert bounds == sorted(bounds, reverse=True)
    strongest = int(np.argmax(np.abs(calibration.weights)))
    moved = list(astuple(features))
    moved[strongest] += step * np.sign(calibration.weights[strongest])
    assert calibration.probability(Features(*moved)) >= calibration.probability(features)


def test_the_fit_does_not_depend_on_the_order_of_the_sentences():
    features, chrf, sources = simulate(2_000)
    order = np.random.default_rng(1).permutation(len(chrf))
    shuffled = fit_calibration([features[row] for row in order], chrf[order], [sources[row] for row in order])
    first, second = json.dumps(asdict(fit_calibration(features, chrf, sources))), json.dumps(asdict(shuffled))
    assert np.allclose(*([float(number) for number in _numbers(text)] for text in (first, second)), atol=1e-3)


def _numbers(text: str) -> list[str]:
    return [
        word for word in text.replace("[", " ").replace("]", " ").replace(",", " ").split() if word[0] in "-0123456789"
    ]


def test_a_constant_feature_is_ignored():
    features, chrf, sources = simulate(2_000)
    calibration = fit_calibration([replace(each, attention_entropy=0.0) for each in features], chrf, sources)
    assert calibration.weights[3] == 0.0
    assert np.isfinite(calibration.score(features[0]))


def test_too_few_sentences():
    features, chrf, sources = simulate(MIN_SENTENCES - 1)
    with pytest.raises(HeedfulError, match="at least 2,000 validation sentences, but there are 1,999: add"):
        fit_calibration(features, chrf, sources)


def test_the_fitted_numbers_survive_json(calibration):
    copy = confidence.Calibration(**json.loads(json.dumps(asdict(calibration))))
    for features in simulate(50, 7)[0]:
        assert copy.confidence(features) == calibration.confidence(features)
    assert len(json.dumps(asdict(calibration))) < 8_000


def test_unknown_thresholds_and_levels_are_rejected(calibration):
    features = simulate(1)[0][0]
    with pytest.raises(HeedfulError, match="the threshold must be one of 30, 40, 50, 60, 70, 80, not 55"):
        calibration.probability(features, 55)
    with pytest.raises(HeedfulError, match=r"the level must be one of 0\.8, 0\.9, 0\.95, not 0\.99"):
        calibration.lower_bound(features, 0.99)


def test_labels():
    assert [choose_label(value) for value in (1.0, 0.9, 0.8999, 0.5, 0.4999, 0.0)] == [
        "sure", "sure", "check", "check", "unsure", "unsure",
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------------- features


def hypothesis(*log_probs: float) -> Hypothesis:
    return Hypothesis(tuple(range(len(log_probs) - 1)), 0.0, sum(log_probs), log_probs, True)


def test_features_worked_by_hand():
    attention = np.array([[0.5, 0.5], [1.0, 0.0]])
    best, other = hypothesis(log(0.5), log(0.8), log(0.9)), hypothesis(log(0.1), log(0.2))
    features = measure_features([best, other], ["abcd", "abce"], attention, 5, 1.0)
    assert features.mean_probability == pytest.approx(0.36 ** (1 / 3))
    assert features.min_log_probability == pytest.approx(log(0.5))
    assert features.length_deviation == pytest.approx(log(6 / 3))
    assert features.attention_entropy == pytest.approx(log(2) / 2)
    weights = [0.36 ** (1 / 3), 0.02 ** (1 / 2)]
    assert features.agreement == pytest.approx((weights[0] + weights[1] * 0.5) / sum(weights))


def test_similarities_and_entropies():
    assert trigram_similarity("a b c", "abc") == 1.0
    assert trigram_similarity("abc", "xyz") == trigram_similarity("", "abc") == 0.0
    assert trigram_similarity("", "") == 1.0
    assert mean_entropy(None) == mean_entropy(np.zeros((0, 4))) == mean_entropy(np.zeros((3, 4))) == 0.0
    assert mean_entropy(np.full((3, 8), 0.01)) == pytest.approx(log(8))


def test_an_empty_translation_has_features():
    features = measure_features([Hypothesis((), 0.0, -0.5, (-0.5,), True)], [""], None, 3, 0.9)
    assert features == Features(exp(-0.5), -0.5, pytest.approx(abs(log(1 / 3.6))), 0.0, 1.0)


def test_features_do_not_depend_on_the_batch(translator):
    encoded = encode_texts(translator.source, SENTENCES)
    together, texts = measure_sources(translator, encoded)
    for ids, features, text in zip(encoded, together, texts, strict=True):
        (alone,), (alone_text,) = measure_sources(translator, [ids])
        assert alone_text == text
        assert np.allclose(astuple(alone), astuple(features), atol=1e-4)


# ---------------------------------------------------------------------------------------------------- translator


def test_confidence_does_not_change_the_translation(translator):
    plain = translator(SENTENCES, num_best=2)
    confident = translator(SENTENCES, num_best=2, confidence=True)
    assert all(translation.confidence is None for translation in plain)
    for translation, without in zip(confident, plain, strict=True):
        assert translation.text == without.text
        assert translation.score == pytest.approx(without.score, abs=1e-4)  # attention maps need another kernel
        assert [each.text for each in translation.alternatives] == [each.text for each in without.alternatives]
        assert translation.confidence.label == choose_label(translation.confidence.probability)
        assert 0 <= translation.confidence.lower_bound <= 100
        assert all(alternative.confidence is None for alternative in translation.alternatives)


def test_a_text_is_as_sure_as_its_least_certain_line(translator):
    whole = translator("\n".join(["", *SENTENCES]), confidence=True).confidence
    parts = [each.confidence for each in translator(SENTENCES, confidence=True)]
    assert whole == min(parts, key=lambda each: (each.probability, each.expected))
    assert translator(" \n", confidence=True).confidence is None


@pytest.mark.parametrize(
    "options",
    [{"beam": 2}, {"length_penalty": 0.3}, {"sampling": SamplingOptions()}, {"prefix": "The"}, {"num_best": 8}],
    ids=str,
)
def test_no_confidence_for_a_search_that_it_was_not_fitted_with(translator, options):
    assert translator(SENTENCES[0], confidence=True, **options).confidence is None
    assert translator(SENTENCES[0], confidence=True, beam=5).confidence is not None


def test_no_confidence_without_calibration_or_for_an_ensemble(translator, model, tmp_path):
    shutil.copytree(model, tmp_path / "bare")
    bundle = open_bundle(tmp_path / "bare")
    rest = {key: value for key, value in bundle.statistics.items() if key != "calibration"}
    heedful.bundle.replace_statistics(bundle, rest)
    assert heedful.load(tmp_path / "bare")(SENTENCES[0], confidence=True).confidence is None
    ensemble = heedful.load(model, others=[model])
    assert ensemble(SENTENCES[0], confidence=True).confidence is None


def test_exports_measure_the_same_features(translator, model, tmp_path):
    """CTranslate2 stops earlier, so n-best lists may differ; for equal translations, all but the agreement is equal."""
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install 'heedful[export]'")
    heedful.export(model, tmp_path / "export", probes=SENTENCES)
    exported = heedful.load(tmp_path / "export")
    assert all(translation.confidence for translation in exported(SENTENCES, confidence=True))
    encoded = encode_texts(translator.source, SENTENCES)
    ours, theirs = measure_sources(translator, encoded), measure_sources(exported, encoded)
    rows = [row for row, texts in enumerate(zip(ours[1], theirs[1], strict=True)) if texts[0] == texts[1]]
    assert len(rows) >= 2
    for row in rows:
        assert np.allclose(astuple(ours[0][row])[:4], astuple(theirs[0][row])[:4], atol=1e-3)


# ---------------------------------------------------------------------------------------------------- model directory


@pytest.fixture
def few_sentences(monkeypatch):
    """100 sentences are enough: statistics are tested on simulated ones."""
    monkeypatch.setattr(confidence, "MIN_SENTENCES", 100)


def sample_lines(code: str) -> list[str]:
    import gzip

    return (
        gzip.decompress((samples.sample_folder("pt-en") / f"valid.{code}.gz").read_bytes()).decode().splitlines()[:100]
    )


def test_a_model_is_calibrated_and_keeps_its_other_files(tmp_path, few_sentences):
    folder = tmp_path / "model"
    shutil.copytree(samples.model("pt-en"), folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    calibration = calibrate(folder, [*sample_lines("pt"), " "], [*sample_lines("en"), "blank"])
    assert calibration.sentences == 100
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    changed = {name for name in after if after[name] != before.get(name)}
    assert {STATISTICS_FILE, MANIFEST} <= changed <= {STATISTICS_FILE, MANIFEST, CONFIG_FILE, GENERATION_FILE}
    old, new = open_bundle(samples.model("pt-en")), open_bundle(folder)
    assert (new.description, new.generation, new.scores) == (old.description, old.generation, old.scores)
    assert new.statistics == {**old.statistics, "calibration": asdict(calibration)}
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    reopened = heedful.load(folder)
    assert asdict(reopened.calibration) == asdict(calibration)
    assert isinstance(reopened(SENTENCES[0], confidence=True).confidence, Confidence)


def test_errors_of_calibrate(tmp_path, model):
    with pytest.raises(HeedfulError, match="got 2 sources but 1 references: the numbers must be equal"):
        calibrate(model, ["a", "b"], ["c"])
    with pytest.raises(HeedfulError, match="at least 2,000 validation sentences, but there are 1:"):
        calibrate(model, ["a", ""], ["b", "c"])
    before = (model / STATISTICS_FILE).read_bytes()
    with pytest.raises(HeedfulError, match="there is no model in"):
        calibrate(tmp_path, ["a"] * 2_000, ["b"] * 2_000)
    assert (model / STATISTICS_FILE).read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        {"weights": [1.0]}, {"scales": [1.0, 1.0, 0.0, 1.0, 1.0]}, {"knots": []}, {"expected": [1.0]},
        {"probabilities": [[0.5] * 30] * 5}, {"bounds": [[1.0] * 4] * 3}, {"intercept": "x"}, {"knots": [[1.0]]},
    ],
    ids=str,
)  # fmt: skip
def test_a_damaged_calibration_is_rejected(change, model, tmp_path):
    shutil.copytree(model, tmp_path / "model")
    bundle = open_bundle(tmp_path / "model")
    stored = bundle.statistics["calibration"]
    with pytest.raises(HeedfulError, match="calibration"):
        heedful.bundle.replace_statistics(bundle, {**bundle.statistics, "calibration": {**stored, **change}})
    assert open_bundle(tmp_path / "model").statistics["calibration"] == stored


# ---------------------------------------------------------------------------------------------------- command line


def run(*arguments: str, text: str = "\n".join(SENTENCES)):
    return CliRunner().invoke(app, list(map(str, arguments)), input=text)


def test_translate_shows_labels(model, translator):
    plain = run("translate", model).stdout.splitlines()
    shown = run("translate", model, "--confidence", text="\n".join([*SENTENCES, ""]) + "\n").stdout.splitlines()
    expected = [each.confidence for each in translator(SENTENCES, confidence=True)]
    assert shown == [
        *(f"{text} ||| {each.label} {each.probability:.2f}" for text, each in zip(plain, expected, strict=True)), "",
    ]  # fmt: skip
    records = [json.loads(line) for line in run("translate", model, "--json").stdout.splitlines()]
    assert [Confidence(**record["confidence"]) for record in records] == expected
    assert "confidence" not in json.loads(run("translate", model, "--json", "--no-confidence", text="Oi!").stdout)


def test_translate_shows_labels_at_the_keyboard(model):
    pty = pytest.importorskip("pty", reason="needs a terminal")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "heedful", "translate", str(model)]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.write(ours, b"Oi!\n\x04")
        output, notes = process.communicate(timeout=PATIENCE)
    os.close(ours)
    os.close(theirs)
    assert b"|||" not in output
    assert output.count(b"\n") == 1
    assert b": chrF is above 50 with probability 0." in notes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--beam", "2"), "--beam cannot be combined with --confidence: it is calibrated for the beam"),
        (("--length-penalty", "2"), "--length-penalty cannot be combined with --confidence"),
        (("--prefix", "A"), "--prefix cannot be combined with --confidence"),
        (("--sample",), "--sample cannot be combined with --confidence"),
        (("--nbest", "2"), "--nbest cannot be combined with --confidence: Marian's format has no place for it; use"),
        (("--ensemble", "other"), "--ensemble cannot be combined with --confidence"),
        (("--tmx", "in.tmx", "out.tmx"), "--tmx cannot be combined with --confidence"),
        (("--bulk", "in", "out"), "--confidence cannot be combined with --bulk: --json has the confidence"),
    ],
)
def test_misuse_of_confidence(options, message, model):
    error = run("translate", model, "--confidence", *options).exception
    assert isinstance(error, ConfigError)
    assert message in str(error)


def test_a_model_without_calibration_says_what_to_do(tmp_path):
    shutil.copytree(samples.model("ru-en"), tmp_path / "model")
    bundle = open_bundle(tmp_path / "model")
    rest = {key: value for key, value in bundle.statistics.items() if key != "calibration"}
    heedful.bundle.replace_statistics(bundle, rest)
    error = run("translate", tmp_path / "model", "--confidence").exception
    assert isinstance(error, ConfigError)
    assert "has no calibration for --confidence: run heedful calibrate" in str(error)


def test_the_calibrate_command(tmp_path, few_sentences):
    shutil.copytree(samples.model("pt-en"), tmp_path / "model")
    for code in ("pt", "en"):
        (tmp_path / f"valid.{code}").write_text("\n".join(sample_lines(code)) + "\n", encoding="utf-8")
    files = ("--source", tmp_path / "valid.pt", "--reference", tmp_path / "valid.en")
    done = run("calibrate", tmp_path / "model", *files)
    assert done.exit_code == 0, done.exception
    assert "calibrated on 100 sentences; sure " in done.stdout
    assert "--confidence" in done.stdout
    printed = json.loads(run("calibrate", tmp_path / "model", *files, "--json").stdout)
    assert printed == open_bundle(tmp_path / "model").statistics["calibration"]


def test_a_sample_is_not_changed():
    sentences = ["Bom dia."] * confidence.MIN_SENTENCES
    with pytest.raises(HeedfulError, match="part of the installed package"):
        heedful.calibrate("pt-en", sentences, sentences)

"""After the last step: choose the best weights, score them, and write the model directory."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.alignment import AlignmentMethod, AttentionExample, correlate_pieces, find_best_method
from heedful.bundle import Bundle, GenerationSettings, model_card, open_bundle, write_bundle
from heedful.bundle.format import MAX_LENGTH
from heedful.confidence import MIN_SENTENCES
from heedful.config import Settings
from heedful.data.prepare import delete_early_stages
from heedful.data.store import MANIFEST
from heedful.engines.base import EncodedSource, SearchOptions
from heedful.engines.torch import TorchEngine
from heedful.errors import HeedfulError
from heedful.files import replace_text
from heedful.metrics.perplexity import measure_perplexity
from heedful.metrics.significance import run_paired_test
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.decoders import LabelDecoder
from heedful.text.tokenizer import EOS, Tokenizer
from heedful.training import checkpoint
from heedful.training.checkpoint import checkpoint_folders, checkpoint_name
from heedful.training.data import TrainingData, ValidationSet, read_pairs
from heedful.training.distributed import World, gather_weights
from heedful.training.events import Ended, Note
from heedful.training.finetune import OLD_VALIDATION, load_initial_weights
from heedful.training.finish_progress import FinishProgress
from heedful.training.history import History
from heedful.training.metrics_log import MetricsLog, seconds_at_end
from heedful.training.report import REPORT, write_report
from heedful.training.state import TrainingResult
from heedful.training.statistics import training_statistics
from heedful.training.usability import Assessment, assess_run
from heedful.training.validate import (
    Evaluation,
    evaluate,
    mark_best,
    max_positions,
    validate,
    validation_loss,
    value_to_maximize,
)
from heedful.training.weights import average_weights, copy_tensors_, initialize_model, named_weights
from heedful.translation.calibrate import fit_translator, store_calibration
from heedful.translation.translator import Translator
from heedful.types import Hypothesis

BEAM = 5
MAX_CALIBRATION_PAIRS = 5_000
ALIGNMENT_PAIRS, ASSOCIATION_PAIRS = (
    200,
    5_000,
)  # validation pairs, to find the head; training pairs, to relate the words
LENGTH_PENALTIES = (1.0, 1.4, 0.6)  # tried on the validation set, as time allows
WEIGHTS_UNITS, SEARCH_UNITS, WRITE_UNITS = 3, 5, 1  # duration in validations: choose weights, beam search, write model
MAX_TESTED_LINES = 2_000  # in a significance test: bootstrapping more needs much memory


def count_finish_validations(data: TrainingData) -> float:
    """The duration of `finish` in validations: one per candidate, and searches (penalties, tests, calibration)."""
    num_test_pairs = sum(corpus.num_rows for corpus in data.prepared.split("test")) + count_old_pairs(data)
    num_searches = len(LENGTH_PENALTIES)
    return WEIGHTS_UNITS + SEARCH_UNITS * num_searches + search_units(num_test_pairs, data) + count_write_units(data)


def count_old_pairs(data: TrainingData) -> int:
    return sum(corpus.num_rows for corpus in data.prepared.split("test") if corpus.name == OLD_VALIDATION)


def count_write_units(data: TrainingData) -> float:
    """The duration of writing the model and calibrating its confidence, in validations."""
    num_pairs = len(calibration_pairs(data))
    return WRITE_UNITS + (search_units(num_pairs, data) if num_pairs >= MIN_SENTENCES else 0.0)


def search_units(num_pairs: int, data: TrainingData) -> float:
    """The duration of a beam search, in validations."""
    return SEARCH_UNITS * num_pairs / max(1, len(data.validation))


def finish_run(
    settings: Settings, data: TrainingData, world: World, device: torch.device, log: MetricsLog, result: TrainingResult
) -> Path:
    """Choose weights on the validation set, score them, write the model; a finished run stays unchanged."""
    run = Path(settings.train.output_dir)
    folder = run / "model"
    if result.was_finished and (folder / MANIFEST).is_file() and seconds_at_end(log.path, result.step):
        if world.is_first and not (run / REPORT).is_file():
            write_report(run)
        if world.is_first:
            delete_work_files(settings, result)
        return open_bundle(folder).folder
    candidates = candidate_weights(
        run, world, device, log, result, init_from=settings.init_from, num_average=settings.train.average_checkpoints
    )
    if not world.is_first:
        for _ in candidates:
            pass
        return folder
    model = initialize_model(settings, data.prepared, device).eval()
    target, metric = data.prepared.tokenizer("target"), settings.train.best_by
    unit_seconds = result.budget.usual_validation_seconds
    progress = FinishProgress(log, result.step, count_finish_validations(data), unit_seconds)
    progress.start("choosing the weights", WEIGHTS_UNITS)
    name, weights = choose_weights(candidates, model, data.validation, target, device, log, result.step, metric)
    copy_tensors_(named_weights(model), weights, name)
    penalty, evaluations = evaluate_beam(model, data, target, device, metric, result, progress)
    scores = {
        corpus: {score.name: asdict(score) for score in evaluation.scores} for corpus, evaluation in evaluations.items()
    }
    if data.validation.is_unconditional:
        scores = score_language_model(model, data, device, target)
    for corpus, evaluation in evaluations.items():
        replace_text(run / f"{corpus}.hypotheses", "".join(text + "\n" for text in evaluation.outputs))
    translates_text = data.validation.has_text_source and not isinstance(model.decoder, LabelDecoder)
    if settings.init_from and translates_text:
        progress.start("measuring what was forgotten", search_units(count_old_pairs(data), data))
        scores |= measure_forgetting(settings.init_from, model, data, evaluations, device, penalty, log, result.step)
    progress.start("writing the model", count_write_units(data))
    reading = find_alignment_head(model, data, device) if translates_text else None
    hypotheses = evaluations["validation"].hypotheses if evaluations else []
    bundle = write_model(folder, settings, data, weights, penalty, scores, hypotheses, reading)
    if translates_text:
        calibrate_model(bundle, Translator(bundle, TorchEngine(model, device)), data, log, result.step)
    assessment: Assessment | tuple[()] = ()
    if evaluations and not isinstance(model.decoder, LabelDecoder):
        assessment = assess_run(
            evaluations["validation"].outputs,
            data.validation.texts,
            data.validation.references,
            History.load(run),
            is_finetuned=settings.init_from is not None,
            has_text_source=data.validation.has_text_source,
            keep_sentences=settings.train.show_samples > 0,
        )
    is_searched = bool(evaluations) and settings.output.kind == "text"
    searched = {"length_penalty": penalty, "beam": BEAM} if is_searched else {}
    summary = {"weights": name, **searched, **scores}
    log(Ended(result.step, result.end_reason, name, summary, str(folder), result.budget.elapsed, *assessment))
    write_report(run)
    delete_work_files(settings, result)
    return folder


def delete_work_files(settings: Settings, result: TrainingResult) -> None:
    """Delete what a finished run does not need to be continued, unless `keep_work_files` is set.

    The newest checkpoint stays, and the best weights, if they are from an earlier step. A prepared corpus outside the
    directory of the run may belong to other runs, too, and stays as it is.
    """
    if settings.train.keep_work_files:
        return
    run, prepared = Path(settings.train.output_dir), Path(settings.data.prepared_dir)
    checkpoint.prune(run, 1)
    best = [] if result.best_step in (None, result.step) else [checkpoint_name(result.best_step, "best")]
    checkpoint.prune(run, 0, "best", frozenset(best))
    if prepared.is_relative_to(run):
        delete_early_stages(prepared)


# ------------------------------------------------------------------------------------------------ weights


def candidate_weights(
    run: Path,
    world: World,
    device: torch.device,
    log: MetricsLog,
    result: TrainingResult,
    *,
    init_from: str | None,
    num_average: int,
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Named candidates for the best weights; all processes gather them, only the first receives them."""
    model, ema = result.model_state.model, result.model_state.ema
    yield "last", gather_weights(model, named_weights(model), world)
    if ema:
        yield "ema", gather_weights(model, ema.tensors, world)
    if not world.is_first:
        return
    if init_from:  # fine-tuning on little data may make a model worse
        initial = load_initial_weights(init_from)
        yield "start", {name: initial[name].to(device) for name in named_weights(model)}
    if result.best_step not in (None, result.step):
        for weights in load_weights([run / checkpoint_name(result.best_step, "best")], log, result.step):
            yield "best", weights
    if num_average and not result.model_state.is_sharded:
        yield "average", average_weights(load_weights(checkpoint_folders(run)[:num_average], log, result.step))


def load_weights(folders: Sequence[Path], log: MetricsLog, step: int) -> Iterator[dict[str, Tensor]]:
    """The weights of checkpoints; warns about damaged or missing ones and skips them."""
    for folder in folders:
        try:
            verified = checkpoint.verify(folder)
        except checkpoint.DamagedCheckpoint as error:
            log(Note(f"{error}; this checkpoint is skipped", "warning", step))
            continue
        yield verified.tensors("model")


def choose_weights(
    candidates: Iterator[tuple[str, dict[str, Tensor]]],
    model: Seq2Seq,
    validation: ValidationSet,
    target: Tokenizer,
    device: torch.device,
    log: MetricsLog,
    step: int,
    metric: str,
) -> tuple[str, dict[str, Tensor]]:
    """The candidate with the best validation, and its name."""
    best_name, best_value, best_weights = "", -math.inf, {}
    for name, weights in candidates:
        copy_tensors_(named_weights(model), weights, name)
        validated = validate(model, validation, target, device, step=step, num_samples=0, weights=name)
        value = value_to_maximize(validated, metric)
        log(mark_best(validated) if value > best_value else validated)
        if value > best_value:
            best_name, best_value = name, value
            best_weights = {key: weight.detach().cpu().clone() for key, weight in weights.items()}
    return best_name, best_weights


# ------------------------------------------------------------------------------------------------ scores


def evaluate_beam(
    model: Seq2Seq,
    data: TrainingData,
    target: Tokenizer,
    device: torch.device,
    metric: str,
    result: TrainingResult,
    progress: FinishProgress,
) -> tuple[float, dict[str, Evaluation]]:
    """The best length penalty, and the scores of the validation set and every test corpus with it.

    A language model translates nothing, so it has no such scores.
    """
    if data.validation.is_unconditional:
        return 1.0, {}

    is_labels = isinstance(model.decoder, LabelDecoder)

    def search(penalty: float) -> SearchOptions:
        return SearchOptions(1 if is_labels else BEAM, length_penalty=penalty)

    by_penalty: dict[float, Evaluation] = {}
    for penalty in (1.0,) if is_labels else LENGTH_PENALTIES:
        if by_penalty and not result.was_finished and result.budget.is_reserve_half_used:
            progress.units_left -= SEARCH_UNITS * (len(LENGTH_PENALTIES) - len(by_penalty))
            break
        what = "scoring validation" if is_labels else f"scoring validation with length penalty {penalty}"
        progress.start(what, SEARCH_UNITS)
        by_penalty[penalty] = evaluate(model, data.validation, target, device, search(penalty))
    outputs = {penalty: evaluation.outputs for penalty, evaluation in by_penalty.items()}
    best = (
        1.0
        if is_labels
        else choose_length_penalty(outputs, data.validation.references, "chrf" if metric == "loss" else metric)
    )
    evaluations = {"validation": by_penalty[best]}
    for corpus in data.prepared.split("test"):
        progress.start(f"scoring {corpus.name}", search_units(corpus.num_rows, data))
        pairs = read_pairs([corpus], has_text_source=data.validation.has_text_source)
        evaluations[corpus.name] = evaluate(model, pairs, target, device, search(best))
    return best, evaluations


def score_language_model(
    model: Seq2Seq, data: TrainingData, device: torch.device, target: Tokenizer
) -> dict[str, dict[str, Any]]:
    """Perplexity per token and per word, and bits per character, of the validation set and every test corpus."""
    sets = {"validation": data.validation}
    sets |= {corpus.name: read_pairs([corpus], has_text_source=False) for corpus in data.prepared.split("test")}
    scores = {}
    for name, texts in sets.items():
        nats = validation_loss(model, texts, device) * sum(len(tokens) + 1 for tokens in texts.targets)
        figures = measure_perplexity(-nats, target.encode(texts.references), texts.references)
        scores[name] = {key: {"name": key, "value": value, "signature": ""} for key, value in figures.items()}
    return scores


def measure_forgetting(
    init_from: str,
    model: Seq2Seq,
    data: TrainingData,
    evaluations: Mapping[str, Evaluation],
    device: torch.device,
    penalty: float,
    log: MetricsLog,
    step: int,
) -> dict[str, Any]:
    """The scores of the old validation text before fine-tuning; logs how much was lost. `model` stays unchanged."""
    if OLD_VALIDATION not in evaluations:
        log(
            Note(
                f"forgetting is not measured: the run that made {init_from} has no validation text. To measure it, "
                "pass old sentence pairs as a --test",
                step=step,
            )
        )
        return {}
    new_weights = {name: weight.clone() for name, weight in named_weights(model).items()}
    initial = load_initial_weights(init_from)
    copy_tensors_(named_weights(model), {name: initial[name].to(device) for name in new_weights}, "start")
    pairs = read_pairs([corpus for corpus in data.prepared.split("test") if corpus.name == OLD_VALIDATION])
    search = SearchOptions(BEAM, length_penalty=penalty)
    before = evaluate(model, pairs, data.prepared.tokenizer("target"), device, search)
    copy_tensors_(named_weights(model), new_weights, "fine-tuned")
    systems = {"before": before.outputs, "after": evaluations[OLD_VALIDATION].outputs}
    systems = {name: list(outputs[:MAX_TESTED_LINES]) for name, outputs in systems.items()}
    old, new = run_paired_test(["chrf"], systems, pairs.references[:MAX_TESTED_LINES])
    change = f"chrF {old.value:.1f} -> {new.value:.1f} on the validation text of {init_from}"
    if new.verdict == "worse":
        advice = "to forget less, add --replay 0.3, which repeats old pairs, or train for a shorter time"
        log(Note(f"fine-tuning has forgotten: {change}; {advice}", "warning", step))
    else:
        log(Note(f"fine-tuning has not forgotten: {change}", step=step))
    return {f"{OLD_VALIDATION}_before": {score.name: asdict(score) for score in before.scores}}


def choose_length_penalty(outputs: Mapping[float, Sequence[str]], references: Sequence[str], metric: str) -> float:
    """The first penalty, unless another is significantly better.

    Penalties differ little on the validation set; one that is best there by chance is worse elsewhere.
    """
    first, *others = outputs
    if not others:
        return first
    systems = {str(penalty): list(texts[:MAX_TESTED_LINES]) for penalty, texts in outputs.items()}
    tested = run_paired_test([metric], systems, references[:MAX_TESTED_LINES])
    better = (system for system in tested if system.verdict == "better")
    return float(max(better, key=lambda system: system.value, default=tested[0]).system)


def find_alignment_head(model: Seq2Seq, data: TrainingData, device: torch.device) -> AlignmentMethod | None:
    """The head that aligns words best, for `heedful translate --alignment best`; None for a model without attention."""
    validation, max_length = data.validation, max_positions(model)
    rows = [
        row
        for row in range(len(validation))
        if 0 < len(validation.sources[row]) < max_length and 0 < len(validation.targets[row]) < max_length
    ][:ALIGNMENT_PAIRS]
    corpus = data.stored_corpora[0]
    pairs = corpus.pairs(range(min(corpus.num_rows, ASSOCIATION_PAIRS)))
    engine = TorchEngine(model, device)
    examples: list[AttentionExample] = []
    for row in rows:
        source, target = validation.sources[row], validation.targets[row]
        attention = engine.score_targets([EncodedSource((*source, EOS), 1)], [target], attention=True)[0].attention
        if attention is None or attention.shape[-1] <= len(source):
            return None
        examples.append((attention[..., :-1], source, target))
    return find_best_method(examples, correlate_pieces((source.tolist(), target.tolist()) for source, target in pairs))


# ------------------------------------------------------------------------------------------------ confidence


def calibration_pairs(data: TrainingData) -> ValidationSet:
    """The validation corpora, also the pairs that `validate_pairs` leaves out; without one, the pairs held out."""
    corpora = data.prepared.split("validation")
    return read_pairs(corpora, MAX_CALIBRATION_PAIRS) if corpora else data.validation


def calibrate_model(bundle: Bundle, translator: Translator, data: TrainingData, log: MetricsLog, step: int) -> None:
    """Fit the confidence on the validation text and store it; log why if it is too short."""
    pairs = calibration_pairs(data)
    try:
        calibration = fit_translator(translator, pairs.sources, pairs.references)
    except HeedfulError as error:
        log(Note(f"the model reports no confidence: {error}", "info", step))
        return
    store_calibration(bundle, calibration)


# ------------------------------------------------------------------------------------------------ the model directory


def write_model(
    folder: Path,
    settings: Settings,
    data: TrainingData,
    weights: dict[str, Tensor],
    penalty: float,
    scores: dict[str, Any],
    hypotheses: Sequence[Hypothesis],
    reading: AlignmentMethod | None,
) -> Bundle:
    """Write the model directory, with its card."""
    assert settings.model is not None
    prepared, languages, corpora = data.prepared, (settings.source, settings.target), data.stored_corpora
    statistics = training_statistics(prepared, corpora, hypotheses, reading)
    beam = BEAM if settings.output.kind == "text" else 1
    max_tokens = prepared.manifest["longest_tokens"]
    # A translation is limited by its source, other output by the training text.
    longest = max_tokens if data.validation.has_text_source else statistics["lengths"]["target"]["longest"]
    text = model_card(
        settings.model,
        languages,
        sum(weight.numel() for weight in weights.values()),
        scores,
        corpora=[corpus.name for corpus in corpora],
        pairs=statistics["pairs"],
        fingerprint=prepared.fingerprint,
        max_tokens=max_tokens,
    )
    return write_bundle(
        folder,
        model=settings.model.model_copy(update={"embeddings": None}),
        weights={name: weight.float().numpy() for name, weight in weights.items()},
        tokenizers={side: prepared.tokenizer(side) for side in data.inputs.text_sides},
        languages=languages,
        input=settings.input,
        tags=sorted({corpus["tag"] for corpus in prepared.manifest["corpora"] if corpus["tag"]}),
        generation=GenerationSettings(beam=beam, length_penalty=penalty, max_length=min(2 * longest + 10, MAX_LENGTH)),
        statistics=statistics,
        scores=scores,
        card=text,
    )

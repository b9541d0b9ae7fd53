"""Resolves the settings of a run: every setting that is left open is derived or measured once, then stored.

    user's settings -> fine-tuning defaults -> autopilot's choices -> measured values -> final settings

    run/requested.json   the user's settings and the fingerprint of the corpus; a resumed run must request the same
    run/heedful.toml     the final settings, written before step 1

A resumed run reads its heedful.toml, so nothing is measured again and no choice changes. Only the length of a run
(`train.time` or `train.steps`) may change: the run then continues, with a refitted schedule.
"""

import json
import shlex
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any

import torch

from heedful import config
from heedful.config import Settings, as_settings, load, parse_duration, to_toml
from heedful.corpus.launchers import Launcher
from heedful.data.batch import Batch
from heedful.data.prepare import ProgressCallback, prepare
from heedful.data.store import PreparedData, open_prepared
from heedful.errors import ConfigError
from heedful.files import replace_text
from heedful.model.seq2seq import Seq2Seq
from heedful.training.autopilot import run_autopilot
from heedful.training.checkpoint import checkpoint_folders, read_state, refuse_old_format
from heedful.training.clock import format_duration
from heedful.training.data import TrainingData, count_micro_batches, load_data, make_plan
from heedful.training.distributed import World
from heedful.training.events import EventHandler, Note
from heedful.training.finetune import add_old_validation, apply_finetuning_defaults, model_digest
from heedful.training.flat_settings import LENGTH_KEYS, describe_changes, flatten
from heedful.training.history import METRICS
from heedful.training.initial_embeddings import check_embeddings, embedding_digests
from heedful.training.machine import (
    BUSY_SHARE,
    CoreMeter,
    default_threads,
    measure_precisions,
    measure_tokens_per_second,
    use_threads,
)
from heedful.training.metrics_log import seconds_at_end
from heedful.training.optimizer import make_optimizer, set_learning_rate
from heedful.training.upsampling import choose_upsampling
from heedful.training.weights import initialize_model

REQUESTED, RESOLVED = "requested.json", "heedful.toml"
# Keys of [train] that a resumed run may change: they do not affect the weights.
CHANGEABLE_KEYS = ("keep_checkpoints", "keep_work_files", "log_every", "output_dir")
NUM_VALIDATIONS = 20  # per run
MIN_VALIDATION_SECONDS = 30  # between two validations, except in very short runs
MAX_SAVE_SECONDS = 300  # between two checkpoints
NUM_MEASURED_BATCHES = 3
MIN_THREAD_GAIN = 1.03  # of all threads over one: less is not worth the cores, which other programs may use


def load_request(settings: Settings | str | Path) -> Settings:
    """The user's settings, or those of a heedful.toml, with the defaults of fine-tuning."""
    requested = add_old_validation(apply_finetuning_defaults(as_settings(settings)))
    check_embeddings(requested)
    return requested


def resolve(
    requested: Settings,
    world: World,
    device: torch.device,
    *,
    launcher: Launcher,
    progress: ProgressCallback,
    on_event: EventHandler,
    elapsed_seconds: Callable[[], float],
) -> tuple[Settings, TrainingData]:
    """The final settings, and the data on which some depend; without a [model], the autopilot chooses one."""
    run = Path(requested.train.output_dir)
    if world.is_first:
        refuse_old_format(run)
    complete = requested
    if requested.model is None:
        complete = run_autopilot(
            requested,
            world,
            device,
            launcher=launcher,
            progress=progress,
            on_event=on_event,
            elapsed_seconds=elapsed_seconds,
        )
    if world.is_first:
        prepare(complete, launcher=launcher, progress=progress)
    world.barrier()
    data = load_data(
        open_prepared(complete.data.prepared_dir),
        validate_pairs=complete.train.validate_pairs,
        regularization=complete.tokenizer.subword_regularization,
        seed=complete.seed,
        inputs=complete.input,
    )
    if world.is_first:
        write_resolved(run, complete, data, world, device, on_event)
    world.barrier()
    resolved = load(run / RESOLVED)
    changeable = {key: getattr(complete.train, key) for key in CHANGEABLE_KEYS}
    train = resolved.train.model_copy(update=changeable)
    return resolved.model_copy(update={"data": complete.data, "init_from": complete.init_from, "train": train}), data


def write_resolved(
    run: Path, settings: Settings, data: TrainingData, world: World, device: torch.device, on_event: EventHandler
) -> None:
    """Write requested.json and heedful.toml; if they exist, check that the request is the same."""
    run.mkdir(parents=True, exist_ok=True)
    requested = flatten_request(settings, data.prepared)
    if (run / RESOLVED).is_file() and (run / REQUESTED).is_file():
        resolved = load(run / RESOLVED)
        before = json.loads((run / REQUESTED).read_text(encoding="utf-8"))
        if not is_same_run(requested, flatten_request(resolved, data.prepared)):  # it is for `heedful train RUN`
            check_unchanged(run, before, requested)
        if changed := change_length(resolved, settings.train):
            check_is_longer(run, changed.train)
            replace_text(run / RESOLVED, to_toml(changed))
            lengths = {key: requested[key] for key in LENGTH_KEYS}
            replace_text(run / REQUESTED, json.dumps(before | lengths, indent=1, ensure_ascii=False))
        return
    resolved = measure_open_settings(settings, data, world, device, on_event)
    replace_text(run / REQUESTED, json.dumps(requested, indent=1, ensure_ascii=False))
    replace_text(run / RESOLVED, to_toml(resolved))


def flatten_request(settings: Settings, prepared: PreparedData) -> dict[str, Any]:
    """What a resumed run must not change, as a flat table. Files may move: a fingerprint replaces their paths."""
    excluded: dict[str, Any] = {"train": set(CHANGEABLE_KEYS), "tokenizer": {"files"}}
    tree = settings.model_dump(mode="json", exclude={**excluded, "data": True, "recipe": True, "init_from": True})
    if settings.init_from:
        tree["init_from"] = model_digest(settings.init_from)
    if settings.model and settings.model.embeddings:
        tree["model"]["embeddings"] = embedding_digests(settings.model.embeddings)
    return {"corpus": prepared.fingerprint, **dict(flatten(tree))}


def is_same_run(requested: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two requests differ at most in the length of the run."""
    keys = {*requested, *other} - set(LENGTH_KEYS)
    return all(requested.get(key) == other.get(key) for key in keys)


def change_length(settings: Settings, train: config.TrainSettings) -> Settings | None:
    """The settings with the time or steps of `train`; None if they are the same, or if `train` leaves them open."""
    if train.time is not None:
        length: dict[str, Any] = {"time": train.time}
    elif train.steps is not None:
        length = {"time": None, "steps": train.steps}
    else:
        return None
    if all(getattr(settings.train, key) == value for key, value in length.items()):
        return None
    return settings.model_copy(update={"train": settings.train.model_copy(update=length)})


def check_is_longer(run: Path, train: config.TrainSettings) -> None:
    """Raise a ConfigError if a run has already taken as many steps, or as much time."""
    state = read_state(next(iter(checkpoint_folders(run)), run))
    steps = state.get("step", 0)
    seconds = max(state.get("elapsed", 0.0), seconds_at_end(run / METRICS, steps))  # with the final scoring
    is_too_short = steps >= (train.steps or 0) if train.time is None else seconds >= parse_duration(train.time)
    if steps and is_too_short:
        raise ConfigError(
            f"{run} has already taken {steps:,} steps in {format_duration(seconds)}: set a larger --time, or "
            f"make a model of what has been learned: {shlex.join(['heedful', 'train', str(run), '--finish'])}"
        )


def check_unchanged(run: Path, before: dict[str, Any], requested: dict[str, Any]) -> None:
    """Raise a ConfigError with the differences if the settings or the corpus changed."""
    keys = [key for key in {**before, **requested} if key not in LENGTH_KEYS]
    if changes := describe_changes(before, requested, keys, "before"):
        raise ConfigError(
            f"{run} was started with other settings:\n{changes}\nUse those settings again, or start a new run in "
            "another directory (--out)."
        )


def measure_open_settings(
    settings: Settings, data: TrainingData, world: World, device: torch.device, on_event: EventHandler
) -> Settings:
    """Derive or measure every setting that is left open, and report the reasons."""
    train = settings.train
    if not train.steps and not train.time:
        raise ConfigError(
            'the length of training is not set: set train.steps = 8000, train.time = "40m", or --time 40m'
        )

    def explain(text: str) -> None:
        on_event(Note(text, "choice"))

    settings = choose_upsampling(settings, data, on_event)
    threads = train.threads or (1 if train.exact else default_threads(world.local_ranks))
    may_choose_threads = not train.threads and threads > 1 and device.type == "cpu"
    micro_batches = count_micro_batches(train.micro_batches, world.ranks, exact=train.exact)
    sizes = {"batch_tokens": train.batch_tokens, "micro_batches": micro_batches}
    plan = make_plan(data.prepared, data.corpora, seed=settings.seed, **sizes)
    steps = range(0, 7 * NUM_MEASURED_BATCHES, 7)
    batches = [data.load_batch(micro_batch) for step in steps for micro_batch in plan.batch(step)[:1]]
    cores = CoreMeter()
    with use_threads(threads):
        model = initialize_model(settings, data.prepared, device)
        precision = train.precision or choose_precision(model, batches, device, micro_batches, explain)
    choices = (threads, 1) if may_choose_threads else (threads,)
    seconds = dict.fromkeys(choices, inf)
    for count in choices * (2 if may_choose_threads else 1):  # the fastest counts: other programs may slow down some
        with use_threads(count):
            update_seconds = measure_update_seconds(model, batches, device, precision, micro_batches, train)
            seconds[count] = min(update_seconds, seconds[count])
    if may_choose_threads:
        gain = seconds[1] / seconds[threads]
        explain(f"threads {threads if gain >= MIN_THREAD_GAIN else 1}: {threads} are {gain:.2f} x as fast as 1 here")
        threads = threads if gain >= MIN_THREAD_GAIN else 1
    micro_batch_seconds = seconds[threads]
    if cores.wait_share > BUSY_SHARE:
        explain(
            f"the machine is busy: measuring waited {cores.wait_share:.0%} of the time for a free core. The plan is "
            "for a free machine; if it stays busy, the number of steps is corrected"
        )
    step_seconds = micro_batch_seconds * micro_batches / world.ranks
    values = {
        "device": device.type,
        "threads": threads,
        "micro_batches": micro_batches,
        "precision": precision,
        **schedule_run(train, step_seconds, explain),
    }
    return settings.model_copy(update={"recipe": None, "train": train.model_copy(update=values)})


def choose_precision(
    model: Seq2Seq, batches: Sequence[Batch], device: torch.device, micro_batches: int, explain: Callable[[str], None]
) -> str:
    """The faster precision: measured on a CPU, looked up for a GPU."""
    if device.type == "cpu":
        precision, speeds = measure_precisions(model, batches, device, micro_batches)
        gain = speeds["bf16"] / speeds["fp32"]
        explain(f"precision {precision}: bf16 is {gain:.2f} x as fast as fp32 here, measured on your batches")
        return precision
    if device.type == "cuda" and torch.cuda.is_bf16_supported():
        explain("precision bf16: this GPU supports it")
        return "bf16"
    return "fp32"


def schedule_run(train: config.TrainSettings, step_seconds: float, explain: Callable[[str], None]) -> dict[str, int]:
    """The number of steps, and how often to validate and save."""
    steps = train.steps or 0
    if train.time is not None:
        steps = max(20, int(0.9 * parse_duration(train.time) / step_seconds))  # 10 % of the time is for validation
        explain(f"steps {steps:,}: as many as fit into {train.time} at {1 / step_seconds:.2f} steps/s; adjusted later")
    else:
        duration = format_duration(step_seconds * steps)
        explain(f"about {duration}: {steps:,} steps at {1 / step_seconds:.2f} steps/s, plus validation")
    interval = max(steps // NUM_VALIDATIONS, min(steps // 4, int(MIN_VALIDATION_SECONDS / step_seconds)))
    validate_every = train.validate_every or max(1, interval)
    save_every = train.save_every or max(1, min(validate_every, int(MAX_SAVE_SECONDS / step_seconds)))
    return {"steps": steps, "validate_every": validate_every, "save_every": save_every}


def measure_update_seconds(
    model: Seq2Seq,
    batches: Sequence[Batch],
    device: torch.device,
    precision: str,
    micro_batches: int,
    options: config.TrainSettings,
) -> float:
    """Seconds per update with one micro-batch: forward, backward, optimizer."""
    optimizer = make_optimizer(options, model)
    set_learning_rate(optimizer, 0.0)

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def measure(measured: Sequence[Batch]) -> float:
        return measure_tokens_per_second(
            model, measured, device, precision, after_batch=update, micro_batches=micro_batches
        )

    measure(batches[:1])  # warm-up
    mean_tokens = sum(len(batch.targets) for batch in batches) / len(batches)
    return mean_tokens / measure(batches)

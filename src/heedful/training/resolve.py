"""From what was asked to what is done: everything left open is measured or worked out once, and written down.

    run/asked.json      what the settings said, and of which corpus; the same command must say the same again
    run/heedful.toml    what is done: asked, measured and worked out; on the disk before step 1

A run that is resumed reads its own heedful.toml, so nothing is measured twice and no choice can come out differently.
"""

import json
import time
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import torch

from heedful.build import build
from heedful.config import Settings, load, parse_duration, to_toml
from heedful.data.batch import Batch, collate
from heedful.data.plan import MicroBatch, Plan
from heedful.data.resampling import ResampledCorpus
from heedful.data.store import PreparedData, StoredCorpus
from heedful.errors import ConfigError
from heedful.files import replace_text
from heedful.model.seq2seq import Seq2Seq
from heedful.text.tokenizer import BOS, EOS, PAD
from heedful.training.distributed import World
from heedful.training.events import Note, Watch
from heedful.training.finetune import identity
from heedful.training.machine import default_threads, faster_precision, pace
from heedful.training.optimizer import optimizer_of, set_rate

ASKED, SETTLED = "asked.json", "heedful.toml"
FREE = (
    "keep_checkpoints",
    "log_every",
    "output_dir",
)  # keys of [train] that may change between two resumes: they change no number
MICRO = 4  # micro-batches of an exact run: it may be shared by 1, 2 or 4 processes
VALIDATIONS = 20  # in a run,
VALIDATE_SECONDS = 30  # but not more often than this, unless it is very short
SAVE_SECONDS = 300  # at most between two checkpoints
PROBES = 3  # batches that the pace is measured on

Corpora = Sequence[StoredCorpus | ResampledCorpus]


def asked_of(settings: Settings, prepared: PreparedData) -> dict[str, Any]:
    """What a resumed run must find unchanged: a flat table. Files may move; the fingerprint says if they differ."""
    tree = settings.model_dump(
        mode="json",
        exclude={"data": True, "train": set(FREE), "recipe": True, "init_from": True, "tokenizer": {"files"}},
    )
    if settings.init_from:
        tree["init_from"] = identity(settings.init_from)
    return {"corpus": prepared.fingerprint, **dict(flat(tree))}


def flat(tree: Mapping[str, Any], path: str = "") -> list[tuple[str, Any]]:
    """{"a": {"b": 1}} -> [("a.b", 1)]"""
    rows: list[tuple[str, Any]] = []
    for key, value in tree.items():
        rows += flat(value, f"{path}{key}.") if isinstance(value, dict) else [(f"{path}{key}", value)]
    return rows


def check_same(run: Path, asked: Mapping[str, Any]) -> None:
    """Refuse to go on with other settings or another corpus, and say what differs."""
    before = json.loads((run / ASKED).read_text(encoding="utf-8"))
    changed = [
        f"  {key}: {before.get(key)} then, {asked.get(key)} now"
        for key in {**before, **asked}
        if before.get(key) != asked.get(key)
    ]
    if changed:
        raise ConfigError(
            f"{run} was begun with other settings:\n"
            + "\n".join(changed)
            + "\nGo back to those, or name another folder "
            "(--out) for a new run."
        )


def settle(
    settings: Settings, prepared: PreparedData, corpora: Corpora, world: World, device: torch.device, watch: Watch
) -> Settings:
    """The settings with nothing left open; the first process decides, the others read it from the disk."""
    run = Path(settings.train.output_dir)
    if world.first:
        run.mkdir(parents=True, exist_ok=True)
        asked = asked_of(settings, prepared)
        if (run / SETTLED).is_file() and (run / ASKED).is_file():
            check_same(run, asked)
        else:
            chosen = choose(settings, prepared, corpora, world, device, watch)
            replace_text(run / ASKED, json.dumps(asked, indent=1, ensure_ascii=False))
            replace_text(run / SETTLED, to_toml(chosen))
    world.wait()
    settled = load(run / SETTLED)
    free = {key: getattr(settings.train, key) for key in FREE}
    moved = {"data": settings.data, "init_from": settings.init_from, "train": settled.train.model_copy(update=free)}
    return settled.model_copy(update=moved)


def choose(
    settings: Settings, prepared: PreparedData, corpora: Corpora, world: World, device: torch.device, watch: Watch
) -> Settings:
    """Fill in what was left open, and tell why."""
    train = settings.train
    if not train.steps and not train.time:
        raise ConfigError('say how long to train: train.steps = 8000, train.time = "40m", or --time 40m')

    def say(text: str) -> None:
        watch(Note(text, "choice"))

    found: dict[str, Any] = {"device": device.type}
    found["threads"] = train.threads or (1 if train.exact else default_threads(world.local_ranks))
    found["micro_batches"] = train.micro_batches or (max(MICRO, world.ranks) if train.exact else world.ranks)
    torch.set_num_threads(found["threads"])
    begun = train.model_copy(update=found)
    plan = plan_of(settings.model_copy(update={"train": begun}), prepared, corpora)
    batches = [batch_of(corpora, micro) for step in range(PROBES) for micro in plan.batch(step * 7)[:1]]
    model = fresh(settings, prepared, device)
    if train.precision is None:
        found["precision"] = "fp32"
        if device.type == "cpu":
            found["precision"], speeds = faster_precision(model, batches, device, found["micro_batches"])
            gain = speeds["bf16"] / speeds["fp32"]
            say(f"precision {found['precision']}: bf16 is {gain:.2f} x as fast as fp32 here, measured on your batches")
        elif device.type == "cuda" and torch.cuda.is_bf16_supported():
            found["precision"] = "bf16"
            say("precision bf16: this GPU has units for it")
    precision = train.precision or found["precision"]
    each = step_seconds(model, batches, device, precision, begun) * found["micro_batches"] / world.ranks
    if train.time is not None:
        found["steps"] = max(
            20, int(0.9 * parse_duration(train.time) / each)
        )  # a tenth for validating; corrected on the way
        say(f"steps {found['steps']:,}: what {train.time} has room for at {1 / each:.2f} steps/s; corrected on the way")
    steps = int(found.get("steps") or train.steps or 0)
    if train.time is None:
        say(f"about {spoken(each * steps)}: {steps:,} steps at {1 / each:.2f} steps/s, and validations")
    apart = max(steps // VALIDATIONS, min(steps // 4, int(VALIDATE_SECONDS / each)))
    found["validate_every"] = train.validate_every or max(1, apart)
    found["save_every"] = train.save_every or max(1, min(found["validate_every"], int(SAVE_SECONDS / each)))
    return settings.model_copy(update={"recipe": None, "train": train.model_copy(update=found)})


def spoken(duration: float) -> str:
    """Seconds as --time takes them, rounded up: 45s, 12m, 1h30m."""
    if duration <= 90:
        return f"{ceil(duration)}s"
    hours, minutes = divmod(ceil(duration / 60), 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "")


def step_seconds(model: Seq2Seq, batches: Sequence[Batch], device: torch.device, precision: str, train: Any) -> float:
    """How long an update takes, for one micro-batch: forward, backward, optimizer."""
    optimizer = optimizer_of(train, model)
    set_rate(optimizer, 0.0)

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    parts = train.micro_batches
    pace(model, batches[:1], device, precision, after=update, micro_batches=parts)  # warms up
    tokens = sum(len(batch.targets) for batch in batches) / len(batches)
    return tokens / pace(model, batches, device, precision, after=update, micro_batches=parts)


# ------------------------------------------------------------------------------------------------------ what is built


def fresh(settings: Settings, prepared: PreparedData, device: torch.device) -> Seq2Seq:
    """The model with its first weights, which the seed decides."""
    if settings.model is None:
        raise ConfigError('there is no [model]: write one, or take a recipe: recipe = "transformer-tiny"')
    torch.manual_seed(settings.seed)
    sizes = [prepared.manifest["tokenizers"][side]["size"] for side in ("source", "target")]
    model = build(settings.model, *sizes, label_smoothing=settings.train.label_smoothing, r_drop=settings.train.r_drop)
    return model.to(device).train()


def plan_of(settings: Settings, prepared: PreparedData, corpora: Corpora) -> Plan:
    """Which pairs make which batch."""
    return Plan(
        corpora,
        seed=settings.seed,
        batch_tokens=settings.train.batch_tokens,
        micro_batches=settings.train.micro_batches or 1,
        weights=prepared.corpus_weights,
        temperature=prepared.manifest["temperature"],
    )


def batch_of(corpora: Corpora, micro: MicroBatch) -> Batch:
    """A micro-batch as tensors."""
    corpus = corpora[micro.corpus]
    rows = micro.rows.tolist()
    pairs = corpus.pairs(micro.epoch, rows) if isinstance(corpus, ResampledCorpus) else corpus.pairs(rows)
    return collate([(source.tolist(), target.tolist()) for source, target in pairs], bos=BOS, eos=EOS, pad=PAD)


def now() -> float:
    """Seconds that only ever grow."""
    return time.perf_counter()

"""The autopilot: chooses settings by the size of the corpus and the measured speed of this machine.

    heedful train train.en train.de --out my-model [--time 40m]

It makes four decisions, in this order, each by a table or a formula below and each with a one-line reason:

    vocabulary    by the number of pairs, but large enough for all their letters
    size          the largest model that sees enough text in the time; its speed is measured on batches of this corpus
    dropout       by how often each pair is seen, and how much of the corpus the model could memorize
    schedule      as many updates as there is time for; they determine batch size, learning rate, warm-up and EMA

The decisions are written to my-model/autopilot.toml, a normal heedful.toml with the reasons as comments. The run uses
this file; if you repeat the command, it is found and nothing is measured again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import ceil, inf, sqrt
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import RootModel

from heedful.config import Settings, load, merge_trees, parse_duration, parse_settings, to_toml
from heedful.corpus.launchers import Launcher
from heedful.corpus.readers import read_corpus
from heedful.data.prepare import ProgressCallback, prepare
from heedful.data.store import PreparedData
from heedful.errors import ConfigError, DataError
from heedful.files import replace_text
from heedful.inputs.kinds import make_input
from heedful.training.clock import format_duration
from heedful.training.data import Corpora, count_micro_batches, load_batch, make_plan, split_validation
from heedful.training.distributed import World
from heedful.training.events import EventHandler, Note
from heedful.training.flat_settings import LENGTH_KEYS, describe_changes, flatten
from heedful.training.machine import default_threads, measure_precisions, measure_tokens_per_second, use_threads
from heedful.training.weights import initialize_model

AUTOPILOT_FILE = "autopilot.toml"


@dataclass(frozen=True, slots=True)
class ModelSize:
    """A Transformer that the autopilot may choose for corpora of at least `min_pairs` pairs."""

    name: str
    min_pairs: int
    layers: int  # of the encoder, and as many of the decoder
    width: int
    feedforward_size: int
    heads: int
    max_batch_tokens: int  # larger batches hardly improve an update
    learning_rate: float  # at 4096 tokens

    @property
    def weights(self) -> int:
        """L (4 D^2 + 2 D F) of the encoder + L (8 D^2 + 2 D F) of the decoder, without embeddings"""
        return self.layers * (12 * self.width**2 + 4 * self.width * self.feedforward_size)


MODEL_SIZES = (
    ModelSize("mini", 0, 2, 128, 256, 4, 4096, 3.5e-3),
    ModelSize("tiny", 2_000, 4, 128, 256, 4, 4096, 3.5e-3),
    ModelSize("small", 100_000, 4, 256, 1024, 4, 8192, 1.8e-3),
    ModelSize("base", 200_000, 6, 512, 2048, 8, 16_384, 6e-4),
    ModelSize("big", 4_000_000, 6, 1024, 4096, 16, 32_768, 2e-4),
)


@dataclass(frozen=True, slots=True)
class CorpusScale:
    """Settings for corpora of at least `min_pairs` pairs."""

    min_pairs: int
    vocab_size: int  # each piece must occur often enough to be learned
    passes: int  # over the data, without --time


CORPUS_SCALES = (
    CorpusScale(0, 1_000, 200),
    CorpusScale(3_000, 4_000, 150),
    CorpusScale(15_000, 6_000, 80),
    CorpusScale(100_000, 8_000, 40),
    CorpusScale(400_000, 16_000, 20),
    CorpusScale(1_000_000, 32_000, 10),
    CorpusScale(20_000_000, 32_000, 4),
)

# Dropout keeps a model from memorizing pairs, but slows down learning. The smaller of two values is used:
DROPOUT_BY_PASSES = ((3, 0.0), (6, 0.1), (20, 0.2), (inf, 0.3))  # if each pair is seen fewer times than this
DROPOUT_BY_CAPACITY = ((0.1, 0.0), (0.5, 0.1), (1.0, 0.2), (inf, 0.3))  # if there are fewer weights per token than this

MIN_PAIRS = 500
MIN_TRAINING_TOKENS = 50_000  # about fifty updates
MAX_COUNTED_PAIRS = 1_000_000  # the vocabulary is the same for larger corpora
MAX_LETTER_PAIRS = 50_000  # in which letters are counted
NUM_BYTE_PIECES = 256  # in every vocabulary
MAX_USEFUL_PASSES = 20  # over the data; more improve little (Muennighoff et al. 2023)
DEFAULT_MAX_SECONDS = 3 * 3600.0  # without --time
STEP_TIME_SHARE = 0.8  # of the time for steps; the rest is for validating, saving and decoding
MIN_UPDATES = 1_000  # batches are made smaller to reach it
MAX_GRAPH_LAYERS = 3  # with more, the vectors of all nodes become alike
MIN_BATCH_TOKENS = 1024  # smaller batches use the hardware badly
PROBE_BATCH_TOKENS, NUM_PROBE_BATCHES = 2048, 2  # for measuring the speed
WARMUP_SHARE, MAX_WARMUP_STEPS = 0.2, 400  # of the steps
EMA_SHARE, MAX_EMA_DECAY = 0.5, 0.999  # the EMA spans this share of the steps
# If each pair is seen fewer times than this: the amount of subword regularization, and the largest dropout then.
REGULARIZATION_BY_PASSES = ((40, (0.0, inf)), (150, (0.05, 0.2)), (inf, (0.1, 0.3)))
PATIENCE = 6  # validations


@dataclass(frozen=True, slots=True)
class Decision:
    """A setting, its value, and the reason, if it needs one."""

    key: str
    value: Any
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CorpusFacts:
    """The size of the training corpus."""

    pairs: int
    tokens: int  # of the target (of the source, if targets are labels), including end tokens


@dataclass(frozen=True, slots=True)
class TrainingSpeed:
    """How fast a model trains on this machine, and in which precision."""

    tokens_per_second: float  # of the target
    precision: str
    reason: str


Value = TypeVar("Value")
SecondsLeft = Callable[[], float]
MeasureSpeed = Callable[[ModelSize], TrainingSpeed]


def run_autopilot(
    requested: Settings,
    world: World,
    device: torch.device,
    *,
    launcher: Launcher,
    progress: ProgressCallback,
    on_event: EventHandler,
    elapsed_seconds: Callable[[], float],
) -> Settings:
    """The requested settings, and a decision for each open one; deciding counts toward the time limit."""
    file = Path(requested.train.output_dir) / AUTOPILOT_FILE
    if world.is_first and file.is_file():
        check_same_request(requested, file)
        on_event(Note(f"autopilot: continuing with {file}", "choice"))
    elif world.is_first:
        limit = parse_duration(requested.train.time) if requested.train.time else DEFAULT_MAX_SECONDS
        decisions = decide_settings(requested, world, device, launcher, progress, lambda: limit - elapsed_seconds())
        for decision in explained_decisions(decisions, requested):
            on_event(Note(f"autopilot: {decision.key} = {decision.value} ({decision.reason})", "choice"))
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, format_toml(decisions, requested))
    world.barrier()
    return override_length(load(file), requested)


def override_length(settings: Settings, requested: Settings) -> Settings:
    """The settings, with the time or steps of the command if it names one: a run may be made longer."""
    train = requested.train
    if train.time is None and train.steps is None:
        return settings
    length = {"time": train.time, "steps": train.steps}
    return settings.model_copy(update={"train": settings.train.model_copy(update=length)})


def decide_settings(
    requested: Settings,
    world: World,
    device: torch.device,
    launcher: Launcher,
    progress: ProgressCallback,
    seconds_left: SecondsLeft,
) -> list[Decision]:
    """Count the corpus, prepare it, measure the speed, then decide."""
    limit = seconds_left()
    vocabulary = decide_vocabulary(*count_corpus(requested))
    prepared = prepare(merge_decisions([vocabulary], requested), launcher=launcher, progress=progress)
    corpora, _ = split_validation(prepared, requested.train.validate_pairs)
    pairs = sum(corpus.num_rows for corpus in corpora)
    counts = prepared.manifest["counts"]
    facts = CorpusFacts(pairs, counts["tokens.target"] + pairs)
    tokens_per_label = 1.0
    if requested.output.kind == "labels":  # what is read takes the time
        facts = CorpusFacts(pairs, counts.get("tokens.source", 0) + pairs)
        tokens_per_label = facts.tokens / max(1, counts["tokens.target"])

    def measure(size: ModelSize) -> TrainingSpeed:
        settings = merge_decisions([vocabulary, *decide_model(requested, size, 0.1)], requested)
        speed = measure_speed(settings, prepared, corpora, world, device)
        return replace(speed, tokens_per_second=tokens_per_label * speed.tokens_per_second)

    size, speed = choose_size(facts, measure, seconds_left)
    if STEP_TIME_SHARE * seconds_left() * speed.tokens_per_second < MIN_TRAINING_TOKENS:
        spent = limit - seconds_left()
        needed = spent + MIN_TRAINING_TOKENS / speed.tokens_per_second / STEP_TIME_SHARE
        raise ConfigError(
            f"the time limit is too short: reading, cleaning and measuring took {format_duration(spent)}, and the "
            f"smallest model trains on {speed.tokens_per_second:,.0f} tokens per second here. Use --time "
            f"{format_duration(1.5 * needed)} or more"
        )
    return [vocabulary, *decide_training(requested, facts, size, speed, seconds_left(), world.ranks)]


# ---------------------------------------------------------------------------------------------------- pure decisions


def decide_vocabulary(pairs: int, letters: int) -> Decision:
    """By the number of pairs, but large enough for every letter and as many longer pieces."""
    usual, minimum = find_scale(pairs).vocab_size, ceil((NUM_BYTE_PIECES + 2 * letters) / 1000) * 1000
    if minimum > usual:
        return Decision("tokenizer.vocab_size", minimum, f"{letters:,} different letters, and as many longer pieces")
    size = f"{pairs:,} pairs" if pairs < MAX_COUNTED_PAIRS else "a million pairs or more"
    return Decision("tokenizer.vocab_size", usual, f"{size}: each piece must occur often enough to be learned")


def find_scale(pairs: int) -> CorpusScale:
    """The entry of CORPUS_SCALES for a corpus."""
    return [scale for scale in CORPUS_SCALES if scale.min_pairs <= pairs][-1]


def choose_size(
    facts: CorpusFacts, measure: MeasureSpeed, seconds_left: SecondsLeft
) -> tuple[ModelSize, TrainingSpeed]:
    """The largest size that sees one token per weight in the time left; frequent repetitions do not count.

    Of two models trained for the same time, the smaller sees more text and the larger learns more from it. By the law
    of Hoffmann et al. 2022, loss = E + A / weights^0.34 + B / tokens^0.28, and with the CPU speeds of neighbors in
    MODEL_SIZES, both reach the same loss when the larger has seen between 0.5 and 2 tokens per weight.

    Speeds are measured from the smallest size up, as long as a larger one may qualify: a larger one is never faster.
    """
    best, speed = MODEL_SIZES[0], measure(MODEL_SIZES[0])
    for size in MODEL_SIZES[1:]:
        max_tokens = min(STEP_TIME_SHARE * seconds_left() * speed.tokens_per_second, MAX_USEFUL_PASSES * facts.tokens)
        if facts.pairs < size.min_pairs or max_tokens < size.weights:
            break
        larger = measure(size)
        if STEP_TIME_SHARE * seconds_left() * larger.tokens_per_second < size.weights:
            break
        best, speed = size, larger
    return best, speed


def decide_training(
    requested: Settings,
    facts: CorpusFacts,
    size: ModelSize,
    speed: TrainingSpeed,
    seconds_left: float,
    ranks: int = 1,
) -> list[Decision]:
    """All decisions that depend on how many tokens there is time for."""
    tokens = STEP_TIME_SHARE * seconds_left * speed.tokens_per_second
    if requested.train.steps:
        tokens = min(tokens, requested.train.steps * requested.train.batch_tokens)
    elif not requested.train.time:
        tokens = min(tokens, find_scale(facts.pairs).passes * facts.tokens)
    passes, duration = tokens / facts.tokens, format_duration(tokens / speed.tokens_per_second / STEP_TIME_SHARE)
    batch = choose_batch_tokens(requested, size, tokens, ranks)
    steps = requested.train.steps or max(1, int(tokens / batch))
    learning_rate = float(f"{size.learning_rate * sqrt(batch / 4096):.2g}")
    warmup = max(1, min(MAX_WARMUP_STEPS, int(WARMUP_SHARE * steps)))
    decay = round(min(MAX_EMA_DECAY, 1 - 1 / max(2.0, EMA_SHARE * steps)), 4)
    tokenizer = requested.tokenizer
    is_open = "subword_regularization" not in tokenizer.model_fields_set
    may_regularize = requested.input.kind == "text" and tokenizer.kind in ("bpe", "unigram") and is_open
    regularization, max_dropout = find_below(REGULARIZATION_BY_PASSES, passes) if may_regularize else (0.0, inf)
    dropout, dropout_reason = choose_dropout(size, facts, passes, max_dropout)
    size_reason = f"size {size.name}, which trains on {speed.tokens_per_second:,.0f} tokens per second here"
    decisions = [
        *decide_model(requested, size, dropout, dropout_reason, size_reason),
        Decision("train.batch_tokens", batch, f"{tokens / 1e6:.3g} million tokens in about {steps:,} updates"),
        Decision("train.learning_rate", learning_rate, "lower for wide models, higher for large batches"),
        Decision("train.schedule", "linear", "falls to zero at the last step"),
        Decision("train.warmup_steps", warmup, f"{WARMUP_SHARE:.0%} of the updates, at most {MAX_WARMUP_STEPS}"),
        Decision("train.ema", decay, f"averages the weights over about {1 / (1 - decay):,.0f} updates"),
        Decision("train.precision", speed.precision, speed.reason),
    ]
    if not requested.train.time:
        reason = f"{passes:.3g} passes over {facts.pairs:,} pairs, about {duration}; --time sets another limit"
        decisions.append(Decision("train.steps", steps, reason))
        reason = "validations in a row without improvement end the run early"
        decisions.append(Decision("train.patience", PATIENCE, reason))
    if regularization:
        reason = f"words are re-segmented in each of {passes:.0f} passes to prevent memorization"
        decisions.insert(0, Decision("tokenizer.subword_regularization", regularization, reason))
    return decisions


def find_below(table: Iterable[tuple[float, Value]], number: float) -> Value:
    """The value of the first entry whose bound exceeds the number."""
    return next(value for bound, value in table if number < bound)


def choose_dropout(size: ModelSize, facts: CorpusFacts, passes: float, max_dropout: float = inf) -> tuple[float, str]:
    """The smallest of both tables and `max_dropout` (from subword regularization), and the reason."""
    by_passes = find_below(DROPOUT_BY_PASSES, passes)
    by_capacity = find_below(DROPOUT_BY_CAPACITY, size.weights / facts.tokens)
    if max_dropout < min(by_passes, by_capacity):
        return max_dropout, f"each pair is seen {passes:.3g} times, but its words are re-segmented"
    if by_passes <= by_capacity:
        return by_passes, f"each pair is seen {passes:.3g} times"
    return by_capacity, f"there are {facts.tokens / size.weights:.2g} tokens of text for each weight"


def choose_batch_tokens(requested: Settings, size: ModelSize, tokens: float, ranks: int) -> int:
    """The largest batch that leaves MIN_UPDATES; micro-batches must fit the longest pair, a tag and an end token."""
    train = requested.train
    if "batch_tokens" in train.model_fields_set:
        return train.batch_tokens
    micro_batches = count_micro_batches(train.micro_batches, ranks, exact=train.exact)
    minimum = max(MIN_BATCH_TOKENS, micro_batches * (requested.clean.max_tokens + 2))
    batch = max(size.max_batch_tokens, minimum)
    while batch // 2 >= minimum and tokens / batch < MIN_UPDATES:
        batch //= 2
    return batch


def decide_model(
    requested: Settings, size: ModelSize, dropout: float, dropout_reason: str = "", size_reason: str = ""
) -> list[Decision]:
    """A pre-norm Transformer that shares as many embeddings as the vocabularies allow."""
    layers: dict[str, Any] = {"kind": "transformer", "layers": size.layers, "heads": size.heads}
    layers |= {"feedforward_size": size.feedforward_size, "norm": "pre", "dropout": dropout}
    encoder = {
        "text": layers,
        "image": {**layers, "kind": "patches"},
        "audio": {**layers, "kind": "frames"},
        "graph": {
            "kind": "graph",
            "layers": min(size.layers, MAX_GRAPH_LAYERS),
            "heads": size.heads,
            "dropout": dropout,
        },
        "none": {"kind": "nothing"},
    }[requested.input.kind]
    is_shared = requested.tokenizer.shared and requested.input.kind == "text"
    tied, decoder = "all" if is_shared else "target", layers
    if requested.output.kind == "labels":
        pooling = "none" if requested.output.per_slot else "attention"
        tied, decoder = "none", {"kind": "labels", "pooling": pooling, "dropout": dropout}
    return [
        Decision("model.width", size.width, size_reason),
        Decision("model.positions", "sinusoidal"),
        Decision("model.scale_embeddings", True),
        Decision("model.dropout", dropout, dropout_reason),
        Decision("model.tie_embeddings", tied),
        *(Decision(f"model.encoder.{key}", value) for key, value in encoder.items()),
        *(Decision(f"model.decoder.{key}", value) for key, value in decoder.items()),
    ]


# ------------------------------------------------------------------------------------------------------- measurements


def count_corpus(requested: Settings) -> tuple[int, int]:
    """The number of pairs, up to MAX_COUNTED_PAIRS, and of letters that get a piece in the vocabulary."""
    pairs, rejected, letters = 0, 0, Counter[str]()
    for corpus in requested.data.train:
        for block in read_corpus(corpus, requested):
            if pairs < MAX_LETTER_PAIRS:
                sides = (block.source, block.target) if requested.input.kind == "text" else (block.target,)
                letters.update(chain.from_iterable(chain(*sides)))
            pairs, rejected = pairs + len(block.source), rejected + len(block.rejects)
            if pairs >= MAX_COUNTED_PAIRS:
                break
    if pairs < MIN_PAIRS:
        unread = f" ({rejected:,} more cannot be read; run heedful check to see why)" if rejected else ""
        raise DataError(
            f"{pairs:,} pairs are too few{unread}: the autopilot needs {MIN_PAIRS}, and a useful translator about "
            "10,000. To experiment with fewer, use a recipe: --recipe transformer-tiny --set tokenizer.vocab_size=400"
        )
    covered, num_letters = 0, 0
    for _, count in letters.most_common():
        if covered >= requested.tokenizer.character_coverage * letters.total():
            break
        covered, num_letters = covered + count, num_letters + 1
    return pairs, num_letters


def measure_speed(
    settings: Settings, prepared: PreparedData, corpora: Corpora, world: World, device: torch.device
) -> TrainingSpeed:
    """Training speed on batches of this corpus, in the faster precision, times the number of processes."""
    batch_tokens = max(PROBE_BATCH_TOKENS, settings.clean.max_tokens + 2)
    plan = make_plan(prepared, corpora, seed=settings.seed, batch_tokens=batch_tokens, micro_batches=1)
    steps = range(0, 7 * NUM_PROBE_BATCHES, 7)
    inputs = make_input(settings.input)
    batches = [load_batch(corpora, micro_batch, inputs) for step in steps for micro_batch in plan.batch(step)]
    with use_threads(settings.train.threads or default_threads(world.local_ranks)):
        model = initialize_model(settings, prepared, device)
        if device.type == "cpu":
            precision, speeds = measure_precisions(model, batches, device)
            reason = f"bf16 is {speeds['bf16'] / speeds['fp32']:.2f} x as fast as fp32 here"
            return TrainingSpeed(world.ranks * speeds[settings.train.precision or precision], precision, reason)
        precision = "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
        for _ in range(2):  # the first warms up
            speed = measure_tokens_per_second(
                model, batches, device, precision, after_batch=lambda: model.zero_grad(set_to_none=True)
            )
        return TrainingSpeed(world.ranks * speed, precision, "bf16 where the GPU supports it")


# ------------------------------------------------------------------------------------------------------ autopilot.toml


def explicit_settings(requested: Settings) -> dict[str, Any]:
    """The user's settings, without defaults and without splits that have no corpora."""
    tree = requested.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    return {**tree, "data": {key: value for key, value in tree["data"].items() if value}}


def merge_decisions(decisions: Iterable[Decision], requested: Settings) -> Settings:
    """The decisions, overridden by the user's settings."""
    return parse_settings(merge_trees(nest_decisions(decisions), explicit_settings(requested)), where="the autopilot")


def nest_decisions(decisions: Iterable[Decision]) -> dict[str, Any]:
    """("a.b", 1) -> {"a": {"b": 1}}"""
    tree: dict[str, Any] = {}
    for decision in decisions:
        *path, last = decision.key.split(".")
        section = tree
        for part in path:
            section = section.setdefault(part, {})
        section[last] = decision.value
    return tree


def explained_decisions(decisions: Iterable[Decision], requested: Settings) -> list[Decision]:
    """Decisions that have a reason and whose keys the user left open."""
    explicit = dict(flatten(explicit_settings(requested)))
    return [decision for decision in decisions if decision.reason and decision.key not in explicit]


def format_toml(decisions: Sequence[Decision], requested: Settings) -> str:
    """autopilot.toml: settings and decisions, with reasons as comments and paths relative to the file."""
    folder, prepared = Path(requested.train.output_dir), Path(requested.data.prepared_dir)
    relative = prepared.relative_to(folder) if prepared.is_relative_to(folder) else prepared
    paths = {"data": {"prepared_dir": relative.as_posix()}, "train": {"output_dir": "."}}
    tree = merge_trees(nest_decisions(decisions), merge_trees(explicit_settings(requested), paths))
    ordered = RootModel({key: tree[key] for key in Settings.model_fields if key in tree})
    reasons = {decision.key: decision.reason for decision in explained_decisions(decisions, requested)}
    lines = [
        "# Chosen by heedful's autopilot for this corpus and this machine. To change it, edit this file and type:",
        f"# heedful train {AUTOPILOT_FILE} --out another-directory",
        "",
    ]
    section = ""
    for line in to_toml(ordered).splitlines():
        if line.startswith("["):
            section = line.strip("[]") + "."
        reason = reasons.get(section + line.partition(" = ")[0])
        lines.append(f"{line:<30} # {reason}" if reason else line)
    return "\n".join(lines) + "\n"


def check_same_request(requested: Settings, file: Path) -> None:
    """Raise a ConfigError if autopilot.toml was written for other settings."""
    before, now = (dict(flatten(explicit_settings(settings))) for settings in (load(file), requested))
    keys = [key for key in now if key not in LENGTH_KEYS]
    if changes := describe_changes(before, now, keys, "in the file"):
        raise ConfigError(
            f"{file} was written for another command:\n{changes}\nUse that command again, choose another directory "
            f"(--out), or train with this file: heedful train {file}"
        )

"""The autopilot: from nothing but files to settings, by the size of the corpus and the measured speed of this machine.

    heedful train train.en train.de --out my-model [--time 40m]

Four questions are answered in turn, each by a table or a formula below and each with one line of why:

    vocabulary    by the number of pairs, and never less than their letters need
    size          the largest model worth its weights: its speed is measured here, on batches of this corpus
    dropout       by how often each pair will be seen, and by how much of the corpus the model could learn by heart
    schedule      as many updates as there is time for; from them batch, learning rate, warm-up and mean

The answers are written to my-model/autopilot.toml, a heedful.toml like any other with the whys as comments. What is
trained is what this file says; the same command again finds it and measures nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, inf, sqrt
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import RootModel

from heedful.config import Settings, load, merge_trees, parse_duration, parse_settings, to_toml
from heedful.corpus.launchers import Launcher
from heedful.corpus.readers import read_pairs
from heedful.data.prepare import ProgressCallback, prepare
from heedful.data.store import PreparedData
from heedful.errors import ConfigError, DataError
from heedful.files import replace_text
from heedful.training.distributed import World
from heedful.training.events import Note, Watch
from heedful.training.machine import default_threads, faster_precision, pace
from heedful.training.resolve import MICRO, Corpora, batch_of, flat, fresh, plan_of, spoken
from heedful.training.validate import held_out

FILE = "autopilot.toml"


@dataclass(frozen=True, slots=True)
class Size:
    """A Transformer that may be chosen, from so many pairs on."""

    name: str
    pairs: int
    layers: int  # of the encoder, and as many of the decoder
    width: int
    inner: int
    heads: int
    batch_tokens: int  # at most: more in one update teach it little more
    learning_rate: float  # at 4096 tokens

    @property
    def weights(self) -> int:
        """L (4 D^2 + 2 D F) of the encoder + L (8 D^2 + 2 D F) of the decoder: those beside the table"""
        return self.layers * (12 * self.width**2 + 4 * self.width * self.inner)


SIZES = (
    Size("mini", 0, 2, 128, 256, 4, 4096, 3.5e-3),
    Size("tiny", 2_000, 4, 128, 256, 4, 4096, 3.5e-3),
    Size("small", 100_000, 4, 256, 1024, 4, 8192, 1.8e-3),
    Size("base", 200_000, 6, 512, 2048, 8, 16_384, 6e-4),
    Size("big", 4_000_000, 6, 1024, 4096, 16, 32_768, 2e-4),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """What a corpus of so many pairs and more needs."""

    pairs: int
    vocabulary: int  # pieces: as many as are seen often enough to be learned
    passes: int  # where no time is given


SCALES = (
    Scale(0, 1_000, 200),
    Scale(3_000, 4_000, 150),
    Scale(15_000, 6_000, 80),
    Scale(100_000, 8_000, 40),
    Scale(400_000, 16_000, 20),
    Scale(1_000_000, 32_000, 10),
    Scale(20_000_000, 32_000, 4),
)

# Dropout keeps a model from learning pairs by heart, and costs progress. The lesser of two is enough:
BY_PASSES = ((3, 0.0), (6, 0.1), (20, 0.2), (inf, 0.3))  # where each pair is seen fewer times than this
BY_ROOM = ((0.1, 0.0), (0.5, 0.1), (1.0, 0.2), (inf, 0.3))  # where a token of the corpus has fewer weights than this

LEAST_PAIRS = 500
LEAST_TOKENS = 50_000  # to learn from: fifty updates
COUNTED = 1_000_000  # pairs; from there on the vocabulary is the same
LETTERS = 50_000  # pairs whose letters are counted
BYTES = 256  # pieces that every vocabulary has
REPEATS = 20  # passes; those after them teach little more (Muennighoff et al. 2023)
LONGEST = 3 * 3600.0  # seconds, where no time is given
SHARE = 0.8  # of the time for steps; the rest is for validating, saving and decoding
UPDATES = 1_000  # at least, as far as smaller batches can make them
LEAST_BATCH = 1024  # tokens; smaller ones waste the processor
PROBE, PROBES = 2048, 2  # tokens of the batches that are measured, and how many
WARMUP, MOST_WARMUP = 0.2, 400  # share of the steps, and steps
MEAN, LONGEST_MEAN = 0.5, 0.999  # share of the steps that the mean of weights looks back, and its decay at most
# Where each pair is seen fewer times than this: how much words are cut anew, and the dropout that is enough beside it.
CUT_ANEW = ((40, (0.0, inf)), (150, (0.05, 0.2)), (inf, (0.1, 0.3)))
PATIENCE = 6  # validations


@dataclass(frozen=True, slots=True)
class Choice:
    """A key, its value, and why; what needs no reason has none."""

    key: str
    value: Any
    why: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is to learn from."""

    pairs: int
    tokens: int  # of the target, with the end tokens


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a model learns here, and in which number format."""

    tokens: float  # of the target, per second
    precision: str
    why: str


Found = TypeVar("Found")
Left = Callable[[], float]  # seconds that are left
Meter = Callable[[Size], Speed]


def pilot(
    given: Settings,
    world: World,
    device: torch.device,
    *,
    launcher: Launcher,
    progress: ProgressCallback,
    watch: Watch,
    spent: Callable[[], float],
) -> Settings:
    """What was given, and a choice for all that was not; the time that choosing takes is `spent` of the time given."""
    file = Path(given.train.output_dir) / FILE
    if world.first and file.is_file():
        check_same(given, file)
        watch(Note(f"autopilot: going on with what {file} says", "choice"))
    elif world.first:
        limit = parse_duration(given.train.time) if given.train.time else LONGEST
        choices = choose(given, world, device, launcher, progress, lambda: limit - spent())
        for one in told(choices, given):
            watch(Note(f"autopilot: {one.key} = {one.value} ({one.why})", "choice"))
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, commented(choices, given))
    world.wait()
    return load(file)


def choose(
    given: Settings, world: World, device: torch.device, launcher: Launcher, progress: ProgressCallback, left: Left
) -> list[Choice]:
    """Count, prepare, measure, fit."""
    limit = left()
    vocabulary = vocabulary_of(*counted(given))
    prepared = prepare(settings_with([vocabulary], given), launcher=launcher, progress=progress)
    corpora, _ = held_out(prepared, given.train.validate_pairs)
    pairs = sum(corpus.num_rows for corpus in corpora)
    facts = Facts(pairs, prepared.manifest["counts"]["tokens.target"] + pairs)

    def meter(size: Size) -> Speed:
        return measured(settings_with([vocabulary, *shape(given, size, 0.1)], given), prepared, corpora, world, device)

    size, speed = largest(facts, meter, left)
    if SHARE * left() * speed.tokens < LEAST_TOKENS:
        took = limit - left()
        least = took + LEAST_TOKENS / speed.tokens / SHARE
        raise ConfigError(
            f"the time is too short: reading, cleaning and measuring took {spoken(took)}, and the smallest model learns"
            f" from {speed.tokens:,.0f} tokens a second here. Give it --time {spoken(1.5 * least)} or more"
        )
    return [vocabulary, *fitted(given, facts, size, speed, left(), world.ranks)]


# ---------------------------------------------------------------------------------------------------- pure choices


def vocabulary_of(pairs: int, letters: int) -> Choice:
    """What the pairs are enough for; but every letter is a piece, and as many again should be more than letters."""
    wanted, least = scale_of(pairs).vocabulary, ceil((BYTES + 2 * letters) / 1000) * 1000
    if least > wanted:
        return Choice("tokenizer.vocab_size", least, f"{letters:,} different letters, and as many pieces of words")
    size = f"{pairs:,} pairs" if pairs < COUNTED else "a million pairs or more"
    return Choice("tokenizer.vocab_size", wanted, f"{size}: a piece should be seen often enough to be learned")


def scale_of(pairs: int) -> Scale:
    """The line of SCALES."""
    return [scale for scale in SCALES if scale.pairs <= pairs][-1]


def largest(facts: Facts, meter: Meter, left: Left) -> tuple[Size, Speed]:
    """The largest size that in this time sees a token for each of its weights, not counting what is repeated often.

    Of two models that learn for the same time the smaller sees more text and the larger makes more of it. By the law of
    Hoffmann et al. 2022, loss = E + A / weights^0.34 + B / tokens^0.28, and with the speeds that neighbors in SIZES
    have on a processor, the two are equal where the larger has seen between 0.5 and 2 tokens per weight.

    It is measured from the smallest up, and only while a larger one could still win: it is never faster.
    """
    best, speed = SIZES[0], meter(SIZES[0])
    for size in SIZES[1:]:
        if facts.pairs < size.pairs or min(SHARE * left() * speed.tokens, REPEATS * facts.tokens) < size.weights:
            break
        larger = meter(size)
        if SHARE * left() * larger.tokens < size.weights:
            break
        best, speed = size, larger
    return best, speed


def fitted(given: Settings, facts: Facts, size: Size, speed: Speed, left: float, ranks: int = 1) -> list[Choice]:
    """Everything that follows from how many tokens there is time for."""
    tokens = SHARE * left * speed.tokens
    if given.train.steps:
        tokens = min(tokens, given.train.steps * given.train.batch_tokens)
    elif not given.train.time:
        tokens = min(tokens, scale_of(facts.pairs).passes * facts.tokens)
    passes, took = tokens / facts.tokens, spoken(tokens / speed.tokens / SHARE)
    batch = batch_tokens(given, size, tokens, ranks)
    steps = given.train.steps or max(1, int(tokens / batch))
    rate = float(f"{size.learning_rate * sqrt(batch / 4096):.2g}")
    warmup = max(1, min(MOST_WARMUP, int(WARMUP * steps)))
    decay = round(min(LONGEST_MEAN, 1 - 1 / max(2.0, MEAN * steps)), 4)
    cuts = (
        given.tokenizer.kind in ("bpe", "unigram") and "subword_regularization" not in given.tokenizer.model_fields_set
    )
    regularization, enough = below(CUT_ANEW, passes) if cuts else (0.0, inf)
    dropout, why_dropout = dropout_of(size, facts, passes, enough)
    why_size = f"size {size.name}, which learns {speed.tokens:,.0f} tokens a second here"
    choices = [
        *shape(given, size, dropout, why_dropout, why_size),
        Choice("train.batch_tokens", batch, f"{tokens / 1e6:.3g} million tokens in about {steps:,} updates"),
        Choice("train.learning_rate", rate, "less for wide models, more for large batches"),
        Choice("train.schedule", "linear", "to zero at the last step"),
        Choice("train.warmup_steps", warmup, f"{WARMUP:.0%} of the updates, {MOST_WARMUP} at most"),
        Choice("train.ema", decay, f"the mean of the weights of about {1 / (1 - decay):,.0f} updates is kept"),
        Choice("train.precision", speed.precision, speed.why),
    ]
    if not given.train.time:
        why = f"{passes:.3g} passes over {facts.pairs:,} pairs, about {took}; --time says how long it may take"
        choices.append(Choice("train.steps", steps, why))
        choices.append(Choice("train.patience", PATIENCE, "validations in a row without a better one end it early"))
    if regularization:
        why = f"words are cut anew in each of {passes:.0f} passes, so that none is learned by heart"
        choices.insert(0, Choice("tokenizer.subword_regularization", regularization, why))
    return choices


def below(table: Iterable[tuple[float, Found]], value: float) -> Found:
    """What the first line says whose bound is above the value."""
    return next(found for bound, found in table if value < bound)


def dropout_of(size: Size, facts: Facts, passes: float, enough: float = inf) -> tuple[float, str]:
    """The lesser of BY_PASSES and BY_ROOM, and no more than is `enough` where words are cut anew; and why."""
    by_passes, by_room = below(BY_PASSES, passes), below(BY_ROOM, size.weights / facts.tokens)
    if enough < min(by_passes, by_room):
        return enough, f"each pair is seen {passes:.3g} times, but its words are cut anew"
    if by_passes <= by_room:
        return by_passes, f"each pair is seen {passes:.3g} times"
    return by_room, f"there are {facts.tokens / size.weights:.2g} tokens of text for each weight"


def batch_tokens(given: Settings, size: Size, tokens: float, ranks: int) -> int:
    """The largest that leaves UPDATES; but each of its parts has room for the longest pair, with a tag and an end."""
    if "batch_tokens" in given.train.model_fields_set:
        return given.train.batch_tokens
    parts = given.train.micro_batches or max(MICRO if given.train.exact else 1, ranks)
    least = max(LEAST_BATCH, parts * (given.clean.max_tokens + 2))
    batch = max(size.batch_tokens, least)
    while batch // 2 >= least and tokens / batch < UPDATES:
        batch //= 2
    return batch


def shape(given: Settings, size: Size, dropout: float, why_dropout: str = "", why_size: str = "") -> list[Choice]:
    """A Transformer, normalized before each part, with as few tables as the vocabularies allow."""
    layers: dict[str, Any] = {
        "kind": "transformer",
        "layers": size.layers,
        "heads": size.heads,
        "feedforward_size": size.inner,
    }
    layers |= {"norm": "pre", "dropout": dropout}
    return [
        Choice("model.width", size.width, why_size),
        Choice("model.positions", "sinusoidal"),
        Choice("model.scale_embeddings", True),
        Choice("model.dropout", dropout, why_dropout),
        Choice("model.tie_embeddings", "all" if given.tokenizer.shared else "target"),
        *(Choice(f"model.{side}.{key}", value) for side in ("encoder", "decoder") for key, value in layers.items()),
    ]


# ------------------------------------------------------------------------------------------------- what is measured


def counted(given: Settings) -> tuple[int, int]:
    """Pairs there are, counted up to COUNTED; and letters that the tokenizer will give a piece of their own."""
    pairs, rejected, letters = 0, 0, Counter[str]()
    for corpus in given.data.train:
        for block in read_pairs(corpus.files, given.source, given.target, max_line_bytes=given.data.max_line_bytes):
            if pairs < LETTERS:
                letters.update(chain.from_iterable(chain(block.source, block.target)))
            pairs, rejected = pairs + len(block.source), rejected + len(block.rejects)
            if pairs >= COUNTED:
                break
    if pairs < LEAST_PAIRS:
        unread = f" ({rejected:,} more cannot be read: type heedful check to see why)" if rejected else ""
        raise DataError(
            f"{pairs:,} pairs are too few{unread}: the autopilot wants {LEAST_PAIRS}, and a useful translator ten "
            "thousand. To play with fewer, take a recipe: --recipe transformer-tiny --set tokenizer.vocab_size=400"
        )
    covered, kinds = 0, 0
    for _, times in letters.most_common():
        if covered >= given.tokenizer.character_coverage * letters.total():
            break
        covered, kinds = covered + times, kinds + 1
    return pairs, kinds


def measured(settings: Settings, prepared: PreparedData, corpora: Corpora, world: World, device: torch.device) -> Speed:
    """Forward and backward on batches of this corpus, in the faster number format; all processes learn at once."""
    torch.set_num_threads(settings.train.threads or default_threads(world.local_ranks))
    probe = {"batch_tokens": max(PROBE, settings.clean.max_tokens + 2), "micro_batches": 1}
    plan = plan_of(settings.model_copy(update={"train": settings.train.model_copy(update=probe)}), prepared, corpora)
    batches = [batch_of(corpora, micro) for number in range(PROBES) for micro in plan.batch(7 * number)]
    model = fresh(settings, prepared, device)
    if device.type == "cpu":
        precision, speeds = faster_precision(model, batches, device)
        why = f"bf16 is {speeds['bf16'] / speeds['fp32']:.2f} x as fast as fp32 here"
        return Speed(world.ranks * speeds[settings.train.precision or precision], precision, why)
    precision = "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    for _ in range(2):  # the first is for warming up
        speed = pace(model, batches, device, precision, after=lambda: model.zero_grad(set_to_none=True))
    return Speed(world.ranks * speed, precision, "what this device has units for")


# --------------------------------------------------------------------------------------------------------- the file


def written(given: Settings) -> dict[str, Any]:
    """What someone wrote: no defaults, and no splits without corpora."""
    tree = given.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    return {**tree, "data": {key: value for key, value in tree["data"].items() if value}}


def settings_with(choices: Iterable[Choice], given: Settings) -> Settings:
    """The choices, and over them what was given."""
    return parse_settings(merge_trees(tree_of(choices), written(given)), where="the autopilot")


def tree_of(choices: Iterable[Choice]) -> dict[str, Any]:
    """("a.b", 1) -> {"a": {"b": 1}}"""
    tree: dict[str, Any] = {}
    for one in choices:
        *path, last = one.key.split(".")
        here = tree
        for part in path:
            here = here.setdefault(part, {})
        here[last] = one.value
    return tree


def told(choices: Iterable[Choice], given: Settings) -> list[Choice]:
    """Those with a reason that were left to us."""
    said = dict(flat(written(given)))
    return [one for one in choices if one.why and one.key not in said]


def commented(choices: Sequence[Choice], given: Settings) -> str:
    """The file: what was given and what was chosen, with the whys. Its folders are where it is."""
    folder, prepared = Path(given.train.output_dir), Path(given.data.prepared_dir)
    inside = prepared.relative_to(folder) if prepared.is_relative_to(folder) else prepared
    places = {"data": {"prepared_dir": inside.as_posix()}, "train": {"output_dir": "."}}
    tree = merge_trees(tree_of(choices), merge_trees(written(given), places))
    ordered = RootModel({key: tree[key] for key in Settings.model_fields if key in tree})
    whys = {one.key: one.why for one in told(choices, given)}
    lines = [
        "# Chosen by heedful's autopilot for this corpus and this machine. Change what you like, and then:",
        f"# heedful train {FILE} --out another-folder",
        "",
    ]
    section = ""
    for line in to_toml(ordered).splitlines():
        if line.startswith("["):
            section = line.strip("[]") + "."
        why = whys.get(section + line.partition(" = ")[0])
        lines.append(f"{line:<30} # {why}" if why else line)
    return "\n".join(lines) + "\n"


def check_same(given: Settings, file: Path) -> None:
    """Refuse a file that says something else than the command."""
    there = dict(flat(written(load(file))))
    changed = [
        f"  {key}: {there.get(key)} there, {value} now"
        for key, value in flat(written(given))
        if there.get(key) != value
    ]
    if changed:
        raise ConfigError(
            f"{file} was written for another command:\n"
            + "\n".join(changed)
            + "\nGo back to that one, name another folder (--out), or train what the file says: heedful train "
            + str(file)
        )

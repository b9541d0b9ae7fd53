"""heedful.toml: what a person may write, checked at load.

    settings = load("heedful.toml", sets=["tokenizer.vocabulary=4000"])

TOML, because YAML reads Norwegian's `no` as False and `1e-4` as a string. An unknown key fails with its path and a
suggestion. Precedence: `--set a.b=c` > file > its recipe > default. Paths are relative to the file that names them.
`to_toml` gives the resolved form, which is saved with what was made from it.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from heedful.errors import ConfigError, did_you_mean


class Section(BaseModel):
    """A table of heedful.toml: frozen, and closed to keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _no_piece(tag: str) -> str:
    if tag in ("<pad>", "<unk>", "<s>", "</s>") or tag.startswith("<0x"):
        raise ValueError(f"{tag} is a token of its own; choose another")
    return tag


DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: str) -> float:
    """How long "90s", "40m" or "1h30m" is."""
    parts = DURATION.findall(text)
    if not parts or DURATION.sub("", text).strip():
        raise ValueError("a time is written like 90s, 40m, 1h30m or 2d")
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


def _duration(text: str) -> str:
    if not seconds(text) > 0:
        raise ValueError("a time must be longer than nothing")
    return text


Paths = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Tag = Annotated[str, Field(pattern=r"^<[^<>\s]+>$"), AfterValidator(_no_piece)]


class Corpus(Section):
    """Where pairs come from.

    files  two line-aligned files, or what they have in common ("data/train" for train.en and train.de), or one .tsv,
           .jsonl, .tmx or .parquet; .gz and .zst are opened on the way
    tag    a token put before every source of this corpus, such as "<2de>" or "<captions>"
    weight how often it is read compared with the others; without any, every pair counts the same
    """

    files: Paths
    name: Annotated[str, Field(pattern=r"^[^\W\d][\w.-]*$")] | None = None
    tag: Tag | None = None
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class Data(Section):
    """The corpora, and where what is made of them is kept."""

    train: Annotated[tuple[Corpus, ...], Field(min_length=1)]
    validation: tuple[Corpus, ...] = ()
    test: tuple[Corpus, ...] = ()
    folder: Annotated[str, Field(min_length=1)] = "prepared"
    # Corpus i is read in proportion to pairs_i ^ (1 / temperature).
    temperature: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    reject_limit: Share = 0.05  # more unreadable lines than this share are an error
    longest_bytes: Annotated[int, Field(ge=256)] = 65_536  # a longer line is rejected unread

    @model_validator(mode="after")
    def _one_way_to_mix(self) -> Self:
        weighted = [corpus.weight is not None for corpus in self.train]
        if self.temperature is not None and any(weighted):
            raise ValueError("give either `temperature` or a `weight` for every corpus, not both")
        if any(weighted) and not all(weighted):
            raise ValueError("give every corpus of `train` a `weight`, or none of them")
        return self


class Clean(Section):
    """Which pairs are left out of training, by the rules of `heedful check`; nothing is left out silently."""

    drop: tuple[str, ...] = (
        "empty",
        "copy",
        "long",
        "ratio",
        "wrong_script",
        "mojibake",
        "subwords",
    )
    duplicates: Literal["drop", "keep"] = "drop"
    overlap: Literal["pair", "either", "keep"] = "pair"  # pairs also in validation or test: both sides, or either side
    longest_words: Annotated[int, Field(ge=1)] = 200
    longest_tokens: Annotated[int, Field(ge=1)] = 512
    largest_ratio: Annotated[float, Field(gt=1)] = 4.0  # of lengths in characters, after the corpus's own median


class Tokenizer(Section):
    """How text becomes tokens."""

    kind: Literal["bpe", "unigram", "characters", "words"] = "bpe"
    vocabulary: Annotated[int, Field(ge=8)] = 8_000
    shared: bool = True  # one vocabulary for both languages
    byte_fallback: bool = True  # a character outside the vocabulary is spelled in bytes instead of lost
    coverage: Annotated[float, Field(gt=0.9, le=1)] = 0.9995  # of characters that get a token of their own
    sample: Annotated[int, Field(ge=1)] = 1_000_000  # most pairs it is trained on
    regularization: Annotated[float, Field(ge=0, lt=1)] = 0.0  # BPE-dropout's p, or unigram's sampling
    files: tuple[str, str] | None = None  # tokenizers of source and target that are there already; none is learned


Many = Annotated[int, Field(ge=1)]
Dropout = Annotated[float, Field(ge=0, lt=1)]
Score = Literal["dot", "scaled_dot", "bilinear", "additive", "location", "content_location"]
Normalize = Literal["soft", "hard"]
Combine = Literal["concat", "average"]
Cell = Literal["rnn", "lstm", "gru"]


class Transformer(Section):
    """A stack of Transformer layers; encoder and decoder take the same keys."""

    kind: Literal["transformer"]
    layers: Many
    heads: Many
    inner: Many  # width of the feed-forward part
    norm: Literal["pre", "post"] = "pre"
    activation: Literal["relu", "gelu", "silu"] = "relu"
    dropout: Dropout = 0.0
    inner_dropout: Dropout | None = None  # inside the feed-forward part; as much as elsewhere unless said
    score: Score = "scaled_dot"
    normalize: Normalize = "soft"
    combine: Combine = "concat"


class Recurrent(Section):
    """A recurrent encoder; as a bottleneck it hands over one vector for the whole source."""

    kind: Literal["recurrent", "bottleneck"]
    width: Many
    cell: Cell = "lstm"
    layers: Many = 1
    bidirectional: bool = True
    dropout: Dropout = 0.0  # of what each layer writes, the last one's annotation vectors too


class Attention(Section):
    """How a recurrent decoder looks at the source; without `heads`, at the annotation vectors themselves."""

    score: Score
    normalize: Normalize = "soft"
    heads: Many | None = None
    combine: Combine = "concat"


class RecurrentDecoder(Section):
    """A recurrent decoder, with attention or without."""

    kind: Literal["recurrent"]
    width: Many
    cell: Cell = "lstm"
    layers: Many = 1
    asks: Literal["previous", "current"] = "current"
    feeds: bool = False
    first: Literal["mean", "last", "zero"] = "mean"
    bridge: bool = True
    readout: bool = True
    dropout: Dropout = 0.0
    attention: Attention | None = None


class Model(Section):
    """An encoder and a decoder, and the tables that they share. Sizes that follow from others are not written."""

    width: Many  # of the embeddings
    positions: Literal["sinusoidal", "sinusoidal_halves", "learned"] | None = None
    slots: Many = 1024  # positions there are
    scale: bool = False  # embeddings times sqrt(width)
    dropout: Dropout = 0.0  # of the embeddings
    tied: Literal["all", "target", "none"] = "target"  # one table for source, target and output; or for the last two
    bias: bool = False  # of the output
    encoder: Annotated[Transformer | Recurrent, Field(discriminator="kind")]
    decoder: Annotated[Transformer | RecurrentDecoder, Field(discriminator="kind")]


Optimizer = Literal["adam", "adamw"]
Schedule = Literal["constant", "inverse_sqrt", "linear", "cosine"]
Time = Annotated[str, BeforeValidator(str), AfterValidator(_duration)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Off = Literal[False]  # `clip = false`: what a recipe switches on can be switched off


class Train(Section):
    """How the model is trained. A key that is left out is measured or worked out, and written down before step 1.

    Either `steps` or `time` says how long. With `time`, steps and schedule are fitted to the wall clock; what was
    fitted is kept in `refits`, and a file with `refits` instead of `time` repeats such a run exactly.
    """

    folder: Annotated[str, Field(min_length=1)] = "run"  # checkpoints, metrics, report and the finished model
    steps: Many | None = None  # updates
    time: Time | None = None  # such as "40m" or "1h30m"
    refits: tuple[tuple[int, int], ...] = ()  # after step a, the last step was taken to be b
    patience: Many | Off | None = None  # validations in a row without a better one, before it ends early

    batch_tokens: Many = 4096  # of the longer side, padding included, in one update
    micro_batches: Many | None = None  # parts that an update's batch is cut into; a multiple of the processes
    exact: bool = False  # the same bits on any number of processes
    parallel: Literal["ddp", "fsdp"] = "ddp"  # whole models in step, or one model cut into pieces

    optimizer: Optimizer = "adamw"
    learning_rate: Positive = 1e-3  # at its highest
    schedule: Schedule = "linear"
    warmup_steps: Annotated[int, Field(ge=0)] = 400
    betas: tuple[Share, Share] = (0.9, 0.98)
    epsilon: Positive = 1e-9
    weight_decay: Annotated[float, Field(ge=0)] = 0.0  # of matrices, not of biases and norms
    clip: Positive | Off = 1.0  # the gradient's longest norm
    smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1
    agreement: Annotated[float, Field(ge=0)] = 0.0  # R-Drop's alpha: batches are read under two dropouts, which agree
    ema: Annotated[float, Field(gt=0, lt=1)] | Off = False  # validate and keep a running mean of the weights
    average: Annotated[int, Field(ge=0)] = 0  # at the end, try the mean of this many last checkpoints
    spike: Positive | Off = 6.0  # skip a step whose gradient is so many deviations above the last ones

    device: str | None = None  # cpu, cuda, mps
    threads: Many | None = None  # of one process
    precision: Literal["fp32", "bf16"] | None = None

    validate_every: Many | None = None  # steps
    validate_pairs: Many = 1_000  # of which at most so many are decoded; and held out where no corpus is given
    metric: Literal["chrf", "bleu", "loss"] = "chrf"  # what `best` means
    samples: Annotated[int, Field(ge=0, le=20)] = 3  # sentences shown at every validation
    save_every: Many | None = None  # steps
    keep: Annotated[int, Field(ge=2)] = 2  # checkpoints
    log_every: Many = 20  # steps

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.refits and (self.time or not self.steps):
            raise ValueError("`refits` repeat a run that is over: give its `steps`, and no `time`")
        if self.exact and self.parallel == "fsdp":
            raise ValueError('`exact` sums whole gradients in order: it goes with parallel = "ddp"')
        return self


LANGUAGE = r"^[A-Za-z]{2,8}([-_]\w+)*$"
Language = Annotated[str, Field(pattern=LANGUAGE)]


class Settings(Section):
    """heedful.toml."""

    recipe: str | None = None  # the recipe that the rest changes
    start: Annotated[str, Field(min_length=1)] | None = None  # a model directory to go on from
    source: Language
    target: Language
    seed: Annotated[int, Field(ge=0)] = 1
    data: Data
    clean: Clean = Clean()
    tokenizer: Tokenizer = Tokenizer()
    model: Model | None = None
    train: Train = Train()


SPLITS = ("train", "validation", "test")


def corpora_of(settings: Settings) -> list[tuple[str, str, Corpus]]:
    """(name, split, corpus) of every corpus; those without a name are called after their split."""
    found = [
        (corpus.name or (split if number == 0 else f"{split}{number + 1}"), split, corpus)
        for split in SPLITS
        for number, corpus in enumerate(getattr(settings.data, split))
    ]
    for name, times in Counter(name.casefold() for name, _, _ in found).items():  # some disks do not know case
        if times > 1:
            raise ConfigError(f"{times} corpora are called `{name}`; give each a name of its own")
    return found


def load(path: str | Path, sets: Iterable[str] = ()) -> Settings:
    """Read a file, apply `--set key=value`s, check everything."""
    path = Path(path)
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Windows' editors may write a mark first
    except FileNotFoundError:
        raise ConfigError(f"there is no file {path}; name the right one, or write one: heedful init") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; name the heedful.toml inside it") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 ({error}); save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        quoted = '; text stands in quotes, such as source = "no"' if "Invalid value" in str(error) else ""
        raise ConfigError(f"{path} is not TOML: {error}{quoted}") from None
    for one in sets:
        put(tree, one)
    return check(tree, where=str(path), root=path.parent)


def settled(settings: "Settings | str | Path") -> Settings:
    """Settings as they are, or read from a file."""
    return settings if isinstance(settings, Settings) else load(settings)


def check(tree: Mapping[str, Any], *, where: str = "the configuration", root: Path | None = None) -> Settings:
    """A tree of plain values -> Settings, or a ConfigError that names the key; paths are taken relative to `root`."""
    if isinstance(name := tree.get("recipe"), str):
        tree = merged(recipe(name), tree)
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        found = error.errors()
        found = [one for one in found if one["loc"][-1:] != ("literal[False]",)]  # its sibling says more
        inner = {one["loc"][:depth] for one in found for depth in range(len(one["loc"]))}
        raise ConfigError(f"{where}: " + "; ".join(explain(one) for one in found if one["loc"] not in inner)) from None
    return settings if root is None else rooted(settings, root)


def recipes() -> dict[str, Path]:
    """The files that come with heedful, by name."""
    inside = Path(__file__).parent / "recipes"  # where it was installed; in a clone they stand beside src
    folder = inside if inside.is_dir() else Path(__file__).parents[2] / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def recipe(name: str) -> dict[str, Any]:
    """The tree of a recipe: a heedful.toml without languages and files."""
    known = recipes()
    if name not in known:
        raise ConfigError(f"there is no recipe `{name}`" + did_you_mean(name, known))
    return tomllib.loads(known[name].read_text(encoding="utf-8"))


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """One tree over another; a table of another `kind` takes the whole place."""
    result = dict(under)
    for key, value in over.items():
        below = result.get(key)
        same = isinstance(below, dict) and isinstance(value, dict) and value.get("kind") in (None, below.get("kind"))
        result[key] = merged(below or {}, value) if same else value
    return result


def rooted(settings: Settings, root: Path) -> Settings:
    """The same settings with every path absolute, taken relative to `root`."""

    def moved(corpora: tuple[Corpus, ...]) -> tuple[Corpus, ...]:
        return tuple(
            corpus.model_copy(update={"files": tuple((root / file).absolute().as_posix() for file in corpus.files)})
            for corpus in corpora
        )

    data = settings.data
    splits = {split: moved(getattr(data, split)) for split in SPLITS}
    moved_data = data.model_copy(update=splits | {"folder": (root / data.folder).absolute().as_posix()})
    moved_train = settings.train.model_copy(update={"folder": (root / settings.train.folder).absolute().as_posix()})
    update: dict[str, Any] = {"data": moved_data, "train": moved_train}
    if settings.start:
        update["start"] = (root / settings.start).absolute().as_posix()
    if settings.tokenizer.files:
        files = tuple((root / file).absolute().as_posix() for file in settings.tokenizer.files)
        update["tokenizer"] = settings.tokenizer.model_copy(update={"files": files})
    return settings.model_copy(update=update)


# What pydantic puts into the path of a key that may be several things.
CHOSEN = ("transformer", "recurrent", "bottleneck", "constrained-float", "constrained-int", "literal[False]")


def explain(error: Mapping[str, Any]) -> str:
    """One of pydantic's findings, in our words."""
    place = error["loc"]
    key = ".".join(str(part) for part in place if part not in CHOSEN)
    if error["type"] == "extra_forbidden":
        near = did_you_mean(str(place[-1]), known_keys(place[:-1]))
        elsewhere = [name for name in all_keys() if name.split(".")[-1] == place[-1]]
        return f"unknown key `{key}`" + (f"; did you mean `{elsewhere[0]}`?" if len(elsewhere) == 1 else near)
    if error["type"] == "union_tag_invalid":
        kinds_known = [word.strip(" '") for word in error["ctx"]["expected_tags"].split(",")]
        return f"`{key}.kind` = {error['ctx']['tag']!r} is not known" + did_you_mean(error["ctx"]["tag"], kinds_known)
    if error["type"] == "union_tag_not_found":
        return f"`{key}.kind` is missing"
    if error["type"] == "missing":
        return f"`{key}` is missing"
    if error["type"] == "literal_error":
        options = [word.strip(" '") for word in error["ctx"]["expected"].replace(" or ", ", ").split(",")]
        return f"`{key}` = {error['input']!r} is not known" + did_you_mean(str(error["input"]), options)
    if error["type"] == "tuple_type":
        return f"`{key}` is a list: write [[{key}]] above its keys, or {key.split('.')[-1]} = [{{ files = ... }}]"
    if error["type"] == "string_type":
        return f"`{key}` = {json.dumps(error['input'], default=str)} is not text, which stands in quotes"
    if key in ("source", "target") and error["type"] == "string_pattern_mismatch":
        return f"`{key}` = {error['input']!r}: a language is a code, such as en, de or pt-BR"
    if key.split(".")[-1] == "name" and error["type"] == "string_pattern_mismatch":
        return f"`{key}` = {error['input']!r}: a name starts with a letter and has no spaces"
    if key.split(".")[-1] == "tag" and error["type"] == "string_pattern_mismatch":
        return f"`{key}` = {error['input']!r}: a tag looks like <news>, with no spaces"
    message = error["msg"].removeprefix("Value error, ")
    return f"`{key}`: {message[0].lower()}{message[1:]}" + (
        "" if isinstance(error["input"], dict) else f", not {error['input']!r}"
    )


def known_keys(place: tuple[Any, ...]) -> list[str]:
    """The keys of the section at a path such as ("data", "train", 0)."""
    sections: list[type[BaseModel]] = [Settings]
    for part in place:
        if isinstance(part, str) and part in sections[0].model_fields:
            annotation = sections[0].model_fields[part].annotation
            sections = [kind for kind in _classes(annotation) if issubclass(kind, Section)]
        elif isinstance(part, str):  # the `kind` that was chosen, where there are several
            sections = [one for one in sections if part in getattr(one.model_fields["kind"].annotation, "__args__", ())]
    return list(sections[0].model_fields)


def all_keys() -> list[str]:
    """Every key of a section that stands once: "source", "train.steps"; not those of a list or of a kind."""
    return [
        f"{name}.{key}"
        for name, field in Settings.model_fields.items()
        for section in _classes(field.annotation)
        if issubclass(section, Section)
        for key in section.model_fields
    ]


def _classes(annotation: Any) -> list[type]:
    if isinstance(annotation, type):
        return [annotation]
    return [kind for part in getattr(annotation, "__args__", ()) for kind in _classes(part)]


def put(tree: dict[str, Any], assignment: str) -> None:
    """Write `a.b.0.c=value` into a tree; the value is TOML, and where it is not, a plain string."""
    key, equals, value = assignment.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"--set {assignment}: write key=value, such as tokenizer.vocabulary=4000")
    here: Any = tree
    for part in parts[:-1]:
        try:
            here = here[int(part)] if isinstance(here, list) else here.setdefault(part, {})
        except (IndexError, ValueError):
            raise ConfigError(f"--set {assignment}: there is no `{part}` in a list of {len(here)}") from None
        if not isinstance(here, dict | list):
            raise ConfigError(f"--set {assignment}: `{part}` is a value, not a table")
    last: Any = int(parts[-1]) if isinstance(here, list) and parts[-1].isdigit() else parts[-1]
    try:
        here[last] = plain(value.strip())
    except (IndexError, TypeError):
        raise ConfigError(f"--set {assignment}: there is no `{parts[-1]}` in a list of {len(here)}") from None
    if parts == ["train", "steps"]:
        here.pop("time", None)  # a time of the file would win over the steps that were asked for


def plain(text: str) -> Any:
    """What a value of `--set` means: TOML, or else the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def to_toml(settings: BaseModel) -> str:
    """The resolved form: every key with its value, but for those that are None; `load` reads it back."""
    return "\n".join(_table(settings.model_dump(mode="json", exclude_none=True), ())).strip() + "\n"


def _table(tree: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    inner = {key: value for key, value in tree.items() if isinstance(value, dict)}
    rows = {
        key: value for key, value in tree.items() if isinstance(value, list) and value and isinstance(value[0], dict)
    }
    lines = [f"{key} = {_value(value)}" for key, value in tree.items() if key not in inner and key not in rows]
    for key, value in inner.items():
        lines += ["", f"[{'.'.join((*path, key))}]", *_table(value, (*path, key))]
    for key, tables in rows.items():
        for value in tables:
            lines += ["", f"[[{'.'.join((*path, key))}]]", *_table(value, (*path, key))]
    return lines


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace(
        "\x7f", "\\u007f"
    )  # strings, numbers, true and false are TOML as JSON writes them

"""The sections of heedful.toml, as pydantic models: keys, types, limits and defaults."""

import re
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)


class Section(BaseModel):
    """A table of heedful.toml: immutable; unknown keys are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    # Keys that are not written at their defaults: they are newer than the format of model directories and fingerprints.
    newer_keys: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _omit_newer_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        tree: dict[str, Any] = serialize(self)
        fields = type(self).model_fields
        omitted = {key for key in self.newer_keys if getattr(self, key) == fields[key].default}
        return {key: value for key, value in tree.items() if key not in omitted}


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _split_columns(value: Any) -> Any:
    if isinstance(value, str):
        value = value.split(",")
    return [str(column) for column in value] if isinstance(value, list | tuple) else value


def _check_tag(tag: str) -> str:
    if tag in ("<pad>", "<unk>", "<s>", "</s>") or tag.startswith("<0x"):
        raise ValueError(f"{tag} is a special token; choose another tag")
    return tag


_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_duration(text: str) -> float:
    """Convert "90s", "40m" or "1h30m" to seconds."""
    parts = _DURATION_PART.findall(text)
    if not parts or _DURATION_PART.sub("", text).strip():
        raise ValueError("a time is written like 90s, 40m, 1h30m or 2d")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)


def _check_duration(text: str) -> str:
    if not parse_duration(text) > 0:
        raise ValueError("a time must be longer than zero")
    return text


LANGUAGE_PATTERN = r"^[A-Za-z]{2,8}([-_]\w+)*$"
Language = Annotated[str, Field(pattern=LANGUAGE_PATTERN)]
Paths = Annotated[tuple[str, ...], BeforeValidator(_as_list), Field(min_length=1)]
Columns = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_split_columns)]
Share = Annotated[float, Field(ge=0, le=1)]
Tag = Annotated[str, Field(pattern=r"^<[^<>\s]+>$"), AfterValidator(_check_tag)]
PositiveInt = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Duration = Annotated[str, BeforeValidator(str), AfterValidator(_check_duration)]
Off = Literal[False]  # `clip_norm = false` disables what a recipe enables
Dropout = Annotated[float, Field(ge=0, lt=1)]
ScoreName = Literal["dot", "scaled_dot", "bilinear", "additive", "location", "content_location", "gaussian"]
NormalizerName = Literal["soft", "hard"]
CombineName = Literal["concat", "average"]
CellName = Literal["rnn", "lstm", "gru"]
OptimizerName = Literal["adam", "adamw"]
ScheduleName = Literal["constant", "inverse_sqrt", "linear", "cosine"]


class CorpusSettings(Section):
    """One corpus of sentence pairs.

    files    two line-aligned files, or their common part ("data/train" for train.en and train.de), or one .tsv, .csv,
             .xlsx, .jsonl, .tmx or .parquet file; .gz and .zst are decompressed
    columns  the columns of source and target in a table, as numbers from 1 or as names: [2, 3] or "English,German"
    sheet    the sheet of a workbook; by default, the first
    tag      a token put before every source of this corpus, such as "<2de>" or "<captions>"
    weight   how often its pairs are sampled relative to other corpora; without weights, all pairs count equally
    """

    files: Paths
    columns: Columns = ()
    sheet: Annotated[str, Field(min_length=1)] | None = None
    name: Annotated[str, Field(pattern=r"^[^\W\d][\w.-]*$")] | None = None
    tag: Tag | None = None
    weight: PositiveFloat | None = None

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if self.columns and len(self.columns) != 2:
            raise ValueError(f"`columns` has {len(self.columns)} columns: name two, source first, such as [2, 3]")
        return self


class DataSettings(Section):
    """The corpora, and the directory for the prepared data."""

    train: Annotated[tuple[CorpusSettings, ...], Field(min_length=1)]
    validation: tuple[CorpusSettings, ...] = ()
    test: tuple[CorpusSettings, ...] = ()
    prepared_dir: Annotated[str, Field(min_length=1)] = "prepared"
    # Corpus i is read in proportion to pairs_i ^ (1 / temperature).
    temperature: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    max_reject_share: Share = 0.05  # a larger share of unreadable lines is an error
    max_line_bytes: Annotated[int, Field(ge=256)] = 65_536  # longer lines are rejected

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        weighted = [corpus.weight is not None for corpus in self.train]
        if self.temperature is not None and any(weighted):
            raise ValueError("set either `temperature` or a `weight` for every corpus, not both")
        if any(weighted) and not all(weighted):
            raise ValueError("set a `weight` for every corpus of `train`, or for none")
        return self


class CleanSettings(Section):
    """Which pairs are dropped from training, by the rules of `heedful check`; every drop is reported."""

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
    overlap: Literal["pair", "either", "keep"] = "pair"  # drop pairs also in validation or test: both sides, or either
    max_words: PositiveInt = 200
    max_tokens: PositiveInt = 512
    max_length_ratio: Annotated[float, Field(gt=1)] = 4.0  # in characters, relative to the corpus's median ratio


class TokenizerSettings(Section):
    """How text becomes tokens."""

    kind: Literal["bpe", "unigram", "characters", "words"] = "bpe"
    vocab_size: Annotated[int, Field(ge=8)] = 8_000
    shared: bool = True  # one vocabulary for both languages
    byte_fallback: bool = True  # encode characters outside the vocabulary as bytes instead of <unk>
    character_coverage: Annotated[float, Field(gt=0.9, le=1)] = 0.9995  # share of characters with a token
    training_pairs: PositiveInt = 1_000_000  # maximum number of pairs to train it on
    reserved_pieces: Annotated[int, Field(ge=0)] = 0  # unused pieces <reserved_0>, ...: for tags added by fine-tuning
    subword_regularization: Annotated[float, Field(ge=0, lt=1)] = 0.0  # BPE-dropout's p, or unigram's alpha
    # existing tokenizers of source and target (of the target alone, if the sources are not text); none is trained
    files: Annotated[tuple[str, ...], BeforeValidator(_as_list), Field(min_length=1, max_length=2)] | None = None


class TextInputSettings(Section):
    """Sources are text."""

    kind: Literal["text"] = "text"


class NoInputSettings(Section):
    """There are no sources: the model is a language model."""

    kind: Literal["none"]


class ImageInputSettings(Section):
    """Sources are pictures, scaled to fit and cut into square patches; each patch is a slot."""

    kind: Literal["image"]
    height: PositiveInt = 32  # pixels
    width: PositiveInt = 32
    patch: PositiveInt = 4  # pixels per side of a patch
    shift: Annotated[int, Field(ge=0)] = 0  # in training, pictures are shifted by up to this many pixels
    crop: Annotated[float, Field(ge=0, lt=1)] = 0.0  # and enlarged, so that up to this share of each side is cut off
    color: Annotated[float, Field(ge=0, lt=1)] = 0.0  # and brightness, contrast and saturation vary by up to this share

    @model_validator(mode="after")
    def _check_patches(self) -> Self:
        if self.height % self.patch or self.width % self.patch:
            raise ValueError(f"`height` and `width` must be multiples of `patch`, which is {self.patch}")
        return self


InputSettings = TextInputSettings | NoInputSettings | ImageInputSettings


class TransformerSettings(Section):
    """A stack of Transformer layers; encoder and decoder take the same keys."""

    kind: Literal["transformer"]
    layers: PositiveInt
    heads: PositiveInt
    feedforward_size: PositiveInt
    norm: Literal["pre", "post"] = "pre"
    activation: Literal["relu", "gelu", "silu"] = "relu"
    dropout: Dropout = 0.0
    feedforward_dropout: Dropout | None = None  # between the two feed-forward layers; default: `dropout`
    score: ScoreName = "scaled_dot"
    location_slots: PositiveInt = 256  # of the longest source or target, for score = "location"
    normalizer: NormalizerName = "soft"
    combine: CombineName = "concat"


class RecurrentSettings(Section):
    """A recurrent encoder; a bottleneck passes on one vector for the whole source."""

    kind: Literal["recurrent", "bottleneck"]
    width: PositiveInt
    cell: CellName = "lstm"
    reset: Literal["before", "after"] = "after"  # of a GRU: whether the state is reset before the matrix product
    layers: PositiveInt = 1
    bidirectional: bool = True
    dropout: Dropout = 0.0  # on the output of each layer, including the last


class NothingSettings(Section):
    """No encoder: the decoder is a language model."""

    kind: Literal["nothing"]


class PatchesSettings(TransformerSettings):
    """An encoder of pictures: a stem, which makes a vector of each patch, then Transformer layers."""

    kind: Literal["patches"]  # type: ignore[assignment]  # another kind with the same keys
    stem: Literal["convolution", "linear"] = "convolution"  # with neighboring pixels, or each patch alone
    pool: bool = False  # pass on one vector, the mean
    layers: Annotated[int, Field(ge=0)] = 0
    heads: PositiveInt = 4
    feedforward_size: PositiveInt = 512


class SampledSettings(Section):
    """Attention to one slot that is drawn: how it is trained, and how it is decoded."""

    estimator: Literal["reinforce", "marginal", "straight_through"] = "reinforce"
    decode: Literal["best", "expected"] = "best"  # the most probable slot, or the expected context
    soft_share: Share = 0.5  # of the queries in training that attend softly
    reward_weight: Annotated[float, Field(ge=0)] = 1.0
    entropy_weight: Annotated[float, Field(ge=0)] = 0.01
    baseline_decay: Share = 0.9  # of the moving average of the log-likelihood


class AttentionSettings(Section):
    """The attention of a recurrent decoder; without `heads`, directly over the annotation vectors."""

    score: ScoreName
    location_slots: PositiveInt = 256  # of the longest source, for score = "location"
    normalizer: Literal["soft", "hard", "sampled"] = "soft"
    sampled: SampledSettings | None = None  # for normalizer = "sampled"
    heads: PositiveInt | None = None
    combine: CombineName = "concat"
    tie_keys_values: bool = False  # one projection for the keys and values of the heads

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        if self.tie_keys_values and self.heads is None:
            raise ValueError(
                "`tie_keys_values` needs `heads`: without them, keys and values are the annotation vectors"
            )
        if self.sampled is not None and self.normalizer != "sampled":
            raise ValueError('`sampled` has the options of normalizer = "sampled": set that, or remove them')
        return self


class RecurrentDecoderSettings(Section):
    """A recurrent decoder, with or without attention."""

    newer_keys: ClassVar[frozenset[str]] = frozenset({"gated_context"})

    kind: Literal["recurrent"]
    width: PositiveInt
    cell: CellName = "lstm"
    reset: Literal["before", "after"] = "after"  # of a GRU: whether the state is reset before the matrix product
    layers: PositiveInt = 1
    query_from: Literal["previous", "current"] = "current"  # the state that is the query
    input_feeding: bool = False
    initial_state: Literal["mean", "last", "zero"] = "mean"
    bridge: bool = True
    readout: bool = True
    gated_context: bool = False
    dropout: Dropout = 0.0
    attention: AttentionSettings | None = None


class CTCSettings(Section):
    """Labels for every slot of the encoder, for targets that follow the source in order (CTC)."""

    kind: Literal["ctc"]
    upsample: PositiveInt = 1  # slots per slot of the encoder, where targets are longer than sources


class ModelSettings(Section):
    """The encoder, the decoder and their embeddings."""

    width: PositiveInt  # of the embeddings
    positions: Literal["sinusoidal", "sinusoidal_halves", "learned"] | None = None
    max_positions: PositiveInt = 1024
    scale_embeddings: bool = False  # by sqrt(width)
    dropout: Dropout = 0.0  # of the embeddings
    # "all": one table for source, target and output; "target": one for target and output
    tie_embeddings: Literal["all", "target", "none"] = "target"
    output_bias: bool = False
    encoder: Annotated[
        TransformerSettings | RecurrentSettings | NothingSettings | PatchesSettings, Field(discriminator="kind")
    ]
    decoder: Annotated[TransformerSettings | RecurrentDecoderSettings | CTCSettings, Field(discriminator="kind")]

    @model_validator(mode="after")
    def _check_ctc(self) -> Self:
        if isinstance(self.decoder, CTCSettings) and self.tie_embeddings != "none":
            raise ValueError('a CTC decoder has no target embeddings: set tie_embeddings = "none"')
        return self


class TrainSettings(Section):
    """How the model is trained. Missing keys are measured or derived, and saved before step 1.

    Either `steps` or `time` sets the length. With `time`, steps and schedule are fitted to the wall clock; the fits are
    recorded in `refits`, and a file with `refits` instead of `time` repeats such a run exactly.
    """

    newer_keys: ClassVar[frozenset[str]] = frozenset({"coverage_penalty"})

    output_dir: Annotated[str, Field(min_length=1)] = "run"  # checkpoints, metrics, report and the finished model
    steps: PositiveInt | None = None  # updates
    time: Duration | None = None  # such as "40m" or "1h30m"
    refits: tuple[tuple[int, int], ...] = ()  # (a, b): after step a, the last step was estimated to be b
    patience: PositiveInt | Off | None = None  # early stopping: validations without improvement

    batch_tokens: PositiveInt = 4096  # per update: of the longer side, padding included
    micro_batches: PositiveInt | None = None  # per update; a multiple of the number of processes
    exact: bool = False  # bit-identical results on any number of processes
    parallel: Literal["ddp", "fsdp"] = "ddp"  # replicated or sharded model

    optimizer: OptimizerName = "adamw"
    learning_rate: PositiveFloat = 1e-3  # the peak of the schedule
    schedule: ScheduleName = "linear"
    warmup_steps: Annotated[int, Field(ge=0)] = 400
    betas: tuple[Share, Share] = (0.9, 0.98)
    epsilon: PositiveFloat = 1e-9
    weight_decay: Annotated[float, Field(ge=0)] = 0.0  # of matrices, not of biases and norms
    clip_norm: PositiveFloat | Off = 1.0  # maximum norm of the gradient
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.1
    r_drop: Annotated[float, Field(ge=0)] = 0.0  # R-Drop's alpha: two passes per batch with different dropout masks
    # The weight of the doubly stochastic term, sum over slots of (1 - sum over tokens of the attention)^2
    coverage_penalty: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    ema: Annotated[float, Field(gt=0, lt=1)] | Off = False  # decay of a moving average of the weights
    average_checkpoints: Annotated[int, Field(ge=0)] = 0  # at the end, also evaluate the mean of this many
    skip_spikes_above: PositiveFloat | Off = 6.0  # skip updates whose gradient norm is this many deviations too large

    device: str | None = None  # cpu, cuda, mps
    threads: PositiveInt | None = None  # per process
    precision: Literal["fp32", "bf16"] | None = None

    validate_every: PositiveInt | None = None  # steps
    validate_pairs: PositiveInt = 1_000  # maximum to decode; also the number held out if there is no validation set
    best_by: Literal["chrf", "bleu", "loss"] = "chrf"  # the metric that selects the best checkpoint
    show_samples: Annotated[int, Field(ge=0, le=20)] = 3  # sentences shown at every validation
    save_every: PositiveInt | None = None  # steps
    keep_checkpoints: Annotated[int, Field(ge=2)] = 2
    keep_work_files: bool = False  # of a finished run: older checkpoints and the first stages of the preparation
    log_every: PositiveInt = 20  # steps

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.refits and (self.time or not self.steps):
            raise ValueError("`refits` repeats a finished run: set `steps` to the steps of that run, and remove `time`")
        if self.exact and self.parallel == "fsdp":
            raise ValueError('`exact` requires parallel = "ddp"')
        return self


class Settings(Section):
    """heedful.toml. If the sources are not text, `source` is the kind of the input: "image" or "none"."""

    newer_keys: ClassVar[frozenset[str]] = frozenset({"input"})

    recipe: str | None = None  # the recipe whose keys this file overrides
    init_from: Annotated[str, Field(min_length=1)] | None = None  # a model directory to fine-tune
    source: Language
    target: Language
    seed: Annotated[int, Field(ge=0)] = 1
    data: DataSettings
    clean: CleanSettings = CleanSettings()
    input: Annotated[InputSettings, Field(discriminator="kind")] = TextInputSettings()
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: ModelSettings | None = None
    train: TrainSettings = TrainSettings()

    @model_validator(mode="before")
    @classmethod
    def _set_input_defaults(cls, tree: Any) -> Any:
        kind = (
            tree["input"].get("kind", "text") if isinstance(tree, dict) and isinstance(tree.get("input"), dict) else ""
        )
        if kind not in ("image", "none"):
            return tree
        if tree.get("source", kind) != kind:
            raise ValueError(f"the sources are not text (input.kind is {kind!r}): remove `source`")
        tree = {"source": kind, **tree}
        if kind == "none":  # there is nothing to translate, so nothing that BLEU or chrF could compare
            tree["train"] = {"best_by": "loss", **tree.get("train", {})}
        return tree

    @model_validator(mode="after")
    def _check_input(self) -> Self:
        kind = self.input.kind
        if kind == "none" and self.train.best_by != "loss":
            raise ValueError('a language model has no translations to score: set train.best_by = "loss"')
        if self.tokenizer.files is not None and len(self.tokenizer.files) != (2 if kind == "text" else 1):
            raise ValueError("`tokenizer.files` needs one file for each side that is text")
        if kind != "text" and self.tokenizer.subword_regularization:
            raise ValueError("`tokenizer.subword_regularization` is for models that translate text: remove it")
        tagged = [corpus.tag for corpus in self.data.train if corpus.tag]
        if kind != "text" and tagged:
            raise ValueError(f"a tag is put before source text, but the sources are not text: remove {tagged[0]}")
        return self

    @model_validator(mode="after")
    def _check_exact(self) -> Self:
        attention = getattr(self.model and self.model.decoder, "attention", None)
        if self.train.exact and attention is not None and attention.normalizer == "sampled":
            raise ValueError("`train.exact` cannot be used with sampled attention: every process has its own baseline")
        return self

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
    # Keys of [input] that only matter in training.
    variation_keys: ClassVar[frozenset[str]] = frozenset()

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

    kind: Literal["bpe", "unigram", "characters", "words", "fields"] = "bpe"  # fields: what spaces separate
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

    variation_keys: ClassVar[frozenset[str]] = frozenset({"shift", "crop", "color"})

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


class AudioInputSettings(Section):
    """Sources are recordings, as the logarithmic mel spectrogram of their frames; each frame is a slot."""

    variation_keys: ClassVar[frozenset[str]] = frozenset(
        {"shift", "band_masks", "band_mask_size", "time_masks", "time_mask_seconds"}
    )

    kind: Literal["audio"]
    rate: Annotated[int, Field(ge=4_000, le=48_000)] = 16_000  # samples per second; recordings are resampled to it
    bands: Annotated[int, Field(ge=1, le=512)] = 80  # numbers per frame, equally wide on the mel scale
    window: Annotated[float, Field(ge=0.005, le=0.1)] = 0.025  # seconds that a frame sees
    hop: Annotated[float, Field(ge=0.002, le=0.1)] = 0.01  # seconds from one frame to the next
    max_seconds: Annotated[float, Field(gt=0, le=600)] = 30.0  # longer recordings are rejected
    shift: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0  # in training, shifted by up to this many seconds
    band_masks: Annotated[int, Field(ge=0, le=20)] = 0  # and this many times, neighboring bands become the mean
    band_mask_size: PositiveInt = 8  # up to this many
    time_masks: Annotated[int, Field(ge=0, le=20)] = 0  # and this many times, neighboring frames
    time_mask_seconds: PositiveFloat = 0.1  # of up to this time, and up to a fifth of the recording

    @model_validator(mode="after")
    def _check_frames(self) -> Self:
        if self.hop > self.window:
            raise ValueError("`hop` must be at most `window`: otherwise parts of the recording are in no frame")
        num_bins = 1 << (round(self.rate * self.window) - 1).bit_length() - 1
        if self.bands > num_bins:
            raise ValueError(f"`bands` must be at most {num_bins}, half of the samples of a window")
        return self


class GraphInputSettings(Section):
    """Sources are graphs; each node is a slot, with numbers and neighbors."""

    kind: Literal["graph"]
    features: Annotated[int, Field(ge=1, le=65_536)]  # numbers per node, the same for all graphs
    max_nodes: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000  # larger graphs are rejected
    # graphs in which a node has more are rejected; each node takes up the space of so many
    max_neighbors: Annotated[int, Field(ge=1, le=65_536)] = 64
    directed: bool = False  # a node attends only to nodes with an edge to it; otherwise to both ends of its edges


class OutputSettings(Section):
    """What a model produces: text, or labels of a closed set."""

    kind: Literal["text", "labels"] = "text"
    per_slot: bool = False  # a label for each slot of the source, separated by spaces; otherwise one for the source

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        if self.per_slot and self.kind != "labels":
            raise ValueError('`per_slot` is for labels: set kind = "labels"')
        return self


InputSettings = TextInputSettings | NoInputSettings | ImageInputSettings | AudioInputSettings | GraphInputSettings


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


Stride = Annotated[int, Field(ge=1, le=64)]


class FramesSettings(TransformerSettings):
    """An encoder of recordings: convolutions, which shrink `stride` frames to a slot, then Transformer layers."""

    kind: Literal["frames"]  # type: ignore[assignment]  # another kind with the same keys
    stride: Stride = 4

    @property
    def reduction(self) -> int:
        """Frames per slot."""
        return self.stride


class RecurrentFramesSettings(RecurrentSettings):
    """An encoder of recordings: convolutions, which shrink `stride` frames to a slot, then recurrent layers."""

    kind: Literal["recurrent_frames"]  # type: ignore[assignment]  # another kind with the same keys
    stride: Stride = 4
    pyramid: bool = False  # each layer after the first reads pairs of states, so it has half as many slots

    @property
    def reduction(self) -> int:
        """Frames per slot."""
        return self.stride << (self.layers - 1 if self.pyramid else 0)


class GraphSettings(Section):
    """An encoder of graphs: layers in which each node attends to its neighbors and itself."""

    kind: Literal["graph"]
    layers: PositiveInt  # a node reads nodes that are up to so many edges away
    heads: PositiveInt
    combine: CombineName = "concat"
    dropout: Dropout = 0.0  # of the features, and of what each layer reads
    weight_dropout: Dropout = 0.0  # of the attention weights: neighbors are left out


# By estimator of sampled attention: the options that only others use
UNUSED_OPTIONS = {
    "reinforce": (),
    "straight_through": ("reward_weight", "entropy_weight", "baseline_decay"),
    "marginal": ("soft_share", "reward_weight", "entropy_weight", "baseline_decay"),
}


class SampledSettings(Section):
    """Attention to one slot that is drawn: how it is trained, and how it is decoded."""

    estimator: Literal["reinforce", "marginal", "straight_through"] = "reinforce"
    decode: Literal["best", "expected"] = "best"  # the most probable slot, or the expected context
    soft_share: Share = 0.5  # of the queries in training that attend softly
    reward_weight: Annotated[float, Field(ge=0)] = 1.0
    entropy_weight: Annotated[float, Field(ge=0)] = 0.01
    baseline_decay: Share = 0.9  # of the moving average of the log-likelihood

    @model_validator(mode="after")
    def _check_estimator(self) -> Self:
        fields = type(self).model_fields
        for name in UNUSED_OPTIONS[self.estimator]:
            if getattr(self, name) != fields[name].default:
                raise ValueError(f'`{name}` has no effect with estimator = "{self.estimator}": remove it')
        return self


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
        if self.combine != "concat" and self.heads is None:
            raise ValueError("`combine` is for several heads: set `heads`, or remove it")
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
    # slots per slot of the encoder, where targets are longer than sources; default: so many that 99.9 % of pairs fit
    upsample: PositiveInt | None = None


class CTCHeadSettings(Section):
    """A CTC decoder that is trained beside the attention of the decoder, with `weight` of the loss; search ignores it.

    The decoder has the rest: loss = weight * CTC + (1 - weight) * cross-entropy.
    """

    weight: Share = 0.3
    upsample: PositiveInt | None = None  # slots per slot of the encoder; default: so many that 99.9 % of pairs fit


class LabelSettings(Section):
    """A label for each source, or one for each of its slots (pooling = "none")."""

    kind: Literal["labels"]
    pooling: Literal["attention", "mean", "last", "none"] = "attention"  # how the slots become one vector
    dropout: Dropout = 0.0  # of that vector


class EmbeddingFiles(Section):
    """Files of word vectors (.vec) that the rows of the embedding tables start from; one name sets both."""

    source: Annotated[str, Field(min_length=1)] | None = None
    target: Annotated[str, Field(min_length=1)] | None = None


def _as_embedding_files(value: Any) -> Any:
    return {"source": value, "target": value} if isinstance(value, str) else value


class ModelSettings(Section):
    """The encoder, the decoder and their embeddings."""

    newer_keys: ClassVar[frozenset[str]] = frozenset({"embeddings", "ctc_head"})

    width: PositiveInt  # of the embeddings
    positions: Literal["sinusoidal", "sinusoidal_halves", "learned"] | None = None  # recurrent decoders have none
    max_positions: PositiveInt = 1024
    scale_embeddings: bool = False  # by sqrt(width)
    dropout: Dropout = 0.0  # of the embeddings
    # "all": one table for source, target and output; "target": one for target and output
    tie_embeddings: Literal["all", "target", "none"] = "target"
    output_bias: bool = False
    # word vectors to start from: "words.vec", or { source = "en.vec", target = "de.vec" }; a finished model has none
    embeddings: Annotated[EmbeddingFiles, BeforeValidator(_as_embedding_files)] | None = None
    encoder: Annotated[
        TransformerSettings
        | RecurrentSettings
        | NothingSettings
        | PatchesSettings
        | FramesSettings
        | RecurrentFramesSettings
        | GraphSettings,
        Field(discriminator="kind"),
    ]
    decoder: Annotated[
        TransformerSettings | RecurrentDecoderSettings | CTCSettings | LabelSettings, Field(discriminator="kind")
    ]
    ctc_head: CTCHeadSettings | None = None  # for joint training of CTC and attention

    @model_validator(mode="after")
    def _check_ctc(self) -> Self:
        has_ctc_decoder = isinstance(self.decoder, CTCSettings)
        if not has_ctc_decoder and self.ctc_head is None:
            return self
        if self.ctc_head is not None and isinstance(self.decoder, CTCSettings | LabelSettings):
            raise ValueError("`ctc_head` is for joint training with attention: remove it, or choose another decoder")
        if has_ctc_decoder and self.tie_embeddings != "none":
            raise ValueError('a CTC decoder has no target embeddings: set tie_embeddings = "none"')
        if self.encoder.kind in ("bottleneck", "nothing") or getattr(self.encoder, "pool", False):
            raise ValueError(
                "CTC needs an encoder with a slot for each part of the source: this one has at most one slot"
            )
        return self

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        if isinstance(self.decoder, LabelSettings) and self.tie_embeddings != "none":
            raise ValueError('a decoder of labels has no target embeddings: set tie_embeddings = "none"')
        return self


class TrainSettings(Section):
    """How the model is trained. Missing keys are measured or derived, and saved before step 1.

    Either `steps` or `time` sets the length. With `time`, steps and schedule are fitted to the wall clock; the fits are
    recorded in `refits`, and a file with `refits` instead of `time` repeats such a run exactly.
    """

    newer_keys: ClassVar[frozenset[str]] = frozenset({"coverage_penalty", "word_dropout"})

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
    # The share of the words read by the decoder that are replaced with the unknown word: it then looks at the source
    word_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    ema: Annotated[float, Field(gt=0, lt=1)] | Off = False  # decay of a moving average of the weights
    average_checkpoints: Annotated[int, Field(ge=0)] = 0  # at the end, also evaluate the mean of this many
    skip_spikes_above: PositiveFloat | Off = 6.0  # skip updates whose gradient norm is this many deviations too large

    device: str | None = None  # cpu, cuda, mps
    threads: PositiveInt | None = None  # per process
    precision: Literal["fp32", "bf16"] | None = None

    validate_every: PositiveInt | None = None  # steps
    validate_pairs: PositiveInt = 1_000  # maximum to decode; also the number held out if there is no validation set
    best_by: Literal["chrf", "bleu", "loss", "accuracy"] = "chrf"  # the metric that selects the best checkpoint
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
    """heedful.toml. If the sources are not text, `source` is the kind of the input, such as "image" or "none"."""

    newer_keys: ClassVar[frozenset[str]] = frozenset({"input", "output"})

    recipe: str | None = None  # the recipe whose keys this file overrides
    init_from: Annotated[str, Field(min_length=1)] | None = None  # a model directory to fine-tune
    source: Language
    target: Language
    seed: Annotated[int, Field(ge=0)] = 1
    data: DataSettings
    clean: CleanSettings = CleanSettings()
    input: Annotated[InputSettings, Field(discriminator="kind")] = TextInputSettings()
    output: OutputSettings = OutputSettings()
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: ModelSettings | None = None
    train: TrainSettings = TrainSettings()

    @model_validator(mode="before")
    @classmethod
    def _set_input_defaults(cls, tree: Any) -> Any:
        kind = (
            tree["input"].get("kind", "text") if isinstance(tree, dict) and isinstance(tree.get("input"), dict) else ""
        )
        if kind in ("", "text"):
            return tree
        if tree.get("source", kind) != kind:
            raise ValueError(f"the sources are not text (input.kind is {kind!r}): remove `source`")
        tree = {"source": kind, **tree}
        if kind == "none":  # there is nothing to translate, so nothing that BLEU or chrF could compare
            tree["train"] = {"best_by": "loss", **tree.get("train", {})}
        return tree

    @model_validator(mode="before")
    @classmethod
    def _set_output_defaults(cls, tree: Any) -> Any:
        """A decoder of labels sets the output; accuracy compares labels; spaces separate the slots of a text."""
        if not isinstance(tree, dict):
            return tree
        model, output = tree.get("model"), tree.get("output", {})
        decoder = model.get("decoder") if isinstance(model, dict) else getattr(model, "decoder", None)
        decoder = decoder.model_dump() if isinstance(decoder, Section) else decoder
        if isinstance(decoder, dict) and decoder.get("kind") == "labels" and output == {}:
            output = {"kind": "labels", "per_slot": decoder.get("pooling") == "none"}
        if not isinstance(output, dict) or output.get("kind") != "labels":
            return tree
        train, tokenizer = tree.get("train", {}), tree.get("tokenizer", {})
        if isinstance(train, dict):
            tree = {**tree, "train": {"best_by": "accuracy", **train}}
        if output.get("per_slot") and isinstance(tokenizer, dict):
            tree = {**tree, "tokenizer": {"kind": "fields", **tokenizer}}
        return {**tree, "output": output}

    @model_validator(mode="after")
    def _check_output(self) -> Self:
        is_labels = self.output.kind == "labels"
        if (self.train.best_by == "accuracy") > is_labels:
            raise ValueError('train.best_by = "accuracy" is for labels: set output.kind = "labels"')
        if is_labels and self.train.best_by in ("bleu", "chrf"):
            raise ValueError('labels have no BLEU or chrF: set train.best_by = "accuracy" or "loss"')
        if is_labels and self.input.kind == "none":
            raise ValueError('labels need a source: set input.kind = "text" or "image"')
        if self.model is None:
            return self
        decoder = self.model.decoder
        if is_labels != isinstance(decoder, LabelSettings):
            raise ValueError(
                f'model.decoder.kind = "{decoder.kind}" does not produce output.kind = "{self.output.kind}": set '
                'model.decoder.kind = "labels" and output.kind = "labels", or neither'
            )
        if isinstance(decoder, LabelSettings) and self.output.per_slot != (decoder.pooling == "none"):
            raise ValueError('a label per slot needs output.per_slot = true and model.decoder.pooling = "none"')
        return self

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
        if self.train.parallel == "fsdp" and attention is not None and attention.normalizer == "sampled":
            raise ValueError('the baseline of sampled attention cannot be sharded: set train.parallel = "ddp"')
        return self

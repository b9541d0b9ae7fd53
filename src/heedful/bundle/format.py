"""The format of a model directory: file names, limits, and the JSON sections as pydantic models."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from numpy.typing import NDArray
from pydantic import ConfigDict, Field, PositiveFloat, ValidationError, model_validator

import heedful
from heedful import config
from heedful.confidence import LEVELS, THRESHOLDS, Features
from heedful.config import PositiveInt
from heedful.data.store import SIDES
from heedful.errors import HeedfulError
from heedful.inputs.kinds import make_input
from heedful.text.tokenizer import BOS, EOS, PAD, UNK, SubwordTokenizer, Tokenizer

FORMAT_VERSION = 2  # 1 had other keys, see config/renamed.py
CONFIG_FILE, WEIGHTS_FILE, VOCABULARY_FILE, CARD_FILE = "config.json", "model.safetensors", "vocab.json", "README.md"
GENERATION_FILE, STATISTICS_FILE, SCORES_FILE = "generation_config.json", "training_statistics.json", "eval.json"
INNER_FOLDER, EXPORT_FILE = "heedful", "export.json"  # of an export
REQUIRED_FILES = {
    CONFIG_FILE, WEIGHTS_FILE, VOCABULARY_FILE, CARD_FILE, GENERATION_FILE, STATISTICS_FILE, SCORES_FILE,
}  # fmt: skip
MAX_PARSED_BYTES = 1 << 23  # of a parsed file; 256 thousand pieces take 5 million
MAX_FILE_BYTES = {  # of other files
    **dict.fromkeys((WEIGHTS_FILE, "model.bin", "encoder.onnx", "step.onnx"), 1 << 50),  # hashed in blocks
    VOCABULARY_FILE: 1 << 25,  # compared but not parsed
}
MAX_HEADER_BYTES = 10_000_000  # of the weights; a tensor takes about a hundred
MAX_POSITION_NUMBERS = 1 << 28  # in a position table, which is not stored
TOKEN_IDS = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}
TARGET_TABLE, OUTPUT_WEIGHT = "decoder.embed.table.weight", "decoder.plain_projection.weight"
CTC_WEIGHT = "decoder.output.weight"  # decoders of CTC and labels have no table

Array = NDArray[Any]
Side = Annotated[str, Field(pattern=r"^(source|target)$")]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]  # no path out of the directory
MAX_LENGTH = 65_536
SuppressedWord = Annotated[str, Field(max_length=100, pattern=r"\S")]  # or a phrase
TensorName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]{1,300}$")]


class JsonSection(config.Section):
    """JSON from an untrusted source: unknown keys are an error."""

    model_config: ClassVar[ConfigDict] = ConfigDict(str_strip_whitespace=False)

    @classmethod
    def check(cls, tree: Mapping[str, Any], path: Path) -> Self:
        """Validate plain values read from `path`."""
        try:
            return cls.model_validate(tree)
        except ValidationError as failure:
            error = failure.errors()[0]
            raise bundle_error(path, f"{'.'.join(map(str, error['loc']))[:200]!a}: {error['msg'][:200]}") from None


class FileEntry(JsonSection):
    """A file in manifest.json."""

    size: int
    sha256: str


class Manifest(JsonSection):
    """manifest.json."""

    format_version: Literal[1, 2]
    files: Annotated[dict[FileName, FileEntry], Field(max_length=16)]


class TensorEntry(JsonSection):
    """A tensor in the header of the weights; strict like safetensors: 8.0 and "8" are not 8."""

    model_config: ClassVar[ConfigDict] = ConfigDict(strict=True)
    dtype: str
    shape: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=8)]
    data_offsets: Annotated[list[int], Field(min_length=2, max_length=2)]


class WeightsHeader(JsonSection):
    """The header of the weights: metadata and tensors."""

    metadata: dict[str, str]
    tensors: dict[TensorName, TensorEntry]


class ModelDescription(JsonSection):
    """config.json."""

    newer_keys: ClassVar[frozenset[str]] = frozenset({"input"})

    format_version: Literal[2]
    heedful_version: Annotated[str, Field(max_length=100)]
    source: config.Language
    target: config.Language
    input: Annotated[config.InputSettings, Field(discriminator="kind")] = config.TextInputSettings()
    vocabulary: Annotated[dict[Side, PositiveInt], Field(min_length=1)]  # sizes
    tokens: dict[str, int]
    tags: tuple[config.Tag, ...]
    tokenizer: Literal[
        "bpe", "unigram", "characters", "words", "letters", "label", "fields", "borrowed"
    ]  # of the source, if it is text
    files: Annotated[dict[Side, str], Field(min_length=1)]  # of the tokenizers
    source_ends: bool = True  # whether every source ends with the end token
    model: config.ModelSettings
    dtype: Literal["float16", "float32", "float64"]
    parameters: PositiveInt

    @model_validator(mode="after")
    def check_sides(self) -> Self:
        """Raise ValueError unless each side that is text has a vocabulary and a tokenizer."""
        sides = set(make_input(self.input).text_sides)
        if self.vocabulary.keys() != sides or self.files.keys() != sides:
            raise ValueError(f"`vocabulary` and `files` must have the keys {', '.join(sorted(sides))}")
        return self

    @property
    def text_sides(self) -> tuple[str, ...]:
        """The sides that are text."""
        return make_input(self.input).text_sides


class GenerationSettings(JsonSection):
    """generation_config.json: the default search of `heedful translate`."""

    beam: Annotated[int, Field(ge=1, le=256)] = 5
    length_rule: Literal["none", "power", "power_without_end", "gnmt"] = "power"
    length_penalty: Annotated[float, Field(ge=0, le=8)] = 1.0
    max_length: Annotated[int, Field(ge=1, le=MAX_LENGTH)] = 256  # tokens of a translation
    suppress_words: Annotated[tuple[SuppressedWord, ...], Field(max_length=4096)] = ()  # not used in translations


class OpenSection(JsonSection):
    """Part of the training statistics: all keys are optional; unknown keys, from newer versions, are ignored."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", allow_inf_nan=False)


class LengthStatistics(OpenSection):
    """Lengths of one side, in tokens."""

    mean: float = 0.0
    p99: int = 1
    longest: PositiveInt = 1


class AlignmentStatistics(OpenSection):
    """How to extract word alignments from the attention; empty for models without attention."""

    step: Literal["naive", "shifted"] | None = None
    layer: Annotated[int, Field(ge=0)] | None = None  # None: the mean of all
    head: Annotated[int, Field(ge=0)] | None = None


FeatureNumbers = Annotated[list[float], Field(min_length=len(fields(Features)), max_length=len(fields(Features)))]
Curve = Annotated[list[float], Field(min_length=1, max_length=1000)]


class CalibrationStatistics(OpenSection):
    """The numbers of `heedful.confidence.Calibration`."""

    sentences: PositiveInt
    means: FeatureNumbers
    scales: Annotated[list[PositiveFloat], Field(min_length=len(fields(Features)), max_length=len(fields(Features)))]
    weights: FeatureNumbers
    intercept: float
    knots: Curve
    expected: Curve
    probabilities: Annotated[list[Curve], Field(min_length=len(THRESHOLDS), max_length=len(THRESHOLDS))]
    edges: Curve
    bounds: Annotated[list[Curve], Field(min_length=len(LEVELS), max_length=len(LEVELS))]

    @model_validator(mode="after")
    def check_lengths(self) -> Self:
        """Raise ValueError unless each curve has a value per knot, and each level a bound per bin."""
        if {len(curve) for curve in (self.expected, *self.probabilities)} != {len(self.knots)}:
            raise ValueError("the curves have other lengths than `knots`")
        if {len(bin_bounds) for bin_bounds in self.bounds} != {len(self.edges) + 1}:
            raise ValueError("`bounds` must have a value for each bin between the `edges`")
        return self


class TrainingStatistics(OpenSection):
    """training_statistics.json: the baseline that inputs and outputs are compared with."""

    pairs: int | None = None
    fingerprint: str | None = None
    lengths: dict[Side, LengthStatistics] | None = None
    ratio: float | None = None
    scripts: dict[Side, dict[str, float]] | None = None
    sentences: dict[Side, Annotated[float, Field(ge=0, le=1)]] | None = None  # share of lines with several
    words: dict[Side, dict[str, float]] | None = None  # frequent words and their shares
    usual: dict[Literal["input", "output"], dict[str, float]] | None = None
    confidence: dict[str, float] | None = None
    alignment: AlignmentStatistics | None = None
    calibration: CalibrationStatistics | None = None


@dataclass(frozen=True)
class Bundle:
    """A verified model directory; `read_weights` reads its weights."""

    folder: Path
    description: ModelDescription
    tokenizers: Mapping[str, Tokenizer]
    generation: GenerationSettings
    statistics: Mapping[str, Any]
    scores: Mapping[str, Any]

    @property
    def model(self) -> config.ModelSettings:
        """The [model] section, from which `build` makes the model."""
        return self.description.model

    def tokenizer(self, side: str) -> Tokenizer:
        return self.tokenizers[side]


def bundle_error(path: Path, what: str) -> HeedfulError:
    """Return the error for a damaged or inconsistent file."""
    return HeedfulError(f"{path}: {what}. Download or copy the whole model again, or rerun the command that wrote it")


def check_version(tree: Mapping[str, Any], path: Path) -> None:
    """Raise an error if a file has a newer format than this heedful reads."""
    version = tree.get("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise HeedfulError(
            f"{path} was written by a newer heedful: it has format {version}; heedful "
            f"{heedful.__version__} reads up to format {FORMAT_VERSION}. Upgrade with: pip install "
            "--upgrade heedful"
        )


def dump_json(tree: Mapping[str, Any]) -> bytes:
    """Serialize canonically: manifest.json and vocab.json are compared byte by byte."""
    return (json.dumps(tree, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def sibling(folder: Path, suffix: str) -> Path:
    """Return the path of a temporary directory next to this one: model -> .model.new"""
    return folder.with_name(f".{folder.name}.{suffix}")


def tied_names(model: config.ModelSettings) -> dict[str, str]:
    """Return other name of a tied table -> stored name."""
    names = {"all": (source_table_name(model) or OUTPUT_WEIGHT, OUTPUT_WEIGHT), "target": (OUTPUT_WEIGHT,), "none": ()}
    return dict.fromkeys(names[model.tie_embeddings], TARGET_TABLE)


def source_table_name(model: config.ModelSettings) -> str | None:
    """Return the name of the source embedding table; a bottleneck wraps an encoder."""
    if model.encoder.kind in ("nothing", "patches", "frames", "recurrent_frames", "graph"):
        return None
    return "encoder." * (2 if model.encoder.kind == "bottleneck" else 1) + "embed.table.weight"


def target_table_name(model: config.ModelSettings) -> str | None:
    """Return the name of the target embedding table; decoders of CTC and labels read no target."""
    return None if model.decoder.kind in ("ctc", "labels") else TARGET_TABLE


def piece_ids(tokenizers: Mapping[str, Tokenizer]) -> dict[str, dict[str, int]]:
    """Return the content of vocab.json: piece -> id for both sides."""
    rows = {side: tokenizers[side].pieces(range(tokenizers[side].size)) for side in SIDES if side in tokenizers}
    return {side: {piece: number for number, piece in enumerate(pieces)} for side, pieces in rows.items()}


def tokenizer_kind(tokenizer: Tokenizer) -> str:
    """Return the kind of a tokenizer, a key of TOKENIZERS."""
    if isinstance(tokenizer, SubwordTokenizer):
        return "bpe" if tokenizer.is_bpe else "unigram"
    return str(getattr(tokenizer, "kind", type(tokenizer).__name__))

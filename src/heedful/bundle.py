"""One model directory, written whole and verified without torch.

    bundle = write("runs/en-de/model", model=settings.model, weights=arrays, tokenizers=..., ...)
    bundle = open_bundle("runs/en-de")        # or the model directory itself
    model.load_state_dict({name: torch.from_numpy(array) for name, array in read_weights(bundle).items()})

    config.json                what the model is: languages, vocabularies, [model], dtype, number of weights
    model.safetensors          the weights by their names in the model, a tied table once
    source.spm, target.spm     the tokenizers; characters and words: source.vocabulary.json, target.vocabulary.json
    vocab.json                 piece -> id of both sides, for other tools
    generation_config.json     how to search unless told otherwise
    training_statistics.json   what the training text looked like
    eval.json                  scores with their signatures
    README.md                  the model card
    manifest.json              size and sha256 of all of these; written last

No file is believed: it is listed, lies in the folder, has the size and the hash that the manifest says, and all of them
fit together, before anything larger than `LARGEST` is read. None can hold code: there is no pickle.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from hashlib import file_digest, sha256
from math import prod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

import heedful
from heedful import config
from heedful.data.store import MANIFEST, SIDES
from heedful.errors import HeedfulError
from heedful.text.tokenizer import BOS, EOS, LISTED, PAD, SPECIAL, UNK, Subwords, Tokenizer, load

FORMAT = 1
CONFIG, WEIGHTS, VOCABULARY, CARD = "config.json", "model.safetensors", "vocab.json", "README.md"
GENERATION, STATISTICS, SCORES = "generation_config.json", "training_statistics.json", "eval.json"
ALWAYS = {CONFIG, WEIGHTS, VOCABULARY, CARD, GENERATION, STATISTICS, SCORES}
LARGEST = 1 << 23  # bytes of a file that is parsed; 256 thousand pieces take 5 million
LARGER = {
    **dict.fromkeys((WEIGHTS, "model.bin", "encoder.onnx", "step.onnx"), 1 << 50),  # hashed block by block
    VOCABULARY: 1 << 25,  # compared but not parsed
}
LARGEST_HEADER = 10_000_000  # bytes, of the weights; a tensor takes a hundred
LARGEST_POSITIONS = 1 << 28  # numbers in a table of positions, which need not be in any file
TOKENS = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}
TABLE, OUTPUT = "decoder.embed.table.weight", "decoder.plain_projection.weight"

Array = NDArray[Any]
Many = Annotated[int, Field(ge=1)]
Side = Annotated[str, Field(pattern=r"^(source|target)$")]
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]  # no way out of the folder
TensorName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.]{1,300}$")]


class Part(config.Section):
    """A piece of JSON that may come from anywhere: closed to keys it does not know, refused in words."""

    model_config: ClassVar[ConfigDict] = ConfigDict(str_strip_whitespace=False)  # a name is what it is

    @classmethod
    def check(cls, tree: Mapping[str, Any], path: Path) -> Self:
        """From plain values; `path` is where they were read."""
        version = tree.get("format_version")
        if isinstance(version, int) and version > FORMAT:
            raise HeedfulError(
                f"{path} was made by a newer heedful: it has format {version}, heedful {heedful.__version__} reads "
                f"{FORMAT}. Type: pip install --upgrade heedful"
            )
        try:
            return cls.model_validate(_renamed(tree))
        except ValidationError as error:
            first = error.errors()[0]
            raise refused(path, f"{'.'.join(map(str, first['loc']))[:200]!a}: {first['msg'][:200]}") from None


def _renamed(tree: Any) -> Any:
    """Keys as they are called now."""
    if isinstance(tree, dict):
        return {RENAMED.get(key, key): _renamed(value) for key, value in tree.items()}
    return tree


RENAMED = {"normalise": "normalize", "tokenised": "tokenized"}


class Entry(Part):
    """A file as the manifest knows it."""

    size: int
    sha256: str


class Manifest(Part):
    """manifest.json."""

    format_version: Literal[1]
    files: Annotated[dict[FileName, Entry], Field(max_length=16)]


class Tensor(Part):
    """A tensor in the header of the weights; strict, as safetensors is: no 8.0 or "8" for 8."""

    model_config: ClassVar[ConfigDict] = ConfigDict(strict=True)
    dtype: str
    shape: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=8)]
    data_offsets: Annotated[list[int], Field(min_length=2, max_length=2)]


class Header(Part):
    """The header of the weights, notes apart from tensors."""

    notes: dict[str, str]
    tensors: dict[TensorName, Tensor]


class Description(Part):
    """config.json: what the model is."""

    format_version: Literal[1]
    heedful_version: Annotated[str, Field(max_length=100)]
    source: config.Language
    target: config.Language
    vocabulary: Annotated[dict[Side, Many], Field(min_length=2)]
    tokens: dict[str, int]
    tags: tuple[config.Tag, ...]
    tokenizer: Literal["bpe", "unigram", "characters", "words", "letters", "borrowed"]  # of the source
    files: Annotated[dict[Side, str], Field(min_length=2)]  # of the tokenizers
    source_ends: bool = True  # whether the end token stands after every source
    model: config.Model
    dtype: Literal["float16", "float32", "float64"]
    parameters: Many


class Generation(Part):
    """generation_config.json: the search that `heedful translate` makes unless told otherwise."""

    beam: Annotated[int, Field(ge=1, le=256)] = 5
    length: Literal["none", "power", "power_without_end", "gnmt"] = "power"
    length_penalty: Annotated[float, Field(ge=0, le=8)] = 1.0
    limit: Annotated[int, Field(ge=1, le=65_536)] = 256  # most tokens of a translation


class Known(Part):
    """A part of the training statistics: keys that a newer heedful adds are passed over, none is needed."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", allow_inf_nan=False)


class Lengths(Known):
    """Of one side, in tokens."""

    mean: float = 0.0
    p99: int = 1
    longest: Many = 1


class Links(Known):
    """How to read links of words off the attention; nothing of a model that does not look."""

    step: Literal["naive", "shifted"] | None = None
    layer: Annotated[int, Field(ge=0)] | None = None  # None: the mean of all
    head: Annotated[int, Field(ge=0)] | None = None


class Statistics(Known):
    """training_statistics.json: what later input is held to."""

    pairs: int | None = None
    fingerprint: str | None = None
    lengths: dict[Side, Lengths] | None = None
    ratio: float | None = None
    scripts: dict[Side, dict[str, float]] | None = None
    usual: dict[Literal["input", "output"], dict[str, float]] | None = None
    confidence: dict[str, float] | None = None
    alignment: Links | None = None


@dataclass(frozen=True)
class Bundle:
    """A model directory that was verified: all of it but the weights, which `read_weights` gives."""

    folder: Path
    description: Description
    tokenizers: Mapping[str, Tokenizer]
    generation: Generation
    statistics: Mapping[str, Any]
    scores: Mapping[str, Any]

    @property
    def model(self) -> config.Model:
        """The [model] section that `build` makes the model from."""
        return self.description.model

    def tokenizer(self, side: str) -> Tokenizer:
        """The tokenizer of "source" or "target"."""
        return self.tokenizers[side]


# --------------------------------------------------------------------------------------------------------- reading


def open_bundle(folder: str | Path, *, weights: bool = True) -> Bundle:
    """Verify a model directory, or the one in a run directory; any doubt is a HeedfulError that says what to do.

    Without `weights` it need not have any: an export keeps them in a form of its own.
    """
    try:
        return verified(found(Path(folder).resolve()).resolve(), weights)
    except OSError as error:
        raise HeedfulError(f"{error.filename or folder} cannot be read: {error.strerror or error}") from None


def read_weights(bundle: Bundle) -> dict[str, Array]:
    """Every weight by its name in the model, as `load_state_dict` wants them; a tied table under each of its names."""
    path = bundle.folder / WEIGHTS
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise refused(path, f"changed after it was verified ({error})") from None
    return weights | {again: weights[stored] for again, stored in tied(bundle.model).items()}


def read_floats(bundle: Bundle) -> dict[str, Array]:
    """The same in float32, which is what every engine computes in, however they are stored."""
    return {name: array.astype(np.float32, copy=False) for name, array in read_weights(bundle).items()}


def found(folder: Path) -> Path:
    """Where the model is: here, in model/, or beside it, where a writer that was killed between its renames left it."""
    for place in (folder, folder / "model"):
        for one in (place,) if place.exists() else (beside(place, "new"), beside(place, "old")):
            if (one / MANIFEST).is_file():
                return one
    if (folder / "heedful" / "export.json").is_file():
        raise HeedfulError(
            f"{folder} is an export, which is only translated with: name the model directory it came from"
        )
    if folder.is_file():
        raise HeedfulError(f"there is no model in {folder}, which is a file: name the model directory")
    if not folder.exists():
        raise HeedfulError(f"there is no model in {folder}, as there is no such folder: name the right one")
    if (folder / "requested.json").is_file():
        raise HeedfulError(
            f"there is no model in {folder} yet: its training is not finished. The same heedful train goes on with it"
        )
    raise HeedfulError(
        f"there is no model in {folder}: no {MANIFEST} in it, nor in a folder `model` in it. Name the right folder; "
        "a model whose writing was cut short, before the manifest, has to be written again"
    )


def verified(folder: Path, weights: bool = True) -> Bundle:
    """The bundle, if everything in it is what it should be."""
    contents = listed(folder, ALWAYS if weights else ALWAYS - {WEIGHTS})
    trees = {name: parsed(contents[name], folder / name) for name in (CONFIG, GENERATION, STATISTICS, SCORES)}
    described = Description.check(trees[CONFIG], folder / CONFIG)
    generation = Generation.check(trees[GENERATION], folder / GENERATION)
    statistics = Statistics.check(trees[STATISTICS], folder / STATISTICS).model_dump(exclude_unset=True)
    if weights:
        check_sizes(folder, described, shapes_of(folder / WEIGHTS, described.dtype))
    if not set(described.files.values()) <= contents.keys() - ALWAYS:
        raise refused(folder / MANIFEST, "does not list the tokenizers")
    tokenizers = {side: tokenizer_of(folder, described, side) for side in SIDES}
    if contents[VOCABULARY] != dumped(vocabulary_of(tokenizers)):
        raise refused(folder / VOCABULARY, "its pieces are not those of the tokenizers")
    return Bundle(folder, described, tokenizers, generation, statistics, trees[SCORES])


def listed(folder: Path, always: Set[str] = frozenset()) -> dict[str, bytes]:
    """The manifest's files, which have the size and the hash that it says; of the weights no more than the name."""
    path = plain_file(folder, MANIFEST)
    tree = parsed(data := path.read_bytes(), path)
    manifest = Manifest.check(tree, path)
    if data != dumped(tree):  # no hash guards this file, but there is only one way to write it
        raise refused(path, "is not as heedful wrote it")
    if lost := always - manifest.files.keys():
        raise refused(path, f"does not list {', '.join(sorted(lost))}")
    contents = {}
    for name, entry in manifest.files.items():
        path = plain_file(folder, name)
        if path.stat().st_size != entry.size:
            raise refused(path, f"has {path.stat().st_size:,} bytes, not {entry.size:,}")
        contents[name] = b"" if name == WEIGHTS else path.read_bytes()
        if (digest(path) if name == WEIGHTS else sha256(contents[name]).hexdigest()) != entry.sha256:
            raise refused(path, "is damaged: its sha256 is not the manifest's")
    return contents


def plain_file(folder: Path, name: str) -> Path:
    """A file in this very folder, no larger than an honest one."""
    path = folder / name
    if not path.is_file():
        raise refused(path, "is missing, or not a file")
    if path.resolve().parent != folder:
        raise refused(path, "is a link that leads out of the folder")
    if path.stat().st_size > LARGER.get(name, LARGEST):
        raise refused(path, f"is larger than {LARGER.get(name, LARGEST):,} bytes")
    return path


def shapes_of(path: Path, dtype: str) -> dict[str, tuple[int, ...]]:
    """The shape of every weight: 8 bytes say how long the header is, then JSON, then tensors without gap or overlap."""
    bytes_each, size = np.dtype(dtype).itemsize, path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(LARGEST_HEADER, size - 8):
            raise refused(path, f"says that its header has {length:,} bytes")
        tree = parsed(file.read(length), path)
    notes = tree.pop("__metadata__", {})
    tensors = Header.check({"notes": notes, "tensors": tree}, path).tensors
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: item[1].data_offsets):
        if tensor.dtype != f"F{8 * bytes_each}":
            raise refused(path, f"{name} is {tensor.dtype[:20]!a}, but {CONFIG} says {dtype}")
        if tensor.data_offsets != [end, end + prod(tensor.shape) * bytes_each]:
            raise refused(path, f"{name} does not lie where its shape and the tensors before it put it")
        end = tensor.data_offsets[1]
    if 8 + length + end != size:
        raise refused(path, f"its tensors end at byte {8 + length + end:,} of {size:,}")
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def check_sizes(folder: Path, described: Description, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """That config.json and the weights speak of one model, and building it takes no more than the weights suggest."""
    model, other_names = described.model, tied(described.model)
    for name, side in ((table_of_source(model), "source"), (TABLE, "target"), (OUTPUT, "target")):
        wanted, shape = (described.vocabulary[side], model.width), shapes.get(other_names.get(name, name))
        if shape != wanted:
            raise refused(folder / WEIGHTS, f"{name} has shape {shape}, but {CONFIG} says {wanted}")
    total = sum(map(prod, shapes.values()))
    if total != described.parameters:
        raise refused(folder / WEIGHTS, f"has {total:,} numbers, but {CONFIG} says {described.parameters:,}")
    if least(model) > total or (model.positions and model.slots * model.width > LARGEST_POSITIONS):
        raise refused(folder / CONFIG, f"`model` describes one with far more than the {total:,} weights there are")


def least(model: config.Model) -> int:
    """A model of these sizes has more weights than this: its largest matrices, counted without building them."""
    width, encoder, decoder = model.width, model.encoder, model.decoder
    total = 0
    for part in (encoder, decoder):
        if isinstance(part, config.Transformer):
            total += part.layers * width * (width * (part.heads if part.combine == "average" else 1) + part.inner)
        else:
            total += part.width * width + part.layers * part.width**2 // 2  # each of two directions has half the width
    if isinstance(decoder, config.RecurrentDecoder):
        memory = width if isinstance(encoder, config.Transformer) else encoder.width
        asks = decoder.attention
        heads = asks.heads or 0 if asks is not None and asks.combine == "average" else 0
        total += decoder.width * memory * (decoder.layers * decoder.bridge + heads)
    return total


def tokenizer_of(folder: Path, described: Description, side: str) -> Tokenizer:
    """One of the tokenizers. What used to crash SentencePiece, it refuses itself from 0.2.2 on."""
    path, size = folder / described.files[side], described.vocabulary[side]
    try:
        tokenizer = load(path)
        kind, pieces = kind_of(tokenizer), tokenizer.pieces(range(tokenizer.size))
        for tag in described.tags if side == "source" else ():
            tokenizer.tag(tag)
    except (HeedfulError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise refused(path, f"is not a tokenizer for this model ({str(error)[:200]!a})") from None
    wanted = (
        described.tokenizer if side == "source" else kind
    )  # the target's may be of another kind, and says so itself
    if (kind, len(pieces), len(set(pieces))) != (wanted, size, size):
        raise refused(path, f"is {kind[:20]!a} of {len(set(pieces)):,} pieces, not {wanted} of {size:,}")
    if tuple(pieces[: len(SPECIAL)]) != SPECIAL or described.tokens != TOKENS:
        raise refused(path, f"begins with other tokens than {' '.join(SPECIAL)}, or {CONFIG} gives them other ids")
    return tokenizer


def parsed(data: bytes, path: Path) -> dict[str, Any]:
    """An object of strict JSON: no key twice, no NaN, no endless nesting."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(tree := dict(pairs)) < len(pairs):
            raise ValueError("a key stands there twice")
        return tree

    def never(word: str) -> None:
        raise ValueError(f"{word} is not a number")

    try:
        tree = json.loads(data.decode(), object_pairs_hook=once, parse_constant=never)
        json.dumps(tree, ensure_ascii=False).encode()  # no half characters, which JSON can spell
    except (ValueError, RecursionError) as error:
        raise refused(path, f"is not JSON ({str(error)[:200]!a})") from None
    if not isinstance(tree, dict):
        raise refused(path, "is not a JSON object")
    return tree


def refused(path: Path, what: str) -> HeedfulError:
    """The error to raise."""
    return HeedfulError(f"{path}: {what}. Fetch the whole model again from where it came, or write it again")


# --------------------------------------------------------------------------------------------------------- writing


def write(
    folder: str | Path,
    *,
    model: config.Model,
    weights: Mapping[str, Array],
    tokenizers: Mapping[str, Tokenizer],
    languages: tuple[str, str],
    card: str,
    tags: Sequence[str] = (),
    source_ends: bool = True,
    generation: Generation | None = None,
    statistics: Mapping[str, Any] | None = None,
    scores: Mapping[str, Any] | None = None,
) -> Bundle:
    """Write a model directory beside its place, verify it, put it there; a model that was there is replaced.

    `weights` are `state_dict()`'s as arrays, all float16, float32 or float64; of a tied table any of its names
    will do. At every moment, killed or not, `open_bundle(folder)` finds a whole model: this one, or the one before.
    """
    folder = Path(folder).resolve()
    if folder.exists() and not (folder / WEIGHTS).is_file() and (folder.is_file() or any(folder.iterdir())):
        raise HeedfulError(f"{folder} is there and is not a model, so it will not be replaced. Name another folder")
    stored, kind = untied(model, weights), kind_of(tokenizers["source"])
    files = {side: f"{side}.{'vocabulary.json' if kind_of(tokenizers[side]) in LISTED else 'spm'}" for side in SIDES}
    described = Description.model_validate(
        {
            "format_version": FORMAT, "heedful_version": heedful.__version__,
            "source": languages[0], "target": languages[1],
            "vocabulary": {side: tokenizers[side].size for side in SIDES}, "tokens": TOKENS, "tags": tuple(tags),
            "tokenizer": kind, "files": files, "source_ends": source_ends, "model": model,
            "dtype": next(iter(stored.values())).dtype.name, "parameters": sum(one.size for one in stored.values()),
        }
    )  # fmt: skip
    contents = {
        CONFIG: dumped(described.model_dump(mode="json")),
        VOCABULARY: dumped(vocabulary_of(tokenizers)),
        GENERATION: dumped((generation or Generation()).model_dump(mode="json")),
        STATISTICS: dumped(statistics or {}),
        SCORES: dumped(scores or {}),
        CARD: card.encode(),
    }
    new = beside(folder, "new")
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        for name, data in contents.items():
            (new / name).write_bytes(data)
        for side in SIDES:
            tokenizers[side].save(new / files[side])
        save_file(stored, new / WEIGHTS, metadata={"format": "pt"})  # which some tools insist on
        (new / WEIGHTS).chmod((new / CONFIG).stat().st_mode)  # safetensors writes for the owner's eyes alone
        entries = {path.name: entry_of(path) for path in sorted(new.iterdir())}
        for name in entries:
            sync(new / name)
        (new / MANIFEST).write_bytes(dumped({"format_version": FORMAT, "files": entries}))
        sync(new / MANIFEST)
        sync(new)
        bundle = verified(new)
        put(new, folder)
    except (OSError, SafetensorError) as error:
        raise HeedfulError(f"{folder} cannot be written: {error}. A model that was there is still whole") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return replace(bundle, folder=folder)


def put(new: Path, folder: Path) -> None:
    """Rename the old one away and the new one in, then remove the old; `found` knows where to look in between."""
    old = beside(folder, "old")
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)  # of a writer that was killed at its last line
        folder.rename(old)
    new.rename(folder)
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def beside(folder: Path, what: str) -> Path:
    """model -> .model.new, .model.old"""
    return folder.with_name(f".{folder.name}.{what}")


def sync(path: Path) -> None:
    """Put a file, or the names in a folder, on the disk for good."""
    if os.name == "nt" and path.is_dir():  # pragma: no cover  # Windows opens no folders, and journals them itself
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)  # Windows syncs only what it may write
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest(path: Path) -> str:
    """The sha256 of a file of any size."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def entry_of(path: Path) -> dict[str, Any]:
    """A file as manifests know it."""
    return {"size": path.stat().st_size, "sha256": digest(path)}


def dumped(tree: Mapping[str, Any]) -> bytes:
    """The one way in which JSON is written here: manifest.json and vocab.json are compared with it to the byte."""
    return (json.dumps(tree, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def untied(model: config.Model, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Each weight once and in one piece, all of one type."""
    other_names, arrays = tied(model), dict[str, Array]()
    for name, array in weights.items():
        stored = other_names.get(name, name)
        if stored in arrays and not np.array_equal(arrays[stored], array):
            raise ValueError(f"model.tied = {model.tied!r}, but {name} is not the same as the tables it is tied to")
        arrays[stored] = np.asarray(array, order="C")
    if len(dtypes := {array.dtype.name for array in arrays.values()}) != 1:
        raise ValueError(f"weights have one type, not {', '.join(sorted(dtypes)) or 'none'}")
    return arrays


def tied(model: config.Model) -> dict[str, str]:
    """Other names of a table -> the name under which it is stored."""
    names = {"all": (table_of_source(model), OUTPUT), "target": (OUTPUT,), "none": ()}
    return dict.fromkeys(names[model.tied], TABLE)


def table_of_source(model: config.Model) -> str:
    """Its name; a bottleneck is an encoder around an encoder."""
    return "encoder." * (2 if model.encoder.kind == "bottleneck" else 1) + "embed.table.weight"


def vocabulary_of(tokenizers: Mapping[str, Tokenizer]) -> dict[str, dict[str, int]]:
    """Piece -> id of both sides."""
    rows = {side: tokenizers[side].pieces(range(tokenizers[side].size)) for side in SIDES}
    return {side: {piece: number for number, piece in enumerate(pieces)} for side, pieces in rows.items()}


def kind_of(tokenizer: Tokenizer) -> str:
    """A line of TOKENIZERS: a list says it itself, SentencePiece's scores tell."""
    if isinstance(tokenizer, Subwords):
        return "bpe" if tokenizer.merges else "unigram"
    return str(getattr(tokenizer, "kind", type(tokenizer).__name__))


# ------------------------------------------------------------------------------------------------------------ card


def card(
    model: config.Model,
    languages: tuple[str, str],
    parameters: int,
    scores: Mapping[str, Mapping[str, Mapping[str, Any]]],
    *,
    corpora: Sequence[str],
    pairs: int,
    fingerprint: str,
    longest_tokens: int,
) -> str:
    """The model card: what it is, how to use it, how good it is, what it was made of, what not to expect.

    `scores` are eval.json's: {"test": {"bleu": {"value": 41.2, "signature": "nrefs:1|..."}}}.
    """
    codes = [code.replace("_", "-").split("-")[0].lower() for code in languages]
    lines = [
        f"- {corpus}: {name} {one['value']:.2f}, signature `{one['signature']}`"
        for corpus, some in scores.items()
        for name, one in some.items()
    ]
    if lines:
        lines += [
            "",
            "They hold for text like that of their corpus, and compare only with scores of the same signature.",
        ]
    return f"""---
language: {json.dumps(codes)}
library_name: heedful
pipeline_tag: translation
tags: ["translation", "heedful"]
---

# {languages[0]} to {languages[1]}

{parameters:,} weights: {in_words(model.model_dump(exclude_defaults=True))}. Made with heedful {heedful.__version__}.

```sh
heedful translate DIR        # where DIR is this folder
```

## Scores

{chr(10).join(lines) or "It was not scored."}

## Data

{pairs:,} sentence pairs of {", ".join(corpora)}; fingerprint of the prepared corpus `{fingerprint}`.

## Limits

- It knows the words, topics and style of these pairs. Expect less elsewhere, and have a person read what matters.
- No pair had more than {longest_tokens:,} tokens on a side. It translates sentence by sentence, without context.
- It can leave out, repeat or invent, fluently. What is wrong or unfair in the data can come back.
"""


def in_words(tree: Mapping[str, Any]) -> str:
    """A section in one line, such as `width 128, encoder (kind transformer, layers 4, ...), ...`."""
    inner = {key: f"({in_words(value)})" if isinstance(value, Mapping) else value for key, value in tree.items()}
    return ", ".join(f"{key} {value}" for key, value in inner.items())

"""Fine-tuning: training that starts from an existing model.

    heedful train new.en new.de --from my-model --out my-model-2 --time 20m

The [model], the vocabulary and the initial weights come from that model. Fine-tuning takes smaller steps than training
from scratch: settings that are left open get FINETUNING_DEFAULTS. If the run that made the model still exists, its
validation text becomes a test corpus, OLD_VALIDATION, which shows what the model forgets.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.bundle import open_bundle, read_float_weights
from heedful.config import CorpusSettings, InputSettings, ModelSettings, OutputSettings, Settings, load
from heedful.corpus.replay import find_run
from heedful.data.store import MANIFEST, open_prepared
from heedful.errors import ConfigError, HeedfulError
from heedful.files import file_sha256, update_text
from heedful.inputs.kinds import make_input

if TYPE_CHECKING:
    from torch import Tensor

OLD_VALIDATION = "old_validation"  # the name of the test corpus
FINETUNING_DEFAULTS: dict[str, Any] = {
    "learning_rate": 2e-4,
    "warmup_steps": 100,
    "schedule": "linear",
    "clip_norm": 1.0,
    "ema": 0.999,
}


def apply_finetuning_defaults(settings: Settings) -> Settings:
    """The settings with everything that `init_from` implies; unchanged without `init_from`."""
    if settings.init_from is None:
        return settings
    bundle = open_bundle(settings.init_from)
    description = bundle.description
    is_reversed = (settings.source, settings.target) == (description.target, description.source)
    if is_reversed and description.source != description.target:
        raise ConfigError(
            f"{settings.init_from} translates from {description.source} to {description.target}, but this "
            "corpus is in the other direction: swap the two files of the corpus"
        )
    if not description.source_ends:
        raise ConfigError(
            f"{settings.init_from} cannot be fine-tuned: it reads sources without an end token, but "
            "heedful trains with one. Choose another model"
        )
    if settings.model is not None and without_dropout(settings.model) != without_dropout(bundle.model):
        raise ConfigError(
            f"init_from = {settings.init_from} already defines the model: remove [model] and the recipe "
            "from your settings, or keep only dropout settings in [model]"
        )
    sides = make_input(description.input).text_sides
    files = tuple((bundle.folder / description.files[side]).as_posix() for side in sides)
    if settings.tokenizer.files not in (None, files):
        raise ConfigError(f"init_from = {settings.init_from} already defines the tokenizers: remove tokenizer.files")
    defaults = {key: value for key, value in FINETUNING_DEFAULTS.items() if key not in settings.train.model_fields_set}
    if bundle.model.decoder.kind == "labels" and settings.train.best_by not in ("accuracy", "loss"):
        defaults["best_by"] = "accuracy"
    max_tokens = settings.clean.max_tokens
    if bundle.model.positions:
        max_tokens = min(max_tokens, bundle.model.max_positions - 1)  # one position is for the end token
    return settings.model_copy(
        update={
            "input": input_of_model(settings, description.input),
            "clean": settings.clean.model_copy(update={"max_tokens": max_tokens}),
            "model": settings.model or bundle.model,
            "output": output_of_model(bundle.model),
            "tokenizer": settings.tokenizer.model_copy(update={"files": files}),
            "train": settings.train.model_copy(update=defaults),
        }
    )


def output_of_model(model: ModelSettings) -> OutputSettings:
    """What a model produces: labels or text."""
    if model.decoder.kind != "labels":
        return OutputSettings()
    return OutputSettings(kind="labels", per_slot=getattr(model.decoder, "pooling", None) == "none")


def input_of_model(settings: Settings, model_input: InputSettings) -> InputSettings:
    """The input of the settings, with the sizes that the model reads; the variations stay."""
    requested = settings.input
    if requested.kind != model_input.kind:
        raise ConfigError(
            f"{settings.init_from} was trained with input.kind = {model_input.kind!r}, but this corpus has "
            f"{requested.kind!r}: use a corpus of the same kind, or another model"
        )
    fixed = model_input.model_dump(exclude={"kind", *model_input.variation_keys})
    for key in sorted(fixed.keys() & requested.model_fields_set):
        if fixed[key] != getattr(requested, key):
            raise ConfigError(f"{settings.init_from} was trained with input.{key} = {fixed[key]}: remove input.{key}")
    return requested.model_copy(update=fixed)


def add_old_validation(settings: Settings) -> Settings:
    """Fine-tuning settings with the validation text of the old run as a test corpus, if that run still exists.

    If the sources are not text, nothing is added.
    """
    if "source" not in make_input(settings.input).text_sides:
        return settings
    if settings.init_from is None or any(corpus.name == OLD_VALIDATION for corpus in settings.data.test):
        return settings
    folder = Path(settings.train.output_dir)
    files = tuple(str(folder / f"{OLD_VALIDATION}.{side}") for side in (settings.source, settings.target))
    if not all(Path(file).is_file() for file in files):
        texts = read_old_validation(settings)
        if texts is None:
            return settings
        folder.mkdir(parents=True, exist_ok=True)
        for file, lines in zip(files, texts, strict=True):
            update_text(Path(file), "".join(f"{line}\n" for line in lines))
    corpus = CorpusSettings(files=files, name=OLD_VALIDATION)
    data = settings.data.model_copy(update={"test": (*settings.data.test, corpus)})
    return settings.model_copy(update={"data": data})


def read_old_validation(settings: Settings) -> tuple[list[str], list[str]] | None:
    """Source and target of the old run's validation text; None if there is none, or if its pairs have tags."""
    from heedful.training.data import split_validation

    run = find_run(settings.init_from or "")
    if run is None:
        return None
    old = load(run / "heedful.toml")
    try:
        prepared = open_prepared(old.data.prepared_dir)
    except HeedfulError:
        return None
    if any(corpus["tag"] for corpus in prepared.manifest["corpora"]):
        return None
    validation = split_validation(prepared, old.train.validate_pairs)[1]
    return validation.texts, validation.references


def without_dropout(model: ModelSettings) -> dict[str, Any]:
    """The settings of a model without dropouts, which only matter in training."""
    dropouts = {"dropout", "feedforward_dropout"}
    return model.model_dump(exclude={"dropout": True, "encoder": dropouts, "decoder": dropouts})


def model_digest(folder: str | Path) -> str:
    """A hash that identifies a model, independent of its location."""
    return file_sha256(open_bundle(folder).folder / MANIFEST)


def load_initial_weights(folder: str | Path) -> "dict[str, Tensor]":
    """The weights of a model directory; tied weights appear under each of their names."""
    import torch

    return {name: torch.from_numpy(array) for name, array in read_float_weights(open_bundle(folder)).items()}

"""Fine-tuning: training that starts from an existing model.

    heedful train new.en new.de --from my-model --out my-model-2 --time 20m

The [model], the vocabulary and the initial weights come from that model. Fine-tuning takes smaller steps than training
from scratch: settings that are left open get FINETUNING_DEFAULTS.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.bundle import open_bundle, read_float_weights
from heedful.config import ModelSettings, Settings
from heedful.data.store import MANIFEST, SIDES
from heedful.errors import ConfigError
from heedful.files import file_sha256

if TYPE_CHECKING:
    from torch import Tensor

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
    files = tuple((bundle.folder / description.files[side]).as_posix() for side in SIDES)
    if settings.tokenizer.files not in (None, files):
        raise ConfigError(f"init_from = {settings.init_from} already defines the tokenizers: remove tokenizer.files")
    defaults = {key: value for key, value in FINETUNING_DEFAULTS.items() if key not in settings.train.model_fields_set}
    max_tokens = settings.clean.max_tokens
    if bundle.model.positions:
        max_tokens = min(max_tokens, bundle.model.max_positions - 1)  # one position is for the end token
    return settings.model_copy(
        update={
            "clean": settings.clean.model_copy(update={"max_tokens": max_tokens}),
            "model": settings.model or bundle.model,
            "tokenizer": settings.tokenizer.model_copy(update={"files": files}),
            "train": settings.train.model_copy(update=defaults),
        }
    )


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

"""Going on from a model that is there already: fine-tuning.

    heedful train new.en new.de --from my-model --out my-model-2 --time 20m

The [model], the vocabulary and the first weights are its own. Fine-tuning takes smaller steps than training from
nothing, so what the settings leave open is FINE.
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

FINE: dict[str, Any] = {
    "learning_rate": 2e-4,
    "warmup_steps": 100,
    "schedule": "linear",
    "clip_norm": 1.0,
    "ema": 0.999,
}


def started(settings: Settings) -> Settings:
    """The settings with all that follows from `init_from`; without one, as they are."""
    if settings.init_from is None:
        return settings
    bundle = open_bundle(settings.init_from)
    told = bundle.description
    if (settings.source, settings.target) == (told.target, told.source) and told.source != told.target:
        raise ConfigError(
            f"{settings.init_from} translates from {told.source} to {told.target}, and this corpus the other way "
            "round: swap its files"
        )
    if not bundle.description.source_ends:
        raise ConfigError(f"{settings.init_from} reads sources without an end token, and heedful trains with one")
    if settings.model is not None and undropped(settings.model) != undropped(bundle.model):
        raise ConfigError(
            f"init_from = {settings.init_from} brings its own [model]: leave out yours and the recipe; only "
            "dropouts may differ"
        )
    files = tuple((bundle.folder / bundle.description.files[side]).as_posix() for side in SIDES)
    if settings.tokenizer.files not in (None, files):
        raise ConfigError(f"init_from = {settings.init_from} brings its own tokenizers: leave out tokenizer.files")
    fine = {key: value for key, value in FINE.items() if key not in settings.train.model_fields_set}
    longest = settings.clean.max_tokens
    if bundle.model.positions:
        longest = min(longest, bundle.model.max_positions - 1)  # and an end token
    return settings.model_copy(
        update={
            "clean": settings.clean.model_copy(update={"max_tokens": longest}),
            "model": settings.model or bundle.model,
            "tokenizer": settings.tokenizer.model_copy(update={"files": files}),
            "train": settings.train.model_copy(update=fine),
        }
    )


def undropped(model: ModelSettings) -> dict[str, Any]:
    """A model without what only training knows."""
    dropouts = {"dropout", "feedforward_dropout"}
    return model.model_dump(exclude={"dropout": True, "encoder": dropouts, "decoder": dropouts})


def identity(folder: str | Path) -> str:
    """What tells one model from another, wherever it lies."""
    return file_sha256(open_bundle(folder).folder / MANIFEST)


def first_weights(folder: str | Path) -> "dict[str, Tensor]":
    """The weights of a model directory, a tied one under each of its names."""
    import torch

    return {name: torch.from_numpy(array) for name, array in read_float_weights(open_bundle(folder)).items()}

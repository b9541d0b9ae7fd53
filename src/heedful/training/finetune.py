"""Going on from a model that is there already: fine-tuning.

    heedful train new.en new.de --from my-model --out my-model-2 --time 20m

The [model], the vocabulary and the first weights are its own. Fine-tuning takes smaller steps than training from
nothing, so what the settings leave open is FINE.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.bundle import digest, open_bundle, read_floats
from heedful.config import Model, Settings
from heedful.data.store import MANIFEST, SIDES
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

FINE: dict[str, Any] = {"learning_rate": 2e-4, "warmup_steps": 100, "schedule": "linear", "clip": 1.0, "ema": 0.999}


def started(settings: Settings) -> Settings:
    """The settings with all that follows from `start`; without one, as they are."""
    if settings.start is None:
        return settings
    bundle = open_bundle(settings.start)
    told = bundle.description
    if (settings.source, settings.target) == (told.target, told.source) and told.source != told.target:
        raise ConfigError(
            f"{settings.start} translates from {told.source} to {told.target}, and this corpus the other way round: "
            "swap its files"
        )
    if not bundle.description.source_ends:
        raise ConfigError(f"{settings.start} reads sources without an end token, and heedful trains with one")
    if settings.model is not None and undropped(settings.model) != undropped(bundle.model):
        raise ConfigError(
            f"start = {settings.start} brings its own [model]: leave out yours and the recipe; only dropouts may differ"
        )
    files = tuple((bundle.folder / bundle.description.files[side]).as_posix() for side in SIDES)
    if settings.tokenizer.files not in (None, files):
        raise ConfigError(f"start = {settings.start} brings its own tokenizers: leave out tokenizer.files")
    fine = {key: value for key, value in FINE.items() if key not in settings.train.model_fields_set}
    longest = settings.clean.longest_tokens
    if bundle.model.positions:
        longest = min(longest, bundle.model.slots - 1)  # and an end token
    return settings.model_copy(
        update={
            "clean": settings.clean.model_copy(update={"longest_tokens": longest}),
            "model": settings.model or bundle.model,
            "tokenizer": settings.tokenizer.model_copy(update={"files": files}),
            "train": settings.train.model_copy(update=fine),
        }
    )


def undropped(model: Model) -> dict[str, Any]:
    """A model without what only training knows."""
    dropouts = {"dropout", "inner_dropout"}
    return model.model_dump(exclude={"dropout": True, "encoder": dropouts, "decoder": dropouts})


def identity(folder: str | Path) -> str:
    """What tells one model from another, wherever it lies."""
    return digest(open_bundle(folder).folder / MANIFEST)


def first_weights(folder: str | Path) -> "dict[str, Tensor]":
    """The weights of a model directory, a tied one under each of its names."""
    import torch

    return {name: torch.from_numpy(array) for name, array in read_floats(open_bundle(folder)).items()}

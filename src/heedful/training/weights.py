"""Weights as named tensors: initialization, copies, EMA and averages."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from heedful.build import build
from heedful.config import Settings
from heedful.data.store import PreparedData
from heedful.errors import ConfigError, HeedfulError
from heedful.model.seq2seq import Seq2Seq
from heedful.training.distributed import local_shard


def initialize_model(settings: Settings, prepared: PreparedData, device: torch.device) -> Seq2Seq:
    """A model in training mode, initialized from the seed of the settings."""
    if settings.model is None:
        raise ConfigError('the settings have no [model]: add one, or use a recipe: recipe = "transformer-tiny"')
    torch.manual_seed(settings.seed)
    sizes, train = prepared.vocab_sizes, settings.train
    model = build(
        settings.model,
        sizes.get("source"),
        sizes["target"],
        input=settings.input,
        label_smoothing=train.label_smoothing,
        r_drop=train.r_drop,
        coverage_penalty=train.coverage_penalty,
        word_dropout=train.word_dropout,
    )
    return model.to(device).train()


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """Every weight once, by its first name (tied weights have several); local shards, if sharded."""
    return {name: local_shard(weight.detach()) for name, weight in model.named_parameters()}


def copy_tensors_(targets: Mapping[str, Tensor], sources: Mapping[str, Tensor], origin: str) -> None:
    """Overwrite the targets with the sources of the same name; names and shapes must match."""
    if targets.keys() != sources.keys():
        unmatched = sorted(targets.keys() ^ sources.keys())
        raise HeedfulError(
            f"{origin}: these weights belong to another model; only one of the two has {', '.join(unmatched[:3])}"
        )
    for name, target in targets.items():
        if target.shape != sources[name].shape:
            raise HeedfulError(
                f"{origin}: {name} is {tuple(sources[name].shape)}, but the model needs {tuple(target.shape)}"
            )
        target.copy_(sources[name])


class EmaWeights:
    """ema <- d ema + (1 - d) weights,  d = min(decay, (1 + k) / (10 + k)) after k steps

    The decay is low in the first steps, so that the initial weights soon stop mattering.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.tensors = {name: weight.clone() for name, weight in named_weights(model).items()}
        self._flat = list(self.tensors.values())

    def update(self, weights: Iterable[Tensor], step: int) -> None:
        """Add the weights after step k to the mean."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._flat, list(weights), 1 - decay)


def average_weights(checkpoints: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several sets of weights, summed in double precision."""
    totals: dict[str, Tensor] = {}
    count = 0
    for weights in checkpoints:
        count += 1
        for name, weight in weights.items():
            totals[name] = totals[name] + weight.double() if name in totals else weight.double()
    return {name: (total / count).float() for name, total in totals.items()}

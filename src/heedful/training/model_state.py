"""The tensors that training changes: weights, optimizer moments and the EMA of the weights."""

from collections.abc import Callable, Mapping

from torch import Tensor

from heedful import config
from heedful.errors import HeedfulError
from heedful.model.seq2seq import Seq2Seq
from heedful.model.shard import shard
from heedful.training.checkpoint import Checkpoint
from heedful.training.distributed import World, gather_weights
from heedful.training.optimizer import load_optimizer_state, make_optimizer, optimizer_state
from heedful.training.weights import EmaWeights, copy_tensors_, named_weights


class ModelState:
    """A model in training, whole or sharded (FSDP2), with its optimizer and its EMA."""

    def __init__(
        self,
        make_model: Callable[[], Seq2Seq],
        options: config.TrainSettings,
        world: World,
        initial_weights: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.world, self.model = world, make_model()
        if initial_weights:
            self.model.load_state_dict(initial_weights)
        self.is_sharded = options.parallel == "fsdp" and world.ranks > 1
        if self.is_sharded:
            shard(self.model)
        self.optimizer = make_optimizer(options, self.model)
        self.ema = EmaWeights(self.model, options.ema) if options.ema else None
        needs_copy = world.is_first and bool(self.ema or self.is_sharded)
        self.eval_model = make_model() if needs_copy else self.model  # validated by the first process

    @property
    def eval_weights(self) -> str:
        """Which weights are validated: "ema" or "last"."""
        return "ema" if self.ema else "last"

    def update_eval_model(self) -> None:
        """Copy the current weights into `eval_model` of the first process; every process must call it."""
        if self.ema or self.is_sharded:
            shards = self.ema.tensors if self.ema else named_weights(self.model)
            weights = gather_weights(self.model, shards, self.world)
            if self.world.is_first:
                copy_tensors_(named_weights(self.eval_model), weights, "validation")

    @property
    def optimizer_steps(self) -> int:
        return optimizer_state(self.optimizer, self.model)[1]

    @property
    def shard_suffix(self) -> str:
        """The file name suffix of this process; a sharded run has one file per process."""
        return f"-{self.world.rank:05}-of-{self.world.ranks:05}" if self.is_sharded else ""

    def tensors(self) -> dict[str, Mapping[str, Tensor]]:
        """File name -> named tensors; in a sharded run, the shards of this process."""
        suffix, moments = self.shard_suffix, optimizer_state(self.optimizer, self.model)[0]
        files: dict[str, Mapping[str, Tensor]] = {
            f"model{suffix}": named_weights(self.model),
            f"optimizer{suffix}": moments,
        }
        return {**files, **({f"ema{suffix}": self.ema.tensors} if self.ema else {})}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Overwrite all tensors with those of a checkpoint."""
        origin, ranks = str(checkpoint.folder), checkpoint.state["ranks"]
        if ranks not in (None, self.world.ranks) or (ranks is None and self.is_sharded):
            raise HeedfulError(f"{origin} has {ranks or 1} shards: start {ranks or 1} processes")
        suffix, steps = self.shard_suffix, checkpoint.state["optimizer_steps"]
        copy_tensors_(named_weights(self.model), checkpoint.tensors(f"model{suffix}"), origin)
        moments = checkpoint.tensors(f"optimizer{suffix}") if steps else {}
        load_optimizer_state(self.optimizer, self.model, moments, steps, origin)
        if self.ema:
            copy_tensors_(self.ema.tensors, checkpoint.tensors(f"ema{suffix}"), origin)

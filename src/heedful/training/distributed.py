"""One process or many: who they are, and how gradients of all become one.

    torchrun --nproc-per-node 2 -m heedful train heedful.toml

A step's batch is always cut into the same micro-batches, and each draws its dropout from (seed, step, number of the
micro-batch): the processes only share the work. What differs is how the gradients are summed:

    InOrder    each micro-batch's gradient by itself, then g_0 + g_1 + g_2 ..., in this order on every process: the same
               bits for any number of processes, at the price of sending every gradient to everyone
    Averaged   DistributedDataParallel: sums along the way, overlapping with the backward pass
    Sharded    FSDP2: each process keeps a piece of every weight, gradient and moment
"""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor, distributed, nn

from heedful.model.loss import Loss
from heedful.model.seq2seq import Seq2Seq

PATIENCE = timedelta(minutes=30)  # the others wait while the first prepares: a large corpus is prepared beforehand
ANSWER = timedelta(seconds=3)  # for a process that is there
Think = Callable[[nn.Module], Loss]  # the loss of one micro-batch, its gradient left in the weights
_left: list[Any] = []  # the group that was left last, see `joined`


@dataclass(frozen=True, slots=True)
class World:
    """Which process this is, of how many, and which on its machine."""

    rank: int = 0
    ranks: int = 1
    local_rank: int = 0
    local_ranks: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def wait(self) -> None:
        """Until everyone is here."""
        if self.ranks > 1:
            distributed.barrier()

    def summed(self, values: Sequence[float], device: torch.device) -> list[float]:
        """The sums over all processes, in double precision where the device has it."""
        if self.ranks == 1:
            return list(values)
        vector = torch.tensor(values, dtype=torch.float32 if device.type == "mps" else torch.float64, device=device)
        distributed.all_reduce(vector)
        return [float(value) for value in vector.tolist()]

    def told(self, values: Sequence[float], device: torch.device) -> list[float]:
        """What the first process says."""
        return self.summed(values if self.first else [0.0] * len(values), device)


@contextmanager
def joined(device: Callable[[int], torch.device]) -> Iterator[tuple[World, torch.device]]:
    """The world that torchrun made, or this process alone; and the device of this process.

    A group that was left is kept until the next one is. Were DistributedDataParallel the last to let go of it, it would
    wait for the group's threads while it holds Python's lock, and a thread that has just ended its work needs that lock
    to let go of its tensors: a run would be done, and never end.
    """
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    world = World(
        int(os.environ.get("RANK", "0")),
        ranks,
        int(os.environ.get("LOCAL_RANK", "0")),
        int(os.environ.get("LOCAL_WORLD_SIZE", str(ranks))),
    )
    own = device(world.local_rank)
    started = ranks > 1 and not distributed.is_initialized()
    if started:
        if own.type == "cuda":
            torch.cuda.set_device(own)
        backend, store = "nccl" if own.type == "cuda" else "gloo", meeting_of(world)
        named = {"store": store, "rank": world.rank, "world_size": ranks} if store else {}
        distributed.init_process_group(backend, timeout=PATIENCE, **named)
    try:
        yield world, own
    finally:
        if started:
            _left[:] = [distributed.group.WORLD]
            distributed.destroy_process_group()


def meeting_of(world: World) -> Any:
    """Where the processes of this start find each other's addresses; None: wherever PyTorch looks by itself.

    torchrun's store outlives the processes that torchrun starts again, and so do the addresses of the dead in it, which
    the next ones would try (PyTorch's issue 135712). So the first process opens a store of its own and tells its port
    through torchrun's; whoever is told the port of a dead one asks again.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    store: Any = distributed.TCPStore  # type: ignore[attr-defined]  # there, but not for the type checker
    host = os.environ["MASTER_ADDR"]
    known = store(host, int(os.environ["MASTER_PORT"]), is_master=False)
    if world.first:
        own = store(host, 0, is_master=True, wait_for_workers=False)
        known.set("heedful", str(own.port))
        return own
    while True:
        port = int(known.get("heedful"))
        with suppress(distributed.DistError):
            own = store(host, port, is_master=False, timeout=ANSWER)
            own.set_timeout(PATIENCE)
            return own


class Sums(Protocol):
    """How gradients of all micro-batches become one."""

    scale: float  # what the gradients must be multiplied with to be sums

    def __call__(self, thoughts: Sequence[Think]) -> list[Loss]:
        """Leave the gradient of all processes' micro-batches in the weights; gives this one's losses."""
        ...


class InOrder:
    """g = ((g_0 + g_1) + g_2) + ..., whoever computed them"""

    scale = 1.0

    def __init__(self, model: nn.Module, world: World) -> None:
        self.model, self.ranks, self.weights = model, world.ranks, list(model.parameters())

    def __call__(self, thoughts: Sequence[Think]) -> list[Loss]:
        """One micro-batch per process at a time, in the order of their numbers."""
        total: list[Tensor] | None = None
        losses = []
        for think in thoughts:
            for weight in self.weights:
                weight.grad = None
            losses.append(think(self.model))
            for own in self.everyones():
                if total is None:
                    total = own
                else:
                    torch._foreach_add_(total, own)  # one pass over all of them
        for weight, gradient in zip(self.weights, total or (), strict=True):
            weight.grad = gradient
        return losses

    def everyones(self) -> Iterable[list[Tensor]]:
        """One micro-batch's gradients of every process, in the order of the processes."""
        own = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in self.weights]
        if self.ranks == 1:
            return [own]
        flat = torch.cat([gradient.flatten() for gradient in own])
        every = [torch.empty_like(flat) for _ in range(self.ranks)]
        distributed.all_gather(every, flat)
        sizes = [gradient.numel() for gradient in own]
        return ([part.view_as(like) for part, like in zip(one.split(sizes), own, strict=True)] for one in every)


class Averaged:
    """DistributedDataParallel; it gives means over the processes."""

    def __init__(self, model: nn.Module, world: World, device: torch.device) -> None:
        ids = [device.index] if device.type == "cuda" else None
        # Its successor, `forward_sync_buffers`, is not in every PyTorch that we run on.
        warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)
        self.model = nn.parallel.DistributedDataParallel(
            model, device_ids=ids, broadcast_buffers=False, gradient_as_bucket_view=True
        )
        self.scale = float(world.ranks)

    def __call__(self, thoughts: Sequence[Think]) -> list[Loss]:
        """Gradients add up locally; the last micro-batch sends them."""
        self.model.zero_grad(set_to_none=True)
        losses = []
        for number, think in enumerate(thoughts, 1):
            with self.model.no_sync() if number < len(thoughts) else nullcontext():
                losses.append(think(self.model))
        return losses


class Sharded:
    """FSDP2 of an already sharded model; it gives means over the processes, each its piece."""

    def __init__(self, model: nn.Module, world: World) -> None:
        self.model: Any = model
        self.scale = float(world.ranks)

    def __call__(self, thoughts: Sequence[Think]) -> list[Loss]:
        """Gradients add up locally; the last micro-batch sends them."""
        self.model.zero_grad(set_to_none=True)
        losses = []
        for number, think in enumerate(thoughts, 1):
            self.model.set_requires_gradient_sync(number == len(thoughts))
            losses.append(think(self.model))
        return losses


def local(tensor: Tensor) -> Tensor:
    """Our piece of a sharded tensor, or the tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def whole(model: Seq2Seq, pieces: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """Whole tensors, from pieces that lie as the model's weights do; every process must call it, the first gets them.

    One after the other: a process that only gives its pieces never holds more than one tensor.
    """
    from torch.distributed.tensor import DTensor

    result = {}
    for name, weight in model.named_parameters():
        tensor = pieces[name]
        if isinstance(weight, DTensor):
            mesh, placements = weight.device_mesh, weight.placements
            tensor = DTensor.from_local(
                tensor, mesh, placements, shape=weight.shape, stride=weight.stride()
            ).full_tensor()
        if world.first:
            result[name] = tensor
    return result

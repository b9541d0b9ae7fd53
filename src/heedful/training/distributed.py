"""Distributed training: the processes of a run, and how their gradients are combined.

    torchrun --nproc-per-node 2 -m heedful train heedful.toml

The batch of a step is always split into the same micro-batches, and the dropout of each is seeded with (seed, step,
micro-batch index), whichever process computes it. A GradientReducer decides how gradients are summed:

    InOrderReducer   g_0 + g_1 + g_2 ..., in the order of the micro-batches on every process: bit-identical for any
                     number of processes, but every process receives every gradient
    DdpReducer       DistributedDataParallel: all-reduce that overlaps with the backward pass
    FsdpReducer      FSDP2: each process keeps a shard of every weight, gradient and moment
"""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, distributed, nn

from heedful.data.plan import MicroBatch
from heedful.model.seq2seq import Seq2Seq

COLLECTIVE_TIMEOUT = timedelta(minutes=30)  # long, because the others wait while the first process prepares the corpus
CONNECT_TIMEOUT = timedelta(seconds=3)  # for a store whose process may be dead


@dataclass(frozen=True, slots=True)
class World:
    """The rank of this process and the number of ranks, in total and on this machine."""

    rank: int = 0
    ranks: int = 1
    local_rank: int = 0
    local_ranks: int = 1

    @classmethod
    def from_environment(cls) -> "World":
        """Read the variables that torchrun sets; without torchrun, a single process."""
        rank, ranks, local_rank = (
            int(os.environ.get(name, default))
            for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))
        )
        return cls(rank, ranks, local_rank, int(os.environ.get("LOCAL_WORLD_SIZE", str(ranks))))

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and reports events."""
        return self.rank == 0

    def barrier(self) -> None:
        if self.ranks > 1:
            distributed.barrier()

    def all_reduce(self, values: Sequence[float], device: torch.device) -> list[float]:
        """Sums over all processes, in double precision where the device has it."""
        if self.ranks == 1:
            return list(values)
        vector = torch.tensor(values, dtype=torch.float32 if device.type == "mps" else torch.float64, device=device)
        distributed.all_reduce(vector)
        return [float(value) for value in vector.tolist()]

    def broadcast(self, values: Sequence[float], device: torch.device) -> list[float]:
        """The values of the first process, on every process."""
        return self.all_reduce(values if self.is_first else [0.0] * len(values), device)


class ProcessGroup:
    """PyTorch's default process group of this process."""

    # A reference to the last destroyed group. If DistributedDataParallel held the only one, its destructor would wait
    # for the group's threads while holding the GIL, which a finishing thread needs to release its tensors: a deadlock.
    _destroyed: ClassVar[Any] = None

    @classmethod
    def create(cls, world: World, device: torch.device) -> None:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        backend, store = "nccl" if device.type == "cuda" else "gloo", open_rendezvous_store(world)
        rendezvous = {"store": store, "rank": world.rank, "world_size": world.ranks} if store else {}
        distributed.init_process_group(backend, timeout=COLLECTIVE_TIMEOUT, **rendezvous)

    @classmethod
    def destroy(cls) -> None:
        cls._destroyed = distributed.group.WORLD
        distributed.destroy_process_group()


@contextmanager
def init_distributed(find_device: Callable[[int], torch.device]) -> Iterator[tuple[World, torch.device]]:
    """The processes that torchrun started, or only this one, and the device of this local rank."""
    world = World.from_environment()
    device = find_device(world.local_rank)
    creates_group = world.ranks > 1 and not distributed.is_initialized()
    if creates_group:
        ProcessGroup.create(world, device)
    try:
        yield world, device
    finally:
        if creates_group:
            ProcessGroup.destroy()


def open_rendezvous_store(world: World) -> Any:
    """A store in which the processes of this start exchange addresses; None for PyTorch's default.

    torchrun's store outlives the processes that torchrun restarts, and keeps the addresses of dead ones (PyTorch issue
    135712). So the first process opens a new store and publishes its port in torchrun's; a process that reads the port
    of a dead store retries.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    open_store: Any = distributed.TCPStore  # type: ignore[attr-defined]  # missing in the type stubs
    host = os.environ["MASTER_ADDR"]
    torchrun_store = open_store(host, int(os.environ["MASTER_PORT"]), is_master=False)
    if world.is_first:
        store = open_store(host, 0, is_master=True, wait_for_workers=False)
        torchrun_store.set("heedful", str(store.port))
        return store
    while True:
        port = int(torchrun_store.get("heedful"))
        with suppress(distributed.DistError):
            store = open_store(host, port, is_master=False, timeout=CONNECT_TIMEOUT)
            store.set_timeout(COLLECTIVE_TIMEOUT)
            return store


class GradientReducer(Protocol):
    """Combines the gradients of all micro-batches of all processes.

    for micro_batch in reducer.accumulate(micro_batches):
        reducer.model(load(micro_batch)).backward()
    """

    gradient_scale: float  # factor that turns the resulting gradients into sums

    @property
    def model(self) -> nn.Module:
        """The model to call for the forward pass."""
        ...

    def accumulate(self, micro_batches: Sequence[MicroBatch]) -> Iterator[MicroBatch]:
        """Clear the gradients, then yield each micro-batch; afterwards, the weights have the combined gradient."""
        ...


class InOrderReducer:
    """g = ((g_0 + g_1) + g_2) + ..., on any number of processes"""

    gradient_scale = 1.0

    def __init__(self, model: nn.Module, world: World) -> None:
        self.model, self.ranks = model, world.ranks
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]

    def accumulate(self, micro_batches: Sequence[MicroBatch]) -> Iterator[MicroBatch]:
        """One micro-batch per process at a time, in the order of their indices."""
        total: list[Tensor] | None = None
        for micro_batch in micro_batches:
            for weight in self.weights:
                weight.grad = None
            yield micro_batch
            for gradients in self.gather():
                if total is None:
                    total = gradients
                else:
                    torch._foreach_add_(total, gradients)
        for weight, gradient in zip(self.weights, total or (), strict=True):
            weight.grad = gradient

    def gather(self) -> Iterable[list[Tensor]]:
        """The gradients of one micro-batch per process, in the order of the ranks."""
        gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in self.weights]
        if self.ranks == 1:
            return [gradients]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        received = [torch.empty_like(flat) for _ in range(self.ranks)]
        distributed.all_gather(received, flat)
        sizes = [gradient.numel() for gradient in gradients]
        return (
            [part.view_as(like) for part, like in zip(vector.split(sizes), gradients, strict=True)]
            for vector in received
        )


class DdpReducer:
    """DistributedDataParallel; gradients are means over the processes."""

    def __init__(self, model: nn.Module, world: World, device: torch.device) -> None:
        device_ids = [device.index] if device.type == "cuda" else None
        # Its successor, `forward_sync_buffers`, is not in every supported PyTorch version.
        warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated", category=FutureWarning)
        self.model = nn.parallel.DistributedDataParallel(
            model, device_ids=device_ids, broadcast_buffers=False, gradient_as_bucket_view=True
        )
        self.gradient_scale = float(world.ranks)

    def accumulate(self, micro_batches: Sequence[MicroBatch]) -> Iterator[MicroBatch]:
        """Gradients add up locally; the last micro-batch synchronizes them."""
        self.model.zero_grad(set_to_none=True)
        for count, micro_batch in enumerate(micro_batches, 1):
            with self.model.no_sync() if count < len(micro_batches) else nullcontext():
                yield micro_batch


class FsdpReducer:
    """FSDP2 for an already sharded model; gradients are shards of the means over the processes."""

    def __init__(self, model: nn.Module, world: World) -> None:
        self.model: Any = model
        self.gradient_scale = float(world.ranks)

    def accumulate(self, micro_batches: Sequence[MicroBatch]) -> Iterator[MicroBatch]:
        self.model.zero_grad(set_to_none=True)
        for count, micro_batch in enumerate(micro_batches, 1):
            self.model.set_requires_gradient_sync(count == len(micro_batches))
            yield micro_batch


def make_reducer(
    model: nn.Module, world: World, device: torch.device, *, is_sharded: bool, exact: bool
) -> GradientReducer:
    """FSDP2 for a sharded model; in order for exact or single-process runs; otherwise DDP."""
    if is_sharded:
        return FsdpReducer(model, world)
    if exact or world.ranks == 1:
        return InOrderReducer(model, world)
    return DdpReducer(model, world, device)


def local_shard(tensor: Tensor) -> Tensor:
    """The shard of this process; tensors that are not sharded are returned unchanged."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def gather_weights(model: Seq2Seq, shards: Mapping[str, Tensor], world: World) -> dict[str, Tensor]:
    """Whole tensors from shards with the layout of the model's weights; all processes call it, the first gets them.

    Gathers one tensor at a time, so the other processes never store more than one whole tensor.
    """
    from torch.distributed.tensor import DTensor

    weights = {}
    for name, weight in model.named_parameters():
        tensor = shards[name]
        if isinstance(weight, DTensor):
            mesh, placements = weight.device_mesh, weight.placements
            tensor = DTensor.from_local(
                tensor, mesh, placements, shape=weight.shape, stride=weight.stride()
            ).full_tensor()
        if world.is_first:
            weights[name] = tensor
    return weights

"""Device, threads and precision on this machine, how fast a model trains on it, and whether it is busy."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import torch

from heedful import performance
from heedful.data.batch import Batch
from heedful.errors import ConfigError, HeedfulError
from heedful.model.seq2seq import Seq2Seq
from heedful.performance.bf16_padding import PaddedLinear

BUSY_SHARE = 0.2  # of the time that threads wait for a free core; alone they wait for 1 to 5 %
DEVICES = ("cpu", "cuda", "mps")
PRECISIONS = ("fp32", "bf16")
MEASURE_SECONDS = 10.0  # for measuring; a batch that has started is finished
MAX_ROUNDS = 8  # the fastest of each precision counts, because other programs may slow down some rounds


def find_device(name: str | None, local_rank: int = 0) -> torch.device:
    """The device with this name, or the best one of this machine."""
    if name is None:
        if torch.cuda.is_available():
            return torch.device("cuda", local_rank)
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"unknown train.device = {name}; known: {', '.join(DEVICES)}") from None
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"train.device = {name} is not available on this machine ({reason}). Remove train.device."
        ) from None
    return torch.device("cuda", local_rank) if device.type == "cuda" and ":" not in name else device


def default_threads(local_ranks: int = 1) -> int:
    """Threads per process: the available CPU cores, shared by the processes on this machine."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min(torch.get_num_threads() if local_ranks == 1 else cores, cores) // local_ranks)


def core_seconds() -> tuple[float, float]:
    """Seconds that the threads of this process have run, and have waited for a free core; only Linux counts them."""
    ran = waited = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError, ValueError):  # a thread that has just ended
            nanoseconds = path.read_text().split()
            ran, waited = ran + int(nanoseconds[0]), waited + int(nanoseconds[1])
    return ran / 1e9, waited / 1e9


class CoreMeter:
    """How much of the time since its creation, or since the last `restart`, this process waited for a free core."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self._ran, self._waited = core_seconds()

    @property
    def wait_share(self) -> float:
        """waited / (ran + waited), from 0 to 1; 0 where it is not known."""
        ran, waited = (now - before for now, before in zip(core_seconds(), (self._ran, self._waited), strict=True))
        return min(0.99, max(0.0, waited / (ran + waited))) if ran + waited > 0 else 0.0


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Set the number of PyTorch threads, for the whole process, inside the context."""
    previous = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


@contextmanager
def autocast(device: torch.device, precision: str) -> Iterator[None]:
    """bf16: matrix products in bf16 (on a CPU, with padded sizes), sums in fp32 (see `nn`); fp32: no change."""
    is_bf16 = precision == "bf16"
    with (
        torch.autocast(device.type, torch.bfloat16) if is_bf16 else nullcontext(),
        PaddedLinear() if is_bf16 and device.type == "cpu" and performance.enabled() else nullcontext(),
    ):
        yield


@contextmanager
def explain_out_of_memory(batch: Batch, micro_batches: int) -> Iterator[None]:
    """Turn an out-of-memory error into one that says what to change."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not isinstance(error, torch.OutOfMemoryError | MemoryError) and "allocate memory" not in str(error):
            raise
        rows, length = batch.inputs.shape
        raise HeedfulError(
            f"out of memory in a batch of {rows} pairs, {length} target tokens long. Split the batch into "
            f"more parts (--set train.micro_batches={2 * micro_batches}) or lower train.batch_tokens. "
            "Both changes need a new run in another directory (--out)."
        ) from error


def measure_tokens_per_second(
    model: Seq2Seq,
    batches: Sequence[Batch],
    device: torch.device,
    precision: str,
    *,
    after_batch: Callable[[], None],
    max_seconds: float = MEASURE_SECONDS / 4,
    micro_batches: int = 1,
) -> float:
    """Target tokens per second of forward, backward and `after_batch` (for example, the optimizer).

    No batch starts after `max_seconds`. Time spent waiting for a free core does not count: other programs may end
    soon, and a plan for half the speed would waste the rest of the time.
    """
    tokens, started, cores = 0, time.perf_counter(), CoreMeter()
    for batch in batches:
        if time.perf_counter() - started > max_seconds:
            break
        with explain_out_of_memory(batch, micro_batches):
            with autocast(device, precision):
                loss = model(batch.to(device)).smoothed
            loss.backward()
        after_batch()
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        tokens += len(batch.targets)
    return tokens / (time.perf_counter() - started) / (1.0 - cores.wait_share)


def measure_precisions(
    model: Seq2Seq, batches: Sequence[Batch], device: torch.device, micro_batches: int = 1
) -> tuple[str, dict[str, float]]:
    """The faster precision (bf16 if it is more than 10 % faster on these batches), and the tokens/s of each.

    It is measured because a CPU without bf16 units also computes in bf16, but slower than in fp32.
    """

    def clear_gradients() -> None:
        model.zero_grad(set_to_none=True)

    started = time.perf_counter()
    speeds = dict.fromkeys(PRECISIONS, 0.0)
    for round_index in range(MAX_ROUNDS):
        for precision in PRECISIONS:
            measured = batches if round_index else batches[:1]
            speed = measure_tokens_per_second(
                model, measured, device, precision, after_batch=clear_gradients, micro_batches=micro_batches
            )
            if round_index:  # the first round warms up
                speeds[precision] = max(speed, speeds[precision])
        if round_index and time.perf_counter() - started > MEASURE_SECONDS / 2:
            break
    return ("bf16" if speeds["bf16"] > 1.1 * speeds["fp32"] else "fp32"), speeds

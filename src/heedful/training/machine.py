"""What this machine can do, and how it is made to do it: device, threads, number format."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch

from heedful import performance
from heedful.data.batch import Batch
from heedful.errors import ConfigError, HeedfulError
from heedful.model.seq2seq import Seq2Seq
from heedful.performance.bf16_padding import EvenProducts

DEVICES = ("cpu", "cuda", "mps")
PRECISIONS = ("fp32", "bf16")
PROBING = 10.0  # seconds that measuring may take, and what was begun is ended
ROUNDS = 8  # at most; the best of each format counts, as others may be at work for a moment


def device_of(asked: str | None, local_rank: int = 0) -> torch.device:
    """What was asked for, or the best there is."""
    if asked is None:
        if torch.cuda.is_available():
            return torch.device("cuda", local_rank)
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(asked)
    except RuntimeError:
        raise ConfigError(f"train.device = {asked} is not known; known: {', '.join(DEVICES)}") from None
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"train.device = {asked}: this machine cannot do that ({reason}). Leave it out.") from None
    return torch.device("cuda", local_rank) if device.type == "cuda" and ":" not in asked else device


def default_threads(ranks_here: int = 1) -> int:
    """The processors we may use, shared by the processes of this machine."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min(torch.get_num_threads() if ranks_here == 1 else cores, cores) // ranks_here)


@contextmanager
def casting(device: torch.device, precision: str) -> Iterator[None]:
    """bf16: matrix products in bf16 (on a processor, of few sizes), everything that adds up in fp32 (`nn` sees to it);
    fp32: as it is.
    """
    low = precision == "bf16"
    with (
        torch.autocast(device.type, torch.bfloat16) if low else nullcontext(),
        EvenProducts() if low and device.type == "cpu" and performance.enabled() else nullcontext(),
    ):
        yield


@contextmanager
def fitting(batch: Batch, micro_batches: int) -> Iterator[None]:
    """While a batch is computed with: what to change where it does not fit into the memory."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not isinstance(error, torch.OutOfMemoryError | MemoryError) and "allocate memory" not in str(error):
            raise
        rows, longest = batch.inputs.shape
        raise HeedfulError(
            f"out of memory in a batch of {rows} pairs, {longest} target tokens long. Cut the batch into more parts: "
            f"--set train.micro_batches={2 * micro_batches}, or make it smaller: train.batch_tokens. Both need a new "
            "--out."
        ) from error


def pace(
    model: Seq2Seq,
    batches: Sequence[Batch],
    device: torch.device,
    precision: str,
    *,
    after: Callable[[], None],
    within: float = PROBING / 4,
    micro_batches: int = 1,
) -> float:
    """Target tokens per second of forward, backward and what comes `after` each, say the optimizer.

    Of slow batches only the first, those that are begun `within` so many seconds.
    """
    tokens, begin = 0, time.perf_counter()
    for batch in batches:
        if time.perf_counter() - begin > within:
            break
        with fitting(batch, micro_batches):
            with casting(device, precision):
                loss = model(batch.to(device)).smoothed
            loss.backward()
        after()
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        tokens += len(batch.targets)
    return tokens / (time.perf_counter() - begin)


def faster_precision(
    model: Seq2Seq, batches: Sequence[Batch], device: torch.device, micro_batches: int = 1
) -> tuple[str, dict[str, float]]:
    """bf16 where it gains a tenth or more on these batches; and the tokens per second of each format.

    A processor without bf16 units computes in bf16 too, only slower than in fp32: so it is measured, not looked up.
    """

    def forget() -> None:
        model.zero_grad(set_to_none=True)

    begin = time.perf_counter()
    speeds = dict.fromkeys(PRECISIONS, 0.0)
    for turn in range(ROUNDS):
        for precision in PRECISIONS:
            some = batches if turn else batches[:1]
            speed = pace(model, some, device, precision, after=forget, micro_batches=micro_batches)
            if turn:  # the first is for warming up
                speeds[precision] = max(speed, speeds[precision])
        if turn and time.perf_counter() - begin > PROBING / 2:
            break
    return ("bf16" if speeds["bf16"] > 1.1 * speeds["fp32"] else "fp32"), speeds

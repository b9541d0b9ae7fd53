"""X9: how time and memory of one layer grow with the length of the sequence.

Time is that of a forward and a backward pass; memory is what the forward pass keeps for the backward pass, counted
tensor by tensor. The exponent b is the slope of log(cost) over log(length): cost ~ length^b.
"""

import math
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import Chart, Check, Estimate, Findings, ResultTable, Series, estimate_mean, estimate_slope
from heedful.nn.attention import Bilinear, ScaledDot, attend, soft
from heedful.nn.cells import make_rnn

Layer = Callable[[Tensor], Tensor]  # [1, T, D] -> [1, T, D]
TOLERANCE = 0.15  # of the exponent of memory
MIN_TIME_GAP = 0.3  # between the exponents of time of attention and RNN


def make_attention(width: int, block: int | None) -> Layer:
    """Self-attention that computes all weights [T, T]; with `block`, only those within blocks of this length."""
    score = Bilinear(width, width)  # not the fused kernel

    def run(x: Tensor) -> Tensor:
        parts = x if block is None else x.unflatten(1, (-1, block))
        context: Tensor = attend(score, soft, parts, score.prepare(parts), parts, causal=False).context
        return context.reshape(x.shape)

    return run


def make_fused_attention(width: int) -> Layer:
    """Self-attention with PyTorch's fused kernel, which never stores the weights."""
    score = ScaledDot(width, width)
    return lambda x: attend(score, soft, x.unsqueeze(1), x.unsqueeze(1), x.unsqueeze(1)).context.squeeze(1)


def make_gru(width: int) -> Layer:
    rnn = make_rnn("gru", "after", width, width)
    return lambda x: rnn(x)[0]


def measure_seconds(layer: Layer, x: Tensor) -> float:
    start = time.perf_counter()
    layer(x).sum().backward()
    return time.perf_counter() - start


def count_saved_numbers(layer: Layer, x: Tensor) -> int:
    """The numbers that the forward pass keeps for the backward pass, each storage once."""
    sizes: dict[int, int] = {}
    kept = []  # so that no storage is freed and its address used again

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(x)
    return sum(sizes.values())


def measure_costs(lab: Lab, *, lengths: Sequence[int], width: int, repeats: int, block: int | None = None) -> Findings:
    """Measure all layers at all lengths; with `block`, attention is restricted to blocks and becomes linear."""
    torch.manual_seed(lab.seed)
    layers = {"GRU": make_gru(width), "attention": make_attention(width, block), "fused": make_fused_attention(width)}
    progress = lab.progress("lengths")
    seconds: dict[str, dict[int, Estimate]] = {name: {} for name in layers}
    fastest: dict[str, dict[int, float]] = {name: {} for name in layers}
    numbers: dict[str, dict[int, int]] = {name: {} for name in layers}
    for done, length in enumerate(lengths, 1):
        for name, layer in layers.items():
            x = torch.randn(1, length, width, requires_grad=True)
            numbers[name][length] = count_saved_numbers(layer, x)
            measured = [measure_seconds(layer, x) for _ in range(repeats + 1)][1:]  # the first also warms up
            seconds[name][length], fastest[name][length] = estimate_mean(measured), min(measured)
        progress(done, len(lengths))
    logs = [math.log(length) for length in lengths]
    times = {
        name: estimate_slope(logs, [math.log(each[length]) for length in lengths]) for name, each in fastest.items()
    }
    memory = {
        name: estimate_slope(logs, [math.log(each[length]) for length in lengths]) for name, each in numbers.items()
    }
    longest = lengths[-1]
    gap = times["attention"].value - times["GRU"].value
    checks = (
        Check(
            f"attention keeps length^{memory['attention'].value:.2f} numbers, an exponent of 2 within {TOLERANCE}",
            abs(memory["attention"].value - 2) <= TOLERANCE,
        ),
        Check(
            f"a GRU keeps length^{memory['GRU'].value:.2f} numbers, an exponent of 1 within {TOLERANCE}",
            abs(memory["GRU"].value - 1) <= TOLERANCE,
        ),
        Check(
            f"the time of attention grows faster than that of a GRU: exponents {times['attention'].value:.2f} and "
            f"{times['GRU'].value:.2f}",
            gap >= MIN_TIME_GAP,
        ),
    )
    return Findings(
        ResultTable(
            ("layer", "exponent of time", "exponent of memory", f"seconds at {longest:,}", f"numbers at {longest:,}"),
            tuple((name, times[name], memory[name], seconds[name][longest], numbers[name][longest]) for name in layers),
        ),
        Chart(
            "Forward and backward pass of one layer",
            "length of the sequence",
            "seconds",
            tuple(Series(name, tuple(each.items())) for name, each in seconds.items()),
            log_x=True,
            log_y=True,
        ),
        checks,
        (
            f"A map of weights at length {longest:,} has {longest**2:,} numbers.",
            "The fused kernel keeps no map, so its memory is linear; its time is still quadratic.",
            "Exponents of time are those of the fastest run at each length; they depend on the machine.",
        ),
    )


EXPERIMENT = Experiment(
    title="the cost of attention in the length",
    claim="The cost of attention grows with the square of the length, that of a recurrent layer linearly.",
    sizes={
        "quick": {"lengths": (256, 512, 1024, 2048), "width": 32, "repeats": 3},
        "default": {"lengths": (512, 1024, 2048, 4096), "width": 64, "repeats": 10},
    },
    function=measure_costs,
    sabotage={"block": 64},
)

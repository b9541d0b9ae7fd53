"""X3: the speed of a recurrent model and of a Transformer of the same size, by length.

Training reads all words of the target at once, decoding one after another. Speeds are compared as ratios, measured in
turns, so that other work on the machine slows down both. A Transformer has no steps that wait for each other, so it
gains from hardware that computes in parallel, which one thread is not.
"""

import math
import time
from collections.abc import Sequence

import torch
from torch import nn

from heedful.data.batch import Batch
from heedful.lab.experiment import Experiment, Lab
from heedful.lab.outcome import Chart, Check, Estimate, Findings, ResultTable, Series, estimate_mean
from heedful.lab.tasks import BOS, EOS, PAD, copy_pairs, make_batch, make_recurrent, make_transformer
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.layers import initialize
from heedful.search import DecodingLimits, Greedy


def count_weights(model: Seq2Seq) -> int:
    """The weights of all layers, without embedding tables and output layers, which cost both models the same"""
    tables = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    output = getattr(model.decoder, "plain_projection", None)
    excluded = tables | set(output.parameters() if output is not None else ())
    return sum(parameter.numel() for parameter in model.parameters() if parameter not in excluded)


def make_equal_recurrent(words: int, weights: int) -> Seq2Seq:
    """The narrowest recurrent model with attention that has at least so many weights."""
    width = 8
    while count_weights(model := make_recurrent(words, width)) < weights:
        width += 4
    return model


def time_training(model: Seq2Seq, batch: Batch) -> float:
    start = time.perf_counter()
    loss = model(batch)
    (loss.smoothed / loss.tokens).backward()
    return time.perf_counter() - start


@torch.inference_mode()
def time_decoding(model: Seq2Seq, batch: Batch, length: int) -> float:
    """The seconds of a greedy search of `length` words."""
    start = time.perf_counter()
    limits = DecodingLimits(BOS, EOS, length, min_length=length, suppress_tokens=(PAD, BOS))
    Greedy()(model.decoder, model.encoder(*batch.source), limits)
    return time.perf_counter() - start


def estimate_ratio(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """The geometric mean of first / second, with the t interval of its logarithm"""
    logs = estimate_mean([math.log(first / second) for first, second in pairs])
    return Estimate(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high))


def compare_speed(
    lab: Lab, *, lengths: Sequence[int], words: int, width: int, tokens: int, repeats: int, different: bool = True
) -> Findings:
    """Ratios of speed, Transformer / recurrent; with `different=False`, both models are the same Transformer."""
    torch.manual_seed(lab.seed)
    transformer = make_transformer(words, width, max_positions=max(lengths) + 1)  # and the end token
    recurrent = make_equal_recurrent(words, count_weights(transformer)) if different else transformer
    for model in (transformer, recurrent):
        initialize(model)
    draw = torch.Generator().manual_seed(lab.seed)
    ratios: dict[str, dict[int, Estimate]] = {"training": {}, "decoding": {}}
    speeds: dict[int, tuple[float, float]] = {}
    progress = lab.progress("lengths")
    for done, length in enumerate(lengths, 1):
        pairs = copy_pairs(max(1, tokens // length), draw, min_length=length, max_length=length, words=words)
        batch = make_batch(pairs)
        rounds = [
            (
                time_training(recurrent.train(), batch),
                time_training(transformer.train(), batch),
                time_decoding(recurrent.eval(), batch, length),
                time_decoding(transformer.eval(), batch, length),
            )
            for _ in range(repeats + 1)
        ][1:]  # the first also warms up
        ratios["training"][length] = estimate_ratio([(slow, fast) for slow, fast, _, _ in rounds])
        ratios["decoding"][length] = estimate_ratio([(slow, fast) for _, _, slow, fast in rounds])
        speeds[length] = (
            len(batch.targets) / min(each[0] for each in rounds),
            len(batch.targets) / min(each[1] for each in rounds),
        )
        progress(done, len(lengths))
    shortest, longest = lengths[0], lengths[-1]
    training, decoding = ratios["training"], ratios["decoding"]
    checks = (
        Check(
            f"at length {longest}, a Transformer trains {training[longest]} times as fast as a recurrent model",
            training[longest].low > 1,
        ),
        Check(
            f"its advantage grows with the length: it is {training[shortest]} at length {shortest}",
            training[longest].low > training[shortest].high,
        ),
        Check(
            f"it decodes {decoding[longest]} times as fast, so more slowly, at length {longest}",
            decoding[longest].high < 1,
        ),
    )
    return Findings(
        ResultTable(
            ("length", "training, ratio", "decoding, ratio", "recurrent, words/s", "Transformer, words/s"),
            tuple(
                (length, training[length], decoding[length], *(round(speed) for speed in speeds[length]))
                for length in lengths
            ),
        ),
        Chart(
            "Speed of a Transformer relative to a recurrent model",
            "words per sentence",
            "ratio of speeds (above 1: the Transformer is faster)",
            tuple(Series(name, tuple(each.items())) for name, each in ratios.items()),
            log_x=True,
        ),
        checks,
        (
            f"Weights of the layers: {count_weights(recurrent):,} and {count_weights(transformer):,}. Words per second "
            "are those of training, in the fastest round.",
            f"The ratios depend on the machine. Threads of PyTorch: {torch.get_num_threads()}.",
        ),
    )


EXPERIMENT = Experiment(
    title="speed by length",
    claim="On long sentences, a Transformer trains faster than a recurrent model of its size, but decodes more slowly.",
    sizes={
        "quick": {"lengths": (8, 32, 128), "words": 100, "width": 64, "tokens": 1024, "repeats": 10},
        "default": {"lengths": (8, 16, 32, 64, 128, 256), "words": 1000, "width": 128, "tokens": 4096, "repeats": 10},
    },
    function=compare_speed,
    sabotage={"different": False},
)

"""How fast is one training step against bare PyTorch?

One step is forward, loss, backward and fused AdamW on 4096 target tokens, for tiny (4+4 layers, width 128) and base
(6+6, width 512), in fp32 and bf16, interleaved in one process. Claims: at least 0.95 x the fastest hand-written step;
at least 1.8 x `torch.nn.Transformer` with a plain cross-entropy on tiny, and faster than it on base.

    python benchmarks/step.py [--quick] [--rounds 9]
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

from bare import Bare, Plain
from heedful.data.batch import Batch, collate
from heedful.model.seq2seq import Seq2Seq
from heedful.nn.decoders import TransformerDecoder
from heedful.nn.encoders import TransformerEncoder
from heedful.nn.layers import Embed, TransformerLayerOptions, initialize, output_layer
from heedful.nn.positions import Sinusoidal
from report import bf16_problem, header, skip, verdict

SIZES = {
    "tiny": {"vocabulary": 10_000, "layers": 4, "width": 128, "inner": 256, "heads": 4, "dropout": 0.3},
    "base": {"vocabulary": 32_000, "layers": 6, "width": 512, "inner": 2048, "heads": 8, "dropout": 0.1},
}


def heedful_model(vocabulary: int, layers: int, width: int, inner: int, heads: int, dropout: float) -> Seq2Seq:
    table = nn.Embedding(vocabulary, width)
    embed = Embed(table, positions=Sinusoidal(256, width), scale_embeddings=True, dropout=dropout)
    output = output_layer(width, vocabulary, tied_to=table)
    options = TransformerLayerOptions(heads=heads, feedforward_size=inner, dropout=dropout)
    model = Seq2Seq(
        TransformerEncoder(embed, layers=layers, options=options),
        TransformerDecoder(embed, output, width, layers=layers, options=options),
        label_smoothing=0.1,
    )
    initialize(model)
    return model


def make_batches(vocabulary: int, count: int, tokens: int = 4096) -> list[Batch]:
    """Length-bucketed batches like Multi30k's: 8 to 24 target tokens, sources a little shorter or longer."""
    draw = torch.Generator().manual_seed(1)
    batches = []
    for index in range(count):
        length = 8 + 16 * index // max(count - 1, 1)
        rows = tokens // (length + 1)
        lengths = torch.randint(max(1, length - 3), length + 3, (rows,), generator=draw).tolist()
        pairs = [
            (
                torch.randint(4, vocabulary, (n,), generator=draw).tolist(),
                torch.randint(4, vocabulary, (length,), generator=draw).tolist(),
            )
            for n in lengths
        ]
        batches.append(collate(pairs, bos=1, eos=2, pad=0))
    return batches


class Runner:
    """One model with its optimizer; `run_steps` trains on batches and returns target tokens per second."""

    def __init__(self, name: str, model: nn.Module, low: torch.dtype) -> None:
        self.name, self.model, self.low = name, model.train(), low
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
        self.rates: list[float] = []

    def loss(self, batch: Batch) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.low is torch.bfloat16):
            if isinstance(self.model, Seq2Seq):
                return self.model(batch).smoothed
            call: Callable[..., torch.Tensor] = self.model.loss  # type: ignore[assignment]
            return call(*batch.source, batch.inputs, batch.targets, batch.target_positions, self.low)

    def run_steps(self, batches: list[Batch]) -> float:
        start = time.perf_counter()
        for batch in batches:
            loss = self.loss(batch) / len(batch.targets)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
        return sum(len(batch.targets) for batch in batches) / (time.perf_counter() - start)


def measure(size: str, low: torch.dtype, rounds: int, steps: int) -> dict[str, list[float]]:
    shape = SIZES[size]
    batches = make_batches(int(shape["vocabulary"]), steps)
    torch.manual_seed(0)
    runners = [
        Runner("heedful", heedful_model(**shape), low),  # type: ignore[arg-type]
        Runner("bare", Bare(**shape), low),  # type: ignore[arg-type]
        Runner("nn.Transformer", Plain(**shape), low),  # type: ignore[arg-type]
    ]
    for runner in runners:
        runner.run_steps(batches[:2])
    for turn in range(rounds):
        for runner in runners[turn % 3 :] + runners[: turn % 3]:
            runner.rates.append(runner.run_steps(batches))
    return {runner.name: runner.rates for runner in runners}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="tiny only, fewer rounds, a looser bound for the noise")
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    arguments = options.parse_args()
    header(__file__)
    sizes, rounds = (["tiny"], 2) if arguments.quick else (arguments.sizes, arguments.rounds)
    slack = 0.9 if arguments.quick else 1.0
    claims = []
    print(f"{'model':5} {'type':5} {'engine':15} {'tokens/s':>9}  spread")
    for size in sizes:
        for low in (torch.float32, torch.bfloat16):
            kind = "bf16" if low is torch.bfloat16 else "fp32"
            if kind == "bf16" and (problem := bf16_problem()):
                skip(f"{size} bf16", problem)
                continue
            rates = measure(size, low, rounds, steps=4 if size == "tiny" else 2)
            for name, speeds in rates.items():
                median, spread = statistics.median(speeds), f"{min(speeds):.0f} to {max(speeds):.0f}"
                print(f"{size:5} {kind:5} {name:15} {median:9.0f}  {spread}")
            to_bare = statistics.median(a / b for a, b in zip(rates["heedful"], rates["bare"], strict=True))
            to_plain = statistics.median(a / b for a, b in zip(rates["heedful"], rates["nn.Transformer"], strict=True))
            claims.append((f"{size} {kind} heedful / bare", to_bare, 0.95 * slack))
            floor = 1.8 if size == "tiny" else 1.0
            claims.append((f"{size} {kind} heedful / nn.Transformer", to_plain, floor * slack))
    return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())

"""Can a run change its number of processes with bit-identical results, and what does exact mode cost?

Exact mode splits every batch into the same four micro-batches and sums their gradients in a fixed order. So a run can
move from 1 to 2 to 4 processes and back, with all processes killed (kill -9) at each move, and end bit-identical to a
run with one process. The cost is measured against plain DistributedDataParallel with the same model, batches and
processes, interleaved.

    python benchmarks/elastic.py [--quick]          (Linux; HEEDFUL_DATA contains multi30k)
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from report import header, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from heedful import config
from heedful.data.prepare import prepare
from heedful.data.store import PreparedData, open_prepared
from heedful.model.seq2seq import Seq2Seq
from heedful.training import checkpoint
from heedful.training.data import load_batch, make_plan
from heedful.training.distributed import DdpReducer, GradientReducer, InOrderReducer, World, init_distributed
from heedful.training.optimizer import gradient_norm, make_optimizer, scale_gradients_, set_learning_rate
from heedful.training.weights import initialize_model
from support.training_runs import Torchrun, events, outcome, settings_of, write_multi30k, write_settings

TINY = {"kind": "transformer", "layers": 4, "heads": 4, "feedforward_size": 256, "dropout": 0.1}
SMALL = TINY | {"layers": 1, "heads": 2, "feedforward_size": 64}
MODELS = {
    name: {
        "width": width, "positions": "sinusoidal", "scale_embeddings": True, "dropout": 0.1, "tie_embeddings": "all",
        "encoder": layer, "decoder": layer,
    }
    for name, width, layer in (("small", 32, SMALL), ("tiny", 128, TINY))
}  # fmt: skip
PIECES = {"vocab_size": 1000}
MICRO = 4


def moved(corpus: Path, run: Path, steps: int, crews: list[int]) -> float:
    """Train with a sequence of process counts, killing all processes at each move; return the seconds."""
    settings = settings_of(corpus, run, model=MODELS["small"], tokenizer=PIECES, **training(steps))
    begin = time.perf_counter()
    for number, ranks in enumerate(crews, 1):
        running = Torchrun(ranks, settings, random.Random(number))
        goal = checkpoint.checkpoint_name(steps * number // len(crews))
        while number < len(crews) and running.poll() is None:
            if any(one.name >= goal for one in checkpoint.checkpoint_folders(run)):
                running.kill_all()
            time.sleep(0.01)
        if number == len(crews) and running.wait() != 0:
            raise RuntimeError(run.with_suffix(".log").read_text())
        print(f"{ranks} processes: to {checkpoint.checkpoint_folders(run)[0].name}", flush=True)
    return time.perf_counter() - begin


def training(steps: int) -> dict[str, object]:
    """The settings shared by all runs."""
    return {"steps": steps, "batch_tokens": 1024, "save_every": 5, "validate_every": steps // 2, "validate_pairs": 8}


# ------------------------------------------------------------------------------------------------ the cost


def cost(corpus: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds per step of each method and round, with two processes of one thread."""
    settings = settings_of(corpus, corpus / "cost", model=MODELS["tiny"], tokenizer=PIECES, batch_tokens=4096)
    prepare(settings)
    command = ["--standalone", "--nproc-per-node=2", __file__, "--worker", str(write_settings(settings)), str(rounds)]
    asked = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, list[float]] = json.loads(asked.stdout.splitlines()[-1])
    return found


def worker(path: str, rounds: int, block: int = 3) -> None:
    """One of two processes; the methods alternate every few steps."""
    settings = config.load(path)
    torch.set_num_threads(1)
    with init_distributed(lambda _rank: torch.device("cpu")) as (world, device):
        prepared = open_prepared(settings.data.prepared_dir)

        def way(make_reducer: Callable[[Seq2Seq], GradientReducer], micro_batches: int) -> Stepping:
            model = initialize_model(settings, prepared, device)
            return Stepping(settings, prepared, model, make_reducer, micro_batches, world)

        ways = {
            "exact": way(lambda model: InOrderReducer(model, world), MICRO),
            "plain, the same micro-batches": way(lambda model: DdpReducer(model, world, device), MICRO),
            "plain, one for each process": way(lambda model: DdpReducer(model, world, device), world.ranks),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds + 1):  # the first is for warming up
            for name, step in ways.items():
                world.barrier()
                begin = time.perf_counter()
                for own in range(block):
                    step(number * block + own)
                if number:
                    times[name].append((time.perf_counter() - begin) / block)
        if world.is_first:
            print(json.dumps(times), flush=True)


class Stepping:
    """A step of the training loop: gradient, norm, clipping, optimizer."""

    def __init__(
        self,
        settings: config.Settings,
        prepared: PreparedData,
        model: Seq2Seq,
        make_reducer: Callable[[Seq2Seq], GradientReducer],
        micro_batches: int,
        world: World,
    ) -> None:
        self.corpora = prepared.train
        sizes = {"batch_tokens": settings.train.batch_tokens, "micro_batches": micro_batches}
        self.plan = make_plan(prepared, self.corpora, seed=settings.seed, **sizes)
        self.model, self.reducer, self.world = model, make_reducer(model), world
        self.optimizer = make_optimizer(settings.train, model)
        set_learning_rate(self.optimizer, 1e-4)

    def __call__(self, number: int) -> None:
        micro_batches = self.plan.batch_of_rank(number, self.world.rank, self.world.ranks)
        for micro_batch in self.reducer.accumulate(micro_batches):
            self.reducer.model(load_batch(self.corpora, micro_batch)).smoothed.backward()
        gradients = [weight.grad for weight in self.model.parameters() if weight.grad is not None]
        scale_gradients_(gradients, min(1.0, 1.0 / gradient_norm(gradients)))
        self.optimizer.step()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="1 -> 2 -> 4 once, and fewer rounds for the cost")
    options.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.worker:
        worker(given.worker[0], int(given.worker[1]))
        return 0
    header(__file__)
    crews, steps, rounds = ([1, 2, 4], 30, 3) if given.quick else ([1, 2, 4, 1, 2, 4, 2, 1, 4, 1, 2, 1], 240, 25)
    with tempfile.TemporaryDirectory(prefix="elastic-") as name:
        folder = Path(name)
        (folder / "corpus").mkdir()
        corpus = write_multi30k(folder / "corpus", pairs=2000)
        alone = moved(corpus, folder / "alone", steps, [1])
        took = moved(corpus, folder / "moved", steps, crews)
        print(f"one process {alone:.0f} s; {' -> '.join(map(str, crews))} {took:.0f} s, start-ups included")
        same = outcome(folder / "alone") == outcome(folder / "moved")
        ranks = [one["ranks"] for one in events(folder / "moved", "began")]
        print(f"weights {outcome(folder / 'alone')['model.safetensors']}")
        print(f"    and {outcome(folder / 'moved')['model.safetensors']}")
        times = cost(corpus, rounds)
    exact = times.pop("exact")
    print(f"\nexact: {1000 * median(exact):.0f} ms per step of 4,096 tokens, two processes, tiny model")
    shares = {}
    for way, some in times.items():
        ratios = [one / other for one, other in zip(some, exact, strict=True)]
        shares[way] = median(ratios)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{way}: {1000 * median(some):.0f} ms; exact has {shares[way]:.2f} x its speed ({spread})")
    return verdict(
        [
            ("same bits after every move as of one process", same, 1),
            ("moves", len(ranks) - 1, len(crews) - 1),
            *((f"speed of exact mode against DDP ({way})", share, 0.7) for way, share in shares.items()),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())

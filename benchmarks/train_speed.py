"""How fast is training as a whole: against the bare step, against other toolkits, and on two processes?

The same model (tiny: 4+4 layers, width 128; base: 6+6, width 512), Multi30k en-de, 8,000 BPE pieces, 4096 tokens per
batch, two threads. Rates are target tokens per second, with end tokens, without padding.

    loop    heedful's whole loop (plan, reading, padding, spike guard, clipping, optimizer, log) / the bare step of
            bare.py with ready-made batches; one process, the same batches, interleaved. Claim: >= 0.95.
    peers   `heedful train` with defaults / each peer with defaults; separate processes, interleaved. Claim: >= 2.5 on
            tiny, >= 1.8 on base; and >= 1.8 on tiny if the peer gets our allocator settings. See peers/run.py.
    ranks   two processes of one thread / one process of two threads. Reported without a claim.

    python benchmarks/train_speed.py [--quick] [--parts loop peers ranks] [--sizes tiny base] [--rounds 3]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from bare import Bare
from heedful.config import Settings, parse_settings
from heedful.data.batch import Batch
from heedful.data.prepare import prepare
from heedful.data.store import PreparedData
from heedful.performance.allocator import keep_freed_memory
from heedful.training.data import TrainingData, split_validation
from heedful.training.distributed import World
from heedful.training.history import METRICS
from heedful.training.loop import Trainer
from heedful.training.machine import autocast
from heedful.training.metrics_log import MetricsLog
from heedful.training.signals import StopRequest
from heedful.training.time_budget import TimeBudget
from peers.install import program
from peers.run import measure as measure_peer
from peers.settings import PEERS
from report import bf16_problem, header, skip, verdict

SIZES = {
    "tiny": {"layers": 4, "width": 128, "inner": 256, "heads": 4, "dropout": 0.3},
    "base": {"layers": 6, "width": 512, "inner": 2048, "heads": 8, "dropout": 0.1},
}
DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")) / "multi30k"
FLOORS = {"tiny": 2.5, "base": 1.8}


def settings_of(size: str, work: Path, **train: object) -> Settings:
    shape = SIZES[size]
    layer = {"kind": "transformer", **{key: shape[key] for key in ("layers", "heads", "dropout")}}
    layer["feedforward_size"] = shape["inner"]
    files = [str(DATA / f"train.{language}.gz") for language in ("en", "de")]
    validation = [str(DATA / f"val.{language}.gz") for language in ("en", "de")]
    model = {
        "width": shape["width"],
        "positions": "sinusoidal",
        "scale_embeddings": True,
        "dropout": shape["dropout"],
        "tie_embeddings": "all",
    }
    return parse_settings(
        {
            "source": "en",
            "target": "de",
            "data": {
                "train": [{"files": files}],
                "validation": [{"files": validation}],
                "prepared_dir": str(work / "prepared"),
            },
            "tokenizer": {"vocab_size": 8000},
            "model": {**model, "encoder": layer, "decoder": layer},
            "train": {"steps": 100_000, "validate_every": 100_000, "save_every": 100_000, **train},
        },
        root=work,
    )


# ------------------------------------------------------------------------------------------------ against the bare step


class BareLoop:
    """Forward, backward and fused AdamW only."""

    def __init__(self, size: str, vocabulary: int, precision: str) -> None:
        self.model = Bare(vocabulary=vocabulary, **SIZES[size]).train()  # type: ignore[arg-type]
        self.precision, self.low = precision, torch.bfloat16 if precision == "bf16" else torch.float32
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)

    def step(self, batch: Batch) -> None:
        with autocast(torch.device("cpu"), self.precision):  # products of few sizes for it too
            tokens, mask = batch.source
            loss = self.model.loss(tokens, mask, batch.inputs, batch.targets, batch.target_positions, self.low)
        self.optimizer.zero_grad(set_to_none=True)
        (loss / len(batch.targets)).backward()
        self.optimizer.step()


def loop_against_bare(
    size: str, precision: str, prepared: PreparedData, work: Path, rounds: int, steps: int
) -> list[float]:
    """Rates of both, then the ratio of every round; both get the same batches in a round."""
    settings = settings_of(
        size, work, output_dir=str(work / f"run-{size}-{precision}"), threads=2, precision=precision, micro_batches=1
    )
    folder = Path(settings.train.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    data = TrainingData(prepared, *split_validation(prepared, 100))
    torch.set_num_threads(settings.train.threads or 1)
    vocabulary = prepared.manifest["tokenizers"]["source"]["size"]
    ratios: list[float] = []
    rates: dict[str, list[float]] = {"heedful": [], "bare": []}
    with MetricsLog(folder, lambda _event: None) as log:
        budget = TimeBudget(None, time.perf_counter(), 0.0)
        trainer = Trainer(settings, data, World(), torch.device("cpu"), log, budget)
        bare = BareLoop(size, vocabulary, precision)
        for turn in range(rounds + 1):
            steps_ahead = range(trainer.state.step, trainer.state.step + steps)
            batches = [data.load_batch(*trainer.plan.batch(step)) for step in steps_ahead]
            tokens = sum(len(batch.targets) for batch in batches)

            def whole() -> None:
                for _ in range(steps):
                    trainer.train_step(StopRequest())
                    trainer.log_step()

            def plain(batches: Sequence[Batch] = tuple(batches)) -> None:
                for batch in batches:
                    bare.step(batch)

            speeds = {}
            for name, act in sorted({"heedful": whole, "bare": plain}.items(), reverse=turn % 2 == 0):
                begin = time.perf_counter()
                act()
                speeds[name] = tokens / (time.perf_counter() - begin)
            if turn:  # the first is for warming up
                ratios.append(speeds["heedful"] / speeds["bare"])
                for name, rate in speeds.items():
                    rates[name].append(rate)
    for name, some in rates.items():
        print(f"loop   {size:5} {precision:5} {name:12} {spread(some)}")
    return ratios


# ------------------------------------------------------------------------------------------------ as a command


def command_rate(settings: Settings, steps: int, *, ranks: int = 1, warm_up: int = 5) -> float:
    """Tokens per second of `heedful train` from its own metrics; stopped when there are enough."""
    from heedful.config import to_toml

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        train = settings.train.model_copy(update={"output_dir": str(folder / "run"), "log_every": 1})
        (folder / "heedful.toml").write_text(to_toml(settings.model_copy(update={"train": train})))
        start = [sys.executable, "-m", "heedful"]
        if ranks > 1:
            start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "-m", "heedful"]
        said = folder / "stderr"
        with said.open("wb") as errors:
            command = [*start, "train", str(folder / "heedful.toml")]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            while len(seen := stepped(folder / "run" / METRICS)) <= warm_up + steps:
                if process.poll() is not None:
                    raise SystemExit(f"heedful train ended: {said.read_text()}")
                time.sleep(0.5)
        finally:
            process.terminate()
            process.wait()
    first, last = seen[warm_up], seen[warm_up + steps]
    return float((last["tokens"] - first["tokens"]) / (last["elapsed"] - first["elapsed"]))


def stepped(path: Path) -> list[dict[str, float]]:
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [record for record in map(json.loads, lines) if record["event"] == "stepped"]


def against_peers(size: str, work: Path, rounds: int, steps: int) -> list[tuple[str, float, float]]:
    """Interleaved, process by process; ratios of medians, because the parts of a round are minutes apart."""
    installed = [peer for peer in PEERS if program(peer, "python").exists()]
    for peer in [peer for peer in PEERS if peer not in installed]:
        skip(f"{size} heedful / {peer}", f"it is not installed: python benchmarks/peers/install.py {peer}")
    if not installed:
        return []
    rates: dict[str, list[float]] = {}
    for turn in range(rounds):
        rates.setdefault("heedful", []).append(command_rate(settings_of(size, work), steps))
        for malloc in (False, True) if size == "tiny" else (False,):
            for peer in installed:
                name = peer + (" +malloc" if malloc else "")
                rates.setdefault(name, []).append(measure_peer(peer, size, steps=max(3, steps // 2), malloc=malloc))
        print(f"# round {turn + 1} of {rounds} on {size} is done", flush=True)
    claims = []
    for name, some in rates.items():
        print(f"peers  {size:5} {name:22} {spread(some)}")
        if name != "heedful":
            floor = 1.8 if name.endswith("+malloc") else FLOORS[size]
            claims.append(
                (f"{size} heedful / {name}", statistics.median(rates["heedful"]) / statistics.median(some), floor)
            )
    return claims


def spread(rates: Sequence[float]) -> str:
    """Median and range."""
    return f"{statistics.median(rates):9,.0f}  {min(rates):,.0f} to {max(rates):,.0f}"


def two_ranks(size: str, work: Path, rounds: int, steps: int) -> None:
    one, two = settings_of(size, work, threads=2), settings_of(size, work, threads=1)
    ratios = []
    for _ in range(rounds):
        alone = command_rate(one, steps)
        ratios.append(command_rate(two, steps, ranks=2) / alone)
        print(
            f"ranks  {size:5} one process, two threads {alone:,.0f}; two processes, one thread: x {ratios[-1]:.2f}",
            flush=True,
        )
    print(f"ranks  {size:5} median ratio {statistics.median(ratios):.2f}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--quick", action="store_true", help="the loop on tiny only, with a looser bound for the noise"
    )
    options.add_argument("--parts", nargs="+", default=["loop", "peers", "ranks"], choices=["loop", "peers", "ranks"])
    options.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    header(__file__)
    parts, sizes = (["loop"], ["tiny"]) if given.quick else (given.parts, given.sizes)
    keep_freed_memory()
    claims = []
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        prepared = prepare(settings_of("tiny", work))
        for size in sizes:
            if "loop" in parts:
                for precision in ("fp32", "bf16"):
                    if precision == "bf16" and (problem := bf16_problem()):
                        skip(f"{size} bf16 loop / bare step", problem)
                        continue
                    rounds, steps = (3, 5) if given.quick else (9, 5) if size == "tiny" else (7, 2)
                    ratios = loop_against_bare(size, precision, prepared, work, rounds, steps)
                    claims.append(
                        (
                            f"{size} {precision} loop / bare step",
                            statistics.median(ratios),
                            0.85 if given.quick else 0.95,
                        )
                    )
            if "peers" in parts:
                claims += against_peers(size, work, given.rounds, 20 if size == "tiny" else 6)
            if "ranks" in parts:
                two_ranks(size, work, given.rounds, 20 if size == "tiny" else 5)
    return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())

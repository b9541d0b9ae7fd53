"""How much memory does training take, and does it grow?

The whole loop on Multi30k en-de with 4096 tokens per update: tiny for 2,000 steps, base for 300, each in its own
process. Claim: the peak memory of tiny in its last quarter is at most 2 % above that of its second quarter, when all
lengths have occurred.

    python benchmarks/train_memory.py [--quick]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import bf16_problem, header, skip, verdict


def resident() -> float:
    """Resident memory of this process in MB; Linux."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def child(size: str, steps: int, work: Path) -> None:
    """Run the steps; print the memory after each."""
    import torch

    from heedful.data.prepare import prepare
    from heedful.performance.allocator import keep_freed_memory
    from heedful.training.data import TrainingData, split_validation
    from heedful.training.distributed import World
    from heedful.training.loop import Trainer
    from heedful.training.metrics_log import MetricsLog
    from heedful.training.resolve import measure_open_settings
    from heedful.training.signals import StopRequest
    from heedful.training.time_budget import TimeBudget
    from train_speed import settings_of

    keep_freed_memory()
    settings = settings_of(size, work, precision="bf16", ema=0.999)
    prepared = prepare(settings)
    data = TrainingData(prepared, *split_validation(prepared, 100))
    device = torch.device("cpu")
    settings = measure_open_settings(settings, data, World(), device, lambda _event: None)
    torch.set_num_threads(settings.train.threads or 1)
    folder = Path(settings.train.output_dir)
    folder.mkdir(exist_ok=True)
    found = []
    with MetricsLog(folder, lambda _event: None) as log:
        trainer = Trainer(settings, data, World(), device, log, TimeBudget(None, time.perf_counter(), 0.0))
        for _ in range(steps):
            trainer.train_step(StopRequest())
            found.append(resident())
    print(json.dumps(found))


def held_by(size: str, steps: int, work: Path) -> list[float]:
    command = [sys.executable, __file__, "--child", size, str(steps), str(work)]
    return [float(value) for value in json.loads(subprocess.run(command, check=True, capture_output=True).stdout)]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="tiny only, 60 steps, with a looser bound")
    options.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.child:
        size, steps, work = given.child
        child(size, int(steps), Path(work))
        return 0
    header(__file__)
    if problem := bf16_problem():
        return skip("memory of training in bf16", problem)
    claims = []
    for size, steps in {"tiny": 60}.items() if given.quick else {"tiny": 2000, "base": 300}.items():
        with tempfile.TemporaryDirectory() as work:
            found = held_by(size, steps, Path(work))
        quarter = len(found) // 4
        parts = [max(found[begin : begin + quarter]) for begin in range(0, 4 * quarter, quarter)]
        most = ", ".join(f"{part:,.0f}" for part in parts)
        print(f"{size:5} {steps} steps, megabytes held, the most of each quarter: {most}")
        if size == "tiny":
            claims.append(("tiny: second quarter / last quarter", parts[1] / parts[3], 0.85 if given.quick else 0.98))
    return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())

"""How fast do other toolkits train the same model on the same sentences?

    python benchmarks/peers/install.py                                  # once
    python benchmarks/peers/run.py PEER SIZE [--steps N] [--malloc]     # prints one line of JSON

Reports target tokens per second, with end tokens, without padding, after WARM_UP steps. SIZE is tiny (4+4 layers, width
128) or base (6+6, width 512). --malloc stops glibc from returning memory to the system between steps.

PEER is eole, huggingface (its Trainer with a Marian model), joeynmt or marian; all four run in both sizes on Python
3.11 and Linux. OpenNMT-py 3.5.1 and sockeye 3.1.34 are missing because their packages do not support torch 2.13.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Timer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from peers.data import prepare
from peers.install import PACKAGES, home, program
from peers.settings import PEERS, SIZES, Job, Peer

WARM_UP = 3
STEPS = {"tiny": 20, "base": 6}
LIMIT = 600  # seconds, after which a peer is given up
MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**34), "MALLOC_TOP_PAD_": str(2**28)}


@dataclass(frozen=True)
class Measured:
    peer: str
    version: str
    size: str
    tokens_per_second: float
    steps: int
    malloc: bool
    rss_mb: int | None  # None where the system does not say


def measure(peer: str, size: str, *, steps: int, malloc: bool) -> float:
    """Target tokens per second of `steps` steps after the warm-up, in a separate process."""
    return run(peer, size, steps=steps, malloc=malloc).tokens_per_second


def run(peer: str, size: str, *, steps: int, malloc: bool) -> Measured:
    """The same, with details."""
    if not program(peer, "python").exists():
        raise SystemExit(f"{peer} is not installed. Type: python benchmarks/peers/install.py {peer}")
    with tempfile.TemporaryDirectory() as work:
        job = Job(SIZES[size], WARM_UP + steps, prepare(home()), Path(work))
        done, rss = watch(PEERS[peer], job, MALLOC if malloc else {})
    rate = sum(tokens for _, tokens in done[WARM_UP:]) / (done[-1][0] - done[WARM_UP - 1][0])
    return Measured(peer, PACKAGES[peer][0].partition("==")[2], size, round(rate, 1), steps, malloc, rss)


def watch(peer: Peer, job: Job, extra: dict[str, str]) -> tuple[list[tuple[float, float]], int | None]:
    """The time and target tokens of each step, and the peak memory of the peer.

    The clock is ours: a step is done when its line arrives. After the last step the peer is killed, because later work,
    such as saving, is not training.
    """
    variables = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONUNBUFFERED": "1", **extra}
    variables.pop("PYTHONPATH", None)
    said: deque[str] = deque(maxlen=30)
    done: list[tuple[float, float]] = []
    before = time.perf_counter()
    process = subprocess.Popen(
        peer.command(job),
        cwd=job.work,
        env=variables,
        encoding="utf-8",
        errors="replace",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    alarm = Timer(LIMIT, process.kill)
    alarm.start()
    try:
        for line in process.stdout or ():
            said.append(line)
            if found := peer.step.search(line):
                now, number = time.perf_counter(), float(found[1].replace(",", ""))
                done.append((now, number * (now - before) if peer.per_second else number))
                before = now
                if len(done) == job.steps:
                    break
    finally:
        alarm.cancel()
        process.kill()
        rss = end(process)
    if len(done) < job.steps:
        name = peer.command.__name__
        raise RuntimeError(f"{name} ended (or took {LIMIT} s) after {len(done)} of {job.steps} steps:\n{''.join(said)}")
    return done, rss


def end(process: subprocess.Popen[str]) -> int | None:
    """Wait for a killed process; return its peak memory in MB, unless it had already exited."""
    if sys.platform == "win32" or process.returncode is not None:
        process.wait()
        return None
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss // (2**20 if sys.platform == "darwin" else 2**10)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("peer", choices=list(PEERS))
    options.add_argument("size", choices=list(SIZES))
    options.add_argument(
        "--steps", type=int, help="after the warm-up; else " + ", ".join(f"{n} for {size}" for size, n in STEPS.items())
    )
    options.add_argument("--malloc", action="store_true")
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # else the peer would live on
    print(json.dumps(asdict(run(given.peer, given.size, steps=given.steps or STEPS[given.size], malloc=given.malloc))))


if __name__ == "__main__":
    main()

"""How does the server behave at ten times its capacity?

`heedful serve` with a CTranslate2 export gets requests of 32 sentences at beam 5 over HTTP, from a client on the same
machine: ten minutes of Poisson arrivals at ten times the capacity; a client waits at most a minute. The speed of some
machines drifts by a factor of two within minutes, so the overload is split into ten parts, and closed-loop clients
measure the capacity before, between and after them. Each part is compared with the capacity on both sides of it; the
median counts.

Claims: only 200, 429 and 503, the last two with Retry-After; at least 90 % of the capacity is still served; the 99th
percentile latency of admitted requests is below twice the queue limit (which bounds the wait; the rest is translation);
memory stays within 5 %.

    python benchmarks/serve_overload.py [--model EXPORT] [--models 3] [--seconds 600] [--libre SCRIPT] [--quick]

Without --model, the bundled sample model is exported and measured. With --models, the server has several copies of it,
and one request after another is for the next model.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import header, verdict
from serving import (
    Client,
    Reply,
    closed_loop,
    export_samples,
    free_port,
    make_requests,
    open_loop,
    resident_bytes,
    run_server,
)

SENTENCES_PER_REQUEST, BEAM, QUEUE_SECONDS, NUM_CLIENTS = 32, 5, 2.0, 6
CLIENT_TIMEOUT_SECONDS = 60.0
EXPECTED_STATUSES = (200, 429, 503)


@dataclass(frozen=True)
class OverloadPart:
    """Requests per second: capacity before, served under overload, capacity after."""

    before: float
    served: float
    after: float

    @property
    def goodput(self) -> float:
        """Served as a share of the mean capacity."""
        return 2 * self.served / (self.before + self.after)


@dataclass(frozen=True)
class OverloadResult:
    """Measurements of one server."""

    parts: Sequence[OverloadPart]
    replies: Sequence[Reply]
    seconds: float
    memory_bytes: Sequence[int]  # over time

    @property
    def latencies(self) -> list[float]:
        """Seconds of successful requests, sorted."""
        return sorted(reply.seconds for reply in self.replies if reply.status == 200)

    @property
    def goodput(self) -> float:
        """The median over parts."""
        return statistics.median(part.goodput for part in self.parts)

    @property
    def p99(self) -> float:
        """The 99th percentile of the latency."""
        return self.latencies[int(0.99 * len(self.latencies))] if self.latencies else float("inf")

    @property
    def memory_growth(self) -> float:
        """Memory in the last tenth of the time / in the second tenth."""
        tenth = max(1, len(self.memory_bytes) // 10)
        return statistics.median(self.memory_bytes[-tenth:]) / statistics.median(self.memory_bytes[tenth : 2 * tenth])

    def print_summary(self, name: str) -> None:
        """Print the measurements."""
        statuses = dict(sorted(Counter(reply.status for reply in self.replies).items()))
        rejected = [reply.seconds for reply in self.replies if reply.status in (429, 503)]
        median_seconds = statistics.median(self.latencies) if self.latencies else float("inf")
        capacities = [self.parts[0].before, *(part.after for part in self.parts)]
        shares = sorted(100 * part.goodput for part in self.parts)
        print(
            f"{name}: capacity {statistics.median(capacities):.2f} requests/s "
            f"({min(capacities):.2f} to {max(capacities):.2f}), "
            f"{SENTENCES_PER_REQUEST * statistics.median(capacities):.0f} sentences/s"
        )
        print(f"{name}: {len(self.replies):,} requests in {self.seconds:.0f} s, by status (0: no response) {statuses}")
        print(
            f"{name}: served {100 * self.goodput:.0f} % of the capacity ({shares[0]:.0f} to {shares[-1]:.0f} in "
            f"{len(shares)} parts); median {median_seconds:.2f} s, 99 % in {self.p99:.2f}"
        )
        if rejected:
            print(f"{name}: rejected in {1000 * statistics.median(rejected):.1f} ms (median)")
        first, last = self.memory_bytes[len(self.memory_bytes) // 10], self.memory_bytes[-1]
        print(
            f"{name}: memory {first / 1e6:.0f} MB, at the end {last / 1e6:.0f} MB, "
            f"peak {max(self.memory_bytes) / 1e6:.0f} MB"
        )
        sys.stdout.flush()


async def overload(
    port: int, pid: int, path: str, bodies: Sequence[Any], times: float, seconds: float
) -> OverloadResult:
    """Alternate between measuring the capacity and sending `times` as many requests."""
    client = Client(port, CLIENT_TIMEOUT_SECONDS)
    num_parts = min(10, max(2, round(seconds / 20)))
    part_seconds = seconds / num_parts
    await closed_loop(client, bodies, NUM_CLIENTS, part_seconds / 4, path)
    memory_bytes: list[int] = []

    async def watch_memory() -> None:
        while True:
            memory_bytes.append(resident_bytes(pid))
            await asyncio.sleep(seconds / 200)

    watcher = asyncio.create_task(watch_memory())
    parts, replies = list[OverloadPart](), list[Reply]()
    before = await measure_capacity(client, bodies, part_seconds / 4, path)
    for _ in range(num_parts):
        begin = time.perf_counter()
        part_replies = await open_loop(client, bodies, times * before, part_seconds, seed=len(parts), path=path)
        # from when the queue has filled to the end of the part
        start, end = begin + QUEUE_SECONDS, begin + part_seconds
        num_served = sum(reply.status == 200 and start < reply.ended_at <= end for reply in part_replies)
        after = await measure_capacity(client, bodies, part_seconds / 4, path)
        parts.append(OverloadPart(before, num_served / (end - start), after))
        replies += part_replies
        before = after
    watcher.cancel()
    client.close()
    return OverloadResult(parts, replies, seconds, memory_bytes)


async def measure_capacity(client: Client, bodies: Sequence[Any], seconds: float, path: str) -> float:
    """Successful requests per second of closed-loop clients."""
    begin = time.perf_counter()
    replies = await closed_loop(client, bodies, NUM_CLIENTS, seconds, path)
    return sum(reply.status == 200 for reply in replies) / (time.perf_counter() - begin)


@contextmanager
def run_libretranslate(script: Path) -> Iterator[tuple[int, int]]:
    """LibreTranslate as a context manager: its port and process id."""
    port = free_port()
    process = subprocess.Popen(
        [str(script), str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                if asyncio.run(Client(port, 10).post("/translate", libretranslate_body(["A dog."]))).status == 200:
                    break
            time.sleep(0.1)
        yield port, process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def libretranslate_body(texts: Sequence[str]) -> dict[str, Any]:
    """The body of LibreTranslate's /translate."""
    return {"q": list(texts), "source": "en", "target": "de", "format": "text"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="an export (default: one of the bundled sample)")
    parser.add_argument("--models", type=int, default=1, choices=(1, 2, 3), help="how many copies of the sample")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--times", type=float, default=10.0)
    parser.add_argument("--libre", type=Path)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    header(__file__)
    with tempfile.TemporaryDirectory() as temporary_dir:
        return measure([args.model] if args.model else export_samples(Path(temporary_dir), args.models), args)


def measure(models: Sequence[Path], args: argparse.Namespace) -> int:
    """Overload servers of these models; the exit code."""
    seconds = 25.0 if args.quick else args.seconds
    is_short = seconds < 300  # with looser claims
    bodies = make_requests(models, SENTENCES_PER_REQUEST, BEAM)

    def run(port: int, pid: int, path: str, bodies: Sequence[Any]) -> OverloadResult:
        return asyncio.run(overload(port, pid, path, bodies, args.times, seconds))

    with run_server(models, "--queue", str(QUEUE_SECONDS), "--rate", "1e9", "--burst", "1e9", threads=2) as (
        port,
        process,
    ):
        ours = run(port, process.pid, "/v1/translate", bodies)
    ours.print_summary("heedful")
    if args.libre:
        with run_libretranslate(args.libre) as (port, pid):
            theirs = run(port, pid, "/translate", [libretranslate_body(body["texts"]) for body in bodies])
        theirs.print_summary("LibreTranslate")
    unexpected = sum(reply.status not in EXPECTED_STATUSES for reply in ours.replies)
    without_hint = sum(reply.status in (429, 503) and "retry-after" not in reply.headers for reply in ours.replies)
    code = verdict(
        [
            ("no other status than 200, 429, 503 (minus their number)", -unexpected, 0),
            ("429 and 503 without Retry-After (minus)", -without_hint, 0),
            ("served / capacity", ours.goodput, 0.8 if is_short else 0.9),
            ("seconds below twice the queue limit", 2 * QUEUE_SECONDS - ours.p99, 0),
            (f"{1.1 if is_short else 1.05} - growth of memory", (1.1 if is_short else 1.05) - ours.memory_growth, 0),
        ]
    )
    print(f"served under {args.times:.0f} x load: {100 * ours.goodput:.0f} % of the capacity")
    return code


if __name__ == "__main__":
    sys.exit(main())

"""What does a server do that is asked for ten times what it can do?

`heedful serve` with a CTranslate2 export; requests of 32 sentences at beam 5 through HTTP, from a client on the same
machine. Ten minutes of storm: requests at random moments (Poisson), ten times as many as can be answered; a client
waits a minute at most. A machine's own pace drifts, to its double within minutes on some; so the storm comes in ten
parts, and before, between and after them is calm, which tells the capacity with the client at work: clients that ask
again when they were answered. Each part is compared with the calm on both sides of it, and the median counts.
Claims: only 200, 429 and 503, the last two with Retry-After; at least 90 % of the capacity is still answered; the 99th
percentile of those let in is below twice the limit of the queue (which is for waiting; the rest is for being
translated); memory stays within 5 %.

With --libre, LibreTranslate is asked the same, where SCRIPT PORT starts it with the same model.

    python benchmarks/serve_overload.py --model EXPORT [--seconds 600] [--libre SCRIPT] [--quick]
"""

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import header, verdict
from serving import Client, Reply, closed_loop, free_port, open_loop, requests_of, resident, served

TOGETHER, BEAM, QUEUE, CLIENTS = 32, 5, 2.0, 6
PATIENCE = 60.0  # seconds of a client
KNOWN = (200, 429, 503)


@dataclass(frozen=True)
class Part:
    """Requests a second: what it can do, what it did in the storm, what it can do."""

    before: float
    answered: float
    after: float

    @property
    def goodput(self) -> float:
        """As a share of the capacity, which is the mean of before and after."""
        return 2 * self.answered / (self.before + self.after)


@dataclass(frozen=True)
class Storm:
    """How a server came through."""

    parts: Sequence[Part]
    replies: Sequence[Reply]
    seconds: float
    memory: Sequence[int]  # bytes, in the course of time

    @property
    def good(self) -> list[float]:
        """Seconds of those that were answered, in order."""
        return sorted(one.seconds for one in self.replies if one.status == 200)

    @property
    def goodput(self) -> float:
        """The median of its parts."""
        return statistics.median(part.goodput for part in self.parts)

    @property
    def p99(self) -> float:
        """Of those that were answered."""
        return self.good[int(0.99 * len(self.good))] if self.good else float("inf")

    @property
    def growth(self) -> float:
        """Memory in the last tenth of the time, by that in the second."""
        tenth = max(1, len(self.memory) // 10)
        return statistics.median(self.memory[-tenth:]) / statistics.median(self.memory[tenth : 2 * tenth])

    def told(self, name: str) -> None:
        """As lines."""
        statuses = dict(sorted(Counter(one.status for one in self.replies).items()))
        refused = [one.seconds for one in self.replies if one.status in (429, 503)]
        mean = statistics.median(self.good) if self.good else float("inf")
        calm = [self.parts[0].before, *(part.after for part in self.parts)]
        shares = sorted(100 * part.goodput for part in self.parts)
        print(
            f"{name}: capacity {statistics.median(calm):.2f} requests/s ({min(calm):.2f} to {max(calm):.2f}), "
            f"{TOGETHER * statistics.median(calm):.0f} sentences/s"
        )
        print(f"{name}: asked {len(self.replies):,} in {self.seconds:.0f} s, by status (0: no answer) {statuses}")
        print(
            f"{name}: answered {100 * self.goodput:.0f} % of the capacity ({shares[0]:.0f} to {shares[-1]:.0f} in "
            f"{len(shares)} parts); median {mean:.2f} s, 99 % in {self.p99:.2f}"
        )
        if refused:
            print(f"{name}: refused in {1000 * statistics.median(refused):.1f} ms (median)")
        first, last = self.memory[len(self.memory) // 10], self.memory[-1]
        print(
            f"{name}: memory {first / 1e6:.0f} MB, at the end {last / 1e6:.0f} MB, most {max(self.memory) / 1e6:.0f} MB"
        )
        sys.stdout.flush()


async def storm(port: int, pid: int, path: str, bodies: Sequence[Any], times: float, seconds: float) -> Storm:
    """Calm and storm in turns."""
    client = Client(port, PATIENCE)
    number = min(10, max(2, round(seconds / 20)))
    length = seconds / number
    await closed_loop(client, bodies, CLIENTS, length / 4, path)
    memory: list[int] = []

    async def watch() -> None:
        while True:
            memory.append(resident(pid))
            await asyncio.sleep(seconds / 200)

    watcher = asyncio.create_task(watch())
    parts, replies = list[Part](), list[Reply]()
    before = await capacity_of(client, bodies, length / 4, path)
    for _ in range(number):
        begin = time.perf_counter()
        asked = await open_loop(client, bodies, times * before, length, seed=len(parts), path=path)
        # counted once the queue has filled, and not what comes after the storm
        good = sum(one.status == 200 and begin + QUEUE < one.ended <= begin + length for one in asked)
        after = await capacity_of(client, bodies, length / 4, path)
        parts.append(Part(before, good / (length - QUEUE), after))
        replies += asked
        before = after
    watcher.cancel()
    client.close()
    return Storm(parts, replies, seconds, memory)


async def capacity_of(client: Client, bodies: Sequence[Any], seconds: float, path: str) -> float:
    """Requests a second, of clients that ask again when they were answered."""
    begin = time.perf_counter()
    replies = await closed_loop(client, bodies, CLIENTS, seconds, path)
    return sum(one.status == 200 for one in replies) / (time.perf_counter() - begin)


@contextmanager
def libre(script: Path) -> Iterator[tuple[int, int]]:
    """LibreTranslate, until the end: its port, and its process."""
    port = free_port()
    process = subprocess.Popen(
        [str(script), str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                if asyncio.run(Client(port, 10).post("/translate", asked_of_libre(["A dog."]))).status == 200:
                    break
            time.sleep(0.1)
        yield port, process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def asked_of_libre(texts: Sequence[str]) -> dict[str, Any]:
    """As LibreTranslate is asked."""
    return {"q": list(texts), "source": "en", "target": "de", "format": "text"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--times", type=float, default=10.0)
    parser.add_argument("--libre", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    header(__file__)
    seconds = 25.0 if given.quick else given.seconds
    short = seconds < 300  # in a short time less evens out
    bodies = requests_of(TOGETHER, BEAM)

    def run(port: int, pid: int, path: str, bodies: Sequence[Any]) -> Storm:
        return asyncio.run(storm(port, pid, path, bodies, given.times, seconds))

    with served(given.model, "--queue", str(QUEUE), "--rate", "1e9", "--burst", "1e9", threads=2) as (port, process):
        ours = run(port, process.pid, "/v1/translate", bodies)
    ours.told("heedful")
    if given.libre:
        with libre(given.libre) as (port, pid):
            theirs = run(port, pid, "/translate", [asked_of_libre(one["texts"]) for one in bodies])
        theirs.told("LibreTranslate")
    odd = sum(one.status not in KNOWN for one in ours.replies)
    silent = sum(one.status in (429, 503) and "retry-after" not in one.headers for one in ours.replies)
    code = verdict(
        [
            ("no other status than 200, 429, 503 (minus their number)", -odd, 0),
            ("every refusal says when to come again (minus those that do not)", -silent, 0),
            ("answered / capacity", ours.goodput, 0.8 if short else 0.9),
            ("seconds below twice the limit of the queue", 2 * QUEUE - ours.p99, 0),
            (f"{1.1 if short else 1.05} - growth of memory", (1.1 if short else 1.05) - ours.growth, 0),
        ]
    )
    print(f"answered under {given.times:.0f} x load: {100 * ours.goodput:.0f} % of the capacity")
    return code


if __name__ == "__main__":
    sys.exit(main())

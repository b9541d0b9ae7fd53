"""What do several models in one server cost each other?

Runs `heedful serve` with copies of a CTranslate2 export, which are equally fast, from a client on the same machine:

    throughput   requests of 32 sentences at beam 5: one model alone, with a thread per core, and two models together
                 with the threads that the server gives them; the same number of clients, in alternating rounds
    idle model   the same load for one of two models only, which then has half of the cores: no claim, but a price
    crashes      one worker gets SIGKILL again and again under load, while another model gets one sentence after another

Claims: two models together translate at least 0.95 of what one model translates alone (median of the rounds); no
request to the other model takes more than 100 ms longer than the median of such requests without a crash, and none
fails.

    python benchmarks/serve_models.py [--rounds 7] [--seconds 10] [--crashes 50] [--quick]
"""

import argparse
import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import header, verdict
from serving import (
    Client,
    Reply,
    closed_loop,
    export_samples,
    make_requests,
    read_readiness,
    run_server,
    worker_pids,
)

SENTENCES_PER_REQUEST, BEAM, NUM_CLIENTS = 32, 5, 6
# Nothing is rejected or timed out, even if other programs use the cores.
OPTIONS = ("--rate", "1e9", "--burst", "1e9", "--queue", "60", "--timeout", "300")
CLIENT_TIMEOUT_SECONDS = 300.0
MAX_DELAY_SECONDS = 0.1
CALM_SECONDS = 1.0  # before each crash


# ---------------------------------------------------------------------------------------------------- throughput


def measure_throughput(models: Sequence[Path], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Sentences per second in each round: one model alone, two together, and one of the two with all of the load."""
    speeds: dict[str, list[float]] = {"alone": [], "together": [], "one of two": []}
    with (
        run_server(models[0], *OPTIONS, threads=os.cpu_count()) as (port_of_one, _),
        run_server(models[:2], *OPTIONS) as (port_of_two, _),
    ):
        for_one, for_two = (make_requests(served, SENTENCES_PER_REQUEST, BEAM) for served in (models[0], models[:2]))
        for_first = [{**body, "model": models[0].name} for body in for_one]
        loads = {
            "alone": (port_of_one, for_one),
            "together": (port_of_two, for_two),
            "one of two": (port_of_two, for_first),
        }
        for number in range(rounds + 1):
            for name, (port, bodies) in loads.items():
                replies = asyncio.run(
                    closed_loop(Client(port, CLIENT_TIMEOUT_SECONDS), bodies, NUM_CLIENTS, seconds if number else 2.0)
                )
                if number:  # the first round warms up, and measures the throughput for the queue
                    speeds[name].append(sentences_per_second(replies))
            if number:
                print(f"round {number}: " + ", ".join(f"{name} {values[-1]:.0f}" for name, values in speeds.items()))
                sys.stdout.flush()
    return speeds


def sentences_per_second(replies: Sequence[Reply]) -> float:
    """Throughput between the first request and the last response; all must have succeeded."""
    assert all(reply.status == 200 for reply in replies), Counter(reply.status for reply in replies)
    seconds = max(reply.ended_at for reply in replies) - min(reply.ended_at - reply.seconds for reply in replies)
    return SENTENCES_PER_REQUEST * len(replies) / seconds


# ---------------------------------------------------------------------------------------------------- crashes


@dataclass(frozen=True)
class CrashResult:
    """Requests to the model that did not crash, by when they ran; and how the crashing model recovered."""

    calm: Sequence[Reply]
    during: Sequence[Reply]  # between a crash and the moment when the worker is ready again
    recovery_seconds: Sequence[float]
    statuses: Counter[int]  # of both models

    def delays(self, replies: Sequence[Reply]) -> list[float]:
        """Seconds above the median without a crash, sorted."""
        median = statistics.median(reply.seconds for reply in self.calm)
        return sorted(reply.seconds - median for reply in replies)


async def crash_one_of_two(port: int, bodies: Sequence[Any], probe: Any, times: int) -> CrashResult:
    """Kill the first worker `times` times under load, while `probe` is sent to the other model again and again."""
    stop, loaded, probed = asyncio.Event(), list[Reply](), list[Reply]()
    crashes: list[tuple[float, float]] = []  # (killed, ready again)

    async def send(client: Client, bodies: Sequence[Any], replies: list[Reply]) -> None:
        number = 0
        while not stop.is_set():
            replies.append(await client.post("/v1/translate", bodies[number % len(bodies)]))
            number += 1

    async def crash() -> None:
        await asyncio.sleep(2 * CALM_SECONDS)
        for _ in range(times):
            await asyncio.sleep(CALM_SECONDS)
            pid = worker_pids(await asyncio.to_thread(read_readiness, port))[0]
            os.kill(pid, signal.SIGKILL)
            killed = time.perf_counter()
            while not await asyncio.to_thread(has_recovered, port, pid):
                if time.perf_counter() - killed > 30:
                    raise SystemExit("the server does not recover")
                await asyncio.sleep(0.05)
            crashes.append((killed, time.perf_counter()))
        stop.set()

    client = Client(port)
    await asyncio.gather(
        crash(), send(client, bodies, loaded), send(client, bodies[1:], loaded), send(client, [probe], probed)
    )
    client.close()
    is_during = [
        any(reply.ended_at >= killed and reply.ended_at - reply.seconds <= ready for killed, ready in crashes)
        for reply in probed
    ]
    return CrashResult(
        [reply for reply, during in zip(probed, is_during, strict=True) if not during],
        [reply for reply, during in zip(probed, is_during, strict=True) if during],
        [ready - killed for killed, ready in crashes],
        Counter(reply.status for reply in [*loaded, *probed]),
    )


def has_recovered(port: int, pid: int) -> bool:
    """Whether the server is ready with another worker."""
    try:
        return pid not in worker_pids(read_readiness(port))
    except OSError:  # 503: not ready
        return False


def measure_crashes(models: Sequence[Path], times: int) -> CrashResult:
    """Crash the first of two models."""
    lines = make_requests(models[0], 8, BEAM)
    bodies = [{**body, "model": models[0].name} for body in lines]
    probe = {"texts": lines[0]["texts"][0], "beam": BEAM, "model": models[1].name}
    with run_server(models[:2], *OPTIONS) as (port, _):
        return asyncio.run(crash_one_of_two(port, bodies, probe, times))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--crashes", type=int, default=50)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    header(__file__)
    with tempfile.TemporaryDirectory() as temporary_dir:
        return measure(export_samples(Path(temporary_dir), 2), args)


def measure(models: Sequence[Path], args: argparse.Namespace) -> int:
    """All measurements; the exit code."""
    rounds, seconds, num_crashes = (3, 2.0, 3) if args.quick else (args.rounds, args.seconds, args.crashes)
    speeds = measure_throughput(models, rounds, seconds)
    for name, values in speeds.items():
        print(f"{name}: {statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f}) sentences/s")
    together, one_of_two = (
        [speed / alone for speed, alone in zip(speeds[name], speeds["alone"], strict=True)]
        for name in ("together", "one of two")
    )
    print(f"one of two with all of the load / alone: {statistics.median(one_of_two):.2f}")
    crashes = measure_crashes(models, num_crashes)
    calm, during = crashes.delays(crashes.calm), crashes.delays(crashes.during)
    median = statistics.median(reply.seconds for reply in crashes.calm)
    print(
        f"{num_crashes} crashes, ready again after {statistics.median(crashes.recovery_seconds):.2f} s (median); "
        f"requests to the other model: {1000 * median:.0f} ms (median); at most {1000 * calm[-1]:.0f} ms more without "
        f"a crash ({len(calm):,} requests), at most {1000 * during[-1]:.0f} ms more during one ({len(during):,}); "
        f"statuses {dict(crashes.statuses)}"
    )
    num_failed = sum(count for status, count in crashes.statuses.items() if status != 200)
    code = verdict(
        [
            ("two models together / one alone (median)", statistics.median(together), 0.95),
            (
                "100 ms - the longest delay by a crash of another model, in ms",
                1000 * (MAX_DELAY_SECONDS - during[-1]),
                0,
            ),
            ("requests that failed (minus)", -num_failed, 0),
        ]
    )
    print(
        f"two models together / one alone: {statistics.median(together):.2f}; a crash of one delays the other by "
        f"{1000 * during[-1]:.0f} ms at most"
    )
    return code


if __name__ == "__main__":
    sys.exit(main())

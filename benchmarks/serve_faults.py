"""What do clients notice when the engine crashes, the server stops, or the model is replaced?

Runs `heedful serve` under load with

    crashes      the worker process gets SIGKILL, SIGSTOP or SIGSEGV in rotation, 100 times
    drains       the server gets SIGTERM, 50 times
    swaps        the model is replaced by another (SIGHUP) and back, 50 times
    disconnects  1,000 clients send a request and disconnect before the response

Claims: the server answers /livez throughout, and is ready again within 3 s (95 of 100; all within 5 s); at most one
batch fails after a crash; every request admitted before a drain is answered; no response mixes two models; disconnected
clients cost under 1 % of the tokens.

    python benchmarks/serve_faults.py [--model EXPORT --other EXPORT] [--models 3] [--quick]

Without them, the bundled sample model is exported, and once more with noise in its weights. With --models, the server
has several copies of the sample: their workers crash in turn, and the first is replaced.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from heedful.files import file_sha256
from heedful.translation.loading import load
from report import header, verdict
from serving import (
    Client,
    Reply,
    export_sample,
    export_samples,
    make_requests,
    read_metrics,
    read_readiness,
    read_sentences,
    run_server,
    worker_pids,
)

SENTENCES_PER_REQUEST, BEAM, NUM_CLIENTS = 8, 2, 6
NO_RATE_LIMIT = ("--rate", "1e9", "--burst", "1e9")
CRASH_SIGNALS = (signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV)


@asynccontextmanager
async def run_load(
    port: int, bodies: Sequence[Any], num_clients: int = NUM_CLIENTS
) -> AsyncIterator[list[tuple[int, Reply]]]:
    """Closed-loop clients in the background; the list of (index of the body, reply) grows meanwhile."""
    replies, stop, client = list[tuple[int, Reply]](), asyncio.Event(), Client(port)

    async def run_client(number: int) -> None:
        while not stop.is_set():
            reply = await client.post("/v1/translate", bodies[number % len(bodies)])
            replies.append((number % len(bodies), reply))
            number += num_clients
            if reply.status != 200:
                await asyncio.sleep(0.05)

    tasks = [asyncio.create_task(run_client(number)) for number in range(num_clients)]
    await asyncio.sleep(0.5)
    yield replies
    stop.set()
    await asyncio.gather(*tasks)
    client.close()


async def get(port: int, path: str) -> tuple[int, Any]:
    """Status and JSON of a GET; 0 if there is no response."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split()[1]), json.loads(body)
    except (OSError, ValueError, IndexError, TimeoutError):
        return 0, {}


# ------------------------------------------------------------------------------------------------------- crashes


async def crash_workers(port: int, bodies: Sequence[Any], times: int) -> tuple[list[float], int, int, Counter[int]]:
    """Crash the workers of the models in turn.

    (seconds until ready again, failed /livez, largest number of errors after one crash, statuses)
    """
    recovery_seconds, failed_checks, max_errors, generator = list[float](), 0, 0, random.Random(1)
    async with run_load(port, bodies) as replies:
        for number in range(times):
            num_before = len(replies)
            pids = worker_pids(read_readiness(port))
            pid = pids[number % len(pids)]
            os.kill(pid, CRASH_SIGNALS[number % len(CRASH_SIGNALS)])
            begin = time.perf_counter()
            while True:
                failed_checks += (await get(port, "/livez"))[0] != 200
                status, readiness = await get(port, "/readyz")
                if status == 200 and pid not in worker_pids(readiness):
                    break
                if time.perf_counter() - begin > 30:
                    raise SystemExit(f"the server does not recover from crash {number + 1}: {status} {readiness}")
                await asyncio.sleep(0.02)
            recovery_seconds.append(time.perf_counter() - begin)
            await asyncio.sleep(0.3 + generator.random() / 2)
            max_errors = max(max_errors, sum(reply.status != 200 for _, reply in replies[num_before:]))
    return recovery_seconds, failed_checks, max_errors, Counter(reply.status for _, reply in replies)


# ------------------------------------------------------------------------------------------------------- drains


async def stop_under_load(
    port: int, server: subprocess.Popen[bytes], bodies: Sequence[Any], delay_seconds: float
) -> list[Reply]:
    """Send SIGTERM; all replies until the server has exited."""
    async with run_load(port, bodies) as replies:
        await asyncio.sleep(delay_seconds)
        server.send_signal(signal.SIGTERM)
        while server.poll() is None:
            await asyncio.sleep(0.02)
    return [reply for _, reply in replies]


def drain_servers(models: Sequence[Path], times: int) -> tuple[int, int, list[float]]:
    """(admitted but not answered, answered, seconds that stopping took)."""
    lost = answered = 0
    stop_seconds, generator = list[float](), random.Random(2)
    bodies = make_requests(models, SENTENCES_PER_REQUEST, BEAM)
    for _ in range(times):
        with tempfile.TemporaryFile() as log, run_server(models, *NO_RATE_LIMIT, threads=2, log=log) as (port, server):
            begin = time.perf_counter()
            delay = generator.random()
            replies = asyncio.run(stop_under_load(port, server, bodies, delay))
            stop_seconds.append(time.perf_counter() - begin - delay - 0.5)
            log.seek(0)
            summary = re.search(rb"([\d,]+) requests admitted, ([\d,]+) answered", log.read())
            assert summary is not None, "the log does not say how many requests were admitted"
        num_admitted = int(summary[1].replace(b",", b""))
        num_answered = sum(reply.status == 200 for reply in replies)
        lost += num_admitted - num_answered
        answered += num_answered
        unexpected = {reply.status for reply in replies} - {200, 503, 0}
        assert not unexpected, unexpected
    return lost, answered, stop_seconds


# -------------------------------------------------------------------------------------------------------- swaps


async def swap_models(
    port: int, server: subprocess.Popen[bytes], link: Path, models: Sequence[Path], times: int
) -> list[Any]:
    """All replies while two models replace each other."""
    bodies = [{**body, "model": link.name} for body in make_requests(models[0], SENTENCES_PER_REQUEST, BEAM)]
    async with run_load(port, bodies) as replies:
        for number in range(times):
            before = await read_first_version(port)
            new_link = link.with_name("new")
            new_link.symlink_to(models[(number + 1) % 2])
            new_link.replace(link)
            server.send_signal(signal.SIGHUP)
            async with asyncio.timeout(30):
                while await read_first_version(port) == before:
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.2)
    return replies


async def read_first_version(port: int) -> str:
    """The version of the first model, when the server responds."""
    while not (readiness := (await get(port, "/readyz"))[1]):
        await asyncio.sleep(0.02)
    return str(readiness["models"][0]["version"])


def count_mixed(replies: Sequence[tuple[int, Reply]], models: Sequence[Path]) -> tuple[int, int, int]:
    """(responses that differ from the model they name, of these with a text of the other model, all responses)."""
    lines = read_sentences(models[0])
    expected: dict[str, list[str]] = {}
    for model in models:
        translator = load(model, threads=2)
        version = file_sha256(translator.bundle.folder / "manifest.json")[:12]
        expected[version] = [translation.text for translation in translator(lines, beam=BEAM)]
    assert len(expected) == 2
    different = mixed = count = 0
    for number, reply in replies:
        if reply.status != 200:
            continue
        count += 1
        body = json.loads(reply.body)
        texts = [translation["text"] for translation in body["translations"]]
        indices = slice(number * SENTENCES_PER_REQUEST, (number + 1) * SENTENCES_PER_REQUEST)
        (other,) = (texts for version, texts in expected.items() if version != body["version"])
        triples = list(zip(texts, expected[body["version"]][indices], other[indices], strict=True))
        different += any(text != named for text, named, _ in triples)
        mixed += any(text != named and text == other for text, named, other in triples)
    return different, mixed, count


# ------------------------------------------------------------------------------------------------------ disconnects


async def disconnect_clients(port: int, models: Sequence[Path], count: int) -> None:
    """Clients that disconnect early, as the page does when its user types on, while others keep the engine busy."""
    bodies, generator = make_requests(models, 1, 5), random.Random(3)

    async def send_and_disconnect(number: int) -> None:
        data = json.dumps(bodies[number % len(bodies)]).encode()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(data) + data
        )
        await asyncio.sleep(generator.random() / 20)
        writer.close()

    async with run_load(port, make_requests(models, 32, 5), 10):
        for number in range(count):
            await asyncio.sleep(0.03)
            await send_and_disconnect(number)
        await asyncio.sleep(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="an export (default: one of the bundled sample)")
    parser.add_argument("--other", type=Path, help="another for the swaps (default: the sample, with other weights)")
    parser.add_argument("--models", type=int, default=1, choices=(1, 2, 3), help="how many copies of the sample")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if (args.model is None) != (args.other is None):
        parser.error("give both --model and --other, or neither")
    header(__file__)
    with tempfile.TemporaryDirectory() as temporary_dir:
        folder = Path(temporary_dir)
        models = [args.model] if args.model else export_samples(folder, args.models)
        return measure(models, args.other or export_sample(folder / "other", noise=0.2), args.quick)


def measure(models: Sequence[Path], other: Path, quick: bool) -> int:
    """All faults against servers of these models, the first of them swapped with the other; the exit code."""
    num_crashes, num_drains, num_swaps, num_disconnects = (6, 2, 4, 100) if quick else (100, 50, 50, 1000)
    with run_server(models, *NO_RATE_LIMIT, threads=2) as (port, _):
        recovery_seconds, failed_checks, max_errors, statuses = asyncio.run(
            crash_workers(port, make_requests(models, SENTENCES_PER_REQUEST, BEAM), num_crashes)
        )
        metrics = read_metrics(port)
    recovery_seconds.sort()
    p95 = recovery_seconds[int(0.95 * len(recovery_seconds)) - 1]
    retried, poison = (metrics[f"heedful_{name}_total"] for name in ("retried", "poison"))
    print(
        f"{num_crashes} crashes: ready again after {statistics.median(recovery_seconds):.2f} s (median), 95 % within "
        f"{p95:.2f} s, all within {recovery_seconds[-1]:.2f} s; statuses {dict(statuses)}; {retried:.0f} requests "
        f"retried, {poison:.0f} taken for poison; {failed_checks} failed health checks",
        flush=True,
    )
    lost, answered, stop_seconds = drain_servers(models, num_drains)
    seconds = statistics.median(stop_seconds)
    print(f"{num_drains} drains: {answered:,} admitted and answered, {lost} lost; {seconds:.2f} s each", flush=True)
    swapped = (models[0].resolve(), other.resolve())
    with tempfile.TemporaryDirectory() as temporary_dir:
        link = Path(temporary_dir) / "current"
        link.symlink_to(swapped[0])
        with run_server([link, *models[1:]], *NO_RATE_LIMIT, threads=2) as (port, server):
            replies = asyncio.run(swap_models(port, server, link, swapped, num_swaps))
    different, mixed, count = count_mixed(replies, swapped)
    failed = sum(reply.status != 200 for _, reply in replies)
    print(
        f"{num_swaps} swaps: {count:,} responses, {failed} failed, {mixed} mixed with the other model, "
        f"{different} with a text that depends on its batch",
        flush=True,
    )
    with run_server(models, *NO_RATE_LIMIT, "--queue", "10", threads=2) as (port, _):
        asyncio.run(disconnect_clients(port, models, num_disconnects))
        metrics = read_metrics(port)
    wasted = metrics["heedful_wasted_tokens_total"] / metrics["heedful_batched_tokens_total"]
    dropped = metrics["heedful_disconnected_total"]
    print(
        f"{num_disconnects:,} disconnects: {dropped:.0f} dropped before translation, "
        f"{100 * wasted:.2f} % of the tokens wasted"
    )
    code = verdict(
        [
            ("3 s - until ready again (95 %)", 3.0 - p95, 0.0),
            ("5 s - until ready again (all)", 5.0 - recovery_seconds[-1], 0.0),
            ("failed health checks (minus)", -failed_checks, 0),
            ("requests with an error after one crash (minus; a batch holds up to 20)", -max_errors, -20),
            ("requests admitted and lost at a drain (minus)", -lost, 0),
            ("requests that failed at a swap (minus)", -failed, 0),
            ("responses that mix two models (minus)", -mixed, 0),
            ("share of the tokens wasted on disconnected clients (minus)", -wasted, -0.01),
        ]
    )
    runs = f"{num_crashes} crashes, {num_drains} drains, {num_swaps} swaps, {num_disconnects:,} disconnects"
    print(f"{runs}: {lost + failed + mixed} requests lost or mixed")
    return code


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())

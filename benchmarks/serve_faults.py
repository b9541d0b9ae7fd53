"""What do clients notice when the engine dies, the server is stopped, or the model is replaced?

`heedful serve` under load, and
    deaths   the engine's process is killed, stopped or crashed (SIGKILL, SIGSTOP, SIGSEGV in turn), 100 times
    drains   the server is told to stop (SIGTERM), 50 times
    swaps    another model is put in its place (SIGHUP), 50 times, and back
    leavers  1,000 clients ask and hang up before they are answered

Claims: the front answers /livez throughout, and is ready again within 3 s (95 of 100; all within 5); at most one batch
gets an error for a death; whoever was let in before a drain is answered; no answer mixes two models; those who leave
cost under 1 % of the tokens.

    python benchmarks/serve_faults.py --model EXPORT --other EXPORT [--quick]
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

import heedful
from heedful.files import file_sha256
from report import header, verdict
from serving import Client, Reply, children, metrics, requests_of, sentences, served

TOGETHER, BEAM, CLIENTS = 8, 2, 6
FREE = ("--rate", "1e9", "--burst", "1e9")
HOW = (signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV)


@asynccontextmanager
async def load(port: int, bodies: Sequence[Any], clients: int = CLIENTS) -> AsyncIterator[list[tuple[int, Reply]]]:
    """So many clients, each asking again when it was answered: what was asked, and what was said."""
    replies, stop, client = list[tuple[int, Reply]](), asyncio.Event(), Client(port)

    async def one(number: int) -> None:
        while not stop.is_set():
            reply = await client.post("/v1/translate", bodies[number % len(bodies)])
            replies.append((number % len(bodies), reply))
            number += clients
            if reply.status != 200:
                await asyncio.sleep(0.05)

    tasks = [asyncio.create_task(one(number)) for number in range(clients)]
    await asyncio.sleep(0.5)
    yield replies
    stop.set()
    await asyncio.gather(*tasks)
    client.close()


async def get(port: int, path: str) -> tuple[int, Any]:
    """Status and tree of a GET; 0 where nobody answers."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await asyncio.wait_for(reader.read(), 5)).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split()[1]), json.loads(body)
    except (OSError, ValueError, IndexError, TimeoutError):
        return 0, {}


# ------------------------------------------------------------------------------------------------------- deaths


async def deaths(port: int, front: subprocess.Popen[bytes], times: int) -> tuple[list[float], int, int, Counter[int]]:
    """Seconds until it was ready again, silences of the front, the most errors that one death gave, statuses."""
    waited, silences, worst, draw = list[float](), 0, 0, random.Random(1)
    async with load(port, requests_of(TOGETHER, BEAM)) as replies:
        for number in range(times):
            seen = len(replies)
            (pid,) = children(front.pid)
            os.kill(pid, HOW[number % len(HOW)])
            begin = time.perf_counter()
            while True:
                silences += (await get(port, "/livez"))[0] != 200
                status, told = await get(port, "/readyz")
                if status == 200 and told["pid"] != pid:
                    break
                if time.perf_counter() - begin > 30:
                    raise SystemExit("it does not come back")
                await asyncio.sleep(0.02)
            waited.append(time.perf_counter() - begin)
            await asyncio.sleep(0.3 + draw.random() / 2)
            worst = max(worst, sum(reply.status != 200 for _, reply in replies[seen:]))
    return waited, silences, worst, Counter(reply.status for _, reply in replies)


# ------------------------------------------------------------------------------------------------------- drains


async def drain(port: int, front: subprocess.Popen[bytes], after: float) -> list[Reply]:
    """All replies of clients that go on asking until nobody is there."""
    async with load(port, requests_of(TOGETHER, BEAM)) as replies:
        await asyncio.sleep(after)
        front.send_signal(signal.SIGTERM)
        while front.poll() is None:
            await asyncio.sleep(0.02)
    return [reply for _, reply in replies]


def drains(model: Path, times: int) -> tuple[int, int, list[float]]:
    """Of those let in: how many were not answered, how many were. And how long stopping took."""
    lost = answered = 0
    took, draw = list[float](), random.Random(2)
    for _ in range(times):
        with tempfile.TemporaryFile() as log, served(model, *FREE, threads=2, log=log) as (port, front):
            begin = time.perf_counter()
            wait = draw.random()
            replies = asyncio.run(drain(port, front, wait))
            took.append(time.perf_counter() - begin - wait - 0.5)
            log.seek(0)
            said = re.search(rb"([\d,]+) requests let in, ([\d,]+) answered", log.read())
            assert said is not None, "it did not say how many"
        inside = int(said[1].replace(b",", b""))
        got = sum(reply.status == 200 for reply in replies)
        lost += inside - got
        answered += got
        odd = {reply.status for reply in replies} - {200, 503, 0}
        assert not odd, odd
    return lost, answered, took


# -------------------------------------------------------------------------------------------------------- swaps


async def swaps(port: int, front: subprocess.Popen[bytes], link: Path, models: Sequence[Path], times: int) -> list[Any]:
    """Every reply while one model follows the other."""
    async with load(port, requests_of(TOGETHER, BEAM)) as replies:
        for number in range(times):
            before = (await get(port, "/readyz"))[1]["version"]
            new = link.with_name("new")
            new.symlink_to(models[(number + 1) % 2])
            new.replace(link)
            front.send_signal(signal.SIGHUP)
            async with asyncio.timeout(30):
                while (await get(port, "/readyz"))[1].get("version") == before:
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.2)
    return replies


def mixed(replies: Sequence[tuple[int, Reply]], models: Sequence[Path]) -> tuple[int, int, int]:
    """How many answers are not wholly of the model that they name, how many of which are of the other, of how many."""
    lines = sentences()
    expected: dict[str, list[str]] = {}
    for model in models:
        translator = heedful.load(model, threads=2)
        version = file_sha256(translator.bundle.folder / "manifest.json")[:12]
        expected[version] = [one.text for one in translator(lines, beam=BEAM)]
    assert len(expected) == 2
    strange = other = count = 0
    for number, reply in replies:
        if reply.status != 200:
            continue
        count += 1
        tree = json.loads(reply.body)
        said = [one["text"] for one in tree["translations"]]
        place = slice(number * TOGETHER, number * TOGETHER + TOGETHER)
        (foreign,) = (texts for version, texts in expected.items() if version != tree["version"])
        pairs = list(zip(said, expected[tree["version"]][place], foreign[place], strict=True))
        strange += any(one != own for one, own, _ in pairs)
        other += any(one != own and one == theirs for one, own, theirs in pairs)
    return strange, other, count


# ------------------------------------------------------------------------------------------------------ leavers


async def leavers(port: int, count: int) -> None:
    """Clients that ask and hang up, as a page does for who types on, while others keep the engine busy."""
    bodies, draw = requests_of(1, 5), random.Random(3)

    async def one(number: int) -> None:
        data = json.dumps(bodies[number % len(bodies)]).encode()
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n" % len(data) + data
        )
        await asyncio.sleep(draw.random() / 20)
        writer.close()

    async with load(port, requests_of(32, 5), 10):
        for number in range(count):
            await asyncio.sleep(0.03)
            await one(number)
        await asyncio.sleep(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--other", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    header(__file__)
    killed, stopped, swapped, left = (6, 2, 4, 100) if given.quick else (100, 50, 50, 1000)
    with served(given.model, *FREE, threads=2) as (port, front):
        waited, silences, worst, statuses = asyncio.run(deaths(port, front, killed))
        counts = metrics(port)
    late = sorted(waited)
    within = late[int(0.95 * len(late)) - 1]
    again, poison = (counts[f"heedful_{name}_total"] for name in ("retried", "poison"))
    print(
        f"{killed} deaths: ready again after {statistics.median(waited):.2f} s (median), 95 % within {within:.2f} s, "
        f"all within {late[-1]:.2f} s; statuses {dict(statuses)}; {again:.0f} requests tried again, {poison:.0f} taken "
        f"for poison; front silent {silences} times",
        flush=True,
    )
    lost, answered, took = drains(given.model, stopped)
    seconds = statistics.median(took)
    print(f"{stopped} drains: {answered:,} let in and answered, {lost} lost; {seconds:.2f} s each", flush=True)
    models = (given.model.resolve(), given.other.resolve())
    with tempfile.TemporaryDirectory() as place:
        link = Path(place) / "model"
        link.symlink_to(models[0])
        with served(link, *FREE, threads=2) as (port, front):
            replies = asyncio.run(swaps(port, front, link, models, swapped))
    strange, other, count = mixed(replies, models)
    failed = sum(reply.status != 200 for _, reply in replies)
    print(
        f"{swapped} swaps: {count:,} answers, {failed} failed, {other} mixed with the other model, "
        f"{strange} with a text that differs by its batch",
        flush=True,
    )
    with served(given.model, *FREE, "--queue", "10", threads=2) as (port, _):
        asyncio.run(leavers(port, left))
        counts = metrics(port)
    wasted = counts["heedful_wasted_tokens_total"] / counts["heedful_batched_tokens_total"]
    dropped = counts["heedful_left_total"]
    print(f"{left:,} who left: {dropped:.0f} dropped before their turn, {100 * wasted:.2f} % of the tokens for nobody")
    code = verdict(
        [
            ("3 s - until ready again (95 %)", 3.0 - within, 0.0),
            ("5 s - until ready again (all)", 5.0 - late[-1], 0.0),
            ("times that the front was silent (minus)", -silences, 0),
            ("requests with an error for one death (minus; a batch holds up to 20)", -worst, -20),
            ("requests let in and lost at a drain (minus)", -lost, 0),
            ("requests that failed at a swap (minus)", -failed, 0),
            ("answers that mix two models (minus)", -other, 0),
            ("share of the tokens for those who left (minus)", -wasted, -0.01),
        ]
    )
    what = f"{killed} deaths, {stopped} drains, {swapped} swaps, {left:,} leavers"
    print(f"{what}: {lost + failed + other} requests lost or mixed")
    return code


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())

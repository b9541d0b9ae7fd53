"""What the benchmarks of the server share: a server in a process of its own, and a client that waits for nobody."""

import asyncio
import contextlib
import gzip
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")) / "multi30k"


def sentences() -> list[str]:
    """A thousand to translate."""
    with gzip.open(DATA / "test_2016_flickr.en.gz", "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def requests_of(size: int, beam: int) -> list[Any]:
    """They, so many in a request."""
    lines = sentences()
    return [{"texts": lines[at : at + size], "beam": beam} for at in range(0, len(lines) - size + 1, size)]


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def served(
    model: Path, *options: str, threads: int | None = None, log: Any = subprocess.DEVNULL
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """`heedful serve` on a free port, until the end; `log` gets what it says."""
    port = free_port()
    command = [sys.executable, "-m", "heedful", "serve", str(model), "--port", str(port), *options]
    command += ["--threads", str(threads)] if threads else []
    process = subprocess.Popen(command, stdout=log)
    try:
        wait_ready(port, process)
        yield port, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(40)
        process.kill()
        process.wait()


def wait_ready(port: int, process: subprocess.Popen[bytes], seconds: float = 60.0) -> float:
    """How long until it is ready."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        if process.poll() is not None:
            raise SystemExit(f"the server ended with {process.returncode}")
        with contextlib.suppress(OSError):
            if told(port)["ready"]:
                return time.perf_counter() - begin
        time.sleep(0.05)
    raise SystemExit("the server does not get ready")


def told(port: int) -> dict[str, Any]:
    """/readyz."""
    with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
        found: dict[str, Any] = json.load(response)
    return found


def metrics(port: int) -> dict[str, float]:
    """/metrics, by name."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
        lines = response.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def resident(pid: int) -> int:
    """Bytes of memory of a process and its children."""
    total = 0
    for one in [pid, *children(pid)]:
        with contextlib.suppress(OSError, IndexError):
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def children(pid: int) -> list[int]:
    """The processes that one started."""
    with contextlib.suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


# ------------------------------------------------------------------------------------------------------- the client


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a request."""

    status: int  # 0: the connection was lost
    seconds: float
    body: bytes
    headers: Mapping[str, str]
    ended: float  # when


class Client:
    """HTTP over kept connections, as many as are needed at once."""

    def __init__(self, port: int, patience: float = 60.0) -> None:
        self.port, self.patience = port, patience
        self.idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, path: str, tree: Any, headers: str = "") -> Reply:
        """Send JSON, and read the answer; a kept connection that the server closed meanwhile is replaced."""
        data = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(data)}\r\n"
        begin, kept = time.perf_counter(), True
        while kept:
            try:
                kept = bool(self.idle)
                reader, writer = self.idle.pop() if kept else await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    writer.write(f"{head}{headers}\r\n".encode() + data)
                    async with asyncio.timeout(self.patience):
                        status, told, body = await answer(reader)
                except BaseException:
                    writer.close()
                    raise
                self.idle.append((reader, writer))
                now = time.perf_counter()
                return Reply(status, now - begin, body, told, now)
            except TimeoutError:
                break
            except (OSError, asyncio.IncompleteReadError, ValueError, IndexError):
                continue
        return Reply(0, time.perf_counter() - begin, b"", {}, time.perf_counter())

    def close(self) -> None:
        """All that is kept."""
        for _, writer in self.idle:
            writer.close()
        self.idle.clear()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a response."""
    status = int((await reader.readuntil(b"\r\n")).split()[1])
    headers: dict[str, str] = {}
    while line := (await reader.readuntil(b"\r\n")).strip():
        name, _, value = line.decode().partition(":")
        headers[name.lower()] = value.strip()
    return status, headers, await reader.readexactly(int(headers.get("content-length", 0)))


async def open_loop(
    client: Client, bodies: Sequence[Any], rate: float, seconds: float, seed: int = 1, path: str = "/v1/translate"
) -> list[Reply]:
    """Requests at random moments, `rate` a second on average, whether or not the ones before were answered."""
    draw, replies, tasks = random.Random(seed), list[Reply](), set[asyncio.Task[None]]()
    bodies = [json.dumps(body).encode() for body in bodies]

    async def one(number: int) -> None:
        replies.append(await client.post(path, bodies[number % len(bodies)]))

    end, due, number = time.perf_counter() + seconds, time.perf_counter(), 0
    while due < end:
        due += draw.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.create_task(one(number))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        number += 1
    await asyncio.gather(*tasks)
    return replies


async def closed_loop(
    client: Client, bodies: Sequence[Any], clients: int, seconds: float, path: str = "/v1/translate"
) -> list[Reply]:
    """So many clients, each asking again when it was answered; who is refused waits a little, as one should."""
    replies, end = list[Reply](), time.perf_counter() + seconds

    async def one(number: int) -> None:
        while time.perf_counter() < end:
            replies.append(await client.post(path, bodies[number % len(bodies)]))
            number += clients
            if replies[-1].status != 200:
                await asyncio.sleep(0.2)

    await asyncio.gather(*(one(number) for number in range(clients)))
    return replies

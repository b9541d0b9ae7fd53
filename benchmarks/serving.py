"""Shared by the server benchmarks: a small model, a server process and an asyncio HTTP client."""

import asyncio
import contextlib
import gzip
import json
import os
import random
import re
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

import numpy as np

from heedful.bundle import is_export, open_bundle, open_export, read_weights, write_bundle
from heedful.exporters.api import export
from heedful.samples import model as sample_model
from heedful.samples import sample_folder

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")) / "multi30k"
SAMPLE = "pt-en"
DIRECTIONS = (("pt", "en"), ("en", "de"), ("ru", "en"))  # of the sample's copies: en is a pivot


# ------------------------------------------------------------------------------------------------------- the model


def export_sample(
    folder: Path, *, noise: float = 0.0, max_length: int | None = None, languages: tuple[str, str] = DIRECTIONS[0]
) -> Path:
    """The bundled Portuguese-English sample as an int8 export for CTranslate2 in `folder`, for runs without a model.

    `noise` is added to the weights, in shares of their deviation: a model that translates otherwise. `max_length`
    limits translations to so many tokens. With other `languages`, it is the same model under another name.
    """
    bundle = open_bundle(sample_model(SAMPLE))
    generation = bundle.generation.model_copy(update={"max_length": max_length} if max_length else {})
    random_numbers = np.random.default_rng(1)
    weights = {
        name: (array + noise * array.std() * random_numbers.standard_normal(array.shape)).astype(array.dtype)
        if ".layers." in name  # not tied tables, which have several names
        else array
        for name, array in read_weights(bundle).items()
    }
    model = write_bundle(
        folder.with_name(f"{folder.name}-model"),
        model=bundle.model,
        weights=weights,
        tokenizers=bundle.tokenizers,
        languages=languages,
        card="# The bundled sample\n",
        generation=generation,
        statistics=bundle.statistics,
    )
    export(model.folder, folder, to="ctranslate2", quantization="int8", probes=sample_lines("valid.pt"))
    return folder


def export_samples(folder: Path, count: int, *, max_length: int | None = None) -> list[Path]:
    """Copies of the sample with different languages: equally fast models of one server."""
    folder.mkdir(exist_ok=True)
    return [
        export_sample(folder / "-".join(languages), max_length=max_length, languages=languages)
        for languages in DIRECTIONS[:count]
    ]


def sample_lines(name: str) -> list[str]:
    """The lines of a file of the bundled sample, such as test.pt."""
    return gzip.decompress((sample_folder(SAMPLE) / f"{name}.gz").read_bytes()).decode().splitlines()


def translates_portuguese(model: Path) -> bool:
    """Whether a model is the bundled sample, or another from Portuguese; the others translate English."""
    bundle = open_export(model).bundle if is_export(model) else open_bundle(model)
    return bundle.description.source == "pt"


def read_sentences(model: Path) -> list[str]:
    """1,000 sentences for a model: the bundled sample's own, or the English test set test_2016_flickr of Multi30k."""
    if translates_portuguese(model):
        return sample_lines("valid.pt") + sample_lines("test.pt")
    with gzip.open(DATA / "test_2016_flickr.en.gz", "rt", encoding="utf-8") as file:
        return file.read().splitlines()


def make_requests(models: Path | Sequence[Path], num_sentences: int, beam: int) -> list[Any]:
    """Bodies for /v1/translate with `num_sentences` each, for one model after another."""
    models = as_list(models)
    lines = read_sentences(models[0])
    starts = range(0, len(lines) - num_sentences + 1, num_sentences)
    return [
        {"texts": lines[start : start + num_sentences], "beam": beam, **select_model(models, number)}
        for number, start in enumerate(starts)
    ]


def select_model(models: Sequence[Path], number: int) -> dict[str, str]:
    """The field of a request that selects one of several models."""
    return {"model": models[number % len(models)].name} if len(models) > 1 else {}


def as_list(models: Path | Sequence[Path]) -> Sequence[Path]:
    return [models] if isinstance(models, Path) else models


# ------------------------------------------------------------------------------------------------------ the server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def run_server(
    models: Path | Sequence[Path], *options: str, threads: int | None = None, log: Any = subprocess.DEVNULL
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """`heedful serve` on a free port as a context manager; its stdout goes to `log`.

    `threads` are those of a single model; several models share the cores as the command decides.
    """
    port, paths = free_port(), [str(model) for model in as_list(models)]
    command = [sys.executable, "-m", "heedful", "serve", *paths, "--port", str(port), *options]
    command += ["--threads", str(threads)] if threads and len(paths) == 1 else []
    process = subprocess.Popen(command, stdout=log)
    try:
        wait_until_ready(port, process)
        yield port, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(40)
        process.kill()
        process.wait()


def wait_until_ready(port: int, process: subprocess.Popen[bytes], timeout_seconds: float = 60.0) -> float:
    """Wait for /readyz; returns the seconds it took."""
    begin = time.perf_counter()
    while time.perf_counter() - begin < timeout_seconds:
        if process.poll() is not None:
            raise SystemExit(f"the server exited with {process.returncode}")
        with contextlib.suppress(OSError):
            if read_readiness(port)["ready"]:
                return time.perf_counter() - begin
        time.sleep(0.05)
    raise SystemExit("the server did not become ready")


def read_readiness(port: int) -> dict[str, Any]:
    """The JSON of /readyz."""
    with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
        readiness: dict[str, Any] = json.load(response)
    return readiness


def worker_pids(readiness: Mapping[str, Any]) -> list[int]:
    """The process of each model, from the JSON of /readyz."""
    return [model["pid"] for model in readiness["models"]]


def read_metrics(port: int) -> dict[str, float]:
    """The values of /metrics by name, summed over the models."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
        lines = response.read().decode().splitlines()
    values: dict[str, float] = {}
    for line in lines:
        if line[0] != "#":
            name, _, value = re.sub(r"\{model=.*\}", "", line).rpartition(" ")
            values[name] = values.get(name, 0.0) + float(value)
    return values


def resident_bytes(pid: int) -> int:
    """Resident memory of a process and its children."""
    total = 0
    for process in [pid, *child_pids(pid)]:
        with contextlib.suppress(OSError, IndexError):
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def child_pids(pid: int) -> list[int]:
    """The direct children of a process."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


# ------------------------------------------------------------------------------------------------------- the client


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to a request."""

    status: int  # 0: the connection was lost
    seconds: float
    body: bytes
    headers: Mapping[str, str]
    ended_at: float  # time.perf_counter


class Client:
    """An HTTP client with keep-alive connections, one per concurrent request."""

    def __init__(self, port: int, timeout_seconds: float = 60.0) -> None:
        self.port, self.timeout_seconds = port, timeout_seconds
        self.idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, path: str, body: Any, headers: str = "") -> Reply:
        """Post JSON; an idle connection that the server closed is replaced."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(data)}\r\n"
        begin, is_reused = time.perf_counter(), True
        while is_reused:
            try:
                is_reused = bool(self.idle)
                reader, writer = self.idle.pop() if is_reused else await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    writer.write(f"{head}{headers}\r\n".encode() + data)
                    async with asyncio.timeout(self.timeout_seconds):
                        status, response_headers, response_body = await read_response(reader)
                except BaseException:
                    writer.close()
                    raise
                self.idle.append((reader, writer))
                now = time.perf_counter()
                return Reply(status, now - begin, response_body, response_headers, now)
            except TimeoutError:
                break
            except (OSError, asyncio.IncompleteReadError, ValueError, IndexError):
                continue
        return Reply(0, time.perf_counter() - begin, b"", {}, time.perf_counter())

    def close(self) -> None:
        for _, writer in self.idle:
            writer.close()
        self.idle.clear()


async def read_response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
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
    """Poisson arrivals of `rate` requests per second, regardless of earlier responses."""
    generator, replies, tasks = random.Random(seed), list[Reply](), set[asyncio.Task[None]]()
    bodies = [json.dumps(body).encode() for body in bodies]

    async def send(number: int) -> None:
        replies.append(await client.post(path, bodies[number % len(bodies)]))

    end, due, number = time.perf_counter() + seconds, time.perf_counter(), 0
    while due < end:
        due += generator.expovariate(rate)
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.create_task(send(number))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        number += 1
    await asyncio.gather(*tasks)
    return replies


async def closed_loop(
    client: Client, bodies: Sequence[Any], num_clients: int, seconds: float, path: str = "/v1/translate"
) -> list[Reply]:
    """Clients that send the next request when they have a response; after an error they pause."""
    replies, end = list[Reply](), time.perf_counter() + seconds

    async def run_client(number: int) -> None:
        while time.perf_counter() < end:
            replies.append(await client.post(path, bodies[number % len(bodies)]))
            number += num_clients
            if replies[-1].status != 200:
                await asyncio.sleep(0.2)

    await asyncio.gather(*(run_client(number) for number in range(num_clients)))
    return replies

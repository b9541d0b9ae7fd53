"""How the server is: for those who watch it, and a page for those who try it."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse

from heedful.serve.batcher import Refused
from heedful.serve.page import headers, page
from heedful.serve.requests import address, answered
from heedful.serve.state import Served

LOOK = 500  # letters of a sentence that is looked into
LOOKING = 60.0  # seconds
COST = 2000.0  # tokens of a client's share that a look costs


@answered
async def livez(_: Request, __: Served) -> Any:
    """Whether this process answers."""
    return {"live": True}


@answered
async def readyz(_: Request, served: Served) -> Any:
    """Whether it would translate now."""
    faults = served.faults
    return JSONResponse({"ready": not faults, "faults": faults, **served.about}, 503 if faults else 200)


def rows(served: Served) -> Iterator[tuple[str, str, dict[int, float] | float]]:
    """What is counted: its name, what it means, and its value or its values by status."""
    counts, batcher, engine = served.batcher.counts, served.batcher, served.engine
    yield "admitted_total", "requests let into the queue", counts.admitted
    yield "answered_total", "requests translated", counts.answered
    yield "left_total", "requests whose client went before their turn came", counts.left
    yield "expired_total", "requests whose time was over before their turn came", counts.expired
    yield "batches_total", "batches translated", counts.batches
    yield "batched_tokens_total", "tokens in them, about", counts.batched
    yield "wasted_tokens_total", "tokens of those whose client went while they were at work, about", counts.wasted
    yield "retried_total", "requests tried again after a crash", counts.retried
    yield "poison_total", "requests that crashed the engine, also alone", counts.poison
    yield "wait_seconds_total", "seconds that requests spent in the queue", counts.waited
    yield "work_seconds_total", "seconds that the engine worked", counts.worked
    yield "engine_restarts_total", "engines started after a death", engine.restarts
    yield "engine_swaps_total", "models put in the place of others", engine.swaps
    yield "characters_total", "characters translated", served.characters.total()
    yield "queue_tokens", "tokens in the queue, about", batcher.queued
    yield "queue_capacity_tokens", "tokens that may be in the queue", batcher.capacity
    yield "working_tokens", "tokens at the engine, about", batcher.working
    yield "open_documents", "documents being translated", batcher.open
    yield "pace_tokens_per_second", "how quick the engine is, about", batcher.pace
    yield "up_seconds", "seconds since the start", time.monotonic() - served.began
    yield "ready", "whether it would translate now", float(not served.faults)
    yield "responses_total", "responses by status", dict(served.statuses)
    yield "refused_total", "refusals by status", dict(counts.refused)


@answered
async def metrics(_: Request, served: Served) -> Any:
    """For Prometheus."""
    lines = []
    for name, meaning, value in rows(served):
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP heedful_{name} {meaning}", f"# TYPE heedful_{name} {kind}"]
        if isinstance(value, dict):
            lines += [f'heedful_{name}{{status="{status}"}} {many:g}' for status, many in sorted(value.items())]
        else:
            lines.append(f"heedful_{name} {value:.12g}")
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


@answered
async def home(_: Request, served: Served) -> Any:
    """A page to try it."""
    return HTMLResponse(page(served.about), headers=headers())


@answered
async def inspect(request: Request, served: Served) -> Any:
    """A page that shows what the model does with a sentence: attention, search, probabilities."""
    folder, text = served.settings.inspects, " ".join(request.query_params.get("text", "").split())
    if folder is None:
        raise Refused(404, "one cannot look inside here: serve a model directory where PyTorch is installed")
    if not text or len(text) > LOOK:
        raise Refused(422, f"text: a sentence of at most {LOOK} letters")
    if served.looking.locked():  # each is a process with PyTorch in it
        raise served.batcher.refused(503, "somebody is looking: one at a time", 5.0)
    async with served.looking:
        if wait := served.buckets.spend(served.client(address(request), None), COST):
            raise served.batcher.refused(429, "you have asked for much in a short time: wait a little", wait)
        return HTMLResponse(await looked(folder, text))


async def looked(folder: Path, text: str) -> bytes:
    """What `heedful inspect` writes, by a process of its own, as it loads the model."""
    with tempfile.TemporaryDirectory() as place:
        given, out = Path(place, "text"), Path(place, "page.html")
        given.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "heedful", "inspect", str(folder), "--file", str(given), "--out", str(out)]
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
        try:
            await asyncio.wait_for(process.wait(), LOOKING)
        except TimeoutError:
            raise Refused(504, "looking took too long: try a shorter sentence") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode or not out.is_file():
            raise Refused(503, "the model could not be looked into: the server's log says why", 60.0)
        return out.read_bytes()

"""Health checks, metrics, the page at /, the inspection of a sentence and the page that contains a model."""

import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response

from heedful.serve import native
from heedful.serve.page import page_headers, render_page
from heedful.serve.rejection import RATE_LIMITED, RequestRejected
from heedful.serve.requests import client_address, endpoint
from heedful.serve.state import ServedModel, ServerState

MAX_INSPECT_CHARACTERS = 500
INSPECT_TIMEOUT_SECONDS = 60.0
INSPECT_COST_TOKENS = 2000.0  # taken from the client's rate limit
LIVE_COST_TOKENS = 20_000.0  # a page of megabytes


@endpoint
async def livez(_: Request, __: ServerState) -> Any:
    """Whether the server process responds."""
    return {"live": True}


@endpoint
async def readyz(_: Request, state: ServerState) -> Any:
    """Whether a request to any model would be translated now, and which models are served.

    With one model, its description is part of the object; it is also in `models`.
    """
    faults, models = state.faults, state.describe_models()
    only_model = models[0] if len(models) == 1 else {}
    return JSONResponse({"ready": not faults, "faults": faults, **only_model, "models": models}, 503 if faults else 200)


def collect_metrics(state: ServerState) -> Iterator[tuple[str, str, dict[int, float] | float]]:
    """Yield name, description, and value (or values by HTTP status) of each metric of the server."""
    admission = state.admission
    yield "characters_total", "characters translated", state.characters_by_account.total()
    yield "open_documents", "documents being translated", admission.num_open_documents
    yield "uptime_seconds", "seconds since the start", time.monotonic() - state.start_time
    yield "ready", "whether a request would be translated now", float(not state.faults)
    yield "responses_total", "responses by status", dict(state.responses_by_status)
    yield "rejected_total", "rejected requests by status", dict(admission.rejected_by_status)


def collect_model_metrics(model: ServedModel) -> Iterator[tuple[str, str, float]]:
    """Yield name, description and value of each metric of a model."""
    batcher, supervisor = model.batcher, model.supervisor
    counters, queue = batcher.counters, batcher.queue
    yield "admitted_total", "requests admitted to the queue", counters.admitted
    yield "answered_total", "requests translated", counters.answered
    yield "disconnected_total", "requests whose client disconnected before translation", counters.disconnected
    yield "expired_total", "requests that timed out before translation", counters.expired
    yield "batches_total", "batches translated", counters.batches
    yield "batched_tokens_total", "estimated tokens of translated batches", counters.batched_tokens
    yield (
        "wasted_tokens_total",
        "estimated tokens of requests whose client disconnected during translation",
        counters.wasted_tokens,
    )
    yield "retried_total", "requests retried after a crash of the engine", counters.retried
    yield "poison_total", "requests that crashed the engine when translated alone", counters.poison
    yield "wait_seconds_total", "seconds that requests spent in the queue", counters.wait_seconds
    yield "work_seconds_total", "seconds that the engine spent on batches", counters.work_seconds
    yield "engine_restarts_total", "restarts of the engine's process", supervisor.num_restarts
    yield "engine_swaps_total", "replacements of the model", supervisor.num_swaps
    yield "queue_tokens", "estimated tokens in the queue", queue.queued_tokens
    yield "queue_capacity_tokens", "estimated tokens that may be queued or running", queue.capacity_tokens
    yield "running_tokens", "estimated tokens of the running batch", queue.running_tokens
    yield (
        "throughput_tokens_per_second",
        "estimated tokens that the engine translates per second",
        batcher.throughput.tokens_per_second,
    )


@endpoint
async def metrics(_: Request, state: ServerState) -> Any:
    """Metrics in the Prometheus format; with several models, those of a model have the label `model`."""
    descriptions, samples = dict[str, str](), dict[str, list[str]]()
    for name, description, value in collect_metrics(state):
        values = value.items() if isinstance(value, dict) else [(None, value)]
        descriptions[name] = description
        samples[name] = [
            ("" if status is None else f'{{status="{status}"}}') + f" {count:.12g}" for status, count in sorted(values)
        ]
    for model_name, model in state.models.items():
        label = f"{{model={json.dumps(model_name)}}}" if len(state.models) > 1 else ""
        for name, description, value in collect_model_metrics(model):
            descriptions[name] = description
            samples.setdefault(name, []).append(f"{label} {value:.12g}")
    lines = []
    for name, description in descriptions.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# HELP heedful_{name} {description}", f"# TYPE heedful_{name} {kind}"]
        lines += [f"heedful_{name}{sample}" for sample in samples[name]]
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


@endpoint
async def home(_: Request, state: ServerState) -> Any:
    """The page that translates while you type."""
    return HTMLResponse(render_page(native.describe_directions(state)), headers=page_headers())


def select_model(request: Request, state: ServerState, advice: str) -> str:
    """The model that translates the requested direction on its own."""
    query = request.query_params
    route = state.select_route(query.get("source"), query.get("target"), query.get("model"))
    if route.via is not None:
        raise RequestRejected(404, f"{route} is translated by two models: {advice}")
    return route.models[0]


@endpoint
async def inspect(request: Request, state: ServerState) -> Any:
    """A page with attention, search and probabilities of a sentence, for a model that translates it directly."""
    model = select_model(request, state, "inspect each step separately")
    model_dir, text = state.settings.inspect_dirs.get(model), " ".join(request.query_params.get("text", "").split())
    if model_dir is None:
        raise RequestRejected(
            404, "inspection is not available: it needs a model directory, PyTorch and a server without API keys"
        )
    if not text or len(text) > MAX_INSPECT_CHARACTERS:
        raise RequestRejected(422, f"text: send a sentence of 1 to {MAX_INSPECT_CHARACTERS} characters")
    if state.inspect_lock.locked():  # each one is a process that loads PyTorch
        raise state.admission.reject(503, "another inspection is running", 5.0)
    async with state.inspect_lock:
        client = state.require_client(client_address(request), None)
        if retry_after := state.rate_limiter.spend(client, INSPECT_COST_TOKENS):
            raise state.admission.reject(429, RATE_LIMITED, retry_after)
        return HTMLResponse(await run_inspect(model_dir, text))


@endpoint
async def live(request: Request, state: ServerState) -> Any:
    """A page that contains a model and runs it in the browser; only with `heedful serve --live`."""
    page = state.settings.live_pages.get(select_model(request, state, "open the live page of each one"))
    if page is None:
        raise RequestRejected(
            404, "there is no live page: start the server with --live, which gives the model's weights to every visitor"
        )
    headers = live_headers(page)
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    client = state.require_client(client_address(request), None)
    if retry_after := state.rate_limiter.spend(client, LIVE_COST_TOKENS):
        raise state.admission.reject(429, RATE_LIMITED, retry_after)
    return FileResponse(page, headers=headers, media_type="text/html")


@cache
def live_headers(page: Path) -> dict[str, str]:
    """The page's own policy also as a header, which can forbid frames; the name of the file has the model's hash."""
    with page.open(encoding="utf-8") as file:
        policy = re.search(r'"Content-Security-Policy" content="([^"]+)"', file.read(10_000))
    if policy is None:
        raise ValueError(f"{page} has no Content-Security-Policy")
    return {
        "Content-Security-Policy": f"{policy[1]}; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
        "ETag": f'"{page.stem}"',
    }


async def run_inspect(model_dir: Path, text: str) -> bytes:
    """Return the page of `heedful inspect`, which runs in a separate process because it loads the model."""
    with tempfile.TemporaryDirectory() as temporary_dir:
        source, page = Path(temporary_dir, "text"), Path(temporary_dir, "page.html")
        source.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "heedful", "inspect", str(model_dir)]
        command += ["--file", str(source), "--out", str(page), "--no-evidence"]
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL)
        try:
            await asyncio.wait_for(process.wait(), INSPECT_TIMEOUT_SECONDS)
        except TimeoutError:
            raise RequestRejected(504, "the inspection timed out: try a shorter sentence") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode or not page.is_file():
            raise RequestRejected(503, "the inspection failed, see the server's log", 60.0)
        return page.read_bytes()

"""The server process: connections, timeouts, signals, updates of models and keys."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from heedful.bundle import INNER_FOLDER
from heedful.data.store import MANIFEST
from heedful.errors import HeedfulError
from heedful.serve.app import create_app
from heedful.serve.auth import read_keys
from heedful.serve.rejection import OVERLOADED, retry_hint
from heedful.serve.state import ServerSettings, ServerState
from heedful.serve.supervisor import WorkerSupervisor, start_workers

HEAD_TIMEOUT_SECONDS = 10.0  # for receiving the headers of a request
WRITE_TIMEOUT_SECONDS = 30.0  # for a client that does not read its response
KEEP_ALIVE_SECONDS = 5  # between two requests on a connection
MODEL_POLL_SECONDS = 2.0
MAX_MODEL_POLL_SECONDS = 60.0  # after failed swaps
KEYS_POLL_SECONDS = 1.0
MAX_CONNECTIONS = 1024
SPARE_FILES = 64  # file descriptors that are not client connections
DRAIN_NOTICE_SECONDS = 0.5  # during which new requests still get a 503 after SIGTERM
FLUSH_SECONDS = 2  # for sending the last responses


def overloaded_response(retry_after: int) -> bytes:
    """Return a 503 for a connection that is closed before its request is read."""
    body = json.dumps({"error": f"{OVERLOADED}: {retry_hint(retry_after)}"})
    return (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        f"Retry-After: {retry_after}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


class TimeoutProtocol(H11Protocol):
    """uvicorn's HTTP protocol with timeouts for slow clients and a connection limit."""

    head_timer: asyncio.TimerHandle | None = None
    write_timer: asyncio.TimerHandle | None = None
    max_connections = MAX_CONNECTIONS

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.write(overloaded_response(retry_after=2))
            transport.close()
            return
        self.head_timer = self.loop.call_later(HEAD_TIMEOUT_SECONDS, self.close_if_idle)

    def close_if_idle(self) -> None:
        cycle: Any = self.cycle  # None before the first request
        if (cycle is None or cycle.response_complete) and not self.transport.is_closing():
            self.transport.close()

    def on_response_complete(self) -> None:
        self.cancel_timers()
        self.head_timer = self.loop.call_later(HEAD_TIMEOUT_SECONDS, self.close_if_idle)
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.write_timer = self.loop.call_later(WRITE_TIMEOUT_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        if self.write_timer is not None:
            self.write_timer.cancel()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.cancel_timers()
        super().connection_lost(exc)

    def cancel_timers(self) -> None:
        for timer in (self.head_timer, self.write_timer):
            if timer is not None:
                timer.cancel()


class DrainingServer(uvicorn.Server):
    """On SIGTERM or Ctrl-C, rejects new requests and finishes admitted ones; a second signal exits immediately."""

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config)
        self.state, self.grace_seconds = state, state.settings.shutdown_grace_seconds
        self.stop_requested = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # uvicorn's signature
        """Start draining; exit on the second signal. Unlike uvicorn, do not raise the signal again at the end."""
        if self.stop_requested.is_set():
            self.should_exit = self.force_exit = True
        self.stop_requested.set()
        self.loop.call_soon_threadsafe(lambda: None)  # wake the event loop

    async def drain_on_signal(self) -> None:
        """Wait for the signal, drain the queues, then let uvicorn exit."""
        await self.stop_requested.wait()
        deadline = time.monotonic() + self.grace_seconds
        self.state.admission.is_draining = True
        await asyncio.sleep(min(DRAIN_NOTICE_SECONDS, self.grace_seconds))
        await self.state.drain(deadline)
        self.should_exit = True


@dataclass(frozen=True)
class Listener:
    """Where the server listens; with `certificate` (certificate and key, PEM files), it serves HTTPS."""

    host: str
    port: int
    certificate: tuple[Path, Path] | None = None


def run_server(
    model_dirs: Mapping[str, Path],
    listener: Listener,
    settings: ServerSettings,
    threads: int | None = None,
    on_ready: Callable[[ServerState], None] = lambda _state: None,
) -> None:
    """Serve models, by name, until SIGTERM or Ctrl-C, then finish admitted requests.

    `threads` are those of each engine. `on_ready` is called when the server accepts requests.
    """
    asyncio.run(serve_until_stopped(model_dirs, listener, settings, threads, on_ready))


async def serve_until_stopped(
    model_dirs: Mapping[str, Path],
    listener: Listener,
    settings: ServerSettings,
    threads: int | None,
    on_ready: Callable[[ServerState], None],
) -> None:
    """`run_server` as a coroutine."""
    TimeoutProtocol.max_connections = raise_connection_limit()
    max_request_tokens = settings.limits.max_request_tokens
    supervisors = [
        WorkerSupervisor(model_dir, name=name, threads=threads, max_request_tokens=max_request_tokens)
        for name, model_dir in model_dirs.items()
    ]
    await start_workers(supervisors)
    app = create_app(supervisors, settings)
    certificate, key = listener.certificate or (None, None)
    config = uvicorn.Config(
        app,
        host=listener.host,
        port=listener.port,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        http=TimeoutProtocol,
        ws="none",
        log_level="error",
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=FLUSH_SECONDS,
        proxy_headers="FORWARDED_ALLOW_IPS" in os.environ,  # otherwise a client could forge its address
        server_header=False,
    )
    server = DrainingServer(config, app.state)
    reloads = [asyncio.Event() for _ in supervisors]

    def request_reloads() -> None:
        for reload_requested in reloads:
            reload_requested.set()

    if hasattr(signal, "SIGHUP"):  # pragma: no branch  # Windows has none
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, request_reloads)

    async def call_when_ready() -> None:
        while not server.started:
            await asyncio.sleep(0.01)
        on_ready(app.state)

    coroutines = [
        watch_model(supervisor, model_dir, reload_requested)
        for supervisor, model_dir, reload_requested in zip(supervisors, model_dirs.values(), reloads, strict=True)
    ]
    coroutines += [server.drain_on_signal(), call_when_ready()]
    if settings.keys_file is not None:
        coroutines.append(watch_keys(app.state, settings.keys_file))
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]

    try:
        await server.serve()
    finally:
        for task in tasks:
            task.cancel()
    counters = [model.batcher.counters for model in app.state.models.values()]
    admitted, answered = (sum(getattr(each, name) for each in counters) for name in ("admitted", "answered"))
    print_status(f"stopped; {admitted:,} requests admitted, {answered:,} answered")


def raise_connection_limit() -> int:
    """Raise the limit of open files as far as allowed; return how many connections it permits, at most 1,024."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MAX_CONNECTIONS + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(8, min(MAX_CONNECTIONS, soft - SPARE_FILES))


async def watch_model(supervisor: WorkerSupervisor, model_dir: Path, reload_requested: asyncio.Event) -> None:
    """Replace the model when its directory changes or on SIGHUP; the old one serves until the new one is open."""
    served_stamp, poll_seconds = read_model_stamp(model_dir), MODEL_POLL_SECONDS
    while True:
        try:
            await asyncio.wait_for(reload_requested.wait(), poll_seconds)
        except TimeoutError:
            if read_model_stamp(model_dir) in (served_stamp, None):
                poll_seconds = MODEL_POLL_SECONDS
                continue
        reload_requested.clear()
        new_stamp = read_model_stamp(model_dir)
        try:
            await supervisor.swap_model(model_dir)
        except HeedfulError as error:
            poll_seconds = min(2 * poll_seconds, MAX_MODEL_POLL_SECONDS)  # the copy may be incomplete: retry
            print_status(f"keeping the old model, because the new one cannot be opened: {error}")
        else:
            served_stamp, poll_seconds = new_stamp, MODEL_POLL_SECONDS
            info = supervisor.model_info
            print_status(f"now serving {info['model']}, version {info['version']}")


async def watch_keys(state: ServerState, keys_file: Path) -> None:
    """Read the keys file again when it changes; keep the old keys if it cannot be read or contains none."""
    stamp: tuple[int, ...] | None = ()  # read it once more: it may have changed while the models were opened
    while True:
        if (new_stamp := read_file_stamp(keys_file)) != stamp:
            stamp = new_stamp
            try:
                keys = read_keys(keys_file)
            except HeedfulError as error:
                print_status(f"warning: keeping the old keys: {error}")
            else:
                if keys != state.keys:
                    state.keys = keys
                    print_status(f"read {keys_file} again: it has {len(keys):,} key{'s' * (len(keys) != 1)}")
        await asyncio.sleep(KEYS_POLL_SECONDS)


def print_status(message: str) -> None:
    """Print a line for the log; a closed stdout is ignored."""
    with contextlib.suppress(OSError):
        print(f"heedful: {message}", flush=True)  # noqa: T201


def read_model_stamp(model_dir: Path) -> tuple[int, ...] | None:
    """The stamp of the manifest, which changes with the export; None if there is no manifest."""
    return read_file_stamp(model_dir / INNER_FOLDER / MANIFEST)


def read_file_stamp(path: Path) -> tuple[int, ...] | None:
    """Modification time, size and inode of a file, which change with its content; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino

"""The server as a process: sockets, signals, slow clients, another model."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from heedful.bundle import INNER_FOLDER
from heedful.data.store import MANIFEST
from heedful.errors import HeedfulError
from heedful.serve.app import create
from heedful.serve.batcher import BUSY, Batcher
from heedful.serve.state import Settings
from heedful.serve.supervisor import Engine

HEAD = 10.0  # seconds that a client has to say what it wants
STUCK = 30.0  # seconds that a client may leave what is said to it unread
IDLE = 5  # seconds that a connection is kept between two requests
WATCH = 2.0  # seconds between two looks at the model's folder
CONNECTIONS = 1024
GOING = 0.5  # seconds in which newcomers still hear that the server goes down
FLUSH = 2  # seconds for the last answers to be read
FULL = (
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 2\r\nConnection: close\r\n"
    f'Content-Length: {len(BUSY) + 13}\r\n\r\n{{"error": "{BUSY}"}}'
).encode()


class Patient(H11Protocol):
    """HTTP with an end to patience: who connects and says nothing, or says it letter by letter, is shown out."""

    clock: asyncio.TimerHandle | None = None
    unread: asyncio.TimerHandle | None = None
    most = CONNECTIONS

    def connection_made(self, transport: Any) -> None:
        """Start the clock; where there are too many, say so and hang up."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.write(FULL)
            transport.close()
            return
        self.clock = self.loop.call_later(HEAD, self.give_up)

    def give_up(self) -> None:
        """Nothing was asked in time."""
        cycle: Any = self.cycle  # None until something was asked
        if (cycle is None or cycle.response_complete) and not self.transport.is_closing():
            self.transport.close()

    def on_response_complete(self) -> None:
        """The clock starts again for the next request on this connection."""
        self.stop()
        self.clock = self.loop.call_later(HEAD, self.give_up)
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client reads too slowly, or not at all."""
        super().pause_writing()
        self.unread = self.loop.call_later(STUCK, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read on."""
        if self.unread is not None:
            self.unread.cancel()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self.stop()
        super().connection_lost(exc)

    def stop(self) -> None:
        """The clocks."""
        for clock in (self.clock, self.unread):
            if clock is not None:
                clock.cancel()


class Server(uvicorn.Server):
    """One that finishes what it has begun: on SIGTERM or Ctrl-C nobody else is let in, all is served, and then it ends.

    Until then newcomers are answered, with 503 and when to come again. Asked twice, it ends at once.
    """

    def __init__(self, config: uvicorn.Config, batcher: Batcher, grace: float) -> None:
        super().__init__(config)
        self.batcher, self.grace = batcher, grace
        self.asked = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002  # uvicorn's face
        """A signal; it is not raised again at the end, for what was asked has been done."""
        if self.asked.is_set():
            self.should_exit = self.force_exit = True
        self.asked.set()
        self.loop.call_soon_threadsafe(lambda: None)  # wake up

    async def drained(self) -> None:
        """Wait for the signal, then for all who are in."""
        await self.asked.wait()
        until = time.monotonic() + self.grace
        self.batcher.draining = True
        await asyncio.sleep(min(GOING, self.grace))
        await self.batcher.drain(until)
        self.should_exit = True


def run(
    folder: Path,
    host: str,
    port: int,
    settings: Settings,
    threads: int | None = None,
    ready: Callable[[dict[str, Any]], None] = lambda _about: None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; then finish what was admitted."""
    asyncio.run(serve(folder, host, port, settings, threads, ready))


async def serve(
    folder: Path,
    host: str,
    port: int,
    settings: Settings,
    threads: int | None,
    ready: Callable[[dict[str, Any]], None],
) -> None:
    """The same, in a loop that is there already; `ready` is called with what the model speaks when it answers."""
    Patient.most = connections()
    engine = Engine(folder, threads=threads, most=settings.limits.tokens)
    await engine.start()
    app = create(engine, settings)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=Patient,
        ws="none",
        log_level="error",
        access_log=False,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=FLUSH,
        proxy_headers="FORWARDED_ALLOW_IPS" in os.environ,  # else anybody could say to be somebody
        server_header=False,
    )
    server = Server(config, app.served.batcher, settings.grace)
    again = asyncio.Event()
    if hasattr(signal, "SIGHUP"):  # pragma: no branch  # Windows has none
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, again.set)

    async def announced() -> None:
        while not server.started:
            await asyncio.sleep(0.01)
        ready(engine.about)

    tasks = [asyncio.create_task(one) for one in (watch(engine, folder, again), server.drained(), announced())]

    try:
        await server.serve()
    finally:
        for task in tasks:
            task.cancel()
    counts = app.served.batcher.counts
    say(f"stopped; {counts.admitted:,} requests let in, {counts.answered:,} answered")


def connections() -> int:
    """How many connections can be open: as many as the system lets us have files, up to CONNECTIONS."""
    try:
        import resource
    except ImportError:  # Windows, where there is no such limit
        return CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + 64
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return CONNECTIONS if soft == resource.RLIM_INFINITY else max(8, min(CONNECTIONS, soft - 64))


async def watch(engine: Engine, folder: Path, again: asyncio.Event) -> None:
    """Another model in the same place (or SIGHUP): it is opened beside the old one, and then takes its place."""
    seen, pause = version(folder), WATCH
    while True:
        try:
            await asyncio.wait_for(again.wait(), pause)
        except TimeoutError:
            if version(folder) in (seen, None):
                pause = WATCH
                continue
        again.clear()
        now = version(folder)
        try:
            await engine.swap(folder)
        except HeedfulError as error:
            pause = min(2 * pause, 60.0)  # it may still be on its way here: again, later and later
            say(f"the new model is not taken, the old one goes on: {error}")
        else:
            seen, pause = now, WATCH
            say(f"now serving {engine.about['model']}, version {engine.about['version']}")


def say(what: str) -> None:
    """To whoever reads the log, if anybody does."""
    with contextlib.suppress(OSError):
        print(f"heedful: {what}", flush=True)  # noqa: T201


def version(folder: Path) -> tuple[int, int] | None:
    """What changes when another export is put in place; None in the moment when there is none."""
    try:
        state = (folder / INNER_FOLDER / MANIFEST).stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_ino

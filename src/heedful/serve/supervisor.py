"""The engine as the server sees it: a process that is watched, killed when it hangs, and started again when it dies.

    engine = Engine(Path("my-model"), threads=2)
    await engine.start()
    answers = await engine.ask([Ask(["Good morning"], {"beam": 5})])

Nothing of a model is opened on this side. A process that gives no sign of life for SILENT seconds is taken for dead.
Of the jobs that a dead process had, the first was at work and may have been its end (`Crashed`); the others had not
begun, and are given to the next process as if nothing had happened.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.errors import HeedfulError
from heedful.serve.protocol import LARGEST, LENGTH, framed

SILENT = 1.0  # seconds without a sign of life
LONGEST = 600.0  # seconds that one job may take
STARTING = 120.0  # seconds that opening a model may take
PAUSES = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)  # before the next try, after so many failures in a row


class Crashed(Exception):
    """The process died over these asks."""


class Untouched(Exception):
    """The process died before it came to these asks."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Some texts that belong together, and how to translate them."""

    texts: Sequence[str]
    options: Mapping[str, Any]


class Child:
    """One process: it opens a model, or refuses to, and then answers jobs in the order they come."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.about: dict[str, Any] = {}
        self.jobs: dict[int, asyncio.Future[list[Any]]] = {}  # in the order they came
        self.last_beat = self.last_answer = time.monotonic()
        self.number = 0
        self.ended = asyncio.Event()
        self.listener: asyncio.Task[None] | None = None

    @classmethod
    async def born(cls, folder: Path, threads: int | None, most: int) -> "Child":
        """A process that has opened the model and answered once; a HeedfulError says why there is none."""
        command = [sys.executable, "-m", "heedful.serve.worker", str(folder), "--most", str(most)]
        command += ["--threads", str(threads)] if threads else []
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, start_new_session=True)
        except OSError as error:  # no memory, no more processes or files
            raise HeedfulError(f"{folder} cannot be served: no process for it: {error.strerror}") from None
        child = cls(process)
        try:
            first = await asyncio.wait_for(child.message(), STARTING)
        except TimeoutError:
            first = {"refused": f"opening it took more than {STARTING:.0f} seconds"}
        except asyncio.CancelledError:
            child.kill()
            raise
        if first is None or "ready" not in first:
            child.kill()
            await process.wait()
            told = first.get("refused") if first else f"its process ended with {process.returncode}"
            raise HeedfulError(f"{folder} cannot be served: {told}")
        child.about = first["ready"]
        child.last_beat = time.monotonic()
        child.listener = asyncio.create_task(child.listen())
        return child

    async def message(self) -> dict[str, Any] | None:
        """The next frame; None where there will be none."""
        stream = self.process.stdout
        assert stream is not None
        try:
            size = int.from_bytes(await stream.readexactly(LENGTH), "big")
            found: dict[str, Any] | None = json.loads(await stream.readexactly(size)) if size <= LARGEST else None
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            return None
        return found

    async def listen(self) -> None:
        """Hand answers to those who wait; at the end, all who still wait learn what became of their asks."""
        while (message := await self.message()) is not None:
            self.last_beat = time.monotonic()
            if "job" in message and (waiting := self.jobs.pop(message["job"], None)):
                self.last_answer = self.last_beat
                if not waiting.done():
                    waiting.set_result(message["answers"])
        self.kill()
        await self.process.wait()
        self.ended.set()
        for place, waiting in enumerate(self.jobs.values()):
            if not waiting.done():
                told = f"the engine ended with {self.process.returncode}"
                waiting.set_exception(Untouched(told) if place else Crashed(told))
        self.jobs.clear()

    async def ask(self, asks: Sequence[Ask]) -> list[Any]:
        """The answers, in order; Crashed or Untouched where the process does not live to give them."""
        if self.ended.is_set() or self.process.stdin is None:
            raise Untouched("the engine is gone")
        if not self.jobs:
            self.last_answer = time.monotonic()
        self.number += 1
        plain = [{"texts": list(ask.texts), "options": dict(ask.options)} for ask in asks]
        data = framed({"job": self.number, "asks": plain})
        waiting: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.jobs[self.number] = waiting
        try:
            self.process.stdin.write(data)
            await self.process.stdin.drain()
        except (ConnectionError, RuntimeError):
            self.kill()
        return await waiting

    @property
    def hangs(self) -> bool:
        """Whether it gives no sign of life, or no end to a job."""
        now = time.monotonic()
        return now - self.last_beat > SILENT or (bool(self.jobs) and now - self.last_answer > LONGEST)

    def kill(self) -> None:
        """At once, stopped or not.

        Not by `process.kill` where one can do without: it asks for the dead first, and then asyncio cannot say how
        they died.
        """
        if self.process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if hasattr(signal, "SIGKILL"):
                os.kill(self.process.pid, signal.SIGKILL)
            else:  # Windows
                self.process.kill()

    async def leave(self, limit: float = LONGEST) -> None:
        """Hang up; it ends when it has answered. A process that hangs meanwhile, or takes longer, is killed."""
        end = time.monotonic() + limit
        while self.jobs and not self.ended.is_set() and not self.hangs and time.monotonic() < end:
            await asyncio.sleep(0.01)
        if self.process.stdin is not None:
            self.process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), 1)
        self.kill()


class Engine:
    """The child of the day: another one after a crash, and another model on request, while the old one finishes."""

    def __init__(self, folder: Path, *, threads: int | None = None, most: int = 4096) -> None:
        self.folder, self.threads, self.most = folder.resolve(), threads, most  # a link may point elsewhere later
        self.child: Child | None = None
        self.ready = asyncio.Event()
        self.changing = asyncio.Lock()  # one new child at a time, whether for a dead one or for another model
        self.restarts = 0
        self.swaps = 0
        self.answered = 0.0  # when it last did, by the monotonic clock
        self.keeper: asyncio.Task[None] | None = None
        self.leaving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Open the model; a HeedfulError where that cannot be."""
        self.child = await Child.born(self.folder, self.threads, self.most)
        self.answered = time.monotonic()  # once, to be here
        self.ready.set()
        self.keeper = asyncio.create_task(self.keep())

    async def keep(self) -> None:
        """As long as we serve: see that the child lives, and have another where it does not."""
        failures = 0
        while True:
            child = self.child
            assert child is not None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(child.ended.wait(), 0.1)
            if not child.ended.is_set():
                if child.hangs:
                    child.kill()
                continue
            async with self.changing:
                if child is not self.child:
                    continue  # it was swapped, and may end
                self.ready.clear()
                self.restarts += 1
                await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
                try:
                    self.child = await Child.born(self.folder, self.threads, self.most)
                except HeedfulError:
                    failures += 1
                    continue
                failures = 0
                self.ready.set()

    async def swap(self, folder: Path) -> None:
        """Another model: opened first, and only then asked; what the old one has begun it also ends."""
        async with self.changing:
            folder = folder.resolve()
            new = await Child.born(folder, self.threads, self.most)
            old, self.child, self.folder = self.child, new, folder
            self.swaps += 1
            self.ready.set()
        if old is not None:
            task = asyncio.create_task(old.leave())
            self.leaving.add(task)
            task.add_done_callback(self.leaving.discard)

    async def ask(self, asks: Sequence[Ask]) -> list[Any]:
        """The answers of whichever child there is; one job is one child's, so versions never mix."""
        while True:
            await self.ready.wait()
            assert self.child is not None
            try:
                answers = await self.child.ask(asks)
            except Untouched:
                await asyncio.sleep(0.01)  # until the keeper has seen it too
            else:
                self.answered = time.monotonic()
                return answers

    @property
    def about(self) -> dict[str, Any]:
        """What the model says of itself."""
        return self.child.about if self.child else {}

    async def close(self) -> None:
        """End; who had to be answered has been."""
        if self.keeper:
            self.keeper.cancel()
        if self.child:
            await self.child.leave(0.0)
        for task in self.leaving:
            task.cancel()

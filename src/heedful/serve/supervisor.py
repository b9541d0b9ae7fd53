"""Supervises the worker process: kills it if it hangs, restarts it if it dies, replaces it to change the model.

    supervisor = WorkerSupervisor(Path("my-model"), threads=2)
    await supervisor.start()
    results = await supervisor.translate([TranslationJob(["Good morning"], {"beam": 5})])

The server process never opens a model. A worker that sends no heartbeat for HEARTBEAT_TIMEOUT_SECONDS is considered
dead; time in which this process could not run either (a paused virtual machine, a suspended laptop) does not count.
The first pending batch of a dead worker was running and may have caused the crash (`WorkerCrashed`); the others had not
started and are sent to the next worker.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from heedful.errors import HeedfulError
from heedful.serve.protocol import LENGTH_BYTES, MAX_FRAME_BYTES, TranslationJob, encode_frame, encode_job

log = logging.getLogger("heedful")

HEARTBEAT_TIMEOUT_SECONDS = 1.0
MONITOR_SECONDS = 0.1
MAX_BATCH_SECONDS = 600.0
START_TIMEOUT_SECONDS = 120.0  # for opening a model
RESTART_DELAYS_SECONDS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)  # by the number of failed starts in a row


class WorkerCrashed(Exception):
    """The worker died while it translated this batch."""


class NotStarted(Exception):
    """The worker died before it started this batch."""


class WorkerProcess:
    """One process that opens a model and then translates batches in order."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.model_info: dict[str, Any] = {}
        self.results_by_batch: dict[int, asyncio.Future[list[Any]]] = {}  # pending, in the order they were sent
        self.last_heartbeat = self.last_result = time.monotonic()
        self.last_batch_id = 0
        self.ended = asyncio.Event()
        self.reader: asyncio.Task[None] | None = None

    @classmethod
    async def launch(cls, model_dir: Path, threads: int | None, max_request_tokens: int) -> "WorkerProcess":
        """Start a process and wait until the model is open; raise HeedfulError if that fails."""
        command = [sys.executable, "-m", "heedful.serve.worker", str(model_dir)]
        command += ["--max-request-tokens", str(max_request_tokens)]
        command += ["--threads", str(threads)] if threads else []
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, start_new_session=True)
        except OSError as error:  # out of memory, processes or files
            raise HeedfulError(f"{model_dir} cannot be served: cannot start a process: {error.strerror}") from None
        worker = cls(process)
        try:
            first = await asyncio.wait_for(worker.read_message(), START_TIMEOUT_SECONDS)
        except TimeoutError:
            first = {"error": f"opening it took more than {START_TIMEOUT_SECONDS:.0f} seconds"}
        except asyncio.CancelledError:
            worker.kill()
            raise
        if first is None or "ready" not in first:
            worker.kill()
            await process.wait()
            reason = first.get("error") if first else f"its process exited with code {process.returncode}"
            raise HeedfulError(f"{model_dir} cannot be served: {reason}")
        worker.model_info = first["ready"]
        worker.last_heartbeat = time.monotonic()
        worker.reader = asyncio.create_task(worker.read_results())
        return worker

    async def read_message(self) -> dict[str, Any] | None:
        """Return the next frame, or None at the end of the stream."""
        stream = self.process.stdout
        assert stream is not None
        try:
            num_bytes = int.from_bytes(await stream.readexactly(LENGTH_BYTES), "big")
            if num_bytes > MAX_FRAME_BYTES:
                return None
            message: dict[str, Any] = json.loads(await stream.readexactly(num_bytes))
        except (asyncio.IncompleteReadError, ConnectionError, ValueError):
            return None
        return message

    async def read_results(self) -> None:
        """Resolve pending batches until the process ends; the remaining ones then fail."""
        while (message := await self.read_message()) is not None:
            self.last_heartbeat = time.monotonic()
            if "batch" in message and (pending := self.results_by_batch.pop(message["batch"], None)):
                self.last_result = self.last_heartbeat
                if not pending.done():
                    pending.set_result(message["results"])
        self.kill()
        await self.process.wait()
        self.ended.set()
        for position, pending in enumerate(self.results_by_batch.values()):
            if not pending.done():
                reason = f"the worker exited with code {self.process.returncode}"
                pending.set_exception(NotStarted(reason) if position else WorkerCrashed(reason))
        self.results_by_batch.clear()

    async def translate(self, jobs: Sequence[TranslationJob]) -> list[Any]:
        """Return one result per job; raise WorkerCrashed or NotStarted if the process dies first."""
        if self.ended.is_set() or self.process.stdin is None:
            raise NotStarted("the worker has exited")
        if not self.results_by_batch:
            self.last_result = time.monotonic()
        self.last_batch_id += 1
        frame = encode_frame({"batch": self.last_batch_id, "jobs": [encode_job(job) for job in jobs]})
        pending: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.results_by_batch[self.last_batch_id] = pending
        try:
            self.process.stdin.write(frame)
            await self.process.stdin.drain()
        except (ConnectionError, RuntimeError):
            self.kill()
        return await pending

    @property
    def is_hung(self) -> bool:
        """Whether heartbeats are missing or a batch takes too long."""
        now = time.monotonic()
        return now - self.last_heartbeat > HEARTBEAT_TIMEOUT_SECONDS or (
            bool(self.results_by_batch) and now - self.last_result > MAX_BATCH_SECONDS
        )

    def allow_pause(self, seconds: float) -> None:
        """Extend the deadlines by the time that this process itself was paused, as the worker probably was too."""
        if seconds > MONITOR_SECONDS:
            self.last_heartbeat += seconds
            self.last_result += seconds

    def kill(self) -> None:
        """Kill the process immediately, even if it is stopped.

        Avoid `process.kill` where possible: it polls the process first, and then asyncio cannot read the exit code.
        """
        if self.process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if hasattr(signal, "SIGKILL"):
                os.kill(self.process.pid, signal.SIGKILL)
            else:  # Windows
                self.process.kill()

    async def retire(self, timeout_seconds: float = MAX_BATCH_SECONDS) -> None:
        """Wait for pending batches, then stop the process; kill it if it hangs or the timeout passes."""
        deadline = time.monotonic() + timeout_seconds
        while self.results_by_batch and not self.ended.is_set() and not self.is_hung and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if self.process.stdin is not None:
            self.process.stdin.close()
        for _ in range(2):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), 1)
            self.kill()  # then wait again, so that no process is left behind


class WorkerSupervisor:
    """Keeps one worker running: restarts it after a crash, and replaces it without a pause to change the model.

    `name` is the name of the model in the API; by default that of the directory.
    """

    def __init__(
        self, model_dir: Path, *, name: str = "", threads: int | None = None, max_request_tokens: int = 4096
    ) -> None:
        self.name = name or model_dir.name
        self.model_dir = model_dir.resolve()  # a symbolic link may change later
        self.threads, self.max_request_tokens = threads, max_request_tokens
        self.worker: WorkerProcess | None = None
        self.ready = asyncio.Event()
        self.replace_lock = asyncio.Lock()  # one new worker at a time, after a crash or for a new model
        self.num_restarts = 0
        self.num_swaps = 0
        self.last_result_time = 0.0  # monotonic clock
        self.monitor: asyncio.Task[None] | None = None
        self.retiring: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Open the model; raise HeedfulError if that fails."""
        self.worker = await self.launch_worker()
        self.last_result_time = time.monotonic()  # a worker translates once before it is ready
        self.ready.set()
        self.monitor = asyncio.create_task(self.monitor_worker())

    async def launch_worker(self) -> WorkerProcess:
        return await WorkerProcess.launch(self.model_dir, self.threads, self.max_request_tokens)

    async def monitor_worker(self) -> None:
        """Kill the worker if it hangs, and restart it when it has ended."""
        num_failures = 0
        while True:
            worker = self.worker
            assert worker is not None
            began = time.monotonic()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(worker.ended.wait(), MONITOR_SECONDS)
            if not worker.ended.is_set():
                worker.allow_pause(time.monotonic() - began - MONITOR_SECONDS)
                if worker.is_hung:
                    log.warning("%s: the engine does not respond; restarting it", self.name)
                    worker.kill()
                continue
            async with self.replace_lock:
                if worker is not self.worker:
                    continue  # swapped meanwhile
                self.ready.clear()
                self.num_restarts += 1
                log.warning("%s: the engine exited with code %s; restarting it", self.name, worker.process.returncode)
                await asyncio.sleep(RESTART_DELAYS_SECONDS[min(num_failures, len(RESTART_DELAYS_SECONDS) - 1)])
                try:
                    self.worker = await self.launch_worker()
                except HeedfulError:
                    num_failures += 1
                    continue
                num_failures = 0
                self.ready.set()

    async def swap_model(self, model_dir: Path) -> None:
        """Open another model and send new batches to it; the old worker finishes its pending batches."""
        async with self.replace_lock:
            model_dir = model_dir.resolve()
            new_worker = await WorkerProcess.launch(model_dir, self.threads, self.max_request_tokens)
            old_worker, self.worker, self.model_dir = self.worker, new_worker, model_dir
            self.num_swaps += 1
            self.ready.set()
        if old_worker is not None:
            task = asyncio.create_task(old_worker.retire())
            self.retiring.add(task)
            task.add_done_callback(self.retiring.discard)

    async def translate(self, jobs: Sequence[TranslationJob]) -> list[Any]:
        """Return one result per job, all from the same worker, so model versions never mix."""
        while True:
            await self.ready.wait()
            assert self.worker is not None
            try:
                results = await self.worker.translate(jobs)
            except NotStarted:
                await asyncio.sleep(0.01)  # until the monitor has noticed
            else:
                self.last_result_time = time.monotonic()
                return results

    @property
    def model_info(self) -> dict[str, Any]:
        return self.worker.model_info if self.worker else {}

    async def close(self) -> None:
        """Stop the worker without waiting for batches; call it after draining."""
        if self.monitor:
            self.monitor.cancel()
        if self.worker:
            await self.worker.retire(0.0)
        for task in self.retiring:
            task.cancel()


async def start_workers(supervisors: Sequence[WorkerSupervisor]) -> None:
    """Open all models at the same time; if one of them fails, stop the others and raise its error."""
    starts = [supervisor.start() for supervisor in supervisors if supervisor.worker is None]
    errors = [error for error in await asyncio.gather(*starts, return_exceptions=True) if error is not None]
    if errors:
        await asyncio.gather(*(supervisor.close() for supervisor in supervisors))
        raise errors[0]

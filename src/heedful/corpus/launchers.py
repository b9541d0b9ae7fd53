"""Launchers make shards in this process, in worker processes on this machine, or on a Ray cluster."""

import logging
import os
import platform
import re
import signal
import socket
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Protocol

from heedful.corpus.shards import Shard, ShardRecord, ShardTask, hash_code
from heedful.errors import HeedfulError, require

MAX_WORKER_DEATHS = 3  # per shard, before giving up
MAX_RAY_RETRIES = 50  # per shard: nodes join and leave a cluster at any time
RAY_POLL_SECONDS = 10

OnDone = Callable[[ShardRecord], None]


class Launcher(Protocol):
    """Runs a task for every shard, in any order, and calls `on_done` in this process after each."""

    def __call__(self, task: ShardTask, shards: Sequence[Shard], on_done: OnDone) -> None:
        """Return when all shards are done; after an error, leave no process running."""
        ...

    def connect(self) -> AbstractContextManager[Any]:
        """Keep one connection for several runs."""
        ...


@dataclass(frozen=True, slots=True)
class LocalLauncher:
    """Runs on this machine: in this process, or in several single-threaded worker processes."""

    workers: int = 1

    def connect(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def __call__(self, task: ShardTask, shards: Sequence[Shard], on_done: OnDone) -> None:
        """Retry the shards of a killed worker (kill -9, out of memory), up to `MAX_WORKER_DEATHS` times."""
        if self.workers == 1:
            for shard in shards:
                on_done(task(shard))
            return
        waiting, deaths = deque(shards), Counter[str]()
        with _environment(POLARS_MAX_THREADS="1", OMP_NUM_THREADS="1"):
            while waiting:
                interrupted = self._run_pool(task, waiting, on_done)
                deaths.update(shard.name for shard in interrupted)
                if lost := [shard.name for shard in interrupted if deaths[shard.name] >= MAX_WORKER_DEATHS]:
                    raise HeedfulError(
                        f"a worker process was killed {MAX_WORKER_DEATHS} times while processing shard "
                        f"{' or '.join(lost)}, most likely because memory ran out. Rerun the command with fewer "
                        f"workers (--workers, now {self.workers}); finished shards are kept."
                    )
                waiting.extendleft(interrupted)

    def _run_pool(self, task: ShardTask, waiting: deque[Shard], on_done: OnDone) -> list[Shard]:
        """Run until all shards are done or a worker is killed; return the shards that were interrupted."""
        context = get_context("spawn")  # fork would copy locks that other threads hold
        reader, writer = context.Pipe(duplex=False)
        pool = ProcessPoolExecutor(self.workers, context, initializer=_exit_with_parent, initargs=(reader,))
        running: dict[Future[ShardRecord], Shard] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.workers:
                    future = pool.submit(task, waiting[0])
                    running[future] = waiting.popleft()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    on_done(future.result())
                    del running[future]
        except BrokenProcessPool:
            return list(running.values())
        finally:
            writer.close()  # terminates the workers, even busy ones
            pool.shutdown(cancel_futures=True)
            reader.close()
        return []


def _exit_with_parent(pipe: Connection) -> None:
    """Exit when the parent closes its end of the pipe: it needs no more workers, or it was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent decides

    def watch() -> None:
        pipe.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Set environment variables for child processes, which read them before any code of heedful runs."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass(frozen=True, slots=True)
class RayLauncher:
    """A Ray cluster: `auto` (the cluster of this machine), `host:6379`, or `ray://host:10001` (Ray's client).

    All nodes and this process need the same files under the same paths and the same version of heedful. Nodes may join,
    leave and die: their shards are made on other nodes. Errors in a stage are not retried. Token authentication is on
    unless the user sets RAY_AUTH_MODE=disabled.
    """

    address: str = "auto"

    def connect(self) -> AbstractContextManager[Any]:
        """Connect, and disconnect on exit; runs in between share the connection."""
        return _connect_ray(self.address)

    def __call__(self, task: ShardTask, shards: Sequence[Shard], on_done: OnDone) -> None:
        """Keep two tasks per CPU in flight: enough to keep all CPUs busy, few enough to stop quickly."""
        with _connect_ray(self.address) as ray:
            remote = ray.remote(_run_on_node).options(num_cpus=1, max_retries=MAX_RAY_RETRIES)
            waiting, running = deque(shards), list[Any]()
            try:
                while waiting or running:
                    max_running = max(4, 2 * int(ray.cluster_resources().get("CPU", 0)))
                    while waiting and len(running) < max_running:
                        running.append(remote.remote(task, waiting.popleft()))
                    finished, running = ray.wait(running, timeout=RAY_POLL_SECONDS)  # then count the nodes again
                    for record in ray.get(finished):
                        on_done(record)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from (None if isinstance(error.cause, HeedfulError) else error)
            except ray.exceptions.RayError as error:
                raise HeedfulError(
                    f"the cluster failed ({error}). Rerun the command when the cluster is available again; "
                    "finished shards are kept."
                ) from error
            finally:
                for reference in running:
                    ray.cancel(reference, force=True)


def _run_on_node(task: ShardTask, shard: Shard) -> ShardRecord:
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # one CPU each; Ray sets the number of OpenMP threads
    if hash_code(task.work, task.settings, task.versions) != task.code:
        raise HeedfulError(
            f"{platform.node()} has another version of heedful or of {', '.join(task.versions.packages)} than the "
            "machine that runs the command. Install the same versions on all nodes."
        )
    return task(shard)


@contextmanager
def _connect_ray(address: str) -> Iterator[Any]:
    """Yield the connected ray module, with token authentication unless the user disabled it."""
    require("ray", extra="scale", whose="--cluster ray")
    imported = sys.modules.get("ray")
    if imported is not None and imported.is_initialized():
        yield imported  # the code that connected also disconnects
        return
    if imported is not None and "RAY_AUTH_MODE" not in os.environ:  # Ray reads it only once, on import
        raise HeedfulError(
            "ray was imported before heedful could enable token authentication. Set the environment "
            "variable RAY_AUTH_MODE=token before you import ray."
        )
    if address.startswith("ray://") and find_spec("grpc") is None:
        raise HeedfulError(
            f"--cluster {address} needs Ray's client, which is not installed. Install it with: pip "
            "install 'ray[client]'"
        )
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    ray = import_module("ray")
    try:
        if address != "auto":
            host, _, port = address.removeprefix("ray://").rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()  # Ray would wait for a minute
        _init_ray(ray, address)
    except (ray.exceptions.RayError, OSError, RuntimeError) as error:
        raise HeedfulError(
            f"--cluster {address}: cannot connect to a Ray cluster ({error}). {RAY_INSTRUCTIONS}"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _init_ray(ray: Any, address: str) -> None:
    """Connect; try three times, because the server that a cluster starts for a client may start slowly."""
    for attempt in (1, 2, 3):
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionAbortedError:  # it did not start in time
            if attempt == 3:
                raise
        else:
            return


RAY_INSTRUCTIONS = """A cluster and its users share a secret authentication token:
    ray get-auth-token --generate                          once; copy ~/.ray/auth_token to every node (or name the file
                                                           in RAY_AUTH_TOKEN_PATH, or set RAY_AUTH_TOKEN)
    RAY_AUTH_MODE=token ray start --head                   on the first node
    RAY_AUTH_MODE=token ray start --address=FIRST:6379     on the others
Without a token, anyone who can reach the cluster's ports can run programs on it. If only you can reach them, you can
set RAY_AUTH_MODE=disabled on all nodes and on this machine instead."""


LAUNCHERS: dict[str, Callable[[], Launcher]] = {"local": LocalLauncher, "ray": RayLauncher}
ADDRESS = re.compile(r"(ray://)?([^\s:/\[\]]+|\[[0-9a-fA-F:]+\]):\d+")
DEFAULT_LAUNCHER = LocalLauncher()


def make_launcher(cluster: str | None, workers: int | None) -> Launcher:
    """The launcher for `--workers N`, or for `--cluster ray`, `--cluster host:6379`, `--cluster ray://host:10001`."""
    if workers is not None and workers < 1:
        raise HeedfulError(f"--workers must be at least 1, not {workers}")
    if cluster is None or cluster == "local":
        return LocalLauncher(workers or 1)
    if workers is not None:
        raise HeedfulError(
            f"--workers is for this machine, but --cluster {cluster} sends the work to a cluster. Use "
            "only one of the two options."
        )
    if ADDRESS.fullmatch(cluster):
        return RayLauncher(cluster)
    if cluster in LAUNCHERS:
        return LAUNCHERS[cluster]()
    raise HeedfulError(
        f"--cluster {cluster} is not a cluster address. Use {' or '.join(LAUNCHERS)}, host:6379 (a "
        "cluster that includes this machine) or ray://host:10001 (any other cluster)."
    )

"""Every shard once: a stage of corpus preparation, on this machine or on a Ray cluster, resumed by repeating it.

A stage is a function `work(shard, folder, **settings) -> counts`, deterministic, at the top of a module. It writes
files into `folder`, and the runner makes them the shard:

    .tmp-00017-<random>/   written by work, synced      --- one rename --->      00017/
                           + shard.json, the row                                 00017/shard.json

So a shard is all there or not at all, whatever is killed and when. A row says what its shard was made of (`inputs`),
by what (`code`) and what it became (`output`); a shard whose row is still true is not made again. Nothing in it depends
on the launcher, the number of workers or the time: the same corpus is the same bytes wherever it was prepared.
"""

import errno
import json
import logging
import os
import pickle
import platform
import re
import secrets
import shutil
import signal
import socket
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from hashlib import file_digest, sha256
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path, PurePath
from typing import Any, Protocol

from heedful.errors import HeedfulError, require

ROW = "shard.json"
TEMPORARY = ".tmp-"
TRIES = 50  # on a cluster, where nodes come and go: how often a shard is begun again
GLANCE = 1 << 16  # bytes at either end of a plain file, by which it is known
DEATHS = 3  # how often the processes at work on one shard may be killed before we stop trying

Work = Callable[..., Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Shard:
    """One unit of work: a name unique in its stage, what it reads (finished shards or plain files), what it becomes."""

    name: str
    inputs: tuple[Path, ...]
    output: Path


@dataclass(frozen=True, slots=True)
class Makers:
    """Who has a say in a stage beside its own module: parts of heedful (folders and files), packages by version."""

    parts: tuple[str, ...]
    packages: tuple[str, ...]


PREPARING = Makers(("corpus", "text", "data"), ("numpy", "sentencepiece"))  # others only judge, and rules are tested


@dataclass(frozen=True, slots=True)
class Row:
    """What a finished shard says of itself: three hashes, the size of each file, and what its work counted."""

    name: str
    inputs: str
    code: str
    output: str
    files: Mapping[str, int]
    counts: Mapping[str, int]


def read_row(folder: Path) -> Row | None:
    """The row of a finished shard; None where there is none, or none that can be read."""
    try:
        return Row(**json.loads((folder / ROW).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def hash_of(parts: Iterable[object]) -> str:
    """sha256 of the parts as JSON, which keeps ("ab", "c") apart from ("a", "bc")."""

    def plain(part: object) -> str:
        if isinstance(part, PurePath):
            return str(part)
        raise TypeError(f"{part!r} is a {type(part).__name__}; settings are made of what JSON knows, and paths")

    text = json.dumps(list(parts), sort_keys=True, allow_nan=False, default=plain)
    return sha256(text.encode()).hexdigest()


def hash_inputs(shard: Shard) -> str:
    """Of a finished shard its `output`; of a plain file its name, size, time of change, beginning and end."""
    return hash_of(_identity(shard, path) for path in shard.inputs)


def _identity(shard: Shard, path: Path) -> list[object]:
    if path.is_dir():
        if row := read_row(path):
            return [row.output]
        raise HeedfulError(
            f"shard {shard.name}: its input {path} is not a finished shard (no {ROW}). Prepare it first."
        )
    try:
        found = path.stat()
    except FileNotFoundError:
        raise HeedfulError(
            f"shard {shard.name}: there is no {path} on {platform.node()}. Was it moved? On a cluster every node must "
            "see the same files under the same paths, on a disk they share."
        ) from None
    with path.open("rb") as file:
        begin = file.read(GLANCE)
        file.seek(-min(GLANCE, found.st_size), os.SEEK_END)
        return [path.name, found.st_size, found.st_mtime_ns, sha256(begin + file.read()).hexdigest()]


def hash_code(work: Work, settings: Mapping[str, Any], makers: Makers = PREPARING) -> str:
    """Settings, the function's name, and all that may have a say: an upgrade prepares anew and never mixes."""
    package = Path(__file__).parents[1]
    named = [package / part for part in makers.parts]
    sources = [path for part in named for path in ([part] if part.is_file() else part.rglob("*.py"))]
    digests = sorted((path.relative_to(package).as_posix(), _digest(path)) for path in sources)
    own = getattr(sys.modules[work.__module__], "__file__", None)
    engines = [_version(name) for name in makers.packages]
    return hash_of([settings, work.__module__, work.__qualname__, digests, own and _digest(Path(own)), engines])


def _version(package: str) -> str | None:
    """None where it is not installed: a node without it is one with another."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def standing(shard: Shard, code: str, inputs: Callable[[Shard], str] = hash_inputs) -> Row | None:
    """The row of a shard that need not be made again: same inputs, same code, every file there in its full size.

    Contents are not read again: a disk that changes bytes but not sizes goes unnoticed here.
    """
    row = read_row(shard.output)
    if row is None or (row.name, row.inputs, row.code) != (shard.name, inputs(shard), code):
        return None
    try:
        whole = all((shard.output / name).stat().st_size == size for name, size in row.files.items())
    except (OSError, AttributeError):
        return None
    return row if whole else None


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker does with a shard. It only ever adds a folder, so a forgotten twin elsewhere does no harm."""

    work: Work
    settings: Mapping[str, Any]
    code: str
    makers: Makers = PREPARING

    def __call__(self, shard: Shard) -> Row:
        """The shard's row, made or found; errors name the shard and can travel between processes."""
        try:
            return standing(shard, self.code) or self._make(shard)
        except HeedfulError:
            raise
        except OSError as error:
            cure = "Free some space" if error.errno == errno.ENOSPC else "Repair the cause"
            raise HeedfulError(
                f"shard {shard.name}: {error.strerror or error} ({error.filename or shard.output}). "
                f"{cure} and repeat the command: finished shards are kept."
            ) from error
        except Exception as error:
            error.add_note(f"in shard {shard.name}, made by {self.work.__module__}.{self.work.__qualname__}")
            if not _travels(error):
                raise HeedfulError("".join(traceback.format_exception(error))) from error
            raise

    def _make(self, shard: Shard) -> Row:
        inputs = hash_inputs(shard)
        folder = shard.output.with_name(f"{TEMPORARY}{shard.name}-{secrets.token_hex(8)}")
        folder.mkdir(parents=True)
        try:
            counts = dict(self.work(shard, folder, **self.settings))
            digests, files = _settle(folder)
            row = Row(shard.name, inputs, self.code, hash_of(digests), files, counts)
            with (folder / ROW).open("x", encoding="utf-8", newline="\n") as file:
                json.dump(asdict(row), file, sort_keys=True, indent=1)
                file.flush()
                os.fsync(file.fileno())
            _sync_folder(folder)
            try:
                folder.rename(shard.output)
            except OSError:
                # A twin was first (a node believed dead, say): its shard is as good as ours, if it really is the same.
                if twin := standing(shard, self.code):
                    return twin
                raise
            _sync_folder(shard.output.parent)
            return row
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _travels(error: Exception) -> bool:
    """Whether an error survives pickling; one that does not would look like a worker's death."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:
        return False


def _settle(folder: Path) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """Put what was written on the disk for good; (name, hash) and name -> size of every file, sorted by name."""
    digests, files = [], {}
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        if path.is_dir():
            _sync_folder(path)
            continue
        name = path.relative_to(folder).as_posix()
        with path.open("r+b") as file:  # writable, or Windows refuses to sync it
            digests.append((name, file_digest(file, "sha256").hexdigest()))
            files[name] = os.fstat(file.fileno()).st_size
            os.fsync(file.fileno())
    return digests, files


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # pragma: no cover  # Windows opens no folders, and journals their entries itself
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Launcher(Protocol):
    """Where tasks are done: every shard once, in any order; `done` is told of each in this process."""

    def __call__(self, task: Task, shards: Sequence[Shard], done: Callable[[Row], None]) -> None:
        """Return when all are done; on an error leave no process at work."""
        ...

    def ready(self) -> AbstractContextManager[Any]:
        """Stay connected for several runs."""
        ...


@dataclass(frozen=True, slots=True)
class Local:
    """Here: one worker is this very process, more are processes of one thread each."""

    workers: int = 1

    def ready(self) -> AbstractContextManager[Any]:
        """There is nothing to connect to."""
        return nullcontext()

    def __call__(self, task: Task, shards: Sequence[Shard], done: Callable[[Row], None]) -> None:
        """A killed process (kill -9, out of memory) costs its shard a new start, `DEATHS` times at most."""
        if self.workers == 1:
            for shard in shards:
                done(task(shard))
            return
        waiting, deaths = deque(shards), Counter[str]()
        with _environment(POLARS_MAX_THREADS="1", OMP_NUM_THREADS="1"):
            while waiting:
                killed = self._pool(task, waiting, done)
                deaths.update(shard.name for shard in killed)
                if lost := [shard.name for shard in killed if deaths[shard.name] >= DEATHS]:
                    raise HeedfulError(
                        f"a worker process was killed {DEATHS} times while making shard {' or '.join(lost)}, most "
                        f"likely for want of memory. Repeat the command with fewer than {self.workers} workers: "
                        "finished shards are kept."
                    )
                waiting.extendleft(killed)

    def _pool(self, task: Task, waiting: deque[Shard], done: Callable[[Row], None]) -> list[Shard]:
        """Work until nothing waits, or a process was killed: then the shards under way, one of which it was at."""
        context = get_context("spawn")  # fork would copy the threads' locks, held or not
        reader, writer = context.Pipe(duplex=False)
        pool = ProcessPoolExecutor(self.workers, context, initializer=_hold, initargs=(reader,))
        running: dict[Future[Row], Shard] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.workers:
                    future = pool.submit(task, waiting[0])
                    running[future] = waiting.popleft()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    done(future.result())
                    del running[future]
        except BrokenProcessPool:
            return list(running.values())
        finally:
            writer.close()  # lets go of the workers, busy or not
            pool.shutdown(cancel_futures=True)
            reader.close()
        return []


def _hold(line: Connection) -> None:
    """Live while the parent holds the other end. It lets go when it wants no more, or is killed itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of us; the parent decides

    def watch() -> None:
        line.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Children read these as they start, before any of our code runs there."""
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
class Ray:
    """A Ray cluster: `auto` (the one this machine is part of), `host:6379`, or `ray://host:10001` (Ray's client).

    All nodes and this process see the same files under the same paths and have the same heedful installed. Nodes may
    come, go and die: what they were at is done again elsewhere. Errors of the work itself are not repeated. Tokens are
    asked for unless the user said RAY_AUTH_MODE=disabled.
    """

    address: str = "auto"

    def ready(self) -> AbstractContextManager[Any]:
        """Connect, and disconnect at the end; runs meanwhile use this connection."""
        return _connected(self.address)

    def __call__(self, task: Task, shards: Sequence[Shard], done: Callable[[Row], None]) -> None:
        """Two tasks per processor under way, so that none waits for us, and no more than that, so that we stop soon."""
        with _connected(self.address) as ray:
            remote = ray.remote(_on_a_node).options(num_cpus=1, max_retries=TRIES)
            waiting, running = deque(shards), list[Any]()
            try:
                while waiting or running:
                    room = max(4, 2 * int(ray.cluster_resources().get("CPU", 0)))
                    while waiting and len(running) < room:
                        running.append(remote.remote(task, waiting.popleft()))
                    finished, running = ray.wait(running, timeout=10)  # seconds; then nodes are counted again
                    for row in ray.get(finished):
                        done(row)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from (None if isinstance(error.cause, HeedfulError) else error)
            except ray.exceptions.RayError as error:
                raise HeedfulError(
                    f"the cluster failed ({error}). Repeat the command when it runs again: finished shards are kept."
                ) from error
            finally:
                for reference in running:
                    ray.cancel(reference, force=True)


def _on_a_node(task: Task, shard: Shard) -> Row:
    os.environ.setdefault("POLARS_MAX_THREADS", "1")  # one processor each; Ray itself says so to OpenMP
    if hash_code(task.work, task.settings, task.makers) != task.code:
        raise HeedfulError(
            f"{platform.node()} has another version of heedful, or of {task.work.__module__}, than the machine that "
            f"asks; or of {', '.join(task.makers.packages)}. Install the same on all nodes."
        )
    return task(shard)


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """The module ray, connected; with token authentication unless the user chose otherwise."""
    require("ray", extra="scale", whose="--cluster ray")
    early = sys.modules.get("ray")
    if early is not None and early.is_initialized():
        yield early  # whoever connected also disconnects
        return
    if early is not None and "RAY_AUTH_MODE" not in os.environ:  # Ray reads it only once, as it is imported
        raise HeedfulError("ray was imported before heedful could turn tokens on. Set RAY_AUTH_MODE=token beforehand.")
    if address.startswith("ray://") and find_spec("grpc") is None:
        raise HeedfulError(
            f"--cluster {address} needs Ray's client, which is not installed. Type: pip install 'ray[client]'"
        )
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    ray = import_module("ray")
    try:
        if address != "auto":
            host, _, port = address.removeprefix("ray://").rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()  # Ray would wait for a minute
        _start(ray, address)
    except (ray.exceptions.RayError, OSError, RuntimeError) as error:
        raise HeedfulError(f"--cluster {address}: cannot connect to a Ray cluster ({error}). {HOW_TO_START}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _start(ray: Any, address: str) -> None:
    """Connect; the server that a cluster starts for a client from outside is given a second and a third chance."""
    for chance in (1, 2, 3):
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionAbortedError:  # it did not start in time
            if chance == 3:
                raise
        else:
            return


HOW_TO_START = """A cluster and whoever uses it share a secret token:
    ray get-auth-token --generate                          once; copy ~/.ray/auth_token to every node (or name the file
                                                           in RAY_AUTH_TOKEN_PATH, or set RAY_AUTH_TOKEN)
    RAY_AUTH_MODE=token ray start --head                   on the first node
    RAY_AUTH_MODE=token ray start --address=FIRST:6379     on the others
Without a token, whoever reaches the cluster's ports can run programs on it. If nobody else can, RAY_AUTH_MODE=disabled,
set on all nodes and here, goes without."""


LAUNCHERS: dict[str, Callable[[], Launcher]] = {"local": Local, "ray": Ray}
ADDRESS = re.compile(r"(ray://)?([^\s:/\[\]]+|\[[0-9a-fA-F:]+\]):\d+")
HERE = Local()


def launcher(on: str | None, workers: int | None) -> Launcher:
    """What the command line means: `--workers N` for this machine, or `--cluster ray`, `host:6379` or `ray://...`."""
    if workers is not None and workers < 1:
        raise HeedfulError(f"--workers {workers}: there must be at least one.")
    if on is None or on == "local":
        return Local(workers or 1)
    if workers is not None:
        raise HeedfulError(
            f"--workers is for this machine, but --cluster {on} sends the work to a cluster. Give one of them."
        )
    if ADDRESS.fullmatch(on):
        return Ray(on)
    if on in LAUNCHERS:
        return LAUNCHERS[on]()
    raise HeedfulError(
        f"--cluster {on}: not a place to run. Say {' or '.join(LAUNCHERS)}, host:6379 (a cluster this machine is part "
        "of) or ray://host:10001 (any other)."
    )


def run(
    work: Work,
    shards: Sequence[Shard],
    settings: Mapping[str, Any],
    *,
    makers: Makers = PREPARING,
    launcher: Launcher = HERE,
    done: Callable[[Row], None] = lambda _: None,
    begin: Callable[[], None] = lambda: None,
) -> list[Row]:
    """The rows of all shards, in their order: those that stand as they are, the others made (anew).

    `settings` are keyword arguments of `work`, of what JSON knows, and paths. `done` is told of every shard, first of
    those that stand; `begin` before anything is changed. One run at a time may use the folder that the outputs are in.
    """
    shards = [
        replace(shard, inputs=tuple(path.absolute() for path in shard.inputs), output=shard.output.absolute())
        for shard in shards  # a worker's working directory may be another
    ]
    if len({shard.name for shard in shards}) < len(shards) or len({shard.output for shard in shards}) < len(shards):
        raise ValueError("two shards have the same name or the same output")
    task = Task(work, dict(settings), hash_code(work, settings, makers), makers)
    known: dict[tuple[Path, ...], str] = {}

    def inputs(shard: Shard) -> str:  # thousands of buckets have the same thousands of inputs
        if shard.inputs not in known:
            known[shard.inputs] = hash_inputs(shard)
        return known[shard.inputs]

    rows = {shard.name: row for shard in shards if (row := standing(shard, task.code, inputs))}
    for row in list(rows.values()):
        done(row)

    def take(row: Row) -> None:
        rows[row.name] = row
        done(row)

    missing = [shard for shard in shards if shard.name not in rows]
    parents = {shard.output.parent for shard in shards}
    _sweep(parents)
    try:
        if missing:
            begin()
            _clear(missing)
            launcher(task, missing, take)
    finally:
        _sweep(parents)
    return [rows[shard.name] for shard in shards]


def _clear(shards: Iterable[Shard]) -> None:
    """Remove what no longer holds, here and before anything starts: workers only add."""
    for shard in shards:
        try:
            shutil.rmtree(shard.output)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise HeedfulError(f"shard {shard.name}: cannot remove the old {shard.output} ({error}).") from error


def _sweep(parents: Iterable[Path]) -> None:
    """Remove what killed workers left half-written."""
    for parent in parents:
        for path in parent.glob(f"{TEMPORARY}*"):
            shutil.rmtree(path, ignore_errors=True)

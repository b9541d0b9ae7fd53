"""A real Ray cluster on this machine: a head without processors, and worker nodes that can be killed.

Each node is a `ray start --block` in a session of its own, at an address 127.0.0.x of its own, so that everything it
started can be found again (through /proc: Linux only). Tokens are on.
"""

import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from support.free_ports import free_port

HERE = Path(__file__).resolve().parents[1]
STAT = re.compile(r"(\d+) \((.*)\) (\S) \d+ \d+ (\d+) .*", re.DOTALL)  # process, name, state, ., ., session


def why_not() -> str:
    """Why no cluster can be had here; empty if it can."""
    if sys.platform != "linux":
        return "the nodes' processes are found through Linux's /proc"
    return "" if find_spec("ray") else "ray is not installed"


def processes(session: int) -> Iterator[tuple[int, str]]:
    """(process, name) of everything alive in a session."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            found = STAT.fullmatch(path.read_text())
        except OSError:  # gone meanwhile
            continue
        if found and int(found[4]) == session and found[3] != "Z":
            yield int(found[1]), found[2]


def _raylets(node: subprocess.Popen[bytes]) -> list[int]:
    """The process that makes a node a node, once it has started."""
    return [process for process, name in processes(node.pid) if name == "raylet"]


class Cluster:
    """`with Cluster(2) as cluster:` two worker nodes of one processor; `environment` is what its users need."""

    def __init__(self, workers: int, **environment: str) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)  # short: sockets are in it
        self.environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
            # A dead node (which refuses at once) is missed after two seconds, not after fifteen; one that is only slow,
            # after half a minute.
            "RAY_health_check_initial_delay_ms": "500",
            "RAY_health_check_period_ms": "300",
            "RAY_health_check_timeout_ms": "5000",
            "RAY_health_check_failure_threshold": "5",
            "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "60",  # a busy machine takes longer than thirty seconds
            **environment,
        }
        self.started = 0
        self.workers: list[subprocess.Popen[bytes]] = []
        self.dead: list[subprocess.Popen[bytes]] = []
        client = free_port("127.0.0.2")
        self.client = f"ray://127.0.0.2:{client}"  # for those who are not part of it
        options = ["--port=0", "--num-cpus=0", "--include-dashboard=false", f"--ray-client-server-port={client}"]
        self.head = self._start("--head", *options)
        try:
            self.address = self._address()
            for _ in range(workers):
                self.add()
        except BaseException:
            self.close()
            raise

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        self.started += 1
        place = Path(self.folder.name) / str(self.started)
        command = [sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start", "--block", *options]
        common = [f"--node-ip-address=127.0.0.{1 + self.started}", f"--temp-dir={place}", "--disable-usage-stats"]
        small = ["--object-store-memory=80000000", "--include-log-monitor=false"]
        with place.with_suffix(".log").open("wb") as log:
            return subprocess.Popen(
                [*command, *common, *small],
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _address(self) -> str:
        log = Path(self.folder.name) / "1.log"
        for _ in range(3000):
            if found := re.search(r"--address='([\d.]+:\d+)'", log.read_text()):
                return found[1]
            if self.head.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"the head of the cluster did not start:\n{log.read_text()}")

    def add(self) -> None:
        """One more node of one processor; it is there a few seconds later."""
        self.workers.append(self._start(f"--address={self.address}", "--num-cpus=1"))

    def complete(self) -> bool:
        """Every worker node has started."""
        return all(map(_raylets, self.workers))

    def kill(self) -> bool:
        """kill -9 the oldest worker node's raylet and add a new node; False if the node has not even started."""
        raylets = _raylets(self.workers[0])
        if not raylets:
            return False
        os.kill(raylets[0], signal.SIGKILL)
        self.dead.append(self.workers.pop(0))
        self.add()
        return True

    def close(self) -> None:
        """Nothing of it stays."""
        for node in (*self.workers, *self.dead, self.head):
            for process, _ in processes(node.pid):
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            node.wait()
        self.folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

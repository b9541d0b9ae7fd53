"""How much memory a command takes, its child processes counted one by one; from Linux's /proc.

    python tests/support/process_memory.py heedful.toml    read, clean and gather in this process; print its memory

Peaks are the kernel's own high-water marks (VmHWM), so that looking now and then is enough.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MB = 1e6
PROC = Path("/proc")
MEASURABLE = (PROC / "self" / "status").exists()


def status(process: int | str = "self") -> dict[str, str]:
    """What the kernel says of a process; nothing once it is gone."""
    try:
        text = (PROC / str(process) / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def held(field: str, process: int | str = "self") -> int:
    """Bytes: VmRSS is what a process holds now, VmHWM the most it ever held."""
    return int(status(process).get(field, "0 kB").split()[0]) * 1024


def family(root: int) -> list[int]:
    """A process and all that descend from it."""
    parents = {
        int(path.name): int(status(path.name).get("PPid", "0")) for path in PROC.iterdir() if path.name.isdigit()
    }
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


@dataclass(frozen=True)
class Watched:
    """A command that has ended: what it said, how long it took, and the peak of each of its processes, its own first.

    `together` is the most that all held at one time; what they share (libraries, above all) counts for each.
    """

    code: int
    output: str
    error: str
    seconds: float
    peaks: tuple[int, ...]
    together: int


def watch(command: list[str], every: float = 0.05) -> Watched:
    """Run a command to its end."""
    peaks: dict[int, int] = {}
    together = 0
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as error:
        child = subprocess.Popen(command, stdout=output, stderr=error)
        while child.poll() is None:
            some = family(child.pid) if MEASURABLE else []
            peaks |= {process: peak for process in some if (peak := held("VmHWM", process))}
            together = max(together, sum(held("VmRSS", process) for process in some))
            time.sleep(every)
        seconds = time.perf_counter() - begin
        output.seek(0)
        error.seek(0)
        said = output.read().decode(errors="replace"), error.read().decode(errors="replace")
    return Watched(child.returncode, *said, seconds, tuple(peaks.values()), together)


def prepare_text(settings: Path) -> dict[str, Any]:
    """Read, clean and gather in a process of its own: its `peak` beyond its `imports`, `seconds` and `counts`."""
    command = [sys.executable, __file__, str(settings)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main(settings_file: str) -> None:
    """The text stages of a preparation, on one processor: seconds by the clock and of the processor, and the peak."""
    os.environ["POLARS_MAX_THREADS"] = "1"  # before Polars is imported, with the stages that need it

    from heedful.config import load
    from heedful.corpus import filters  # noqa: F401
    from heedful.corpus.launchers import DEFAULT_LAUNCHER
    from heedful.data.prepare import Preparation, list_corpora

    imports, seconds = held("VmRSS"), {}
    settings = load(settings_file)
    folder, corpora = Path(settings.data.prepared_dir), list_corpora(settings)
    preparation = Preparation(settings, folder, corpora, DEFAULT_LAUNCHER, lambda _: None)

    @contextmanager
    def timed(stage: str) -> Iterator[None]:
        wall, processor = time.perf_counter(), time.process_time()
        yield
        seconds[stage] = (time.perf_counter() - wall, time.process_time() - processor)

    with timed("cut"):
        preparation.read()
    with timed("clean"):
        preparation.clean()
    with timed("gather"):
        preparation.shuffle()
    peak = held("VmHWM") - imports
    print(json.dumps({"imports": imports, "peak": peak, "seconds": seconds, "counts": preparation.counts}))


if __name__ == "__main__":
    main(sys.argv[1])

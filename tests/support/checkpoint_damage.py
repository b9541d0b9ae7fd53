"""Harm that checkpoints must survive: damaged files, a disk that is full, and system calls that fail one by one.

The last needs Linux and strace: a save runs in a fork that strace is attached to, and of all its calls with files one
fails, or is the last thing that the process does.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.training import checkpoint
from support import process_memory as memory

# ------------------------------------------------------------------------------------------------ files


def flip(data: bytes, _other: bytes, draw: random.Random) -> bytes:
    """One bit is another."""
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def cut(data: bytes, _other: bytes, draw: random.Random) -> bytes:
    """The end is missing, or all of it."""
    return data[: draw.randrange(len(data))]


def lose(data: bytes, _other: bytes, draw: random.Random) -> bytes:
    """Some bytes in the middle are missing."""
    at = draw.randrange(len(data))
    return data[:at] + data[at + draw.randint(1, 64) :]


def blank(data: bytes, _other: bytes, draw: random.Random) -> bytes:
    """A block is all zeros, as after a power failure."""
    at = draw.randrange(len(data))
    size = min(draw.randint(1, 4096), len(data) - at)
    return data[:at] + bytes(size) + data[at + size :]


def grow(data: bytes, _other: bytes, draw: random.Random) -> bytes:
    """There is more than there was."""
    at = draw.randint(0, len(data))
    return data[:at] + draw.randbytes(draw.randint(1, 64)) + data[at:]


def swap(_data: bytes, other: bytes, _draw: random.Random) -> bytes:
    """It is the file of another checkpoint."""
    return other


def splice(data: bytes, other: bytes, draw: random.Random) -> bytes:
    """It begins as itself and ends as another's."""
    at = draw.randrange(min(len(data), len(other)))
    return data[:at] + other[at:]


DAMAGES: dict[str, Callable[[bytes, bytes, random.Random], bytes] | None] = {
    "flip": flip, "cut": cut, "lose": lose, "blank": blank, "grow": grow, "swap": swap, "splice": splice,
    "delete": None,
}  # fmt: skip


def damage_file(folder: Path, other: Path, draw: random.Random) -> tuple[str, Callable[[], None]]:
    """Harm one file of a checkpoint in one way; gives what was done, and how to undo it."""
    path = draw.choice(sorted(folder.iterdir()))
    data = path.read_bytes()
    kind = draw.choice(sorted(DAMAGES))
    harm = DAMAGES[kind]
    if harm is None:
        path.unlink()
    else:
        changed = data
        while changed == data:  # zeros where there were zeros are no damage
            changed = harm(data, (other / path.name).read_bytes(), draw)
            kind, harm = (kind, harm) if changed != data else ("flip", flip)
        path.write_bytes(changed)
    return f"{kind} {path.name}", lambda: path.write_bytes(data) and None


# ------------------------------------------------------------------------------------------------ a full disk


def train_with_full_disk(settings_file: str, warnings: str, largest: int, first: int, last: int) -> None:
    """Train while, from one step to another, no file may grow beyond so many bytes; what it warned of, to a file."""
    import resource

    from heedful.training.api import train
    from heedful.training.events import Event, Note, Stepped

    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    warned = []

    def on_event(event: Event) -> None:
        if isinstance(event, Stepped):
            tight = first <= event.step < last
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest if tight else most, most))
        if isinstance(event, Note) and event.level == "warning":
            warned.append(event.text)

    train(settings_file, on_event=on_event)
    Path(warnings).write_text("\n".join(warned), encoding="utf-8")


# ------------------------------------------------------------------------------------------------ system calls


def strace_problem() -> str:
    """Why no system call can be made to fail here; empty if it can."""
    if sys.platform != "linux":
        return "system calls are made to fail by strace, on Linux"
    if shutil.which("strace") is None:
        return "strace is not installed"
    with tempfile.NamedTemporaryFile() as log:
        asked = subprocess.run(["strace", "-o", log.name, "true"], capture_output=True, check=False)
    return "" if asked.returncode == 0 else "strace may not trace here"


KEEP = 2
FAILURES = ("error=ENOSPC", "error=EIO", "signal=SIGKILL")
# Memory is not what fails here, and what ends the process cannot fail.
OTHER = {"mmap", "exit_group"}


def make_state(step: int) -> dict[str, Any]:
    """What a checkpoint says besides its tensors."""
    return {"step": step, "seen": [step] * 100}


def make_tensors(step: int) -> Any:
    """What a checkpoint of a step holds: each step adds one to everything."""
    import torch

    model = {"weight": torch.full((100, 10), float(step)), "bias": torch.arange(10.0) + step}
    return {"model": model, "optimizer": {"weight.exp_avg": torch.full((100, 10), 7.0 + step)}}


WELL, FELL_BACK, FAILED = 0, 4, 3  # how a step may end


def take_step(run: Path) -> int:
    """Restore the newest checkpoint, take a step, save it, forget the oldest: as a run does it. How it ended."""
    said: list[str] = []
    try:
        found = checkpoint.find_newest(run, said.append)
        assert found is not None
        step = found.state["step"] + 1
        moved = {name: {key: one + 1 for key, one in found.tensors(name).items()} for name in ("model", "optimizer")}
        checkpoint.save(run, step, moved, make_state(step))
        checkpoint.prune(run, KEEP)
    except (OSError, checkpoint.DamagedCheckpoint):
        return FAILED
    return FELL_BACK if said else WELL


def run_traced(work: Callable[[], int], log: Path, inject: str | None = None) -> int:
    """Do something in a fork under strace, which may make a call of it fail; gives the exit code."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.sigwait({signal.SIGUSR1})  # until strace is there; a read would be one of the calls that it counts
            code = work()
        finally:
            os._exit(code)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    injecting = ["-e", f"inject={inject}"] if inject else []
    strace = subprocess.Popen(
        ["strace", "-f", "-p", str(child), "-e", "trace=%file,%desc", *injecting, "-o", str(log)],
        stderr=subprocess.DEVNULL,
    )
    while memory.status(child).get("TracerPid", "0") == "0":
        if strace.poll() is not None:
            raise RuntimeError("strace could not attach")
        time.sleep(0.002)
    os.kill(child, signal.SIGUSR1)
    _, status = os.waitpid(child, 0)
    strace.wait()
    return os.waitstatus_to_exitcode(status)


def count_calls(log: Path) -> Counter[str]:
    """How often each system call was made."""
    lines = log.read_text(errors="replace").splitlines()
    names = [found[1] for line in lines if (found := re.match(r"\d+ +(\w+)\(", line))]
    return Counter(name for name in names if name not in OTHER)


def sync_order(log: Path) -> list[tuple[str, str]]:
    """What was synced to the disk and what was renamed, one after the other: ("sync", path), ("rename", new path)."""
    opened: dict[str, str] = {}
    found = []
    for line in log.read_text(errors="replace").splitlines():
        if done := re.search(r'openat\(\w+, "([^"]+)".* = (\d+)$', line):
            opened[done[2]] = done[1]
        elif done := re.search(r"f(?:data)?sync\((\d+)\) += 0$", line):
            found.append(("sync", opened[done[1]]))
        elif done := re.search(r'rename\w*\(.*"([^"]+)"(?:, 0)?\) += 0$', line):
            found.append(("rename", done[1]))
    return found


@dataclass
class Broken:
    """One way in which a save was broken, and what was found after it."""

    call: str
    code: int
    step: int | None  # of the checkpoint that loads
    wrong: str = ""  # what must not be


def break_saves(folder: Path, result: Path, every: int = 1, only: tuple[str, ...] = ()) -> None:
    """Make every call of a save fail in turn, in every way (or every n-th, or some of them); results as JSON lines.

    To be run in a process of its own: it forks, so nothing may have started a thread.
    """
    whole, run, log = folder / "whole", folder / "run", folder / "strace"
    for step in range(1, KEEP + 1):
        checkpoint.save(whole, step, make_tensors(step), make_state(step))
    shutil.copytree(whole, run)
    if run_traced(lambda: take_step(run), folder / "clean") != WELL:
        raise RuntimeError("the save failed without help")
    plan = [
        (call, number, failure)
        for call, count in sorted(count_calls(folder / "clean").items())
        for number in range(1, count + 1)
        for failure in FAILURES
        if not only or call in only
    ]
    with result.open("w", encoding="utf-8") as stream:
        for call, number, failure in plan[::every]:
            shutil.rmtree(run)
            shutil.copytree(whole, run)
            code = run_traced(lambda: take_step(run), log, f"{call}:{failure}:when={number}")
            broken = Broken(f"{call} {number} {failure}", code, None)
            examine(run, broken)
            stream.write(json.dumps(vars(broken)) + "\n")


def examine(run: Path, broken: Broken) -> None:
    """A verified checkpoint loads, it is the one before or the new one, and the next save works."""
    said: list[str] = []
    found = checkpoint.find_newest(run, said.append)
    if found is None:
        broken.wrong = f"nothing loads: {said}"
        return
    step = broken.step = found.state["step"]
    latest = run / (run / checkpoint.LATEST).read_text().strip()
    if said:
        broken.wrong = f"a folder of a checkpoint is not one: {said}"
    elif step not in (KEEP, KEEP + 1) or (broken.code == WELL and step != KEEP + 1):
        broken.wrong = f"step {step} was loaded"
    elif not holds(found, step):
        broken.wrong = "what was loaded is not what was saved"
    elif not holds(checkpoint.verify(latest), int(latest.name[-8:])):
        broken.wrong = f"LATEST names {latest.name}"
    elif broken.code not in (WELL, FELL_BACK, FAILED, -9):
        broken.wrong = f"ended with {broken.code}"
    else:
        checkpoint.remove_unfinished(run)
        take_step(run)
        again = checkpoint.find_newest(run)
        if again is None or not holds(again, step + 1) or any(run.glob(".tmp-*")):
            broken.wrong = "the next save did not work"


def holds(found: checkpoint.Checkpoint, step: int) -> bool:
    """Whether a checkpoint holds exactly what was saved of a step."""
    return found.state == make_state(step) and all(
        found.tensors(name).keys() == some.keys() and all(found.tensors(name)[key].equal(some[key]) for key in some)
        for name, some in make_tensors(step).items()
    )


def broken_saves(result: Path) -> Iterator[Broken]:
    """What `break_saves` wrote."""
    for line in result.read_text(encoding="utf-8").splitlines():
        yield Broken(**json.loads(line))

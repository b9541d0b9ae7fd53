"""Can disk, kernel or corpus faults corrupt a checkpoint or the weights?

calls    each system call of a save fails (ENOSPC, EIO), or the process is killed (SIGKILL) at it
files    random damage: flipped bits, truncated, zeroed, deleted files, files swapped between checkpoints
disk     a small disk is filled and emptied at random during a real run
storm    random losses and gradients that are nan, inf or a million times too large, in a run that is also killed

python benchmarks/faults.py [--quick] [calls files disk storm]          (Linux; needs strace, and root to mount a disk)
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load_file

from report import header, skip, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from heedful.training import checkpoint
from support.checkpoint_damage import (
    FAILED,
    FELL_BACK,
    KEEP,
    WELL,
    break_saves,
    broken_saves,
    damage_file,
    strace_problem,
)
from support.training_runs import (
    SERVER,
    events,
    kill_repeatedly,
    outcome,
    random_faults,
    settings_of,
    start_training,
    write_corpus,
)

Claims = list[tuple[str, float, float]]
ENDS = {WELL: "well", FELL_BACK: "well, from the one before", FAILED: "saying so", -9: "killed"}


def calls(folder: Path, quick: bool) -> Claims:
    """Every file system call of a save, with every kind of failure."""
    if reason := strace_problem():
        skip("failing system calls", reason)
        return []
    result = folder / "calls.jsonl"
    child = SERVER.Process(target=break_saves, args=(folder, result, 10 if quick else 1))
    child.start()
    child.join()
    if child.exitcode:
        raise RuntimeError("the saves could not be broken")
    every = list(broken_saves(result))
    kinds = Counter(one.call.split()[0] for one in every)
    codes = Counter(ENDS.get(one.code, "otherwise") for one in every)
    steps = Counter(("the one before", "the new one")[one.step == KEEP + 1] for one in every)
    print(f"calls: {len(every)} saves broken, {dict(kinds)}; ended: {dict(codes)}; after it, what loads: {dict(steps)}")
    for one in every:
        if one.wrong:
            print(f"WRONG  {one}")
    return [
        ("saves broken by a failing system call", len(every), 20 if quick else 200),
        ("minus saves after which something is wrong", -sum(bool(one.wrong) for one in every), 0),
    ]


def files(folder: Path, quick: bool) -> Claims:
    """Random damage to the checkpoints of a real run."""
    run = folder / "files"
    ended(start_training(settings_of(folder, run, steps=8, validate_every=4)), run)
    new, old = checkpoint.checkpoint_folders(run)
    draw, kinds, missed, silent = random.Random(1), Counter[str](), 0, 0
    count = 200 if quick else 1000
    for _ in range(count):
        what, mend = damage_file(new, old, draw)
        said: list[str] = []
        found = checkpoint.find_newest(run, said.append)
        kinds[what.split()[0]] += 1
        missed += found is None or found.folder != old
        silent += len(said) != 1 or new.name not in said[0]
        mend()
    print(f"files: {count} damaged, {dict(kinds)}")
    return [
        ("damages detected, the one before taken", count - missed, count),
        ("minus fallbacks without a warning", -silent, 0),
        ("the repaired checkpoint loads again", checkpoint.verify(new).folder == new, 1),
    ]


def disk(folder: Path, quick: bool) -> Claims:
    """A run on a disk of four megabytes that another process fills from time to time."""
    place = folder / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(place)], check=False)
    if mounted.returncode:
        skip("a full disk", "mounting a small disk is not allowed here")
        return []
    steps = 100 if quick else 400
    run, draw = place / "run", random.Random(1)
    same = {"steps": steps, "save_every": 2, "validate_every": steps // 2}
    try:
        ended(start_training(settings_of(folder, folder / "enough", **same)), folder / "enough")
        settings = settings_of(folder, run, **same)
        fills = starts = lost = 0
        code: int | None = 1
        while code != 0 and starts < 30:  # to write the finished model it needs the disk, and says so
            starts += 1
            child = start_training(settings)
            while child.poll() is None:
                time.sleep(draw.uniform(0.1, 0.5))
                fills += fill(place / "filler")
                time.sleep(draw.uniform(0.1, 0.5))
                lost += bool(checkpoint.checkpoint_folders(run)) and checkpoint.find_newest(run) is None
                (place / "filler").unlink()
            code = child.wait()
        ended(start_training(settings), run)  # with room, whatever its last save came to
        said = run.with_suffix(".log").read_text()
        warned = said.count("could not be written")
        print(f"disk: filled {fills} times, {warned} checkpoints could not be written, started {starts} times")
        here, there = outcome(run), outcome(folder / "enough")
        other = [key for key in here if here[key] != there[key]]
        print(f"      in the end, other than with room enough: {other or 'nothing'}")
        return [
            ("checkpoints that a full disk prevented, with a warning", warned, 1),
            ("minus times that no checkpoint could be loaded", -lost, 0),
            ("same bits as on a disk with room", not other, 1),
        ]
    finally:
        subprocess.run(["umount", str(place)], check=False)


def fill(path: Path) -> bool:
    """Use all free space."""
    try:
        with path.open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(4096))
    except OSError:
        return True


def storm(folder: Path, quick: bool) -> Claims:
    """Random bad batches in runs that are also killed."""
    runs, kills, steps = (1, 2, 150) if quick else (5, 6, 500)
    same = {"steps": steps, "micro_batches": 2, "validate_every": steps // 2, "log_every": 1}
    equal = killed = skipped = rolled = 0
    finite = True
    for number in range(runs):
        faults = random_faults(random.Random(number), steps, 2)
        whole, run = folder / f"storm-{number}", folder / f"storm-{number}-killed"
        begin = time.perf_counter()
        ended(start_training(settings_of(folder, whole, **same), faults), whole)
        seconds = time.perf_counter() - begin
        settings, draw = settings_of(folder, run, **same), random.Random(number)
        start = lambda: start_training(settings, faults)  # noqa: E731, B023
        tally = kill_repeatedly(start, run, kills=kills, steps=steps, seconds=seconds, draw=draw)
        found, decisions = outcome(whole), [skips(one) for one in (whole, run)]
        equal += tally.code == 0 and outcome(run) == found and decisions[0] == decisions[1]
        killed += tally.kills
        skipped += found["spike_guard"]["skipped"]
        rolled += found["spike_guard"]["has_rolled_back"]
        finite = finite and all_finite(whole) and all_finite(run)
    print(f"storm: {runs} runs, {skipped} steps skipped, {rolled} roll-backs, {killed} kills")
    return [
        ("all weights finite", finite, 1),
        ("steps skipped", skipped, 10),
        ("runs that rolled back", rolled, runs),
        ("kills", killed, runs * kills),
        ("killed runs with the same bits, decisions and skipped lines", equal, runs),
    ]


def skips(run: Path) -> list[tuple[object, ...]]:
    """The skipped steps, the reasons, and the lines of their batches."""
    return [(one["step"], one["why"], one["lines"]) for one in events(run, "skipped")]


def all_finite(run: Path) -> bool:
    """Whether every number in every checkpoint is finite."""
    return all(bool(one.isfinite().all()) for path in run.glob("*/*.safetensors") for one in load_file(path).values())


def ended(child: object, run: Path) -> None:
    """Wait for a run that must succeed."""
    if child.wait() != 0:  # type: ignore[attr-defined]
        raise RuntimeError(run.with_suffix(".log").read_text())


PARTS: dict[str, Callable[[Path, bool], Claims]] = {"calls": calls, "files": files, "disk": disk, "storm": storm}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="fewer of everything")
    options.add_argument("parts", nargs="*", choices=[*PARTS, []], help="some of them only")
    given = options.parse_args()
    header(__file__)
    claims: Claims = []
    for name in given.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="faults-") as folder:
            claims += PARTS[name](write_corpus(Path(folder)), given.quick)
    return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())

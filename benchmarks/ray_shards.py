"""Does a Ray cluster with failing nodes prepare the same corpus as one process?

Real text in many shards, each read, cleaned, deduplicated and shuffled by the real stages, on a head node without CPUs
and two worker nodes with token authentication. Every few seconds the raylet of a worker node is killed with kill -9 and
a new node replaces it, until the work is done.

    python benchmarks/ray_shards.py [--quick]          (Linux; HEEDFUL_DATA contains tatoeba-eng-por)
"""

import argparse
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import header, skip, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.ray_cluster import Cluster, why_not

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("HEEDFUL_DATA", ROOT.parent / "shared" / "data")) / "tatoeba-eng-por"


def deal(folder: Path, shards: int) -> int:
    """Split the training pairs into files; return the number of pairs."""
    folder.mkdir()
    sides = [gzip.decompress((DATA / f"train.{code}.gz").read_bytes()).split(b"\n")[:-1] for code in ("eng", "por")]
    pairs = [b"\t".join(pair) + b"\n" for pair in zip(*sides, strict=True)]
    for shard in range(shards):
        (folder / f"{shard:05}.tsv").write_bytes(b"".join(pairs[shard::shards]))
    return len(pairs)


def driver(folder: Path, outputs: str, *options: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Make `outputs` from `inputs` in a process that logs to a file, because Ray reports every dead node."""
    command = [sys.executable, str(ROOT / "tests" / "support" / "shard_stages.py"), "stages", str(folder / "inputs")]
    with (folder / f"{outputs}.log").open("wb") as log:
        return subprocess.Popen(
            [*command, str(folder / outputs), *options], env=environment, stdout=log, stderr=subprocess.STDOUT
        )


def serially(folder: Path) -> float:
    """The reference in one process; return the seconds."""
    (folder / "serial-executions").mkdir()
    environment = {**os.environ, "SHARD_JOURNAL": str(folder / "serial-executions")}
    begin = time.perf_counter()
    if driver(folder, "serial", "--workers=1", environment=environment).wait() != 0:
        raise RuntimeError((folder / "serial.log").read_text())
    return time.perf_counter() - begin


def under_fire(folder: Path, rounds: int, every: float) -> tuple[int, float]:
    """The same on a cluster that loses a node `every` few seconds; return lost nodes and seconds."""
    (folder / "cluster-executions").mkdir()
    settings = json.dumps({"rounds": rounds})
    kills = done_at_kill = 0
    with Cluster(2, SHARD_JOURNAL=str(folder / "cluster-executions")) as cluster:
        place = [f"--cluster={cluster.address}", f"--settings={settings}"]
        begin = last = time.perf_counter()
        running = driver(folder, "cluster", *place, environment=cluster.environment)
        while running.poll() is None:
            time.sleep(0.1)
            done = count(folder / "cluster")
            # Not before a shard was finished: on a slow machine, nodes would be killed faster than they start.
            if time.perf_counter() - last >= every and done > done_at_kill and cluster.kill():
                kills, last, done_at_kill = kills + 1, time.perf_counter(), done
                print(f"{last - begin:4.0f} s: kill {kills}, {done} shards done", flush=True)
        wall = time.perf_counter() - begin
    if running.returncode:
        raise RuntimeError((folder / "cluster.log").read_text())
    return kills, wall


def count(folder: Path) -> int:
    """The number of visible entries of a directory."""
    return sum(not path.name.startswith(".") for path in folder.glob("*"))


def merged(folder: Path) -> str:
    """sha256 of all files except the records, which also depend on the settings."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "shard.json"):
        whole.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode() + path.read_bytes())
    return whole.hexdigest()


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="fewer and longer shards, killed three times as often")
    given = options.parse_args()
    shards, every, seconds, least = (50, 5.0, 1.0, 2) if given.quick else (1000, 15.0, 0.5, 8)
    header(__file__)
    if reason := why_not():
        return skip("a cluster whose nodes are killed", reason)
    with tempfile.TemporaryDirectory(prefix="shards-") as name:
        folder = Path(name)
        pairs = deal(folder / "inputs", shards)
        once = serially(folder)
        rounds = max(1, round(seconds * shards / once))  # a shard must last, to be killed at
        print(
            f"{pairs:,} pairs, {shards} shards; serial {once:.1f} s; on the cluster, each is made {rounds} times over"
        )
        kills, wall = under_fire(folder, rounds, every)
        again = count(folder / "cluster-executions") - shards
        print(f"cluster {wall:.0f} s, {kills} kills, {again} shards begun again; merged {merged(folder / 'cluster')}")
        return verdict(
            [
                ("raylets killed", kills, least),
                ("shards begun again", again, 1),
                ("shards finished", count(folder / "cluster"), shards),
                ("minus half-written folders left", -len(list((folder / "cluster").glob(".tmp-*"))), 0),
                ("same bytes as the serial run", merged(folder / "cluster") == merged(folder / "serial"), 1),
            ]
        )


if __name__ == "__main__":
    sys.exit(main())

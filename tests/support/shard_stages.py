"""Stages for the tests of the shard runner, in a module that workers can import; also a driver that can be killed.

Every execution leaves a file in the folder named by SHARD_JOURNAL: <shard>-<process>-<random>.

    python tests/support/shard_stages.py STAGE INPUTS OUTPUTS (--workers N | --cluster ADDRESS) [--settings JSON]
"""

import argparse
import errno
import json
import os
import secrets
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

from heedful.corpus.shards import Shard, Task, hash_code, launcher, run
from heedful.corpus.stages import clean, cut, gather

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


def journal() -> Path:
    return Path(os.environ["SHARD_JOURNAL"])


def note(shard: Shard) -> None:
    (journal() / f"{shard.name}-{os.getpid()}-{secrets.token_hex(4)}").touch()


def first_time(shard: Shard) -> bool:
    try:
        (journal() / f".met-{shard.name}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def tidied(lines: list[str]) -> list[str]:
    """Whitespace normalized, lower case, sorted."""
    return sorted(" ".join(line.lower().split()) for line in lines)


def tidy(shard: Shard, folder: Path, *, rounds: int = 1, pause: float = 0.0) -> dict[str, int]:
    """The shard's lines tidied, again and again if one wants it to last."""
    note(shard)
    time.sleep(pause)
    texts = [path / "text" / "lines" if path.is_dir() else path for path in shard.inputs]
    lines = [line for text in texts for line in text.read_text(encoding="utf-8").splitlines()]
    for _ in range(rounds):
        clean_lines = tidied(lines)
    (folder / "text").mkdir()
    (folder / "text" / "lines").write_bytes("".join(f"{line}\n" for line in clean_lines).encode())
    (folder / "longest").write_bytes(max(clean_lines, key=len).encode())
    return {"lines": len(clean_lines)}


def stages(shard: Shard, folder: Path, *, rounds: int = 1) -> dict[str, int]:
    """A small TSV through the real cut, clean and gather, again and again if one wants it to last."""
    note(shard)
    once = {"longest": 1 << 16, "reject_limit": 1.0, "bytes_each": 1 << 30}
    profile = {"source_scripts": ["Latin"], "target_scripts": ["Latin"], "ratio": 1.1}
    rules = {"drop": ["empty", "copy", "long", "ratio", "wrong_script", "mojibake", "subwords"], "overlap": "keep"}
    for _ in range(rounds):
        places = [folder / name for name in ("cut", "all-00000", "text")]
        for place in places:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
        read, made, text = (Shard(place.name, (), place) for place in places)
        counts = cut(replace(read, inputs=shard.inputs), read.output, source="eng", target="por", **once)
        clean(replace(made, inputs=(read.output,)), made.output, buckets=1, profiles={"all": profile}, **rules)
        gather(Shard("00000", (made.output,), text.output), text.output, corpora=["all"], duplicates="drop")
    return {"pairs": counts["pairs"]}


def tidy_after_a_kill(shard: Shard, folder: Path) -> dict[str, int]:
    if shard.name == "00003" and first_time(shard):
        note(shard)
        (folder / "half").write_text("written")
        os.kill(os.getpid(), KILL)
    return tidy(shard, folder)


def always_killed(shard: Shard, folder: Path) -> dict[str, int]:
    note(shard)
    os.kill(os.getpid(), KILL)
    return {}


def full_disk(shard: Shard, folder: Path) -> dict[str, int]:
    (folder / "half").write_text("written")
    if Path("/dev/full").exists():
        with Path("/dev/full").open("w") as file:
            file.write("more than there is room for")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def own_error(shard: Shard, folder: Path) -> dict[str, int]:
    from heedful.errors import MissingExtra

    (folder / "half").write_text("written")
    raise MissingExtra("this needs that")


def foreign_error(shard: Shard, folder: Path) -> dict[str, int]:
    raise KeyError("what was looked for")


class Stubborn(Exception):
    """Can be pickled, but not unpickled."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def stubborn_error(shard: Shard, folder: Path) -> dict[str, int]:
    raise Stubborn(1, 2)


def beaten(shard: Shard, folder: Path) -> dict[str, int]:
    """While this is at work, a twin begins and finishes."""
    if first_time(shard):
        Task(beaten, {}, hash_code(beaten, {}))(shard)
    return tidy(shard, folder)


def in_the_way(shard: Shard, folder: Path) -> dict[str, int]:
    """While this is at work, something else takes the shard's place."""
    shard.output.mkdir()
    (shard.output / "foreign").touch()
    return {}


def surroundings(shard: Shard, folder: Path) -> dict[str, int]:
    """What a stage finds around it."""
    return {
        "half-written": len(list(folder.parent.glob(".tmp-*"))),
        "absolute": all(path.is_absolute() for path in (folder, shard.output, *shard.inputs)),
        "polars threads": int(os.environ.get("POLARS_MAX_THREADS", "0")),
        "openmp threads": int(os.environ.get("OMP_NUM_THREADS", "0")),
    }


def many_files(shard: Shard, folder: Path) -> dict[str, int]:
    for name in range(100):
        (folder / str(name)).touch()
    return {}


def shards_of(inputs: Path, outputs: Path) -> list[Shard]:
    return [Shard(path.stem, (path,), outputs / path.stem) for path in sorted(inputs.iterdir())]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("stage")
    options.add_argument("inputs", type=Path)
    options.add_argument("outputs", type=Path)
    options.add_argument("--workers", type=int)
    options.add_argument("--cluster")
    options.add_argument("--settings", type=json.loads, default={})
    given = options.parse_args()
    import shardwork  # not __main__, which workers would not find

    place = launcher(given.cluster, given.workers)
    run(getattr(shardwork, given.stage), shards_of(given.inputs, given.outputs), given.settings, launcher=place)


if __name__ == "__main__":
    main()

"""Can a model directory from a stranger do harm?

A good model directory is changed in 2,000 ways: files cut, flipped, swapped, deleted, replaced by links, pipes and
pickles; names that lead out of the folder; sizes of 2^60; giant pieces; JSON of every wrong shape. In most of them the
manifest is made to fit again, as an attacker would. Each is opened in a process that has no torch. Claims: each is
refused in words, or is a model with as many weights as before, with which text can be translated (by an engine that
says one thing to everything); in under a second, under 200 MB, and the folder and its surroundings are as they were.

    python benchmarks/hostile_models.py [--quick] [--count 2000]          (Linux)
"""

import argparse
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from report import header, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

MANIFEST = "manifest.json"
JSON = ("config.json", "generation_config.json", "training_statistics.json", "eval.json", "vocab.json")
DEEP: Any = json.loads("[" * 900 + "]" * 900)
VALUES: tuple[Any, ...] = (
    *(2**60, -1, 0, 10**40, 1e308, -1e308, 2**31, True, None, [], {}, [[]], {"": ""}, "", "x", DEEP),
    *("../../etc/passwd", "/etc/passwd", "x" * 10**6, "\x1b[2J", "\ud800", "NaN", "__import__('os')", "\0"),
)

STATISTICS = {
    "pairs": 100,
    "fingerprint": "",
    "lengths": {key: {"mean": 12.5, "p99": 30, "longest": 49} for key in ("source", "target")},
    "ratio": 1.1,
    "scripts": {key: {"LATIN": 1.0} for key in ("source", "target")},
    "usual": {"input": {"tokenized": 0.0002}, "output": {}},
    "confidence": {"p1": -0.9, "p5": -0.7, "p50": -0.3},
    "alignment": {"step": "shifted", "layer": 0, "head": 0},
}


class Marked:
    """Unpickled, it leaves a file behind."""

    def __init__(self, at: str) -> None:
        self.at = at

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (self.at, "w")


Draw = random.Random
Mutation = Callable[[Path, Draw], None]


def some_file(folder: Path, draw: Draw) -> Path:
    return draw.choice(sorted(folder.iterdir()))


def bytes_changed(folder: Path, draw: Draw) -> None:
    from support.checkpoint_damage import blank, cut, flip, grow, lose

    file = some_file(folder, draw)
    other = some_file(folder, draw).read_bytes()
    file.write_bytes(draw.choice((blank, cut, flip, grow, lose))(file.read_bytes(), other, draw))


def swapped(folder: Path, draw: Draw) -> None:
    one, other = draw.sample(sorted(folder.iterdir()), 2)
    one.write_bytes(other.read_bytes())


def deleted(folder: Path, draw: Draw) -> None:
    some_file(folder, draw).unlink()


def linked(folder: Path, draw: Draw) -> None:
    file = some_file(folder, draw)
    outside = folder.parent / "outside"
    outside.write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(draw.choice((outside, Path("/etc/passwd"), Path("/dev/zero"), folder, Path(file.name))))


def pipe(folder: Path, draw: Draw) -> None:
    file = some_file(folder, draw)
    file.unlink()
    draw.choice((lambda: os.mkfifo(file), file.mkdir))()


def pickled(folder: Path, draw: Draw) -> None:
    some_file(folder, draw).write_bytes(pickle.dumps(Marked(str(folder.parent / "executed"))))


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = tree.items() if isinstance(tree, dict) else enumerate(tree[:50]) if isinstance(tree, list) else ()
    for key, value in items:
        found += leaves(value, (*path, key))
    return found


def put(tree: Any, draw: Draw) -> None:
    """One place of a tree gets another value, or another name, or a neighbor."""
    *path, last = draw.choice(leaves(tree))
    for key in path:
        tree = tree[key]
    act = draw.random()
    if act < 0.7 or isinstance(tree, list):
        tree[last] = draw.choice(VALUES)
    elif act < 0.85:
        del tree[last]
    else:
        tree[str(draw.choice(VALUES))[:200]] = draw.choice(VALUES)


def tree_changed(folder: Path, draw: Draw) -> None:
    file = folder / draw.choice(JSON)
    tree = json.loads(file.read_bytes())
    put(tree, draw)
    file.write_text(json.dumps(tree), encoding="utf-8", errors="surrogatepass")


def manifest_changed(folder: Path, draw: Draw) -> None:
    file = folder / MANIFEST
    tree = json.loads(file.read_bytes())
    if draw.random() < 0.5:
        put(tree, draw)
    else:
        name = draw.choice(sorted(tree["files"]))
        escape = draw.choice(("../outside", "/etc/passwd", "a/b", "..", ".", "CON", "x\0y", "model.safetensors "))
        tree["files"][escape] = tree["files"].pop(name)
    file.write_text(json.dumps(tree), encoding="utf-8", errors="surrogatepass")


def header_changed(folder: Path, draw: Draw) -> None:
    """The header of the weights says something else: shapes, places, kinds of number, names."""
    file = folder / "model.safetensors"
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    tree = json.loads(data[8 : 8 + size])
    put(tree, draw)
    text = json.dumps(tree).encode(errors="surrogatepass")
    length = draw.choice((len(text), len(text), len(text), 2**60, 2**63, 0, len(text) + 1))
    file.write_bytes(length.to_bytes(8, "little") + text + data[8 + size :])


def giant(folder: Path, draw: Draw) -> None:
    """A file of pieces that has one of many megabytes, or a million of them."""
    file = draw.choice([folder / "source.spm", folder / "vocab.json"])
    if file.suffix == ".json":
        more = {"x" * 10**7: 300} if draw.random() < 0.5 else {str(number): number for number in range(10**6)}
        file.write_text(json.dumps(dict.fromkeys(("source", "target"), more)))
    else:
        piece = b"\x0a" + varint(10**7) + b"x" * 10**7
        file.write_bytes(file.read_bytes() + b"\x0a" + varint(len(piece)) + piece)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


# How often each is drawn; and whether the manifest may be made to fit afterwards.
MUTATIONS: dict[Mutation, tuple[int, bool]] = {
    bytes_changed: (6, True),
    swapped: (2, True),
    deleted: (1, True),
    linked: (2, False),
    pipe: (1, False),
    pickled: (2, True),
    tree_changed: (8, True),
    manifest_changed: (4, False),
    header_changed: (6, True),
    giant: (1, True),
}


def state(folder: Path) -> list[tuple[str, int, int]]:
    """What lies there, and when it was changed."""
    found = [(str(one), one.lstat().st_size, one.lstat().st_mtime_ns) for one in folder.rglob("*")]
    return sorted(found)


class Parrot:
    """An engine without a model: it says one thing to everything."""

    name = "parrot"

    def score_targets(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def translate(self, sources: Any, options: Any) -> Any:
        from heedful.engines.base import EngineResult
        from heedful.types import Hypothesis

        looked = [np.ones((1, 1, 3, len(one.tokens))) if options.attention else None for one in sources]
        return [(EngineResult(Hypothesis((5, 6), -1.0, -1.0, (-0.5, -0.3, -0.2), True), one),) for one in looked]


def child() -> None:
    """Open every folder that comes in on standard input, and say what came of it."""
    sys.modules["torch"] = None  # type: ignore[assignment]
    from heedful.bundle import open_bundle, read_weights
    from heedful.errors import HeedfulError
    from heedful.translation.translator import Translator
    from support.process_memory import held

    for line in sys.stdin:
        begin = time.perf_counter()
        told: dict[str, Any] = {}
        try:
            bundle = open_bundle(json.loads(line))
            told["seconds"] = time.perf_counter() - begin
            told["weights"] = sum(array.size for array in read_weights(bundle).values())
            for alignment in (None, "best"):
                with suppress(HeedfulError):
                    Translator(bundle, Parrot())("A red house, number 12.", alignment=alignment)
        except HeedfulError as error:
            told["refused"] = str(error)
        except BaseException as error:  # whatever it is, it is told
            told["crashed"] = f"{type(error).__name__}: {error}"[:500]
        told.setdefault("seconds", time.perf_counter() - begin)
        told["megabytes"] = held("VmHWM") / 1e6  # getrusage would count what its parent held before they parted
        print(json.dumps(told), flush=True)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="200 of them")
    options.add_argument("--count", type=int, default=2000)
    options.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.child:
        child()
        return 0
    header(__file__)
    from test_bundle import forge, made

    count, draw = 200 if given.quick else given.count, Draw(1)
    found: dict[str, Counter[str]] = {one.__name__: Counter() for one in MUTATIONS}
    crashed, slowest, largest, touched = [], 0.0, 0.0, 0
    with tempfile.TemporaryDirectory() as name:
        whole = made(Path(name) / "whole", statistics=STATISTICS).folder
        command = [sys.executable, __file__, "--child"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        assert process.stdout is not None

        told_to, said = process.stdin, process.stdout

        def opened(folder: Path) -> dict[str, Any]:
            told_to.write(json.dumps(str(folder)) + "\n")
            told_to.flush()
            return dict(json.loads(said.readline()))

        weights = opened(whole)["weights"]
        for number in range(count):
            place = Path(name) / str(number)
            folder = Path(shutil.copytree(whole, place / "model"))
            mutation = draw.choices(list(MUTATIONS), [share for share, _ in MUTATIONS.values()])[0]
            before = state(folder)
            while state(folder) == before:
                mutation(folder, draw)
            if MUTATIONS[mutation][1] and draw.random() < 0.8:
                forge(folder)
            before = state(place)
            told = opened(folder)
            whole_again = told.get("weights") == weights and "crashed" not in told
            kind = "refused" if "refused" in told else "harmless" if whole_again else "bad"
            found[mutation.__name__][kind] += 1
            if kind == "bad" or not told.get("refused", "said"):
                crashed.append((mutation.__name__, told))
            touched += state(place) != before or (place / "executed").exists()
            slowest, largest = max(slowest, told["seconds"]), max(largest, told["megabytes"])
            shutil.rmtree(place)
        process.stdin.close()
        process.wait()
    for mutation_name, kinds in found.items():
        print(f"{mutation_name:18} {kinds.total():5}  " + "  ".join(f"{kind} {times}" for kind, times in kinds.items()))
    for mutation_name, told in crashed[:10]:
        print(f"# {mutation_name}: {str(told)[:300]}")
    print(f"slowest {slowest:.2f} s, {largest:.0f} MB at most, {touched} folders touched")
    return verdict(
        [
            (f"of {count} refused or harmless", count - len(crashed), count),
            ("seconds below 1", 1 - slowest, 0.0),
            ("megabytes below 200", 200 - largest, 0.0),
            ("folders touched, negative", -touched, 0.0),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())

"""Can an untrusted model directory do harm?

A valid model directory is changed in 2,000 ways: files truncated, bits flipped, files swapped, deleted, replaced by
links, pipes and pickles; names that leave the directory; sizes of 2^60; giant pieces; malformed JSON. In most cases the
manifest is updated to match, as an attacker would do. Each directory is opened in a process without torch.

Claims: each is rejected with a message, or is a model with the original number of weights that can translate (with a
dummy engine); in under a second and 200 MB; the directory and its surroundings are unchanged.

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
    """Leaves a file behind when it is unpickled."""

    def __init__(self, at: str) -> None:
        self.at = at

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (self.at, "w")


Draw = random.Random
Mutation = Callable[[Path, Draw], None]


def random_file(folder: Path, draw: Draw) -> Path:
    return draw.choice(sorted(folder.iterdir()))


def change_bytes(folder: Path, draw: Draw) -> None:
    from support.checkpoint_damage import blank, cut, flip, grow, lose

    file = random_file(folder, draw)
    other = random_file(folder, draw).read_bytes()
    file.write_bytes(draw.choice((blank, cut, flip, grow, lose))(file.read_bytes(), other, draw))


def swap_files(folder: Path, draw: Draw) -> None:
    file, other = draw.sample(sorted(folder.iterdir()), 2)
    file.write_bytes(other.read_bytes())


def delete_file(folder: Path, draw: Draw) -> None:
    random_file(folder, draw).unlink()


def replace_by_link(folder: Path, draw: Draw) -> None:
    file = random_file(folder, draw)
    outside = folder.parent / "outside"
    outside.write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(draw.choice((outside, Path("/etc/passwd"), Path("/dev/zero"), folder, Path(file.name))))


def replace_by_pipe(folder: Path, draw: Draw) -> None:
    file = random_file(folder, draw)
    file.unlink()
    draw.choice((lambda: os.mkfifo(file), file.mkdir))()


def replace_by_pickle(folder: Path, draw: Draw) -> None:
    random_file(folder, draw).write_bytes(pickle.dumps(Marked(str(folder.parent / "executed"))))


def tree_paths(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    paths = [path] if path else []
    items = tree.items() if isinstance(tree, dict) else enumerate(tree[:50]) if isinstance(tree, list) else ()
    for key, value in items:
        paths += tree_paths(value, (*path, key))
    return paths


def change_tree_(tree: Any, draw: Draw) -> None:
    """Change, delete or add one value of a JSON tree, in place."""
    *path, last = draw.choice(tree_paths(tree))
    for key in path:
        tree = tree[key]
    chance = draw.random()
    if chance < 0.7 or isinstance(tree, list):
        tree[last] = draw.choice(VALUES)
    elif chance < 0.85:
        del tree[last]
    else:
        tree[str(draw.choice(VALUES))[:200]] = draw.choice(VALUES)


def change_json(folder: Path, draw: Draw) -> None:
    file = folder / draw.choice(JSON)
    tree = json.loads(file.read_bytes())
    change_tree_(tree, draw)
    file.write_text(json.dumps(tree), encoding="utf-8", errors="surrogatepass")


def change_manifest(folder: Path, draw: Draw) -> None:
    file = folder / MANIFEST
    tree = json.loads(file.read_bytes())
    if draw.random() < 0.5:
        change_tree_(tree, draw)
    else:
        name = draw.choice(sorted(tree["files"]))
        escape = draw.choice(("../outside", "/etc/passwd", "a/b", "..", ".", "CON", "x\0y", "model.safetensors "))
        tree["files"][escape] = tree["files"].pop(name)
    file.write_text(json.dumps(tree), encoding="utf-8", errors="surrogatepass")


def change_header(folder: Path, draw: Draw) -> None:
    """Change the header of the weights: shapes, offsets, types, names."""
    file = folder / "model.safetensors"
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    tree = json.loads(data[8 : 8 + size])
    change_tree_(tree, draw)
    text = json.dumps(tree).encode(errors="surrogatepass")
    length = draw.choice((len(text), len(text), len(text), 2**60, 2**63, 0, len(text) + 1))
    file.write_bytes(length.to_bytes(8, "little") + text + data[8 + size :])


def add_giant_piece(folder: Path, draw: Draw) -> None:
    """Add a piece of many megabytes, or a million pieces, to a vocabulary."""
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


# The weight of each in the random choice, and whether the manifest may be updated to fit afterwards.
MUTATIONS: dict[Mutation, tuple[int, bool]] = {
    change_bytes: (6, True),
    swap_files: (2, True),
    delete_file: (1, True),
    replace_by_link: (2, False),
    replace_by_pipe: (1, False),
    replace_by_pickle: (2, True),
    change_json: (8, True),
    change_manifest: (4, False),
    change_header: (6, True),
    add_giant_piece: (1, True),
}


def list_files(folder: Path) -> list[tuple[str, int, int]]:
    """Name, size and modification time of everything in a directory."""
    return sorted((str(path), path.lstat().st_size, path.lstat().st_mtime_ns) for path in folder.rglob("*"))


class Parrot:
    """An engine without a model that always returns the same answer."""

    name = "parrot"

    def score_targets(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def translate(self, sources: Any, options: Any) -> Any:
        from heedful.engines.base import EngineResult
        from heedful.types import Hypothesis

        attention = [np.ones((1, 1, 3, len(question.row))) if options.attention else None for question in sources]
        return [
            (EngineResult(Hypothesis((5, 6), -1.0, -1.0, (-0.5, -0.3, -0.2), True), weights),) for weights in attention
        ]


def child() -> None:
    """Open every directory named on standard input, and report the results as JSON."""
    sys.modules["torch"] = None  # type: ignore[assignment]
    from heedful.bundle import open_bundle, read_weights
    from heedful.errors import HeedfulError
    from heedful.translation.translator import Translator
    from support.process_memory import held

    for line in sys.stdin:
        start = time.perf_counter()
        result: dict[str, Any] = {}
        try:
            bundle = open_bundle(json.loads(line))
            result["seconds"] = time.perf_counter() - start
            result["weights"] = sum(array.size for array in read_weights(bundle).values())
            for alignment in (None, "best"):
                with suppress(HeedfulError):
                    Translator(bundle, Parrot())("A red house, number 12.", alignment=alignment)
        except HeedfulError as error:
            result["refused"] = str(error)
        except BaseException as error:  # reported, whatever it is
            result["crashed"] = f"{type(error).__name__}: {error}"[:500]
        result.setdefault("seconds", time.perf_counter() - start)
        result["megabytes"] = held("VmHWM") / 1e6  # getrusage would count the memory of the parent before the fork
        print(json.dumps(result), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="200 of them")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child()
        return 0
    header(__file__)
    from test_bundle import forge, made

    count, draw = 200 if options.quick else options.count, Draw(1)
    outcomes: dict[str, Counter[str]] = {mutation.__name__: Counter() for mutation in MUTATIONS}
    failures, max_seconds, max_megabytes, touched = [], 0.0, 0.0, 0
    with tempfile.TemporaryDirectory() as name:
        good = made(Path(name) / "whole", statistics=STATISTICS).folder
        command = [sys.executable, __file__, "--child"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        assert process.stdout is not None

        requests, replies = process.stdin, process.stdout

        def open_in_child(folder: Path) -> dict[str, Any]:
            requests.write(json.dumps(str(folder)) + "\n")
            requests.flush()
            return dict(json.loads(replies.readline()))

        weights = open_in_child(good)["weights"]
        for number in range(count):
            place = Path(name) / str(number)
            folder = Path(shutil.copytree(good, place / "model"))
            mutation = draw.choices(list(MUTATIONS), [share for share, _ in MUTATIONS.values()])[0]
            before = list_files(folder)
            while list_files(folder) == before:
                mutation(folder, draw)
            if MUTATIONS[mutation][1] and draw.random() < 0.8:
                forge(folder)
            before = list_files(place)
            result = open_in_child(folder)
            is_harmless = result.get("weights") == weights and "crashed" not in result
            kind = "refused" if "refused" in result else "harmless" if is_harmless else "bad"
            outcomes[mutation.__name__][kind] += 1
            if kind == "bad" or result.get("refused") == "":
                failures.append((mutation.__name__, result))
            touched += list_files(place) != before or (place / "executed").exists()
            max_seconds = max(max_seconds, result["seconds"])
            max_megabytes = max(max_megabytes, result["megabytes"])
            shutil.rmtree(place)
        process.stdin.close()
        process.wait()
    for mutation_name, kinds in outcomes.items():
        print(f"{mutation_name:18} {kinds.total():5}  " + "  ".join(f"{kind} {times}" for kind, times in kinds.items()))
    for mutation_name, result in failures[:10]:
        print(f"# {mutation_name}: {str(result)[:300]}")
    print(f"slowest {max_seconds:.2f} s, {max_megabytes:.0f} MB at most, {touched} folders touched")
    return verdict(
        [
            (f"of {count} refused or harmless", count - len(failures), count),
            ("seconds below 1", 1 - max_seconds, 0.0),
            ("megabytes below 200", 200 - max_megabytes, 0.0),
            ("folders touched, negative", -touched, 0.0),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())

"""Does a change keep all results bit-identical?

For changes that must not affect behavior, such as a renaming. The base commit (--base) and the working tree run the
same commands, and the sha256 hashes of their results are compared:

    tokens        the arrays of a prepared corpus
    weights       after 200 steps of each recipe (fp32, one thread, fixed seed, batch_tokens 1024)
    exports       the weights of every export of the sample model, and of a recurrent model
    translations  500 sentences with each engine: texts, scores, log-probabilities, links; sampled ones too
    trace         the values in the page of `heedful inspect`, for both sample models

The script uses only the command line, with keys and options that have the same names in both versions. Claim: all
values are equal.

    python benchmarks/sameness.py [--base REV] [--cache DIR] [--quick]

--base: the commit to compare with (default: HEAD, to check uncommitted changes). --cache: keep the values of commits in
DIR, to compute them only once.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from report import header, verdict

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ("transformer-tiny", "sample", "lstm-bahdanau", "gru-luong", "rnn-bottleneck")
SETTINGS = {
    "seed": 1, "train.threads": 1, "train.precision": "fp32", "train.batch_tokens": 1024, "train.micro_batches": 2,
    "train.validate_pairs": 40, "train.validate_every": 100, "train.save_every": 100, "train.log_every": 50,
}  # fmt: skip
RECURRENT = "lstm-bahdanau"  # exported too
INSPECTED = {"pt-en": "Eu gosto muito de café com leite.", "ru-en": "Я хочу выпить стакан воды."}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="HEAD")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--quick", action="store_true", help="one recipe, one export, one page")
    options = parser.parse_args()
    header(__file__)
    commit = git("rev-parse", options.base)
    print(f"# base     {commit[:12]}")
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as pool:  # every command has one thread
        known = cached(options.cache, commit, options.quick)
        computed = None if known else pool.submit(of_commit, commit, Path(scratch), options.quick)
        after = digests(ROOT / "src", Path(scratch) / "after", options.quick)
        before = known or (computed.result() if computed else {})
        if options.cache:
            store(options.cache, commit, options.quick, before)
    names = sorted({*before, *after})
    for name in names:
        equal = before.get(name) == after.get(name)
        print(f"{'equal' if equal else 'OTHER'}  {str(before.get(name))[:16]}  {str(after.get(name))[:16]}  {name}")
    same = sum(before.get(name) == after.get(name) for name in names)
    return verdict([(f"equal values of {len(names)}", same, len(names))])


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def cached(folder: Path | None, commit: str, quick: bool) -> dict[str, str] | None:
    file = folder and folder / f"{commit}{'-quick' * quick}.json"
    values: dict[str, str] | None = json.loads(file.read_text()) if file and file.is_file() else None
    return values


def store(folder: Path, commit: str, quick: bool, values: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{commit}{'-quick' * quick}.json").write_text(json.dumps(values, indent=1))


def of_commit(commit: str, scratch: Path, quick: bool) -> dict[str, str]:
    """The values of a commit, from a separate work tree."""
    tree = scratch / "tree"
    git("worktree", "add", "--detach", str(tree), commit)
    try:
        return digests(tree / "src", scratch / "before", quick)
    finally:
        git("worktree", "remove", "--force", str(tree))


def digests(source: Path, work: Path, quick: bool) -> dict[str, str]:
    """Name -> sha256 of everything that must stay equal; `source` is the src directory to run."""
    return dict(measured(source, work, quick))


def measured(source: Path, work: Path, quick: bool) -> Iterator[tuple[str, str]]:
    work.mkdir()
    sample = source / "heedful" / "samples" / "pt-en"
    for name in ("train.pt", "train.en", "valid.pt", "valid.en"):
        (work / name).write_bytes(gzip.decompress((sample / f"{name}.gz").read_bytes()))
    lines = (work / "train.pt").read_text(encoding="utf-8").splitlines()[: 40 if quick else 500]
    (work / "lines").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    steps = 20 if quick else 200

    def heedful(*arguments: object) -> str:
        environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        command = [sys.executable, "-m", "heedful", *map(str, arguments)]
        run = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
        if run.returncode:
            raise SystemExit(f"{' '.join(command)}\n{run.stderr}")
        return run.stdout

    for recipe in RECIPES[:1] if quick else RECIPES:
        sets = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
        heedful(
            "train", "train.pt", "train.en", "--validation", "valid.pt", "--validation", "valid.en", "--pair", "pt-en",
            "--recipe", recipe, "--steps", steps, "--out", f"run-{recipe}", *sets,
        )  # fmt: skip
        checkpoint = next(work.glob(f"run-{recipe}/step-*{steps}"))
        yield f"weights after {steps} steps: {recipe}", tensors(checkpoint / "model.safetensors")
        yield f"model directory: {recipe}", tensors(work / f"run-{recipe}" / "model" / "model.safetensors")
        if recipe == "transformer-tiny":
            arrays = sorted(work.glob("**/tokens/**/*.npy"))
            assert arrays, "no tokens found"
            yield "tokens of the prepared corpus", hash_of(bytes_of(array) for array in arrays)
        links = () if recipe == "rnn-bottleneck" else ("--alignment", "naive")  # without attention there are no links
        yield f"translations: torch, {recipe}", translations(heedful, f"run-{recipe}/model", *links)

    quantization = "--quantization" if "--quantization" in heedful("export", "--help") else "--rounding"
    model = sample / "model"
    exports = [
        ("ctranslate2", "float32"),
        ("ctranslate2", "int8"),
        ("onnx", "float32"),
        ("hugging_face", "float32"),
        ("argos", "int8"),
    ]
    for engine, kind in exports[:1] if quick else exports:
        place = f"{engine}-{kind}" + (".argosmodel" if engine == "argos" else "")
        heedful("export", model, "--to", engine, "--out", place, quantization, kind, "--probes", "lines")
        yield f"export: {engine} {kind}", exported(work / place)
        if engine == "argos":
            continue
        yield (
            f"translations: {engine} {kind}",
            translations(heedful, place, *(() if engine == "hugging_face" else ("--alignment", "shifted"))),
        )
    yield "translations: torch, sampled", translations(heedful, model, "--sample", "--top-k", 20, "--seed", 3)
    if not quick:
        heedful("export", f"run-{RECURRENT}/model", "--to", "onnx", "--out", "onnx-recurrent", "--probes", "lines")
        yield f"export: onnx, {RECURRENT}", exported(work / "onnx-recurrent")
        yield f"translations: onnx, {RECURRENT}", translations(heedful, "onnx-recurrent", "--alignment", "naive")
        yield "translations: torch, sample model", translations(heedful, model, "--alignment", "best")
        nucleus = ("--sample", "--top-p", 0.9, "--seed", 3)
        yield "translations: onnx, sampled", translations(heedful, "onnx-float32", *nucleus)
        yield "translations: torch, greedy, prefix", translations(heedful, model, "--beam", 1, "--prefix", "I")

    for pair, sentence in [*INSPECTED.items()][: 1 if quick else None]:
        inspected = source / "heedful" / "samples" / pair / "model"
        heedful("inspect", inspected, sentence, "--out", f"{pair}.html", "--arithmetic", "cross", "--importance")
        yield f"trace in the page: {pair}", trace(work / f"{pair}.html")


def translations(heedful: Any, model: object, *options: object) -> str:
    """The hash of all values of `heedful translate --json`, line by line."""
    text = heedful("translate", model, "lines", "--json", "--threads", 1, *options)
    return hash_of(json.dumps(leaves(json.loads(line)), ensure_ascii=False).encode() for line in text.splitlines())


def tensors(file: Path) -> str:
    """The hash of every tensor of a safetensors file, by name."""
    from safetensors.numpy import load_file

    arrays = load_file(file)
    return hash_of(part for name in sorted(arrays) for part in (name.encode(), arrays[name].tobytes()))


def bytes_of(array: Path) -> bytes:
    return bytes(np.load(array).tobytes())


def exported(place: Path) -> str:
    """The hash of the weights in an export: model.bin, *.onnx or *.safetensors, also inside an archive."""
    kinds = (".bin", ".onnx", ".safetensors")
    if place.is_file():
        with zipfile.ZipFile(place) as archive:
            names = sorted(name for name in archive.namelist() if name.endswith(kinds) and "sbd" not in name)
            return hash_of(archive.read(name) for name in names)
    files = sorted(file for file in place.iterdir() if file.name.endswith(kinds))
    assert files, f"no weights in {place}"
    return hash_of(file.read_bytes() for file in files)


def trace(page: Path) -> str:
    """The hash of the values in a page's trace; key names do not count."""
    data = re.search(r'<script type="application/json" id="trace">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    assert data, f"no trace in {page}"
    return hash_of(leaf.encode() for leaf in sorted(json.dumps(leaf) for leaf in leaves(json.loads(data[1]))))


def leaves(tree: Any) -> list[Any]:
    """Every value of a JSON tree, in its order, except the details of flags: their wording may change."""
    if isinstance(tree, dict):
        return [leaf for key, value in tree.items() if key != "detail" for leaf in leaves(value)]
    if isinstance(tree, list):
        return [leaf for value in tree for leaf in leaves(value)]
    return [tree]


def hash_of(parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main())

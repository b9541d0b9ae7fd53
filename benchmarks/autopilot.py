"""Does the autopilot choose at least as well as a user who picks the right recipe?

Runs `heedful train FILES --time 10m` against the same command with --recipe transformer-tiny and with --recipe
transformer-base; the time includes everything from raw files to the finished model. Corpora: the first 5,000 pairs of
Multi30k en-de, and Tatoeba eng-por with 200 thousand pairs. The claim is about chrF on the validation set, decoded with
the beam that each run selects.

    python benchmarks/autopilot.py [--quick] [--time 10m] [--at-once 1] [--out DIR]

--at-once 2 runs two trainings in parallel with the same number of threads each, which halves the total time. --quick:
one small corpus, one recipe and little time, as a smoke test; the winner is then random. HEEDFUL_DATA is the directory
of the corpora (default: ../shared/data next to the repository).
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from report import header, verdict

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
PILOT = "autopilot"
RECIPES = ("transformer-tiny", "transformer-base")


def multi30k(into: Path, pairs: int) -> list[str]:
    """The first pairs, and the validation set."""
    files = []
    for language in ("en", "de"):
        file = into / f"train.{language}"
        with gzip.open(DATA / "multi30k" / f"train.{language}.gz", "rt", encoding="utf-8") as lines:
            file.write_text("".join(islice(lines, pairs)), encoding="utf-8", newline="\n")
        files.append(str(file))
    return [*files, *validation(DATA / "multi30k" / "val", "en", "de")]


def tatoeba() -> list[str]:
    """All training pairs, and the validation set."""
    folder = DATA / "tatoeba-eng-por"
    return [
        *(str(folder / f"train.{language}.gz") for language in ("eng", "por")),
        *validation(folder / "valid", "eng", "por"),
    ]


def validation(stem: Path, *languages: str) -> list[str]:
    return [word for language in languages for word in ("--validation", f"{stem}.{language}.gz")]


def trained(name: str, files: list[str], out: Path, clock: str, threads: int) -> dict[str, float]:
    """Run the command once and return its recorded results."""
    recipe = [] if name == PILOT else ["--recipe", name]
    command = [sys.executable, "-m", "heedful", "train", *files, "--out", str(out), "--time", clock, *recipe]
    command += ["--set", f"train.threads={threads}"]
    alone = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=alone)
    (out.parent / f"{out.name}.log").write_text(done.stderr, encoding="utf-8")
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [one for one in records if one["event"] == "stepped"][-1]
    ended = next(one for one in records if one["event"] == "ended")
    scores = {metric: one["value"] for metric, one in ended["scores"]["validation"].items()}
    return {
        "steps": last["step"],
        "passes": last["epoch"],
        "tokens/s": last["tokens"] / last["elapsed"],  # everything included
        "seconds": ended["elapsed"],
        "chrF": scores["chrf"],
        "BLEU": scores["bleu"],
    }


def gains(
    corpora: dict[str, list[str]], folder: Path, clock: str, recipes: tuple[str, ...], at_once: int
) -> list[float]:
    """Run all settings on all corpora; return the autopilot's chrF minus the best recipe's, per corpus."""
    threads = max(1, (os.cpu_count() or 1) // at_once)
    runs = [(corpus, name) for corpus in corpora for name in (PILOT, *recipes)]

    def run(one: tuple[str, str]) -> float:
        corpus, name = one
        found = trained(name, corpora[corpus], folder / f"{corpus}-{name}", clock, threads)
        print(f"{corpus:12} {name:17}", *(f" {key} {value:,.1f}" for key, value in found.items()), flush=True)
        return found["chrF"]

    print(f"{clock} each, {at_once} at once, {threads} threads each", flush=True)
    with ThreadPoolExecutor(at_once) as pool:
        chrf = dict(zip(runs, pool.map(run, runs), strict=True))
    return [chrf[corpus, PILOT] - max(chrf[corpus, name] for name in recipes) for corpus in corpora]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--time", help="10m, or 20s if --quick")
    options.add_argument("--at-once", type=int, default=1)
    options.add_argument("--out", help="a folder to keep the runs in")
    given = options.parse_args()
    header(__file__)
    clock = given.time or ("20s" if given.quick else "10m")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(given.out or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if given.quick:
            few = ["--set", "train.validate_pairs=50"]
            corpora = {"multi30k-1k": [*multi30k(folder, 1_000), *few]}
            (gain,) = gains(corpora, folder, clock, RECIPES[:1], given.at_once)
            return verdict([("chrF above tiny's, 1 k pairs", gain, -5.0)])
        corpora = {"multi30k-5k": multi30k(folder, 5_000), "tatoeba-200k": tatoeba()}
        found = gains(corpora, folder, clock, RECIPES, given.at_once)
    names = ("5 k pairs", "200 k pairs")
    return verdict(
        [(f"chrF above the better recipe's, {name}", one, 0.0) for name, one in zip(names, found, strict=True)]
    )


if __name__ == "__main__":
    sys.exit(main())

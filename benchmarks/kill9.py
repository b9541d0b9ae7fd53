"""Does a run that is killed repeatedly end bit-identical to an undisturbed run?

A small Transformer on real text, trained by the real command in separate processes, with kill -9 at random moments of
the whole run. It saves after every step, so many kills happen during a save. The same is done to one of two processes
under torchrun, in exact mode (which must match the result of one process) and with FSDP2; torchrun restarts them.

    python benchmarks/kill9.py [--quick]          (Linux; HEEDFUL_DATA contains multi30k)
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from report import header, verdict

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from heedful.config import Settings
from support.training_runs import (
    Tally,
    Torchrun,
    events,
    kill_repeatedly,
    outcome,
    settings_of,
    write_multi30k,
    write_settings,
)

PIECES = {"vocab_size": 1000}
LAYER = {"kind": "transformer", "layers": 1, "heads": 2, "feedforward_size": 64, "dropout": 0.1}
MODEL = {
    "width": 32, "positions": "sinusoidal", "scale_embeddings": True, "dropout": 0.1, "tie_embeddings": "all",
    "encoder": LAYER, "decoder": LAYER,
}  # fmt: skip
TRAIN = {"batch_tokens": 400, "save_every": 1, "validate_pairs": 8}  # short steps: half of the time goes into saves


Start = Callable[[], Any]  # something with the face of Popen


class Command(subprocess.Popen[bytes]):
    """`python -m heedful train heedful.toml`"""

    def __init__(self, settings: Settings) -> None:
        path = write_settings(settings)
        with path.with_suffix(".log").open("ab") as log:
            super().__init__(
                [sys.executable, "-m", "heedful", "train", str(path)], stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        super().kill()
        self.wait()

    kill_all = kill


@dataclass
class Case:
    """A training mode, its undisturbed result, and its seconds after the first step."""

    name: str
    settings: Callable[[Path], Settings]
    start: Callable[[Settings], Start]
    steps: int
    digest: str = ""
    seconds: float = 0.0

    def undisturbed(self, folder: Path) -> None:
        """Run once without kills, for reference."""
        run = folder / f"{self.name}-reference"
        process = self.start(self.settings(run))()
        while not events(run, "began") and process.poll() is None:
            time.sleep(0.02)
        begin = time.perf_counter()
        if process.wait() != 0:
            raise RuntimeError(run.with_suffix(".log").read_text())
        self.seconds, self.digest = time.perf_counter() - begin, digest_of(run)
        print(f"{self.name}: undisturbed {self.seconds:.1f} s, sha256 {self.digest}", flush=True)

    def killed(self, folder: Path, number: int, kills: int) -> Tally:
        """Run once more, and kill it."""
        run = folder / f"{self.name}-{number}"
        start = self.start(self.settings(run))
        tally = kill_repeatedly(
            start, run, kills=kills, steps=self.steps, seconds=self.seconds, draw=random.Random(number)
        )
        same = tally.code == 0 and digest_of(run) == self.digest
        if not same:
            print(run.with_suffix(".log").read_text()[-4000:])
        tally.same = same
        print(
            f"{self.name} {number}: {tally.kills} kills, {tally.inside} inside a save, {tally.unloadable} unloadable, "
            f"{'the same bits' if same else 'OTHER BITS'}",
            flush=True,
        )
        return tally


def digest_of(run: Path) -> str:
    """The hash of parameters, moments, mean, finished model and decisions."""
    return sha256(repr(sorted(outcome(run).items())).encode()).hexdigest()


def alone(settings: Settings) -> Start:
    return lambda: Command(settings)


def by_two(settings: Settings) -> Start:
    """Start torchrun once; it restarts killed processes."""
    return cache(lambda: Torchrun(2, settings, random.Random(1), restarts=100))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="one run with 4 kills; of two processes, one kill")
    given = options.parse_args()
    header(__file__)
    runs, kills, fewer_runs, fewer_kills = (1, 4, 1, 1) if given.quick else (20, 10, 5, 4)
    steps = 60 if given.quick else 300
    with tempfile.TemporaryDirectory(prefix="kill9-") as name:
        folder = Path(name)
        (folder / "corpus").mkdir()
        corpus = write_multi30k(folder / "corpus", pairs=2000)

        def settings(run: Path, **changes: object) -> Settings:
            chosen = TRAIN | {"steps": steps, "validate_every": steps // 3, **changes}
            made: Settings = settings_of(corpus, run, model=MODEL, tokenizer=PIECES, **chosen)
            return made

        single = Case("one process", settings, alone, steps)
        single.undisturbed(folder)
        tallies = [single.killed(folder, number, kills) for number in range(runs)]
        claims = make_claims(single, tallies, runs, kills, min_inside=0 if given.quick else 1)
        exact = Case("two processes", settings, by_two, steps, single.digest, single.seconds)
        sharded = Case("two, sharded", lambda run: settings(run, parallel="fsdp", exact=False), by_two, steps)
        for case in (exact,) if given.quick else (exact, sharded):
            if not case.digest:
                case.undisturbed(folder)
            tallies = [case.killed(folder, number, fewer_kills) for number in range(fewer_runs)]
            claims += make_claims(case, tallies, fewer_runs, fewer_kills)
        return verdict(claims)


def make_claims(
    case: Case, tallies: list[Tally], runs: int, kills: int, min_inside: int = 0
) -> list[tuple[str, float, float]]:
    """The claims about one way to train; `min_inside` kills must fall into a save."""
    return [
        (f"{case.name}: kills", sum(tally.kills for tally in tallies), runs * kills),
        (f"{case.name}: kills inside a save", sum(tally.inside for tally in tallies), min_inside),
        (f"{case.name}: minus unloadable", -sum(tally.unloadable for tally in tallies), 0),
        (f"{case.name}: runs that end with the same sha256", sum(tally.same for tally in tallies), runs),
    ]


if __name__ == "__main__":
    sys.exit(main())

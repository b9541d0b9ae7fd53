"""Do two heedful processes on one machine share its cores, or stop each other?

Trainings run a recipe on the bundled pt-en corpus through the command line, from a run whose settings are already
measured; translations translate its sentences. "Before" means the default of GNU OpenMP (300,000 spins) and all cores.

Claims: two trainings at once each reach at least 0.4 of the speed of one alone, two translations likewise; alone,
nothing is more than 3 % slower than before; a run with a time limit that starts while another training runs, and then
has the machine to itself, takes at least 0.9 of the steps of a run that had it all along.

    python benchmarks/contention.py [--quick]

--quick: shorter measurements, fewer rounds, looser bounds.
"""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import heedful
from heedful.samples import model as sample_model
from report import header, verdict

BEFORE = {"GOMP_SPINCOUNT": "300000"}
ENDLESS = "1000000"
Process = subprocess.Popen[bytes]


def start(*arguments: str, environment: dict[str, str] | None = None, text: Path | None = None) -> Process:
    """A `heedful` process with the threads and the waiting that a user would get; `text` is its input."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "MKL_", "KMP_"))
    }
    return subprocess.Popen(
        [sys.executable, "-m", "heedful", *arguments],
        env={**inherited, **(environment or {})},
        stdin=text.open("rb") if text else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def stop(process: Process) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def steps_logged(run: Path) -> list[dict[str, float]]:
    """The events of metrics.jsonl that report steps."""
    path = run / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.startswith('{"event": "stepped"') and line.endswith("}")]


class Trainings:
    """Copies of one run that never ends, to measure the speed of steps."""

    def __init__(self, folder: Path, files: list[str], seconds: float) -> None:
        self.folder, self.seconds, self.count = folder, seconds, 0
        now, before = folder / "base-now", folder / "base-before"
        self.base = {"now": now, "before": before}
        process = start(
            "train", *files, "--recipe", "transformer-tiny", "--steps", ENDLESS, "--out", str(now), "--force",
            "--set", f"train.validate_every={ENDLESS}", "--set", f"train.save_every={ENDLESS}",
            "--set", "train.log_every=1",
        )  # fmt: skip
        while not steps_logged(now) and process.poll() is None:
            time.sleep(0.1)
        stop(process)
        shutil.copytree(now, before)
        settings = (now / "heedful.toml").read_text(encoding="utf-8")
        all_threads = re.sub(r"\nthreads = \d+", f"\nthreads = {os.cpu_count()}", settings)
        (before / "heedful.toml").write_text(all_threads, encoding="utf-8")

    def speeds(self, number: int, kind: str = "now") -> list[float]:
        """Target tokens per second of this number of trainings at the same time."""
        runs = []
        for _ in range(number):
            self.count += 1
            runs.append(self.folder / f"run-{self.count}")
            shutil.copytree(self.base[kind], runs[-1])
            (runs[-1] / "metrics.jsonl").unlink(missing_ok=True)
        environment = BEFORE if kind == "before" else {}
        processes = [start("train", str(run), environment=environment) for run in runs]
        while not all(len(steps_logged(run)) > 1 for run in runs):
            if any(process.poll() is not None for process in processes):
                sys.exit("a training has ended early: run it by hand to see why")
            time.sleep(0.1)
        first, began = [steps_logged(run)[-1] for run in runs], time.perf_counter()
        while time.perf_counter() - began < self.seconds or not all(
            steps_logged(run)[-1]["step"] > event["step"] + 1 for run, event in zip(runs, first, strict=True)
        ):
            time.sleep(0.1)
        last = [steps_logged(run)[-1] for run in runs]
        for process in processes:
            stop(process)
        for run in runs:
            shutil.rmtree(run)
        return [
            (after["tokens"] - before["tokens"]) / (after["elapsed"] - before["elapsed"])
            for before, after in zip(first, last, strict=True)
        ]


def translation_seconds(model: Path, text: Path, number: int, environment: dict[str, str] | None = None) -> float:
    """Seconds until the slowest of this number of `heedful translate` processes has ended."""
    began = time.perf_counter()
    processes = [start("translate", str(model), environment=environment, text=text) for _ in range(number)]
    if any(process.wait() for process in processes):
        sys.exit("a translation has failed: run it by hand to see why")
    return time.perf_counter() - began


def tokens_seen(folder: Path, files: list[str], seconds: int, load: Path | None, load_seconds: float) -> int:
    """Target tokens that a run by the autopilot has seen; `load` is a run that trains during its first seconds."""
    run = Path(tempfile.mkdtemp(dir=folder))
    other = start("train", str(load)) if load else None
    process = start("train", *files, "--out", str(run), "--time", f"{seconds}s", "--force")
    if other:
        time.sleep(load_seconds)
        stop(other)
    if process.wait():
        sys.exit("a training has failed: run it by hand to see why")
    return int(steps_logged(run)[-1]["tokens"])


def measure_trainings(trainings: Trainings, rounds: int) -> tuple[float, float, float]:
    """Medians: one alone against one before, each of two against one alone; and once, the latter before."""
    ratios = []
    for _ in range(rounds):
        alone, before, both = trainings.speeds(1)[0], trainings.speeds(1, "before")[0], trainings.speeds(2)
        ratios.append((alone / before, min(both) / alone))
        print(
            f"training: alone {alone:,.0f} tokens/s, before {before:,.0f}; two at once {both[0]:,.0f} and "
            f"{both[1]:,.0f}",
            flush=True,
        )
    one, two = (statistics.median(column) for column in zip(*ratios, strict=True))
    return one, two, min(trainings.speeds(2, "before")) / before


def measure_translations(text: Path, rounds: int) -> tuple[float, float, float]:
    """The same of translations: medians of ratios of speeds."""
    model, ratios = sample_model("pt-en"), []
    for _ in range(rounds):
        alone, before = (translation_seconds(model, text, 1, environment) for environment in ({}, BEFORE))
        both = translation_seconds(model, text, 2)
        ratios.append((before / alone, alone / both))
        print(f"translation: alone {alone:.1f} s, before {before:.1f} s; two at once {both:.1f} s", flush=True)
    one, two = (statistics.median(column) for column in zip(*ratios, strict=True))
    return one, two, before / translation_seconds(model, text, 2, BEFORE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    header(__file__)
    rounds, seconds, num_lines, limit = (1, 3.0, 30, 0) if quick else (7, 6.0, 400, 120)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        heedful.init(folder / "sample", sample="pt-en")
        data, text = folder / "sample" / "data", folder / "in.txt"
        lines = (data / "train.pt").read_text(encoding="utf-8").splitlines(keepends=True)[:num_lines]
        text.write_text("".join(lines), encoding="utf-8")
        files = [str(data / "train.pt"), str(data / "train.en")]
        trainings = Trainings(folder, files, seconds)
        one_training, two_trainings, two_trainings_before = measure_trainings(trainings, rounds)
        one_translation, two_translations, two_translations_before = measure_translations(text, rounds)
        print(
            f"before (once): each of two trainings reached {two_trainings_before:.2f} of one alone, each of two "
            f"translations {two_translations_before:.2f}"
        )
        shared, alone = (0.3, 0.8) if quick else (0.4, 0.97)
        claims = [
            ("speed of each of two trainings, of one alone", two_trainings, shared),
            ("speed of each of two translations, of one alone", two_translations, shared),
            ("speed of one training, of that before", one_training, alone),
            ("speed of one translation, of that before", one_translation, alone),
        ]
        if limit:
            free = tokens_seen(folder, files, limit, None, 0)
            loaded = tokens_seen(folder, files, limit, trainings.base["now"], limit / 10)
            print(
                f"{limit} s by the autopilot: {free:,} tokens alone, {loaded:,} with load in the first {limit // 10} s"
            )
            claims.append(("tokens of a run that starts under load, of one that does not", loaded / free, 0.9))
        return verdict(claims)


if __name__ == "__main__":
    sys.exit(main())

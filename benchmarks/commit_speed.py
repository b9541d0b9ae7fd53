"""Is a commit as fast as the one before it?

Each commit runs in its own process; the processes alternate on the same machine with the same work:

    step       one training step of transformer-tiny: forward, loss, backward, AdamW (target tokens per second)
    train      the training loop of `heedful train`, transformer-tiny on the sample corpus (target tokens per second)
    decode     30 sentences with PyTorch, beam of 5, one sentence at a time (sentences per second)
    translate  200 sentences from text to text, beam of 5, as `heedful.load(MODEL)(lines)` (sentences per second)
    serve      `heedful serve` with a CTranslate2 export, requests of 32 sentences (sentences per second)

Claim: the median of the ratios new / old is at least 0.97, or its 95 % bootstrap interval includes 1.

    python benchmarks/commit_speed.py [--base REV] [--rounds 15] [--parts step train ...] [--quick]

--base: the commit to compare with (default: HEAD, to measure uncommitted changes).
"""

import argparse
import contextlib
import gzip
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from report import header, verdict

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("step", "train", "decode", "translate", "serve")
LEAST = 0.97


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="HEAD")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker)
        return 0
    header(__file__)
    rounds, parts = (3, ("step", "translate")) if options.quick else (options.rounds, options.parts)
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "tree"
        git("worktree", "add", "--detach", str(tree), options.base)
        try:
            print(f"# base     {git('rev-parse', '--short', options.base)}")
            return compare(tree, Path(scratch), rounds, parts)
        finally:
            git("worktree", "remove", "--force", str(tree))


def compare(tree: Path, scratch: Path, rounds: int, parts: Sequence[str]) -> int:
    """Measure both trees alternately, print every part, and return the exit code."""
    workers = {name: Worker(root, scratch / name) for name, root in (("old", tree), ("new", ROOT))}
    claims = []
    try:
        for part in parts:
            rates: dict[str, list[float]] = {"old": [], "new": []}
            for number in range(rounds + 1):
                order = ("old", "new") if number % 2 else ("new", "old")
                for name in order:
                    rate = workers[name].measure(part)
                    if number:  # the first round warms up
                        rates[name].append(rate)
            ratios = [new / old for old, new in zip(rates["old"], rates["new"], strict=True)]
            low, high = interval(ratios)
            median = statistics.median(ratios)
            print(
                f"{part:10} old {statistics.median(rates['old']):9.1f}  new {statistics.median(rates['new']):9.1f}  "
                f"ratio {median:.3f} (95 %: {low:.3f} to {high:.3f}), {rounds} rounds",
                flush=True,
            )
            claims.append(
                (
                    f"{part}: median ratio, or 1 where the interval includes it",
                    max(median, float(low <= 1 <= high)),
                    LEAST,
                )
            )
    finally:
        for worker in workers.values():
            worker.close()
    return verdict(claims)


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


class Worker:
    """A process that measures one tree."""

    def __init__(self, root: Path, scratch: Path) -> None:
        scratch.mkdir()
        environment = {**os.environ, "PYTHONPATH": str(root / "src"), "HEEDFUL_ROOT": str(root)}
        command = [sys.executable, __file__, "--worker", str(scratch)]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=scratch
        )

    def measure(self, part: str) -> float:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(part + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the worker stopped while it measured {part!r}")
        return float(json.loads(line))

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


# ------------------------------------------------------------------------------------------------ in the worker


def work(scratch: Path) -> None:
    """Answer each part name on standard input with a rate."""
    parts: dict[str, Any] = {}
    makers = {"step": Step, "train": Train, "decode": Decode, "translate": Translate, "serve": Serve}
    answers = os.fdopen(os.dup(1), "w")  # what the library prints must not be taken for an answer
    os.dup2(2, 1)
    try:
        for line in sys.stdin:
            name = line.strip()
            if name not in parts:
                parts[name] = makers[name](scratch)
            answers.write(json.dumps(parts[name]()) + "\n")
            answers.flush()
    finally:
        for part in parts.values():
            getattr(part, "close", lambda: None)()


def samples() -> Path:
    return Path(os.environ["HEEDFUL_ROOT"]) / "src" / "heedful" / "samples" / "pt-en"


def lines(name: str) -> list[str]:
    return gzip.decompress((samples() / f"{name}.gz").read_bytes()).decode().splitlines()


def run_heedful(*arguments: object, cwd: Path) -> None:
    command = [sys.executable, "-m", "heedful", *map(str, arguments)]
    run = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"{' '.join(command)}\n{run.stderr}")


class Step:
    """Training steps of transformer-tiny on random tokens."""

    def __init__(self, _scratch: Path) -> None:
        import torch

        from heedful import config
        from heedful.build import build
        from heedful.data.batch import collate

        torch.manual_seed(1)
        recipe = vars(config).get("read_recipe") or vars(config)["recipe"]
        section = getattr(config, "ModelSettings", None) or vars(config)["Model"]  # its older name
        model: Any = build(section.model_validate(recipe("transformer-tiny")["model"]), 8000, 8000)
        rows = torch.randint(4, 8000, (128, 15)).tolist()
        self.batch = collate([(row, row) for row in rows], bos=2, eos=3, pad=0)
        self.model, self.optimizer = model.train(), torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def __call__(self) -> float:
        begin, steps, tokens = time.perf_counter(), 6, 0
        for _ in range(steps):
            loss = self.model(self.batch)
            (loss.smoothed / loss.tokens).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            tokens += loss.tokens
        return tokens / (time.perf_counter() - begin)


class Train:
    """`heedful train`, with its own measure of tokens per second."""

    def __init__(self, scratch: Path) -> None:
        self.folder, self.runs = scratch / "train", 0
        self.folder.mkdir()
        for name in ("train.pt", "train.en", "valid.pt", "valid.en"):
            (self.folder / name).write_text("".join(line + "\n" for line in lines(name)), encoding="utf-8")

    def __call__(self) -> float:
        self.runs += 1
        settings = {
            "seed": 1, "train.precision": "fp32", "train.micro_batches": 4, "train.validate_pairs": 2,
            "train.log_every": 10, "train.validate_every": 1000, "train.save_every": 1000, "train.threads": 2,
        }  # fmt: skip
        sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        run_heedful(
            "train", "train.pt", "train.en", "--validation", "valid.pt", "--validation", "valid.en", "--pair", "pt-en",
            "--recipe", "transformer-tiny", "--steps", 60, "--out", f"run-{self.runs}", *sets, cwd=self.folder,
        )  # fmt: skip
        text = (self.folder / f"run-{self.runs}" / "metrics.jsonl").read_text(encoding="utf-8")
        rates = [
            event["tokens_per_second"] for event in map(json.loads, text.splitlines()) if event["event"] == "stepped"
        ]
        return float(statistics.median(rates[1:]))


class Translate:
    """Text to text, with sentences sorted into batches."""

    def __init__(self, _scratch: Path) -> None:
        import heedful

        self.translator: Any = heedful.load(samples() / "model", threads=2)
        self.sources = lines("test.pt")[:200]

    def __call__(self) -> float:
        begin = time.perf_counter()
        self.translator(self.sources)
        return len(self.sources) / (time.perf_counter() - begin)


class Decode(Translate):
    """The same one sentence at a time, which shows all costs of a step."""

    def __call__(self) -> float:
        begin, count = time.perf_counter(), 30
        for source in self.sources[:count]:
            self.translator(source)
        return count / (time.perf_counter() - begin)


class Serve:
    """`heedful serve` with a CTranslate2 export, two clients with requests of 32 sentences."""

    def __init__(self, scratch: Path) -> None:
        export = scratch / "export"
        probes = scratch / "probes"
        probes.write_text("".join(line + "\n" for line in lines("valid.pt")[:100]), encoding="utf-8")
        run_heedful("export", samples() / "model", "--out", export, "--probes", probes, cwd=scratch)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        command = [sys.executable, "-m", "heedful", "serve", str(export), "--port", str(self.port), "--threads", "2"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        sources = lines("test.pt")
        self.bodies = [json.dumps({"texts": sources[at : at + 32]}).encode() for at in range(0, 448, 32)]
        for _ in range(600):
            with contextlib.suppress(OSError):
                self.ask(self.bodies[0])
                return
            time.sleep(0.1)
        raise SystemExit("the server did not start")

    def ask(self, body: bytes) -> None:
        request = Request(f"http://127.0.0.1:{self.port}/v1/translate", body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=60) as response:
            response.read()

    def __call__(self) -> float:
        begin = time.perf_counter()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self.ask, self.bodies))
        return 32 * len(self.bodies) / (time.perf_counter() - begin)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


if __name__ == "__main__":
    sys.exit(main())

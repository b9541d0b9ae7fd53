"""Small real trainings for tests and benchmarks: a corpus, processes to kill, a storm, and what a run came to.

Processes come from a server that has imported PyTorch before it forks: to start one, and so to kill one, costs a
fraction of a second. What they run is the command line's own `main`.
"""

import gzip
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from heedful import config
from heedful.training import checkpoint
from heedful.training.events import Stepped
from support import process_memory as memory
from support.free_ports import free_port

DATA = Path(os.environ.get("HEEDFUL_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
METHODS = multiprocessing.get_all_start_methods()
SERVER = multiprocessing.get_context("forkserver" if "forkserver" in METHODS else "spawn")
if "forkserver" in METHODS:
    SERVER.set_forkserver_preload(["heedful.cli", "heedful.training.api", "polars"])

WORDS = {
    "a": "ein", "the": "das", "man": "mann", "woman": "frau", "child": "kind", "dog": "hund", "cat": "katze",
    "house": "haus", "street": "strasse", "tree": "baum", "red": "rot", "blue": "blau", "old": "alt", "young": "jung",
    "sees": "sieht", "paints": "malt", "hears": "hört", "loves": "liebt", "under": "unter", "beside": "neben",
    "behind": "hinter", "with": "mit", "two": "zwei", "three": "drei",
}  # fmt: skip
LAYER = {"kind": "transformer", "layers": 1, "heads": 2, "feedforward_size": 32, "dropout": 0.1}
MODEL = {
    "width": 16, "positions": "sinusoidal", "scale_embeddings": True, "dropout": 0.1, "tie_embeddings": "all",
    "encoder": LAYER, "decoder": LAYER,
}  # fmt: skip
RECURRENT = {
    "width": 16, "dropout": 0.1, "tie_embeddings": "target",
    "encoder": {"kind": "recurrent", "width": 16, "dropout": 0.1},
    "decoder": {"kind": "recurrent", "width": 16, "dropout": 0.1, "attention": {"score": "additive"}},
}  # fmt: skip
TRAIN = {
    "steps": 40, "batch_tokens": 256, "micro_batches": 4, "exact": True, "threads": 1, "precision": "fp32",
    "learning_rate": 5e-3, "warmup_steps": 8, "ema": 0.9, "validate_every": 20, "validate_pairs": 6, "show_samples": 1,
    "save_every": 4, "log_every": 4,
}  # fmt: skip
STATE = (
    "step", "offset", "optimizer_steps", "spike_guard", "steps", "refits", "tokens", "best",
    "validations_since_best", "end_reason",
)  # fmt: skip


# ------------------------------------------------------------------------------------------------ what is trained


def write_corpus(folder: Path, *, pairs: int = 300) -> Path:
    """Sentences of a small language and of the same with other words; the folder, with nothing prepared yet."""
    draw = random.Random(1)
    for name, count in (("train", pairs), ("val", 12)):
        sources = [draw.choices(list(WORDS), k=draw.randint(3, 9)) for _ in range(count)]
        for side, sentences in (("en", sources), ("de", [[WORDS[word] for word in one] for one in sources])):
            text = "".join(" ".join(one) + "\n" for one in sentences)
            (folder / f"{name}.{side}").write_bytes(text.encode())
    return folder


def write_multi30k(folder: Path, *, pairs: int) -> Path:
    """The first pairs of Multi30k's training set and some of its validation set."""
    for name, count in (("train", pairs), ("val", 20)):
        for side in ("en", "de"):
            lines = gzip.decompress((DATA / "multi30k" / f"{name}.{side}.gz").read_bytes()).split(b"\n")
            (folder / f"{name}.{side}").write_bytes(b"".join(line + b"\n" for line in lines[:count]))
    return folder


def settings_of(
    corpus: Path,
    run: Path,
    *,
    model: Mapping[str, Any] = MODEL,
    tokenizer: Mapping[str, Any] | None = None,
    validation: bool = True,
    **train: Any,
) -> config.Settings:
    """A run on a corpus; what is prepared is shared by all runs that prepare alike."""
    chosen = dict(tokenizer or {"kind": "words", "vocab_size": 80})
    alike = sha256(json.dumps([chosen, validation]).encode()).hexdigest()[:8]
    data: dict[str, Any] = {
        "prepared_dir": str(corpus / f"prepared-{alike}"),
        "train": [{"files": str(corpus / "train")}],
    }
    if validation:
        data["validation"] = [{"files": str(corpus / "val")}]
    return config.parse_settings(
        {
            "source": "en", "target": "de", "data": data, "tokenizer": chosen, "model": dict(model),
            "train": TRAIN | {"output_dir": str(run)} | train,
        }
    )  # fmt: skip


def write_settings(settings: config.Settings) -> Path:
    """A heedful.toml of these settings, beside the run's folder."""
    path, text = Path(settings.train.output_dir).with_suffix(".toml"), config.to_toml(settings)
    if not path.exists() or path.read_text(encoding="utf-8") != text:  # another process may be reading it
        path.write_text(text, encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------------------ what came of it


def events(run: Path, name: str) -> list[dict[str, Any]]:
    """The events of one kind, as metrics.jsonl tells them."""
    return [one for one in checkpoint.read_json_lines(run / "metrics.jsonl") if one["event"] == name]


def outcome(run: Path) -> dict[str, Any]:
    """Hashes of weights, moments, mean and model, and every decision: all but the wall clock."""
    found = checkpoint.find_newest(run, fail_on_warning)
    assert found is not None, f"{run} has no checkpoint"
    files = json.loads((found.folder / checkpoint.MANIFEST).read_bytes())["files"]
    hashes = {name: facts["sha256"] for name, facts in files.items() if name.endswith(".safetensors")}
    model = run / "model" / "model.safetensors"
    hashes["model"] = sha256(model.read_bytes()).hexdigest() if model.exists() else None
    return hashes | {key: found.state[key] for key in STATE}


def fail_on_warning(text: str) -> None:
    """Nothing may be wrong with any checkpoint."""
    raise AssertionError(text)


def on_step(step: int, act: Callable[[], Any], time: int = 1) -> Callable[[Any], None]:
    """An event handler that acts on a step, when it is logged for the first or a later time."""
    seen = 0

    def handle(event: Any) -> None:
        nonlocal seen
        if isinstance(event, Stepped) and event.step == step:
            seen += 1
            if seen == time:
                act()

    return handle


# ------------------------------------------------------------------------------------------------ who trains it


def run_command(arguments: Sequence[str], log: str, environment: Mapping[str, str], faults: "Faults") -> None:
    """`heedful ...`, in a process of its own; what it says goes to a file."""
    with Path(log).open("ab") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    os.environ.update(environment)
    sys.argv = ["heedful", *arguments]
    from heedful.cli import main

    with storm(faults):
        main()


class TrainingProcess:
    """A process that runs `heedful ...`, with the face of `subprocess.Popen`."""

    def __init__(self, *arguments: str, log: Path, faults: "Faults | None" = None, **environment: str) -> None:
        given = (arguments, str(log), environment, faults or {})
        self.process = SERVER.Process(target=run_command, args=given, daemon=True)  # it does not outlive a failed test
        self.process.start()
        self.pid = self.process.pid or 0

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit code, when it has ended."""
        self.process.join(timeout)
        return self.process.exitcode

    def kill(self) -> None:
        """kill -9"""
        self.process.kill()
        self.process.join()

    kill_all = kill


def start_training(settings: config.Settings, faults: "Faults | None" = None, **environment: str) -> TrainingProcess:
    """`heedful train heedful.toml`"""
    path = write_settings(settings)
    return TrainingProcess("train", str(path), log=path.with_suffix(".log"), faults=faults, **environment)


class RankProcesses:
    """Several processes of one run, as torchrun would start them; to kill it is to kill one of them."""

    def __init__(self, ranks: int, settings: config.Settings, draw: random.Random, faults: "Faults | None" = None):
        port = free_port()
        self.draw = draw
        self.ranks = [
            start_training(
                settings, faults,
                RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks),
                MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1",
            )
            for rank in range(ranks)
        ]  # fmt: skip

    def poll(self) -> int | None:
        """The worst exit code, once all have ended."""
        codes = [one.poll() for one in self.ranks]
        return None if None in codes else max(codes, key=abs)

    def wait(self, timeout: float = 300.0) -> int | None:
        """The worst exit code, when all have ended; those that hang are killed and told of."""
        end = time.monotonic() + timeout
        for one in self.ranks:
            if one.wait(max(0.0, end - time.monotonic())) is None:
                self.kill_all()
                raise AssertionError(f"process {one.pid} did not end")
        return self.poll()

    def kill(self) -> None:
        """kill -9 one of them; the others must not wait for it forever."""
        self.draw.choice(self.ranks).kill()
        self.wait()

    def kill_all(self) -> None:
        """kill -9 all of them."""
        for one in self.ranks:
            one.kill()


class Torchrun(subprocess.Popen):
    """torchrun; the processes that it starts are found through /proc."""

    def __init__(self, ranks: int, settings: config.Settings, draw: random.Random, *, restarts: int = 0) -> None:
        self.draw, path = draw, write_settings(settings)
        options = ["--standalone", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
        with path.with_suffix(".log").open("ab") as log:
            super().__init__(
                [sys.executable, "-m", "torch.distributed.run", *options, "-m", "heedful", "train", str(path)],
                env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=log, stderr=log,
            )  # fmt: skip

    def kill(self) -> None:
        """kill -9 one of its processes; torchrun stops the others and starts all again."""
        ranks = memory.family(self.pid)[1:]
        if not ranks:
            raise ProcessLookupError("all processes of torchrun have ended")
        os.kill(self.draw.choice(ranks), signal.SIGKILL)

    def kill_all(self) -> None:
        """kill -9 all of it, torchrun first: it would start the others again."""
        for one in memory.family(self.pid):
            os.kill(one, signal.SIGKILL)
        self.wait()


# ------------------------------------------------------------------------------------------------ killing


@dataclass
class Tally:
    """What killing a run again and again came to."""

    kills: int = 0
    inside: int = 0  # a save was under way
    unloadable: int = 0
    code: int | None = None
    same: bool = False  # bits, at the end


PATIENCE = 300.0  # seconds until a start that does not get anywhere is called one that hangs


def kill_repeatedly(
    start: Callable[[], Any], run: Path, *, kills: int, steps: int, seconds: float, draw: random.Random
) -> Tally:
    """Start, kill at a random moment, look whether a checkpoint loads, start again; at last let it end.

    `seconds` are those that an uninterrupted run takes after its first step has begun. The kills spread over
    what is left: with k of them to come, the next falls somewhere in the first 1.2 / (k + 1) of it.
    """
    tally = Tally()
    while True:
        before = len(events(run, "began"))
        process = start()
        begin = time.monotonic()
        while tally.kills < kills and process.poll() is None and len(events(run, "began")) == before:
            time.sleep(0.02)
            if time.monotonic() - begin > PATIENCE:
                process.kill_all()
                raise AssertionError(f"{run} did not begin again:\n{run.with_suffix('.log').read_text()}")
        if tally.kills < kills and process.poll() is None:
            found = checkpoint.find_newest(run)
            left = seconds * (1.0 - found.state["step"] / (1.2 * steps)) if found else seconds
            end = time.monotonic() + draw.uniform(0.0, 1.2 * left / (kills - tally.kills + 1))
            while time.monotonic() < end and process.poll() is None:
                time.sleep(0.002)
        if tally.kills == kills or process.poll() is not None:
            tally.code = process.wait()
            return tally
        try:
            process.kill()
        except ProcessLookupError:  # it has just ended: not a kill
            continue
        tally.kills += 1
        tally.inside += any(run.glob(".tmp-*"))
        said: list[str] = []
        tally.unloadable += checkpoint.find_newest(run, said.append) is None or bool(said)


# ------------------------------------------------------------------------------------------------ bad batches

Faults = Mapping[tuple[int, int], str]  # (batch, micro-batch) -> what is wrong with it
WRONG = ("loss is nan", "loss is inf", "gradient is inf", "gradient is huge")


@contextmanager
def storm(faults: Faults, seed: int = 1):
    """While it lasts, some micro-batches give what no sane one would. Batches count from 1, over roll-backs too.

    The loop seeds the generator with the name of the micro-batch right before it asks the model: so the storm knows
    which one it is without any change to the loop.
    """
    if not faults:
        yield
        return
    import torch

    from heedful.model.seq2seq import Seq2Seq
    from heedful.training.loop import micro_batch_seed

    named = {micro_batch_seed(seed, *place): wrong for place, wrong in faults.items()}
    calm = Seq2Seq.forward

    def forward(model: Seq2Seq, batch: Any) -> Any:
        loss = calm(model, batch)
        match named.get(torch.initial_seed()) if model.training else None:
            case "loss is nan":
                return loss._replace(smoothed=loss.smoothed * float("nan"))
            case "loss is inf":
                return loss._replace(smoothed=loss.smoothed * float("inf"))
            case "gradient is inf":
                loss.smoothed.register_hook(lambda gradient: gradient * float("inf"))
            case "gradient is huge":
                loss.smoothed.register_hook(lambda gradient: gradient * 1e6)
        return loss

    Seq2Seq.forward = forward
    try:
        yield
    finally:
        Seq2Seq.forward = calm


def random_faults(draw: random.Random, steps: int, micro_batches: int, *, share: float = 0.1) -> dict:
    """Single bad micro-batches all over a run, and one row of bad batches that is long enough to roll back."""
    chosen = {
        (batch, draw.randrange(micro_batches)): draw.choice(WRONG) for batch in range(2, steps) if draw.random() < share
    }
    first = draw.randrange(steps // 2, 3 * steps // 4)
    return chosen | {(batch, draw.randrange(micro_batches)): "loss is nan" for batch in range(first, first + 6)}

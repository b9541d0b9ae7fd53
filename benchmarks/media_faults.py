"""What sources.py shows of pictures, and speech.py of recordings: resumed to the same bits, hostile files rejected."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from heedful import config

Claim = tuple[str, float, float]
CORPORA = 4  # tables that are prepared side by side
HOSTILE_FILES = 500
MAX_GROWTH_MB = 300.0


def split_table(folder: Path, lines: Sequence[str], corpora: int) -> list[dict[str, str]]:
    """Write the lines to `corpora` tables; what `data.train` contains for them."""
    ends = [len(lines) * number // corpora for number in range(corpora + 1)]
    tables = []
    for number, (first, last) in enumerate(pairwise(ends)):
        path = folder / f"part{number}.tsv"
        path.write_text("".join(f"{line}\n" for line in lines[first:last]), encoding="utf-8")
        tables.append({"files": str(path)})
    return tables


def measure_resume(name: str, folder: Path, tree: Mapping[str, Any], *, batch_tokens: int, quick: bool) -> list[Claim]:
    """A training that is killed (kill -9) 20 times ends with the same bits."""
    kill9, runs = import_module("kill9"), import_module("support.training_runs")
    kills, steps = (2, 30) if quick else (20, 300)
    short_steps = {**runs.TRAIN, "steps": steps, "batch_tokens": batch_tokens, "save_every": 1, "validate_pairs": 8,
                   "validate_every": steps // 3}  # fmt: skip

    def settings(run: Path) -> Any:
        return config.parse_settings({**tree, "train": {**short_steps, "output_dir": str(run)}})

    def start(settings: Any) -> Callable[[], Any]:
        path = runs.write_settings(settings)
        return lambda: runs.TrainingProcess("train", str(path), "--force", log=path.with_suffix(".log"))

    case = kill9.Case(name, settings, start, steps)
    case.undisturbed(folder)
    claims: list[Claim] = kill9.make_claims(case, [case.killed(folder, 1, kills)], 1, kills)
    return claims


def measure_prepare(folder: Path, tree: Mapping[str, Any]) -> list[Claim]:
    """1 and 2 workers prepare the same bytes."""
    hostile = import_module("hostile")
    settings = config.parse_settings({**tree, "train": {"output_dir": str(folder / "run")}})
    (folder / "heedful.toml").write_text(config.to_toml(settings), encoding="utf-8")
    trees = [hostile.prepared_by(workers, folder)[0] for workers in (1, 2)]
    differing = sum(trees[0].get(name) != trees[1].get(name) for name in trees[0].keys() | trees[1].keys())
    return [
        ("prepare: files", len(trees[0]), CORPORA),
        ("prepare: minus files that differ between 1 and 2 workers", -differing, 0),
    ]


def measure_hostile(
    folder: Path,
    write_files: Callable[[Path, int], Sequence[Any]],
    read_in_process: Callable[[Sequence[Path]], tuple[list[str | None], int]],
    *,
    quick: bool,
) -> list[Claim]:
    """Truncated, mislabeled, huge and malicious files are rejected, with their reasons, in little memory."""
    folder.mkdir(exist_ok=True)
    files = write_files(folder, 40 if quick else HOSTILE_FILES)
    begin = time.perf_counter()
    reasons, growth = read_in_process([file.path for file in files])
    seconds = time.perf_counter() - begin
    print(f"\n{len(files)} files of {len({file.kind for file in files})} kinds: {seconds:.1f} s, "
          f"memory grows by {growth / 1e6:.0f} MB", flush=True)  # fmt: skip
    rejected = 0
    for file, reason in zip(files, reasons, strict=True):
        expected = reason is not None and re.search(file.reason, reason) is not None
        rejected += expected
        if not expected:
            print(f"  {file.kind}: {reason or 'not rejected'}")
    return [
        ("hostile: share of the files that are rejected with the reason", rejected / len(files), 1.0),
        ("hostile: minus the growth of memory in MB", -growth / 1e6, -MAX_GROWTH_MB),
    ]

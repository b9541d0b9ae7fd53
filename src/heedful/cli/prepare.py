"""`heedful prepare`: turn corpora into token shards for training."""

import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.corpus.arguments import COLUMNS_HELP, select_columns
from heedful.errors import require

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from heedful.config import Settings
    from heedful.data.prepare import ProgressCallback as ProgressHandler
    from heedful.data.prepare import StageProgress

MAX_DROPPED_SHARE = 0.2  # of the pairs; warn if a rule drops more
SECONDS_BETWEEN_LINES = 10.0  # of progress, without a terminal


def prepare(
    config: str = typer.Argument("heedful.toml", help="Settings file."),
    workers: int | None = typer.Option(
        None, "--workers", help="Local processes (default: 1, or one per core if the text exceeds 128 MB)."
    ),
    cluster: str | None = typer.Option(
        None,
        "--cluster",
        help="Ray cluster: ray (the cluster that this machine is part of), host:6379 or ray://host:10001.",
    ),
    columns: str | None = typer.Option(None, "--columns", help=COLUMNS_HELP),
    sheet: str | None = typer.Option(None, "--sheet", help="Sheet of an .xlsx (default: the first)."),
    sets: list[str] = typer.Option(
        [], "--set", help="Override a setting, such as tokenizer.vocab_size=4000; repeatable."
    ),
) -> None:
    """Clean, deduplicate, shuffle and tokenize a corpus.

    Rerun the command to resume after an interruption.

    \b
      heedful prepare heedful.toml
      heedful prepare heedful.toml --workers 8 --set tokenizer.vocab_size=16000
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    require("polars", extra="corpus", whose="heedful prepare")
    from rich.console import Console
    from rich.markup import escape

    from heedful.config import load
    from heedful.corpus.launchers import make_launcher
    from heedful.data.prepare import prepare as prepare_data
    from heedful.data.prepare import suggest_workers

    settings = select_columns(load(config, sets), columns, sheet)
    if settings.init_from:
        from heedful.training.finetune import apply_finetuning_defaults

        settings = apply_finetuning_defaults(settings)
    if cluster is None and workers is None:
        workers = suggest_workers(settings)
    console, start = Console(highlight=False), time.perf_counter()
    with show_stages(Console(stderr=True)) as handle_progress:
        prepared = prepare_data(settings, launcher=make_launcher(cluster, workers), progress=handle_progress)
    folder = escape(str(path_from_here(settings.data.prepared_dir)))
    console.print(f"[bold]heedful prepare[/]  {settings.source} → {settings.target}  in {folder}", soft_wrap=True)
    for name, text in summarize_counts(settings, prepared.manifest["counts"], prepared.manifest["tokenizers"]):
        console.print(f"  [dim]{name:>12}[/]  {text}", soft_wrap=True)
    console.print(f"  [dim]{'fingerprint':>12}[/]  {prepared.fingerprint[:16]}")
    following = shlex.join(["heedful", "train", config, *(word for setting in sets for word in ("--set", setting))])
    seconds = time.perf_counter() - start
    console.print(f"[bold]Done in {seconds:.1f} s.[/] Next: {escape(following)}", soft_wrap=True)


@contextmanager
def show_stages(console: "Console") -> Iterator["ProgressHandler"]:
    """Yield a progress handler that draws a bar per stage, or prints lines without a terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:>24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("·"),
        TimeRemainingColumn(),
    )
    start = last_line = time.perf_counter()
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def handle_progress(step: "StageProgress") -> None:
            nonlocal last_line
            if not console.is_terminal and (now := time.perf_counter()) - last_line > SECONDS_BETWEEN_LINES:
                console.print(
                    f"{step.stage}: {step.done} of {step.shards} shards after {now - start:.0f} s", soft_wrap=True
                )
                last_line = now
            if step.stage not in tasks:
                tasks[step.stage] = progress.add_task(step.stage)
            progress.update(tasks[step.stage], completed=step.done, total=step.shards)

        yield handle_progress


def path_from_here(path: str | Path) -> Path:
    """The path, relative to the working directory if it is inside."""
    path, here = Path(path), Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def summarize_counts(
    settings: "Settings", counts: Mapping[str, int], tokenizers: Mapping[str, Mapping[str, object]]
) -> list[tuple[str, str]]:
    """(label, text) lines about the pairs read, changed, dropped and kept."""
    read = " · ".join(
        f"{counts[f'{split}.read']:,} {split}" for split in ("train", "validation", "test") if f"{split}.read" in counts
    )
    changes = {
        name.removeprefix("normalized.").replace("_", " "): number
        for name, number in counts.items()
        if name.startswith("normalized.")
    }
    dropped = {name.removeprefix("dropped."): number for name, number in counts.items() if name.startswith("dropped.")}
    if settings.clean.duplicates == "drop":
        dropped["duplicates"] = counts.get("duplicates", 0)
    kept = sum(number for name, number in counts.items() if name.startswith("rows."))
    per_word = [
        counts.get(f"tokens.{side}", 0) / max(1, counts.get(f"words.{side}", 0)) for side in ("source", "target")
    ]
    pieces = " and ".join(dict.fromkeys(f"{tokenizer['size']:,}" for tokenizer in tokenizers.values()))
    dropped_text = " · ".join(f"{number:,} {name}" for name, number in dropped.items() if number)
    return [
        ("read", f"{read} pairs; {counts.get('rejected', 0):,} lines rejected"),
        ("normalized", ", ".join(f"{number:,} {name}" for name, number in changes.items()) or "nothing"),
        ("dropped", f"{dropped_text or 'nothing'}  [dim](listed in rejects.jsonl, except duplicates)[/]"),
        *drop_warnings(dropped, counts["train.read"]),
        ("kept", f"{kept:,} pairs, shuffled"),
        ("vocabulary", f"{pieces} pieces ({settings.tokenizer.kind}{', shared' if settings.tokenizer.shared else ''}): "
         f"{per_word[0]:.2f} tokens per word of {settings.source}, {per_word[1]:.2f} of {settings.target}"),
    ]  # fmt: skip


def drop_warnings(dropped: Mapping[str, int], pairs: int) -> list[tuple[str, str]]:
    """A warning for each rule that dropped more than MAX_DROPPED_SHARE of the pairs."""
    return [
        ("!", f"[yellow]{name} dropped {number / pairs:.0%} of the pairs: run heedful check to see why[/]")
        for name, number in dropped.items()
        if number > MAX_DROPPED_SHARE * pairs
    ]

"""`heedful prepare`: from corpora to tokens, ready to train on."""

import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from heedful.errors import require

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from heedful.config import Settings
    from heedful.data.prepare import ProgressCallback as Told
    from heedful.data.prepare import StageProgress

MUCH = 0.2  # share of the pairs that no rule should have to leave out
QUIET = 10.0  # seconds between lines where there is no terminal to draw a bar on


def prepare(
    config: str = typer.Argument("heedful.toml", help="heedful.toml"),
    workers: int | None = typer.Option(
        None, "--workers", help="Processes on this machine (default: 1; one per core above 128 MB of text)."
    ),
    on: str | None = typer.Option(None, "--on", help="A Ray cluster: ray://host:10001, host:6379, or just ray."),
    sets: list[str] = typer.Option([], "--set", help="A setting, such as tokenizer.vocab_size=4000."),
) -> None:
    """Read, clean, deduplicate, shuffle and tokenize. Repeating the command goes on where it stopped.

    \b
      heedful prepare heedful.toml
      heedful prepare heedful.toml --workers 8 --set tokenizer.vocab_size=16000
    """  # noqa: D301  # a real backspace: the next paragraph keeps its lines
    require("polars", extra="corpus", whose="heedful prepare")
    from rich.console import Console
    from rich.markup import escape

    from heedful.config import load
    from heedful.corpus.launchers import make_launcher
    from heedful.data.prepare import prepare as make
    from heedful.data.prepare import suggest_workers

    settings = load(config, sets)
    if settings.init_from:
        from heedful.training.finetune import apply_finetuning_defaults

        settings = apply_finetuning_defaults(settings)
    if on is None and workers is None:
        workers = suggest_workers(settings)
    console, aside, begin = Console(highlight=False), Console(stderr=True), time.perf_counter()
    with stages_shown(aside) as tell:
        prepared = make(settings, launcher=make_launcher(on, workers), progress=tell)
    place = escape(str(nearby(settings.data.prepared_dir)))
    console.print(f"[bold]heedful prepare[/]  {settings.source} → {settings.target}  in {place}", soft_wrap=True)
    for name, text in summary(settings, prepared.manifest["counts"], prepared.manifest["tokenizers"]):
        console.print(f"  [dim]{name:>12}[/]  {text}", soft_wrap=True)
    console.print(f"  [dim]{'fingerprint':>12}[/]  {prepared.fingerprint[:16]}")
    then = shlex.join(["heedful", "train", config, *(word for one in sets for word in ("--set", one))])
    console.print(f"[bold]Done in {time.perf_counter() - begin:.1f} s.[/] Next: {escape(then)}", soft_wrap=True)


@contextmanager
def stages_shown(aside: "Console") -> Iterator["Told"]:
    """Gives what is to be told of every step: a bar per stage, or now and then a line where there is no terminal."""
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
    begin = spoken = time.perf_counter()
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=aside, transient=True, disable=not aside.is_terminal) as progress:

        def tell(step: "StageProgress") -> None:
            nonlocal spoken
            if not aside.is_terminal and (now := time.perf_counter()) - spoken > QUIET:
                aside.print(
                    f"{step.stage}: {step.done} of {step.shards} shards after {now - begin:.0f} s", soft_wrap=True
                )
                spoken = now
            if step.stage not in tasks:
                tasks[step.stage] = progress.add_task(step.stage)
            progress.update(tasks[step.stage], completed=step.done, total=step.shards)

        yield tell


def nearby(place: str | Path) -> Path:
    """A path as one would type it here."""
    path, here = Path(place), Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def summary(
    settings: "Settings", counts: Mapping[str, int], tokenizers: Mapping[str, Mapping[str, object]]
) -> list[tuple[str, str]]:
    """What happened to the pairs."""
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
    pieces = " and ".join(dict.fromkeys(f"{one['size']:,}" for one in tokenizers.values()))
    out = " · ".join(f"{number:,} {name}" for name, number in dropped.items() if number)
    return [
        ("read", f"{read} pairs; {counts.get('rejected', 0):,} lines rejected"),
        ("normalized", ", ".join(f"{number:,} {name}" for name, number in changes.items()) or "nothing"),
        ("left out", f"{out or 'nothing'}  [dim](listed in rejects.jsonl, but for duplicates)[/]"),
        *warnings(dropped, counts["train.read"]),
        ("kept", f"{kept:,} pairs, shuffled"),
        ("vocabulary", f"{pieces} pieces ({settings.tokenizer.kind}{', shared' if settings.tokenizer.shared else ''}): "
         f"{per_word[0]:.2f} tokens per word of {settings.source}, {per_word[1]:.2f} of {settings.target}"),
    ]  # fmt: skip


def warnings(dropped: Mapping[str, int], pairs: int) -> list[tuple[str, str]]:
    """Rules that left out so much that something else must be wrong."""
    return [
        ("!", f"[yellow]{name} left out {number / pairs:.0%} of the pairs: type heedful check to see why[/]")
        for name, number in dropped.items()
        if number > MUCH * pairs
    ]

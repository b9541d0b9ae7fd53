"""Runs a stage: makes every shard that is not up to date. To resume after an interruption, run it again."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heedful.corpus.launchers import DEFAULT_LAUNCHER, Launcher
from heedful.corpus.shards import (
    TEMPORARY_PREFIX,
    CodeVersions,
    Shard,
    ShardRecord,
    ShardTask,
    StageFunction,
    hash_code,
    hash_inputs,
    up_to_date,
)
from heedful.errors import HeedfulError


def run_stage(
    work: StageFunction,
    shards: Sequence[Shard],
    settings: Mapping[str, Any],
    versions: CodeVersions,
    *,
    launcher: Launcher = DEFAULT_LAUNCHER,
    on_done: Callable[[ShardRecord], None] = lambda _: None,
    before_changes: Callable[[], None] = lambda: None,
) -> list[ShardRecord]:
    """Make the shards that are not up to date; return the records of all shards, in order.

    `settings` are keyword arguments of `work`: JSON values and paths. `on_done` is called for every shard, first for
    those that are up to date; `before_changes` is called before anything is changed. Only one run at a time may use the
    directory of the outputs.
    """
    shards = [
        replace(shard, inputs=tuple(path.absolute() for path in shard.inputs), output=shard.output.absolute())
        for shard in shards  # workers may have another working directory
    ]
    if len({shard.name for shard in shards}) < len(shards) or len({shard.output for shard in shards}) < len(shards):
        raise ValueError("two shards have the same name or the same output")
    task = ShardTask(work, dict(settings), hash_code(work, settings, versions), versions)
    input_hashes: dict[tuple[Path, ...], str] = {}

    def hash_inputs_once(shard: Shard) -> str:  # thousands of buckets have the same thousands of inputs
        if shard.inputs not in input_hashes:
            input_hashes[shard.inputs] = hash_inputs(shard)
        return input_hashes[shard.inputs]

    records = {shard.name: record for shard in shards if (record := up_to_date(shard, task.code, hash_inputs_once))}
    for record in list(records.values()):
        on_done(record)

    def add_record(record: ShardRecord) -> None:
        records[record.name] = record
        on_done(record)

    missing = [shard for shard in shards if shard.name not in records]
    parents = {shard.output.parent for shard in shards}
    _remove_temporary(parents)
    try:
        if missing:
            before_changes()
            _remove_outputs(missing)
            launcher(task, missing, add_record)
    finally:
        _remove_temporary(parents)
    return [records[shard.name] for shard in shards]


def _remove_outputs(shards: Iterable[Shard]) -> None:
    """Remove outdated shards before any work starts, because workers only add directories."""
    for shard in shards:
        try:
            shutil.rmtree(shard.output)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise HeedfulError(f"shard {shard.name}: cannot remove the old {shard.output} ({error}).") from error


def _remove_temporary(parents: Iterable[Path]) -> None:
    """Remove partly written output of killed workers."""
    for parent in parents:
        for path in parent.glob(f"{TEMPORARY_PREFIX}*"):
            shutil.rmtree(path, ignore_errors=True)

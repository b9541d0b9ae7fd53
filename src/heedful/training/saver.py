"""Saves checkpoints of a run and resumes from them.

A checkpoint is "regular" if it is due by its step number alone. An interrupted run therefore has the same regular
checkpoints, for rollbacks and averaging, as an uninterrupted one.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from heedful.errors import HeedfulError
from heedful.training import checkpoint
from heedful.training.checkpoint import Checkpoint, checkpoint_name
from heedful.training.distributed import World
from heedful.training.events import Note, Saved
from heedful.training.metrics_log import MetricsLog
from heedful.training.model_state import ModelState
from heedful.training.state import TrainingState
from heedful.training.weights import named_weights


class CheckpointSaver:
    """Writes `state` and `model_state` to the directory of a run, and restores them."""

    def __init__(
        self,
        folder: Path,
        state: TrainingState,
        model_state: ModelState,
        world: World,
        device: torch.device,
        log: MetricsLog,
        *,
        num_keep: int,
    ) -> None:
        self.folder, self.state, self.model_state = folder, state, model_state
        self.world, self.device, self.log, self.num_keep = world, device, log, num_keep

    # ------------------------------------------------------------------------------------------------ saving

    def save(self, elapsed_seconds: float, *, regular: bool) -> None:
        """Save a checkpoint; if the disk fails, warn and keep the last good one."""
        self.warn_if_disk_fails(lambda: self.write(elapsed_seconds, regular=regular), "checkpoint")

    def save_best(self) -> None:
        """Save the weights of the best validation next to the checkpoints."""
        if self.world.is_first:
            step, weights = self.state.step, {"model": named_weights(self.model_state.eval_model)}
            best = self.state.to_json()["best"]
            self.warn_if_disk_fails(
                lambda: checkpoint.save(self.folder, step, weights, {**best, "step": step}, prefix="best"), "checkpoint"
            )

    def warn(self, text: str) -> None:
        self.log(Note(text, "warning", self.state.step))

    def warn_if_disk_fails(self, write: Callable[[], object], what: str) -> None:
        """Call `write`; turn an OSError into a warning, so that a full disk does not stop training."""
        try:
            write()
        except OSError as error:
            self.warn(
                f"the {what} of step {self.state.step:,} could not be written ({error}); the last good one is kept"
            )

    def write(self, elapsed_seconds: float, *, regular: bool) -> None:
        """Write a checkpoint, then delete old ones. An OSError leaves the existing ones unchanged."""
        started, step = time.perf_counter(), self.state.step
        state = {
            **self.state.to_json(),
            "optimizer_steps": self.model_state.optimizer_steps,
            "elapsed": elapsed_seconds,
            "regular": regular,
            "ranks": self.world.ranks if self.model_state.is_sharded else None,
            "made_by": software_versions(),
        }
        if self.model_state.is_sharded:
            self.write_shards(state)
        elif self.world.is_first:
            checkpoint.save(self.folder, step, self.model_state.tensors(), state)
        if self.world.is_first:
            folder = self.folder / checkpoint_name(step)
            size = sum(path.stat().st_size for path in folder.iterdir())
            self.log(Saved(step, folder.name, time.perf_counter() - started, size))
            self.delete_old()

    def write_shards(self, state: dict[str, Any]) -> None:
        """Every process writes its own files; the first completes the checkpoint when all are written."""
        folder, step, is_first = self.folder, self.state.step, self.world.is_first
        unfinished = checkpoint.unfinished_folder(folder, step)
        self.fail_together(lambda: checkpoint.start_writing(folder, step) if is_first else None)
        self.fail_together(lambda: checkpoint.write_tensors(unfinished, self.model_state.tensors()))
        self.fail_together(lambda: checkpoint.finish_writing(folder, step, state) if is_first else None)

    def fail_together(self, write: Callable[[], object]) -> None:
        """Call `write` on every process; if it fails on one of them, raise an OSError on all."""
        failure: OSError | None = None
        try:
            write()
        except OSError as error:
            failure = error
        if self.world.all_reduce([float(failure is not None)], self.device)[0]:
            raise failure or OSError("another process could not write its shard")

    def delete_old(self) -> None:
        """Delete all checkpoints except the newest, the last regular ones, and the best weights that these refer to."""
        folders = checkpoint.checkpoint_folders(self.folder)
        regular = [folder.name for folder in folders if checkpoint.read_state(folder).get("regular")]
        checkpoint.prune(self.folder, 1, also_keep=frozenset(regular[: self.num_keep]))
        current = self.state.to_json()["best"]
        best_steps = [
            checkpoint.read_state(folder).get("best", current)["step"]
            for folder in checkpoint.checkpoint_folders(self.folder)
        ]
        needed = frozenset(checkpoint_name(step, "best") for step in best_steps if step is not None)
        checkpoint.prune(self.folder, 1, "best", needed)

    # ------------------------------------------------------------------------------------------------ restoring

    def resume(self, elapsed_seconds: float) -> float:
        """Restore the newest valid checkpoint. If there is none, write the first one, to detect a bad disk early.

        Returns the seconds that earlier processes of this run took.
        """
        if self.world.is_first:
            checkpoint.remove_unfinished(self.folder)
        self.world.barrier()
        newest = checkpoint.find_newest(self.folder, self.warn)
        step = newest.state["step"] if newest else -1
        if self.world.all_reduce([abs(step - self.world.broadcast([step], self.device)[0])], self.device)[0]:
            raise HeedfulError(
                f"{self.folder}: the processes found different checkpoints: use a disk that all processes share"
            )
        folders = checkpoint.checkpoint_folders(self.folder)
        damaged = [folder for folder in folders if newest is None or folder.name > newest.folder.name]
        self.world.barrier()
        if newest is None and damaged:
            raise HeedfulError(
                f"{self.folder}: none of its checkpoints can be read. Start a new run in another directory "
                "(--out), or delete the checkpoints (step-*) to restart this run"
            )
        if newest is None:
            self.write(elapsed_seconds, regular=True)
            return 0.0
        if self.world.is_first:
            for folder in damaged:
                checkpoint.set_aside(folder)
        self.restore(newest)
        self.log.rewind(self.state.step, self.state.offset)
        saved_by, here = newest.state["made_by"], software_versions()
        if saved_by != here:
            self.log(
                Note(
                    f"the checkpoint was saved with {saved_by}, but this is {here}: results may differ slightly",
                    "warning",
                )
            )
        self.log(Note(f"resumed from {newest.folder.name}", step=self.state.step))
        return float(newest.state["elapsed"])

    def restore(self, saved: Checkpoint) -> None:
        """Overwrite tensors and state with those of a checkpoint."""
        self.model_state.restore(saved)
        self.state.restore(saved.state)

    def roll_back(self) -> None:
        """Restore the last regular checkpoint and skip the batches after it."""
        bad_batch, guard = self.state.step + self.state.offset, self.state.spike_guard
        regular = checkpoint.find_newest(self.folder, self.warn, regular=True)
        if regular is None:
            raise HeedfulError("there is no checkpoint to roll back to")
        self.restore(regular)
        self.state.offset = self.log.offset = bad_batch - self.state.step
        self.state.spike_guard = guard.after_roll_back(self.state.spike_guard)
        self.warn(f"rolled back to step {self.state.step:,}; the batches after it are skipped")


def software_versions() -> dict[str, str]:
    """Versions on which the last bits of a result depend."""
    return {"torch": torch.__version__, "processor": torch.backends.cpu.get_cpu_capability()}

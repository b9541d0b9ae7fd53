"""Subword regularization: texts are re-segmented into subwords for every epoch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from heedful.corpus.launchers import DEFAULT_LAUNCHER, Launcher
from heedful.corpus.runner import run_stage
from heedful.corpus.shards import hash_values
from heedful.corpus.stages import STAGE_VERSIONS
from heedful.data.store import PreparedData, StoredCorpus, count_micro_batches_per_block, load_or_compute
from heedful.data.tokenization import make_token_shard, tokenize_shard
from heedful.errors import HeedfulError


@dataclass(frozen=True)
class ResegmentedCorpus:
    """A corpus whose texts are re-segmented for every epoch; `plan.Plan` makes batches from it.

    The tokens of an epoch are computed once, at their first use, and may be deleted afterwards.
    """

    prepared: PreparedData
    name: str
    subword_regularization: float
    seed: int
    launcher: Launcher = DEFAULT_LAUNCHER
    num_held_out: int = 0  # rows at the end that are not used for training
    has_fixed_lengths = False
    _epochs: dict[int, StoredCorpus] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def unregularized(self) -> StoredCorpus:
        """The same corpus without regularization, including held-out rows."""
        return next(corpus for corpus in self.prepared.train if corpus.name == self.name)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the unregularized tokens, the amount of regularization and the seed."""
        held_out = [self.num_held_out] if self.num_held_out else []
        return hash_values([self.unregularized.fingerprint, self.subword_regularization, self.seed, *held_out])

    @property
    def num_rows(self) -> int:
        """The number of pairs, the same in every epoch."""
        return self.unregularized.num_rows - self.num_held_out

    def epoch(self, number: int) -> StoredCorpus:
        """The tokens of one epoch; only the last one is cached."""
        if number not in self._epochs:
            self._epochs.clear()
            self._epochs[number] = self._make_epoch(number)
        return self._epochs[number]

    def _make_epoch(self, number: int) -> StoredCorpus:
        folder = self.prepared.folder
        entry = next(entry for entry in self.prepared.manifest["corpora"] if entry["name"] == self.name)
        into = f"epochs/{self.name}-{number:05}"
        shards = [make_token_shard(folder, Path(part["folder"]).name, into) for part in entry["parts"]]
        for shard in shards:
            shard.output.parent.mkdir(parents=True, exist_ok=True)
        settings = {
            "tags": {self.name: entry["tag"]},
            "max_tokens": self.prepared.manifest["longest_tokens"],
            "subword_regularization": self.subword_regularization,
            "seed": self.seed,
            "epoch": number,
        }
        records = run_stage(tokenize_shard, shards, settings, STAGE_VERSIONS, launcher=self.launcher)
        folder_rows = tuple(record.counts[f"rows.{self.name}"] for record in records)
        if sum(folder_rows) != self.unregularized.num_rows:
            raise HeedfulError(
                f"the text in {folder} changed after it was tokenized. To tokenize it again, rerun heedful prepare"
            )
        corpus = StoredCorpus(
            self.name,
            tuple(shard.output for shard in shards),
            folder_rows,
            hash_values([record.output for record in records]),
            folder / "plan",
            self.prepared.arrays,
        )
        return corpus.without_last(self.num_held_out) if self.num_held_out else corpus

    def block_lengths(self, epoch: int, block: int) -> tuple[Any, Any]:
        """Source and target lengths of a block in one epoch."""
        return self.epoch(epoch).block_lengths(epoch, block)

    def micro_batches_per_block(self, epoch: int, max_tokens: int) -> Any:
        """Micro-batches in each block of an epoch, cached in a file so that old epochs are not recomputed."""
        path = self.prepared.folder / "plan" / f"{self.fingerprint[:16]}-{epoch}-{max_tokens}.npy"
        return load_or_compute(path, lambda: count_micro_batches_per_block(self, epoch, max_tokens))

    def pairs(self, epoch: int, rows: Sequence[int]) -> list[tuple[Any, Any]]:
        """Source and target ids of rows in one epoch."""
        return self.epoch(epoch).pairs(rows)

"""The events of a run, read from its metrics.jsonl; needs no torch."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"  # in the run directory
Record = Mapping[str, Any]


def read_records(path: Path) -> Iterator[Record]:
    """The records of metrics.jsonl; a partly written line is skipped."""
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue


@dataclass(frozen=True)
class History:
    """The events of a run, grouped by kind."""

    kinds: Mapping[str, list[Record]]

    @classmethod
    def load(cls, run: Path) -> "History":
        return cls.from_records(read_records(run / METRICS))

    @classmethod
    def from_records(cls, records: Iterable[Record]) -> "History":
        """Group records by kind; if a step was repeated after a rollback, only its last record counts."""
        kinds: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            same_kind = kinds[record["event"]]
            if record["event"] in ("stepped", "validated"):
                while same_kind and is_superseded(same_kind[-1], record):
                    same_kind.pop()
            same_kind.append(record)
        return cls(kinds)

    def __getitem__(self, kind: str) -> list[Record]:
        return self.kinds.get(kind, [])

    def last(self, kind: str) -> Record:
        return self[kind][-1] if self[kind] else {}

    @property
    def last_step(self) -> int:
        """The last step that was logged or validated."""
        return max((record["step"] for kind in ("stepped", "validated") for record in self[kind]), default=0)

    @property
    def validations(self) -> list[Record]:
        """One validation per step, without those of other weights at the end of the run."""
        by_step: dict[int, Record] = {}
        for record in self["validated"]:
            if record["weights"] == self["validated"][0]["weights"]:
                by_step.setdefault(record["step"], record)
        return list(by_step.values())


def is_superseded(old: Record, new: Record) -> bool:
    return bool(old["step"] > new["step"]) or all(old.get(key) == new.get(key) for key in ("step", "weights"))

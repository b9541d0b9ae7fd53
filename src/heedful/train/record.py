"""metrics.jsonl: every event of a run, one line each, as it happens."""

import json
from pathlib import Path
from types import TracebackType
from typing import Self

from heedful.train.checkpoint import records, replace_text
from heedful.train.events import Event, Watch, plain

METRICS = "metrics.jsonl"


class Recorder:
    """Writes events down and passes them on; of several processes only the first writes."""

    def __init__(self, folder: Path, watch: Watch, *, active: bool = True) -> None:
        self.path, self.watch, self.active = folder / METRICS, watch, active
        self.stream = self.path.open("a", encoding="utf-8", newline="\n") if active else None

    def __call__(self, event: Event) -> None:
        """Write and pass on; a full disk loses lines, not the run."""
        if self.stream is None:
            return
        try:
            self.stream.write(json.dumps(plain(event), ensure_ascii=False) + "\n")
            self.stream.flush()
        except OSError:
            pass  # the checkpoint says it aloud
        self.watch(event)

    def rewind(self, step: int) -> None:
        """Forget what was written of later steps, which will be taken again."""
        if self.stream is None:
            return
        kept = [record for record in records(self.path) if record.get("step", 0) <= step]
        self.stream.close()
        replace_text(self.path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept))
        self.stream = self.path.open("a", encoding="utf-8", newline="\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.stream is not None:
            self.stream.close()

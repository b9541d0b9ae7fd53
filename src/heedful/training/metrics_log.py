"""metrics.jsonl: all events of a run, one line each, written immediately."""

import json
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from heedful.errors import ConfigError, HeedfulError
from heedful.files import lock_file, replace_text
from heedful.training.checkpoint import read_json_lines
from heedful.training.events import Event, EventHandler, event_record
from heedful.training.history import METRICS


class MetricsLog:
    """Writes events and passes them to `on_event`; only the first process is `active`.

    It locks the directory of the run: two runs would overwrite each other's checkpoints, and a killed torchrun leaves
    its processes running.
    """

    def __init__(self, folder: Path, on_event: EventHandler, *, active: bool = True) -> None:
        self.path, self.on_event, self.active = folder / METRICS, on_event, active
        if active:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise ConfigError(
                    f"train.output_dir = {folder} is a file or is inside a file; choose a directory (--out)"
                ) from None
            self.lock_file = (folder / ".heedful").open("a")
            try:
                lock_file(self.lock_file, folder, "heedful train")
            except HeedfulError:
                self.lock_file.close()
                raise
        self.stream = self.path.open("a", encoding="utf-8", newline="\n") if active else None
        self.offset = 0  # batches skipped by rollbacks so far: step + offset never decreases

    def __call__(self, event: Event) -> None:
        """Write the event and pass it on; on a full disk, lines are lost but the run continues."""
        if self.stream is None:
            return
        record = event_record(event) | ({"offset": self.offset} if self.offset else {})
        with suppress(OSError):  # the next checkpoint reports it
            self.stream.write(json.dumps(record, ensure_ascii=False) + "\n")
            self.stream.flush()
        with suppress(OSError):  # the handler may write to the same disk
            self.on_event(event)

    def rewind(self, step: int, offset: int = 0) -> None:
        """Remove the events of later steps, which will be repeated."""
        self.offset = offset
        if self.stream is None:
            return
        last = step + offset
        kept = [
            record for record in read_json_lines(self.path) if record.get("step", 0) + record.get("offset", 0) <= last
        ]
        self.stream.close()
        with suppress(OSError):  # on a full disk, duplicate lines are better than no training
            replace_text(self.path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept))
        self.stream = self.path.open("a", encoding="utf-8", newline="\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.stream is not None:
            with suppress(OSError):  # a full disk must not hide the error that ended the run
                self.stream.close()
            self.lock_file.close()


def seconds_at_end(path: Path, step: int) -> float:
    """Seconds that the run had taken when its model was finished at this step; 0 if no model was."""
    return max(
        (
            record["elapsed"]
            for record in read_json_lines(path)
            if record["event"] == "ended" and record["step"] == step
        ),
        default=0.0,
    )

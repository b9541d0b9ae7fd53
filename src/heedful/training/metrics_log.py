"""metrics.jsonl: every event of a run, one line each, as it happens."""

import json
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from heedful.errors import ConfigError, HeedfulError
from heedful.files import lock_file, replace_text
from heedful.training.checkpoint import records
from heedful.training.events import Event, Watch, plain

METRICS = "metrics.jsonl"


class Recorder:
    """Writes events down and passes them on; of several processes only the first writes.

    The run's folder is its own while it lasts: two runs would save over each other, and torchrun, when it is killed,
    leaves its processes behind.
    """

    def __init__(self, folder: Path, watch: Watch, *, active: bool = True) -> None:
        self.path, self.watch, self.active = folder / METRICS, watch, active
        if active:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError):
                raise ConfigError(
                    f"train.output_dir = {folder} is or goes through a file; name a folder (--out)"
                ) from None
            self.mark = (folder / ".heedful").open("a")
            try:
                lock_file(self.mark, folder, "heedful train")
            except HeedfulError:
                self.mark.close()
                raise
        self.stream = self.path.open("a", encoding="utf-8", newline="\n") if active else None
        self.offset = 0  # batches passed over so far: step + offset only ever grows, also where a run rolls back

    def __call__(self, event: Event) -> None:
        """Write and pass on; a full disk loses lines, not the run."""
        if self.stream is None:
            return
        record = plain(event) | ({"offset": self.offset} if self.offset else {})
        with suppress(OSError):  # the checkpoint says it aloud
            self.stream.write(json.dumps(record, ensure_ascii=False) + "\n")
            self.stream.flush()
        with suppress(OSError):  # what it shows may go to the same disk
            self.watch(event)

    def rewind(self, step: int, offset: int = 0) -> None:
        """Forget what was written of later steps, which will be taken again."""
        self.offset = offset
        if self.stream is None:
            return
        when = step + offset
        kept = [record for record in records(self.path) if record.get("step", 0) + record.get("offset", 0) <= when]
        self.stream.close()
        with suppress(OSError):  # on a full disk, better told twice than not trained
            replace_text(self.path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept))
        self.stream = self.path.open("a", encoding="utf-8", newline="\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.stream is not None:
            with suppress(OSError):  # nor does a full disk lose the reason why it ends
                self.stream.close()
            self.mark.close()

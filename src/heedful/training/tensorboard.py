"""The curves of a run for TensorBoard: pip install 'heedful[tensorboard]'

heedful train heedful.toml --tensorboard        # then: tensorboard --logdir RUN/tensorboard
with TensorBoard("run/tensorboard") as on_event:
    heedful.train("heedful.toml", on_event=on_event)
"""

from pathlib import Path
from typing import Any, Self

from heedful.errors import require
from heedful.training.events import Began, Event, Skipped, Stepped, Validated

FOLDER = "tensorboard"  # in the directory of the run
TRAINING_FIELDS = ("loss", "perplexity", "norm", "learning_rate", "tokens_per_second", "epoch", "skipped")
VALIDATION_FIELDS = ("loss", "perplexity", "bleu", "chrf", "accuracy")


class TensorBoard:
    """An event handler that writes numbers as curves, and sample sentences as text."""

    def __init__(self, folder: str | Path) -> None:
        require("tensorboard", extra="tensorboard", whose="--tensorboard")
        self.folder = folder
        self.writer: Any = None  # opened at the first event, because only the first process receives events

    def __call__(self, event: Event) -> None:
        match event:
            case Began():
                self._open(event.step)
            case Stepped():
                self._write_scalars("train", event, TRAINING_FIELDS)
            case Validated():
                self._write_scalars(f"validation, {event.weights}", event, VALIDATION_FIELDS)
                for number, sample in enumerate(event.samples, 1):
                    # Indented, so that TensorBoard does not render it as Markdown.
                    text = f"    {sample.source}\n    {sample.reference}\n    {sample.output}"
                    self.writer.add_text(f"sample {number}", text, event.step)
                self.writer.flush()
            case Skipped():
                self.writer.add_text("skipped", f"{event.why}: loss {event.loss}, norm {event.norm}", event.step)

    def _open(self, step: int) -> None:
        """Continue after `step`; hide earlier records of later steps, because these steps are repeated."""
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(self.folder), purge_step=step + 1)

    def _write_scalars(self, group: str, event: Stepped | Validated, fields: tuple[str, ...]) -> None:
        for field in fields:
            if (value := getattr(event, field)) is not None:
                self.writer.add_scalar(f"{group}/{field}", value, event.step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.writer is not None:
            self.writer.close()

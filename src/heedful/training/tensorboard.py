"""The curves of a run for TensorBoard: pip install 'heedful[tensorboard]'

heedful train heedful.toml --tensorboard        # then: tensorboard --logdir RUN/tensorboard
with TensorBoard("run/tensorboard") as watch:
    heedful.train("heedful.toml", watch=watch)
"""

from pathlib import Path
from typing import Any, Self

from heedful.errors import require
from heedful.training.events import Began, Event, Skipped, Stepped, Validated

FOLDER = "tensorboard"  # in the run's folder
TRAINING = ("loss", "perplexity", "norm", "learning_rate", "tokens_per_second", "epoch", "skipped")
VALIDATION = ("loss", "perplexity", "bleu", "chrf")


class TensorBoard:
    """A watch that writes numbers as curves, and sample sentences as text."""

    def __init__(self, folder: str | Path) -> None:
        require("tensorboard", extra="tensorboard", whose="--tensorboard")
        self.folder = folder
        self.writer: Any = None  # opened when the first step is about to be taken, by the process that is told of it

    def __call__(self, event: Event) -> None:
        """One event more."""
        match event:
            case Began():
                self._open(event.step)
            case Stepped():
                self._curves("train", event, TRAINING)
            case Validated():
                self._curves(f"validation, {event.weights}", event, VALIDATION)
                for number, one in enumerate(event.samples, 1):
                    text = f"    {one.source}\n    {one.reference}\n    {one.output}"  # indented: no markup in it
                    self.writer.add_text(f"sample {number}", text, event.step)
                self.writer.flush()
            case Skipped():
                self.writer.add_text("skipped", f"{event.why}: loss {event.loss}, norm {event.norm}", event.step)

    def _open(self, step: int) -> None:
        """Go on after `step`: what was told of later ones will be told again, and is not to be shown twice."""
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(self.folder), purge_step=step + 1)

    def _curves(self, group: str, event: Stepped | Validated, names: tuple[str, ...]) -> None:
        for name in names:
            self.writer.add_scalar(f"{group}/{name}", getattr(event, name), event.step)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.writer is not None:
            self.writer.close()

"""The film of a run: the same few sentences at each validation, and where the model looked (film.jsonl).

Every line is a trace of its own with one frame (docs/trace-format.md), so a run that is killed loses half a line at
most, and one that rolls back films some steps twice; `heedful inspect RUN` puts them together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from heedful.engines.base import EncodedSource, SearchOptions
from heedful.engines.torch import TorchEngine
from heedful.model.seq2seq import Seq2Seq
from heedful.text.tokenizer import EOS, Tokenizer
from heedful.trace import (
    Snapshot,
    SnapshotSentence,
    SnapshotSeries,
    Text,
    TraceDocument,
    dump_trace,
    locate_pieces,
    weights_blob,
)
from heedful.training.events import Validated
from heedful.training.validate import Held, slots_of

FILM = "film.jsonl"
SCENES = 3
SHORT, LONG = 4, 40  # pieces of a sentence that is worth filming
MOST_HEADS = 32  # more than that are shown as one mean per layer


@dataclass(frozen=True)
class Camera:
    """What is filmed, and where the film is kept."""

    folder: Path
    held: Held
    source: Tokenizer
    target: Tokenizer
    device: torch.device

    @property
    def scenes(self) -> list[int]:
        """The first rows of the validation set that are neither short nor long."""
        fit = (row for row, ids in enumerate(self.held.sources) if SHORT <= len(ids) <= LONG)
        return [row for row, _ in zip(fit, range(SCENES), strict=False)]

    def __call__(self, model: Seq2Seq, found: Validated) -> None:
        """Add one frame: what the model says of every scene now."""
        was = model.training
        try:
            takes = tuple(self.takes(TorchEngine(model, self.device), self.scenes))
        finally:
            model.train(was)
        sources = tuple(self.text(self.source, self.held.sources[row], self.held.texts[row]) for row in self.scenes)
        frame = Snapshot(step=found.step, loss=found.loss, bleu=found.bleu, chrf=found.chrf, takes=takes)
        line = dump_trace(TraceDocument(film=SnapshotSeries(sources=sources, frames=(frame,)))) + "\n"
        with (self.folder / FILM).open("a", encoding="utf-8", newline="\n") as file:
            file.write(line)

    def takes(self, engine: TorchEngine, rows: Sequence[int]) -> list[SnapshotSentence]:
        """One answer to each, greedily."""
        most = slots_of(engine.model)
        questions = [
            EncodedSource((*source[: most - 1], EOS), min(2 * len(source) + 10, most), index=row)
            for row, source in ((row, self.held.sources[row]) for row in rows)
        ]
        found = engine.translate(questions, SearchOptions(beam=1, attention=True)) if rows else []
        takes = []
        for (answer,) in found:
            said, ended, looked = answer.hypothesis.tokens, answer.hypothesis.finished, answer.attention
            if looked is not None and looked.shape[0] * looked.shape[1] > MOST_HEADS:
                looked = looked.mean(1, keepdims=True)
            target = self.text(self.target, said, self.target.decode([said])[0].strip(), ended)
            takes.append(SnapshotSentence(target=target, attention=None if looked is None else weights_blob(looked)))
        return takes

    def text(self, tokenizer: Tokenizer, ids: Sequence[int], text: str, ended: bool = True) -> Text:
        """A text and its pieces, the end token among them."""
        every = [*ids, EOS] if ended else list(ids)
        return Text(text=text, pieces=locate_pieces(tokenizer.pieces(every), text, 0, ended))

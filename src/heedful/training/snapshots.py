"""snapshots.jsonl: translations and attention of the same few sentences at each validation.

Every line is a complete trace with one snapshot (docs/trace-format.md). A killed run loses at most one line, and a run
that rolls back records some steps twice; `heedful inspect RUN` merges the lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from heedful.engines.base import SearchOptions
from heedful.engines.torch import TorchEngine
from heedful.model.seq2seq import Seq2Seq
from heedful.text.tokenizer import EOS, Tokenizer
from heedful.trace import (
    SNAPSHOTS,
    Snapshot,
    SnapshotSentence,
    SnapshotSeries,
    Text,
    TraceDocument,
    dump_trace,
    locate_pieces,
    weights_blob,
)
from heedful.training.data import ValidationSet
from heedful.training.events import Validated
from heedful.training.validate import make_question, max_positions

NUM_SENTENCES = 3
MIN_TOKENS, MAX_TOKENS = 4, 40  # of a recorded sentence
MAX_HEADS = 32  # of all layers together; if there are more, one mean per layer is stored


@dataclass(frozen=True)
class SnapshotRecorder:
    """Records translations and attention of some sentences of the validation set."""

    folder: Path
    validation: ValidationSet
    source: Tokenizer | None  # None if the sources are not text: then nothing is recorded
    target: Tokenizer
    device: torch.device

    @property
    def rows(self) -> list[int]:
        """The first rows of the validation set that are neither short nor long."""
        fitting = (row for row, ids in enumerate(self.validation.sources) if MIN_TOKENS <= len(ids) <= MAX_TOKENS)
        return [row for row, _ in zip(fitting, range(NUM_SENTENCES), strict=False)]

    def __call__(self, model: Seq2Seq, validated: Validated) -> None:
        """Append a snapshot of the current translations."""
        if self.source is None:
            return
        source = self.source
        was_training = model.training
        try:
            takes = tuple(self.translate(TorchEngine(model, self.device), self.rows))
        finally:
            model.train(was_training)
        sources = tuple(
            self.make_text(source, self.validation.sources[row], self.validation.texts[row]) for row in self.rows
        )
        frame = Snapshot(
            step=validated.step,
            loss=validated.loss,
            bleu=validated.bleu or 0.0,
            chrf=validated.chrf or 0.0,
            takes=takes,
        )
        line = dump_trace(TraceDocument(film=SnapshotSeries(sources=sources, frames=(frame,)))) + "\n"
        with (self.folder / SNAPSHOTS).open("a", encoding="utf-8", newline="\n") as file:
            file.write(line)

    def translate(self, engine: TorchEngine, rows: Sequence[int]) -> list[SnapshotSentence]:
        """A greedy translation of each row, with its attention."""
        positions = max_positions(engine.model)
        questions = [make_question(self.validation, row, positions) for row in rows]
        answers = engine.translate(questions, SearchOptions(beam=1, attention=True)) if rows else []
        takes = []
        for (answer,) in answers:
            tokens, finished, attention = answer.hypothesis.tokens, answer.hypothesis.finished, answer.attention
            if attention is not None and attention.shape[0] * attention.shape[1] > MAX_HEADS:
                attention = attention.mean(1, keepdims=True)
            target = self.make_text(self.target, tokens, self.target.decode([tokens])[0].strip(), finished)
            takes.append(
                SnapshotSentence(target=target, attention=None if attention is None else weights_blob(attention))
            )
        return takes

    def make_text(self, tokenizer: Tokenizer, ids: Sequence[int], text: str, finished: bool = True) -> Text:
        """A text and its pieces, with the end token if it is finished."""
        ended = [*ids, EOS] if finished else list(ids)
        return Text(text=text, pieces=locate_pieces(tokenizer.pieces(ended), text, 0, finished))

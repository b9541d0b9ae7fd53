"""Hugging Face's own Marian (or Pegasus) behind the same face: what an export says there.

Its search is theirs. Ids are theirs too, where the vocabulary was borrowed from them: `order[n]` is our id of their
number n.
"""

from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import Any

import torch

from heedful.data.batch import pad_rows
from heedful.engines.base import Answer, Question, Search, by_limit, score_of, usable_threads
from heedful.errors import HeedfulError, require
from heedful.text.tokenizer import BOS, EOS
from heedful.types import Hypothesis


class HuggingFace:
    """A model that `from_pretrained` has read."""

    name = "hugging_face"

    def __init__(self, model: Any, source: Sequence[int], target: Sequence[int]) -> None:
        self.model = model.eval()
        self.target = list(target)
        self.numbers = [{ours: theirs for theirs, ours in enumerate(order)} for order in (source, target)]

    def answers(self, questions: Sequence[Question], search: Search) -> list[tuple[Answer, ...]]:
        """Up to `search.best` answers to each question, best first; questions of one limit go together."""
        if search.draw or search.attention or any(question.prefix for question in questions):
            raise HeedfulError("an export for Hugging Face searches and no more: load the model directory for the rest")
        return by_limit(questions, lambda some, limit: self.searched(some, search, limit))

    @torch.inference_mode()
    def searched(self, questions: Sequence[Question], search: Search, limit: int) -> list[tuple[Answer, ...]]:
        """Their beam search."""
        tokens, mask = self.sources(questions)
        found = self.model.generate(
            tokens,
            attention_mask=mask,
            num_beams=search.beam,
            num_return_sequences=search.best,
            max_new_tokens=limit,
            **self.ranked(search),
        )
        rows = [[self.target[one] for one in row.tolist()[1:]] for row in found]
        said = [row[: row.index(EOS)] if EOS in row else row for row in rows]
        golds = [[*one, EOS] if EOS in row else one for one, row in zip(said, rows, strict=True)]
        told = self.log_probs([question for question in questions for _ in range(search.best)], golds)
        every = [
            Answer(Hypothesis(tuple(one), score_of(each, search), fsum(each), each, EOS in row))
            for one, each, row in zip(said, told, rows, strict=True)
        ]
        return [tuple(every[at : at + search.best]) for at in range(0, len(every), search.best)]

    def ranked(self, search: Search) -> dict[str, Any]:
        """What only a beam knows; without one, they are warned of."""
        if max(search.beam, search.best) == 1:
            return {"length_penalty": None, "early_stopping": None}
        penalty = search.length_penalty if search.length == "power" else 0.0
        return {"length_penalty": penalty, "early_stopping": search.stopping == "enough"}

    def given(
        self, questions: Sequence[Question], targets: Sequence[Sequence[int]], *, attention: bool = False
    ) -> list[Answer]:
        """What the model says of given answers."""
        if attention:
            raise HeedfulError("to look inside, load the model directory itself, not an export of it")
        told = self.log_probs(questions, [[*some, EOS] for some in targets])
        return [
            Answer(Hypothesis(tuple(some), fsum(each), fsum(each), each, True))
            for some, each in zip(targets, told, strict=True)
        ]

    @torch.inference_mode()
    def log_probs(self, questions: Sequence[Question], golds: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        """log p of every token."""
        tokens, mask = self.sources(questions)
        numbers = [[self.numbers[1][one] for one in gold] for gold in golds]
        start, end = self.numbers[1][BOS], self.numbers[1][EOS]
        inputs, _ = pad_rows([[start, *row[:-1]] for row in numbers], end)
        logits = self.model(input_ids=tokens, attention_mask=mask, decoder_input_ids=inputs).logits
        return [
            tuple(logits[at, range(len(row))].float().log_softmax(-1)[range(len(row)), row].tolist())
            for at, row in enumerate(numbers)
        ]

    def sources(self, questions: Sequence[Question]) -> tuple[torch.Tensor, torch.Tensor]:
        """Sources in their numbers, and which of them are real."""
        number = self.numbers[0]
        tokens, mask = pad_rows([[number[one] for one in question.tokens] for question in questions], number[EOS])
        return tokens, mask.long()


def opened(
    folder: Path, source: Sequence[int], target: Sequence[int], *, device: str = "cpu", threads: int | None = None
) -> HuggingFace:
    """The model in a folder that `from_pretrained` reads."""
    require("torch", extra="train", whose="this export")
    require("transformers", extra="hugging-face", whose="this export")
    import transformers

    if device != "cpu":
        raise HeedfulError("heedful runs an export for Hugging Face on the CPU only")
    if count := usable_threads(threads):
        torch.set_num_threads(count)
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(str(folder), local_files_only=True)
    return HuggingFace(model, source, target)

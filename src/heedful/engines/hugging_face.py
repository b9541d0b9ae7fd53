"""The Hugging Face engine: runs an exported Marian (or Pegasus) model with `generate`.

With an imported vocabulary, Hugging Face's ids differ from heedful's: `order[n]` is heedful's id of its id n.
"""

from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import Any

import torch

from heedful.data.batch import pad_rows
from heedful.engines.base import EncodedSource, EngineResult, SearchOptions, normalized_score, translate_by_max_length
from heedful.engines.torch import set_process_threads
from heedful.errors import HeedfulError, require
from heedful.text.tokenizer import BOS, EOS
from heedful.types import Hypothesis


class HuggingFaceEngine:
    """A model loaded by `from_pretrained`."""

    name = "hugging_face"

    def __init__(self, model: Any, source: Sequence[int], target: Sequence[int]) -> None:
        self.model = model.eval()
        self.target_order = list(target)
        self.source_ids, self.target_ids = (
            {ours: theirs for theirs, ours in enumerate(order)} for order in (source, target)
        )

    def translate(self, sources: Sequence[EncodedSource], options: SearchOptions) -> list[tuple[EngineResult, ...]]:
        """Up to `options.num_best` results for each source, best first; one batch per maximum length."""
        if options.sampling or options.attention or any(source.prefix for source in sources):
            raise HeedfulError(
                "an export for Hugging Face does not support sampling, attention or a prefix: load the model "
                "directory instead of the export"
            )
        return translate_by_max_length(
            sources, lambda group, max_length: self.translate_group(group, options, max_length)
        )

    @torch.inference_mode()
    def translate_group(
        self, sources: Sequence[EncodedSource], options: SearchOptions, max_length: int
    ) -> list[tuple[EngineResult, ...]]:
        """Translate sources that have the same maximum length."""
        tokens, mask = self.source_tensors(sources)
        sequences = self.model.generate(
            tokens,
            attention_mask=mask,
            num_beams=options.beam,
            num_return_sequences=options.num_best,
            max_new_tokens=max_length,
            bad_words_ids=[[self.target_ids[token] for token in sequence] for sequence in options.suppress_sequences]
            or None,
            **self.beam_arguments(options),
        )
        rows = [[self.target_order[theirs] for theirs in row.tolist()[1:]] for row in sequences]
        targets = [row[: row.index(EOS)] if EOS in row else row for row in rows]
        golds = [[*target, EOS] if EOS in row else target for target, row in zip(targets, rows, strict=True)]
        log_probs = self.token_log_probs([source for source in sources for _ in range(options.num_best)], golds)
        results = [
            EngineResult(Hypothesis(tuple(target), normalized_score(values, options), fsum(values), values, EOS in row))
            for target, values, row in zip(targets, log_probs, rows, strict=True)
        ]
        return [tuple(results[first : first + options.num_best]) for first in range(0, len(results), options.num_best)]

    def beam_arguments(self, options: SearchOptions) -> dict[str, Any]:
        """Arguments of beam search; without a beam `generate` would warn about them."""
        if max(options.beam, options.num_best) == 1:
            return {"length_penalty": None, "early_stopping": None}
        penalty = options.length_penalty if options.length_rule == "power" else 0.0
        return {"length_penalty": penalty, "early_stopping": options.stopping == "enough"}

    def score_targets(
        self, sources: Sequence[EncodedSource], targets: Sequence[Sequence[int]], *, attention: bool = False
    ) -> list[EngineResult]:
        """Log p of every token of the targets and of the end token."""
        if attention:
            raise HeedfulError(
                "an export for Hugging Face returns no attention: load the model directory instead of the export"
            )
        log_probs = self.token_log_probs(sources, [[*target, EOS] for target in targets])
        return [
            EngineResult(Hypothesis(tuple(target), fsum(values), fsum(values), values, True))
            for target, values in zip(targets, log_probs, strict=True)
        ]

    @torch.inference_mode()
    def token_log_probs(
        self, sources: Sequence[EncodedSource], golds: Sequence[Sequence[int]]
    ) -> list[tuple[float, ...]]:
        tokens, mask = self.source_tensors(sources)
        rows = [[self.target_ids[token] for token in gold] for gold in golds]
        start, end = self.target_ids[BOS], self.target_ids[EOS]
        inputs, _ = pad_rows([[start, *row[:-1]] for row in rows], end)
        logits = self.model(input_ids=tokens, attention_mask=mask, decoder_input_ids=inputs).logits
        return [
            tuple(logits[index, range(len(row))].float().log_softmax(-1)[range(len(row)), row].tolist())
            for index, row in enumerate(rows)
        ]

    def source_tensors(self, sources: Sequence[EncodedSource]) -> tuple[torch.Tensor, torch.Tensor]:
        """The sources in Hugging Face's ids, and the attention mask."""
        ids = self.source_ids
        tokens, mask = pad_rows([[ids[token] for token in source.row] for source in sources], ids[EOS])
        return tokens, mask.long()


def open_engine(
    folder: Path, source: Sequence[int], target: Sequence[int], *, device: str = "cpu", threads: int | None = None
) -> HuggingFaceEngine:
    """Open an exported model directory; `threads` applies to PyTorch in the whole process."""
    require("torch", extra="train", whose="this export")
    require("transformers", extra="hugging-face", whose="this export")
    import transformers

    if device != "cpu":
        raise HeedfulError("heedful runs exports for Hugging Face on the CPU only: remove --device")
    set_process_threads(threads)
    transformers.utils.logging.disable_progress_bar()
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(str(folder), local_files_only=True)
    return HuggingFaceEngine(model, source, target)

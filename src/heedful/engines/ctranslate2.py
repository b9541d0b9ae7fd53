"""The CTranslate2 engine. No PyTorch.

The model's vocabulary lists the pieces of heedful's tokenizers in id order, so ids map to pieces by position. Its
random generator cannot be seeded, and it returns a single cross-attention map.
"""

from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np

from heedful.engines.base import (
    EncodedSource,
    EngineResult,
    SearchOptions,
    check_threads,
    normalized_score,
    sort_by_score,
    translate_by_max_length,
)
from heedful.errors import HeedfulError, require
from heedful.text.tokenizer import BOS, PAD
from heedful.types import Hypothesis


class CTranslate2Engine:
    """A model in CTranslate2's format."""

    name = "ctranslate2"

    def __init__(self, model: Any, source: Sequence[str], target: Sequence[str], *, ends: bool = True) -> None:
        self.model, self.source_pieces, self.target_pieces = model, list(source), list(target)
        self.ends = ends  # whether it appends the end token to every source
        self.target_ids = {piece: number for number, piece in enumerate(self.target_pieces)}

    def translate(self, sources: Sequence[EncodedSource], options: SearchOptions) -> list[tuple[EngineResult, ...]]:
        """Up to `options.num_best` results for each source, best first; one batch per maximum length."""
        return translate_by_max_length(
            sources, lambda group, max_length: self.translate_group(group, options, max_length)
        )

    def translate_group(
        self, sources: Sequence[EncodedSource], options: SearchOptions, max_length: int
    ) -> list[tuple[EngineResult, ...]]:
        """Translate sources that have the same maximum length."""
        if options.length_rule not in ("power", "none"):
            raise HeedfulError(
                f"CTranslate2 does not support the length rule `{options.length_rule}`: load the model "
                "directory instead of its CTranslate2 export"
            )
        search: dict[str, Any] = {"beam_size": options.beam}
        if sampling := options.sampling:
            if sampling.seed:
                raise HeedfulError(
                    "CTranslate2 does not support a seed for sampling: remove the seed, or load the model "
                    "directory instead of its CTranslate2 export"
                )
            search = {
                "beam_size": 1,
                "sampling_temperature": sampling.temperature,
                "sampling_topk": sampling.top_k or 0,
                "sampling_topp": sampling.top_p or 1.0,
            }
        rows = self.spell(sources)
        prefixes = [[self.target_pieces[token] for token in source.prefix] for source in sources]
        outputs = self.model.translate_batch(
            rows,
            target_prefix=prefixes if any(prefixes) else None,
            num_hypotheses=options.num_best,
            length_penalty=options.length_penalty if options.length_rule == "power" else 0.0,
            max_decoding_length=max_length,
            return_scores=not options.token_scores,
            return_attention=options.attention,
            min_decoding_length=0,  # as in heedful: a hypothesis may be empty
            suppress_sequences=[
                [self.target_pieces[token] for token in sequence]
                for sequence in ((PAD,), (BOS,), *options.suppress_sequences)
            ],
            **search,
        )
        first_rows = (
            self.first_attention_rows(rows, beam=search["beam_size"]) if options.attention else [()] * len(rows)
        )
        maps = [
            [
                self.pad_attention(weights and [*(first_row or weights[:1]), *weights[1:]], len(row))
                for weights in result.attention or [None] * len(result.hypotheses)
            ]
            for row, first_row, result in zip(rows, first_rows, outputs, strict=True)
        ]
        if not options.token_scores:
            return [
                tuple(
                    self.result_without_token_scores(pieces, score, weights, options, max_length)
                    for pieces, score, weights in zip(result.hypotheses, result.scores, result_maps, strict=True)
                )
                for result, result_maps in zip(outputs, maps, strict=True)
            ]
        pairs = [(row, list(pieces)) for row, result in zip(rows, outputs, strict=True) for pieces in result.hypotheses]
        scored = iter(self.model.score_batch([row for row, _ in pairs], [pieces for _, pieces in pairs]))
        return [
            sort_by_score(
                [
                    self.result(pieces, next(scored).log_probs, weights, options, max_length)
                    for pieces, weights in zip(result.hypotheses, result_maps, strict=True)
                ]
            )
            for result, result_maps in zip(outputs, maps, strict=True)
        ]

    def first_attention_rows(self, rows: Sequence[list[str]], *, beam: int) -> list[Sequence[Sequence[float]]]:
        """The attention of the first target token of each source; empty where `translate_batch` returns it correctly.

        In a batch with a beam, CTranslate2 returns the first row of another sentence: it indexes the rows of the
        first step as if they were repeated for the beam (docs/export.md has a reproduction). The first row depends only
        on the source, so a greedy search of one step returns it.
        """
        if beam == 1 or len(rows) == 1:
            return [()] * len(rows)
        steps = self.model.translate_batch(
            rows, beam_size=1, min_decoding_length=1, max_decoding_length=1, return_attention=True
        )
        return [step.attention[0] for step in steps]

    def score_targets(
        self, sources: Sequence[EncodedSource], targets: Sequence[Sequence[int]], *, attention: bool = False
    ) -> list[EngineResult]:
        """Log p of every token of the targets and of the end token."""
        if attention:
            raise HeedfulError(
                "CTranslate2 returns no attention for a given translation: load the model directory instead "
                "of its CTranslate2 export"
            )
        pieces = [[self.target_pieces[token] for token in target] for target in targets]
        scored = self.model.score_batch(self.spell(sources), pieces)
        return [
            EngineResult(
                Hypothesis(tuple(target), fsum(score.log_probs), fsum(score.log_probs), tuple(score.log_probs), True)
            )
            for target, score in zip(targets, scored, strict=True)
        ]

    def spell(self, sources: Sequence[EncodedSource]) -> list[list[str]]:
        """Sources as pieces, without the end token if the engine adds it."""
        rows = [source.row[:-1] if self.ends else source.row for source in sources]
        return [[self.source_pieces[token] for token in row] for row in rows]

    def result_without_token_scores(
        self, pieces: Sequence[str], score: float, attention: Any, options: SearchOptions, max_length: int
    ) -> EngineResult:
        """A hypothesis with CTranslate2's score, without log p of every token."""
        tokens, finished = tuple(self.target_ids[piece] for piece in pieces), len(pieces) < max_length
        alpha = options.length_penalty if options.length_rule == "power" else 0.0
        log_prob = score * max(1, len(pieces) + finished) ** alpha
        return EngineResult(Hypothesis(tokens, score, log_prob, (), finished), attention)

    def result(
        self, pieces: Sequence[str], log_probs: Sequence[float], attention: Any, options: SearchOptions, max_length: int
    ) -> EngineResult:
        """A hypothesis with heedful's score: CTranslate2 renormalizes its own after suppressing tokens."""
        tokens = tuple(self.target_ids[piece] for piece in pieces)
        finished = len(pieces) < max_length  # the end token is a step too
        token_log_probs = tuple(log_probs[: len(tokens) + finished])
        score = normalized_score(token_log_probs, options)
        return EngineResult(Hypothesis(tokens, score, fsum(token_log_probs), token_log_probs, finished), attention)

    def pad_attention(self, attention: Any, slots: int) -> Any:
        """[1, 1, steps, slots], with a zero column for the end token that the engine added; None stays None."""
        if attention is None:
            return None
        weights = np.asarray(attention, np.float32).reshape(len(attention), slots)  # an empty hypothesis has no rows
        return np.pad(weights, ((0, 0), (0, int(self.ends))))[None, None]


def open_engine(
    folder: Path,
    source: Sequence[str],
    target: Sequence[str],
    *,
    ends: bool = True,
    device: str = "cpu",
    threads: int | None = None,
) -> CTranslate2Engine:
    """Open a CTranslate2 model directory; `threads` applies to this engine only."""
    require("ctranslate2", extra="serve", whose="this export")
    import ctranslate2

    try:
        model = ctranslate2.Translator(str(folder), device=device, intra_threads=check_threads(threads) or 0)
    except (RuntimeError, ValueError) as error:
        raise HeedfulError(f"CTranslate2 cannot open {folder} on `{device}`: {error}") from None
    return CTranslate2Engine(model, source, target, ends=ends)

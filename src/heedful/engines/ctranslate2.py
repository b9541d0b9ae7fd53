"""CTranslate2's engine behind the same face: C++, no PyTorch.

Its vocabulary is the pieces of our tokenizers in the order of their ids, so tokens are translated by position. It
draws by a generator of its own, which no seed decides; and it shows one map of cross-attention.
"""

from collections.abc import Iterable, Sequence
from math import fsum
from pathlib import Path
from typing import Any

import numpy as np

from heedful.engines.base import Answer, Question, Search, by_limit, score_of, usable_threads
from heedful.errors import HeedfulError, require
from heedful.text.tokenizer import BOS, PAD
from heedful.types import Hypothesis


class CTranslate2:
    """A model that CTranslate2 reads."""

    name = "ctranslate2"

    def __init__(self, engine: Any, source: Sequence[str], target: Sequence[str], *, ends: bool = True) -> None:
        self.engine, self.source, self.target = engine, list(source), list(target)
        self.ends = ends  # whether it puts the end token after every source
        self.numbers = {piece: number for number, piece in enumerate(self.target)}

    def answers(self, questions: Sequence[Question], search: Search) -> list[tuple[Answer, ...]]:
        """Up to `search.best` answers to each question, best first; questions of one limit go together."""
        return by_limit(questions, lambda some, limit: self.searched(some, search, limit))

    def searched(self, questions: Sequence[Question], search: Search, limit: int) -> list[tuple[Answer, ...]]:
        """One batch of the engine's."""
        if search.length not in ("power", "none"):
            raise HeedfulError(f"CTranslate2 knows no length rule `{search.length}`: use the model directory itself")
        options: dict[str, Any] = {"beam_size": search.beam}
        if search.draw:
            if search.draw.seed:
                raise HeedfulError("CTranslate2 draws as it likes, whatever the seed: use the model directory itself")
            options = {
                "beam_size": 1,
                "sampling_temperature": search.draw.temperature,
                "sampling_topk": search.draw.top_k or 0,
                "sampling_topp": search.draw.top_p or 1.0,
            }
        rows = self.spelled(questions)
        prefixes = [[self.target[one] for one in question.prefix] for question in questions]
        found = self.engine.translate_batch(
            rows,
            target_prefix=prefixes if any(prefixes) else None,
            num_hypotheses=search.best,
            length_penalty=search.length_penalty if search.length == "power" else 0.0,
            max_decoding_length=limit,
            return_scores=not search.tokens,
            return_attention=search.attention,
            min_decoding_length=0,  # as ours: an empty answer is not forbidden
            suppress_sequences=[[self.target[PAD]], [self.target[BOS]]],
            **options,
        )
        said = [[list(one) for one in some.hypotheses] for some in found]
        if not search.tokens:
            return [
                tuple(
                    self.unscored(one, score, self.map(looked, len(row)), search, limit)
                    for one, score, looked in zip(
                        some, result.scores, result.attention or [None] * len(some), strict=True
                    )
                )
                for row, some, result in zip(rows, said, found, strict=True)
            ]
        flat = [(row, one) for row, some in zip(rows, said, strict=True) for one in some]
        told = iter(self.engine.score_batch([row for row, _ in flat], [one for _, one in flat]))
        return [
            best_first(
                self.answer(one, next(told).log_probs, self.map(looked, len(row)), search, limit)
                for one, looked in zip(some, result.attention or [None] * len(some), strict=True)
            )
            for row, some, result in zip(rows, said, found, strict=True)
        ]

    def given(
        self, questions: Sequence[Question], targets: Sequence[Sequence[int]], *, attention: bool = False
    ) -> list[Answer]:
        """What the model says of given answers."""
        if attention:
            raise HeedfulError("CTranslate2 does not show where it looked in a given answer: use the model directory")
        wanted = [[self.target[one] for one in some] for some in targets]
        found = self.engine.score_batch(self.spelled(questions), wanted)
        return [
            Answer(Hypothesis(tuple(some), fsum(one.log_probs), fsum(one.log_probs), tuple(one.log_probs), True))
            for some, one in zip(targets, found, strict=True)
        ]

    def spelled(self, questions: Sequence[Question]) -> list[list[str]]:
        """Sources as the engine reads them: without the end token, which it adds."""
        rows = [question.tokens[:-1] if self.ends else question.tokens for question in questions]
        return [[self.source[one] for one in row] for row in rows]

    def unscored(self, said: list[str], score: float, looked: Any, search: Search, limit: int) -> Answer:
        """One of its hypotheses with its own score: log p of the whole, but not of every token."""
        tokens, finished = tuple(self.numbers[one] for one in said), len(said) < limit
        whole = score * max(1, len(said) + finished) ** (search.length_penalty if search.length == "power" else 0.0)
        return Answer(Hypothesis(tokens, score, whole, (), finished), looked)

    def map(self, looked: Any, slots: int) -> Any:
        """Where each step looked, with a column for the end token that it added and leaves out; None: nobody asked."""
        if looked is None:
            return None
        weights = np.asarray(looked, np.float32).reshape(len(looked), slots)  # of an empty answer there are no rows
        return np.pad(weights, ((0, 0), (0, int(self.ends))))[None, None]

    def answer(self, said: list[str], logps: Sequence[float], looked: Any, search: Search, limit: int) -> Answer:
        """One of its hypotheses, with our score: its own leaves out what it was told never to say."""
        tokens, finished = tuple(self.numbers[one] for one in said), len(said) < limit  # saying the end is a step too
        each = tuple(logps[: len(tokens) + finished])
        return Answer(Hypothesis(tokens, score_of(each, search), fsum(each), each, finished), looked)


def best_first(answers: Iterable[Answer]) -> tuple[Answer, ...]:
    """By the scores that are shown."""
    return tuple(sorted(answers, key=lambda one: -one.hypothesis.score))


def opened(
    folder: Path,
    source: Sequence[str],
    target: Sequence[str],
    *,
    ends: bool = True,
    device: str = "cpu",
    threads: int | None = None,
) -> CTranslate2:
    """The model in a folder that CTranslate2 reads."""
    require("ctranslate2", extra="serve", whose="this export")
    import ctranslate2

    try:
        engine = ctranslate2.Translator(str(folder), device=device, intra_threads=usable_threads(threads) or 0)
    except (RuntimeError, ValueError) as error:
        raise HeedfulError(f"CTranslate2 cannot open {folder} on `{device}`: {error}") from None
    return CTranslate2(engine, source, target, ends=ends)

"""Trace CTranslate2: tokens, log-probabilities, the n best, and one cross-attention map.

    sentence = record_ctranslate2(translator, ["\u2581Good", "\u2581morning", "</s>"], "Good morning", detokenize=...)

The engine exposes neither distributions, maps of single heads, nor its search tree.
"""

from collections.abc import Callable, Sequence
from math import fsum
from typing import Any

import numpy as np

from heedful.trace import Sentence, Text, TraceAlignment, TraceStep, locate_pieces, weights_blob


def record_ctranslate2(
    translator: Any,
    tokens: Sequence[str],
    text: str,
    detokenize: Callable[[Sequence[str]], str],
    *,
    beam: int = 5,
    end: str = "</s>",
    name: str = "CTranslate2",
    languages: tuple[str, str] = ("", ""),
) -> Sentence:
    """Trace a sentence with a `ctranslate2.Translator`."""
    (result,) = translator.translate_batch([list(tokens)], beam_size=beam, return_scores=True, return_attention=True)
    answer = list(result.hypotheses[0])
    (scored,) = translator.score_batch([list(tokens)], [answer])
    log_probs = list(scored.log_probs)
    has_ended = len(log_probs) > len(answer)
    target = [*answer, end] if has_ended else answer
    weights = np.asarray(result.attention[0])[: len(answer)]
    if has_ended:  # the engine returns no map for the step that produces the end token
        weights = np.concatenate((weights, np.zeros((1, weights.shape[1]))))
    target_text = detokenize(answer)
    return Sentence(
        name=name,
        source=Text(
            text=text, pieces=locate_pieces(list(tokens), text, 0, tuple(tokens[-1:]) == (end,)), language=languages[0]
        ),
        target=Text(text=target_text, pieces=locate_pieces(target, target_text, 0, has_ended), language=languages[1]),
        logp=fsum(log_probs),
        score=float(result.scores[0]),
        steps=tuple(
            TraceStep(logp=log_prob, entropy=None, top=((piece.replace("\u2581", " "), log_prob),))
            for piece, log_prob in zip(target, log_probs, strict=True)
        ),
        attention={"cross": weights_blob(weights[None, None])},
        reading=TraceAlignment(step="naive", layer=0, head=0),
    )

"""What CTranslate2 tells: the tokens, their log-probabilities, the n best, and one map of cross-attention.

    sentence = record_ctranslate2(translator, ["\u2581Good", "\u2581morning", "</s>"], "Good morning", say=...)

Its engine gives neither distributions, nor maps of single heads, nor the tree of its search.
"""

from collections.abc import Callable, Sequence
from math import fsum
from typing import Any

import numpy as np

from heedful.trace import Reading, Sentence, Step, Text, spelled, weights_blob


def record_ctranslate2(
    translator: Any,
    tokens: Sequence[str],
    text: str,
    say: Callable[[Sequence[str]], str],
    *,
    beam: int = 5,
    end: str = "</s>",
    name: str = "CTranslate2",
    languages: tuple[str, str] = ("", ""),
) -> Sentence:
    """A sentence through a `ctranslate2.Translator`."""
    (found,) = translator.translate_batch([list(tokens)], beam_size=beam, return_scores=True, return_attention=True)
    said = list(found.hypotheses[0])
    (scored,) = translator.score_batch([list(tokens)], [said])
    logps = list(scored.log_probs)
    ended = len(logps) > len(said)
    gold = [*said, end] if ended else said
    looked = np.asarray(found.attention[0])[: len(said)]
    if ended:  # the engine keeps no map of the step that says the end
        looked = np.concatenate((looked, np.zeros((1, looked.shape[1]))))
    ends = tokens[-1:] == [end] or tuple(tokens[-1:]) == (end,)
    answer = say(said)
    return Sentence(
        name=name,
        source=Text(text=text, pieces=spelled(list(tokens), text, 0, ends), language=languages[0]),
        target=Text(text=answer, pieces=spelled(gold, answer, 0, ended), language=languages[1]),
        logp=fsum(logps),
        score=float(found.scores[0]),
        steps=tuple(
            Step(logp=logp, entropy=None, top=((piece.replace("\u2581", " "), logp),))
            for piece, logp in zip(gold, logps, strict=True)
        ),
        attention={"cross": weights_blob(looked[None, None])},
        reading=Reading(step="naive", layer=0, head=0),
    )

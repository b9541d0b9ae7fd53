"""Which words came from which: links read off cross-attention.

    weights [layers, heads, steps, slots] -> of pieces [steps, slots] -> of words [T, S] -> links {(source, target)}

Two readings of the same weights: step t *says* piece t, and step t + 1 is the one that *reads* it. A recurrent decoder
looks for a word while it says it (naive); in a Transformer the step that reads a piece often looks at its origin better
(shifted; Chen et al. 2020). And not all heads align: the mean of all is a blur, one of them may be sharp.

Attention is evidence of what a model used, not proof of where a word came from.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.errors import HeedfulError, did_you_mean

Array = NDArray[Any]
SPACE = "\u2581"


def naive(weights: Array, count: int) -> Array:
    """The step that says a piece: [..., steps, slots] -> [..., count, slots]"""
    return weights[..., :count, :]


def shifted(weights: Array, count: int) -> Array:
    """The step that reads a piece: one later; the last piece of an answer that was cut off nobody has read."""
    return np.concatenate((weights, weights[..., -1:, :]), -2)[..., 1 : count + 1, :]


READINGS = {"naive": naive, "shifted": shifted}


@dataclass(frozen=True, slots=True)
class Reading:
    """How links are read: which step, and of which head; of None, the mean."""

    step: str = "naive"
    layer: int | None = None
    head: int | None = None

    def __post_init__(self) -> None:
        if self.step not in READINGS:
            raise HeedfulError(f"unknown reading `{self.step}`" + did_you_mean(self.step, (*READINGS, "best")))

    def __call__(self, attention: Array, count: int) -> Array:
        """[layers, heads, steps, slots] -> [count, slots], `count` pieces of the target.

        Where the first pieces were given, and nobody looked while they were read, they have no weight.
        """
        layers = attention if self.layer is None else attention[self.layer : self.layer + 1]
        heads = layers if self.head is None else layers[:, self.head : self.head + 1]
        if 0 in heads.shape[:2]:
            raise HeedfulError(
                f"there is no head {self.head} in layer {self.layer}: the model has {attention.shape[:2]}"
            )
        weights = heads.mean((0, 1))
        given = np.zeros((max(0, count - len(weights)), weights.shape[1]))
        return READINGS[self.step](np.concatenate((given, weights)), count)


def word_of(pieces: Sequence[str]) -> list[int]:
    """The number of the word (what stands between spaces) that each piece is in; a bare space is in the next."""
    numbers, count, inside = [], 0, False
    for piece in pieces:
        body = piece.replace(SPACE, " ")
        begins = len(body.split()) - (inside and not body.startswith(" ") and bool(body.strip()))
        count += max(0, begins)
        inside = not body.endswith(" ")
        numbers.append(count if not body.strip() else count - 1)
    return [min(number, count - 1) for number in numbers] if count else [0] * len(pieces)


def of_words(weights: Array, target: Sequence[int], source: Sequence[int]) -> Array:
    """Weights of pieces -> of words: the sum over the pieces of a source word, the mean over those of a target word."""
    words = np.zeros((max(target, default=-1) + 1, max(source, default=-1) + 1))
    np.add.at(words, (np.asarray(target, int)[:, None], np.asarray(source, int)[None, :]), weights)
    return words / np.maximum(np.bincount(target, minlength=len(words)), 1)[:, None]


Links = tuple[tuple[int, int], ...]  # (source word, target word), from 0


def hard(weights: Array, least: float | None = None) -> Links:
    """Every target word with the source word it looks at most; or with all that have at least so much of its weight."""
    if not weights.size:
        return ()
    if least is None:
        looked = np.flatnonzero(weights.any(1))
        return tuple(sorted((int(weights[target].argmax()), int(target)) for target in looked))
    total = np.maximum(weights.sum(1, keepdims=True), 1e-9)
    return tuple(sorted((int(source), int(target)) for target, source in np.argwhere(weights / total >= least)))


def words(pieces: Sequence[str]) -> int:
    """How many words they form."""
    return len("".join(pieces).replace(SPACE, " ").split())


def soft(attention: Array, source: Sequence[str], target: Sequence[str], reading: Reading) -> Array:
    """How much each target word looked at each source word [T, S]; both texts are given as pieces, slots are pieces."""
    count = words(target), words(source)
    if 0 in count:
        return np.zeros(count)  # a text of nothing but spaces
    return of_words(reading(attention, len(target)), word_of(target), word_of(source))


def pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Links as others read them: 0-0 1-2"""
    return " ".join(f"{source}-{target}" for source, target in links)


# ------------------------------------------------------------------------------------------------- the best head

Looked = tuple[Array, Sequence[int], Sequence[int]]  # attention to the source's pieces, and the pieces of both sides


def best_reading(looks: Iterable[Looked], related: Mapping[tuple[int, int], float]) -> Reading | None:
    """The step and the head (or mean of heads) whose strongest links join pieces that belong together most.

    No gold links are needed.
    """
    sums: dict[Reading, float] = defaultdict(float)
    for attention, source, target in looks:
        belong = np.array([[related.get((one, other), 0.0) for one in source] for other in target])
        for reading in readings(*attention.shape[:2]):
            strongest = reading(attention, len(target)).argmax(-1)
            sums[reading] += float(belong[np.arange(len(target)), strongest].sum())
    return max(sums, key=lambda one: sums[one], default=None)


def readings(layers: int, heads: int) -> Iterator[Reading]:
    """Every way to read, the means first."""
    for step, layer in product(READINGS, (None, *range(layers))):
        yield from (Reading(step, layer, head) for head in (None, *(range(heads) if layer is not None else ())))


def association(pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> dict[tuple[int, int], float]:
    """The correlation of two pieces' occurrence in the same pair of sentences, counted over n pairs:

    phi(s, t) = (n c(s, t) - c(s) c(t)) / sqrt(c(s) (n - c(s)) c(t) (n - c(t)))

    A full stop, which occurs in all of them, goes with nothing.
    """
    alone: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
    together: Counter[tuple[int, int]] = Counter()
    n = 0
    for source, target in pairs:
        kinds = set(source), set(target)
        for count, side in zip(alone, kinds, strict=True):
            count.update(side)
        together.update(product(*kinds))
        n += 1
    spread = tuple({piece: sqrt(count * (n - count)) for piece, count in side.items()} for side in alone)
    return {
        (s, t): (n * count - alone[0][s] * alone[1][t]) / (spread[0][s] * spread[1][t])
        for (s, t), count in together.items()
        if spread[0][s] and spread[1][t]
    }

"""Word alignment: links between source and target words, derived from cross-attention.

    weights [layers, heads, steps, slots] -> of pieces [steps, slots] -> of words [T, S] -> links {(source, target)}

Step t *produces* piece t, and step t + 1 *reads* it. A recurrent decoder attends to the source of a word in the step
that produces it (naive); in a Transformer the step that reads a piece often aligns better (shifted; Chen et al. 2020).
Heads differ too: one head may align much better than the mean of all.

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


def producing_steps(weights: Array, num_pieces: int) -> Array:
    """The weights of the step that produces each piece: [..., steps, slots] -> [..., num_pieces, slots]"""
    return weights[..., :num_pieces, :]


def reading_steps(weights: Array, num_pieces: int) -> Array:
    """The weights of the step that reads each piece; the last piece of a truncated hypothesis is never read."""
    return np.concatenate((weights, weights[..., -1:, :]), -2)[..., 1 : num_pieces + 1, :]


STEP_CHOICES = {"naive": producing_steps, "shifted": reading_steps}


@dataclass(frozen=True, slots=True)
class AlignmentMethod:
    """The step, layer and head from which links are derived; None for layer or head means the mean."""

    step: str = "naive"
    layer: int | None = None
    head: int | None = None

    def __post_init__(self) -> None:
        if self.step not in STEP_CHOICES:
            raise HeedfulError(
                f"unknown alignment method `{self.step}`" + did_you_mean(self.step, (*STEP_CHOICES, "best"))
            )

    def __call__(self, attention: Array, num_pieces: int) -> Array:
        """[layers, heads, steps, slots] -> [num_pieces, slots], for `num_pieces` pieces of the target.

        The pieces of a prefix have no attention, because it is decoded in one step; their weights are 0.
        """
        layers = attention if self.layer is None else attention[self.layer : self.layer + 1]
        heads = layers if self.head is None else layers[:, self.head : self.head + 1]
        if 0 in heads.shape[:2]:
            raise HeedfulError(
                f"there is no head {self.head} in layer {self.layer}: the model has (layers, heads) = "
                f"{attention.shape[:2]}"
            )
        weights = heads.mean((0, 1))
        prefix = np.zeros((max(0, num_pieces - len(weights)), weights.shape[1]))
        return STEP_CHOICES[self.step](np.concatenate((prefix, weights)), num_pieces)


def word_indices(pieces: Sequence[str]) -> list[int]:
    """The index of the word (text between spaces) of each piece; a single space belongs to the next word."""
    indices, count, inside = [], 0, False
    for piece in pieces:
        body = piece.replace(SPACE, " ")
        new_words = len(body.split()) - (inside and not body.startswith(" ") and bool(body.strip()))
        count += max(0, new_words)
        inside = not body.endswith(" ")
        indices.append(count if not body.strip() else count - 1)
    return [min(index, count - 1) for index in indices] if count else [0] * len(pieces)


def attention_of_words(weights: Array, target: Sequence[int], source: Sequence[int]) -> Array:
    """Convert weights of pieces to words: sum over pieces of a source word, mean over pieces of a target word.

    `target` and `source` are the word indices of the pieces.
    """
    words = np.zeros((max(target, default=-1) + 1, max(source, default=-1) + 1))
    np.add.at(words, (np.asarray(target, int)[:, None], np.asarray(source, int)[None, :]), weights)
    return words / np.maximum(np.bincount(target, minlength=len(words)), 1)[:, None]


Links = tuple[tuple[int, int], ...]  # (source word, target word), from 0


def hard_links(weights: Array, threshold: float | None = None) -> Links:
    """Link every target word [T, S] to its most attended source word, or to all with a share of at least `threshold`.

    Shares are relative to the sum of the target word's weights, which need not be 1.
    """
    if not weights.size:
        return ()
    if threshold is None:
        attending = np.flatnonzero(weights.any(1))
        return tuple(sorted((int(weights[target].argmax()), int(target)) for target in attending))
    total = np.maximum(weights.sum(1, keepdims=True), 1e-9)
    return tuple(sorted((int(source), int(target)) for target, source in np.argwhere(weights / total >= threshold)))


def count_words(pieces: Sequence[str]) -> int:
    """The number of words in the pieces."""
    return len("".join(pieces).replace(SPACE, " ").split())


def soft_alignment(attention: Array, source: Sequence[str], target: Sequence[str], method: AlignmentMethod) -> Array:
    """The attention of each target word to each source word [T, S]; `source` and `target` are pieces."""
    shape = count_words(target), count_words(source)
    if 0 in shape:
        return np.zeros(shape)  # a text without words
    return attention_of_words(method(attention, len(target)), word_indices(target), word_indices(source))


def format_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Links in Pharaoh format: 0-0 1-2"""
    return " ".join(f"{source}-{target}" for source, target in links)


# ------------------------------------------------------------------------------------------------- the best head

AttentionExample = tuple[Array, Sequence[int], Sequence[int]]  # attention to the source's pieces, pieces of both sides


def find_best_method(
    examples: Iterable[AttentionExample], correlations: Mapping[tuple[int, int], float]
) -> AlignmentMethod | None:
    """The method whose strongest links have the highest total correlation. Needs no gold links."""
    sums: dict[AlignmentMethod, float] = defaultdict(float)
    for attention, source, target in examples:
        related = np.array([[correlations.get((s, t), 0.0) for s in source] for t in target])
        for method in all_methods(*attention.shape[:2]):
            strongest = method(attention, len(target)).argmax(-1)
            sums[method] += float(related[np.arange(len(target)), strongest].sum())
    return max(sums, key=lambda method: sums[method], default=None)


def all_methods(layers: int, heads: int) -> Iterator[AlignmentMethod]:
    """Every alignment method of a model, the means first."""
    for step, layer in product(STEP_CHOICES, (None, *range(layers))):
        yield from (AlignmentMethod(step, layer, head) for head in (None, *(range(heads) if layer is not None else ())))


def correlate_pieces(pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> dict[tuple[int, int], float]:
    """How strongly two pieces co-occur in n sentence pairs (the phi coefficient):

    phi(s, t) = (n c(s, t) - c(s) c(t)) / sqrt(c(s) (n - c(s)) c(t) (n - c(t)))

    Pieces that occur in every sentence, such as a full stop, have no correlation.
    """
    counts: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
    joint_counts: Counter[tuple[int, int]] = Counter()
    n = 0
    for source, target in pairs:
        kinds = set(source), set(target)
        for count, side in zip(counts, kinds, strict=True):
            count.update(side)
        joint_counts.update(product(*kinds))
        n += 1
    spread = tuple({piece: sqrt(count * (n - count)) for piece, count in side.items()} for side in counts)
    return {
        (s, t): (n * count - counts[0][s] * counts[1][t]) / (spread[0][s] * spread[1][t])
        for (s, t), count in joint_counts.items()
        if spread[0][s] and spread[1][t]
    }

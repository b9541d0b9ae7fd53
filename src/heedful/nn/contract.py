"""The interfaces of encoders and decoders, and the values they exchange.

    source -> Encoder -> Memory -> Decoder.start -> State -> Decoder.forward -> Decoded -> Decoder.project -> logits

Shapes in the whole package:

    B rows   S source slots   T target steps   H heads   D width   V vocabulary

Masks are boolean; True means *real*, not padding. Modules keep no state between calls: it is an argument and a result.
A model is any pair of objects that implement `Encoder` and `Decoder`; `search` and `Seq2Seq` use only these protocols.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor

Tree: TypeAlias = Any  # a Tensor whose dim 0 is the row; None or a flag; or a tuple or dataclass of trees
Place: TypeAlias = Literal["encoder", "cross", "decoder"]
Record: TypeAlias = Literal["weights", "scores", "queries", "keys", "values"]

PLACES: tuple[Place, ...] = ("encoder", "cross", "decoder")
RECORDS: tuple[Record, ...] = ("weights", "scores", "queries", "keys", "values")


# ------------------------------------------------------------------------------------------------------ maps and looks


@dataclass(frozen=True, slots=True)
class Map:
    """A record of one attention: weights = normalizer(scores of real slots), context = weights @ values.

    `queries`, `keys` and `values` are the inputs of the score function (keys already prepared). Parts that were not
    requested are None.
    """

    weights: Tensor | None = None  # [B, H, T, S]
    scores: Tensor | None = None  # [B, H, T, S], -inf where a slot is padding or in the future
    queries: Tensor | None = None  # [B, H, T, d]
    keys: Tensor | None = None  # [B, H, S, a]
    values: Tensor | None = None  # [B, H, S, d]

    def transform(self, function: Callable[[Tensor], Tensor]) -> "Map":
        """Apply `function` to every recorded part."""
        parts = (self.weights, self.scores, self.queries, self.keys, self.values)
        return Map(*(None if part is None else function(part) for part in parts))


@dataclass(frozen=True, slots=True)
class Maps:
    """The maps of a model, one per layer: encoder self-attention, cross-attention, decoder self-attention."""

    encoder: tuple[Map, ...] = ()
    cross: tuple[Map, ...] = ()
    decoder: tuple[Map, ...] = ()


@dataclass(frozen=True, slots=True)
class Glance:
    """The part of a `Look` for one attention: what to record and which heads to silence."""

    record: frozenset[Record] = frozenset()
    silent: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """A request to record attention and to silence heads.

    A silenced head contributes a zero context. `Look()` records the weights of every head.
    """

    record: frozenset[Record] = frozenset({"weights"})
    silence: frozenset[tuple[Place, int, int]] = field(default=frozenset())  # (place, layer, head)

    def __post_init__(self) -> None:
        _check_choices("record", self.record, RECORDS)
        _check_choices("place to silence", (place for place, _, _ in self.silence), PLACES)

    def check_layers(self, place: Place, num_layers: int) -> None:
        """Raise ValueError if a layer to silence does not exist."""
        for silent_place, layer, head in self.silence:
            if silent_place == place and not 0 <= layer < num_layers:
                raise ValueError(
                    f"cannot silence head {head} of {place} layer {layer}: there are {num_layers} such layers"
                )

    def glance_at(self, place: Place, layer: int) -> Glance:
        silent = sorted(head for silent_place, index, head in self.silence if (silent_place, index) == (place, layer))
        return Glance(self.record, tuple(silent))


def glance_if_any(look: Look | None, place: Place, layer: int) -> Glance | None:
    return None if look is None else look.glance_at(place, layer)


def _check_choices(label: str, values: Iterable[str], choices: tuple[str, ...]) -> None:
    if unknown := sorted(set(values) - set(choices)):
        raise ValueError(f"{label} {unknown[0]!r} is unknown; choose from {', '.join(choices)}")


# ----------------------------------------------------------------------------------------- values that models exchange


@dataclass(frozen=True, slots=True)
class Memory:
    """The output of an encoder: annotation vectors, their mask, and (on request) attention maps."""

    states: Tensor  # [B, S, D]
    mask: Tensor  # [B, S]
    maps: Maps | None = None

    def mean(self) -> Tensor:
        """The average of the real annotation vectors, [B, D]."""
        real = self.mask.unsqueeze(-1)
        return (self.states * real).sum(1) / real.sum(1).clamp(min=1)

    def last(self) -> Tensor:
        """The annotation vector of the last real slot, [B, D]."""
        return take_slot(self.states, last_slot(self.mask))


@dataclass(frozen=True, slots=True)
class State:
    """The state of a decoder between two calls; dim 0 of every tensor is the row.

    If `shared`, `forward` also accepts k consecutive rows of tokens and past for each row of source (the k beams of a
    sentence), so the source is not copied for every beam.
    """

    source: Tree  # constant per sentence: prepared keys, values, mask
    past: Tree  # changes with every token
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Decoded:
    """The output of a decoder before the projection to logits, and (on request) attention maps."""

    states: Tensor  # [B, T, D]
    maps: Maps | None = None


class Encoder(Protocol):
    """Anything -> Memory: called with the tensors of a source and `look=None`."""

    width: int

    @property
    def __call__(self) -> Callable[..., Memory]:
        """Each encoder defines which tensors it takes: text has tokens and a mask, a graph has nodes and edges."""
        ...


class Decoder(Protocol):
    """Memory -> State, then (tokens, State) -> (Decoded, State) for any number of tokens per call."""

    def start(self, memory: Memory) -> State:
        """Do the work that is needed once per sentence."""
        ...

    def __call__(self, tokens: Tensor, state: State, look: Look | None = None) -> tuple[Decoded, State]:
        """Read the tokens [B, T], any T >= 1."""
        ...

    def project(self, states: Tensor) -> Tensor:
        """[..., D] -> logits [..., V]"""
        ...


# -------------------------------------------------------------------------------------------------- functions of trees

T = TypeVar("T")


def select(tree: T, rows: Tensor) -> T:
    """Select rows of every tensor in a tree: this expands, shrinks and reorders beams."""
    picked: Any
    if isinstance(tree, Tensor):
        picked = tree.index_select(0, rows)
    elif tree is None or isinstance(tree, bool):
        picked = tree
    elif isinstance(tree, tuple):
        leaves = [select(leaf, rows) for leaf in tree]
        picked = type(tree)(*leaves) if hasattr(tree, "_fields") else tuple(leaves)
    elif is_dataclass(tree) and not isinstance(tree, type):
        picked = replace(tree, **{part.name: select(getattr(tree, part.name), rows) for part in fields(tree)})
    else:
        raise TypeError(f"cannot select rows from {type(tree).__name__}: a state is a tree of tensors")
    return picked  # type: ignore[no-any-return]  # the same kind of tree as the argument


def last_slot(mask: Tensor) -> Tensor:
    """The index of the last real slot of each row, [B, S] -> [B]; 0 where there is none."""
    return (mask * torch.arange(mask.size(1), device=mask.device)).amax(1)


def take_slot(states: Tensor, slot: Tensor) -> Tensor:
    """One slot per row: [B, S, D], [B] -> [B, D]."""
    return states.gather(1, slot.view(-1, 1, 1).expand(-1, 1, states.size(-1))).squeeze(1)

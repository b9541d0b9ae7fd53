"""The bricks that encoders and decoders share."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.nn.attention import SCORES, Score
from heedful.nn.dropout import Dropout
from heedful.nn.positions import Positions

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}
NORMS = ("pre", "post")


class Embed(nn.Module):
    """x = dropout(E[token] [* sqrt(D)] [+ P[position]])

    Share a table by passing the same `nn.Embedding` to two of these.
    """

    def __init__(
        self, table: nn.Embedding, *, positions: Positions | None = None, scale: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.table = table
        self.positions = positions
        self.width = table.embedding_dim
        self.factor = math.sqrt(self.width) if scale else 1.0
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, offset: int = 0) -> Tensor:
        """[B, T] -> [B, T, D]; `offset` is the position of the first token."""
        words: Tensor = self.table(tokens)
        if self.positions is not None:
            words = torch.add(self.positions(tokens.size(1), offset), words, alpha=self.factor)
        elif self.factor != 1.0:
            words = words * self.factor
        return self.dropout(words) if self.training else words

    if TYPE_CHECKING:
        __call__ = forward


def output_layer(width: int, vocabulary: int, *, tied: nn.Embedding | None = None, bias: bool = False) -> nn.Linear:
    """logits = W x [+ b], W of shape [V, D]; `tied` makes W the embedding table itself."""
    if tied is not None and tied.weight.shape != (vocabulary, width):
        raise ValueError(
            f"cannot tie an output of {vocabulary} x {width} to a table of {tuple(tied.weight.shape)}: "
            "give both the same vocabulary and width"
        )
    layer = nn.Linear(width, vocabulary, bias=bias)
    if tied is not None:
        layer.weight = tied.weight
    return layer


def precise(logits: Tensor) -> Tensor:
    """At least fp32: softmax and sums of log-probabilities need it."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class FeedForward(nn.Module):
    """y = W_2 dropout(activation(W_1 x + b_1)) + b_2, at every position alike; Vaswani 2017 has no dropout here"""

    def __init__(self, width: int, inner: int, activation: str = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]"""
        inner = self.activation(self.up(x))
        return self.down(self.dropout(inner) if self.training else inner)  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        __call__ = forward


class Residual(nn.Module):
    """Add & Norm around a sub-layer.

    pre:   x + dropout(sub(norm(x)))
    post:  norm(x + dropout(sub(x)))
    """

    def __init__(self, width: int, norm: str = "pre", dropout: float = 0.0) -> None:
        super().__init__()
        if norm not in NORMS:
            raise ValueError(f"norm {norm!r} is unknown; choose from {', '.join(NORMS)}")
        self.pre = norm == "pre"
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def enter(self, x: Tensor) -> Tensor:
        """What the sub-layer gets."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, update: Tensor) -> Tensor:
        """What the next sub-layer gets, given what this one answered."""
        total = self.dropout.add(x, update)
        return total if self.pre else self.norm(total)


def head_score(kind: str, width: int, heads: int) -> Score:
    """A score for heads of width / heads."""
    return SCORES[kind](width // heads, width // heads)


def initialize(module: nn.Module) -> None:
    """Xavier for matrices, zero for biases, N(0, 1/D) for embeddings, orthogonal recurrence, LSTM forget bias 1."""
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            continue
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.RNNBase):
            _initialize_recurrent(part)
        elif callable(reset := getattr(part, "reset_parameters", None)):
            reset()
    # Last, because a tied output has just been given a matrix's start: the table's own is the right one.
    for part in module.modules():
        if isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=part.embedding_dim**-0.5)


def _initialize_recurrent(part: nn.RNNBase) -> None:
    for name, parameter in part.named_parameters():
        if "weight_hh" in name:
            for gate in parameter.chunk(parameter.size(0) // part.hidden_size):
                nn.init.orthogonal_(gate)
        elif "weight_ih" in name:
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.zeros_(parameter)
            if isinstance(part, nn.LSTM) and "bias_ih" in name:  # gates are i, f, g, o: remember from the start
                with torch.no_grad():
                    parameter[part.hidden_size : 2 * part.hidden_size] = 1.0

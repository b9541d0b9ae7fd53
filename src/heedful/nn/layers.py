"""Layers that encoders and decoders share."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.nn.attention import LOCATION_SLOTS, MultiHead, ScoreFunction, SelfAttention, make_score
from heedful.nn.dropout import Dropout
from heedful.nn.positions import Positions

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}
NORMS = ("pre", "post")


class Embed(nn.Module):
    """x = dropout(E[token] [* sqrt(D)] [+ P[position]])

    To share a table, pass the same `nn.Embedding` to several instances.
    """

    def __init__(
        self,
        table: nn.Embedding,
        *,
        positions: Positions | None = None,
        scale_embeddings: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.table = table
        self.positions = positions
        self.width = table.embedding_dim
        self.scale = math.sqrt(self.width) if scale_embeddings else 1.0
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, offset: int = 0) -> Tensor:
        """[B, T] -> [B, T, D]; `offset` is the position of the first token."""
        words: Tensor = self.table(tokens)
        if self.positions is not None:
            words = torch.add(self.positions(tokens.size(1), offset), words, alpha=self.scale)
        elif self.scale != 1.0:
            words = words * self.scale
        return self.dropout(words) if self.training else words

    if TYPE_CHECKING:
        __call__ = forward


def output_layer(width: int, vocab_size: int, *, tied_to: nn.Embedding | None = None, bias: bool = False) -> nn.Linear:
    """logits = W x [+ b], W of shape [V, D]; `tied_to` makes W the table of that embedding."""
    if tied_to is not None and tied_to.weight.shape != (vocab_size, width):
        raise ValueError(
            f"cannot tie an output of {vocab_size} x {width} to a table of {tuple(tied_to.weight.shape)}: "
            "give both the same vocabulary and width"
        )
    layer = nn.Linear(width, vocab_size, bias=bias)
    if tied_to is not None:
        layer.weight = tied_to.weight
    return layer


def promote_to_fp32(logits: Tensor) -> Tensor:
    """Logits in fp32 or better, which softmax and sums of log-probabilities need."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class FeedForward(nn.Module):
    """y = W_2 dropout(activation(W_1 x + b_1)) + b_2, the same at every position; Vaswani 2017 has no dropout here"""

    def __init__(self, width: int, feedforward_size: int, activation: str = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        self.up = nn.Linear(width, feedforward_size)
        self.down = nn.Linear(feedforward_size, width)
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]"""
        hidden = self.activation(self.up(x))
        return self.down(self.dropout(hidden) if self.training else hidden)  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        __call__ = forward


class Residual(nn.Module):
    """Add & Norm around a sub-layer: add_and_norm(x, sublayer(sublayer_input(x)))

    pre:   x + dropout(sublayer(norm(x)))
    post:  norm(x + dropout(sublayer(x)))
    """

    def __init__(self, width: int, norm: str = "pre", dropout: float = 0.0) -> None:
        super().__init__()
        if norm not in NORMS:
            raise ValueError(f"norm {norm!r} is unknown; choose from {', '.join(NORMS)}")
        self.pre = norm == "pre"
        self.norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def sublayer_input(self, x: Tensor) -> Tensor:
        return self.norm(x) if self.pre else x

    def add_and_norm(self, x: Tensor, update: Tensor) -> Tensor:
        """x + dropout(update), normalized if post"""
        total = self.dropout.add(x, update)
        return total if self.pre else self.norm(total)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerLayerOptions:
    """The options of a Transformer layer, the same for encoders and decoders.

    options = TransformerLayerOptions(heads=8, feedforward_size=2048, dropout=0.1)
    encoder = TransformerEncoder(embed, layers=6, options=options)
    decoder = TransformerDecoder(embed, output, encoder.width, layers=6, options=options)
    """

    heads: int
    feedforward_size: int
    norm: str = "pre"  # from NORMS
    activation: str = "relu"  # from ACTIVATIONS
    dropout: float = 0.0  # of the output of each sub-layer
    feedforward_dropout: float | None = None  # inside the feed-forward part; None: the same as `dropout`
    score: str = "scaled_dot"  # from SCORES
    location_slots: int = LOCATION_SLOTS  # of the score "location"
    normalizer: str = "soft"  # from NORMALIZERS
    combine: str = "concat"  # from COMBINE_MODES

    def make_self_attention(self, width: int) -> SelfAttention:
        score = make_head_score(self.score, width, self.heads, self.location_slots)
        return SelfAttention(width, self.heads, score=score, normalizer=self.normalizer, combine=self.combine)

    def make_cross_attention(self, width: int, memory_width: int) -> MultiHead:
        score = make_head_score(self.score, width, self.heads, self.location_slots)
        return MultiHead(width, self.heads, memory_width, score=score, normalizer=self.normalizer, combine=self.combine)

    def make_feed_forward(self, width: int) -> FeedForward:
        dropout = self.dropout if self.feedforward_dropout is None else self.feedforward_dropout
        return FeedForward(width, self.feedforward_size, self.activation, dropout)

    def make_residual(self, width: int) -> Residual:
        return Residual(width, self.norm, self.dropout)

    def make_last_norm(self, width: int) -> nn.Module:
        """The norm after the last layer: the output of pre-norm layers is not normalized."""
        return nn.LayerNorm(width) if self.norm == "pre" else nn.Identity()


def make_head_score(kind: str, width: int, heads: int, location_slots: int = LOCATION_SLOTS) -> ScoreFunction:
    """A score function for heads of width `width // heads`."""
    return make_score(kind, width // heads, width // heads, location_slots)


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
    # Embeddings last: a tied output layer was initialized as a matrix above.
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
            if isinstance(part, nn.LSTM) and "bias_ih" in name:  # gates are i, f, g, o
                with torch.no_grad():
                    parameter[part.hidden_size : 2 * part.hidden_size] = 1.0

"""The Transformer encoder."""

from typing import TYPE_CHECKING

from torch import Tensor, nn

from heedful.nn.attention import SelfAttention, needed
from heedful.nn.contract import Glance, Look, Map, Maps, Memory, glance
from heedful.nn.layers import Embed, FeedForward, Residual, head_score


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward net, each in Add & Norm."""

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        *,
        norm: str = "pre",
        activation: str = "relu",
        dropout: float = 0.0,
        inner_dropout: float | None = None,
        score: str = "scaled_dot",
        normalize: str = "soft",
        combine: str = "concat",
    ) -> None:
        super().__init__()
        self.attention = SelfAttention(
            width, heads, score=head_score(score, width, heads), normalize=normalize, combine=combine
        )
        self.feed_forward = FeedForward(width, inner, activation, dropout if inner_dropout is None else inner_dropout)
        self.around_attention = Residual(width, norm, dropout)
        self.around_feed_forward = Residual(width, norm, dropout)

    def forward(self, x: Tensor, mask: Tensor | None, glance: Glance | None = None) -> tuple[Tensor, Map | None]:
        """[B, S, D], [B, 1, 1, S] -> [B, S, D]"""
        update, _, found = self.attention(self.around_attention.enter(x), mask=mask, glance=glance)
        x = self.around_attention.leave(x, update)
        update = self.feed_forward(self.around_feed_forward.enter(x))
        return self.around_feed_forward.leave(x, update), found

    if TYPE_CHECKING:
        __call__ = forward


class TransformerEncoder(nn.Module):
    """Layers of self-attention; a last LayerNorm after pre-norm layers."""

    def __init__(
        self,
        embed: Embed,
        *,
        layers: int,
        heads: int,
        inner: int,
        norm: str = "pre",
        activation: str = "relu",
        dropout: float = 0.0,
        inner_dropout: float | None = None,
        score: str = "scaled_dot",
        normalize: str = "soft",
        combine: str = "concat",
    ) -> None:
        super().__init__()
        self.embed = embed
        self.width = embed.width
        self.layers = nn.ModuleList(
            EncoderLayer(
                self.width,
                heads,
                inner,
                norm=norm,
                activation=activation,
                dropout=dropout,
                inner_dropout=inner_dropout,
                score=score,
                normalize=normalize,
                combine=combine,
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(self.width) if norm == "pre" else nn.Identity()

    def forward(self, tokens: Tensor, mask: Tensor, *, look: Look | None = None) -> Memory:
        """[B, S], [B, S] -> Memory"""
        if look is not None:
            look.check("encoder", len(self.layers))
        x, hiding = self.embed(tokens), needed(mask)
        seen_by_all = None if hiding is None else hiding[:, None, None, :]
        maps = []
        for index, layer in enumerate(self.layers):
            x, found = layer(x, seen_by_all, glance(look, "encoder", index))
            maps.append(found)
        seen = Maps(encoder=tuple(maps)) if look is not None and look.record else None
        return Memory(self.norm(x), mask, seen)

    if TYPE_CHECKING:
        __call__ = forward

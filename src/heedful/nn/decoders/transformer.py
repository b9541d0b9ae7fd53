"""The Transformer decoder, with the keys and values of past tokens as its state."""

from typing import TYPE_CHECKING

from torch import Tensor, nn

from heedful.nn.attention import MultiHead, SelfAttention, Source
from heedful.nn.contract import Decoded, Glance, Look, Map, Maps, Memory, State
from heedful.nn.layers import Embed, FeedForward, Residual, head_score

Looks = tuple[Glance | None, Glance | None]  # at the layer's self-attention and at its cross-attention
NOBODY: Looks = (None, None)


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention, feed-forward net, each in Add & Norm."""

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        memory_width: int,
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
        self.cross = MultiHead(
            width, heads, memory_width, score=head_score(score, width, heads), normalize=normalize, combine=combine
        )
        self.feed_forward = FeedForward(width, inner, activation, dropout if inner_dropout is None else inner_dropout)
        self.around_attention = Residual(width, norm, dropout)
        self.around_cross = Residual(width, norm, dropout)
        self.around_feed_forward = Residual(width, norm, dropout)

    def prepare(self, memory: Memory) -> Source:
        """The cross-attention's keys and values, once per sentence."""
        return self.cross.prepare(memory)

    def forward(
        self,
        x: Tensor,
        past: Tensor | None,
        source: Source,
        looks: Looks = NOBODY,
    ) -> tuple[Tensor, Tensor, tuple[Map | None, Map | None]]:
        """[B, T, D] -> [B, T, D], the keys and values so far, and the maps (self, cross)"""
        update, past, own = self.attention(self.around_attention.enter(x), past=past, causal=True, glance=looks[0])
        x = self.around_attention.leave(x, update)
        update, _, cross = self.cross(self.around_cross.enter(x), source, glance=looks[1])
        x = self.around_cross.leave(x, update)
        update = self.feed_forward(self.around_feed_forward.enter(x))
        return self.around_feed_forward.leave(x, update), past, (own, cross)

    if TYPE_CHECKING:
        __call__ = forward


class TransformerDecoder(nn.Module):
    """Layers of masked self-attention and cross-attention; a last LayerNorm after pre-norm layers."""

    def __init__(
        self,
        embed: Embed,
        output: nn.Linear,
        memory_width: int,
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
        self.plain_projection = output
        self.layers = nn.ModuleList(
            DecoderLayer(
                embed.width,
                heads,
                inner,
                memory_width,
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
        self.norm = nn.LayerNorm(embed.width) if norm == "pre" else nn.Identity()

    def start(self, memory: Memory) -> State:
        """Every layer's keys and values of the memory; no past."""
        prepared = tuple(layer.prepare(memory) for layer in self.layers)  # type: ignore[operator]
        return State(prepared, (None,) * len(self.layers), shared=True)

    def forward(self, tokens: Tensor, state: State, look: Look | None = None) -> tuple[Decoded, State]:
        """[B, T] -> states [B, T, D], and the state after the last token"""
        if look is not None:
            look.check("decoder", len(self.layers))
            look.check("cross", len(self.layers))
        seen = 0 if state.past[0] is None else state.past[0].size(1)
        x = self.embed(tokens, seen)
        past, own, cross = [], [], []
        for index, layer in enumerate(self.layers):
            looks = NOBODY if look is None else (look.at("decoder", index), look.at("cross", index))
            x, after, maps = layer(x, state.past[index], state.source[index], looks)
            past.append(after)
            own.append(maps[0])
            cross.append(maps[1])
        found = Maps(cross=tuple(cross), decoder=tuple(own)) if look is not None and look.record else None
        return Decoded(self.norm(x), found), State(state.source, tuple(past), shared=True)

    def project(self, states: Tensor) -> Tensor:
        """[..., D] -> [..., V]"""
        return self.plain_projection(states)  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        __call__ = forward

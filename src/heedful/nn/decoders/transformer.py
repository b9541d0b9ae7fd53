"""The Transformer decoder, with the keys and values of past tokens as its state."""

from typing import TYPE_CHECKING

from torch import Tensor, nn

from heedful.nn.attention import MultiHead, PreparedSource
from heedful.nn.contract import Decoded, Glance, Look, Map, Maps, Memory, State
from heedful.nn.layers import Embed, TransformerLayerOptions

Glances = tuple[Glance | None, Glance | None]  # at the layer's self-attention and at its cross-attention
NO_GLANCES: Glances = (None, None)


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention, feed-forward net, each in Add & Norm.

    If the memory has width 0, there is no cross-attention. `causal=False` removes the mask of the self-attention.
    """

    cross: MultiHead | None

    def __init__(self, width: int, memory_width: int, options: TransformerLayerOptions, *, causal: bool = True) -> None:
        super().__init__()
        self.causal = causal
        self.attention = options.make_self_attention(width)
        self.cross = options.make_cross_attention(width, memory_width) if memory_width else None
        self.feed_forward = options.make_feed_forward(width)
        self.around_attention = options.make_residual(width)
        self.around_cross = options.make_residual(width) if memory_width else None
        self.around_feed_forward = options.make_residual(width)

    def prepare(self, memory: Memory) -> PreparedSource | None:
        """The cross-attention's keys and values, once per sentence."""
        return None if self.cross is None else self.cross.prepare(memory)

    def forward(
        self,
        x: Tensor,
        past: Tensor | None,
        source: PreparedSource | None,
        glances: Glances = NO_GLANCES,
    ) -> tuple[Tensor, Tensor, tuple[Map | None, Map | None]]:
        """[B, T, D] -> [B, T, D], the keys and values so far, and the maps (self, cross)"""
        normed = self.around_attention.sublayer_input(x)
        update, past, self_map = self.attention(normed, past=past, causal=self.causal, glance=glances[0])
        x = self.around_attention.add_and_norm(x, update)
        cross_map = None
        if self.cross is not None and self.around_cross is not None and source is not None:
            update, _, cross_map = self.cross(self.around_cross.sublayer_input(x), source, glance=glances[1])
            x = self.around_cross.add_and_norm(x, update)
        update = self.feed_forward(self.around_feed_forward.sublayer_input(x))
        return self.around_feed_forward.add_and_norm(x, update), past, (self_map, cross_map)

    if TYPE_CHECKING:
        __call__ = forward


class TransformerDecoder(nn.Module):
    """Layers of masked self-attention and cross-attention; a last LayerNorm after pre-norm layers.

    `causal=False` is for experiments only (heedful lab X10): the decoder then sees the tokens that it has to predict.
    No setting of heedful.toml has it, and exports refuse it.
    """

    def __init__(
        self,
        embed: Embed,
        output: nn.Linear,
        memory_width: int,
        *,
        layers: int,
        options: TransformerLayerOptions,
        causal: bool = True,
    ) -> None:
        super().__init__()
        self.embed = embed
        self.plain_projection = output
        self.layers = nn.ModuleList(
            DecoderLayer(embed.width, memory_width, options, causal=causal) for _ in range(layers)
        )
        self.causal = causal
        self.num_cross_attentions = layers if memory_width else 0
        self.norm = options.make_last_norm(embed.width)

    def start(self, memory: Memory) -> State:
        """Every layer's keys and values of the memory; no past."""
        prepared = tuple(layer.prepare(memory) for layer in self.layers)  # type: ignore[operator]
        return State(prepared, (None,) * len(self.layers), shared=True)

    def forward(self, tokens: Tensor, state: State, look: Look | None = None) -> tuple[Decoded, State]:
        """[B, T] -> states [B, T, D], and the state after the last token"""
        if look is not None:
            look.check_layers("decoder", len(self.layers))
            look.check_layers("cross", self.num_cross_attentions)
        offset = 0 if state.past[0] is None else state.past[0].size(1)
        x = self.embed(tokens, offset)
        past, self_maps, cross_maps = [], [], []
        for index, layer in enumerate(self.layers):
            glances = NO_GLANCES if look is None else (look.glance_at("decoder", index), look.glance_at("cross", index))
            x, layer_past, layer_maps = layer(x, state.past[index], state.source[index], glances)
            past.append(layer_past)
            self_maps.append(layer_maps[0])
            cross_maps += [] if layer_maps[1] is None else [layer_maps[1]]
        maps = Maps(cross=tuple(cross_maps), decoder=tuple(self_maps)) if look is not None and look.record else None
        return Decoded(self.norm(x), maps), State(state.source, tuple(past), shared=True)

    def project(self, states: Tensor) -> Tensor:
        """[..., D] -> [..., V]"""
        return self.plain_projection(states)  # type: ignore[no-any-return]

    if TYPE_CHECKING:
        __call__ = forward

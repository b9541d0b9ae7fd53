"""The Transformer encoder."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from torch import Tensor, nn

from heedful.nn.attention import mask_if_any
from heedful.nn.contract import Glance, Look, Map, Maps, Memory, glance_if_any
from heedful.nn.layers import TransformerLayerOptions


class SourceEmbed(Protocol):
    """The source -> vectors [B, S, D]: `Embed` for tokens, `PatchEmbed` for pictures, `FrameEmbed` for sound."""

    width: int

    @property
    def __call__(self) -> Callable[[Tensor], Tensor]: ...


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward net, each in Add & Norm."""

    def __init__(self, width: int, options: TransformerLayerOptions) -> None:
        super().__init__()
        self.attention = options.make_self_attention(width)
        self.feed_forward = options.make_feed_forward(width)
        self.around_attention = options.make_residual(width)
        self.around_feed_forward = options.make_residual(width)

    def forward(self, x: Tensor, mask: Tensor | None, glance: Glance | None = None) -> tuple[Tensor, Map | None]:
        """[B, S, D], [B, 1, 1, S] -> [B, S, D]"""
        update, _, recorded = self.attention(self.around_attention.sublayer_input(x), mask=mask, glance=glance)
        x = self.around_attention.add_and_norm(x, update)
        update = self.feed_forward(self.around_feed_forward.sublayer_input(x))
        return self.around_feed_forward.add_and_norm(x, update), recorded

    if TYPE_CHECKING:
        __call__ = forward


class TransformerEncoder(nn.Module):
    """Layers of self-attention; a last LayerNorm after pre-norm layers."""

    def __init__(self, embed: SourceEmbed, *, layers: int, options: TransformerLayerOptions) -> None:
        super().__init__()
        self.embed = embed
        self.width = embed.width
        self.layers = nn.ModuleList(EncoderLayer(self.width, options) for _ in range(layers))
        self.norm = options.make_last_norm(self.width)

    def forward(self, source: Tensor, mask: Tensor, *, look: Look | None = None) -> Memory:
        """The source [B, S, ..], [B, S] -> Memory"""
        if look is not None:
            look.check_layers("encoder", len(self.layers))
        x, hiding_mask = self.embed(source), mask_if_any(mask)
        attention_mask = None if hiding_mask is None else hiding_mask[:, None, None, :]
        layer_maps = []
        for index, layer in enumerate(self.layers):
            x, layer_map = layer(x, attention_mask, glance_if_any(look, "encoder", index))
            layer_maps.append(layer_map)
        maps = Maps(encoder=tuple(layer_maps)) if look is not None and look.record else None
        return Memory(self.norm(x), mask, maps)

    if TYPE_CHECKING:
        __call__ = forward

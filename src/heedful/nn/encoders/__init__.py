"""Encoders: anything -> Memory."""

from heedful.nn.encoders.bottleneck import Bottleneck
from heedful.nn.encoders.frames import Frames, Pyramid
from heedful.nn.encoders.graph import GraphAttention, GraphEncoder, Graphs
from heedful.nn.encoders.nothing import Nothing
from heedful.nn.encoders.patches import Patches
from heedful.nn.encoders.rnn import RecurrentEncoder
from heedful.nn.encoders.transformer import TransformerEncoder

__all__ = [
    "Bottleneck",
    "Frames",
    "GraphAttention",
    "GraphEncoder",
    "Graphs",
    "Nothing",
    "Patches",
    "Pyramid",
    "RecurrentEncoder",
    "TransformerEncoder",
]

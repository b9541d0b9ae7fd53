"""Encoders: anything -> Memory."""

from heedful.nn.encoders.bottleneck import Bottleneck
from heedful.nn.encoders.rnn import RecurrentEncoder
from heedful.nn.encoders.transformer import TransformerEncoder

ENCODERS = {"recurrent": RecurrentEncoder, "bottleneck": Bottleneck, "transformer": TransformerEncoder}

__all__ = ["ENCODERS", "Bottleneck", "RecurrentEncoder", "TransformerEncoder"]

"""Decoders: Memory -> State, (tokens, State) -> (Decoded, State)."""

from heedful.nn.decoders.rnn import RecurrentDecoder
from heedful.nn.decoders.transformer import TransformerDecoder

DECODERS = {"recurrent": RecurrentDecoder, "transformer": TransformerDecoder}

__all__ = ["DECODERS", "RecurrentDecoder", "TransformerDecoder"]

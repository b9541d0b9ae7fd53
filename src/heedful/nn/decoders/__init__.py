"""Decoders: Memory -> State, (tokens, State) -> (Decoded, State)."""

from heedful.nn.decoders.ctc import CTCDecoder
from heedful.nn.decoders.labels import LabelDecoder
from heedful.nn.decoders.rnn import RecurrentDecoder
from heedful.nn.decoders.transformer import TransformerDecoder

__all__ = ["CTCDecoder", "LabelDecoder", "RecurrentDecoder", "TransformerDecoder"]

"""Attention, encoders and decoders behind one contract. Start reading at `contract`, then `attention`."""

from heedful.errors import require

require("torch", extra="train", whose="heedful.nn")

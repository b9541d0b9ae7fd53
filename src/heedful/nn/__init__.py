"""Attention, encoders and decoders with common interfaces. Start with `contract`, then read `attention`."""

from heedful.errors import require

require("torch", extra="train", whose="heedful.nn")

"""The model (an encoder and a decoder) and its loss."""

from heedful.errors import require

require("torch", extra="train", whose="heedful.model")

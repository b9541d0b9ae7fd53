"""A model of an encoder and a decoder, and the loss that trains it."""

from heedful.errors import require

require("torch", extra="train", whose="heedful.model")

"""An encoder and a decoder made one, and the loss that trains them."""

from heedful.errors import require

require("torch", extra="train", whose="heedful.model")

"""What the formats for Transformers share: whether a model is one that other engines know, and its positions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful import config
from heedful.errors import HeedfulError


def usual(model: config.ModelSettings, engine: str) -> tuple[config.TransformerSettings, config.TransformerSettings]:
    """Encoder and decoder, if they are what everybody calls a Transformer."""
    encoder, decoder = model.encoder, model.decoder
    if not (isinstance(encoder, config.TransformerSettings) and isinstance(decoder, config.TransformerSettings)):
        raise HeedfulError(f"{engine} knows no recurrent translators: heedful export --to onnx")
    for part in (encoder, decoder):
        if (part.score, part.normalizer, part.combine) != ("scaled_dot", "soft", "concat"):
            raise HeedfulError(
                f"{engine} knows scaled dot products, softmax and concatenated heads only: heedful export --to onnx"
            )
    if (encoder.norm, encoder.activation) != (decoder.norm, decoder.activation):
        raise HeedfulError(
            f"{engine} has one norm and one activation for encoder and decoder: heedful export --to onnx"
        )
    return encoder, decoder


def sinusoids(slots: int, width: int) -> NDArray[Any]:
    """sin(p / 10000^(2i/D)) for all i, then the cosines: [slots, width]"""
    rate = np.exp(np.arange(0, width, 2) * (-np.log(10000.0) / width))
    angles = np.outer(np.arange(slots), rate)
    return np.concatenate((np.sin(angles), np.cos(angles)), -1).astype(np.float32)

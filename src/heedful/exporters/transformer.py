"""Shared by the Transformer formats: a check for unsupported models, and sinusoidal positions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful import config
from heedful.errors import HeedfulError

OTHER_SOURCES = {  # by the kind of the encoder
    "nothing": "language models",
    "patches": "models of pictures",
    "frames": "models of recordings",
    "recurrent_frames": "models of recordings",
    "graph": "models of graphs",
}


def require_text_source(model: config.ModelSettings, engine: str) -> None:
    """Raise an error if the sources of the model are not text."""
    if model.encoder.kind in OTHER_SOURCES:
        is_graph = isinstance(model.encoder, config.GraphSettings)
        instead = "use the model directory itself, with PyTorch" if is_graph else "use heedful export --to onnx"
        raise HeedfulError(
            f"{engine} supports models that translate text, not {OTHER_SOURCES[model.encoder.kind]}: {instead}"
        )


def require_standard_transformer(
    model: config.ModelSettings, engine: str
) -> tuple[config.TransformerSettings, config.TransformerSettings]:
    """The settings of encoder and decoder; raise an error if the model is not a standard Transformer."""
    require_text_source(model, engine)
    encoder, decoder = model.encoder, model.decoder
    if isinstance(decoder, config.LabelSettings):
        raise HeedfulError(f"{engine} does not support models of labels: use the model directory itself, with PyTorch")
    if isinstance(decoder, config.CTCSettings):
        raise HeedfulError(f"{engine} does not support CTC models: serve the model directory itself, with PyTorch")
    if not (isinstance(encoder, config.TransformerSettings) and isinstance(decoder, config.TransformerSettings)):
        raise HeedfulError(f"{engine} does not support recurrent models: use heedful export --to onnx")
    for part in (encoder, decoder):
        if (part.score, part.normalizer, part.combine) != ("scaled_dot", "soft", "concat"):
            raise HeedfulError(
                f"{engine} supports scaled dot products, softmax and concatenated heads only: "
                "use heedful export --to onnx"
            )
    if (encoder.norm, encoder.activation) != (decoder.norm, decoder.activation):
        raise HeedfulError(
            f"{engine} requires the same norm and activation in encoder and decoder: use heedful export --to onnx"
        )
    return encoder, decoder


def sinusoidal_positions(max_positions: int, width: int) -> NDArray[Any]:
    """sin(p / 10000^(2i/D)) for all i, then the cosines: [max_positions, width]"""
    rate = np.exp(np.arange(0, width, 2) * (-np.log(10000.0) / width))
    angles = np.outer(np.arange(max_positions), rate)
    return np.concatenate((np.sin(angles), np.cos(angles)), -1).astype(np.float32)

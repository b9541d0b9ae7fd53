"""From configuration to objects: every constructor of the core by the name of its line in a table.

    model = build(settings.model, source_size=8000, target_size=8000)

A key of the configuration is the constructor's parameter of the same name; a test holds the two together. What follows
from something else (sizes of vocabularies, widths of memories) is filled in here.
"""

from typing import Any

from heedful import config
from heedful.errors import ConfigError, require

require("torch", extra="train", whose="heedful.build")

from torch import nn  # noqa: E402  # after the message that says how to install it

from heedful.model.seq2seq import Seq2Seq  # noqa: E402
from heedful.nn import contract  # noqa: E402
from heedful.nn.attention import SCORES, Attention, MultiHead  # noqa: E402
from heedful.nn.decoders import RecurrentDecoder, TransformerDecoder  # noqa: E402
from heedful.nn.encoders import Bottleneck, RecurrentEncoder, TransformerEncoder  # noqa: E402
from heedful.nn.layers import Embed, initialize, output_layer  # noqa: E402
from heedful.nn.positions import POSITIONS  # noqa: E402


def build(
    model: config.ModelSettings, source_size: int, target_size: int, *, smoothing: float = 0.0, agreement: float = 0.0
) -> Seq2Seq:
    """The model that the configuration describes, with fresh weights drawn from torch's generator."""
    if model.tie_embeddings == "all" and source_size != target_size:
        raise ConfigError(
            'model.tie_embeddings = "all" needs one vocabulary: set tokenizer.shared = true, or '
            'model.tie_embeddings = "target"'
        )
    try:
        target = nn.Embedding(target_size, model.width)
        source = target if model.tie_embeddings == "all" else nn.Embedding(source_size, model.width)
        encoder = build_encoder(model.encoder, embed(model, source))
        tied = None if model.tie_embeddings == "none" else target
        output = output_layer(model.width, target_size, tied=tied, bias=model.output_bias)
        decoder = build_decoder(model.decoder, embed(model, target), output, encoder.width)
    except ValueError as error:
        raise ConfigError(f"[model]: {error}") from None
    made = Seq2Seq(encoder, decoder, smoothing=smoothing, agreement=agreement)
    initialize(made)
    return made


def embed(model: config.ModelSettings, table: nn.Embedding) -> Embed:
    """A table with positions, scaled and dropped out as the configuration says."""
    positions = None if model.positions is None else POSITIONS[model.positions](model.max_positions, model.width)
    return Embed(table, positions=positions, scale=model.scale_embeddings, dropout=model.dropout)


def build_encoder(chosen: config.TransformerSettings | config.RecurrentSettings, embedding: Embed) -> contract.Encoder:
    """A line of ENCODERS."""
    if isinstance(chosen, config.TransformerSettings):
        return TransformerEncoder(embedding, **_options(chosen))
    recurrent = RecurrentEncoder(embedding, **_options(chosen))
    return Bottleneck(recurrent) if chosen.kind == "bottleneck" else recurrent


def build_decoder(
    chosen: config.TransformerSettings | config.RecurrentDecoderSettings,
    embedding: Embed,
    output: nn.Linear,
    memory_width: int,
) -> contract.Decoder:
    """A line of DECODERS."""
    if isinstance(chosen, config.TransformerSettings):
        return TransformerDecoder(embedding, output, memory_width, **_options(chosen))
    attention = build_attention(chosen, memory_width)
    options = _options(chosen, "width", "attention")
    return RecurrentDecoder(embedding, output, chosen.width, memory_width, attention, **options)


# Keys whose parameter has another name; any other key is the parameter of the same name.
PARAMETERS = {
    "feedforward_size": "inner",
    "feedforward_dropout": "inner_dropout",
    "normalizer": "normalize",
    "query_from": "asks",
    "input_feeding": "feeds",
    "initial_state": "first",
}


def _options(section: config.Section, *exclude: str) -> dict[str, Any]:
    options = section.model_dump(exclude={"kind", *exclude})
    return {PARAMETERS.get(key, key): value for key, value in options.items()}


def build_attention(decoder: config.RecurrentDecoderSettings, memory_width: int) -> Attention | MultiHead | None:
    """How a recurrent decoder looks at its source."""
    chosen = decoder.attention
    if chosen is None:
        return None
    if chosen.heads is None:
        return Attention(SCORES[chosen.score](decoder.width, memory_width), memory_width, chosen.normalizer)
    size = decoder.width // chosen.heads
    score = SCORES[chosen.score](size, size)
    return MultiHead(
        decoder.width, chosen.heads, memory_width, score=score, normalize=chosen.normalizer, combine=chosen.combine
    )

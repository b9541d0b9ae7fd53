"""Build models from settings; ENCODERS and DECODERS map each kind to its settings section and constructor.

    model = build(settings.model, source_size=8000, target_size=8000)

The keys of a section are the parameters of the constructor; a test compares them. Vocabulary sizes and memory widths
are added here.
"""

from collections.abc import Callable
from math import ceil
from typing import Any, NamedTuple

from heedful import config
from heedful.errors import ConfigError, require

require("torch", extra="train", whose="heedful.build")

from torch import nn  # noqa: E402  # after the check that it is installed

from heedful.model.seq2seq import Seq2Seq  # noqa: E402
from heedful.nn import contract  # noqa: E402
from heedful.nn.attention import Attention, MultiHead, Normalizer, Sampled, make_score  # noqa: E402
from heedful.nn.decoders import CTCDecoder, LabelDecoder, RecurrentDecoder, TransformerDecoder  # noqa: E402
from heedful.nn.encoders import Bottleneck, Graphs, Nothing, Patches, RecurrentEncoder, TransformerEncoder  # noqa: E402
from heedful.nn.encoders.frames import FrameEmbed, Frames, FrameStem, Pyramid  # noqa: E402
from heedful.nn.encoders.graph import GraphShape  # noqa: E402
from heedful.nn.encoders.patches import PatchEmbed, PatchGrid  # noqa: E402
from heedful.nn.layers import Embed, TransformerLayerOptions, initialize, make_head_score, output_layer  # noqa: E402
from heedful.nn.positions import POSITIONS  # noqa: E402
from heedful.text.tokenizer import BOS, EOS, PAD, UNK  # noqa: E402


def build(
    model: config.ModelSettings,
    source_size: int | None,
    target_size: int,
    *,
    input: config.InputSettings = config.TextInputSettings(),  # noqa: B008  # the section's name; immutable
    label_smoothing: float = 0.0,
    r_drop: float = 0.0,
    coverage_penalty: float = 0.0,
    word_dropout: float = 0.0,
) -> Seq2Seq:
    """Build the model that the settings describe; weights are drawn from torch's generator.

    `source_size` is the size of the source vocabulary, if sources are text.
    """
    check_input(model, input)
    if coverage_penalty and not chooses_slots(model):
        raise ConfigError(
            "train.coverage_penalty needs attention to several slots: add [model.decoder.attention] and an encoder "
            "with a slot for each part of the source, or set it to 0"
        )
    if model.tie_embeddings == "all" and input.kind == "text" and source_size != target_size:
        raise ConfigError(
            'model.tie_embeddings = "all" needs one vocabulary: set tokenizer.shared = true, or '
            'model.tie_embeddings = "target"'
        )
    try:
        target = nn.Embedding(target_size, model.width)
        encoder = build_encoder(model.encoder, SOURCE_EMBEDS[input.kind](model, input, source_size, target))
        tied_to = None if model.tie_embeddings == "none" else target
        output = output_layer(model.width, target_size, tied_to=tied_to, bias=model.output_bias)
        decoder = build_decoder(model.decoder, build_embed(model, target), output, encoder.width)
        head = model.ctc_head
        seq2seq = Seq2Seq(
            encoder,
            decoder,
            label_smoothing=label_smoothing,
            r_drop=r_drop,
            coverage_penalty=coverage_penalty,
            word_dropout=word_dropout,
            unknown_word=UNK,
            ctc_head=None if head is None else build_ctc_head(encoder.width, target_size, head.upsample),
            ctc_weight=0.0 if head is None else head.weight,
        )
    except ValueError as error:
        raise ConfigError(f"[model]: {error}") from None
    initialize(seq2seq)
    return seq2seq


def check_input(model: config.ModelSettings, input: config.InputSettings) -> None:
    """Raise ConfigError if the encoder does not read such sources."""
    kind = model.encoder.kind
    if ENCODERS[kind].input != input.kind:
        kinds = [f'"{name}"' for name, component in ENCODERS.items() if component.input == input.kind]
        raise ConfigError(
            f'model.encoder.kind = "{kind}" does not read sources of input.kind = "{input.kind}": '
            f'set model.encoder.kind to {" or ".join(kinds)}, or input.kind to "{ENCODERS[kind].input}"'
        )
    if input.kind == "none" and getattr(model.decoder, "attention", None) is not None:
        raise ConfigError("a language model has no source to attend to: remove [model.decoder.attention]")
    if input.kind == "none" and isinstance(model.decoder, config.LabelSettings):
        raise ConfigError("a language model has no source to label: choose another model.encoder.kind and input.kind")


def chooses_slots(model: config.ModelSettings) -> bool:
    """Whether the decoder attends to a source that may have several slots."""
    if model.encoder.kind in ("nothing", "bottleneck") or getattr(model.encoder, "pool", False):
        return False
    return not isinstance(model.decoder, config.RecurrentDecoderSettings) or model.decoder.attention is not None


def build_embed(model: config.ModelSettings, table: nn.Embedding) -> Embed:
    positions = None if model.positions is None else POSITIONS[model.positions](model.max_positions, model.width)
    return Embed(table, positions=positions, scale_embeddings=model.scale_embeddings, dropout=model.dropout)


def build_encoder(section: config.Section, embed: Any) -> contract.Encoder:
    options = dict(section)
    encoder: contract.Encoder = ENCODERS[options.pop("kind")].construct(embed, **options)
    return encoder


def build_decoder(section: config.Section, embed: Embed, output: nn.Linear, memory_width: int) -> contract.Decoder:
    options = dict(section)
    decoder: contract.Decoder = DECODERS[options.pop("kind")].construct(embed, output, memory_width, **options)
    return decoder


# ----------------------------------------------------------------------------------------------------------- the tables


def text_embed(
    model: config.ModelSettings, _: config.TextInputSettings, source_size: int, target: nn.Embedding
) -> Embed:
    table = target if model.tie_embeddings == "all" else nn.Embedding(source_size, model.width)
    return build_embed(model, table)


def picture_embed(
    model: config.ModelSettings, picture: config.ImageInputSettings, *_: Any
) -> Callable[[str], PatchEmbed]:
    """The embedding for each stem."""
    grid = PatchGrid(picture.height // picture.patch, picture.width // picture.patch, picture.patch)
    return lambda stem: PatchEmbed(grid, model.width, stem=stem, dropout=model.dropout)


def frame_embed(
    model: config.ModelSettings, audio: config.AudioInputSettings, *_: Any
) -> Callable[[int], tuple[FrameStem, FrameEmbed]]:
    """The convolutions for each stride, and what follows them."""
    has_positions = not isinstance(model.encoder, config.RecurrentFramesSettings)
    positions = (
        POSITIONS[model.positions](model.max_positions, model.width) if model.positions and has_positions else None
    )
    frames = 1 + int(audio.max_seconds * audio.rate) // round(audio.hop * audio.rate)
    slots = ceil(frames / getattr(model.encoder, "stride", 1))
    if positions is not None and slots > model.max_positions:
        raise ValueError(
            f"a recording of {audio.max_seconds:g} seconds has {slots:,} slots, but there are {model.max_positions:,} "
            f"positions: set max_positions = {slots}, a shorter input.max_seconds, or a larger encoder.stride"
        )
    embed = FrameEmbed(model.width, positions, model.dropout)
    return lambda stride: (FrameStem(audio.bands, model.width, stride), embed)


def graph_shape(model: config.ModelSettings, graph: config.GraphInputSettings, *_: Any) -> GraphShape:
    return GraphShape(graph.features, graph.max_neighbors, model.width)


# What an encoder is built from, for each kind of input
SOURCE_EMBEDS: dict[str, Callable[..., Any]] = {
    "text": text_embed,
    "none": lambda *_: None,
    "image": picture_embed,
    "audio": frame_embed,
    "graph": graph_shape,
}


def transformer_encoder(embed: Embed, *, layers: int, **options: Any) -> TransformerEncoder:
    return TransformerEncoder(embed, layers=layers, options=TransformerLayerOptions(**options))


def bottleneck(embed: Embed, **options: Any) -> Bottleneck:
    return Bottleneck(RecurrentEncoder(embed, **options))


def nothing(_: None) -> Nothing:
    return Nothing()


def patches(make_embed: Callable[[str], PatchEmbed], *, stem: str, layers: int, pool: bool, **options: Any) -> Patches:
    return Patches(make_embed(stem), layers=layers, pool=pool, options=TransformerLayerOptions(**options))


def frames(
    make_embed: Callable[[int], tuple[FrameStem, FrameEmbed]], *, stride: int, layers: int, **options: Any
) -> Frames:
    stem, embed = make_embed(stride)
    return Frames(stem, TransformerEncoder(embed, layers=layers, options=TransformerLayerOptions(**options)))


def recurrent_frames(
    make_embed: Callable[[int], tuple[FrameStem, FrameEmbed]], *, stride: int, pyramid: bool, **options: Any
) -> Frames:
    stem, embed = make_embed(stride)
    embed.positions = None  # a recurrent encoder knows the order from its state
    return Frames(stem, (Pyramid if pyramid else RecurrentEncoder)(embed, **options))


def transformer_decoder(
    embed: Embed, output: nn.Linear, memory_width: int, *, layers: int, **options: Any
) -> TransformerDecoder:
    return TransformerDecoder(embed, output, memory_width, layers=layers, options=TransformerLayerOptions(**options))


def recurrent_decoder(
    embed: Embed,
    output: nn.Linear,
    memory_width: int,
    *,
    width: int,
    attention: config.AttentionSettings | None,
    **options: Any,
) -> RecurrentDecoder:
    embed.positions = None  # a recurrent decoder knows the order from its state; `model.positions` is for the encoder
    attention_module = None if attention is None else build_attention(attention, width, memory_width)
    return RecurrentDecoder(embed, output, width, memory_width, attention_module, **options)


def ctc_decoder(_: Embed, output: nn.Linear, memory_width: int, *, upsample: int | None) -> CTCDecoder:
    return CTCDecoder(output, memory_width, upsample=upsample or 1, bos=BOS, eos=EOS)  # training always sets it


def build_ctc_head(memory_width: int, target_size: int, upsample: int | None) -> CTCDecoder:
    """A CTC decoder with an output layer of its own."""
    output = nn.Linear(memory_width, target_size)
    return CTCDecoder(output, memory_width, upsample=upsample or 1, bos=BOS, eos=EOS)


def label_decoder(_: Embed, output: nn.Linear, memory_width: int, **options: Any) -> LabelDecoder:
    return LabelDecoder(output, memory_width, special=(PAD, UNK, BOS, EOS), eos=EOS, **options)


def build_attention(section: config.AttentionSettings, width: int, memory_width: int) -> Attention | MultiHead:
    """The attention of a recurrent decoder: one distribution over the annotation vectors, or several heads."""
    normalizer: str | Normalizer = section.normalizer
    if section.normalizer == "sampled":
        normalizer = Sampled(**dict(section.sampled or config.SampledSettings()))
    if section.heads is None:
        score = make_score(section.score, width, memory_width, section.location_slots)
        return Attention(score, memory_width, normalizer)
    return MultiHead(
        width,
        section.heads,
        memory_width,
        score=make_head_score(section.score, width, section.heads, section.location_slots),
        normalizer=normalizer,
        combine=section.combine,
        tie_keys_values=section.tie_keys_values,
    )


class Component(NamedTuple):
    """A kind of encoder or decoder: the section that configures it, its constructor, and the input of an encoder."""

    settings: type[config.Section]
    construct: Callable[..., Any]  # (embed, **keys of the section); for a decoder (embed, output, memory_width, **keys)
    input: str = "text"  # the `kind` of [input] that the encoder reads


ENCODERS = {
    "transformer": Component(config.TransformerSettings, transformer_encoder),
    "recurrent": Component(config.RecurrentSettings, RecurrentEncoder),
    "bottleneck": Component(config.RecurrentSettings, bottleneck),
    "nothing": Component(config.NothingSettings, nothing, "none"),
    "patches": Component(config.PatchesSettings, patches, "image"),
    "frames": Component(config.FramesSettings, frames, "audio"),
    "recurrent_frames": Component(config.RecurrentFramesSettings, recurrent_frames, "audio"),
    "graph": Component(config.GraphSettings, Graphs, "graph"),
}
DECODERS = {
    "transformer": Component(config.TransformerSettings, transformer_decoder),
    "recurrent": Component(config.RecurrentDecoderSettings, recurrent_decoder),
    "ctc": Component(config.CTCSettings, ctc_decoder),
    "labels": Component(config.LabelSettings, label_decoder),
}

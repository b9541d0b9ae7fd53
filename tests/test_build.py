"""From configuration to model: every constructor reachable, key by key, and what is refused."""

import inspect
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from heedful import config
from heedful.build import DECODERS, ENCODERS, build
from heedful.data.batch import collate, pad_sources
from heedful.errors import ConfigError
from heedful.inputs.kinds import make_input
from heedful.nn.attention import (
    COMBINE_MODES,
    ESTIMATORS,
    NORMALIZERS,
    SCORES,
    SLOT_DECODING,
    Attention,
    MultiHead,
    Sampled,
)
from heedful.nn.cells import CELLS, RESETS
from heedful.nn.decoders import CTCDecoder, LabelDecoder, RecurrentDecoder, TransformerDecoder
from heedful.nn.decoders.labels import POOLING_KINDS
from heedful.nn.decoders.rnn import INITIAL_STATES, QUERY_FROM
from heedful.nn.encoders import Graphs, Nothing, Patches, RecurrentEncoder, TransformerEncoder
from heedful.nn.encoders.patches import STEMS, PatchEmbed
from heedful.nn.layers import ACTIVATIONS, NORMS, TransformerLayerOptions
from heedful.nn.positions import POSITIONS
from support.law import step_by_step_is_all_at_once

TABLES = [
    (config.TransformerSettings, "norm", NORMS),
    (config.TransformerSettings, "activation", ACTIVATIONS),
    (config.TransformerSettings, "score", SCORES),
    (config.TransformerSettings, "normalizer", set(NORMALIZERS) - {"sampled"}),
    (config.TransformerSettings, "combine", COMBINE_MODES),
    (config.PatchesSettings, "stem", STEMS),
    (config.GraphSettings, "combine", COMBINE_MODES),
    (config.RecurrentSettings, "cell", CELLS),
    (config.RecurrentDecoderSettings, "cell", CELLS),
    (config.RecurrentSettings, "reset", RESETS),
    (config.RecurrentDecoderSettings, "reset", RESETS),
    (config.RecurrentDecoderSettings, "query_from", QUERY_FROM),
    (config.RecurrentDecoderSettings, "initial_state", INITIAL_STATES),
    (config.LabelSettings, "pooling", POOLING_KINDS),
    (config.AttentionSettings, "score", SCORES),
    (config.AttentionSettings, "normalizer", NORMALIZERS),
    (config.AttentionSettings, "combine", COMBINE_MODES),
    (config.SampledSettings, "estimator", ESTIMATORS),
    (config.SampledSettings, "decode", SLOT_DECODING),
]


# What follows from something else, is made of a part of the section, or is for experiments only (causal)
NOT_SETTINGS = {
    *("embed", "output", "memory_width", "self", "options", "attention", "bos", "eos", "special", "shape", "causal")
}


@pytest.mark.parametrize(
    ("section", "classes"),
    [
        (config.TransformerSettings, (TransformerEncoder, TransformerLayerOptions)),
        (config.TransformerSettings, (TransformerDecoder, TransformerLayerOptions)),
        (config.RecurrentSettings, (RecurrentEncoder,)),
        (config.RecurrentDecoderSettings, (RecurrentDecoder,)),
        (config.NothingSettings, (Nothing,)),
        (config.PatchesSettings, (Patches, TransformerLayerOptions)),
        (config.GraphSettings, (Graphs,)),
        (config.SampledSettings, (Sampled,)),
        (config.CTCSettings, (CTCDecoder,)),
        (config.LabelSettings, (LabelDecoder,)),
    ],
)
def test_keys_are_parameters_with_the_same_defaults(section, classes):
    parameters = {
        key: parameter
        for constructor in classes
        for key, parameter in inspect.signature(constructor).parameters.items()
        if key not in NOT_SETTINGS
    }
    keys = section.model_fields
    assert set(keys) - {"kind", "attention", "stem"} == set(parameters)
    for key, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty:  # an encoder of pictures may have no layers
            assert keys[key].is_required() or section is config.PatchesSettings, key
        else:  # training chooses the upsampling of CTC
            assert keys[key].default == (None if key == "upsample" else parameter.default), key


@pytest.mark.parametrize(("side", "table"), [("encoder", ENCODERS), ("decoder", DECODERS)])
def test_the_settings_of_a_side_are_those_of_its_table(side, table):
    sections = set(config.ModelSettings.model_fields[side].annotation.__args__)
    assert sections == {component.settings for component in table.values()}
    kinds = {kind: section for section in sections for kind in section.model_fields["kind"].annotation.__args__}
    assert kinds == {kind: component.settings for kind, component in table.items()}


@pytest.mark.parametrize(("section", "key", "table"), TABLES)
def test_choices_are_the_lines_of_the_tables(section, key, table):
    assert set(section.model_fields[key].annotation.__args__) == set(table)


def test_the_stem_has_the_same_default():
    assert inspect.signature(PatchEmbed).parameters["stem"].default == config.PatchesSettings(kind="patches").stem


def test_positions_are_the_lines_of_the_table():
    positions = {
        key
        for part in config.ModelSettings.model_fields["positions"].annotation.__args__
        for key in getattr(part, "__args__", ())
    }
    assert positions == set(POSITIONS) - {"fixed"}  # a fixed table comes with imported weights


ENCODER = {
    "transformer": {"kind": "transformer", "layers": 2, "heads": 2, "feedforward_size": 16},
    "recurrent": {"kind": "recurrent", "width": 12, "cell": "gru"},
    "bottleneck": {"kind": "bottleneck", "width": 12},
}
DECODER = {
    "transformer": ENCODER["transformer"],
    "none": {"kind": "recurrent", "width": 10},
    "additive": {"kind": "recurrent", "width": 10, "query_from": "previous", "attention": {"score": "additive"}},
    "heads": {
        "kind": "recurrent",
        "width": 10,
        "input_feeding": True,
        "attention": {"score": "scaled_dot", "heads": 2},
    },
}
BATCH = collate([([4, 5, 6], [7, 8]), ([5], [4, 4, 4])], bos=2, eos=3, pad=0)
IMAGE, NONE = config.ImageInputSettings(kind="image", height=8, width=12, patch=4), config.NoInputSettings(kind="none")
PICTURES = replace(BATCH, source=(torch.rand(2, 6, 48), torch.ones(2, 6, dtype=torch.bool)))
NO_SOURCES = replace(BATCH, source=(torch.zeros(2, 0, dtype=torch.long), torch.ones(2, 0, dtype=torch.bool)))
AUDIO = config.AudioInputSettings(kind="audio", rate=8_000, bands=5, max_seconds=1.0)
SOUNDS = replace(BATCH, source=(torch.rand(2, 21, 5), torch.arange(21) < torch.tensor([[21], [9]])))
GRAPH = config.GraphInputSettings(kind="graph", features=4, max_neighbors=3)
GRAPHS = replace(BATCH, source=pad_sources(make_input(GRAPH).random_rows(2, np.random.default_rng(1)), 0))
FRAMES = {
    "frames": {"kind": "frames", "layers": 1, "heads": 2, "feedforward_size": 16},
    "recurrent": {"kind": "recurrent_frames", "width": 12, "stride": 3},
    "pyramid": {"kind": "recurrent_frames", "width": 12, "stride": 1, "layers": 3, "pyramid": True},
}
PATCHES = {
    "convolution": {"kind": "patches"},
    "linear": {"kind": "patches", "stem": "linear", "layers": 2, "heads": 2},
    "pool": {"kind": "patches", "pool": True, "layers": 1},
}


def model(**changes):
    return config.ModelSettings.model_validate(
        {"width": 8, "encoder": ENCODER["transformer"], "decoder": DECODER["transformer"]} | changes
    )


@pytest.mark.parametrize(("encoder", "decoder"), list(itertools.product(ENCODER, DECODER)))
def test_every_pair_of_kinds_is_built_and_learns(encoder, decoder):
    seq2seq = build(model(encoder=ENCODER[encoder], decoder=DECODER[decoder]), 11, 9)
    loss = seq2seq(BATCH)
    (loss.smoothed / loss.tokens).backward()
    assert torch.isfinite(loss.smoothed)
    assert all(weight.grad is not None for weight in seq2seq.parameters())


@pytest.mark.parametrize(("encoder", "decoder"), list(itertools.product(PATCHES, DECODER)))
def test_a_model_of_pictures_is_built_and_learns(encoder, decoder):
    seq2seq = build(model(encoder=PATCHES[encoder], decoder=DECODER[decoder]), None, 9, input=IMAGE)
    loss = seq2seq(PICTURES)
    loss.smoothed.backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in seq2seq.parameters())
    for name in ("encoder.encoder.embed.positions.table", "encoder.encoder.embed.stem.last.weight"):
        assert (dict(seq2seq.named_parameters()).get(name, PICTURES.source[0]) != 0).any()


@pytest.mark.parametrize(("encoder", "decoder"), list(itertools.product(FRAMES, DECODER)))
def test_a_model_of_recordings_is_built_and_learns(encoder, decoder):
    seq2seq = build(model(encoder=FRAMES[encoder], decoder=DECODER[decoder]), None, 9, input=AUDIO)
    loss = seq2seq(SOUNDS)
    loss.smoothed.backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in seq2seq.parameters())
    reduction = {"frames": 4, "recurrent": 3, "pyramid": 4}[encoder]
    assert seq2seq.encoder(*SOUNDS.source).mask.sum(1).tolist() == [-(-21 // reduction), -(-9 // reduction)]


@pytest.mark.parametrize(("encoder", "is_limited"), [("frames", True), ("recurrent", False), ("pyramid", False)])
def test_only_encoders_with_positions_limit_the_length_of_recordings(encoder, is_limited):
    tree = model(encoder=FRAMES[encoder], decoder=DECODER["transformer"], positions="sinusoidal", max_positions=10)
    if is_limited:
        with pytest.raises(ConfigError, match="but there are 10 positions"):
            build(tree, None, 9, input=AUDIO)
    else:
        build(tree, None, 9, input=AUDIO)


@pytest.mark.parametrize(("combine", "decoder"), list(itertools.product(COMBINE_MODES, DECODER)))
def test_a_model_of_graphs_is_built_and_learns(combine, decoder):
    encoder = {"kind": "graph", "layers": 2, "heads": 2, "combine": combine}
    seq2seq = build(model(encoder=encoder, decoder=DECODER[decoder]), None, 9, input=GRAPH)
    loss = seq2seq(GRAPHS)
    loss.smoothed.backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in seq2seq.parameters())
    assert seq2seq.encoder(*GRAPHS.source).states.shape == (*GRAPHS.source[1].shape, 8)


@pytest.mark.parametrize("decoder", ["transformer", "none"])
@pytest.mark.parametrize("tie_embeddings", ["all", "none"])
def test_a_language_model_has_no_weights_for_a_source(decoder, tie_embeddings):
    settings = model(encoder={"kind": "nothing"}, decoder=DECODER[decoder], tie_embeddings=tie_embeddings)
    seq2seq = build(settings, None, 9, input=NONE)
    loss = seq2seq(NO_SOURCES)
    loss.smoothed.backward()
    weights = dict(seq2seq.named_parameters())
    assert all(weight.grad is not None for weight in weights.values())
    assert not [name for name in weights if "cross" in name or "bridge" in name or name.startswith("encoder")]
    assert sum(weight.shape == (9, 8) for weight in weights.values()) == (1 if tie_embeddings == "all" else 2)


@pytest.mark.parametrize("positions", sorted(set(POSITIONS) - {"fixed"}))
@pytest.mark.parametrize("decoder", DECODER)
def test_positions_are_the_same_step_by_step(decoder, positions):
    seq2seq = build(model(decoder=DECODER[decoder], positions=positions), 11, 11).double().eval()
    step_by_step_is_all_at_once(seq2seq)
    assert seq2seq.encoder.embed.positions is not None


@pytest.mark.parametrize(("tie_embeddings", "tables"), [("all", 1), ("target", 2), ("none", 3)])
def test_tables_are_shared_as_said(tie_embeddings, tables):
    seq2seq = build(model(tie_embeddings=tie_embeddings), 9, 9)
    assert sum(weight.shape == (9, 8) for weight in seq2seq.parameters()) == tables


@pytest.mark.parametrize(
    ("changes", "sizes", "says"),
    [
        ({"tie_embeddings": "all"}, (8, 9), "tokenizer.shared = true"),
        ({"encoder": {"kind": "recurrent", "width": 7}}, (9, 9), r"\[model\]: width 7 must be even"),
        ({"positions": "sinusoidal", "width": 7}, (9, 9), "even width"),
    ],
)
def test_what_does_not_go_together_says_so(changes, sizes, says):
    with pytest.raises(ConfigError, match=says):
        build(model(**changes), *sizes)


@pytest.mark.parametrize(
    ("encoder", "decoder", "kind", "message"),
    [
        ({"kind": "nothing"}, "none", config.TextInputSettings(), 'does not read sources of input.kind = "text": set '
         'model.encoder.kind to "transformer" or "recurrent" or "bottleneck", or input.kind to "none"'),
        (PATCHES["linear"], "none", NONE, 'to "nothing", or input.kind to "image"'),
        (ENCODER["recurrent"], "none", IMAGE, '"recurrent" does not read sources of input.kind = "image": set '
         'model.encoder.kind to "patches", or input.kind to "text"'),
        ({"kind": "nothing"}, "additive", NONE, r"no source to attend to: remove \[model.decoder.attention\]"),
    ],
)  # fmt: skip
def test_an_encoder_reads_one_kind_of_input(encoder, decoder, kind, message):
    with pytest.raises(ConfigError, match=message):
        build(model(encoder=encoder, decoder=DECODER[decoder]), 9, 9, input=kind)


@pytest.mark.parametrize(
    ("encoder", "decoder", "kind"),
    [
        (ENCODER["recurrent"], "none", config.TextInputSettings()),
        (ENCODER["bottleneck"], "additive", config.TextInputSettings()),
        ({"kind": "nothing"}, "transformer", NONE),
    ],
)
def test_a_coverage_penalty_needs_attention_to_several_slots(encoder, decoder, kind):
    with pytest.raises(ConfigError, match=r"train\.coverage_penalty needs attention to several slots: add"):
        build(model(encoder=encoder, decoder=DECODER[decoder]), 9, 9, input=kind, coverage_penalty=1.0)


def test_the_same_seed_gives_the_same_weights():
    weights = []
    for _ in range(2):
        torch.manual_seed(3)
        weights.append(build(model(), 9, 9).state_dict())
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_smoothing_reaches_the_loss():
    seq2seq = build(model(), 9, 9, label_smoothing=0.1)
    loss = seq2seq(BATCH)
    assert not torch.equal(loss.smoothed, build(model(), 9, 9)(BATCH).smoothed)
    assert isinstance(seq2seq.decoder.layers[0].cross, MultiHead)
    assert isinstance(build(model(decoder=DECODER["additive"]), 9, 9).decoder.attention, Attention)

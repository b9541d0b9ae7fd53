"""From configuration to model: every constructor reachable, key by key, and what is refused."""

import inspect
import itertools

import pytest
import torch

from heedful import config
from heedful.build import DECODERS, ENCODERS, build
from heedful.data.batch import collate
from heedful.errors import ConfigError
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
from heedful.nn.decoders import CTCDecoder, RecurrentDecoder, TransformerDecoder
from heedful.nn.decoders.rnn import INITIAL_STATES, QUERY_FROM
from heedful.nn.encoders import RecurrentEncoder, TransformerEncoder
from heedful.nn.layers import ACTIVATIONS, NORMS, TransformerLayerOptions
from heedful.nn.positions import POSITIONS

TABLES = [
    (config.TransformerSettings, "norm", NORMS),
    (config.TransformerSettings, "activation", ACTIVATIONS),
    (config.TransformerSettings, "score", SCORES),
    (config.TransformerSettings, "normalizer", set(NORMALIZERS) - {"sampled"}),
    (config.TransformerSettings, "combine", COMBINE_MODES),
    (config.RecurrentSettings, "cell", CELLS),
    (config.RecurrentDecoderSettings, "cell", CELLS),
    (config.RecurrentSettings, "reset", RESETS),
    (config.RecurrentDecoderSettings, "reset", RESETS),
    (config.RecurrentDecoderSettings, "query_from", QUERY_FROM),
    (config.RecurrentDecoderSettings, "initial_state", INITIAL_STATES),
    (config.AttentionSettings, "score", SCORES),
    (config.AttentionSettings, "normalizer", NORMALIZERS),
    (config.AttentionSettings, "combine", COMBINE_MODES),
    (config.SampledSettings, "estimator", ESTIMATORS),
    (config.SampledSettings, "decode", SLOT_DECODING),
]


# What follows from something else, or is made of a part of the section
NOT_SETTINGS = {"embed", "output", "memory_width", "self", "options", "attention", "bos", "eos"}


@pytest.mark.parametrize(
    ("section", "classes"),
    [
        (config.TransformerSettings, (TransformerEncoder, TransformerLayerOptions)),
        (config.TransformerSettings, (TransformerDecoder, TransformerLayerOptions)),
        (config.RecurrentSettings, (RecurrentEncoder,)),
        (config.RecurrentDecoderSettings, (RecurrentDecoder,)),
        (config.SampledSettings, (Sampled,)),
        (config.CTCSettings, (CTCDecoder,)),
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
    assert set(keys) - {"kind", "attention"} == set(parameters)
    for key, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty:
            assert keys[key].is_required(), key
        else:
            assert keys[key].default == parameter.default, key


@pytest.mark.parametrize(("side", "table"), [("encoder", ENCODERS), ("decoder", DECODERS)])
def test_the_settings_of_a_side_are_those_of_its_table(side, table):
    sections = set(config.ModelSettings.model_fields[side].annotation.__args__)
    assert sections == {component.settings for component in table.values()}
    kinds = {kind: section for section in sections for kind in section.model_fields["kind"].annotation.__args__}
    assert kinds == {kind: component.settings for kind, component in table.items()}


@pytest.mark.parametrize(("section", "key", "table"), TABLES)
def test_choices_are_the_lines_of_the_tables(section, key, table):
    assert set(section.model_fields[key].annotation.__args__) == set(table)


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

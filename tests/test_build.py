"""From configuration to model: every constructor reachable, key by key, and what is refused."""

import inspect
import itertools

import pytest
import torch

from heedful import config
from heedful.build import PARAMETERS, build
from heedful.data.batch import collate
from heedful.errors import ConfigError
from heedful.nn.attention import COMBINES, NORMALIZERS, SCORES, Attention, MultiHead
from heedful.nn.cells import CELLS
from heedful.nn.decoders import DECODERS, RecurrentDecoder, TransformerDecoder
from heedful.nn.decoders.rnn import ASKS, FIRSTS
from heedful.nn.encoders import ENCODERS, RecurrentEncoder, TransformerEncoder
from heedful.nn.layers import ACTIVATIONS, NORMS
from heedful.nn.positions import POSITIONS

SIZES = {"embed", "output", "memory_width", "self"}  # follow from something else, and are never written by people
HELD_TOGETHER = [
    (config.TransformerSettings, TransformerEncoder),
    (config.TransformerSettings, TransformerDecoder),
    (config.RecurrentSettings, RecurrentEncoder),
    (config.RecurrentDecoderSettings, RecurrentDecoder),
]
TABLES = [
    (config.TransformerSettings, "norm", NORMS),
    (config.TransformerSettings, "activation", ACTIVATIONS),
    (config.TransformerSettings, "score", SCORES),
    (config.TransformerSettings, "normalizer", NORMALIZERS),
    (config.TransformerSettings, "combine", COMBINES),
    (config.RecurrentSettings, "cell", CELLS),
    (config.RecurrentDecoderSettings, "cell", CELLS),
    (config.RecurrentDecoderSettings, "query_from", ASKS),
    (config.RecurrentDecoderSettings, "initial_state", FIRSTS),
    (config.AttentionSettings, "score", SCORES),
    (config.AttentionSettings, "normalizer", NORMALIZERS),
    (config.AttentionSettings, "combine", COMBINES),
]


@pytest.mark.parametrize(("section", "built"), HELD_TOGETHER)
def test_keys_are_parameters_with_the_same_defaults(section, built):
    parameters = inspect.signature(built).parameters
    assert {PARAMETERS.get(key, key) for key in section.model_fields} - {"kind"} == set(parameters) - SIZES
    for key, field in section.model_fields.items():
        name = PARAMETERS.get(key, key)
        default = parameters[name].default if name in parameters else inspect.Parameter.empty
        if default is not inspect.Parameter.empty:
            assert field.default == default, name
        elif name not in ("kind", "attention"):  # a kind is the line of the table; no attention is an attention too
            assert field.is_required(), name


@pytest.mark.parametrize(("section", "key", "table"), TABLES)
def test_choices_are_the_lines_of_the_tables(section, key, table):
    assert set(section.model_fields[key].annotation.__args__) == set(table)


def test_kinds_are_the_lines_of_the_tables():
    kinds = [
        {kind for part in sections for kind in part.model_fields["kind"].annotation.__args__}
        for sections in (
            (config.TransformerSettings, config.RecurrentSettings),
            (config.TransformerSettings, config.RecurrentDecoderSettings),
        )
    ]
    assert kinds == [set(ENCODERS), set(DECODERS)]
    positions = {
        name
        for part in config.ModelSettings.model_fields["positions"].annotation.__args__
        for name in getattr(part, "__args__", ())
    }
    assert positions == set(POSITIONS) - {"given"}  # a given table comes with imported weights


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
    made = build(model(encoder=ENCODER[encoder], decoder=DECODER[decoder]), 11, 9)
    loss = made(BATCH)
    (loss.smoothed / loss.tokens).backward()
    assert torch.isfinite(loss.smoothed)
    assert all(weight.grad is not None for weight in made.parameters())


@pytest.mark.parametrize(("tied", "tables"), [("all", 1), ("target", 2), ("none", 3)])
def test_tables_are_shared_as_said(tied, tables):
    made = build(model(tie_embeddings=tied), 9, 9)
    assert sum(weight.shape == (9, 8) for weight in made.parameters()) == tables


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
    made = []
    for _ in range(2):
        torch.manual_seed(3)
        made.append(build(model(), 9, 9).state_dict())
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])


def test_smoothing_reaches_the_loss():
    made = build(model(), 9, 9, smoothing=0.1)
    loss = made(BATCH)
    assert not torch.equal(loss.smoothed, build(model(), 9, 9)(BATCH).smoothed)
    assert isinstance(made.decoder.layers[0].cross, MultiHead)
    assert isinstance(build(model(decoder=DECODER["additive"]), 9, 9).decoder.attention, Attention)

"""The experiments find their effects at --quick, and do not find them when they are switched off."""

from inspect import signature

import pytest
import torch

from heedful.errors import HeedfulError
from heedful.exporters.onnx import trace_graphs
from heedful.lab import Lab
from heedful.lab.api import load_experiment, run
from heedful.lab.experiments import EXPERIMENTS
from heedful.lab.tasks import make_transformer

QUICK = ("X1", "X5", "X6", "X9", "X10")  # every night, benchmarks/lab.py runs all of them with and without sabotage


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_the_effect_is_found(name):
    outcome = run(name, size="quick")
    assert outcome.findings.checks[0].holds, outcome.findings.checks
    assert outcome.findings.verdict in ("confirmed", "depends")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_no_effect_is_found_when_it_is_switched_off(name):
    outcome = run(name, size="quick", **load_experiment(name).sabotage)
    assert outcome.findings.verdict == "not confirmed", outcome.findings.checks


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_can_be_sabotaged(name):
    experiment = load_experiment(name)
    assert experiment.sabotage
    assert experiment.sabotage.keys() <= signature(experiment.function).parameters.keys()
    for settings in experiment.sizes.values():
        signature(experiment.function).bind(Lab(), **{**settings, **experiment.sabotage})
        assert {**settings, **experiment.sabotage} != settings


@pytest.mark.parametrize("size", ["quick", "default"])
def test_the_longest_sentences_have_positions(size):
    assert run("X3", size=size, width=8, words=5, tokens=1, repeats=2).findings.table.rows


def test_the_same_seed_gives_the_same_results():
    settings = {"steps": 3, "rows": 4, "tests": 5, "width": 16}
    first, second, other = (run("X1", size="quick", seed=seed, **settings).findings for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_a_decoder_without_mask_sees_later_tokens_and_cannot_be_exported():
    torch.manual_seed(0)
    tokens = torch.tensor([[1, 5, 6]])
    other = torch.tensor([[1, 5, 7]])
    for causal in (True, False):
        model = make_transformer(8, 16, causal=causal).eval()
        memory = model.encoder(torch.tensor([[5, 2]]), torch.ones(1, 2, dtype=torch.bool))
        with torch.no_grad():
            first, second = (
                model.decoder(inputs, model.decoder.start(memory))[0].states[:, :2] for inputs in (tokens, other)
            )
        assert torch.equal(first, second) == causal
    with pytest.raises(HeedfulError, match="the decoder has no causal mask, so it cannot generate"):
        trace_graphs(model)

"""Several models as one: every law of a model, and the mean that it is."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import heedful
from heedful.errors import HeedfulError
from heedful.model.ensemble import make_ensemble
from heedful.training.api import train
from support.law import MODEL_LAWS, SOURCE, TARGET, check_search, close, read, silence_is_zero_context
from support.training_runs import settings_of, write_corpus
from support.zoo import ENCODER_CASES, RECURRENT_CASES, TRANSFORMER_CASES, Case

RECURRENT, TRANSFORMER = next(iter(RECURRENT_CASES)), list(TRANSFORMER_CASES)[-1]
READS = next(name for name in ENCODER_CASES if name.startswith("transformer"))
LSTM = Case("lstm-bi-1", RECURRENT, "single", "additive", "soft", "beam-wide")
GRU = Case("gru-uni-1", RECURRENT, "single", "dot", "soft", "greedy")
SELF = Case(READS, TRANSFORMER, "concat", "scaled_dot", "soft", "beam-enough-power")
MEMBERS = {
    "alike": (SELF, replace(SELF, search="greedy")),
    "unlike": (SELF, LSTM),
    "three": (LSTM, GRU, SELF),
    "pictures": (replace(SELF, encoder="patches-convolution-1"), replace(LSTM, encoder="patches-linear-0")),
    "language models": (
        replace(SELF, encoder="nothing"),
        Case("nothing", RECURRENT, "none", "dot", "soft", "greedy"),
    ),
}


@pytest.mark.parametrize("members", MEMBERS.values(), ids=MEMBERS)
@torch.no_grad()
def test_every_law_holds(members):
    together = make_ensemble([case.model() for case in members])
    for law in MODEL_LAWS:
        if law is not silence_is_zero_context:  # one looks into the first member, and silences its heads: others speak
            law(together)
    check_search(members[0], together)


def log_p(model):
    decoded, _ = model.decoder(TARGET, model.decoder.start(read(model)))
    return model.decoder.project(decoded.states).log_softmax(-1)


@pytest.mark.parametrize("members", MEMBERS.values(), ids=MEMBERS)
@torch.no_grad()
def test_it_is_the_mean_of_probabilities(members):
    models = [case.model() for case in members]
    mean = torch.stack([log_p(model).exp() for model in models]).mean(0)
    close(log_p(make_ensemble(models)).exp(), mean)


@torch.no_grad()
def test_one_member_is_itself():
    model = LSTM.model()
    close(log_p(make_ensemble([model])), log_p(model))


def test_members_must_remember_alike():
    mute = Case("bottleneck-bi", RECURRENT, "none", "dot", "soft", "greedy")
    with pytest.raises(HeedfulError, match="without attention returns only one"):
        read(make_ensemble([LSTM.model(), mute.model()]), SOURCE)


# ------------------------------------------------------------------------------------------------ of directories


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two seeds, and one with a vocabulary of its own."""
    folder = write_corpus(tmp_path_factory.mktemp("runs"), pairs=120)
    made = {}
    for name, seed, pieces in (("one", 1, 330), ("two", 2, 330), ("foreign", 1, 320)):
        given = settings_of(folder, folder / name, tokenizer={"kind": "bpe", "vocab_size": pieces}, steps=60)
        made[name] = train(given.model_copy(update={"seed": seed})).parent
    return made


@pytest.mark.slow
def test_runs_answer_together(runs):
    alone = heedful.load(runs["one"])("the old man")
    twice = heedful.load(runs["one"], others=[runs["one"]])("the old man", alignment="best")
    both = heedful.load(runs["one"], others=[runs["two"]])("the old man")
    assert twice.text == alone.text
    assert twice.score == pytest.approx(alone.score, abs=1e-5)
    assert twice.alignment == heedful.load(runs["one"])("the old man", alignment="best").alignment
    assert both.score != pytest.approx(alone.score, abs=1e-5)


def test_from_the_command_line(runs):
    command = [sys.executable, "-m", "heedful", "translate", runs["one"], "--ensemble", runs["two"]]
    done = subprocess.run(command, input=b"the old man\n", capture_output=True, check=True)
    both = heedful.load(runs["one"], others=[runs["two"]])
    assert done.stdout.decode() == both("the old man").text + "\n"


def test_members_must_have_one_vocabulary(runs):
    with pytest.raises(HeedfulError, match=r"have different vocabularies .* ensemble on the same files"):
        heedful.load(runs["one"], others=[runs["foreign"]])


def test_an_export_is_no_member(runs, tmp_path):
    heedful.export(runs["one"], tmp_path / "export", to="ctranslate2")
    with pytest.raises(HeedfulError, match=r"export is an export, but an ensemble needs runs or model directories"):
        heedful.load(runs["two"], others=[tmp_path / "export"])


def test_an_ensemble_runs_in_pytorch(runs):
    with pytest.raises(HeedfulError, match="runs in PyTorch only: remove the engine `ctranslate2`"):
        heedful.load(runs["one"], others=[runs["two"]], engine="ctranslate2")

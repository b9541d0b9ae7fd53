"""A model as two ONNX graphs says what it says in PyTorch: every kind of model, at sizes that were not traced."""

import subprocess
import sys
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import heedful
from heedful import config
from heedful.build import build
from heedful.bundle import GenerationSettings, write_bundle
from heedful.bundle.format import MAX_FILE_BYTES
from heedful.engines.base import EncodedSource, SamplingOptions, SearchOptions
from heedful.engines.onnx import ENCODER_FILE, STEP_FILE, OnnxEngine, open_engine
from heedful.engines.torch import TorchEngine
from heedful.errors import HeedfulError
from heedful.exporters.api import FORMATS, Probes, export
from heedful.exporters.onnx import trace_graphs, write
from heedful.inputs.kinds import make_input
from heedful.nn.attention import COMBINE_MODES, NORMALIZERS, SCORES
from heedful.nn.cells import CELLS
from heedful.nn.decoders.rnn import INITIAL_STATES, QUERY_FROM
from heedful.nn.layers import ACTIVATIONS, NORMS
from heedful.text.tokenizer import EOS
from test_bundle import MADE, TEXTS, made

WIDTH, WORDS = 8, 140
ENCODERS = {
    **{
        f"{cell}{'-both' if both else ''}-{layers}": {
            "kind": "recurrent", "width": WIDTH, "cell": cell, "bidirectional": both, "layers": layers,
        }
        for (cell, both), layers in zip(product(CELLS, (False, True)), cycle((1, 2, 2, 1)), strict=False)
    },
    "bottleneck": {"kind": "bottleneck", "width": WIDTH, "cell": "gru"},
}  # fmt: skip
DECODERS = {
    f"{cell}-{asks}{'-feeds' if feeds else ''}-{layers}-{first}{'' if bridge else '-plain'}": {
        "kind": "recurrent", "width": WIDTH, "cell": cell, "query_from": asks, "input_feeding": feeds, "layers": layers,
        "initial_state": first, "bridge": bridge,
    }
    for (cell, asks, feeds), (layers, first, bridge) in zip(
        product(CELLS, QUERY_FROM, (True, False)), cycle(product((2, 1), INITIAL_STATES, (True, False))), strict=False
    )
}  # fmt: skip
ATTENTIONS = {
    f"{score}-{normalize}-{heads}": {"score": score, "normalizer": normalize} | more
    for (score, normalize), (heads, more) in product(
        product(SCORES, NORMALIZERS),
        {"one": {}, **{combine: {"heads": 2, "combine": combine} for combine in COMBINE_MODES}}.items(),
    )
} | {"expected": {"score": "additive", "normalizer": "sampled", "sampled": {"decode": "expected"}}}
RECURRENT = {
    "/".join((encoder, decoder, attention)): {
        "width": WIDTH, "encoder": ENCODERS[encoder], "decoder": DECODERS[decoder] | {"attention": chosen},
    }
    for (attention, chosen), encoder, decoder in zip(
        {**ATTENTIONS, **{f"none-{number}": None for number in range(len(DECODERS))}}.items(),
        cycle(ENCODERS),
        cycle(DECODERS),
        strict=False,
    )
}  # fmt: skip
TRANSFORMERS = {
    "-".join(map(str, options)): {
        "width": WIDTH, "positions": options[1], "scale_embeddings": True,
        **{
            side: {
                "kind": "transformer", "layers": 2, "heads": 2, "feedforward_size": 12, "norm": options[0],
                "activation": options[2], "score": options[3], "normalizer": options[4], "combine": options[5],
            }
            for side in ("encoder", "decoder")
        },
    }
    for options in zip(
        cycle(NORMS),
        ("sinusoidal", "sinusoidal_halves", None, "learned", "learned"),
        cycle(ACTIVATIONS),
        [score for score in SCORES if not SCORES[score].has_state],
        ("soft", "soft", "soft", "hard", "soft"),  # not where there are no positions: equal slots are ties
        cycle(COMBINE_MODES),
        strict=False,
    )
}  # fmt: skip
MODELS = RECURRENT | TRANSFORMERS
QUESTIONS = [
    EncodedSource((5, 9, 4, 77, 30, 12, 8, 99, 4, 4, EOS), 9, index=0),
    EncodedSource((EOS,), 5, prefix=(7, 9), index=1),
    EncodedSource((130, 7, EOS), 12, prefix=(6,), index=2),
    EncodedSource((11, 12, 13, 14, EOS), 3, index=3),
    EncodedSource((61, 5, 61, 8, EOS), 10, index=4),
]
TARGETS = [(5, 9, 11), (), (7,) * 9, (8, 8), (100, 4)]


def modeled(kind):
    return drawn(config.ModelSettings.model_validate(MODELS[kind]), WORDS, seed=sum(map(ord, kind)))


def drawn(settings, words, seed=1, **options):
    torch.manual_seed(seed)
    model = build(settings, words, words, **options).eval()
    for weight in model.parameters():  # large enough to matter, and no larger: recurrence makes chaos of rounding
        nn.init.normal_(weight, std=weight.size(-1) ** -0.5 if weight.dim() > 1 else 0.3)
    return model


def session(graph):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 2  # warnings tell of axes that are not free
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def close(ones, others, attention):
    for one, other in zip(ones, others, strict=True):
        assert one.hypothesis.tokens == other.hypothesis.tokens
        assert one.hypothesis.finished == other.hypothesis.finished
        np.testing.assert_allclose(one.hypothesis.log_probabilities, other.hypothesis.log_probabilities, atol=1e-5)
        assert one.hypothesis.score == pytest.approx(other.hypothesis.score, abs=1e-4)
        assert one.hypothesis.log_probability == pytest.approx(other.hypothesis.log_probability, abs=1e-4)
        assert (one.attention is None) == (other.attention is None)
        if one.attention is not None:
            assert attention
            np.testing.assert_allclose(one.attention, other.attention, atol=1e-5)


def test_every_table_has_all_its_entries_here():
    chosen = [MODELS[kind]["decoder"] for kind in MODELS]
    looks = [one["attention"] for one in chosen if one.get("attention")]
    assert {one["cell"] for one in chosen if "cell" in one} == set(CELLS)
    assert {one["score"] for one in looks} == set(SCORES)
    assert {one["normalizer"] for one in looks} == set(NORMALIZERS)
    assert {one.get("combine") for one in looks} == {None, *COMBINE_MODES}


@pytest.mark.parametrize("kind", MODELS)
def test_graphs_say_what_the_model_says(kind, capfd):
    model = modeled(kind)
    compare_graphs(model, trace_graphs(model), QUESTIONS)
    assert capfd.readouterr() == ("", "")


TRANSFORMER_LAYERS = {"layers": 2, "heads": 2, "feedforward_size": 12}
WITHOUT_ATTENTION = next(decoder for decoder in DECODERS.values() if not decoder["input_feeding"])
IMAGE, NONE = config.ImageInputSettings(kind="image", height=8, width=12, patch=4), config.NoInputSettings(kind="none")
AUDIO = config.AudioInputSettings(kind="audio", rate=8_000, bands=6, max_seconds=0.4)
FRAMES = (11, 1, 30, 4, 25)  # of the questions
CONTENTS = {"image": "models of pictures", "audio": "models of recordings", "none": "language models"}
OTHER_DECODERS = {
    "transformer": {"kind": "transformer", **TRANSFORMER_LAYERS},
    "plain": WITHOUT_ATTENTION,
    "gated": {
        "kind": "recurrent", "width": WIDTH, "query_from": "previous", "gated_context": True,
        "attention": {"score": "additive"},
    },
}  # fmt: skip
OTHER_SOURCES = {
    "/".join(names): (encoder, OTHER_DECODERS[names[1]], kind)
    for names, encoder, kind in [
        (("convolution", "gated"), {"kind": "patches"}, IMAGE),
        (("linear", "transformer"), {"kind": "patches", "stem": "linear", **TRANSFORMER_LAYERS}, IMAGE),
        (("pool", "gated"), {"kind": "patches", "pool": True}, IMAGE),
        (("pool", "plain"), {"kind": "patches", "pool": True}, IMAGE),
        (("frames", "transformer"), {"kind": "frames", "stride": 4, **TRANSFORMER_LAYERS}, AUDIO),
        (("recurrent-frames", "gated"), {"kind": "recurrent_frames", "stride": 3, "width": WIDTH}, AUDIO),
        (
            ("pyramid", "gated"),
            {"kind": "recurrent_frames", "stride": 1, "width": WIDTH, "layers": 3, "cell": "gru", "pyramid": True},
            AUDIO,
        ),
        (("none", "transformer"), {"kind": "nothing"}, NONE),
        (("none", "plain"), {"kind": "nothing"}, NONE),
    ]
}


@pytest.mark.parametrize("kind", OTHER_SOURCES)
def test_sources_that_are_not_text(kind, capfd):
    encoder, decoder, settings = OTHER_SOURCES[kind]
    model = config.ModelSettings.model_validate(
        {
            "width": WIDTH,
            "positions": "learned" if decoder["kind"] == "transformer" else None,
            "encoder": encoder,
            "decoder": decoder,
        }
    )
    inputs = make_input(settings)
    rows = inputs.random_rows(len(QUESTIONS), np.random.default_rng(0))
    if settings is AUDIO:
        rows = [np.resize(row, (frames, 6)) for row, frames in zip(rows, FRAMES, strict=True)]
    questions = [replace(question, row=row) for question, row in zip(QUESTIONS, rows, strict=True)]
    torch_model = drawn(model, WORDS, input=settings)
    graphs = trace_graphs(torch_model, inputs)
    compare_graphs(torch_model, graphs, questions)
    names = [graph_input.name for graph_input in onnx.load_from_string(graphs[ENCODER_FILE]).graph.input]
    assert names == (["mask"] if settings is NONE else ["features", "mask"])
    for graph in graphs.values():
        onnx.checker.check_model(onnx.load_from_string(graph), full_check=True)
    assert capfd.readouterr() == ("", "")


def compare_graphs(model, graphs, questions):
    ours, theirs = TorchEngine(model), OnnxEngine(session(graphs[ENCODER_FILE]), session(graphs[STEP_FILE]))
    close(
        ours.score_targets(questions, TARGETS, attention=True),
        theirs.score_targets(questions, TARGETS, attention=True),
        True,
    )
    for search in (
        SearchOptions(beam=1),
        SearchOptions(beam=5, num_best=5, attention=True),
        SearchOptions(beam=3, stopping="exact"),
    ):
        for some in (questions, questions[1:2]):  # the other has one row and one slot
            found = zip(ours.translate(some, search), theirs.translate(some, search), strict=True)
            for one, other in found:
                close(one, other, search.attention)


@pytest.mark.parametrize("kind", [next(iter(RECURRENT)), next(iter(TRANSFORMERS))])
def test_graphs_are_plain_and_always_the_same(kind):
    one, other = trace_graphs(modeled(kind)), trace_graphs(modeled(kind))
    assert one == other
    for graph in one.values():
        for secret in (b"/tmp", b"site-packages", b".py", str(Path.home()).encode(), str(Path.cwd()).encode()):
            assert secret not in graph
        model = onnx.load_from_string(graph)
        onnx.checker.check_model(model, full_check=True)
        assert all(one.data_location == onnx.TensorProto.DEFAULT for one in model.graph.initializer)
        assert all(one.type.tensor_type.shape.dim[0].dim_param == "rows" for one in model.graph.input)


@pytest.mark.parametrize("bias", [False, True])
def test_a_tied_table_is_stored_once_in_a_graph(bias):
    settings = MODELS[next(iter(RECURRENT))] | {"tie_embeddings": "target", "output_bias": bias}
    model = build(config.ModelSettings.model_validate(settings), WORDS, 5000).eval()
    assert 5000 * WIDTH * 4 < len(trace_graphs(model)[STEP_FILE]) < 1.5 * 5000 * WIDTH * 4


BLOCKED = """
import sys
sys.modules["torch"] = None
import heedful
from heedful.engines.base import SamplingOptions
translator = heedful.load({folder!r}, threads=1)
assert translator.engine.name == "onnx"
for beam in (1, 4):
    print(*(found.text for found in translator({texts!r}, beam=beam)), sep="|")
assert translator(["the old man"], sampling=SamplingOptions())[0].text is not None
assert translator("the old man", alignment="naive").alignment is not None
"""


@pytest.mark.parametrize("kind", ["recurrent", "transformer"])
def test_an_export_is_proven_and_opens_without_torch(kind, tmp_path):
    settings = {
        "recurrent": {
            "width": 8,
            "encoder": {"kind": "recurrent", "width": 12},
            "decoder": {"kind": "recurrent", "width": 10, "attention": {"score": "additive"}},
        },
        "transformer": MODELS[next(iter(TRANSFORMERS))],
    }[kind]
    model = config.ModelSettings.model_validate(settings)
    weights = {name: weight.numpy() for name, weight in drawn(model, MADE["bpe"].size).state_dict().items()}
    made(tmp_path / "model", model=model, weights=weights)
    texts = list(dict.fromkeys(TEXTS))
    proof = export(tmp_path / "model", tmp_path / "out", to="onnx", probes=texts)
    assert (proof.same, proof.largest < 1e-5) == (len(texts), True)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {ENCODER_FILE, STEP_FILE, "heedful"}
    code = BLOCKED.format(folder=str(tmp_path / "out"), texts=texts)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    ours = heedful.load(tmp_path / "model")
    assert run.stdout.splitlines() == ["|".join(one.text for one in ours(texts, beam=beam)) for beam in (1, 4)]


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import heedful
import numpy as np
translator = heedful.load({folder!r}, threads=1)
sources = {{
    "image": [np.full((8, 12, 3), shade, np.uint8) for shade in (0, 99)],
    "audio": [np.linspace(-1, 1, size) ** 3 for size in (900, 2000)],
    "none": ["the old", ""],
}}[{kind!r}]
for beam in (1, 4):
    print(*(translation.text for translation in translator(sources, beam=beam)), sep="|")
"""


@pytest.mark.parametrize("kind", ["convolution/gated", "pyramid/gated", "none/transformer", "none/plain"])
def test_other_sources_are_proven_too_and_refused_by_other_formats(kind, tmp_path):
    encoder, decoder, settings = OTHER_SOURCES[kind]
    model = config.ModelSettings.model_validate({"width": WIDTH, "encoder": encoder, "decoder": decoder})
    weights = drawn(model, MADE["bpe"].size, input=settings).state_dict()
    write_bundle(
        tmp_path / "model",
        model=model,
        weights={name: weight.numpy() for name, weight in weights.items()},
        tokenizers={"target": MADE["bpe"]},
        languages=(settings.kind, "en"),
        input=settings,
        generation=GenerationSettings(max_length=20),
        card="# A model",
    )
    media = {
        "image": list(np.random.default_rng(1).integers(0, 256, (5, 8, 12, 3), np.uint8)),
        "audio": [np.random.default_rng(1).uniform(-1, 1, size) for size in (800, 2_000, 50, 3_200, 1_111)],
    }
    probes = Probes(media[settings.kind], TEXTS[:5]) if settings.kind in media else TEXTS[:5]
    proof = export(tmp_path / "model", tmp_path / "out", to="onnx", probes=probes)
    assert (proof.same, proof.largest < 1e-5) == (5, True)
    assert (proof.bleu is not None) == (settings is not NONE)
    code = WITHOUT_TORCH.format(folder=str(tmp_path / "out"), kind=settings.kind)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    sources = {
        "image": [np.full((8, 12, 3), shade, np.uint8) for shade in (0, 99)],
        "audio": [np.linspace(-1, 1, size) ** 3 for size in (900, 2000)],
        "none": ["the old", ""],
    }[settings.kind]
    ours = heedful.load(tmp_path / "model")
    lines = ["|".join(translation.text for translation in ours(sources, beam=beam)) for beam in (1, 4)]
    assert run.stdout.split("\n") == [*lines, ""]  # not splitlines: drawn models write control characters
    content = CONTENTS[settings.kind]
    for name in ("ctranslate2", "hugging_face", "argos"):
        with pytest.raises(HeedfulError, match=f"supports models that translate text, not {content}: .* --to onnx"):
            export(tmp_path / "model", tmp_path / f"out{name}{FORMATS[name].suffix}", to=name, probes=probes)


def test_what_is_drawn_is_scored_as_given():
    made = trace_graphs(modeled(next(iter(RECURRENT))))
    engine = OnnxEngine(session(made[ENCODER_FILE]), session(made[STEP_FILE]))
    found = engine.translate(QUESTIONS, SearchOptions(num_best=2, sampling=SamplingOptions(1.3, top_k=20, top_p=0.95)))
    for question, some in zip(QUESTIONS, found, strict=True):
        for one in some:
            (told,) = engine.score_targets([question], [one.hypothesis.tokens])
            each = one.hypothesis.log_probabilities
            np.testing.assert_allclose(told.hypothesis.log_probabilities[: len(each)], each, atol=1e-5)


def test_nothing_asked_is_nothing_answered(tmp_path):
    made = trace_graphs(modeled(next(iter(RECURRENT))))
    for name, graph in made.items():
        (tmp_path / name).write_bytes(graph)
    engine = open_engine(tmp_path, threads=1)
    assert engine.translate([], SearchOptions()) == engine.score_targets([], []) == []
    with pytest.raises(HeedfulError, match="threads must be between 1 and 1,024, not 0"):
        open_engine(tmp_path, threads=0)
    with pytest.raises(HeedfulError, match="runs ONNX on the CPU only: remove --device"):
        open_engine(tmp_path, device="cuda")


def test_what_is_no_export_is_refused_in_words(tmp_path):
    with pytest.raises(HeedfulError, match=r"ONNX Runtime cannot read .*encoder.onnx.*Export the model again"):
        open_engine(tmp_path)
    made = trace_graphs(modeled(next(iter(RECURRENT))))
    for name in (ENCODER_FILE, STEP_FILE):
        (tmp_path / name).write_bytes(made[ENCODER_FILE])
    with pytest.raises(HeedfulError, match="inputs and outputs of the two ONNX graphs do not match"):
        open_engine(tmp_path)
    assert {ENCODER_FILE, STEP_FILE} <= set(MAX_FILE_BYTES)  # files of weights may be large


def test_a_model_too_large_for_a_graph_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("heedful.exporters.onnx.MAX_GRAPH_BYTES", 1000)
    with pytest.raises(HeedfulError, match=r"is limited to 2 GB.*--to ctranslate2"):
        write(made(tmp_path / "model"), tmp_path / "out")


def test_what_is_missing_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr("heedful.errors.find_spec", lambda name: None if name.startswith("onnx") else object())
    with pytest.raises(HeedfulError, match=r"needs onnxruntime.*pip install 'heedful\[onnx\]'"):
        open_engine(tmp_path)
    with pytest.raises(HeedfulError, match=r"needs onnx,.*pip install 'heedful\[export\]'"):
        write(made(tmp_path / "model"), tmp_path / "out")

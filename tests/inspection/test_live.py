"""The engine of live pages: everything that it computes equals PyTorch and SentencePiece, for every kind of model."""

import io
import itertools
import re
from random import Random

import numpy as np
import pytest
import sentencepiece
import torch
from typer.testing import CliRunner

from heedful import config
from heedful.bundle import GenerationSettings, read_float_weights
from heedful.cli.app import app
from heedful.errors import ConfigError, HeedfulError
from heedful.inspection.api import inspect
from heedful.inspection.live import describe_sentencepiece, describe_tokenizer, make_live_model, unpack_weights
from heedful.nn.attention import COMBINE_MODES, NORMALIZERS, SCORES
from heedful.nn.cells import CELLS, RESETS
from heedful.nn.contract import PLACES, Look
from heedful.nn.decoders.rnn import INITIAL_STATES, QUERY_FROM
from heedful.nn.layers import ACTIVATIONS, NORMS
from heedful.search import LENGTH_RULES, STOPPING_RULES, Beam, DecodingLimits, Greedy
from heedful.search.filters import SuppressSequences
from heedful.text.normalize import normalize
from heedful.text.tokenizer import BOS, EOS, PAD, BorrowedTokenizer, train
from heedful.trace import TraceDocument, locate_pieces
from heedful.translation.loading import load
from heedful.translation.suppression import compile_words
from support.browser_pages import click, opened, press, until
from support.inspection_models import inspected, student
from support.live_models import (
    WORDS,
    ChangedRows,
    attention_modules,
    dequantized,
    live_job,
    mixed_lines,
    random_bundle,
    run_engine,
)

SOURCE = [5, 17, 4, 9, 22, 9, 13, EOS]
TARGET = [7, 7, 19, 4, 28, 11, EOS]
MAX_LENGTH = 12
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
SELF_SCORES = [name for name, score in SCORES.items() if not score.has_state]

# Options that do not matter to each other take turns, so that every one is run and the list stays short.
LAYERS = {"kind": "transformer", "layers": 2, "heads": 2, "feedforward_size": 12}
TRANSFORMERS = {
    f"transformer-{norm}-{positions}-{score}-{normalizer}-{combine}": {
        "width": 8,
        "positions": positions,
        "scale_embeddings": tie != "target",
        "tie_embeddings": tie,
        "output_bias": tie == "none",
        "encoder": {**LAYERS, "norm": norm, "activation": activation, "score": score, "combine": combine},
        "decoder": {
            **LAYERS,
            "norm": norm,
            "activation": activation,
            "score": score,
            "normalizer": normalizer,
            "combine": combine,
        },
    }
    for norm, positions, activation, score, normalizer, combine, tie in zip(
        itertools.cycle(NORMS),
        itertools.cycle(("sinusoidal", "sinusoidal_halves", "learned", "sinusoidal", "learned")),
        itertools.cycle(ACTIVATIONS),
        (*SELF_SCORES, *SELF_SCORES),
        itertools.cycle(("soft", "soft", "hard", "soft")),
        itertools.cycle((*COMBINE_MODES, "concat")),
        itertools.cycle(("all", "target", "none")),
        strict=False,
    )
}
SINGLE, HEADS = {}, {"heads": 2}
AVERAGED, TIED = HEADS | {"combine": "average"}, HEADS | {"tie_keys_values": True}
WIDTH = 8
RECURRENT_ENCODERS = [
    {"kind": "recurrent", "width": WIDTH, "bidirectional": True, "layers": 1},
    {"kind": "recurrent", "width": WIDTH, "bidirectional": False, "layers": 2},
    {**LAYERS, "norm": "pre"},
    {"kind": "recurrent", "width": WIDTH, "bidirectional": True, "layers": 2},
    {"kind": "bottleneck", "width": WIDTH, "bidirectional": True},
]


def recurrent(encoder, cell, reset, attention, **decoder):
    cells = {"cell": cell, "reset": reset}
    encoder = encoder if encoder["kind"] == "transformer" else {**encoder, **cells}
    return {
        "width": 6 if encoder["kind"] != "transformer" else WIDTH,
        "tie_embeddings": "target",
        "output_bias": True,
        "positions": "sinusoidal" if encoder["kind"] == "transformer" else None,
        "encoder": encoder,
        "decoder": {"kind": "recurrent", "width": WIDTH, **cells, "attention": attention, **decoder},
    }


RECURRENT = {
    f"{cell}-{reset}-{query_from}-{score}-{normalizer}-{'heads' if heads else 'single'}-{number}": recurrent(
        encoder,
        cell,
        reset,
        {
            "score": score,
            "normalizer": normalizer,
            **heads,
            **({"sampled": {"decode": decode}} if normalizer == "sampled" else {}),
        },
        query_from=query_from,
        input_feeding=input_feeding,
        layers=layers,
        initial_state=initial_state,
        bridge=bridge,
        gated_context=gated,
    )
    for number, (
        (cell, reset),
        score,
        query_from,
        input_feeding,
        heads,
        normalizer,
        decode,
        layers,
        (initial_state, bridge),
        gated,
        encoder,
    ) in enumerate(
        zip(
            itertools.cycle((*((cell, "after") for cell in CELLS), ("gru", "before"))),
            (*SCORES, *SCORES, *SCORES),
            itertools.cycle((*QUERY_FROM, *reversed(QUERY_FROM), QUERY_FROM[1])),
            itertools.cycle((False, True, False)),
            itertools.cycle(
                (SINGLE, HEADS, {**HEADS, "combine": "average"}, {**HEADS, "tie_keys_values": True}, SINGLE)
            ),
            itertools.cycle(("soft", "soft", "hard", "sampled", "soft", "sampled")),
            itertools.cycle(("best", "expected", "best", "expected", "best")),
            itertools.cycle((1, 2, 1)),
            itertools.cycle((("mean", True), ("last", False), ("zero", True), ("last", True), ("zero", False))),
            itertools.cycle((False, False, True)),
            itertools.cycle(RECURRENT_ENCODERS),
            strict=False,
        )
    )
}
ONE_VECTOR = {"kind": "bottleneck", "width": WIDTH, "bidirectional": False}
WITHOUT_ATTENTION = {
    "bottleneck": recurrent(RECURRENT_ENCODERS[4], "lstm", "after", None),
    "bottleneck-uni-no-readout": recurrent(ONE_VECTOR, "gru", "after", None, readout=False) | {"width": WIDTH},
}
MODELS = TRANSFORMERS | RECURRENT | WITHOUT_ATTENTION


def test_the_models_cover_every_table():
    decoders = [settings["decoder"] for settings in RECURRENT.values()]
    attentions = [decoder["attention"] for decoder in decoders]
    assert {attention["score"] for attention in attentions} == set(SCORES)
    assert {attention["normalizer"] for attention in attentions} == set(NORMALIZERS)
    assert {(attention["score"], "heads" in attention) for attention in attentions} == {
        (score, has_heads) for score in SCORES for has_heads in (False, True)
    }
    assert {decoder["cell"] for decoder in decoders} == set(CELLS)
    assert {decoder["reset"] for decoder in decoders} == set(RESETS)
    assert {decoder["query_from"] for decoder in decoders} == set(QUERY_FROM)
    assert {decoder["initial_state"] for decoder in decoders} == set(INITIAL_STATES)
    layers = [settings["decoder"] for settings in TRANSFORMERS.values()]
    assert {layer["score"] for layer in layers} == set(SELF_SCORES)
    assert {layer["norm"] for layer in layers} == set(NORMS)
    assert {layer["activation"] for layer in layers} == set(ACTIVATIONS)
    assert {layer["combine"] for layer in layers} == set(COMBINE_MODES)


def encode(model, look=None):
    tokens = torch.tensor([SOURCE])
    return model.encoder(tokens, torch.ones_like(tokens, dtype=torch.bool), look=look)


def force(model, look, memory=None):
    """Log-probabilities of every step [T, V], and the maps of encoder and decoder."""
    memory = memory or encode(model, look)
    decoded, _ = model.decoder(torch.tensor([[BOS, *TARGET[:-1]]]), model.decoder.start(memory), look)
    log_probs = model.decoder.project(decoded.states)[0].log_softmax(-1)
    log_probs[:, [PAD, BOS]] = -1e4
    return log_probs.clamp(min=-1e4), memory, decoded.maps


def forcing(**changes):
    return {"run": "force", "ids": SOURCE, "target": TARGET, "changes": changes}


def searching(kind, options=None, **limits):
    limits = {"maxLength": MAX_LENGTH, **limits}
    return {"run": "search", "kind": kind, "ids": SOURCE, "options": options or {}, "limits": limits}


def compare_search(live, model, search, **limits):
    """The engine's hypotheses and tree are those of PyTorch."""
    given = DecodingLimits(BOS, EOS, MAX_LENGTH, suppress_tokens=(PAD, BOS), **limits)
    (result,) = search(model.decoder, encode(model), given, trace=True)
    assert [hypothesis["tokens"] for hypothesis in live["hypotheses"]] == [
        [*hypothesis.tokens] for hypothesis in result.hypotheses
    ]
    for ours, theirs in zip(live["hypotheses"], result.hypotheses, strict=True):
        assert ours["ended"] == theirs.finished
        np.testing.assert_allclose(ours["score"], theirs.score, **CLOSE)
        np.testing.assert_allclose(ours["logProbs"], theirs.log_probabilities, **CLOSE)
    assert live["candidates"] == [
        [candidate.step, candidate.parent, candidate.token, candidate.rank, candidate.fate, candidate.why]
        for candidate in result.trace.candidates
    ]


@pytest.mark.parametrize("name", MODELS)
@torch.inference_mode()
def test_every_model_computes_what_pytorch_computes(name, tmp_path):
    bundle = random_bundle(tmp_path / "model", MODELS[name])
    model = dequantized(bundle)
    runs = [forcing(), searching("greedy"), searching("beam", {"size": 5})]
    ((forced, greedy, beam),) = run_engine(live_job(bundle, job="model", runs=runs))
    look = Look(frozenset({"weights", "scores", "queries", "keys", "values"}))
    log_probs, memory, decoder_maps = force(model, look)
    np.testing.assert_allclose(forced["memory"], memory.states.flatten(), **CLOSE)
    np.testing.assert_allclose(forced["steps"], log_probs, **CLOSE)
    maps = {"encoder": memory.maps.encoder, "cross": decoder_maps.cross, "decoder": decoder_maps.decoder}
    assert set(forced["maps"]) == {place for place in PLACES if maps[place]}
    for place, live in forced["maps"].items():
        weights = torch.cat([layer.weights for layer in maps[place]])
        assert live["attention"]["shape"] == [*weights.shape]
        np.testing.assert_allclose(live["attention"]["numbers"], weights.flatten(), **CLOSE)
        for vectors, layer in zip(live["vectors"], maps[place], strict=True):
            assert (vectors is None) == ("gaussian" in name)
            for part in ("scores", "values") if vectors else ():
                expected = getattr(layer, part)[0].clamp(min=-65504.0)
                assert vectors[part]["shape"] == [*expected.shape]
                np.testing.assert_allclose(vectors[part]["numbers"], expected.flatten(), **CLOSE)
    compare_search(greedy, model, Greedy())
    compare_search(beam, model, Beam(5))


# ----------------------------------------------------------------------------------------- the searches and their rules


@torch.inference_mode()
def test_every_length_and_stopping_rule_finds_what_pytorch_finds(tmp_path):
    bundle = random_bundle(tmp_path / "model", next(iter(TRANSFORMERS.values())))
    model = dequantized(bundle)
    rules = [*itertools.product(LENGTH_RULES, STOPPING_RULES)]
    runs = [
        searching("beam", {"size": 4, "numBest": 2, "lengthRule": length, "lengthPenalty": alpha, "stopping": stopping})
        for (length, stopping), alpha in zip(rules, itertools.cycle((1.0, 0.0, 0.6)), strict=False)
    ]
    (results,) = run_engine(live_job(bundle, job="model", runs=runs))
    for result, (length, stopping), alpha in zip(results, rules, itertools.cycle((1.0, 0.0, 0.6)), strict=False):
        compare_search(result, model, Beam(4, 2, length, alpha, stopping))


@torch.inference_mode()
def test_forced_prefixes_and_suppressed_sequences(tmp_path):
    bundle = random_bundle(tmp_path / "model", RECURRENT[next(iter(RECURRENT))])
    model = dequantized(bundle)
    (free,) = Greedy()(model.decoder, encode(model), DecodingLimits(BOS, EOS, MAX_LENGTH, suppress_tokens=(PAD, BOS)))
    prefix, sequences = (8, 4, 25), (free.best.tokens[:2], (9,), (4, 25, 11))
    limits = [{"forced": prefix}, {"sequences": sequences}]
    runs = [searching(kind, **more) for more in limits for kind in ("greedy", "beam")]
    (results,) = run_engine(live_job(bundle, job="model", runs=runs))
    given = [{"prefix": (prefix,)}, {"filters": (SuppressSequences(sequences),)}]
    for result, (more, search) in zip(results, itertools.product(given, (Greedy(), Beam(5))), strict=True):
        compare_search(result, model, search, **more)
        assert more.keys() != {"prefix"} or result["hypotheses"][0]["tokens"][:3] == [*prefix]


def test_samples_depend_on_the_seed_and_are_drawn_from_the_filtered_distribution(tmp_path):
    log_probs = np.log([0.5, 0.25, 0.15, 0.07, 0.03])
    options = [{}, {"temperature": 0.5}, {"topK": 2}, {"topP": 0.9}, {"topP": 0.6, "topK": 4, "temperature": 2.0}]
    runs = [searching("sample", {"seed": seed, "temperature": 2.0}) for seed in (1, 1, 2)]
    *filtered, random, (first, again, other) = run_engine(
        *({"job": "filter", "logProbs": log_probs.tolist(), "options": chosen} for chosen in options),
        {"job": "random", "seed": 7, "count": 20_000},
        live_job(random_bundle(tmp_path / "model", next(iter(TRANSFORMERS.values()))), job="model", runs=runs),
    )
    shares = [np.array(row) / np.sum(row) for row in filtered]
    np.testing.assert_allclose(shares[0], np.exp(log_probs), atol=1e-6)
    np.testing.assert_allclose(shares[1], np.exp(log_probs) ** 2 / np.sum(np.exp(log_probs) ** 2), atol=1e-6)
    np.testing.assert_allclose(shares[2], [2 / 3, 1 / 3, 0, 0, 0], atol=1e-6)
    assert [np.count_nonzero(row) for row in shares] == [5, 5, 2, 3, 2]  # .5 + .25 + .15 reach .9
    assert all(0 <= number < 1 for number in random)
    assert np.histogram(random, 10, (0, 1))[0] == pytest.approx(2000, rel=0.08)
    assert first == again != other


# ---------------------------------------------------------------------------------------- what differs from the model


def first_recurrent(*parts):
    """The settings of the first recurrent model whose name has all of these parts."""
    return next(settings for name, settings in RECURRENT.items() if all(part in name for part in parts))


CHANGED = {
    "transformer": (next(iter(TRANSFORMERS.values())), [("encoder", 1, 1), ("cross", 0, 0), ("decoder", 1, 0)]),
    "single": (first_recurrent("previous", "soft-single"), [("cross", 0, 0)]),
    "heads": (first_recurrent("current", "soft-heads"), [("cross", 0, 1)]),
}


@pytest.mark.parametrize("name", CHANGED)
@torch.inference_mode()
def test_silenced_heads_and_edited_cells(name, tmp_path):
    settings, heads = CHANGED[name]
    bundle = random_bundle(tmp_path / "model", settings)
    silenced = [{"place": place, "layer": layer, "head": head} for place, layer, head in heads]
    edits = [{**head, "step": 3, "slot": 1, "weight": weight} for head, weight in itertools.product(silenced, (0.9, 0))]
    runs = [forcing(), *(forcing(silenced=[head]) for head in silenced), forcing(silenced=silenced)]
    ((plain, *silent), edited) = run_engine(
        live_job(bundle, job="model", runs=runs),
        live_job(bundle, job="model", runs=[forcing(edits=[edit]) for edit in edits]),
    )
    model = dequantized(bundle)
    for run, places in zip(silent, [*([head] for head in heads), heads], strict=True):
        log_probs, memory, _ = force(model, Look(frozenset(), frozenset(places)))
        np.testing.assert_allclose(run["memory"], memory.states.flatten(), **CLOSE)
        np.testing.assert_allclose(run["steps"], log_probs, **CLOSE)
        assert not np.allclose(run["steps"], plain["steps"], atol=1e-3)
    for run, edit in zip(edited, edits, strict=True):
        module = attention_modules(model, edit["place"])[edit["layer"]]
        soft, module.normalizer = module.normalizer, ChangedRows(edit["head"], 3, {1: edit["weight"]})
        log_probs, memory, _ = force(model, None)
        module.normalizer = soft
        np.testing.assert_allclose(run["memory"], memory.states.flatten(), **CLOSE)
        np.testing.assert_allclose(run["steps"], log_probs, **CLOSE)
        assert not np.allclose(run["steps"], plain["steps"], atol=1e-3)


@pytest.mark.parametrize("name", CHANGED)
@torch.inference_mode()
def test_changes_apply_to_every_search(name, tmp_path):
    """A forced beginning, a silenced head and two edited cells of a row, of one head or of all."""
    settings, heads = CHANGED[name]
    bundle = random_bundle(tmp_path / "model", settings)
    (silenced,) = [{"place": place, "layer": layer, "head": head} for place, layer, head in heads if place == "cross"]
    cells, prefix = {2: 0.5, 4: 0.25}, [9, 14]
    edit = {"place": "cross", "step": 2}
    kinds = [([], []), ([silenced], []), ([], [{**silenced, **edit}]), ([], [edit]), ([silenced], [edit])]
    searches = [*itertools.product((Greedy(), Beam(4)), ((), prefix))]
    runs, expected = [], []
    for (silent, edits), (search, forced) in itertools.product(kinds, searches):
        changes = {
            "silenced": silent,
            "edits": [{**each, "slot": slot, "weight": weight} for each in edits for slot, weight in cells.items()],
        }
        kind, options = ("greedy", {}) if isinstance(search, Greedy) else ("beam", {"size": 4})
        runs.append({**searching(kind, options, forced=forced), "changes": changes})
        expected.append((silent, edits, search, forced))
    (results,) = run_engine(live_job(bundle, job="model", runs=runs))
    for result, (silent, edits, search, forced) in zip(results, expected, strict=True):
        model = dequantized(bundle)
        for layer, module in enumerate(attention_modules(model, "cross")):
            chosen = cells if any(each.get("layer", layer) == layer for each in edits) else {}
            head = edits[0].get("head") if edits else None
            quiet = [each["head"] for each in silent if each["layer"] == layer]
            module.normalizer = ChangedRows(head, 2, chosen, silenced=quiet)
        compare_search(result, model, search, prefix=(forced,) if forced else None)
    log_probs = [result["hypotheses"][0]["logProbs"] for result in results]
    assert all(changed != log_probs[at % 4] for at, changed in enumerate(log_probs[4:]))


def test_edited_rows_sum_to_one():
    row = [0.5, 0.25, 0.125, 0.125]
    cases = [
        ({1: 0.5}, [1 / 3, 0.5, 1 / 12, 1 / 12]),
        ({0: 0, 1: 0.75}, [0, 0.75, 0.125, 0.125]),
        ({0: 1, 1: 1}, [0.5, 0.5, 0, 0]),
        ({0: 0.1, 1: 0.1, 2: 0.1, 3: 0.2}, [0.2, 0.2, 0.2, 0.4]),
        ({9: 1}, row),
    ]
    edits = [[{"slot": slot, "weight": weight} for slot, weight in cells.items()] for cells, _ in cases]
    for edited, (_, expected) in zip(run_engine({"job": "edit", "row": row, "edits": edits})[0], cases, strict=True):
        assert edited == pytest.approx(expected, abs=1e-6)
    (zeros,) = run_engine({"job": "edit", "row": [1, 0, 0], "edits": [[{"slot": 0, "weight": 0.2}]]})
    assert zeros[0] == pytest.approx([0.2, 0.4, 0.4])


def test_an_answer_begins_with_the_pieces_that_are_forced(tmp_path):
    bundle = random_bundle(tmp_path / "model", next(iter(TRANSFORMERS.values())))
    text, begin = "w3 w9 w1 w20", [" w7", " w2", " w7"]
    (free,) = load(bundle.folder)([text])
    runs = [
        {"run": "translate", "text": text, "options": {"search": search, "begin": names}}
        for search in ("greedy", "beam", "sample")
        for names in (begin, [*begin, "</s>"])
    ]
    (answers,) = run_engine(live_job(bundle, "float32", job="model", runs=runs))
    scorer = load(bundle.folder)
    for sentence, run in zip(answers, runs, strict=True):
        names = run["options"]["begin"]
        assert sentence["target"]["text"].split()[:3] == ["w7", "w2", "w7"] != free.text.split()[:3]
        assert [step["name"] for step in sentence["steps"]][: len(names)] == names
        assert [step["forced"] for step in sentence["steps"]] == [
            at < len(names) for at in range(len(sentence["steps"]))
        ]
        assert sentence["tree"]["nodes"][sentence["tree"]["best"]]["fate"] in ("finished", "cut")
        if "</s>" in names:
            assert len(sentence["steps"]) == 4
            (scored,) = scorer.score_targets([text], ["w7 w2 w7"])
            assert sentence["logp"] == pytest.approx(scored.hypothesis.log_probability, abs=1e-3)
    with pytest.raises(AssertionError, match="this model has no piece “other”"):
        run_engine(live_job(bundle, job="model", runs=[{**runs[0], "options": {"begin": ["other"]}}]))


# ------------------------------------------------------------------------------------------------- weights and models


@pytest.mark.parametrize(("quantization", "bytes_per_weight"), [("int8", 1), ("float16", 2), ("float32", 4)])
@torch.inference_mode()
def test_weights_are_those_of_the_file(quantization, bytes_per_weight, tmp_path):
    bundle = random_bundle(tmp_path / "model", next(iter(TRANSFORMERS.values())))
    live = make_live_model(load(bundle.folder), quantization)
    ((run,),) = run_engine(live_job(bundle, quantization, job="model", runs=[forcing()]))
    np.testing.assert_allclose(run["steps"], force(dequantized(bundle, quantization), None)[0], **CLOSE)
    rows = sum(array.size // array.shape[-1] for array in read_float_weights(bundle).values() if array.ndim > 1)
    matrices = sum(np.prod(tensor["shape"]) for tensor in live.description["tensors"] if len(tensor["shape"]) > 1)
    vectors = sum(np.prod(tensor["shape"]) for tensor in live.description["tensors"] if len(tensor["shape"]) == 1)
    scales = 4 * rows if quantization == "int8" else 0
    assert len(live.weights) <= bytes_per_weight * matrices + 4 * vectors + scales
    exact = read_float_weights(bundle)
    for name, array in unpack_weights(exact, quantization).items():
        error = np.abs(array - exact[name]).max()
        assert error <= {"int8": np.abs(exact[name]).max() / 127, "float16": 2e-3, "float32": 0}[quantization]


def test_every_number_of_16_bits_is_read():
    bits = np.arange(1 << 16, dtype=np.uint16)
    (numbers,) = run_engine({"job": "halves", "bits": bits.tolist()})
    np.testing.assert_array_equal([float(number) for number in numbers], bits.view(np.float16))


def test_rows_of_zeros_stay_zeros():
    weights = {"w": np.array([[0, 0], [1, -3]], np.float32)}
    assert unpack_weights(weights, "int8")["w"][0].tolist() == [0, 0]
    assert unpack_weights(weights, "int8")["w"][1].tolist() == pytest.approx([1, -3], abs=3 / 127)


def test_what_the_page_cannot_run_has_a_reason(tmp_path):
    ctc = random_bundle(
        tmp_path / "ctc",
        {"width": 8, "tie_embeddings": "none", "encoder": LAYERS, "decoder": {"kind": "ctc"}},
    )
    with pytest.raises(HeedfulError, match=r"cannot run this model: its engine has no ctc\. Remove --live"):
        inspect(ctc.folder, live="int8")
    with pytest.raises(HeedfulError, match="it was not built from heedful's settings"):
        inspect(inspected(student(), can_silence_heads=False), [4, 5, EOS], live="int8")
    model = random_bundle(tmp_path / "model", next(iter(TRANSFORMERS.values())))
    with pytest.raises(HeedfulError, match="a page cannot hold weights as `int4`; did you mean `int8`"):
        inspect(model.folder, live="int4")
    with pytest.raises(HeedfulError, match="a trace has no model"):
        inspect(TraceDocument(), live="int8")
    other = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e f"] * 9), model_writer=other, vocab_size=11, minloglevel=2
    )
    with pytest.raises(HeedfulError, match="its tokenizer normalizes text or splits it in a way of its own"):
        describe_sentencepiece(other.getvalue())
    with pytest.raises(HeedfulError, match="its tokenizer is that of an imported model"):
        describe_tokenizer(BorrowedTokenizer(other.getvalue(), [*WORDS.vocabulary]))
    with pytest.raises(HeedfulError, match="its tokenizer has unused pieces"):
        describe_sentencepiece(b"\x0a\x05\x0a\x01a\x18\x05")  # a piece of type 5
    no_source = config.NoInputSettings(kind="none")
    language_model = {"width": 8, "encoder": {"kind": "nothing"}, "decoder": {"kind": "recurrent", "width": 8}}
    bundle = random_bundle(tmp_path / "lm", language_model, tokenizers={"target": WORDS}, input=no_source)
    with pytest.raises(HeedfulError, match="it has no source"):
        inspect(bundle.folder, live="int8")
    done = CliRunner().invoke(app, ["inspect", "trace.json", "--live", "int8"])
    assert isinstance(done.exception, ConfigError)
    assert "--live needs a model: a trace only has recordings" in str(done.exception)


@pytest.mark.parametrize("arguments", [["--live"], ["--live", "--beam", "2"], ["--live", "int8"], ["--live=int8"]])
def test_the_weights_are_int8_by_default(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["inspect", "pt-en", *arguments])
    assert done.exit_code == 0, done.exception
    assert (tmp_path / "inspect.html").stat().st_size < 5_000_000


# ------------------------------------------------------------------------------------------------------------- text

SCRIPTS = [  # greetings, numbers and names in eleven scripts, and characters that no vocabulary has
    "Zwei Hunde laufen durch den tiefen Schnee, sagt Anna.",
    "Dois cães correm pela neve; não é fácil!",
    "Две собаки бегут по глубокому снегу.",
    "Δύο σκυλιά τρέχουν μέσα στο χιόνι.",
    "שני כלבים רצים בשלג העמוק",
    "كلبان يركضان في الثلج العميق",
    "दो कुत्ते गहरी बर्फ़ में दौड़ते हैं।",
    "สุนัขสองตัววิ่งผ่านหิมะ",
    "二匹の犬が深い雪の中を走っている。",
    "두 마리의 개가 눈 속을 달린다.",
    "两只狗在厚厚的雪中奔跑。",
    "emoji 👩‍🚀 und 𝔣𝔯𝔞𝔨𝔱𝔲𝔯 €5,30 <s> <unk> <2de> <0x41>",
    "a  b\u00a0c\td\u200be\u00ad \u2581f e\u0301 \u200c\u200d x\u200dy \ufeff\x07 می\u200cخواهم \u2028 ",
    "\ud800 lone",
    "aaaaaaaaaaaabbbbbbaaabab abababab bbbb",
]


def made_texts(count=300):
    """Words of the lines of all scripts, mixed."""
    random = Random(3)
    words = [word for line in SCRIPTS for word in line.split(" ")]
    return [*SCRIPTS, *(" ".join(random.choices(words, k=random.randint(0, 12))) for _ in range(count))]


def test_text_is_normalized_as_in_python():
    texts = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in made_texts()]
    assert run_engine({"job": "normalize", "texts": texts}) == [[normalize(text)[0] for text in texts]]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "characters", "words"])
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_tokens_are_those_of_python(kind, byte_fallback):
    texts = [normalize(text.replace("\ud800", ""))[0] for text in made_texts()]
    tokenizer = train(kind, texts[:9] * 3, 460, tags=("<2de>", "<reserved_0>"), byte_fallback=byte_fallback)
    random = Random(5)
    rows = tokenizer.encode(texts)
    rows += [random.choices(range(tokenizer.size), k=random.randint(0, 9)) for _ in range(300)]
    described = describe_tokenizer(tokenizer)
    tokens, decoded, counts = run_engine(
        {"job": "tokenize", "tokenizer": described, "texts": texts},
        {"job": "detokenize", "tokenizer": described, "rows": rows},
        {"job": "count", "tokenizer": described, "texts": texts},
    )
    assert tokens == rows[: len(texts)]
    assert decoded == tokenizer.decode(rows)
    assert all(count <= len(row) for count, row in zip(counts, tokens, strict=True))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_rounding_decides_between_equal_segmentations(kind):
    """Such as n + nn and nn + n after other pieces."""
    texts = mixed_lines(300)
    tokenizer = train(kind, texts[:150], 900)
    job = {"job": "tokenize", "tokenizer": describe_tokenizer(tokenizer), "texts": texts}
    assert run_engine(job) == [[[*row] for row in tokenizer.encode(texts)]]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_pieces_that_are_always_kept_whole(kind):
    model = io.BytesIO()
    lines = ["the old dog sees ABC a red house", "two dogs see the ABCD house ABC"] * 20
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type=kind, vocab_size=290, hard_vocab_limit=False,
        byte_fallback=True, user_defined_symbols=["ABC", "dog", "og s"], normalization_rule_name="identity", pad_id=0,
        unk_id=1, bos_id=2, eos_id=3, remove_extra_whitespaces=False, minloglevel=2,
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    texts = [*lines[:2], "ABCABC dogdog", "the dog sees", "xABCx", "hotdogs ABcABC"]
    described = describe_sentencepiece(model.getvalue())
    assert set(described["special"].values()) == {"control", "unknown", "byte", "whole"}
    assert run_engine({"job": "tokenize", "tokenizer": described, "texts": texts}) == [processor.encode(texts)]


def test_pieces_are_located_as_in_a_trace():
    texts = [normalize(text.replace("\ud800", ""))[0] for text in SCRIPTS]
    tokenizer = train("bpe", texts[:3] * 3, 330, tags=("<2de>",))
    cases = [
        ([*tags, *tokenizer.pieces(ids), "</s>"], text, len(tags))
        for (text, ids), tags in zip(
            zip(texts, tokenizer.encode(texts), strict=True), itertools.cycle(((), ("<2de>",))), strict=False
        )
    ]
    job = {
        "job": "locate",
        "texts": [{"pieces": names, "text": text, "options": {"numTags": tags}} for names, text, tags in cases],
    }
    (located,) = run_engine(job)
    keys = ("text", "start", "end", "word", "letter")
    for pieces, (names, text, num_tags) in zip(located, cases, strict=True):
        expected = locate_pieces(names, text, num_tags)
        assert [tuple(piece.get(key) for key in keys) for piece in pieces] == [
            tuple(getattr(piece, key) for key in keys) for piece in expected
        ]


def test_suppressed_words_are_found_as_in_python():
    words = ("bad", "very  Bad", "c++", "плохо", "bad dog")
    texts = ["bad, BAD and very \t bad.", "badly c++ c+", "ПЛОХО! неплохо bad dogs bad dog", "x_bad bad"]
    pattern = compile_words(words)
    found = [[match[0] for match in pattern.finditer(text)] for text in texts]
    assert run_engine({"job": "find", "words": words, "texts": texts}) == [found]
    assert [len(matches) for matches in found] == [3, 1, 3, 1]


# ------------------------------------------------------------------------------------------------- whole sentences


def test_a_sentence_is_that_of_the_translator_and_without_suppressed_words(tmp_path):
    bundle = random_bundle(tmp_path / "model", next(iter(TRANSFORMERS.values())))
    text = "w3 w9 w1 w20"
    (first,) = load(bundle.folder)([text])
    words = first.text.split()
    suppressing = random_bundle(
        tmp_path / "suppressing",
        next(iter(TRANSFORMERS.values())),
        generation=GenerationSettings(beam=4, suppress_words=(words[0], words[-1])),
    )
    runs = [{"run": "translate", "text": f" {text} ", "options": {}}]
    live = [run_engine(live_job(each, "float32", job="model", runs=runs))[0][0] for each in (bundle, suppressing)]
    expected = [first, load(suppressing.folder)(text)]
    assert expected[0].text != expected[1].text
    for sentence, translation in zip(live, expected, strict=True):
        assert sentence["target"]["text"] == translation.text
        assert sentence["logp"] == pytest.approx(translation.log_probability, abs=1e-3)
        assert [piece["text"] for piece in sentence["source"]["pieces"]] == [" w3", " w9", " w1", " w20", "</s>"]
        assert sentence["tree"]["nodes"][sentence["tree"]["best"]]["fate"] in ("finished", "cut")
        assert len(sentence["steps"]) == len(sentence["target"]["pieces"])


def test_greedy_search_avoids_the_same_words(tmp_path):
    settings, text = next(iter(TRANSFORMERS.values())), "w3 w9 w1 w20"
    free = load(random_bundle(tmp_path / "free", settings).folder)
    words = free([text])[0].text.split()
    generation = GenerationSettings(beam=4, suppress_words=(words[0], words[-1]))
    bundle = random_bundle(tmp_path / "model", settings, generation=generation)
    runs = [{"run": "translate", "text": text, "options": {"stopping": "exact"}}]
    ((live,),) = run_engine(live_job(bundle, "float32", job="model", runs=runs))
    (recorded,) = inspect(bundle.folder, [text], importance=False, evidence=False).trace.sentences
    assert recorded.tree.greedy != free(text, beam=1).text
    assert live["tree"]["greedy"] == recorded.tree.greedy
    assert live["tree"]["greedy_score"] == pytest.approx(recorded.tree.greedy_score, abs=1e-3)


RECORDED = {
    "transformer": next(settings for settings in TRANSFORMERS.values() if settings["output_bias"]),
    "additive": first_recurrent("additive"),
    "location": first_recurrent("-location"),
    "content_location": first_recurrent("content_location"),
}


def flat(part, name):
    """A recorded array and a live one, both flat; of equal shapes."""
    assert [*part.shape] == name["shape"]
    return part.array().flatten(), name["numbers"]


@pytest.mark.parametrize("search", ["greedy", "beam"])
@pytest.mark.parametrize("name", RECORDED)
def test_an_answer_is_what_would_be_recorded(name, search, tmp_path):
    bundle = random_bundle(tmp_path / "model", RECORDED[name])
    text = "w3 w9 w1 w20 unknown"
    options = {"search": search, "size": 4, "stopping": "exact"}
    runs = [{"run": "translate", "text": text, "options": options}]
    live = run_engine(live_job(bundle, "float32", job="model", runs=runs))[0][0]
    beam = 4 if search == "beam" else 1
    page = inspect(bundle.folder, [text], beam=beam, importance=False, evidence=False, arithmetic=PLACES)
    (recorded,) = page.trace.sentences
    tree = recorded.model_dump(exclude_none=True, include={"source", "target", "steps", "tree"})
    assert live["logp"] == pytest.approx(recorded.logp, abs=1e-3)
    assert live["score"] == pytest.approx(recorded.score, abs=1e-3)
    for side in ("source", "target"):
        assert {**live[side], "pieces": None} == {**tree[side], "pieces": None}
        keys = ("text", "start", "end", "word", "letter")
        assert [[piece.get(key) for key in keys] for piece in live[side]["pieces"]] == [
            [piece.get(key) for key in keys] for piece in tree[side]["pieces"]
        ]
    for ours, theirs in zip(live["steps"], tree["steps"], strict=True):
        assert [text for text, _ in ours["top"]] == [text for text, _ in theirs["top"]]
        np.testing.assert_allclose(
            [ours["logp"], ours["entropy"], *(value for _, value in ours["top"])],
            [theirs["logp"], theirs["entropy"], *(value for _, value in theirs["top"])],
            **CLOSE,
        )
        assert ours["forced"] == theirs["forced"]
    assert [live["tree"].get(key) for key in ("kind", "size", "length", "best")] == [
        tree["tree"].get(key) for key in ("kind", "size", "length", "best")
    ]
    if search == "beam":
        assert live["tree"]["greedy"] == tree["tree"]["greedy"]
        assert live["tree"]["greedy_score"] == pytest.approx(tree["tree"]["greedy_score"], abs=1e-3)
    keys = ("step", "parent", "text", "rank", "fate", "why")
    assert [[node.get(key) for key in keys] for node in live["tree"]["nodes"]] == [
        [node.get(key) for key in keys] for node in tree["tree"]["nodes"]
    ]
    assert live["attention"].keys() == recorded.attention.keys()
    for place, blob in recorded.attention.items():
        np.testing.assert_allclose(*flat(blob, live["attention"][place]), atol=5e-3)
    assert live["vectors"].keys() == recorded.vectors.keys()
    for place, layers in recorded.vectors.items():
        for ours, theirs in zip(live["vectors"][place], layers, strict=True):
            assert (ours["score"], ours["normalizer"]) == (theirs.score, theirs.normalizer)
            for part in ("queries", "keys", "values", "scores", "energy", "moved"):
                assert (part in ours) == (getattr(theirs, part) is not None)
                if part in ours:
                    np.testing.assert_allclose(*flat(getattr(theirs, part), ours[part]), rtol=4e-2, atol=1e-2)


def test_the_engine_answers_the_newest_request_and_explains_failures(tmp_path):
    bundle = random_bundle(tmp_path / "model", next(iter(TRANSFORMERS.values())))
    requests = [{"text": text, "options": {}} for text in ("", "w1 " * 300, "w3 w9")]
    (answers,) = run_engine(live_job(bundle, job="converse", requests=requests))
    assert answers[0]["kind"] == "opened"
    by_id = {answer["id"]: answer for answer in answers[1:]}
    assert by_id[0]["message"] == "there is no text to translate"
    assert "this text has 300 pieces" in by_id[1]["message"]
    assert by_id[2]["text"] == load(bundle.folder)("w3 w9").text


@pytest.mark.parametrize("byte_fallback", [True, False])
def test_a_text_that_is_far_too_long_is_not_split(byte_fallback, tmp_path):
    """The time of that grows with the square of the length."""
    lines = mixed_lines(200)
    tokenizer = train("bpe", lines, 700, byte_fallback=byte_fallback)
    tokenizers = {"source": tokenizer, "target": tokenizer}
    bundle = random_bundle(tmp_path / "model", next(iter(TRANSFORMERS.values())), tokenizers=tokenizers)
    requests = [{"text": text, "options": {}} for text in (" ".join(lines) * 4, lines[0])]
    (answers,) = run_engine(live_job(bundle, job="converse", requests=requests))
    by_id = {answer["id"]: answer for answer in answers[1:]}
    assert re.match(r"this text has at least \d{4,} pieces, and the model was trained on", by_id[0]["message"])
    assert by_id[1]["kind"] == "translated"


def test_beginnings_that_no_answer_has_are_explained(tmp_path):
    bundle = random_bundle(tmp_path / "model", next(iter(TRANSFORMERS.values())))
    begins = {
        "an answer cannot begin with “<s>”": ["<s>"],
        "an answer cannot begin with “ w7<pad>”": [" w7", "<pad>"],
        "an answer cannot begin with “ w7</s> w2”": [" w7", "</s>", " w2", " w2"],
        "this beginning has 5000 pieces, and the model writes at most": [" w7"] * 5000,
    }
    searches = ("beam", "greedy", "sample")
    requests = [
        {"text": "w3 w9", "options": {"search": search, "begin": begin}}
        for search, begin in itertools.product(searches, begins.values())
    ]
    (answers,) = run_engine(live_job(bundle, job="converse", requests=requests))
    for answer, message in zip(answers[1:], [*begins] * len(searches), strict=True):
        assert answer["message"].startswith(message)


def test_a_model_that_cannot_be_opened_is_explained(tmp_path):
    job = live_job(random_bundle(tmp_path / "model", next(iter(TRANSFORMERS.values()))))
    requests = [{"text": "w3 w9", "options": {}}]
    (answers,) = run_engine({**job, "data": job["data"][:1000], "job": "converse", "requests": requests})
    assert [answer["kind"] for answer in answers] == ["failed", "failed"]
    assert all(answer["message"].startswith("the model of this page cannot be opened: ") for answer in answers)


# --------------------------------------------------------------------------------------------------------- the page


def live_page(folder):
    bundle = random_bundle(folder / "model", next(iter(TRANSFORMERS.values())))
    return bundle, inspect(bundle.folder, ["w3 w9 w1"], live="float32").save(folder / "live.html")


def test_a_page_is_live_only_on_request(tmp_path):
    _, path = live_page(tmp_path)
    live, recorded = path.read_text(encoding="utf-8"), inspect(tmp_path / "model", ["w3 w9 w1"]).html()
    assert "worker-src blob:;" in live
    for mark in ("worker-src", 'id="weights"', "LiveEngine", "live-run"):
        assert mark not in recorded
    assert "unsafe" not in live
    assert all(script not in live for script in ("eval(", "WebAssembly"))


@pytest.mark.slow
@pytest.mark.parametrize("has_worker", [True, False])
def test_the_page_translates_what_is_typed(has_worker, chromium, tmp_path):
    bundle, path = live_page(tmp_path)
    if not has_worker:  # such as a browser that starts none for pages from a disk
        path.write_text(path.read_text(encoding="utf-8").replace("worker-src blob:;", "worker-src 'none';"))
    errors = () if has_worker else ("worker-src",)
    with opened(chromium, path, "#lang=en", ignored=errors) as tab:
        tab.fill("[data-key=live-text]", "w20 w1 w7")
        tab.press("[data-key=live-text]", "Enter")
        until(tab, "document.querySelector('.live output').textContent.endsWith(' ms')")
        assert len(tab.workers) == has_worker
        expected = load(bundle.folder)("w20 w1 w7").text
        assert tab.inner_text("#stage .answer").strip() == expected
        source = tab.eval_on_selector_all("#stage .source .piece bdi", "all => all.map((node) => node.textContent)")
        assert source == ["w20", "w1", "w7", "end"]
        for number in range(1, 7):
            press(tab, "Escape")
            click(tab, f"[role=tab]:nth-child({number})")
            until(tab, "document.querySelector('#tab-body').innerText.trim() !== ''")
        tab.fill("[data-key=live-text]", "w1 " * 300)
        tab.press("[data-key=live-text]", "Enter")
        until(tab, "document.querySelector('.live output').textContent.includes('this text has 300 pieces')")


@pytest.mark.slow
def test_a_page_without_a_sentence_waits_for_one(chromium, tmp_path):
    bundle = random_bundle(tmp_path / "model", next(iter(RECURRENT.values())))
    path = inspect(bundle.folder, live="int8").save(tmp_path / "live.html")
    with opened(chromium, path, "#lang=en") as tab:
        assert "Type a sentence above" in tab.inner_text("#tab-body")
        tab.fill("[data-key=live-text]", "w3 w9")
        click(tab, "[data-key=live-run]")
        until(tab, "document.querySelector('#stage .answer') !== null")

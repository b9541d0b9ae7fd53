"""An export says what the model says, or there is no export."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import heedful
from heedful import config
from heedful.alignment import AlignmentMethod
from heedful.build import build
from heedful.bundle import GenerationSettings, open_export
from heedful.cli.app import app
from heedful.engines.base import EncodedSource, SamplingOptions, SearchOptions
from heedful.errors import ConfigError, HeedfulError
from heedful.exporters import api as act
from heedful.exporters import ctranslate2, marian
from heedful.exporters.api import FORMATS, ExportFormat, export
from heedful.exporters.parity import Proof, ProofError, prove
from heedful.text.tokenizer import BOS, EOS
from heedful.translation.loading import load
from heedful.translation.translator import TranslationOptions, Translator
from test_bundle import MADE, TEXTS, forge, made

LAYER = {"kind": "transformer", "layers": 2, "heads": 4, "feedforward_size": 24}
PROBES = [*TEXTS[:4], "the old dog has two sisters", "a house", "tom sees tom"]
SEARCH = SearchOptions(beam=4, num_best=2, length_penalty=1.0)


def model(norm="pre", activation="relu", positions="sinusoidal", tied="all", bias=False, scale=True):
    part = LAYER | {"norm": norm, "activation": activation}
    return config.ModelSettings.model_validate(
        {
            "width": 16, "positions": positions, "max_positions": 64,
            "scale_embeddings": scale, "tie_embeddings": tied, "output_bias": bias,
            "encoder": part, "decoder": part,
        }
    )  # fmt: skip


def lively(chosen, source, target, seed=1):
    """Random weights under which sentences differ and end, and tokens that are no words are improbable: CTranslate2
    gives the probability of what it was told never to say to the rest.
    """
    torch.manual_seed(seed)
    found = build(chosen, source, target)
    last = found.decoder.norm if chosen.decoder.norm == "pre" else found.decoder.layers[-1].around_feed_forward.norm
    with torch.no_grad():
        for name, weight in found.named_parameters():
            table = ("table" in name or "plain" in name) and weight.dim() > 1
            nn.init.normal_(weight, 1.0 if "norm.weight" in name else 0.0, 1.2 if table else 0.3)
            if table and "positions" not in name:
                weight[:, 0], weight[: EOS + 1] = 0.0, 0.0
                weight[EOS, 0] = 2.0
        last.weight[0], last.bias[0] = 0.1, 5.5  # the end has a logit of about 11
    return {name: weight.numpy() for name, weight in found.state_dict().items()}


def bundle_of(folder, chosen, kind="bpe", **changes):
    size = MADE[kind].size
    return made(
        folder,
        kind,
        chosen,
        weights=lively(chosen, size, size),
        generation=GenerationSettings(beam=4, max_length=40),
        statistics={},
        **changes,
    )


EVERY = [
    *(
        {"norm": norm, "activation": activation}
        for norm, activation in product(("pre", "post"), ("relu", "gelu", "silu"))
    ),
    *({"positions": positions, "scale": False} for positions in ("sinusoidal", "sinusoidal_halves", "learned")),
    *({"norm": "post", "tied": tied, "bias": bias} for tied, bias in product(("all", "target", "none"), (False, True))),
]
FIT = [one for one in EVERY if one.get("positions") != "learned"]


def same(bundle, folder, engine, stopping):
    """Both engines, the same questions."""
    ours, theirs = load(bundle.folder), Translator(bundle, act.ENGINES[engine](bundle, folder))
    ids = ours.source.encode(PROBES)
    questions = [EncodedSource((*row, EOS), 20, index=number) for number, row in enumerate(ids)]
    search = replace(SEARCH, stopping=stopping)
    mine, other = ours.engine.translate(questions, search), theirs.engine.translate(questions, search)
    for some, more in zip(mine, other, strict=True):
        assert [one.hypothesis.tokens for one in some] == [one.hypothesis.tokens for one in more]
        for one, two in zip(some, more, strict=True):
            assert one.hypothesis.score == pytest.approx(two.hypothesis.score, abs=1e-4)
            assert one.hypothesis.finished == two.hypothesis.finished
    said = [some[0].hypothesis.tokens for some in mine]
    for one, two in zip(
        ours.engine.score_targets(questions, said), theirs.engine.score_targets(questions, said), strict=True
    ):
        assert one.hypothesis.log_probabilities == pytest.approx(two.hypothesis.log_probabilities, abs=1e-4)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: "-".join(map(str, kind.values())))
def test_ctranslate2_says_the_same(kind, tmp_path):
    bundle = bundle_of(tmp_path / "model", model(**kind))
    ctranslate2.write(bundle, tmp_path / "out")
    same(bundle, tmp_path / "out", "ctranslate2", "ctranslate2")


@pytest.mark.parametrize("kind", FIT, ids=lambda kind: "-".join(map(str, kind.values())))
def test_hugging_face_says_the_same(kind, tmp_path):
    bundle = bundle_of(tmp_path / "model", model(**kind))
    marian.write(bundle, tmp_path / "out")
    same(bundle, tmp_path / "out", "hugging_face", "likely")


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_their_tokenizer_reads_our_pieces(tmp_path):
    from transformers import AutoTokenizer

    bundle = bundle_of(tmp_path / "model", model(norm="post"))
    marian.write(bundle, tmp_path / "out")
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path / "out"), bundle.tokenizer("source")
    for text in (*PROBES, "über 東 straße"):
        ids = ours.encode([text])[0]
        assert theirs(text).input_ids == [*ids, EOS]
        assert theirs.decode([*ids, EOS], skip_special_tokens=True) == text


def test_logits_of_hugging_face_are_ours(tmp_path):
    from transformers import MarianMTModel

    bundle = bundle_of(tmp_path / "model", model(norm="post", bias=True))
    marian.write(bundle, tmp_path / "out")
    ours, theirs = load(bundle.folder).engine.model, MarianMTModel.from_pretrained(tmp_path / "out").eval()
    source = torch.tensor([[5, 9, 7, 12, EOS], [8, 4, 11, 6, EOS]])
    inputs = torch.tensor([[BOS, 9, 30, 21], [BOS, 14, 6, 40]])
    with torch.inference_mode():
        memory = ours.encoder(source, torch.ones_like(source, dtype=torch.bool))
        decoded, _ = ours.decoder(inputs, ours.decoder.start(memory))
        mine = ours.decoder.project(decoded.states)
        other = theirs(input_ids=source, decoder_input_ids=inputs).logits
    torch.testing.assert_close(mine, other, atol=1e-4, rtol=0)


HARD = model().model_copy(update={"encoder": model().encoder.model_copy(update={"normalizer": "hard"})})
ONE_HEAD = model().model_copy(update={"encoder": model().encoder.model_copy(update={"heads": 1})})
RECURRENT = config.ModelSettings.model_validate(
    {"width": 8, "encoder": {"kind": "recurrent", "width": 8}, "decoder": {"kind": "recurrent", "width": 8}}
)
REFUSED = {
    "ctranslate2": [
        (RECURRENT, "CTranslate2 does not support recurrent models: use heedful export --to onnx"),
        (HARD, "supports scaled dot products, softmax"),
        (model().model_copy(update={"encoder": model("post").encoder}), "requires the same norm and activation"),
        (model(positions=None), "requires positions, but this Transformer has none"),
        (ONE_HEAD, "requires equal numbers of heads in encoder and decoder"),
    ],
    "hugging_face": [
        (RECURRENT, "Hugging Face does not support recurrent models"),
        (model(positions="learned"), "support sinusoidal positions only"),
        (model(tied="target"), "requires that a pre-norm model has only one embedding table: use heedful export"),
        (model().model_copy(update={"decoder": model(activation="gelu").decoder}), "the same norm and activation"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("to", "chosen", "says"), [(to, *one) for to, some in REFUSED.items() for one in some])
def test_what_an_engine_cannot_compute_is_refused_in_words(to, chosen, says, tmp_path):
    bundle = made(tmp_path / "model", "bpe", chosen)
    with pytest.raises(HeedfulError, match=says):
        export(bundle.folder, tmp_path / "out", to=to, probes=PROBES)
    assert not (tmp_path / "out").exists()


def test_tables_of_words_have_no_sentencepiece_model(tmp_path):
    bundle = bundle_of(tmp_path / "model", model("post"), kind="words")
    with pytest.raises(HeedfulError, match="characters or words"):
        export(bundle.folder, tmp_path / "out", to="hugging_face", probes=PROBES)


@pytest.mark.parametrize("to", ["ctranslate2", "hugging_face"])
def test_an_export_is_a_translator(to, tmp_path):
    bundle = bundle_of(tmp_path / "model", model())
    proof = export(bundle.folder, tmp_path / "out", to=to, probes=PROBES)
    assert (proof.same, proof.sentences) == (len(PROBES), len(PROBES))
    ours, theirs = load(bundle.folder), load(tmp_path / "out")
    assert (open_export(tmp_path / "out").manifest.engine, theirs.engine.name) == (to, to)
    stopping = FORMATS[to].stopping
    for one, two in zip(answers(ours, stopping), answers(theirs, stopping), strict=True):
        assert one == two
    card = (tmp_path / "out" / "heedful" / "README.md").read_text()
    assert proof.summary in card
    with pytest.raises(HeedfulError, match="already exists: choose another path"):
        export(bundle.folder, tmp_path / "out", to=to, probes=PROBES)


def test_an_older_export_says_rounding_for_quantization(tmp_path):
    bundle = bundle_of(tmp_path / "model", model())
    export(bundle.folder, tmp_path / "out", probes=PROBES)
    path = tmp_path / "out" / "heedful" / "export.json"
    manifest = json.loads(path.read_text())
    assert manifest.pop("quantization") == "float32"
    path.write_text(json.dumps(manifest | {"format_version": 1, "rounding": "int8"}))
    forge(path.parent)
    assert open_export(tmp_path / "out").manifest.quantization == "int8"


def answers(translator, stopping):
    search = replace(translator.search_options(TranslationOptions()), stopping=stopping)
    questions = [one.source for some in translator.make_segments(PROBES, TranslationOptions(), 0) for one in some]
    return [some[0].hypothesis.tokens for some in translator.translate_sources(questions, search)]


def test_ctranslate2_needs_no_torch(tmp_path):
    bundle = bundle_of(tmp_path / "model", model())
    export(bundle.folder, tmp_path / "out", probes=PROBES)
    code = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
import heedful
print(heedful.load(sys.argv[1])("the old man sees a house", alignment="naive").text)
"""
    ran = subprocess.run([sys.executable, "-c", code, tmp_path / "out"], capture_output=True, text=True, check=True)
    assert ran.stdout.rstrip("\n") == load(tmp_path / "out")("the old man sees a house").text


@pytest.mark.parametrize(
    "reading", [AlignmentMethod("shifted", 1, 2), AlignmentMethod("naive", 0, 3), AlignmentMethod("naive", 1, None)]
)
def test_ctranslate2_shows_the_head_that_aligns_best(reading, tmp_path):
    bundle = bundle_of(tmp_path / "model", model())
    chosen = replace(
        bundle, statistics={"alignment": {"step": reading.step, "layer": reading.layer, "head": reading.head}}
    )
    told = ctranslate2.write(chosen, tmp_path / "out")
    assert told == AlignmentMethod(reading.step, 0, 0)
    ours, theirs = load(bundle.folder), Translator(bundle, act.ENGINES["ctranslate2"](bundle, tmp_path / "out"))
    question = EncodedSource((*ours.source.encode([PROBES[0]])[0], EOS), 20)
    search = SearchOptions(beam=1, attention=True)
    (mine,), (other,) = ours.engine.translate([question], search)[0], theirs.engine.translate([question], search)[0]
    assert mine.hypothesis.tokens == other.hypothesis.tokens
    count = len(mine.hypothesis.tokens)
    looked = mine.attention[reading.layer, reading.head if reading.head is not None else slice(None), :count]
    looked = looked if looked.ndim == 2 else looked.mean(0)
    np.testing.assert_allclose(other.attention[0, 0, :, :-1], looked[:, :-1], atol=1e-4)


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("to", [None, "ctranslate2", "onnx"])
def test_a_model_that_says_nothing_has_no_links(to, tokens, tmp_path):
    """An empty answer once ended the engine of a server."""
    size = MADE["bpe"].size
    weights = lively(model(), size, size)
    weights["decoder.norm.bias"][0] = 500.0  # the end, at once
    bundle = made(
        tmp_path / "model", "bpe", model(), weights=weights, generation=GenerationSettings(beam=4), statistics={}
    )
    if to:
        FORMATS[to].write(bundle, tmp_path / "out", "float32")
    translator = load(bundle.folder) if to is None else Translator(bundle, act.ENGINES[to](bundle, tmp_path / "out"))
    for found in translator(PROBES, alignment="naive", soft_alignment=True, tokens=tokens):
        assert found.text == ""
        assert found.alignment == ()


@pytest.mark.parametrize("to", sorted(FORMATS.keys() - {"argos"}))  # which packs up what CTranslate2's writes
def test_weights_of_16_bits_are_exported_as_those_of_32(to, tmp_path):
    weights = lively(model(), MADE["bpe"].size, MADE["bpe"].size)
    half = {name: array.astype(np.float16) for name, array in weights.items()}
    for name, some in (("half", half), ("whole", {one: array.astype(np.float32) for one, array in half.items()})):
        made(
            tmp_path / name,
            "bpe",
            model(),
            weights=some,
            generation=GenerationSettings(beam=4, max_length=40),
            statistics={},
        )
        export(tmp_path / name, tmp_path / f"{name}-{to}", to=to, probes=PROBES)
    for file in ("model.bin", "model.safetensors", "step.onnx"):
        one, other = (tmp_path / f"{name}-{to}" / file for name in ("half", "whole"))
        assert one.is_file() == other.is_file()
        assert not one.is_file() or one.read_bytes() == other.read_bytes()


def test_rounded_exports_are_smaller_and_near(tmp_path):
    bundle = bundle_of(tmp_path / "model", model())
    ours, sizes, apart = load(bundle.folder), {}, {}
    for quantization in ctranslate2.QUANTIZATIONS:
        ctranslate2.write(bundle, tmp_path / quantization, quantization)
        theirs = Translator(bundle, act.ENGINES["ctranslate2"](bundle, tmp_path / quantization))
        apart[quantization] = prove(
            ours, theirs, PROBES, stopping="ctranslate2", is_quantized=quantization != "float32"
        ).mean
        sizes[quantization] = (tmp_path / quantization / "model.bin").stat().st_size
    assert all(size < 0.6 * sizes["float32"] for quantization, size in sizes.items() if quantization != "float32")
    assert apart["float32"] < 1e-5 < apart["float16"] < apart["bfloat16"] < apart["int8"] < 1


# -------------------------------------------------------------------------------------------------- what is refused


def test_a_damaged_export_is_refused(tmp_path):
    bundle = bundle_of(tmp_path / "model", model())
    export(bundle.folder, tmp_path / "out", probes=PROBES)
    path = tmp_path / "out" / "model.bin"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(HeedfulError, match=r"model\.bin: is damaged"):
        load(tmp_path / "out")


def test_misuse_is_answered(tmp_path):
    bundle = bundle_of(tmp_path / "model", model())
    with pytest.raises(ConfigError, match="did you mean `ctranslate2`"):
        export(bundle.folder, tmp_path / "out", to="ctranslate", probes=PROBES)
    with pytest.raises(ConfigError, match="did you mean `int8`"):
        export(bundle.folder, tmp_path / "out", quantization="int9", probes=PROBES)
    with pytest.raises(ConfigError, match="--probes FILE"):
        export(bundle.folder, tmp_path / "out")
    with pytest.raises(ConfigError, match="the probes are empty"):
        export(bundle.folder, tmp_path / "out", probes=["", " "])
    export(bundle.folder, tmp_path / "out", probes=PROBES)
    with pytest.raises(HeedfulError, match="is an export for ctranslate2"):
        load(tmp_path / "out", engine="torch")
    assert not list(tmp_path.glob(".*"))


def test_the_command_says_where_and_what_next(tmp_path):
    bundle_of(tmp_path / "model", model())
    (tmp_path / "probes").write_text("\n".join(PROBES))
    run = CliRunner().invoke(app, ["export", str(tmp_path / "model"), "--probes", str(tmp_path / "probes")])
    assert run.exit_code == 0, run.output
    assert "7 of 7 translations have the same tokens" in run.output
    assert "Next: heedful translate" in run.output
    for wrong, says in ((["--probes", str(tmp_path / "none")], "cannot be read"), (["--quantization", "int4"], "int8")):
        run = CliRunner().invoke(app, ["export", str(tmp_path / "model"), "--out", str(tmp_path / "x"), *wrong])
        assert isinstance(run.exception, ConfigError)
        assert says in str(run.exception)


# ------------------------------------------------------------------------------------------------------- sabotage


def transposed(name):
    def harm(weights):
        weights[name] = np.ascontiguousarray(weights[name].T)

    return harm


def scaled(name, factor):
    def harm(weights):
        weights[name] = weights[name] * np.float32(factor)

    return harm


def swapped(one, other):
    def harm(weights):
        weights[one], weights[other] = weights[other], weights[one]

    return harm


def rows_swapped(name, one, other):
    def harm(weights):
        weights[name] = weights[name].copy()
        weights[name][[one, other]] = weights[name][[other, one]]

    return harm


DECODER, ENCODER = "decoder.layers.1", "encoder.layers.0"
SABOTAGES = {
    "a row of a query for one of a key": rows_swapped(f"{ENCODER}.attention.project.weight", 0, 16),
    "transposed self-attention output": transposed(f"{ENCODER}.attention.out.weight"),
    "transposed decoder output": transposed(f"{DECODER}.attention.out.weight"),
    "transposed cross query": transposed(f"{DECODER}.cross.query.weight"),
    "transposed cross output": transposed(f"{DECODER}.cross.out.weight"),
    "cross query is self-attention's output": swapped(f"{DECODER}.cross.query.weight", f"{DECODER}.cross.out.weight"),
    "layers swapped": swapped("encoder.layers.0.feed_forward.up.weight", "encoder.layers.1.feed_forward.up.weight"),
    "norm of another place": swapped(f"{DECODER}.around_cross.norm.weight", f"{DECODER}.around_attention.norm.weight"),
    "a forgotten bias": scaled(f"{DECODER}.feed_forward.up.bias", 0),
    "a forgotten bias of the output": scaled("decoder.plain_projection.bias", 0),
    "a forgotten bias of a norm": scaled("decoder.norm.bias", 0),
    "a forgotten gain of the last norm": scaled("encoder.norm.weight", 0.9),
    "embeddings times sqrt(width) once more": scaled("encoder.embed.table.weight", 4),
    "embeddings not scaled": scaled("decoder.embed.table.weight", 0.25),
    "swapped special tokens of the target": rows_swapped("decoder.embed.table.weight", 2, 3),
    "swapped special tokens of the output": rows_swapped("decoder.plain_projection.weight", 2, 3),
    "swapped special tokens of the source": rows_swapped("encoder.embed.table.weight", 1, 3),
    "one word for another": rows_swapped("decoder.plain_projection.weight", 20, 21),
    "queries without 1 / sqrt(d)": scaled(f"{DECODER}.cross.query.weight", 2),
    "a table that is off by a little": scaled("encoder.embed.table.weight", 1.02),
}  # fmt: skip


@pytest.mark.parametrize("name", SABOTAGES)
def test_a_sabotaged_export_is_caught(name, tmp_path, monkeypatch):
    bundle = bundle_of(tmp_path / "model", model(tied="none", bias=True))

    def read(bundle):
        weights = dict(heedful.bundle.read_weights(bundle))
        SABOTAGES[name](weights)
        return weights

    monkeypatch.setattr(ctranslate2, "read_float_weights", read)
    with pytest.raises(ProofError, match="the export does not match the model") as caught:
        export(bundle.folder, tmp_path / "out", probes=PROBES)
    assert caught.value.exit_code == 4
    assert not list(tmp_path.glob("*out*"))


def test_a_scale_that_their_configuration_forgets_is_caught(tmp_path, monkeypatch):
    """Not only weights can be wrong."""
    bundle = bundle_of(tmp_path / "model", model("post"))

    def write(bundle, folder, quantization):
        marian.write(bundle, folder, quantization)
        path = folder / "config.json"
        tree = json.loads(path.read_text())
        tree["scale_embedding"] = False
        path.write_text(json.dumps(tree))

    monkeypatch.setitem(FORMATS, "hugging_face", ExportFormat(write, ("float32",), "hugging_face"))
    with pytest.raises(ProofError):
        export(bundle.folder, tmp_path / "out", to="hugging_face", probes=PROBES)


@pytest.mark.parametrize("rounded", [False, True])
def test_a_proof_of_what_is_no_number_is_none(rounded):
    good = Proof(10, 10, 0, 0.0, 0.0, 100.0, rounded)
    assert not good.faults
    for key in ("mean", "own", "strange") if rounded else ("largest",):
        assert replace(good, **{key: float("nan")}).faults


def test_ctranslate2_keeps_every_limit_and_sorts_by_the_score_it_shows(tmp_path):
    bundle = bundle_of(tmp_path / "model", model())
    ctranslate2.write(bundle, tmp_path / "out")
    engine = act.ENGINES["ctranslate2"](bundle, tmp_path / "out")
    questions = [
        EncodedSource((*row, EOS), limit) for row, limit in zip(MADE["bpe"].encode(PROBES[:3]), (3, 9, 30), strict=True)
    ]
    together = engine.translate(questions, SEARCH)
    alone = [engine.translate([question], SEARCH)[0] for question in questions]
    for question, some, more in zip(questions, together, alone, strict=True):
        assert [one.hypothesis.tokens for one in some] == [one.hypothesis.tokens for one in more]
        scores = [one.hypothesis.score for one in some]
        assert scores == sorted(scores, reverse=True)
        assert all(len(one.hypothesis.tokens) + one.hypothesis.finished <= question.max_length for one in some)
    with pytest.raises(HeedfulError, match="CTranslate2 does not support a seed for sampling: remove the seed"):
        engine.translate(questions, replace(SEARCH, sampling=SamplingOptions(seed=3)))


def test_ours_proves_itself(tmp_path):
    bundle = bundle_of(tmp_path / "model", model())
    proof = prove(load(bundle.folder), load(bundle.folder), PROBES, PROBES)
    assert (proof.same, proof.largest, proof.faults) == (len(PROBES), 0.0, [])
    assert proof.bleu is not None
    assert proof.bleu[0] == proof.bleu[1]

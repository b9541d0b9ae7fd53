"""A package for Argos Translate: what is in it, its bytes, where it cuts text, and what Argos Translate makes of it."""

import json
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_STORED, ZipFile

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from heedful import config
from heedful.bundle import open_bundle
from heedful.errors import HeedfulError, MissingExtra
from heedful.exporters import argos, ctranslate2
from heedful.exporters.api import export
from heedful.exporters.normalizer import add_normalizer
from heedful.exporters.sentence_splitter import FEATURES, make_sentence_splitter
from heedful.text.normalize import normalize
from heedful.text.tokenizer import train as train_tokenizer
from heedful.training.api import train
from heedful.translation.loading import ENGINES
from heedful.translation.translator import Translator
from support.training_runs import MODEL, settings_of, write_corpus
from test_bundle import DECODERS, ENCODERS, TEXTS, arrays, made
from test_bundle import MODEL as TRANSFORMER

INSIDE = ["README.md", "metadata.json", "minisbd/rules.onnx", "model/config.json", "model/model.bin"]
INSIDE += ["model/shared_vocabulary.json", "sentencepiece.model"]


PLACED = TRANSFORMER.model_copy(update={"positions": "sinusoidal"})


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return made(tmp_path_factory.mktemp("argos") / "model", model=PLACED, tags=())


def write(bundle, path, quantization="float32"):
    """Without the proof of `heedful.export`."""
    with TemporaryDirectory() as folder:
        argos.check_supported(bundle)
        ctranslate2.write(bundle, Path(folder), quantization)
        argos.pack(bundle, Path(folder), path)


@pytest.fixture(scope="module")
def package(bundle, tmp_path_factory):
    path = tmp_path_factory.mktemp("package") / "en-de.argosmodel"
    write(bundle, path)
    return path


# --------------------------------------------------------------------------------------------------------- the file


def test_one_folder_holds_what_argos_translate_looks_for(bundle, package):
    with ZipFile(package) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [f"heedful-en_de/{name}" for name in INSIDE]
        assert {info.compress_type for info in archive.infolist()} == {ZIP_STORED}
        told = json.loads(archive.read("heedful-en_de/metadata.json").decode("ascii"))
        readme = archive.read("heedful-en_de/README.md").decode()
        engine = json.loads(archive.read("heedful-en_de/model/config.json"))
    assert told | {"argos_version": ""} == {
        "type": "translate", "package_version": "1.0", "argos_version": "",
        "from_code": "en", "from_name": "English", "to_code": "de", "to_name": "German",
    }  # fmt: skip
    assert readme.startswith((bundle.folder / "README.md").read_text(encoding="utf-8").rstrip())
    assert "length penalty of 0.2" in readme
    assert engine["add_source_eos"]  # Argos Translate does not add it


def test_the_same_model_gives_the_same_bytes(bundle, package, tmp_path):
    write(bundle, tmp_path / "again.argosmodel")
    assert (tmp_path / "again.argosmodel").read_bytes() == package.read_bytes()


def test_a_proven_folder_is_packed_as_it_is(bundle, package, tmp_path):
    ctranslate2.write(bundle, tmp_path / "proven", "float32")
    (tmp_path / "proven" / "heedful").mkdir()  # what an export keeps beside the engine's files
    (tmp_path / "proven" / "heedful" / "export.json").write_text("{}")
    argos.pack(bundle, tmp_path / "proven", tmp_path / "packed.argosmodel")
    assert (tmp_path / "packed.argosmodel").read_bytes() == package.read_bytes()


def test_languages_have_names():
    assert [argos.display_name(code) for code in ("de", "pt-BR", "gsw")] == ["German", "Portuguese (pt-BR)", "gsw"]
    assert argos.make_metadata("de", "Züritüütsch").isascii()  # it is read in the encoding of the system


def test_a_missing_onnx_is_named(bundle, tmp_path, monkeypatch):
    monkeypatch.setattr("heedful.errors.find_spec", lambda name: None if name == "onnx" else object())
    with pytest.raises(MissingExtra, match=r"--to argos needs onnx,.*pip install 'heedful\[export\]'"):
        export(bundle.folder, tmp_path / "a.argosmodel", to="argos", probes=TEXTS[:2])
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_or_left_behind(bundle, package, tmp_path, monkeypatch):
    with pytest.raises(HeedfulError, match=r"only installs files that end in \.argosmodel"):
        write(bundle, tmp_path / "model.zip")
    before = package.read_bytes()
    with pytest.raises(HeedfulError, match="already exists"):
        write(bundle, package)
    assert package.read_bytes() == before
    with pytest.raises(HeedfulError, match="cannot be written"):
        write(bundle, tmp_path / "nowhere" / "a.argosmodel")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(argos, "add_file", full)
    with pytest.raises(HeedfulError, match=r"a\.argosmodel cannot be written: No space left on device"):
        write(bundle, tmp_path / "a.argosmodel")
    assert list(tmp_path.iterdir()) == []


def refused(folder: Path, what: str):
    """A bundle that Argos Translate cannot run."""
    if what == "tags":
        return made(folder)
    if what == "recurrent":
        model = config.ModelSettings.model_validate({"width": 8, "encoder": ENCODERS[1], "decoder": DECODERS[1]})
        return made(folder, model=model, tags=())
    if what == "two":
        sides = {side: train_tokenizer("bpe", TEXTS, size) for side, size in (("source", 300), ("target", 310))}
        model = config.ModelSettings.model_validate({"width": 8, "encoder": ENCODERS[0], "decoder": ENCODERS[0]})
        weights = arrays(model, sides["source"].size, sides["target"].size)
        return made(folder, model=model, tokenizers=sides, weights=weights, tags=())
    return made(folder, what, tags=())


@pytest.mark.parametrize(
    ("what", "advice"),
    [
        ("words", 'tokenizer.kind = "bpe"'),
        ("characters", 'tokenizer.kind = "bpe"'),
        ("two", r"tokenizer\.shared = true"),
        ("tags", "<2de>: train a model for one language pair"),
        ("recurrent", "train a Transformer"),
    ],
)
def test_what_it_cannot_run_is_refused_with_advice(what, advice, tmp_path):
    bundle = refused(tmp_path / "model", what)
    with pytest.raises(HeedfulError, match=advice):
        write(bundle, tmp_path / "a.argosmodel")
    assert not (tmp_path / "a.argosmodel").exists()


# ------------------------------------------------------------------------------------------------------- its tokenizer

ACCENTS = ["Mu\u0308nchen", "\u212b", "e\u0302\u0301", "ê\u0301", "e\u0323\u0302", "\u0301a", "x\u0327\u0301"]
PLAIN = train_tokenizer("bpe", TEXTS, 320)
OURS = sentencepiece.SentencePieceProcessor(model_proto=add_normalizer(PLAIN.model))


@given(
    st.one_of(st.sampled_from(ACCENTS), st.text("abê. ▁Å\u00a0\u2000\u3000\u200b\u00ad\ufeff\t\r\x07\u2028\U000e0041"))
)
def test_the_tokenizer_in_it_normalizes_as_heedful_does(text):
    assert OURS.encode(text) == PLAIN.encode([normalize(text)[0]])[0]


# ---------------------------------------------------------------------------------------------------------- sentences

CUTS = [
    ["A man.", "A dog."],
    ["Who?", "No!", "Yes..."],
    ["Die Frau bzw. Mrs. Smith trug einen Hut.", "Das war es.", "Wir sahen TV."],
    ["Dr. Who met J. R. Smith and the U.S. Army."],
    ["Am 31. Mai 1998.", "Es war z. B. Montag."],
    ['"Who?" he said.', '"No."', "(She left.)", "He stayed."],
    ["It costs 5.50 and ends... when it ends."],
    ["你好。", "我们走吧！？", "「好。」", "他说"],
    ["हाँ।", "मैं"],
    ["نعم؟", "لا"],
    ["a"],
]


def cut(session, text: str) -> list[str]:
    """What MiniSBD does with it, in short."""
    notes = session.get_modelmeta().custom_metadata_map
    assert json.loads(notes["config"])["feat_funcs"] == list(FEATURES.values())
    known = json.loads(notes["vocab"])["_unit2id"]
    units = np.array([[known.get(letter, known["<UNK>"]) for letter in text] + [known["<PAD>"]]])
    features = np.array([[[one.isupper(), one.isdigit()] for one in text] + [[0, 0]]], np.float32)
    verdicts = session.run(None, {"units": units, "features": features})[0].argmax(2)[0, : len(text)]
    ends = [*(int(place) + 1 for place in np.flatnonzero(verdicts[:-1] == 2)), len(text)]
    return [text[begin:end].strip(" ") for begin, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("sentences", CUTS, ids=lambda sentences: sentences[0])
def test_sentences_end_where_people_would_end_them(sentences):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install onnxruntime")
    session = onnxruntime.InferenceSession(make_sentence_splitter("en"), providers=["CPUExecutionProvider"])
    text = "".join(one if one[-1] in "。！？」" else f"{one} " for one in sentences).strip(" ")
    assert cut(session, text) == sentences


# ------------------------------------------------------------------------------------------------------ the real thing

ASK = """
import json, socket, sys

def refuse(*_):
    raise OSError("this machine has no network")

socket.socket.connect = refuse
from argostranslate import package, translate

package.install_from_path(sys.argv[1])
print(json.dumps([translate.translate(text, "en", "de") for text in json.loads(sys.argv[2])]))
"""


@pytest.fixture
def python():
    """An interpreter that has argostranslate, which is too large to ask of everyone."""
    return os.environ.get("HEEDFUL_ARGOS_PYTHON") or pytest.skip(
        "HEEDFUL_ARGOS_PYTHON does not name an interpreter that has argostranslate"
    )


TRAINED = {"steps": 400, "validate_every": 400, "save_every": 400}


def asked(python: str, package: Path, home: Path, texts: list[str]) -> list[str]:
    """Argos Translate's answers, in a home of its own and without a network."""
    own = {name: str(home / name.lower()) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("ARGOS_", "PYTHON", "SNAP"))}
    exact = {"ARGOS_COMPUTE_TYPE": "default"}  # else it rounds to 8 bits what is not rounded
    command = [python, "-c", ASK, str(package), json.dumps(texts)]
    run = subprocess.run(command, capture_output=True, text=True, env=kept | own | exact, check=False)
    assert run.returncode == 0, run.stderr
    found: list[str] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_argos_translate_says_what_our_own_engine_says(python, tmp_path):
    folder = write_corpus(tmp_path, pairs=300)
    tokenizer = {"kind": "bpe", "vocab_size": 420}
    bundle = open_bundle(train(settings_of(folder, folder / "run", model=MODEL, tokenizer=tokenizer, **TRAINED)))
    package = tmp_path / "en-de.argosmodel"
    write(bundle, package)
    ctranslate2.write(bundle, tmp_path / "engine", "float32")
    ours = Translator(bundle, ENGINES["ctranslate2"](bundle, tmp_path / "engine"))

    def said(text: str) -> str:
        return ours(text, beam=argos.BEAM, length_penalty=argos.LENGTH_PENALTY).text

    single = ["a red house", "the old man sees two dogs", "three cats under a tree with the child"]
    expected = [said(text) for text in single]
    assert len(set(expected)) == len(single)  # it has learned something
    odd = {"  a red\u00a0house": expected[0], "the o\u00adld man\tsees two  dogs ": expected[1]}
    several = "A red house. The old man sees two dogs.\n\nA cat!"
    joined = f"{said('A red house.')} {said('The old man sees two dogs.')}\n\n{said('A cat!')}"
    assert asked(python, package, tmp_path, [*single, *odd, several]) == [*expected, *odd.values(), joined]

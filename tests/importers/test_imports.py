"""What others trained says here what it says there."""

import csv
import json
import shutil
import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import numpy as np
import pytest
import sentencepiece
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from test_export import bundle_of, model
from typer.testing import CliRunner

import heedful
from heedful.bundle import read_weights
from heedful.cli.app import app
from heedful.config import ModelSettings
from heedful.engines.base import EncodedSource, SearchOptions
from heedful.errors import ConfigError, HeedfulError
from heedful.exporters import ctranslate2 as to_ctranslate2
from heedful.exporters import marian as to_marian
from heedful.importers import ctranslate2, g2p
from heedful.importers.api import import_model
from heedful.importers.imported_model import renumber_pieces
from heedful.text.tokenizer import BOS, EOS, UNK, BorrowedTokenizer, load
from heedful.training.api import train
from heedful.training.finetune import apply_finetuning_defaults
from support.training_runs import DATA, settings_of, write_corpus
from test_bundle import TEXTS, made

AREN, G2P = DATA / "pretrained-ct2-aren", DATA / "pretrained-g2p-en"
real = pytest.mark.skipif(not AREN.is_dir(), reason=f"{DATA} has no pretrained models; set HEEDFUL_DATA")
ENGLISH = ["the old man sees a red house", "two dogs sleep under the tree", "my sister paints three cats", "a child"]
GERMAN = [
    "der alte mann sieht ein rotes haus",
    "zwei hunde schlafen unter dem baum",
    "meine schwester malt",
    "ein kind",
]


def pieces_of(path, texts, size):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 20), model_prefix=str(path), vocab_size=size, model_type="unigram",
        hard_vocab_limit=False, minloglevel=2, pad_id=-1,
    )  # fmt: skip
    path.with_suffix(".model").rename(path.with_suffix(".spm"))
    path.with_suffix(".vocab").unlink()
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path.with_suffix(".spm")))
    return [processor.id_to_piece(number) for number in range(len(processor))]


@pytest.fixture(scope="module", params=[True, False], ids=["one-list", "two-lists"])
def opus(request, tmp_path_factory):
    """A folder shaped like those of OPUS-MT: </s> and <unk> first, <pad> last, which also starts; swish; scaled."""
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    folder = tmp_path_factory.mktemp("opus")
    lists = [pieces_of(folder / side, texts, 90) for side, texts in (("source", ENGLISH), ("target", GERMAN))]
    rests = [[one for one in some if one not in ("<unk>", "<s>", "</s>")] for some in lists]
    if request.param:
        rest = list(dict.fromkeys(sorted({*rests[0], *rests[1]}, key=lambda one: (len(one), one))))
        rests = [[*rest, ">>deu<<"]] * 2
    size = max(map(len, rests))
    tables = [["</s>", "<unk>", *rest, *(f"@{n}" for n in range(size - len(rest))), "<pad>"] for rest in rests]
    for table, name in zip(tables, ("vocab.json", "target_vocab.json"), strict=True):
        if name == "vocab.json" or not request.param:
            (folder / name).write_text(json.dumps({piece: number for number, piece in enumerate(table)}))
    about = {"source_lang": "eng", "target_lang": "deu", "separate_vocabs": not request.param}
    (folder / "tokenizer_config.json").write_text(json.dumps(about | {"tokenizer_class": "MarianTokenizer"}))
    torch.manual_seed(1)
    pad = len(tables[1]) - 1
    model = MarianMTModel(
        MarianConfig(
            vocab_size=len(tables[0]), decoder_vocab_size=len(tables[1]), d_model=16, encoder_layers=2,
            decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=24,
            decoder_ffn_dim=24, pad_token_id=pad, eos_token_id=0,
            decoder_start_token_id=pad, forced_eos_token_id=None, max_position_embeddings=64, scale_embedding=True,
            activation_function="swish", share_encoder_decoder_embeddings=request.param, dropout=0.1,
        )
    )  # fmt: skip
    for name, weight in model.named_parameters():
        if "norm" not in name:
            torch.nn.init.normal_(weight, 0.0, 1.2 if "shared" in name or "embed" in name else 0.3)
    model.generation_config = GenerationConfig(
        num_beams=4, max_length=30, bad_words_ids=[[pad]], pad_token_id=pad, eos_token_id=0,
        decoder_start_token_id=pad, forced_eos_token_id=None,
    )  # fmt: skip
    model.save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_marian_says_the_same(opus, tmp_path):
    from transformers import AutoTokenizer, MarianMTModel

    bundle = import_model(opus, tmp_path / "model")
    ours, theirs = heedful.load(bundle.folder), MarianMTModel.from_pretrained(opus).eval()
    tokenizer = AutoTokenizer.from_pretrained(opus)
    order = {side: bundle.tokenizer(side).order for side in ("source", "target")}
    rows = []
    for text in (*ENGLISH, "the xylophone", "two red cats see my house"):
        numbers = tokenizer(text).input_ids
        ids = ours.source.encode([text])[0]
        assert [order["source"][number] for number in numbers] == [*ids, EOS]
        rows.append(ids)
        inputs = torch.tensor([numbers])
        found = theirs.generate(inputs, max_new_tokens=20)[0].tolist()
        said = [order["target"][number] for number in found[1:]]
        said = tuple(said[: said.index(EOS)] if EOS in said else said)
        answer = ours.engine.translate([EncodedSource((*ids, EOS), 20)], SearchOptions(beam=4))[0][0].hypothesis
        assert answer.tokens == said
        text_there = tokenizer.decode(found, skip_special_tokens=True).replace(">>deu<<", "")
        assert ours.target.decode([said])[0].replace("\u2047", " ").split() == text_there.split()
        with torch.inference_mode():
            logits = theirs(input_ids=inputs, decoder_input_ids=torch.tensor([found])).logits[0]
            model = ours.engine.model
            memory = model.encoder(torch.tensor([[*ids, EOS]]), torch.ones(1, len(ids) + 1, dtype=torch.bool))
            tokens = torch.tensor([[order["target"][number] for number in found]])
            mine = model.decoder.project(model.decoder(tokens, model.decoder.start(memory))[0].states)[0]
        torch.testing.assert_close(mine[:, list(order["target"])], logits, atol=1e-4, rtol=0)
    assert (bundle.description.source, bundle.description.target) == ("eng", "deu")


def test_a_start_that_is_the_end_becomes_a_token_of_its_own(opus, tmp_path):
    """As BART has it. It translates the same, and there is no way back to their one list."""
    from transformers import MarianMTModel

    shutil.copytree(opus, tmp_path / "theirs")
    for name in ("config.json", "generation_config.json"):
        tree = json.loads((opus / name).read_text()) | {"decoder_start_token_id": 0}
        (tmp_path / "theirs" / name).write_text(json.dumps(tree))
    bundle = import_model(tmp_path / "theirs", tmp_path / "model")
    ours, theirs = heedful.load(bundle.folder), MarianMTModel.from_pretrained(tmp_path / "theirs").eval()
    orders = [bundle.tokenizer(side).order for side in ("source", "target")]
    for text in ENGLISH:
        ids = ours.source.encode([text])[0]
        numbers = torch.tensor([[orders[0].index(one) for one in (*ids, EOS)]])
        found = [orders[1][number] for number in theirs.generate(numbers, max_new_tokens=20)[0].tolist()[1:]]
        answer = ours.engine.translate([EncodedSource((*ids, EOS), 20)], SearchOptions(beam=4))[0][0].hypothesis
        assert answer.tokens == tuple(found[: found.index(EOS)] if EOS in found else found)
    with pytest.raises(HeedfulError, match="one token for start and end"):
        to_marian.write(bundle, tmp_path / "out")


def test_there_and_back_is_the_same_to_the_bit(opus, tmp_path):
    bundle = import_model(opus, tmp_path / "model")
    to_marian.write(bundle, tmp_path / "again")
    before, after = load_file(opus / "model.safetensors"), load_file(tmp_path / "again" / "model.safetensors")
    assert before.keys() == after.keys()
    for name, array in before.items():
        assert array.tobytes() == after[name].tobytes(), name
    for name in ("vocab.json", "target_vocab.json"):
        if (opus / name).is_file():
            assert json.loads((opus / name).read_text()) == json.loads((tmp_path / "again" / name).read_text())
    for name in ("source.spm", "target.spm"):
        assert (opus / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    once, twice = (json.loads((one / "config.json").read_text()) for one in (opus, tmp_path / "again"))
    for key in once.keys() & twice.keys() - {"transformers_version", "activation_function", "dropout", "bos_token_id"}:
        assert once[key] == twice[key], key


def test_an_import_is_exported_with_a_proof(opus, tmp_path):
    bundle = import_model(opus, tmp_path / "model")
    for to in ("ctranslate2", "hugging_face"):
        proof = heedful.export(bundle.folder, tmp_path / to, to=to, probes=ENGLISH)
        assert proof.same == len(ENGLISH)


@pytest.mark.slow
def test_an_import_is_fine_tuned(opus, tmp_path):
    """200 steps on a handful of pairs: it learns them, and the result is exported again."""
    import_model(opus, tmp_path / "start")
    corpus = write_corpus(tmp_path, pairs=120)
    chosen = settings_of(corpus, tmp_path / "run", steps=200)
    chosen = chosen.model_copy(update={"init_from": str(tmp_path / "start"), "model": None})
    model = train(chosen)
    events = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [one["loss"] for one in events if one["event"] == "stepped"]
    assert losses[-1] < losses[0]
    tuned = heedful.load(model)
    assert isinstance(tuned.source, BorrowedTokenizer)
    proof = heedful.export(model, tmp_path / "out", to="hugging_face")
    assert proof.same + proof.ties == proof.sentences


def test_misuse_of_start_is_answered(opus, tmp_path):
    import_model(opus, tmp_path / "start", languages=("de", "en"))
    corpus = write_corpus(tmp_path, pairs=20)
    chosen = settings_of(corpus, tmp_path / "run", steps=2)
    with pytest.raises(ConfigError, match="is in the other direction"):
        train(chosen.model_copy(update={"init_from": str(tmp_path / "start"), "model": None}))
    import_model(opus, tmp_path / "start")
    corpus = write_corpus(tmp_path, pairs=20)
    chosen = settings_of(corpus, tmp_path / "run", steps=2).model_copy(update={"init_from": str(tmp_path / "start")})
    with pytest.raises(ConfigError, match="already defines the"):
        train(chosen)
    made(tmp_path / "endless", source_ends=False)
    with pytest.raises(ConfigError, match="reads sources without an end token, but heedful trains with one"):
        train(chosen.model_copy(update={"init_from": str(tmp_path / "endless"), "model": None}))


def test_every_dropout_may_differ_from_that_of_the_start(opus, tmp_path):
    start = import_model(opus, tmp_path / "start").model
    tree = start.model_dump()
    for part in (tree, tree["encoder"], tree["decoder"]):
        part.update({key: 0.25 for key in part if "dropout" in key})
    chosen = settings_of(write_corpus(tmp_path, pairs=20), tmp_path / "run", steps=2)
    found = apply_finetuning_defaults(
        chosen.model_copy(update={"init_from": str(tmp_path / "start"), "model": ModelSettings.model_validate(tree)})
    )
    assert (
        found.model.decoder.feedforward_dropout
        == found.model.encoder.feedforward_dropout
        == found.model.dropout
        == 0.25
    )


# ----------------------------------------------------------------------------------------------- models of the world


def table(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.slow
@real
def test_the_real_transformer_says_all_1590_names(tmp_path):
    """Two names begin or end with invisible marks, which `heedful translate` leaves out: here they are kept."""
    bundle = import_model(AREN, tmp_path / "model", languages=("ar", "en"))
    translator = heedful.load(bundle.folder)
    rows = table(AREN / "expected-ar2en-test.tsv")
    assert len(rows) == 1590
    ids = translator.source.encode([row["source"] for row in rows])
    questions = [EncodedSource(tuple(one), 2 * len(one) + 10) for one in ids]
    for name, beam in (("beam4", 4), ("greedy", 1)):
        answers = translator.translate_sources(questions, SearchOptions(beam=beam, stopping="ctranslate2"))
        said = [some[0].hypothesis for some in answers]
        assert translator.target.decode([one.tokens for one in said]) == [row[name] for row in rows]
        apart = [
            abs(float(row[f"{name}_score"]) - one.log_probability / (len(one.tokens) + 1))
            for row, one in zip(rows, said, strict=True)
        ]
        # The engine forbids an empty answer before it normalizes: of a single letter, that is some probability.
        assert sorted(apart)[-2] < 1e-3
        assert max(apart) < 1e-2
    weights = read_weights(bundle)
    with np.load(AREN / "weights.npz") as file:
        for name in ("query", "memory", "out"):
            place = {"query": 0, "memory": 1, "out": 2}[name]
            theirs = file[f"decoder/layer_3/attention/linear_{place}/weight"]
            np.testing.assert_array_equal(weights[f"decoder.layers.3.cross.{name}.weight"], theirs)


@real
def test_the_real_gru_says_all_1000_words(tmp_path):
    translator = heedful.load(import_model(G2P, tmp_path / "model").folder)
    rows = table(G2P / "expected-1000.tsv")
    assert len(rows) == 1000
    found = translator([row["word"] for row in rows])
    assert [one.text for one in found] == [row["greedy"] for row in rows]


@real
def test_the_command_imports_and_inspects(tmp_path):
    run = CliRunner().invoke(app, ["import", str(AREN), "--out", str(tmp_path / "model")])
    assert isinstance(run.exception, ConfigError)
    assert "--pair" in str(run.exception)
    run = CliRunner().invoke(app, ["import", str(AREN), "--out", str(tmp_path / "model"), "--pair", "ar-en"])
    assert run.exit_code == 0, run.output
    assert "215,499 weights" in run.output  # 182,731, and two tables of positions
    page = tmp_path / "page.html"
    run = CliRunner().invoke(app, ["inspect", str(tmp_path / "model"), "آرثر", "--out", str(page)])
    assert run.exit_code == 0, run.output
    assert page.stat().st_size > 50_000


@pytest.mark.parametrize("quantization", to_ctranslate2.QUANTIZATIONS)
def test_what_ctranslate2_was_given_is_read_back(quantization, opus, tmp_path):
    """Every quantization: weights come back as coarse as they were made; with float32, to the bit."""
    bundle = import_model(opus, tmp_path / "model")
    to_ctranslate2.write(bundle, tmp_path / "out", quantization)
    arrays = ctranslate2.read_variables(tmp_path / "out" / "model.bin")
    weights = read_weights(bundle)
    for ours, theirs in (
        ("encoder.layers.1.feed_forward.up.weight", "encoder/layer_1/ffn/linear_0/weight"),
        ("decoder.plain_projection.weight", "decoder/projection/weight"),
        ("decoder.layers.0.cross.memory.weight", "decoder/layer_0/attention/linear_1/weight"),
    ):
        scale = np.abs(weights[ours]).max()
        np.testing.assert_allclose(arrays[theirs], weights[ours], atol=0 if quantization == "float32" else scale / 100)


@pytest.fixture(scope="module")
def spec_of(tmp_path_factory):
    """A random post-norm Transformer as CTranslate2's specification, and a folder to write it to."""
    bundle = bundle_of(tmp_path_factory.mktemp("spec") / "model", model(norm="post", tied="none", bias=True))

    def make(folder, change):
        spec = to_ctranslate2.build_spec(bundle.model, dict(read_weights(bundle)))
        for side in ("source", "target"):
            tokenizer = bundle.tokenizer(side)
            register = spec.register_source_vocabulary if side == "source" else spec.register_target_vocabulary
            register(tokenizer.pieces(range(tokenizer.size)))
            (folder / f"{side}.spm").write_bytes(tokenizer.model)
        spec.config.add_source_eos = True
        spec.config.decoder_start_token = "<s>"
        change(spec)
        spec.validate()
        spec.optimize()
        spec.save(str(folder))
        return folder

    return make


def set_start(spec):
    spec.config.decoder_start_token = "</s>"


def set_zero(spec):
    spec.decoder.start_from_zero_embedding = True


def set_scale(spec):
    spec.decoder.scale_embeddings = False


def set_bos(spec):
    spec.config.add_source_bos = True


@pytest.mark.parametrize("change", [lambda _spec: None, set_start, set_zero], ids=["plain", "start", "zero"])
def test_ctranslate2s_ways_to_start_are_understood(change, spec_of, tmp_path):
    import ctranslate2 as engine

    folder = spec_of(tmp_path, change)
    bundle = import_model(folder, tmp_path / "model", languages=("en", "de"))
    ours, theirs = heedful.load(bundle.folder), engine.Translator(str(folder))
    for text in TEXTS[:4]:
        ids = ours.source.encode([text])[0]
        (found,) = theirs.translate_batch([ours.source.pieces(ids)], beam_size=1, max_decoding_length=20)
        (answer,) = ours.engine.translate([EncodedSource((*ids, EOS), 20)], SearchOptions(beam=1))[0]
        assert ours.target.pieces(answer.hypothesis.tokens) == found.hypotheses[0]


def test_what_a_model_bin_has_beyond_what_is_known_is_refused(spec_of, tmp_path, monkeypatch):
    folder, honest = spec_of(tmp_path, lambda _spec: None), ctranslate2.read_variables
    more = {"decoder/layernorm_embedding/gamma": np.ones(16, np.float32)}
    monkeypatch.setattr(ctranslate2, "read_variables", lambda path: honest(path) | more)
    with pytest.raises(HeedfulError, match="another kind"):
        import_model(folder, tmp_path / "model", languages=("en", "de"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda arrays: arrays.pop("decoder/embeddings/weight"), "no embeddings for its decoder"),
        (
            lambda arrays: [arrays.pop(name) for name in list(arrays) if name.startswith("encoder/layer_0")],
            "no layers for its encoder",
        ),
        (
            lambda arrays: arrays.update({"encoder/activation": np.array(77)}),
            "does not support activation 77 of CTranslate2",
        ),
        (
            lambda arrays: arrays.pop("decoder/layer_0/ffn/linear_1/weight"),
            r"has no .*linear_1.*: heedful does not support such a model",
        ),
    ],
)
def test_what_a_model_bin_lacks_is_named(change, says, spec_of, tmp_path, monkeypatch):
    folder, honest = spec_of(tmp_path, lambda _spec: None), ctranslate2.read_variables

    def changed(path):
        arrays = dict(honest(path))
        change(arrays)
        return arrays

    monkeypatch.setattr(ctranslate2, "read_variables", changed)
    with pytest.raises(HeedfulError, match=says):
        import_model(folder, tmp_path / "model", languages=("en", "de"))


def test_vocabularies_that_are_not_there_or_do_not_fit(tmp_path):
    with pytest.raises(HeedfulError, match="has no vocabulary for its source"):
        ctranslate2.read_vocabulary(tmp_path, "source", 3)
    (tmp_path / "source_vocabulary.txt").write_text("a\nb\n")
    with pytest.raises(HeedfulError, match="source_vocabulary has 2 different pieces, but the model has 9"):
        ctranslate2.read_vocabulary(tmp_path, "source", 9)
    with pytest.raises(HeedfulError, match="the vocabulary has no </s>"):
        renumber_pieces(["<unk>"], (None, "<unk>", None, "</s>"), tmp_path)
    with pytest.raises(HeedfulError, match=r"the SentencePiece model is missing: copy it to .*sentencepiece\.model"):
        ctranslate2.make_tokenizer(tmp_path, "source", ["<pad>", "<unk>", "<s>", "</s>", "\u2581dog"], range(5))


@pytest.mark.parametrize(
    ("change", "says"), [(set_scale, "one side only"), (set_bos, "start token before every source")]
)
def test_what_ctranslate2_can_and_heedful_cannot_is_refused(change, says, spec_of, tmp_path):
    with pytest.raises(HeedfulError, match=says):
        import_model(spec_of(tmp_path, change), tmp_path / "model", languages=("en", "de"))


def test_a_long_line_is_cut_for_a_model_that_knows_no_statistics(opus, tmp_path):
    translator = heedful.load(import_model(opus, tmp_path / "model").folder)
    assert translator.max_source_tokens + len(translator.source_end) < translator.max_tokens
    assert translator(" ".join(["the old man sees a red house."] * 40)).text


def test_a_tag_in_front_of_a_line_is_a_tag(opus, tmp_path):
    source = import_model(opus, tmp_path / "model").tokenizer("source")
    plain, tagged, other = source.encode(["a child", ">>deu<< a child", ">>fra<< a child"])
    if ">>deu<<" in source.vocabulary:
        assert tagged == [source.tag_id(">>deu<<"), *plain]
    assert other[-len(plain) :] == plain


# ------------------------------------------------------------------------------------------------------ bad folders


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_model_bin_is_refused_in_words(data):
    if not AREN.is_dir():
        pytest.skip(f"{DATA} has no pretrained models; set HEEDFUL_DATA")
    whole = (AREN / "model.bin").read_bytes()
    bad = bytearray(whole[: data.draw(st.integers(0, 3000))])
    for _ in range(data.draw(st.integers(0, 4))):
        if bad:
            bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.bin"
        path.write_bytes(bad)
        with pytest.raises(HeedfulError):
            ctranslate2.read_variables(path)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (struct.pack("<I", 7), "has CTranslate2 format 7; heedful reads formats 2 to 6"),
        (struct.pack("<IH4sI", 6, 4, b"BERT", 1), "is a 'BERT'; heedful imports encoder-decoder Transformers"),
    ],
)
def test_another_kind_of_model_bin_is_named(data, says, tmp_path):
    (tmp_path / "model.bin").write_bytes(data)
    with pytest.raises(HeedfulError, match=says):
        ctranslate2.read_variables(tmp_path / "model.bin")


def test_two_vocabularies_need_two_lists(opus, tmp_path):
    if not (opus / "target_vocab.json").is_file():
        return  # this one has one vocabulary
    shutil.copytree(opus, tmp_path / "theirs")
    (tmp_path / "theirs" / "target_vocab.json").unlink()
    with pytest.raises(HeedfulError, match=r"has two embedding tables but no target_vocab\.json"):
        import_model(tmp_path / "theirs", tmp_path / "model")


def test_a_zip_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(g2p, "MAX_FILE_BYTES", 10)
    (tmp_path / g2p.SOURCE).write_text("<pad>\n<unk>\n</s>\na\n")
    (tmp_path / g2p.TARGET).write_text("\n".join(g2p.SPECIAL) + "\nA\n")
    with ZipFile(tmp_path / g2p.WEIGHTS, "w") as archive:
        archive.writestr("enc_emb.npy", b"0" * 11)
    with pytest.raises(HeedfulError, match="contains more than 10 bytes"):
        g2p.read_model(tmp_path)


def link(path, target):
    path.unlink()
    path.symlink_to(target)


def spoiled(folder):
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["model.encoder.layers.0.fc1.bias"][3] = np.nan
    save_file(weights, path, {"format": "pt"})


def test_what_is_missing_is_named(opus, tmp_path):
    def broken(change):
        folder = tmp_path / "broken"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(opus, folder)
        change(folder)
        return folder

    def tree(name, **changes):
        def change(folder):
            found = json.loads((folder / name).read_text())
            (folder / name).write_text(json.dumps(found | changes))

        return change

    for change, says in (
        (lambda folder: (folder / "model.safetensors").unlink(), "can run code when opened.*save_pretrained"),
        (lambda folder: (folder / "source.spm").unlink(), "is missing"),
        (lambda folder: (folder / "source.spm").write_bytes(b"x"), "not a SentencePiece model"),
        (lambda folder: (folder / "vocab.json").write_text("{"), "not JSON"),
        (tree("vocab.json", new=7), "every piece to a different id"),
        (tree("config.json", encoder_layers=3), "which config.json requires"),
        (tree("config.json", encoder_layers="3"), "not a number"),
        (tree("config.json", activation_function="mish"), "does not support activation `mish`, only"),
        (tree("config.json", eos_token_id=10**6), "special tokens that are not in vocab.json"),
        (tree("config.json", normalize_embedding=True), "extra LayerNorms"),
        (tree("config.json", model_type="bert"), "has no model"),
        (tree("config.json", model_type=[]), "cannot be imported"),
        (tree("config.json", encoder_attention_heads=3), "not a multiple"),
        (tree("config.json", encoder_ffn_dim=23), "has shape"),
        (tree("generation_config.json", num_beams=[1], length_penalty=1e999, max_length=None), None),
        (tree("vocab.json", the=None), "every piece to a different id"),
        (tree("tokenizer_config.json", source_lang="cat+oci"), "does not state its two languages.*--pair"),
        (tree("tokenizer_config.json", source_lang=["en"]), "--pair"),
        (lambda folder: (folder / "source.spm").write_bytes(b""), "it is empty"),
        (lambda folder: link(folder / "vocab.json", "/dev/zero"), "not a file"),
        (
            lambda folder: (folder / "model.safetensors.index.json").write_text("{}"),
            "weights in several files: save them as one",
        ),
        (spoiled, "NaN or infinite"),
    ):
        if says is None:
            import_model(broken(change), tmp_path / "harmless")
            continue
        with pytest.raises(HeedfulError, match=says):
            import_model(broken(change), tmp_path / "model")
    with pytest.raises(ConfigError, match="is not a directory"):
        import_model(tmp_path / "nowhere", tmp_path / "model")


def test_a_borrowed_tokenizer_is_saved_and_loaded(opus, tmp_path):
    made = import_model(opus, tmp_path / "model").tokenizer("target")
    made.save(tmp_path / "copy")
    again = load(tmp_path / "copy")
    assert (again.vocabulary, again.order, again.model) == (made.vocabulary, made.order, made.model)
    assert again.encode(GERMAN) == made.encode(GERMAN)
    assert made.decode(made.encode(GERMAN)) == GERMAN
    assert UNK in made.encode(["東"])[0]
    assert made.decode([[BOS, EOS]]) == [""]
    with pytest.raises(HeedfulError, match="regularization"):
        made.sample(GERMAN, 0.1, 1)
    with pytest.raises(HeedfulError, match="not a tag"):
        made.tag_id("<2de>")
    if ">>deu<<" in made.vocabulary:
        assert made.pieces([made.tag_id(">>deu<<")]) == [">>deu<<"]
    with pytest.raises(HeedfulError, match="lists a piece twice, or one that does not exist"):
        BorrowedTokenizer(made.model, made.vocabulary, [5, 5])

"""A model directory: what goes in comes out, whole or refused in words, however damaged, whenever killed."""

import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch

from heedful import config, samples
from heedful.build import build
from heedful.bundle import (
    FORMAT_VERSION,
    Bundle,
    GenerationSettings,
    model_card,
    open_bundle,
    read_weights,
    sibling,
    write_bundle,
)
from heedful.bundle.format import (
    CARD_FILE,
    CONFIG_FILE,
    GENERATION_FILE,
    MAX_PARSED_BYTES,
    OUTPUT_WEIGHT,
    REQUIRED_FILES,
    SCORES_FILE,
    STATISTICS_FILE,
    TARGET_TABLE,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
    dump_json,
)
from heedful.bundle.verify import min_parameters
from heedful.config import RENAMED_KEYS
from heedful.data.store import MANIFEST, SIDES
from heedful.errors import HeedfulError
from heedful.search.stopping import LENGTH_RULES
from heedful.text.tokenizer import TOKENIZERS, BorrowedTokenizer, train

TEXTS = ["the old man sees a house", "tom paints two dogs", "my sister has lost the answer", "über die straße"] * 3
TRANSFORMER = {"kind": "transformer", "layers": 2, "heads": 2, "feedforward_size": 16}
ENCODERS = [TRANSFORMER, {"kind": "recurrent", "width": 12, "layers": 2}, {"kind": "bottleneck", "width": 6}]
DECODERS = [
    TRANSFORMER | {"combine": "average"},
    {"kind": "recurrent", "width": 10},
    {"kind": "recurrent", "width": 10, "cell": "rnn", "attention": {"score": "dot", "heads": 2, "combine": "average"}},
    {"kind": "recurrent", "width": 10, "layers": 2, "attention": {"score": "additive"}},
]
MODEL = config.ModelSettings.model_validate({"width": 8, "encoder": TRANSFORMER, "decoder": TRANSFORMER})
MADE = {kind: train(kind, TEXTS, 300, tags=["<2de>"]) for kind in TOKENIZERS}
SCORED = {"test": {"bleu": {"value": 41.234, "signature": "nrefs:1|case:mixed|version:2.6.0"}}}


def arrays(model: config.ModelSettings, source: int, target: int, seed: int = 1) -> dict[str, np.ndarray]:
    torch.manual_seed(seed)
    return {name: tensor.numpy() for name, tensor in build(model, source, target).state_dict().items()}


def made(folder: Path, kind: str = "bpe", model: config.ModelSettings = MODEL, seed: int = 1, **changes):
    tokenizers = {"source": MADE[kind], "target": MADE[kind]}
    given = {
        "model": model,
        "weights": arrays(model, MADE[kind].size, MADE[kind].size, seed),
        "tokenizers": tokenizers,
        "languages": ("en", "de"),
        "tags": ["<2de>"],
        "generation": GenerationSettings(beam=4, max_length=99),
        "statistics": {"lengths": {"source": {"mean": 12.5, "longest": 30}}, "scripts": {"source": {"LATIN": 1.0}}},
        "scores": SCORED,
        "card": "# A model\n",
    }
    return write_bundle(folder, **(given | changes))


def forge(folder: Path, version: int = FORMAT_VERSION, **files: bytes) -> None:
    """Change files as an attacker would, who gives every file the size and the hash it needs."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    entries = {
        path.name: {"size": path.stat().st_size, "sha256": sha256(path.read_bytes()).hexdigest()}
        for path in sorted(folder.iterdir())
        if path.name != MANIFEST
    }
    (folder / MANIFEST).write_bytes(dump_json({"format_version": version, "files": entries}))


def edited(folder: Path, name: str, change) -> bytes:
    tree = json.loads((folder / name).read_bytes())
    change(tree)
    return dump_json(tree)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "model"
    made(folder)
    return folder


@pytest.fixture
def copied(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "model"))


# ----------------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_what_goes_in_comes_out(kind, tmp_path):
    written = made(tmp_path / "run" / "model", kind)
    ending = "spm" if kind in ("bpe", "unigram") else "vocabulary.json"
    assert {path.name for path in written.folder.iterdir()} == REQUIRED_FILES | {
        f"{side}.{ending}" for side in SIDES
    } | {MANIFEST}
    assert [path.name for path in written.folder.parent.iterdir()] == ["model"]
    for place in (tmp_path / "run" / "model", str(tmp_path / "run")):
        bundle = open_bundle(place)
        assert (bundle.folder, bundle.description, bundle.model) == (written.folder, written.description, MODEL)
        assert (bundle.statistics["lengths"]["source"]["mean"], bundle.scores) == (12.5, SCORED)
        assert bundle.generation == GenerationSettings(beam=4, max_length=99)
        for side in SIDES:
            assert bundle.tokenizer(side).encode(TEXTS) == MADE[kind].encode(TEXTS)
    described = json.loads((written.folder / CONFIG_FILE).read_bytes())
    assert described["vocabulary"] == {"source": MADE[kind].size, "target": MADE[kind].size}
    assert described["tokens"] == {"pad": 0, "unk": 1, "bos": 2, "eos": 3}
    assert (described["tokenizer"], described["files"]["target"]) == (kind, f"target.{ending}")
    vocabulary = json.loads((written.folder / VOCABULARY_FILE).read_bytes())
    assert MADE[kind].pieces(list(vocabulary["source"].values())) == list(vocabulary["source"])


def test_two_vocabularies_and_two_kinds_of_numbers(tmp_path):
    tokenizers = {"source": train("words", TEXTS, 18), "target": train("words", TEXTS, 20)}
    for dtype in (np.float16, np.float64):
        weights = {name: array.astype(dtype) for name, array in arrays(MODEL, 18, 20).items()}
        bundle = made(tmp_path / "model", tokenizers=tokenizers, weights=weights, tags=())
        assert [bundle.tokenizer(side).size for side in SIDES] == [18, 20]
        assert all(np.array_equal(array, weights[name]) for name, array in read_weights(bundle).items())


def test_the_same_model_is_the_same_bytes(tmp_path, whole):
    made(tmp_path / "again")
    assert (tmp_path / "again" / MANIFEST).read_bytes() == (whole / MANIFEST).read_bytes()


@pytest.mark.parametrize("tied", ["all", "target", "none"])
@pytest.mark.parametrize(("encoder", "decoder"), list(itertools.product(ENCODERS, DECODERS)))
def test_weights_load_into_the_model_that_is_built(encoder, decoder, tied, tmp_path):
    model = config.ModelSettings.model_validate(
        {"width": 8, "positions": "learned", "max_positions": 9, "output_bias": True, "tie_embeddings": tied}
        | {"encoder": encoder, "decoder": decoder}
    )
    bundle = open_bundle(made(tmp_path / "model", "words", model).folder)
    size = bundle.description.vocabulary["target"]
    torch.manual_seed(7)
    built = build(bundle.model, bundle.description.vocabulary["source"], size)
    built.load_state_dict({name: torch.from_numpy(array) for name, array in read_weights(bundle).items()})
    expected = arrays(model, size, size)
    assert all(np.array_equal(tensor.numpy(), expected[name]) for name, tensor in built.state_dict().items())
    count = sum(weight.numel() for weight in built.parameters())
    assert bundle.description.parameters == count > min_parameters(model, config.TextInputSettings()) > count / 10


def test_weights_need_not_lie_in_one_piece_and_a_tied_table_goes_by_any_of_its_names(tmp_path):
    model = MODEL.model_copy(update={"tie_embeddings": "all"})
    whole = arrays(model, 300, 300)
    for only in ("encoder.embed.table.weight", TARGET_TABLE, OUTPUT_WEIGHT):
        weights = {name: array for name, array in whole.items() if array.shape != (300, 8)}
        weights[only] = np.asfortranarray(whole[only])
        read = read_weights(made(tmp_path / "model", model=model, weights=weights))
        assert read.keys() == whole.keys()
        assert all(np.array_equal(read[name], array) for name, array in whole.items())


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_who_may_read_one_file_may_read_the_weights(whole):
    assert (whole / WEIGHTS_FILE).stat().st_mode == (whole / CONFIG_FILE).stat().st_mode


WITHOUT_TORCH = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "polars", "ray"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
import numpy as np
from heedful import config
from heedful.bundle import open_bundle, read_weights, write_bundle
from heedful.text.tokenizer import train
part = {"kind": "transformer", "layers": 1, "heads": 1, "feedforward_size": 4}
model = config.ModelSettings.model_validate({"width": 4, "tie_embeddings": "all", "encoder": part, "decoder": part})
tokenizer = train("bpe", ["ein haus"] * 9, 280)
weights = {"decoder.embed.table.weight": np.ones((tokenizer.size, 4), np.float32), "rest": np.ones(99, np.float32)}
sides = {"source": tokenizer, "target": tokenizer}
write_bundle(sys.argv[1], model=model, weights=weights, tokenizers=sides, languages=("de", "en"), card="")
bundle = open_bundle(sys.argv[1])
print(sorted(read_weights(bundle)), bundle.tokenizer("target").decode([[4, 5]]), "torch" in sys.modules)
"""


def python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_it_is_written_and_verified_without_torch(tmp_path):
    run = python(WITHOUT_TORCH, tmp_path / "model")
    assert run.returncode == 0, run.stderr
    assert "encoder.embed.table.weight" in run.stdout
    assert "False" in run.stdout


# ---------------------------------------------------------------------------------------------------------- damage


def test_no_byte_of_any_file_can_change_unseen(copied):
    draw = random.Random(5)
    names = sorted(path.name for path in copied.iterdir())
    for name in names:
        path = copied / name
        data = path.read_bytes()
        for _ in range(300 // len(names) + 1 + 60 * (name == MANIFEST)):
            damaged = bytearray(data)
            damaged[draw.randrange(len(data))] ^= draw.randrange(1, 256)
            path.write_bytes(damaged)
            with pytest.raises(HeedfulError, match=r"Download or copy the whole model again|pip install --upgrade"):
                open_bundle(copied)
        for length in {0, 1, len(data) - 1, *draw.sample(range(len(data)), 3)}:
            path.write_bytes(data[:length])
            with pytest.raises(HeedfulError, match=name):
                open_bundle(copied)
        path.write_bytes(data + b" ")
        with pytest.raises(HeedfulError, match=name):
            open_bundle(copied)
        path.unlink()
        with pytest.raises(HeedfulError, match=f"{name}: is missing|there is no model"):
            open_bundle(copied)
        path.write_bytes(data)
    assert open_bundle(copied).folder == copied


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tree: tree["files"].pop(WEIGHTS_FILE), f"does not list {WEIGHTS_FILE}"),
        (lambda tree: tree["files"].pop("source.spm"), "does not list the tokenizers"),
        (lambda tree: tree["files"].update({"../model/x": tree["files"][CARD_FILE]}), "should match pattern"),
        (lambda tree: tree["files"].update({"/etc/passwd": tree["files"][CARD_FILE]}), "should match pattern"),
        (lambda tree: tree["files"].update({"..\\x": tree["files"][CARD_FILE]}), "should match pattern"),
        (lambda tree: tree["files"].update({"x\n": tree["files"][CARD_FILE]}), "should match pattern"),
        (lambda tree: tree["files"].update({f"x{n}": tree["files"][CARD_FILE] for n in range(99)}), "at most 16"),
        (lambda tree: tree["files"][CARD_FILE].update(size=-1), r"has [\d,]+ bytes, but should have -1"),
        (lambda tree: tree["files"][CARD_FILE].pop("sha256"), "sha256': Field required"),
        (lambda tree: tree.update(format_version=3), r"newer heedful: it has format 3; .* pip install --upgrade heed"),
        (lambda tree: tree.update(format_version=0), "should be 1 or 2"),
        (lambda tree: tree.update(more=1), "'more': Extra inputs"),
    ],
)
def test_a_manifest_that_lies(change, says, copied):
    (copied / MANIFEST).write_bytes(edited(copied, MANIFEST, change))
    with pytest.raises(HeedfulError, match=says):
        open_bundle(copied)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"format_version": NaN}', "NaN is not a valid JSON number"),
        (b'{"files": {}, "files": {}}', "twice"),
        (b'{"a":' * 100_000, "is not JSON"),
        (b"\xff{}", "is not JSON"),
        (b'{"format_version": "\\ud800"}', "is not JSON"),
        (b'{"format_version": 1' + b"0" * 5000 + b"}", "is not JSON"),
        (b" " * (MAX_PARSED_BYTES + 1), "is larger than"),
    ],
)
def test_what_is_not_a_manifest(data, says, copied):
    (copied / MANIFEST).write_bytes(data)
    with pytest.raises(HeedfulError, match=says):
        open_bundle(copied)


def test_a_manifest_has_one_form(copied):
    (copied / MANIFEST).write_bytes((copied / MANIFEST).read_bytes() + b"\n")
    with pytest.raises(HeedfulError, match="was changed after heedful wrote it"):
        open_bundle(copied)


@pytest.mark.parametrize("name", [MANIFEST, CONFIG_FILE, WEIGHTS_FILE, "source.spm", CARD_FILE])
def test_links_stay_inside(name, copied, tmp_path):
    (copied / name).rename(tmp_path / "outside")
    try:
        (copied / name).symlink_to(tmp_path / "outside")
    except OSError:
        pytest.skip("this system makes no links")
    with pytest.raises(HeedfulError, match=f"{name}: is a link to a file outside"):
        open_bundle(copied)
    (copied / name).unlink()
    (tmp_path / "outside").rename(copied / "inside")
    (copied / name).symlink_to(copied / "inside")
    assert open_bundle(copied).folder == copied
    (tmp_path / "elsewhere").symlink_to(copied)  # whoever names a link means where it leads
    assert open_bundle(tmp_path / "elsewhere").folder == copied


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes among its files")
def test_a_pipe_is_not_waited_for(copied):
    (copied / CARD_FILE).unlink()
    os.mkfifo(copied / CARD_FILE)
    with pytest.raises(HeedfulError, match="is missing or not a file"):
        open_bundle(copied)


# --------------------------------------------------------------------------------------- hostile, with right hashes


def set_model(**changes):
    return lambda tree: tree["model"].update(changes)


def set_part(part, **changes):
    return lambda tree: tree["model"][part].update(changes)


AVERAGED = {"score": "dot", "heads": 10**6, "combine": "average"}


def read_nothing(tree):
    tree["input"] = {"kind": "none"}
    for key in ("vocabulary", "files"):
        tree[key].pop("source")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tree: tree.update(format_version=7), "newer heedful: it has format 7"),
        (lambda tree: tree.update(more=1), "config.json: 'more': Extra inputs"),
        (set_model(witdh=8), "'model.witdh': Extra inputs"),
        (set_part("encoder", layerz=8), "'model.encoder.transformer.layerz': Extra inputs"),
        (set_part("decoder", kind="pickle"), "'model.decoder': Input tag"),
        (lambda tree: tree.pop("model"), "'model': Field required"),
        (lambda tree: tree["vocabulary"].pop("source"), "must have the keys source, target"),
        (read_nothing, "the encoder reads text, but the input is none"),
        (lambda tree: tree.update(source="en\nlicense: mine"), "'source': String should match"),
        (lambda tree: tree.update(dtype="object"), "'dtype': Input should be"),
        (lambda tree: tree.update(dtype="float16"), "is 'F32', but config.json says float16"),
        (
            lambda tree: tree.update(parameters=10**30),
            f"{WEIGHTS_FILE}: has [\\d,]+ numbers, but config.json says 1,000",
        ),
        (lambda tree: tree["vocabulary"].update(source=5), "encoder.embed.table.weight has shape .* says .5, 8"),
        (set_model(width=2**60), "has shape .* says .*1152921504606846976"),
        (set_model(tie_embeddings="none"), f"{OUTPUT_WEIGHT} has shape None"),
        (set_part("encoder", layers=10**9), "far more weights than"),
        (set_part("decoder", feedforward_size=2**40), "far more weights than"),
        (set_part("decoder", heads=2**40, combine="average"), "far more weights than"),
        (set_model(encoder={"kind": "recurrent", "width": 10**6}), "far more weights than"),
        (set_model(decoder={"kind": "recurrent", "width": 5, "layers": 10**6}), "far more weights than"),
        (set_model(decoder={"kind": "recurrent", "width": 5, "attention": AVERAGED}), "far more weights than"),
        (set_model(positions="sinusoidal", max_positions=2**40), "far more weights than"),
        (lambda tree: tree["tokens"].update(eos=1), "has other ids for them"),
        (
            lambda tree: tree.update(tokenizer="unigram"),
            "is a tokenizer of kind 'bpe' with 300 pieces, but the model needs unigram with 300",
        ),
        (lambda tree: tree.update(tags=["<fr>"]), "is not a tokenizer for this model .*<fr> is not a tag"),
        (lambda tree: tree.update(tags=["<s>"]), "is a special token"),
        (lambda tree: tree["files"].update(source="../other.spm"), "does not list the tokenizers"),
        (lambda tree: tree["files"].update(source=WEIGHTS_FILE), "does not list the tokenizers"),
    ],
)
def test_a_config_that_lies(change, says, copied):
    forge(copied, **{CONFIG_FILE: edited(copied, CONFIG_FILE, change)})
    with pytest.raises(HeedfulError, match=says):
        open_bundle(copied)


def header(**tensors: object) -> bytes:
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


def tensor(shape, begin, end, dtype="F32", **more):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]} | more


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "header has 0 bytes"),
        (b"\xff" * 8 + b"{}", "header has 18,446,744,073,709,551,615 bytes"),
        ((3).to_bytes(8, "little") + b"{}", "header has 3 bytes"),
        ((10_000_001).to_bytes(8, "little") + b"{}" * 6_000_000, "header has 10,000,001 bytes"),
        ((8).to_bytes(8, "little") + b'{"a":NaN', "NaN is not a valid JSON number"),
        ((15).to_bytes(8, "little") + b'{"a":{},"a":{}}', "twice"),
        (header(a=tensor([2], 0, 8)) + b"1234567", "end at byte"),
        (header(a=tensor([2], 0, 8)) + b"123456789", "end at byte"),
        (header(a=tensor([2], 0, 8), b=tensor([2], 4, 12)) + bytes(12), "b has offsets that"),
        (header(a=tensor([2], 0, 8), b=tensor([2], 12, 20)) + bytes(20), "b has offsets that"),
        (header(a=tensor([2], 8, 0)) + bytes(8), "a has offsets that"),
        (header(a=tensor([2], 4, 8)) + bytes(8), "a has offsets that"),
        (header(a=tensor([2], -8, 0)) + bytes(8), "a has offsets that"),
        (header(a=tensor([2**60], 0, 2**62)) + bytes(8), "end at byte"),
        (header(a=tensor([2**60, 2**60], 0, 0)), "a has offsets that"),
        (header(a=tensor([2**32, 2**32], 0, 0)), "a has offsets that"),  # 2^64 overflows to 0 in 64 bits
        (header(a=tensor([-2, -1], 0, 8)) + bytes(8), "greater than or equal to 0"),
        (header(a=tensor([2.0], 0, 8)) + bytes(8), "valid integer"),
        (header(a=tensor([True], 0, 4)) + bytes(4), "valid integer"),
        (header(a=tensor([1] * 99, 0, 4)) + bytes(4), "at most 8"),
        (header(a=tensor([2], 0, 8, "F8\x1b[2J")) + bytes(8), r"is 'F8\\x1b\[2J', but config.json says float32"),
        (header(a=tensor([2], 0, 8, more=1)) + bytes(8), "Extra inputs"),
        (header(**{"../a\x1b": tensor([2], 0, 8)}) + bytes(8), "should match pattern"),
        (header(__metadata__={"a": 1}), "metadata.a': Input should be a valid string"),
        (header(__metadata__={"a": "b"}), "has shape None"),
    ],
)
def test_a_header_that_lies(data, says, copied):
    forge(copied, **{WEIGHTS_FILE: data})
    with pytest.raises(HeedfulError, match=says):
        open_bundle(copied)


def table(kind="words", pieces=None, **more):
    return json.dumps(
        {"kind": kind, "pieces": list(MADE["words"].vocabulary) if pieces is None else pieces} | more
    ).encode()


WORDS = list(MADE["words"].vocabulary)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is not a tokenizer"),
        (b'{"kind"', "is not a tokenizer"),
        (b'{"kind"' + b":[" * 100_000, "is not a tokenizer"),
        (table(pieces=None).replace(b"pieces", b"pickle"), "is not a tokenizer"),
        (table(pieces=[*WORDS[:-1], 7]), "is not a tokenizer"),
        (table(pieces=[*WORDS[:-1], ["a"]]), "is not a tokenizer"),
        (table(pieces=[*WORDS[:-1], WORDS[-2]]), "pieces, but the model needs words with"),
        (table(pieces=WORDS[:-1]), "pieces, but the model needs words with"),
        (table(pieces=WORDS[::-1]), "does not start with <pad>"),
        (table("characters"), "is a tokenizer of kind 'characters' with"),
        (table("x\x1b[2J"), r"is a tokenizer of kind 'x\\x1b\[2J' with"),
        (table(pieces=[*WORDS[:-1], "other"]), "vocab.json: its pieces differ from those of the tokenizers"),
        (MADE["bpe"].model, "is a tokenizer of kind 'bpe' with"),
        (b" " * (MAX_PARSED_BYTES + 1), "is larger than"),
    ],
)
def test_a_list_of_pieces_that_lies(data, says, tmp_path):
    folder = made(tmp_path / "model", "words").folder
    forge(folder, **{"source.vocabulary.json": data})
    with pytest.raises(HeedfulError, match=says):
        open_bundle(folder)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_sentencepiece_model_that_lies_is_refused_or_harmless(kind, tmp_path):
    folder = made(tmp_path / "model", kind).folder
    draw, data, said = random.Random(kind), MADE[kind].model, []
    for _ in range(100):
        damaged = bytearray(data)
        for _ in range(draw.choice([1, 3, 20])):
            damaged[draw.randrange(len(data))] = draw.randrange(256)
        forge(folder, **{"target.spm": bytes(damaged[: draw.choice([None, -1, draw.randrange(len(data))])])})
        try:
            assert open_bundle(folder).tokenizer("target").size == MADE[kind].size  # a score of a piece was changed
        except HeedfulError as error:
            said.append(str(error))
    assert len(said) > 50
    assert all("target.spm: " in words or VOCABULARY_FILE in words for words in said)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        (GENERATION_FILE, b'{"beam": 1000000}', "'beam': Input should be less than or equal to 256"),
        (GENERATION_FILE, b'{"length_penalty": 1e999}', "'length_penalty': Input should be less"),
        (GENERATION_FILE, b'{"code": "import os"}', "'code': Extra inputs"),
        (STATISTICS_FILE, b'{"mean": Infinity}', "Infinity is not a valid JSON number"),
        (STATISTICS_FILE, b'{"lengths": {"source": {"longest": "x"}}}', "'lengths.source.longest': Input should be"),
        (STATISTICS_FILE, b'{"scripts": {"source": ["LATIN"]}}', "'scripts.source': Input should be"),
        (STATISTICS_FILE, b'{"alignment": {"step": "naive", "head": -1}}', "'alignment.head': Input should be"),
        (SCORES_FILE, b"41.2", "is not a JSON object"),
        (VOCABULARY_FILE, b"{}", "its pieces differ from those of the tokenizers"),
        (VOCABULARY_FILE, b" " * ((1 << 25) + 1), "is larger than 33,554,432 bytes"),
    ],
)
def test_other_files_that_lie(name, data, says, copied):
    forge(copied, **{name: data})
    with pytest.raises(HeedfulError, match=f"{name}: .*{says}"):
        open_bundle(copied)


def test_weights_that_change_after_they_were_verified(copied):
    bundle = open_bundle(copied)
    (copied / WEIGHTS_FILE).write_bytes(b"123")
    with pytest.raises(HeedfulError, match=f"{WEIGHTS_FILE}: changed after it was verified"):
        read_weights(bundle)


# -------------------------------------------------------------------------------------------------------- replacing

KILLED = """
import os, sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
import test_bundle
rename, count = Path.rename, 0
def dying(self, target):
    global count
    count += 1
    if count == int(sys.argv[2]):
        os._exit(9)
    return rename(self, target)
Path.rename = dying
test_bundle.shutil.rmtree = (lambda *_, **__: os._exit(9) if count == 2 else None)
test_bundle.made(Path(sys.argv[1]), seed=2)
"""


@pytest.mark.parametrize(("rename", "seed"), [(1, 1), (2, 2), (3, 2)])  # the third never comes: killed while removing
def test_killed_between_renames_a_whole_model_is_found(rename, seed, tmp_path):
    place = tmp_path / "run" / "model"
    made(place, seed=1)
    expected = {number: arrays(MODEL, 300, 300, number)[TARGET_TABLE] for number in (1, 2, 3)}
    run = python(KILLED, place, rename, Path(__file__).parent)
    assert run.returncode == 9, run.stderr
    assert place.exists() == (rename != 2)
    for named in (place, place.parent):
        assert np.array_equal(read_weights(open_bundle(named))[TARGET_TABLE], expected[seed])
    if rename == 2:  # what was new may be lost too: what was old is still there
        shutil.rmtree(sibling(place, "new"))
        assert np.array_equal(read_weights(open_bundle(place))[TARGET_TABLE], expected[1])
    assert np.array_equal(read_weights(made(place, seed=3))[TARGET_TABLE], expected[3])
    assert [path.name for path in place.parent.iterdir()] == ["model"]


def test_a_place_that_cannot_be_read():
    with pytest.raises(HeedfulError, match=r"cannot be read: File name too long|there is no model"):
        open_bundle("x" * 5_000)


def test_a_damaged_model_is_not_passed_over_for_an_old_one(copied, whole):
    shutil.copytree(whole, sibling(copied, "old"))
    (copied / MANIFEST).unlink()
    with pytest.raises(HeedfulError, match=r"there is no model in .*rerun the command that writes it"):
        open_bundle(copied)


def test_what_is_not_a_model_is_not_replaced(tmp_path):
    (tmp_path / "prepared").mkdir()
    (tmp_path / "prepared" / MANIFEST).write_text("{}")
    (tmp_path / "file").write_text("mine")
    for name in ("prepared", "file"):
        with pytest.raises(HeedfulError, match=f"{name} exists and is not a model"):
            made(tmp_path / name)
    assert (tmp_path / "prepared" / MANIFEST).read_text() == "{}"
    (tmp_path / "empty").mkdir()
    assert made(tmp_path / "empty").folder == tmp_path / "empty"


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(HeedfulError, match=r"model cannot be written: .*file"):
        made(tmp_path / "file" / "model")
    with pytest.raises(HeedfulError, match="there is no model"):
        open_bundle(tmp_path / "file" / "model")


def test_what_cannot_be_written_leaves_the_old_one_alone(copied):
    before = (copied / MANIFEST).read_bytes()
    weights = arrays(MODEL, 300, 300)
    wrong = [
        (
            {"weights": weights | {OUTPUT_WEIGHT: weights[TARGET_TABLE] + 1}},
            ValueError,
            "differs from the table it is tied to",
        ),
        ({"weights": weights | {"more": np.ones(3)}}, ValueError, "one dtype, not float32, float64"),
        ({"weights": {name: array.astype(int) for name, array in weights.items()}}, ValueError, "dtype"),
        ({"weights": {}}, ValueError, "not none"),
        ({"languages": ("en", "?")}, ValueError, "target"),
        ({"statistics": {"mean": float("nan")}}, ValueError, "JSON compliant"),
        ({"weights": arrays(MODEL, 300, 299)}, HeedfulError, "has shape"),
        ({"tags": ["<fr>"]}, HeedfulError, "<fr> is not a tag"),
        ({"tokenizers": {"source": MADE["bpe"], "target": MADE["unigram"]}}, HeedfulError, "has shape|is 'unigram'"),
    ]
    for changes, error, says in wrong:
        with pytest.raises(error, match=says):
            made(copied, **changes)
    assert (copied / MANIFEST).read_bytes() == before
    assert [path.name for path in copied.parent.iterdir()] == ["model"]


# ------------------------------------------------------------------------------------------------------------ words


def test_lengths_are_the_lines_of_the_table():
    assert set(GenerationSettings.model_fields["length_rule"].annotation.__args__) == set(LENGTH_RULES)


@pytest.mark.parametrize("words", [[" "], [""], ["a" * 101], ["a"] * 4097, "a", [1]], ids=lambda words: str(words)[:12])
def test_suppressed_words_are_checked(words):
    with pytest.raises(HeedfulError, match="suppress_words"):
        GenerationSettings.check({"suppress_words": words}, Path("generation_config.json"))


def test_kinds_are_the_lines_of_the_table(whole):
    kinds = type(open_bundle(whole).description).model_fields["tokenizer"].annotation.__args__
    assert set(kinds) == {*TOKENIZERS, "letters", "label", BorrowedTokenizer.kind}  # imported, or of labels


# ---------------------------------------------------------------------------------------------------------- format 1

SECTIONS = {CONFIG_FILE: "model", GENERATION_FILE: "generation", STATISTICS_FILE: "statistics"}


def tables_of(tree: dict, name: str) -> list[tuple[dict, dict[str, str]]]:
    """(table, its renamed keys) of each section of a file that has any."""
    root, found = SECTIONS[name], []
    for section, names in RENAMED_KEYS.items():
        if section == root or section.startswith(f"{root}."):
            table = tree["model"] if name == CONFIG_FILE else tree
            for key in section.split(".")[1:]:
                table = table.get(key) or {}
            found.append((table, names))
    return found


def as_format_1(folder: Path) -> Path:
    """Rewrite a model directory as heedful wrote it before the keys were renamed."""
    trees = {name: json.loads((folder / name).read_bytes()) for name in SECTIONS}
    trees[CONFIG_FILE]["format_version"] = 1
    for name, tree in trees.items():
        for table, names in tables_of(tree, name):
            for old, new in names.items():
                if new in table:
                    table[old] = table.pop(new)
    forge(folder, version=1, **{name: dump_json(tree) for name, tree in trees.items()})
    return folder


def contents(bundle: Bundle) -> tuple:
    return (
        bundle.description.model_copy(update={"heedful_version": ""}), bundle.generation, bundle.statistics,
        bundle.scores, [bundle.tokenizer(side).encode(TEXTS) for side in SIDES],
    )  # fmt: skip


RECURRENT = config.ModelSettings.model_validate(
    {"width": 8, "encoder": ENCODERS[1], "decoder": DECODERS[3] | {"query_from": "previous", "input_feeding": True}}
)


@pytest.mark.parametrize("model", [MODEL, RECURRENT], ids=["transformer", "recurrent"])
def test_format_1_says_the_same(model, tmp_path):
    statistics = {"usual": {"input": {"tokenized": 0.5}}, "pairs": 3}
    bundle = made(tmp_path / "model", model=model, statistics=statistics)
    old = as_format_1(Path(shutil.copytree(bundle.folder, tmp_path / "old")))
    assert b"tokenised" in (old / STATISTICS_FILE).read_bytes()
    assert b'"limit": 99' in (old / GENERATION_FILE).read_bytes()
    assert b'"slots": 1024' in (old / CONFIG_FILE).read_bytes()
    assert contents(open_bundle(old)) == contents(open_bundle(bundle.folder))


@pytest.mark.parametrize("name", samples.MODELS)
def test_the_samples_equal_their_rewrite(name, tmp_path):
    folder = samples.model(name)
    sample = open_bundle(folder)
    about = sample.description
    rewritten = write_bundle(
        tmp_path / "model",
        model=sample.model,
        weights=read_weights(sample),
        tokenizers=sample.tokenizers,
        languages=(about.source, about.target),
        card=(folder / CARD_FILE).read_text(encoding="utf-8"),
        generation=sample.generation,
        statistics=sample.statistics,
        scores=sample.scores,
    )
    assert json.loads((rewritten.folder / MANIFEST).read_bytes())["format_version"] == 2
    assert contents(open_bundle(rewritten.folder)) == contents(sample)
    weights = read_weights(rewritten)
    assert all(np.array_equal(array, weights[name]) for name, array in read_weights(sample).items())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", SECTIONS)
def test_a_key_of_the_other_format_is_refused(version, name, tmp_path):
    bundle = made(tmp_path / "model", model=RECURRENT, statistics={"usual": {"input": {"copied": 0.5}}})
    folder = as_format_1(bundle.folder) if version == 1 else bundle.folder
    before = (folder / name).read_bytes()
    for at, (_, names) in enumerate(tables_of(json.loads(before), name)):
        for old, new in names.items():
            tree = json.loads(before)
            table, _ = tables_of(tree, name)[at]
            alien, own = (new, old) if version == 1 else (old, new)
            table[alien] = table.get(own, 1)
            forge(folder, version=version, **{name: dump_json(tree)})
            with pytest.raises(HeedfulError, match=rf"{alien}' is not a key of format {version}\. Download"):
                open_bundle(folder)
            table.pop(own, None)
            forge(folder, version=version, **{name: dump_json(tree)})
            with pytest.raises(HeedfulError, match=rf"{alien}' is not a key of format {version}"):
                open_bundle(folder)
    forge(folder, version=version, **{name: before})
    assert open_bundle(folder).folder == folder


def test_all_files_have_one_format(copied):
    forge(copied, version=1)
    with pytest.raises(HeedfulError, match=r"config.json: 'format_version': should be 1, as in manifest.json"):
        open_bundle(copied)
    forge(as_format_1(copied), version=2)
    with pytest.raises(HeedfulError, match=r"config.json: 'format_version': should be 2, as in manifest.json"):
        open_bundle(copied)


def test_the_card_says_what_matters():
    given = {"corpora": ["news", "talks"], "pairs": 29_000, "fingerprint": "abc123", "max_tokens": 512}
    model = MODEL.model_copy(update={"decoder": config.RecurrentDecoderSettings.model_validate(DECODERS[3])})
    text = model_card(model, ("nb_NO", "no"), 1_234_567, SCORED, **given)
    assert text.startswith('---\nlanguage: ["nb", "no"]\n')  # unquoted, YAML's `no` is False
    assert "library_name: heedful\n" in text
    for words in (
        "# nb_NO to no",
        "1,234,567 weights",
        "encoder (kind transformer, layers 2, heads 2, feedforward_size 16)",
        "attention (score additive)",
        "test: bleu 41.23, signature `nrefs:1|case:mixed|version:2.6.0`",
        "29,000 sentence pairs of news, talks",
        "`abc123`",
        "512 tokens",
        "heedful translate DIR",
    ):
        assert words in text
    assert "The model was not scored." in model_card(MODEL, ("en", "de"), 1, {}, **given)

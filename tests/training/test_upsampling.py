"""Training chooses the `upsample` of a CTC decoder so that almost all pairs fit, and counts those that do not."""

import json
from itertools import pairwise
from math import isfinite

import numpy as np
import pytest
import torch

from heedful import config, export, load
from heedful.build import build
from heedful.data.batch import pad_rows, pad_sources
from heedful.inputs.kinds import make_input
from heedful.nn.ctc import count_required_slots as count_by_torch
from heedful.training.api import train
from heedful.training.resolve import RESOLVED
from heedful.training.upsampling import count_required_slots, count_slots, divide_up
from support.training_runs import settings_of

CTC = {
    "width": 16, "tie_embeddings": "none",
    "encoder": {"kind": "recurrent", "width": 16},
    "decoder": {"kind": "ctc"},
}  # fmt: skip
SHORT = {"steps": 4, "save_every": 4, "validate_every": 4, "validate_pairs": 8, "ema": False, "label_smoothing": 0.0}
NUM_PAIRS = 1200


def write_pairs(folder, name, pairs):
    for side, column in (("en", 0), ("de", 1)):
        text = "".join(" ".join(pair[column]) + "\n" for pair in pairs)
        (folder / f"{name}.{side}").write_text(text, encoding="utf-8", newline="\n")


def count_not_fitting(numbers):
    """Of four digits, in the five slots of four letters and the end token."""
    return sum(sum(a == b for a, b in pairwise(f"{n:04d}")) > 1 for n in numbers)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Four digits are read as letters and written as digits; one training pair has far more labels than slots."""
    folder = tmp_path_factory.mktemp("digits")
    pairs = [([chr(ord("a") + int(digit)) for digit in f"{n:04d}"], list(f"{n:04d}")) for n in range(NUM_PAIRS + 8)]
    write_pairs(folder, "train", [*pairs[: NUM_PAIRS - 1], (["a", "b"], ["7", "8"] * 15)])
    write_pairs(folder, "val", pairs[NUM_PAIRS:])
    return folder


def settings(corpus, run, **decoder):
    model = CTC | {"decoder": {"kind": "ctc"} | decoder}
    tree = settings_of(corpus, run, model=model, tokenizer={"kind": "words", "shared": False}, **SHORT)
    clean = config.CleanSettings(drop=(), duplicates="keep", overlap="keep")
    return tree.model_copy(update={"clean": clean})


def run_notes(settings):
    notes = []

    def watch(event):
        if type(event).__name__ == "Note" and event.text.startswith("upsample"):
            notes.append((event.level, event.text))

    train(settings, force=True, on_event=watch)
    return notes


def test_required_slots_are_those_of_the_loss():
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randint(1, 3, (n % 6,), generator=draw).tolist() for n in range(50)]
    labels = np.array([label for row in rows for label in row])
    begins = np.cumsum([0, *map(len, rows)])
    expected = count_by_torch(*pad_rows(rows, 0))
    assert count_required_slots(labels, begins).tolist() == expected.tolist()
    later = count_required_slots(labels, begins[20:])  # the rows of a later shard
    assert later.tolist() == expected[20:].tolist()
    assert divide_up(np.array([0, 4, 5]), np.array([3, 4, 4])).tolist() == [1, 1, 2]


@pytest.mark.parametrize(
    ("inputs", "reduction", "lengths"),
    [
        (config.TextInputSettings(), 1, [1, 5, 8]),
        (config.AudioInputSettings(kind="audio", bands=8), 4, [1, 16, 17]),
        (config.AudioInputSettings(kind="audio", bands=8), 16, [1, 16, 17]),
        (config.GraphInputSettings(kind="graph", features=2, max_neighbors=2), 1, [1, 5, 8]),
    ],
)
def test_slots_are_those_of_the_encoder(inputs, reduction, lengths):
    """ceil(frames / reduction) for recordings, nodes for graphs, and tokens with the end token for text."""
    width = {"width": 8, "tie_embeddings": "none", "decoder": {"kind": "ctc", "upsample": 1}}
    encoder = {
        "text": {"kind": "recurrent", "width": 8},
        "audio": {"kind": "recurrent_frames", "stride": reduction, "width": 8, "layers": 1},
        "graph": {"kind": "graph", "layers": 1, "heads": 1},
    }[inputs.kind]
    model = build(config.ModelSettings.model_validate(width | {"encoder": encoder}), 9, 9, input=inputs)
    if inputs.kind == "text":
        rows = [[5] * length + [3] for length in lengths]
    else:
        rows = make_input(inputs).random_rows(len(lengths), np.random.default_rng(0))
        rows = [np.resize(row, (length, *np.shape(row)[1:])) for row, length in zip(rows, lengths, strict=True)]
    slots = model.encoder(*pad_sources(rows, 0)).mask.sum(1)
    assert count_slots(np.array(lengths), make_input(inputs), reduction).tolist() == slots.tolist()


def test_training_chooses_it_and_counts_the_pairs_that_do_not_fit(corpus, tmp_path):
    chosen = settings(corpus, tmp_path / "run")
    assert chosen.model.decoder.upsample is None
    ((level, note),) = run_notes(chosen)
    assert level == "choice"
    assert note.startswith(
        "upsample 2: the loss skips pairs with more labels than slots, which are 1 of 1,200 training"
    )
    assert "training pairs and 0 of 8 validation pairs" in note
    share = (count_not_fitting(range(NUM_PAIRS - 1)) + 1) / NUM_PAIRS
    assert note.endswith(f"(with upsample 1: {share:.1%} of the training pairs)")
    resolved = (tmp_path / "run" / RESOLVED).read_text()
    assert "upsample = 2" in resolved
    assert load(tmp_path / "run" / "model").bundle.model.decoder.upsample == 2
    assert run_notes(chosen) == []  # a resumed run
    assert (tmp_path / "run" / RESOLVED).read_text() == resolved


def test_a_fixed_value_is_kept_and_warns(corpus, tmp_path):
    ((level, note),) = run_notes(settings(corpus, tmp_path / "run", upsample=1))
    assert level == "warning"
    skipped = count_not_fitting(range(NUM_PAIRS - 1)) + 1
    assert f"which are {skipped} of 1,200 training pairs and 0 of 8 validation pairs; to train on them, set " in note
    assert note.endswith("set model.decoder.upsample = 2, or remove it")
    assert "upsample = 1" in (tmp_path / "run" / RESOLVED).read_text()
    steps = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(isfinite(step["loss"]) for step in steps if step["event"] in ("stepped", "validated"))


def test_joint_training_chooses_it_for_the_head(corpus, tmp_path):
    decoder = {"kind": "recurrent", "width": 16, "attention": {"score": "additive"}}
    tree = settings(corpus, tmp_path / "run")
    model = config.ModelSettings.model_validate(CTC | {"decoder": decoder, "ctc_head": {"weight": 0.2}})
    ((level, note),) = run_notes(tree.model_copy(update={"model": model}))
    assert (level, note[:10]) == ("choice", "upsample 2")
    assert "[model.ctc_head]\nweight = 0.2\nupsample = 2\n" in (tmp_path / "run" / RESOLVED).read_text()
    translator = load(tmp_path / "run" / "model")
    assert translator.bundle.model.ctc_head == config.CTCHeadSettings(weight=0.2, upsample=2)
    assert translator("a b c d").log_probability < 0
    proof = export(tmp_path / "run" / "model", tmp_path / "onnx", to="onnx")  # the graphs have no head
    assert proof.same == proof.sentences == 8
    more = {"train": [{"files": str(corpus / "train")}], "validation": [{"files": str(corpus / "val")}]}
    tuned = train(
        config.parse_settings(
            {
                "source": "en", "target": "de", "init_from": str(tmp_path / "run" / "model"),
                "data": more | {"prepared_dir": str(tmp_path / "prepared")},
                "train": SHORT | {"output_dir": str(tmp_path / "tuned"), "ema": False},
            }
        ),
        force=True,
    )  # fmt: skip
    assert load(tuned).bundle.model.ctc_head.upsample == 2


@pytest.mark.parametrize(
    "encoder", [{"kind": "bottleneck", "width": 8}, {"kind": "nothing"}, {"kind": "patches", "pool": True}]
)
def test_encoders_of_one_slot_are_refused(encoder):
    with pytest.raises(ValueError, match="CTC needs an encoder with a slot for each part of the source"):
        config.ModelSettings.model_validate(CTC | {"encoder": encoder})

"""Recordings from files to transcripts: prepare, train, resume, translate, evaluate, misuse."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import heedful
from heedful.build import build
from heedful.bundle import open_bundle
from heedful.cli.app import app
from heedful.config import parse_settings
from heedful.corpus.arguments import INPUT_KINDS
from heedful.data.prepare import prepare
from heedful.data.store import open_prepared
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.inputs.kinds import INPUTS, make_input, pad_features
from heedful.inputs.sound import Recording, resample, wav_bytes
from heedful.training.api import train
from heedful.training.data import load_data, make_plan
from heedful.training.finetune import apply_finetuning_defaults
from support.sound_runs import RATE, sound_settings, tones, write_recordings
from support.training_runs import outcome


@pytest.fixture(scope="module")
def speech(tmp_path_factory):
    folder = write_recordings(tmp_path_factory.mktemp("speech"))
    return folder, train(
        sound_settings(
            folder, folder / "run", steps=200, validate_every=100, save_every=100, micro_batches=1, learning_rate=1e-2
        )
    )


def run(*arguments, text=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=text)


def rows_of(folder):
    return [line.split("\t") for line in (folder / "train.tsv").read_text("utf-8").splitlines()]


# ------------------------------------------------------------------------------------------------------- prepared data


def test_every_kind_of_input_can_be_named_on_the_command_line():
    assert set(INPUT_KINDS) == INPUTS.keys()


def test_rows_of_recordings_are_their_spectrograms(speech):
    folder, _ = speech
    prepared = open_prepared(folder / "prepared")
    corpus, inputs = prepared.train[0], make_input(sound_settings(folder, folder).input)
    sources = corpus.texts_of_rows("source", range(corpus.num_rows))
    assert sorted(sources) == sorted({f"recordings/train{number}.wav" for number in range(90)})
    lengths = set()
    for (row, _), source in zip(corpus.pairs(range(corpus.num_rows)), sources, strict=True):
        assert row.dtype == np.float16
        assert np.array_equal(row, inputs.read_row(source, folder))
        lengths.add(len(row))
    assert lengths == {13, 25, 37}
    assert corpus.block_lengths(0, 0)[0].max() == 38  # the plan counts frames


def test_unreadable_and_long_recordings_are_dropped_with_their_reason(tmp_path):
    folder = write_recordings(tmp_path, count=30)
    (folder / "recordings" / "train3.wav").write_bytes(b"RIFF")
    (folder / "recordings" / "train4.wav").unlink()
    (folder / "recordings" / "train5.wav").write_bytes(wav_bytes(np.zeros(3 * RATE), RATE))
    prepared = prepare(sound_settings(folder, folder / "run"))
    assert prepared.train[0].num_rows == 27
    rejects = [json.loads(line) for line in (folder / "prepared" / "rejects.jsonl").read_text("utf-8").splitlines()]
    reasons = {reject["line"]: reject["reason"] for reject in rejects}
    assert reasons.keys() == {4, 5, 6}
    assert "there is no such file" in reasons[5]
    assert "3.0 seconds; the limit is 2" in reasons[6]


def test_variations_depend_on_epoch_and_row_only(speech):
    folder, _ = speech
    settings = sound_settings(folder, folder)
    batches = []
    for _ in range(2):
        data = load_data(
            open_prepared(folder / "prepared"), validate_pairs=6, regularization=0.0, seed=1, inputs=settings.input
        )
        plan = make_plan(data.prepared, data.corpora, seed=1, batch_tokens=600, micro_batches=1)
        batches.append([data.load_batch(*plan.batch(step)).source for step in (0, 0, 60)])
    for one, other in zip(*batches, strict=True):
        assert all((a == b).all() for a, b in zip(one, other, strict=True))
    features, mask = batches[0][0]
    assert features.shape[:2] == mask.shape
    assert features.shape[0] * features.shape[1] <= 600


# ------------------------------------------------------------------------------------------------------------ training


def test_the_transcripts_are_learned(speech):
    folder, model = speech
    transcriber = heedful.load(model)
    rows = rows_of(folder)[:40]
    answers = transcriber([folder / path for path, _ in rows], beam=1)
    assert sum(answer.text == text for answer, (_, text) in zip(answers, rows, strict=True)) >= 36


def test_paths_bytes_arrays_and_other_rates_give_the_same_transcript(speech):
    folder, model = speech
    transcriber = heedful.load(model)
    samples = tones(["low", "high"])
    (folder / "a.wav").write_bytes(wav_bytes(samples, RATE))
    faster = Recording(resample(samples, RATE, 44_100), 44_100)
    sources = [folder / "a.wav", (folder / "a.wav").read_bytes(), samples, Recording(samples, RATE), faster]
    assert {answer.text for answer in transcriber(sources)} == {"low high"}
    assert transcriber(samples).source == "(a recording)"


def test_an_interrupted_run_ends_with_the_same_weights(tmp_path, speech):
    folder, _ = speech
    train(sound_settings(folder, tmp_path / "parts", steps=5))
    train(sound_settings(folder, tmp_path / "parts", steps=9))
    train(sound_settings(folder, tmp_path / "again", steps=5, refits=[(5, 9)]))  # an extended run refits its schedule
    assert outcome(tmp_path / "parts")["model"] == outcome(tmp_path / "again")["model"]


def test_a_transformer_is_trained_and_a_pyramid_too(tmp_path, speech):
    folder, _ = speech
    encoders = [
        {"kind": "frames", "stride": 3, "layers": 1, "heads": 2, "feedforward_size": 16},
        {"kind": "recurrent_frames", "stride": 2, "layers": 2, "width": 16, "pyramid": True},
    ]
    for number, encoder in enumerate(encoders):
        model = train(sound_settings(folder, tmp_path / str(number), encoder=encoder, steps=3))
        assert heedful.load(model)(tones(["low"]), beam=1).text is not None
        assert open_bundle(model).model.encoder.reduction == (3, 4)[number]


# -------------------------------------------------------------------------------------------------------- command line


def test_the_command_line_transcribes_recordings(speech):
    folder, model = speech
    path = folder / "recordings" / "train0.wav"
    done = run("translate", model, path, folder / "nothing.wav", "--json")
    assert done.exit_code == 1
    first, second = done.stdout.splitlines()
    assert json.loads(first)["source"].endswith("train0.wav")
    assert json.loads(second) == {"source": str(folder / "nothing.wav"), "error": "there is no such file"}
    listed = "".join(json.dumps({"audio": str(path)}) + "\n" for _ in range(3))
    assert len(run("translate", model, text=listed).stdout.splitlines()) == 3
    result = run("translate", model, text='{"path": 3}\n')
    assert "expected a path, or a JSON object with the key `audio`" in str(result.exception)


def test_transcripts_are_scored(speech, tmp_path):
    folder, model = speech
    rows = rows_of(folder)[:5]
    (tmp_path / "recordings").write_text("".join(f"{folder / path}\n" for path, _ in rows), encoding="utf-8")
    (tmp_path / "texts").write_text("".join(f"{text}\n" for _, text in rows), encoding="utf-8")
    result = run("evaluate", model, tmp_path / "texts", "--source", tmp_path / "recordings", "--json")
    assert result.exit_code == 0
    assert 1 <= json.loads(result.output)["perplexity"] < 2


def test_a_directory_with_transcripts_is_a_corpus(tmp_path):
    folder = write_recordings(tmp_path, count=3)
    result = run("check", folder, "--input", "audio", "--pair", "en")
    assert isinstance(result.exception, DataError)
    assert "has no file with transcripts: add a transcripts.tsv with the path of a recording" in str(result.exception)
    shutil.move(folder / "train.tsv", folder / "transcripts.tsv")
    assert "all recordings readable" in run("check", folder, "--input", "audio", "--pair", "en").output


# -------------------------------------------------------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": {"kind": "patches"}}, 'set model.encoder.kind to "frames" or "recurrent_frames"'),
        ({"positions": "sinusoidal", "max_positions": 5}, "a recording of 30 seconds has 751 slots"),
    ],
)
def test_models_that_cannot_read_recordings(changes, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        build_model({}, **changes)


def build_model(audio, **model):
    encoder = {"kind": "frames", "layers": 1, "heads": 2, "feedforward_size": 8}
    decoder = {"kind": "transformer", "layers": 1, "heads": 2, "feedforward_size": 8}
    settings = parse_settings(
        {
            "target": "en",
            "input": {"kind": "audio", **audio},
            "data": {"train": [{"files": ["a.tsv"]}]},
            "model": {"width": 8, "encoder": encoder, "decoder": decoder, **model},
        }
    )
    return build(settings.model, None, 20, input=settings.input), make_input(settings.input)


@pytest.mark.parametrize("audio", [{}, {"rate": 22_050, "hop": 0.01}, {"rate": 11_025, "hop": 0.011}])
def test_the_advised_number_of_positions_is_enough_for_the_longest_recording(audio):
    audio = {"bands": 8, **audio}
    with pytest.raises(ConfigError) as error:
        build_model(audio, positions="learned", max_positions=1)
    number = int(re.search(r"set max_positions = (\d+)", str(error.value))[1])
    model, inputs = build_model(audio, positions="learned", max_positions=number)
    row = inputs.read_row(np.zeros(int(inputs.settings.max_seconds * inputs.settings.rate)))
    features, mask = map(torch.from_numpy, pad_features([row]))
    assert model.encoder(features, mask).states.shape[1] == number


def test_fine_tuning_keeps_the_spectrogram_and_may_change_the_variations(speech, tmp_path):
    folder, model = speech
    tree = {"target": "en", "init_from": str(model), "data": {"train": [{"files": [f"{folder}/train.tsv"]}]}}
    settings = apply_finetuning_defaults(parse_settings({**tree, "input": {"kind": "audio", "time_masks": 3}}))
    assert (settings.input.bands, settings.input.rate, settings.input.time_masks) == (12, RATE, 3)
    with pytest.raises(ConfigError, match=re.escape("was trained with input.bands = 12: remove input.bands")):
        apply_finetuning_defaults(parse_settings({**tree, "input": {"kind": "audio", "bands": 40}}))


def test_what_cannot_be_transcribed(speech):
    _, model = speech
    transcriber = heedful.load(model)
    with pytest.raises(HeedfulError, match=r"the recording: 3\.0 seconds; the limit is 2"):
        transcriber(np.zeros(3 * RATE))
    with pytest.raises(HeedfulError, match=r"nothing\.wav: there is no such file"):
        transcriber("nothing.wav")

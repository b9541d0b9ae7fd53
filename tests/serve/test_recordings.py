"""Recordings over HTTP: a real model, a real worker process, real files, also hostile ones."""

import json
from base64 import b64encode
from urllib.parse import urlencode

import numpy as np
import pytest

import heedful
from heedful.inputs.sound import wav_bytes
from heedful.serve.batcher import hash_job
from heedful.serve.protocol import TEST_JOBS, TranslationJob, encode_job
from heedful.serve.worker import translate_jobs
from heedful.training.api import train
from support.hostile_sounds import FILES, encode
from support.running_server import Running
from support.sound_runs import RATE, sound_settings, tones, write_recordings


@pytest.fixture(scope="module")
def transcriber(tmp_path_factory):
    """The model directory of a run `tones` that transcribes recordings; untrained, but certain enough to compare."""
    folder = write_recordings(tmp_path_factory.mktemp("recordings"), count=40)
    return train(sound_settings(folder, folder / "tones", steps=30, learning_rate=1e-2))


@pytest.fixture(scope="module")
def running(transcriber):
    with Running({"tones": transcriber}) as server:
        yield server


def recording(names, kind="WAV"):
    return encode(kind, tones(names), RATE)


def post_file(running, content, **query):
    return running.post(f"/v1/transcribe?{urlencode(query)}", content)[:2]


def test_transcripts_equal_those_of_heedful_translate(running, transcriber):
    translator = heedful.load(transcriber, threads=1)
    for names in (["low"], ["high", "low"], ["middle", "low", "high"]):
        content = recording(names)
        expected = translator(content, beam=2).text
        assert post_file(running, content, beam=2)[1]["text"] == expected
        form = b'--x\r\nContent-Disposition: form-data; name="audio"\r\n\r\n' + content + b"\r\n"
        form += b'--x\r\nContent-Disposition: form-data; name="beam"\r\n\r\n2\r\n--x--\r\n'
        header = {"Content-Type": "multipart/form-data; boundary=x"}
        assert running.post("/v1/transcribe", form, header)[1]["text"] == expected
        body = {"audio": b64encode(content).decode(), "beam": 2}
        assert running.post("/v1/transcribe", body)[1]["text"] == expected


@pytest.mark.parametrize("kind", ["FLAC", "OGG", "MP3"])
def test_every_format_is_accepted(kind, running):
    status, answer = post_file(running, recording(["low"], kind))
    assert status == 200
    assert answer.keys() >= {"text", "score", "alternatives", "model"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the recording cannot be used: empty, 0 bytes"),
        (b"seven.wav", "the recording cannot be used: not one of the formats WAV"),
        (wav_bytes(np.zeros(3 * RATE), RATE), "the recording cannot be used: 3.0 seconds; the limit is 2"),
        (b"{}", "audio: Field required"),
        (b'{"audio": "seven.wav"}', "audio: not base64"),
    ],
)
def test_bodies_that_cannot_be_used(body, message, running):
    status, answer, _ = running.post("/v1/transcribe", body)
    assert status == 422
    assert message in answer["error"]


def test_hostile_recordings_are_rejected_and_do_not_stop_the_worker(running):
    pid, generator = running.pid, np.random.default_rng(1)
    for kind, (_, make, _) in FILES.items():
        if not kind.endswith((" named .wav", " named .mp3")):  # the server gets no names
            status, answer = post_file(running, make(generator))
            assert status == 422, kind
            assert answer["error"].startswith("the recording cannot be used: "), kind
    assert running.pid == pid
    assert post_file(running, recording(["low"]))[0] == 200


def test_a_server_of_recordings_rejects_pictures_and_texts(running):
    for path, body, message in (
        ("/v1/caption", b"GIF89a", "no model of this server describes pictures (POST /v1/caption)"),
        ("/v1/translate", {"texts": "a"}, "no model of this server translates text (POST /v1/translate)"),
    ):
        status, answer, _ = running.post(path, body)
        assert (status, answer["error"]) == (400, message)
    directions = json.loads(running.get("/v1/directions"))
    assert [(each["source"], each["target"]) for each in directions["transcripts"]] == [("audio", "en")]
    assert directions["captions"] == directions["directions"] == []


def test_a_loud_recording_does_not_affect_others_of_its_batch(transcriber):
    """Resampling makes it louder than a recording may be."""
    loud = encode("WAV", 7.99 * np.sign(np.sin(np.arange(44_100) / 117)), 44_100, subtype="FLOAT")
    jobs = [encode_job(TranslationJob((), {}, [content])) for content in (recording(["low"]), loud)]
    answers = translate_jobs(heedful.load(transcriber, threads=1), jobs, 4096)
    assert ["translations" in answer for answer in answers] == [True, True]


def test_a_text_is_not_read_as_a_path(transcriber, tmp_path):
    path = tmp_path / "secret.wav"
    path.write_bytes(recording(["low"]))
    job = encode_job(TranslationJob([str(path)], {}))
    (result,) = translate_jobs(heedful.load(transcriber, threads=1), [job], 4096)
    assert result == {"error": "this model transcribes recordings", "code": 422}


def test_jobs_are_told_apart_by_their_recordings():
    jobs = [*TEST_JOBS.values(), TranslationJob((), TEST_JOBS["audio"].options, [recording(["low"])])]
    assert len({hash_job(job) for job in jobs}) == len(jobs)


def test_the_description_of_the_api(running):
    operation = json.loads(running.get("/openapi.json"))["paths"]["/v1/transcribe"]["post"]
    assert operation["requestBody"]["content"].keys() == {"application/json", "audio/*", "multipart/form-data"}
    names = {parameter["name"] for parameter in operation["parameters"]}
    assert names == operation["requestBody"]["content"]["application/json"]["schema"]["properties"].keys() - {"audio"}

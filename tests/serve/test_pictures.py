"""Pictures over HTTP: a real model, a real worker process, real files, also hostile ones."""

import asyncio
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from base64 import b64encode
from contextlib import ExitStack
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import numpy as np
import pytest
from PIL import Image

import heedful
from heedful import config
from heedful.build import build
from heedful.bundle import write_bundle
from heedful.errors import ConfigError, HeedfulError
from heedful.serve.batcher import hash_job
from heedful.serve.protocol import TEST_JOBS, TranslationJob, encode_job
from heedful.serve.state import MAX_CLIENT_HELD_BYTES, ServerSettings
from heedful.serve.supervisor import WorkerSupervisor
from heedful.serve.worker import translate_jobs
from heedful.text.tokenizer import train_table
from support.free_ports import free_port
from support.hostile_pictures import FILES, PATHS, write_hostile_pictures
from support.running_server import Running

CAPTION = "a red square at the left"


@pytest.fixture(scope="module")
def picture(pictures):
    """The picture with this caption."""
    return pictures[CAPTION]


@pytest.fixture(scope="module")
def running(captioner):
    with Running({"squares": captioner}) as server:
        yield server


def post_file(running, content, **query):
    """Post the file itself, as `curl --data-binary` does."""
    return running.post(f"/v1/caption?{urlencode(query)}", content)[:2]


def post_base64(running, content, **fields):
    return running.post("/v1/caption", {"image": b64encode(content).decode(), **fields})[:2]


# ----------------------------------------------------------------------------------------------------- captions


def test_captions_equal_those_of_heedful_translate(running, captioner, pictures):
    translator = heedful.load(captioner, threads=1)
    for caption, content in pictures.items():
        expected = translator(content, num_best=3)
        status, answer = post_file(running, content, alternatives=2, tokens=True)
        assert (status, answer["text"]) == (200, caption)
        assert answer["alternatives"] == [other.text for other in expected.alternatives]
        assert answer["score"] == pytest.approx(expected.score)
        assert [(each["text"], pytest.approx(each["log_probability"])) for each in answer["tokens"]] == [
            (token.text, token.log_probability) for token in expected.tokens
        ]
        assert (200, answer) == post_base64(running, content, alternatives=2, tokens=True)
    assert running.metric("heedful_characters_total") == 0


def test_every_form_of_base64_and_every_format(running, picture):
    encoded = b64encode(picture).decode()
    lines = "\n".join(encoded[start : start + 76] for start in range(0, len(encoded), 76))
    for image in (encoded, lines, f"data:image/png;base64,{encoded}"):
        assert running.post("/v1/caption", {"image": image})[1]["text"] == CAPTION
    for kind in ("BMP", "GIF", "WEBP", "JPEG"):
        file = io.BytesIO()
        Image.open(io.BytesIO(picture)).save(file, kind, **{"WEBP": {"lossless": True}}.get(kind, {}))
        assert post_file(running, file.getvalue())[1]["text"] == CAPTION


def test_options(running, captioner, picture):
    translator = heedful.load(captioner, threads=1)
    options = {"prefix": "a blue", "beam": 2, "length_penalty": 0.5}
    expected = translator(picture, **options)
    assert expected.text.startswith("a blue")
    for post in (post_file, post_base64):
        status, answer = post(running, picture, target="en", model="squares", **options)
        assert (status, answer["text"], answer["model"]) == (200, expected.text, "model")
        assert answer["score"] == pytest.approx(expected.score)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"target": "fr"}, "this model translates from image to en, not fr"),
        ({"model": "square"}, "did you mean `squares`?"),
        ({"beam": 99}, "beam: "),
        ({"bean": 1}, "bean: "),
    ],
)
def test_misuse_of_options(query, message, running, picture):
    status, answer = post_file(running, picture, **query)
    assert status == (400 if {"target", "model"} & query.keys() else 422)
    assert message in answer["error"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the picture cannot be used: empty, 0 bytes"),
        (b"cat.png", "not one of the formats PNG"),
        (b"{", "the body is neither JSON nor a form"),
        (b"{}", "image: Field required"),
        (b'{"image": "cat.png"}', "image: not base64"),
        ('{"image": "кот.png"}'.encode(), "image: not base64"),
        (b'{"image": ""}', "the picture cannot be used: empty, 0 bytes"),
        (b'{"image": "YQ==", "tokens": "yes"}', "tokens: Input should be a valid boolean"),
        (b'{"image": "YQ=="}', "not one of the formats PNG"),
    ],
)
def test_bodies_without_a_picture(body, message, running):
    status, answer, _ = running.post("/v1/caption", body)
    assert status == 422
    assert message in answer["error"]


def form_of(**parts):
    """A multipart form as curl -F sends it."""
    body = b"".join(
        b'--x\r\nContent-Disposition: form-data; filename="a"; name="%s"\r\n\r\n%s\r\n' % (name.encode(), content)
        for name, content in parts.items()
    )
    return body + b"--x--\r\n"


FORM_HEADER = {"Content-Type": "multipart/form-data; boundary=x"}


def test_a_form_gives_the_same_caption(running, picture):
    status, answer, _ = running.post("/v1/caption", form_of(image=picture, alternatives=b"1"), FORM_HEADER)
    assert (status, answer) == post_file(running, picture, alternatives=1)


def test_options_in_the_query_are_valid_for_every_kind_of_body(running, picture):
    encoded = b64encode(picture).decode()
    _, expected = post_file(running, picture, alternatives=2, beam=3)
    for path, fields in (("alternatives=2&beam=3", {}), ("alternatives=2&beam=9", {"beam": 3})):
        form = form_of(image=picture, **{name: str(value).encode() for name, value in fields.items()})
        for body, header in ((form, FORM_HEADER), ({"image": encoded, **fields}, {})):
            status, answer, _ = running.post(f"/v1/caption?{path}", body, header)
            assert (status, answer) == (200, expected)
    for body, header in ((form_of(image=picture), FORM_HEADER), ({"image": encoded}, {}), (picture, {})):
        status, answer, _ = running.post("/v1/caption?target=en&bean=5", body, header)
        assert (status, answer["error"]) == (422, "bean: Extra inputs are not permitted")
        assert running.post("/v1/caption?target=fr", body, header)[0] == 400


@pytest.mark.parametrize(
    ("body", "header", "message"),
    [
        (b"--x--", FORM_HEADER, "the form has no part `image`"),
        (form_of(image=b"a", beam=b"many"), FORM_HEADER, "beam: Input should be a valid integer"),
        (form_of(image=b"a", path=b"/etc/passwd"), FORM_HEADER, "path: Extra inputs are not permitted"),
        (form_of(image=b"/etc/passwd"), FORM_HEADER, "not one of the formats PNG"),
        (b"--x" * 1000, FORM_HEADER, "more than 20 parts"),
        (form_of(image=b"a"), {"Content-Type": "multipart/form-data"}, "the form has no boundary"),
    ],
)
def test_forms_that_cannot_be_used(body, header, message, running):
    status, answer, _ = running.post("/v1/caption", body, header)
    assert status == 422
    assert message in answer["error"]


# ------------------------------------------------------------------------------------------------ hostile pictures


def test_hostile_pictures_are_rejected_and_do_not_stop_the_worker(running, tmp_path, picture):
    pid = running.pid
    kinds = FILES.keys() - {"JPEG named .png", "PNG named .jpg", "WebP named .gif"}  # the server gets no names
    for hostile in write_hostile_pictures(tmp_path, len(FILES) + len(PATHS)):
        if hostile.kind not in kinds:
            continue
        status, answer = post_file(running, hostile.path.read_bytes())
        assert status == 422, hostile.kind
        assert answer["error"].startswith("the picture cannot be used: "), hostile.kind
    assert running.pid == pid
    assert running.metric("heedful_engine_restarts_total") == 0
    assert post_file(running, picture)[1]["text"] == CAPTION


def test_a_hostile_picture_does_not_affect_others_of_its_batch(captioner, picture):
    translator = heedful.load(captioner, threads=1)
    jobs = [encode_job(TranslationJob((), {}, [content])) for content in (picture, b"GIF89a", picture)]
    first, hostile, last = translate_jobs(translator, jobs, 4096)
    assert first == last
    assert first["translations"][0]["text"] == CAPTION
    assert (hostile["code"], "translations" in hostile) == (422, False)


def test_a_text_is_not_read_as_a_path(captioner, tmp_path, picture):
    """After a model of texts was replaced by one of pictures, its queue may still contain texts."""
    path = tmp_path / "secret.png"
    path.write_bytes(picture)
    (result,) = translate_jobs(heedful.load(captioner, threads=1), [encode_job(TranslationJob([str(path)], {}))], 4096)
    assert result == {"error": "this model describes pictures", "code": 422}


def test_jobs_are_told_apart_by_their_pictures(picture):
    jobs = [TEST_JOBS["image"], TEST_JOBS["text"], TranslationJob((), TEST_JOBS["image"].options, [picture])]
    assert len({hash_job(job) for job in jobs}) == len(jobs)


# ---------------------------------------------------------------------------------------------------------- limits


def test_large_bodies(running):
    max_bytes = ServerSettings().max_media_bytes
    noise = np.random.default_rng(1).integers(0, 256, (1400, 1400, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "PNG", compress_level=0)
    assert 1 << 20 < len(file.getvalue()) < max_bytes  # more than other endpoints accept
    assert post_file(running, file.getvalue())[0] == 200
    assert post_base64(running, file.getvalue())[0] == 200
    status, answer = post_file(running, bytes(max_bytes + 1))
    assert (status, answer["error"]) == (413, f"the body is larger than {max_bytes:,} bytes: send less per request")


def test_a_client_can_send_only_a_part_of_what_the_server_holds(running, picture):
    size = ServerSettings().max_media_bytes
    head = f"POST /v1/caption HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode()
    held = running.app.state.held_bytes_by_client
    with ExitStack() as stack:
        for number in range(MAX_CLIENT_HELD_BYTES // size):
            line = stack.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=20))
            line.sendall(head)
            wait_until(lambda number=number: held.total() == (number + 1) * size)
        status, answer, headers = running.post("/v1/caption", picture)
        assert (status, answer["error"], headers["retry-after"]) == (503, "overloaded: retry after 2 seconds", "2")
    wait_until(lambda: held.total() == 0)
    assert post_file(running, picture)[0] == 200


def wait_until(condition):
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


# -------------------------------------------------------------------------------------------------- several models


def test_pictures_and_texts_on_one_server(captioner, exported, picture):
    with Running({"one": exported / "one", "squares": captioner}) as server:
        directions = json.loads(server.get("/v1/directions"))
        names = [[(each["source"], each["target"], each["via"]) for each in directions[key]] for key in directions]
        assert dict(zip(directions, names, strict=True)) == {
            "directions": [("en", "de", None)],
            "captions": [("image", "en", None), ("image", "de", "en")],
            "transcripts": [],
        }
        assert [each["code"] for each in json.loads(server.get("/languages"))] == ["en", "de"]
        ready = json.loads(server.get("/readyz"))
        assert [(each["name"], each["input"]) for each in ready["models"]] == [("one", "text"), ("squares", "image")]
        english = post_file(server, picture, target="en")[1]
        german = post_file(server, picture, target="de")[1]
        assert (german["pivot"], german["via"], german["model"]) == (CAPTION, "en", "model+one")
        translated = server.post("/v1/translate", {"texts": english["text"]})[1]["translations"][0]["text"]
        assert german["text"] == translated
        assert "the target language must be given" in post_file(server, picture)[1]["error"]
        for path, body, message in (
            ("/v1/caption?model=one", picture, "`one` translates text (POST /v1/translate)"),
            ("/v1/translate", {"texts": "a", "model": "squares"}, "`squares` describes pictures (POST /v1/caption)"),
        ):
            status, answer, _ = server.post(path, body)
            assert (status, answer["error"]) == (400, message)


def test_a_server_of_one_kind_rejects_the_other(running, exported, picture):
    status, answer, _ = running.post("/v1/translate", {"texts": "/etc/hostname"})
    assert (status, answer["error"]) == (400, "no model of this server translates text (POST /v1/translate)")
    assert running.post("/translate", {"q": "a", "target": "en"})[0] == 400
    assert json.loads(running.get("/frontend/settings"))["language"]["target"]["code"] == "en"
    with pytest.raises(HTTPError) as error, urlopen(f"http://127.0.0.1:{running.port}/inspect?text={quote('a')}"):
        pass
    assert error.value.code == 400
    error.value.close()
    with Running(exported / "one") as server:
        status, answer = post_file(server, picture)
        assert (status, answer["error"]) == (400, "no model of this server describes pictures (POST /v1/caption)")


def test_the_description_of_the_api(running, picture):
    operation = json.loads(running.get("/openapi.json"))["paths"]["/v1/caption"]["post"]
    assert operation["requestBody"]["content"].keys() == {"application/json", "image/*", "multipart/form-data"}
    names = {parameter["name"] for parameter in operation["parameters"]}
    assert names == operation["requestBody"]["content"]["application/json"]["schema"]["properties"].keys() - {"image"}
    request = Request(f"http://127.0.0.1:{running.port}/v1/caption", picture, {"Content-Type": "image/png"})
    with urlopen(request, timeout=30) as response:
        assert json.load(response).keys() >= {"text", "score", "alternatives", "flags", "model", "version"}


# ------------------------------------------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    """A language model with random weights."""
    settings = config.parse_settings(
        {
            "source": "none", "target": "en", "input": {"kind": "none"}, "data": {"train": [{"files": "x"}]},
            "tokenizer": {"kind": "words"},
            "model": {
                "width": 8, "positions": "sinusoidal", "tie_embeddings": "target", "encoder": {"kind": "nothing"},
                "decoder": {"kind": "transformer", "layers": 1, "heads": 1, "feedforward_size": 8},
            },
        }
    )  # fmt: skip
    words = train_table("words", ["a cat sleeps"], 20, ())
    model = build(settings.model, None, words.size, input=settings.input)
    return write_bundle(
        tmp_path_factory.mktemp("language-model") / "words",
        model=settings.model,
        weights={name: tensor.numpy() for name, tensor in model.state_dict().items()},
        tokenizers={"target": words},
        languages=("none", "en"),
        input=settings.input,
        card="# Random\n",
    ).folder


def test_language_models_are_refused(language_model):
    from typer.testing import CliRunner

    from heedful.cli.app import app

    outcome = CliRunner().invoke(app, ["serve", str(language_model)])
    assert isinstance(outcome.exception, ConfigError), outcome.output
    assert str(outcome.exception).endswith(f"describe pictures; use heedful generate {language_model}")
    with pytest.raises(HeedfulError, match=r"words cannot be served: words is a language model.* heedful generate"):
        asyncio.run(WorkerSupervisor(language_model).start())


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to drain on")
def test_the_command_serves_a_run(captioner, tmp_path, picture):
    log, port = tmp_path / "log", free_port()
    command = [sys.executable, "-m", "heedful", "serve", str(captioner.parent), "--port", str(port), "--threads", "1"]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout.readline().startswith("heedful serve  image \u2192 en  torch"), log.read_text()
        with urlopen(Request(f"http://127.0.0.1:{port}/v1/caption", picture), timeout=30) as response:
            assert json.load(response)["text"] == CAPTION
    finally:
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=40)
    assert "1 requests admitted, 1 answered" in out

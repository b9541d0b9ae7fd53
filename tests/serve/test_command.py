"""The command over real processes: several models, keys that change, TLS; and its misuse."""

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from heedful import samples
from heedful.cli import serve as command
from heedful.errors import HeedfulError
from heedful.serve.auth import create_key
from support.free_ports import free_port

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to drain on")


@contextmanager
def serving(log, *arguments):
    """`heedful serve` on a free port; its stdout goes to the file `log`. Yields the port."""
    port = free_port()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "heedful", "serve", *map(str, arguments), "--port", str(port)], stdout=out
        )
    try:
        until = time.monotonic() + 90
        while "heedful serve" not in log.read_text():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.05)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()


def post(port, body, key=None, scheme="http", path="/v1/translate", **options):
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = Request(f"{scheme}://127.0.0.1:{port}{path}", json.dumps(body).encode(), headers)
    try:
        with urlopen(request, timeout=60, **options) as response:
            return response.status, json.load(response)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def wait_until(condition, seconds=20):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_two_models_and_a_pivot(exported, tmp_path):
    run = tmp_path / "pt-en"
    shutil.copytree(samples.model("pt-en"), run / "model")
    log = tmp_path / "log"
    with serving(log, run, exported / "one", "--engine", "torch") as port:
        assert log.read_text().splitlines() == [
            f"heedful serve  2 models  at http://127.0.0.1:{port}",
            "  pt \u2192 en  torch",
            "  en \u2192 de  ctranslate2",
            "  pt \u2192 de  via en",
        ]
        status, answer = post(port, {"texts": "Bom dia.", "source": "pt", "target": "de"})
        assert (status, answer["via"], answer["translations"][0]["pivot"]) == (200, "en", "Good morning.")
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as response:
            assert [(each["name"], each["inspects"]) for each in json.load(response)["models"]] == [
                ("pt-en", True),
                ("one", False),
            ]
    assert "2 requests admitted, 2 answered" in log.read_text()  # one by each model


def test_a_changed_keys_file_is_read_again(exported, tmp_path):
    keys, log, body = tmp_path / "keys", tmp_path / "log", {"texts": "a"}
    ann = create_key(keys, "ann")
    with serving(log, exported / "one", "--keys", keys, "--threads", "1") as port:
        assert post(port, body, ann)[0] == 200
        assert post(port, body) == (401, {"error": "missing API key: send the header Authorization: Bearer KEY"})
        assert post(port, body, "simsim") == (401, {"error": "wrong API key: check the key, or ask for a new one"})
        vendor = {"q": "a", "target": "de"}
        for key, says in ((None, "missing API key"), ("simsim", "wrong API key")):
            status, answer = post(port, vendor, key, path="/translate")
            assert (status, answer["error"].split(":")[0]) == (403, says)
        bob = create_key(keys, "bob")
        wait_until(lambda: post(port, body, bob)[0] == 200)
        keys.write_text(keys.read_text().splitlines()[1] + "\n")  # revoke ann's key
        wait_until(lambda: post(port, body, ann)[0] == 401)
        assert post(port, body, bob)[0] == 200
        for broken in ("no key\n", "", None):
            before = log.read_text().count("keeping the old keys")
            keys.unlink() if broken is None else keys.write_text(broken)
            wait_until(lambda before=before: log.read_text().count("keeping the old keys") > before)
            assert post(port, body, bob)[0] == 200
            assert post(port, body, ann)[0] == 401
        carol = create_key(keys, "carol")
        wait_until(lambda: post(port, body, carol)[0] == 200)
        assert post(port, body, bob)[0] == 401
    text = log.read_text()
    assert "warning: keeping the old keys: " in text
    assert "again: it has 2 keys\n" in text
    assert "again: it has 1 key\n" in text
    assert "expected NAME:SHA256" in text
    assert "contains no keys" in text
    assert "there is no such file" in text


# ----------------------------------------------------------------------------------------------------------------- TLS


def make_certificate(folder, name, *options):
    """A self-signed certificate for 127.0.0.1 and its key, made by openssl."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here")
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    made_by = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=127.0.0.1"]
    made_by += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]
    subprocess.run([*made_by, *(options or ("-nodes",))], check=True, capture_output=True)
    return cert, key


def test_https(exported, tmp_path):
    cert, key = make_certificate(tmp_path, "own")
    log = tmp_path / "log"
    with serving(log, exported / "one", "--threads", "1", "--tls-cert", cert, "--tls-key", key) as port:
        assert f"at https://127.0.0.1:{port}" in log.read_text()
        trusting = ssl.create_default_context(cafile=str(cert))
        assert post(port, {"texts": "a"}, scheme="https", context=trusting)[0] == 200
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            post(port, {"texts": "a"}, scheme="https", context=ssl.create_default_context())
        with pytest.raises(OSError):  # noqa: PT011  # plain HTTP: reset or closed
            post(port, {"texts": "a"})


# -------------------------------------------------------------------------------------------------------------- misuse


def says(*arguments):
    from typer.testing import CliRunner

    from heedful.cli.app import app

    outcome = CliRunner().invoke(app, ["serve", *map(str, arguments)])
    assert isinstance(outcome.exception, HeedfulError), outcome.output
    return str(outcome.exception)


def test_misuse_of_tls(exported, tmp_path):
    (cert, key), (_, other_key) = (make_certificate(tmp_path, name) for name in ("own", "other"))
    _, locked_key = make_certificate(tmp_path, "locked", "-passout", "pass:secret")
    text = tmp_path / "text"
    text.write_text("no certificate")
    model = exported / "one"
    assert "--tls-cert needs --tls-key: HTTPS needs" in says(model, "--tls-cert", cert)
    assert "--tls-key needs --tls-cert: HTTPS needs" in says(model, "--tls-key", key)
    assert "none cannot be read: No such file" in says(model, "--tls-cert", cert, "--tls-key", tmp_path / "none")
    assert "is not the private key of --tls-cert" in says(model, "--tls-cert", cert, "--tls-key", other_key)
    assert "both must be PEM files" in says(model, "--tls-cert", text, "--tls-key", key)
    assert "--tls-key is encrypted" in says(model, "--tls-cert", tmp_path / "locked.pem", "--tls-key", locked_key)


def test_a_key_is_created_only_for_a_model_that_exists(exported, tmp_path):
    keys = tmp_path / "keys"
    for models in ((tmp_path,), (tmp_path / "none",), (exported / "one", tmp_path / "none")):
        assert "model" in says(*models, "--keys", keys, "--new-key", "ann")
        assert not keys.exists()


def test_names_of_models_are_unique():
    paths = command.name_models(["runs/en-de", "other/model", "pt-en"])
    assert paths == {"en-de": Path("runs/en-de"), "other": Path("other/model"), "pt-en": Path("pt-en")}
    assert "two models have the name `en-de`" in says("runs/en-de", "exports/en-de")
    assert "two models have the name `pt-en`" in says("pt-en", "pt-en")


@pytest.mark.parametrize(("cores", "models", "threads"), [(2, 1, None), (2, 2, 1), (2, 3, 1), (8, 3, 2), (64, 4, 16)])
def test_engines_share_the_cores(cores, models, threads, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores), raising=False)
    assert command.share_cores(models) == threads


def test_a_model_that_cannot_be_opened_stops_the_others(exported, tmp_path):
    bad = tmp_path / "bad"
    shutil.copytree(exported / "one", bad)
    (bad / "model.bin").write_bytes(b"")
    done = subprocess.run(
        [sys.executable, "-m", "heedful", "serve", exported / "one", bad, "--port", str(free_port())],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert "bad cannot be served" in done.stderr

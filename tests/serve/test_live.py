"""`heedful serve --live`: the page that contains the model, from a real server, in a real browser."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import typer
from typer.testing import CliRunner

from heedful.cli import serve as command
from heedful.cli.app import app
from heedful.errors import ConfigError
from heedful.serve.auth import create_key
from heedful.serve.page import PAGE_DIR
from support.browser_pages import until
from support.free_ports import free_port
from support.live_models import random_bundle

TEXT = "O gato preto bebeu o leite."
WORDS = json.loads((PAGE_DIR / "words.json").read_text(encoding="utf-8"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to drain on"),
]


@contextmanager
def serving(folder, *options):
    """`heedful serve pt-en` with the cache in a folder; yields its address."""
    port, log = free_port(), folder / "log"
    arguments = [sys.executable, "-m", "heedful", "serve", "pt-en", "--engine", "torch", "--threads", "1", *options]
    with log.open("wb") as out:
        process = subprocess.Popen([*arguments, "--port", str(port)], stdout=out, stderr=out, env=environment(folder))
    try:
        end = time.monotonic() + 120
        while "heedful serve  pt" not in log.read_text(encoding="utf-8"):
            assert process.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < end
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def environment(folder):
    """Every variable that `user_cache_dir` reads, set to `folder`."""
    return {**os.environ, "XDG_CACHE_HOME": str(folder), "LOCALAPPDATA": str(folder), "HOME": str(folder)}


def test_visitors_run_the_model_in_their_browser(tmp_path, chromium):
    with serving(tmp_path, "--live") as address:
        with urlopen(f"{address}/live") as response:
            policy, tag = response.headers["Content-Security-Policy"], response.headers["ETag"]
            size = len(response.read())
        assert "default-src 'none'; script-src 'sha256-" in policy
        assert "worker-src blob:; " in policy
        assert policy.endswith("; frame-ancestors 'none'")
        assert not {"unsafe-inline", "unsafe-eval", "http", "*"} & set(policy.replace("'", "").replace(";", "").split())
        assert size > 1_000_000
        with pytest.raises(HTTPError) as unchanged:
            urlopen(Request(f"{address}/live", headers={"If-None-Match": tag}))
        unchanged.value.close()
        assert unchanged.value.code == 304
        (page,) = tmp_path.rglob("pt-en-live-*.html")
        made = page.stat().st_mtime_ns

        context = chromium.new_context(locale="en-US")
        tab, requests, errors = context.new_page(), [], []
        context.on("request", lambda request: requests.append(request.url))
        tab.goto(address)
        tab.fill("textarea", TEXT)
        tab.wait_for_selector("#translation .line .word")
        translation = tab.inner_text("#translation .line").splitlines()[0]
        tab.click("#translation .small")
        assert tab.inner_text(".details a[href^='live']") == WORDS["en"]["live"]
        with context.expect_page() as opening:
            tab.click(".details a[href^='live']")
        live = opening.value
        live.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        live.on("pageerror", lambda error: errors.append(str(error)))
        live.wait_for_selector("#stage .answer")
        assert live.inner_text("#stage .answer").strip() == "The black cat drank the milk."
        assert "The black cat drank the milk." in translation
        live.click(".strip [data-head='cross 2.3']")
        live.keyboard.press("s")
        until(live, "document.querySelector('.outcome .number') !== null")
        assert errors == []
        assert {url.split("/")[2] for url in requests if url.startswith("http")} == {address.split("/")[2]}
        context.close()
    with serving(tmp_path, "--live") as address, urlopen(f"{address}/v1/directions") as response:
        assert [each["live"] for each in json.load(response)["directions"]] == [True]
    assert page.stat().st_mtime_ns == made


def test_without_the_option_no_weights_are_given_away(tmp_path):
    with serving(tmp_path) as address:
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{address}/live")
        message = json.load(refused.value)["error"]
        assert (refused.value.code, message) == (
            404,
            "there is no live page: start the server with --live, which gives the model's weights to every visitor",
        )
        with urlopen(f"{address}/readyz") as response:
            assert not json.load(response)["live"]
    assert not [*tmp_path.rglob("*.html")]


def test_a_model_that_the_page_cannot_run_is_refused_before_the_start(tmp_path, capfd):
    layers = {"kind": "transformer", "layers": 1, "heads": 2, "feedforward_size": 12}
    settings = {"width": 8, "tie_embeddings": "none", "encoder": layers, "decoder": {"kind": "ctc"}}
    bundle = random_bundle(tmp_path / "ctc", settings)
    with pytest.raises(typer.Exit) as refused:
        command.find_or_make_live_page(bundle.folder)
    assert refused.value.exit_code
    assert "the page cannot run this model: its engine has no ctc. Remove --live" in " ".join(
        capfd.readouterr().err.split()
    )
    assert not [*tmp_path.rglob("*.html")]


def test_weights_are_not_given_away_where_keys_are_required(tmp_path):
    create_key(tmp_path / "keys", "ann")
    outcome = CliRunner().invoke(app, ["serve", "pt-en", "--keys", str(tmp_path / "keys"), "--live"])
    assert isinstance(outcome.exception, ConfigError)
    assert "--live gives the model's weights to everyone who opens the page, without a key" in str(outcome.exception)

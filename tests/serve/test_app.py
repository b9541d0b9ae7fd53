"""The server end to end: a real model, a real worker process, real HTTP."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from http.client import IncompleteRead
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

import heedful
from heedful import samples
from heedful.bundle import manifest_entry, open_bundle
from heedful.confidence import Features, fit_calibration
from heedful.errors import HeedfulError
from heedful.serve.app import create_app
from heedful.serve.auth import hash_key
from heedful.serve.gateway import RequestHead
from heedful.serve.request_queue import QueueLimits
from heedful.serve.state import ServerSettings
from heedful.serve.supervisor import WorkerSupervisor
from heedful.translation.calibrate import store_calibration
from support.free_ports import free_port
from support.running_server import Running

SENTENCES = ["a red house", "the old man sees two dogs", "a", "three cats under a tree with the child", "", "the dog"]


@pytest.fixture(scope="module")
def running(exported):
    with Running(exported / "one") as one:
        yield one


def test_translations_equal_those_of_heedful_translate(running, exported):
    translator = heedful.load(exported / "one")
    status, found, _ = running.post(
        "/v1/translate", {"texts": SENTENCES, "tokens": True, "alternatives": 2, "alignment": "naive"}
    )
    assert status == 200
    for one, here in zip(found["translations"], translator(SENTENCES, num_best=3, alignment="naive"), strict=True):
        assert one["text"] == here.text
        assert one["alternatives"] == [other.text for other in here.alternatives]
        assert one["score"] == pytest.approx(here.score)
        assert [token["log_probability"] for token in one["tokens"]] == pytest.approx(
            [t.log_probability for t in here.tokens]
        )
        assert [tuple(link) for link in one["alignment"] or ()] == list(here.alignment or ())


def test_confidence(tmp_path):
    features = [Features(q, q - 1, 0.1, 2 - q, 0.5 + q / 2) for q in np.linspace(0.2, 1, 2_000)]
    calibration = fit_calibration(features, [100 * each.mean_probability for each in features], map(str, range(2_000)))
    shutil.copytree(samples.model("pt-en"), tmp_path / "model")
    store_calibration(open_bundle(tmp_path / "model"), calibration)
    expected = heedful.load(tmp_path / "model", threads=1)("Bom dia.", confidence=True).confidence
    with Running(tmp_path / "model") as server:
        requests = ({"confidence": True}, {}, {"confidence": True, "beam": 2})
        replies = [server.post("/v1/translate", {"texts": "Bom dia.", **request})[1] for request in requests]
        assert [reply["translations"][0]["confidence"] for reply in replies] == [asdict(expected), None, None]
        assert server.post("/v1/translate", {"texts": "a", "confidence": "sure"})[0] == 422
        request = Request(
            f"http://127.0.0.1:{server.port}/v1/document?confidence=true",
            b"Bom dia.\n",
            {"Accept": "application/x-ndjson"},
        )
        with urlopen(request, timeout=60) as response:
            assert json.loads(response.read())["confidence"] == asdict(expected)


def test_concurrent_clients_get_their_own_translations(running, exported):
    texts = [f"{a} {b}" for a in ("a", "the", "two") for b in ("dog", "cat", "house", "old man", "child")] * 4
    expected = {text: heedful.load(exported / "one")(text).text for text in set(texts)}
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda text: running.post("/v1/translate", {"texts": text}), texts))
    assert [reply[0] for reply in replies] == [200] * len(texts)
    assert [reply[1]["translations"][0]["text"] for reply in replies] == [expected[text] for text in texts]


@pytest.mark.parametrize("form", [False, True])
def test_libretranslate(running, form):
    text = running.post("/v1/translate", {"texts": "a red house"})[1]["translations"][0]["text"]
    status, found, _ = running.post("/translate", {"q": "a red house", "source": "en", "target": "de"}, form=form)
    assert (status, found) == (200, {"translatedText": text})
    status, found, _ = running.post(
        "/translate", {"q": "a", "source": "auto", "target": "de", "alternatives": 2}, form=form
    )
    assert found["detectedLanguage"]["language"] == "en"
    assert len(found["alternatives"]) == 2
    status, found, _ = running.post("/translate", {"q": "a", "source": "en", "target": "fr"}, form=form)
    assert status == 400
    assert "from en to de" in found["error"]


def test_lists_of_texts(running):
    status, found, _ = running.post("/translate", {"q": ["a", "the dog"], "source": "en", "target": "de"})
    assert status == 200
    assert len(found["translatedText"]) == 2
    status, found, _ = running.post("/v2/translate", {"text": ["a", "the dog"], "target_lang": "DE"})
    assert [one["detected_source_language"] for one in found["translations"]] == ["EN", "EN"]
    status, found, _ = running.post("/language/translate/v2", {"q": "the dog", "target": "de"})
    assert found["data"]["translations"][0]["translatedText"]


def test_official_clients(running):
    libre = pytest.importorskip("libretranslatepy", reason="libretranslatepy is not installed")
    deepl = pytest.importorskip("deepl", reason="deepl is not installed")
    text = running.post("/v1/translate", {"texts": "a red house"})[1]["translations"][0]["text"]
    assert libre.LibreTranslateAPI(f"http://127.0.0.1:{running.port}/").translate("a red house", "en", "de") == text
    api = libre.LibreTranslateAPI(f"http://127.0.0.1:{running.port}/")
    assert api.detect("a red house")[0]["language"] == "en"
    assert [one["code"] for one in api.languages()] == ["en", "de"]
    translator = deepl.Translator("any", server_url=f"http://127.0.0.1:{running.port}")
    assert [one.code for one in translator.get_source_languages()] == ["EN"]
    assert [one.code for one in translator.get_target_languages()] == ["DE"]
    before = translator.get_usage().character.count
    assert translator.translate_text("a red house", target_lang="DE").text == text
    assert translator.translate_text(["a red house", "the dog"], target_lang="DE")[0].text == text
    assert translator.get_usage().character.count == before + 2 * len("a red house") + len("the dog")
    two = "A red house.\nThe dog"
    sentences = running.post("/v1/translate", {"texts": ["A red house.", "The dog", "A red house. The dog"]})[1]
    first, second, _ = (each["text"] for each in sentences["translations"])
    body = {"texts": "A red house. The dog", "split_sentences": False}
    whole = running.post("/v1/translate", body)[1]["translations"][0]["text"]
    for choice, expected in (("1", f"{first}\n{second}"), ("nonewlines", f"{first} {second}"), ("0", whole)):
        answer = translator.translate_text(two, target_lang="DE", split_sentences=choice)
        assert answer.text == expected, choice
    with pytest.raises(deepl.DeepLException, match="from en to de"):
        translator.translate_text("a red house", target_lang="FR")
    with pytest.raises(deepl.DeepLException, match="glossary_id"):
        translator.translate_text("a red house", source_lang="EN", target_lang="DE", glossary="0")


@pytest.mark.parametrize(
    ("path", "tree", "says"),
    [
        ("/translate", {"q": "<b>a</b>", "source": "en", "target": "de", "format": "html"}, "HTML"),
        ("/language/translate/v2", {"q": "a", "format": "html"}, "HTML"),
        ("/v2/translate", {"text": ["a"], "target_lang": "DE", "tag_handling": "xml"}, "tag_handling"),
        ("/v2/translate", {"text": ["a"], "target_lang": "DE", "formality": "less"}, "formality"),
        ("/v2/translate", {"text": ["a"], "target_lang": "FR"}, "from en to de"),
    ],
)
def test_unsupported_options_are_rejected_in_the_vendors_format(path, tree, says, running):
    status, found, _ = running.post(path, tree)
    why = found["message"] if path.startswith("/v2") else found["error"]
    assert status == 400
    assert says in (why["message"] if isinstance(why, dict) else why)


def test_a_form_as_weblate_posts_it(running):
    form = {"q": "a red house", "source": "en", "target": "de", "api_key": "", "format": "text"}
    status, found, _ = running.post("/translate", form, form=True)
    assert (status, isinstance(found["translatedText"], str)) == (200, True)


def stream(running, text, query="", **headers):
    request = Request(f"http://127.0.0.1:{running.port}/v1/document{query}", text.encode(), headers)
    with urlopen(request, timeout=60) as response:
        return response.read().decode()


def test_a_document_is_translated_line_by_line(running, exported):
    lines = [*SENTENCES, *(f"{a} {b}" for a in ("a", "the", "two") for b in ("dog", "cat", "house", "old man"))] * 30
    expected = [one.text for one in heedful.load(exported / "one")(lines, beam=1)]
    found = stream(running, "\r\n".join(lines) + "\n", "?beam=1")
    assert found.split("\n")[:-1] == expected
    whole = [json.loads(line) for line in stream(running, "a\n\nb", Accept="application/x-ndjson").splitlines()]
    assert [one["source"] for one in whole] == ["a", "", "b"]


def test_an_invalid_document_is_rejected_before_streaming(running):
    for text, query, status in (("a", "?beam=99", 422), ("x" * 90_000, "", 413), ("a", "?bean=1", 422)):
        with pytest.raises(HTTPError) as refused:
            stream(running, text, query)
        refused.value.close()
        assert refused.value.code == status
    request = Request(f"http://127.0.0.1:{running.port}/v1/document", b"caf\xe9", {})
    with pytest.raises(HTTPError) as refused:
        urlopen(request, timeout=20)
    assert "not UTF-8 at byte 4" in json.load(refused.value)["error"]
    refused.value.close()


def test_a_document_that_fails_midway_is_visibly_incomplete(running):
    text = "a\n" * 400 + "x" * 90_000
    with pytest.raises((IncompleteRead, ConnectionError)):
        stream(running, text)
    last = stream(running, text, Accept="application/x-ndjson").splitlines()[-1]
    assert "tokens in one request" in json.loads(last)["error"]


def test_a_wide_beam_needs_smaller_requests_and_splits_documents(running):
    text = "\n".join(["a b c"] * 200)
    assert running.post("/v1/translate", {"texts": text})[0] == 200
    status, found = running.post("/v1/translate", {"texts": text, "beam": 16})[:2]
    assert status == 413
    assert "with a beam or alternatives" in found["error"]
    assert len(stream(running, text, "?beam=16").splitlines()) == 200


def test_every_response_names_the_model(running):
    found = running.post("/v1/translate", {"texts": "a"})[1]
    ready = json.loads(running.get("/readyz"))
    assert (found["model"], found["version"]) == (ready["model"], ready["version"])
    assert found["model"] == "one"


@pytest.mark.parametrize("part", ["", "GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: "], ids=["silent", "slow"])
def test_idle_connections_are_closed(part, exported, monkeypatch):
    """Also after a first request on the connection."""
    from heedful.serve import server as running_module

    monkeypatch.setattr(running_module, "HEAD_TIMEOUT_SECONDS", 0.4)
    with Running(exported / "one", http=running_module.TimeoutProtocol) as one:
        for greeting in (b"", b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"):
            line = one.connected()
            if greeting:
                line.sendall(greeting)
                assert line.recv(4096).startswith(b"HTTP/1.1 200")
            begin = time.monotonic()
            closed = False
            line.sendall(part.encode())
            while not closed and time.monotonic() - begin < 4:
                time.sleep(0.1)
                try:
                    line.sendall(b"x" if part else b"")
                    line.settimeout(0.01)
                    closed = line.recv(100) == b""
                except TimeoutError:
                    pass
                except OSError:
                    closed = True
            line.close()
            assert closed
            assert time.monotonic() - begin < 2


def test_a_missing_body_times_out(exported):
    with Running(exported / "one", body_timeout_seconds=0.3) as one, one.connected() as line:
        line.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert line.recv(4096).startswith(b"HTTP/1.1 408")


def test_connections_above_the_limit_get_503(exported, monkeypatch):
    from heedful.serve import server as running_module

    monkeypatch.setattr(running_module.TimeoutProtocol, "max_connections", 3)
    with Running(exported / "one", http=running_module.TimeoutProtocol) as one:
        lines = [one.connected() for _ in range(4)]
        said = lines[-1].recv(4096)
        assert said.startswith(b"HTTP/1.1 503")
        assert b"Retry-After: 2" in said
        head, _, body = said.partition(b"\r\n\r\n")
        assert len(body) == int(re.search(rb"Content-Length: (\d+)", head)[1])
        assert json.loads(body)["error"]
        for line in lines:
            line.close()


def test_a_damaged_model_is_rejected_by_the_worker(exported, tmp_path):
    bad = tmp_path / "bad"
    shutil.copytree(exported / "one", bad)
    weights = bad / "model.bin"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(HeedfulError, match="is damaged"):
        asyncio.run(WorkerSupervisor(bad).start())
    entry = json.loads((bad / "heedful" / "export.json").read_text())
    weights.write_bytes(b"\xff" * weights.stat().st_size)  # and its hash recomputed
    entry["files"]["model.bin"] = manifest_entry(weights)
    (bad / "heedful" / "export.json").write_text(json.dumps(entry))
    manifest = json.loads((bad / "heedful" / "manifest.json").read_text())
    manifest["files"]["export.json"] = manifest_entry(bad / "heedful" / "export.json")
    (bad / "heedful" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(HeedfulError, match="cannot be served"):
        asyncio.run(WorkerSupervisor(bad).start())


def test_the_server_process_loads_no_engine(exported):
    code = (
        "import sys, heedful.serve.server, heedful.cli.serve; "
        "print([name for name in ('torch', 'ctranslate2', 'onnxruntime') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_inspect(exported):
    with Running(exported / "one", inspect_dirs={"one": exported / "run"}) as one:
        assert json.loads(one.get("/readyz"))["inspects"]
        found = one.get("/inspect?text=a%20red%20house")
        assert "Content-Security-Policy" in found
        assert "red" in found
        assert '"deletion":{"' not in found  # evidence takes time that other requests need
        for query, status in (("", 422), ("?text=" + "x" * 600, 422)):
            with pytest.raises(HTTPError) as refused:
                one.get("/inspect" + query)
            refused.value.close()
            assert refused.value.code == status


def test_inspect_is_not_available_for_an_export(running):
    with pytest.raises(HTTPError) as refused:
        running.get("/inspect?text=a")
    assert "inspection is not available" in json.load(refused.value)["error"]
    refused.value.close()


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 422, "neither JSON"),
        (b"[1]", 422, "not a JSON object"),
        (b"[" * 100_000, 422, "neither JSON"),
        (b'{"texts": 7}', 422, "texts"),
        (b'{"texts": []}', 422, "texts"),
        (b'{"texts": "a", "beam": 99}', 422, "beam"),
        (b'{"texts": "a", "bean": 1}', 422, "bean"),
        (b'{"texts": "\\ud800"}', 422, "surrogate"),
        (b'{"texts": "a", "tag": "<2xx>"}', 422, "not a tag"),
        (b'{"texts": "' + b"x" * 90_000 + b'"}', 413, "tokens"),
        (json.dumps({"texts": ["a"] * 300}).encode(), 413, "300 texts"),
        (b'{"texts": "' + b"x" * (1 << 20) + b'"}', 413, "larger than"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_invalid_requests_get_a_message(body, status, says, running):
    got, tree, _ = running.post("/v1/translate", body)
    assert (got, says in tree["error"]) == (status, True), tree


def test_health_and_metrics(running):
    assert json.loads(running.get("/livez")) == {"live": True}
    ready = json.loads(running.get("/readyz"))
    assert (ready["ready"], ready["source"], ready["engine"]) == (True, "en", "ctranslate2")
    lines = running.get("/metrics").splitlines()
    values = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r'heedful_\w+(\{status="\d+"\})? [-+.e\d]+', line) for line in values)
    named = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {re.split(r"[ {]", line)[0] for line in values} <= named
    assert "/v1/translate" in json.loads(running.get("/openapi.json"))["paths"]


def test_keys(exported):
    with Running(exported / "one", keys={hash_key("sesame"): "ann"}) as one:
        body = {"texts": "a"}
        assert one.post("/v1/translate", body)[0] == 401
        assert one.post("/v1/translate", body, {"Authorization": "Bearer simsim"})[0] == 401
        assert one.post("/v1/translate", body, {"Authorization": "Bearer sesame"})[0] == 200
        assert (
            one.post("/v2/translate", {"text": "a", "target_lang": "DE"}, {"Authorization": "DeepL-Auth-Key sesame"})[0]
            == 200
        )
        assert one.post("/translate", {"q": "a", "target": "de", "api_key": "sesame"})[0] == 200
        assert one.post("/language/translate/v2?key=sesame", {"q": "a"})[0] == 200


def test_requests_above_the_rate_limit_get_429_with_retry_after(exported):
    with Running(exported / "one", client_tokens_per_second=10.0, client_burst_tokens=30.0) as one:
        replies = [one.post("/v1/translate", {"texts": "the old dog"}) for _ in range(5)]
        assert replies[0][0] == 200
        assert replies[-1][0] == 429
        assert int({name.lower(): value for name, value in replies[-1][2].items()}["retry-after"]) >= 1


def sent(gateway, length=1000, client="10.0.0.1", path="/v1/translate", key=b""):
    """The head of a request as the gateway reads it."""
    headers = [(b"content-length", str(length).encode()), (b"authorization", key)]
    return RequestHead({"type": "http", "path": path, "headers": headers, "client": (client, 1)}, gateway.state)


@pytest.mark.parametrize(
    ("other", "unread"),
    [
        ({}, True),
        ({"length": 1001}, True),
        ({"length": 999}, False),
        ({"length": 0}, False),  # unknown length
        ({"client": "10.0.0.2"}, False),
        ({"path": "/translate"}, False),
    ],
)
@pytest.mark.parametrize("since", ["nothing", "a batch started", "the queue is empty"])
def test_a_resent_request_is_rejected_unread_until_a_batch_starts(other, unread, since, exported):
    gateway = create_app(WorkerSupervisor(exported / "one"))
    batcher = gateway.state.models["one"].batcher
    batcher.queue.queued_tokens = 500
    gateway.remember_refusal(sent(gateway))
    gateway.remember_refusal(sent(gateway, 2000))  # the smallest counts
    batcher.num_batches_taken += since == "a batch started"
    batcher.queue.queued_tokens *= since != "the queue is empty"
    assert gateway.refusals["one"].includes(sent(gateway, **other)) is (unread and since == "nothing")


def test_refusals_are_remembered_by_key_not_by_address(exported):
    keys = {hash_key("sesame"): "ann", hash_key("open"): "bob"}
    gateway = create_app(WorkerSupervisor(exported / "one"), ServerSettings(keys=keys))
    gateway.state.models["one"].batcher.queue.queued_tokens = 500
    gateway.remember_refusal(sent(gateway, key=b"Bearer sesame"))
    gateway.remember_refusal(sent(gateway, key=b"Bearer simsim"))  # unknown key: it must get 401
    asked = {
        (place, key): gateway.refusals["one"].includes(sent(gateway, client=place, key=key))
        for place in ("10.0.0.1", "10.0.0.2")
        for key in (b"Bearer sesame", b"DeepL-Auth-Key sesame", b"Bearer open", b"Bearer simsim", b"")
    }
    assert {key for (_, key), unread in asked.items() if unread} == {b"Bearer sesame", b"DeepL-Auth-Key sesame"}
    assert sum(asked.values()) == 4


def test_most_rejected_requests_are_not_read(exported):
    with Running(
        exported / "one",
        limits=QueueLimits(max_wait_seconds=0.6),
        client_tokens_per_second=1e9,
        client_burst_tokens=1e9,
    ) as one:
        framework, read = one.app.app, []

        async def counted(scope, receive, send):
            read.append(scope["path"])
            await framework(scope, receive, send)

        def ask(_):
            return one.post("/v1/translate", {"texts": ["the old man sees two dogs under a tree"] * 16})[0]

        assert ask(0) == 200  # the throughput is measured now
        one.app.app = counted
        with ThreadPoolExecutor(32) as pool:
            statuses = list(pool.map(ask, range(600)))
        refused = statuses.count(503)
        assert set(statuses) == {200, 503}
        assert refused > 100
        assert len(read) - statuses.count(200) < refused / 4


@contextmanager
def busy(running):
    """Run four clients that send requests continuously; yield their statuses."""
    stop, statuses = threading.Event(), []

    def ask():
        while not stop.is_set():
            statuses.append(running.post("/v1/translate", {"texts": ["the old man", "a dog"]})[0])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV])
def test_a_worker_that_dies_or_hangs_is_replaced_without_errors(how, running):
    before = running.pid
    with busy(running) as statuses:
        time.sleep(0.2)
        os.kill(before, how)
        begin = time.monotonic()
        while json.loads(running.get("/livez")) and time.monotonic() - begin < 10:
            try:
                if running.pid != before:
                    break
            except HTTPError:
                pass
            time.sleep(0.05)
        took = time.monotonic() - begin
        time.sleep(0.2)
    assert running.pid != before
    assert took < 6
    assert set(statuses) == {200}


def test_the_model_is_swapped_without_losing_requests(running, exported):
    pids = {running.pid}
    loop = running.server.servers[0].get_loop()
    with busy(running) as statuses:
        for name in ("two", "one", "two", "one"):
            asyncio.run_coroutine_threadsafe(running.supervisor.swap_model(exported / name), loop).result(30)
            pids.add(running.pid)
    assert len(pids) == 5
    assert set(statuses) == {200}


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
def test_requests_of_disconnected_clients_are_not_translated(exported, monkeypatch):
    monkeypatch.setattr(
        "heedful.serve.supervisor.HEARTBEAT_TIMEOUT_SECONDS", 60.0
    )  # the stopped worker must not count as dead
    with Running(exported / "one") as one, ExitStack() as lines:
        body = json.dumps({"texts": ["the old man sees two dogs"]}).encode()
        head = f"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        pid = one.pid
        os.kill(pid, signal.SIGSTOP)
        for admitted in (1, 40):  # the first is sent to the worker alone, the others are queued
            for _ in range(admitted - int(one.metric("heedful_admitted_total"))):
                lines.enter_context(one.connected()).sendall(head.encode() + body)
            one.wait_for("heedful_admitted_total", admitted)
        lines.close()
        for _ in range(50):  # let the server process the disconnects
            one.metric("heedful_admitted_total")
        os.kill(pid, signal.SIGCONT)
        assert one.post("/v1/translate", {"texts": "a"})[0] == 200
        assert one.metric("heedful_disconnected_total") == 39
        assert one.metric("heedful_answered_total") == 1
        assert one.metric("heedful_queue_tokens") == 0
        assert one.pid == pid


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
def test_a_pause_of_the_machine_does_not_count_as_a_hanging_worker(exported):
    """Both processes stop, as in a suspended laptop; the worker continues a little later than the server."""
    port = free_port()
    command = [sys.executable, "-m", "heedful", "serve", str(exported / "one"), "--port", str(port), "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert "heedful serve" in process.stdout.readline()

            def worker_pid():
                with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as response:
                    return json.load(response)["pid"]

            before = worker_pid()
            for pid in (before, process.pid):
                os.kill(pid, signal.SIGSTOP)
            time.sleep(2)
            os.kill(process.pid, signal.SIGCONT)
            time.sleep(0.4)
            os.kill(before, signal.SIGCONT)
            time.sleep(0.5)
            assert worker_pid() == before
        finally:
            process.kill()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to drain on")
def test_the_command_serves_and_drains(exported, tmp_path):
    port = free_port()
    command = [sys.executable, "-m", "heedful", "serve", str(exported / "one"), "--port", str(port), "--threads", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert "heedful serve  en \u2192 de  ctranslate2" in process.stdout.readline()
        url = f"http://127.0.0.1:{port}/v1/translate"
        texts = json.dumps({"texts": ["the old man sees two dogs under a tree"] * 15}).encode()
        found = []

        def ask():
            with urlopen(Request(url, texts, {"Content-Type": "application/json"}), timeout=30) as response:
                found.append(response.status)

        for _ in range(100):
            try:
                urlopen(f"http://127.0.0.1:{port}/livez", timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for _ in range(100):  # until all six are admitted
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
                if b"heedful_admitted_total 6" in response.read():
                    break
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(30)
        assert found == [200] * 6
        assert process.wait(20) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to drain on")
@pytest.mark.parametrize("engine", ["ctranslate2", "onnx", "torch"])
def test_a_run_is_exported_and_served(engine, exported, tmp_path):
    """The export is made and verified at the first start, and cached for the second."""
    run = tmp_path / "en-de"
    shutil.copytree(exported / "run", run)
    port = free_port()
    command = [sys.executable, "-m", "heedful", "serve", str(run), "--port", str(port), "--threads", "1"]
    command += [] if engine == "ctranslate2" else ["--engine", engine]
    for turn in range(1 if engine == "torch" else 2):
        log = tmp_path / f"log-{turn}"  # a file: a pipe that is not read could block the process
        with log.open("wb") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert f"heedful serve  en \u2192 de  {engine}" in process.stdout.readline(), log.read_text()
            request = Request(f"http://127.0.0.1:{port}/v1/translate", b'{"texts": "a red house"}')
            with urlopen(request, timeout=30) as response:
                said = json.load(response)
            assert said["translations"][0]["text"]
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as response:
                assert json.load(response)["inspects"]
        finally:
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=40)
        assert "1 requests admitted, 1 answered" in out
        assert ("proof" in log.read_text()) == (turn == 0 and engine != "torch")
    if engine != "torch":
        (place,) = (run / "served").iterdir()
        assert said["model"] == place.name
        assert place.name.startswith(f"en-de-{engine}-")


def test_misuse_of_the_command(tmp_path, exported):
    from typer.testing import CliRunner

    from heedful.cli.app import app

    def says(*arguments):
        found = CliRunner().invoke(app, ["serve", *arguments])
        assert isinstance(found.exception, HeedfulError), found.output
        return str(found.exception)

    assert "--keys" in says(str(exported / "one"), "--host", "0.0.0.0")
    assert "cannot be read" in says(str(exported / "one"), "--keys", str(tmp_path / "none"))
    assert "there is no model" in says(str(tmp_path))
    assert "did you mean `onnx`" in says(str(exported / "run"), "--engine", "onx")
    assert "--queue must be above 0, not 0" in says(str(exported / "one"), "--queue", "0")
    assert "--grace must be 0 or more, not -1" in says(str(exported / "one"), "--grace", "-1")
    assert "from 1 to 65535" in says(str(exported / "one"), "--port", "70000")
    assert "not an address of this machine" in says(str(exported / "one"), "--host", "203.0.113.7", "--no-auth")
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert "is in use" in says(str(exported / "one"), "--port", str(other.getsockname()[1]))
    assert "--new-key needs a file to add the key to" in says(str(exported / "one"), "--new-key", "ann")
    found = CliRunner().invoke(
        app, ["serve", str(exported / "one"), "--keys", str(tmp_path / "keys"), "--new-key", "ann"]
    )
    assert found.exit_code == 0
    assert Path(tmp_path / "keys").read_text().startswith("ann:")


def test_json_without_a_content_type_header_is_accepted(running):
    request = Request(f"http://127.0.0.1:{running.port}/v1/translate", b'{"texts": "a"}')  # urllib declares it a form
    with urlopen(request, timeout=30) as response:
        assert json.load(response)["translations"]


LOCAL = {"allowed_hosts": frozenset(("127.0.0.1", "localhost", "::1"))}


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({"Host": "127.0.0.1:5000"}, "/livez", 200),
        ({"Host": "[::1]:5000"}, "/livez", 200),
        ({"Host": "LOCALHOST"}, "/livez", 200),
        ({"Host": "evil.example"}, "/livez", 403),
        ({"Sec-Fetch-Site": "cross-site"}, "/livez", 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, "/", 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, "/metrics", 403),
        ({"Sec-Fetch-Site": "same-origin"}, "/livez", 200),
    ],
)
def test_a_local_server_rejects_other_sites(headers, path, status, running, monkeypatch):
    state = running.app.state
    monkeypatch.setattr(state, "settings", replace(state.settings, **LOCAL))
    try:
        with urlopen(Request(f"http://127.0.0.1:{running.port}{path}", headers=headers), timeout=20) as response:
            assert response.status == status
    except HTTPError as error:
        error.close()
        assert error.code == status  # noqa: PT017  # urllib raises what we expect here


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to drain on")
def test_shutdown_takes_no_longer_than_the_grace_period(exported):
    """With documents that never arrive; and immediately after a second signal."""
    for grace, signals, limit in (("1", 1, 6.0), ("30", 2, 6.0)):
        port = free_port()
        command = [sys.executable, "-m", "heedful", "serve", str(exported / "one"), "--port", str(port)]
        process = subprocess.Popen([*command, "--grace", grace], stdout=subprocess.PIPE, text=True)
        try:
            process.stdout.readline()
            lines = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
            for line in lines:  # documents whose body never arrives
                line.sendall(b"POST /v1/document HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
            time.sleep(0.3)
            begin = time.monotonic()
            for _ in range(signals):
                process.send_signal(signal.SIGTERM)
                time.sleep(0.2)
            process.wait(limit)
            assert time.monotonic() - begin < limit
            for line in lines:
                line.close()
        finally:
            process.kill()
            process.communicate()


def test_clients_that_do_not_read_are_disconnected(exported, monkeypatch):
    from heedful.serve import server as running_module

    monkeypatch.setattr(running_module, "WRITE_TIMEOUT_SECONDS", 0.5)
    with Running(
        exported / "one", http=running_module.TimeoutProtocol, client_tokens_per_second=1e9, client_burst_tokens=1e9
    ) as one:
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", one.port))
        body = b"the old man sees two dogs under a tree\n" * 100_000
        head = "POST /v1/document?beam=1 HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\n"
        head += f"Content-Length: {len(body)}"
        line.sendall(head.encode() + b"\r\n\r\n" + body)
        one.wait_for("heedful_open_documents", 1)
        one.wait_for("heedful_open_documents", 0, seconds=60)
        line.close()


def test_a_client_has_at_most_two_open_documents(exported):
    with Running(exported / "one") as one:
        lines = [one.connected() for _ in range(3)]
        for line in lines:
            line.sendall(b"POST /v1/document HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab")
            time.sleep(0.1)
        assert lines[2].recv(4096).startswith(b"HTTP/1.1 503")
        lines[0].close()
        time.sleep(0.2)
        assert stream(one, "a\n").strip()
        for line in lines:
            line.close()

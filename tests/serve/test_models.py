"""Several models in one server: routes, pivots, isolation, over real servers."""

import asyncio
import json
import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful import samples
from heedful.errors import ConfigError
from heedful.serve.admission import Admission
from heedful.serve.app import create_app
from heedful.serve.batcher import Batcher
from heedful.serve.protocol import TranslationJob
from heedful.serve.rejection import RequestRejected
from heedful.serve.request_queue import QueueLimits
from heedful.serve.routes import (
    ModelLanguages,
    find_routes,
    is_same_language,
    join_alignments,
    join_translations,
    matches,
    select_route,
)
from heedful.serve.supervisor import WorkerSupervisor
from support.running_server import Running

TEXTS = ["O gato dorme.", "Bom dia.\nEla fala inglês.", ""]
OFFERED = "pt to en, ru to en, en to de, pt to de (via en), ru to de (via en)"


@pytest.fixture(scope="module")
def running(exported):
    """Three models: pt-en, ru-en and a small en-de. pt-de and ru-de are pivots."""
    models = {name: samples.model(name) for name in ("pt-en", "ru-en")}
    with Running({**models, "one": exported / "one"}) as server:
        yield server


def translated(running, texts, **fields):
    status, answer, _ = running.post("/v1/translate", {"texts": texts, **fields})
    assert status == 200, answer
    return answer


def texts_of(answer):
    return [translation["text"] for translation in answer["translations"]]


# ------------------------------------------------------------------------------------------------------- routes

CODES = st.sampled_from(["pt", "en", "ru", "de", "pt-BR", "pt-PT", "en-US"])
MODELS = st.lists(st.tuples(CODES, CODES), min_size=1, max_size=6).map(
    lambda pairs: tuple(ModelLanguages(f"model-{number}", *pair) for number, pair in enumerate(pairs))
)


@given(MODELS)
def test_routes(models):
    routes, by_name = find_routes(models), {model.name: model for model in models}
    for route in routes:
        steps = [by_name[name] for name in route.models]
        assert (steps[0].source, steps[-1].target) == (route.source, route.target)
        assert all(is_same_language(first.target, second.source) for first, second in pairwise(steps))
        assert route.via == (steps[0].target if len(steps) == 2 else None)
        assert select_route(routes, route.source, route.target) == route
    pairs = [(route.source, route.target) for route in routes]
    assert len(pairs) == len(set(pairs))
    direct = {(model.source, model.target) for model in models}
    assert {(route.source, route.target) for route in routes if route.via is None} == direct
    for first in (
        models
    ):  # every pair that two models can translate has a route, and the direct one if a model has exactly this pair
        for second in models:
            pair = first.source, second.target
            if is_same_language(first.target, second.source) and not is_same_language(*pair):
                route = select_route(routes, *pair)
                assert matches(route, *pair)
                assert route.via is None or pair not in direct


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("pt", "en", "pt to en"),
        ("PT-BR", "EN-GB", "pt to en"),
        ("pt", None, "the target language must be given; this server translates"),
        (None, "ru", "the source language must be given; this server translates"),
        ("auto", "", "the source and target language must be given; this server translates"),
        ("de", "en", "no model translates from de to en; this server translates pt to en, en to ru, pt to ru (via en)"),
        (None, "fr", "no model translates to fr; this server translates"),
    ],
)
def test_a_request_selects_a_route_or_gets_a_list(source, target, expected):
    routes = find_routes((ModelLanguages("a", "pt", "en"), ModelLanguages("b", "en", "ru")))
    if expected.startswith("pt to"):
        assert str(select_route(routes, source, target)) == expected
        return
    with pytest.raises(RequestRejected) as rejected:
        select_route(routes, source, target)
    assert rejected.value.status == 400
    assert rejected.value.message.startswith(expected)


def test_of_varieties_the_exact_one_is_selected():
    models = [ModelLanguages(name, "en", name) for name in ("pt-PT", "pt-BR")]
    routes = find_routes(tuple(models))
    assert [select_route(routes, "en", code).target for code in ("pt", "PT-BR", "pt-PT")] == ["pt-PT", "pt-BR", "pt-PT"]


def test_pivot_translations_are_joined():
    flags = [{"name": name, "side": side} for name, side in (("long", "input"), ("numbers", "output"))]
    first = {"source": "um", "text": "one", "alignment": [(0, 1), (1, 0)], "flags": flags, "score": -1.0}
    last = {
        "source": "one",
        "text": "один",
        "alignment": [(0, 0), (1, 2)],
        "score": -2.0,
        "confidence": {"label": "sure"},
    }
    last["flags"] = [flags[1], {"name": "unknown", "side": "input"}, {"name": "looping", "side": "output"}]
    joined = join_translations(first, last)
    assert (joined["source"], joined["pivot"], joined["text"], joined["score"]) == ("um", "one", "один", -2.0)
    assert joined["alignment"] == [(0, 2), (1, 0)]
    assert [flag["name"] for flag in joined["flags"]] == ["long", "numbers", "looping"]
    assert joined["confidence"] is None


@given(*[st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8)] * 2)
def test_alignments_are_joined_as_relations(first, second):
    joined = join_alignments(first, second)
    assert set(joined) == {
        (i, k) for i in range(5) for k in range(5) for j in range(5) if (i, j) in first and (j, k) in second
    }
    assert join_alignments(None, second) is join_alignments(first, None) is None


# ---------------------------------------------------------------------------------------------------------- the API


def test_directions_are_listed(running):
    directions = json.loads(running.get("/v1/directions"))["directions"]
    assert [(each["source"], each["target"], each["via"], each["models"]) for each in directions] == [
        ("pt", "en", None, ["pt-en"]),
        ("ru", "en", None, ["ru-en"]),
        ("en", "de", None, ["one"]),
        ("pt", "de", "en", ["pt-en", "one"]),
        ("ru", "de", "en", ["ru-en", "one"]),
    ]
    languages = {each["code"]: each["targets"] for each in json.loads(running.get("/languages"))}
    assert languages == {"pt": ["en", "de"], "ru": ["en", "de"], "en": ["de"], "de": []}
    for side, codes in (("source", ["PT", "RU", "EN"]), ("target", ["EN", "DE"])):
        assert [each["language"] for each in json.loads(running.get(f"/v2/languages?type={side}"))] == codes
    google = json.loads(running.get("/language/translate/v2/languages"))["data"]["languages"]
    assert [(each["language"], each["name"]) for each in google][:2] == [("pt", "Portuguese"), ("ru", "Russian")]
    assert {each["language"] for each in google} == {"pt", "ru", "en", "de"}


def test_a_pivot_is_both_translations_in_turn(running):
    first = translated(running, TEXTS, source="pt", target="en", alignment="best")
    second = translated(
        running, texts_of(first), source="en", target="de", alignment="best", tokens=True, alternatives=2
    )
    both = translated(running, TEXTS, source="pt", target="de", alignment="best", tokens=True, alternatives=2)
    assert both["via"] == "en"
    assert "via" not in first
    assert [each["pivot"] for each in both["translations"]] == texts_of(first)
    assert [each["source"] for each in both["translations"]] == TEXTS
    for joined, step, last in zip(both["translations"], first["translations"], second["translations"], strict=True):
        for field in ("text", "score", "tokens", "alternatives"):
            assert joined[field] == last[field], field
        links = join_alignments(step["alignment"], last["alignment"])
        assert joined["alignment"] == (None if links is None else [list(link) for link in links])
    assert both["model"] == f"{first['model']}+{second['model']}"
    assert both["version"] == f"{first['version']}+{second['version']}"


def test_the_prefix_is_forced_in_the_last_step_only(running):
    both = translated(running, "O gato dorme.", source="pt", target="de", prefix="rot")
    (translation,) = both["translations"]
    assert translation["text"].startswith("rot")
    assert not translation["pivot"].startswith("rot")


def test_a_document_goes_through_a_pivot(running):
    expected = texts_of(translated(running, ["O gato dorme.", "Bom dia."], source="pt", target="de"))
    body = b"O gato dorme.\nBom dia.\n"
    with urlopen(
        Request(f"http://127.0.0.1:{running.port}/v1/document?source=pt&target=de", body), timeout=60
    ) as reply:
        assert reply.read().decode().splitlines() == expected


def test_the_native_api_takes_languages_or_a_model(running):
    by_name = texts_of(translated(running, "Bom dia.", model="pt-en"))
    assert by_name == texts_of(translated(running, "Bom dia.", source="pt", target="en")) == ["Good morning."]
    assert by_name == texts_of(translated(running, "Bom dia.", model="pt-en", source="pt-BR"))
    for fields, says in (
        ({}, f"the source and target language must be given; this server translates {OFFERED}"),
        ({"target": "fr"}, f"no model translates to fr; this server translates {OFFERED}"),
        ({"model": "pt-em"}, "there is no model `pt-em`; did you mean `pt-en`?"),
        ({"model": "pt-en", "target": "de"}, "this model translates from pt to en, not de"),
    ):
        status, answer, _ = running.post("/v1/translate", {"texts": "a", **fields})
        assert (status, answer["error"]) == (400, says)
        query = "&".join(f"{name}={value}" for name, value in fields.items())
        assert running.post(f"/v1/document?{query}", b"a")[:2] == (400, {"error": says})
    status, answer, _ = running.post("/v1/translate", {"texts": "a", "source": "pt", "target": "de", "tag": "<x>"})
    assert (status, answer["error"]) == (
        422,
        "tag: not supported for pt to de (via en): translate in two requests, via en",
    )


def test_vendor_clients_choose_the_direction_by_language(running):
    portuguese, russian = "Bom dia.", "Доброе утро."
    expected = [
        texts_of(translated(running, text, model=name))[0] for text, name in ((portuguese, "pt-en"), (russian, "ru-en"))
    ]
    via = texts_of(translated(running, portuguese, source="pt", target="de"))[0]

    def libretranslate(text, source, target):
        return running.post("/translate", {"q": text, "source": source, "target": target})

    for text, source, target, wanted in (
        (portuguese, "pt", "en", expected[0]),
        (russian, "ru", "en", expected[1]),
        (portuguese, "pt", "de", via),
    ):
        assert libretranslate(text, source, target)[1] == {"translatedText": wanted}
        answer = running.post("/v2/translate", {"text": [text], "source_lang": source.upper(), "target_lang": target})[
            1
        ]
        assert (answer["translations"][0]["text"], answer["translations"][0]["detected_source_language"]) == (
            wanted,
            source.upper(),
        )
        answer = running.post("/language/translate/v2", {"q": text, "source": source, "target": target})[1]
        assert answer["data"]["translations"] == [{"translatedText": wanted}]
    status, answer, _ = libretranslate(portuguese, "auto", "en")
    assert (status, answer["error"]) == (400, f"the source language must be given; this server translates {OFFERED}")
    detected = running.post("/detect", {"q": portuguese})[1]
    assert detected == [{"confidence": 0.0, "language": code} for code in ("pt", "ru", "en")]


def test_official_clients_choose_the_direction_by_language(running):
    libre = pytest.importorskip("libretranslatepy", reason="libretranslatepy is not installed")
    deepl = pytest.importorskip("deepl", reason="deepl is not installed")
    api = libre.LibreTranslateAPI(f"http://127.0.0.1:{running.port}/")
    assert api.translate("Bom dia.", "pt", "en") == "Good morning."
    assert {each["code"] for each in api.languages()} == {"pt", "ru", "en", "de"}
    translator = deepl.Translator("any", server_url=f"http://127.0.0.1:{running.port}")
    assert translator.translate_text("Bom dia.", source_lang="PT", target_lang="EN-US").text == "Good morning."
    assert translator.translate_text("Bom dia.", source_lang="PT", target_lang="DE").text
    assert {each.code for each in translator.get_source_languages()} == {"PT", "RU", "EN"}
    with pytest.raises(deepl.DeepLException, match="the source language must be given"):
        translator.translate_text("Bom dia.", target_lang="EN-US")


def test_a_pivot_counts_its_characters_once(running):
    before = json.loads(running.get("/v2/usage"))["character_count"]
    translated(running, "Bom dia.", source="pt", target="de")
    assert json.loads(running.get("/v2/usage"))["character_count"] == before + len("Bom dia.")


def test_readiness_and_metrics_of_each_model(running):
    ready = json.loads(running.get("/readyz"))
    assert [(each["name"], each["source"], each["target"]) for each in ready["models"]] == [
        ("pt-en", "pt", "en"),
        ("ru-en", "ru", "en"),
        ("one", "en", "de"),
    ]
    assert len({each["pid"] for each in ready["models"]}) == 3
    before = [running.metric(f'heedful_answered_total{{model="{name}"}}') for name in ("pt-en", "ru-en", "one")]
    translated(running, "Bom dia.", source="pt", target="de")
    after = [running.metric(f'heedful_answered_total{{model="{name}"}}') for name in ("pt-en", "ru-en", "one")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 0, 1]
    lines = running.get("/metrics").splitlines()
    assert len([line for line in lines if line.startswith("# TYPE")]) == len(
        {line for line in lines if line.startswith("# TYPE")}
    )


def test_openapi_links_from_directions_to_documents_and_texts(running):
    schema = json.loads(running.get("/openapi.json"))
    operations = {
        operation["operationId"]: operation for path in schema["paths"].values() for operation in path.values()
    }
    links = operations["get_v1_directions"]["responses"]["200"]["links"]
    first = json.loads(running.get("/v1/directions"))["directions"][0]

    def follow(expressions):
        assert all(value == f"$response.body#/directions/0/{name}" for name, value in expressions.items())
        return {name: first[name] for name in expressions}

    document = operations[links["translate_document"]["operationId"]]
    query = follow(links["translate_document"]["parameters"])
    assert query.keys() <= {parameter["name"] for parameter in document["parameters"]}
    address = f"http://127.0.0.1:{running.port}/v1/document?" + "&".join(
        f"{name}={code}" for name, code in query.items()
    )
    with urlopen(Request(address, b"Bom dia.\n"), timeout=30) as reply:
        assert reply.read().decode() == "Good morning.\n"
    assert links["translate"]["operationId"] in operations
    assert texts_of(translated(running, "Bom dia.", **follow(links["translate"]["requestBody"]))) == ["Good morning."]


def test_inspection_selects_a_model(running, monkeypatch):
    state = running.app.state
    opened = []

    async def run_inspect(model_dir, text):
        opened.append((model_dir, text))
        return b"page"

    monkeypatch.setattr("heedful.serve.health.run_inspect", run_inspect)
    monkeypatch.setattr(state, "settings", replace(state.settings, inspect_dirs={"ru-en": "ru"}))
    directions = json.loads(running.get("/v1/directions"))["directions"]
    assert [each["inspects"] for each in directions] == [False, True, False, False, False]
    assert running.get("/inspect?text=a&source=ru&target=en") == "page"
    for query, status, says in (
        ("text=a&source=pt&target=en", 404, "inspection is not available"),
        ("text=a&source=pt&target=de", 404, "inspect each step separately"),
        ("text=a", 400, "must be given"),
    ):
        with pytest.raises(HTTPError) as refused:
            running.get(f"/inspect?{query}")
        assert (refused.value.code, says in json.load(refused.value)["error"]) == (status, True)
        refused.value.close()
    assert opened == [("ru", "a")]


# -------------------------------------------------------------------------------------------------- isolation, limits


@contextmanager
def asking(running, **fields):
    """Clients that send one request after another to a model; yields the list of (status, seconds)."""
    stop, replies = threading.Event(), []

    def ask():
        while not stop.is_set():
            begin = time.monotonic()
            status = running.post("/v1/translate", {"texts": ["the old man", "a dog"], **fields})[0]
            replies.append((status, time.monotonic() - begin))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield replies
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_crashed_or_hanging_worker_stops_no_other_model(how, running):
    pid = json.loads(running.get("/readyz"))["models"][0]["pid"]
    with asking(running, model="one") as replies, asking(running, model="pt-en") as crashing:
        time.sleep(0.5)
        os.kill(pid, how)
        faults, until, num_before = [], time.monotonic() + 60, len(replies)
        while time.monotonic() < until:
            try:
                if json.loads(running.get("/readyz"))["models"][0]["pid"] != pid:
                    break
            except HTTPError as error:
                faults += json.load(error)["faults"]
                error.close()
            time.sleep(0.05)
        num_meanwhile = len(replies) - num_before
        time.sleep(0.5)
    assert set(faults) == {"pt-en: the engine is starting"}
    assert num_meanwhile > 3  # the other model answered while this one was restarted
    assert {status for status, _ in replies} == {status for status, _ in crashing} == {200}


def test_a_full_queue_rejects_requests_of_its_model_only(running, monkeypatch):
    queue = running.app.state.models["ru-en"].batcher.queue
    monkeypatch.setattr(queue, "is_full", lambda *_: True)
    body = {"texts": "Доброе утро.", "source": "ru", "target": "en"}
    for _ in range(3):  # also after the gateway has seen the refusal
        status, answer, headers = running.post("/v1/translate", body)
        assert (
            status,
            answer["error"].startswith("overloaded"),
            "retry-after" in {name.lower() for name in headers},
        ) == (
            503,
            True,
            True,
        )
        assert translated(running, "Bom dia. " * 20, model="pt-en")
        status, _, _ = running.post("/v1/translate", {"texts": "Доброе утро.", "source": "ru", "target": "de"})
        assert status == 503  # a pivot needs both queues
        assert translated(running, "Bom dia.", source="pt", target="de")
    refused = {name: bool(sizes.smallest_bytes) for name, sizes in running.app.refusals.items()}
    assert refused == {"pt-en": False, "ru-en": True, "one": False}  # the gateway knows which model refused


def test_a_request_is_rejected_unread_only_if_every_model_refused_it(running):
    from heedful.serve.gateway import RequestHead

    gateway = running.app
    headers = [(b"content-length", b"1000")]
    head = RequestHead(
        {"type": "http", "path": "/v1/translate", "headers": headers, "client": ("10.9.9.9", 1)}, gateway.state
    )
    queues = gateway.state.admission.queues
    try:
        for queue in queues:
            queue.queued_tokens = 1  # an empty queue refuses nothing
        for number, name in enumerate(gateway.state.models, 1):
            gateway.remember_refusal(head, name)
            rejection = gateway.check_load_and_size(head)
            assert (rejection is not None) == (number == len(queues))
        assert rejection.status == 503
    finally:
        for queue in queues:
            queue.queued_tokens = 0
        for refusals in gateway.refusals.values():
            refusals.refused_bytes.clear()


def test_two_models_with_the_same_name_are_rejected():
    with pytest.raises(ConfigError, match="two models have the same name"):
        create_app([WorkerSupervisor(Path(folder, "model")) for folder in "ab"])


def test_all_models_share_one_memory_limit():
    async def body():
        admission = Admission(QueueLimits(max_queued_tokens=250))
        first, second = Batcher(None, admission, "first"), Batcher(None, admission, "second")
        job = TranslationJob(["x" * 270], {})
        for _ in range(2):
            first.admit(job, "a", first.check_admission(job, "a"), 10)
        for batcher in (first, second):
            with pytest.raises(RequestRejected, match="overloaded") as rejected:
                batcher.check_admission(job, "b")
            assert (rejected.value.status, rejected.value.model) == (503, batcher.name)
        assert admission.rejected_by_status == {503: 2}
        first.queue.take_batch(first.drop_request)
        assert second.check_admission(job, "b") == 99  # 90 for the text, 8 for the line, 1 for the text's end

    asyncio.run(body())


def test_draining_finishes_pivots_that_were_admitted(exported):
    models = {"pt-en": samples.model("pt-en"), "one": exported / "one"}
    with Running(models) as server:
        expected = translated(server, "Bom dia.", source="pt", target="de")
        admission = server.app.state.admission
        replies = []
        threads = [
            threading.Thread(
                target=lambda: replies.append(
                    server.post("/v1/translate", {"texts": "Bom dia.", "source": "pt", "target": "de"})
                )
            )
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 20
        while admission.num_open_pivots < 4:
            if len(replies) == 4 or time.monotonic() > until:  # too fast to observe: nothing is left to drain
                break
            time.sleep(0.001)
        loop = server.server.servers[0].get_loop()
        drained = asyncio.run_coroutine_threadsafe(server.app.state.drain(time.monotonic() + 20), loop)
        for thread in threads:
            thread.join(30)
        drained.result(30)
        assert {status for status, _, _ in replies} <= {200, 503}
        assert all(texts_of(answer) == texts_of(expected) for status, answer, _ in replies if status == 200)
        assert sum(status == 200 for status, _, _ in replies) >= 1
        assert admission.num_open_pivots == 0

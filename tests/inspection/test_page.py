"""The page in a real browser: nothing is requested, nothing fails, every panel answers, the numbers are the trace's."""

import json
import os
import re
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.errors import HeedfulError
from heedful.inspection.api import Page, inspect
from heedful.inspection.hugging_face import wrap_hugging_face
from heedful.inspection.page import VIEWER, render_page, wrap_in_iframe
from heedful.inspection.record import InspectedSource, record_sentence
from heedful.search import Beam, Greedy
from heedful.trace import (
    Piece,
    SearchTree,
    Sentence,
    Snapshot,
    SnapshotSentence,
    SnapshotSeries,
    Text,
    TraceAlignment,
    TraceDocument,
    TraceStep,
    weights_blob,
)
from support.inspection_models import EOS, MODELS, built, inspected, marian, student, tokenize
from support.timeouts import PATIENCE

TEXT = "the old dog sees a red house"
ADDRESS = 250  # milliseconds: state.js writes the address 200 after the last change
GLOSSARY = json.loads((VIEWER / "glossary.json").read_text(encoding="utf-8"))

pytestmark = pytest.mark.slow  # in a real browser


@contextmanager
def opened(chromium, path, address="", width=1280, height=720, **options):
    """The page from the disk, without a network; it must ask for nothing and complain about nothing."""
    context = chromium.new_context(viewport={"width": width, "height": height}, offline=True, **options)
    tab = context.new_page()
    tab.set_default_timeout(10_000)
    wrong, asked = [], []
    tab.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(path.as_uri() + address)
    tab.wait_for_selector("html[data-ready]")
    yield tab
    tab.wait_for_timeout(50)
    context.close()
    assert wrong == []
    assert [url for url in asked if not url.startswith(path.as_uri())] == []


def until(tab, condition):
    """Wait; the browser's own waiting evaluates text, which the page forbids."""
    for _ in range(100):
        if tab.evaluate(condition):
            return
        time.sleep(0.05)
    raise AssertionError(condition)


def settled(tab, after=0):
    """Wait for what the last act set going: it is drawn in the next frame, and milliseconds later the address follows.

    The page asked for its frame and set its timer before we do, so it is served before us however slow the machine is.
    """
    tab.evaluate(f"() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, {after})))")


def sentence_of(kind, **options):
    if kind == "student":
        return record_sentence(inspected(student(), can_silence_heads=False), tokenize(TEXT), Beam(3))
    if kind == "marian":
        pytest.importorskip("transformers", reason="transformers is not installed: pip install 'heedful[dev]'")
        return record_sentence(
            wrap_hugging_face(marian()), InspectedSource((*range(4, 9), EOS), "4 5 6 7 8", max_length=9), Beam(3)
        )
    return record_sentence(
        inspected(built(kind)), tokenize(TEXT), Beam(3), vectors=("encoder", "cross", "decoder"), **options
    )


def film_of(sentence):
    takes = tuple(SnapshotSentence(target=sentence.target, attention=sentence.attention.get("cross")) for _ in range(1))
    frames = tuple(Snapshot(step=100 * at, chrf=10.0 * at, bleu=5.0 * at, takes=takes) for at in range(1, 4))
    return SnapshotSeries(sources=(sentence.source,), frames=frames)


@pytest.mark.parametrize("kind", [*MODELS, "student", "marian"])
def test_every_model_every_panel(kind, chromium, tmp_path):
    first, second = sentence_of(kind), sentence_of(kind)
    other = second.model_copy(update={"name": "another"})
    trace = TraceDocument(title=kind, sentences=(first, other), film=film_of(first))
    path = Page(trace).save(tmp_path / "page.html")
    with opened(chromium, path, "#lang=en") as tab:
        panels = tab.eval_on_selector_all("main > .panel", "all => all.map(one => one.id)")
        assert panels == ["links", "steps", "heads", "map", "arithmetic", "search", "compare", "film", "about"]
        for step, said in enumerate(first.steps):  # the numbers of every step
            bars = tab.eval_on_selector_all(
                "#steps .bars li:not([hidden])",
                "all => all.map(one => [one.querySelector('.name').textContent, +one.dataset.p])",
            )
            for (name, logp), (text, p) in zip(said.top, bars, strict=False):
                assert text == name
                assert p == pytest.approx(np.exp(logp), abs=1e-4)
            chosen = tab.eval_on_selector("#steps .bars .chosen", "one => +one.dataset.p")
            assert chosen == pytest.approx(np.exp(said.logp), abs=1e-4)
            assert tab.input_value("#steps input[type=range]") == str(step)
            tab.keyboard.press("ArrowRight")
            settled(tab)
        tab.select_option("#search select", str(len(first.tree.nodes) - 1))
        assert tab.inner_text("#search .node-facts")
        tab.click("#search .toggles button:last-child")
        tab.fill("#film input[type=range]", "2")
        until(tab, "document.querySelector('#film .readout').textContent.includes('300')")
        assert "Both say the same" in tab.inner_text("#compare")
        if "cross" in first.attention:
            weights_are_those_of_the_trace(tab, first)
        for theme in ("dark", "projector", "light"):
            tab.click(f"header [data-key={theme}]")
            tab.wait_for_selector(f"html[data-theme={theme}]")


def weights_are_those_of_the_trace(tab, sentence):
    array = sentence.attention["cross"].array()
    tab.keyboard.press("w")  # pieces
    for layer in range(min(2, array.shape[0])):
        for head in range(min(2, array.shape[1])):
            tab.click(f"#heads [data-head='{layer + 1}.{head + 1}']")
            settled(tab)
            if tab.get_attribute(f"#heads [data-head='{layer + 1}.{head + 1}']", "aria-pressed") != "true":
                tab.click(f"#heads [data-head='{layer + 1}.{head + 1}']")
            tab.focus("#map .board")
            tab.keyboard.press("ArrowDown")
            tab.eval_on_selector("#arithmetic", "one => one.scrollIntoView()")
            tab.wait_for_selector("#arithmetic [data-weight]")
            settled(tab, ADDRESS)
            cell = re.search(r"cell=(\d+)\.(\d+)", tab.evaluate("location.hash"))
            row, column = int(cell[1]) - 1, int(cell[2]) - 1
            shown = tab.eval_on_selector_all("#arithmetic [data-weight]", "all => all.map(one => +one.dataset.weight)")
            assert max(shown) == pytest.approx(array[layer, head, row].max(), abs=1 / 255)
            if sentence.vectors.get("cross"):
                score = tab.eval_on_selector("#arithmetic [data-score]", "one => +one.dataset.score")
                real = sentence.vectors["cross"][layer].scores.array()[head, row, column]
                assert score == pytest.approx(real, abs=0.03)


def test_a_decoder_looks_at_what_it_has_read(chromium, tmp_path):
    sentence = sentence_of("transformer")
    path = Page(TraceDocument(sentences=(sentence,))).save(tmp_path / "page.html")
    with opened(chromium, path, "#lang=en&place=decoder&level=pieces") as tab:
        names = tab.eval_on_selector_all("#map .top .label", "all => all.map(one => one.textContent)")
        said = tab.eval_on_selector_all("#map .left .label", "all => all.map(one => one.textContent)")
        assert names == ["<s>", *said[:-1]]


def test_another_sentence_is_opened_with_its_own_reading(chromium, tmp_path):
    first, second = (
        sentence_of("transformer").model_copy(
            update={"name": step, "reading": TraceAlignment(step=step, layer=1, head=head)}
        )
        for step, head in (("naive", 0), ("shifted", 1))
    )
    path = Page(TraceDocument(sentences=(first, second))).save(tmp_path / "page.html")
    with opened(chromium, path, "#lang=en") as tab:
        assert tab.get_attribute("#heads [data-head='2.1']", "aria-pressed") == "true"
        tab.select_option("header select", "1")
        tab.wait_for_selector("#heads [data-head='2.2'][aria-pressed=true]")
        assert tab.get_attribute("#links [data-key=shifted]", "aria-pressed") == "true"
        tab.focus("#map .board")
        for _ in second.target.pieces:
            tab.keyboard.press("ArrowDown")
        until(tab, "document.querySelector('.marker.cell').style.top === document.querySelector('.marker').style.top")


def test_a_deep_link_opens_what_it_names(chromium, tmp_path):
    path = Page(TraceDocument(sentences=(sentence_of("transformer"),))).save(tmp_path / "page.html")
    with opened(chromium, path, "#step=3&head=2.1&place=decoder&lang=pt&theme=dark&level=pieces") as tab:
        assert tab.input_value("#steps input[type=range]") == "2"
        assert tab.get_attribute("#heads [data-head='2.1']", "aria-pressed") == "true"
        assert tab.get_attribute("html", "lang") == "pt"
        assert tab.inner_text("#steps h2") == GLOSSARY["pt"]["steps"]
        assert tab.get_attribute("html", "data-theme") == "dark"
    with opened(chromium, path, "#step=999&head=0.1&place=nowhere&lang=xx&cell=0.0&sentence=9&least=x&x=%") as tab:
        assert tab.inner_text("#steps h2")
        tab.evaluate("location.hash = '#step=999&head=9.9&place=encoder&cell=99.99'")
        until(tab, "document.querySelector('#heads [data-key=encoder]').getAttribute('aria-pressed') === 'true'")


@pytest.mark.parametrize("language", ["en", "pt", "ru"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_overlaps_or_runs_out_of_the_page(language, width, chromium, tmp_path):
    path = Page(TraceDocument(sentences=(sentence_of("transformer"),))).save(tmp_path / "page.html")
    for theme in ("light", "projector"):
        with opened(chromium, path, f"#lang={language}&theme={theme}", width=width) as tab:
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            boxes = tab.eval_on_selector_all(
                "main > .panel",
                "all => all.map(one => one.getBoundingClientRect()).map(b => [b.left, b.top, b.right, b.bottom])",
            )
            for at, one in enumerate(boxes):
                for two in boxes[at + 1 :]:
                    assert one[2] <= two[0] + 1 or two[2] <= one[0] + 1 or one[3] <= two[1] + 1 or two[3] <= one[1] + 1


def test_a_keyboard_is_enough(chromium, tmp_path):
    path = Page(TraceDocument(sentences=(sentence_of("transformer"),), film=film_of(sentence_of("transformer")))).save(
        tmp_path / "p.html"
    )
    with opened(chromium, path, "#lang=en") as tab:
        seen = set()
        for _ in range(250):
            tab.keyboard.press("Tab")
            seen.add(tab.evaluate("document.activeElement.closest('.panel')?.id ?? ''"))
        assert seen >= {"links", "steps", "heads", "map", "search", "film"}
        tab.evaluate("document.activeElement.blur()")
        tab.keyboard.press("3")
        until(tab, "document.activeElement.id === 'heads'")
        tab.keyboard.press("ArrowDown")
        tab.wait_for_selector("#heads [aria-pressed=true]")
        tab.keyboard.press("l")
        tab.wait_for_selector("html[lang=pt]")


AXE = os.environ.get("HEEDFUL_AXE")


@pytest.mark.skipif(not AXE, reason="HEEDFUL_AXE does not name axe.min.js of the npm package axe-core")
@pytest.mark.parametrize("theme", ["light", "dark", "projector"])
def test_axe_finds_no_serious_violation(theme, chromium, tmp_path):
    sentence = sentence_of("transformer")
    trace = TraceDocument(
        title="axe", sentences=(sentence, sentence.model_copy(update={"name": "b"})), film=film_of(sentence)
    )
    path = Page(trace).save(tmp_path / "page.html")
    with opened(chromium, path, f"#lang=en&theme={theme}") as tab:
        tab.evaluate(Path(AXE).read_text(encoding="utf-8"))
        found = tab.evaluate("axe.run({ resultTypes: ['violations'] })")
        serious = [
            (one["id"], [node["html"][:120] for node in one["nodes"]][:3])
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
        ]
        assert serious == []


# ------------------------------------------------------------------------------------------------------- hostile text

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<img src=x onerror=document.title='owned'>",
    "\u202eabc\u2066",
    "x" * 10_000,
    "\x00\x1b[2J\u2028",
    "&lt;b&gt;",
    "'\"`${1}",
    "{0}",
    "__proto__",
)


def hostile_sentence(texts):
    def side(some):
        joined = " ".join(some)
        pieces = [Piece(text=f" {one}", start=0, end=1, word=at) for at, one in enumerate(some)]
        return Text(text=joined, pieces=tuple(pieces), language=some[0][:5])

    source = target = side(texts)
    count = len(texts)
    steps = tuple(TraceStep(logp=-0.1, entropy=0.5, top=((one, -0.1), ("<b>", -2.5))) for one in texts)
    nodes = [
        {
            "step": at + 1,
            "parent": at - 1 if at else None,
            "text": one,
            "logp": -0.1,
            "total": -0.1,
            "rank": 0,
            "fate": "kept",
        }
        for at, one in enumerate(texts)
    ]
    return Sentence(
        name=texts[0],
        source=source,
        target=target,
        logp=-1.0,
        score=-0.1,
        steps=steps,
        tree=SearchTree(kind=texts[0], size=2, length=texts[0], nodes=nodes, best=count - 1, greedy=texts[-1]),
        attention={"cross": weights_blob(np.full((1, 1, count, count), 1 / count))},
        about=texts[0],
    )


def test_hostile_text_is_only_text(chromium, tmp_path):
    sentence = hostile_sentence(HOSTILE)
    trace = TraceDocument(title=HOSTILE[0], maker=HOSTILE[1], sentences=(sentence, sentence), film=film_of(sentence))
    path = Page(trace).save(tmp_path / "</script><b>.html".replace("/", "_"))
    with opened(chromium, path, "#lang=en") as tab:
        assert tab.title().startswith("</script>")
        assert tab.query_selector_all("img, b script, .panel script") == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= 1280
        tab.click("#links .toggles button:nth-child(2)")
        settled(tab)
        assert "\u202e" not in tab.inner_text("body")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(min_size=1, max_size=12) | st.sampled_from(HOSTILE), min_size=1, max_size=4))
def test_no_text_can_leave_its_place_in_the_page(texts):
    texts = [one.encode("utf-8", "replace").decode() for one in texts]
    html = render_page(TraceDocument(title=texts[0], sentences=(hostile_sentence(texts),)))
    assert html.count("<script") == 3
    assert html.count("</script") == 3
    data = re.search(r'<script type="application/json" id="trace">(.*?)</script>', html, re.S)[1]
    assert "<" not in data
    assert json.loads(data)["sentences"][0]["name"] == texts[0]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_a_frame_for_notebooks(chromium, tmp_path):
    found = Page(TraceDocument(title="x", sentences=(sentence_of("transformer"),)))._repr_mimebundle_()
    assert found["image/svg+xml"].startswith("<svg")
    outer = tmp_path / "notebook.html"
    outer.write_text(f"<!doctype html><meta charset=utf-8>{found['text/html']}", encoding="utf-8")
    context = chromium.new_context(offline=True)
    tab = context.new_page()
    wrong = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.goto(outer.as_uri())
    frame = tab.wait_for_selector("iframe").content_frame()
    frame.wait_for_selector("html[data-ready]", timeout=1000 * PATIENCE)
    frame.click("#steps .controls button:nth-child(4)")
    until(frame, "document.querySelector('#steps input[type=range]').value === '1'")
    context.close()
    assert wrong == []
    assert "sandbox" in wrap_in_iframe("<p>")


# --------------------------------------------------------------------------------------------------------- the verb


def test_the_glossary_has_every_word_in_every_language():
    script = "".join((VIEWER / name).read_text(encoding="utf-8") for name in ("panels.js", "search.js", "main.js"))
    used = set(re.findall(r'\bt\("([a-z-]+[a-z0-9])"', script))
    assert used <= GLOSSARY["en"].keys()
    assert GLOSSARY["en"].keys() == GLOSSARY["pt"].keys() == GLOSSARY["ru"].keys()
    for key, text in GLOSSARY["en"].items():
        for language in ("pt", "ru"):
            assert text.count("{0}") == GLOSSARY[language][key].count("{0}")


def test_every_fate_is_told_in_every_language():
    for kind in ("transformer", "gru-luong"):
        for size in (1, 3):
            found = record_sentence(inspected(built(kind)), tokenize(TEXT), Beam(size) if size > 1 else Greedy())
            assert {f"why: {node.why}" for node in found.tree.nodes} <= GLOSSARY["ru"].keys()


def test_any_model_with_the_contract_may_be_asked():
    found = inspect(inspected(student(), can_silence_heads=False), [TEXT, "two dog"], against_beam=1)
    assert [one.source.text for one in found.trace.sentences] == [TEXT, "two dog"] * 2
    ids = inspect(inspected(student(), can_silence_heads=False), [4, 5, EOS])
    assert ids.trace.sentences[0].source.text == "a red"


def test_a_model_without_a_tokenizer_wants_ids():
    silent = replace(inspected(student()), tokenize=None)
    with pytest.raises(HeedfulError, match="this model has no tokenizer: pass token ids"):
        inspect(silent, ["a"])


@pytest.mark.parametrize(
    ("asked", "options", "told"),
    [
        ((), {}, "nothing to show"),
        (("a", "b"), {"reference": "x"}, "only one sentence can be inspected, but there are 2: pass one"),
        (("a",), {"beam": 0}, "at least 1"),
    ],
)
def test_misuse_is_answered_in_words(asked, options, told):
    with pytest.raises(HeedfulError, match=told):
        inspect(inspected(student(), can_silence_heads=False), asked, **options)

"""The page in a real browser: no requests, no errors, one cell in all panels, and the numbers of the trace."""

import json
import os
import re
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import heedful
from heedful.errors import HeedfulError
from heedful.html import compact_line, escape_json
from heedful.inspection.api import Page, inspect, opening_layer
from heedful.inspection.hugging_face import wrap_hugging_face
from heedful.inspection.page import LIVE_SCRIPTS, SCRIPTS, VIEWER, load_viewer, render_page, wrap_in_iframe
from heedful.inspection.record import InspectedSource, record_sentence
from heedful.search import Beam, Greedy, Sample
from heedful.trace import (
    PLACES,
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
from support import synthetic_traces as synthetic
from support.browser_pages import axe_violations, click, opened, press, settled, until, visit
from support.firefox import FIREFOX, FirefoxDrawsNothing, open_in_firefox
from support.inspection_models import (
    EOS,
    MODELS,
    built,
    force_target,
    inspected,
    marian,
    record_arabic,
    student,
    target_ids,
    tokenize,
)
from support.timeouts import PATIENCE

TEXT = "the old dog sees a red house"
ADDRESS = 260  # milliseconds: state.js writes the address 200 after the last change
LANGUAGES = ("en", "pt", "ru")
ALL_SCRIPTS = (*SCRIPTS, *LIVE_SCRIPTS)
TABS = ("next", "heads", "map", "search", "evidence", "compare", "film")
GLOSSARY = json.loads((VIEWER / "glossary.json").read_text(encoding="utf-8"))
LAYOUT_CHECK = (Path(__file__).parents[1] / "support" / "layout_check.js").read_text(encoding="utf-8")

pytestmark = pytest.mark.slow  # in a real browser


@cache
def recorded(kind):
    """A trace of a model of this kind."""
    if kind == "student":
        return record_sentence(inspected(student(), can_silence_heads=False), tokenize(TEXT), Beam(3))
    if kind == "ctranslate2":
        return record_arabic()[0]
    if kind == "marian":
        pytest.importorskip("transformers", reason="transformers is not installed: pip install 'heedful[dev]'")
        source = InspectedSource((*range(4, 9), EOS), "4 5 6 7 8", max_length=9)
        return record_sentence(wrap_hugging_face(marian()), source, Beam(3))
    return record_sentence(inspected(built(kind)), tokenize(TEXT), Beam(3), vectors=PLACES)


def film_of(sentence):
    takes = (SnapshotSentence(target=sentence.target, attention=sentence.attention.get("cross")),)
    frames = tuple(Snapshot(step=100 * at, chrf=10.0 * at, bleu=5.0 * at, takes=takes) for at in range(1, 4))
    return SnapshotSeries(sources=(sentence.source,), frames=frames)


def save_page(folder, *sentences, **fields):
    return Page(TraceDocument(sentences=sentences, **fields)).save(folder / "page.html")


# The cell as each panel names it, and its weight.
READ_CELL = """() => {
    const text = (selector) => document.querySelector(selector)?.textContent ?? null;
    const all = (selector) => [...document.querySelectorAll(selector)];
    const indexOf = (selector, matching) => all(selector).findIndex((node) => node.matches(matching));
    const weight = document.querySelector("#cell-readout [data-weight]");
    const equation = document.querySelector(".equation");
    return {
        tag: text("#stage .tag"), mapTag: text("#cell-readout .tag"), showing: text(".showing .what"),
        ring: document.querySelector(".strip [aria-current=true]")?.dataset.head ?? null,
        rings: document.querySelectorAll(".strip [aria-current=true]").length,
        step: Number(document.querySelector("#stage [data-key=step]").value),
        word: indexOf(".target .piece", "[aria-current=step]"), lit: indexOf(".source .piece", ".lit"),
        row: indexOf(".map .left .label", ".now"), slot: indexOf(".map .top .label", ".now"),
        weight: weight && Number(weight.dataset.weight),
        score: equation && Number(equation.dataset.score), arithmetic: equation && Number(equation.dataset.weight),
        hash: location.hash,
    };
}"""


# ------------------------------------------------------------------------------------------------- every model


@pytest.mark.parametrize("kind", [*MODELS, "student", "marian", "ctranslate2"])
def test_every_panel_shows_every_model(kind, chromium, tmp_path):
    sentence = recorded(kind)
    path = save_page(
        tmp_path, sentence, sentence.model_copy(update={"name": "another"}), title=kind, film=film_of(sentence)
    )
    with opened(chromium, path, "#lang=en") as tab:
        for number, name in enumerate(TABS, 1):
            press(tab, str(number))
            assert tab.get_attribute("#tab-body", "data-tab") == name
            assert tab.get_attribute(f"#tab-{name}", "aria-selected") == "true"
            until(tab, "document.querySelector('#tab-body').innerText.trim() !== ''")
        until(tab, "document.querySelector('.film .readout')?.textContent.includes('300')")
        filled = "document.querySelector('.film input').style.getPropertyValue('--filled')"
        assert tab.evaluate(filled) == "100%"
        tab.fill(".film input[type=range]", "1")
        until(tab, f"{filled} === '50%'")
        until(tab, "document.querySelector('.film .readout').textContent.includes('200')")
        press(tab, "6")
        until(
            tab,
            f"document.querySelector('.compare')?.textContent.includes({json.dumps(GLOSSARY['en']['same-answer'])})",
        )
        if sentence.tree:
            press(tab, "4")
            nodes = tab.eval_on_selector_all("[data-key=candidate] option", "all => all.map((option) => option.value)")
            for node in (nodes[0], nodes[len(nodes) // 2], nodes[-1]):
                tab.select_option("[data-key=candidate]", node)
                settled(tab)
                assert tab.get_attribute(".tree .selected", "data-node") == node
        check_steps(tab, sentence)
        for theme in ("dark", "projector", "light"):
            tab.click(f"header [data-key={theme}]")
            tab.wait_for_selector(f"html[data-theme={theme}]")


def check_steps(tab, sentence):
    """The probabilities of every step are those of the trace."""
    visit(tab, "#lang=en&step=1&place=cross&tab=next")
    for number, step in enumerate(sentence.steps):
        assert tab.input_value("#stage [data-key=step]") == str(number)
        bars = tab.eval_on_selector_all(
            "#tab-body .bars .bar:not([hidden])",
            "all => all.map((bar) => [bar.querySelector('.name').textContent, +bar.dataset.p])",
        )
        expected = [np.exp(logp) for _, logp in step.top]
        others = [share for share in expected if not np.isclose(share, np.exp(step.logp), atol=1e-5)]
        shown = [share for _, share in bars]
        assert shown[0] == pytest.approx(max(expected), abs=1e-5)
        assert all(np.isclose(share, [*others, np.exp(step.logp)], atol=1e-5).any() for share in shown)
        chosen = tab.eval_on_selector("#tab-body .bars .chosen", "bar => +bar.dataset.p")
        assert chosen == pytest.approx(np.exp(step.logp), abs=1e-5)
        press(tab, "ArrowRight")


@pytest.mark.parametrize("kind", [*MODELS, "student", "marian", "ctranslate2"])
def test_the_cell_has_the_weight_that_pytorch_computes(kind, chromium, tmp_path):
    sentence = recorded(kind)
    maps = pytorch_maps(kind, sentence)
    with opened(chromium, save_page(tmp_path, sentence), "#lang=en") as tab:
        for place in PLACES:
            if place not in sentence.attention:
                continue
            weights = sentence.attention[place].array()
            vectors = sentence.vectors.get(place, ())
            for layer in {0, weights.shape[0] - 1}:
                for head in {0, weights.shape[1] - 1}:
                    click(tab, f".strip [data-head='{place} {layer + 1}.{head + 1}']")
                    press(tab, "3")
                    tab.focus(".map-board")
                    for keys in (
                        (),
                        ("ArrowDown",),
                        ("ArrowDown", "ArrowRight", "ArrowRight"),
                        ("ArrowUp", "ArrowLeft"),
                    ):
                        press(tab, *keys)
                        cell = tab.evaluate(READ_CELL)
                        at = (layer, head, cell["row"], cell["slot"])
                        assert cell["weight"] == pytest.approx(weights[at], abs=1 / 255)
                        if kind in MODELS:
                            exact = 1e-3 if vectors and vectors[layer] else 1 / 255
                            assert cell["weight"] == pytest.approx(
                                maps[place][layer].weights[0][at[1:]].item(), abs=exact
                            )
                        if kind in MODELS and vectors and vectors[layer]:
                            score = maps[place][layer].scores[0][at[1:]].item()
                            assert cell["arithmetic"] == pytest.approx(cell["weight"], abs=1e-5)
                            if np.isfinite(score) and score > -6e4:
                                assert cell["score"] == pytest.approx(score, abs=0.01)
                            else:
                                assert cell["score"] is None  # minus infinity has no JSON
            press(tab, "m")
            assert tab.query_selector(".equation") is None
            shown = tab.eval_on_selector_all(".arithmetic .bar", "all => all.map((bar) => bar.dataset.head)")
            assert 1 <= len(shown) == min(10, weights.shape[0] * weights.shape[1])
            cell = tab.evaluate(READ_CELL)
            mean = weights.mean((0, 1))[cell["row"], cell["slot"]]
            assert cell["weight"] == pytest.approx(mean, abs=1 / 255)
            click(tab, ".arithmetic .bar")
            assert tab.evaluate(READ_CELL)["ring"] == f"{place} {shown[0]}"


def pytorch_maps(kind, sentence):
    """Place -> the maps of each layer, computed by the model; empty for models of others."""
    if kind not in MODELS:
        return {}
    _, encoded, decoded = force_target(built(kind), TEXT, target_ids(sentence))
    return {
        place: getattr(maps, place) for maps in (encoded, decoded) if maps for place in PLACES if getattr(maps, place)
    }


EMPTY = Text(text="", pieces=())
WORDS = synthetic.english(3)
END = Text(text="", pieces=(Piece(text="</s>"),))
SPARSE = {
    "no attention": synthetic.sentence_of(WORDS, WORDS, attention={}),
    "no tree": synthetic.sentence_of(WORDS, WORDS, tree=None),
    "an empty tree": synthetic.sentence_of(WORDS, WORDS, tree=SearchTree(kind="beam", size=2)),
    "no candidates": synthetic.sentence_of(WORDS, WORDS, steps=(TraceStep(logp=-1.0, top=()),) * len(WORDS.pieces)),
    "one piece": synthetic.sentence_of(END, END),
    "no answer": Sentence(name="", source=WORDS, target=EMPTY, logp=0, score=0, steps=()),
    "nothing": Sentence(name="", source=EMPTY, target=EMPTY, logp=0, score=0, steps=()),
    **{
        f"only {place}": synthetic.sentence_of(
            WORDS, WORDS, attention={place: synthetic.sentence_of(WORDS, WORDS).attention[place]}
        )
        for place in ("encoder", "decoder")
    },
}


@pytest.mark.parametrize("name", SPARSE)
def test_a_trace_with_little_in_it(name, chromium, tmp_path):
    with opened(chromium, save_page(tmp_path, SPARSE[name], film=film_of(SPARSE[name])), "#lang=en") as tab:
        for number in range(1, 8):
            press(tab, str(number))
            until(tab, "document.querySelector('#tab-body').innerText.trim() !== ''")
        for key in ("1", "ArrowRight", "ArrowDown", "m", "n", "h", "q", "Enter", "Escape", "l", "ArrowRight", "Escape"):
            press(tab, key)
        assert tab.inner_text("#stage .count").startswith(f"{GLOSSARY['en']['step']} ")


def test_a_decoder_attends_to_what_it_has_read(chromium, tmp_path):
    with opened(chromium, save_page(tmp_path, recorded("transformer")), "#lang=en&place=decoder&tab=map") as tab:
        names = tab.eval_on_selector_all(".map .top .label", "all => all.map((label) => label.textContent)")
        answer = tab.eval_on_selector_all(".map .left .label", "all => all.map((label) => label.textContent)")
        assert names == [GLOSSARY["en"]["start"], *answer[:-1]]


# ------------------------------------------------------------------------------------------------------ one cell


ACTIONS = {
    "head": "() => pick('.strip .head')",
    "step": "() => pick('.target .piece')",
    "slot": "() => pick('.source .piece')",
    "tab": "() => pick('[role=tab]')",
    "card": "() => pick('.card')",
    "bar": "() => pick('.arithmetic .bar')",
    "column": "() => pick('.column')",
    "pill": "() => pick('.tree .pill')",
    "all heads": "() => pick('[data-key=mean]')",
    "place": "() => pick('#tab-body [role=radio]')",
}
KEYS = [*("ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"), *"mnh1234567tg", "q Escape", "l ArrowRight Escape", "q"]


def check_one_cell(cell, where):
    """Stage, strip, card and map name the same cell."""
    place, head = re.fullmatch(r"(.+) (\d+\.\d+|mean)(?:, shifted)?", cell["tag"]).groups()
    assert cell["mapTag"] in (None, cell["tag"]), where
    layer_head = "mean of all heads" if head == "mean" else "layer {} · head {}".format(*head.split("."))
    names = {GLOSSARY["en"][f"at-{name}"]: name for name in PLACES}
    assert cell["ring"] == (None if head == "mean" else f"{names[place]} {head}"), where
    assert cell["rings"] == (head != "mean"), where
    assert cell["showing"] == f"{place} · {GLOSSARY['en']['mean'] if head == 'mean' else layer_head}", where
    assert cell["step"] == cell["word"], where
    if cell["mapTag"]:
        assert cell["lit"] == cell["slot"], where
        shifted = cell["tag"].endswith("shifted")
        assert cell["row"] in ((cell["step"] + 1, cell["step"]) if shifted else (cell["step"],)), where


@pytest.mark.parametrize("seed", range(3))
def test_all_panels_show_one_cell_after_any_actions(seed, chromium, tmp_path):
    random = Random(seed)
    reading = TraceAlignment(step="shifted", layer=1, head=0) if seed % 2 else None
    sentence = recorded("transformer").model_copy(update={"reading": reading})
    path = save_page(tmp_path, sentence, sentence.model_copy(update={"name": "b"}), film=film_of(sentence))
    history = []
    with opened(chromium, path, "#lang=en") as tab:
        for turn in range(60):
            if random.random() < 0.6:
                name = random.choice(list(ACTIONS))
                share = random.random()
                tab.evaluate(
                    f"""(share) => {{
                        const pick = (selector) => {{
                            const all = [...document.querySelectorAll(selector)];
                            const click = new MouseEvent("click", {{ bubbles: true }});
                            all[Math.floor(share * all.length)]?.dispatchEvent(click);
                        }};
                        ({ACTIONS[name]})();
                    }}""",
                    share,
                )
                history.append(f"{name} {share:.2f}")
            else:
                keys = random.choice(KEYS).split()
                for key in keys:
                    tab.keyboard.press(key)
                    settled(tab)
                history.append(" ".join(keys))
            settled(tab)
            if tab.query_selector(".in-quiz"):
                press(tab, "Escape")
            if tab.get_attribute("html", "lang") != "en":
                click(tab, "header [data-key=en]")
                until(tab, "document.documentElement.lang === 'en'")
                settled(tab)
            cell = tab.evaluate(READ_CELL)
            check_one_cell(cell, history)
            if turn % 12 == 11:  # the address opens the same cell
                press(tab, "3")
                settled(tab, ADDRESS)
                cell = tab.evaluate(READ_CELL)
                with opened(chromium, path, cell["hash"]) as again:
                    assert again.evaluate(READ_CELL) == cell, history


# ------------------------------------------------------------------------------------------------ the opening state


def answer_of(*steps, weights=None, reading=None):
    """A sentence of five pieces; a step is (log-probability of the piece, that of the best other piece, is forced)."""
    target, source = synthetic.text_of("abcd"), synthetic.text_of("vwxyz")
    trace_steps = []
    for piece, (logp, other, is_forced) in zip(target.pieces, (*steps, (-0.01, -5.0, False)), strict=True):
        top = sorted([(piece.text, logp), (" other", other)], key=lambda pair: -pair[1])
        trace_steps.append(TraceStep(logp=logp, entropy=0.5, top=tuple(top), forced=is_forced))
    if weights is None:
        weights = np.eye(5, 6)[None, None] * 0.9 + 0.1 / 6
    changes = {
        "steps": tuple(trace_steps),
        "attention": {"cross": weights_blob(weights)},
        "reading": reading,
        "tree": None,
    }
    return synthetic.sentence_of(source, target, **changes)


SURE, UNSURE, RESCUED = (-0.1, -3.0, False), (-0.6, -0.9, False), (-1.6, -0.3, False)
# The second and third piece attend to the fourth and third slot: their order changes.
REORDERED = np.eye(6)[[0, 3, 2, 4, 5]][None, None] * 0.9 + 0.1 / 6
OPENINGS = {
    "a rescued word": ((SURE, UNSURE, RESCUED, SURE), {"weights": REORDERED}, 2),
    "the less probable of two rescued words": ((RESCUED, UNSURE, (-2.5, -0.2, False), SURE), {}, 2),
    "not a forced word, but a reordering": ((SURE, SURE, (*RESCUED[:2], True), SURE), {"weights": REORDERED}, 1),
    "a reordering": ((UNSURE, SURE, SURE, UNSURE), {"weights": REORDERED}, 1),
    "the least probable word": ((SURE, SURE, SURE, UNSURE), {}, 3),
}


@pytest.mark.parametrize("name", OPENINGS)
def test_the_page_opens_on(name, chromium, tmp_path):
    steps, options, expected = OPENINGS[name]
    with opened(chromium, save_page(tmp_path, answer_of(*steps, **options)), "#lang=en") as tab:
        assert tab.evaluate(READ_CELL)["step"] == expected
        has_reason = tab.is_visible(".why")
        assert has_reason == ("rescued" in name)


@pytest.mark.parametrize("step", ["naive", "shifted"])
def test_the_page_opens_on_the_head_that_aligns_best(step, chromium, tmp_path):
    readings = (TraceAlignment(step=step, layer=1, head=0), TraceAlignment(step="naive", layer=0, head=1))
    sentences = [recorded("transformer").model_copy(update={"reading": reading}) for reading in readings]
    with opened(chromium, save_page(tmp_path, *sentences), "#lang=en&tab=map") as tab:
        cell = tab.evaluate(READ_CELL)
        assert cell["ring"] == "cross 2.1"
        assert cell["tag"].endswith("shifted") == (step == "shifted")
        map_of_head = sentences[0].attention["cross"].array()[1, 0]
        assert cell["slot"] == map_of_head[cell["row"]].argmax()
        tab.select_option("header select", "1")
        tab.wait_for_selector(".strip [data-head='cross 1.2'][aria-current=true]")
        cell = tab.evaluate(READ_CELL)
        assert cell["slot"] == sentences[1].attention["cross"].array()[0, 1][cell["row"]].argmax()


def test_python_and_the_page_open_on_the_same_head(chromium, tmp_path):
    random = np.random.default_rng(5)
    source, target = synthetic.english(6), synthetic.english(5)
    rows, columns = len(target.pieces), len(source.pieces)
    sentences = []
    for sharpness in (0.2, 0.5, 1.0, 2.0, 4.0) * 4:
        scores = np.exp(sharpness * random.normal(size=(3, 4, rows, columns)))
        weights = weights_blob(scores / scores.sum(-1, keepdims=True))
        sentences.append(synthetic.sentence_of(source, target, attention={"cross": weights}))
    for name in ("pt-en", "ru-en", "pt-en-gru"):
        text = {"p": "O gato preto bebeu o leite.", "r": "Чёрный кот выпил молоко."}[name[0]]
        (sentence,) = inspect(heedful.load(name), text).trace.sentences
        sentences += [sentence, sentence.model_copy(update={"reading": None})]
    with opened(chromium, save_page(tmp_path, *sentences), "#lang=en") as tab:
        for number, sentence in enumerate(sentences, 1):
            visit(tab, f"#lang=en&sentence={number}")
            assert tab.evaluate(READ_CELL)["ring"].startswith(f"cross {opening_layer(sentence) + 1}.")


# ------------------------------------------------------------------------------------------------------- addresses


def test_an_address_opens_what_it_names(chromium, tmp_path):
    path = save_page(tmp_path, recorded("transformer"), recorded("gru-luong"))
    with opened(chromium, path, "#step=3&slot=2&head=2.1&place=decoder&lang=pt&theme=dark&tab=map&scene=4") as tab:
        cell = tab.evaluate(READ_CELL)
        assert (cell["step"], cell["slot"], cell["ring"]) == (2, 1, "decoder 2.1")
        assert tab.get_attribute("html", "lang") == "pt"
        assert tab.get_attribute("html", "data-theme") == "dark"
        assert tab.inner_text("#tab-map") == GLOSSARY["pt"]["map"]
        assert tab.get_attribute("[data-key=scene-4]", "aria-current") == "step"
        visit(tab, "#sentence=2&lang=en&step=2")
        assert tab.evaluate(READ_CELL)["tag"] == f"{GLOSSARY['en']['at-cross']} 1.1"
        visit(tab, "#lang=en&slide=3&step=2")
        assert tab.get_attribute("body", "data-slide") == "next"
        assert tab.evaluate(READ_CELL)["step"] == 1


def test_an_address_keeps_the_first_slot(chromium, tmp_path):
    steps, options, opening = OPENINGS["the least probable word"]
    path = save_page(tmp_path, answer_of(*steps, **options))
    with opened(chromium, path, f"#lang=en&tab=map&step={opening}&slot=1") as tab:
        press(tab, "h")
        settled(tab, ADDRESS)
        cell = tab.evaluate(READ_CELL)
        assert (cell["step"], cell["slot"]) == (opening - 1, 0)
        assert "slot=1" in cell["hash"]


def test_the_page_writes_no_address_over_one_that_a_visitor_has_just_entered(chromium, tmp_path):
    # The page writes its address a while after a change; here that moment is between a new address and its event.
    with opened(chromium, save_page(tmp_path, recorded("transformer")), "#lang=en") as tab:
        tab.evaluate("() => { window.due = []; window.setTimeout = (act) => window.due.push(act); }")
        tab.keyboard.press("ArrowRight")
        until(tab, "window.due.length > 0")
        tab.evaluate("() => { location.hash = '#lang=ru&step=3'; for (const act of window.due) act(); }")
        until(tab, "document.documentElement.lang === 'ru'")
        assert tab.evaluate(READ_CELL)["step"] == 2


# Sentences that are opened for the first time wait until the test lets them go.
HOLD = """() => {
    const read = Response.prototype.arrayBuffer;
    Object.assign(window, { held: [], isHolding: true, numReading: 0 });
    Response.prototype.arrayBuffer = async function () {
        window.numReading += 1;
        const buffer = await read.call(this);
        if (window.isHolding) await new Promise((go) => window.held.push(go));
        window.numReading -= 1;
        return buffer;
    };
    window.release = () => {
        window.isHolding = false;
        for (const go of window.held) go();
    };
}"""
CHOSEN = "document.querySelector('select.sentence').value"


@contextmanager
def holding(chromium, path):
    """Open a page that has not yet read its second sentence."""
    with opened(chromium, path, "#lang=en") as tab:
        tab.evaluate(HOLD)
        yield tab


def let_go(tab):
    """The sentence is read, and what waited for it has gone on."""
    tab.evaluate("window.release()")
    until(tab, "window.numReading === 0")
    settled(tab)


@pytest.fixture(scope="module")
def two_sentences(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    return with_lecture(save_page(folder, recorded("transformer"), recorded("gru-luong")), LECTURE)


def test_the_newest_address_or_sentence_is_opened(two_sentences, chromium):
    with holding(chromium, two_sentences) as tab:
        tab.evaluate("() => { location.hash = '#lang=en&sentence=2&tab=heads'; }")
        until(tab, "window.held.length > 0")
        visit(tab, "#lang=en&tab=map")
        let_go(tab)
        assert tab.evaluate(CHOSEN) == "0"
        assert tab.get_attribute("#tab-body", "data-tab") == "map"
    with holding(chromium, two_sentences) as tab:
        tab.select_option("select.sentence", "1")
        until(tab, "window.held.length > 0")
        tab.select_option("select.sentence", "0")
        let_go(tab)
        assert tab.evaluate(CHOSEN) == "0"
        assert "sentence" not in tab.evaluate("location.hash")


def test_a_slide_that_was_left_meanwhile_is_not_opened(two_sentences, chromium):
    with holding(chromium, two_sentences) as tab:
        press(tab, "l", "ArrowRight")
        until(tab, "window.held.length > 0")
        press(tab, "Escape")
        let_go(tab)
        assert tab.query_selector(".lecture") is None
        assert tab.evaluate(CHOSEN) == "0"


@pytest.mark.parametrize("address", ["#lang=en&sentence=2", "#lang=en&slide=2"])
def test_keys_that_are_pressed_while_an_address_is_opened_are_kept(address, two_sentences, chromium):
    with holding(chromium, two_sentences) as tab:
        tab.evaluate("(address) => { location.hash = address; }", address)
        until(tab, "window.held.length > 0")
        press(tab, "g")
        until(tab, "location.hash.includes('lang=pt')")  # the address of the old sentence and the new language
        let_go(tab)
        until(tab, f"{CHOSEN} === '1'")
        assert tab.get_attribute("html", "lang") == "pt"
        settled(tab, ADDRESS)
        assert all(part in tab.evaluate("location.hash") for part in ("sentence=2", "lang=pt"))


def test_the_page_writes_no_address_over_one_that_it_opens(two_sentences, chromium):
    with holding(chromium, two_sentences) as tab:
        tab.evaluate(
            """() => {
                window.due = new Map();
                window.setTimeout = (act) => { window.due.set(window.due.size + 1, act); return window.due.size; };
                window.clearTimeout = (timer) => window.due.delete(timer);
            }"""
        )
        tab.keyboard.press("2")
        until(tab, "window.due.size > 0")
        tab.evaluate("() => { location.hash = '#lang=en&sentence=2&tab=map'; }")
        until(tab, "window.held.length > 0")
        tab.evaluate("() => { for (const act of window.due.values()) act(); }")
        assert tab.evaluate("location.hash") == "#lang=en&sentence=2&tab=map"


def test_a_panel_that_fails_stops_no_other_panel(chromium, tmp_path):
    with opened(chromium, save_page(tmp_path, recorded("transformer")), "#lang=en", ignored=["no pen"]) as tab:
        tab.evaluate("() => { CanvasRenderingContext2D.prototype.clearRect = () => { throw new Error('no pen'); }; }")
        press(tab, "ArrowRight", "2")
        assert tab.get_attribute("#tab-body", "data-tab") == "heads"
        until(tab, "location.hash.includes('tab=heads')")


BROKEN = (
    "#step=999&head=0.1&place=nowhere&lang=xx&slot=0&sentence=9&threshold=x&scene=NaN&x=%",
    "#step=-4&slot=99999999999999999999&head=9.9&place=encoder&tab=&scene=1e9&threshold=Infinity",
    "#slide=99&lang=en",
    "#frame=99&take=7&tab=film",
    "#=&&==&%E0%A4%A&__proto__=1&constructor=2&step",
    "#head=mean&reading=sideways&link=&sort=none&theme=pink&quiz=look&hover=1",
)


def test_broken_addresses_open_the_nearest_state(chromium, tmp_path):
    sentence = recorded("transformer")
    path = save_page(tmp_path, sentence, film=film_of(sentence))
    for address in BROKEN:
        with opened(chromium, path, address) as tab:
            check_one_cell(tab.evaluate(READ_CELL), address)
            assert tab.evaluate("document.body.className") == ("lecture" if "slide" in address else "")
            for other in BROKEN:
                visit(tab, other)
                check_one_cell(tab.evaluate(READ_CELL), other)
    only_film = Page(TraceDocument(film=film_of(sentence))).save(tmp_path / "film.html")
    for address in BROKEN:
        with opened(chromium, only_film, address) as tab:
            assert tab.get_attribute("#tab-body", "data-tab") == "film"
            for key in ("q", "l", "m", "ArrowRight", " ", "1", "2", "t", "g", "?", "Escape"):
                press(tab, key)


# ---------------------------------------------------------------------------------------------------------- layout


SIZES = {
    "1280": (1280, 800, "light"),
    "1920": (1920, 1080, "projector"),
    "1024": (1024, 768, "dark"),
    "390": (390, 844, "light"),
}


@pytest.fixture(scope="module")
def many_sentences(tmp_path_factory):
    """Every length and script, and a model with vectors."""
    sentences = {**synthetic.LENGTHS, "8 with vectors": recorded("transformer"), "additive": recorded("lstm-bahdanau")}
    film = film_of(sentences["8 with vectors"])
    return save_page(tmp_path_factory.mktemp("many"), *sentences.values(), title="lengths", film=film), list(sentences)


@pytest.mark.parametrize("size", SIZES)
def test_nothing_overlaps_or_is_cut_off(size, chromium, many_sentences):
    path, names = many_sentences
    width, height, theme = SIZES[size]
    problems = []
    with opened(chromium, path, f"#theme={theme}", width=width, height=height) as tab:
        for number, name in enumerate(names, 1):
            for at, language in enumerate(LANGUAGES):
                tabs = TABS if len(names) - number < 2 else TABS[at::3] if name not in ("12", "40") else TABS
                for panel in tabs:
                    visit(tab, f"#theme={theme}&lang={language}&sentence={number}&tab={panel}&scene={1 + number % 5}")
                    problems += [(name, language, panel, problem) for problem in tab.evaluate(LAYOUT_CHECK)]
    assert problems == []


@pytest.mark.parametrize("size", SIZES)
def test_nothing_overlaps_in_quiz_and_lecture(size, chromium, many_sentences):
    path, names = many_sentences
    width, height, theme = SIZES[size]
    problems = []

    def check(what):
        settled(tab)
        problems.extend((name, language, what, problem) for problem in tab.evaluate(LAYOUT_CHECK))

    with opened(chromium, path, f"#theme={theme}", width=width, height=height) as tab:
        for name, language in (("12", "en"), ("40", "ru"), ("to Hebrew", "pt"), ("8 with vectors", "ru")):
            visit(tab, f"#theme={theme}&lang={language}&sentence={names.index(name) + 1}")
            click(tab, "[data-key=menu]")
            check("menu")
            click(tab, "[data-key=menu]")
            press(tab, "?")
            check("help")
            press(tab, "Escape", "q")
            check("question")
            click(tab, ".options button")
            check("answer")
            press(tab, "Escape", "l")
            for slide in range(int(tab.inner_text(".notes h1").split("/")[1])):
                check(f"slide {slide + 1}")
                press(tab, "ArrowRight")
            press(tab, "Escape")
    assert problems == []


POINT_AT_WORDS = """async () => {
  const drawn = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done))), moved = [];
  const top = () => Math.round(document.querySelector('#stage .board').getBoundingClientRect().top + scrollY);
  const before = top();
  for (const node of document.querySelectorAll('#stage .piece')) {
    node.dispatchEvent(new PointerEvent('pointerenter'));
    await drawn();
    const readout = document.querySelector('#stage .readout').textContent;
    if (top() !== before) moved.push([node.textContent, top() - before, readout]);
  }
  return moved;
}"""


@pytest.mark.parametrize("width", [390, 1280])
def test_pointing_at_a_word_does_not_move_the_words(width, chromium, many_sentences):
    path, names = many_sentences
    with opened(chromium, path, "#theme=light", width=width, height=844) as tab:
        for language in LANGUAGES:
            for name in ("12", "8 with vectors", "additive"):
                visit(tab, f"#theme=light&lang={language}&sentence={names.index(name) + 1}")
                assert tab.evaluate(POINT_AT_WORDS) == [], (language, name)


# -------------------------------------------------------------------------------------------------------- keyboard


def test_the_keyboard_reaches_every_control(chromium, tmp_path):
    sentence = recorded("transformer")
    path = save_page(tmp_path, sentence, sentence.model_copy(update={"name": "b"}), film=film_of(sentence))
    with opened(chromium, path, "#lang=en") as tab:
        for panel in TABS:
            visit(tab, f"#lang=en&tab={panel}&head={'mean' if panel == 'map' else '1.1'}")
            until(tab, "document.querySelector('#tab-body').innerText.trim() !== ''")
            settled(tab)
            # Everything that Tab reaches gets a mark; a group counts if Tab reaches a member.
            tab.evaluate("() => { document.activeElement.blur(); document.body.tabIndex = -1; document.body.focus(); }")
            for _ in range(60):
                tab.keyboard.press("Tab")
                if tab.evaluate(
                    """() => {
                        const node = document.activeElement, isLast = node.dataset.reached || node === document.body;
                        node.dataset.reached = "1";
                        return Boolean(isLast);
                    }"""
                ):
                    break
            missing = tab.evaluate(
                """() => [...document.querySelectorAll("button, input, select, summary")].filter((node) => {
                    if (!node.getClientRects().length || node.disabled || node.closest("dialog")) return false;
                    const group = node.closest("[role=radiogroup], [role=tablist], .strip, .words, .cards, .skyline");
                    return !(node.dataset.reached || group?.dataset.reached || group?.querySelector("[data-reached]"));
                }).map((node) => node.outerHTML.slice(0, 100))"""
            )
            assert missing == []


def test_arrow_keys_work_in_every_group(chromium, tmp_path):
    sentence = recorded("transformer")
    with opened(chromium, save_page(tmp_path, sentence, film=film_of(sentence)), "#lang=en&theme=light") as tab:
        tab.focus("header [data-key=en]")
        press(tab, "ArrowRight")
        until(tab, "document.documentElement.lang === 'pt' && document.activeElement.dataset.key === 'pt'")
        press(tab, "ArrowLeft")
        until(tab, "document.documentElement.lang === 'en' && document.activeElement.dataset.key === 'en'")
        tab.focus("header [data-key=light]")
        press(tab, "ArrowLeft")
        until(tab, "document.documentElement.dataset.theme === 'projector'")
        tab.focus("[role=tab][aria-selected=true]")
        for expected in (*TABS[1:], TABS[0]):
            if expected == "compare" or tab.query_selector(f"#tab-{expected}"):
                press(tab, "ArrowRight")
                assert tab.evaluate("document.activeElement.id") == f"tab-{expected}"
        for selector in (".strip .head[tabindex='0']", ".source .piece[tabindex='0']", ".target .piece[tabindex='0']"):
            tab.focus(selector)
            before = tab.evaluate("document.activeElement.dataset.head ?? document.activeElement.dataset.at")
            press(tab, "ArrowLeft" if before not in ("0",) else "ArrowRight")
            after = tab.evaluate("document.activeElement.dataset.head ?? document.activeElement.dataset.at")
            assert after is not None
            assert after != before
            check_one_cell(tab.evaluate(READ_CELL), selector)
        visit(tab, "#lang=en&tab=heads&head=1.1")
        tab.focus(".card[tabindex='0']")
        press(tab, "ArrowRight")
        assert tab.evaluate(READ_CELL)["ring"] == "cross 1.2"
        press(tab, "Enter")
        assert tab.get_attribute("#tab-body", "data-tab") == "map"
        visit(tab, "#lang=en&tab=map&step=1&slot=1&head=1.1&reading=naive")
        tab.focus(".map-board")
        press(tab, "ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp")
        cell = tab.evaluate(READ_CELL)
        assert (cell["row"], cell["slot"]) == (1, 1)


def test_keys_do_what_the_help_says(chromium, tmp_path):
    sentence = recorded("transformer")
    with opened(chromium, save_page(tmp_path, sentence), "#lang=en&theme=light&step=1&head=1.1&threshold=0.2") as tab:

        def state(key):
            settled(tab, ADDRESS)
            return dict(re.findall(r"(\w+)=([^&]*)", tab.evaluate("location.hash"))).get(key)

        press(tab, "ArrowRight", "ArrowRight", "ArrowLeft")
        assert tab.evaluate(READ_CELL)["step"] == 1
        press(tab, "ArrowDown")
        assert tab.evaluate(READ_CELL)["ring"] == "cross 1.2"
        press(tab, "m")
        assert tab.evaluate(READ_CELL)["ring"] is None
        press(tab, "m")
        assert tab.evaluate(READ_CELL)["ring"]
        readings = {state("reading")}
        press(tab, "n")
        assert len(readings | {state("reading")}) == 2
        press(tab, "h")
        assert state("link") == "hard"
        press(tab, "t")
        tab.wait_for_selector("html[data-theme=dark]")
        press(tab, "g")
        tab.wait_for_selector("html[lang=pt]")
        for number, name in enumerate(TABS[:-1], 1):
            press(tab, str(number))
            assert tab.get_attribute("#tab-body", "data-tab") == name
        press(tab, "7")  # there is no film
        assert tab.get_attribute("#tab-body", "data-tab") == "compare"
        press(tab, "?")
        assert tab.is_visible("dialog")
        press(tab, "q")  # keys belong to the dialog
        assert tab.query_selector(".in-quiz") is None
        press(tab, "Escape")
        assert not tab.is_visible("dialog")
        tab.evaluate("() => document.activeElement.blur()")
        press(tab, "q")
        assert tab.query_selector(".in-quiz")
        press(tab, "Escape")
        assert tab.query_selector(".in-quiz") is None
        press(tab, "l")
        assert tab.query_selector(".lecture")
        press(tab, "Escape")
        assert tab.query_selector(".lecture") is None
        last = len(sentence.target.pieces) - 1
        visit(tab, f"#lang=en&step={last}")
        press(tab, " ")
        until(tab, f"document.querySelector('[data-key=step]').value === '{last}'")
        until(tab, f"document.querySelector('[data-play]').getAttribute('aria-label') === '{GLOSSARY['en']['play']}'")
        press(tab, " ")  # at the end it starts again
        assert tab.evaluate(READ_CELL)["step"] == 0
        until(tab, "document.querySelector('[data-key=step]').value === '1'")
        press(tab, " ")
        assert tab.get_attribute("[data-play]", "aria-label") == GLOSSARY["en"]["play"]


# ------------------------------------------------------------------------------------- search, evidence, comparison


def test_a_probability_beside_a_sentence_names_its_piece(chromium, tmp_path):
    sentence = recorded("transformer")
    with opened(chromium, save_page(tmp_path, sentence), "#lang=en&tab=search") as tab:
        for at, node in list(enumerate(sentence.tree.nodes))[::7]:
            if not tab.query_selector(f".tree [data-node='{at}']"):
                continue
            tab.select_option("[data-key=candidate]", str(at))
            settled(tab)
            label = GLOSSARY["en"]["end"] if node.text.strip() == "</s>" else node.text.strip()
            shares = re.findall("\u201c([^\u201d]*)\u201d [<\\d.]+\u202f%", tab.inner_text(".node-facts"))
            assert shares == [label]


def test_the_path_of_greedy_search_is_marked(chromium, tmp_path):
    sentence = recorded("transformer")
    with opened(chromium, save_page(tmp_path, sentence), "#lang=en&tab=search") as tab:
        marked = tab.eval_on_selector_all(".tree .pill.greedy", "all => all.map((pill) => +pill.dataset.node)")
        nodes, parent, path = sentence.tree.nodes, None, []
        while children := [at for at, node in enumerate(nodes) if node.parent == parent]:
            parent = max(children, key=lambda at: nodes[at].logp)
            path.append(parent)
        assert sorted(marked) == sorted(path)[: len(marked)]
        assert marked
        assert len(tab.query_selector_all(".tree .edge.greedy")) == len(marked) - 1


def test_evidence_shows_its_verdict_and_the_selected_piece(chromium, tmp_path):
    page = inspect("pt-en", "Ontem o Tom comprou um carro vermelho para a irm\u00e3 dele.").save(tmp_path / "page.html")
    for width, height, theme in ((1280, 800, "light"), (1920, 1080, "projector")):
        with opened(chromium, page, f"#lang=ru&theme={theme}&tab=evidence", width=width, height=height) as tab:
            settled(tab, 100)
            for selector in (".evidence .why", ".curves", ".contributions tr.now"):
                parts = tab.evaluate(
                    """(selector) => {
                        const box = document.querySelector(selector).getBoundingClientRect();
                        const room = document.querySelector("#tab-body").getBoundingClientRect();
                        return [box.height > 0, box.top >= room.top, box.bottom <= room.bottom];
                    }""",
                    selector,
                )
                assert all(parts), (theme, selector, parts)


def test_a_comparison_marks_the_words_that_differ(chromium, tmp_path):
    source = synthetic.english(3)
    answers = ("When I came to the house last night", "When I came home last night")
    first, second = (synthetic.text_of(tuple(answer.split())) for answer in answers)
    path = save_page(tmp_path, synthetic.sentence_of(source, first), synthetic.sentence_of(source, second, name="b"))
    with opened(chromium, path, "#lang=en&tab=compare") as tab:
        until(tab, "document.querySelector('.compared-word')")
        differing = tab.eval_on_selector_all(
            ".compared",
            "all => all.map((side) => [...side.querySelectorAll('.differs')].map((node) => node.innerText))",
        )
        assert differing == [["to", "the", "house"], ["home"]]
        assert tab.inner_text(".compare .summary") == GLOSSARY["en"]["they-part"].replace("{0}", "4")


def test_a_narrow_page_shows_the_selected_tab(chromium, tmp_path):
    with opened(chromium, save_page(tmp_path, recorded("transformer")), "#lang=pt", width=390, height=844) as tab:
        for panel in TABS[:-1]:
            visit(tab, f"#lang=pt&tab={panel}")
            settled(tab, 100)
            box = tab.query_selector(f"#tab-{panel}").bounding_box()
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= 390


# ------------------------------------------------------------------------------------------------------------ quiz


# All that the page says, seen or heard: text, titles, labels, values, and what can be inferred from focus and style.
READ_ALL = """() => {
    const app = document.getElementById("app"), parts = [app.innerText, location.hash];
    for (const node of app.querySelectorAll("*")) for (const { value } of node.attributes) parts.push(value);
    return parts.join("\\n");
}"""


def test_a_quiz_tells_no_answer_before_the_click(chromium, tmp_path):
    source = synthetic.text_of(("alpha", "bravo", "charlie", "delta"))
    target = synthetic.text_of(("zulu", "yankee", "understanding", "xray"))
    rows, columns = len(target.pieces), len(source.pieces)
    weights = np.full((1, 2, rows, columns), 0.02)
    best = [3, 0, 5, 1, 4, 2][:rows]
    for row, slot in enumerate(best):
        weights[:, :, row, slot] = 1 - 0.02 * (columns - 1)
    sentence = synthetic.sentence_of(source, target, attention={"cross": weights_blob(weights)})
    words = [piece.text.strip() for piece in target.pieces[:-1]]
    with opened(chromium, save_page(tmp_path, sentence), "#lang=en") as tab:
        for kind in ("look", "word"):
            visit(tab, f"#lang=en&scene={1 if kind == 'look' else 2}")
            press(tab, "q")
            if kind == "word":
                click(tab, "[data-key=other-quiz]")
            right = 0
            for step in range(rows):
                settled(tab, ADDRESS)
                before = tab.evaluate(READ_ALL)
                later = words[step + 1 :]
                assert not [word for word in later if word in before]
                assert "\u202f%" not in before  # no weight and no probability
                assert tab.evaluate(
                    """[...document.querySelectorAll(".strip canvas")]
                        .every((node) => getComputedStyle(node).visibility === "hidden")"""
                )
                assert (
                    tab.eval_on_selector_all(
                        ".source .piece", "all => new Set(all.map((node) => node.style.backgroundColor)).size"
                    )
                    <= 1
                )
                assert tab.eval_on_selector_all(".source .lit, .options .right", "all => all.length") == 0
                tabbable = tab.eval_on_selector_all(
                    ".source .piece", "all => all.findIndex((node) => node.tabIndex === 0)"
                )
                assert tabbable == 0  # wherever the answer is
                slot = best[step] if kind == "look" else None
                if kind == "look" and step % 2:  # another piece of the same word counts, a wrong one does not
                    word = source.pieces[slot].word
                    others = [
                        at for at, piece in enumerate(source.pieces) if at != slot and piece.word == word is not None
                    ]
                    slot = others[0] if others else (slot + 1) % columns
                    right += bool(others)
                    tab.eval_on_selector_all(".source .piece", f"all => all[{slot}].click()")
                elif kind == "look":
                    right += 1
                    tab.eval_on_selector_all(".options button", f"all => all[{slot}].click()")
                else:
                    right += 1
                    label = words[step] if step < len(words) else GLOSSARY["en"]["end"]
                    tab.eval_on_selector_all(
                        ".options button",
                        "(all, label) => all.find((node) => node.querySelector('bdi').textContent === label).click()",
                        label,
                    )
                settled(tab)
                assert tab.query_selector(".options .right")
                assert f"{right}" in tab.inner_text(".quiz-bar small")
                click(tab, "[data-key=next-question]")
            assert tab.inner_text(".result b") == f"{right} / {rows}"
            assert GLOSSARY["en"]["quiz-done"].replace("{0}", str(right)).replace("{1}", str(rows)) in tab.inner_text(
                ".quiz-bar"
            )
            click(tab, "[data-key=again]")
            assert not tab.query_selector(".result")
            press(tab, "Escape")
            check_one_cell(tab.evaluate(READ_CELL), kind)


def test_a_quiz_needs_no_mouse(chromium, tmp_path):
    sentence = recorded("transformer")
    with opened(chromium, save_page(tmp_path, sentence), "#lang=en") as tab:
        press(tab, "q")
        tab.focus(".options button")
        for _ in sentence.target.pieces:
            press(tab, "Enter")  # an option, then the next question
            assert tab.evaluate("document.activeElement.dataset.key") == "next-question"
            press(tab, "Enter")
        assert tab.evaluate("document.activeElement.dataset.key") == "again"
        assert tab.inner_text(".result b").endswith(f"/ {len(sentence.target.pieces)}")


# --------------------------------------------------------------------------------------------------------- lecture


def test_a_lecture_goes_from_slide_to_slide(chromium, tmp_path):
    sentence = recorded("transformer")
    path = save_page(tmp_path, sentence, sentence.model_copy(update={"name": "b"}))
    with opened(chromium, path, "#lang=en&sentence=2") as tab:
        press(tab, "l")
        panels = ["stage", "stage", "next", "search", "map", "map", "heads"]
        for key in ("ArrowRight", "PageDown", " ", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowRight"):
            number = int(tab.inner_text(".notes h1").split("/")[0])
            shown = panels[number - 1]
            assert tab.get_attribute("body", "data-slide") == shown
            assert tab.is_visible("#stage") == (shown == "stage")
            assert tab.is_visible("#dock") == (shown != "stage")
            if shown != "stage":
                assert tab.get_attribute("#tab-body", "data-tab") == shown
            assert tab.inner_text(".notes p").strip()
            check_one_cell(tab.evaluate(READ_CELL), number)
            press(tab, key)
        assert tab.inner_text(".notes h1") == "7 / 7"
        settled(tab, ADDRESS)
        assert "sentence=2" in tab.evaluate("location.hash")
        press(tab, "PageUp", "ArrowLeft")
        assert tab.inner_text(".notes h1") == "5 / 7"
        press(tab, "n")
        assert not tab.is_visible(".notes p")
        press(tab, "ArrowRight", "n")
        assert tab.is_visible(".notes p")
        tab.focus("[data-key=next-slide]")
        press(tab, "Enter")
        assert tab.evaluate("document.activeElement.dataset.key") == "next-slide"
        press(tab, "Escape")
        assert tab.query_selector(".lecture") is None
        assert tab.inner_text(".notes") == ""


LECTURE = {
    "title": "One weight",
    "slides": [
        {"panel": "stage", "state": "step=2&head=1.2", "notes": {"en": "First.", "pt": "Primeiro."}},
        {"panel": "map", "state": "sentence=2&step=3&head=2.1&scene=4", "notes": {"ru": "Только по-русски."}},
        {"panel": "next", "notes": {"en": "The opening state."}},
    ],
}


def with_lecture(path, lecture):
    """The page of a trace with a lecture, written into the page's data."""
    html = path.read_text(encoding="utf-8")
    before, data, after = re.match(r'(.*id="trace">)(.*?)(</script>.*)', html, re.S).groups()
    path.write_text(
        before + escape_json(json.dumps({**json.loads(data), "lecture": lecture})) + after, encoding="utf-8"
    )
    return path


def test_a_lecture_of_the_trace(chromium, tmp_path):
    path = with_lecture(
        save_page(tmp_path, recorded("transformer"), recorded("gru-luong"), recorded("marian")), LECTURE
    )
    with opened(chromium, path, "#lang=en") as tab:
        opening = tab.evaluate(READ_CELL)
        press(tab, "l")
        cell = tab.evaluate(READ_CELL)
        assert (cell["step"], cell["ring"], tab.inner_text(".notes p")) == (1, "cross 1.2", "First.")
        press(tab, "ArrowRight")
        until(tab, "document.querySelector('.notes h1').textContent === '2 / 3'")
        cell = tab.evaluate(READ_CELL)
        assert (cell["step"], cell["tag"]) == (2, f"{GLOSSARY['en']['at-cross']} mean")  # this model has no such head
        assert tab.inner_text(".notes p") == "Только по-русски."
        press(tab, "ArrowRight")
        until(tab, "document.querySelector('.notes h1').textContent === '3 / 3'")
        cell = tab.evaluate(READ_CELL)
        assert (cell["step"], cell["ring"]) == (opening["step"], opening["ring"])


# ------------------------------------------------------------------------------------------------------ arithmetic


SCORED = {
    "dot": "hard",
    "scaled_dot": "transformer",
    "bilinear": "gru-luong",
    "additive": "lstm-bahdanau",
    "location": "location",
    "content_location": "content-location",
}


@pytest.mark.parametrize("score", SCORED)
def test_the_arithmetic_has_five_scenes(score, chromium, tmp_path):
    sentence = recorded(SCORED[score])
    layer = sentence.vectors["cross"][0]
    assert layer.score == score
    with opened(chromium, save_page(tmp_path, sentence), "#lang=en&tab=map&place=cross&head=1.1&step=2") as tab:
        for scene in range(1, 6):
            click(tab, f"[data-key=scene-{scene}]")
            assert tab.get_attribute(f"[data-key=scene-{scene}]", "aria-current") == "step"
            assert tab.inner_text(".equation").strip()
            assert tab.eval_on_selector_all(".scene svg rect", "all => all.length") > 0
            assert "NaN" not in tab.inner_html(".arithmetic")
            assert "65504" not in tab.inner_html(".arithmetic")
            cell = tab.evaluate(READ_CELL)
            numbers = {
                1: cell["score"] * np.sqrt(layer.queries.shape[2]) if score == "scaled_dot" else cell["score"],
                4: cell["weight"],
            }
            if scene in numbers:
                shown = float(tab.inner_text(".equation b").replace("\u2212", "-"))
                assert shown == pytest.approx(numbers[scene], abs=0.006)
        assert ("argmax" in tab.inner_text(".scenes")) == (layer.normalizer == "hard")
        if layer.normalizer == "hard":
            click(tab, "[data-key=scene-4]")
            assert tab.inner_text(".equation b") == "1.000"
            heights = tab.evaluate(
                """() => {
                    const unit = parseFloat(getComputedStyle(document.documentElement).fontSize);
                    const bar = document.querySelector(".scene rect.now").getBoundingClientRect();
                    return [bar.height, document.querySelector(".scene").clientHeight - 4.2 * unit];
                }"""
            )
            assert heights[0] == pytest.approx(heights[1], abs=1.5)  # a weight of 1 fills its column


def test_masked_scores_are_minus_infinity(chromium, tmp_path):
    path = save_page(tmp_path, recorded("transformer"))
    with opened(chromium, path, "#lang=en&tab=map&place=decoder&head=1.1&step=2&slot=4&scene=3") as tab:
        assert "\u2212\u221e" in tab.inner_text(".scene")
        for scene in range(1, 6):
            click(tab, f"[data-key=scene-{scene}]")
            assert not re.search("65504|NaN|Infinity<", tab.inner_html(".arithmetic"))
        click(tab, "[data-key=scene-4]")
        assert tab.inner_text(".equation b") == "0.000"
        assert tab.evaluate(READ_CELL)["weight"] == 0


def test_scenes_play_and_jump_without_motion(chromium, tmp_path):
    path = save_page(tmp_path, recorded("transformer"))
    current = "document.querySelector('.scenes [aria-current=step]').dataset.key"
    with opened(chromium, path, "#lang=en&tab=map&place=cross&head=1.1&scene=4.9") as tab:
        click(tab, "[data-key=play-scenes]")
        until(tab, "document.querySelector('[data-key=scene]').value === '5'")
        click(tab, "[data-key=play-scenes]")  # again from the beginning
        until(tab, f"{current} === 'scene-1' && Number(document.querySelector('[data-key=scene]').value) > 0")
        click(tab, "[data-key=play-scenes]")
        value = tab.input_value("[data-key=scene]")
        tab.wait_for_timeout(150)
        assert tab.input_value("[data-key=scene]") == value
    with opened(chromium, path, "#lang=en&tab=map&place=cross&head=1.1&scene=1", reduced_motion="reduce") as tab:
        for expected in ("2", "3", "4", "5", "1"):
            click(tab, "[data-key=play-scenes]")
            assert tab.input_value("[data-key=scene]") == expected


# --------------------------------------------------------------------------------------------------- accessibility


AXE = os.environ.get("HEEDFUL_AXE")


@pytest.mark.skipif(not AXE, reason="HEEDFUL_AXE does not name axe.min.js of the npm package axe-core")
@pytest.mark.parametrize(("theme", "language"), [("light", "en"), ("dark", "pt"), ("projector", "ru")])
def test_axe_finds_no_violation(theme, language, chromium, tmp_path):
    (sentence,) = inspect("pt-en", "O gato preto bebeu o leite.").trace.sentences
    path = save_page(tmp_path, sentence, sentence.model_copy(update={"name": "b"}), title="axe", film=film_of(sentence))
    look, violations = f"#lang={language}&theme={theme}", []

    def check(name):
        violations.extend((name, *violation) for violation in axe_violations(tab, Path(AXE)))

    with opened(chromium, path, look, bypass_csp=True, reduced_motion="reduce") as tab:
        for panel in TABS:
            visit(tab, f"{look}&tab={panel}")
            until(tab, "document.querySelector('#tab-body').innerText.trim() !== ''")
            check(panel)
        for name, keys in {"quiz": ["q"], "lecture": ["Escape", "l"], "help": ["Escape", "?"]}.items():
            press(tab, *keys)
            check(name)
    assert violations == []


def test_selected_things_are_marked_with_forced_colors(chromium, tmp_path):
    sentence = recorded("transformer")
    look = """node => {
        const { outlineStyle, outlineWidth, backgroundColor, borderBottomColor } = getComputedStyle(node);
        return [outlineStyle, outlineWidth, backgroundColor, borderBottomColor].join(" ");
    }"""
    pairs = {
        "next": {
            ".strip .head[aria-current=true]": ".strip .head[aria-current=false]",
            "[role=tab][aria-selected=true]": "[role=tab][aria-selected=false]",
            ".target .piece[aria-current=step]": ".target .piece:not([aria-current])",
            ".source .piece.lit": ".source .piece:not(.lit)",
            "header [aria-checked=true]": "header [aria-checked=false]",
            ".column[aria-current]": ".column:not([aria-current])",
        },
        "heads": {".card[aria-pressed=true]": ".card[aria-pressed=false]"},
        "map": {".cell-marker": ".row-marker"},
    }
    with opened(chromium, save_page(tmp_path, sentence), "#lang=en", forced_colors="active") as tab:
        assert tab.evaluate("matchMedia('(forced-colors: active)').matches")
        for panel, selectors in pairs.items():
            visit(tab, f"#lang=en&tab={panel}")
            for selected, other in selectors.items():
                assert tab.eval_on_selector(selected, look) != tab.eval_on_selector(other, look), selected
        for panel in TABS[:-1]:
            visit(tab, f"#lang=en&tab={panel}")


# ------------------------------------------------------------------------------------------------- speed and size


@pytest.mark.parametrize("panel", ["next", "map"])
def test_scrubbing_is_fast(panel, chromium, tmp_path):
    source = synthetic.english(45)
    sentence = synthetic.sentence_of(source, source, layers=6, heads=8)
    num_steps = len(sentence.target.pieces)
    assert num_steps >= 60
    with opened(chromium, save_page(tmp_path, sentence), f"#lang=en&tab={panel}&step=1") as tab:
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})  # other processes do not count

        def spent():
            metrics = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
            return 1000 * (metrics["ScriptDuration"] + metrics["LayoutDuration"] + metrics["RecalcStyleDuration"])

        before = spent()
        tab.evaluate(
            """async (count) => {
                const slider = document.querySelector("[data-key=step]");
                for (let step = 0; step < count; step++) {
                    slider.value = step;
                    slider.dispatchEvent(new Event("input", { bubbles: true }));
                    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
                }
            }""",
            num_steps,
        )
        milliseconds = (spent() - before) / num_steps
        print(f"{panel}: {milliseconds:.1f} ms per step")
        assert tab.evaluate(READ_CELL)["step"] == num_steps - 1
        assert milliseconds < 24  # 8 on a machine that does nothing else


def test_the_page_is_small(chromium, tmp_path):
    script, style, _ = load_viewer()
    assert len((script + style).encode()) < 200_000
    source = synthetic.english(18)
    sentence = synthetic.sentence_of(source, source, layers=6, heads=8)
    assert len(source.pieces) == 25
    print(f"{len(render_page(TraceDocument(sentences=(sentence,))).encode()):,} bytes")
    assert len(render_page(TraceDocument(sentences=(sentence,))).encode()) <= 283_000
    text = "Ontem \u00e0 noite o meu irm\u00e3o mais velho disse \u00e0 minha m\u00e3e que queria"
    (real,) = inspect("pt-en", f"{text} comprar um carro vermelho, mas n\u00e3o tinha dinheiro.").trace.sentences
    assert (len(real.source.pieces), len(real.target.pieces)) == (25, 27)
    assert real.vectors
    assert real.contributions
    assert len(render_page(TraceDocument(sentences=(real,))).encode()) <= 280_000  # 179,501 before the redesign
    path = save_page(tmp_path, *[synthetic.LENGTHS["40"]] * 20)
    with opened(chromium, path, "#lang=en") as tab:
        milliseconds = float(tab.get_attribute("html", "data-ready"))
        print(f"20 sentences open in {milliseconds:.0f} ms")
        assert milliseconds < 6000  # 1000 on a machine that does nothing else


# --------------------------------------------------------------------------------------------------------- Firefox


@pytest.mark.skipif(FIREFOX is None, reason="firefox-esr is not installed: apt-get install firefox-esr")
def test_firefox_opens_every_page(tmp_path):
    kinds = [*MODELS, "student"]
    pages = {}
    for kind in kinds:
        trace = TraceDocument(sentences=(recorded(kind), recorded(kind)), film=film_of(recorded(kind)))
        pages[kind] = Page(trace).save(tmp_path / f"{kind}.html")
    for attempt in range(1, 4):
        try:
            use_in_firefox(pages, tmp_path / f"profile{attempt}")
            return
        except FirefoxDrawsNothing:  # one CI run waited ten minutes; 30 starts here did not repeat it
            if attempt == 3:
                raise


def use_in_firefox(pages, profile):
    press_key = "document.body.dispatchEvent(new KeyboardEvent('keydown', { key: arguments[0], bubbles: true }))"
    with open_in_firefox(profile) as tab:
        for kind, path in pages.items():
            tab.open(f"{path.as_uri()}#lang=en")
            tab.until(f"document.URL.startsWith('{path.as_uri()}') && document.documentElement.dataset.ready")
            for number, panel in enumerate(TABS, 1):
                tab.run(press_key, str(number))
                tab.until(f"document.querySelector('#tab-body')?.dataset.tab === '{panel}'")
            for key in ("ArrowRight", "ArrowDown", "t", "g", "q", "Escape", "l", "ArrowRight", "Escape"):
                tab.run(press_key, key)
                tab.run("return new Promise((done) => requestAnimationFrame(done)).then(() => 1)")
            tab.until("document.documentElement.lang === 'pt'")
            assert tab.run("return document.documentElement.scrollWidth <= innerWidth"), kind
            assert tab.errors() == [], kind
        tab.run("setTimeout(() => { throw new Error('the test sees errors'); })")
        tab.until("true")
        assert any("the test sees errors" in error for error in tab.errors())


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
    count = len(texts)
    pieces = tuple(Piece(text=f" {text}", start=0, end=1, word=at) for at, text in enumerate(texts))
    side = Text(text=" ".join(texts), pieces=pieces, language=texts[0][:5])
    steps = tuple(TraceStep(logp=-0.1, entropy=0.5, top=((text, -0.1), ("<b>", -2.5))) for text in texts)
    nodes = [
        {"step": at + 1, "parent": at - 1 if at else None, "text": text, "why": text, **NODE}
        for at, text in enumerate(texts)
    ]
    tree = SearchTree(
        kind=texts[0], size=2, length=texts[0], nodes=nodes, best=count - 1, greedy=texts[-1], greedy_score=-1
    )
    return Sentence(
        name=texts[0],
        source=side,
        target=side,
        logp=-1.0,
        score=-0.1,
        steps=steps,
        tree=tree,
        attention={"cross": weights_blob(np.full((1, 1, count, count), 1 / count))},
        about=texts[0],
    )


NODE = {"logp": -0.1, "total": -0.1, "rank": 0, "fate": "kept"}


def test_hostile_text_is_only_text(chromium, tmp_path):
    sentence = hostile_sentence(HOSTILE)
    trace = TraceDocument(title=HOSTILE[0], maker=HOSTILE[1], sentences=(sentence, sentence), film=film_of(sentence))
    path = Page(trace).save(tmp_path / "</script><b>.html".replace("/", "_"))
    slide = {"panel": HOSTILE[0], "state": HOSTILE[1], "notes": {"en": HOSTILE[2] + HOSTILE[0]}}
    with_lecture(path, {"title": HOSTILE[0], "slides": [slide, {**slide, "panel": "map"}]})
    for width in (1280, 390):
        with opened(chromium, path, "#lang=en", width=width) as tab:
            assert tab.title().startswith("</script>")
            for key in (*"1234567", "q", "Escape", "?", "Escape", "l", "ArrowRight", "Escape"):
                press(tab, key)
                assert tab.query_selector_all("#app img, #app script, #app a") == []
                assert "\u202e" not in tab.inner_text("body")
                assert tab.evaluate("document.documentElement.scrollWidth") <= width
            assert tab.title() != "owned"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.text(min_size=1, max_size=12) | st.sampled_from(HOSTILE), min_size=1, max_size=4))
def test_no_text_can_leave_its_place_in_the_page(texts):
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    html = render_page(TraceDocument(title=texts[0], sentences=(hostile_sentence(texts),)))
    assert html.count("<script") == 3
    assert html.count("</script") == 3
    data = re.search(r'<script type="application/json" id="trace">(.*?)</script>', html, re.S)[1]
    assert "<" not in data
    sentence = json.loads(data)["sentences"][0]
    assert sentence["name"] == texts[0]
    assert sentence["tree"]["nodes"]["text"] == texts
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy


def test_a_frame_for_notebooks(chromium, tmp_path):
    bundle = Page(TraceDocument(title="x", sentences=(recorded("transformer"),)))._repr_mimebundle_()
    assert bundle["image/svg+xml"].startswith("<svg")
    outer = tmp_path / "notebook.html"
    outer.write_text(f"<!doctype html><meta charset=utf-8>{bundle['text/html']}", encoding="utf-8")
    context = chromium.new_context(offline=True)
    tab = context.new_page()
    errors = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(outer.as_uri())
    frame = tab.wait_for_selector("iframe").content_frame()
    frame.wait_for_selector("html[data-ready]", timeout=1000 * PATIENCE)
    step = int(frame.input_value("[data-key=step]"))
    frame.click("[data-key=next]" if step == 0 else "[data-key=back]")
    until(frame, f"document.querySelector('[data-key=step]').value === '{1 if step == 0 else step - 1}'")
    frame.click("#tab-map")
    until(frame, "document.querySelector('#tab-body').dataset.tab === 'map'")
    frame.wait_for_timeout(ADDRESS)
    context.close()
    assert errors == []
    assert "sandbox" in wrap_in_iframe("<p>")


# ------------------------------------------------------------------------------------------------------- the glossary


def used_keys():
    """The keys that the scripts use; those made of parts for every part that there is."""
    script = "".join((VIEWER / name).read_text(encoding="utf-8") for name in ALL_SCRIPTS)
    families = {
        "question-": (*TABS, "alignment", "stage", "quiz"),
        "alignment-note-": ("ctc", "sampled"),
        "alignment-total-": ("ctc", "sampled"),
        "at-": PLACES,
        "by-": ("layer", "entropy", "diagonality", "importance"),
        "head-": ("aligner", "previous", "itself", "next", "end", "broad"),
        "method-": ("erasure", "gradients", "attention", "head", "random"),
        "fate-": ("kept", "finished", "cut", "pruned"),
        "verdict-": ("search", "model", "same"),
        "search-": ("beam", "greedy", "sample"),
        "live-": ("greedy", "beam", "sample"),
        "slide-": ("stage-mean", "stage-head", "next", "search", "product", "softmax", "map", "heads"),
    }
    prefixes = set(re.findall(r'\bt\("([a-z-]+-)" \+', script))
    assert prefixes - {"quiz-"} == families.keys()
    literals = set(re.findall(r'\bt\("([a-z0-9-]*[a-z0-9])"', script))
    # t(isRight ? "right" : "wrong"), [["←", "key-step"], ...], t(`${key}-note`)
    conditional = {
        key
        for call in re.findall(r"\bt\(([^()]*(?:\([^()]*\))?[^()]*\?[^()]*)\)", script)
        for key in re.findall(r'"([a-z0-9-]+)"', call)
    }
    names = {
        "next",
        "heads",
        "alignment",
        "map",
        "search",
        "evidence",
        "compare",
        "film",
        "light",
        "dark",
        "projector",
        "naive",
        "shifted",
        "soft",
        "hard",
    }
    notes = {
        f"{name}-note"
        for name in ("naive", "shifted", "soft", "hard", "entropy", "diagonality", "method-erasure", "method-gradients")
    }
    keys = set(re.findall(r'"\]?, "([a-z-]+)"\]', re.search(r"const KEYS = (.*);", script)[1]))
    quiz = {"quiz-look-name", "quiz-word-name"}
    made = {prefix + part for prefix, parts in families.items() for part in parts}
    values = {"cross", "encoder", "sample", "entropy", "diagonality", "look", "target"}  # compared, not translated
    return literals | (conditional - values) | names | notes | keys | quiz | made


def test_the_glossary_has_every_text_in_every_language():
    assert used_keys() <= GLOSSARY["en"].keys()
    assert GLOSSARY["en"].keys() == GLOSSARY["pt"].keys() == GLOSSARY["ru"].keys()
    for key, text in GLOSSARY["en"].items():
        for language in LANGUAGES:
            assert set(re.findall(r"\{\d\}", text)) == set(re.findall(r"\{\d\}", GLOSSARY[language][key])), key


def test_the_glossary_has_no_text_that_is_not_used():
    script = "".join((VIEWER / name).read_text(encoding="utf-8") for name in ALL_SCRIPTS)
    used = used_keys()
    unused = {
        key for key in GLOSSARY["en"] if key not in used and f'"{key}"' not in script and not key.startswith("why: ")
    }
    variants = {key for key in unused if key.startswith(("picture: ", "sound: ", "graph: ", "no source: "))}
    assert unused == variants
    assert {key.partition(": ")[2] for key in variants} <= GLOSSARY["en"].keys()


@pytest.mark.parametrize(
    ("line", "compact"),
    [
        ("const f = (a, b) => { return a === b ? a : b; };", "const f=(a,b)=>{return a===b?a:b;};"),
        ('const text = "a , b = c", more = [1, 2];', 'const text="a , b = c",more=[1,2];'),
        ('const text = "an \\" escape = 1", b = a ?? -1;', 'const text="an \\" escape = 1",b=a??-1;'),
        ("const text = `a , ${b, c}`;", "const text = `a , ${b, c}`;"),
        ("const half = a / 2, b = 1;", "const half = a / 2, b = 1;"),
        ("for (const key in object) a -= - b;", "for (const key in object) a -=- b;"),
    ],
)
def test_scripts_lose_only_optional_spaces(line, compact):
    assert compact_line(line) == compact


def test_no_template_continues_on_the_next_line():
    lines = [line for name in ALL_SCRIPTS for line in (VIEWER / name).read_text(encoding="utf-8").splitlines()]
    assert [line for line in lines if line.partition("  // ")[0].count("`") % 2] == []


def test_every_reason_of_a_search_is_translated():
    for kind in ("transformer", "gru-luong"):
        for search in (Greedy(), Beam(3), Sample()):
            sentence = record_sentence(inspected(built(kind)), tokenize(TEXT), search)
            assert {f"why: {node.why}" for node in sentence.tree.nodes} <= GLOSSARY["ru"].keys()


# ------------------------------------------------------------------------------------------------------------ the API


def test_any_model_with_the_methods_of_the_contract_can_be_inspected():
    page = inspect(inspected(student(), can_silence_heads=False), [TEXT, "two dog"], against_beam=1)
    assert [sentence.source.text for sentence in page.trace.sentences] == [TEXT, "two dog"] * 2
    ids = inspect(inspected(student(), can_silence_heads=False), [4, 5, EOS])
    assert ids.trace.sentences[0].source.text == "a red"


def test_a_model_without_a_tokenizer_needs_ids():
    model = replace(inspected(student()), tokenize=None)
    with pytest.raises(HeedfulError, match="this model has no tokenizer: pass token ids"):
        inspect(model, ["a"])


@pytest.mark.parametrize(
    ("sentences", "options", "message"),
    [
        ((), {}, "nothing to show"),
        (("a", "b"), {"reference": "x"}, "only one sentence can be inspected, but there are 2: pass one"),
        (("a",), {"beam": 0}, "at least 1"),
    ],
)
def test_misuse_is_explained(sentences, options, message):
    with pytest.raises(HeedfulError, match=message):
        inspect(inspected(student(), can_silence_heads=False), sentences, **options)

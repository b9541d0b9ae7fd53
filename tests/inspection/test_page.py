"""The page in a real browser: nothing is requested, nothing fails, all panels show one cell, the numbers are the trace's."""

import json
import os
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import heedful
from heedful.errors import HeedfulError
from heedful.inspection.api import Page, inspect, opening_layer
from heedful.inspection.hugging_face import wrap_hugging_face
from heedful.inspection.page import SCRIPTS, VIEWER, load_viewer, render_page, wrap_in_iframe
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
from support.browser_pages import opened, serious_violations, settled, until
from support.firefox import FIREFOX, open_in_firefox
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


def visit(tab, address):
    """Change the address of an open page, and wait until the page shows it."""
    tab.evaluate(
        """(address) => new Promise((done) => {
            if (location.hash === address) { done(); return; }
            document.querySelector("main").dataset.old = "1";
            location.hash = address;
            const wait = () => (document.querySelector("main[data-old]") ? requestAnimationFrame(wait) : requestAnimationFrame(done));
            wait();
        })""",
        address,
    )


def press(tab, *keys):
    for key in keys:
        tab.keyboard.press(key)
    settled(tab)


def click(tab, selector):
    """Click by script, which needs no free line of sight."""
    tab.eval_on_selector(selector, "node => node.click()")
    settled(tab)


# The cell as each panel names it, and its weight.
READ_CELL = """() => {
    const text = (selector) => document.querySelector(selector)?.textContent ?? null;
    const current = (selector) => [...document.querySelectorAll(selector)].findIndex((node) => node.classList.contains("now"));
    const weight = document.querySelector("#cell-readout [data-weight]"), equation = document.querySelector(".equation");
    return {
        tag: text("#stage .tag"), mapTag: text("#cell-readout .tag"), showing: text(".showing .what"),
        ring: document.querySelector(".strip [aria-current=true]")?.dataset.head ?? null,
        rings: document.querySelectorAll(".strip [aria-current=true]").length,
        step: Number(document.querySelector("#stage [data-key=step]").value),
        word: [...document.querySelectorAll(".target .piece")].findIndex((node) => node.getAttribute("aria-current") === "step"),
        row: current(".map .left .label"), slot: current(".map .top .label"),
        lit: [...document.querySelectorAll(".source .piece")].findIndex((node) => node.classList.contains("lit")),
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
        tab.fill(".film input[type=range]", "1")
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
            "#tab-body .bars .bar", "all => all.map((bar) => [bar.querySelector('.name').textContent, +bar.dataset.p])"
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
    sentence = recorded("transformer").model_copy(update={"reading": [None, TraceAlignment(step="shifted", layer=1, head=0)][seed % 2]})  # fmt: skip
    path = save_page(tmp_path, sentence, sentence.model_copy(update={"name": "b"}), film=film_of(sentence))
    history = []
    with opened(chromium, path, "#lang=en") as tab:
        tab.evaluate("() => { window.pick = null; }")
        for turn in range(60):
            if random.random() < 0.6:
                name = random.choice(list(ACTIONS))
                share = random.random()
                tab.evaluate(
                    f"""(share) => {{
                        const pick = (selector) => {{ const all = [...document.querySelectorAll(selector)], node = all[Math.floor(share * all.length)]; node?.dispatchEvent(new MouseEvent("click", {{ bubbles: true }})); }};
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

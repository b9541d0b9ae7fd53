"""What if, in a live page: every change changes the answer, and the address reproduces it."""

import os
import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from heedful.inspection.api import inspect
from heedful.translation.loading import load
from support.browser_pages import axe_violations, click, opened, press, settled, until, visit
from support.live_pages import ADDRESS, READ, answer_of

SENTENCE = "O gato preto bebeu o leite."
LAYOUT_CHECK = (Path(__file__).parents[1] / "support" / "layout_check.js").read_text(encoding="utf-8")

pytestmark = pytest.mark.slow  # in a real browser


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A live page of the bundled model with a recorded sentence, its weights unchanged."""
    folder = tmp_path_factory.mktemp("live")
    return inspect("pt-en", [SENTENCE], live="float32", importance=False, evidence=False).save(folder / "live.html")


def type_text(tab, text):
    tab.fill("[data-key=live-text]", text)
    tab.press("[data-key=live-text]", "Enter")


def slide(tab, key, value):
    tab.fill(f"[data-key=live-{key}]", str(value))


def test_a_word_is_forced_and_the_sentence_continues(page, chromium):
    with opened(chromium, page, "#lang=en&step=2") as tab:
        first = tab.evaluate(READ)
        name = tab.inner_text("[data-key=bar-1] .name")
        forced = answer_of(tab, lambda: click(tab, "[data-key=bar-1]"))
        assert forced["pieces"][:2] == [first["pieces"][0], name] != first["pieces"][:2]
        assert forced["chips"] == [f"begins “{first['pieces'][0]} {name}”"]
        (result,) = load("pt-en").score_targets([SENTENCE], [forced["answer"]])
        logp = f"{result.hypothesis.log_probability:.2f}".replace("-", "\u2212")
        assert forced["logp"].endswith(f"→ {logp}")
        assert "given" in tab.inner_text(".why")
        longer = answer_of(tab, lambda: (press(tab, "ArrowRight"), click(tab, "[data-key=bar-2]")))
        assert longer["pieces"][:2] == forced["pieces"][:2]
        assert longer["pieces"][2] != forced["pieces"][2]
        assert len(longer["chips"]) == 1
        free = answer_of(tab, lambda: click(tab, ".chip"))
        assert (free["answer"], free["chips"], free["logp"]) == (first["answer"], [], "")


def test_a_silenced_head_changes_the_answer(page, chromium):
    with opened(chromium, page, "#lang=en&head=2.4") as tab:
        first = tab.evaluate(READ)
        silenced = answer_of(tab, lambda: press(tab, "s"))
        assert silenced["chips"] == ["cross-attention 2.4 silenced"]
        assert silenced["logp"]
        assert tab.get_attribute("[data-key=silence]", "aria-pressed") == "true"
        assert tab.eval_on_selector_all(".strip .silenced", "all => all.map((node) => node.dataset.head)") == [
            "cross 2.4"
        ]
        assert "but it is silenced" in tab.inner_text("#stage .readout")
        more = answer_of(tab, lambda: (press(tab, "ArrowUp"), click(tab, "[data-key=silence]")))
        assert more["chips"] == [*silenced["chips"], "cross-attention 2.3 silenced"]
        assert len({first["logp"], silenced["logp"], more["logp"]}) == 3
        press(tab, "2")
        assert tab.locator(".card.silenced").count() == 2
        back = answer_of(tab, lambda: press(tab, "r"))
        assert (back["answer"], back["chips"]) == (first["answer"], [])
        assert tab.locator(".silenced").count() == 0


def test_the_weight_of_a_cell_is_changed_with_keys(page, chromium):
    with opened(chromium, page, "#lang=en&tab=map&head=mean&step=2&slot=7") as tab:
        first = tab.evaluate(READ)
        rest = tab.get_attribute("#cell-readout [data-weight]", "data-weight")
        for _ in range(7):
            edited = answer_of(tab, lambda: press(tab, "+"))
        weight = float(tab.get_attribute("#cell-readout [data-weight]", "data-weight"))
        assert weight == pytest.approx(float(rest) + 0.7, abs=0.04)  # whole percents
        assert edited["chips"] == [f"cross-attention mean, step 2: “leite” {round(100 * weight)}\u202f%"]
        assert edited["answer"] != first["answer"]
        assert edited["removed"] or edited["added"]
        arithmetic = answer_of(tab, lambda: visit(tab, f"{edited['hash']}&head=3.2&scene=4"))
        assert arithmetic["answer"] == edited["answer"]
        assert "You chose weights of this row" in tab.inner_text(".equation")
        assert float(tab.get_attribute(".equation", "data-weight")) == pytest.approx(weight, abs=0.001)


def center(tab, selector, share=(0.5, 0.5)):
    box = tab.locator(selector).bounding_box()
    return box["x"] + share[0] * box["width"], box["y"] + share[1] * box["height"]


def show(tab, selector):
    """Scroll to the middle of an element: a narrow page is long, and its scrubber covers the end of the window."""
    tab.eval_on_selector(selector, "node => node.scrollIntoView({ block: 'center' })")
    settled(tab)


def row_weights(tab, row, rows, columns):
    """The weights of a row, read by pointing at each cell."""
    weights = []
    for slot in range(columns):
        tab.mouse.move(*center(tab, ".map-board canvas", ((slot + 0.5) / columns, (row + 0.5) / rows)))
        settled(tab)
        weights.append(float(tab.get_attribute("#cell-readout [data-weight]", "data-weight")))
    return weights


@pytest.mark.parametrize("width", [1280, 390])
def test_a_cell_is_dragged_and_its_row_sums_to_one(width, page, chromium):
    with opened(chromium, page, "#lang=en&tab=map&head=mean&step=2", width=width, height=844) as tab:
        first = tab.evaluate(READ)
        rows, columns = len(first["pieces"]), tab.locator("#stage .source .piece").count()
        show(tab, ".map-board")
        old = row_weights(tab, 1, rows, columns)
        x, y = center(tab, ".map-board canvas", (6.5 / columns, 1.5 / rows))
        tab.mouse.move(x, y)
        tab.mouse.down()
        tab.mouse.move(x, y - 60, steps=6)
        settled(tab)
        weight = float(tab.get_attribute("#cell-readout [data-weight]", "data-weight"))
        assert weight > old[6] + 0.3  # before the engine answers
        until(tab, "document.querySelector('.outcome .number') !== null")  # while the button is down
        tab.mouse.move(x, y - 90, steps=3)
        edited = answer_of(tab, tab.mouse.up)
        assert edited["chips"][0].startswith("cross-attention mean, step 2: “leite”")
        assert edited["answer"] != first["answer"]
        assert edited["removed"]
        show(tab, ".map-board")
        new = row_weights(tab, 1, len(edited["pieces"]), columns)
        assert sum(new) == pytest.approx(1, abs=1e-4)
        assert new[6] > weight
        rest = (1 - new[6]) / (1 - old[6])
        assert [value for slot, value in enumerate(new) if slot != 6] == pytest.approx(
            [value * rest for slot, value in enumerate(old) if slot != 6], abs=0.02
        )
        again = row_weights(tab, 3, len(edited["pieces"]), columns)
        assert sum(again) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("width", [1280, 390])
def test_the_end_of_a_link_is_dragged(width, page, chromium):
    with opened(chromium, page, "#lang=en&head=mean&step=2&slot=3", width=width, height=844) as tab:
        first = tab.evaluate(READ)
        show(tab, "#stage .board")
        end = (0.5, 1.1) if width > 860 else (1.05, 0.5)
        tab.mouse.move(*center(tab, ".source [data-at='1']", end))
        tab.mouse.down()
        for slot in (6, 3, 4):  # slowly: on the way, the page shows the answers for other words, also for a neighbor
            tab.mouse.move(*center(tab, f".source [data-at='{slot}']"), steps=4)
            settled(tab)
        moved = answer_of(tab, tab.mouse.up)
        gato, beu = moved["chips"]
        assert gato == "cross-attention mean, step 2: “gato” 0\u202f%"
        assert beu.startswith("cross-attention mean, step 2: “beu”")
        assert moved["logp"]
        assert moved["hash"] != first["hash"]
        assert tab.evaluate("document.querySelector('[data-key=step]').value") == "1"  # a drag is no click
        unmoved = answer_of(tab, lambda: press(tab, "r"))
        show(tab, "#stage .board")
        tab.mouse.move(*center(tab, ".source [data-at='2']"))
        tab.mouse.down()
        tab.mouse.move(*center(tab, ".source [data-at='5']"), steps=4)
        tab.mouse.move(*center(tab, ".source [data-at='2']"), steps=4)
        tab.mouse.up()
        settled(tab, 900)
        assert tab.evaluate(READ)["chips"] == unmoved["chips"] == []
        tab.mouse.click(*center(tab, ".source [data-at='4']"))
        settled(tab)
        assert tab.eval_on_selector(".source .lit", "node => node.dataset.at") == "4"


def test_a_finger_drags_only_the_selected_cell(page, chromium):
    with opened(chromium, page, "#lang=en&tab=map&step=2&slot=7", width=390, height=844, has_touch=True) as tab:
        session = tab.context.new_cdp_session(tab)
        show(tab, ".map-board")

        def drag_up(selector, share=(0.5, 0.5)):
            x, y = center(tab, selector, share)
            for kind, at in [("touchStart", y), *(("touchMove", y - 10 * step) for step in range(1, 9))]:
                session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": at}]})
                settled(tab)
            session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

        before = tab.evaluate("scrollY")
        drag_up(".map-board canvas", (0.9, 0.9))
        until(tab, f"scrollY > {before}")
        assert tab.locator(".chip").count() == 0
        show(tab, ".map-board")
        edited = answer_of(tab, lambda: drag_up(".cell-marker"))
        assert edited["chips"] == ["cross-attention 3.3, step 2: “leite” 67\u202f%"]  # all 80 of 120 pixels


def test_every_setting_of_the_search_gives_another_answer(page, chromium):
    sentence = "O menino disse que queria comer alguma coisa antes de ir para a escola com os amigos."
    with opened(chromium, page, "#lang=en") as tab:
        beam = answer_of(tab, lambda: type_text(tab, sentence))
        translator = load("pt-en")
        assert beam["answer"] == translator(sentence, split_sentences=False).text
        greedy = answer_of(tab, lambda: click(tab, "#what-if [data-key=greedy]"))
        assert greedy["answer"] == translator(sentence, beam=1, split_sentences=False).text
        wide = answer_of(tab, lambda: (click(tab, "#what-if [data-key=beam]"), slide(tab, "beam", 12)))
        assert "beam=12" in wide["hash"]
        samples = [answer_of(tab, lambda: click(tab, "#what-if [data-key=sample]"))]
        samples += [answer_of(tab, lambda: click(tab, "[data-key=live-again]")) for _ in range(2)]
        assert len({sample["answer"] for sample in samples}) > 1
        answer_of(tab, lambda: slide(tab, "topk", 1))
        one = answer_of(tab, lambda: slide(tab, "temperature", 0.1))
        assert one["answer"] == greedy["answer"]
        assert all(part in one["hash"] for part in ("search=sample", "topk=1", "temperature=0.1"))


SLOW = """() => {
  const send = Worker.prototype.postMessage;
  Worker.prototype.postMessage = function (message) {
    setTimeout(() => send.call(this, message), message.kind === "translate" ? 400 : 0);
  };
}"""


@pytest.mark.parametrize("is_slow", [False, True], ids=["quick answers", "slow answers"])
def test_a_link_reproduces_the_state(page, chromium, is_slow):
    with opened(chromium, page, "#lang=en") as tab:
        if is_slow:  # an answer then comes after the address was written
            tab.evaluate(SLOW)
        answer_of(tab, lambda: type_text(tab, "Onde está o meu carro vermelho?"))
        answer_of(tab, lambda: click(tab, "#what-if [data-key=greedy]"))
        tab.focus("#stage .scroller")
        answer_of(tab, lambda: press(tab, "s"))
        answer_of(tab, lambda: (press(tab, "ArrowRight"), press(tab, "+")))
        last = answer_of(tab, lambda: click(tab, "[data-key=bar-3]"))
        assert len(last["chips"]) == 3
        step = tab.input_value("[data-key=step]")
    with opened(chromium, page, last["hash"]) as tab:
        until(tab, "document.querySelectorAll('.chip').length === 3 && document.querySelector('.outcome .number')")
        settled(tab, ADDRESS)
        again = tab.evaluate(READ)
        assert {**again, "status": ""} == {**last, "status": ""}
        assert tab.input_value("[data-key=step]") == step
        assert tab.input_value("[data-key=live-text]") == "Onde está o meu carro vermelho?"
        assert "text=Onde está o meu carro vermelho?" in unquote(again["hash"])
        recorded = [tab.select_option("[data-key=sentence]", "0"), settled(tab, ADDRESS), tab.evaluate(READ)][-1]
        assert (recorded["chips"], "text=" in recorded["hash"]) == ([], False)
        back = [tab.select_option("[data-key=sentence]", "1"), settled(tab, ADDRESS), tab.evaluate(READ)][-1]
        assert {**back, "status": "", "hash": ""} == {**last, "status": "", "hash": ""}


# Requests wait until the test lets them go; `answers` counts what the page has received.
HOLD = """() => {
  const send = Worker.prototype.postMessage;
  Object.assign(window, { held: [], answers: 0 });
  Worker.prototype.postMessage = function (message) {
    window.held.push(() => send.call(this, message));
    this.onmessage = () => { window.answers += 1; };
  };
  window.release = () => { for (const act of window.held.splice(0)) act(); };
}"""


def late_answer(tab):
    """Let the requests go, and wait until their answer has come and the page has drawn."""
    received = tab.evaluate("window.answers")
    tab.evaluate("window.release()")
    until(tab, f"window.answers > {received}")
    settled(tab, ADDRESS)


def test_an_outdated_answer_is_not_shown(page, chromium):
    with opened(chromium, page, "#lang=en&head=3.2") as tab:
        first = answer_of(tab, lambda: type_text(tab, "Onde está o meu carro vermelho?"))
        tab.focus("#stage .scroller")
        tab.evaluate(HOLD)
        answer_of(tab, lambda: press(tab, "s", "r"))  # the answer without changes is known
        late_answer(tab)
        assert {**tab.evaluate(READ), "status": ""} == {**first, "status": ""}
        press(tab, "s")
        assert tab.locator(".chip").count() == 1
        for sentence in ("0", "1"):
            tab.select_option("[data-key=sentence]", sentence)
            settled(tab)
        late_answer(tab)
        assert {**tab.evaluate(READ), "status": ""} == {**first, "status": ""}
        tab.focus("#stage .scroller")
        press(tab, "s")
        late_answer(tab)
        again = tab.evaluate(READ)
        assert again["chips"] == ["cross-attention 3.2 silenced"]
        assert again["logp"]


def test_every_press_changes_the_weight(page, chromium):
    with opened(chromium, page, f"#lang=en&text={SENTENCE}&tab=map&head=mean&step=2&slot=7") as tab:
        until(tab, "/\\d ms/.test(document.querySelector('.live output').textContent)")
        settled(tab)
        rest = float(tab.get_attribute("#cell-readout [data-weight]", "data-weight"))
        tab.evaluate(HOLD)
        press(tab, "+", "+", "+", "-", "+")  # faster than the answers
        (chip,) = tab.evaluate(READ)["chips"]
        assert int(re.search(r"(\d+)\u202f%", chip)[1]) == pytest.approx(100 * rest + 30, abs=1)
        late_answer(tab)
        weight = float(tab.get_attribute("#cell-readout [data-weight]", "data-weight"))
        assert weight == pytest.approx(rest + 0.3, abs=0.01)


def test_the_end_of_a_drag_is_answered_if_only_the_pointed_word_changes(page, chromium):
    with opened(chromium, page, "#lang=en&tab=map&head=mean&step=2&slot=7") as tab:
        x, y = center(tab, ".map-board .cell-marker")
        tab.mouse.move(x, y)
        tab.mouse.down()
        tab.mouse.move(x, y - 400, steps=4)
        until(tab, "document.querySelector('.outcome .number') !== null")
        settled(tab)
        until(tab, "document.querySelector('#what-if').getAttribute('aria-busy') === 'false'")
        tab.eval_on_selector("#stage", "node => { node.dataset.old = 1; }")
        tab.evaluate(  # in one frame
            """([clientX, clientY]) => {
                const word = document.querySelector("#stage .source .piece");
                for (const [type, bubbles] of [["pointerenter", false], ["pointermove", true], ["pointerup", true]]) {
                    word.dispatchEvent(new PointerEvent(type, { bubbles, clientX, clientY, pointerType: "mouse" }));
                }
            }""",
            [x, y - 410],
        )
        until(tab, "document.querySelector('#stage[data-old]') === null")
        tab.mouse.up()
        assert len(tab.evaluate(READ)["chips"]) == 1


def test_half_a_character_is_a_text_too(page, chromium):
    with opened(chromium, page, "#lang=en") as tab:
        tab.evaluate(
            """() => {
                const input = document.querySelector("[data-key=live-text]");
                input.value = "Bom dia \\ud83d";
                input.form.requestSubmit();
            }"""
        )
        until(tab, "location.hash.includes('text=Bom%20dia%20%EF%BF%BD')")
        source = "[...document.querySelectorAll('#stage .source .piece bdi')].map((node) => node.textContent).join('')"
        until(tab, f"{source}.startsWith('Bomdia')")


def test_a_sentence_ends_the_quiz(page, chromium):
    with opened(chromium, page, "#lang=en") as tab:
        press(tab, "q")
        assert tab.get_attribute("header [data-key=quiz]", "aria-pressed") == "true"
        answer_of(tab, lambda: type_text(tab, "Bom dia."))
        assert tab.query_selector(".in-quiz") is None
        assert tab.get_attribute("header [data-key=quiz]", "aria-pressed") == "false"


def test_broken_links_are_explained_or_ignored(page, chromium):
    broken = "beam=99&temperature=x&silence=cross-0.1&edit=cross-1.1-2&force=%5B1%5D&search=wide"
    with opened(chromium, page, f"#lang=en&text={SENTENCE}&{broken}") as tab:
        until(tab, "/\\d ms/.test(document.querySelector('.live output').textContent)")
        assert tab.locator(".chip").count() == 0
        visit(tab, f"#lang=en&text={SENTENCE}&force=%5B%22zzzz%22%5D")
        until(tab, "document.querySelector('.live output').textContent.includes('this model has no piece “zzzz”')")
        visit(tab, f"#lang=en{CHANGES}")  # of no sentence
        press(tab, "ArrowRight")
        settled(tab, ADDRESS)
        assert tab.locator(".chip, .silenced").count() == 0
        assert not any(key in tab.evaluate("location.hash") for key in ("force", "silence", "edit"))


def test_search_goes_on_from_a_candidate(page, chromium):
    with opened(chromium, page, "#lang=en&tab=search") as tab:
        options = tab.eval_on_selector_all("[data-key=candidate] option", "all => all.map((node) => node.textContent)")
        pruned = next(at for at, text in enumerate(options) if "pruned" in text and text.startswith("3."))
        tab.select_option("[data-key=candidate]", index=pruned)
        settled(tab)
        text = tab.inner_text(".node-facts bdi")
        forced = answer_of(tab, lambda: click(tab, "[data-key=from-here]"))
        assert forced["answer"].startswith(text)
        assert forced["chips"] == [f"begins “{text}”"]


# --------------------------------------------------------------------------------------------------------- lecture

SLIDES = f"""
[[slide]]
panel = "stage"
notes = "recorded"
[[slide]]
panel = "map"
state = "text={SENTENCE}&edit=cross-mean-2-7-70&head=3.2&step=2&slot=7"
notes = "edited"
[[slide]]
panel = "next"
state = "text={SENTENCE}&edit=cross-mean-2-7-70&step=3"
notes = "the same answer"
[[slide]]
panel = "stage"
state = "text={SENTENCE}&force=%5B%22 The%22,%22 cat%22%5D&search=greedy&step=3"
notes = "forced"
"""


@pytest.fixture(scope="module")
def lecture(tmp_path_factory):
    """A live page with slides that ask the model."""
    folder = tmp_path_factory.mktemp("lecture")
    options = {"live": "float32", "importance": False, "evidence": False, "lecture": SLIDES}
    return inspect("pt-en", [SENTENCE], **options).save(folder / "lecture.html")


CELL = """() => ({
    notes: document.querySelector(".notes p")?.textContent, step: document.querySelector("[data-key=step]").value,
    lit: document.querySelector("#stage .source .lit")?.dataset.at ?? "",
    tag: document.querySelector("#stage .tag").textContent,
    shown: [...document.querySelectorAll(".stage, .dock, .what-if")].filter((node) => node.offsetWidth)
        .map((node) => node.id),
})"""


def test_a_slide_asks_its_question(lecture, chromium):
    with opened(chromium, lecture, "#lang=en") as tab:
        first = tab.evaluate(READ)
        press(tab, "l")
        assert tab.evaluate(CELL)["shown"] == ["stage"]
        edited = answer_of(tab, lambda: press(tab, "ArrowRight"))
        assert edited["chips"] == ["cross-attention mean, step 2: “leite” 70\u202f%"]
        assert edited["answer"] != first["answer"]
        assert edited["removed"]
        cell = tab.evaluate(CELL)
        assert (cell["notes"], cell["step"], cell["lit"], cell["shown"]) == ("edited", "1", "6", ["what-if", "dock"])
        assert "3.2" in cell["tag"]
        same = answer_of(tab, lambda: press(tab, "PageDown"))
        assert {**same, "status": "", "hash": ""} == {**edited, "status": "", "hash": ""}
        assert (tab.evaluate(CELL)["notes"], tab.evaluate(CELL)["step"]) == ("the same answer", "2")
        forced = answer_of(tab, lambda: press(tab, "ArrowRight"))
        assert forced["pieces"][:2] == ["The", "cat"]
        assert forced["chips"] == ["begins “The cat”"]
        assert tab.evaluate(CELL)["shown"] == ["stage", "what-if"]
        assert tab.get_attribute("#what-if [data-key=greedy]", "aria-checked") == "true"
        press(tab, "ArrowLeft", "ArrowLeft", "ArrowLeft")  # faster than the answers
        settled(tab, 900)
        back = tab.evaluate(READ)
        assert (back["answer"], back["chips"], "text=" in back["hash"]) == (first["answer"], [], False)
        assert tab.evaluate(CELL)["shown"] == ["stage"]


def test_a_slide_is_changed_and_left(lecture, chromium):
    with opened(chromium, lecture, "#lang=en&slide=2") as tab:
        until(tab, "document.querySelector('.outcome .number') !== null")
        assert tab.evaluate(CELL)["notes"] == "edited"
        assert (tab.evaluate(CELL)["step"], tab.evaluate(CELL)["lit"]) == ("1", "6")
        edited = tab.evaluate(READ)
        free = answer_of(tab, lambda: press(tab, "r"))
        assert (free["chips"], free["logp"]) == ([], "")
        assert free["answer"] != edited["answer"]
        silenced = answer_of(tab, lambda: press(tab, "s"))
        assert silenced["chips"] == ["cross-attention 3.2 silenced"]
        dragged = answer_of(tab, lambda: drag_cell(tab))
        assert len(dragged["chips"]) == 2
        press(tab, "Escape")
        left = tab.evaluate(READ)
        assert left["chips"] == dragged["chips"]
        assert tab.evaluate(CELL)["shown"] == ["stage", "what-if", "dock"]
    with opened(chromium, lecture, dragged["hash"]) as tab:
        until(tab, "document.querySelectorAll('.chip').length === 2 && document.querySelector('.outcome .number')")
        settled(tab, ADDRESS)
        assert {**tab.evaluate(READ), "status": ""} == {**dragged, "status": ""}


def drag_cell(tab):
    x, y = center(tab, ".map-board .cell-marker")
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move(x, y - 60, steps=6)
    tab.mouse.up()


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_overlaps_on_a_slide_that_asks(width, lecture, chromium):
    problems = []
    with opened(chromium, lecture, "#lang=ru&slide=2", width=width, height=800) as tab:
        for number in (2, 3, 4):
            if number > 2:
                answer_of(tab, lambda: press(tab, "ArrowRight"))
            until(tab, "document.querySelector('.outcome .number') !== null")
            problems += [(number, problem) for problem in tab.evaluate(LAYOUT_CHECK) + tab.evaluate(OUTSIDE)]
    assert problems == []


# ----------------------------------------------------------------------------------------- layout and accessibility

CHANGES = "&silence=cross-2.4_encoder-1.1&edit=cross-mean-2-6-70&force=%5B%22%20The%22%5D"
SIZES = {
    "1280": (1280, 800, "light"),
    "1024": (1024, 768, "dark"),
    "1920": (1920, 1080, "projector"),
    "390": (390, 844, "light"),
}
CASES = [
    ("en", "beam", "next", CHANGES),
    ("pt", "sample", "search", CHANGES),
    ("pt", "sample", "next", CHANGES),
    ("ru", "beam", "search", CHANGES),
    ("ru", "sample", "heads", ""),
    ("ru", "greedy", "next", CHANGES),
]
OUTSIDE = """() => [...document.querySelectorAll("#what-if > *, #what-if .panel-head > *")].filter((node) => {
    const inner = node.getBoundingClientRect(), outer = node.parentElement.getBoundingClientRect();
    const { left, right, bottom, width } = inner;
    return width && (left < outer.left - 1 || right > outer.right + 1 || bottom > outer.bottom + 1);
}).map((node) => `outside of the panel: ${node.outerHTML.slice(0, 90)}`)"""


@pytest.mark.parametrize("size", SIZES)
def test_nothing_overlaps(size, page, chromium):
    width, height, theme = SIZES[size]
    problems = []
    with opened(chromium, page, "#lang=en", width=width, height=height) as tab:
        for language, search, name, changes in CASES:
            address = f"#lang={language}&theme={theme}&search={search}&tab={name}&text={SENTENCE}{changes}"
            answer_of(tab, lambda: visit(tab, address))  # noqa: B023
            problems += [(language, search, name, problem) for problem in tab.evaluate(LAYOUT_CHECK)]
            problems += [(language, search, name, problem) for problem in tab.evaluate(OUTSIDE)]
    assert problems == []


@pytest.mark.skipif(
    "HEEDFUL_AXE" not in os.environ, reason="HEEDFUL_AXE does not name axe.min.js of the npm package axe-core"
)
@pytest.mark.parametrize(("theme", "language"), [("light", "en"), ("dark", "pt"), ("projector", "ru")])
def test_axe_finds_no_violation(theme, language, page, chromium):
    violations = []
    with opened(chromium, page, f"#lang={language}&theme={theme}", bypass_csp=True, reduced_motion="reduce") as tab:
        for search in ("beam", "sample"):
            for name in ("next", "heads", "map", "search"):
                address = f"#lang={language}&theme={theme}&tab={name}&search={search}&text={SENTENCE}{CHANGES}"
                answer_of(tab, lambda: visit(tab, address))  # noqa: B023
                found = axe_violations(tab, Path(os.environ["HEEDFUL_AXE"]))
                violations += [(name, search, *violation) for violation in found]
    assert violations == []

"""The page at / in a real browser, from a real server with a small real model."""

import asyncio
import json
import os
import re
import threading
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from heedful.bundle import open_bundle, read_weights, write_bundle
from heedful.exporters.api import export
from heedful.inputs.sound import wav_bytes
from heedful.sentinel import MEANINGS
from heedful.serve.auth import hash_key
from heedful.serve.page import PAGE_DIR, SCRIPTS, page_headers, read_assets, render_page
from heedful.serve.rejection import RequestRejected
from heedful.serve.request_queue import QueueLimits
from heedful.serve.supervisor import WorkerSupervisor
from heedful.training.api import train
from support.browser_pages import BROWSER
from support.free_ports import free_port
from support.sound_runs import RATE, sound_settings, tones, write_recordings
from support.training_runs import settings_of, write_corpus

for needed in ("fastapi", "uvicorn", "ctranslate2"):
    pytest.importorskip(needed, reason=f"{needed} is not installed: pip install 'heedful[serve]'")

WORDS = json.loads((PAGE_DIR / "words.json").read_text(encoding="utf-8"))
LINES = ["the old man sees two dogs", "", "a red house with a tree 77"]
TEXT = "\n".join(LINES)
DONE = "#translation .line:last-child .word"  # the last line is translated


class Running:
    """A server of one or more models, directories by name, in a thread; tests can change its state."""

    def __init__(self, **folders):
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}/"
        self.server = None
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run(folders)), daemon=True)
        self.thread.start()
        end = time.monotonic() + 60
        while not (self.server and self.server.started):
            assert time.monotonic() < end
            assert self.thread.is_alive()
            time.sleep(0.02)

    async def run(self, folders):
        import uvicorn

        from heedful.serve.app import create_app

        app = create_app([WorkerSupervisor(folder, name=name, threads=1) for name, folder in folders.items()])
        self.state, self.queue = app.state, app.state.admission.queues[0]
        self.server = uvicorn.Server(uvicorn.Config(app, port=self.port, log_level="warning"))
        await self.server.serve()

    def said(self, texts, **fields):
        asked = {"texts": texts, "tokens": True, "alternatives": 3, "alignment": "best", **fields}
        request = urllib.request.Request(
            f"{self.address}v1/translate", json.dumps(asked).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["translations"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    if BROWSER is None:
        pytest.skip("no chromium here")
    folder, pieces = write_corpus(tmp_path_factory.mktemp("page"), pairs=400), {"kind": "bpe", "vocab_size": 330}
    each = {"steps": 300, "micro_batches": 1, "validate_every": 300, "save_every": 300}
    return train(settings_of(folder, folder / "run", tokenizer=pieces, **each))


@pytest.fixture(scope="module")
def running(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "served"
    export(model, folder, to="ctranslate2", quantization="float32")
    server = Running(served=folder)
    yield server
    server.server.should_exit = True
    server.thread.join(30)


@pytest.fixture(scope="module")
def several_models(model, tmp_path_factory):
    """Name -> directory of three models with the same weights: en-de, de-en and de-fr."""
    folder, bundle = tmp_path_factory.mktemp("several"), open_bundle(model)
    models = {}
    for languages in (("en", "de"), ("de", "en"), ("de", "fr")):
        name = "-".join(languages)
        models[name] = write_bundle(
            folder / name,
            model=bundle.model,
            weights=read_weights(bundle),
            tokenizers=bundle.tokenizers,
            languages=languages,
            card="# A copy\n",
            generation=bundle.generation,
            statistics=bundle.statistics,
        ).folder
    return models


@pytest.fixture(scope="module")
def several(several_models):
    """A server of these models; en-fr is a pivot."""
    server = Running(**several_models)
    yield server
    server.server.should_exit = True
    server.thread.join(30)


@pytest.fixture
def state(running):
    """The server's state; tests change it with `monkeypatch`."""
    return running.state


@contextmanager
def opened(chromium, running, text=None, *, width=1280, locale="en-GB", expected=(), **options):
    """Open the page; assert that it logs only expected errors and sends requests only to its server."""
    context = chromium.new_context(viewport={"width": width, "height": 800}, locale=locale, **options)
    tab = context.new_page()
    tab.set_default_timeout(10_000)
    wrong, asked = [], []
    tab.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(f"page: {error}"))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(running.address)
    tab.wait_for_selector("html[data-ready]")
    if text is not None:
        tab.fill("#source-text", text)
        tab.wait_for_selector(DONE)
    yield tab
    context.close()
    assert [one for one in wrong if not any(some in one for some in expected)] == []
    assert [url for url in asked if not url.startswith((running.address, "data:"))] == []


def until(tab, condition):
    """Wait for a condition; Playwright's own wait evaluates strings, which the page's policy forbids."""
    for _ in range(200):
        if tab.evaluate(condition):
            return
        time.sleep(0.03)
    raise AssertionError(condition)


def translated(tab):
    """The displayed lines."""
    return tab.eval_on_selector_all(
        "#translation > .line",
        "all => all.map(one => [...one.querySelectorAll('.word')].map(w => w.textContent).join(' '))",
    )


def lit(tab, where):
    return sorted(tab.eval_on_selector_all(f"{where} .linked", "all => all.map(one => +one.dataset.word)"))


# ---------------------------------------------------------------------------------------------------- reading


def test_translates_while_typing(chromium, running):
    said = running.said([line for line in LINES if line])
    with opened(chromium, running) as tab:
        assert tab.inner_text("#source-title") == "English"
        assert tab.inner_text("#target-title") == "German"
        assert tab.title() == "English → German · heedful"
        assert tab.is_disabled("[data-key=copy]")
        tab.keyboard.type(TEXT)  # it has the focus
        tab.wait_for_selector(DONE)
        until(tab, f"document.querySelectorAll('#translation > .line').length === {len(LINES)}")
        assert translated(tab) == [said[0]["text"], "", said[1]["text"]]
        assert tab.inner_text(".count") == f"Characters: {len(TEXT)}"
        until(tab, "document.querySelector('[aria-live=polite]').textContent.length > 0")
        heights = (
            "[document.querySelector('#source-text'), document.querySelector('.mirror')].map(one => one.scrollHeight)"
        )
        assert len(set(tab.evaluate(heights))) == 1
        tab.click("[data-key=clear]")
        assert tab.input_value("#source-text") == ""
        assert tab.inner_text("#translation") == WORDS["en"]["appears-here"]
        assert tab.evaluate("document.activeElement.id") == "source-text"


def test_a_long_text_arrives_part_by_part(chromium, running):
    lines = [f"the {word} {other}" for word in ("old", "red", "blue", "young") for other in "abcdefghij"]
    with opened(chromium, running) as tab:
        asked = []
        tab.on("request", lambda request: asked.append(request.post_data_json["texts"]) if request.post_data else None)
        tab.fill("#source-text", "\n".join(lines))
        until(tab, "document.querySelectorAll('#translation .line .word[data-word=\"0\"]').length === 40")
        assert [one for some in asked for one in some] == lines
        assert len(asked) == 2
        tab.fill("#source-text", "\n".join([*lines, "two dogs"]))
        until(tab, "document.querySelectorAll('#translation .line .word[data-word=\"0\"]').length === 41")
        assert asked[2:] == [["two dogs"]]  # the others are cached


def test_copying(chromium, running):
    with opened(chromium, running, TEXT, permissions=["clipboard-read", "clipboard-write"]) as tab:
        tab.click("[data-key=copy]")
        until(tab, "document.querySelector('[data-key=copy]').textContent === 'copied'")
        assert tab.evaluate("navigator.clipboard.readText()").split("\n") == translated(tab)


def test_aligned_words_are_highlighted_from_both_sides(chromium, running):
    (said,) = running.said(LINES[:1])
    number = max(to for _, to in said["alignment"])
    sources = sorted({one for one, to in said["alignment"] if to == number})
    targets = sorted({to for one, to in said["alignment"] if one == sources[0]})
    with opened(chromium, running, LINES[0]) as tab:
        tab.hover(f"#translation .word[data-word='{number}']")
        assert lit(tab, ".mirror") == sources
        assert "probability" in tab.inner_text("#readout")
        box = tab.query_selector(f".mirror .word[data-word='{sources[0]}']").bounding_box()
        tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)  # through the text area
        assert lit(tab, "#translation") == targets
        tab.mouse.move(5, 5)
        tab.focus("#source-text")
        begin = sum(len(word) + 1 for word in LINES[0].split()[: sources[0]])
        tab.evaluate(f"document.querySelector('#source-text').setSelectionRange({begin + 1}, {begin + 1})")
        until(tab, "document.querySelector('#translation .linked')")
        assert lit(tab, "#translation") == targets


def test_words_are_tinted_by_their_probability(chromium, running):
    (said,) = running.said(LINES[:1])
    tokens = said["tokens"]
    text = "".join(one["text"] for one in tokens)
    assert text.split() == said["text"].split()
    total, word = [0.0] * len(text.split()), -1
    for one in tokens:
        word += one["text"].startswith(" ")
        total[word] += one["log_probability"]
    levels = [sum(2.718281828**one < least for least in (0.8, 0.5, 0.2)) for one in total]
    with opened(chromium, running, LINES[0]) as tab:
        shown = tab.eval_on_selector_all(
            "#translation .word", "all => all.map(one => +/sure-(.)/.exec(one.className)[1])"
        )
        assert shown == levels
        assert tab.query_selector("#translation.tinted")
        tab.click("[data-key=tint]")
        assert not tab.query_selector("#translation.tinted")
        assert tab.evaluate("document.activeElement.dataset.key") == "tint"


def test_keyboard_navigation(chromium, running):
    with opened(chromium, running, TEXT) as tab:
        tab.focus("#source-text")
        for _ in range(5):
            tab.keyboard.press("Tab")
            if tab.evaluate("document.activeElement.classList.contains('word')"):
                break
        where = "[document.activeElement.closest('.line') === document.querySelector('#translation .line:last-child'), +document.activeElement.dataset.word]"  # noqa: E501
        assert tab.evaluate(where) == [False, 0]
        assert lit(tab, ".mirror")
        tab.keyboard.press("ArrowRight")
        assert tab.evaluate(where) == [False, 1]
        tab.keyboard.press("ArrowDown")
        assert tab.evaluate(where) == [True, 0]
        tab.keyboard.press("Enter")
        assert tab.evaluate("document.activeElement.matches('.option[aria-pressed=true]')")
        tab.keyboard.press("Tab")
        other = tab.evaluate("document.activeElement.textContent")
        before = translated(tab)
        assert other not in before
        tab.keyboard.press("Enter")
        assert translated(tab) == [*before[:-1], other]
        assert tab.evaluate("document.activeElement.textContent") == other
        tab.keyboard.press("Escape")
        assert not tab.query_selector(".details")
        assert tab.evaluate("document.activeElement.dataset.key") == "more-2"


def test_alternatives_can_be_chosen(chromium, running):
    (said,) = running.said(LINES[:1])
    with opened(chromium, running, LINES[0]) as tab:
        tab.click("#translation .word")
        options = tab.eval_on_selector_all(".option", "all => all.map(one => one.textContent)")
        assert options == [said["text"], *said["alternatives"]]
        tab.click("li:nth-child(3) .option")
        assert translated(tab) == [options[2]]
        tab.hover("#translation .word")
        assert tab.inner_text("#readout") == WORDS["en"]["chosen-note"]
        tab.click("li:nth-child(1) .option")
        assert translated(tab) == [options[0]]
        assert tab.inner_text(".command code") == f'heedful inspect MODEL "{LINES[0]}"'


def test_flags_are_shown_and_explained(chromium, running):
    line = "a tree at https://example.org/tree"
    assert "urls" in {flag["name"] for flag in running.said([line])[0]["flags"]}
    with opened(chromium, running, line) as tab:
        flag = tab.query_selector("details.flag:has-text('address')")
        assert flag.query_selector("summary").inner_text() == "An address is missing: https://example.org/tree"
        flag.query_selector("summary").click()
        assert flag.query_selector("p").inner_text() == WORDS["en"]["why-urls"]


def test_a_model_that_can_be_inspected_has_a_link(chromium, running, monkeypatch):
    settings = replace(running.state.settings, inspect_dirs={"served": Path("run")})
    monkeypatch.setattr(running.state, "settings", settings)
    with opened(chromium, running, "a & b") as tab:
        tab.click("#translation .small")
        assert tab.get_attribute(".details a", "href") == "inspect?text=a+%26+b"


# ---------------------------------------------------------------------------------------------------- directions


def options_of(tab, side):
    return tab.eval_on_selector_all(f"[data-key={side}] option", "all => all.map(one => one.textContent)")


def test_a_direction_can_be_chosen(chromium, several):
    with opened(chromium, several, LINES[0]) as tab:
        assert options_of(tab, "source") == ["English", "German"]
        assert options_of(tab, "target") == ["German", "French"]
        assert tab.title() == "English → German · heedful"
        assert not tab.query_selector(".via")
        tab.focus("[data-key=target]")
        tab.select_option("[data-key=target]", "fr")
        until(tab, "document.querySelector('.via')")
        assert tab.evaluate("document.activeElement.dataset.key") == "target"
        assert tab.inner_text(".via") == "via German"
        assert "first translated to German" in tab.get_attribute(".via", "title")
        tab.wait_for_selector(DONE)
        (said,) = several.said([LINES[0]], source="en", target="fr")
        assert translated(tab) == [said["text"]]
        assert tab.get_attribute("#translation", "lang") == "fr"
        tab.click("#translation .small")
        assert tab.inner_text(".details > p") == f"German: {said['pivot']}"
        tab.select_option("[data-key=source]", "de")
        until(tab, "document.title.startsWith('German → French')")
        tab.wait_for_selector(DONE)
        assert translated(tab) == [several.said([LINES[0]], source="de", target="fr")[0]["text"]]
        tab.select_option("[data-key=target]", "en")
        assert options_of(tab, "target") == ["English", "French"]


def test_swapping_swaps_languages_and_texts(chromium, several):
    with opened(chromium, several, TEXT) as tab:
        before = translated(tab)
        tab.click("[data-key=swap]")
        assert tab.input_value("#source-text") == "\n".join(before)
        assert tab.title() == "German → English · heedful"
        tab.wait_for_selector(DONE)
        said = several.said([line for line in before if line], source="de", target="en")
        until(tab, "document.querySelectorAll('#translation .stale').length === 0")
        assert translated(tab) == [said[0]["text"], "", said[1]["text"]]
        assert tab.evaluate("document.activeElement.dataset.key") == "swap"


def test_a_swap_that_is_not_served_is_explained(chromium, several, running):
    why = "This server has no model from {} to {}, so the languages cannot be swapped."
    with opened(chromium, running, LINES[0]) as tab:
        assert tab.get_attribute("[data-key=swap]", "aria-disabled") == "true"
        assert tab.get_attribute("[data-key=swap]", "aria-label") == why.format("German", "English")
        tab.focus("[data-key=swap]")
        tab.keyboard.press("Enter")
        assert tab.inner_text(".problem [role=status]") == why.format("German", "English")
        assert tab.input_value("#source-text") == LINES[0]
    with opened(chromium, several, LINES[0]) as tab:
        assert tab.get_attribute("[data-key=swap]", "aria-disabled") == "false"
        tab.select_option("[data-key=target]", "fr")
        until(tab, "document.querySelector('[data-key=swap]').getAttribute('aria-disabled') === 'true'")
        assert tab.get_attribute("[data-key=swap]", "title") == why.format("French", "English")


DROP_TYPED = """([name, type, bytes]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], name, { type }));
  document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""
DROP = """(files) => {
  const data = new DataTransfer();
  for (const [name, bytes] of files) data.items.add(new File([new Uint8Array(bytes)], name));
  for (const type of ["dragover", "drop"]) document.body.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
}"""  # noqa: E501


def test_a_dropped_text_file_is_translated(chromium, running):
    with opened(chromium, running) as tab:
        tab.evaluate(DROP, [["a.txt", list(b"\xef\xbb\xbf" + "\r\n".join(LINES).encode())]])
        tab.wait_for_selector(DONE)
        assert tab.input_value("#source-text") == TEXT
        with tab.expect_file_chooser() as chooser:
            tab.click("[data-key=open]")
        chooser.value.set_files({"name": "b.md", "mimeType": "text/markdown", "buffer": b"the dog"})
        until(tab, "document.querySelector('#source-text').value === 'the dog'")


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ([["a.pdf", list(b"%PDF-1.7\n\xe2\xe3\xcf\xd3")]], "a.pdf is not plain text (UTF-8), so it was not opened."),
        ([["a.bin", [0x61, 0, 0x62]]], "a.bin is not plain text (UTF-8), so it was not opened."),
        ([["latin.txt", list("café".encode("latin-1"))]], "latin.txt is not plain text (UTF-8), so it was not opened."),
        ([["big.txt", [97] * 100_001]], "big.txt is larger than 100 KB, so it was not opened."),
        ([["a.txt", [97]], ["b.txt", [98]]], "Open one file at a time."),
    ],
    ids=["pdf", "binary", "latin-1", "large", "two"],
)
def test_other_files_are_not_opened(files, says, chromium, running):
    with opened(chromium, running, LINES[0]) as tab:
        tab.evaluate(DROP, files)
        until(tab, "document.querySelector('.problem.shown')")
        assert tab.inner_text(".problem [role=status]").startswith(says)
        assert tab.input_value("#source-text") == LINES[0]


# ----------------------------------------------------------------------------------------------------- pictures


@pytest.fixture(scope="module")
def describing(captioner):
    """A server with a model of pictures only."""
    server = Running(squares=captioner)
    yield server
    server.server.should_exit = True
    server.thread.join(30)


def captioned(running, content, target="en"):
    address = f"{running.address}v1/caption?tokens=true&alternatives=3&target={target}"
    with urllib.request.urlopen(urllib.request.Request(address, content), timeout=30) as answer:
        return json.load(answer)


def test_a_dropped_picture_is_shown_and_described(chromium, describing, pictures):
    with opened(chromium, describing) as tab:
        words = WORDS["en"]
        assert tab.title() == "Picture → English · heedful"
        assert tab.inner_text(".drop") == words["type-here-picture"]
        assert tab.inner_text("#translation") == words["appears-here-picture"]
        for caption, content in pictures.items():
            tab.evaluate(DROP, [[f"{caption}.png", list(content)]])
            until(tab, f"document.querySelector('.count').textContent === '{caption}.png'")
            tab.wait_for_selector(DONE)
            assert translated(tab) == [caption]
            preview = "(() => { const one = document.querySelector('.drop img'); return [one.alt, one.naturalWidth, one.naturalHeight]; })()"  # noqa: E501
            until(tab, f"{preview}[1] > 0")
            assert tab.evaluate(preview) == [f"{caption}.png", 16, 16]
        answer = captioned(describing, content)
        tab.hover("#translation .word[data-word='1']")
        assert tab.inner_text("#readout").startswith(f"{caption.split()[1]} · probability ")
        tab.click("#translation .word")
        options = tab.eval_on_selector_all(".option", "all => all.map(one => one.textContent)")
        assert options == [answer["text"], *answer["alternatives"]]
        assert not tab.query_selector(".command")
        tab.click("[data-key=pt]")
        assert tab.title() == "Imagem → Inglês · heedful"
        assert translated(tab) == [caption]
        tab.click("[data-key=clear]")
        assert tab.inner_text("#translation") == WORDS["pt"]["appears-here-picture"]
        assert not tab.query_selector(".drop img")
        with tab.expect_file_chooser() as chooser:
            tab.click("[data-key=drop]")
        chooser.value.set_files({"name": "b.png", "mimeType": "image/png", "buffer": content})
        tab.wait_for_selector(DONE)
        assert translated(tab) == [caption]


def test_files_that_are_no_pictures(chromium, describing, pictures):
    with opened(chromium, describing, expected=("422",)) as tab:
        tab.evaluate(DROP, [["a.txt", list(b"hello")]])
        tab.wait_for_selector(".rejected")
        text = tab.inner_text(".rejected")
        assert text.startswith(WORDS["en"]["refused-picture"])
        assert "not one of the formats PNG, JPEG" in text
        tab.evaluate(DROP, [["a.png", [1]], ["b.png", [2]]])
        until(tab, "document.querySelector('.problem.shown')")
        assert tab.inner_text(".problem [role=status]") == "Open one file at a time."
        tab.evaluate(
            "() => { const data = new DataTransfer(); data.items.add(new File([new Uint8Array(12_000_001)], 'c.png')); "
            "document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true })); }"
        )
        until(tab, "document.querySelector('.problem').textContent.startsWith('c.png is larger than 12 MB')")
        caption, content = next(iter(pictures.items()))
        tab.evaluate(DROP, [["d.png", list(content)]])
        tab.wait_for_selector(DONE)
        assert translated(tab) == [caption]
        assert not tab.query_selector(".problem.shown")


def test_pictures_and_texts_on_one_page(chromium, captioner, several_models, pictures):
    server = Running(**several_models, squares=captioner)
    caption, content = next(iter(pictures.items()))
    try:
        with opened(chromium, server, LINES[0]) as tab:
            assert options_of(tab, "source") == ["English", "German", "Picture"]
            before = translated(tab)
            tab.evaluate(DROP_TYPED, ["a.png", "image/png", list(content)])  # selects the direction
            until(tab, "document.title.startsWith('Picture → English')")
            tab.wait_for_selector(DONE)
            assert translated(tab) == [caption]
            assert options_of(tab, "target") == ["English", "German"]
            tab.select_option("[data-key=target]", "de")
            tab.wait_for_selector(DONE)
            answer = captioned(server, content, "de")
            assert (translated(tab), answer["via"]) == ([answer["text"]], "en")
            tab.click("#translation .small")
            assert tab.inner_text(".details > p") == f"English: {caption}"
            tab.select_option("[data-key=source]", "en")
            tab.wait_for_selector(DONE)
            assert (translated(tab), tab.input_value("#source-text")) == (before, LINES[0])
    finally:
        server.server.should_exit = True
        server.thread.join(30)


@pytest.mark.parametrize("width", [390, 1280])
def test_the_layout_of_a_large_picture(width, chromium, describing):
    with opened(chromium, describing, width=width) as tab:
        tab.evaluate(
            """async (sides) => {
              const canvas = Object.assign(document.createElement("canvas"), { width: sides[0], height: sides[1] });
              const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
              const data = new DataTransfer();
              data.items.add(new File([blob], "x".repeat(90) + ".png"));
              document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true }));
            }""",
            [3000, 2000],
        )
        tab.wait_for_selector(DONE)
        until(tab, "document.querySelector('.drop img').naturalWidth === 3000")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        box, pane = (tab.query_selector(one).bounding_box() for one in (".drop img", ".pane"))
        assert pane["x"] < box["x"]
        assert box["x"] + box["width"] < pane["x"] + pane["width"]


# ------------------------------------------------------------------------------------------------------- looks


def test_only_language_and_theme_are_stored(chromium, running):
    with opened(chromium, running, TEXT, locale="pt-BR", color_scheme="dark") as tab:
        assert tab.evaluate("[document.documentElement.lang, document.documentElement.dataset.theme]") == ["pt", "dark"]
        assert tab.inner_text("#target-title") == "Alemão"
        before = translated(tab)
        tab.click("[data-key=ru]")
        tab.click("[data-key=light]")
        assert tab.inner_text("#target-title") == "Немецкий"
        assert translated(tab) == before
        assert tab.input_value("#source-text") == TEXT
        tab.reload()
        tab.wait_for_selector("html[lang=ru][data-theme=light]")
        kept = tab.evaluate("[{ ...localStorage }, { ...sessionStorage }, document.cookie]")
        assert kept == [{"heedful.language": "ru", "heedful.theme": "light"}, {}, ""]


@pytest.mark.parametrize("language", ["en", "pt", "ru"])
def test_the_layout_fits_the_viewport(language, chromium, running):
    with opened(chromium, running, f"{TEXT}\n{'w' * 90}\n{LINES[0]}", locale=language, width=390) as tab:
        tab.click("#translation .small")
        for width in (390, 1280):
            tab.set_viewport_size({"width": width, "height": 800})
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            panes = tab.eval_on_selector_all(
                ".pane",
                "all => all.map(one => one.getBoundingClientRect()).map(b => [b.left, b.top, b.right, b.bottom])",
            )
            assert panes[0][3] <= panes[1][1] if width == 390 else panes[0][2] <= panes[1][0]
            heights = tab.evaluate("['#source-text', '.mirror'].map(one => document.querySelector(one).scrollHeight)")
            assert heights[0] == heights[1]  # both wrap lines in the same way


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1920, 1080)])
def test_the_panes_fill_a_wide_window(width, height, chromium, several):
    with opened(chromium, several) as tab:
        tab.set_viewport_size({"width": width, "height": height})
        assert tab.evaluate("document.documentElement.scrollHeight") <= height
        boxes = tab.eval_on_selector_all(
            ".pane", "all => all.map(one => one.getBoundingClientRect()).map(b => [b.width, b.height])"
        )
        for pane_width, pane_height in boxes:
            assert pane_width > 0.44 * width
            assert pane_height > 0.7 * height
        bottom = tab.evaluate("document.querySelector('footer').getBoundingClientRect().bottom")
        assert height - 40 < bottom <= height


def test_text_from_right_to_left(chromium, running):
    with opened(chromium, running, "a tree\nשלום עולם") as tab:
        assert tab.eval_on_selector("#source-text", "one => one.dir") == "auto"
        begin = "one => { const r = document.createRange(); r.selectNodeContents(one); return r.getBoundingClientRect().left - one.getBoundingClientRect().left; }"  # noqa: E501
        assert tab.eval_on_selector(".mirror > div:first-child", begin) < 5
        assert tab.eval_on_selector(".mirror > div:last-child", begin) > 100


AXE = os.environ.get("HEEDFUL_AXE")


@pytest.mark.skipif(not AXE, reason="HEEDFUL_AXE does not name axe.min.js of the npm package axe-core")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violation(theme, chromium, several):
    with opened(chromium, several, f"{TEXT}\na tree at https://example.org/tree", color_scheme=theme) as tab:
        tab.click("#translation .small")
        tab.click("summary")
        tab.hover("#translation .word")
        tab.evaluate(Path(AXE).read_text(encoding="utf-8"))
        found = tab.evaluate("axe.run({ resultTypes: ['violations'] })")
        assert [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found["violations"]] == []


# -------------------------------------------------------------------------------------------------------- errors


def test_requests_to_a_busy_server_are_retried(chromium, running, state, monkeypatch):
    monkeypatch.setattr(running.queue, "is_full", lambda *_: True)
    with opened(chromium, running, expected=("503",)) as tab:
        tab.fill("#source-text", LINES[0])
        tab.wait_for_selector(".problem.shown")
        assert re.fullmatch(r"The server is busy\. Retrying in [12] s\.", tab.inner_text(".problem p").strip())
        tab.fill("#source-text", LINES[2])  # the retry sends the current text
        monkeypatch.setattr(running.queue, "is_full", lambda *_: False)
        tab.wait_for_selector("#translation .word")
        assert translated(tab) == [running.said([LINES[2]])[0]["text"]]
        assert not tab.query_selector(".problem.shown")


def test_a_line_that_is_too_long_does_not_block_the_others(chromium, running, state, monkeypatch):
    monkeypatch.setattr(running.queue, "limits", QueueLimits(max_request_tokens=60))
    with opened(chromium, running, expected=("413",)) as tab:
        tab.fill("#source-text", f"{' '.join(['the old man'] * 30)}\n{LINES[0]}")
        tab.wait_for_selector(DONE)
        assert WORDS["en"]["too-long"] in tab.inner_text("#translation .rejected")
        assert translated(tab)[1] == running.said([LINES[0]])[0]["text"]


def test_the_key_is_requested_and_kept_only_for_the_tab(chromium, running, state, monkeypatch):
    monkeypatch.setattr(state, "keys", {hash_key("open-sesame"): "ali"})
    with opened(chromium, running, expected=("401",)) as tab:
        tab.fill("#source-text", LINES[0])
        tab.wait_for_selector("[data-key=key]")
        assert WORDS["en"]["key-needed"] in tab.inner_text(".problem")
        tab.fill("[data-key=key]", "öffne-dich")
        tab.keyboard.press("Enter")
        tab.wait_for_selector(f".problem:has-text('{WORDS['en']['key-wrong']}')")
        tab.fill("[data-key=key]", "open-sesame")
        tab.keyboard.press("Enter")
        tab.wait_for_selector("#translation .word")
        kept = tab.evaluate("[{ ...localStorage }, { ...sessionStorage }]")
        assert kept == [{}, {"heedful.key": "open-sesame"}]


def test_without_a_network(chromium, running):
    with opened(chromium, running, expected=("ERR_INTERNET_DISCONNECTED",)) as tab:
        tab.context.set_offline(True)
        tab.fill("#source-text", LINES[0])
        tab.wait_for_selector(f".problem:has-text('{WORDS['en']['offline']}')")
        tab.context.set_offline(False)
        tab.wait_for_selector("#translation .word")


def test_server_errors_are_shown(chromium, running, state, monkeypatch):
    async def broken(*_, **__):
        raise RequestRejected(500, "the roof is on fire")

    with opened(chromium, running, expected=("500",)) as tab:
        with monkeypatch.context() as patch:
            patch.setattr(state, "translate", broken)
            tab.fill("#source-text", LINES[0])
            tab.wait_for_selector("[data-key=again]")
            assert "the roof is on fire" in tab.inner_text(".problem")
        tab.click("[data-key=again]")
        tab.wait_for_selector("#translation .word")
        assert not tab.query_selector(".problem.shown")


def test_a_model_without_alignment_still_translates(chromium, running, state, monkeypatch):
    real = state.translate

    async def blind(client, route, texts, options, left, timeout=None):
        if options["alignment"]:
            raise RequestRejected(422, "no alignment")
        return await real(client, route, texts, options, left, timeout)

    monkeypatch.setattr(state, "translate", blind)
    with opened(chromium, running, LINES[0], expected=("422",)) as tab:
        tab.hover("#translation .word")
        assert lit(tab, ".mirror") == []
        assert tab.query_selector("#translation .current")


def test_newer_text_cancels_older_requests(chromium, running):
    with opened(chromium, running, expected=("ERR_FAILED",)) as tab:
        held, failed = [], []
        tab.on("requestfailed", lambda request: failed.append(request))
        tab.route("**/v1/translate", lambda route: held.append(route) if not held else route.continue_())
        tab.fill("#source-text", "the dog")
        for _ in range(100):
            if held:
                break
            tab.wait_for_timeout(20)
        tab.fill("#source-text", "the cat")
        tab.wait_for_selector("#translation .word")
        assert translated(tab) == [running.said(["the cat"])[0]["text"]]
        assert [request.post_data_json["texts"] for request in failed] == [["the dog"]]


# ------------------------------------------------------------------------------------------------------- safe, small

HOSTILE = "</script><script>document.title='owned'</script> <img src=x onerror=document.title='owned'> \u202eabc {0}"


def test_hostile_text_is_not_markup(chromium, running):
    answer = {
        "source": HOSTILE, "text": HOSTILE, "tokens": [{"text": HOSTILE, "log_probability": -1}],
        "alignment": [[0, 0], [99, -1]], "flags": [{"name": HOSTILE, "side": "input", "detail": HOSTILE}],
        "alternatives": [HOSTILE + "x"],
    }  # fmt: skip
    with opened(chromium, running) as tab:
        tab.route("**/v1/translate", lambda route: route.fulfill(json={"translations": [answer]}))
        tab.fill("#source-text", HOSTILE)
        tab.wait_for_selector("#translation .word")
        tab.click("#translation .small")
        tab.click("summary")
        assert tab.query_selector_all("#app img, #app script") == []
        assert tab.title() == "English → German · heedful"


def test_the_page_has_a_strict_policy(running):
    with urllib.request.urlopen(running.address, timeout=10) as answer:
        html, sent = answer.read().decode(), answer.headers
    assert sent["Content-Type"] == "text/html; charset=utf-8"
    assert {name: sent[name] for name in page_headers()} == page_headers()
    policy = dict(part.strip().partition(" ")[::2] for part in sent["Content-Security-Policy"].split(";"))
    for name in ("default-src", "base-uri", "form-action", "frame-ancestors"):
        assert policy[name] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert "unsafe" not in sent["Content-Security-Policy"]
    assert re.findall(r'(?:src|href)="(?!data:)', html) == []
    assert "pid" not in re.search(r'id="about">(.*?)</script>', html)[1]


def test_language_names_are_escaped():
    html = render_page({"directions": [{"source": HOSTILE, "target": "</script>"}]})
    assert html.count("<script") == html.count("</script") == 3
    about = re.search(r'id="about">(.*?)</script>', html)[1]
    assert json.loads(about) == {"directions": [{"source": HOSTILE, "target": "</script>"}]}


def test_the_page_is_small_and_plain():
    script, style, _ = read_assets()
    assert len((script + style).encode()) <= 46_000
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function", script)
    assert style.startswith(":root")  # the viewer's colors, of both themes
    assert "@import" not in style
    assert "url(" not in style


def test_every_text_has_all_languages():
    script = "".join(path.read_text(encoding="utf-8") for path in SCRIPTS)
    used = set(re.findall(r'\bt\("([a-z-]+[a-z])"', script)) | {f"flag-{name}" for name in MEANINGS}
    used |= set(re.findall(r'setStatus\((?:\w+ \? )?"([a-z-]+)"', script)) | {f"why-{name}" for name in MEANINGS}
    assert used <= WORDS["en"].keys()
    assert WORDS["en"].keys() == WORDS["pt"].keys() == WORDS["ru"].keys()
    for key, text in WORDS["en"].items():
        for language in ("pt", "ru"):
            assert text.count("{0}") == WORDS[language][key].count("{0}")


# --------------------------------------------------------------------------------------------------- recordings


@pytest.fixture(scope="module")
def transcribing(tmp_path_factory):
    """A server with a model of recordings only."""
    folder = write_recordings(tmp_path_factory.mktemp("recordings"), count=40)
    settings = sound_settings(folder, folder / "tones", steps=30, learning_rate=1e-2)
    long = settings.input.model_copy(update={"max_seconds": 20.0})  # the microphone decides when it starts
    server = Running(tones=train(settings.model_copy(update={"input": long})))
    yield server
    server.server.should_exit = True
    server.thread.join(30)


def transcript_of(running, content):
    address = f"{running.address}v1/transcribe?tokens=true&alternatives=3&target=en"
    with urllib.request.urlopen(urllib.request.Request(address, content), timeout=30) as answer:
        return json.load(answer)["text"]


def test_a_dropped_recording_can_be_heard_and_is_transcribed(chromium, transcribing):
    content = wav_bytes(tones(["low", "high"]), RATE)
    with opened(chromium, transcribing) as tab:
        words = WORDS["en"]
        assert tab.title() == "Recording \u2192 English \u00b7 heedful"
        assert tab.inner_text(".drop") == words["type-here-recording"]
        tab.evaluate(DROP, [["a.wav", list(content)]])
        tab.wait_for_selector(DONE)
        assert translated(tab) == [transcript_of(transcribing, content)]
        sound = "document.querySelector('.heard audio')"
        until(tab, f"{sound}.readyState > 0")
        assert tab.evaluate(f"{sound}.duration") == pytest.approx(0.24, abs=0.01)
        tab.click("[data-key=clear]")
        assert not tab.query_selector("audio")


def test_two_clicks_open_one_microphone(chromium, transcribing):
    with opened(chromium, transcribing, permissions=["microphone"]) as tab:
        tab.evaluate("""() => {
            const { mediaDevices } = navigator, ask = mediaDevices.getUserMedia.bind(mediaDevices);
            window.asked = [];
            mediaDevices.getUserMedia = (wanted) => new Promise((answer) => {
                window.asked.push(() => ask(wanted).then(answer));
            });
        }""")
        tab.click("[data-key=record]", click_count=2)
        assert tab.evaluate("window.asked.length") == 1
        tab.evaluate("window.asked[0]()")
        until(tab, "document.querySelector('[data-key=record]').getAttribute('aria-pressed') === 'true'")


def test_the_microphone_is_recorded(chromium, transcribing):
    """Chromium's own test device, which beeps."""
    with opened(chromium, transcribing, permissions=["microphone"]) as tab:
        tab.click("[data-key=record]")
        until(tab, "document.querySelector('[data-key=record]').getAttribute('aria-pressed') === 'true'")
        tab.wait_for_timeout(1_500)
        tab.click("[data-key=record]")
        tab.wait_for_selector(DONE)
        assert tab.inner_text(".count") == WORDS["en"]["recorded-file"]
        assert tab.evaluate("document.querySelector('.heard audio').duration") > 0.5

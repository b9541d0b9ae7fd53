"""The site: built in three languages without a warning, no dead link, searched without a network, read on a phone."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest

from heedful.inspection.api import inspect
from support.live_models import random_bundle
from support.timeouts import PATIENCE

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
LAYERS = {"kind": "transformer", "layers": 1, "heads": 2, "feedforward_size": 12}
LANGUAGES = {"en": "", "pt": "pt/", "ru": "ru/"}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="scripts/docs is a shell script"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason="sphinx is not installed: pip install 'heedful[docs]'")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [ROOT / "scripts" / "docs", out],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


class Links(HTMLParser):
    """What a page points at, and what can be pointed at in it."""

    def __init__(self, text):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.names |= {found.get("id"), found.get("name")}
        self.links += [found[key] for key in ("href", "src") if found.get(key)]


def test_no_link_is_dead(site):
    pages = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert len(pages) > 100
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            names = pages[target].names if target in pages else {parts.fragment}
            is_state = target.parent.name == "live"  # the fragment describes a state
            if not target.is_file() or (parts.fragment and not is_state and unquote(parts.fragment) not in names):
                dead.append(f"{path.relative_to(site)} -> {link}")
    assert not dead


def test_nothing_is_fetched_from_elsewhere(site):
    for path in site.rglob("*.html"):
        found = re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?://[^"]+)"', path.read_text(encoding="utf-8")
        )
        assert not found, f"{path.relative_to(site)} fetches {found}"


@pytest.mark.parametrize(("language", "word"), [("en", "beam"), ("pt", "atenção"), ("ru", "внимание")])
def test_search_works_without_a_network(site, chromium, language, word):
    page = chromium.new_context(offline=True).new_page()
    page.goto(f"{(site / LANGUAGES[language] / 'search.html').as_uri()}?q={word}")
    page.wait_for_selector("#search-results li", timeout=1000 * PATIENCE)
    assert page.locator("#search-results li").count() >= 2
    page.context.close()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", ["index", "guide/first-translator", "lectures/attention", "benchmarks"])
def test_a_phone_shows_whole_pages(site, chromium, language, name):
    page = chromium.new_context(viewport={"width": 390, "height": 844}).new_page()
    page.goto((site / LANGUAGES[language] / f"{name}.html").as_uri())
    assert fits(page)
    assert page.evaluate("document.documentElement.lang") == language
    page.context.close()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_a_page_with_its_outputs(site, chromium, path):
    page = chromium.new_context(viewport={"width": 390, "height": 844}).new_page()
    page.goto((site / "notebooks" / f"{path.stem}.html").as_uri())
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    shown = "\n".join(page.locator(".cell_output").all_text_contents())
    assert not [text for output in outputs if (text := "".join(output.get("text", ())).strip()) not in shown]
    pictures = page.locator(".cell_output img")
    assert pictures.count() == sum("image/" in str(output.get("data", {}).keys()) for output in outputs)
    assert pictures.evaluate_all("all => all.every(one => one.naturalWidth > 200 && one.alt.length > 30)")
    link = page.locator("a.download").get_attribute("href")
    assert (site / "notebooks" / link).read_bytes() == path.read_bytes()
    assert fits(page)
    page.context.close()


def fits(page):
    """Whether nothing scrolls sideways: not the page, and not .content, in which the theme would hide it."""
    boxes = page.locator("html, .content")
    return boxes.evaluate_all("all => all.every(one => one.scrollWidth <= one.clientWidth)")


@pytest.mark.parametrize("name", ["attention", "decoding", "looking-inside"])
def test_a_live_page_answers_in_its_frame(site, chromium, name):
    language, text = {"attention": ("en", "cat"), "decoding": ("pt", "back"), "looking-inside": ("ru", "house")}[name]
    page = chromium.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark").new_page()
    page.goto((site / LANGUAGES[language] / "lectures" / f"{name}.html").as_uri())
    frame = page.locator(".live iframe")
    assert frame.get_attribute("loading") == "lazy"
    assert len(frame.get_attribute("title")) > 20
    frame.scroll_into_view_if_needed()
    inside = page.frame_locator(".live iframe")
    inside.locator("form.live output", has_text=re.compile("ms|мс")).wait_for(timeout=1000 * PATIENCE)
    assert text in inside.locator("#stage .target").inner_text()
    assert inside.locator("html").get_attribute("lang") == language
    assert inside.locator("html").get_attribute("data-theme") == "dark"
    assert inside.locator("html").evaluate("node => node.scrollWidth <= innerWidth")
    assert not inside.locator(".tools").is_visible()
    page.context.close()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def served(tmp_path):
    """A folder, and its address: a page can only read the address of its frames if a server sends both."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path))
    Thread(target=server.serve_forever, daemon=True).start()
    yield tmp_path, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_another_theme_keeps_what_was_done_in_a_frame(served, chromium):
    folder, address = served
    bundle = random_bundle(folder / "model", {"width": 8, "encoder": LAYERS, "decoder": LAYERS})
    inspect(bundle.folder, live="int8").save(folder / "live.html")
    (folder / "live.js").write_bytes((ROOT / "docs" / "_static" / "live.js").read_bytes())
    frame = '<iframe src="live.html#text=w3 w9&view=stage&lang=en"></iframe>'
    html = f'<body data-theme="light"><div class="live">{frame}</div><script src="live.js"></script>'
    (folder / "index.html").write_text(f"<!doctype html>{html}", encoding="utf-8")
    page = chromium.new_context().new_page()
    page.goto(f"{address}/index.html")
    inside = page.frame_locator("iframe")
    inside.locator("[data-key=live-text]").fill("w7 w1 w2")
    inside.locator("[data-key=live-text]").press("Enter")
    answered = page.frames[1]
    answered.wait_for_url(re.compile("text=w7%20w1%20w2"), timeout=1000 * PATIENCE)
    entries = page.evaluate("history.length")
    page.evaluate("() => { document.body.dataset.theme = 'dark'; }")
    inside.locator("html[data-theme=dark] #stage .source .piece", has_text="w7").wait_for(timeout=1000 * PATIENCE)
    assert inside.locator("[data-key=live-text]").input_value() == "w7 w1 w2"
    assert page.evaluate("history.length") == entries
    page.context.close()


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    pytest.importorskip("sphinx", reason="sphinx is not installed: pip install 'heedful[docs]'")
    out = tmp_path_factory.mktemp("gettext")
    subprocess.run([sys.executable, "-m", "sphinx", "-b", "gettext", "-q", ROOT / "docs", out], check=True)
    return out


@pytest.mark.parametrize("language", ["pt", "ru"])
def test_guide_and_lectures_are_translated_to_the_last_sentence(templates, language):
    folder = ROOT / "docs" / "locale" / language / "LC_MESSAGES"
    pages = [path for part in ("guide", "lectures") for path in (ROOT / "docs" / part).glob("*.md")]
    assert len(pages) > 10
    for page in [*pages, ROOT / "docs" / "index.md"]:
        if page.stem == "transcript":  # what commands printed
            continue
        name = page.relative_to(ROOT / "docs")
        known = sentences(folder / name.with_suffix(".po"))
        lacking = [one for one in sentences(templates / name.with_suffix(".pot")) if not known.get(one)]
        assert not lacking, f"{name} lacks {len(lacking)} sentences in {language}, the first: {lacking[0]}"


def sentences(path):
    """Of a catalogue, with their translations."""
    from babel.messages.pofile import read_po

    with path.open("rb") as stream:
        return {one.id: one.string for one in read_po(stream) if one.id}

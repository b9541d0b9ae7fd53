"""Parse a page strictly, and run it in a real browser."""

import shutil
import subprocess
import time
from contextlib import contextmanager
from html.parser import HTMLParser

from support.timeouts import PATIENCE

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]  # a microphone that beeps
VOID = {"meta"}


class Reader(HTMLParser):
    """Parse a page; every tag that is opened must be closed, in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts, self.scripts = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        self.texts.append(data)


def dump_dom(path, tmp_path):
    """The HTML of a page after its scripts ran in a browser."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom"]
    done = subprocess.run(
        [BROWSER, *flags, path.as_uri()], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    return done.stdout


@contextmanager
def opened(chromium, path, address="", width=1280, height=800, ignored=(), **options):
    """Open a page from the disk, without a network; assert that it requests nothing and logs no error or warning.

    Errors that contain one of the texts `ignored` are expected.
    """
    context = chromium.new_context(viewport={"width": width, "height": height}, offline=True, **options)
    tab = context.new_page()
    tab.set_default_timeout(20_000)
    errors, requests = [], []
    tab.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: errors.append(f"{error}\n{getattr(error, 'stack', '')}"))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(path.as_uri() + address)
    tab.wait_for_selector("html[data-ready]")
    yield tab
    tab.wait_for_timeout(50)
    context.close()
    assert [error for error in errors if not any(text in error for text in ignored)] == []
    assert [url for url in requests if url.partition("#")[0] != path.as_uri() and not url.startswith("blob:")] == []


def until(tab, condition, seconds=20):
    """Wait for a condition; Playwright's own wait evaluates strings, which the page's policy forbids."""
    end = time.monotonic() + seconds
    while not tab.evaluate(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.03)


def settled(tab, after=0):
    """Wait until the page has drawn the last change, and `after` milliseconds more.

    The page requested its frame before this does, so that its listeners run first, however slow the machine is.
    """
    tab.evaluate(f"() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, {after})))")


def visit(tab, address):
    """Change the address of an open page, and wait until the page shows it."""
    tab.evaluate(
        """(address) => new Promise((done) => {
            if (location.hash === address) { done(); return; }
            document.querySelector("main").dataset.old = "1";
            location.hash = address;
            const isOld = () => document.querySelector("main[data-old]");
            const wait = () => requestAnimationFrame(isOld() ? wait : done);
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


def axe_violations(tab, axe, root="document", impacts=("minor", "moderate", "serious", "critical")):
    """What axe-core reports: (rule, the first elements)."""
    if not tab.evaluate("typeof axe !== 'undefined'"):
        tab.evaluate(axe.read_text(encoding="utf-8"))
    report = tab.evaluate(f"axe.run({root}, {{ resultTypes: ['violations'] }})")
    return [
        (violation["id"], [node["html"][:160] for node in violation["nodes"]][:3])
        for violation in report["violations"]
        if violation["impact"] in impacts
    ]

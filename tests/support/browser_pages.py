"""Parse a page strictly, and run it in a real browser."""

import shutil
import subprocess
from html.parser import HTMLParser

from support.timeouts import PATIENCE

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
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

"""Firefox without a window, controlled by its own Marionette server: frames of JSON with their length over TCP.

with open_in_firefox(profile) as tab:
    tab.open(path.as_uri())
    tab.run("return document.title")
    tab.errors()        # of the page's scripts and style
"""

import json
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager

from support.free_ports import free_port
from support.timeouts import PATIENCE

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
# Privileged: messages of the console whose source is the page.
READ_ERRORS = """
const errors = [];
for (const message of Services.console.getMessageArray()) {
  const isOfPage = message instanceof Ci.nsIScriptError && message.sourceName.startsWith(arguments[0]);
  if (isOfPage) errors.push(message.errorMessage);
}
return errors;
"""


# False if nothing was drawn for ten seconds, as in a tab that Firefox keeps in the background.
DRAWS_FRAMES = """
return new Promise((done) => { requestAnimationFrame(() => done(true)); setTimeout(() => done(false), 10000); });
"""


class FirefoxDrawsNothing(Exception):
    """Firefox runs scripts but draws no frame: no page can follow its visitor then, whatever its script does."""


class Marionette:
    """A session: commands are [0, number, name, parameters], answers [1, number, error, result]."""

    def __init__(self, connection):
        self.stream, self.number = connection.makefile("rwb"), 0
        self.read_frame()  # the greeting
        self.call("WebDriver:NewSession", capabilities={})

    def read_frame(self):
        length = b""
        while not length.endswith(b":"):
            byte = self.stream.read(1)
            assert byte, "Firefox closed the connection"
            length += byte
        return json.loads(self.stream.read(int(length[:-1])))

    def call(self, name, **parameters):
        self.number += 1
        frame = json.dumps([0, self.number, name, parameters]).encode()
        self.stream.write(b"%d:%s" % (len(frame), frame))
        self.stream.flush()
        _, _, error, result = self.read_frame()
        assert error is None, error
        return result.get("value") if isinstance(result, dict) else result

    def run(self, script, *arguments):
        """The value that a script in the page returns; a promise is awaited."""
        return self.call("WebDriver:ExecuteScript", script=script, args=list(arguments))

    def until(self, condition):
        start, seconds_to_check = time.monotonic(), 60
        while not self.run(f"return {condition}"):
            seconds = time.monotonic() - start
            if seconds > seconds_to_check:
                seconds_to_check += 60
                if not self.run(DRAWS_FRAMES):
                    raise FirefoxDrawsNothing(condition)
            assert seconds < PATIENCE, f"{condition}, errors: {self.errors()}"
            time.sleep(0.05)

    def open(self, address):
        self.address = address.partition("#")[0]
        self.call("WebDriver:Navigate", url=address)

    def errors(self):
        self.call("Marionette:SetContext", value="chrome")
        errors = self.run(READ_ERRORS, self.address)
        self.call("Marionette:SetContext", value="content")
        return errors


@contextmanager
def open_in_firefox(profile):
    """A session in a new Firefox with an empty profile."""
    port = free_port()
    profile.mkdir()
    (profile / "user.js").write_text(
        f'user_pref("marionette.port", {port});\nuser_pref("network.proxy.type", 1);\n'
        'user_pref("network.proxy.http", "127.0.0.1");\nuser_pref("network.proxy.http_port", 9);\n'
        'user_pref("app.update.enabled", false);\nuser_pref("datareporting.policy.dataSubmissionEnabled", false);\n'
        'user_pref("layout.testing.top-level-always-active", true);\n'  # draw, even if another tab comes to the front
    )
    flags = ["--headless", "--no-remote", "--marionette", "--remote-allow-system-access", "--profile", str(profile)]
    browser = subprocess.Popen([FIREFOX, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with connect(port, browser) as connection:
            yield Marionette(connection)
    finally:
        browser.terminate()
        browser.wait(PATIENCE)


def connect(port, browser):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        except OSError:
            assert browser.poll() is None, "Firefox ended"
            assert time.monotonic() < end, "Firefox does not listen"
            time.sleep(0.1)

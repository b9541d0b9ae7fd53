"""From raw text to a served translation: two commands, no file to edit; counted, as the docs have them."""

import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from support.free_ports import free_port
from support.timeouts import PATIENCE

GUIDE = Path(__file__).parents[1] / "docs" / "guide" / "first-translator.md"
PEERS = {  # steps of their own quick starts, commands and files to edit
    "Marian": 6, "Locomotive and LibreTranslate": 7, "argos-train": 7, "Sockeye": 8, "Hugging Face transformers": 8,
    "JoeyNMT": 9, "fairseq": 9, "Tensor2Tensor": 10, "OpenNMT-py": 11, "eole": 11,
}  # fmt: skip


def commands():
    """Those of the guide, under "With your own sentences"."""
    section = GUIDE.read_text(encoding="utf-8").split("## With your own sentences")[1]
    return re.search(r"```sh\n(.*?)```", section, re.S).group(1).splitlines()


@pytest.mark.slow
def test_two_commands_and_no_edited_file(tmp_path):
    pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'heedful[serve]'")
    for language, names in (("en", "one two three four five six"), ("de", "eins zwei drei vier fünf sechs")):
        some = names.split()
        lines = (" ".join(some[(n * 7 + k * k) % 6] for k in range(3 + n % 4)) for n in range(700))
        (tmp_path / f"train.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    train, serve = commands()
    assert min(PEERS.values()) > 2
    # Two changes, for the test's sake: forty minutes become sixty steps, and the port is a free one.
    short = heedful(train.replace("--time 40m", "--steps 60"))
    subprocess.run(short, cwd=tmp_path, check=True, capture_output=True)
    port = free_port()
    server = subprocess.Popen([*heedful(serve), "--port", str(port)], cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        assert asked(port, "one two")
    finally:
        server.terminate()
        assert server.wait(60) is not None


def heedful(line):
    """A command line of the docs, with this interpreter's heedful."""
    name, *arguments = shlex.split(line)
    assert name == "heedful"
    return [sys.executable, "-m", "heedful", *arguments]


def asked(port, text):
    """A translation, as soon as there is one."""
    until = time.monotonic() + PATIENCE
    body = json.dumps({"texts": text}).encode()
    while True:
        try:
            request = Request(f"http://127.0.0.1:{port}/v1/translate", body, {"Content-Type": "application/json"})
            with urlopen(request, timeout=PATIENCE) as response:
                return json.load(response)["translations"]
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.2)

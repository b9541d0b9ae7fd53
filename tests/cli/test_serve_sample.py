"""`heedful serve` of a bundled model: it works, and the installed package stays as it was."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from heedful import files, samples
from heedful.cli.serve import EXPORT_CACHE, export_cache
from support.free_ports import free_port

PACKAGE = Path(samples.__file__).parents[1]


def listing(folder):
    """Every path, and the size and time of files, without compiled modules."""
    paths = [path for path in folder.rglob("*") if "__pycache__" not in path.parts]
    return {path: path.is_file() and (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to drain on")
def test_a_sample_is_served_and_the_package_does_not_change(tmp_path):
    before = listing(PACKAGE / "samples")
    port = free_port()
    command = [sys.executable, "-m", "heedful", "serve", "pt-en", "--port", str(port), "--threads", "1"]
    log = tmp_path / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=tmp_path, env=cache_environment(tmp_path)
        )
    try:
        assert "heedful serve  pt \u2192 en  ctranslate2" in process.stdout.readline(), log.read_text()
        request = Request(f"http://127.0.0.1:{port}/v1/translate", b'{"texts": ["O gato dorme."]}')
        with urlopen(request, timeout=60) as response:
            (translation,) = json.load(response)["translations"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert translation["text"] == "The cat sleeps."
    assert listing(PACKAGE / "samples") == before
    (export,) = tmp_path.rglob(f"heedful/{EXPORT_CACHE}/*")
    settings = json.loads((export / "heedful" / "generation_config.json").read_text(encoding="utf-8"))
    assert "bitch" in settings["suppress_words"]


def cache_environment(folder):
    """Every variable that `user_cache_dir` reads, set to `folder`."""
    return {**os.environ, "XDG_CACHE_HOME": str(folder), "LOCALAPPDATA": str(folder), "HOME": str(folder)}


def test_exports_are_cached_next_to_a_model_if_possible(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files.sys, "platform", "linux")
    model = tmp_path / "run" / "model"
    shutil.copytree(samples.model("pt-en"), model)
    cache = tmp_path / "cache" / "heedful" / EXPORT_CACHE
    assert export_cache(model) == tmp_path / "run" / EXPORT_CACHE
    assert export_cache(samples.model("pt-en")) == cache
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "run")  # root may write anywhere
    assert export_cache(model) == cache


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, "home/.cache/heedful"),
        ("linux", {"XDG_CACHE_HOME": "/x"}, "/x/heedful"),
        ("darwin", {"XDG_CACHE_HOME": "/x"}, "home/Library/Caches/heedful"),
        ("win32", {}, "home/AppData/Local/heedful"),
        ("win32", {"LOCALAPPDATA": "/x"}, "/x/heedful"),
    ],
)
def test_the_cache_directory_is_that_of_the_system(platform, environment, expected, monkeypatch):
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(files.sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("home"))
    assert files.user_cache_dir() == Path(expected)

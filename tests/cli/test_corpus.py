"""`heedful check` and `heedful prepare` as a user types them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heedful.cli.app import app
from support import ray_cluster as raycluster

run = CliRunner().invoke
ENGLISH = ["a", "man", "and", "the", "dog", "are", "in", "old", "house", "with", "his", "children", "not", "at", "home"]
GERMAN = [
    "der",
    "mann",
    "und",
    "die",
    "frau",
    "sind",
    "nicht",
    "in",
    "dem",
    "haus",
    "mit",
    "den",
    "kindern",
    "auch",
    "auf",
]


def sentences(words: list[str], count: int) -> list[str]:
    return [
        " ".join(
            [f"N{number}", *(words[(number * 7 + at * (number % 5 + 1)) % len(words)] for at in range(5 + number % 9))]
        )
        + "."
        for number in range(count)
    ]


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for code, words in (("en", ENGLISH), ("de", GERMAN)):
        Path(f"train.{code}").write_text("\n".join(sentences(words, 400)) + "\n", encoding="utf-8", newline="\n")
        Path(f"valid.{code}").write_text(f"Held out, {code}.\nAnd {words[1]}.\n", encoding="utf-8", newline="\n")
    Path("heedful.toml").write_text(
        'source = "en"\ntarget = "de"\n[data]\ntrain = [{ files = "train" }]\nvalidation = [{ files = "valid" }]\n'
        "[tokenizer]\nvocab_size = 350\n"
    )
    return tmp_path


def test_check_of_files_and_of_a_configuration(corpus):
    for arguments in (["train.en", "train.de"], ["train", "--pair", "en-de"], ["heedful.toml"]):
        shown = run(app, ["check", *arguments])
        assert shown.exit_code == 0, shown.output
        assert "400 pairs" in shown.stdout
        assert "Next: " in shown.stdout


def test_json_is_json(corpus):
    report = json.loads(run(app, ["check", "train.en", "train.de", "--json"]).stdout)
    assert report["pairs"] == {"train": 400}
    assert report["errors"] is False


def test_errors_give_exit_code_3_and_fix_mends_them(corpus):
    lines = Path("train.de").read_text(encoding="utf-8").splitlines(keepends=True)
    Path("train.de").write_text("".join(lines[:-1]), encoding="utf-8", newline="\n")
    shown = run(app, ["check", "train.en", "train.de"])
    assert shown.exit_code == 3
    assert "different numbers of lines" in shown.stdout
    fixed = run(app, ["check", "train.en", "train.de", "--fix"])
    assert fixed.exit_code == 3
    assert Path("train.clean.en").exists()
    assert "train.clean.en" in fixed.stdout.replace("\n", "")
    assert run(app, ["check", "train.clean.en", "train.clean.de"]).exit_code == 0


def test_prepare(corpus):
    shown = run(app, ["prepare", "heedful.toml", "--set", "tokenizer.vocab_size=340"])
    assert shown.exit_code == 0, shown.output
    assert "340 pieces" in shown.stdout
    assert "400 train" in shown.stdout
    assert json.loads((corpus / "prepared" / "manifest.json").read_text())["source"] == "en"


def heedful(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "heedful", *arguments]
    environment = os.environ | {"COLUMNS": "100"} | environment
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=environment)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["check", "train.tmx"], 2, "add the language pair, for example: --pair en-de"),
        (["check", "train", "--pair", "ende"], 2, "expected two language codes"),
        (["check", "train.en", "train.dee"], 3, "there is no file train.dee; did you mean `train.de`?"),
        (["check", "heedful.toml", "--pair", "en-de"], 2, "sets the languages and files: remove --pair"),
        (["prepare", "heedfull.toml"], 2, "there is no file heedfull.toml"),
        (["prepare", "heedful.toml", "--set", "tokenizer.vocab_sise=3"], 2, "did you mean `vocab_size`?"),
        (["prepare", "heedful.toml", "--workers", "0"], 1, "workers"),
    ],
)
def test_mistakes_are_one_helpful_line(corpus, arguments, code, says):
    done = heedful(*arguments)
    assert done.returncode == code, done.stderr
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_prepare_refuses_files_of_unequal_length(corpus):
    with Path("train.en").open("a", encoding="utf-8") as stream:
        stream.write("one more\n")
    done = heedful("prepare", "heedful.toml")
    assert done.returncode == 3
    assert "not line-aligned" in " ".join(done.stderr.split())


def test_neither_command_needs_torch(corpus):
    code = "import sys; sys.modules['torch'] = None; from heedful.cli import main; sys.argv = sys.argv[1:]; main()"
    for arguments in (["check", "train.en", "train.de"], ["prepare", "heedful.toml"]):
        done = subprocess.run(
            [sys.executable, "-c", code, "heedful", *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(bool(raycluster.why_not()), reason=raycluster.why_not() or "a cluster can be had")
def test_prepare_on_a_cluster_is_prepare_here(corpus):
    parts = "train = [" + ", ".join(f'{{ files = "part{number}", name = "p{number}" }}' for number in range(3)) + "]"
    for code in ("en", "de"):
        lines = Path(f"train.{code}").read_text(encoding="utf-8").splitlines(keepends=True)
        for number in range(3):
            Path(f"part{number}.{code}").write_text("".join(lines[number::3]), encoding="utf-8", newline="\n")
    text = Path("heedful.toml").read_text().replace('train = [{ files = "train" }]', parts)
    Path("heedful.toml").write_text(text)
    assert heedful("prepare", "heedful.toml", "--set", "data.prepared_dir=here").returncode == 0
    with raycluster.Cluster(2) as cluster:
        for name, address in (("auto", cluster.address), ("client", cluster.client)):
            environment = {key: cluster.environment[key] for key in ("RAY_AUTH_TOKEN", "PYTHONPATH")}
            done = heedful(
                "prepare", "heedful.toml", "--cluster", address, "--set", f"data.prepared_dir={name}", **environment
            )
            assert done.returncode == 0, done.stderr
            for path in Path("here").rglob("*"):
                if path.is_file() and path.name != "settings.toml":
                    assert (Path(name) / path.relative_to("here")).read_bytes() == path.read_bytes(), path


def test_output_that_a_terminal_cannot_show_is_no_error(corpus):
    for encoding, arguments in (("cp1252", ("check", "train.en", "train.de")), ("ascii", ("prepare", "heedful.toml"))):
        done = heedful(*arguments, PYTHONIOENCODING=encoding)
        assert done.returncode == 0, done.stderr


def test_a_hostile_line_cannot_command_the_terminal(corpus):
    with Path("train.en").open("a", encoding="utf-8") as stream:
        stream.write("\x1b]0;owned\x07\x1b[31m\u202e \x9b2J\n")
    with Path("train.de").open("a", encoding="utf-8") as stream:
        stream.write("böse\n")
    shown = heedful("check", "train.en", "train.de").stdout
    assert "\\x1b]0;owned" in shown
    assert not set("\x1b\x07\x9b\u202e") & set(shown)


def test_names_are_shown_as_they_are(corpus):
    Path("a [red]").mkdir()
    text = Path("heedful.toml").read_text().replace("[data]", '[data]\nprepared_dir = "a [red]/x [/y"')
    Path("heedful.toml").write_text(text)
    assert "a [red]/x [/y" in heedful("prepare", "heedful.toml").stdout.replace("\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends Ctrl-C otherwise")
def test_ctrl_c_says_that_nothing_is_lost(corpus):
    for code in ("en", "de"):
        path = Path(f"train.{code}")
        path.write_text("".join(f"{line} {at}\n" for at in range(250) for line in path.read_text().split("\n")[:400]))
    command = [sys.executable, "-m", "heedful", "prepare", "heedful.toml"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        while running.poll() is None and not list(Path().glob("prepared/clean/*")):
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "resume from the last saved state" in said
    assert not list(Path("prepared").rglob(".tmp-*"))


def test_a_place_that_cannot_be_written_is_one_line(corpus):
    Path("file").touch()
    done = heedful("prepare", "heedful.toml", "--set", "data.prepared_dir=file/x")
    assert done.returncode == 2
    assert "is inside a file" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_was_not_compared_is_not_called_fine(corpus):
    assert "no test pairs in training" not in run(app, ["check", "train.en", "train.de"]).stdout
    assert "no test pairs in training" in run(app, ["check", "heedful.toml"]).stdout

"""`heedful check` and `heedful prepare` as a user types them."""

import csv
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
from heedful.config import load
from heedful.corpus.arguments import find_languages
from support import corpus_faults as plant
from support import ray_cluster as raycluster
from support.workbooks import write_workbook

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


def test_the_next_command_trains_on_the_same_files(corpus):
    files = ["train.en", "train.de", "--validation", "valid.en", "--validation", "valid.de"]
    shown = run(app, ["check", *files, "--set", "clean.max_words=90"])
    following = shown.stdout.splitlines()[-1].partition("Next: ")[2]
    assert following == f"heedful train {' '.join(files)} --set clean.max_words=90 --out my-model --time 40m"


def test_a_fixed_copy_says_how_many_lines_are_missing(corpus):
    lines = Path("train.de").read_bytes().splitlines(keepends=True)
    Path("train.de").write_bytes(b"".join([b"n\xe3o\n"] * 20 + lines[20:]))
    shown = run(app, ["check", "train.en", "train.de", "--fix"])
    assert "380 of 380 pairs written to train.clean.en and train.clean.de; 20 unreadable lines are not in it" in (
        shown.stdout
    )
    assert shown.stdout.splitlines()[-1].endswith("Next: check the cleaned files and train on them")


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
        (["check", "train.en", "train.de", "--columns", "1,2"], 2, "--columns is for tables"),
        (["check", "train.en", "train.de", "--sheet", "A"], 2, "--sheet is for .xlsx workbooks"),
        (["check", "heedful.toml", "--columns", "1"], 2, "expected two columns, source first"),
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


@pytest.fixture
def table(corpus):
    """The same corpus as a table: a header, an id, and the two sides."""
    sides = [Path(f"train.{code}").read_text(encoding="utf-8").splitlines() for code in ("en", "de")]
    rows = [["Nr", "English", "German"], *([number, *pair] for number, pair in enumerate(zip(*sides, strict=True)))]
    with Path("pairs.csv").open("w", encoding="utf-8-sig", newline="") as stream:
        csv.writer(stream, delimiter=";").writerows(rows)
    write_workbook(Path("pairs.xlsx"), {"Pairs": rows})
    return corpus


@pytest.mark.parametrize("name", ["pairs.csv", "pairs.xlsx"])
def test_check_says_how_a_table_is_read(table, name):
    shown = run(app, ["check", name])
    assert shown.exit_code == 0, shown.output
    assert "en → de" in shown.stdout
    assert "400 pairs  columns 2 (en) and 3 (de); header row; column 1 is an id" in shown.stdout
    turned = json.loads(run(app, ["check", name, "--columns", "German,2", "--json"]).stdout)
    assert turned["layouts"]["train"].startswith("columns 3 (de) and 2 (en)")


@pytest.mark.parametrize("name", ["pairs.csv", "pairs.xlsx"])
def test_prepare_reads_the_columns_of_the_settings_and_of_the_option(table, name):
    toml = f'source = "en"\ntarget = "de"\ntokenizer.vocab_size = 340\n[[data.train]]\nfiles = "{name}"\n'
    prepared = {}
    for key, options in (("", []), ("columns = [3, 2]\n", []), ("", ["--columns", "German,English"])):
        Path("table.toml").write_text(toml + key, encoding="utf-8")
        shown = run(app, ["prepare", "table.toml", *options])
        assert shown.exit_code == 0, shown.output
        assert "400 train" in shown.stdout
        prepared[key, *options] = (table / "prepared" / "cut" / "train" / "00000.source").read_bytes()
    detected, from_file, from_option = prepared.values()
    assert detected.splitlines()[0].decode() == Path("train.en").read_text(encoding="utf-8").splitlines()[0]
    assert from_file == from_option
    assert from_file.splitlines()[0].decode() == Path("train.de").read_text(encoding="utf-8").splitlines()[0]


def test_init_writes_the_columns(table):
    shown = run(app, ["init", "new", "pairs.xlsx", "--columns", "2,German", "--sheet", "Pairs"])
    assert shown.exit_code == 0, shown.output
    corpus = load("new/heedful.toml").data.train[0]
    assert (corpus.columns, corpus.sheet) == (("2", "German"), "Pairs")
    assert "columns 2 (en) and 3 (de)" in shown.stdout


def test_a_shift_is_never_called_line_aligned(corpus):
    """As many lines on both sides, but those of one side are shifted."""
    pairs = plant.sentences(1500)
    Path("train.en").write_text("".join(f"{source}\n" for source, _ in pairs), encoding="utf-8")
    targets = [target for _, target in pairs]
    Path("train.de").write_text("\n".join([*targets[:700], *targets[701:], targets[0]]) + "\n", encoding="utf-8")
    shown = run(app, ["check", "train.en", "train.de"])
    assert shown.exit_code == 3
    assert "from here on the two sides are not translations" in shown.stdout
    assert "line-aligned" not in shown.stdout
    assert "parallel throughout" not in shown.stdout


@pytest.mark.parametrize(
    ("pair", "languages"),
    [("en-de", ("en", "de")), ("en-pt-BR", ("en", "pt-BR")), ("en-US-pt_BR", ("en-US", "pt_BR")),
     ("EN-DE", ("EN", "DE")), ("source-target", ("source", "target")), ("zh-Hans-en", ("zh-Hans", "en"))],
)  # fmt: skip
def test_a_pair_is_split_at_the_right_dash(pair, languages):
    assert find_languages(["x"], pair) == languages

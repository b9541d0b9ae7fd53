"""`heedful evaluate` as a user types it."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
from typer.testing import CliRunner

from heedful.cli.app import app

run = CliRunner().invoke
SOURCES = ["Ein Hund rennt.", "Zwei Männer sitzen.", "Sie liest.", "Niemand ist da."] * 5
REFERENCES = ["A dog is running.", "Two men are sitting.", "She is reading.", "Nobody is there."] * 5
OUTPUTS = ["A dog runs.", "Two men are sitting.", "She is reading.", "There are some people."] * 5
CAT = ("рыжий кот прилег на лавку", "кот лежит на лавке", "на лавку легла кошка")


def write(name: str, lines: list[str]) -> None:
    Path(name).write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write("test.de", SOURCES)
    write("test.en", REFERENCES)
    write("out.en", OUTPUTS)
    return tmp_path


def test_the_table_has_sacrebleu_s_numbers_intervals_and_signatures(files):
    shown = run(app, ["evaluate", "out.en", "test.en"])
    assert shown.exit_code == 0, shown.output
    for metric in (sacrebleu.BLEU(), sacrebleu.CHRF(), sacrebleu.TER()):
        found = metric.corpus_score(OUTPUTS, [REFERENCES], n_bootstrap=1000)
        assert f"{found.score:.2f}   {found._mean - found._ci:.2f} to {found._mean + found._ci:.2f}" in shown.stdout
        assert str(metric.get_signature()) in shown.stdout
    assert "TER (lower is better)" in shown.stdout
    assert "20 lines against test.en" in shown.stdout
    assert "Next: heedful evaluate out.en test.en --worst 10" in shown.stdout
    assert shown.stderr == ""


def test_several_references_packed_files_and_options(files):
    write("other.en", [line.upper() for line in OUTPUTS])
    Path("out.en.gz").write_bytes(gzip.compress(Path("out.en").read_bytes()))
    options = ["--metric", "bleu", "--metric", "exact,rouge-l", "--lowercase", "--tokenize", "intl", "--samples", "50"]
    shown = run(app, ["evaluate", "out.en.gz", "test.en", "other.en", *options])
    assert shown.exit_code == 0, shown.output
    assert "20 lines against 2 references" in shown.stdout
    assert "nrefs:2|bs:50|seed:12345|case:lc|eff:no|tok:intl|smooth:exp" in shown.stdout
    assert shown.stdout.count("100.00   100.00 to 100.00") == 3


def test_the_worst_lines_and_those_of_every_length(files):
    shown = run(app, ["evaluate", "out.en", "test.en", "--source", "test.de", "--worst", "1", "--by-length"])
    assert "line 4   chrF" in shown.stdout
    for text in ("Niemand ist da.", "Nobody is there.", "There are some people."):
        assert text in shown.stdout
    assert "0 to 10       20" in shown.stdout
    assert "Next: heedful evaluate out.en test.en --explain 4" in shown.stdout


def test_json_is_json(files):
    arguments = ["evaluate", "out.en", "test.en", "--source", "test.de", "--worst", "2", "--by-length", "--json"]
    found = json.loads(run(app, arguments).stdout)
    assert found["lines"] == 20
    assert [one["name"] for one in found["scores"]] == ["bleu", "chrf", "ter"]
    assert found["scores"][0]["value"] == sacrebleu.corpus_bleu(OUTPUTS, [REFERENCES]).score
    assert found["scores"][0]["signature"].startswith("nrefs:1|bs:1000")
    assert found["worst"][0] == found["worst"][1] | {"line": 4}
    assert found["worst"][0]["source"] == "Niemand ist da."
    assert [one["lines"] for one in found["by_length"]] == [20]
    assert found["warnings"] == []


def test_explain_shows_the_worked_values(files):
    for name, line in zip(("cat", "lay", "bench"), CAT, strict=True):
        write(name, ["", line])
    shown = run(app, ["evaluate", "cat", "lay", "bench", "--explain", "2"])
    assert shown.exit_code == 0, shown.output
    for part in (*CAT, "3/5", "1/4", "= 38.7298   sacreBLEU: 38.7298", "= 23.6435   sacreBLEU: 23.6435"):
        assert part in shown.stdout
    found = json.loads(run(app, ["evaluate", "cat", "lay", "bench", "--explain", "2", "--json"]).stdout)
    bleu, chrf, *_, meteor = found["explained"]
    assert bleu["value"] == pytest.approx(bleu["library"], abs=1e-9)
    assert (round(chrf["value"], 2), round(meteor["value"], 2)) == (37.23, 45.73)
    russian = ["evaluate", "cat", "lay", "bench", "--explain", "2", "--stemmer", "russian"]
    assert "METEOR (stems: russian, no synonyms)" in run(app, russian).stdout
    assert "P = 3/5   R = 3/4" in run(app, russian).stdout  # лавку and лавке have one stem


def test_meteor_nist_and_cider_are_metrics(files):
    arguments = ["evaluate", "out.en", "test.en", "--metric", "meteor,nist,cider", "--stemmer", "english"]
    shown = run(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert "METEOR  nrefs:1|bs:1000|seed:12345|case:lc|tok:13a|stem:english|syn:no" in shown.stdout
    assert shown.stdout.rstrip().endswith("--worst 10 --stemmer english")
    shown = run(app, ["compare", "test.en", "out.en", "test.en", *arguments[3:]])
    assert shown.exit_code == 0, shown.output
    assert all(name in shown.stdout for name in ("METEOR", "NIST", "CIDEr"))


def test_text_written_otherwise_is_warned_of(files):
    write("tokenized.en", [line.replace(".", " .") for line in OUTPUTS])
    shown = run(app, ["evaluate", "tokenized.en", "test.en", "--metric", "chrf"])
    assert shown.exit_code == 0
    assert "heedful: warning: the translations look tokenized" in shown.stderr
    found = json.loads(run(app, ["evaluate", "tokenized.en", "test.en", "--metric", "chrf", "--json"]).stdout)
    assert len(found["warnings"]) == 1


def test_hostile_text_is_shown_as_text(files):
    write("evil.en", ["\x1b[2J[bold]\u202eowned"] * 20)
    shown = run(app, ["evaluate", "evil.en", "test.en", "--metric", "chrf", "--worst", "1"])
    assert shown.exit_code == 0
    assert r"\x1b[2J[bold]\u202eowned" in shown.stdout
    assert not set("\x1b\u202e") & set(shown.stdout)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["short.en", "test.en"], 3, "short.en has 19 lines and test.en has 20"),
        (["out.en", "test.en", "--source", "short.en"], 3, "test.en has 20 lines and short.en has 19"),
        (["empty.en", "test.en"], 3, "empty.en is empty"),
        (["oot.en", "test.en"], 3, "there is no file oot.en; did you mean `out.en`?"),
        (["latin.en", "test.en"], 3, "latin.en:1: not UTF-8 at byte 2; fix the line, or save the file as UTF-8"),
        (["pt-en", "test.en"], 2, "pt-en is a model: add the text to translate"),
        (["model", "test.en"], 1, "there is no model in"),
        (["out.en", "test.en", "--metric", "belu"], 1, "unknown metric `belu`; did you mean `bleu`?"),
        (["out.en", "test.en", "--metric", ""], 1, "unknown metric ``; known: accuracy, bleu, chrf,"),
        (["out.en", "test.en", "--metric", "chrf", "--tokenize", "13b"], 1, "unknown tokenization `13b`"),
        (["out.en", "test.en", "--smooth", "expo"], 1, "unknown smoothing `expo`; did you mean `exp`?"),
        (["out.en", "test.en", "--stemmer", "greekk"], 1, "unknown stemmer `greekk`; did you mean `greek`?"),
        (["out.en", "test.en", "--explain", "21"], 1, "--explain 21: choose a line from 1 to 20"),
        (["out.en", "test.en", "--explain", "0"], 1, "choose a line from 1 to 20"),
    ],
)
def test_mistakes_are_one_helpful_line(files, arguments, code, says):
    write("short.en", OUTPUTS[1:])
    write("empty.en", [])
    Path("latin.en").write_bytes("über\n".encode("latin-1").replace(b"\xfc", b"a\xfc"))
    Path("model").mkdir()
    command = [sys.executable, "-m", "heedful", "evaluate", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, env=os.environ | {"COLUMNS": "100"}
    )
    assert done.returncode == code, done.stderr
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr

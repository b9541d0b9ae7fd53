"""`heedful translate` as a pipe: one line in, one line out, whatever the lines are."""

import json
import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from heedful.cli.app import app
from heedful.corpus.text_files import STRUCTURED_FORMATS
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.training.api import train
from support.timeouts import PATIENCE
from support.training_runs import settings_of, write_corpus

LINES = [b"a red house", b"", b"the old man\r", b"\xff\xfe", "ein 🐶 \u2028 x".encode(), b" ", b"the dog " * 900]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = write_corpus(tmp_path_factory.mktemp("translate"), pairs=120)
    pieces = {"kind": "bpe", "vocab_size": 330}
    return str(train(settings_of(folder, folder / "run", tokenizer=pieces, steps=150)))


def translated(model, text, *options):
    """The result of a command in this process, which starts faster."""
    return CliRunner().invoke(app, ["translate", model, *options], input=text)


def piped(model, text, *options):
    command = [sys.executable, "-m", "heedful", "translate", model, *options]
    return subprocess.run(command, input=text, capture_output=True, check=False)


def test_as_many_lines_come_out_as_went_in(model):
    done = piped(model, b"\n".join(LINES) + b"\n", "--beam", "1")
    assert done.returncode == 0, done.stderr
    found = done.stdout.split(b"\n")
    assert len(found) == len(LINES) + 1
    assert [bool(line) for line in found[:3]] == [True, False, True]
    assert b"line 4 is not UTF-8" in done.stderr
    assert b"Traceback" not in done.stderr


def test_the_last_line_may_lack_its_end(model):
    assert translated(model, b"a red house").stdout == translated(model, b"a red house\n").stdout
    assert translated(model, b"").stdout == ""


def test_text_is_utf_8_whatever_the_terminal_says(model):
    command = [sys.executable, "-m", "heedful", "translate", model, "--prefix", "größer"]
    done = subprocess.run(
        command, input=b"the dog\n", capture_output=True, check=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert done.stdout.decode().startswith("größer")


def test_lines_are_answered_as_they_come(model):
    command = [sys.executable, "-m", "heedful", "translate", model]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        for text in (b"the dog\n", b"a red house\n"):
            process.stdin.write(text)
            process.stdin.flush()
            assert process.stdout.readline().strip()
        process.stdin.close()
        assert process.wait(PATIENCE) == 0


def test_nobody_who_reads_on_is_no_error(model, tmp_path):
    (tmp_path / "many").write_bytes(b"the dog\n" * 20_000)
    command = [sys.executable, "-m", "heedful", "translate", model, str(tmp_path / "many"), "--beam", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert [process.stdout.readline().strip() for _ in range(5)]
        process.stdout.close()
        said = process.stderr.read()
        assert process.wait(PATIENCE) == 0, said
    assert b"Traceback" not in said
    assert b"BrokenPipe" not in said


def test_the_n_best_are_as_marian_writes_them(model):
    found = translated(model, b"a red house\nthe dog\n", "--nbest", "3").stdout.splitlines()
    fields = [line.split(" ||| ") for line in found]
    assert [int(number) for number, *_ in fields] == [0, 0, 0, 1, 1, 1]
    assert all(len(some) == 4 and some[2].startswith("F0= ") for some in fields)
    scores = [float(some[3]) for some in fields]
    assert scores[:3] == sorted(scores[:3], reverse=True)


def test_links_and_json(model):
    text, links = translated(model, b"a red house\n", "--alignment", "shifted").stdout.strip().split(" ||| ")
    assert len(links.split()) == len(text.split())
    assert all(int(one.split("-")[0]) < 3 for one in links.split())
    weights = translated(model, b"a red house\n", "--alignment", "shifted", "--soft").stdout.strip().split(" ||| ")
    assert [len(row.split(",")) for row in weights[1].split()] == [3] * len(text.split())
    found = json.loads(translated(model, b"a red house\n", "--json", "--nbest", "2", "--alignment", "naive").stdout)
    assert found["text"] == text
    assert len(found["alternatives"]) == 1
    assert {"text", "log_probability"} == set(found["tokens"][0])
    assert found["alignment"][0][1] == 0


def test_a_memory_is_filled(model, tmp_path):
    units = [
        '<tu tuid="1"><tuv xml:lang="en-GB"><seg>a <hi>red</hi> house</seg></tuv></tu>',
        '<tu tuid="2"><tuv xml:lang="en"><seg>the dog</seg></tuv><tuv xml:lang="de"><seg>der Hund</seg></tuv></tu>',
        '<tu tuid="3"><tuv xml:lang="fr"><seg>le chien</seg></tuv></tu>',
        '<tu tuid="4"><tuv xml:lang="en"><seg>the\n  dog</seg></tuv><tuv xml:lang="de"><seg> </seg></tuv></tu>',
        '<tu tuid="5"><tuv xml:lang="en"><seg> </seg></tuv></tu>',
    ]
    (tmp_path / "in.tmx").write_text(f'<tmx version="1.4"><header/><body>{"".join(units)}</body></tmx>')
    done = translated(model, b"", "--tmx", str(tmp_path / "in.tmx"), str(tmp_path / "out.tmx"))
    assert done.exit_code == 0, done.output
    assert "2 units translated, 2 already had a translation, 1 have no text in en" in done.stderr
    found = ElementTree.parse(tmp_path / "out.tmx").getroot().findall("body/tu")
    texts = [["".join(seg.itertext()) for seg in unit.iter("seg")] for unit in found]
    assert [unit.get("tuid") for unit in found] == ["1", "2", "3", "4", "5"]
    assert texts[0][0] == "a red house"
    assert texts[0][1] == translated(model, b"a red house\n").stdout.strip()
    assert texts[1:3] == [["the dog", "der Hund"], ["le chien"]]
    assert texts[3] == ["the\n  dog", translated(model, b"the dog\n").stdout.strip()]
    assert texts[4] == [" "]
    again = translated(model, b"", "--tmx", str(tmp_path / "out.tmx"), str(tmp_path / "again.tmx"))
    assert "0 units translated, 4 already had" in again.stderr
    (tmp_path / "broken.tmx").write_text("<tmx><body><tu>")
    broken = translated(model, b"", "--tmx", str(tmp_path / "broken.tmx"), str(tmp_path / "never.tmx"))
    assert isinstance(broken.exception, DataError)
    assert not list(tmp_path.glob("never*"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["no-such-file"], "there is no file no-such-file"),
        (["--top-k", "5"], "need --sample: add --sample"),
        (["--alignment-threshold", "0.5"], "need --alignment: add"),
        (["--soft"], "need --alignment: add"),
        (["--soft", "--alignment-threshold", "0.5", "--alignment", "naive"], "use only one of the two options"),
        (["--sample", "--temperature", "0"], "at least"),
        (["--device", "gpu"], "device `gpu` is not available"),
        (["--device", "meta"], "device `meta` is not available"),
        (["--threads", "100000"], "between 1 and 1,024"),
        (["--nbest", "0"], "must be at least 1"),
        (["--sample", "--beam", "5"], "need beam search"),
        (["--json", "--tmx", "a.tmx", "b.tmx"], "reads and writes translation memories"),
        (["--beam", "0"], "must be at least 1"),
        (["--alignment", "nave"], "naive"),
        (["--tmx", "none.tmx", "out.tmx"], "there is no file none.tmx"),
    ],
)
def test_misuse_is_answered_in_words(model, options, told):
    result = CliRunner().invoke(app, ["translate", model, *options], input="a\n")
    assert isinstance(result.exception, HeedfulError)
    assert told in str(result.exception)


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.gz", b"x", "is compressed; decompress it with: zcat"),
        ("a.txt", b"\xff\xfea\0", "UTF-16"),
        ("a.txt", b"text\n" * 9 + b"\0", "a.txt is not text: it has zero bytes"),
        ("a.tmx", b"<tmx/>", "translate it with: --tmx"),
        *((f"a{suffix.upper()}", b"x\n", "would be translated as words") for suffix in STRUCTURED_FORMATS),
    ],
)
def test_a_file_of_the_wrong_kind(model, tmp_path, name, data, told):
    (tmp_path / name).write_bytes(data)
    result = CliRunner().invoke(app, ["translate", model, str(tmp_path / name)])
    assert told in str(result.exception)


def test_a_structured_file_as_text(model, tmp_path):
    (tmp_path / "a.srt").write_bytes(b"the dog\n")
    done = translated(model, b"", str(tmp_path / "a.srt"), "--as-text")
    assert done.stdout == translated(model, b"the dog\n").stdout
    for path, options, exit_code in (("b", [], 2), ("b", ["--as-text"], 0)):
        bulk = ["--bulk", str(tmp_path / "a.srt"), str(tmp_path / path), "--workers", "1", *options]
        result = translated(model, b"", *bulk)
        assert isinstance(result.exception, ConfigError) == (exit_code == 2), result.output
    assert (tmp_path / "b").read_text() == done.stdout


def test_progress_is_shown_inside_a_long_line(model, monkeypatch):
    monkeypatch.setattr("heedful.cli.streams.PROGRESS_SECONDS", 0.0)
    done = translated(model, b"the dog. " * 2000, "--beam", "1")
    counts = re.findall(r"0 lines; of the next lines, ([\d,]+) of ([\d,]+) segments", done.stderr)
    assert len(counts) > 3
    assert len({total for _, total in counts}) == 1
    assert counts == sorted(counts, key=lambda pair: int(pair[0].replace(",", "")))


def test_a_folder_without_a_model(tmp_path):
    result = CliRunner().invoke(app, ["translate", str(tmp_path)], input="a\n")
    assert isinstance(result.exception, HeedfulError)


def test_a_model_is_scored_and_compared_without_files(model, tmp_path):
    (tmp_path / "en").write_text("a red house\nthe dog\nthe old man\n")
    (tmp_path / "de").write_text("ein rot haus\ndas hund\ndas alt mann\n")
    (tmp_path / "old").write_text("ein haus\nhund\nmann\n")
    (tmp_path / "gold").write_text("0-0 1-1 2-2\n0-0 1-1\n0-0 1p1 2-2\n")
    texts = [str(tmp_path / "de"), "--source", str(tmp_path / "en")]
    done = CliRunner().invoke(app, ["evaluate", model, *texts, "--samples", "50"])
    assert done.exit_code == 0, done.output
    assert "perplexity" in done.stdout
    assert "weights" in done.stdout
    told = json.loads(CliRunner().invoke(app, ["evaluate", model, *texts, "--samples", "50", "--json"]).stdout)
    assert told["perplexity"] > 1
    assert told["model"]["weights"] > 1000
    compared = [str(tmp_path / "de"), str(tmp_path / "old"), model, *texts[1:], "--samples", "50"]
    page = tmp_path / "compare.html"
    done = CliRunner().invoke(app, ["compare", *compared, "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert "lines per second on this machine" in done.stdout
    assert "lines a second" in page.read_text(encoding="utf-8")
    done = CliRunner().invoke(app, ["evaluate", model, *texts, "--gold", str(tmp_path / "gold")])
    assert done.exit_code == 0, done.output
    assert all(way in done.stdout for way in ("naive", "shifted", "best"))
    (tmp_path / "links").write_text("0-0 1-1 2-2\n0-0 1-1\n0-0 2-2\n")
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "links"), "--gold", str(tmp_path / "gold"), "--json"])
    assert json.loads(done.stdout)[str(tmp_path / "links")] == {"precision": 1.0, "recall": 1.0, "aer": 0.0}

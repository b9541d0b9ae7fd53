"""`heedful compare` as a user types it, and the page it writes."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heedful.cli.app import app
from support.browser_pages import BROWSER, Reader, dump_dom

run = CliRunner().invoke
SOURCES = ["Ein Hund rennt.", "Zwei Männer sitzen.", "Sie liest.", "Niemand ist da."] * 10
REFERENCES = ["A dog is running.", "Two men are sitting.", "She is reading.", "Nobody is there."] * 10
OLD = ["A dog runs.", "Two men are sitting.", "She reads.", "There are some people."] * 10
NEW = ["A dog is running.", "Two men are sitting.", "He reads.", "Nobody is here."] * 10
PAYLOAD = '</script></title><img src=x onerror="document.title=1"><script>document.title="owned"</script>\u202e\x1b[2J'


def write(name: str, lines: list[str]) -> None:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, lines in (("test.de", SOURCES), ("test.en", REFERENCES), ("old.en", OLD), ("new.en", NEW)):
        write(name, lines)
    return tmp_path


def test_scores_p_values_wins_and_what_changed(files):
    shown = run(app, ["compare", "test.en", "old.en", "new.en", "--source", "test.de", "--most", "1"])
    assert shown.exit_code == 0, shown.output
    assert "each system against old.en" in shown.stdout
    assert re.search(r"new\.en +\d+\.\d\d +\d+\.\d\d to \d+\.\d\d +\+\d+\.\d\d +< 0\.001  better", shown.stdout)
    assert "20 better, 10 worse, 10 equal (10 identical)" in shown.stdout
    assert "word 3 is the first that differs" in shown.stdout
    assert "Ein Hund rennt." in shown.stdout
    assert "nrefs:1|bs:1000|seed:12345" in shown.stdout
    assert "Next: heedful compare test.en old.en new.en --source test.de --out compare.html" in shown.stdout


def test_json_is_json_and_has_every_line(files):
    arguments = [
        "compare",
        "test.en",
        "old.en",
        "new.en",
        "--names",
        "a,b",
        "--test",
        "ar",
        "--samples",
        "200",
        "--json",
    ]
    found = json.loads(run(app, arguments).stdout)
    assert [(one["name"], one["system"]) for one in found["scores"]] == [
        ("bleu", "a"),
        ("bleu", "b"),
        ("chrf", "a"),
        ("chrf", "b"),
    ]
    assert "ar:200" in found["scores"][0]["signature"]
    (rival,) = found["rivals"]
    assert rival["tally"] == {"wins": 20, "losses": 10, "ties": 10, "same": 10}
    assert sum(rival["spread"].values()) == len(rival["lines"]) == 40
    assert rival["lines"][0]["place"] == 3


def test_several_references_and_systems(files):
    write("more.en", NEW)
    arguments = ["compare", "test.en", "old.en", "new.en", "test.en", "--reference", "more.en", "--metric", "chrf"]
    shown = run(app, arguments)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.count("100.00  100.00 to 100.00") == 2
    assert "nrefs:2" in shown.stdout
    assert "reference 2" in shown.stdout


def test_systems_are_called_by_what_tells_them_apart(files):
    write("one/out.en", OLD)
    write("two/out.en", NEW)
    arguments = ["compare", "test.en", "one/out.en", "two/out.en", "--metric", "chrf", "--json"]
    found = json.loads(run(app, arguments).stdout)
    assert [one["system"] for one in found["scores"]] == ["one/out.en", "two/out.en"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["old.en"], "pass at least two systems"),
        (["old.en", "old.en"], "two systems have the same name: set different names"),
        (["old.en", "new.en", "--names", "a"], "--names a: 1 names for 2 systems"),
        (["old.en", "new.en", "--names", "a,a"], "two systems have the same name: set different names"),
        (["old.en", "new.en", "--test", "xx"], "unknown test `xx`"),
        (["old.en", "."], ". is a model: add the text to translate"),
        (["old.en", "short.en"], "short.en has 39 lines and test.en has 40"),
    ],
)
def test_mistakes_are_told(files, arguments, says):
    write("short.en", NEW[1:])
    done = run(app, ["compare", "test.en", *arguments])
    assert done.exit_code != 0
    assert says in str(done.exception)


# ------------------------------------------------------------------------------------------------ the page


def test_the_page_tells_all_of_it(files):
    shown = run(app, ["compare", "test.en", "old.en", "new.en", "--source", "test.de", "--out", "compare.html"])
    assert "Next: open compare.html" in shown.stdout
    text = Path("compare.html").read_text(encoding="utf-8")
    told = "".join(Reader(text).texts)
    for part in ("new.en against old.en", "< 0.001", "better", "nrefs:1|bs:1000|seed:12345", "Niemand ist da."):
        assert part in told
    assert "<mark><b>is</b></mark> " in text  # the first word that differs; the reference has it too
    assert text.count("<rect") == 9
    assert text.count("<circle") == 2
    assert not list(files.glob(".tmp-*"))


def test_the_page_warns_too(files):
    write("odd.en", [line.replace(".", " .") for line in NEW])
    shown = run(app, ["compare", "test.en", "old.en", "odd.en", "--metric", "chrf", "--out", "compare.html"])
    warning = "odd.en: the translations look tokenized"
    assert f"heedful: warning: {warning}" in shown.stderr
    assert f'<p class="warning">{warning}' in Path("compare.html").read_text(encoding="utf-8")


@pytest.fixture
def hostile(files):
    write("old.en", [PAYLOAD, *OLD[1:]])
    write("test.en", [f"{PAYLOAD} and more", *REFERENCES[1:]])
    names = f"old,{PAYLOAD.replace(',', '')}"
    done = run(app, ["compare", "test.en", "old.en", "new.en", "--names", names, "--out", "compare.html"])
    assert done.exit_code == 0, done.output
    assert not set("\u202e\x1b") & set(done.stdout)
    return Path("compare.html").absolute()


def test_hostile_text_is_only_text(hostile):
    text = hostile.read_text(encoding="utf-8")
    read = Reader(text)
    assert read.tags.count("script") == 1
    assert "<script></script>" in text
    assert "img" not in read.tags
    assert not [name for name, _ in read.attributes if name.startswith("on") or name in ("src", "href", "style")]
    assert "".join(read.texts).count('<script>document.title="owned"') >= 5
    assert not set("\u202e\x1b") & set(text)
    assert not re.search(r"https?:|//\w|url\(|@import", text)
    (policy,) = (value for _, value in read.attributes if value and value.startswith("default-src 'none'"))
    assert "unsafe" not in policy


@pytest.mark.skipif(BROWSER is None, reason="no chromium here")
def test_no_browser_runs_hostile_text(hostile, tmp_path):
    shown = dump_dom(hostile, tmp_path)
    assert "<title>owned" not in shown
    assert "against old</title>" in shown

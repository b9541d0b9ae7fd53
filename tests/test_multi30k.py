"""The table of Multi30k is made of what was kept: its metric is the literature's, and pages show what it says."""

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("HEEDFUL_DATA", ROOT.parent / "shared" / "data")) / "multi30k"
KEPT = ROOT / "benchmarks" / "results" / "multi30k"
TABLE = ROOT / "benchmarks" / "results" / "multi30k.txt"
SCORES = re.compile(r"^(\w.{43}) *(\d+\.\d\d) +(\d+\.\d\d) +(\d+\.\d\d)   ", re.M)


@pytest.fixture(scope="module")
def printed():
    if not DATA.is_dir():
        pytest.skip(f"no {DATA}: set HEEDFUL_DATA")
    pytest.importorskip("sacremoses", reason="sacremoses is not installed: pip install 'heedful[dev]'")
    command = [sys.executable, ROOT / "benchmarks" / "multi30k.py", "--quick"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.mark.slow
@pytest.mark.parametrize(("test", "tokens"), [("test2016", 12103), ("test2017", 10758), ("mscoco", 5158)])
def test_metric_a_is_the_literatures(printed, test, tokens):
    assert f"# {test}.de: {tokens} tokens; our form differs from the literature's in 0 lines" in printed


@pytest.mark.slow
def test_scores_are_those_of_the_kept_translations(printed):
    assert SCORES.findall(printed) == SCORES.findall(TABLE.read_text(encoding="utf-8"))


def test_the_table_has_every_row_that_was_kept_and_the_page_shows_it():
    rows = SCORES.findall(TABLE.read_text(encoding="utf-8"))
    assert len(rows) == len(list(KEPT.glob("*/about.txt"))) > 0
    page = (ROOT / "docs" / "multi30k.md").read_text(encoding="utf-8")
    for row in rows:
        assert "| " + " | ".join(cell.strip() for cell in row) + " |" in page
    seeds = [float(first) for what, first, *_ in rows if what.startswith("transformer-tiny, seed")]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"{mean(seeds):.1f} BLEU on test2016" in readme
    assert f"(three seeds, {min(seeds):.2f} to {max(seeds):.2f})" in readme
    scores = {what.strip(): float(first) for what, first, *_ in rows}
    assert f"{scores['seed 1, then 90 minutes with agreement']:.1f} after two and a half hours" in readme
    assert f"{scores['the three seeds of transformer-tiny together']:.1f} with an ensemble of the three seeds" in readme


def test_no_sentence_of_the_corpus_is_kept():
    """Its license does not allow it. What models made of it, even where it is the same, is theirs."""
    if not DATA.is_dir():
        pytest.skip(f"no {DATA}: set HEEDFUL_DATA")
    corpus = {line for file in DATA.glob("*.gz") for line in gzip.decompress(file.read_bytes()).decode().split("\n")}
    long = {line for line in corpus if len(line) > 30}
    assert len(long) > 50_000
    paths = [path for path in KEPT.parent.rglob("*") if path.name == "log" or path.suffix in (".txt", ".jsonl")]
    assert len(paths) > 20
    for path in paths:
        printed = re.sub(r"^\S+ \S+ +output  .*", "", path.read_text(encoding="utf-8"), flags=re.M)
        shown = {part.strip() for part in re.split(r'\n|  +|"', printed)}
        assert not long & shown, path

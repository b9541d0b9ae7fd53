"""The table of Multi30k: its metric A is the literature's."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("HEEDFUL_DATA", ROOT.parent / "shared" / "data")) / "multi30k"


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

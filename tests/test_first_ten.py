"""The first ten minutes in short: every command of the storyline, with trainings of seconds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "first_ten_minutes"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the commands are typed for a shell of Linux or macOS")
def test_the_storyline(tmp_path):
    pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'heedful[serve]'")
    command = [sys.executable, SCRIPT, "--here", "--quick"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "chrF" in done.stdout

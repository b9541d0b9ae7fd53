"""Our beam gives the n-best lists and scores of the real CTranslate2 and Hugging Face, in each one's conventions."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.timeouts import PATIENCE


@pytest.mark.parametrize("engine", ["ctranslate2", "transformers"])
def test_the_same_answers_as_the_real_engine(engine):
    if find_spec(engine) is None:
        pytest.skip(f"{engine} is not installed: pip install 'heedful[dev]'")
    # A process of its own: a second OpenMP runtime in this one would slow every test after it.
    run = subprocess.run(
        [sys.executable, Path(__file__).with_name("conventions.py"), engine],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("60 of 60 n-best lists equal") == 6

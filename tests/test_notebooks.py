"""The notebooks of docs/ run from top to bottom, and what is kept in them is whole and of no one machine."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed: pip install 'heedful[dev]'")

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
NAMES = (
    *("attention-step-by-step", "captions", "decoding-strategies"),
    *("language-models-and-sampling", "rnn-against-transformer", "speech-and-ctc"),
)

# In a process of its own: a kernel's client leaves sockets and loops behind, about which pytest is rightly strict.
RUN = """
import sys
import nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=1200, kernel_name="python3", resources={"metadata": {"path": sys.argv[2]}}).execute()
"""


def test_they_are_all_there():
    assert tuple(path.stem for path in NOTEBOOKS) == NAMES
    index = (ROOT / "docs" / "notebooks" / "index.md").read_text(encoding="utf-8")
    assert all(f"{{download}}`{name}.ipynb`" in index for name in NAMES)
    assert all(f"]({name}.ipynb)" in index and f"\n{name}\n" in index for name in NAMES)  # a link, and the toctree


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_was_run(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.metadata.kernelspec.name) == (4, "python3")
    assert 15 <= len(notebook.cells) <= 30
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert "## What to try next" in notebook.cells[-1].source
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))  # once, from top to bottom
    assert sum(bool(cell.outputs) for cell in code) > len(code) / 2
    outputs = [output for cell in code for output in cell.outputs]
    assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_of_no_one_machine(path):
    text = path.read_text(encoding="utf-8")
    assert len(text) < 200_000
    assert not re.search(r"(?<![\w.:/])/(?:home|root|tmp|Users|work|var|opt|usr)/|[A-Z]:\\\\\\\\", text)
    tree = json.loads(text)
    assert set(tree["metadata"]) == {"kernelspec", "language_info"}
    assert all(cell["metadata"] == {} for cell in tree["cells"])  # no times


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_point_to_each_other(path):
    for name in re.findall(r"\]\(([\w-]+\.ipynb)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / name).is_file()


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", RUN, str(path), str(tmp_path)], capture_output=True, text=True, timeout=1500, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]

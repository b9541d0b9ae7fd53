"""What is installed: the same bytes every time, all of it, and no more."""

import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LARGEST = 30_000_000  # bytes


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    pytest.importorskip("build", reason="build is not installed: pip install 'heedful[dev]'")
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    for folder in folders:
        subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT], check=True)
    return folders


@pytest.mark.slow
def test_it_is_the_same_twice(built):
    one, two = ({path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()} for folder in built)
    assert len(one) == 2
    assert one == two


def test_twine_has_nothing_against_it(built):
    command = [sys.executable, "-m", "twine", "check", "--strict", *built[0].iterdir()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_it_has_what_the_commands_need_and_nothing_else(built):
    (wheel,) = built[0].glob("*.whl")
    assert wheel.stat().st_size < LARGEST
    names = zipfile.ZipFile(wheel).namelist()
    inside = {f"heedful/{path.relative_to(ROOT / 'src' / 'heedful').as_posix()}" for path in source_files()}
    recipes = {f"heedful/recipes/{path.name}" for path in (ROOT / "recipes").glob("*.toml")}
    assert inside | recipes == {name for name in names if ".dist-info/" not in name}


def source_files():
    tree = (ROOT / "src" / "heedful").rglob("*")
    return [path for path in tree if path.is_file() and "__pycache__" not in path.parts]

"""README and docs say only what works: every Python block is run, every file in the tree of CONTRIBUTING.md exists."""

import doctest
import math
import re
from pathlib import Path

import pytest

import heedful

ROOT = Path(__file__).parents[1]
MADE = {"reference", "_build"}  # from the code, when the site is built
DOCS = [path for path in sorted((ROOT / "docs").rglob("*.md")) if MADE.isdisjoint(path.relative_to(ROOT).parts)]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_python_block_runs(page, tmp_path, monkeypatch, capsys):
    """`output` after a block is what it prints; scripts/outputs writes it. In the lectures, no output is left out."""
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}  # blocks of a page build on each other
    pattern = r"```python\n(.*?)```(?:\n+```output\n(.*?)```)?"
    for number, (code, shown) in enumerate(re.findall(pattern, page.read_text(encoding="utf-8"), re.S), 1):
        exec(compile(code, f"{page.name}, block {number}", "exec"), space)
        printed = capsys.readouterr().out
        if shown or page.parent.name == "lectures":
            assert same_print(printed, shown), f"run scripts/outputs {page.stem}\n{printed}"


def same_print(one: str, other: str) -> bool:
    """Whether two texts differ in nothing but rounding and versions."""
    number = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?")
    shapes, values = [], []
    for text in (one, other):
        text = re.sub(r"version:[^ |\n]+", "version", text)
        shapes.append(number.sub("0", text).split())
        values.append([float(value.replace(",", "").strip() or 0) for value in number.findall(text)])
    return shapes[0] == shapes[1] and all(
        math.isclose(first, second, rel_tol=0.02, abs_tol=0.011) for first, second in zip(*values, strict=True)
    )


def test_another_output_is_noticed():
    assert same_print("p = 0.451 of 1,000\n", "p = 0.45 of 1,000")
    assert not same_print("p = 0.451\n", "p = 0.47")
    assert not same_print("p = 0.45\n", "q = 0.45")
    assert not same_print("p = 0.45\n", "")


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "lectures").glob("*.md")), ids=lambda path: path.name)
def test_code_of_the_lectures_fits_the_page(page):
    text = page.read_text(encoding="utf-8")
    code = re.findall(r"```(?:python|output)\n(.*?)```", text, re.S)
    assert [line for block in code for line in block.splitlines() if len(line) > 79] == []


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "pycon")], ids=lambda path: path.name)
def test_every_session_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "\n".join(blocks(page, "pycon"))
    session = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    report: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    results = doctest.DocTestRunner(optionflags=flags).run(session, out=report.append)
    assert results.attempted, "no examples"
    assert not results.failed, "".join(report)


def test_the_library_page_begins_with_load():
    first = blocks(ROOT / "docs" / "library.md", "pycon")[0]
    assert first.splitlines()[1].startswith(">>> translator = heedful.load(")


def test_the_library_page_names_every_function():
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    functions = [name for name in heedful.__all__ if name.islower() and not name.startswith("_")]
    assert [name for name in functions if f"heedful.{name}" not in page] == []


def test_the_file_tree_is_the_tree():
    tree = blocks(ROOT / "CONTRIBUTING.md", "text")[0]
    named: set[str] = set()
    folders: list[tuple[int, str]] = []
    for line in tree.splitlines():
        indent, entry = len(line) - len(line.lstrip()), line.split()[0]
        while folders and folders[-1][0] >= indent:
            folders.pop()
        path = "/".join([*(folder for _, folder in folders), entry.rstrip("/")])
        assert (ROOT / path).exists(), f"{path} is in the tree of CONTRIBUTING.md but not on disk"
        if entry.endswith("/"):
            folders.append((indent, entry.rstrip("/")))
        named.add(path)
    real = {
        str(path.relative_to(ROOT)).replace("\\", "/")
        for path in (*(ROOT / "src" / "heedful").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py"))
        if path.name != "__init__.py"
    }
    assert real <= named, f"not in the tree of CONTRIBUTING.md: {sorted(real - named)}"


def test_no_page_names_a_file_that_is_not_there():
    for page in PAGES:
        for name in re.findall(r"`((?:src|tests|docs|scripts|benchmarks)/[\w./-]+)`", page.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_the_evening_path_has_the_lines_it_says():
    page = (ROOT / "docs" / "read-the-code.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d \| `(.+?)` \| (\d+) \|", page, re.M)
    lines = {name: len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name, _ in rows}
    assert {name: int(count) for name, count in rows} == lines
    total = f"{sum(lines.values()):,}"
    assert f"Together they have {total} lines" in page
    assert f"({total} in all" in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

"""Docs, docstrings, comments and messages use plain words: none of those that rule 3.2 of the style guide rejects."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ARCHAIC = re.compile(
    r"\b(anew|whoever|aloud|mend(s|ed|ing)?|stands?|stood|told|lies?|wish(es)?|hearts?|by itself|comes? along"
    r"|comes? again|for want of|as it comes|in vain|a while)\b",
    re.IGNORECASE,
)
# (file, words around the match) -> why it may stay.
ALLOWED: dict[tuple[str, str], str] = {}


def pages() -> list[Path]:
    """The prose files of the project."""
    docs = [
        path for path in (ROOT / "docs").rglob("*.md") if not {"_build", "reference"} & set(path.parts)
    ]  # generated
    return [*ROOT.glob("*.md"), *docs, *(ROOT / "recipes").glob("*.toml")]


def python_files() -> list[Path]:
    return [path for folder in ("src", "benchmarks", "docs/_ext") for path in (ROOT / folder).rglob("*.py")]


def prose_of_python(text: str) -> Iterator[tuple[int, str]]:
    """The comments and string literals of a module with their lines; docstrings and messages are literals."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def archaic_words(path: Path) -> list[str]:
    """Every archaic word in the file that no entry of ALLOWED covers."""
    text = path.read_text(encoding="utf-8")
    passages = list(prose_of_python(text)) if path.suffix == ".py" else list(enumerate(text.splitlines(), 1))
    name = path.relative_to(ROOT).as_posix()
    allowed = [words for (file, words) in ALLOWED if file == name]
    return [
        f"{name}:{line}: {match[0]!r} in {passage.strip()[:90]!r}"
        for line, passage in passages
        for match in ARCHAIC.finditer(passage)
        if not any(words in passage for words in allowed)
    ]


@pytest.mark.parametrize("path", [*pages(), *python_files()], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_prose_has_no_archaic_words(path):
    assert archaic_words(path) == []


def test_every_allowed_use_still_exists():
    for file, words in ALLOWED:
        assert words in (ROOT / file).read_text(encoding="utf-8"), f"{file} no longer contains {words!r}"


def test_an_archaic_word_is_found_in_docstrings_comments_and_messages():
    module = '"""Made anew."""\n# whoever comes\nraise ValueError(f"{1} is told")\n'
    assert [match for _, text in prose_of_python(module) if (match := ARCHAIC.search(text))]
    assert sum(bool(ARCHAIC.search(text)) for _, text in prose_of_python(module)) == 3

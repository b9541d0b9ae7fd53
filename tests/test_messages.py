"""Every error message that a user may get is quoted by a test, so that it was seen at least once."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "heedful"
NUM_WORDS = 3  # in a row that a test must quote, or all words of a shorter message
VARIABLE_PATTERN = r"[^\0]{1,60}?"  # what a test may quote in place of a variable
PROPER_NAMES = {"Argos", "Hugging", "Parquet"}
# A part of a message that no test can trigger -> why.
ALLOWED_UNTESTED: dict[str, str] = {}


class Message(NamedTuple):
    """Where a message is raised, and its constant parts."""

    place: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.place}: {' … '.join(part.strip() for part in self.parts)}"


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def error_names() -> set[str]:
    """HeedfulError, its subclasses, and functions that return one of them."""
    names = {"HeedfulError"}
    while True:
        before = len(names)
        for node in (node for path in modules() for node in ast.walk(parse(path))):
            match node:
                case ast.ClassDef(name=name, bases=bases) if any(ast.unparse(base) in names for base in bases):
                    names.add(name)
                case ast.FunctionDef(name=name, returns=ast.Name(id=returned)) if returned in names:
                    names.add(name)
        if len(names) == before:
            return names


def constant_parts(node: ast.AST) -> Iterator[str]:
    """The constant parts of a message in order; anything between them is an empty string."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=values):
            for value in values:
                yield from constant_parts(value) if isinstance(value, ast.Constant) else ("",)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from constant_parts(left)
            yield from constant_parts(right)
        case _:
            yield ""


@cache
def messages() -> list[Message]:
    """Every message with constant parts that is raised in src."""
    collected = []
    for path in modules():
        for node in ast.walk(parse(path)):
            match node:
                case ast.Raise(exc=ast.Call(func=function, args=[*_, text])):
                    if ast.unparse(function).rpartition(".")[2] not in error_names():
                        continue
                    whole = "".join(part or "\0" for part in constant_parts(text))
                    parts = tuple(part for part in whole.split("\0") if part.strip(" .,:;`()'\""))
                    if parts:
                        collected.append(Message(f"{path.relative_to(ROOT).as_posix()}:{node.lineno}", parts))
    return collected


@cache
def quoted_text() -> str:
    """All string literals of the tests except docstrings, without the backslashes of regular expressions."""
    texts = []
    for path in (ROOT / "tests").rglob("*.py"):
        if path == Path(__file__):
            continue
        statements = {id(node.value) for node in ast.walk(parse(path)) if isinstance(node, ast.Expr)}
        texts += [
            node.value
            for node in ast.walk(parse(path))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements
        ]
    return normalize_text("\n\0".join(texts))


def normalize_text(text: str) -> str:
    return re.sub(r"[ \n]+", " ", re.sub(r"\\([^\w\s])", r"\1", text))


def is_quoted(message: Message, text: str) -> bool:
    """Whether the text has NUM_WORDS words of the message in a row, with anything where the message has a variable."""
    words, gaps = [], []
    for part in message.parts:
        words += normalize_text(part).split()
        gaps += [" "] * (len(words) - len(gaps) - 1) + [VARIABLE_PATTERN]
    length = min(NUM_WORDS, len(words))
    for start in range(len(words) - length + 1):
        *run, last = words[start : start + length]
        pattern = "".join(re.escape(word) + gap for word, gap in zip(run, gaps[start:], strict=False))
        if re.search(pattern + re.escape(last.rstrip(",.:;`")), text):
            return True
    return False


def test_every_message_is_quoted_by_a_test():
    assert len(messages()) > 300
    untested = [message for message in messages() if not is_quoted(message, quoted_text())]
    unexpected = [str(message) for message in untested if not any(part in str(message) for part in ALLOWED_UNTESTED)]
    assert unexpected == []
    unneeded = [part for part in ALLOWED_UNTESTED if not any(part in str(message) for message in untested)]
    assert unneeded == [], "remove the entries of ALLOWED_UNTESTED that are not needed any more"


def test_the_search_for_quotes_can_fail():
    message = Message("here", ("--port ", " is reserved for the system: use a port above 1023"))
    assert is_quoted(message, r"--port 80 is reserved for the system")
    assert is_quoted(message, "--port 80 is reserved")
    assert not is_quoted(message, "port 80 is reserved by the system")
    assert is_quoted(Message("here", (" is empty",)), "a.txt is empty;")
    assert not is_quoted(Message("here", (" is empty",)), "a.txt is full")


def test_messages_begin_in_the_middle_of_a_sentence():
    """They follow `heedful: `; only proper names begin with a capital letter."""
    starts = {message: message.parts[0].lstrip() for message in messages()}
    assert [
        str(message)
        for message, start in starts.items()
        if re.match(r"[A-Z][a-z]+ ", start) and start.split()[0] not in PROPER_NAMES
    ] == []

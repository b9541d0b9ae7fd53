"""Every message that a user may meet is plain, and mentioned by a test.

python tests/test_messages.py        lists those that no test mentions
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "heedful"
KINDS = {"HeedfulError", "ConfigError", "DataError", "MissingExtra", "ProofError", "Damaged", "bundle_error"}
WORDS = 3  # in a row that a test must repeat
NAMES = {"Argos", "Parquet"}


class Message(NamedTuple):
    """Where it is raised, and what of it is the same each time."""

    place: str
    parts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.place}: {' … '.join(part.strip() for part in self.parts)}"


def literals(node: ast.AST) -> Iterator[str]:
    """The constant parts of a message, in order; a hole between them is an empty string."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=values):
            for one in values:
                yield from literals(one) if isinstance(one, ast.Constant) else ("",)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from literals(left)
            yield from literals(right)
        case _:
            yield ""


def messages() -> list[Message]:
    """All that src raises with words of its own."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Raise(exc=ast.Call(func=ast.Name(id=kind), args=[*_, text])) if kind in KINDS:
                    parts, whole = list(literals(text)), ""
                    for part in parts:
                        whole += part or "\0"
                    pieces = tuple(piece for piece in whole.split("\0") if piece.strip(" .,:;`()'\""))
                    if pieces:
                        found.append(Message(f"{path.relative_to(ROOT).as_posix()}:{node.lineno}", pieces))
    return found


def plain(text: str) -> str:
    """Without what a regular expression adds, in single spaces."""
    return re.sub(r"\s+", " ", re.sub(r"\\([^\w\s])", r"\1", text))


def mentioned(message: Message, tests: str) -> bool:
    """Whether some words in a row, or all there are, stand in a test."""
    for part in message.parts:
        words = plain(part).split()
        length = min(WORDS, len(words))
        if any(" ".join(words[at : at + length]).rstrip(",.:;`") in tests for at in range(len(words) - length + 1)):
            return True
    return False


def untested() -> list[Message]:
    tests = plain(" ".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")))
    return [message for message in messages() if not mentioned(message, tests)]


def test_messages_begin_in_the_middle_of_a_sentence():
    """As `heedful: ` stands before them; or with a name."""
    every = messages()
    assert len(every) > 200
    begins = {message: message.parts[0].lstrip() for message in every}
    assert [
        str(one) for one, begin in begins.items() if re.match(r"[A-Z][a-z]+ ", begin) and begin.split()[0] not in NAMES
    ] == []


if __name__ == "__main__":
    some = untested()
    print(*some, f"{len(some)} of {len(messages())} messages are mentioned by no test", sep="\n")

"""Every error a user may meet, and what to do about it.

    HeedfulError
    ├── MissingExtra    a part of heedful needs a package that is not installed
    ├── ConfigError     heedful.toml says something we cannot follow
    └── DataError       the corpus is not what it should be

Users get a `HeedfulError` that says what, where and what to do; a programmer who breaks a function's contract gets a
`ValueError` or an `AssertionError`. `exit_code` is what the command line ends with.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec


class HeedfulError(Exception):
    """The root of all errors meant for users."""

    exit_code = 1


class MissingExtra(HeedfulError, ImportError):
    """A part of heedful needs a package that a plain `pip install heedful` leaves out."""


class ConfigError(HeedfulError):
    """A configuration that cannot be followed: the key, what is wrong with it, and what would be right."""

    exit_code = 2


class DataError(HeedfulError):
    """A corpus that must not be trained on as it is."""

    exit_code = 3


def require(package: str, *, extra: str, whose: str) -> None:
    """Say the exact line that installs `package` when it is missing."""
    if find_spec(package) is None:
        raise MissingExtra(f"{whose} needs {package}, which is not installed. Type: pip install 'heedful[{extra}]'")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """What to append to an error: the nearest known word, or else all of them."""
    known = sorted(known)
    near = get_close_matches(word, known, n=1)
    return f"; did you mean `{near[0]}`?" if near else f"; known: {', '.join(known)}"

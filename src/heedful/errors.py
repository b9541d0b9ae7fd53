"""Errors that the command line shows to users.

    HeedfulError
    ├── MissingExtra          a part of heedful needs a package that is not installed
    ├── UnexpectedArgument    a function has no argument of that name
    ├── ConfigError           heedful.toml or an option is wrong
    └── DataError             the corpus is not usable

The message of a `HeedfulError` states what is wrong, where, and what to do. Incorrect calls of internal functions raise
`ValueError` or `AssertionError`. `exit_code` is the exit code of the command line.
"""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from importlib.util import find_spec
from inspect import signature
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class HeedfulError(Exception):
    """The base class of all errors for users."""

    exit_code = 1


class MissingExtra(HeedfulError, ImportError):
    """A package is missing that a plain `pip install heedful` does not install."""


class UnexpectedArgument(HeedfulError, TypeError):
    """A keyword argument that a public function does not have."""


class ConfigError(HeedfulError):
    """A wrong setting or option."""

    exit_code = 2


class DataError(HeedfulError):
    """A corpus that cannot be used for training."""

    exit_code = 3


def require(package: str, *, extra: str, whose: str) -> None:
    """Raise MissingExtra with the command that installs `package` if it is missing."""
    if find_spec(package) is None:
        raise MissingExtra(
            f"{whose} needs {package}, which is not installed. Install it with: pip install 'heedful[{extra}]'"
        )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of an error message: the most similar known word, or all known words."""
    known = sorted(known)
    similar = get_close_matches(word, known, n=1)
    return f"; did you mean `{similar[0]}`?" if similar else f"; known: {', '.join(known)}"


def suggest_arguments(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a function: an unexpected keyword argument raises UnexpectedArgument with the most similar name."""
    names = [name for name in signature(function).parameters if name != "self"]

    @wraps(function)
    def call(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Result:
        for name in keywords:
            if name not in names:
                raise UnexpectedArgument(f"unexpected argument `{name}`{did_you_mean(name, names)}")
        return function(*arguments, **keywords)

    return call


def renamed_message(what: str, old: str, new: str) -> str:
    """Return the error message for an old name; `what` is "key" or "option"."""
    return f"unknown {what} `{old}`; it is now `{new}`"

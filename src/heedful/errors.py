"""Every error a user may meet, and what to do about it.

    HeedfulError
    └── MissingExtra    a part of heedful needs a package that is not installed

Users get a `HeedfulError` that says what, where and what to do; a programmer who breaks a function's contract gets a
`ValueError` or an `AssertionError`.
"""

from importlib.util import find_spec


class HeedfulError(Exception):
    """The root of all errors meant for users."""


class MissingExtra(HeedfulError, ImportError):
    """A part of heedful needs a package that a plain `pip install heedful` leaves out."""


def require(package: str, *, extra: str, whose: str) -> None:
    """Say the exact line that installs `package` when it is missing."""
    if find_spec(package) is None:
        raise MissingExtra(f"{whose} needs {package}, which is not installed. Type: pip install 'heedful[{extra}]'")

"""The command `heedful`: one file per verb, each imported only when it is asked for."""

from heedful.cli.app import main

__all__ = ["main"]

"""The command `heedful`: one module per subcommand, with heavy imports inside functions so that --help is fast."""

from heedful.cli.app import main

__all__ = ["main"]

"""The command line: verbs, and what every one of them shares."""

import sys

import typer

from heedful import __version__
from heedful.cli.info import info
from heedful.errors import HeedfulError

app = typer.Typer(
    name="heedful",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="""Sequence-to-sequence learning with attention.

\b
  heedful info              what is installed, and what it allows
  heedful info --markdown   the same, to paste into a bug report
""",
)
app.command("info")(info)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"heedful {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Say the version and stop."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command; a user's mistake is one line on stderr and exit code 1, not a traceback."""
    try:
        app()
    except HeedfulError as error:
        typer.echo(f"heedful: {error}", err=True)
        sys.exit(1)

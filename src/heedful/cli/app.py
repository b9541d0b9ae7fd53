"""The command line: verbs, and what every one of them shares."""

import sys

import typer

from heedful import __version__
from heedful.cli.check import check
from heedful.cli.info import info
from heedful.cli.prepare import prepare
from heedful.errors import HeedfulError

app = typer.Typer(
    name="heedful",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="""Sequence-to-sequence learning with attention.

\b
  heedful check train.en train.de    what is wrong with these files, and what mends it
  heedful prepare heedful.toml       read, clean, deduplicate, shuffle, tokenise
  heedful info --markdown            what is installed, to paste into a bug report
""",
)
app.command("check")(check)
app.command("prepare")(prepare)
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
    """Run the command; a user's mistake is one line on stderr and the error's exit code, not a traceback."""
    try:
        app()
    except HeedfulError as error:
        typer.echo(f"heedful: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("heedful: interrupted", err=True)
        sys.exit(130)

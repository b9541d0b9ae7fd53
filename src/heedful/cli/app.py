"""The command line: verbs, and what every one of them shares."""

import errno
import re
import shlex
import sys
from io import TextIOWrapper
from typing import Any, NoReturn

import typer

from heedful import __version__
from heedful.cli.check import check
from heedful.cli.compare import compare
from heedful.cli.demo import demo
from heedful.cli.evaluate import evaluate
from heedful.cli.export import export
from heedful.cli.import_model import import_model
from heedful.cli.info import info
from heedful.cli.init import init
from heedful.cli.inspect import inspect
from heedful.cli.prepare import prepare
from heedful.cli.serve import serve
from heedful.cli.train import train
from heedful.cli.translate import translate
from heedful.errors import HeedfulError, did_you_mean
from heedful.text.normalize import escape_invisible

INTERRUPTED = 130  # what a shell says of Ctrl-C
ADVICE = {  # what to do where the system says no
    errno.EACCES: "you may not read or write there; name another place",
    errno.EPERM: "you may not read or write there; name another place",
    errno.EROFS: "nothing can be written there; name another place",
    errno.ENOSPC: "free some space, and type the same command again",
    errno.EDQUOT: "free some space, and type the same command again",
    errno.EISDIR: "name a file",
    errno.ENOTDIR: "name a folder",
    errno.EEXIST: "name another place",
    errno.ENOENT: "name one that is there",
}
TOO_MUCH = {
    "inspect": ": a sentence stands in quotes",
    "prepare": ": it reads one heedful.toml, which names the files",
    "translate": ": the text itself comes through a pipe, echo TEXT | heedful translate MODEL",
}
GOES_ON = {"prepare", "train", "--bulk"}  # what keeps what it has finished, and goes on from there
Mistyped: type[Any] = typer.BadParameter.__mro__[1]  # all that is wrong with the words of a command

app = typer.Typer(
    name="heedful",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help, in a third of the time
    help="""Sequence-to-sequence learning with attention.

\b
  heedful demo                       a translator that comes along, and what it looked at
  heedful init first --sample pt-en  a folder to train in, from your files or a sample
  heedful check train.en train.de    what is wrong with these files, and what mends it
  heedful prepare heedful.toml       read, clean, deduplicate, shuffle, tokenize
  heedful train heedful.toml         a translator of your own
  heedful translate my-model < in.en one line in, one line out
  heedful evaluate new test.de       how good translations are
  heedful compare test.de old new    which of them are better, and is it luck
  heedful inspect my-model "A dog."  a page that shows what the model does with it
  heedful serve my-model             over HTTP, with a page to try it
  heedful export my-model            for other engines, with a proof that it says the same
  heedful import opus-mt-en-de       what others trained, to look into and to fine-tune
  heedful info --markdown            what is installed, to paste into a bug report
""",
)
app.command("demo")(demo)
app.command("init")(init)
app.command("check")(check)
app.command("prepare")(prepare)
app.command("train")(train)
app.command("translate")(translate)
app.command("evaluate")(evaluate)
app.command("compare")(compare)
app.command("inspect")(inspect)
app.command("export")(export)
app.command("serve")(serve)
app.command("import")(import_model)
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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show an arrow shows a question mark
    try:
        code = app(None if sys.argv[1:] else ["--help"], prog_name="heedful", standalone_mode=False)
    except Mistyped as error:
        stop(mistyped(error), error.exit_code)
    except HeedfulError as error:
        stop(str(error), error.exit_code)
    except OSError as error:
        place = f" ({str(error.filename).replace('.tmp-', '')})" if error.filename else ""
        advice, text = ADVICE.get(error.errno or 0), error.strerror or str(error)
        stop(f"{text[:1].lower()}{text[1:]}{place}{f': {advice}' if advice else ''}", 1)
    except KeyboardInterrupt:  # before typer was ready to make a code of it
        code = INTERRUPTED
    except MemoryError:
        stop("out of memory: give it less at a time, or end what else is running", 1)
    if code == INTERRUPTED:
        kept = "; what was finished is kept, and the same command goes on from there"
        stop(f"interrupted{'' if GOES_ON.isdisjoint(sys.argv) else kept}", INTERRUPTED)
    sys.exit(code)


def mistyped(error: Any) -> str:
    """What is wrong with the words of a command, in our way, and where all of them are listed."""
    text = error.format_message().rstrip(".")
    if near := getattr(error, "possibilities", None):
        text = f"no such option `{error.option_name}`; did you mean `{near[0]}`?"
    elif word := re.match(r"No such command '(.*?)'", text):
        text = f"no such command `{word[1]}`{did_you_mean(word[1], error.ctx.command.commands)}"
    elif word := re.match(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)", text):
        text = f"`{word[1]}` is too much{TOO_MUCH.get(error.ctx.command.name, '')}"
    command = error.ctx.command_path if error.ctx else shlex.join(["heedful", *sys.argv[1:2]])
    return f"{text[0].lower()}{text[1:]}{'' if text.endswith('?') else '.'} Type: {command} --help"


def stop(message: str, code: int) -> NoReturn:
    """Say it, safely, and end; the text may quote a hostile corpus."""
    typer.echo("heedful: " + "\n".join(escape_invisible(line) for line in message.split("\n")), err=True)
    sys.exit(code)

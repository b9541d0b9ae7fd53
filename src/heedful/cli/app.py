"""The `heedful` command: its subcommands, and error handling for all of them."""

import errno
import os
import re
import shlex
import sys
from io import TextIOWrapper
from typing import Any, NoReturn

import typer

from heedful import __version__
from heedful.cli.calibrate import calibrate
from heedful.cli.check import check
from heedful.cli.compare import compare
from heedful.cli.demo import demo
from heedful.cli.evaluate import evaluate
from heedful.cli.export import export
from heedful.cli.generate import generate
from heedful.cli.import_model import import_model
from heedful.cli.info import info
from heedful.cli.init import init
from heedful.cli.inspect import InspectCommand, inspect
from heedful.cli.lab import lab
from heedful.cli.prepare import prepare
from heedful.cli.renamed_options import renamed_option_message
from heedful.cli.serve import serve
from heedful.cli.train import train
from heedful.cli.translate import translate
from heedful.cli.words import words_app
from heedful.errors import HeedfulError, did_you_mean
from heedful.text.normalize import escape_invisible

SPIN_COUNT = "5000"
INTERRUPTED_EXIT_CODE = 130  # the usual code for Ctrl-C
ERRNO_ADVICE = {
    errno.EACCES: "no permission to read or write there; choose another path",
    errno.EPERM: "no permission to read or write there; choose another path",
    errno.EROFS: "the file system is read-only; choose another path",
    errno.ENOSPC: "free some space and rerun the command",
    errno.EDQUOT: "free some space and rerun the command",
    errno.EISDIR: "use a file instead",
    errno.ENOTDIR: "use a directory instead",
    errno.EEXIST: "choose another path",
    errno.ENOENT: "use a path that exists",
}
EXTRA_ARGUMENT_ADVICE = {
    "inspect": "put the sentence in quotes",
    "prepare": "pass one heedful.toml, which lists the files",
    "translate": "pipe the text in: echo TEXT | heedful translate MODEL",
}
RESUMABLE_COMMANDS = {"prepare", "train", "--bulk"}  # rerunning these resumes them
UsageError: type[Any] = typer.BadParameter.__mro__[1]  # click.UsageError, also where typer has its own copy of click

app = typer.Typer(
    name="heedful",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help appears in a third of the time
    help="""Sequence-to-sequence learning with attention.

\b
  heedful demo                       try a built-in translator and see its attention
  heedful init first --sample pt-en  set up training from your files or a sample
  heedful check train.en train.de    find problems in a corpus and how to fix them
  heedful prepare heedful.toml       clean, deduplicate, shuffle and tokenize
  heedful train heedful.toml         train a translator
  heedful translate my-model < in.en translate line by line
  heedful generate my-lm --count 5   write texts with a language model
  heedful evaluate new test.de       score translations
  heedful compare test.de old new    compare systems with significance tests
  heedful calibrate my-model ...     fit how sure a model is of its translations
  heedful inspect my-model "A dog."  show attention and search in a web page
  heedful serve my-model             serve a model over HTTP, with a web page
  heedful export my-model            export to another format and verify it
  heedful import opus-mt-en-de       import a model to inspect or fine-tune it
  heedful words corpus.txt           learn word vectors; find neighbors and analogies
  heedful lab X1 --quick             test a claim of the lectures with an experiment
  heedful info --markdown            list installed packages for a bug report
""",
)
app.command("demo")(demo)
app.command("init")(init)
app.command("check")(check)
app.command("prepare")(prepare)
app.command("train")(train)
app.command("translate")(translate)
app.command("generate")(generate)
app.command("evaluate")(evaluate)
app.command("compare")(compare)
app.command("calibrate")(calibrate)
app.command("inspect", cls=InspectCommand)(inspect)
app.command("export")(export)
app.command("serve")(serve)
app.command("import")(import_model)
app.add_typer(words_app, name="words")
app.command("lab")(lab)
app.command("info")(info)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"heedful {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command. A user error prints one line on stderr, without a traceback, and sets the exit code."""
    shorten_spinning()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # question marks on a terminal without Unicode
    try:
        code = app(None if sys.argv[1:] else ["--help"], prog_name="heedful", standalone_mode=False)
    except UsageError as error:
        exit_with_error(describe_usage_error(error), error.exit_code)
    except HeedfulError as error:
        exit_with_error(str(error), error.exit_code)
    except OSError as error:
        place = f" ({str(error.filename).replace('.tmp-', '')})" if error.filename else ""
        advice, text = ERRNO_ADVICE.get(error.errno or 0), error.strerror or str(error)
        exit_with_error(f"{text[:1].lower()}{text[1:]}{place}{f': {advice}' if advice else ''}", 1)
    except KeyboardInterrupt:  # raised before typer handles it
        code = INTERRUPTED_EXIT_CODE
    except MemoryError:
        exit_with_error("out of memory: process less data at a time, or close other programs", 1)
    if code == INTERRUPTED_EXIT_CODE:
        resume = "; rerun the command to resume from the last saved state"
        exit_with_error(
            "interrupted" if RESUMABLE_COMMANDS.isdisjoint(sys.argv) else f"interrupted{resume}", INTERRUPTED_EXIT_CODE
        )
    sys.exit(code)


def shorten_spinning() -> None:
    """Let idle threads of PyTorch and CTranslate2 sleep early, so that two processes do not stop each other.

    By default, an idle thread of GNU OpenMP (Linux) checks 300,000 times for work before it sleeps, and another process
    cannot use its core meanwhile: two trainings at once then nearly stop each other. With 5,000 checks they share the
    cores, and one alone loses up to 8 % (benchmarks/contention.py). It must be set before the library is loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)


def describe_usage_error(error: Any) -> str:
    """The error message for wrong arguments, ending with the --help command."""
    text = error.format_message().rstrip(".")
    command = error.ctx.command.name if error.ctx else None
    option = getattr(error, "option_name", None)
    if option and (renamed := renamed_option_message(command, option)):
        text = renamed
    elif near := getattr(error, "possibilities", None):
        text = f"no such option `{error.option_name}`; did you mean `{near[0]}`?"
    elif word := re.match(r"No such command '(.*?)'", text):
        text = f"no such command `{word[1]}`{did_you_mean(word[1], error.ctx.command.commands)}"
    elif word := re.match(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)", text):
        advice = EXTRA_ARGUMENT_ADVICE.get(command or "")
        text = f"unexpected argument `{word[1]}`{f'; {advice}' if advice else ''}"
    command_path = error.ctx.command_path if error.ctx else shlex.join(["heedful", *sys.argv[1:2]])
    return f"{text[0].lower()}{text[1:]}{'' if text.endswith('?') else '.'} For help: {command_path} --help"


def exit_with_error(message: str, code: int) -> NoReturn:
    """Print the message with control characters escaped (it may quote a hostile corpus), and exit."""
    typer.echo("heedful: " + "\n".join(escape_invisible(line) for line in message.split("\n")), err=True)
    sys.exit(code)

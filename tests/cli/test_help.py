"""What the command says of itself: help with examples, soon; completion in the shell."""

import os
import re
import shlex
import subprocess
import sys

import pytest
import typer.main
from typer.testing import CliRunner

from heedful.cli.app import app

ROOT = typer.main.get_command(app)
COMMANDS = list(ROOT.commands)
HEAVY = {"torch", "numpy", "polars", "pydantic", "sacrebleu", "safetensors", "sentencepiece", "rich", "fastapi"}
CPU = 1.0  # seconds; it takes a quarter of one


def examples(command: str) -> list[str]:
    shown = CliRunner().invoke(app, [command, "--help"])
    assert shown.exit_code == 0, shown.output
    before, options, _ = shown.stdout.partition("\nOptions:\n")
    assert options
    return [line.strip() for line in before.splitlines() if re.search(rf"^\s+(.*\| )?heedful {command}\b", line)]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_begins_with_two_examples(command):
    assert sum(line.startswith(f"heedful {command}") for line in examples(command)) >= 2


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_name_options_that_there_are(command):
    commands = [ROOT.commands[command], *getattr(ROOT.commands[command], "commands", {}).values()]
    known = {name for each in commands for parameter in each.params for name in parameter.opts}
    for line in examples(command):
        words = shlex.split(line)
        assert {word for word in words if word.startswith("--")} <= known, line


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_explained(command):
    for parameter in ROOT.commands[command].params:
        assert getattr(parameter, "help", None), f"heedful {command}: {parameter.name}"


MEASURED = """
import sys, time
from heedful.cli import main
sys.argv = ["heedful", *{words!r}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*sys.modules, file=sys.stderr)
print(time.process_time(), file=sys.stderr)
"""


@pytest.mark.parametrize("words", [["--help"], [], ["train", "--help"], ["--version"]], ids=str)
def test_help_imports_nothing_heavy_and_is_soon_there(words):
    code = MEASURED.format(words=words)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *_, modules, seconds = done.stderr.splitlines()
    assert done.stdout.startswith(("Usage: heedful", "heedful 0"))
    own = {"pydantic"} if words[:1] == ["train"] else set()  # typer reads a command's values with it
    assert not (HEAVY - own) & set(modules.split())
    assert float(seconds) < CPU


def completed(*words: str) -> list[str]:
    environment = os.environ | {
        "_HEEDFUL_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["heedful", *words]),
        "COMP_CWORD": str(len(words)),
    }
    command = [sys.executable, "-m", "heedful"]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()


def test_the_shell_completes_commands_and_options():
    assert completed("tr") == ["train", "translate"]
    assert {"--time", "--out", "--recipe"} <= set(completed("train", "--"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_completes_can_be_shown(shell):
    code = (
        "import sys, shellingham; from heedful.cli import main\n"
        f"shellingham.detect_shell = lambda *_: ({shell!r}, '/bin/{shell}')\n"
        "sys.argv = ['heedful', '--show-completion']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"_HEEDFUL_COMPLETE=complete_{shell}" in done.stdout

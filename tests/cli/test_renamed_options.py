"""An option that was renamed is answered with its new name."""

import pytest
import typer.main

from heedful.cli import app
from heedful.cli.renamed_options import RENAMED_OPTIONS, RENAMED_VARIABLES

COMMANDS = typer.main.get_command(app.app).commands


def run(monkeypatch, capsys, *arguments: str) -> str:
    monkeypatch.setattr("sys.argv", ["heedful", *arguments])
    with pytest.raises(SystemExit) as end:
        app.main()
    assert end.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(("command", "option"), RENAMED_OPTIONS)
def test_an_old_option_is_answered_with_the_new_one(command, option, monkeypatch, capsys):
    new_option = RENAMED_OPTIONS[command, option]
    options = {name for parameter in COMMANDS[command].params for name in parameter.opts}
    assert new_option in options
    assert option not in options
    message = f"heedful: unknown option `{option}`; it is now `{new_option}`. For help: heedful {command} --help\n"
    assert run(monkeypatch, capsys, command, "a", option, "b") == message
    assert run(monkeypatch, capsys, command, "a", f"{option}=b") == message


def test_an_old_option_of_another_command_is_only_unknown(monkeypatch, capsys):
    assert "it is now" not in run(monkeypatch, capsys, "info", "--least", "0.5")


@pytest.mark.parametrize("name", RENAMED_VARIABLES)
def test_an_old_environment_variable_stops_the_server(name, monkeypatch, capsys):
    pytest.importorskip("fastapi", reason="the server's extra is not installed")
    new_name = RENAMED_VARIABLES[name]
    assert new_name in {parameter.envvar for parameter in COMMANDS["serve"].params}
    monkeypatch.setenv(name, "1")
    message = f"heedful: unknown environment variable `{name}`; it is now `{new_name}`\n"
    assert run(monkeypatch, capsys, "serve", "model") == message

import pytest
from typer.testing import CliRunner

from heedful import __version__
from heedful.cli.app import app, main
from heedful.cli.info import PACKAGES
from heedful.errors import HeedfulError

run = CliRunner().invoke


def test_info_lists_every_part():
    shown = run(app, ["info"])
    assert shown.exit_code == 0
    assert all(package.name in shown.stdout for package in PACKAGES)


def test_markdown_is_a_table():
    lines = run(app, ["info", "--markdown"]).stdout.splitlines()
    assert lines[1] == "| --- | --- | --- |"
    assert all(line.startswith("| ") and line.endswith(" |") for line in lines)


def test_a_missing_package_comes_with_its_install_line(monkeypatch):
    monkeypatch.setattr("heedful.cli.info.installed_version", lambda _package: None)
    shown = run(app, ["info"]).stdout
    assert "pip install 'heedful[train]'" in shown
    assert "pip install 'heedful[corpus]'" in shown


def test_version():
    assert run(app, ["--version"]).stdout.strip() == f"heedful {__version__}"


def test_a_users_mistake_is_one_line_and_exit_code_1(monkeypatch, capsys):
    def fail(*_given, **_named) -> None:
        raise HeedfulError("the corpus is empty: give it some lines")

    monkeypatch.setattr("heedful.cli.app.app", fail)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    assert capsys.readouterr().err == "heedful: the corpus is empty: give it some lines\n"

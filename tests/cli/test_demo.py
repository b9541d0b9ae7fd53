"""`heedful demo`: the models that come along, and what is shown of them."""

import pytest
from typer.testing import CliRunner

import heedful
from heedful import samples
from heedful.cli.app import app
from heedful.cli.demo import SENTENCES, guess_pair
from heedful.errors import ConfigError, MissingExtra
from heedful.metrics import score

run = CliRunner().invoke


@pytest.mark.parametrize(("name", "minimum"), [("pt-en", 78), ("ru-en", 65), ("pt-en-gru", 74)])
def test_the_models_are_worth_showing(name, minimum, tmp_path):
    pair = name[:5]
    data = samples.unpack(pair, tmp_path, limit=0)
    source, target = ((data / f"test.{code}").read_text(encoding="utf-8").splitlines() for code in pair.split("-"))
    outputs = [translation.text for translation in heedful.load(name)(source)]
    assert score("chrf", outputs, target).value > minimum
    assert sum(path.stat().st_size for path in samples.model(name).iterdir()) < 7_000_000


def test_it_translates_shows_and_says_what_comes_next(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = run(app, ["demo", "--no-open"])
    assert shown.exit_code == 0, shown.output
    for pair, sentence in SENTENCES.items():
        assert f"{pair[:2]}  {sentence}" in shown.output
        assert heedful.load(samples.model(pair))(sentence).text in shown.output
    assert "Next: heedful init first --sample pt-en" in shown.output
    for name, pair in (("demo.html", "pt-en"), ("demo-ru-en.html", "ru-en")):
        page = (tmp_path / name).read_text(encoding="utf-8")
        assert all(part in page for part in ("<html", 'id="weights"', "heedful demo", SENTENCES[pair]))
        num_weights = heedful.load(pair).bundle.description.parameters
        assert len(page.encode()) < 1.4 * num_weights + 600_000
        assert f"{name} (" in shown.output


def test_the_letters_say_which_model(tmp_path):
    assert guess_pair("Bom dia!") == "pt-en"
    assert guess_pair("Доброе утро!") == "ru-en"
    shown = run(app, ["demo", "Доброе утро!", "--no-open", "--out", str(tmp_path / "page.html")])
    assert "ru  Доброе утро!" in shown.output
    assert "pt  " not in shown.output


@pytest.mark.parametrize(
    ("given", "says"),
    [(["  "], "the sentence is empty: pass one"), (["Bom dia", "--pair", "pt-eng"], "did you mean `pt-en`")],
)
def test_mistakes(given, says):
    shown = run(app, ["demo", *given, "--no-open"])
    assert isinstance(shown.exception, ConfigError)
    assert says in str(shown.exception)


def test_without_torch_it_says_what_to_type(monkeypatch):
    monkeypatch.setattr("heedful.errors.find_spec", lambda _name: None)
    shown = run(app, ["demo"])
    assert isinstance(shown.exception, MissingExtra)
    assert "pip install 'heedful[train]'" in str(shown.exception)


def test_no_browser_takes_over_a_terminal_without_a_screen(tmp_path, monkeypatch):
    from heedful.cli.inspect import open_page

    opened = []
    monkeypatch.setattr("webbrowser.open", lambda place: opened.append(place) or True)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert "no display found" in open_page(tmp_path / "page.html")
    assert not opened
    monkeypatch.setenv("DISPLAY", ":0")
    assert open_page(tmp_path / "page.html") == "opened in the browser"
    assert opened == [(tmp_path / "page.html").as_uri()]

"""`heedful inspect`: a page, a trace, a figure, a chart in the terminal, and words where it is misused."""

import json

import pytest
from typer.testing import CliRunner

import heedful
from heedful.cli.app import app
from heedful.errors import HeedfulError
from heedful.trace import parse_trace
from heedful.training.api import train
from heedful.training.snapshots import SNAPSHOTS
from support.training_runs import MODEL, settings_of, write_corpus

TEXT = "the old man sees a red house"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = write_corpus(tmp_path_factory.mktemp("inspect"), pairs=120)
    pieces = {"kind": "bpe", "vocab_size": 330}
    return train(settings_of(folder, folder / "run", model=MODEL, tokenizer=pieces, steps=60))


def run(*arguments):
    return CliRunner().invoke(app, ["inspect", *map(str, arguments)])


def test_a_page_and_everything_beside_it(model, tmp_path):
    out = {name: tmp_path / name for name in ("page.html", "trace.json", "map.svg")}
    told = run(
        model,
        TEXT,
        "--out",
        out["page.html"],
        "--json",
        out["trace.json"],
        "--svg",
        out["map.svg"],
        "--reference",
        "das haus",
    )
    assert told.exit_code == 0, told.output
    assert "Next: open" in told.stderr
    page = out["page.html"].read_text(encoding="utf-8")
    assert "Content-Security-Policy" in page
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")  # nothing to fetch
    trace = parse_trace(out["trace.json"].read_bytes())
    assert [one.name for one in trace.sentences] == ["run", "run, reference"]
    assert trace.sentences[0].reference.verdict in ("search", "model", "same")
    assert trace.sentences[0].reading is not None
    assert out["map.svg"].read_text(encoding="utf-8").startswith("<svg")


def test_training_leaves_a_film(model):
    lines = (model.parent / SNAPSHOTS).read_text(encoding="utf-8").splitlines()
    frames = [parse_trace(line).film.frames[0] for line in lines]
    assert [frame.step for frame in frames] == [20, 40, 60]
    film = heedful.inspect(model).trace.film
    assert [frame.step for frame in film.frames] == [20, 40, 60]
    assert all(take.attention is not None for frame in film.frames for take in frame.takes)


def test_a_film_survives_a_kill_and_a_roll_back(model, tmp_path):
    path = model.parent / SNAPSHOTS
    whole = path.read_text(encoding="utf-8")
    try:
        path.write_text(whole + whole.splitlines()[1] + "\n" + whole[:50], encoding="utf-8")
        assert [frame.step for frame in heedful.inspect(model).trace.film.frames] == [20, 40, 60]
    finally:
        path.write_text(whole, encoding="utf-8")


def test_a_trace_of_others_is_checked_and_shown(model, tmp_path):
    trace, page = tmp_path / "t.json", tmp_path / "p.html"
    run(model, TEXT, "--json", trace)
    told = run(trace, "--validate")
    assert told.exit_code == 0
    assert "is a valid trace: 1 sentence" in told.stdout
    assert run(trace, "--out", page).exit_code == 0
    assert page.is_file()
    broken = json.loads(trace.read_text(encoding="utf-8"))
    broken["sentences"][0]["steps"].pop()
    trace.write_text(json.dumps(broken))
    told = run(trace, "--validate")
    assert isinstance(told.exception, HeedfulError)
    assert "steps for a target" in str(told.exception)


def test_a_chart_in_the_terminal(model):
    told = run(model, TEXT, "--terminal")
    assert told.exit_code == 0, told.output
    assert len(told.stdout.splitlines()) > 5
    assert not [line for line in told.stderr.splitlines() if "html" in line]


def test_many_sentences_and_two_models(model, tmp_path):
    (tmp_path / "some").write_text(f"{TEXT}\n\nthe dog\n")
    told = run(
        model, "--file", tmp_path / "some", "--against-beam", 1, "--json", tmp_path / "t.json", "--arithmetic", "all"
    )
    assert told.exit_code == 0, told.output
    found = parse_trace((tmp_path / "t.json").read_bytes()).sentences
    assert [one.source.text for one in found] == [TEXT, TEXT, "the dog", "the dog"]
    assert [one.name for one in found[:2]] == ["run, default beam", "run, beam 1"]
    assert set(found[0].vectors) == {"encoder", "cross", "decoder"}


def test_a_lecture_about_a_sentence(model, tmp_path):
    lecture, trace = tmp_path / "lecture.toml", tmp_path / "t.json"
    result = run(model, TEXT, "--write-lecture", lecture)
    assert result.exit_code == 0, result.output
    result = run(model, TEXT, "--lecture", lecture, "--json", trace)
    assert result.exit_code == 0, result.output
    document = parse_trace(trace.read_bytes())
    assert document.lecture.title == TEXT
    assert set(document.sentences[0].vectors) == {"cross"}  # of the slides with a scene
    slides = heedful.inspect(model, TEXT, lecture=lecture, importance=False).trace.lecture
    assert slides == document.lecture
    result = run(model, "--lecture", lecture)
    assert "slide 1: there is no sentence 1: pass a sentence" in str(result.exception)
    result = run(model, "--write-lecture", tmp_path / "other.toml")
    assert "there is no sentence for the slides" in str(result.exception)
    assert not (tmp_path / "other.toml").exists()


def test_evidence_is_recorded_unless_it_is_switched_off(model, tmp_path):
    keys = ("lens", "neighbors", "contributions", "deletion")
    for options, is_recorded in (([], True), (["--no-evidence"], False)):
        assert run(model, TEXT, "--json", tmp_path / "t.json", *options).exit_code == 0
        (sentence,) = parse_trace((tmp_path / "t.json").read_bytes()).sentences
        assert [bool(getattr(sentence, key)) for key in keys] == [is_recorded] * 4


def test_a_figure_in_dots(model, tmp_path):
    pytest.importorskip("resvg_py", reason="resvg-py is not installed: pip install 'heedful[figure]'")
    assert run(model, TEXT, "--png", tmp_path / "m.png", "--pieces").exit_code == 0
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["a", "--file", "b"], "not both"),
        (["--file", "nowhere"], "there is no file nowhere"),
        (["a", "--arithmetic", "crss"], "--arithmetic crss: use encoder, cross, decoder, all or none"),
        (["--reference", "b"], "--reference works with one sentence only, but there are 0"),
        (["a", "--validate"], "needs a trace"),
        (["a", "--beam", "0"], "at least 1"),
        (["a", "--against", "nowhere"], "no model in"),
    ],
)
def test_misuse_is_answered_in_words(model, arguments, told):
    found = run(model, *arguments)
    assert isinstance(found.exception, HeedfulError)
    assert told in str(found.exception)


def test_a_file_that_is_no_trace(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    assert "not a trace" in str(run(tmp_path / "x.json").exception)
    assert "there is no file" in str(run(tmp_path / "y.json").exception)

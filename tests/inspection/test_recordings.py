"""Traces and pages of models that transcribe recordings."""

import re
from base64 import b64decode
from io import BytesIO
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import heedful
from heedful.errors import HeedfulError
from heedful.inputs.kinds import make_input
from heedful.inputs.sound import spectrogram_picture
from heedful.inspection.api import inspect
from heedful.inspection.figure import render_svg
from heedful.trace import Piece, Text, dump_trace, parse_trace
from heedful.training.api import train
from support.browser_pages import opened, until
from support.sound_runs import sound_settings, tones, write_recordings


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    return write_recordings(tmp_path_factory.mktemp("recordings"), count=30)


@pytest.fixture(scope="module")
def model(recordings):
    return train(sound_settings(recordings, recordings / "run", steps=2, learning_rate=1e-9))


def test_a_slot_has_an_interval_and_the_spectrogram_is_what_the_model_saw(model, recordings):
    path = recordings / "recordings" / "train0.wav"
    page = inspect(model, path)
    (sentence,) = page.trace.sentences
    inputs = make_input(heedful.load(model).bundle.description.input)
    row = inputs.read_row(path)
    shown = np.array(Image.open(BytesIO(b64decode(sentence.source.picture))))
    assert np.array_equal(shown, spectrogram_picture(row))
    assert b64decode(sentence.source.sound) == inputs.wav(path)
    pieces = sentence.source.pieces
    assert len(pieces) == -(-len(row) // 4) == sentence.attention["cross"].shape[3]
    assert [piece.interval[0] for piece in pieces] == pytest.approx([0.04 * slot for slot in range(len(pieces))])
    assert all(one.interval[1] == other.interval[0] for one, other in pairwise(pieces))
    assert pieces[1].text == " 0.04 s"
    assert (pieces[0].box[1], pieces[0].box[3]) == (0, 1)
    assert sentence.source.text == "train0.wav"
    text = dump_trace(page.trace)
    assert dump_trace(parse_trace(text)) == text


def test_contributions_are_those_of_silent_slots(model):
    (sentence,) = inspect(model, tones(["low", "high"])).trace.sentences
    slots = len(sentence.source.pieces)
    assert sentence.source.text == "(a recording)"
    (erasure,) = (each for name, each in sentence.contributions.items() if name == "erasure")
    assert erasure.shape[-1] == slots


def test_the_page_may_play_its_recording_and_nothing_else(model):
    html = inspect(model, tones(["low"]), importance=False, evidence=False).html()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    assert "media-src data:;" in policy
    assert "Listen to what this word looked at" in html
    assert "sound: " in html


def test_a_click_plays_what_the_word_looked_at(model, chromium, tmp_path):
    page = inspect(model, tones(["low", "high", "low"]), importance=False, evidence=False)
    path = tmp_path / "page.html"
    path.write_text(page.html(), encoding="utf-8")
    with opened(chromium, path, "#lang=en&tab=map") as tab:
        tab.evaluate("""() => {
            Audio = class extends Audio { constructor(url) { super(url); globalThis.heard = this; } };
        }""")
        tab.get_by_role("button", name="Listen to what this word looked at").click()
        until(tab, "heard.played.length === 1 && heard.paused")
        begin, end = tab.evaluate("[heard.played.start(0), heard.played.end(0)]")
    intervals = [piece.interval for piece in page.trace.sentences[0].source.pieces]
    assert intervals[0][0] <= begin < end <= intervals[-1][1]


def test_pages_of_other_sources_may_not_play_anything():
    html = inspect("pt-en", "o gato", importance=False, evidence=False).html()
    assert "media-src" not in html.partition("</head>")[0]
    assert "sound: " not in html.partition('id="trace"')[0].partition('id="glossary"')[2]


def test_the_figure_shows_the_spectrogram_once_per_word(model):
    (sentence,) = inspect(model, tones(["low", "low"]), importance=False, evidence=False).trace.sentences
    root = ElementTree.fromstring(render_svg(sentence))
    uses = [node for node in root.iter() if node.tag.endswith("use")]
    assert len(uses) == len({piece.word for piece in sentence.target.pieces})


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
BOX = (0.0, 0.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("piece", "options", "message"),
    [
        ({"box": BOX, "interval": (1.0, 0.5)}, {"picture": PNG}, "the start must be before the end"),
        ({"interval": (0.0, 0.5)}, {}, "a `picture` shows its spectrogram"),
        ({"box": BOX}, {"picture": PNG, "sound": "UklGRgAAAABXQVZF"}, "have an `interval`: add them"),
        ({"box": BOX, "interval": (0.0, 1.0)}, {"picture": PNG, "sound": "YQ=="}, "is not a WAV in base64"),
    ],
)
def test_traces_that_cannot_be(piece, options, message):
    with pytest.raises((ValueError, HeedfulError), match=message):
        Text(text="a", pieces=(Piece(text="a", **piece),), **options)

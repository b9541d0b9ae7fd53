"""Traces and pages of models that describe pictures, and of language models."""

import json
import os
import re
import struct
from base64 import b64decode, b64encode
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import heedful
from heedful.build import build
from heedful.cli.app import app
from heedful.config import ImageInputSettings, ModelSettings, NoInputSettings
from heedful.data.batch import pad_sources
from heedful.errors import ConfigError, HeedfulError
from heedful.inputs.kinds import make_input
from heedful.inputs.media import MediaError
from heedful.inputs.pictures import picture_png
from heedful.inspection.api import Page, inspect, name_boxes
from heedful.inspection.figure import render_svg, render_terminal
from heedful.inspection.lecture import attach_lecture, draft_lecture
from heedful.inspection.page import VIEWER
from heedful.inspection.record import InspectedSource, record_sentence
from heedful.nn.contract import Look
from heedful.search import Greedy
from heedful.trace import PLACES, Lecture, Piece, Slide, Text, TraceAlignment, TraceDocument, dump_trace, parse_trace
from heedful.training.api import train
from support import synthetic_traces as synthetic
from support.browser_pages import axe_violations, click, opened, press, settled, until, visit
from support.inspection_models import BOS, SIZE, inspected, target_ids
from support.picture_runs import language_model_settings, picture_settings, write_pictures, write_sentences

LANGUAGES = ("en", "pt", "ru")
TABS = ("next", "heads", "map", "search", "evidence", "compare")
GLOSSARY = json.loads((VIEWER / "glossary.json").read_text(encoding="utf-8"))
LAYOUT_CHECK = (Path(__file__).parents[1] / "support" / "layout_check.js").read_text(encoding="utf-8")
AXE = os.environ.get("HEEDFUL_AXE")
RANDOM = {"steps": 2, "validate_every": 2, "learning_rate": 1e-9}
TRANSFORMER = {"kind": "transformer", "layers": 2, "heads": 2, "feedforward_size": 16, "dropout": 0.0}
PATCHES = {"kind": "patches", "layers": 2, "heads": 2, "feedforward_size": 16}
MODELS = {  # settings of the input, of the encoder and of the decoder
    "transformer": (ImageInputSettings(kind="image", height=8, width=16, patch=4), PATCHES),
    "one vector": (ImageInputSettings(kind="image", height=8, width=8, patch=4), {"kind": "patches", "pool": True}),
    "lstm": (NoInputSettings(kind="none"), {"kind": "nothing"}),
}
DECODERS = {"lstm": {"kind": "recurrent", "width": 16, "cell": "lstm"}}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("pictures"), count=40)


@pytest.fixture(scope="module")
def captions(pictures):
    """Patches of 4 x 4 pixels, and a recurrent decoder with additive attention."""
    return train(picture_settings(pictures, pictures / "run", **RANDOM))


@pytest.fixture(scope="module")
def language(tmp_path_factory):
    folder = write_sentences(tmp_path_factory.mktemp("language"), count=60)
    return train(language_model_settings(folder, folder / "run", **RANDOM))


def built(kind):
    """A model with random weights, and a source."""
    torch.manual_seed(1)
    given_input, encoder = MODELS[kind]
    sizes = {"width": 16, "positions": "sinusoidal"}
    settings = {**sizes, "encoder": {**encoder}, "decoder": DECODERS.get(kind, TRANSFORMER)}
    model = build(ModelSettings.model_validate(settings), 0, SIZE, input=given_input).eval()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    inputs = make_input(given_input)
    pixels = np.random.default_rng(1).integers(0, 256, (8, 8 * (1 + (kind == "transformer")), 3), np.uint8)
    row = inputs.read_row(pixels)
    boxes = name_boxes(inputs.boxes(row, 1))
    pieces = tuple(Piece(text=name, word=slot, box=box) for slot, (name, box) in enumerate(boxes))
    png = inputs.png(row)
    shown = Text(text="x", pieces=pieces, picture=b64encode(png).decode() if png else None)
    return model, InspectedSource(row, "x", has_end=False, max_length=8, prefix=() if png else (5, 7), shown=shown)


def random_sentence(kind, **options):
    model, source = built(kind)
    return record_sentence(inspected(model), source, Greedy(), **options)


def forced_maps(model, row, target):
    """Log-probabilities of every step [T, V], and the maps of encoder and decoder, when a model is given a target."""
    look = Look(frozenset({"weights"}))
    with torch.inference_mode():
        memory = model.encoder(*pad_sources([row], 0), look=look)
        decoded, _ = model.decoder(torch.tensor([[BOS, *target[:-1]]]), model.decoder.start(memory), look)
        log_probs = model.decoder.project(decoded.states)[0].log_softmax(-1)
    return log_probs, {"encoder": memory.maps, "cross": decoded.maps, "decoder": decoded.maps}


def assert_maps_are(sentence, maps):
    for place in PLACES:
        layers = getattr(maps[place], place) if maps[place] else ()
        assert (place in sentence.attention) == bool(layers)
        if layers:
            expected = torch.stack([layer.weights[0] for layer in layers]).numpy()
            assert np.abs(sentence.attention[place].array() - expected).max() <= 1 / 255


# ------------------------------------------------------------------------------------------------------- the trace


@pytest.mark.parametrize("kind", MODELS)
def test_maps_and_probabilities_are_those_of_the_model(kind):
    model, source = built(kind)
    sentence = record_sentence(inspected(model), source, Greedy(), vectors=PLACES, evidence=True)
    target = target_ids(sentence)
    log_probs, maps = forced_maps(model, source.ids, target)
    assert [step.logp for step in sentence.steps] == pytest.approx(
        [float(log_probs[row, token]) for row, token in enumerate(target)], abs=1e-4
    )
    assert_maps_are(sentence, maps)
    places = {"transformer": set(PLACES), "one vector": {"cross", "decoder"}, "lstm": set()}
    assert sentence.attention.keys() == places[kind]
    if kind == "one vector":
        assert sentence.attention["cross"].shape[3] == 1
    text = dump_trace(TraceDocument(sentences=(sentence,)))
    assert dump_trace(parse_trace(text)) == text


def test_the_picture_of_a_trace_is_what_the_model_saw(captions, pictures):
    path = pictures / "pictures" / "train3.png"
    (sentence,) = inspect(captions, path).trace.sentences
    shown = np.array(Image.open(BytesIO(b64decode(sentence.source.picture))))
    assert (shown == np.array(Image.open(path).convert("RGB"))).all()
    assert sentence.source.text == "train3.png"  # not where it is
    assert [piece.text for piece in sentence.source.pieces][3:6] == [" D1", " A2", " B2"]
    assert sentence.source.pieces[5].box == (0.25, 0.25, 0.5, 0.5)
    translator = heedful.load(captions)
    model = translator.engine.model
    row = make_input(translator.bundle.description.input).read_row(path)
    log_probs, maps = forced_maps(model, row, (target := ids_of(translator, sentence)))
    assert sentence.logp == pytest.approx(float(log_probs[range(len(target)), target].sum()), abs=1e-3)
    assert_maps_are(sentence, maps)
    assert sentence.target.text == translator(path).text


def ids_of(translator, sentence):
    (table,) = (part for part in translator.engine.model.decoder.modules() if isinstance(part, nn.Embedding))
    ids = {translator.target.pieces([at])[0]: at for at in range(table.num_embeddings)}
    return [ids[piece.text.replace(" ", "\u2581")] for piece in sentence.target.pieces]


def test_any_kind_of_picture_can_be_inspected(captions, pictures):
    path = pictures / "pictures" / "train3.png"
    kinds = [path, str(path), path.read_bytes(), Image.open(path), np.array(Image.open(path).convert("RGB"))]
    options = {"evidence": False, "importance": False}
    sentences = [inspect(captions, source, **options).trace.sentences[0] for source in kinds]
    assert len({sentence.source.picture for sentence in sentences}) == 1
    assert [sentence.source.text for sentence in sentences] == ["train3.png"] * 2 + ["(a picture)"] * 3
    assert len(inspect(captions, kinds[:2], **options).trace.sentences) == 2


def test_erasing_a_patch_makes_it_white(captions, pictures):
    path = pictures / "pictures" / "train5.png"
    (sentence,) = inspect(captions, path).trace.sentences
    translator = heedful.load(captions)
    target, model = ids_of(translator, sentence), translator.engine.model
    row = make_input(translator.bundle.description.input).read_row(path)
    contributions = sentence.contributions["erasure"].array()
    before, _ = forced_maps(model, row, target)
    for slot in (0, 6, 15):
        changed = row.copy()
        changed[slot] = 255
        after, _ = forced_maps(model, changed, target)
        expected = (before - after)[range(len(target)), target].numpy()
        assert contributions[:, slot] == pytest.approx(expected, abs=2e-3, rel=2e-3)
    assert "gradients" not in sentence.contributions
    assert set(sentence.deletion) == {"erasure", "attention", "random"} | ({"head"} & set(sentence.deletion))
    assert sentence.neighbors.keys() == {"target"}


def test_a_caption_has_a_reference(captions, pictures):
    path = pictures / "pictures" / "train5.png"
    own, forced = inspect(captions, path, reference="a red square at the left").trace.sentences
    assert own.reference.text == "a red square at the left"
    assert forced.target.text == own.reference.text
    assert all(step.forced for step in forced.steps)


def test_the_beginning_of_a_text_is_forced(language):
    model = heedful.load(language)
    (sentence,) = inspect(language, "the old dog").trace.sentences
    num_given = len(model.encode_prefix("the old dog"))
    assert [step.forced for step in sentence.steps] == [at < num_given for at in range(len(sentence.steps))]
    assert sentence.target.text == model("the old dog").text
    assert sentence.source.pieces == ()
    assert sentence.source.text == "the old dog"
    assert sentence.attention.keys() == {"decoder"}
    _, maps = forced_maps(model.engine.model, (), ids_of(model, sentence))
    assert_maps_are(sentence, maps)
    assert not sentence.contributions
    assert not sentence.deletion
    assert sentence.lens
    (from_nothing,) = inspect(language, "").trace.sentences
    assert not any(step.forced for step in from_nothing.steps)
    least = min((step.logp, at) for at, step in enumerate(sentence.steps) if not step.forced)[1]
    assert draft_lecture(TraceDocument(sentences=(sentence,))).slides[1].state == f"step={least + 1}"
    with pytest.raises(HeedfulError, match="has no reference: remove --reference"):
        inspect(language, "the old", reference="dog")


def test_only_answers_for_the_same_picture_are_compared():
    same = TraceDocument(sentences=(synthetic.caption(), synthetic.caption(name="b")))
    other = synthetic.caption()
    black = b64encode(picture_png(np.zeros((32, 32, 3), np.uint8))).decode()
    other = other.model_copy(update={"source": other.source.model_copy(update={"picture": black})})
    slides = Lecture(slides=(Slide(panel="compare"),))
    assert attach_lecture(same, slides).lecture == slides
    with pytest.raises(ConfigError, match="nothing to compare with"):
        attach_lecture(TraceDocument(sentences=(synthetic.caption(), other)), slides)


# ------------------------------------------------------------------------------------------------- hostile traces


PNG = b64decode(synthetic.picture_of().picture)


def with_size(width, height):
    return b64encode(PNG[:16] + struct.pack(">II", width, height) + PNG[24:]).decode()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"picture": "<svg onload=alert(1)>"}, "is not a PNG in base64"),
        ({"picture": b64encode(b"<svg xmlns='http://www.w3.org/2000/svg'/>").decode()}, "is not a PNG in base64"),
        ({"picture": b64encode(PNG[:20]).decode()}, "is not a PNG in base64"),
        ({"picture": b64encode(PNG).decode() + '"/><script>'}, "is not a PNG in base64"),
        ({"picture": with_size(100_000, 32)}, "has 100,000 x 32 pixels; the limit is 4,096 per side"),
        ({"picture": with_size(0, 32)}, "has 0 x 32 pixels"),
        ({"picture": b64encode(PNG + bytes(1 << 22)).decode()}, "at most 4194304 characters"),
        ({"picture": 5}, "valid string"),
        ({"picture": None}, "add the `picture` that they are parts of"),
        ({"pieces": []}, "every piece of a picture has a `box`"),
        ({"pieces": [{"text": "a", "box": [0.5, 0, 0.5, 1]}]}, "left must be less than right"),
        ({"pieces": [{"text": "a", "box": [0, 0, 1, 2]}]}, "less than or equal to 1"),
        ({"pieces": [{"text": "a", "box": [0, 0, 1]}]}, "Field required"),
        ({"pieces": [{"text": "a"}]}, "every piece of a picture has a `box`"),
    ],
)
def test_pictures_of_a_trace_are_checked(change, message):
    tree = json.loads(dump_trace(TraceDocument(sentences=(synthetic.caption(),))))
    tree["sentences"][0]["source"] |= change
    with pytest.raises(HeedfulError, match=re.escape(message)):
        parse_trace(json.dumps(tree))


# -------------------------------------------------------------------------------------------------------- figures


def test_a_figure_has_the_picture_once_per_word():
    sentence = synthetic.caption(num_words=7)
    svg = ElementTree.fromstring(render_svg(sentence))
    groups = svg.findall("{*}g")
    assert [group.find("{*}text").text for group in groups] == [*synthetic.WORDS[:7], "</s>"]
    weights = sentence.attention["cross"].array().mean((0, 1))
    for row, group in enumerate(groups[:6]):
        veils = [float(rect.get("fill-opacity")) for rect in group.findall("{*}rect") if rect.get("fill-opacity")]
        assert veils == pytest.approx(0.85 * (1 - weights[row] / weights[row].max()), abs=1e-3)
    assert svg.find("{*}defs/{*}image").get("{http://www.w3.org/1999/xlink}href").endswith(sentence.source.picture)


def test_a_terminal_shows_a_map_per_word():
    chart = render_terminal(synthetic.caption(num_words=6)).plain.splitlines()
    assert max(map(len, chart)) <= 80
    assert chart[8].split() == ["the", "quick", "brown", "fox"]


def test_the_command_line_draws_pictures(captions, pictures, tmp_path):
    path = pictures / "pictures" / "train3.png"
    done = CliRunner().invoke(
        app,
        ["inspect", str(captions), str(path), "--no-evidence", "--terminal", "--svg", str(tmp_path / "a.svg")],
    )
    assert done.exit_code == 0, done.output
    assert "<image" in (tmp_path / "a.svg").read_text(encoding="utf-8")
    missing = CliRunner().invoke(app, ["inspect", str(captions), "nowhere.png"])
    assert isinstance(missing.exception, MediaError)
    assert "nowhere.png: there is no such file" in str(missing.exception)


# ---------------------------------------------------------------------------------------------------------- the page


READ_VEILS = """() => [...document.querySelectorAll('.words.picture .piece')]
    .map((node) => Number(node.style.getPropertyValue('--veil')))"""


def save_page(folder, *sentences, **fields):
    return Page(TraceDocument(sentences=sentences, **fields)).save(folder / "page.html")


@pytest.mark.slow
def test_the_picture_shows_where_a_step_looks(chromium, tmp_path):
    sentence = synthetic.caption()
    weights = sentence.attention["cross"].array()
    with opened(chromium, save_page(tmp_path, sentence), "#lang=en&step=2&head=1.2") as tab:
        until(tab, "document.querySelector('.words.picture img').naturalWidth === 32")
        box = tab.locator(".words.picture").bounding_box()
        assert box["width"] == pytest.approx(box["height"], abs=1)
        assert box["width"] > 100
        assert tab.eval_on_selector_all(".words.picture .piece", "all => all.length") == 64
        for step in (1, 2):
            row = weights[0, 1, step]
            assert tab.evaluate(READ_VEILS) == pytest.approx(1 - row / row.max(), abs=2e-3)
            press(tab, "ArrowRight")
        tab.click(".words.picture [data-at='13']")
        settled(tab)
        lit = "document.querySelector('.words.picture .lit').dataset.at"
        assert tab.evaluate(lit) == "13"
        assert tab.get_attribute(".words.picture [data-at='13']", "aria-label") == "patch F2"
        tab.focus(".words.picture [data-at='13']")
        for key, slot in (("ArrowDown", 21), ("ArrowRight", 22), ("ArrowUp", 14), ("ArrowLeft", 13)):
            press(tab, key)
            assert tab.evaluate(lit) == str(slot)
            assert tab.evaluate("document.activeElement.dataset.at") == str(slot)
        visit(tab, "#lang=en&place=decoder&tab=map")
        assert tab.query_selector(".words.picture") is None


@pytest.mark.slow
def test_links_are_drawn_again_when_the_picture_is_there(chromium, tmp_path):
    frame = "[...Object.values(document.querySelector('.words.picture').getBoundingClientRect().toJSON())].join()"
    with opened(chromium, save_page(tmp_path, random_sentence("transformer")), "#lang=en&theme=light") as tab:
        tab.evaluate(f"""() => {{
            const clear = CanvasRenderingContext2D.prototype.clearRect;
            CanvasRenderingContext2D.prototype.clearRect = function (...box) {{
                if (this.canvas.closest(".links")) window.drawn = {frame};
                return clear.apply(this, box);
            }};
        }}""")
        for theme in ("dark", "projector", "light"):
            press(tab, "t")
            assert tab.get_attribute("html", "data-theme") == theme
            until(tab, "document.querySelector('.words.picture img').naturalWidth > 0")
            until(tab, f"window.drawn === {frame}")


@pytest.mark.slow
def test_a_quiz_is_answered_in_the_picture(chromium, tmp_path):
    sentence = synthetic.caption(reading=TraceAlignment(layer=0, head=1))
    right, wrong = (json.dumps(GLOSSARY["en"][key]) for key in ("right", "wrong"))
    weights, following = sentence.attention["cross"].array()[0, 1, :2]
    with opened(chromium, save_page(tmp_path, sentence), "#lang=en") as tab:
        press(tab, "q")
        assert set(tab.evaluate(READ_VEILS)) == {0}
        assert tab.inner_text(".quiz-options") == GLOSSARY["en"]["quiz-picture"]
        tab.click(f".words.picture [data-at='{weights.argmax()}']")
        until(tab, f"document.querySelector('.quiz-bar').textContent.includes({right})")
        assert tab.evaluate(READ_VEILS) == pytest.approx(1 - weights / weights.max(), abs=2e-3)
        click(tab, "[data-key=next-question]")
        tab.click(f".words.picture [data-at='{following.argmin()}']")
        until(tab, f"document.querySelector('.quiz-bar').textContent.includes({wrong})")


SIZES = {"wide": (1280, 800, "light"), "narrow": (390, 844, "dark"), "projector": (1280, 800, "projector")}


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_pages_of_pictures_and_language_models_fit(size, chromium, tmp_path):
    sentences = {
        "caption": synthetic.caption(),
        "caption with evidence": random_sentence("transformer", evidence=True, vectors=PLACES),
        "long caption": synthetic.caption(num_words=20, name="b"),
        "one vector": random_sentence("one vector"),
        "language model": synthetic.continuation(),
        "without maps": random_sentence("lstm"),
    }
    width, height, theme = SIZES[size]
    problems = []
    path = save_page(tmp_path, *sentences.values())
    with opened(chromium, path, f"#theme={theme}", width=width, height=height) as tab:
        for number, (name, sentence) in enumerate(sentences.items(), 1):
            for tab_name in TABS if name.startswith("caption") else ("next", TABS[1 + number % 5]):
                language = LANGUAGES[(number + TABS.index(tab_name)) % 3]
                visit(tab, f"#theme={theme}&lang={language}&sentence={number}&tab={tab_name}")
                problems += [(name, language, tab_name, problem) for problem in tab.evaluate(LAYOUT_CHECK)]
            assert bool(tab.query_selector(".words.picture img")) == (sentence.source.picture is not None)
            press(tab, "q", "Escape", "l", "ArrowRight", "Escape")
    assert problems == []


@pytest.mark.slow
def test_texts_of_the_page_fit_the_source(chromium, tmp_path):
    text = synthetic.sentence_of(synthetic.english(3), synthetic.english(3))
    sentences = [synthetic.caption(), text, synthetic.continuation()]
    with opened(chromium, save_page(tmp_path, *sentences), "#lang=en") as tab:
        for number, question in ((1, "picture: question-stage"), (2, "question-stage"), (3, "question-stage")):
            for language in LANGUAGES if number == 1 else ("en",):
                visit(tab, f"#lang={language}&sentence={number}")
                assert tab.inner_text("#stage h2") == GLOSSARY[language][question]
        visit(tab, "#lang=en&sentence=3")
        assert int(tab.input_value("#stage [data-key=step]")) >= 2  # the first words were given
        assert "the quick" in tab.inner_text("header .sentence")


@pytest.mark.slow
def test_hostile_names_of_pictures_are_only_text(chromium, tmp_path):
    name = '"><img src=x onerror="document.title=1"><script>document.title=2</script>\u202e.png'
    caption = synthetic.caption()
    hostile = tuple(piece.model_copy(update={"text": name}) for piece in caption.source.pieces)
    source = caption.source.model_copy(update={"text": name, "pieces": hostile})
    with opened(chromium, save_page(tmp_path, caption.model_copy(update={"source": source})), "#lang=en") as tab:
        for key in "1234567ql":
            press(tab, key)
            assert len(tab.query_selector_all("#app img")) == 1
            assert tab.query_selector_all("#app script") == []
            press(tab, "Escape")
        assert tab.get_attribute(".words.picture img", "alt") == name.replace("\u202e", "\\u202e")
        assert tab.title() == "heedful inspect"
    svg = ElementTree.fromstring(render_svg(caption.model_copy(update={"source": source})))
    assert svg.find("{*}title").text.startswith(name[:20])


@pytest.mark.slow
@pytest.mark.skipif(not AXE, reason="HEEDFUL_AXE does not name axe.min.js of the npm package axe-core")
@pytest.mark.parametrize(("theme", "language"), [("light", "en"), ("dark", "pt"), ("projector", "ru")])
def test_axe_finds_no_violation(theme, language, chromium, tmp_path):
    path = save_page(tmp_path, synthetic.caption(), synthetic.continuation(), title="axe")
    look, violations = f"#lang={language}&theme={theme}", []
    with opened(chromium, path, look, bypass_csp=True, reduced_motion="reduce") as tab:
        for number in (1, 2):
            for name in ("next", "heads", "map"):
                visit(tab, f"{look}&sentence={number}&tab={name}")
                violations += [(number, name, *violation) for violation in axe_violations(tab, Path(AXE))]
            press(tab, "q")
            violations += [(number, "quiz", *violation) for violation in axe_violations(tab, Path(AXE))]
            press(tab, "Escape")
    assert violations == []

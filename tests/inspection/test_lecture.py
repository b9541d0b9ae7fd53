"""Lectures: what is written is read, what is wrong is named by file, slide and key, and a draft fits its sentence."""

import json
import re
import shlex
import sys
from contextlib import suppress
from dataclasses import replace
from functools import cache
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from heedful.cli.app import app
from heedful.errors import ConfigError, HeedfulError
from heedful.html import VIEWER
from heedful.inspection.api import inspect, load_lecture
from heedful.inspection.lecture import (
    arithmetic_places,
    attach_lecture,
    draft_lecture,
    format_lecture,
    parse_lecture,
)
from heedful.inspection.record import record_sentence
from heedful.search import Beam
from heedful.trace import (
    LIVE_KEYS,
    MAX_NOTES,
    MAX_SLIDES,
    PAGE_LANGUAGES,
    PANELS,
    STATE_CHOICES,
    STATE_PATTERNS,
    STATE_TEXTS,
    Lecture,
    Slide,
    Snapshot,
    SnapshotSeries,
    TraceAlignment,
    TraceDocument,
    dump_trace,
    parse_state,
    parse_trace,
)
from support.inspection_models import MODELS, built, inspected, student, tokenize

TEXT = "the old dog sees a red house"

# ------------------------------------------------------------------------------------------------------- the file

VALUES = {
    **{key: st.sampled_from(choices) for key, choices in STATE_CHOICES.items()},
    **{key: st.from_regex(pattern, fullmatch=True) for key, (pattern, _) in STATE_PATTERNS.items()},
    "text": st.text(min_size=1).filter(str.strip).map(quote),
    "force": st.lists(st.text(min_size=1).filter(str.strip)).map(json.dumps).map(quote),
}
STATES = st.fixed_dictionaries({}, optional=VALUES).map(
    lambda values: "&".join(f"{key}={value}" for key, value in values.items())
)
NASTY = st.sampled_from(
    ['"', '"""', "\\", "\n", "\r\n", "\t", "\0", "\x7f", "\x85", "\u2028", "\ufeff", "#", "'", "😀"]
)
TEXTS = st.lists(st.one_of(st.text(max_size=20), NASTY), max_size=6).map("".join)
SLIDES = st.builds(
    Slide,
    panel=st.sampled_from(PANELS),
    state=STATES,
    notes=st.dictionaries(st.sampled_from(PAGE_LANGUAGES), TEXTS),
)
LECTURES = st.builds(Lecture, title=TEXTS, slides=st.lists(SLIDES, min_size=1, max_size=4).map(tuple))


@given(LECTURES)
def test_what_is_written_is_read(tmp_path_factory, lecture):
    text = format_lecture(lecture)
    assert parse_lecture(text) == lecture
    path = tmp_path_factory.getbasetemp() / "round-trip.toml"
    path.write_text(text, encoding="utf-8", newline="\n")
    assert load_lecture(path) == (lecture, str(path))


@given(LECTURES)
def test_a_trace_keeps_its_lecture(lecture):
    assert parse_trace(dump_trace(TraceDocument(lecture=lecture))).lecture == lecture


def test_a_lecture_by_hand():
    lecture = parse_lecture(
        """
        title = "Attention"
        [[slide]]
        panel = "stage"
        notes = "One in, one out."
        [[slide]]
        panel = "map"
        state = "step=2&head=3.2&slot=3&scene=4"
        [slide.notes]
        en = "Where does 76 % come from?"
        pt = "De onde vêm 76 %?"
        [[slide]]
        panel = "heads"
        notes.ru = "Головы"
        """
    )
    assert lecture == Lecture(
        title="Attention",
        slides=(
            Slide(panel="stage", notes={"en": "One in, one out."}),
            Slide(
                panel="map",
                state="step=2&head=3.2&slot=3&scene=4",
                notes={"en": "Where does 76 % come from?", "pt": "De onde vêm 76 %?"},
            ),
            Slide(panel="heads", notes={"ru": "Головы"}),
        ),
    )
    written = json.loads(dump_trace(TraceDocument(lecture=lecture)))["lecture"]
    assert written["slides"][0] == {"panel": "stage", "notes": {"en": "One in, one out."}}
    assert written["slides"][2] == {"panel": "heads", "notes": {"ru": "Головы"}}


@given(STATES)
def test_a_state_is_its_keys_and_values(state):
    assert "&".join(f"{key}={value}" for key, value in parse_state(state).items()) == state


@pytest.mark.parametrize("key", [*STATE_CHOICES, *STATE_PATTERNS])
@pytest.mark.parametrize("value", ["", "0x", "-1", "１", "1 ", "x", "1.0.1", "%31"])
def test_no_key_takes_any_value(key, value):
    with pytest.raises(ValueError, match=f"`{key}` is {value!r}"):
        parse_state(f"{key}={value}")


FIRST = '[[slide]]\npanel = "stage"\n\n[[slide]]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("panel = map", "my.toml is not TOML: Invalid value (at line 1, column 9); put text in quotes, such as panel"),
        ("[[slide]", "my.toml is not TOML: Expected ']]'"),
        ("x = " + "[" * 100_000, "my.toml is not TOML: "),
        ("", "my.toml: there is no slide: write [[slide]], and below it, for example, panel ="),
        ('titles = "x"', "my.toml: unknown key `titles`; did you mean `title`?"),
        ("[[slides]]", "my.toml: unknown key `slides`; did you mean `slide`?"),
        ('[slide]\npanel = "map"', "my.toml: write [[slide]], with two brackets on each side"),
        ('slide = ["map"]', "my.toml: write [[slide]], with two brackets on each side"),
        (f"title = 5\n{FIRST}panel = 'map'", "my.toml: `title` is 5, which is not text; put text in quotes"),
        (FIRST, "my.toml: slide 2: `panel` is missing: add one of stage, next, heads,"),
        (f'{FIRST}panel = "maps"', "my.toml: slide 2: `panel` is 'maps'; did you mean `map`?"),
        (
            f'{FIRST}panel = "attention"',
            "my.toml: slide 2: `panel` is 'attention'; known: alignment, compare, evidence, film,",
        ),
        (f"{FIRST}panel = 4", "my.toml: slide 2: `panel` is 4; known: alignment, compare, evidence"),
        (f'{FIRST}panels = "map"\npanel = "map"', "my.toml: slide 2: unknown key `panels`; did you mean `panel`?"),
        (f'{FIRST}panel = "map"\nstate = 2', "my.toml: slide 2: `state` is 2, which is not text; put text in quotes"),
        (f'{FIRST}panel = "map"\nnotes = 2', "my.toml: slide 2: `notes` is 2, which is not text; put text in quotes"),
        (f'{FIRST}panel = "map"\nnotes.pt = 2', "my.toml: slide 2: `notes.pt` is 2, which is not text"),
        (
            f'{FIRST}panel = "map"\nnotes.fr = "x"',
            "my.toml: slide 2: unknown language `fr` in `notes`; known: en, pt, ru",
        ),
        (
            f'{FIRST}panel = "map"\nnotes = "{"x" * (MAX_NOTES + 1)}"',
            "my.toml: slide 2: `notes.en` has 2,001 characters: shorten it to 2,000, or add a slide",
        ),
        ('[[slide]]\npanel = "stage"\n' * (MAX_SLIDES + 1), "my.toml: 201 slides are too many: write at most 200"),
    ],
)
def test_a_wrong_file_is_answered_in_words(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_lecture(text, "my.toml")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("stpe=2", "unknown key `stpe` in `stpe=2`; did you mean `step`?"),
        ("#step=2", "unknown key `#step` in `#step=2`; did you mean `step`?"),
        ("step=2&", "unknown key `` in ``; known: beam, edit, force"),
        ("step=2&step=3", "`step` appears twice: remove one of them"),
        ("step=0", "`step` is '0': write a number from 1 on"),
        ("step", "`step` is '': write a number from 1 on"),
        ("step=2 & head=3.2", "`step` is '2 ': write a number from 1 on"),
        ("head=3", "`head` is '3': write layer.head, such as 3.2, or mean"),
        ("threshold=2", "`threshold` is '2': write a number between 0 and 1, such as 0.1"),
        ("place=crss", "`place` is 'crss'; did you mean `cross`?"),
        ("lang=fr", "`lang` is 'fr'; known: en, pt, ru"),
        ("text=", "`text` is '': write a sentence, with %26 for & and %25 for %"),
        ("text=100 %", "`text` is '100 %': write a sentence, with %26 for & and %25 for %"),
        ("text=a=b", "`text` is 'a=b': write a sentence"),
        ("text=caf%E9", "`text` is 'caf%E9': write a sentence"),
        ("force=The", "`force` is 'The': write the first pieces as the address of the page has them"),
        ("force=[1]", "`force` is '[1]': write the first pieces"),
        ("search=wide", "`search` is 'wide'; known: beam, greedy, sample"),
        ("beam=1", "`beam` is '1': write a number from 2 to 12"),
        ("silence=cross-mean", "`silence` is 'cross-mean': write heads joined by _, such as cross-3.2_encoder-1.1"),
        ("edit=cross-1.1-2-3", "`edit` is 'cross-1.1-2-3': write place, head, step, slot and percent, such as"),
    ],
)
def test_a_wrong_state_is_answered_in_words(state, message):
    with pytest.raises(ConfigError) as caught:
        parse_lecture(f'{FIRST}panel = "map"\nstate = "{state}"', "my.toml")
    assert str(caught.value).startswith(f"my.toml: slide 2: `state`: {message}")
    with pytest.raises(HeedfulError, match=r"lecture\.slides\.0\.state"):
        parse_trace(json.dumps(json.loads(dump_trace(TraceDocument())) | lecture_json(state)))


def lecture_json(state):
    return {"lecture": {"slides": [{"panel": "map", "state": state}]}}


def test_as_much_as_is_allowed_is_allowed():
    slide = Slide(panel="map", notes=dict.fromkeys(PAGE_LANGUAGES, "é" * MAX_NOTES))
    lecture = Lecture(slides=(slide,) * MAX_SLIDES)
    assert parse_lecture(format_lecture(lecture)) == lecture


FRAGMENTS = [
    "[[slide]]\n",
    "[slide.notes]\n",
    'panel = "map"\n',
    "state = ",
    "notes = ",
    '"step=1"',
    "pt = ",
    "\n",
    '"""',
]


@given(st.lists(st.one_of(st.sampled_from(FRAGMENTS), TEXTS)).map("".join))
def test_any_text_is_read_or_refused_in_words(text):
    with suppress(ConfigError):
        parse_lecture(text)


@pytest.mark.parametrize("key", ["title", "slide", "panel", "state", "notes", "notes.en"])
@pytest.mark.parametrize("value", ["5", "0.5", "nan", "true", "[]", "[1]", "{}", "{ a = 1 }", "2026-01-01", "07:30:00"])
def test_a_value_of_another_type_is_refused_in_words(key, value):
    slide = "" if key == "slide" else '[[slide]]\npanel = "map"\n'
    slide = "[[slide]]\n" if key == "panel" else slide
    text = f"{key} = {value}\n{slide}" if key in ("title", "slide") else f"{slide}{key} = {value}\n"
    if (key, value) == ("notes", "{}"):
        assert parse_lecture(text).slides[0].notes == {}
        return
    with pytest.raises(ConfigError, match=r"slide|title"):
        parse_lecture(text)


# ------------------------------------------------------------------------------------------------ lecture and trace


@cache
def trace_of(kind):
    model = inspected(student(), can_silence_heads=False) if kind == "student" else inspected(built(kind))
    return TraceDocument(title=kind, sentences=(record_sentence(model, tokenize(TEXT), Beam(3), importance=False),))


def changed(trace, **update):
    (sentence,) = trace.sentences
    return trace.model_copy(update={"sentences": (sentence.model_copy(update=update),)})


@pytest.mark.parametrize("kind", [*MODELS, "student"])
def test_a_draft_fits_every_model(kind):
    trace = trace_of(kind)
    lecture = draft_lecture(trace)
    assert 5 <= len(lecture.slides) <= 7
    assert [slide.panel for slide in lecture.slides][:3] == ["stage", "next", "search"]
    assert all(slide.notes["en"] for slide in lecture.slides)
    assert attach_lecture(trace, lecture).lecture == lecture
    assert parse_lecture(format_lecture(lecture)) == lecture
    least_certain = int(np.argmin([step.logp for step in trace.sentences[0].steps])) + 1
    assert lecture.slides[0].state == ""
    assert lecture.slides[1].state == f"step={least_certain}"


@pytest.mark.parametrize("reading", [None, TraceAlignment(layer=1, head=0), TraceAlignment(layer=0)])
def test_a_draft_shows_the_strongest_weight_of_the_least_certain_step(reading):
    trace = changed(trace_of("transformer"), reading=reading)
    maps = [parse_state(slide.state) for slide in draft_lecture(trace).slides if slide.panel == "map"]
    assert [state.pop("scene") for state in maps] == ["1", "4"]
    assert maps[0] == maps[1]
    layer, head = (int(number) - 1 for number in maps[0]["head"].split("."))
    weights = trace.sentences[0].attention["cross"].array()[:, :, int(maps[0]["step"]) - 1]
    if reading and reading.head is not None:
        assert (layer, head) == (1, 0)
        weights = weights[1:2, 0:1]
        layer = head = 0
    assert weights[layer, head, int(maps[0]["slot"]) - 1] == weights.max()


def test_a_draft_without_attention_or_search_has_other_slides():
    trace = changed(trace_of("transformer"), attention={})
    assert [slide.panel for slide in draft_lecture(trace).slides] == ["stage", "next", "search", "stage", "next"]
    assert attach_lecture(trace, draft_lecture(trace)).lecture == draft_lecture(trace)
    panels = [slide.panel for slide in draft_lecture(changed(trace_of("transformer"), tree=None)).slides]
    assert panels == ["stage", "next", "map", "map", "heads"]


def test_a_draft_needs_a_sentence():
    with pytest.raises(ConfigError, match="there is no sentence for the slides: pass one"):
        draft_lecture(TraceDocument())


@pytest.mark.parametrize(
    ("panel", "state", "message"),
    [
        ("stage", "sentence=2", "there is no sentence 2: use 1 to 1"),
        ("stage", "step=999", r"there is no step 999: use 1 to \d+"),
        ("map", "slot=9", "there is no slot 9: use 1 to 8"),
        ("map", "head=3.1", "there is no head 3.1: use 1.1 to 2.2"),
        ("map", "head=2.3&place=encoder", "there is no head 2.3: use 1.1 to 2.2"),
        ("film", "", "there is no film: inspect the directory of a training run"),
        ("compare", "", "there is nothing to compare with: add --against or --against-beam"),
    ],
)
def test_a_slide_of_what_is_not_there_is_refused(panel, state, message):
    lecture = Lecture(slides=(Slide(panel="stage"), Slide(panel=panel, state=state)))
    with pytest.raises(ConfigError, match=f"^my.toml: slide 2: {message}"):
        attach_lecture(trace_of("transformer"), lecture, "my.toml")


def test_the_same_slides_fit_where_everything_is_there():
    trace = trace_of("transformer")
    pair = tuple(trace.sentences[0].model_copy(update={"name": name}) for name in ("one", "other"))
    film = SnapshotSeries(sources=(), frames=(Snapshot(step=1, takes=()),))
    slides = [("stage", "sentence=2"), ("compare", ""), ("film", ""), ("map", "slot=8&head=2.2"), ("map", "head=mean")]
    slides += [("map", "place=encoder&step=8&slot=8"), ("map", "place=decoder&slot=1")]
    lecture = Lecture(slides=tuple(Slide(panel=panel, state=state) for panel, state in slides))
    assert attach_lecture(TraceDocument(sentences=pair, film=film), lecture).lecture == lecture


def test_a_row_of_the_encoder_is_a_slot_of_the_source():
    source = replace(tokenize(TEXT), max_length=3)
    sentence = record_sentence(inspected(built("transformer")), source, Beam(3), importance=False)
    trace = TraceDocument(sentences=(sentence,))
    assert len(sentence.steps) < 8 == len(sentence.source.pieces)
    assert attach_lecture(trace, Lecture(slides=(Slide(panel="map", state="place=encoder&step=8"),))).lecture
    with pytest.raises(ConfigError, match="slide 1: there is no step 8: use 1 to"):
        attach_lecture(trace, Lecture(slides=(Slide(panel="map", state="step=8"),)))


def test_a_head_needs_attention_and_a_slide_needs_a_sentence():
    trace = changed(trace_of("transformer"), attention={})
    with pytest.raises(ConfigError, match="slide 1: this model has no cross attention: remove head and slot"):
        attach_lecture(trace, Lecture(slides=(Slide(panel="map", state="head=1.1"),)))
    with pytest.raises(ConfigError, match="slide 1: there is no sentence 1: pass a sentence"):
        attach_lecture(TraceDocument(), Lecture(slides=(Slide(panel="stage"),)))


ASKED = "text=the dog sees"


@pytest.mark.parametrize(
    ("panel", "state"),
    [
        ("stage", ASKED),
        ("map", f"{ASKED}&sentence=2&step=99&head=2.2&slot=99"),
        ("next", f"{ASKED}&search=sample&temperature=1.5&topk=0&seed=3"),
        ("heads", f"{ASKED}&silence=cross-2.2_encoder-1.1&edit=cross-mean-1-2-100_decoder-1.2-3-1-0"),
        ("search", f"{ASKED}&force=%5B%22a%22%5D&beam=12&penalty=0.6"),
    ],
)
def test_a_slide_of_a_live_page_asks_the_model(panel, state):
    lecture = Lecture(slides=(Slide(panel=panel, state=state),))
    assert attach_lecture(trace_of("transformer"), lecture, is_live=True).lecture == lecture
    with pytest.raises(
        ConfigError, match=r"^my.toml: slide 1: `text` asks the model, which is not in this page: add --"
    ):
        attach_lecture(trace_of("transformer"), lecture, "my.toml")


@pytest.mark.parametrize(
    ("panel", "state", "message"),
    [
        ("stage", "silence=cross-1.1", "`silence` has no `text`: add the sentence to translate"),
        ("evidence", ASKED, "`text` is for what the model answers, which has no evidence: remove `text`, or choose"),
        ("map", f"{ASKED}&head=3.1", "there is no head 3.1: use 1.1 to 2.2"),
        ("map", f"{ASKED}&silence=cross-1.1_decoder-2.3", "there is no head 2.3: use 1.1 to 2.2"),
        ("map", f"{ASKED}&edit=encoder-4.1-1-1-50", "there is no head 4.1: use 1.1 to 2.2"),
    ],
)
def test_a_question_that_a_live_page_cannot_answer_is_refused(panel, state, message):
    lecture = Lecture(slides=(Slide(panel=panel, state=state),))
    with pytest.raises(ConfigError, match=f"^my.toml: slide 1: {message}"):
        attach_lecture(trace_of("transformer"), lecture, "my.toml", is_live=True)


def test_a_question_about_attention_needs_attention_and_a_live_lecture_a_sentence():
    trace = changed(trace_of("transformer"), attention={})
    lecture = Lecture(slides=(Slide(panel="map", state=f"{ASKED}&place=cross"),))
    with pytest.raises(ConfigError, match="slide 1: this model has no cross attention: remove its heads from `state`"):
        attach_lecture(trace, lecture, is_live=True)
    with pytest.raises(ConfigError, match="slide 1: there is no sentence to open the page with: pass one, in quotes"):
        attach_lecture(TraceDocument(), lecture, is_live=True)


def test_scenes_bring_their_vectors():
    states = ("scene=1", "place=decoder&scene=2", "place=encoder", "")
    lecture = Lecture(slides=tuple(Slide(panel="map", state=state) for state in states))
    assert arithmetic_places(lecture) == ("cross", "decoder")
    assert arithmetic_places(None) == ()
    page = inspect(inspected(built("transformer")), TEXT, lecture=lecture, importance=False, arithmetic=["decoder"])
    assert set(page.trace.sentences[0].vectors) == {"cross", "decoder"}
    assert page.trace.lecture == lecture
    assert '"lecture":{"slides":[{"panel":"map","state":"scene=1"}' in page.html()


# ------------------------------------------------------------------------------------- Python and the command line


def test_a_path_a_text_and_a_lecture_are_the_same(tmp_path):
    trace, path = trace_of("transformer"), tmp_path / "lecture.toml"
    lecture = draft_lecture(trace)
    path.write_text(format_lecture(lecture), encoding="utf-8-sig")  # as editors on Windows write it
    for source in (path, str(path), format_lecture(lecture), lecture):
        assert inspect(trace, lecture=source).trace.lecture == lecture
    assert inspect(trace).trace.lecture is None
    with pytest.raises(ConfigError, match=r"^the lecture: slide 1: `panel` is 'maps'"):
        inspect(trace, lecture='[[slide]]\npanel = "maps"\n')


def test_a_file_that_cannot_be_read(tmp_path):
    (tmp_path / "lecture.toml").write_bytes(b"# caf\xe9")
    with pytest.raises(ConfigError, match="is not UTF-8 at byte 6: save it as UTF-8"):
        inspect(TraceDocument(), lecture=tmp_path / "lecture.toml")
    with pytest.raises(ConfigError, match=r"there is no lecture file .*; did you mean `lecture\.toml`\?"):
        inspect(TraceDocument(), lecture=tmp_path / "lectur.toml")


def run(*arguments):
    return CliRunner().invoke(app, ["inspect", *map(str, arguments)])


def test_the_command_line_writes_a_lecture_and_opens_it(tmp_path, monkeypatch):
    trace, path, page = (tmp_path / name for name in ("trace.json", "my lecture.toml", "page.html"))
    trace.write_text(dump_trace(trace_of("transformer")), encoding="utf-8")
    words = [str(trace), "--write-lecture", str(path), "--pieces"]
    monkeypatch.setattr(sys, "argv", ["heedful", "inspect", *words])
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert not (tmp_path / "inspect.html").exists()
    lecture = draft_lecture(parse_trace(trace.read_bytes()))
    assert parse_lecture(path.read_text(encoding="utf-8")) == lecture
    assert f"{path}: 6 slides. Edit them, then run: heedful inspect " in result.stderr
    heedful, inspect_word, *printed, last = shlex.split(result.stderr.partition("then run: ")[2])
    assert (heedful, inspect_word, last) == ("heedful", "inspect", "--open")
    result = run(*printed, "--out", page, "--json", tmp_path / "with.json")
    assert result.exit_code == 0, result.output
    assert parse_trace((tmp_path / "with.json").read_bytes()).lecture == lecture
    assert f'"lecture":{{"title":"{TEXT}"' in page.read_text(encoding="utf-8")
    assert run(tmp_path / "with.json", "--validate").exit_code == 0


def test_the_command_line_overwrites_nothing(tmp_path):
    trace, path = tmp_path / "trace.json", tmp_path / "lecture.toml"
    trace.write_text(dump_trace(trace_of("transformer")), encoding="utf-8")
    path.write_text("mine")
    result = run(trace, "--write-lecture", path)
    assert isinstance(result.exception, ConfigError)
    assert "lecture.toml already exists: choose another name, or delete it first" in str(result.exception)
    assert path.read_text() == "mine"
    result = run(trace, "--write-lecture", path, "--lecture", path)
    assert "use --lecture or --write-lecture, not both" in str(result.exception)


def test_the_page_and_the_file_have_the_same_keys():
    """An address that the page writes can be copied into a slide; `slide` itself is the position in the lecture."""
    script = (VIEWER / "state.js").read_text(encoding="utf-8")
    page_keys = set(re.findall(r'"(\w+)"', re.search(r"const ADDRESS_KEYS = \[(.*?)\]", script, re.DOTALL)[1]))
    assert page_keys - {"slide"} == (STATE_CHOICES.keys() | STATE_PATTERNS.keys()) - set(LIVE_KEYS)
    script = (VIEWER / "whatif.js").read_text(encoding="utf-8")
    tables = "".join(re.findall(r"const (?:SETTINGS|CHANGES) = \{(.*?)\};", script))
    assert set(LIVE_KEYS) - {"text"} == set(re.findall(r"(\w+):", tables))
    assert set(LIVE_KEYS) <= STATE_CHOICES.keys() | STATE_PATTERNS.keys() | STATE_TEXTS.keys()

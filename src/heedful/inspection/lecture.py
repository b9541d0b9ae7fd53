"""A lecture: slides that lead through the inspection page, as a TOML file that a lecturer writes.

    lecture = parse_lecture(text)               # ConfigError with file, slide and key
    text = format_lecture(lecture)              # parse_lecture(format_lecture(lecture)) == lecture
    lecture = draft_lecture(trace)              # a few slides for a sentence, to start from
    trace = attach_lecture(trace, lecture)      # ConfigError if a slide shows what the trace does not contain

`Lecture` and `Slide` are parts of a trace (heedful.trace).
"""

import tomllib
from collections.abc import Mapping
from math import exp
from typing import Any, cast

import numpy as np
from pydantic import ValidationError

from heedful.config.toml import tree_to_toml
from heedful.errors import ConfigError, did_you_mean
from heedful.trace import (
    LIVE_KEYS,
    MAX_NOTES,
    MAX_SLIDES,
    PAGE_LANGUAGES,
    PANELS,
    PLACES,
    Lecture,
    Panel,
    Place,
    Sentence,
    Slide,
    TraceDocument,
    parse_state,
)

FILE_KEYS = ("title", "slide")
HEADER = f"""\
# The slides of a lecture. Each one begins with [[slide]] and has these keys:
# panel   {", ".join(PANELS)}
# state   what follows # in the address of the page, such as step=2&head=3.2 (numbers count from 1)
# notes   what you want to say: text, or one text per language (notes.en, notes.pt, notes.ru)

"""


# ------------------------------------------------------------------------------------------------------- the file


def parse_lecture(text: str, file: str = "the lecture") -> Lecture:
    """Parse the text of a lecture file; error messages call it `file`."""
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        hint = '; put text in quotes, such as panel = "map"' if "Invalid value" in str(error) else ""
        raise ConfigError(f"{file} is not TOML: {error}{hint}") from None
    for key in tree:
        if key not in FILE_KEYS:
            raise ConfigError(f"{file}: unknown key `{key}`{did_you_mean(key, FILE_KEYS)}")
    slides = tree.get("slide", [])
    if not isinstance(slides, list) or not all(isinstance(slide, dict) for slide in slides):
        raise ConfigError(f"{file}: write [[slide]], with two brackets on each side, above the keys of each slide")
    try:
        return Lecture.model_validate({"title": tree.get("title", ""), "slides": list(map(_name_language, slides))})
    except ValidationError as failure:
        raise ConfigError(f"{file}: {_explain(failure.errors()[0])}") from None


def format_lecture(lecture: Lecture) -> str:
    """The text of a lecture file."""
    title = {"title": lecture.title} if lecture.title else {}
    slides = [slide.model_dump(exclude_defaults=True) for slide in lecture.slides]
    for slide in slides:
        if slide.get("notes", {}).keys() == {"en"}:
            slide["notes"] = slide["notes"]["en"]
    return HEADER + tree_to_toml({**title, "slide": slides})


def _name_language(slide: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a slide; notes without a language are English."""
    notes = slide.get("notes")
    return {**slide, "notes": {"en": notes}} if isinstance(notes, str) else dict(slide)


def _explain(error: Mapping[str, Any]) -> str:
    """What is wrong, in which slide and key, and what to do."""
    location, kind, value = error["loc"], error["type"], error["input"]
    if kind == "too_short":
        return 'there is no slide: write [[slide]], and below it, for example, panel = "stage"'
    if kind == "too_long":
        return f"{len(value)} slides are too many: write at most {MAX_SLIDES}, and the others to a second file"
    slide = f"slide {location[1] + 1}: " if location[0] == "slides" else ""
    key = ".".join(map(str, location[2:])) if slide else "title"
    match kind:
        case "missing":
            return f"{slide}`{key}` is missing: add one of {', '.join(PANELS)}"
        case "extra_forbidden":
            return f"{slide}unknown key `{key}`{did_you_mean(key, Slide.model_fields)}"
        case "literal_error" if location[-1] == "[key]":
            return f"{slide}unknown language `{value}` in `notes`{did_you_mean(value, PAGE_LANGUAGES)}"
        case "literal_error":
            return f"{slide}`{key}` is {value!r:.60}{did_you_mean(str(value), PANELS)}"
        case "string_too_long":
            return f"{slide}`{key}` has {len(value):,} characters: shorten it to {MAX_NOTES:,}, or add a slide"
        case "value_error":
            return f"{slide}`{key}`: {error['msg'].removeprefix('Value error, ')}"
    return f"{slide}`{key}` is {value!r:.60}, which is not text; put text in quotes"


# ------------------------------------------------------------------------------------------------ lecture and trace


def attach_lecture(
    trace: TraceDocument, lecture: Lecture | None, file: str = "the lecture", *, is_live: bool = False
) -> TraceDocument:
    """The trace with the lecture, if there is one and the trace contains everything that its slides show.

    The slides of a live page may also ask the model (`text` in their state).
    """
    if lecture is None:
        return trace
    for number, slide in enumerate(lecture.slides, 1):
        if problem := find_missing(trace, slide, is_live=is_live):
            raise ConfigError(f"{file}: slide {number}: {problem}")
    return trace.model_copy(update={"lecture": lecture})


def find_missing(trace: TraceDocument, slide: Slide, *, is_live: bool = False) -> str | None:
    """What the slide shows and the trace does not contain, and what to do."""
    values = parse_state(slide.state)
    if question := [key for key in LIVE_KEYS if key in values]:
        return find_missing_of_question(trace, slide.panel, values, question[0], is_live=is_live)
    if slide.panel == "film":
        return None if trace.film else "there is no film: inspect the directory of a training run"
    number, count = int(values.get("sentence", 1)), len(trace.sentences)
    if number > count:
        return f"there is no sentence {number}: {f'use 1 to {count}' if count else 'pass a sentence'}"
    sentence = trace.sentences[number - 1]
    if slide.panel == "compare" and sum(is_same_source(other, sentence) for other in trace.sentences) < 2:
        return "there is nothing to compare with: add --against or --against-beam"
    limits = {"step": len(sentence.steps)}
    place = cast("Place", values.get("place", "cross"))
    if place in sentence.attention:
        layers, heads, rows, limits["slot"] = sentence.attention[place].shape
        limits["step"] = max(limits["step"], rows)  # a row of the encoder's map is a slot of the source
        layer, _, head = values.get("head", "mean").partition(".")
        if head and (int(layer) > layers or int(head) > heads):
            return f"there is no head {layer}.{head}: use 1.1 to {layers}.{heads}"
    elif {"head", "slot"} & values.keys():
        return f"this model has no {place} attention: remove head and slot from `state`"
    for key, limit in limits.items():
        if int(values.get(key, 1)) > limit:
            return f"there is no {key} {values[key]}: use 1 to {limit}"
    return None


def find_missing_of_question(
    trace: TraceDocument, panel: Panel, values: Mapping[str, str], key: str, *, is_live: bool
) -> str | None:
    """What a slide needs that asks the model; only the page knows the steps and slots of the answer."""
    if not is_live:
        return f"`{key}` asks the model, which is not in this page: add --live, or remove `{key}`"
    if key != "text":
        return f"`{key}` has no `text`: add the sentence to translate, such as text=Bom dia"
    if not trace.sentences:
        return "there is no sentence to open the page with: pass one, in quotes, after the model"
    if panel in {"film", "evidence"}:
        return f"`text` is for what the model answers, which has no {panel}: remove `text`, or choose another panel"
    attention = trace.sentences[0].attention  # every answer of a model has the same heads
    changes = "_".join(values[name] for name in ("silence", "edit") if name in values)
    shown = (
        [f"{values.get('place', 'cross')}-{values.get('head', 'mean')}"] if {"place", "head"} & values.keys() else []
    )
    for change in [*shown, *filter(None, changes.split("_"))]:
        place, head, *_ = change.split("-")
        if place not in attention:
            return f"this model has no {place} attention: remove its heads from `state`"
        layers, count = attention[place].shape[:2]
        layer, _, number = head.partition(".")
        if number and (int(layer) > layers or int(number) > count):
            return f"there is no head {head}: use 1.1 to {layers}.{count}"
    return None


def is_same_source(first: Sentence, second: Sentence) -> bool:
    """Whether two answers can be compared: the page has the same rule (`alternatives` in viewer/engine.js)."""
    return first.source.text == second.source.text and first.source.picture == second.source.picture


def arithmetic_places(lecture: Lecture | None) -> tuple[Place, ...]:
    """The places whose vectors the slides with a `scene` show."""
    states = [parse_state(slide.state) for slide in lecture.slides] if lecture else []
    shown = {state.get("place", "cross") for state in states if "scene" in state}
    return tuple(place for place in PLACES if place in shown)


# ------------------------------------------------------------------------------------------------------- the draft


def draft_lecture(trace: TraceDocument) -> Lecture:
    """Five or six slides about the first sentence, at the step where the model was least certain."""
    if not trace.sentences or not trace.sentences[0].steps:
        raise ConfigError("there is no sentence for the slides: pass one, in quotes, after the model")
    sentence = trace.sentences[0]
    count = len(sentence.steps)
    chosen = [index for index, step in enumerate(sentence.steps) if not step.forced] or range(count)
    row = min(chosen, key=lambda index: sentence.steps[index].logp)
    state, piece = f"step={row + 1}", sentence.target.pieces[row].text.strip()[:40]
    slides = [
        _slide("stage", "", f"One sentence in, one sentence out: {count} pieces, one per step."),
        _slide(
            "next",
            state,
            f'The least certain step: "{piece}" has a probability of {_percent(exp(sentence.steps[row].logp))}. '
            "Which pieces could be here instead?",
        ),
    ]
    if sentence.tree:
        slides += [_slide("search", state, "Which other translations did the search consider, and why did they lose?")]
    if "cross" in sentence.attention:
        slides += _draft_attention(sentence, row)
    else:
        slides += [
            _slide("stage", state, "What does the model know of the source here, and what of its own output?"),
            _slide("next", f"step={count}", "Why does the translation end here?"),
        ]
    return Lecture(title=sentence.source.text[:80], slides=tuple(slides))


def _draft_attention(sentence: Sentence, row: int) -> list[Slide]:
    """Three slides about the strongest weight of a step, in the head that aligns words best, if it is known."""
    weights = sentence.attention["cross"].array()[:, :, row]  # [layers, heads, slots]
    reading = sentence.reading
    if reading and reading.layer is not None and reading.head is not None:
        layer, head = reading.layer, reading.head
        slot = int(weights[layer, head].argmax())
    else:
        layer, head, slot = (int(index) for index in np.unravel_index(weights.argmax(), weights.shape))
    state, weight = f"step={row + 1}&head={layer + 1}.{head + 1}", _percent(weights[layer, head, slot])
    cell = f"{state}&slot={slot + 1}"
    return [
        _slide("map", f"{cell}&scene=1", f"Head {layer + 1}.{head + 1} puts {weight} of its weight on one slot. Why?"),
        _slide("map", f"{cell}&scene=4", f"Where does {weight} come from?"),
        _slide("heads", state, "Every head reads the source in its own way. Which of them align words?"),
    ]


def _slide(panel: Panel, state: str, notes: str) -> Slide:
    return Slide(panel=panel, state=state, notes={"en": notes})


def _percent(share: float) -> str:
    return "less than 1 %" if share < 0.01 else f"{100 * share:.0f} %"

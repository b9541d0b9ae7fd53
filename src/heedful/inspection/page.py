"""Render a trace as one self-contained HTML page with script, style and data; and a model, if the page is live."""

import itertools
import json
from functools import cache
from html import escape
from typing import Any

from heedful.html import VIEWER, compact_style, csp_hash, escape_json, join_scripts
from heedful.inspection.live import LiveModel, encode_weights
from heedful.trace import TraceDocument, dump_trace

SCRIPTS = (
    *("data.js", "engine.js", "state.js", "draw.js", "strip.js", "sound.js", "stage.js", "next.js"),
    *("heads.js", "map.js", "alignment.js"),
    *("search.js", "evidence.js", "compare.js", "film.js", "quiz.js", "lecture.js", "main.js"),
)  # concatenated in this order
LIVE_SCRIPTS = ("live.js", "whatif.js")  # of a page with a model, before main.js; live.css comes after the style
ENGINE_MODULES = (
    *("tensors", "weights", "normalize", "tokenizer", "pieces", "layers", "cells", "attention", "encoders", "decoders"),
    *("search", "suppression", "recording", "model", "worker"),
)  # each imports only from those before it
LATENT_SCRIPT, SOUND_SCRIPT = "alignment.js", "sound.js"  # for what few traces have
LATENT_TEXTS = ("alignment", "question-alignment", "blank")
PICTURE_TEXTS = ("picture: ", "quiz-picture", "heads-note-tiles")

TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript>This page needs JavaScript, which is included in this file: please enable it.</noscript>
<div id="app"></div>
<script type="application/json" id="glossary">{glossary}</script>
<script type="application/json" id="trace">{trace}</script>
{live}<script>{script}</script>
</body>
</html>
"""


LIVE_TEMPLATE = """<script type="application/json" id="live">{description}</script>
<script type="text/plain" id="weights">{weights}</script>
<script id="engine">{engine}</script>
"""


@cache
def load_viewer(
    *, is_live: bool = False, has_latent: bool = False, has_sound: bool = False
) -> tuple[str, str, dict[str, list[str]]]:
    """Return script, style and glossary, which has a list of all languages per key."""
    names = (*SCRIPTS[:-1], *LIVE_SCRIPTS, SCRIPTS[-1]) if is_live else SCRIPTS
    unused = {name for name, is_used in ((LATENT_SCRIPT, has_latent), (SOUND_SCRIPT, has_sound)) if not is_used}
    script = join_scripts(VIEWER / name for name in names if name not in unused)
    styles = ("viewer.css", "live.css") if is_live else ("viewer.css",)
    style = compact_style("\n".join((VIEWER / name).read_text(encoding="utf-8") for name in styles))
    glossary = json.loads((VIEWER / "glossary.json").read_text(encoding="utf-8"))
    texts = {key: [glossary[language][key] for language in glossary] for key in glossary["en"]}  # each key once
    return script, style, texts


@cache
def load_engine() -> str:
    """The script of the engine, which a page runs in a worker."""
    return join_scripts(VIEWER / "engine" / f"{name}.mjs" for name in ENGINE_MODULES)


def select_texts(texts: dict[str, list[str]], trace: TraceDocument, *, is_live: bool = False) -> dict[str, list[str]]:
    """The texts without those for what the page does not have: a kind of source, latent alignments, a model."""
    sources = [sentence.source for sentence in trace.sentences]
    unused = PICTURE_TEXTS * all(source.picture is None for source in sources)
    unused += ("sound: ",) * all(source.pieces[0].interval is None for source in sources if source.pieces)
    unused += ("graph: ",) * all(source.edges is None for source in sources)
    unused += ("no source: ",) * all(source.pieces for source in sources)
    unused += () if has_latent_alignments(trace) else LATENT_TEXTS
    unused += ("live-",) * (not is_live)
    return {key: values for key, values in texts.items() if not key.startswith(unused)}


def has_latent_alignments(trace: TraceDocument) -> bool:
    return any(sentence.latent is not None for sentence in trace.sentences)


def render_page(trace: TraceDocument, live: LiveModel | None = None) -> str:
    """The page as HTML; its Content-Security-Policy allows only its own script and style, and a worker of its own."""
    has_sound = any(sentence.source.sound for sentence in trace.sentences)
    script, style, texts = load_viewer(
        is_live=live is not None, has_latent=has_latent_alignments(trace), has_sound=has_sound
    )
    scripts, workers = f"'{csp_hash(script)}'", ""
    if live is not None:
        scripts, workers = f"{scripts} '{csp_hash(load_engine())}'", "worker-src blob:; "
    media = "media-src data:; " if has_sound else ""
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src '{csp_hash(style)}'; {workers}"
        f"img-src data: blob:; {media}base-uri 'none'; form-action 'none'"
    )
    title = escape(trace.title or "heedful inspect")
    tree = json.loads(dump_trace(trace), parse_float=lambda digits: round(float(digits), 5))  # the page shows fewer
    data = json.dumps(shorten(tree), ensure_ascii=False, separators=(",", ":"))
    glossary = escape_json(
        json.dumps(select_texts(texts, trace, is_live=live is not None), ensure_ascii=False, separators=(",", ":"))
    )
    return TEMPLATE.format(
        policy=policy,
        title=title,
        style=style,
        script=script,
        glossary=glossary,
        trace=escape_json(data),
        live="" if live is None else render_live(live),
    )


def render_live(live: LiveModel) -> str:
    """The engine, and what it needs of the model."""
    description = escape_json(json.dumps(live.description, ensure_ascii=False, separators=(",", ":")))
    return LIVE_TEMPLATE.format(description=description, weights=encode_weights(live), engine=load_engine())


def shorten(tree: dict[str, Any]) -> dict[str, Any]:
    """The trace with fewer digits, and each search tree as columns ({"step": [1, 1, ...], ...}) instead of nodes."""
    for sentence in tree.get("sentences", ()):
        for pieces in sentence.get("neighbors", {}).values():
            pieces[:] = [[[text, round(cosine, 2)] for text, cosine in nearest] for nearest in pieces]
        for curve in sentence.get("deletion", {}).values():
            curve[:] = [round(value, 2) for value in curve]
        for step in itertools.chain.from_iterable(sentence.get("lens", ())):
            del step.get("top", [])[2:]  # the page shows two
        if nodes := sentence.get("tree", {}).get("nodes"):
            keys = sorted({key for node in nodes for key in node})
            columns: dict[str, Any] = {key: [node.get(key) for node in nodes] for key in keys}
            for key in columns.keys() & {"logp", "total", "score"}:
                columns[key] = [None if value is None else round(value, 4) for value in columns[key]]
            for key in columns.keys() & {
                "fate",
                "why",
                "score",
            }:  # few different values: each once, then their positions
                values = sorted(set(columns[key]), key=str)
                columns[key] = {"unique": values, "at": [values.index(value) for value in columns[key]]}
            sentence["tree"]["nodes"] = columns
    return tree


def wrap_in_iframe(html: str, height_pixels: int = 760) -> str:
    """The page in a sandboxed frame, for notebooks."""
    return (
        f'<iframe srcdoc="{escape(html, quote=True)}" sandbox="allow-scripts allow-downloads" width="100%" '
        f'height="{height_pixels}" style="border:0" title="heedful inspect"></iframe>'
    )

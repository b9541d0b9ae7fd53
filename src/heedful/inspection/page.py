"""Render a trace as one self-contained HTML page with script, style and data."""

import itertools
import json
from functools import cache
from html import escape
from typing import Any

from heedful.html import VIEWER, compact_style, csp_hash, escape_json, join_scripts
from heedful.trace import TraceDocument, dump_trace

SCRIPTS = (
    *("data.js", "engine.js", "state.js", "draw.js"),
    *("strip.js", "stage.js", "next.js", "heads.js", "map.js", "search.js", "evidence.js", "compare.js", "film.js"),
    *("quiz.js", "lecture.js", "main.js"),
)  # concatenated in this order

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
<script>{script}</script>
</body>
</html>
"""


@cache
def load_viewer() -> tuple[str, str, str]:
    """Return script, style and glossary."""
    script = join_scripts(VIEWER / name for name in SCRIPTS)
    style = compact_style((VIEWER / "viewer.css").read_text(encoding="utf-8"))
    glossary = json.loads((VIEWER / "glossary.json").read_text(encoding="utf-8"))
    texts = {key: [glossary[language][key] for language in glossary] for key in glossary["en"]}  # each key once
    return script, style, escape_json(json.dumps(texts, ensure_ascii=False, separators=(",", ":")))


def render_page(trace: TraceDocument) -> str:
    """The page as HTML; its Content-Security-Policy allows only its own script and style."""
    script, style, glossary = load_viewer()
    policy = (
        f"default-src 'none'; script-src '{csp_hash(script)}'; style-src '{csp_hash(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    title = escape(trace.title or "heedful inspect")
    tree = json.loads(dump_trace(trace), parse_float=lambda digits: round(float(digits), 5))  # the page shows fewer
    data = json.dumps(shorten(tree), ensure_ascii=False, separators=(",", ":"))
    return TEMPLATE.format(
        policy=policy, title=title, style=style, script=script, glossary=glossary, trace=escape_json(data)
    )


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

"""Render a trace as one self-contained HTML page with script, style and data."""

import json
from functools import cache
from html import escape

from heedful.html import VIEWER, csp_hash, escape_json, join_scripts
from heedful.trace import TraceDocument, dump_trace

SCRIPTS = (
    "data.js",
    "state.js",
    "draw.js",
    "panels.js",
    "film.js",
    "search.js",
    "main.js",
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
    style = (VIEWER / "viewer.css").read_text(encoding="utf-8")
    glossary = json.dumps(json.loads((VIEWER / "glossary.json").read_text(encoding="utf-8")), ensure_ascii=False)
    return script, style, escape_json(glossary)


def render_page(trace: TraceDocument) -> str:
    """The page as HTML; its Content-Security-Policy allows only its own script and style."""
    script, style, glossary = load_viewer()
    policy = (
        f"default-src 'none'; script-src '{csp_hash(script)}'; style-src '{csp_hash(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    title = escape(trace.title or "heedful inspect")
    return TEMPLATE.format(
        policy=policy, title=title, style=style, script=script, glossary=glossary, trace=escape_json(dump_trace(trace))
    )


def wrap_in_iframe(html: str, height_pixels: int = 760) -> str:
    """The page in a sandboxed frame, for notebooks."""
    return (
        f'<iframe srcdoc="{escape(html, quote=True)}" sandbox="allow-scripts allow-downloads" width="100%" '
        f'height="{height_pixels}" style="border:0" title="heedful inspect"></iframe>'
    )

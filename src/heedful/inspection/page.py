"""A trace as one page: our script, our style, the data, and nothing from anywhere else."""

import json
from functools import cache
from html import escape
from pathlib import Path

from heedful.html import csp_hash, escape_json
from heedful.trace import Trace, dumped

VIEWER = Path(__file__).parent / "viewer"
SCRIPTS = ("data.js", "state.js", "draw.js", "panels.js", "search.js", "main.js")  # in this order, as one

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
<noscript>This page draws with JavaScript, all of which is inside this file: please allow it.</noscript>
<div id="app"></div>
<script type="application/json" id="glossary">{glossary}</script>
<script type="application/json" id="trace">{trace}</script>
<script>{script}</script>
</body>
</html>
"""


@cache
def viewer() -> tuple[str, str, str]:
    """Script, style and glossary, as they stand in the files."""
    parts = "\n".join((VIEWER / name).read_text(encoding="utf-8") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{parts}\n}})();\n'
    style = (VIEWER / "viewer.css").read_text(encoding="utf-8")
    glossary = json.dumps(json.loads((VIEWER / "glossary.json").read_text(encoding="utf-8")), ensure_ascii=False)
    return script, style, escape_json(glossary)


def page(trace: Trace) -> str:
    """The whole page; no browser runs or loads anything in it but our own script and style."""
    script, style, glossary = viewer()
    policy = (
        f"default-src 'none'; script-src '{csp_hash(script)}'; style-src '{csp_hash(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    title = escape(trace.title or "heedful inspect")
    return TEMPLATE.format(
        policy=policy, title=title, style=style, script=script, glossary=glossary, trace=escape_json(dumped(trace))
    )


def framed(html: str, height: int = 760) -> str:
    """The page in a frame, for notebooks: it can reach nothing around it."""
    return (
        f'<iframe srcdoc="{escape(html, quote=True)}" sandbox="allow-scripts allow-downloads" width="100%" '
        f'height="{height}" style="border:0" title="heedful inspect"></iframe>'
    )

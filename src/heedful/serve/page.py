"""The page at `/`: type, read, see which words belong together and how sure the model is.

    page({"source": "en", "target": "de"})       # all of it: our script, our style, and what the model speaks
    headers()                                    # to be sent with it

It asks nobody but the server that it came from, and a browser runs nothing in it but this script.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from heedful.html import csp_hash, escape_json
from heedful.inspection.page import VIEWER

FOLDER = Path(__file__).parent / "page"
SCRIPTS = (VIEWER / "draw.js", FOLDER / "text.js", FOLDER / "ask.js", FOLDER / "main.js")  # in this order, as one
TOLD = ("source", "target", "inspects")  # of what the model says of itself

TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>heedful</title>
<link rel="icon" href="data:image/svg+xml,{icon}">
<style>{style}</style>
</head>
<body>
<noscript>This page works with JavaScript, all of which is inside it: please allow it.</noscript>
<div id="app"></div>
<script type="application/json" id="words">{words}</script>
<script type="application/json" id="about">{about}</script>
<script>{script}</script>
</body>
</html>
"""
ICON = (
    "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16' rx='3' "
    "fill='%230a58ca'/%3E%3Cpath d='M4 4v8M12 4v8M4 5l8 6' stroke='%23fff' stroke-width='2'/%3E%3C/svg%3E"
)


@cache
def files() -> tuple[str, str, str]:
    """Script, style and words, as they stand in the files; the colors are the viewer's."""
    parts = "\n".join(path.read_text(encoding="utf-8") for path in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{parts}\n}})();\n'
    colors = (VIEWER / "viewer.css").read_text(encoding="utf-8").partition("* {")[0]
    words = json.dumps(json.loads((FOLDER / "words.json").read_text(encoding="utf-8")), ensure_ascii=False)
    return script, colors + (FOLDER / "page.css").read_text(encoding="utf-8"), escape_json(words)


@cache
def headers() -> dict[str, str]:
    """What is sent with the page; the policy names the one script and the one style by their hashes."""
    script, style, _ = files()
    policy = (
        f"default-src 'none'; script-src '{csp_hash(script)}'; style-src '{csp_hash(style)}'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }


def page(about: Mapping[str, Any]) -> str:
    """The whole page; `about` is what /readyz tells of the model."""
    script, style, words = files()
    told = escape_json(json.dumps({name: about[name] for name in TOLD if name in about}, ensure_ascii=False))
    return TEMPLATE.format(icon=ICON, style=style, words=words, about=told, script=script)

"""The page at `/`: translates while you type, shows alignment and probabilities.

    render_page({"directions": [{"source": "en", "target": "de"}]})    # one HTML file with script, style, translations
    page_headers()                                                     # its Content-Security-Policy

The page sends requests only to its own server, and its policy allows only its own script.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from heedful.html import VIEWER, csp_hash, escape_json, join_scripts

PAGE_DIR = Path(__file__).parent / "page"
SCRIPTS = (
    VIEWER / "draw.js",
    PAGE_DIR / "text.js",
    PAGE_DIR / "api.js",
    PAGE_DIR / "main.js",
)  # concatenated in this order

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
<noscript>This page needs JavaScript. It loads no external scripts.</noscript>
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
def read_assets() -> tuple[str, str, str]:
    """Script, style and words (JSON) of the page."""
    script = join_scripts(SCRIPTS)
    words = json.dumps(json.loads((PAGE_DIR / "words.json").read_text(encoding="utf-8")), ensure_ascii=False)
    return script, (PAGE_DIR / "page.css").read_text(encoding="utf-8"), escape_json(words)


@cache
def page_headers() -> dict[str, str]:
    """Return the HTTP headers of the page; the policy allows its script and style by their hashes."""
    script, style, _ = read_assets()
    policy = (
        f"default-src 'none'; script-src '{csp_hash(script)}'; style-src '{csp_hash(style)}'; img-src data:; "
        "media-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }


def render_page(directions: Mapping[str, Any]) -> str:
    """Return the page as HTML; `directions` is the response of /v1/directions."""
    script, style, words = read_assets()
    about = escape_json(json.dumps(directions, ensure_ascii=False))
    return TEMPLATE.format(icon=ICON, style=style, words=words, about=about, script=script)
